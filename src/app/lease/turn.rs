//! One reaper at a time for what one lease covers: two TERMs from two of them are "force quit" to many programs
//! (REDTEAM F15). Whoever finishes one lease does not wait for a whole sweep.

use std::collections::BTreeMap;

use super::place::{self, LeaseDirectory};
use super::store::{LeaseLock, Store, StoreError};
use crate::app::place::Surroundings;
use crate::app::trouble::chain;
use crate::model::id::Uid;
use crate::model::lease::LeaseId;

/// The leases of this user that we have the turn of, until this is dropped.
#[derive(Debug, Default)]
pub struct Turns {
    /// Where our leases are, until they are needed: where nothing of theirs goes, nobody waits for their file system.
    at: Option<LeaseDirectory>,
    store: Option<Store>,
    held: BTreeMap<LeaseId, LeaseLock>,
}

impl Turns {
    /// Returns none so far.
    pub fn none(around: &Surroundings) -> Turns {
        Turns { at: Some(place::own(around)), store: None, held: BTreeMap::new() }
    }

    /// Returns the turn of one lease.
    pub fn of(store: Store, id: LeaseId, lock: LeaseLock) -> Turns {
        Turns { at: None, store: Some(store), held: BTreeMap::from([(id, lock)]) }
    }

    /// Takes the turn of a lease; says why not where somebody else has it. The lock of another user's lease is in that
    /// user's directory, where nobody else writes.
    pub fn take(&mut self, owner: Uid, id: &LeaseId) -> Result<(), String> {
        if owner.0 != rustix::process::geteuid().as_raw() || self.held.contains_key(id) {
            return Ok(());
        }
        let unsure = |error: StoreError| format!("whether another reapd is at work on it: {}", chain(&error));
        if let (None, Some(at)) = (&self.store, &self.at) {
            self.store = Store::existing(at).map_err(unsure)?;
        }
        let Some(store) = &self.store else { return Ok(()) };
        match store.try_lock(id) {
            Ok(Some(lock)) => {
                self.held.insert(id.clone(), lock);
                Ok(())
            }
            Ok(None) => Err(format!("another reapd is at work on what its lease {id} covers")),
            Err(error) => Err(unsure(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_another_one_finishes_is_left_alone_f15() {
        let base = tempfile::tempdir().unwrap();
        let owner = rustix::process::geteuid().as_raw();
        let at = LeaseDirectory { path: base.path().join("leases"), owner };
        let id = LeaseId::new("a").unwrap();
        let at_again = at.clone();
        let other = Store::open(&at).unwrap();
        let lock = other.try_lock(&id).unwrap();
        let mut turns = Turns { at: Some(at), ..Turns::default() };
        let refused = turns.take(Uid(owner), &id).unwrap_err();
        assert!(refused.contains("another reapd"), "{refused}");
        drop(lock);
        turns.take(Uid(owner), &id).unwrap();
        turns.take(Uid(owner), &id).unwrap();
        assert!(other.try_lock(&id).unwrap().is_none(), "we have it until we end");
        drop(turns);
        std::fs::set_permissions(other.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
        let mut blind = Turns { at: Some(at_again), ..Turns::default() };
        assert!(blind.take(Uid(owner), &id).is_err(), "who cannot ask does nothing");
        std::fs::set_permissions(other.path(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        assert!(other.try_lock(&id).unwrap().is_some());
    }
}
