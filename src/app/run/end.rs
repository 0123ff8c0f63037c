//! Ending as the command did, so that nobody who waits can tell the difference.

use std::io;
use std::process::ExitCode;

use rustix::process::{Resource, Rlimit, Signal, WaitStatus, kill_process, setrlimit};

use super::signals;

/// A fault of our own, the command not executable, the command not found: as env(1) and docker(1) have them.
pub(super) const OWN_FAULT: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;

/// Returns the exit code for a command that could not be started.
pub(super) fn unstarted(error: &io::Error) -> u8 {
    match error.raw_os_error() {
        // Without a number: a NUL in the command, and nothing can be named so.
        Some(libc::ENOENT) | None => NOT_FOUND,
        Some(libc::EAGAIN | libc::ENOMEM) => OWN_FAULT,
        Some(_) => NOT_EXECUTABLE,
    }
}

/// Ends as the command did: with its exit code, or by its signal.
pub(super) fn like(status: WaitStatus) -> ExitCode {
    if let Some(signal) = status.terminating_signal() {
        die_of(signal);
        // Still here: it is one that we cannot be ended by. As shells show it.
        return ExitCode::from(u8::try_from(128 + signal).unwrap_or(OWN_FAULT));
    }
    let code = status.exit_status().and_then(|code| u8::try_from(code).ok());
    ExitCode::from(code.unwrap_or(OWN_FAULT))
}

fn die_of(number: i32) {
    // The command has left its core, if anybody wants one.
    let _ = setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) });
    #[cfg(target_os = "linux")]
    {
        // Where cores go to a program, the limit does not count (core(5)).
        let _ = rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable);
    }
    let Some(signal) = Signal::from_named_raw(number) else { return };
    signals::reset(signal);
    let _ = kill_process(rustix::process::getpid(), signal);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_have_the_numbers_of_env_and_docker() {
        let of = |errno| unstarted(&io::Error::from_raw_os_error(errno));
        assert_eq!(of(libc::ENOENT), 127);
        assert_eq!(of(libc::EACCES), 126);
        assert_eq!(of(libc::ENOTDIR), 126);
        assert_eq!(of(libc::ENOEXEC), 126);
        assert_eq!(of(libc::EAGAIN), 125);
    }
}
