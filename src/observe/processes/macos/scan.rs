//! Scans the process table: one `sysctl` for all rows, and one `getsid(2)` for each, since rows bear no session.

use std::collections::BTreeMap;

use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, System};

use crate::model::id::{Pid, ProcessId, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::table::Table;
use crate::observe::ObserveError;

use super::kinfo::{Entry, Leads, parse_kinfo};
use super::{host, kernel};

/// What is kept between scans: who was seen, for [`Scanner::user`].
#[derive(Debug, Default)]
pub(in crate::observe) struct Scanner {
    users: BTreeMap<ProcessId, Uid>,
}

impl Scanner {
    /// Has nothing to open, since every scan is one call; makes sure once that the call is there.
    pub(in crate::observe) fn open() -> Result<Scanner, ObserveError> {
        kernel::named(c"kern.osrelease").map_err(|source| ObserveError::Table { source })?;
        Ok(Scanner::default())
    }

    /// Refills and indexes the table. Returns how many processes are there but could not be read.
    pub(in crate::observe) fn scan(&mut self, table: &mut Table) -> Result<u32, ObserveError> {
        let bytes = kernel::table().map_err(|source| ObserveError::Table { source })?;
        let entries = parse_kinfo(&bytes, host::clocks());
        let own = kernel::effective_user();
        let resident = resident(entries.iter().filter(|entry| entry.effective_uid == own));
        self.users.clear();
        let rows = table.refill();
        let mut refused = 0;
        for mut entry in entries {
            if entry.leads == Leads::Nothing {
                entry.row.sid = session(entry.row.id.pid);
            }
            entry.row.resident = resident.get(&entry.row.id.pid).copied().unwrap_or(0);
            refused += u32::from(!entry.is_readable());
            self.users.insert(entry.row.id, entry.effective_uid);
            rows.push(entry.row);
        }
        table.index();
        Ok(refused)
    }

    /// Returns the effective user, as the last scan saw it.
    pub(in crate::observe) fn user(&self, id: ProcessId) -> Known<Uid> {
        self.users.get(&id).copied().ok_or_else(|| Unknown::new(Reason::Vanished, "its user"))
    }
}

/// Returns the session; 0 where the kernel does not say, which joins nobody to anything.
fn session(pid: Pid) -> i32 {
    rustix::process::getsid(rustix::process::Pid::from_raw(pid.number()))
        .map_or(0, |session| session.as_raw_nonzero().get())
}

/// Returns resident memory, for people to read and for nothing else: sysinfo tells a refused read by a zero, and
/// would not notice a number that passed on.
fn resident<'a>(entries: impl Iterator<Item = &'a Entry>) -> BTreeMap<Pid, u64> {
    let Ok(mut system) = System::new() else { return BTreeMap::new() };
    let pids: Vec<sysinfo::Pid> =
        entries.map(|entry| sysinfo::Pid::from_u32(entry.row.id.pid.number().unsigned_abs())).collect();
    let memory = ProcessRefreshKind::nothing().with_memory();
    system.refresh_processes_specifics(ProcessesToUpdate::Some(&pids), false, memory);
    pids.iter()
        .filter_map(|pid| {
            let number = i32::try_from(pid.as_u32()).ok().and_then(Pid::new)?;
            Some((number, system.process(*pid)?.memory()))
        })
        .collect()
}
