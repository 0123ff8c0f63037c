//! One `/proc/PID` directory, held open: whoever gets the number next, reads through it stay with the process.

use std::io::Read as _;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use bstr::BString;
use rustix::fs::{Mode, OFlags, openat};
use rustix::io::Errno;

use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::table::Row;
use crate::observe::Life;

use super::stat::{self, Units};

/// A `/proc/PID` directory descriptor. Reads through it fail with `ESRCH` once the process is reaped, and never
/// reach a successor (CASES C07). It is opened for reading, not `O_PATH`, so that `pidfd_send_signal(2)` would
/// take it too.
#[derive(Debug)]
pub(in crate::observe) struct Pinned {
    dir: OwnedFd,
    /// Whom it is on.
    pub(super) id: ProcessId,
}

impl Pinned {
    /// Opens the directory and makes sure that it is this very process's.
    pub(in crate::observe) fn open(id: ProcessId) -> Known<Pinned> {
        Pinned::with_row(id).map(|(pinned, _)| pinned)
    }

    /// Opens the directory, and returns with it the row that was read to make sure of it.
    pub(super) fn with_row(id: ProcessId) -> Known<(Pinned, Row)> {
        let path = format!("/proc/{}", id.pid);
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = rustix::fs::open(path, flags, Mode::empty())
            .map_err(|errno| unknown(errno, "opening its directory in /proc"))?;
        let pinned = Pinned { dir, id };
        let row = pinned.row()?;
        Ok((pinned, row))
    }

    /// Returns what `stat` says now, where it is still the same process.
    pub(super) fn row(&self) -> Known<Row> {
        let what = "reading stat";
        let file = self.file(c"stat", OFlags::RDONLY).map_err(|errno| unknown(errno, what))?;
        let mut buffer = [0; 4096];
        let length = rustix::io::read(&file, &mut buffer).map_err(|errno| unknown(errno, what))?;
        let row = stat::parse(&buffer[..length], Units::of_this_kernel())
            .ok_or_else(|| Unknown::new(Reason::Unsupported, "stat is not as the manual has it"))?;
        if row.id == self.id {
            Ok(row)
        } else {
            Err(Unknown::new(Reason::Vanished, "its number belongs to another process"))
        }
    }

    /// Says whether the process still runs.
    pub(in crate::observe) fn life(&self) -> Life {
        match self.row() {
            Ok(row) if row.is_gone() => Life::Gone,
            Ok(_) => Life::Alive,
            Err(Unknown { reason: Reason::Vanished, .. }) => Life::Gone,
            Err(_) => Life::Unknown,
        }
    }

    /// Reads a whole file of at most `most` bytes; more is unknown.
    pub(super) fn read(&self, name: &'static std::ffi::CStr, most: usize) -> Known<Vec<u8>> {
        let what = || format!("reading {}", name.to_string_lossy());
        let file = self.file(name, OFlags::RDONLY).map_err(|errno| unknown(errno, what()))?;
        bounded(file, most).map_err(|fault| match fault {
            Fault::More => Unknown::new(Reason::Truncated, what()),
            Fault::Errno(errno) => unknown(errno, what()),
        })
    }

    /// Returns the text of a link.
    pub(super) fn link(&self, name: &'static std::ffi::CStr) -> Known<BString> {
        rustix::fs::readlinkat(&self.dir, name, Vec::with_capacity(256))
            .map(|text| BString::from(text.into_bytes()))
            .map_err(|errno| unknown(errno, format!("reading the link {}", name.to_string_lossy())))
    }

    /// Opens a file or link target of it.
    pub(super) fn file(&self, name: &std::ffi::CStr, flags: OFlags) -> Result<OwnedFd, Errno> {
        openat(&self.dir, name, flags | OFlags::CLOEXEC, Mode::empty())
    }

    /// Opens its root directory, to look up paths as it means them.
    pub(super) fn root(&self) -> Known<OwnedFd> {
        self.file(c"root", OFlags::PATH | OFlags::DIRECTORY)
            .map_err(|errno| unknown(errno, "opening its root directory"))
    }

    /// Lends the descriptor.
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        self.dir.as_fd()
    }
}

/// Why a bounded read gave nothing.
pub(super) enum Fault {
    /// There was more.
    More,
    /// The kernel said no.
    Errno(Errno),
}

/// Reads a whole file of at most `most` bytes.
pub(super) fn bounded(file: OwnedFd, most: usize) -> Result<Vec<u8>, Fault> {
    let mut text = Vec::with_capacity(4096);
    let limit = u64::try_from(most).unwrap_or(u64::MAX - 1) + 1;
    std::fs::File::from(file)
        .take(limit)
        .read_to_end(&mut text)
        .map_err(|error| Fault::Errno(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
    if text.len() > most { Err(Fault::More) } else { Ok(text) }
}

/// Returns why a read of a process failed.
pub(in crate::observe) fn unknown(errno: Errno, what: impl Into<String>) -> Unknown {
    let reason = match errno {
        Errno::ACCESS | Errno::PERM => Reason::Denied,
        Errno::SRCH | Errno::NOENT => Reason::Vanished,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Reason::Starved,
        Errno::NOSYS => Reason::Unsupported,
        other => Reason::Failed(other.raw_os_error()),
    };
    Unknown::new(reason, what)
}
