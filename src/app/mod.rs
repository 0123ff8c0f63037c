//! Wires the stages: reads the command line and the clock, loops, prints, remembers. Edge.
#![allow(clippy::disallowed_methods, reason = "an edge floor: clocks, files and sockets are its work")]

pub mod cli;
pub mod exit;
pub mod journal;
pub mod legible;
pub mod lock;
pub mod look;
pub mod memory;
pub mod out;
pub mod place;
pub mod redact;
pub mod report;
pub mod resume;
pub mod signals;
pub mod state;
pub mod teardown;
pub mod trouble;
pub mod words;

#[cfg(test)]
mod sample;

/// Runs.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
