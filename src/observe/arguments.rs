//! Remembers argument vectors between scans, so that an unchanged process costs nothing.
//!
//! A remembered vector only saves work and never decides: a process may rewrite its title in place without any trace
//! in `stat`, so each is read again every twentieth scan, and everything that leads to a signal is read afresh.

use std::sync::Arc;

use bstr::BString;

use crate::model::id::{ProcessId, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::{Arguments, Scope};
use crate::model::table::{ExecSignature, Kernel, Row, State, Table};

/// Each entry is read again after this many scans at the latest.
const TURNS: u32 = 20;

/// What is remembered of one process.
#[derive(Debug, Clone)]
struct Entry {
    id: ProcessId,
    comm: [u8; 16],
    exec: ExecSignature,
    uid: Uid,
    // `None` for processes out of scope, whose arguments nobody needs.
    argv: Option<Known<Arc<[BString]>>>,
}

/// The argument vectors of the last scan.
#[derive(Debug, Default)]
pub(super) struct Memory {
    // Invariant: both sorted by pid; `spare` is empty between calls, and kept for its room.
    entries: Vec<Entry>,
    spare: Vec<Entry>,
    wanted: Vec<usize>,
    turn: u32,
}

impl Memory {
    /// Brings the memory up to date with a table and fills `into` with everybody in scope, sorted by id.
    ///
    /// `user` says who owns a process; `read` reads the vectors of many processes, in order.
    pub(super) fn refresh(
        &mut self,
        table: &Table,
        scope: Scope,
        own: Uid,
        into: &mut Vec<Arguments>,
        mut user: impl FnMut(ProcessId) -> Known<Uid>,
        read: impl FnOnce(&[ProcessId]) -> Vec<Known<Vec<BString>>>,
    ) {
        self.turn = self.turn.wrapping_add(1);
        self.wanted.clear();
        let mut old = self.entries.drain(..).peekable();
        for row in table.rows().iter().filter(|row| has_arguments(row)) {
            while old.next_if(|entry| entry.id.pid < row.id.pid).is_some() {}
            let known = old.next_if(|entry| entry.id.pid == row.id.pid && entry.is_still(row));
            let due = row.id.pid.number().unsigned_abs() % TURNS == self.turn % TURNS;
            if let Some(entry) = known
                && !due
                && entry.is_to_be_trusted()
            {
                self.spare.push(entry);
                continue;
            }
            // One that vanished meanwhile is not there to be judged.
            let Ok(uid) = user(row.id) else { continue };
            let argv = (scope == Scope::Host || uid == own)
                .then(|| Err(Unknown::new(Reason::NotAsked, "reading its arguments")));
            if argv.is_some() {
                self.wanted.push(self.spare.len());
            }
            self.spare.push(Entry { id: row.id, comm: row.comm, exec: row.exec, uid, argv });
        }
        drop(old);
        std::mem::swap(&mut self.entries, &mut self.spare);
        if !self.wanted.is_empty() {
            let ids: Vec<ProcessId> = self.wanted.iter().map(|&at| self.entries[at].id).collect();
            for (&at, argv) in self.wanted.iter().zip(read(&ids)) {
                self.entries[at].argv = Some(argv.map(Arc::from));
            }
        }
        into.clear();
        into.extend(self.entries.iter().filter_map(Entry::arguments));
    }
}

/// Kernel threads never had arguments, and what is dead has lost them with its memory.
fn has_arguments(row: &Row) -> bool {
    row.kernel == Kernel::No && !matches!(row.state, State::Zombie | State::Dead)
}

impl Entry {
    /// Says whether this is the same program of the same process.
    fn is_still(&self, row: &Row) -> bool {
        self.id == row.id && self.comm == row.comm && self.exec == row.exec
    }

    /// Says whether what is remembered may serve again.
    ///
    /// `arg_start` 0 is what the kernel shows of processes that we may not look into: an exec leaves no trace there.
    /// Only of a stranger is that good enough, since nothing of his is remembered; were he to become ours, the
    /// addresses would show.
    fn is_to_be_trusted(&self) -> bool {
        match &self.argv {
            None => true,
            Some(Ok(_) | Err(Unknown { reason: Reason::Truncated, .. })) => self.exec.arg_start != 0,
            Some(Err(_)) => false,
        }
    }

    fn arguments(&self) -> Option<Arguments> {
        let argv = self.argv.clone()?;
        Some(Arguments { id: self.id, uid: self.uid, argv })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::{Pid, Start};
    use crate::model::table::plain_row;

    const OWN: Uid = Uid(1000);

    fn row(pid: i32, arg_start: u64) -> Row {
        let mut row = plain_row(Pid::new(pid).unwrap(), 1, Start(5));
        row.exec.arg_start = arg_start;
        row
    }

    /// Refreshes with a world in which pid 9 is a stranger's, and returns whom it read.
    fn scan(memory: &mut Memory, rows: Vec<Row>, scope: Scope) -> (Vec<i32>, Vec<Arguments>) {
        let mut read = Vec::new();
        let mut into = Vec::new();
        let user = |id: ProcessId| Ok(if id.pid.number() == 9 { Uid(7) } else { OWN });
        memory.refresh(&Table::new(rows), scope, OWN, &mut into, user, |ids| {
            read.extend(ids.iter().map(|id| id.pid.number()));
            ids.iter().map(|id| Ok(vec![BString::from(id.pid.to_string())])).collect()
        });
        (read, into)
    }

    /// Takes the memory to a turn at which none of the pids in these tests is due.
    fn quiet() -> Memory {
        Memory { turn: 11, ..Memory::default() }
    }

    #[test]
    fn an_unchanged_process_is_read_once() {
        let mut memory = quiet();
        let rows = vec![row(5, 100), row(6, 100), row(9, 0)];
        let (read, first) = scan(&mut memory, rows.clone(), Scope::User);
        assert_eq!(read, [5, 6], "a stranger is not in scope");
        let (read, second) = scan(&mut memory, rows, Scope::User);
        assert_eq!(read, [] as [i32; 0]);
        assert_eq!(first, second);
        let (Ok(one), Ok(two)) = (&first[0].argv, &second[0].argv) else { panic!() };
        assert!(Arc::ptr_eq(one, two), "handed out again, not copied");
    }

    #[test]
    fn another_start_name_or_exec_is_read_again() {
        let mut memory = quiet();
        scan(&mut memory, vec![row(5, 100), row(6, 100), row(7, 100), row(8, 100)], Scope::User);
        let mut reused = row(5, 100);
        reused.id.start = Start(6);
        let mut renamed = row(7, 100);
        renamed.comm[0] = b'x';
        let (read, _) = scan(&mut memory, vec![reused, row(6, 101), renamed, row(8, 100)], Scope::User);
        assert_eq!(read, [5, 6, 7]);
    }

    #[test]
    fn what_we_may_not_look_into_is_never_remembered() {
        let mut memory = quiet();
        scan(&mut memory, vec![row(5, 0)], Scope::User);
        assert_eq!(scan(&mut memory, vec![row(5, 0)], Scope::User).0, [5]);
    }

    #[test]
    fn everybody_is_read_again_within_twenty_scans() {
        let mut memory = Memory::default();
        scan(&mut memory, vec![row(5, 1), row(8, 1)], Scope::User);
        let mut times = std::collections::BTreeMap::new();
        for _ in 0..TURNS {
            for pid in scan(&mut memory, vec![row(5, 1), row(8, 1)], Scope::User).0 {
                *times.entry(pid).or_insert(0) += 1;
            }
        }
        assert_eq!(times, [(5, 1), (8, 1)].into());
    }

    #[test]
    fn host_scope_takes_everybody_but_kernel_threads_and_the_dead() {
        let mut kernel = row(2, 0);
        kernel.kernel = Kernel::Thread;
        let mut dead = row(3, 1);
        dead.state = State::Zombie;
        let (_, found) = scan(&mut quiet(), vec![kernel, dead, row(5, 1), row(9, 1)], Scope::Host);
        let pids: Vec<i32> = found.iter().map(|entry| entry.id.pid.number()).collect();
        assert_eq!(pids, [5, 9]);
        assert_eq!(found[1].uid, Uid(7));
    }
}
