//! Reads a registry of files: every record below one place, within bounds, in the aside process.
//!
//! A file or directory counts only where it belongs to the process's own user or to root: whoever else could write
//! there could have a live process look ended. Nothing but regular files is opened, since opening may act.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bstr::{BStr, BString, ByteSlice as _};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::config::policy::Glob;
use crate::model::id::Uid;
use crate::model::known::{Known, Reason, Unknown};
use crate::observe::opened::{file_id, names, text, unknown};

use super::record::{Form, Records, record};

/// Most files that are read of one place.
const FILES_MOST: usize = 4096;

/// Most names that are looked at.
const NAMES_MOST: usize = 65_536;

/// Longest record, bytes.
const LONGEST: usize = 256 * 1024;

/// Most bytes of all records together. It keeps their keys within one frame of the aside process, too.
const BYTES_MOST: usize = 8 * 1024 * 1024 - 1024 * 1024;

/// How long the reading of one place may take. The aside process has two seconds before it counts as hung.
const TIME_MOST: Duration = Duration::from_millis(1500);

/// One place to read, and where in its records to look.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(in crate::observe) struct Reading {
    /// The absolute pattern.
    pub(super) place: BString,
    /// Whose files count besides root's.
    pub(super) user: Uid,
    /// JSON pointers, as the configuration has them.
    pub(super) key: String,
    pub(super) pid: Option<String>,
    pub(super) start: Option<String>,
    pub(super) boot: Option<String>,
}

/// Returns the directory that a place's records stand in, up to its first pattern, and the elements below it.
pub(super) fn split(place: &BStr) -> (&BStr, &BStr) {
    let before = place.find_byteset(b"*?").unwrap_or(place.len());
    let end = place[..before].rfind_byte(b'/').unwrap_or(0);
    (place[..end.max(1)].as_bstr(), place[end..].trim_start_with(|letter| letter == '/').as_bstr())
}

/// Reads every record of a place.
pub(in crate::observe) fn read(reading: &Reading) -> Known<Records> {
    let (root, below) = split(reading.place.as_bstr());
    if !root.starts_with(b"/") || below.is_empty() {
        return Err(Unknown::new(Reason::Unsupported, format!("the registry at '{}'", reading.place)));
    }
    let what = || format!("the registry below '{root}'");
    let elements = below
        .split(|byte| *byte == b'/')
        .map(|element| {
            let glob = element.find_byteset(b"*?").map(|_| Glob::parse(element.to_str().ok()?).ok());
            match glob {
                None => Some(Element::Name(element.as_bstr())),
                Some(glob) => Some(Element::Pattern(glob?, element.starts_with(b"."))),
            }
        })
        .collect::<Option<Vec<_>>>()
        .ok_or_else(|| Unknown::new(Reason::Unsupported, what()))?;
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | HARMLESS;
    let directory = rustix::fs::openat(CWD, root.as_bytes(), flags, Mode::empty())
        .map_err(|errno| unknown(errno, what()))?;
    let stat = rustix::fs::fstat(&directory).map_err(|errno| unknown(errno, what()))?;
    let records = Records { root: file_id(&stat), listed: BTreeMap::new(), incomplete: None };
    let links =
        if rustix::process::geteuid().as_raw() == reading.user.0 { Links::Followed } else { Links::Refused };
    let mut walk =
        Walk { reading, links, records, files: 0, names: 0, bytes: 0, end: Instant::now() + TIME_MOST };
    if !walk.counts(&stat) {
        return Err(Unknown::new(Reason::Denied, format!("{}: others can write there", what())));
    }
    walk.directory(&directory, &elements, root);
    Ok(walk.records)
}

/// Opening must neither wait for anybody nor take a terminal (REDTEAM S1).
const HARMLESS: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY).union(OFlags::CLOEXEC);

/// One element of a pattern.
enum Element<'a> {
    /// As it stands.
    Name(&'a BStr),
    /// A pattern, and whether it begins with a dot: else it fits no name that does, as shells have it.
    Pattern(Glob, bool),
}

/// Whether links below the root are followed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Links {
    /// They lead no further than whoever made them could look.
    Followed,
    /// Root reads for somebody else, who could lead it anywhere.
    Refused,
}

struct Walk<'a> {
    reading: &'a Reading,
    links: Links,
    records: Records,
    files: usize,
    names: usize,
    bytes: usize,
    end: Instant,
}

