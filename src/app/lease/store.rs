//! The write side of the lease directory: every file appears whole and is replaced whole, and is reached through the
//! open directory only.
//!
//! Nothing is synced: the directory is the runtime of one boot, and every lease ends with it. A reader that comes right
//! after a crash of the machine finds no directory at all.

mod fault;
mod lock;
mod seen;

use std::collections::BTreeMap;
use std::fs::{DirBuilder, File, Metadata};
use std::io::{Read as _, Write as _};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};

use bstr::BStr;
use rustix::fs::{AtFlags, FileType, Mode, OFlags, RenameFlags, Stat, Timespec, Timestamps};
use rustix::io::Errno;

pub use fault::StoreError;
pub use lock::LeaseLock;

use super::place::LeaseDirectory;
use crate::app::flock::Flock;
use crate::app::state::{StateError, trusted};
use crate::model::id::{FileId, Uid};
use crate::model::lease::format::{self, FormatFault, LARGEST};
use crate::model::lease::{Bound, Covers, Lease, LeaseFile, LeaseId, Release};

/// A file that is replaced while it is looked at is opened anew; nobody replaces one faster than this for long.
const REPLACED_MEANWHILE: usize = 100;

/// The open lease directory of one user.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    directory: OwnedFd,
}

/// Whether a release was news.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Released {
    /// It is released now.
    Now,
    /// It had been before, and its file was left as it is.
    Before,
}

impl Store {
    /// Opens the directory, making it (mode 0700) where it is not there.
    pub fn open(at: &LeaseDirectory) -> Result<Store, StoreError> {
        if let Some(store) = Store::existing(at)? {
            return Ok(store);
        }
        DirBuilder::new().recursive(true).mode(0o700).create(&at.path).map_err(|source| StoreError::Io {
            doing: "cannot make",
            path: at.path.clone(),
            source,
        })?;
        Store::existing(at)?.ok_or_else(|| io("cannot open", &at.path, Errno::NOENT))
    }

    /// Opens the directory where it is there, and makes nothing.
    pub fn existing(at: &LeaseDirectory) -> Result<Option<Store>, StoreError> {
        let path = &at.path;
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::RDONLY | OFlags::CLOEXEC;
        let directory = match rustix::fs::open(path, flags, Mode::empty()) {
            Ok(directory) => directory,
            Err(Errno::NOENT) => return Ok(None),
            Err(error) => return Err(io("cannot open", path, error)),
        };
        let stat = rustix::fs::fstat(&directory).map_err(|error| io("cannot look at", path, error))?;
        trusted(path, &stat)?;
        for above in path.ancestors().skip(1).take(2).filter(|above| !above.as_os_str().is_empty()) {
            let stat = rustix::fs::stat(above).map_err(|error| io("cannot look at", above, error))?;
            let link = rustix::fs::lstat(above).map_err(|error| io("cannot look at", above, error))?;
            unswappable(above, &stat, &link)?;
        }
        Ok(Some(Store { path: path.clone(), directory }))
    }

    /// Returns where the file of a lease is.
    pub fn path_of(&self, id: &LeaseId) -> PathBuf {
        self.path.join(name_of(id))
    }

    /// Returns where the directory is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Lends the open directory.
    pub(super) fn directory(&self) -> &OwnedFd {
        &self.directory
    }

    /// Writes a new lease. One of this name that is there already, whatever it says, stays as it is.
    pub fn add(&self, lease: &Lease) -> Result<(), StoreError> {
        let fresh = self.write_aside(&lease.id, format::print(lease).as_bytes())?;
        let name = name_of(&lease.id);
        let directory = &self.directory;
        let renamed =
            match rustix::fs::renameat_with(directory, &fresh, directory, &name, RenameFlags::NOREPLACE) {
                // A file system that cannot: under the lock nobody of ours makes one meanwhile.
                Err(Errno::INVAL | Errno::NOSYS | Errno::NOTSUP) => self.rename_where_free(&fresh, &name),
                done => done,
            };
        renamed.map_err(|error| {
            self.forget(&fresh);
            match error {
                Errno::EXIST => StoreError::Exists(lease.id.clone()),
                error => io("cannot write", &self.path_of(&lease.id), error),
            }
        })
    }

