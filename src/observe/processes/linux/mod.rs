//! Linux: everything comes from `/proc`, by our own readers.

mod bound;
mod cgroup;
mod directory;
mod facts;
mod host;
mod mounts;
mod owner;
mod path;
mod pinned;
mod placed;
mod repose;
mod scan;
mod stat;
mod status;
mod vectors;
mod way;

pub(in crate::observe) use bound::bound;
pub(in crate::observe) use directory::file_system;
pub(in crate::observe) use facts::{activity, arguments, facts, given, variable};
pub(in crate::observe) use host::{boot_id, clocks, gaps, is_blind, is_outermost, own, prepare_aside};
pub(in crate::observe) use owner::{bearer, owner};
pub(in crate::observe) use path::path;
pub(in crate::observe) use pinned::{Pinned, unknown};
pub(in crate::observe) use placed::{cgroups, numbers, short_text, within_network, working_directory};
pub(in crate::observe) use repose::{at_rest, progress};
pub(in crate::observe) use scan::Scanner;
pub(in crate::observe) use way::{Way, way};
