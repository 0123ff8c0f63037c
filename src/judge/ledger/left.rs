//! Since when what trees left behind has been seen as it is.

use bstr::BString;
use serde::{Deserialize, Serialize};

use crate::model::id::FileId;
use crate::model::moment::Moment;
use crate::model::residue::Left;

use super::{Ledger, fingerprint};

/// Everything of it that was there at the last look.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Behind(Vec<Seen>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Seen {
    path: BString,
    file: FileId,
    /// Of everything that lstat(2) shows of it and of what is in it.
    print: u64,
    since: Moment,
}

impl Behind {
    pub(super) fn rearm(&mut self) {
        self.0.clear();
    }

    fn since(&self, path: &BString, file: FileId, print: u64) -> Option<Moment> {
        let is_it = |seen: &&Seen| seen.path == *path && seen.file == file && seen.print == print;
        self.0.iter().find(is_it).map(|seen| seen.since)
    }
}

/// Returns a number that any change about it changes. What a record names is not of it: that is there or gone by itself.
fn print(left: &Left) -> u64 {
    fingerprint(&(left.own(), left.entries()))
}

impl Ledger {
    /// Returns since when it has been seen at every look, and no change about it.
    pub fn left_since(&self, left: &Left) -> Option<Moment> {
        self.behind.since(&left.place().path(), left.own().file, print(left))
    }

    /// Remembers what was there at this look; what was not is forgotten.
    pub fn remember_left<'a>(&mut self, all: impl Iterator<Item = &'a Left>, now: Moment) {
        let seen = all.map(|left| {
            let (path, file, print) = (left.place().path(), left.own().file, print(left));
            let since = self.behind.since(&path, file, print).unwrap_or(now);
            Seen { path, file, print, since }
        });
        self.behind = Behind(seen.collect());
    }
}
