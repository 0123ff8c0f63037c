//! Linux: a pidfd to signal and wait by, and a descriptor of `/proc/PID` to read by. Both stay with the process.

use std::cell::Cell;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

use bstr::{BString, ByteSlice as _};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{
    AtFlags, Dir, Mode, OFlags, StatxFlags, fstat, fstatfs, makedev, open, openat, statat, statx,
};
use rustix::io::Errno;
use rustix::process::{PidfdFlags, Resource, getrlimit, pidfd_open, pidfd_send_signal, setrlimit};

use super::{Current, HoldError, Lost, Sight, SignalError, raw_signal};
use crate::model::id::{BootId, FileId, Pid, ProcessId, Start, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::plan::Signal;
use crate::model::table::State;

/// `statfs` type of pidfs (`PID_FS_MAGIC`, Linux 6.9): there the inode of a pidfd is never reused within a boot.
/// Before it, all pidfds shared one anonymous inode.
const PIDFS: u32 = 0x5049_4446;

/// How often a process without a pidfd is looked at while waiting for it (kernels before 5.3).
const BLIND_WAIT: Duration = Duration::from_millis(10);

/// The two descriptors of one process.
#[derive(Debug)]
pub(super) struct Handle {
    id: ProcessId,
    /// `/proc/PID`: every read through it fails with ESRCH once the process is gone, whoever has the number then.
    dir: OwnedFd,
    /// To signal and wait by; `None` where `pidfd_open` is missing. The directory takes its place in
    /// `pidfd_send_signal(2)`, but cannot be waited for.
    pidfd: Option<OwnedFd>,
    /// The pidfd's inode on pidfs.
    unique: Option<u64>,
    /// The directory's owner and the real user as they were read together.
    users: Cell<Option<(u32, Uid)>>,
}

impl Handle {
    /// Opens both descriptors, and makes sure that both are of this very process.
    pub(super) fn open(id: ProcessId) -> Result<(Handle, Sight), HoldError> {
        let dir = open_dir(id.pid).map_err(hold_error)?;
        let raw = rustix::process::Pid::from_raw(id.pid.number()).ok_or(HoldError::Gone)?;
        let pidfd = match pidfd_open(raw, PidfdFlags::empty()) {
            Ok(pidfd) => Some(pidfd),
            Err(Errno::NOSYS) => None,
            Err(error) => return Err(hold_error(error)),
        };
        // The number may have passed on between the two opens. If the directory's process still lives now, it had
        // the number all the time, so the pidfd is of the same one.
        let sight = sight(&dir).map_err(lost_before)?;
        if sight.id != id {
            return Err(HoldError::IdentityChanged);
        }
        if sight.is_gone() {
            return Err(HoldError::Gone);
        }
        let unique = pidfd.as_ref().and_then(unique);
        Ok((Handle { id, dir, pidfd, unique, users: Cell::new(None) }, sight))
    }

    /// Reads everything that an identity is compared by.
    pub(super) fn current(&self) -> Result<Current, Lost> {
        let sight = sight(&self.dir)?;
        let uid = self.real_uid()?;
        let exe = executable(&self.dir);
        Ok(Current { sight, uid, exe, unique: self.unique })
    }

    /// Returns the real user. `status` is the dearest file of all, so it is read again only when the directory's
    /// owner, which is the effective user (proc(5)), is another one than when it was read before.
    fn real_uid(&self) -> Result<Uid, Lost> {
        let owner = fstat(&self.dir).map_err(lost)?.st_uid;
        if let Some((before, uid)) = self.users.get()
            && before == owner
        {
            return Ok(uid);
        }
        let uid = real_uid(&self.dir)?;
        self.users.set(Some((owner, uid)));
        Ok(uid)
    }

    /// Sends a signal to this process alone (pidfd_send_signal(2), Linux 5.1).
    pub(super) fn send(&self, signal: Signal) -> Result<(), SignalError> {
        let fd = self.pidfd.as_ref().unwrap_or(&self.dir);
        pidfd_send_signal(fd, raw_signal(signal)).map_err(|error| match error {
            Errno::SRCH => SignalError::Gone,
            Errno::PERM => SignalError::Denied,
            other => SignalError::Failed(other.into()),
        })
    }

    /// A pidfd turns readable when the last thread has exited, reaped or not (pidfd_open(2)); that is exactly
    /// "gone", and a zombie leader with live threads does not count (CASES C24).
    pub(super) fn is_gone(&self) -> bool {
        match &self.pidfd {
            Some(pidfd) => {
                let mut fds = [PollFd::new(pidfd, PollFlags::IN)];
                matches!(poll(&mut fds, Some(&Timespec::default())), Ok(ready) if ready > 0)
            }
            None => match sight(&self.dir) {
                Ok(sight) => sight.is_gone(),
                Err(Lost::Gone) => true,
                Err(Lost::Unreadable(_)) => false,
            },
        }
    }

    /// Reads `/proc/PID/task/TID/children` of every thread (proc_tid_children(5)).
    pub(super) fn children(&self) -> Known<Vec<Pid>> {
        children(&self.dir, self.id.pid)
    }
}

/// Waits on all pidfds at once.
pub(super) fn wait_any(handles: &[&Handle], until: Instant) -> io::Result<Vec<usize>> {
    let blind = handles.iter().any(|handle| handle.pidfd.is_none());
    // A handle without a pidfd keeps its place by its directory, which is never asked for an event.
    let mut fds: Vec<PollFd<'_>> = handles
        .iter()
        .map(|handle| match &handle.pidfd {
            Some(pidfd) => PollFd::new(pidfd, PollFlags::IN),
            None => PollFd::new(&handle.dir, PollFlags::empty()),
        })
        .collect();
    loop {
        let left = until.saturating_duration_since(Instant::now());
        let left = if blind { left.min(BLIND_WAIT) } else { left };
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => {}
            // A signal to reapd itself came in: whoever asked looks at its flag.
            Err(Errno::INTR) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
        let gone: Vec<usize> = handles
            .iter()
            .zip(&fds)
            .enumerate()
            .filter(|(_, (handle, fd))| match handle.pidfd {
                Some(_) => fd.revents().contains(PollFlags::IN),
                None => handle.is_gone(),
            })
            .map(|(at, _)| at)
            .collect();
        if !gone.is_empty() || Instant::now() >= until {
            return Ok(gone);
        }
    }
}

/// Returns the children of a process that is not held, if the number is still its own.
pub(super) fn children_of(parent: ProcessId) -> Known<Vec<Pid>> {
    let dir = open_dir(parent.pid).map_err(|error| unknown(error, "children"))?;
    match sight(&dir) {
        Ok(seen) if seen.id == parent => children(&dir, parent.pid),
        Ok(_) | Err(Lost::Gone) => Err(Unknown::new(Reason::Vanished, "children")),
        Err(Lost::Unreadable(error)) => Err(unknown(errno(&error), "children")),
    }
}

/// Returns the cheap facts of whoever bears this number.
pub(super) fn sight_of(pid: Pid) -> Result<Sight, Lost> {
    let dir = open_dir(pid).map_err(lost)?;
    sight(&dir)
}

/// Returns this run of the kernel; read once, since it cannot change while we live.
pub(super) fn boot() -> Known<BootId> {
    static BOOT: OnceLock<Known<BootId>> = OnceLock::new();
    BOOT.get_or_init(|| {
        std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
            .map(|text| BootId(text.trim().to_owned()))
            .map_err(|error| unknown(errno(&error), "boot id"))
    })
    .clone()
}

/// Raises `RLIMIT_NOFILE` to its hard limit (getrlimit(2)).
pub(super) fn raise_descriptor_limit() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    // A refusal leaves the old limit, and holding says when it is reached.
    let _ = setrlimit(Resource::Nofile, limit);
}

