//! Reads one lease directory; in the aside process, since it may lie on a mount that hangs.
//!
//! Everything is reached through one descriptor of the directory, and nothing in it is opened before it is seen to
//! be a regular file of the right user: opening a FIFO would let somebody go on who waits for a reader (REDTEAM S1).

use std::collections::BTreeMap;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::Read as _;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use bstr::{BStr, BString};
use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, lstat, openat, stat, statat};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};

use crate::model::id::{FileId, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::lease::format::{LARGEST, parse};
use crate::model::lease::{FaultyLease, Lease, LeaseFile};
use crate::model::look::Gap;

/// Most lease files that one directory may hold.
const FILES_MOST: usize = 4_096;

/// Most bytes that all of them may have: what they say travels in one frame.
const BYTES_MOST: u64 = 4 * 1024 * 1024;

/// Most faulty files of one directory that are told of one by one.
const TOLD_MOST: usize = 8;

/// Tries before a file that keeps changing while it is read is given up.
const TRIES: u32 = 3;

/// A file that changed no longer ago than this, seconds, may change again without any trace in its time stamps, which
/// move by ticks; FAT's, the coarsest, by two seconds.
const SETTLED: i64 = 2;

/// A lease directory that is to be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::observe) struct Place {
    /// Its path.
    pub(in crate::observe) path: BString,
    /// Whose it must be, and its files.
    pub(in crate::observe) owner: Uid,
}

/// What a directory says.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(in crate::observe) struct Found {
    /// Its sound leases, in no order.
    pub(super) list: Vec<Lease>,
    /// Files that say nothing that counts; one with an empty name is the directory itself.
    pub(super) faulty: Vec<FaultyLease>,
    /// The same, for a person.
    pub(super) gaps: Vec<Gap>,
}

impl Place {
    /// Returns that nothing is known of the whole directory.
    pub(super) fn unknown(&self, why: Unknown, cure: &str) -> Found {
        let gap = Gap {
            source: format!("leases in {}", self.path),
            why: why.clone(),
            cure: Some(format!("{cure}; until then nobody is reaped whom a lease in it may cover")),
        };
        let faulty = FaultyLease { owner: Some(self.owner), stem: BString::default(), why };
        Found { list: Vec::new(), faulty: vec![faulty], gaps: vec![gap] }
    }
}

/// The directories as last read; an unchanged file is not read again.
#[derive(Debug, Default)]
pub(in crate::observe) struct Directories {
    read: BTreeMap<BString, BTreeMap<BString, (Stamp, Lease)>>,
}

/// Why a whole directory says nothing, and what can be done about it.
struct Trouble {
    why: Unknown,
    cure: &'static str,
}

impl Directories {
    /// Returns what a directory says now. One that is not there says nothing.
    pub(in crate::observe) fn at(&mut self, place: &Place) -> Found {
        let old = self.read.remove(&place.path).unwrap_or_default();
        match read(place, old) {
            Ok((found, known)) => {
                if !known.is_empty() {
                    self.read.insert(place.path.clone(), known);
                }
                found
            }
            Err(Trouble { why, cure }) => place.unknown(why, cure),
        }
    }
}

type Remembered = BTreeMap<BString, (Stamp, Lease)>;

fn read(place: &Place, mut old: Remembered) -> Result<(Found, Remembered), Trouble> {
    let Some((directory, mode)) = open(place)? else { return Ok((Found::default(), Remembered::new())) };
    let mut found = Found::default();
    let mut known = Remembered::new();
    let (mut count, mut bytes) = (0, 0);
    let entries = Dir::read_from(&directory).map_err(unlistable)?;
    for entry in entries {
        let entry = entry.map_err(unlistable)?;
        let name = entry.file_name();
        // Dot-files are what writers have not finished yet, and their locks.
        let Some(stem) = name.to_bytes().strip_suffix(b".json").filter(|stem| !stem.starts_with(b".")) else {
            continue;
        };
        count += 1;
        if count > FILES_MOST {
            return Err(too_much(format!("it holds more than {FILES_MOST} leases")));
        }
        let stem = BStr::new(stem);
        let file = Named { directory: &directory, mode, name, stem, owner: place.owner };
        let remembered = old.remove(stem);
        match file.read(remembered.as_ref()) {
            Ok(None) => {}
            Ok(Some((stamp, lease))) => {
                bytes += stamp.size;
                if bytes > BYTES_MOST {
                    return Err(too_much(format!("its leases have more than {BYTES_MOST} bytes")));
                }
                found.list.push(lease.clone());
                if stamp.is_settled() || remembered.is_some_and(|(seen, _)| seen == stamp) {
                    known.insert(stem.to_owned(), (stamp, lease));
                }
            }
            Err(why) => {
                found.faulty.push(FaultyLease { owner: Some(place.owner), stem: stem.to_owned(), why });
            }
        }
    }
    found.faulty.sort_by(|one, other| one.stem.cmp(&other.stem));
    found.gaps = gaps(place, &found.faulty);
    Ok((found, known))
}

