//! Tests against real processes and the real binary, all in one. Each marks what it starts and ends it by its number.
#![allow(clippy::disallowed_methods, reason = "tests start programs, read files and clocks")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[cfg(target_os = "linux")]
mod channels;
mod config;
#[cfg(target_os = "linux")]
mod observe;
mod scenarios;
#[cfg(target_os = "linux")]
mod support;
#[cfg(target_os = "linux")]
mod teardown;
