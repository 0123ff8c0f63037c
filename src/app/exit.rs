//! How a run ended, as scripts see it.

use std::process::ExitCode;

/// How a run ended. The greater the number, the less was as asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Exit {
    /// Nothing to do, or all of it done.
    Done,
    /// Orphans were found, and the caller asked to be told so with `--exit-code`.
    Found,
    /// The command line or the configuration is wrong; nothing was done.
    Usage,
    /// Some steps failed, something survived, or what was asked for is not there.
    Failed,
    /// SIGINT, SIGTERM or SIGHUP came before the first signal; nothing was done.
    Interrupted,
}

impl Exit {
    /// Returns the number.
    pub fn number(self) -> u8 {
        match self {
            Exit::Done => 0,
            Exit::Found => 1,
            Exit::Usage => 2,
            Exit::Failed => 3,
            // What shells show for a command that SIGINT ended.
            Exit::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit.number())
    }
}
