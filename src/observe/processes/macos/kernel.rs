//! The few calls into the kernel of a Mac: `sysctl` and libproc, each filling a buffer whose bytes others read.
//!
//! rustix has neither. Every function hands out plain bytes and errors as values; nothing is decided here.

use std::ffi::{CStr, c_int, c_void};
use std::io;

use crate::model::id::{Pid, Uid};
use crate::model::known::{Known, Reason, Unknown};

/// `PROC_PIDUNIQIDENTIFIERINFO` of `<sys/proc_info_private.h>`; libc has no name for it.
const UNIQUE: c_int = 17;
/// `PROC_PIDFDVNODEPATHINFO`.
const FD_FILE: c_int = 2;
/// `PROC_PIDFDSOCKETINFO`.
const FD_SOCKET: c_int = 3;
/// `PROC_PIDFDPIPEINFO`.
const FD_PIPE: c_int = 6;

/// What to read of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Record {
    /// `PROC_PIDVNODEPATHINFO`: its working and root directories.
    Directories,
    /// `PROC_PIDUNIQIDENTIFIERINFO`: its unique number.
    Unique,
}

/// What to read of a descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum OfDescriptor {
    /// `PROC_PIDFDVNODEPATHINFO`.
    File,
    /// `PROC_PIDFDSOCKETINFO`.
    Socket,
    /// `PROC_PIDFDPIPEINFO`.
    Pipe,
}

/// Returns the whole process table as bytes.
pub(super) fn table() -> io::Result<Vec<u8>> {
    let name = [libc::CTL_KERN, libc::KERN_PROC, libc::KERN_PROC_ALL, 0];
    growing(&name[..3])
}

/// Returns the table's row of one process; empty where there is none.
pub(super) fn row(pid: Pid) -> io::Result<Vec<u8>> {
    growing(&[libc::CTL_KERN, libc::KERN_PROC, libc::KERN_PROC_PID, pid.number()])
}

/// Returns the arguments and environment of one process, as `kern.procargs2` lays them out.
///
/// The buffer must be as long as the answer: into a shorter one the kernel writes the *end* of it.
pub(super) fn arguments(pid: Pid) -> io::Result<Vec<u8>> {
    let name = [libc::CTL_KERN, libc::KERN_PROCARGS2, pid.number()];
    // One byte more than is needed shows an answer that grew between the two calls.
    let mut buffer = vec![0_u8; sysctl(&name, None)? + 1];
    let written = sysctl(&name, Some(&mut buffer))?;
    if written >= buffer.len() {
        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
    }
    buffer.truncate(written);
    Ok(buffer)
}

/// Returns a number or text that the kernel has under a name, without its closing zero.
pub(super) fn named(name: &CStr) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0_u8; 256];
    let mut length = buffer.len();
    #[expect(unsafe_code, reason = "rustix has no sysctl")]
    // SAFETY: `buffer` has room for `length` bytes, and the kernel sets `length` to what it wrote.
    let done = unsafe {
        libc::sysctlbyname(
            name.as_ptr(),
            buffer.as_mut_ptr().cast(),
            &raw mut length,
            std::ptr::null_mut(),
            0,
        )
    };
    ended(done)?;
    buffer.truncate(length);
    while buffer.last() == Some(&0) {
        buffer.pop();
    }
    Ok(buffer)
}

/// Asks for the size, and again with more room for as long as the answer grew meanwhile.
fn growing(name: &[c_int]) -> io::Result<Vec<u8>> {
    /// The table grows while it is asked for, but not four times in a row by an eighth.
    const TRIES: usize = 4;
    for _ in 0..TRIES {
        let mut length = sysctl(name, None)?;
        let mut buffer = vec![0_u8; length + length / 8];
        match sysctl(name, Some(&mut buffer)) {
            Ok(written) => {
                length = written;
                buffer.truncate(length);
                return Ok(buffer);
            }
            Err(error) if error.raw_os_error() == Some(libc::ENOMEM) => {}
            Err(error) => return Err(error),
        }
    }
    Err(io::Error::from_raw_os_error(libc::ENOMEM))
}

fn sysctl(name: &[c_int], buffer: Option<&mut [u8]>) -> io::Result<usize> {
    let mut name = name.to_vec();
    let words = u32::try_from(name.len()).unwrap_or(0);
    let (room, mut length) = match buffer {
        Some(buffer) => (buffer.as_mut_ptr().cast::<c_void>(), buffer.len()),
        None => (std::ptr::null_mut(), 0),
    };
    #[expect(unsafe_code, reason = "rustix has no sysctl")]
    // SAFETY: `name` holds `words` numbers, `room` is null or has room for `length` bytes, nothing is set.
    let done =
        unsafe { libc::sysctl(name.as_mut_ptr(), words, room, &raw mut length, std::ptr::null_mut(), 0) };
    ended(done)?;
    Ok(length)
}

