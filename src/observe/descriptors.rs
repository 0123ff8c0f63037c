//! The descriptor table of one process, read through one pinned directory; nothing in it is ever opened for use.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;

use rustix::fs::{self, AtFlags, Mode, OFlags, StatxFlags};
use rustix::io::Errno;

use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};

/// Room for one link text, one `stat` line and one page of directory entries.
const PAGE: usize = 4096;

/// A process's directory in procfs, pinned: once it is seen to bear the right start, everything read through it is
/// that process's or an error, for the kernel ties the open directory to the process and not to the number.
#[derive(Debug)]
pub(super) struct Descriptors {
    of: ProcessId,
    process: OwnedFd,
}

/// The modes a descriptor was opened in, as the kernel keeps them (`f_mode`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Access {
    /// Neither reading nor writing (`O_PATH`).
    None,
    /// Reading.
    Read,
    /// Writing.
    Write,
    /// Both.
    Both,
}

impl Access {
    /// Says whether the descriptor holds the reading side.
    pub(super) fn is_reading(self) -> bool {
        matches!(self, Access::Read | Access::Both)
    }

    /// Says whether the descriptor holds the writing side.
    pub(super) fn is_writing(self) -> bool {
        matches!(self, Access::Write | Access::Both)
    }
}

/// What the kernel names a descriptor that is no file, by its link text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Text {
    /// `pipe:[inode]`. Text like that never begins a path, which always begins with a slash.
    Pipe(u64),
    /// `socket:[inode]`.
    Socket(u64),
    /// Anything else.
    Other,
}

impl Text {
    pub(super) fn of(link: &[u8]) -> Text {
        let numbered = |prefix: &[u8]| {
            let digits = link.strip_prefix(prefix)?.strip_suffix(b"]")?;
            std::str::from_utf8(digits).ok()?.parse::<u64>().ok()
        };
        match (numbered(b"pipe:["), numbered(b"socket:[")) {
            (Some(inode), _) => Text::Pipe(inode),
            (_, Some(inode)) => Text::Socket(inode),
            (None, None) => Text::Other,
        }
    }
}