    fn rename_where_free(&self, fresh: &str, name: &str) -> Result<(), Errno> {
        let _lock = Flock::directory(&self.directory)?;
        match rustix::fs::statat(&self.directory, name, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(_) => Err(Errno::EXIST),
            Err(Errno::NOENT) => rustix::fs::renameat(&self.directory, fresh, &self.directory, name),
            Err(error) => Err(error),
        }
    }

    /// Puts a lease in the place of one of the same name that is still the very file that was looked at.
    pub fn succeed(&self, lease: &Lease, old: &LeaseFile) -> Result<(), StoreError> {
        let _lock = self.exclusive()?;
        match self.read(&lease.id)? {
            Some(there) if there.file == *old => self.replace(&lease.id, format::print(lease).as_bytes()),
            Some(_) | None => Err(StoreError::Changed(lease.id.clone())),
        }
    }

    /// Changes a lease, as one step for everybody who changes leases through here. Members of the file that this
    /// version does not know are lost, so this is for leases of our own making.
    pub fn change(&self, id: &LeaseId, change: impl FnOnce(&mut Lease)) -> Result<Lease, StoreError> {
        let _lock = self.exclusive()?;
        let mut lease = self.read(id)?.ok_or_else(|| StoreError::Missing(id.clone()))?;
        let before = format::print(&lease);
        change(&mut lease);
        let after = format::print(&lease);
        if after != before {
            self.replace(id, after.as_bytes())?;
        }
        Ok(lease)
    }

    /// Says that a lease is over. All else in its file stays, and so does an earlier release.
    pub fn release(&self, id: &LeaseId, reason: Option<&str>) -> Result<Released, StoreError> {
        let _lock = self.exclusive()?;
        let (lease, text) = self.read_text(id)?.ok_or_else(|| StoreError::Missing(id.clone()))?;
        match lease.release {
            Release::Released(_) => return Ok(Released::Before),
            Release::Open => {}
        }
        let mut members: BTreeMap<String, serde_json::Value> =
            serde_json::from_slice(&text).map_err(|error| self.faulty(id, error.to_string()))?;
        members.insert("released".to_owned(), true.into());
        if let Some(reason) = reason {
            members.insert("reason".to_owned(), reason.into());
        }
        let mut text = serde_json::to_vec(&members).map_err(|error| self.faulty(id, error.to_string()))?;
        text.push(b'\n');
        self.replace(id, &text)?;
        Ok(Released::Now)
    }

    /// Renews a lease by touching its file. Its content is not written, so that a release meanwhile stands.
    pub fn renew(&self, id: &LeaseId) -> Result<(), StoreError> {
        let lease = self.read(id)?.ok_or_else(|| StoreError::Missing(id.clone()))?;
        match lease.release {
            Release::Released(_) => return Err(StoreError::Released(id.clone())),
            Release::Open => {}
        }
        let now = Timespec { tv_sec: 0, tv_nsec: rustix::fs::UTIME_NOW };
        let times = Timestamps { last_access: now, last_modification: now };
        match rustix::fs::utimensat(&self.directory, name_of(id), &times, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(()) => Ok(()),
            Err(Errno::NOENT) => Err(StoreError::Missing(id.clone())),
            Err(error) => Err(io("cannot touch", &self.path_of(id), error)),
        }
    }

    /// Removes a lease. What it covered is as if it never had been covered.
    pub fn remove(&self, id: &LeaseId) -> Result<(), StoreError> {
        match rustix::fs::unlinkat(&self.directory, name_of(id), AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(io("cannot remove", &self.path_of(id), error)),
        }
    }

    /// Removes a lease that is still the very file that was looked at.
    pub fn remove_unchanged(&self, id: &LeaseId, file: &LeaseFile) -> Result<(), StoreError> {
        let _lock = self.exclusive()?;
        match self.read(id)? {
            Some(there) if there.file == *file => self.remove(id),
            Some(_) => Err(StoreError::Changed(id.clone())),
            None => Ok(()),
        }
    }

    /// Reads a lease; nothing where there is none.
    pub fn read(&self, id: &LeaseId) -> Result<Option<Lease>, StoreError> {
        Ok(self.read_text(id)?.map(|(lease, _)| lease))
    }

