//! What is remembered of leases: who was seen alive behind a holder's number, since when a file was not renewed, and
//! which registries have ever listed anything.

use std::collections::BTreeSet;
use std::time::Duration;

use bstr::{BStr, BString};
use serde::{Deserialize, Serialize};

use crate::judge::leased::began_before;
use crate::model::id::{FileId, Pid, ProcessId, Start, Uid};
use crate::model::lease::{Bound, Holder, Lease, LeaseId};
use crate::model::look::{Arguments, Gap, Look};
use crate::model::moment::Moment;
use crate::model::question::{Answer, Question, Registered};
use crate::model::table::Row;

use super::Ledger;

/// More places than this are not remembered: who is listed in the others stays unknown.
const MOST_PLACES: usize = 1_000;

/// More holders than this are not remembered: their deaths stay unknown.
const MOST_HOLDERS: usize = 1_000;

/// What is remembered of leases and registries.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Leases {
    // Invariant: sorted by (owner, id), no pair twice.
    #[serde(default)]
    records: Vec<Record>,
    /// Registries and places that listed somebody in this boot.
    #[serde(default)]
    listed: BTreeSet<(String, BString)>,
    /// Holders that registries name by number and start, and that were seen alive.
    #[serde(default)]
    holders: Vec<Recorded>,
}

/// A holder in a record of a registry that was seen alive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Recorded {
    registry: String,
    pid: Pid,
    pin: Pin,
}

/// What is remembered of one lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    owner: Uid,
    id: LeaseId,
    /// The file: one that was written anew says something new.
    file: FileId,
    /// When it was last renewed, for equality alone.
    modified: i64,
    /// The first look that saw it so; nothing where the watch begins anew.
    since: Option<Moment>,
    /// The number that the file names as its holder, with whom it was seen to mean.
    holder: Option<Pid>,
    pin: Option<Pin>,
}

/// A holder that was seen alive.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pin {
    /// Its raw start stamp.
    pub start: Start,
    /// The greatest age that it was seen alive at: one that dies young was an errand.
    pub age: Duration,
}

impl Leases {
    /// Time begins anew for every lease; who was seen alive was seen.
    pub(super) fn rearm(&mut self) {
        for record in &mut self.records {
            record.since = None;
        }
    }

    /// Remembers a look at all leases.
    pub(super) fn remember(&mut self, look: &Look) {
        let leases = &look.snapshot.leases;
        if !look.snapshot.gaps.iter().any(|gap| gap.source.contains(Gap::LEASES)) {
            self.records.retain(|record| leases.get(record.owner, &record.id).is_some());
        }
        for lease in &leases.list {
            let record = self.record(lease);
            record.look_at(lease, look);
        }
        for (question, answer) in &look.answers {
            let (Question::Registered { registry, place, .. }, Ok(Answer::Registered(registered))) =
                (question, answer)
            else {
                continue;
            };
            let lists = match registered {
                Registered::Listed { .. } => true,
                Registered::NotListed { others } => *others > 0,
                Registered::Over(_) => false,
            };
            if lists && self.listed.len() < MOST_PLACES {
                self.listed.insert((registry.clone(), place.clone()));
            }
            if let Registered::Listed { holder: Some(holder) } = registered {
                self.see_holder(registry, holder, look);
            }
        }
    }

    /// Remembers that the holder of a record lives, at its greatest age. A bare number could be anybody's.
    fn see_holder(&mut self, registry: &str, holder: &Holder, look: &Look) {
        let Some(start) = holder.start else { return };
        let is_it = |row: &&Row| !row.is_gone() && row.id.start == start;
        let Some(row) = look.snapshot.table.at(holder.pid).filter(is_it) else { return };
        let age = look.snapshot.began.boot.since(row.began);
        if let Some(known) = self.holders.iter_mut().find(|known| known.is_of(registry, holder)) {
            known.pin.age = known.pin.age.max(age);
        } else if self.holders.len() < MOST_HOLDERS {
            let pin = Pin { start, age };
            self.holders.push(Recorded { registry: registry.to_owned(), pid: holder.pid, pin });
        }
    }

    fn record(&mut self, lease: &Lease) -> &mut Record {
        let key = (lease.file.owner, &lease.id);
        let at = match self.records.binary_search_by(|record| (record.owner, &record.id).cmp(&key)) {
            Ok(at) => at,
            Err(at) => {
                self.records.insert(at, Record::new(lease));
                at
            }
        };
        &mut self.records[at]
    }

    fn get(&self, lease: &Lease) -> Option<&Record> {
        let key = (lease.file.owner, &lease.id);
        let at = self.records.binary_search_by(|record| (record.owner, &record.id).cmp(&key)).ok()?;
        self.records.get(at)
    }
}

