//! Carries out what was planned: it checks once more, signals, and watches until it is seen done. It never decides.
#![allow(clippy::disallowed_methods, reason = "an edge floor: clocks, files and sockets are its work")]

pub mod cgroup;
pub mod containers;
pub mod processes;
pub mod residue;
