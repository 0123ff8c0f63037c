//! Where the file of a listening Unix socket is now: at its path, under another name, or nowhere that can be seen.

use std::os::fd::OwnedFd;

use bstr::{BStr, ByteSlice as _};
use rustix::fs::{AtFlags, Dir, FileType, OFlags, Statx, StatxFlags};
use rustix::io::Errno;

use crate::model::facts::FileSystem;
use crate::model::id::{FileId, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::{Binding, FileKind, Parent};

use super::directory::{file_id, stat_of};
use super::mounts;
use super::path::{MOUNTS_MOST, beneath, lookup, parent, split};
use super::pinned::{Pinned, unknown};

/// Entries of one directory that are looked through for another name of the file. A socket's directory is small; in a
/// larger one the other name stays unknown.
const ENTRIES_MOST: usize = 10_000;

/// Directories above a server's working directory, and elements at the end of a path, that are tried together. Who
/// keeps a socket in his own directory keeps it less deep.
const ENDS_MOST: usize = 12;

/// Tells where the file is that a socket was bound to, as `of` sees it.
///
/// Whatever may be another way to the file (another name, a renamed directory) or may hide it (a mount over it, a part
/// of a file system mounted elsewhere) is never an absence.
pub(in crate::observe) fn bound(of: ProcessId, path: &BStr, file: FileId) -> Known<Binding> {
    if !path.starts_with(b"/") || path.contains(&0) {
        return Err(Unknown::new(Reason::Unsupported, "where a socket is that has no absolute path"));
    }
    let pinned = Pinned::open(of)?;
    let root = pinned.root()?;
    let search = Search { pinned: &pinned, root: &root, path, file };
    let first = search.look()?;
    // A rename while we looked shows as neither name; what was seen twice was not in the midst of one.
    let binding = match search.look()? {
        second if second == first => second,
        _ => return Err(Unknown::new(Reason::Vanished, format!("what {path} is: it changes while we look"))),
    };
    pinned.row()?;
    Ok(binding)
}

struct Search<'a> {
    pinned: &'a Pinned,
    root: &'a OwnedFd,
    path: &'a BStr,
    file: FileId,
}