impl Recorded {
    fn is_of(&self, registry: &str, holder: &Holder) -> bool {
        self.registry == registry && self.pid == holder.pid && holder.start == Some(self.pin.start)
    }
}

impl Record {
    fn new(lease: &Lease) -> Record {
        Record {
            owner: lease.file.owner,
            id: lease.id.clone(),
            file: lease.file.file,
            modified: lease.file.modified,
            since: None,
            holder: lease.holder.as_ref().map(|holder| holder.pid),
            pin: None,
        }
    }

    fn look_at(&mut self, lease: &Lease, look: &Look) {
        let now = look.snapshot.began.boot;
        if !self.is_of(lease) {
            *self = Record::new(lease);
        }
        if self.modified != lease.file.modified {
            self.modified = lease.file.modified;
            self.since = None;
            if means_another(lease, look, self.pin) {
                self.pin = None;
            }
        }
        self.since = match lease.bound {
            Bound::Ttl(_) => self.since.or(Some(now)),
            Bound::Holder => None,
        };
        if let Some(holder) = &lease.holder
            && let Some(row) = look.snapshot.table.at(holder.pid).filter(|row| !row.is_gone())
        {
            self.see(lease, holder.start, row, look);
        }
    }

    /// Says whether the file is still the one that was looked at, and means the same number.
    fn is_of(&self, lease: &Lease) -> bool {
        self.file == lease.file.file && self.holder == lease.holder.as_ref().map(|holder| holder.pid)
    }

    /// Remembers that a holder lives. Behind a bare number whoever is seen first is meant, if it is the lease's user's
    /// and began before the file was written; nobody else is later.
    fn see(&mut self, lease: &Lease, recorded: Option<Start>, row: &Row, look: &Look) {
        let age = look.snapshot.began.boot.since(row.began);
        let is_theirs =
            |arguments: &Arguments| arguments.uid == lease.file.owner && began_before(lease, look, row.id);
        match (self.pin, recorded) {
            (Some(pin), _) if pin.start == row.id.start => {
                self.pin = Some(Pin { age: pin.age.max(age), ..pin });
            }
            (_, Some(start)) if start == row.id.start => self.pin = Some(Pin { start, age }),
            (None, None) if look.arguments(row.id).is_some_and(is_theirs) => {
                self.pin = Some(Pin { start: row.id.start, age });
            }
            (Some(_) | None, Some(_) | None) => {}
        }
    }
}

/// Says whether a bare number was written, or the file renewed, while somebody else than was seen bore it: a program that
/// was started anew in a container has its old number, and may write into its old file.
fn means_another(lease: &Lease, look: &Look, pin: Option<Pin>) -> bool {
    lease.holder.as_ref().filter(|holder| holder.start.is_none()).is_some_and(|holder| {
        let bearer = look.snapshot.table.at(holder.pid).filter(|row| !row.is_gone());
        bearer.is_some_and(|row| {
            pin.is_some_and(|pin| pin.start != row.id.start) && began_before(lease, look, row.id)
        })
    })
}

impl Ledger {
    /// Says whether a file was touched since the last look, and a bare number in it may mean somebody else than was
    /// seen.
    pub fn may_mean_another(&self, lease: &Lease, look: &Look) -> bool {
        self.leases.get(lease).is_some_and(|record| {
            record.modified != lease.file.modified && means_another(lease, look, record.pin)
        })
    }

    /// Returns who was seen alive as the holder of this very file.
    pub fn pin(&self, lease: &Lease) -> Option<Pin> {
        self.leases.get(lease).filter(|record| record.is_of(lease))?.pin
    }

    /// Returns that a holder that a record of a registry names by number and start was seen alive.
    pub fn pin_recorded(&self, registry: &str, holder: &Holder) -> Option<Pin> {
        self.leases.holders.iter().find(|known| known.is_of(registry, holder)).map(|known| known.pin)
    }

    /// Returns since when a lease was seen unrenewed at every look: the same file, untouched.
    pub fn unrenewed_since(&self, lease: &Lease) -> Option<Moment> {
        let record = self.leases.get(lease)?;
        let is_untouched = record.is_of(lease) && record.modified == lease.file.modified;
        record.since.filter(|_| is_untouched)
    }

    /// Says whether a registry listed anybody at this place in this boot: one that never did may be the wrong one.
    pub fn has_listed(&self, registry: &str, place: &BStr) -> bool {
        self.leases.listed.contains(&(registry.to_owned(), place.to_owned()))
    }

    /// Returns whom a look at the table alone sees behind a lease's number; for tests and reports.
    pub fn holder(&self, lease: &Lease) -> Option<ProcessId> {
        let pid = lease.holder.as_ref()?.pid;
        self.pin(lease).map(|pin| ProcessId { pid, start: pin.start })
    }
}