fn gaps(place: &Place, faulty: &[FaultyLease]) -> Vec<Gap> {
    let cure = "remove it, or write it anew: until then nobody is reaped whom it may cover";
    let one = |faulty: &FaultyLease| Gap {
        // In quotes, so that a saved world tells it from words of ours.
        source: format!("lease \"{}\" in {}", faulty.stem, place.path),
        why: faulty.why.clone(),
        cure: Some(cure.into()),
    };
    let mut gaps: Vec<Gap> = faulty.iter().take(TOLD_MOST).map(one).collect();
    if faulty.len() > TOLD_MOST {
        let more = format!("{} more of its files are no sound leases", faulty.len() - TOLD_MOST);
        gaps.push(Gap {
            source: format!("leases in {}", place.path),
            why: Unknown::new(Reason::Unsound, more),
            cure: Some(
                "remove them, or write them anew: until then nobody is reaped whom they may cover".into(),
            ),
        });
    }
    gaps
}

/// Opens the directory and makes sure that only its user can have written in it; nothing where it is not there.
fn open(place: &Place) -> Result<Option<(OwnedFd, u32)>, Trouble> {
    let path = Path::new(OsStr::from_bytes(&place.path));
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let directory = match rustix::fs::open(path, flags, Mode::empty()) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Ok(None),
        Err(Errno::NOTDIR | Errno::LOOP) => {
            return Err(unsound("it is no directory, or reached by a link", "put a directory there"));
        }
        Err(errno) => {
            return Err(Trouble {
                why: failed(errno, "opening it"),
                cure: "make it readable and searchable to its user",
            });
        }
    };
    let held = fstat(&directory).map_err(|errno| Trouble {
        why: failed(errno, "asking whose it is"),
        cure: "it will be tried again at the next look",
    })?;
    if held.st_uid != place.owner.0 {
        let why = format!("it belongs to user {} and not to user {}", held.st_uid, place.owner);
        return Err(unsound(why, "remove it, or give it to its user"));
    }
    let mode = bits(&held);
    if mode & 0o022 != 0 {
        return Err(unsound("others may write in it", "take their right away (chmod 700)"));
    }
    // Whoever may rename a directory above it, or point a link elsewhere, may put an older state in its place.
    for above in path.ancestors().skip(1).filter(|above| !above.as_os_str().is_empty()) {
        let asking = |errno| Trouble {
            why: failed(errno, format!("asking who may change {}", above.display())),
            cure: "make it searchable to its user",
        };
        let stat = stat(above).map_err(asking)?;
        let link = lstat(above).map_err(asking)?;
        let is_stranger = |uid: u32| uid != 0 && uid != place.owner.0;
        if is_stranger(stat.st_uid) || is_stranger(link.st_uid) || bits(&stat) & 0o1002 == 0o002 {
            let why = format!("somebody else could change {}", above.display());
            return Err(unsound(why, "keep leases where only their user can write"));
        }
    }
    Ok(Some((directory, mode)))
}

/// A file of a lease directory.
struct Named<'a> {
    directory: &'a OwnedFd,
    /// The permissions of the directory.
    mode: u32,
    name: &'a CStr,
    stem: &'a BStr,
    owner: Uid,
}

impl Named<'_> {
    /// Returns the lease, from memory where its file is unchanged; nothing where it went away meanwhile.
    fn read(&self, remembered: Option<&(Stamp, Lease)>) -> Known<Option<(Stamp, Lease)>> {
        for _ in 0..TRIES {
            let named = match statat(self.directory, self.name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(named) => named,
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(failed(errno, "asking what it is")),
            };
            let stamp = Stamp::of(&named);
            self.check(&named)?;
            if let Some((seen, lease)) = remembered
                && *seen == stamp
            {
                return Ok(Some((stamp, lease.clone())));
            }
            let flags =
                OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
            let file = match openat(self.directory, self.name, flags, Mode::empty()) {
                Ok(file) => File::from(file),
                Err(Errno::NOENT) => return Ok(None),
                Err(errno) => return Err(failed(errno, "opening it")),
            };
            let mut text = Vec::new();
            let limit = u64::try_from(LARGEST).unwrap_or(u64::MAX - 1) + 1;
            let length = (&file).take(limit).read_to_end(&mut text);
            length
                .map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO), "reading it"))?;
            let held = fstat(&file).map_err(|errno| failed(errno, "asking what it is"))?;
            // The same file as was checked, and unchanged while it was read: else its name is looked at once more.
            if Stamp::of(&held) == stamp {
                let at = LeaseFile { owner: self.owner, file: stamp.file, modified: stamp.nanoseconds() };
                let lease = parse(self.stem, &text, at)
                    .map_err(|fault| Unknown::new(Reason::Unsound, shortened(&fault.to_string())))?;
                return Ok(Some((stamp, lease)));
            }
        }
        Err(Unknown::new(Reason::Unsound, "it keeps changing while it is read"))
    }

    fn check(&self, named: &Stat) -> Known<()> {
        let unsound = |why: String| Err(Unknown::new(Reason::Unsound, why));
        match FileType::from_raw_mode(named.st_mode) {
            FileType::RegularFile => {}
            FileType::Symlink => return unsound("it is a symbolic link".to_owned()),
            FileType::Directory
            | FileType::Fifo
            | FileType::Socket
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => return unsound("it is no regular file".to_owned()),
        }
        if named.st_uid != self.owner.0 {
            return unsound(format!("it belongs to user {} and not to user {}", named.st_uid, self.owner));
        }
        let links = unsigned(named.st_nlink);
        if links != 1 {
            return unsound(format!("it has {links} names, and could be changed by another"));
        }
        // A umask may leave a file writable to a group that cannot reach it through the directory.
        let reach = (self.mode & 0o011) << 1;
        if bits(named) & reach != 0 {
            return unsound("others may write to it".to_owned());
        }
        let size = unsigned(named.st_size);
        if size > unsigned(LARGEST) {
            return Err(Unknown::new(Reason::Truncated, format!("it has {size} bytes")));
        }
        Ok(())
    }
}

