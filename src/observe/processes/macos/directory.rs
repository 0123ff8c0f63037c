//! The working directory of a process, and which file systems can be believed.

use bstr::{BStr, ByteSlice};
use rustix::io::Errno;

use crate::model::facts::{Directory, Fate, FileSystem};
use crate::model::id::FileId;
use crate::model::known::{Known, Reason, Unknown};

use super::records::Held;
use super::{kernel, privacy};

/// Returns the directory, and whether it was deleted.
pub(super) fn directory(held: Held) -> Known<Directory> {
    let on = file_system(&mounts()?, held.file_system)?;
    let fate = fate(&held, on);
    Ok(Directory { path: held.path, file: held.file, fate, on })
}

/// A deleted directory has no names left *and* is not where the kernel says it was. One of the two alone is unknown:
/// nobody has yet seen on a Mac what every file system says of a directory that is held and gone.
fn fate(held: &Held, on: FileSystem) -> Known<Fate> {
    match on {
        FileSystem::Local => {}
        FileSystem::Overlay | FileSystem::Fuse | FileSystem::Network => {
            return Err(Unknown::new(Reason::Untrusted, "whether its directory is deleted"));
        }
    }
    let there = if held.path.is_empty() { None } else { at(held.path.as_bstr())? };
    match (held.links, there == Some(held.file)) {
        (0, false) => Ok(Fate::Deleted),
        (1.., true) => Ok(Fate::Linked),
        (0, true) | (1.., false) => {
            Err(Unknown::new(Reason::Untrusted, "a directory whose path and link count disagree"))
        }
    }
}

/// Returns what is at a path, or nothing where nothing is; any other error is unknown.
pub(super) fn at(path: &BStr) -> Known<Option<FileId>> {
    if let Some(refusal) = privacy::refusal(path, home().as_deref().map(ByteSlice::as_bstr)) {
        return Err(refusal);
    }
    match rustix::fs::lstat(path.as_bytes()) {
        Ok(stat) => Ok(Some(FileId { dev: stat.st_dev.cast_unsigned().into(), ino: stat.st_ino })),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(kernel::unknown(&errno.into(), format!("looking at {path}"))),
    }
}

/// Returns every mounted file system.
pub(super) fn mounts() -> Known<Vec<kernel::Mount>> {
    kernel::mounts().map_err(|error| kernel::unknown(&error, "the list of mounts"))
}

/// Returns the kind of a file system by its number.
pub(super) fn file_system(mounts: &[kernel::Mount], number: u64) -> Known<FileSystem> {
    let mount = mounts
        .iter()
        .find(|mount| mount.number == number)
        .ok_or_else(|| Unknown::new(Reason::Untrusted, "a file system that is not in the list of mounts"))?;
    Ok(kind(&mount.kind))
}

/// Whatever is not known to be local or remote is as a program says: it may be one of many user-space drivers.
pub(super) fn kind(name: &[u8]) -> FileSystem {
    match name {
        b"apfs" | b"hfs" | b"tmpfs" | b"devfs" => FileSystem::Local,
        b"nfs" | b"smbfs" | b"afpfs" | b"webdav" | b"cifs" | b"ftp" | b"9p" | b"virtiofs" => {
            FileSystem::Network
        }
        _ => FileSystem::Fuse,
    }
}

/// Returns the home directory of whoever looks.
fn home() -> Option<Vec<u8>> {
    use std::os::unix::ffi::OsStringExt;
    std::env::var_os("HOME").map(OsStringExt::into_vec)
}
