//! Who is in which container, by the cgroups of all processes: found without a call, and everybody may read them.

use std::collections::BTreeMap;

use super::init;
use crate::model::container::ContainerId;
use crate::model::id::ProcessId;
use crate::model::known::Known;
use crate::model::table::{Kernel, Table};
use crate::observe::processes;

/// Every process, by the container it is in.
#[derive(Debug, Default)]
pub(super) struct Members {
    within: BTreeMap<Option<ContainerId>, Vec<ProcessId>>,
}

impl Members {
    /// Reads the cgroups of everybody in a table.
    pub(super) fn of(table: &Table) -> Members {
        let mut within: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for row in table.rows().iter().filter(|row| row.kernel == Kernel::No && !row.is_gone()) {
            // Whose cgroups cannot be read is in no container that we know.
            let container = processes::cgroups(row.id).ok().and_then(|text| init::bearer(&text));
            within.entry(container).or_default().push(row.id);
        }
        Members { within }
    }

    /// Returns a container's first process: the one that is 1 in a pid namespace right below ours. Nothing where that
    /// is nobody (the pid namespace is the host's or another container's) or several.
    pub(super) fn first(&self, container: &ContainerId) -> Option<ProcessId> {
        let members = self.within.get(&Some(container.clone()))?;
        let is_first = |id: &&ProcessId| is_first(&processes::numbers(**id));
        let mut first = members.iter().filter(is_first);
        let found = first.next().copied();
        found.filter(|_| first.next().is_none())
    }

    /// Returns everybody who is not in a container.
    pub(super) fn beside(&self, container: &ContainerId) -> impl Iterator<Item = &ProcessId> {
        let container = Some(container.clone());
        self.within.iter().filter(move |(within, _)| **within != container).flat_map(|(_, ids)| ids)
    }
}

fn is_first(numbers: &Known<Vec<i32>>) -> bool {
    matches!(numbers.as_deref(), Ok([_, 1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::known::{Reason, Unknown};

    #[test]
    fn number_one_right_below_us() {
        assert!(is_first(&Ok(vec![4711, 1])));
        for numbers in [vec![4711], vec![4711, 2], vec![4711, 7, 1], vec![1], Vec::new()] {
            assert!(!is_first(&Ok(numbers)));
        }
        assert!(!is_first(&Err(Unknown::new(Reason::Vanished, "x"))));
    }
}
