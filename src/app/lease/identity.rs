//! Who a process is now, for the record of a lease's holder. Reads of one process and no table: `reapd run` waits for it.

use std::time::Duration;

use crate::model::id::{Pid, ProcessId};
use crate::model::known::{Reason, Unknown};
use crate::model::lease::Holder;
use crate::model::table::Row;
use crate::observe::{self, ObserveError};

/// Why a process cannot be recorded as somebody who holds a lease.
#[derive(Debug, thiserror::Error)]
pub enum NobodyError {
    /// Nobody bears the number.
    #[error("there is no process {0}")]
    Absent(Pid),
    /// It ended, and its parent has not taken note.
    #[error("process {0} has ended: it is a zombie")]
    Ended(Pid),
    /// It is there, and who it is cannot be seen.
    #[error(
        "cannot tell who process {pid} is ({why}): a holder whose start is not known could be anybody later"
    )]
    Hidden {
        /// Its number.
        pid: Pid,
        /// Why.
        why: Unknown,
    },
    /// This run of the kernel has no name.
    #[error(transparent)]
    Boot(#[from] ObserveError),
}

/// Returns who bears this number now.
///
/// Boot and namespaces are those in which number and start were *read*, which are ours and not the process's own: a
/// container's process has another number inside. The host's name is left out: no two hosts have one boot id, and a
/// name that changes (DHCP) would make a stranger of everybody.
pub fn of(pid: Pid) -> Result<Holder, NobodyError> {
    let row = row(pid)?;
    let boot = observe::boot()?;
    let namespaces = observe::namespaces().map_err(|why| NobodyError::Hidden { pid, why })?;
    Ok(Holder {
        pid,
        start: Some(row.id.start),
        boot: Some(boot),
        pidns: Some(namespaces.pid),
        timens: Some(namespaces.time),
        host: None,
        age: Some(observe::clocks().boot.since(row.began)),
    })
}

/// Returns number and start of whoever bears this number now.
pub fn process(pid: Pid) -> Result<ProcessId, NobodyError> {
    row(pid).map(|row| row.id)
}

fn row(pid: Pid) -> Result<Row, NobodyError> {
    let row = observe::bearer(pid).map_err(|why| NobodyError::Hidden { pid, why })?;
    match row {
        None => Err(NobodyError::Absent(pid)),
        Some(row) if row.is_gone() => Err(NobodyError::Ended(pid)),
        Some(row) => Ok(row),
    }
}

/// Returns who we are.
pub fn own() -> Result<Holder, NobodyError> {
    let number = rustix::process::getpid().as_raw_nonzero().get();
    let Some(pid) = Pid::new(number) else {
        let why = Unknown::new(Reason::Unsupported, "our own number");
        return Err(NobodyError::Hidden { pid: Pid::INIT, why });
    };
    of(pid)
}

/// Whoever is younger than this may be an errand, such as the shell that runs a hook (REDTEAM F5).
pub const YOUNG: Duration = Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_are_somebody_whose_start_is_known() {
        let own = own().unwrap();
        assert!(own.start.is_some() && own.boot.is_some() && own.age.is_some());
        assert_eq!(own.pidns, observe::namespaces().ok().map(|namespaces| namespaces.pid));
        assert_eq!(of(own.pid).unwrap().start, own.start);
    }

    #[test]
    fn a_zombie_and_a_number_of_nobody_hold_nothing() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::new(i32::try_from(child.id()).unwrap()).unwrap();
        let begun = std::time::Instant::now();
        while !matches!(of(pid), Err(NobodyError::Ended(_))) {
            assert!(begun.elapsed().as_secs() < 10, "it never ended");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert!(matches!(of(pid), Err(NobodyError::Absent(_))));
    }
}
