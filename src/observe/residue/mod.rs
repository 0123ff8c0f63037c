//! What trees left behind: directories beneath the roots, records that name them, and who still says their names.
//!
//! All of it is asked in the aside process: a root may lie on a mount that hangs. Looking opens directories and
//! regular files only, never follows a link below a root, and writes nothing.

mod census;
mod directories;
mod records;

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use bstr::{BStr, BString, ByteSlice as _};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;

#[cfg(target_os = "linux")]
use crate::model::facts::FileSystem;
use crate::model::id::{FileId, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::Gap;
use crate::model::residue::{Ask, Kind, Piece, Told};
use crate::observe::opened::{self, file_id, unknown};

/// How long one look may take. The aside process has `probe-timeout` before it counts as hung, by default two
/// seconds.
const TIME_MOST: Duration = Duration::from_millis(1500);

/// Most names of one directory that are looked at.
const NAMES_MOST: usize = 100_000;

/// Opening must neither wait for anybody nor take a terminal (REDTEAM S1).
const HARMLESS: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// Answers what is asked; within the aside process.
pub(super) fn tell(ask: &Ask) -> Known<Told> {
    let mut finds = Finds { left: Vec::new(), gaps: Vec::new(), end: Instant::now() + TIME_MOST };
    match ask {
        Ask::Stale { roots, names, user } => directories::stale(&mut finds, roots, names, *user)?,
        Ask::Directory { path, roots } => directories::one(&mut finds, path.as_bstr(), roots)?,
        Ask::Records { places, key, strip, roots, user } => {
            let sought = records::Sought { key, strip: strip.as_deref(), user: *user };
            records::records(&mut finds, places, &sought, roots);
        }
        Ask::Named(names) => return census::named(names).map(Told::Named),
        Ask::Served => return census::served().map(Told::Served),
    }
    Ok(Told::Left { left: finds.left, gaps: finds.gaps })
}

/// What one look has found so far.
struct Finds {
    left: Vec<crate::model::residue::Left>,
    gaps: Vec<Gap>,
    end: Instant,
}

impl Finds {
    fn gap(&mut self, source: &BStr, why: Unknown) {
        let source = format!("what was left in {source}");
        self.gaps.push(Gap { source, why, cure: None });
    }

    /// Says whether there is time for more, and remembers where there is not.
    fn may_go_on(&mut self, source: &BStr) -> bool {
        let goes_on = Instant::now() < self.end;
        if !goes_on {
            self.gap(source, Unknown::new(Reason::Truncated, "looking through it all takes too long"));
        }
        goes_on
    }
}

/// A root, open.
struct Root {
    /// As it was asked for.
    path: BString,
    /// What it is called without links.
    real: BString,
    directory: OwnedFd,
    file: FileId,
}

impl Root {
    /// Opens a root; nothing where it is not there. Whoever could take away what stands in it, and put something else
    /// in its place, must be the user or root.
    fn open(path: &BStr) -> Known<Option<Root>> {
        let what = || format!("'{path}'");
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | HARMLESS;
        let directory = match rustix::fs::openat(CWD, path.as_bytes(), flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            Err(errno) => return Err(unknown(errno, what())),
        };
        let stat = rustix::fs::fstat(&directory).map_err(|errno| unknown(errno, what()))?;
        if !is_private(&stat) {
            return Err(Unknown::new(Reason::Unsound, format!("{}: others may write there", what())));
        }
        if !is_of_this_host(&directory)? {
            return Err(Unknown::new(Reason::Untrusted, format!("{}: other hosts may use it", what())));
        }
        let real = std::fs::canonicalize(path.to_path_lossy()).map_or_else(
            |_| path.to_owned(),
            |real| BString::from(std::os::unix::ffi::OsStringExt::into_vec(real.into_os_string())),
        );
        let file = file_id(&stat);
        Ok(Some(Root { path: path.to_owned(), real, directory, file }))
    }

    /// Says whether a directory of this path is this root.
    fn is_called(&self, path: &BStr) -> bool {
        path == self.path || path == self.real
    }
}

/// Opens the roots that are there, each once. One that cannot be used is a gap.
fn roots(finds: &mut Finds, paths: &[BString]) -> Vec<Root> {
    let mut roots: Vec<Root> = Vec::new();
    for path in paths {
        match Root::open(path.as_bstr()) {
            Ok(Some(root)) if roots.iter().any(|known| known.file == root.file) => {}
            Ok(Some(root)) => roots.push(root),
            Ok(None) => {}
            Err(why) => finds.gap(path.as_bstr(), why),
        }
    }
    roots
}

/// Says whether only processes of this host use a directory: another host that has the same home names sockets of its
/// own in its records, and nobody here knows of those.
#[cfg(target_os = "linux")]
fn is_of_this_host(directory: &OwnedFd) -> Known<bool> {
    crate::observe::processes::file_system(directory).map(is_local)
}

#[cfg(target_os = "linux")]
fn is_local(on: FileSystem) -> bool {
    match on {
        FileSystem::Local | FileSystem::Overlay => true,
        FileSystem::Network | FileSystem::Fuse => false,
    }
}

#[cfg(not(target_os = "linux"))]
#[expect(clippy::unnecessary_wraps, reason = "one signature; nothing is deleted here anyway")]
fn is_of_this_host(_: &OwnedFd) -> Known<bool> {
    Ok(false)
}

/// Says whether only its owner, one of us or root, can take names out of a directory that are not one's own.
fn is_private(stat: &Stat) -> bool {
    let ours = [rustix::process::geteuid().as_raw(), 0].contains(&stat.st_uid);
    ours && (stat.st_mode & 0o022 == 0 || stat.st_mode & 0o1000 != 0)
}

/// Opens a directory of one name without following a link or crossing a mount.
fn beneath(directory: impl AsFd, name: &BStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | HARMLESS;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        rustix::fs::openat2(directory, name.as_bytes(), flags, Mode::empty(), resolve)
    }
    #[cfg(not(target_os = "linux"))]
    {
        let above = rustix::fs::fstat(&directory)?;
        let opened = rustix::fs::openat(directory, name.as_bytes(), flags, Mode::empty())?;
        if rustix::fs::fstat(&opened)?.st_dev != above.st_dev {
            return Err(Errno::XDEV);
        }
        Ok(opened)
    }
}

