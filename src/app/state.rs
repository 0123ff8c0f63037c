//! The state directory: where it is, who may own it, and how files in it are replaced whole.

use std::ffi::OsStr;
use std::fs::{DirBuilder, File};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::flock::Flock;
use super::place::Surroundings;

/// A state file is read no further than this; ours are far smaller, and a stranger's file must not fill memory.
const LARGEST: u64 = 64 * 1024 * 1024;

/// The open state directory. Everything in it is reached through this descriptor, so that its path may not be
/// swapped under our feet.
#[derive(Debug)]
pub struct State {
    path: PathBuf,
    directory: OwnedFd,
}

/// Why the state directory, or a file in it, cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// No flag, no XDG variable, no home.
    #[error("there is no place for the state directory: HOME is not set")]
    Nowhere,
    /// Creating, opening, reading or writing failed.
    #[error("{doing} {}", path.display())]
    Io {
        /// What was being done, e.g. "cannot open".
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// It could be written, or was made, by somebody else.
    #[error("refusing {}: {why}", path.display())]
    Untrusted {
        /// What.
        path: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// What is to be remembered cannot be written down.
    #[error("cannot write {name} as JSON")]
    Encode {
        /// The file.
        name: String,
        /// Why.
        #[source]
        source: serde_json::Error,
    },
}

/// Returns where the state directory is to be.
///
/// As root it is never found through HOME or XDG variables, which sudo(8) may have kept from a user (REDTEAM S2).
pub fn usual_path(around: &Surroundings) -> Result<PathBuf, StateError> {
    if around.is_root() {
        let path = if cfg!(target_os = "macos") { "/var/db/reapd" } else { "/var/lib/reapd" };
        return Ok(PathBuf::from(path));
    }
    if let Some(base) = around.absolute("XDG_STATE_HOME") {
        return Ok(base.join("reapd"));
    }
    let home = around.home.as_deref().ok_or(StateError::Nowhere)?;
    let below =
        if cfg!(target_os = "macos") { "Library/Application Support/reapd" } else { ".local/state/reapd" };
    Ok(home.join(below))
}

impl State {
    /// Opens the directory, making it (mode 0700) where it is not there.
    pub fn open(path: &Path) -> Result<State, StateError> {
        DirBuilder::new().recursive(true).mode(0o700).create(path).map_err(|source| StateError::Io {
            doing: "cannot make",
            path: path.to_owned(),
            source,
        })?;
        State::existing(path)?.ok_or_else(|| StateError::Io {
            doing: "cannot open",
            path: path.to_owned(),
            source: Errno::NOENT.into(),
        })
    }

    /// Opens the directory where it is there, and makes nothing.
    pub fn existing(path: &Path) -> Result<Option<State>, StateError> {
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            // A symbolic link: ELOOP says Linux for O_NOFOLLOW alone, ENOTDIR together with O_DIRECTORY.
            Err(Errno::LOOP | Errno::NOTDIR) => {
                return Err(StateError::Untrusted {
                    path: path.to_owned(),
                    why: "it is a symbolic link or no directory",
                });
            }
            Err(error) => return Err(io("cannot open", path, error)),
        };
        let stat = rustix::fs::fstat(&directory).map_err(|error| io("cannot look at", path, error))?;
        trusted(path, &stat)?;
        Ok(Some(State { path: path.to_owned(), directory }))
    }

    /// Returns the path of a file in it, for messages.
    pub fn path_of(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }

    /// Returns a file's content, or nothing where it is not there.
    pub fn read(&self, name: &str) -> Result<Option<Vec<u8>>, StateError> {
        let Some(file) = self.file(name, OFlags::RDONLY)? else { return Ok(None) };
        let mut content = Vec::new();
        file.take(LARGEST).read_to_end(&mut content).map_err(|source| StateError::Io {
            doing: "cannot read",
            path: self.path_of(name),
            source,
        })?;
        Ok(Some(content))
    }

    /// Opens a file for appending, making it (mode 0600) where it is not there.
    pub fn append(&self, name: &str) -> Result<File, StateError> {
        self.file(name, OFlags::RDWR | OFlags::APPEND | OFlags::CREATE)?
            .ok_or_else(|| io("cannot open", &self.path_of(name), Errno::NOENT))
    }

    /// Says by a lock, until it is dropped, that something is going on; many may say so at once.
    pub fn shared(&self, name: &str) -> Result<Flock, StateError> {
        Flock::take(self.append(name)?, FlockOperation::LockShared)
            .map_err(|error| io("cannot lock", &self.path_of(name), error))
    }

    /// Keeps those out who would take that lock; nothing where somebody has it.
    pub fn alone(&self, name: &str) -> Result<Option<Flock>, StateError> {
        match Flock::take(self.append(name)?, FlockOperation::NonBlockingLockExclusive) {
            Ok(held) => Ok(Some(held)),
            Err(Errno::WOULDBLOCK) => Ok(None),
            Err(error) => Err(io("cannot lock", &self.path_of(name), error)),
        }
    }

    fn file(&self, name: &str, flags: OFlags) -> Result<Option<File>, StateError> {
        let path = self.path_of(name);
        // NONBLOCK, since a FIFO that somebody put there would hang us; a regular file does not care.
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = match rustix::fs::openat(&self.directory, name, flags, Mode::RUSR | Mode::WUSR) {
            Ok(file) => file,
            Err(Errno::NOENT) => return Ok(None),
            Err(Errno::LOOP) => return Err(StateError::Untrusted { path, why: "it is a symbolic link" }),
            Err(error) => return Err(io("cannot open", &path, error)),
        };
        let stat = rustix::fs::fstat(&file).map_err(|error| io("cannot look at", &path, error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(StateError::Untrusted { path, why: "it is no regular file" });
        }
        trusted(&path, &stat)?;
        Ok(Some(File::from(file)))
    }

    /// Replaces a file whole: after a crash there is the old content or the new, never half of one.
    pub fn write(&self, name: &str, content: &[u8]) -> Result<(), StateError> {
        let path = self.path_of(name);
        let fresh = format!(".{name}.{}", std::process::id());
        // What a crash of an earlier process with our number left behind.
        let _ = rustix::fs::unlinkat(&self.directory, &fresh, AtFlags::empty());
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.directory, &fresh, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| io("cannot write", &path, error))?;
        let mut file = File::from(opened);
        let written = file
            .write_all(content)
            .and_then(|()| file.sync_all())
            .and_then(|()| Ok(rustix::fs::renameat(&self.directory, &fresh, &self.directory, name)?))
            // The rename itself must reach the disk, or a crash brings the old name back.
            .and_then(|()| Ok(rustix::fs::fsync(&self.directory)?));
        written.map_err(|source| {
            let _ = rustix::fs::unlinkat(&self.directory, &fresh, AtFlags::empty());
            StateError::Io { doing: "cannot write", path, source }
        })
    }

    /// Renames a file within the directory.
    pub fn rename(&self, from: &str, to: &str) -> Result<(), StateError> {
        rustix::fs::renameat(&self.directory, from, &self.directory, to)
            .map_err(|error| io("cannot rename", &self.path_of(from), error))
    }

    /// Keeps other processes from changing lists in here until the answer is dropped.
    pub fn exclusive(&self) -> Result<Flock, StateError> {
        Flock::directory(&self.directory).map_err(|error| io("cannot lock", &self.path, error))
    }
}