fn open_dir(pid: Pid) -> Result<OwnedFd, Errno> {
    // O_RDONLY, not O_PATH: only such a descriptor is accepted by pidfd_send_signal(2).
    open(format!("/proc/{pid}"), OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
}

fn sight(dir: &OwnedFd) -> Result<Sight, Lost> {
    let mut buffer = [0_u8; 1024];
    let length = read_at(dir, "stat", &mut buffer)?;
    parse(&buffer[..length])
        .ok_or_else(|| Lost::Unreadable(io::Error::new(io::ErrorKind::InvalidData, "malformed stat")))
}

/// Reads the start of a file below `/proc/PID` into `buffer` in one call; these files are made whole at each read.
fn read_at(dir: &OwnedFd, name: &str, buffer: &mut [u8]) -> Result<usize, Lost> {
    let file = openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(lost)?;
    rustix::io::read(file, buffer).map_err(lost)
}

/// Parses `stat` (proc_pid_stat(5)). The name may hold spaces and parentheses: it ends at the last one.
fn parse(stat: &[u8]) -> Option<Sight> {
    let open = stat.find_byte(b'(')?;
    let close = stat.rfind_byte(b')')?;
    let pid = number(words(stat.get(..open)?).next()?)?;
    let name = BString::from(stat.get(open + 1..close)?);
    let mut fields = words(stat.get(close + 1..)?);
    let state = State::of_letter(*fields.next()?.first()?);
    let ppid = number(fields.next()?)?;
    let pgid = number(fields.next()?)?;
    let sid = number(fields.next()?)?;
    let tty = number(fields.next()?)?;
    // Fields 8 to 19 lie between the terminal and the number of threads, and field 21 before the start.
    let threads = number(fields.nth(12)?)?;
    let start = number(fields.nth(1)?)?;
    let id = ProcessId { pid: Pid::new(pid)?, start: Start(start) };
    Some(Sight { id, ppid, pgid, sid, tty, state, threads, name })
}

fn words(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty())
}