impl Search<'_> {
    fn look(&self) -> Known<Binding> {
        let (above, last) = split(self.path);
        if matches!(last, b"" | b"." | b"..") {
            return Err(Unknown::new(Reason::Unsupported, "where a socket is whose path ends in dots"));
        }
        match beneath(self.root, self.path, OFlags::PATH) {
            Ok(found) if is(&stat_of(&found)?, self.file) => return Ok(Binding::Here),
            // A link may lead nowhere; what stands at the path itself comes next.
            Ok(_) | Err(Errno::NOENT) => {}
            Err(errno) => return Err(lookup(errno)),
        }
        let directory = match beneath(self.root, above, OFlags::PATH | OFlags::DIRECTORY) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return self.without_directory(above, last),
            Err(errno) => return Err(lookup(errno)),
        };
        let parent = Box::new(self.home(&directory, above)?);
        let there = stat_at(&directory, last)?;
        if there.as_ref().is_some_and(|there| is(there, self.file)) {
            return Ok(Binding::Here);
        }
        if let Some(name) = self.other_name(above)? {
            return Ok(if name.as_slice() == last { Binding::Here } else { Binding::Renamed(name.into()) });
        }
        if let Some(name) = self.moved_away(above, last)? {
            return Ok(Binding::Renamed(name.into()));
        }
        Ok(match there {
            Some(there) => Binding::Replaced { by: kind(&there), parent },
            None => Binding::Absent { parent },
        })
    }

    /// The directory is gone by its name: it was removed, or renamed with the socket in it.
    fn without_directory(&self, missing: &BStr, last: &[u8]) -> Known<Binding> {
        let mut at = missing;
        loop {
            if at == "/" {
                return Err(Unknown::new(Reason::Vanished, "its root directory"));
            }
            at = split(at).0;
            match beneath(self.root, at, OFlags::PATH | OFlags::DIRECTORY) {
                Ok(directory) => {
                    let nearest = Box::new(self.home(&directory, at)?);
                    return Ok(match self.moved_away(missing, last)? {
                        Some(name) => Binding::Renamed(name.into()),
                        None => Binding::DirectoryAbsent { nearest },
                    });
                }
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(lookup(errno)),
            }
        }
    }

    /// Looks for the file where it would be if one of the directories above it had been renamed or moved, whatever
    /// stands at the old name by now: a worktree takes the sockets in it along (B33, B34).
    fn moved_away(&self, above: &BStr, last: &[u8]) -> Known<Option<Vec<u8>>> {
        let (mut at, mut below) = (above, last.to_vec());
        // The one above is looked through for whatever is beside it, and so on to the end of the file system.
        while at != "/" {
            let (higher, name) = split(at);
            match beneath(self.root, higher, OFlags::PATH | OFlags::DIRECTORY) {
                // Nothing is renamed from one file system to another.
                Ok(directory) if file_id(&stat_of(&directory)?).dev != self.file.dev => break,
                Ok(_) => {
                    if let Some(found) = self.beside(higher, &below)? {
                        return Ok(Some(found));
                    }
                }
                Err(Errno::NOENT) => {}
                Err(errno) => return Err(lookup(errno)),
            }
            below = [name, b"/", below.as_slice()].concat();
            at = higher;
        }
        self.near_the_server(above, last)
    }

    /// Returns the directory where it can be trusted with absences: on the file's own file system, the whole of it.
    fn home(&self, directory: &OwnedFd, path: &BStr) -> Known<Parent> {
        let parent = parent(self.pinned, directory, path)?;
        if parent.on != FileSystem::Local {
            return Err(Unknown::new(Reason::Untrusted, format!("what is in {path}")));
        }
        let elsewhere = |what: &str| Err(Unknown::new(Reason::Foreign, format!("{path} is {what}")));
        if parent.file.dev != self.file.dev {
            return elsewhere("on another file system than the socket's file: something is mounted over it");
        }
        // Whoever sees the whole file system may still reach what is hidden by a part of it that is mounted here.
        let id = stat_of(directory)?.stx_mnt_id;
        let text = self.pinned.read(c"mountinfo", MOUNTS_MOST)?;
        match mounts::parse(&text).find(|mount| mount.id == id) {
            Some(mount) if mount.root == "/" => Ok(parent),
            Some(_) | None => elsewhere("in a part of a file system that is mounted there"),
        }
    }

    /// Looks through the directory for the file under any name.
    fn other_name(&self, directory: &BStr) -> Known<Option<Vec<u8>>> {
        let (held, entries) = self.entries(directory)?;
        for entry in entries {
            let (inode, name, _) = entry?;
            if short(inode) != short(self.file.ino) {
                continue;
            }
            if stat_at(&held, &name)?.is_some_and(|stat| is(&stat, self.file)) {
                return Ok(Some(name));
            }
        }
        Ok(None)
    }

    /// Looks through the directories of one for the file, at this path below each.
    fn beside(&self, above: &BStr, below: &[u8]) -> Known<Option<Vec<u8>>> {
        let (held, entries) = self.entries(above)?;
        for entry in entries {
            let (_, name, kind) = entry?;
            if !matches!(kind, FileType::Directory | FileType::Unknown) {
                continue;
            }
            let path = [name.as_slice(), b"/", below].concat();
            match rustix::fs::statx(&held, path.as_slice(), quietly(), StatxFlags::INO) {
                Ok(stat) if is(&stat, self.file) => return Ok(Some(path)),
                // Others' directories are closed to us, and a renamed one keeps its owner and mode.
                Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {}
                Err(errno) => return Err(lookup(errno)),
            }
        }
        Ok(None)
    }

    /// Looks for the file by each end of its path from where the server stands and from every directory above: what
    /// was moved to another place took the server's working directory along.
    fn near_the_server(&self, above: &BStr, last: &[u8]) -> Known<Option<Vec<u8>>> {
        let what = "looking from where it stands";
        let stands = match self.pinned.file(c"cwd", OFlags::PATH | OFlags::DIRECTORY) {
            Ok(stands) => stands,
            Err(errno) => return Err(unknown(errno, what)),
        };
        let mut ends = vec![last.to_vec()];
        for element in above.rsplit_str(b"/").filter(|element| !element.is_empty()) {
            let longer = ends.last().map(|end| [element, b"/", end.as_slice()].concat());
            ends.extend(longer);
        }
        for up in 0..ENDS_MOST {
            for end in ends.iter().take(ENDS_MOST) {
                let path = [&b"../".repeat(up)[..], end].concat();
                match rustix::fs::statx(&stands, path.as_slice(), quietly(), StatxFlags::INO) {
                    Ok(stat) if is(&stat, self.file) => return Ok(Some(path)),
                    Ok(_) | Err(Errno::NOENT | Errno::NOTDIR | Errno::ACCESS) => {}
                    Err(errno) => return Err(lookup(errno)),
                }
            }
        }
        Ok(None)
    }

    fn entries(&self, path: &BStr) -> Known<(OwnedFd, Vec<Known<Entry>>)> {
        let what = || format!("what is in {path}");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NONBLOCK;
        let held = beneath(self.root, path, flags).map_err(|errno| unknown(errno, what()))?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(&held).map_err(|errno| unknown(errno, what()))? {
            if entries.len() >= ENTRIES_MOST {
                return Err(Unknown::new(Reason::Truncated, what()));
            }
            entries.push(match entry {
                Ok(entry) => match entry.file_name().to_bytes() {
                    b"." | b".." => continue,
                    name => Ok((entry.ino(), name.to_vec(), entry.file_type())),
                },
                Err(errno) => Err(unknown(errno, what())),
            });
        }
        Ok((held, entries))
    }
}

type Entry = (u64, Vec<u8>, FileType);

/// unix_diag tells the lower half of an inode.
fn short(inode: u64) -> u64 {
    inode & u64::from(u32::MAX)
}

/// Says whether this is the file, as far as unix_diag told of it.
pub(super) fn is(stat: &Statx, file: FileId) -> bool {
    let found = file_id(stat);
    found.dev == file.dev && short(found.ino) == short(file.ino)
}

fn quietly() -> AtFlags {
    AtFlags::from_bits_retain(
        AtFlags::SYMLINK_NOFOLLOW.bits() | AtFlags::NO_AUTOMOUNT.bits() | AtFlags::STATX_DONT_SYNC.bits(),
    )
}

fn stat_at(directory: &OwnedFd, name: &[u8]) -> Known<Option<Statx>> {
    match rustix::fs::statx(directory, name, quietly(), StatxFlags::INO | StatxFlags::TYPE) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(lookup(errno)),
    }
}

fn kind(stat: &Statx) -> FileKind {
    match FileType::from_raw_mode(stat.stx_mode.into()) {
        FileType::Socket => FileKind::Socket,
        FileType::RegularFile => FileKind::File,
        FileType::Directory => FileKind::Directory,
        FileType::Symlink => FileKind::Link,
        FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => {
            FileKind::Other
        }
    }
}
