//! Who is below whom: pure walks over the table that judge and plan share.

use std::collections::BTreeSet;

use super::id::{Pid, ProcessId, Start};
use super::table::{Row, Table};

/// Returns the processes that adopt orphans: init, user service managers, and container or session inits.
///
/// The kernel does not show who set `PR_SET_CHILD_SUBREAPER` (prctl(2)), so this is a list of names. A reaper that is
/// missing here only makes its adopted children look as if they had a live parent, which keeps them.
pub fn reapers(table: &Table) -> BTreeSet<Pid> {
    table.rows().iter().filter(|row| is_reaper(row)).map(|row| row.id.pid).collect()
}

/// Says whether a process adopts orphans, as far as its own row tells; see [`reapers`].
pub fn is_reaper(row: &Row) -> bool {
    const NAMES: [&[u8]; 9] = [
        b"systemd",
        b"launchd",
        b"init",
        b"tini",
        b"dumb-init",
        b"docker-init",
        b"catatonit",
        b"s6-svscan",
        b"runit",
    ];
    // A manager is started by init itself, or from outside our pid namespace. Anybody's script may be called `init`,
    // and whoever it started has a living parent.
    row.id.pid == Pid::INIT || row.ppid <= Pid::INIT.number() && NAMES.contains(&row.name())
}

/// How a process stands to the one that is its parent now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parentage {
    /// Its parent is a process that may have started it and is alive.
    Living(ProcessId),
    /// It was adopted: its parent is a known reaper, or began only after it did.
    Adopted(ProcessId),
    /// Its parent is a zombie, not in the table, or outside our pid namespace.
    None,
}

/// Returns how `row` stands to its parent.
pub fn parentage(table: &Table, reapers: &BTreeSet<Pid>, row: &Row) -> Parentage {
    match table.parent(row.id) {
        // Hidden from us by `hidepid` (proc(5)), and still the one that adopts.
        None if row.ppid == Pid::INIT.number() => {
            Parentage::Adopted(ProcessId { pid: Pid::INIT, start: Start(0) })
        }
        None => Parentage::None,
        Some(parent) if parent.is_gone() => Parentage::None,
        Some(parent) if reapers.contains(&parent.id.pid) || parent.id.start > row.id.start => {
            Parentage::Adopted(parent.id)
        }
        Some(parent) => Parentage::Living(parent.id),
    }
}

/// Says whether `row` has a parent that the table does not show: outside our pid namespace (0, proc_pid_stat(5)), or
/// hidden from us (`hidepid`, proc(5)). The kernel gives orphans a new parent before the old one is gone, so a number
/// that nobody seems to bear is never proof of a death.
pub fn is_parent_hidden(table: &Table, row: &Row) -> bool {
    table.parent(row.id).is_none() && row.ppid != Pid::INIT.number()
}

/// Returns `root` and everything below it by parentage, in the order of a walk, roots before children.
pub fn descendants(table: &Table, root: ProcessId) -> Vec<ProcessId> {
    let mut found = Vec::new();
    if table.get(root).is_none() {
        return found;
    }
    let mut seen = BTreeSet::from([root.pid]);
    found.push(root);
    let mut at = 0;
    while at < found.len() {
        for child in table.children(found[at].pid) {
            if seen.insert(child.id.pid) {
                found.push(child.id);
            }
        }
        at += 1;
    }
    found
}

/// Returns the ancestors of `pid`, nearest first, as far as the table goes.
pub fn ancestors(table: &Table, pid: Pid) -> Vec<ProcessId> {
    let mut found = Vec::new();
    let mut next = table.at(pid).and_then(|row| table.parent(row.id));
    while let Some(row) = next {
        if found.contains(&row.id) {
            break;
        }
        found.push(row.id);
        next = table.parent(row.id);
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::table::plain_row;

    fn row(pid: i32, ppid: i32, start: u64) -> Row {
        plain_row(Pid::new(pid).unwrap(), ppid, Start(start))
    }

    #[test]
    fn descendants_come_parents_first() {
        let table = Table::new(vec![row(1, 0, 1), row(5, 1, 2), row(6, 5, 3), row(7, 6, 4), row(8, 1, 4)]);
        let pids: Vec<i32> = descendants(&table, row(5, 1, 2).id).iter().map(|id| id.pid.number()).collect();
        assert_eq!(pids, [5, 6, 7]);
        assert!(descendants(&table, row(5, 1, 99).id).is_empty(), "another start is another process");
    }

    #[test]
    fn a_parent_younger_than_its_child_adopted_it() {
        let mut young = row(40, 1, 50);
        young.comm[..4].copy_from_slice(b"tmux");
        let table = Table::new(vec![row(1, 0, 1), young, row(41, 40, 20), row(42, 40, 60)]);
        let reapers = reapers(&table);
        let of = |pid| parentage(&table, &reapers, table.at(Pid::new(pid).unwrap()).unwrap());
        assert_eq!(of(41), Parentage::Adopted(young.id));
        assert_eq!(of(42), Parentage::Living(young.id));
        assert_eq!(of(40), Parentage::Adopted(row(1, 0, 1).id));
    }

    #[test]
    fn a_script_by_the_name_of_a_manager_is_none() {
        let named = |pid, ppid| {
            let mut row = row(pid, ppid, 2);
            row.comm[..4].copy_from_slice(b"init");
            row
        };
        let table = Table::new(vec![row(1, 0, 1), named(5, 1), row(6, 1, 2), named(7, 6), named(8, 0)]);
        assert_eq!(reapers(&table).into_iter().map(Pid::number).collect::<Vec<_>>(), [1, 5, 8]);
    }

    #[test]
    fn a_parent_that_is_not_to_be_seen_is_hidden_and_not_dead() {
        let table = Table::new(vec![row(41, 40, 20), row(42, 1, 20), row(43, 0, 20), row(44, 41, 30)]);
        let at = |pid| table.at(Pid::new(pid).unwrap()).unwrap();
        assert_eq!([41, 42, 43, 44].map(|pid| is_parent_hidden(&table, at(pid))), [true, false, true, false]);
        let init = ProcessId { pid: Pid::INIT, start: Start(0) };
        assert_eq!(parentage(&table, &reapers(&table), at(42)), Parentage::Adopted(init));
    }
}