fn number<N: std::str::FromStr>(text: &[u8]) -> Option<N> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Reads the real user from `status`: the directory's owner would be root for a process that is not dumpable.
fn real_uid(dir: &OwnedFd) -> Result<Uid, Lost> {
    let mut buffer = [0_u8; 1024];
    let length = read_at(dir, "status", &mut buffer)?;
    buffer[..length]
        .lines()
        .find_map(|line| line.strip_prefix(b"Uid:"))
        .and_then(|ids| number(words(ids).next()?))
        .map(Uid)
        .ok_or_else(|| Lost::Unreadable(io::Error::new(io::ErrorKind::InvalidData, "malformed status")))
}

/// Returns the executable's identity: the link leads to the very file that runs, though its name be gone.
///
/// `STATX_DONT_SYNC` keeps a dead network or FUSE server from holding us in the kernel (statx(2), CASES C17).
fn executable(dir: &OwnedFd) -> Option<FileId> {
    let stat = statx(dir, "exe", AtFlags::STATX_DONT_SYNC, StatxFlags::INO).ok()?;
    Some(FileId { dev: makedev(stat.stx_dev_major, stat.stx_dev_minor), ino: stat.stx_ino })
}

fn unique(pidfd: &OwnedFd) -> Option<u64> {
    let kind = fstatfs(pidfd).ok()?.f_type;
    (u32::try_from(kind) == Ok(PIDFS)).then(|| fstat(pidfd).ok().map(|stat| stat.st_ino)).flatten()
}

