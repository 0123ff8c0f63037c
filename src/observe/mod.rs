//! Edge.
#![allow(clippy::disallowed_methods, reason = "an edge floor: clocks, files and sockets are its work")]

#[cfg(target_os = "linux")]
mod descriptors;
#[cfg(target_os = "linux")]
pub mod sockets;
#[cfg(target_os = "linux")]
pub mod stdio;
