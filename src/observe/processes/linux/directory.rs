//! What directory a process stands in, and whether that directory still has a name.

use bstr::{BStr, ByteSlice as _};
use rustix::fs::{AtFlags, OFlags, Statx, StatxFlags};

use crate::model::facts::{Directory, Fate, FileSystem};
use crate::model::id::FileId;
use crate::model::known::{Known, Reason, Unknown};

use super::path::beneath;
use super::pinned::{Pinned, unknown};

/// What the kernel writes behind the name of a dentry that is unhashed. A name may really end so.
pub(super) const MARK: &[u8] = b" (deleted)";

/// Tries before a process that changes directory between our reads is given up.
const TRIES: u32 = 3;

/// Reads the working directory: text, identity, kind of file system and fate.
pub(super) fn cwd(pinned: &Pinned) -> Known<Directory> {
    for _ in 0..TRIES {
        let text = pinned.link(c"cwd")?;
        let held = pinned
            .file(c"cwd", OFlags::PATH | OFlags::DIRECTORY)
            .map_err(|errno| unknown(errno, "holding the working directory"))?;
        if pinned.link(c"cwd")? != text {
            continue;
        }
        let on = file_system(&held)?;
        let stat = stat_of(&held)?;
        let fate = fate(text.as_bstr(), stat.stx_nlink, on, || names(pinned, text.as_bstr(), &stat));
        let mut path = text;
        if fate == Ok(Fate::Deleted)
            && let Some(bare) = path.strip_suffix(MARK)
        {
            path = bare.into();
        }
        return Ok(Directory { path, file: file_id(&stat), fate, on });
    }
    Err(Unknown::new(Reason::Vanished, "it keeps changing its working directory"))
}

/// Decides a held directory's fate. `named` says whether the text, mark included, is a name of it after all; it is
/// asked on overlayfs only.
fn fate(text: &BStr, links: u32, on: FileSystem, named: impl FnOnce() -> Known<bool>) -> Known<Fate> {
    let marked = text.ends_with(MARK);
    match on {
        // A program or a server says what is there; one was seen to leave the count 0 on a live directory.
        FileSystem::Fuse | FileSystem::Network => {
            Err(Unknown::new(Reason::Untrusted, "whether the working directory was deleted"))
        }
        FileSystem::Overlay if !marked => Ok(Fate::Linked),
        // Directories from the lower layer keep a count of 2 when they are removed: the mark must do.
        FileSystem::Overlay if links == 0 => Ok(Fate::Deleted),
        FileSystem::Overlay => named().map(|named| if named { Fate::Linked } else { Fate::Deleted }),
        FileSystem::Local => match (links, marked) {
            (0, true) => Ok(Fate::Deleted),
            (0, false) => Err(Unknown::new(
                Reason::Untrusted,
                "the working directory has no links, and yet a name: whether it was deleted",
            )),
            // Really named "x (deleted)", or unmounted lazily, or perfectly well.
            (_, true | false) => Ok(Fate::Linked),
        },
    }
}

/// Says whether a path, as the process means it, is this very file.
fn names(pinned: &Pinned, path: &BStr, held: &Statx) -> Known<bool> {
    let root = pinned.root()?;
    match beneath(&root, path, OFlags::PATH | OFlags::NOFOLLOW) {
        Ok(found) => Ok(file_id(&stat_of(&found)?) == file_id(held)),
        Err(rustix::io::Errno::NOENT) => Ok(false),
        Err(errno) => Err(unknown(errno, "looking for the working directory's name")),
    }
}

/// Asks what is held, without asking a file server.
pub(super) fn stat_of(held: &std::os::fd::OwnedFd) -> Known<Statx> {
    let flags = AtFlags::from_bits_retain(AtFlags::EMPTY_PATH.bits() | AtFlags::STATX_DONT_SYNC.bits());
    let wanted = StatxFlags::INO | StatxFlags::NLINK | StatxFlags::TYPE | StatxFlags::MNT_ID;
    rustix::fs::statx(held, c"", flags, wanted).map_err(|errno| unknown(errno, "asking what a directory is"))
}