    fn read_text(&self, id: &LeaseId) -> Result<Option<(Lease, Vec<u8>)>, StoreError> {
        let path = self.path_of(id);
        let Some((file, stat)) = self.open_file(id)? else { return Ok(None) };
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(self.faulty(id, "it is no regular file"));
        }
        trusted(&path, &stat)?;
        if stat.st_nlink != 1 {
            return Err(self.faulty(id, "it has more than one name (hard links)"));
        }
        let file = File::from(file);
        let cannot_read = |source| StoreError::Io { doing: "cannot read", path: path.clone(), source };
        let file_of = file_of(&file.metadata().map_err(cannot_read)?);
        let mut text = Vec::new();
        let bound = u64::try_from(LARGEST).unwrap_or(u64::MAX - 1) + 1;
        file.take(bound).read_to_end(&mut text).map_err(cannot_read)?;
        let lease = format::parse(BStr::new(id.as_str()), &text, file_of)
            .map_err(|fault| StoreError::Faulty { path, fault })?;
        Ok(Some((lease, text)))
    }

    fn open_file(&self, id: &LeaseId) -> Result<Option<(OwnedFd, Stat)>, StoreError> {
        let path = self.path_of(id);
        // NONBLOCK, since a FIFO that somebody put there would hang us; a regular file does not care.
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        for _ in 0..REPLACED_MEANWHILE {
            let file = match rustix::fs::openat(&self.directory, name_of(id), flags, Mode::empty()) {
                Ok(file) => file,
                Err(Errno::NOENT) => return Ok(None),
                Err(Errno::LOOP) => return Err(self.faulty(id, "it is a symbolic link")),
                Err(error) => return Err(io("cannot open", &path, error)),
            };
            let stat = rustix::fs::fstat(&file).map_err(|error| io("cannot look at", &path, error))?;
            // Without a name it is what somebody just replaced.
            if stat.st_nlink != 0 {
                return Ok(Some((file, stat)));
            }
        }
        Err(io("cannot read", &path, Errno::AGAIN))
    }

    fn faulty(&self, id: &LeaseId, message: impl Into<String>) -> StoreError {
        let fault = FormatFault { line: 1, column: 1, message: message.into() };
        StoreError::Faulty { path: self.path_of(id), fault }
    }

    fn replace(&self, id: &LeaseId, text: &[u8]) -> Result<(), StoreError> {
        let fresh = self.write_aside(id, text)?;
        rustix::fs::renameat(&self.directory, &fresh, &self.directory, name_of(id)).map_err(|error| {
            self.forget(&fresh);
            io("cannot write", &self.path_of(id), error)
        })
    }

    /// Writes a whole file under a name that no reader takes for a lease, and returns that name.
    fn write_aside(&self, id: &LeaseId, text: &[u8]) -> Result<String, StoreError> {
        let path = self.path_of(id);
        if text.len() > LARGEST {
            return Err(self.faulty(id, format!("it would be larger than {LARGEST} bytes")));
        }
        let fresh = format!(".{id}.{}.tmp", random().map_err(|error| io("cannot name", &path, error))?);
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = rustix::fs::openat(&self.directory, &fresh, flags, Mode::RUSR | Mode::WUSR)
            .map_err(|error| io("cannot write", &path, error))?;
        match File::from(opened).write_all(text) {
            Ok(()) => Ok(fresh),
            Err(source) => {
                self.forget(&fresh);
                Err(StoreError::Io { doing: "cannot write", path, source })
            }
        }
    }

    fn forget(&self, fresh: &str) {
        // What cannot be removed is tidied up by a later sweep.
        let _ = rustix::fs::unlinkat(&self.directory, fresh, AtFlags::empty());
    }
}

/// Refuses a directory in which somebody else could put another directory of ours in the place of the leases', and one
/// that is reached by somebody else's link.
fn unswappable(path: &Path, stat: &Stat, link: &Stat) -> Result<(), StateError> {
    let refuse = |why| Err(StateError::Untrusted { path: path.to_owned(), why });
    let is_stranger = |uid| uid != 0 && uid != rustix::process::geteuid().as_raw();
    if is_stranger(stat.st_uid) || is_stranger(link.st_uid) {
        return refuse("it belongs to another user");
    }
    // In a directory with the sticky bit (`/tmp`) nobody moves what is ours.
    if stat.st_mode & 0o022 != 0 && stat.st_mode & 0o1000 == 0 {
        return refuse("others may write to it (chmod go-w)");
    }
    Ok(())
}

/// Returns a lease that covers nobody so far and was written nowhere.
pub fn draft(id: LeaseId, bound: Bound) -> Lease {
    let file = LeaseFile { owner: Uid(0), file: FileId { dev: 0, ino: 0 }, modified: 0 };
    Lease {
        id,
        file,
        bound,
        holder: None,
        covers: Covers::default(),
        labels: BTreeMap::new(),
        note: None,
        release: Release::Open,
        run: None,
    }
}

