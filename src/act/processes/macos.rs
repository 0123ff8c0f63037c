//! macOS: a kqueue that is told of the process's end, and fresh reads by number right before every signal.
//!
//! A Mac has no pidfd. The registration is made before the first read and cannot move to a successor: for as long as
//! it is silent, the number still belongs to the process that was registered. What remains is the moment between the
//! last look and `kill(2)`: the process would have to end, be waited for, and its number be given out again within it,
//! and the kernel gives numbers out in order, to 99,999 and round again.
//!
//! Type-checked and linted for a Mac; never run on one.

use std::ffi::c_int;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::OnceLock;
use std::time::Instant;

use rustix::event::kqueue::{Event, EventFilter, EventFlags, ProcessEvents, kevent, kqueue};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Resource, getrlimit, getsid, kill_process, setrlimit};

use super::{Current, HoldError, Lost, Sight, SignalError, raw_signal};
use crate::model::id::{BootId, FileId, Pid, ProcessId, Start, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::plan::Signal;
use crate::model::table::State;

/// A process under watch.
#[derive(Debug)]
pub(super) struct Handle {
    id: ProcessId,
    /// Readable once the registered process has ended; the event is never taken out, so it stays readable.
    end: OwnedFd,
    /// `p_uniqueid` at first sight.
    unique: Option<u64>,
}

impl Handle {
    /// Registers for the process's end, then makes sure that it is this very process that was registered.
    pub(super) fn open(id: ProcessId) -> Result<(Handle, Sight), HoldError> {
        let raw = rustix::process::Pid::from_raw(id.pid.number()).ok_or(HoldError::Gone)?;
        let end = kqueue().map_err(hold_error)?;
        let filter = EventFilter::Proc { pid: raw, flags: ProcessEvents::EXIT };
        let register = [Event::new(filter, EventFlags::ADD | EventFlags::RECEIPT, std::ptr::null_mut())];
        let mut receipt = Vec::with_capacity(1);
        #[expect(
            unsafe_code,
            reason = "rustix cannot know whether an event names a descriptor that is closed"
        )]
        // SAFETY: the one event names a process and no descriptor.
        let answered = unsafe { kevent(&end, &register, rustix::buffer::spare_capacity(&mut receipt), None) };
        answered.map_err(hold_error)?;
        // With EV_RECEIPT the outcome of the registration comes back as an event, an error number in its data.
        match receipt.first().map(Event::data) {
            Some(0) => {}
            Some(number) => {
                return Err(hold_error(Errno::from_raw_os_error(i32::try_from(number).unwrap_or(0))));
            }
            None => return Err(HoldError::Failed(io::ErrorKind::InvalidData.into())),
        }
        let handle = Handle { id, end, unique: unique(id.pid) };
        match handle.current() {
            Ok(current) if current.sight.id != id => Err(HoldError::IdentityChanged),
            Ok(current) if current.sight.is_gone() => Err(HoldError::Gone),
            Ok(current) => Ok((handle, current.sight)),
            Err(Lost::Gone) => Err(HoldError::Gone),
            Err(Lost::Unreadable(error)) => Err(hold_error(errno(&error))),
        }
    }

    /// Reads everything that an identity is compared by, and that it is still the registered process.
    pub(super) fn current(&self) -> Result<Current, Lost> {
        let seen = basics(self.id.pid)?;
        let unique = unique(self.id.pid);
        if self.has_ended() {
            return Err(Lost::Gone);
        }
        if self.unique.is_some() && unique != self.unique {
            // The number passed on, or the kernel would not say any more; either way it is not surely ours.
            return Err(Lost::Unreadable(io::ErrorKind::PermissionDenied.into()));
        }
        let uid = Uid(seen.pbi_ruid);
        Ok(Current { sight: sight(&seen)?, uid, exe: executable(self.id.pid), unique })
    }

    /// Sends a signal to this process alone; see above for the moment that remains.
    pub(super) fn send(&self, signal: Signal) -> Result<(), SignalError> {
        let raw = rustix::process::Pid::from_raw(self.id.pid.number()).ok_or(SignalError::Gone)?;
        if self.has_ended() {
            return Err(SignalError::Gone);
        }
        kill_process(raw, raw_signal(signal)).map_err(|error| match error {
            Errno::SRCH => SignalError::Gone,
            Errno::PERM => SignalError::Denied,
            other => SignalError::Failed(other.into()),
        })
    }

    /// Says whether the process has ended: the kernel told us, or the number is nobody's or another's by now.
    pub(super) fn is_gone(&self) -> bool {
        self.has_ended()
            || match sight_of(self.id.pid) {
                Ok(sight) => sight.id != self.id || sight.is_gone(),
                Err(Lost::Gone) => true,
                Err(Lost::Unreadable(_)) => false,
            }
    }

    /// Returns the numbers of its children; none when it is gone.
    pub(super) fn children(&self) -> Known<Vec<Pid>> {
        let children = children(self.id.pid)?;
        if self.is_gone() { Ok(Vec::new()) } else { Ok(children) }
    }

    fn has_ended(&self) -> bool {
        let mut fds = [PollFd::new(&self.end, PollFlags::IN)];
        matches!(poll(&mut fds, Some(&Timespec::default())), Ok(ready) if ready > 0)
            && fds[0].revents().contains(PollFlags::IN)
    }
}

