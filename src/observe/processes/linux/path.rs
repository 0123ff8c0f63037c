//! What an absolute path means to a process: looked up below its own root, in its own mount namespace.

use std::os::fd::{AsFd, OwnedFd};

use bstr::{BStr, BString, ByteSlice as _};
use rustix::fs::{AtFlags, Mode, OFlags, ResolveFlags, StatxFlags};
use rustix::io::Errno;

use crate::model::facts::FileSystem;
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::{Parent, PathAnswer};

use super::directory::{file_id, file_system, stat_of};
use super::mounts;
use super::pinned::{Pinned, unknown};

/// Longest mount table that is read.
pub(super) const MOUNTS_MOST: usize = 4 * 1024 * 1024;

/// `PROC_SUPER_MAGIC`: what lies in `/proc` means something else to every reader.
const PROC: u32 = 0x9fa0;

/// Tries of a lookup that raced with a rename (openat2(2), EAGAIN).
const TRIES: u32 = 4;

/// Looks up a path as `of` means it. The last element is not followed.
///
/// `/proc/PID/root` leads into the process's own mount namespace and root directory, and `RESOLVE_IN_ROOT` keeps
/// absolute links there: the answer is what the process itself would find.
pub(in crate::observe) fn path(of: ProcessId, path: &BStr) -> Known<PathAnswer> {
    if !path.starts_with(b"/") || path.contains(&0) {
        return Err(Unknown::new(Reason::Unsupported, "looking up what is no absolute path"));
    }
    let pinned = Pinned::open(of)?;
    let root = pinned.root()?;
    let answer = below(&pinned, &root, path)?;
    // What was opened was the root of this process only if it is still there.
    pinned.row()?;
    Ok(answer)
}

fn below(pinned: &Pinned, root: &OwnedFd, path: &BStr) -> Known<PathAnswer> {
    let (above, last) = split(path);
    if matches!(last, b"." | b"..") {
        return Err(Unknown::new(Reason::Unsupported, "looking up a path that ends in dots"));
    }
    let directory = match beneath(root, above, OFlags::PATH | OFlags::DIRECTORY) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return nearest(pinned, root, above),
        Err(errno) => return Err(lookup(errno)),
    };
    let parent = Box::new(parent(pinned, &directory, above)?);
    if last.is_empty() {
        return Ok(PathAnswer::Present { file: parent.file, parent });
    }
    let flags = AtFlags::from_bits_retain(
        AtFlags::SYMLINK_NOFOLLOW.bits() | AtFlags::NO_AUTOMOUNT.bits() | AtFlags::STATX_DONT_SYNC.bits(),
    );
    match rustix::fs::statx(&directory, last, flags, StatxFlags::INO) {
        Ok(stat) => Ok(PathAnswer::Present { file: file_id(&stat), parent }),
        Err(Errno::NOENT) => Ok(PathAnswer::Absent { parent }),
        Err(errno) => Err(lookup(errno)),
    }
}

/// Climbs to the nearest directory that is there.
fn nearest(pinned: &Pinned, root: &OwnedFd, missing: &BStr) -> Known<PathAnswer> {
    let mut at = missing;
    while at != "/" {
        at = split(at).0;
        match beneath(root, at, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(directory) => {
                let nearest = Box::new(parent(pinned, &directory, at)?);
                return Ok(PathAnswer::ParentAbsent { nearest });
            }
            Err(Errno::NOENT) => {}
            Err(errno) => return Err(lookup(errno)),
        }
    }
    Err(Unknown::new(Reason::Vanished, "its root directory"))
}

/// Returns the directory of a path and its last element, which is empty for the root itself.
pub(super) fn split(path: &BStr) -> (&BStr, &[u8]) {
    let path = path.trim_end_with(|letter| letter == '/');
    let at = path.rfind_byte(b'/').unwrap_or(0);
    let above = path[..at].trim_end_with(|letter| letter == '/');
    let above = if above.is_empty() { b"/" } else { above };
    (above.as_bstr(), path.get(at + 1..).unwrap_or_default())
}

/// Returns what is known of a directory; one that cannot be trusted is unknown.
pub(super) fn parent(pinned: &Pinned, directory: &OwnedFd, path: &BStr) -> Known<Parent> {
    let on = file_system(directory)?;
    if matches!(on, FileSystem::Fuse | FileSystem::Network) {
        return Err(Unknown::new(Reason::Untrusted, format!("what is in {path}")));
    }
    let magic = rustix::fs::fstatfs(directory).map_err(lookup)?.f_type;
    if u32::try_from(magic) == Ok(PROC) {
        return Err(Unknown::new(Reason::Foreign, format!("what {path} is to another process")));
    }
    let stat = stat_of(directory)?;
    if stat.stx_mask & StatxFlags::MNT_ID.bits() == 0 {
        return Err(Unknown::new(Reason::Unsupported, format!("which mount {path} is on")));
    }
    let mount = mount(pinned, stat.stx_mnt_id)?;
    Ok(Parent { path: path.to_owned(), file: file_id(&stat), mount, on })
}

/// Returns where a mount is, as the process sees it.
fn mount(pinned: &Pinned, id: u64) -> Known<BString> {
    let text = pinned.read(c"mountinfo", MOUNTS_MOST)?;
    mounts::parse(&text)
        .find(|mount| mount.id == id)
        .map(|mount| mount.point)
        .ok_or_else(|| Unknown::new(Reason::Foreign, "finding the mount that a path is on"))
}

/// Opens a path below a root directory as a process with that root would.
pub(super) fn beneath(root: impl AsFd, path: &BStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    // An absolute path starts again at the root that is given: that is what IN_ROOT means (openat2(2), Linux 5.6).
    let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
    let mut tries = TRIES;
    loop {
        let flags = flags | OFlags::CLOEXEC;
        match rustix::fs::openat2(&root, path.as_bytes(), flags, Mode::empty(), resolve) {
            Err(Errno::AGAIN) if tries > 1 => tries -= 1,
            result => return result,
        }
    }
}

/// Returns why a lookup failed.
pub(super) fn lookup(errno: Errno) -> Unknown {
    // Here ENOENT and ESRCH were sorted out before: what is left is no word on the process.
    unknown(errno, "looking up a path")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_come_apart_at_their_last_element() {
        let parts = |text: &'static str| {
            let (above, last) = split(text.into());
            (above.to_string(), last.as_bstr().to_string())
        };
        assert_eq!(parts("/a/b"), ("/a".into(), "b".into()));
        assert_eq!(parts("/a//b//"), ("/a".into(), "b".into()));
        assert_eq!(parts("/a"), ("/".into(), "a".into()));
        assert_eq!(parts("/"), ("/".into(), String::new()));
        assert_eq!(parts("///"), ("/".into(), String::new()));
    }
}