/// Returns the names in a directory, sorted; nothing where there are more than `most`.
fn names(directory: &OwnedFd, most: usize) -> Result<Option<Vec<BString>>, Errno> {
    let mut names = opened::names(directory, most)?;
    if names.len() > most {
        return Ok(None);
    }
    names.sort();
    Ok(Some(names))
}

/// Looks at a name without following it.
fn piece_at(directory: impl AsFd, name: &BStr) -> Result<Piece, Errno> {
    rustix::fs::statat(directory, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW).map(|stat| piece(name, &stat))
}

fn piece(name: &BStr, stat: &Stat) -> Piece {
    let kind = match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Kind::File,
        FileType::Socket => Kind::Socket,
        FileType::Directory => Kind::Directory,
        FileType::Symlink => Kind::Link,
        FileType::Fifo | FileType::CharacterDevice | FileType::BlockDevice | FileType::Unknown => Kind::Other,
    };
    Piece {
        name: name.to_owned(),
        file: file_id(stat),
        kind,
        uid: Uid(stat.st_uid),
        mode: u32::try_from(number(stat.st_mode) & 0o7777).unwrap_or(0o7777),
        links: number(stat.st_nlink),
        bytes: number(stat.st_blocks).saturating_mul(512),
        length: number(stat.st_size),
        modified: nanoseconds(stat.st_mtime, stat.st_mtime_nsec),
        changed: nanoseconds(stat.st_ctime, stat.st_ctime_nsec),
    }
}

// Widths and signs of these fields differ between platforms.
fn number(value: impl TryInto<u64>) -> u64 {
    value.try_into().unwrap_or(0)
}

/// A time that does not fit is one that nothing is older than.
fn nanoseconds(seconds: impl TryInto<i64>, rest: impl TryInto<i64>) -> i64 {
    let whole = seconds.try_into().ok().and_then(|seconds: i64| seconds.checked_mul(1_000_000_000));
    whole.zip(rest.try_into().ok()).and_then(|(whole, rest)| whole.checked_add(rest)).unwrap_or(i64::MAX)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn what_another_host_may_use_is_not_looked_into() {
        assert!(is_local(FileSystem::Local) && is_local(FileSystem::Overlay));
        assert!(!is_local(FileSystem::Network) && !is_local(FileSystem::Fuse));
    }
}
