//! macOS: the table comes from `sysctl kern.proc`, everything dearer from libproc, and display figures from sysinfo.
//!
//! It passes type checks and lints for a Mac, and what takes the kernel's bytes apart is tested on bytes that were
//! constructed from Apple's headers. None of it ever ran on a Mac. So whatever looks other than the headers say is
//! unknown, and unknown is kept.
//!
//! The parsers (`kinfo`, `arguments`, `records`, `channels`, `privacy`) name no Apple type and are compiled for tests
//! on every system; only what calls the kernel is for a Mac alone.

mod arguments;
mod bytes;
mod channels;
mod kinfo;
mod privacy;
mod records;

#[cfg(target_os = "macos")]
mod directory;
#[cfg(target_os = "macos")]
mod facts;
#[cfg(target_os = "macos")]
mod host;
#[cfg(target_os = "macos")]
mod kernel;
#[cfg(target_os = "macos")]
mod path;
#[cfg(target_os = "macos")]
mod pinned;
#[cfg(target_os = "macos")]
mod scan;

#[cfg(target_os = "macos")]
pub(in crate::observe) use facts::{
    activity, arguments, bearer, channel, facts, given, holders, owner, sockets, terminals, variable,
};
#[cfg(target_os = "macos")]
pub(in crate::observe) use host::{boot_id, clocks, gaps, is_blind, own, prepare_aside};
#[cfg(target_os = "macos")]
pub(in crate::observe) use path::{bound, path};
#[cfg(target_os = "macos")]
pub(in crate::observe) use pinned::Pinned;
#[cfg(target_os = "macos")]
pub(in crate::observe) use scan::Scanner;
