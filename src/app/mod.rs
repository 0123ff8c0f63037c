//! Edge.
#![allow(clippy::disallowed_methods, reason = "an edge floor: clocks, files and sockets are its work")]

pub mod teardown;

/// Runs.
pub fn main() -> std::process::ExitCode {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == "aside") {
        return crate::observe::aside_main();
    }
    std::process::ExitCode::SUCCESS
}
