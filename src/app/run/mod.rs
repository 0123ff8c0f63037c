//! `reapd run`: runs a command as if it were not there, and ends what it leaves behind.

mod finish;

pub use finish::{FINISHING, finish};

use super::cli::Run;
use super::exit::Exit;
use super::session::Session;
use super::trouble::Trouble;

/// Runs a command.
pub fn run(_session: &mut Session, _args: Run) -> Result<Exit, Trouble> {
    Err(Trouble::failed("reapd run is not yet there"))
}
