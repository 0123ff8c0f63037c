//! Who bears a bare process number.

use rustix::io::Errno;

use crate::model::id::{Pid, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::Owner;
use crate::model::table::Row;

use super::facts::namespace;
use super::pinned::{Pinned, unknown};
use super::stat::{self, Units};
use super::status;

/// Says who bears a number that `of` named. Only where `of` lives in our pid namespace does it mean the same to us
/// (CASES B27).
///
/// That nobody bears it is the kernel's word to kill(2) with signal 0, which sends nothing; a `/proc` with `hidepid`
/// shows others' processes as absent. Any refusal is a live process or unknown, never an absence.
pub(in crate::observe) fn owner(of: ProcessId, pid: Pid) -> Known<Owner> {
    same_namespace(of)?;
    Ok(match bearer(pid)? {
        None => Owner::Absent,
        Some(row) if row.is_gone() => Owner::Zombie,
        Some(row) => Owner::Alive(row.id),
    })
}

/// Returns the row of whoever bears a number in our own pid namespace; nothing where nobody does.
pub(in crate::observe) fn bearer(pid: Pid) -> Known<Option<Row>> {
    let number = rustix::process::Pid::from_raw(pid.number())
        .ok_or_else(|| Unknown::new(Reason::Unsupported, "no process number"))?;
    match rustix::process::test_kill_process(number) {
        // EPERM is somebody (CASES B27's neighbour: a refusal proves life).
        Ok(()) | Err(Errno::PERM) => read(pid),
        Err(Errno::SRCH) => Ok(None),
        Err(errno) => Err(unknown(errno, "asking whether a process is there")),
    }
}

fn same_namespace(of: ProcessId) -> Known<()> {
    let theirs = namespace(&Pinned::open(of)?.link(c"ns/pid")?)?;
    if theirs == super::host::pid_namespace()? {
        Ok(())
    } else {
        Err(Unknown::new(Reason::Foreign, format!("whom process {of} means by a number")))
    }
}

/// Reads who it is. The number is somebody's, so what is not to be seen here is hidden, not absent.
fn read(pid: Pid) -> Known<Option<Row>> {
    let hidden = || Unknown::new(Reason::Denied, format!("who process {pid} is"));
    let read = |file: &str| {
        std::fs::read(format!("/proc/{pid}/{file}")).map_err(|error| match Errno::from_io_error(&error) {
            Some(Errno::NOENT | Errno::ACCESS | Errno::PERM) | None => hidden(),
            Some(errno) => unknown(errno, format!("asking who process {pid} is")),
        })
    };
    // Where /proc is of another pid namespace its numbers are somebody else's.
    if !shows_ours() {
        return Err(Unknown::new(Reason::Foreign, format!("who process {pid} is")));
    }
    // A thread's number has an entry too, which the listing does not show; kill(2) takes it for its process.
    let status = status::parse(&read("status")?);
    match status.tgid {
        Some(tgid) if tgid != pid => return Ok(None),
        Some(_) => {}
        None => return Err(hidden()),
    }
    stat::parse(&read("stat")?, Units::of_this_kernel()).ok_or_else(hidden).map(Some)
}

/// Says whether `/proc` shows our own pid namespace.
fn shows_ours() -> bool {
    let number = rustix::process::getpid().as_raw_nonzero().to_string();
    rustix::fs::readlink("/proc/self", Vec::new()).is_ok_and(|own| own.as_bytes() == number.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own() -> ProcessId {
        let text = std::fs::read("/proc/self/stat").unwrap();
        stat::parse(&text, Units::of_this_kernel()).unwrap().id
    }

    #[test]
    fn we_are_alive_and_our_thread_is_nobody() {
        let own = own();
        assert_eq!(owner(own, own.pid), Ok(Owner::Alive(own)));
        let thread = std::thread::spawn(move || {
            let tid = Pid::new(rustix::thread::gettid().as_raw_nonzero().get()).unwrap();
            assert_ne!(tid, own.pid);
            owner(own, tid)
        });
        assert_eq!(thread.join().unwrap(), Ok(Owner::Absent));
    }

    #[test]
    fn a_reaped_child_is_absent_and_an_unreaped_one_a_zombie() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let pid = Pid::new(i32::try_from(child.id()).unwrap()).unwrap();
        let begun = std::time::Instant::now();
        while owner(own(), pid) != Ok(Owner::Zombie) {
            assert!(begun.elapsed().as_secs() < 10, "it never ended");
            std::thread::yield_now();
        }
        child.wait().unwrap();
        assert_eq!(owner(own(), pid), Ok(Owner::Absent));
    }

    #[test]
    fn a_number_named_by_a_vanished_process_is_unknown() {
        let own = own();
        let stranger = ProcessId { start: crate::model::id::Start(own.start.0 + 1), ..own };
        assert_eq!(owner(stranger, own.pid).unwrap_err().reason, Reason::Vanished);
    }
}