/// Returns an id that nobody has so far, such as `n-81aa02c4`.
pub fn fresh_id(prefix: &str) -> Result<LeaseId, Errno> {
    LeaseId::new(&format!("{prefix}-{}", random()?)).ok_or(Errno::INVAL)
}

/// Returns eight random hexadecimal digits.
fn random() -> Result<String, Errno> {
    #[cfg(target_os = "linux")]
    let number = {
        let mut bytes = [0; 4];
        // At most 256 bytes come whole (getrandom(2)).
        rustix::rand::getrandom(&mut bytes[..], rustix::rand::GetRandomFlags::empty())?;
        u32::from_ne_bytes(bytes)
    };
    #[cfg(target_os = "macos")]
    let number = {
        let mut bytes = [0; 4];
        File::open("/dev/urandom")
            .and_then(|mut file| file.read_exact(&mut bytes))
            .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
        u32::from_ne_bytes(bytes)
    };
    Ok(format!("{number:08x}"))
}

fn name_of(id: &LeaseId) -> String {
    format!("{id}.json")
}

/// Returns what the file system says of a lease's file.
pub(super) fn file_of(stat: &Metadata) -> LeaseFile {
    LeaseFile {
        owner: Uid(stat.uid()),
        file: FileId { dev: stat.dev(), ino: stat.ino() },
        modified: stat.mtime().saturating_mul(1_000_000_000).saturating_add(stat.mtime_nsec()),
    }
}