/// Returns a record of one process, of exactly `length` bytes.
pub(super) fn record(pid: Pid, what: Record, length: usize) -> io::Result<Vec<u8>> {
    let flavor = match what {
        Record::Directories => libc::PROC_PIDVNODEPATHINFO,
        Record::Unique => UNIQUE,
    };
    let mut buffer = vec![0_u8; length];
    let room = room(&buffer);
    #[expect(unsafe_code, reason = "rustix has no libproc")]
    // SAFETY: `buffer` has room for `room` bytes.
    let written = unsafe { libc::proc_pidinfo(pid.number(), flavor, 0, buffer.as_mut_ptr().cast(), room) };
    whole(written, buffer)
}

/// Returns a record of one descriptor, of exactly `length` bytes.
pub(super) fn descriptor(pid: Pid, fd: u32, what: OfDescriptor, length: usize) -> io::Result<Vec<u8>> {
    let flavor = match what {
        OfDescriptor::File => FD_FILE,
        OfDescriptor::Socket => FD_SOCKET,
        OfDescriptor::Pipe => FD_PIPE,
    };
    let fd = c_int::try_from(fd).map_err(|_| io::Error::from_raw_os_error(libc::EBADF))?;
    let mut buffer = vec![0_u8; length];
    let room = room(&buffer);
    #[expect(unsafe_code, reason = "rustix has no libproc")]
    // SAFETY: `buffer` has room for `room` bytes.
    let written = unsafe { libc::proc_pidfdinfo(pid.number(), fd, flavor, buffer.as_mut_ptr().cast(), room) };
    whole(written, buffer)
}

/// Returns the list of open descriptors of one process.
pub(super) fn descriptors(pid: Pid) -> io::Result<Vec<u8>> {
    /// Room for what may be opened between asking for the size and asking for the list.
    const SLACK: usize = 64 * super::records::DESCRIPTOR;
    #[expect(unsafe_code, reason = "rustix has no libproc")]
    // SAFETY: without a buffer only the size is asked for.
    let needed =
        unsafe { libc::proc_pidinfo(pid.number(), libc::PROC_PIDLISTFDS, 0, std::ptr::null_mut(), 0) };
    let needed =
        usize::try_from(needed).ok().filter(|&needed| needed > 0).ok_or_else(io::Error::last_os_error)?;
    let mut buffer = vec![0_u8; needed + SLACK];
    let room = room(&buffer);
    #[expect(unsafe_code, reason = "rustix has no libproc")]
    // SAFETY: `buffer` has room for `room` bytes.
    let written = unsafe {
        libc::proc_pidinfo(pid.number(), libc::PROC_PIDLISTFDS, 0, buffer.as_mut_ptr().cast(), room)
    };
    let written = usize::try_from(written).map_err(|_| io::Error::last_os_error())?;
    if written == 0 {
        return Err(io::Error::last_os_error());
    }
    if written >= buffer.len() {
        // A full buffer may have been too short: a list with a hole would look like closed descriptors.
        return Err(io::Error::from_raw_os_error(libc::ENOMEM));
    }
    buffer.truncate(written);
    Ok(buffer)
}

/// Returns the path of the executable.
pub(super) fn executable(pid: Pid) -> io::Result<Vec<u8>> {
    let mut buffer = vec![0_u8; usize::try_from(libc::PROC_PIDPATHINFO_MAXSIZE).unwrap_or(4096)];
    let room = u32::try_from(buffer.len()).unwrap_or(0);
    #[expect(unsafe_code, reason = "rustix has no libproc")]
    // SAFETY: `buffer` has room for `room` bytes.
    let written = unsafe { libc::proc_pidpath(pid.number(), buffer.as_mut_ptr().cast(), room) };
    let written = usize::try_from(written).ok().filter(|&written| written > 0);
    buffer.truncate(written.ok_or_else(io::Error::last_os_error)?);
    Ok(buffer)
}

