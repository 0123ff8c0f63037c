//! The binary: everything is in the library, so that tests and benchmarks reach it.

use std::process::ExitCode;

fn main() -> ExitCode {
    reapd::app::main()
}