/// What changes when a file does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Stamp {
    file: FileId,
    size: u64,
    mode: u32,
    owner: u32,
    links: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl Stamp {
    fn of(stat: &Stat) -> Stamp {
        Stamp {
            file: FileId { dev: unsigned(stat.st_dev), ino: unsigned(stat.st_ino) },
            size: unsigned(stat.st_size),
            mode: unsigned(stat.st_mode).try_into().unwrap_or(u32::MAX),
            owner: stat.st_uid,
            links: unsigned(stat.st_nlink),
            modified: (signed(stat.st_mtime), signed(stat.st_mtime_nsec)),
            changed: (signed(stat.st_ctime), signed(stat.st_ctime_nsec)),
        }
    }

    fn nanoseconds(&self) -> i64 {
        self.modified.0.saturating_mul(1_000_000_000).saturating_add(self.modified.1)
    }

    /// Says whether a further change would show.
    fn is_settled(&self) -> bool {
        signed(clock_gettime(ClockId::Realtime).tv_sec).saturating_sub(self.changed.0) > SETTLED
    }
}

/// The fields of stat(2) differ in width and sign between systems; what does not fit is one and the same number.
fn unsigned(number: impl TryInto<u64>) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}

fn signed(number: impl TryInto<i64>) -> i64 {
    number.try_into().unwrap_or(i64::MAX)
}

fn bits(stat: &Stat) -> u32 {
    u32::try_from(unsigned(stat.st_mode) & 0o7777).unwrap_or(0o7777)
}

/// A parser may quote as much of a file as it likes.
fn shortened(text: &str) -> String {
    let mut short: String = text.chars().take(160).collect();
    if short.len() < text.len() {
        short.push('…');
    }
    short
}

fn unsound(why: impl Into<String>, cure: &'static str) -> Trouble {
    Trouble { why: Unknown::new(Reason::Unsound, why), cure }
}

fn too_much(why: String) -> Trouble {
    Trouble { why: Unknown::new(Reason::Truncated, why), cure: "remove leases that were released" }
}

fn unlistable(errno: Errno) -> Trouble {
    Trouble { why: failed(errno, "listing it"), cure: "make it readable and searchable to its user" }
}

pub(super) fn failed(errno: Errno, what: impl Into<String>) -> Unknown {
    let reason = match errno {
        Errno::ACCESS | Errno::PERM => Reason::Denied,
        Errno::MFILE | Errno::NFILE | Errno::NOMEM => Reason::Starved,
        other => Reason::Failed(other.raw_os_error()),
    };
    Unknown::new(reason, what)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_file_that_changed_just_now_is_read_again_at_the_next_look() {
        let base = tempfile::tempdir().unwrap();
        std::fs::set_permissions(base.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        let file = base.path().join("gw.json");
        std::fs::write(&file, r#"{"v":1,"id":"gw","ttl":5}"#).unwrap();
        let owner = Uid(rustix::process::geteuid().as_raw());
        let place = Place { path: base.path().as_os_str().as_bytes().into(), owner };
        let mut directories = Directories::default();
        let found = directories.at(&place);
        assert_eq!((found.list.len(), found.faulty), (1, Vec::new()));
        assert!(directories.read.is_empty(), "within one tick a change leaves no trace");
        let mut stamp = Stamp::of(&stat(&file).unwrap());
        assert!(!stamp.is_settled());
        stamp.changed.0 -= SETTLED + 2;
        assert!(stamp.is_settled());
    }
}