/// Returns one mounted file system's number, type and mount point for each mount, without asking any of them.
pub(super) fn mounts() -> io::Result<Vec<Mount>> {
    #[expect(unsafe_code, reason = "rustix has no getfsstat")]
    // SAFETY: without a buffer only the number of mounts is asked for.
    let count = unsafe { libc::getfsstat(std::ptr::null_mut(), 0, libc::MNT_NOWAIT) };
    let count = usize::try_from(count).map_err(|_| io::Error::last_os_error())?;
    let mut list = Vec::<libc::statfs>::with_capacity(count + 8);
    let bytes = c_int::try_from(list.capacity() * size_of::<libc::statfs>()).unwrap_or(0);
    #[expect(unsafe_code, reason = "rustix has no getfsstat")]
    // SAFETY: `list` has room for `bytes` bytes. MNT_NOWAIT keeps a dead network mount from hanging us.
    let filled = unsafe { libc::getfsstat(list.as_mut_ptr(), bytes, libc::MNT_NOWAIT) };
    let filled = usize::try_from(filled).map_err(|_| io::Error::last_os_error())?;
    #[expect(unsafe_code, reason = "rustix has no getfsstat")]
    // SAFETY: the kernel filled that many, and not more than there was room for.
    unsafe {
        list.set_len(filled.min(list.capacity()));
    }
    Ok(list.iter().map(Mount::of).collect())
}

/// One mounted file system.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// Its number (`f_fsid`), as `vi_fsid` of a held file has it.
    pub(super) number: u64,
    /// Its type, e.g. `apfs`.
    pub(super) kind: Vec<u8>,
    /// Where it is mounted.
    pub(super) on: Vec<u8>,
}

impl Mount {
    fn of(stat: &libc::statfs) -> Mount {
        // `fsid_t` has private fields in libc: two 32-bit numbers.
        #[expect(unsafe_code, reason = "libc keeps the two numbers of fsid_t private")]
        // SAFETY: both are plain numbers of the same size.
        let halves = unsafe { std::mem::transmute::<libc::fsid_t, [u32; 2]>(stat.f_fsid) };
        Mount {
            number: u64::from(halves[0]) | (u64::from(halves[1]) << 32),
            kind: until_zero(&stat.f_fstypename),
            on: until_zero(&stat.f_mntonname),
        }
    }
}

fn until_zero(text: &[std::ffi::c_char]) -> Vec<u8> {
    text.iter().map(|&letter| letter.cast_unsigned()).take_while(|&letter| letter != 0).collect()
}

/// Returns a clock in nanoseconds.
pub(super) fn clock(clock: libc::clockid_t) -> u64 {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    #[expect(unsafe_code, reason = "rustix names only the four clocks that POSIX has")]
    // SAFETY: `time` is there to be written to. A clock that is not there leaves it 0.
    let _ = unsafe { libc::clock_gettime(clock, &raw mut time) };
    let seconds = u64::try_from(time.tv_sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(time.tv_nsec).unwrap_or(0))
}

/// Returns why a read of a process failed. `EINVAL` is what `kern.procargs2` says of other users' processes, of
/// zombies and of nobody alike, so it says no more than that we were refused.
pub(super) fn unknown(error: &io::Error, what: impl Into<String>) -> Unknown {
    let reason = match error.raw_os_error() {
        Some(libc::EPERM | libc::EACCES | libc::EINVAL) => Reason::Denied,
        Some(libc::ESRCH) => Reason::Vanished,
        Some(libc::EMFILE | libc::ENFILE | libc::ENOMEM) => Reason::Starved,
        Some(libc::ENOTSUP | libc::ENOSYS) => Reason::Unsupported,
        Some(other) => Reason::Failed(other),
        None => Reason::Failed(0),
    };
    Unknown::new(reason, what)
}

/// Returns the effective user of this process.
pub(super) fn effective_user() -> Uid {
    Uid(rustix::process::geteuid().as_raw())
}

/// Says in words what a table row of a process gave.
pub(super) fn row_bytes(pid: Pid) -> Known<Vec<u8>> {
    let bytes = row(pid).map_err(|error| unknown(&error, "its row in the process table"))?;
    if bytes.is_empty() {
        return Err(Unknown::new(Reason::Vanished, "its row in the process table"));
    }
    Ok(bytes)
}

fn room(buffer: &[u8]) -> c_int {
    c_int::try_from(buffer.len()).unwrap_or(0)
}

fn ended(done: c_int) -> io::Result<()> {
    if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// libproc returns the length it wrote, and 0 or less on any error. A record of another length is none of ours.
fn whole(written: c_int, buffer: Vec<u8>) -> io::Result<Vec<u8>> {
    match usize::try_from(written) {
        Ok(written) if written == buffer.len() => Ok(buffer),
        Ok(written) if written > 0 => Err(io::Error::from_raw_os_error(libc::ENOTSUP)),
        Ok(_) | Err(_) => Err(io::Error::last_os_error()),
    }
}
