//! Directories that stand directly in a root, with what is in each.

use bstr::{BStr, BString, ByteSlice as _};
use rustix::io::Errno;

use crate::config::policy::Glob;
use crate::model::id::Uid;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::residue::{Kind, Left, Numbers, Place, Remains};
use crate::observe::opened::unknown;

use super::{Finds, NAMES_MOST, Root, beneath, names, piece, piece_at, roots};

/// Most directories of one policy that are looked into; the next sweep sees the others once these are gone.
const DIRECTORIES_MOST: usize = 2_048;

/// A directory with more in it is nobody's residue.
const ENTRIES_MOST: usize = 32;

/// Finds the directories that one of these globs fits.
pub(super) fn stale(
    finds: &mut Finds,
    paths: &[BString],
    patterns: &[String],
    user: Option<Uid>,
) -> Known<()> {
    let globs: Vec<Glob> = patterns.iter().filter_map(|pattern| Glob::parse(pattern).ok()).collect();
    if globs.len() != patterns.len() {
        return Err(Unknown::new(Reason::Unsupported, "a pattern of names"));
    }
    let mut count = 0;
    for root in roots(finds, paths) {
        let source = root.path.as_bstr();
        let names = match names(&root.directory, NAMES_MOST) {
            Ok(Some(names)) => names,
            Ok(None) => {
                let what = format!("it holds more than {NAMES_MOST} names");
                finds.gap(source, Unknown::new(Reason::Truncated, what));
                continue;
            }
            Err(errno) => {
                finds.gap(source, unknown(errno, "listing it"));
                continue;
            }
        };
        for name in names {
            if !globs.iter().any(|glob| glob.fits(name.as_bstr())) {
                continue;
            }
            let Ok(own) = piece_at(&root.directory, name.as_bstr()) else { continue };
            if own.kind != Kind::Directory || user.is_some_and(|user| own.uid != user) {
                continue;
            }
            if count == DIRECTORIES_MOST {
                let what = format!("only the first {DIRECTORIES_MOST} directories were looked into");
                finds.gap(source, Unknown::new(Reason::Truncated, what));
                return Ok(());
            }
            if !finds.may_go_on(source) {
                return Ok(());
            }
            count += 1;
            if let Some(remains) = remains(&root, name.as_bstr())? {
                finds.left.push(Left::Directory(remains));
            }
        }
    }
    Ok(())
}

/// Looks at the directory of a path that is a text from outside: it counts only where its last element is one plain
/// name, and what comes before it is a root to the letter.
pub(super) fn one(finds: &mut Finds, path: &BStr, paths: &[BString]) -> Known<()> {
    let Some((above, name)) = parted(path) else { return Ok(()) };
    for root in roots(finds, paths) {
        if root.is_called(above) {
            finds.left.extend(remains(&root, name)?.map(Left::Directory));
            return Ok(());
        }
    }
    Ok(())
}

/// Returns an absolute path in two: the directory above, and the name in it.
pub(super) fn parted(path: &BStr) -> Option<(&BStr, &BStr)> {
    let at = path.rfind_byte(b'/')?;
    let (above, name) = (path[..at].as_bstr(), path[at + 1..].as_bstr());
    let is_plain = |element: &[u8]| {
        !element.is_empty()
            && element != b"."
            && element != b".."
            && !element.iter().any(u8::is_ascii_control)
    };
    let is_whole = above.first() == Some(&b'/') && above[1..].split(|byte| *byte == b'/').all(is_plain);
    (is_whole && is_plain(name)).then_some((above, name))
}

/// Returns a directory with what is in it; nothing where it is not there, or is no directory of this very mount.
fn remains(root: &Root, name: &BStr) -> Known<Option<Remains>> {
    let what = || format!("'{name}' in '{}'", root.path);
    let directory = match beneath(&root.directory, name) {
        Ok(directory) => directory,
        // A link: ELOOP says Linux for O_NOFOLLOW alone, ENOTDIR together with O_DIRECTORY; EXDEV is a mount.
        Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV | Errno::ACCESS | Errno::AGAIN) => {
            return Ok(None);
        }
        Err(errno) => return Err(unknown(errno, what())),
    };
    let stat = rustix::fs::fstat(&directory).map_err(|errno| unknown(errno, what()))?;
    let entries = match names(&directory, ENTRIES_MOST) {
        Ok(Some(names)) => {
            let pieces: Result<Vec<_>, Errno> =
                names.iter().map(|name| piece_at(&directory, name.as_bstr())).collect();
            pieces.map_err(|errno| unknown(errno, format!("what is in {}", what())))
        }
        Ok(None) => Err(Unknown::new(Reason::Truncated, format!("what is in {}", what()))),
        Err(errno) => Err(unknown(errno, format!("what is in {}", what()))),
    };
    Ok(Some(Remains {
        place: Place { directory: root.path.clone(), holder: root.file, name: name.to_owned() },
        own: piece(name, &stat),
        entries,
        numbers: numbers(&directory),
    }))
}

/// Says whether stat(2) and the kernel's list of sockets have the same numbers here; as with the sockets of a process,
/// only of file systems whose inodes are small and whose device is the superblock's: those of `sockets/unix`.
#[cfg(target_os = "linux")]
fn numbers(directory: &std::os::fd::OwnedFd) -> Numbers {
    // EXT4_SUPER_MAGIC (ext2 and ext3, too), TMPFS_MAGIC and RAMFS_MAGIC of linux/magic.h.
    const KNOWN: [u64; 3] = [0xEF53, 0x0102_1994, 0x8584_58F6];
    match rustix::fs::fstatfs(directory) {
        Ok(stat) if KNOWN.contains(&super::number(stat.f_type)) => Numbers::Alike,
        Ok(_) | Err(_) => Numbers::InodeOnly,
    }
}

#[cfg(not(target_os = "linux"))]
fn numbers(_: &std::os::fd::OwnedFd) -> Numbers {
    Numbers::InodeOnly
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_from_outside_is_one_plain_name_below_a_whole_path_s3() {
        let parted = |path: &'static str| {
            parted(BStr::new(path)).map(|(above, name)| (above.to_string(), name.to_string()))
        };
        assert_eq!(parted("/tmp/x-1"), Some(("/tmp".into(), "x-1".into())));
        for path in
            ["", "/", "/x", "tmp/x", "//x", "/tmp/", "/tmp//x", "/tmp/..", "/tmp/../x", "/./x", "/tmp/a\nb"]
        {
            assert_eq!(parted(path), None, "{path:?}");
        }
    }
}