fn children(dir: &OwnedFd, pid: Pid) -> Known<Vec<Pid>> {
    let mut found = Vec::new();
    // Nearly all processes have one thread, whose number is the process's own.
    let main = append_children(dir, &format!("task/{pid}/children"), &mut found);
    let threads = match statat(dir, "task", AtFlags::empty()) {
        // One link for each thread beside the two of any directory.
        Ok(tasks) => tasks.st_nlink.saturating_sub(2),
        // Gone, and its children with it to another parent.
        Err(Errno::NOENT | Errno::SRCH) => return Ok(found),
        Err(error) => return Err(unknown(error, "children")),
    };
    match main {
        Ok(()) => {}
        // The main thread is there as long as the task directory is: the kernel has no such file.
        Err(Errno::NOENT) => return Err(Unknown::new(Reason::Unsupported, "children")),
        Err(error) => return Err(unknown(error, "children")),
    }
    if threads <= 1 {
        return Ok(found);
    }
    let tasks = openat(dir, "task", OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
        .map_err(|error| unknown(error, "children"))?;
    let entries = Dir::read_from(&tasks).map_err(|error| unknown(error, "children"))?;
    for entry in entries {
        let Ok(entry) = entry else { break };
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name.starts_with('.') || name.parse() == Ok(pid.number()) {
            continue;
        }
        match append_children(dir, &format!("task/{name}/children"), &mut found) {
            // That thread ended meanwhile; its children went to another thread of the process (exit(2)).
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(unknown(error, "children")),
        }
    }
    Ok(found)
}

/// Adds the children of one thread; one that is gone between open and read has none.
fn append_children(dir: &OwnedFd, name: &str, found: &mut Vec<Pid>) -> Result<(), Errno> {
    let file = match openat(dir, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()) {
        Ok(file) => file,
        Err(Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error),
    };
    let mut buffer = [0_u8; 4096];
    let mut text = Vec::new();
    loop {
        // Until nothing more comes: a seq_file may fall short of the buffer in the middle of a list.
        match rustix::io::read(&file, &mut buffer) {
            Ok(0) | Err(Errno::SRCH) => break,
            Ok(length) => text.extend_from_slice(&buffer[..length]),
            Err(error) => return Err(error),
        }
    }
    found.extend(words(&text).filter_map(number).filter_map(Pid::new));
    Ok(())
}

fn lost(error: Errno) -> Lost {
    match error {
        Errno::NOENT | Errno::SRCH => Lost::Gone,
        other => Lost::Unreadable(other.into()),
    }
}

fn lost_before(lost: Lost) -> HoldError {
    match lost {
        Lost::Gone => HoldError::Gone,
        Lost::Unreadable(error) => hold_error(errno(&error)),
    }
}

fn hold_error(error: Errno) -> HoldError {
    match error {
        Errno::NOENT | Errno::SRCH => HoldError::Gone,
        Errno::ACCESS | Errno::PERM => HoldError::Denied,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => HoldError::Starved,
        other => HoldError::Failed(other.into()),
    }
}

fn errno(error: &io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn unknown(error: Errno, what: &str) -> Unknown {
    let reason = match error {
        Errno::NOENT | Errno::SRCH => Reason::Vanished,
        Errno::ACCESS | Errno::PERM => Reason::Denied,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Reason::Starved,
        other => Reason::Failed(other.raw_os_error()),
    };
    Unknown::new(reason, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_spaces_and_parentheses() {
        let line = b"42 (a) R (b) Z 7 8 9 0 -1 4 0 0 0 0 1 2 3 4 20 0 1 0 777 0 0\n";
        let sight = parse(line).unwrap();
        assert_eq!(sight.name, "a) R (b");
        assert_eq!((sight.ppid, sight.pgid, sight.sid), (7, 8, 9));
        assert_eq!((sight.id.start, sight.threads, sight.state), (Start(777), 1, State::Zombie));
        assert!(sight.is_gone());
        assert!(!parse(b"42 (a) Z 7 8 9 0 -1 4 0 0 0 0 1 2 3 4 20 0 2 0 777 0").unwrap().is_gone(), "c24");
    }

    #[test]
    fn a_line_cut_short_is_nobody() {
        let line = b"42 (a) S 7 8 9 0 -1 4 0 0 0 0 1 2 3 4 20 0 1 0 777";
        for end in 0..line.len() - 3 {
            assert_eq!(parse(&line[..end]), None, "{end}");
        }
    }

    #[test]
    fn own_children_are_listed_and_pid_1_is_never_held_c05() {
        let own = sight_of(Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap()).unwrap();
        assert!(children_of(own.id).is_ok());
        for id in [own.id, ProcessId { pid: Pid::INIT, start: Start(0) }] {
            let identity = crate::model::id::Identity {
                boot: boot().unwrap(),
                id,
                uid: Uid(0),
                exe: Some(FileId { dev: 0, ino: 0 }),
                unique: None,
            };
            assert!(matches!(super::super::Held::hold(&identity), Err(HoldError::Forbidden)));
        }
    }
}
