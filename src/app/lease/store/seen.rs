//! Who was seen covered by a lease that is over, for those who wait for its end: a process that drops off when its root
//! goes shows nothing of the lease any more. It is a memory for waiting, and nobody is ended by it.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::Read as _;

use rustix::fs::{Mode, OFlags};

use super::Store;
use crate::model::id::ProcessId;
use crate::model::lease::LeaseId;

/// The file is read no further than this, bytes.
const LARGEST: u64 = 1024 * 1024;

impl Store {
    /// Returns who was seen covered, as far as anybody wrote it down.
    pub fn seen(&self, id: &LeaseId) -> BTreeSet<ProcessId> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let Ok(file) = rustix::fs::openat(&self.directory, format!(".{id}.seen"), flags, Mode::empty())
        else {
            return BTreeSet::new();
        };
        let mut text = Vec::new();
        let read = File::from(file).take(LARGEST).read_to_end(&mut text);
        read.ok().and_then(|_| serde_json::from_slice(&text).ok()).unwrap_or_default()
    }

    /// Writes down who was seen covered, with whom others saw. What cannot be written is missed by who comes later.
    pub fn remember_seen(&self, id: &LeaseId, seen: &BTreeSet<ProcessId>) {
        let Ok(_lock) = self.exclusive() else { return };
        let before = self.seen(id);
        if seen.is_subset(&before) {
            return;
        }
        let all: BTreeSet<ProcessId> = before.union(seen).copied().collect();
        let Ok(text) = serde_json::to_vec(&all) else { return };
        if let Ok(fresh) = self.write_aside(id, &text)
            && rustix::fs::renameat(&self.directory, &fresh, &self.directory, format!(".{id}.seen")).is_err()
        {
            self.forget(&fresh);
        }
    }
}