impl Descriptors {
    /// Pins the process, and fails with [`Reason::Vanished`] where its number is another's by now.
    pub(super) fn open(of: ProcessId) -> Known<Descriptors> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let process = match fs::open(format!("/proc/{}", of.pid), flags, Mode::empty()) {
            Ok(process) => process,
            Err(Errno::NOENT) => return Err(vanished(of)),
            Err(errno) => return Err(why(errno, format!("process {of}"))),
        };
        let pinned = Descriptors { of, process };
        pinned.check()?;
        Ok(pinned)
    }

    /// Says again that the process is there and has a descriptor table.
    ///
    /// A dead thread-group leader has none, though its other threads may live on with theirs: what is read through
    /// it looks as if everything was closed, so it counts as vanished.
    pub(super) fn check(&self) -> Known<()> {
        let what = || format!("stat of process {}", self.of);
        let file = fs::openat(&self.process, "stat", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        let file = file.map_err(|errno| self.lost(errno, what()))?;
        let mut page = [0; PAGE];
        let length = rustix::io::read(&file, &mut page).map_err(|errno| self.lost(errno, what()))?;
        match start_and_state(&page[..length]) {
            Some((start, state)) if start == self.of.start.0 && !matches!(state, b'Z' | b'X') => Ok(()),
            Some(_) => Err(vanished(self.of)),
            None => Err(Unknown::new(Reason::Unsupported, what())),
        }
    }

    /// Returns the link text of a descriptor; nothing where it is not open.
    pub(super) fn link(&self, fd: u32) -> Known<Option<Vec<u8>>> {
        match fs::readlinkat(&self.process, format!("fd/{fd}"), Vec::new()) {
            Ok(text) => Ok(Some(text.into_bytes())),
            Err(Errno::NOENT) => Ok(None),
            Err(errno) => Err(self.lost(errno, self.what(fd))),
        }
    }

    /// Returns the modes of a descriptor.
    pub(super) fn access(&self, fd: u32) -> Known<Access> {
        access(&self.process, &format!("fd/{fd}")).map_err(|errno| self.lost(errno, self.what(fd)))
    }

    /// Returns a reference to what a descriptor stands for. `O_PATH` never calls the file's own open (open(2)):
    /// it takes no terminal, wakes nobody at a FIFO and arms no device.
    pub(super) fn reference(&self, fd: u32) -> Known<OwnedFd> {
        fs::openat(&self.process, format!("fd/{fd}"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())
            .map_err(|errno| self.lost(errno, self.what(fd)))
    }

    /// Returns the process's network namespace as the kernel names it, `net:[inode]`.
    pub(super) fn network(&self) -> Known<Vec<u8>> {
        fs::readlinkat(&self.process, "ns/net", Vec::new())
            .map(std::ffi::CString::into_bytes)
            .map_err(|errno| self.lost(errno, format!("network namespace of process {}", self.of)))
    }

    /// Returns the mounts that the process sees, as text (proc_pid_mountinfo(5)).
    pub(super) fn mounts(&self) -> Known<Vec<u8>> {
        let lost = |errno| self.lost(errno, format!("mounts of process {}", self.of));
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = fs::openat(&self.process, "mountinfo", flags, Mode::empty()).map_err(lost)?;
        let mut text = Vec::new();
        let mut page = [0; PAGE];
        loop {
            match rustix::io::read(&file, &mut page).map_err(lost)? {
                0 => return Ok(text),
                length => text.extend_from_slice(&page[..length]),
            }
        }
    }

    /// Calls for each pipe and socket in the table, with its number and modes. What is closed while we read is left
    /// out.
    pub(super) fn each_channel(&self, mut call: impl FnMut(u32, Text, Access)) -> Known<()> {
        let lost = |errno| self.lost(errno, format!("descriptors of process {}", self.of));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let table = fs::openat(&self.process, "fd", flags, Mode::empty()).map_err(lost)?;
        let mut page = [MaybeUninit::uninit(); PAGE];
        let mut entries = fs::RawDir::new(&table, &mut page);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(lost)?;
            let Some(number) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) else {
                continue;
            };
            // Longer texts are cut off; only the short ones of pipes and sockets are told apart here.
            let mut text = [MaybeUninit::uninit(); 64];
            let text = match fs::readlinkat_raw(&table, entry.file_name(), &mut text) {
                Ok((link, _)) => Text::of(link),
                Err(Errno::NOENT) => continue,
                Err(errno) => return Err(lost(errno)),
            };
            let access = match text {
                Text::Other => continue,
                Text::Socket(_) => Access::Both,
                Text::Pipe(_) => match access_at(&table, entry.file_name()) {
                    Ok(access) => access,
                    Err(Errno::NOENT) => continue,
                    Err(errno) => return Err(lost(errno)),
                },
            };
            call(number, text, access);
        }
        Ok(())
    }

    /// Returns the descriptors whose link text ends so.
    pub(super) fn named(&self, ending: &[u8]) -> Known<Vec<u32>> {
        let lost = |errno| self.lost(errno, format!("descriptors of process {}", self.of));
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let table = fs::openat(&self.process, "fd", flags, Mode::empty()).map_err(lost)?;
        let mut page = [MaybeUninit::uninit(); PAGE];
        let mut entries = fs::RawDir::new(&table, &mut page);
        let mut found = Vec::new();
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(lost)?;
            let Some(number) = entry.file_name().to_str().ok().and_then(|name| name.parse().ok()) else {
                continue;
            };
            let mut text = [MaybeUninit::uninit(); PAGE];
            match fs::readlinkat_raw(&table, entry.file_name(), &mut text) {
                Ok((link, _)) if link.ends_with(ending) => found.push(number),
                Ok(_) | Err(Errno::NOENT) => {}
                Err(errno) => return Err(lost(errno)),
            }
        }
        Ok(found)
    }

    /// Returns the `fdinfo` of a descriptor (proc_pid_fdinfo(5)); nothing where it is closed by now.
    pub(super) fn details(&self, fd: u32) -> Known<Option<Vec<u8>>> {
        let flags = OFlags::RDONLY | OFlags::CLOEXEC;
        let file = match fs::openat(&self.process, format!("fdinfo/{fd}"), flags, Mode::empty()) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(self.lost(errno, self.what(fd))),
        };
        let mut page = [0; PAGE];
        match rustix::io::read(&file, &mut page) {
            Ok(length) => Ok(Some(page[..length].to_vec())),
            Err(errno) => Err(self.lost(errno, self.what(fd))),
        }
    }

    fn what(&self, fd: u32) -> String {
        format!("descriptor {fd} of process {}", self.of)
    }

    /// Through a pinned directory, what is missing went away with its process or from its table.
    fn lost(&self, errno: Errno, what: String) -> Unknown {
        if errno == Errno::NOENT { vanished(self.of) } else { why(errno, what) }
    }
}

