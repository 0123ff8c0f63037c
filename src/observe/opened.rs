//! What a descriptor of a file or a directory leads to: its identity, its names, its text, and what errors mean.

use std::os::fd::OwnedFd;

use bstr::BString;
use rustix::fs::{Dir, Stat};
use rustix::io::Errno;

use crate::model::id::FileId;
use crate::model::known::{Reason, Unknown};

#[cfg(target_os = "linux")]
pub(super) fn file_id(stat: &Stat) -> FileId {
    FileId { dev: stat.st_dev, ino: stat.st_ino }
}

#[cfg(target_os = "macos")]
pub(super) fn file_id(stat: &Stat) -> FileId {
    FileId { dev: stat.st_dev.cast_unsigned().into(), ino: stat.st_ino }
}

/// Returns the names in a directory, one more than `most` at most.
pub(super) fn names(directory: &OwnedFd, most: usize) -> Result<Vec<BString>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(name.into());
        }
        if names.len() > most {
            break;
        }
    }
    Ok(names)
}

/// Returns what stands in a file, a little more than `longest` bytes at most.
pub(super) fn text(file: &OwnedFd, longest: usize) -> Result<Vec<u8>, Errno> {
    let mut text = Vec::new();
    let mut chunk = [0; 16 * 1024];
    while text.len() <= longest {
        match rustix::io::read(file, &mut chunk) {
            Ok(0) => break,
            Ok(length) => text.extend_from_slice(&chunk[..length]),
            Err(Errno::INTR) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(text)
}

pub(super) fn unknown(errno: Errno, what: impl Into<String>) -> Unknown {
    let reason = match errno {
        Errno::ACCESS | Errno::PERM => Reason::Denied,
        Errno::NOENT => Reason::Vanished,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Reason::Starved,
        other => Reason::Failed(other.raw_os_error()),
    };
    Unknown::new(reason, what)
}