/// Waits on all registrations at once.
pub(super) fn wait_any(handles: &[&Handle], until: Instant) -> io::Result<Vec<usize>> {
    let mut fds: Vec<PollFd<'_>> =
        handles.iter().map(|handle| PollFd::new(&handle.end, PollFlags::IN)).collect();
    loop {
        let left = until.saturating_duration_since(Instant::now());
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
        let gone: Vec<usize> = fds
            .iter()
            .enumerate()
            .filter(|(_, fd)| fd.revents().contains(PollFlags::IN))
            .map(|(at, _)| at)
            .collect();
        if !gone.is_empty() || Instant::now() >= until {
            return Ok(gone);
        }
    }
}

/// Returns the children of a process that is not held, if the number is still its own.
pub(super) fn children_of(parent: ProcessId) -> Known<Vec<Pid>> {
    let found = children(parent.pid)?;
    match sight_of(parent.pid) {
        Ok(seen) if seen.id == parent => Ok(found),
        Ok(_) | Err(Lost::Gone) => Err(Unknown::new(Reason::Vanished, "children")),
        Err(Lost::Unreadable(error)) => Err(unknown(errno(&error), "children")),
    }
}

/// Returns the cheap facts of whoever bears this number. A zombie is not found, and gone it is.
pub(super) fn sight_of(pid: Pid) -> Result<Sight, Lost> {
    sight(&basics(pid)?)
}

/// Returns this run of the kernel (`kern.bootsessionuuid`); read once, since it cannot change while we live.
pub(super) fn boot() -> Known<BootId> {
    static BOOT: OnceLock<Known<BootId>> = OnceLock::new();
    BOOT.get_or_init(|| {
        let mut text = [0_u8; 64];
        let mut length = text.len();
        #[expect(unsafe_code, reason = "rustix has no sysctl")]
        // SAFETY: `text` has room for `length` bytes, and the kernel sets `length` to what it wrote.
        let done = unsafe {
            libc::sysctlbyname(
                c"kern.bootsessionuuid".as_ptr(),
                text.as_mut_ptr().cast(),
                &raw mut length,
                std::ptr::null_mut(),
                0,
            )
        };
        if done != 0 {
            return Err(unknown(errno(&io::Error::last_os_error()), "boot id"));
        }
        let text: Vec<u8> = text.iter().copied().take(length).take_while(|&byte| byte != 0).collect();
        match String::from_utf8(text) {
            Ok(text) if !text.is_empty() => Ok(BootId(text)),
            Ok(_) | Err(_) => Err(Unknown::new(Reason::Unsupported, "boot id")),
        }
    })
    .clone()
}

