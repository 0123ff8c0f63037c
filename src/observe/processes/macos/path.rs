//! What an absolute path means to a process.

use bstr::{BStr, ByteSlice as _};

use crate::model::id::{FileId, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::{Binding, Parent, PathAnswer};

use super::directory::{at, kind, mounts};
use super::kernel;
use super::pinned::Pinned;
use super::records;

/// Returns what is at `path` as `of` means it. A Mac has no mount namespaces, but it has chroot(2): a process with a
/// root of its own is foreign.
pub(in crate::observe) fn path(of: ProcessId, path: &BStr) -> Known<PathAnswer> {
    let pinned = Pinned::open(of)?;
    let record = kernel::record(of.pid, kernel::Record::Directories, records::DIRECTORIES)
        .map_err(|error| kernel::unknown(&error, "its root directory"))?;
    if records::has_own_root(&record) != Some(false) {
        return Err(Unknown::new(Reason::Foreign, format!("looking at {path}")));
    }
    let answer = look(path);
    pinned.still(answer)
}

fn look(path: &BStr) -> Known<PathAnswer> {
    let there = at(path)?;
    let Some(above) = parent_of(path) else {
        return Err(Unknown::new(Reason::Unsupported, "the root directory has no parent"));
    };
    if let Some(parent) = directory(above)? {
        let parent = Box::new(parent);
        return Ok(match there {
            Some(file) => PathAnswer::Present { file, parent },
            None => PathAnswer::Absent { parent },
        });
    }
    let mut above = above;
    while let Some(higher) = parent_of(above) {
        if let Some(parent) = directory(higher)? {
            return Ok(PathAnswer::ParentAbsent { nearest: Box::new(parent) });
        }
        above = higher;
    }
    Err(Unknown::new(Reason::Untrusted, format!("nothing above {path} is there")))
}

fn directory(path: &BStr) -> Known<Option<Parent>> {
    // Followed: on a Mac `/tmp` and `/var` are links, and a parent is what they lead to.
    let Some(found) = at(path)? else { return Ok(None) };
    let file = match rustix::fs::stat(path.as_bytes()) {
        Ok(stat) => crate::model::id::FileId { dev: stat.st_dev.cast_unsigned().into(), ino: stat.st_ino },
        Err(rustix::io::Errno::NOENT) => found,
        Err(errno) => return Err(kernel::unknown(&errno.into(), format!("looking at {path}"))),
    };
    let mounts = mounts()?;
    // The first half of a file system's number is the device that its files bear.
    let mount = mounts
        .iter()
        .find(|mount| mount.number & u64::from(u32::MAX) == file.dev)
        .ok_or_else(|| Unknown::new(Reason::Untrusted, "a file system that is not in the list of mounts"))?;
    Ok(Some(Parent { path: path.to_owned(), file, mount: mount.on.clone().into(), on: kind(&mount.kind) }))
}

fn parent_of(path: &BStr) -> Option<&BStr> {
    let path = path.trim_end_with(|letter| letter == '/');
    let end = path.rfind_byte(b'/')?;
    Some(path[..end.max(1)].as_bstr()).filter(|parent| parent.len() < path.len())
}

/// A Mac does not say which file a socket was bound to, so nothing can be compared with what is at its path.
pub(in crate::observe) fn bound(_of: ProcessId, path: &BStr, _file: FileId) -> Known<Binding> {
    Err(Unknown::new(Reason::Unsupported, format!("which file the socket at {path} was bound to")))
}