impl Walk<'_> {
    /// Says whether nobody but the user and root can have put a file, or what is in a directory, there or away.
    fn counts(&self, stat: &Stat) -> bool {
        let open = Mode::from_raw_mode(stat.st_mode).contains(Mode::WOTH);
        let sticky = stat.st_mode & 0o1000 != 0;
        (stat.st_uid == self.reading.user.0 || stat.st_uid == 0) && (!open || sticky)
    }

    fn lack(&mut self, reason: Reason, name: &BStr, what: &str) {
        self.records.lack(Unknown::new(reason, format!("the registry's '{name}': {what}")));
    }

    fn refused(&mut self, errno: Errno, name: &BStr) {
        self.records.lack(unknown(errno, format!("the registry's '{name}'")));
    }

    /// Says whether more may be read, and remembers where it may not.
    fn may_go_on(&mut self, name: &BStr) -> bool {
        let over = self.files > FILES_MOST || self.names > NAMES_MOST || self.bytes > BYTES_MOST;
        if over {
            self.lack(Reason::Truncated, name, "more than is read of a registry");
        } else if Instant::now() > self.end {
            self.lack(Reason::Hung, name, "reading it all takes too long");
            return false;
        }
        !over
    }

    fn directory(&mut self, directory: &OwnedFd, elements: &[Element<'_>], path: &BStr) {
        let Some((element, rest)) = elements.split_first() else { return };
        let (glob, dotted) = match element {
            Element::Name(name) => {
                self.entry(directory, name, rest, Listing::Guessed);
                return;
            }
            Element::Pattern(glob, dotted) => (glob, *dotted),
        };
        // A name that is put there or taken away meanwhile may be seen or not.
        let before = changed(directory);
        let names = match names(directory, NAMES_MOST) {
            Ok(names) => names,
            Err(errno) => {
                self.refused(errno, path);
                return;
            }
        };
        self.names += names.len();
        for name in &names {
            if !self.may_go_on(path) {
                return;
            }
            if (dotted || !name.starts_with(b".")) && glob.fits(name.as_bstr()) {
                self.entry(directory, name.as_bstr(), rest, Listing::Seen);
            }
        }
        if before.is_none() || changed(directory) != before {
            self.lack(Reason::Vanished, path, "it changed while it was read");
        }
    }

    fn entry(&mut self, directory: &OwnedFd, name: &BStr, rest: &[Element<'_>], listing: Listing) {
        if !self.may_go_on(name) {
            return;
        }
        let stat = match rustix::fs::statat(directory, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) if listing == Listing::Guessed => return,
            other => other,
        };
        let stat = match (stat, self.links) {
            (Ok(stat), Links::Refused) if is(&stat, FileType::Symlink) => {
                self.lack(Reason::Denied, name, "a link, which root does not follow for another user");
                return;
            }
            (Ok(stat), Links::Followed) if is(&stat, FileType::Symlink) => {
                if stat.st_uid != self.reading.user.0 && stat.st_uid != 0 {
                    return self.lack(Reason::Denied, name, "a link of another user");
                }
                rustix::fs::statat(directory, name.as_bytes(), AtFlags::empty())
            }
            (stat, Links::Followed | Links::Refused) => stat,
        };
        let stat = match stat {
            Ok(stat) => stat,
            Err(errno) => return self.refused(errno, name),
        };
        let is_directory = is(&stat, FileType::Directory);
        if is_directory == rest.is_empty() || !is_directory && !rest.is_empty() {
            // A directory is no record, and nothing stands below a file.
            return;
        }
        if !is_directory && !is(&stat, FileType::RegularFile) {
            return self.lack(Reason::Unsupported, name, "not a regular file");
        }
        let kind = if is_directory { OFlags::DIRECTORY } else { OFlags::empty() };
        let follow = match self.links {
            Links::Followed => OFlags::empty(),
            Links::Refused => OFlags::NOFOLLOW,
        };
        let flags = OFlags::RDONLY | HARMLESS | kind | follow;
        let opened = rustix::fs::openat(directory, name.as_bytes(), flags, Mode::empty())
            .and_then(|opened| rustix::fs::fstat(&opened).map(|stat| (opened, stat)));
        let (opened, stat) = match opened {
            Ok(opened) => opened,
            Err(errno) => return self.refused(errno, name),
        };
        if !self.counts(&stat) {
            return self.lack(Reason::Denied, name, "others can write it");
        }
        if is_directory {
            self.directory(&opened, rest, name);
        } else if is(&stat, FileType::RegularFile) {
            self.file(&opened, name);
        } else {
            self.lack(Reason::Unsupported, name, "not a regular file");
        }
    }

    fn file(&mut self, file: &OwnedFd, name: &BStr) {
        self.files += 1;
        if !self.may_go_on(name) {
            return;
        }
        let text = match text(file, LONGEST) {
            Ok(text) => text,
            Err(errno) => return self.refused(errno, name),
        };
        self.bytes += text.len();
        if !self.may_go_on(name) {
            return;
        }
        if text.len() > LONGEST {
            return self.lack(Reason::Truncated, name, "larger than a record may be");
        }
        match record(Form::of(name), &text, self.reading) {
            Ok(Some((key, holder))) => self.records.add(key, holder),
            Ok(None) => {}
            Err(what) => self.lack(Reason::Unsupported, name, what),
        }
    }
}