/// Raises `RLIMIT_NOFILE` as far as macOS lets it: to `OPEN_MAX` where the hard limit is endless (setrlimit(2)).
pub(super) fn raise_descriptor_limit() {
    /// `OPEN_MAX` of `<sys/syslimits.h>`.
    const OPEN_MAX: u64 = 10_240;
    let mut limit = getrlimit(Resource::Nofile);
    let most = limit.maximum.map_or(OPEN_MAX, |maximum| maximum.min(OPEN_MAX));
    if limit.current.is_some_and(|current| current < most) {
        limit.current = Some(most);
        // A refusal leaves the old limit, and holding says when it is reached.
        let _ = setrlimit(Resource::Nofile, limit);
    }
}

/// Reads `struct proc_bsdinfo` (`PROC_PIDTBSDINFO`). ESRCH is said of nobody and of a zombie alike: both are gone.
fn basics(pid: Pid) -> Result<libc::proc_bsdinfo, Lost> {
    let mut basics = std::mem::MaybeUninit::<libc::proc_bsdinfo>::zeroed();
    let length = c_int::try_from(size_of::<libc::proc_bsdinfo>()).unwrap_or(0);
    #[expect(unsafe_code, reason = "rustix has no libproc")]
    // SAFETY: `basics` has room for `length` bytes.
    let written = unsafe {
        libc::proc_pidinfo(pid.number(), libc::PROC_PIDTBSDINFO, 0, basics.as_mut_ptr().cast(), length)
    };
    if written != length {
        return Err(lost(errno(&io::Error::last_os_error())));
    }
    #[expect(unsafe_code, reason = "the kernel fills a struct")]
    // SAFETY: it is made of numbers only, was zeroed, and the kernel filled all of it.
    let basics = unsafe { basics.assume_init() };
    Ok(basics)
}

fn sight(seen: &libc::proc_bsdinfo) -> Result<Sight, Lost> {
    /// `PROC_FLAG_INEXIT`: working its way through exit, where it may hang until a restart (C21).
    const IN_EXIT: u32 = 4;
    /// `NODEV`.
    const NO_DEVICE: u32 = u32::MAX;
    let malformed = || Lost::Unreadable(io::ErrorKind::InvalidData.into());
    let pid = i32::try_from(seen.pbi_pid).ok().and_then(Pid::new).ok_or_else(malformed)?;
    let start = seen.pbi_start_tvsec.saturating_mul(1_000_000).saturating_add(seen.pbi_start_tvusec);
    if start == 0 {
        // "Start 0" is how a refusal looks here; it is no identity.
        return Err(malformed());
    }
    let state = match seen.pbi_status {
        1..=3 if seen.pbi_flags & IN_EXIT != 0 => State::Uninterruptible,
        1 | 2 => State::Running,
        3 => State::Sleeping,
        4 => State::Stopped,
        5 => State::Zombie,
        other => State::Other(u8::try_from(other).unwrap_or(u8::MAX)),
    };
    let name = seen.pbi_comm.iter().map(|&letter| letter.cast_unsigned()).take_while(|&letter| letter != 0);
    Ok(Sight {
        id: ProcessId { pid, start: Start(start) },
        ppid: i32::try_from(seen.pbi_ppid).map_err(|_| malformed())?,
        pgid: i32::try_from(seen.pbi_pgid).map_err(|_| malformed())?,
        sid: getsid(rustix::process::Pid::from_raw(pid.number()))
            .map_or(0, |session| session.as_raw_nonzero().get()),
        tty: if seen.e_tdev == NO_DEVICE { 0 } else { seen.e_tdev.cast_signed() },
        state,
        // Not counted here: a process of macOS is a zombie only after its last thread.
        threads: 1,
        name: name.collect::<Vec<u8>>().into(),
    })
}