fn io(doing: &'static str, path: &Path, error: Errno) -> StoreError {
    StoreError::Io { doing, path: path.to_owned(), source: error.into() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};
    use std::time::Duration;

    struct Desk {
        base: tempfile::TempDir,
        store: Store,
    }

    fn place(path: PathBuf) -> LeaseDirectory {
        LeaseDirectory { path, owner: rustix::process::geteuid().as_raw() }
    }

    fn desk() -> Desk {
        let base = tempfile::tempdir().unwrap();
        let store = Store::open(&place(base.path().join("reapd/leases"))).unwrap();
        Desk { base, store }
    }

    fn id(text: &str) -> LeaseId {
        LeaseId::new(text).unwrap()
    }

    fn lease(name: &str) -> Lease {
        draft(id(name), Bound::Ttl(Duration::from_secs(9)))
    }

    fn names(store: &Store) -> Vec<String> {
        let mut names: Vec<String> = std::fs::read_dir(store.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        names
    }

    #[test]
    fn made_for_us_alone_and_nothing_half_written_is_left() {
        let Desk { base: _base, store } = desk();
        let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!(mode(store.path()), 0o700);
        store.add(&lease("a")).unwrap();
        assert_eq!(mode(&store.path_of(&id("a"))), 0o600);
        assert_eq!(store.release(&id("a"), Some("over")).unwrap(), Released::Now);
        assert_eq!(names(&store), ["a.json"]);
        assert!(matches!(store.add(&lease("a")), Err(StoreError::Exists(_))));
        assert_eq!(names(&store), ["a.json"]);
        assert_eq!(store.read(&id("b")).unwrap(), None);
        store.remove(&id("a")).unwrap();
        assert_eq!(names(&store), [] as [&str; 0]);
    }

    #[test]
    fn a_release_stays_and_keeps_what_it_does_not_know() {
        let Desk { base: _base, store } = desk();
        let path = store.path_of(&id("a"));
        std::fs::write(&path, r#"{"v":1,"id":"a","ttl":3,"later":{"big":18446744073709551615}}"#).unwrap();
        assert_eq!(store.release(&id("a"), Some("first")).unwrap(), Released::Now);
        assert_eq!(store.release(&id("a"), Some("second")).unwrap(), Released::Before);
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.contains("18446744073709551615") && text.contains("first"), "{text}");
        assert!(matches!(store.renew(&id("a")), Err(StoreError::Released(_))), "nothing renews what is over");
        assert!(matches!(store.release(&id("b"), None), Err(StoreError::Missing(_))));
    }

    #[test]
    fn a_renewal_touches_the_very_same_file() {
        let Desk { base: _base, store } = desk();
        store.add(&lease("a")).unwrap();
        let path = store.path_of(&id("a"));
        let long_ago = std::time::SystemTime::UNIX_EPOCH + Duration::from_secs(1);
        File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
        let before = store.read(&id("a")).unwrap().unwrap().file;
        store.renew(&id("a")).unwrap();
        let after = store.read(&id("a")).unwrap().unwrap().file;
        assert_eq!(before.modified, 1_000_000_000);
        assert!(after.modified > before.modified && after.file == before.file, "{after:?}");
    }

    #[test]
    fn what_others_could_have_put_there_is_no_lease_s4() {
        let Desk { base, store } = desk();
        let path = store.path_of(&id("a"));
        let refused = |why: &str| {
            for said in [store.read(&id("a")).map(drop), store.release(&id("a"), None).map(drop)] {
                let said = crate::app::trouble::chain(&said.unwrap_err());
                assert!(said.contains(why), "{said}");
            }
        };
        let elsewhere = base.path().join("elsewhere");
        std::fs::write(&elsewhere, r#"{"v":1,"id":"a","ttl":3}"#).unwrap();
        symlink(&elsewhere, &path).unwrap();
        refused("symbolic link");
        std::fs::remove_file(&path).unwrap();
        std::fs::hard_link(&elsewhere, &path).unwrap();
        refused("more than one name");
        std::fs::remove_file(&elsewhere).unwrap();
        store.read(&id("a")).unwrap().unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o666)).unwrap();
        refused("others may write");
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        refused("no regular file");
        std::fs::remove_file(&path).unwrap();
        std::fs::write(&path, vec![b' '; LARGEST + 1]).unwrap();
        refused("larger");
    }

    #[test]
    fn a_directory_that_others_could_swap_is_refused_s2() {
        let Desk { base, store } = desk();
        let open = || Store::open(&place(base.path().join("reapd/leases")));
        for path in [store.path(), store.path().parent().unwrap()] {
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o777)).unwrap();
            assert!(open().is_err(), "{}", path.display());
            std::fs::set_permissions(path, PermissionsExt::from_mode(0o700)).unwrap();
            open().unwrap();
        }
        symlink(store.path(), base.path().join("link")).unwrap();
        assert!(Store::open(&place(base.path().join("link"))).is_err());
        if rustix::process::geteuid().is_root() {
            let link = base.path().join("way");
            symlink(store.path().parent().unwrap(), &link).unwrap();
            Store::open(&place(link.join("leases"))).unwrap();
            std::os::unix::fs::lchown(&link, Some(65_533), None).unwrap();
            assert!(Store::open(&place(link.join("leases"))).is_err(), "somebody else's link");
        }
    }

    #[test]
    fn a_lease_is_succeeded_and_removed_only_while_it_is_what_was_looked_at() {
        let Desk { base: _base, store } = desk();
        store.add(&lease("a")).unwrap();
        let old = store.read(&id("a")).unwrap().unwrap().file;
        store.release(&id("a"), None).unwrap();
        assert!(matches!(store.succeed(&lease("a"), &old), Err(StoreError::Changed(_))));
        assert!(matches!(store.remove_unchanged(&id("a"), &old), Err(StoreError::Changed(_))));
        let now = store.read(&id("a")).unwrap().unwrap().file;
        store.succeed(&lease("a"), &now).unwrap();
        assert_eq!(store.read(&id("a")).unwrap().unwrap().release, Release::Open);
    }

    #[test]
    fn one_at_a_time_has_the_lock_of_a_lease_though_its_file_is_tidied_up() {
        let Desk { base: _base, store } = desk();
        let first = store.try_lock(&id("a")).unwrap().unwrap();
        assert!(store.try_lock(&id("a")).unwrap().is_none());
        assert!(store.try_lock(&id("b")).unwrap().is_some());
        std::thread::scope(|scope| {
            let waiting = scope.spawn(|| store.lock(&id("a")).unwrap());
            std::fs::remove_file(store.path().join(".a.lock")).unwrap();
            drop(first);
            let _held = waiting.join().unwrap();
            assert!(store.try_lock(&id("a")).unwrap().is_none(), "the one who waited has it by its name");
        });
    }

    #[test]
    fn ids_are_random() {
        let ids: std::collections::BTreeSet<LeaseId> = (0..100).map(|_| fresh_id("n").unwrap()).collect();
        assert!(ids.len() > 95 && ids.iter().all(|id| id.as_str().len() == 10));
    }
}