/// The link's own permission bits are the modes of the descriptor (`tid_fd_update_inode` of the kernel's fs/proc/fd.c
/// sets them at every look); unlike `fdinfo` they cost one call, and ask no driver for anything.
fn access(process: &OwnedFd, name: &str) -> Result<Access, Errno> {
    bits(&fs::statat(process, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

fn access_at(table: &OwnedFd, name: &CStr) -> Result<Access, Errno> {
    bits(&fs::statat(table, name, AtFlags::SYMLINK_NOFOLLOW)?)
}

#[expect(clippy::unnecessary_wraps, reason = "it ends a chain of calls that fail")]
fn bits(link: &fs::Stat) -> Result<Access, Errno> {
    Ok(match (link.st_mode & 0o400 != 0, link.st_mode & 0o200 != 0) {
        (false, false) => Access::None,
        (true, false) => Access::Read,
        (false, true) => Access::Write,
        (true, true) => Access::Both,
    })
}

/// Returns what a reference stands for. `DONT_SYNC` keeps a dead FUSE or NFS server from hanging us.
pub(super) fn examine(reference: &OwnedFd, what: &str) -> Known<fs::Statx> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    fs::statx(reference, "", flags, StatxFlags::TYPE | StatxFlags::MODE | StatxFlags::INO)
        .map_err(|errno| why(errno, what))
}

/// Maps an error of the kernel to the kind of obstacle; `ENOENT` is for the caller, who knows what it means there.
pub(super) fn why(errno: Errno, what: impl Into<String>) -> Unknown {
    let reason = match errno {
        Errno::ACCESS | Errno::PERM => Reason::Denied,
        Errno::SRCH => Reason::Vanished,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS => Reason::Starved,
        other => Reason::Failed(other.raw_os_error()),
    };
    Unknown::new(reason, what)
}

fn vanished(of: ProcessId) -> Unknown {
    Unknown::new(Reason::Vanished, format!("process {of}"))
}

/// Returns field 22 and field 3 of a `stat` line. The command name may hold anything, parentheses too, so that only
/// its last one is an end (proc_pid_stat(5)).
fn start_and_state(line: &[u8]) -> Option<(u64, u8)> {
    let end = line.iter().rposition(|&byte| byte == b')')?;
    let mut fields = line.get(end + 1..)?.split(|&byte| byte == b' ').filter(|field| !field.is_empty());
    let state = *fields.next()?.first()?;
    let start = std::str::from_utf8(fields.nth(18)?).ok()?.trim_end().parse().ok()?;
    Some((start, state))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_behind_a_hostile_name() {
        let line = b"7 (a) R 1) Z 3) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 991 5\n";
        assert_eq!(start_and_state(line), Some((991, b'S')));
        assert_eq!(start_and_state(b"7 (a) S 1 2"), None);
        assert_eq!(start_and_state(b""), None);
    }

    #[test]
    fn texts_of_the_kernel_only() {
        assert_eq!(Text::of(b"pipe:[12]"), Text::Pipe(12));
        assert_eq!(Text::of(b"socket:[4026531840]"), Text::Socket(4_026_531_840));
        for other in ["/tmp/pipe:[12]", "pipe:[12", "pipe:[]", "pipe:[-1]", "pipe:[12] (deleted)", ""] {
            assert_eq!(Text::of(other.as_bytes()), Text::Other, "{other}");
        }
    }

    #[test]
    fn errors_keep_their_kind() {
        assert_eq!(why(Errno::ACCESS, "x").reason, Reason::Denied);
        assert_eq!(why(Errno::PERM, "x").reason, Reason::Denied);
        assert_eq!(why(Errno::SRCH, "x").reason, Reason::Vanished);
        assert_eq!(why(Errno::MFILE, "x").reason, Reason::Starved);
        assert_eq!(why(Errno::IO, "x").reason, Reason::Failed(5));
    }
}
