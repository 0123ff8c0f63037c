//! The process table: the cheap facts of every process, and its tree.

use std::time::Duration;

use super::id::{Pid, ProcessId, Start};
use super::moment::Moment;

/// What a process is doing. Linux: field 3 of `/proc/PID/stat`; macOS: `p_stat`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum State {
    /// Running or runnable.
    Running,
    /// Sleeping, and a signal wakes it.
    Sleeping,
    /// Uninterruptible (`D`): KILL stays pending. A cgroup v1 freezer shows the same.
    Uninterruptible,
    /// Stopped by a signal or by a tracer (`T`, `t`).
    Stopped,
    /// The thread-group leader is dead (`Z`). Its other threads may live: see [`Row::is_gone`].
    Zombie,
    /// On its way out (`X`; macOS: exiting).
    Dead,
    /// A letter we do not know.
    Other(u8),
}

impl State {
    /// Returns the state that Linux shows by this letter (proc_pid_stat(5)).
    pub fn of_letter(letter: u8) -> State {
        match letter {
            b'R' => State::Running,
            b'S' | b'I' => State::Sleeping,
            b'D' => State::Uninterruptible,
            b'T' | b't' => State::Stopped,
            b'Z' => State::Zombie,
            b'X' | b'x' => State::Dead,
            other => State::Other(other),
        }
    }
}

/// What `execve(2)` changes in `stat` even when the pid stays: with the start it keys cached argument vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ExecSignature {
    /// Field 28, `startstack`.
    pub start_stack: u64,
    /// Field 48, `arg_start`; 0 where we may not see it.
    pub arg_start: u64,
    /// Field 49, `arg_end`.
    pub arg_end: u64,
    /// Field 50, `env_start`.
    pub env_start: u64,
}

/// One process, as one read of `stat` shows it. Fixed size, so that a table is one allocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Its number and raw start.
    pub id: ProcessId,
    /// Its parent's number; 0 for the kernel's own and for what came from outside our pid namespace.
    pub ppid: i32,
    /// Its process group; 0 where it is outside our pid namespace.
    pub pgid: i32,
    /// Its session; 0 where it is outside our pid namespace.
    pub sid: i32,
    /// What it is doing.
    pub state: State,
    /// Whether it is a thread of the kernel (`PF_KTHREAD`), which nobody may signal.
    pub kernel: Kernel,
    /// Its controlling terminal's device number; 0 for none.
    pub tty: i32,
    /// Number of threads.
    pub threads: u32,
    /// Processor time used, user and system together.
    pub cpu: Duration,
    /// Resident memory, bytes.
    pub resident: u64,
    /// When it began, on the boot clock. For ages only, never for identity.
    pub began: Moment,
    /// Command name, at most 15 bytes and the rest zero. It stays the old one after some execs and anybody may
    /// change it: it narrows a search, and proves nothing.
    pub comm: [u8; 16],
    /// What exec changes.
    pub exec: ExecSignature,
}

/// Whether a row is a kernel thread.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// A thread of the kernel.
    Thread,
    /// An ordinary process.
    No,
}

impl Row {
    /// Says whether nothing of the process runs any more: exiting, or a zombie without live threads.
    ///
    /// A zombie leader whose `num_threads` is above 1 still has running threads (CASES C24): it is alive.
    pub fn is_gone(&self) -> bool {
        match self.state {
            State::Dead => true,
            State::Zombie => self.threads <= 1,
            State::Running | State::Sleeping | State::Uninterruptible | State::Stopped | State::Other(_) => {
                false
            }
        }
    }

    /// Returns the command name without its padding.
    pub fn name(&self) -> &[u8] {
        let end = self.comm.iter().position(|&byte| byte == 0).unwrap_or(self.comm.len());
        &self.comm[..end]
    }
}

