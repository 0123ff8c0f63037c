//! What a sweep removes from this user's own lease directory: leases that have been over for long and cover nobody, and
//! what writers and waiters left beside them. What cannot be read stays, since what it covers is unknown.

use std::time::{Duration, SystemTime};

use rustix::fs::AtFlags;

use super::list::questions;
use super::place;
use super::store::Store;
use crate::act::cgroup::Group;
use crate::app::containers::LEASE;
use crate::app::look::{Eyes, gather};
use crate::app::place::Surroundings;
use crate::config::policy::Config;
use crate::judge::Ledger;
use crate::judge::leased::{State, covered, state};
use crate::model::id::{Start, Uid};
use crate::model::lease::{Bound, Lease, LeaseId, Release};
use crate::model::look::Look;
use crate::model::table::Row;
use crate::observe;

/// Nothing younger is removed: somebody may be about to use it, or wait for its end.
const OLD: Duration = Duration::from_hours(1);

/// Tidies up. Whatever fails is tried again at the next sweep.
pub fn tidy(around: &Surroundings, eyes: &mut dyn Eyes, config: &Config, ledger: &Ledger) {
    let at = place::own(around);
    let Ok(Some(store)) = Store::existing(&at) else { return };
    let Ok(entries) = std::fs::read_dir(store.path()) else { return };
    let old: Vec<String> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let is_old = is_old(entry.metadata().ok()?.modified().ok()?);
            is_old.then(|| entry.file_name().into_string().ok()).flatten()
        })
        .collect();
    for name in &old {
        beside(&store, name);
    }
    let ids = old.iter().filter_map(|name| LeaseId::new(name.strip_suffix(".json")?));
    let leases: Vec<Lease> =
        ids.filter_map(|id| store.read(&id).ok().flatten()).filter(may_be_over).collect();
    if leases.is_empty() {
        return;
    }
    let Ok(snapshot) = eyes.table() else { return };
    let mut look = Look::new(snapshot);
    gather(eyes, &mut look, questions);
    for lease in leases {
        // As the look read it, whole and at the same time as the processes.
        let seen = look.snapshot.leases.get(Uid(at.owner), &lease.id).filter(|seen| seen.file == lease.file);
        let is_over = seen.is_some_and(|seen| {
            let over = match state(seen, &look, ledger, &config.confirm) {
                State::Over { .. } => true,
                // What a killed `reapd run` leaves behind: nobody can come under it any more.
                State::Held { .. } => seen
                    .run
                    .as_ref()
                    .is_some_and(|run| look.snapshot.table.get(run.watcher).is_none_or(Row::is_gone)),
                State::Unknown(_) => false,
            };
            let covered = covered(seen, &look);
            over && !may_cover_a_container(seen, &look)
                && covered.roots.is_empty()
                && covered.all.is_empty()
                && covered.spared.is_empty()
        });
        if is_over {
            if let Some(cgroup) = lease.run.as_ref().and_then(|run| run.cgroup.as_ref()) {
                // Its watcher was killed. The kernel keeps one that somebody is in.
                let _ = Group::remove(cgroup, &lease.id, Uid(at.owner));
            }
            let _ = store.remove_unchanged(&lease.id, &lease.file);
        }
    }
}

/// Says whether a container bears the lease in its labels, or may, as far as its engine does not say.
fn may_cover_a_container(lease: &Lease, look: &Look) -> bool {
    look.snapshot.engines.iter().any(|engine| match &engine.containers {
        Ok(listed) => listed
            .iter()
            .any(|listed| listed.labels.get(LEASE).is_some_and(|label| label == lease.id.as_str())),
        Err(_) => lease.labels.contains_key("cidfile"),
    })
}

fn is_old(modified: SystemTime) -> bool {
    SystemTime::now().duration_since(modified).is_ok_and(|age| age > OLD)
}

/// Says whether a look is worth its cost.
fn may_be_over(lease: &Lease) -> bool {
    let is_nobody = |pid, start: Option<Start>| match observe::bearer(pid) {
        Ok(Some(row)) => row.is_gone() || start.is_some_and(|start| start != row.id.start),
        Ok(None) => true,
        Err(_) => false,
    };
    let is_gone = || {
        lease.holder.as_ref().is_none_or(|holder| is_nobody(holder.pid, holder.start))
            || lease.run.as_ref().is_some_and(|run| is_nobody(run.watcher.pid, Some(run.watcher.start)))
    };
    match (&lease.release, lease.bound) {
        (Release::Released(_), _) | (Release::Open, Bound::Ttl(_)) => true,
        (Release::Open, Bound::Holder) => is_gone(),
    }
}

/// Removes what a writer that crashed left half-written, and locks, memories and ids of containers of leases that are not
/// there any more.
fn beside(store: &Store, name: &str) {
    if let Some(id) = name.strip_suffix(".cid").and_then(LeaseId::new) {
        if matches!(store.read(&id), Ok(None)) {
            let _ = rustix::fs::unlinkat(store.directory(), name, AtFlags::empty());
        }
        return;
    }
    let Some(inner) = name.strip_prefix('.') else { return };
    let remove = || rustix::fs::unlinkat(store.directory(), name, AtFlags::empty());
    if inner.strip_suffix(".tmp").is_some() {
        let _ = remove();
        return;
    }
    let id = inner.strip_suffix(".lock").or_else(|| inner.strip_suffix(".seen")).and_then(LeaseId::new);
    if let Some(id) = id
        && matches!(store.read(&id), Ok(None))
        && let Ok(Some(_lock)) = store.try_lock(&id)
    {
        let _ = remove();
    }
}