/// Reads `p_uniqueid` out of `struct proc_uniqidentifierinfo`, which libc does not have.
fn unique(pid: Pid) -> Option<u64> {
    /// `PROC_PIDUNIQIDENTIFIERINFO`.
    const FLAVOR: c_int = 17;
    /// 16 bytes of UUID, the unique number, the parent's, and 24 bytes more.
    const LENGTH: usize = 56;
    let mut record = [0_u8; LENGTH];
    let length = c_int::try_from(LENGTH).ok()?;
    #[expect(unsafe_code, reason = "rustix has no libproc")]
    // SAFETY: `record` has room for `length` bytes.
    let written = unsafe { libc::proc_pidinfo(pid.number(), FLAVOR, 0, record.as_mut_ptr().cast(), length) };
    let unique = u64::from_ne_bytes(*record[16..].first_chunk()?);
    (written == length && unique != 0).then_some(unique)
}

/// Returns the identity of the file at the executable's path, as it was recorded when looked at.
fn executable(pid: Pid) -> Option<FileId> {
    let mut path = vec![0_u8; usize::try_from(libc::PROC_PIDPATHINFO_MAXSIZE).ok()?];
    let room = u32::try_from(path.len()).ok()?;
    #[expect(unsafe_code, reason = "rustix has no libproc")]
    // SAFETY: `path` has room for `room` bytes.
    let written = unsafe { libc::proc_pidpath(pid.number(), path.as_mut_ptr().cast(), room) };
    path.truncate(usize::try_from(written).ok().filter(|&written| written > 0)?);
    let stat = rustix::fs::lstat(path).ok()?;
    Some(FileId { dev: stat.st_dev.cast_unsigned().into(), ino: stat.st_ino })
}

/// Asks for all processes with this parent.
fn children(pid: Pid) -> Known<Vec<Pid>> {
    /// `PROC_PPID_ONLY` of `<libproc.h>`, which libc does not have.
    const BY_PARENT: u32 = 6;
    const NUMBER: usize = size_of::<i32>();
    let parent = pid.number().unsigned_abs();
    let mut numbers = vec![0_i32; 64];
    loop {
        let room = c_int::try_from(numbers.len() * NUMBER)
            .map_err(|_| Unknown::new(Reason::Truncated, "children"))?;
        // It returns 0 for no children and for any error alike: only the error number tells them apart.
        clear_errno();
        #[expect(unsafe_code, reason = "rustix has no libproc")]
        // SAFETY: `numbers` has room for `room` bytes.
        let written = unsafe { libc::proc_listpids(BY_PARENT, parent, numbers.as_mut_ptr().cast(), room) };
        let error = io::Error::last_os_error();
        let written = usize::try_from(written).unwrap_or(0);
        if written == 0 && error.raw_os_error() != Some(0) {
            return Err(unknown(errno(&error), "children"));
        }
        if written < numbers.len() * NUMBER {
            numbers.truncate(written / NUMBER);
            return Ok(numbers.into_iter().filter_map(Pid::new).collect());
        }
        numbers.resize(numbers.len() * 2, 0);
    }
}

fn clear_errno() {
    #[expect(unsafe_code, reason = "std can read errno and not set it")]
    // SAFETY: it returns where this thread's error number is, for as long as the thread lives.
    let place = unsafe { libc::__error() };
    #[expect(unsafe_code, reason = "std can read errno and not set it")]
    // SAFETY: the place is this thread's own, and nobody else reads it.
    unsafe {
        *place = 0;
    }
}

fn lost(error: Errno) -> Lost {
    match error {
        Errno::SRCH => Lost::Gone,
        other => Lost::Unreadable(other.into()),
    }
}

fn hold_error(error: Errno) -> HoldError {
    match error {
        Errno::SRCH => HoldError::Gone,
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
        Errno::SRCH => Reason::Vanished,
        Errno::ACCESS | Errno::PERM => Reason::Denied,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Reason::Starved,
        other => Reason::Failed(other.raw_os_error()),
    };
    Unknown::new(reason, what)
}
