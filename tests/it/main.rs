//! Tests with real processes, in one binary.
#![allow(clippy::disallowed_methods, reason = "tests start processes and read clocks")]

mod support;
mod teardown;
mod tidy;
