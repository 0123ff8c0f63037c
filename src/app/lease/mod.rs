//! `reapd lease`: makes, ends, lists and checks leases.

mod acquire;
mod check;
mod hook;
pub mod identity;
mod list;
pub mod place;
mod release;
pub mod store;
pub mod tidy;
pub mod turn;
mod wait;

use super::cli::Lease;
use super::exit::Exit;
use super::session::Session;
use super::trouble::Trouble;
use crate::model::escape::escape;
use crate::model::lease::LeaseId;

use store::{Store, StoreError};

/// Runs it.
pub fn run(session: &mut Session, command: Lease) -> Result<Exit, Trouble> {
    match command {
        Lease::Acquire(args) => acquire::acquire(session, &args),
        Lease::Renew { id } => release::renew(session, &id),
        Lease::Release { id, wait } => release::release(session, &id, wait.as_deref()),
        Lease::List => list::list(session),
        Lease::Check { file } => check::check(session, &file),
        Lease::Hook { agent, export } => {
            let cookie = if export { hook::Cookie::Export } else { hook::Cookie::None };
            Ok(hook::hook(session, &agent, cookie))
        }
    }
}

/// Opens this user's own lease directory, making it where it is not there.
fn own_store(session: &Session) -> Result<Store, Trouble> {
    Store::open(&place::own(&session.around)).map_err(|error| store_trouble(&error))
}

pub(super) fn id_of(text: &str) -> Result<LeaseId, Trouble> {
    LeaseId::new(text).ok_or_else(|| {
        Trouble::usage(format!("'{}' is no name of a lease", escape(text.as_bytes())))
            .hint("up to 64 letters, digits, dots, dashes and underscores, the first a letter or a digit")
    })
}

/// Returns trouble with a lease file or the directory.
pub(super) fn store_trouble(error: &StoreError) -> Trouble {
    let trouble = Trouble::because("lease", error);
    match error {
        StoreError::Directory(_) => {
            trouble.hint(format!("it must be yours alone; ${} names another directory", place::VARIABLE))
        }
        StoreError::Missing(_) => trouble.hint("reapd lease list shows those that are there"),
        StoreError::Exists(_) => {
            trouble.hint("take another id, or release that one and wait until it covers nobody")
        }
        StoreError::Faulty { .. } => trouble.hint("reapd lease check FILE says what is wrong with it"),
        StoreError::Io { .. } | StoreError::Released(_) | StoreError::Changed(_) => trouble,
    }
}
