//! Tests against real processes, in one binary.
#![allow(clippy::disallowed_methods, reason = "tests of the edge use clocks, files and programs")]

#[cfg(target_os = "linux")]
mod channels;
