//! One process, held to by its start and its unique number: a Mac has no descriptor that stays with a process.

use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::observe::Life;

use super::kinfo::{Entry, parse_kinfo};
use super::{host, kernel, records};

/// Who a process is. Every read is followed by a look whether it is still the same one.
#[derive(Debug)]
pub(in crate::observe) struct Pinned {
    /// Whom it is on.
    pub(super) id: ProcessId,
    /// `p_uniqueid` at first sight; `None` where the kernel did not say.
    pub(super) unique: Option<u64>,
}

impl Pinned {
    /// Makes sure that the number is this very process's.
    pub(in crate::observe) fn open(id: ProcessId) -> Known<Pinned> {
        let pinned = Pinned { id, unique: unique(id) };
        pinned.entry()?;
        Ok(pinned)
    }

    /// Returns its row in the table now, where it is still the same process.
    pub(super) fn entry(&self) -> Known<Entry> {
        let bytes = kernel::row_bytes(self.id.pid)?;
        let what = "its row in the process table";
        let entry = parse_kinfo(&bytes, host::clocks())
            .into_iter()
            .next()
            .ok_or_else(|| Unknown::new(Reason::Unsupported, what))?;
        if !entry.is_readable() {
            // "No parent, start 0" is how a refusal looks here; it is no identity.
            return Err(Unknown::new(Reason::Denied, what));
        }
        if entry.row.id != self.id || (self.unique.is_some() && unique(self.id) != self.unique) {
            return Err(Unknown::new(Reason::Vanished, "its number belongs to another process"));
        }
        Ok(entry)
    }

    /// Returns what `read` read, where the process was the same one afterwards.
    pub(super) fn still<T>(&self, read: Known<T>) -> Known<T> {
        let value = read?;
        self.entry()?;
        Ok(value)
    }

    /// Says whether the process still runs.
    pub(in crate::observe) fn life(&self) -> Life {
        match self.entry() {
            Ok(entry) if entry.row.is_gone() => Life::Gone,
            Ok(_) => Life::Alive,
            Err(Unknown { reason: Reason::Vanished, .. }) => Life::Gone,
            Err(_) => Life::Unknown,
        }
    }
}

fn unique(id: ProcessId) -> Option<u64> {
    let record = kernel::record(id.pid, kernel::Record::Unique, records::UNIQUE).ok()?;
    records::unique(&record)
}
