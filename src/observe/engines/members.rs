//! Who is in which container, by the cgroups of all processes: found without a call, and everybody may read them.

use std::collections::BTreeMap;
use std::path::Path;

use super::census::inode;
use super::init;
use crate::model::container::ContainerId;
use crate::model::id::{Pid, ProcessId};
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
}

/// Who is in which network namespace.
#[derive(Debug, Default)]
pub(super) struct Networks {
    within: BTreeMap<u64, BTreeMap<Option<ContainerId>, ProcessId>>,
}

impl Networks {
    /// Asks for everybody's; who cannot be asked any more is in none.
    pub(super) fn of(members: &Members) -> Networks {
        let mut within: BTreeMap<u64, BTreeMap<_, _>> = BTreeMap::new();
        for (container, ids) in &members.within {
            for id in ids {
                if let Ok(network) = network(id.pid) {
                    within.entry(network).or_default().entry(container.clone()).or_insert(*id);
                }
            }
        }
        Networks { within }
    }

    /// Returns somebody who is in a network and not in a container.
    pub(super) fn beside(&self, network: u64, container: &ContainerId) -> Option<ProcessId> {
        let mut within = self.within.get(&network)?.iter();
        within.find(|(other, _)| other.as_ref() != Some(container)).map(|(_, id)| *id)
    }
}

/// Returns the network namespace of a process, by the inode of its list of sockets.
pub(super) fn network(pid: Pid) -> Known<u64> {
    let list = format!("/proc/{pid}/net/unix");
    inode(Path::new(&list)).map_err(|errno| processes::unknown(errno, "its network"))
}

fn is_first(numbers: &Known<Vec<i32>>) -> bool {
    matches!(numbers.as_deref(), Ok([_, 1]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::known::{Reason, Unknown};

    #[test]
    fn who_shares_a_network() {
        let id = |digit: &str| ContainerId::new(&digit.repeat(64));
        let process = |pid| ProcessId { pid: Pid::new(pid).unwrap(), start: crate::model::id::Start(1) };
        let within = BTreeMap::from([
            (5, BTreeMap::from([(id("a"), process(1))])),
            (6, BTreeMap::from([(id("a"), process(2)), (id("b"), process(3))])),
            (7, BTreeMap::from([(id("a"), process(4)), (None, process(5))])),
        ]);
        let networks = Networks { within };
        let beside = |network, digit| networks.beside(network, &id(digit).unwrap());
        assert_eq!(
            (beside(5, "a"), beside(6, "a"), beside(7, "a")),
            (None, Some(process(3)), Some(process(5)))
        );
        assert_eq!(beside(6, "b"), Some(process(2)));
    }

    #[test]
    fn number_one_right_below_us() {
        assert!(is_first(&Ok(vec![4711, 1])));
        for numbers in [vec![4711], vec![4711, 2], vec![4711, 7, 1], vec![1], Vec::new()] {
            assert!(!is_first(&Ok(numbers)));
        }
        assert!(!is_first(&Err(Unknown::new(Reason::Vanished, "x"))));
    }
}