/// Every process of one scan, sorted by pid, with its tree.
#[derive(Debug, Clone, Default)]
pub struct Table {
    // Invariant: sorted by pid, no pid twice. `first_child`, `next_sibling` and `parent` are as long as `rows`
    // and hold indices into it, or NONE.
    rows: Vec<Row>,
    parent: Vec<u32>,
    first_child: Vec<u32>,
    next_sibling: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Table {
    /// Returns a table of these rows, in any order; of two rows with one pid the later start stays.
    pub fn new(rows: Vec<Row>) -> Table {
        let mut table = Table { rows, ..Table::default() };
        table.index();
        table
    }

    /// Empties the table and hands out its row buffer for refilling, so that a steady scan allocates nothing.
    /// Call [`Table::index`] afterwards.
    pub fn refill(&mut self) -> &mut Vec<Row> {
        self.rows.clear();
        &mut self.rows
    }

    /// Sorts what was refilled and builds the tree.
    pub fn index(&mut self) {
        if !self.rows.is_sorted_by(|a, b| a.id.pid < b.id.pid) {
            self.rows.sort_unstable_by(|a, b| (a.id.pid, b.id.start).cmp(&(b.id.pid, a.id.start)));
            self.rows.dedup_by_key(|row| row.id.pid);
        }
        let count = self.rows.len();
        for list in [&mut self.parent, &mut self.first_child, &mut self.next_sibling] {
            list.clear();
            list.resize(count, NONE);
        }
        // Backwards, so that each list of children comes out in the order of pids.
        for at in (0..count).rev() {
            let row = &self.rows[at];
            let Some(above) = Pid::new(row.ppid).and_then(|pid| self.position(pid)) else { continue };
            if above == at {
                continue;
            }
            self.parent[at] = narrow(above);
            self.next_sibling[at] = self.first_child[above];
            self.first_child[above] = narrow(at);
        }
    }

    /// Returns every row, sorted by pid.
    pub fn rows(&self) -> &[Row] {
        &self.rows
    }

    /// Returns the row with this number, whoever it is now.
    pub fn at(&self, pid: Pid) -> Option<&Row> {
        self.position(pid).map(|at| &self.rows[at])
    }

    /// Returns the row of this very process.
    pub fn get(&self, id: ProcessId) -> Option<&Row> {
        self.at(id.pid).filter(|row| row.id.start == id.start)
    }

    /// Returns the row of the parent, where it is in the table.
    pub fn parent(&self, id: ProcessId) -> Option<&Row> {
        let at = self.position(id.pid)?;
        (self.parent[at] != NONE).then(|| &self.rows[self.parent[at] as usize])
    }

    /// Returns the children, in the order of their pids.
    pub fn children(&self, pid: Pid) -> Children<'_> {
        let next = self.position(pid).map_or(NONE, |at| self.first_child[at]);
        Children { table: self, next }
    }

    fn position(&self, pid: Pid) -> Option<usize> {
        self.rows.binary_search_by_key(&pid, |row| row.id.pid).ok()
    }
}

fn narrow(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(NONE)
}

/// The children of one process; see [`Table::children`].
#[derive(Debug)]
pub struct Children<'a> {
    table: &'a Table,
    next: u32,
}

impl<'a> Iterator for Children<'a> {
    type Item = &'a Row;

    fn next(&mut self) -> Option<&'a Row> {
        if self.next == NONE {
            return None;
        }
        let at = self.next as usize;
        self.next = self.table.next_sibling[at];
        Some(&self.table.rows[at])
    }
}

/// Returns a row with this pid and parent that leads nothing and does nothing: a start for tests and parsers.
pub fn plain_row(pid: Pid, ppid: i32, start: Start) -> Row {
    Row {
        id: ProcessId { pid, start },
        ppid,
        pgid: pid.number(),
        sid: pid.number(),
        state: State::Sleeping,
        kernel: Kernel::No,
        tty: 0,
        threads: 1,
        cpu: Duration::ZERO,
        resident: 0,
        began: Moment(0),
        comm: [0; 16],
        exec: ExecSignature::default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(pid: i32, ppid: i32) -> Row {
        plain_row(Pid::new(pid).unwrap(), ppid, Start(1))
    }

    #[test]
    fn tree_from_rows_in_any_order() {
        let table = Table::new(vec![row(9, 4), row(1, 0), row(4, 1), row(7, 4), row(8, 7)]);
        let children =
            |pid| table.children(Pid::new(pid).unwrap()).map(|row| row.id.pid.number()).collect::<Vec<_>>();
        assert_eq!(children(4), [7, 9]);
        assert_eq!(children(1), [4]);
        assert_eq!(children(9), [] as [i32; 0]);
        let eight = table.at(Pid::new(8).unwrap()).unwrap().id;
        assert_eq!(table.parent(eight).unwrap().id.pid.number(), 7);
    }

    #[test]
    fn a_parent_of_itself_is_nobodys_child() {
        let table = Table::new(vec![row(1, 1), row(2, 1)]);
        assert_eq!(table.children(Pid::INIT).count(), 1);
    }

    #[test]
    fn of_two_rows_with_one_pid_the_later_start_stays() {
        let mut later = row(5, 1);
        later.id.start = Start(8);
        let table = Table::new(vec![row(5, 1), row(1, 0), later]);
        assert_eq!(table.rows().len(), 2);
        assert_eq!(table.at(Pid::new(5).unwrap()).unwrap().id.start, Start(8));
    }

    #[test]
    fn zombie_leader_with_live_threads_is_alive_c24() {
        let mut zombie = row(5, 1);
        zombie.state = State::Zombie;
        assert!(zombie.is_gone());
        zombie.threads = 2;
        assert!(!zombie.is_gone());
    }
}