/// Returns the identity in a statx(2) answer, its device put together as `st_dev` has it.
pub(super) fn file_id(stat: &Statx) -> FileId {
    FileId { dev: rustix::fs::makedev(stat.stx_dev_major, stat.stx_dev_minor), ino: stat.stx_ino }
}

/// Asks what kind of file system holds it.
pub(in crate::observe) fn file_system(held: &std::os::fd::OwnedFd) -> Known<FileSystem> {
    let on = rustix::fs::fstatfs(held).map_err(|errno| unknown(errno, "asking for the file system"))?;
    // Sign and width of `f_type` differ between platforms; all magic numbers have 32 bits.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "32 bits are all there is")]
    Ok(kind(on.f_type as u32))
}

/// Sorts file systems by the numbers of statfs(2). Only those that are known to count links by the book are
/// *local*; a stranger is trusted no more than a network's.
fn kind(magic: u32) -> FileSystem {
    match magic {
        0x794c_7630 => FileSystem::Overlay,
        0x6573_5546 => FileSystem::Fuse,
        0xEF53          // ext2, ext3, ext4
        | 0x5846_5342   // XFS
        | 0x9123_683E   // Btrfs
        | 0x0102_1994   // tmpfs
        | 0x8584_58f6   // ramfs
        | 0xF2F5_2010   // F2FS
        | 0x2fc1_2fc1   // ZFS
        | 0xca45_1a4e   // bcachefs
        | 0x3153_464a   // JFS
        | 0x3434        // NILFS
        | 0x5265_4973   // ReiserFS
        | 0xE0F5_E1E2   // EROFS
        | 0x7371_7368   // SquashFS
        | 0x9660        // ISO 9660
        | 0x4d44        // FAT
        | 0x2011_BAB0   // exFAT
        | 0x9fa0        // proc
        | 0x6265_6572   // sysfs
        | 0x6367_7270   // cgroup2
        | 0x0027_e0eb   // cgroup
        | 0x1cd1 => FileSystem::Local, // devpts
        _ => FileSystem::Network,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn judged(text: &str, links: u32, on: FileSystem) -> Known<Fate> {
        fate(text.into(), links, on, || Ok(false))
    }

    #[test]
    fn deleted_needs_both_marks_on_local_file_systems() {
        assert_eq!(judged("/w/a (deleted)", 0, FileSystem::Local), Ok(Fate::Deleted));
        assert_eq!(judged("/w/a (deleted)", 2, FileSystem::Local), Ok(Fate::Linked), "really named so");
        assert_eq!(judged("/w/a", 2, FileSystem::Local), Ok(Fate::Linked));
        assert_eq!(judged("/w/a", 0, FileSystem::Local).unwrap_err().reason, Reason::Untrusted);
    }

    #[test]
    fn servers_and_programs_are_not_believed_f8() {
        for on in [FileSystem::Fuse, FileSystem::Network] {
            for (text, links) in [("/m/a (deleted)", 0), ("/m/a", 0), ("/m/a", 2)] {
                assert_eq!(judged(text, links, on).unwrap_err().reason, Reason::Untrusted);
            }
        }
    }

    #[test]
    fn overlay_goes_by_the_text_f8() {
        assert_eq!(judged("/o/a (deleted)", 2, FileSystem::Overlay), Ok(Fate::Deleted));
        assert_eq!(judged("/o/a", 2, FileSystem::Overlay), Ok(Fate::Linked));
        let named = fate("/o/a (deleted)".into(), 2, FileSystem::Overlay, || Ok(true));
        assert_eq!(named, Ok(Fate::Linked), "a live directory that is really named so");
        let refused = || Err(Unknown::new(Reason::Denied, "x"));
        assert!(fate("/o/a (deleted)".into(), 2, FileSystem::Overlay, refused).is_err());
    }

    #[test]
    fn strangers_among_file_systems_are_not_local() {
        assert_eq!(kind(0x0102_1994), FileSystem::Local);
        assert_eq!(kind(0x6969), FileSystem::Network);
        assert_eq!(kind(0xdead_beef), FileSystem::Network);
        assert_eq!(kind(0x6573_5546), FileSystem::Fuse);
    }
}
