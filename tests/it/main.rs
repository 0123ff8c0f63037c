//! Tests with real processes, in one binary.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests start processes and read clocks")]

#[cfg(target_os = "linux")]
mod support;
#[cfg(target_os = "linux")]
mod teardown;