/// Says whether something is ours and nobody else may write it.
pub(super) fn trusted(path: &Path, stat: &rustix::fs::Stat) -> Result<(), StateError> {
    let refuse = |why| Err(StateError::Untrusted { path: path.to_owned(), why });
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return refuse("it belongs to another user");
    }
    if stat.st_mode & 0o022 != 0 {
        return refuse("others may write to it (chmod go-w)");
    }
    Ok(())
}

/// Says whether a file is root's and nobody else may write it or swap it for another: it, what it is a link to, and
/// every directory above them. In a directory with the sticky bit (`/tmp`) nobody swaps what is root's.
pub fn is_roots_alone(path: &Path) -> Result<bool, StateError> {
    let wrap = |source| StateError::Io { doing: "cannot look at", path: path.to_owned(), source };
    let named = std::path::absolute(path).map_err(wrap)?;
    let real = std::fs::canonicalize(path).map_err(wrap)?;
    for one in named.ancestors().chain(real.ancestors()) {
        let stat = rustix::fs::stat(one).map_err(|error| io("cannot look at", one, error))?;
        let is_directory = rustix::fs::FileType::from_raw_mode(stat.st_mode).is_dir();
        let is_sticky = is_directory && stat.st_mode & 0o1000 != 0;
        if stat.st_uid != 0 || (stat.st_mode & 0o022 != 0 && !is_sticky) {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Replaces a file of the user's own by its whole new content, through symbolic links (dotfile managers), with its
/// old mode.
pub fn replace(path: &Path, content: &[u8]) -> Result<(), StateError> {
    let wrap = |source| StateError::Io { doing: "cannot write", path: path.to_owned(), source };
    let target = match std::fs::canonicalize(path) {
        Ok(target) => target,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => path.to_owned(),
        Err(error) => return Err(wrap(error)),
    };
    let (Some(directory), Some(name)) = (target.parent(), target.file_name()) else {
        return Err(wrap(Errno::ISDIR.into()));
    };
    std::fs::create_dir_all(directory).map_err(wrap)?;
    let mut fresh_name = std::ffi::OsString::from(".");
    fresh_name.push(name);
    fresh_name.push(OsStr::new(&format!(".{}", std::process::id())));
    let fresh = directory.join(fresh_name);
    let written = File::create_new(&fresh).and_then(|mut file| {
        file.write_all(content)?;
        if let Ok(old) = std::fs::metadata(&target) {
            file.set_permissions(old.permissions())?;
        }
        file.sync_all()?;
        std::fs::rename(&fresh, &target)
    });
    written.map_err(|source| {
        let _ = std::fs::remove_file(&fresh);
        wrap(source)
    })
}

fn io(doing: &'static str, path: &Path, error: Errno) -> StateError {
    StateError::Io { doing, path: path.to_owned(), source: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    fn mode(path: &Path) -> u32 {
        std::fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn made_for_us_alone_and_replaced_whole() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("a/b");
        let state = State::open(&path).unwrap();
        assert_eq!(mode(&path), 0o700);
        assert_eq!(state.read("x").unwrap(), None);
        state.write("x", b"1").unwrap();
        state.write("x", b"2").unwrap();
        assert_eq!(state.read("x").unwrap().unwrap(), b"2");
        assert_eq!(mode(&path.join("x")), 0o600);
        assert_eq!(std::fs::read_dir(&path).unwrap().count(), 1, "nothing half-written is left");
    }

    #[test]
    fn what_others_could_have_made_is_refused_s2() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("state");
        State::open(&path).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o770)).unwrap();
        assert!(matches!(State::open(&path), Err(StateError::Untrusted { .. })));
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o700)).unwrap();
        symlink(&path, base.path().join("link")).unwrap();
        assert!(matches!(State::open(&base.path().join("link")), Err(StateError::Untrusted { .. })));
        let state = State::open(&path).unwrap();
        std::fs::write(base.path().join("elsewhere"), "x").unwrap();
        symlink(base.path().join("elsewhere"), path.join("journal.jsonl")).unwrap();
        assert!(matches!(state.append("journal.jsonl"), Err(StateError::Untrusted { .. })));
        assert!(matches!(state.read("journal.jsonl"), Err(StateError::Untrusted { .. })));
    }

    #[test]
    fn a_file_that_others_could_have_put_there_or_changed_is_refused_s2() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("state");
        let state = State::open(&path).unwrap();
        let file = path.join("ledger.json");
        let refused = |why: &str| {
            for said in [state.read("ledger.json").map(drop), state.append("ledger.json").map(drop)] {
                let said = said.unwrap_err().to_string();
                assert!(said.contains(why), "{said}");
            }
        };
        state.write("ledger.json", b"{}").unwrap();
        for mode in [0o620, 0o602, 0o666] {
            std::fs::set_permissions(&file, PermissionsExt::from_mode(mode)).unwrap();
            refused("others may write to it");
        }
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o644)).unwrap();
        assert!(state.read("ledger.json").is_ok(), "the twin that others may only read");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&file, Some(65534), None).unwrap();
            refused("it belongs to another user");
        }
        std::fs::remove_file(&file).unwrap();
        symlink("elsewhere", &file).unwrap();
        refused("it is a symbolic link");
        std::fs::remove_file(&file).unwrap();
        // Nobody is at its other end: whoever waits for one waits for ever.
        assert!(std::process::Command::new("mkfifo").arg(&file).status().unwrap().success());
        refused("it is no regular file");
    }

    #[test]
    fn a_directory_of_another_user_is_refused_s2() {
        if !rustix::process::geteuid().is_root() {
            return;
        }
        let base = tempfile::tempdir().unwrap();
        std::os::unix::fs::chown(base.path(), Some(65534), None).unwrap();
        let said = State::open(base.path()).unwrap_err().to_string();
        assert!(said.contains("it belongs to another user"), "{said}");
    }

    #[test]
    fn a_shared_lock_keeps_those_out_who_want_to_be_alone() {
        let base = tempfile::tempdir().unwrap();
        let state = State::open(&base.path().join("s")).unwrap();
        let one = state.shared("x").unwrap();
        let other = state.shared("x").unwrap();
        drop(one);
        assert!(state.alone("x").unwrap().is_none(), "the other is at it still");
        drop(other);
        let alone = state.alone("x").unwrap();
        assert!(alone.is_some() && state.alone("x").unwrap().is_none());
    }

    #[test]
    fn looking_for_it_makes_nothing() {
        let base = tempfile::tempdir().unwrap();
        assert!(State::existing(&base.path().join("none")).unwrap().is_none());
        assert_eq!(std::fs::read_dir(base.path()).unwrap().count(), 0);
    }

    #[test]
    fn root_finds_nothing_through_home_s2() {
        let mut around = Surroundings::of(&[("HOME", "/home/ana"), ("XDG_STATE_HOME", "/home/ana/s")], 0);
        assert!(usual_path(&around).unwrap().starts_with("/var"));
        around.uid = 1000;
        assert_eq!(usual_path(&around).unwrap(), Path::new("/home/ana/s/reapd"));
    }
}
