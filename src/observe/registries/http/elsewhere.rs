//! Who answered, where the system does not show who holds a socket without being asked process by process: unknown.

use std::collections::BTreeSet;

use super::client::{Endpoint, Line};
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::table::Table;

/// What was seen before anybody was asked.
#[derive(Debug, Default)]
pub(super) struct Before;

impl Before {
    /// Looks at nothing.
    pub(super) fn look(_at: &BTreeSet<Endpoint>, _of: &BTreeSet<ProcessId>, _table: &Table) -> Before {
        Before
    }

    /// Says that it cannot be seen who answered.
    #[expect(clippy::unused_self, reason = "the same signatures as on Linux")]
    pub(super) fn who_answered(&self, lines: &[&Line], _table: &Table) -> Vec<Known<Vec<ProcessId>>> {
        lines.iter().map(|_| Err(unsupported())).collect()
    }
}

/// Says that it cannot be told.
pub(super) fn is_below(_of: ProcessId, _all: &[ProcessId], _table: &Table) -> Known<()> {
    Err(unsupported())
}

fn unsupported() -> Unknown {
    Unknown::new(Reason::Unsupported, "which process answered (name the server with `instance` instead)")
}
