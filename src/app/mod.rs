//! Edge.
#![allow(clippy::disallowed_methods, reason = "an edge floor: clocks, files and sockets are its work")]

pub mod teardown;

/// Runs.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
