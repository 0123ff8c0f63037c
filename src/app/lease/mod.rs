//! `reapd lease`: makes, ends, lists and checks leases.

pub mod identity;
pub mod place;
pub mod store;

use super::cli::Lease;
use super::exit::Exit;
use super::session::Session;
use super::trouble::Trouble;

/// Runs it.
pub fn run(_session: &mut Session, _command: Lease) -> Result<Exit, Trouble> {
    Err(Trouble::failed("leases are not yet there"))
}