/// Whether a name was read of its directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    /// It was: that it is not there is a race.
    Seen,
    /// It stands in the pattern, and need not be there.
    Guessed,
}

fn is(stat: &Stat, kind: FileType) -> bool {
    FileType::from_raw_mode(stat.st_mode) == kind
}

/// Returns when names were last put into a directory or taken away.
fn changed(directory: &OwnedFd) -> Option<(i128, i128)> {
    let stat = rustix::fs::fstat(directory).ok()?;
    // Widths and signs differ between platforms; all of them fit.
    Some((i128::from(stat.st_mtime), i128::from(stat.st_mtime_nsec)))
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use super::*;
    use crate::model::question::Registered;

    fn reading(directory: &Path, pattern: &str) -> Reading {
        Reading {
            place: [directory.as_os_str().as_bytes(), b"/", pattern.as_bytes()].concat().into(),
            user: Uid(rustix::process::geteuid().as_raw()),
            key: "/k".into(),
            pid: None,
            start: None,
            boot: None,
        }
    }

    fn says(directory: &Path, pattern: &str, key: &str) -> Known<Registered> {
        read(&reading(directory, pattern))?.answer(BStr::new(key))
    }

    fn write(directory: &Path, name: &str, text: &str) {
        let path = directory.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    const LISTED: Known<Registered> = Ok(Registered::Listed { holder: None });

    #[expect(clippy::unnecessary_wraps, reason = "it is compared with what is known")]
    fn others(others: u64) -> Known<Registered> {
        Ok(Registered::NotListed { others })
    }

    fn folder() -> tempfile::TempDir {
        tempfile::tempdir().unwrap()
    }

    #[test]
    fn the_root_is_what_comes_before_the_first_pattern() {
        let check = |place: &str, root: &str, below: &str| {
            assert_eq!(split(BStr::new(place)), (BStr::new(root), BStr::new(below)));
        };
        check("/tmp/codex/*/broker.json", "/tmp/codex", "*/broker.json");
        check("/tmp/x-*/a", "/tmp", "x-*/a");
        check("/a/b.json", "/a", "b.json");
        check("/*", "/", "*");
    }

    #[test]
    fn records_of_several_directories() {
        let folder = folder();
        let at = folder.path();
        write(at, "a-1/r.json", r#"{"k": "one"}"#);
        write(at, "b-2/r.json", r#"{"k": 2}"#);
        write(at, "b-2/other.json", "{");
        write(at, "no-record/x", "");
        write(at, "a-file", "");
        write(at, ".hidden/r.json", "{");
        assert_eq!(says(at, "*/r.json", "one"), LISTED);
        assert_eq!(says(at, "?-2/r.json", "2"), LISTED);
        assert_eq!(says(at, "*/r.json", "x"), others(2));
        assert_eq!(says(at, "a-1/r.json", "x"), others(1));
        assert_eq!(says(at, "z*/r.json", "x"), others(0));
    }

    #[test]
    fn what_is_missing_or_unreadable_says_nothing_of_who_is_not_listed_f11() {
        let folder = folder();
        let at = folder.path();
        assert!(says(&at.join("missing"), "*.json", "x").is_err());
        write(at, "a.json", r#"{"k": "a"}"#);
        assert_eq!(says(at, "*.json", "x"), others(1));
        for bad in ["", "{", r#"{"k": "b""#, "\0"] {
            write(at, "b.json", bad);
            assert!(says(at, "*.json", "x").is_err(), "{bad}");
            assert_eq!(says(at, "*.json", "a"), LISTED, "{bad}");
        }
        // A program that was upgraded may write the key elsewhere.
        write(at, "b.json", r#"{"other": 1}"#);
        assert!(says(at, "*.json", "x").is_err());
        write(at, "b.json", r#"{"k": null}"#);
        assert_eq!(says(at, "*.json", "x"), others(1));
    }

    #[test]
    fn whatever_is_no_file_is_not_opened_s1() {
        let folder = folder();
        let at = folder.path();
        write(at, "a.json", r#"{"k": "a"}"#);
        rustix::fs::mknodat(CWD, at.join("f.json"), FileType::Fifo, Mode::RWXU, 0).unwrap();
        assert!(says(at, "*.json", "x").is_err());
        assert_eq!(says(at, "*.json", "a"), LISTED);
        std::fs::remove_file(at.join("f.json")).unwrap();
        // A directory is no record, and a dangling link may be one that is not there at the moment.
        std::fs::create_dir(at.join("d.json")).unwrap();
        assert_eq!(says(at, "*.json", "x"), others(1));
        std::os::unix::fs::symlink("nowhere", at.join("l.json")).unwrap();
        assert!(says(at, "*.json", "x").is_err());
    }

    #[test]
    fn root_follows_no_link_of_another_user() {
        let folder = folder();
        let at = folder.path();
        write(at, "a.json", r#"{"k": "a"}"#);
        std::os::unix::fs::symlink("a.json", at.join("l.json")).unwrap();
        assert_eq!(says(at, "l.*", "a"), LISTED);
        let mut reading = reading(at, "l.*");
        reading.user = Uid(reading.user.0 + 1);
        let read = read(&reading);
        assert!(read.is_err() || read.unwrap().answer(BStr::new("a")).is_err());
    }

    #[test]
    fn what_others_can_write_does_not_count() {
        let folder = folder();
        let at = folder.path();
        write(at, "d/a.json", r#"{"k": "a"}"#);
        let open = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
        };
        assert_eq!(says(at, "d/*.json", "x"), others(1));
        open(&at.join("d/a.json"), 0o666);
        assert!(says(at, "d/*.json", "x").is_err());
        open(&at.join("d/a.json"), 0o600);
        open(&at.join("d"), 0o777);
        assert!(says(&at.join("d"), "*.json", "x").is_err());
        assert!(says(at, "*/a.json", "x").is_err());
        open(&at.join("d"), 0o1777);
        assert_eq!(says(&at.join("d"), "*.json", "x"), others(1));
        // What belongs to somebody else lists nobody.
        let stranger = Reading { user: Uid(54_321), ..reading(&at.join("d"), "*.json") };
        let is_root = rustix::process::geteuid().is_root();
        assert_eq!(read(&stranger).is_ok(), is_root, "root's own files count for everybody");
    }

    #[test]
    fn too_much_is_not_all_of_it_s7() {
        let folder = folder();
        let at = folder.path();
        for number in 0..=FILES_MOST {
            write(at, &format!("{number}.json"), &format!("{{\"k\": {number}}}"));
        }
        assert!(says(at, "*.json", "x").is_err());
        std::fs::remove_file(at.join("0.json")).unwrap();
        assert_eq!(says(at, "*.json", "x"), others(FILES_MOST as u64));
        let other = tempfile::tempdir().unwrap();
        let at = other.path();
        let filled = |length: usize| format!("{{\"k\": \"{}\"}}", "x".repeat(length - 9));
        write(at, "a.json", &filled(LONGEST));
        assert_eq!(says(at, "*.json", "x"), others(1));
        write(at, "a.json", &filled(LONGEST + 1));
        assert!(says(at, "*.json", "x").is_err());
        for number in 0..29 {
            write(at, &format!("{number}.json"), &filled(LONGEST));
        }
        std::fs::remove_file(at.join("a.json")).unwrap();
        assert!(says(at, "*.json", "x").is_err());
    }

    #[test]
    fn a_directory_that_changed_meanwhile_is_not_all_of_it() {
        let folder = folder();
        let at = folder.path();
        write(at, "a.json", r#"{"k": "a"}"#);
        let open = || rustix::fs::openat(CWD, at, OFlags::DIRECTORY, Mode::empty()).unwrap();
        let before = changed(&open());
        assert!(before.is_some() && before == changed(&open()));
        let end = Instant::now() + Duration::from_secs(10);
        let mut count = 0;
        // Some kernels note the time of a change by the tick.
        while before == changed(&open()) {
            assert!(Instant::now() < end);
            count += 1;
            write(at, &format!("{count}.json"), "{}");
        }
    }
}
