//! `reapd run`: runs a command as if it were not there, and ends what it leaves behind.

use super::cli::Run;
use super::exit::Exit;
use super::session::Session;
use super::trouble::Trouble;

/// Runs a command.
pub fn run(_session: &mut Session, _args: Run) -> Result<Exit, Trouble> {
    Err(Trouble::failed("reapd run is not yet there"))
}

/// Ends what a lease covers.
pub fn finish(_session: &mut Session, _id: &str) -> Result<Exit, Trouble> {
    Err(Trouble::failed("reapd run is not yet there"))
}
