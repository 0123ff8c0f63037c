//! Removes what trees left behind, through directories that are held open, and nothing that is not as it was recorded.
//!
//! A name may lead to something else between a look and a deletion. So each is *taken* first, by renaming it within
//! its own directory to a name that nobody else uses, and only then looked at for the last time: if it is what was
//! recorded, it is deleted; if not, it gets its name back, unless somebody took that meanwhile. Nothing is ever
//! overwritten, and a directory goes only when it is empty.

use std::os::fd::{AsFd, OwnedFd};

use bstr::{BStr, BString, ByteSlice as _};
use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RenameFlags, Stat};
use rustix::io::Errno;

use crate::model::id::FileId;
use crate::model::residue::{Cleared, Fate, Kind, Piece, Place, Removal, taken};

mod opened;

/// How much of what was recorded must still be so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum As {
    /// Which it is: what is taken from a directory changes it.
    Itself,
    /// That, and that nobody wrote to it: an inode is given out again at once where a successor unlinks a socket and
    /// binds its own.
    Untouched,
}

/// What is about to be done, for tests that change something right before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step<'a> {
    /// Everything was opened, and nothing compared.
    Opened,
    /// All is as recorded, and this name is taken next.
    Take(&'a BStr),
    /// It is taken under another name, and is looked at next.
    Taken(&'a BStr),
}

/// Removes a directory with what was recorded of it, or a record.
pub fn remove(removal: &Removal) -> Cleared {
    remove_watched(removal, &mut |_| {})
}

/// Removes, and tells before each step.
fn remove_watched(removal: &Removal, watch: &mut dyn FnMut(Step<'_>)) -> Cleared {
    let mut cleared = removal.ended(Fate::Removed);
    if let Err(fate) = go(removal, &mut cleared, watch) {
        cleared.fate = fate;
    }
    cleared
}

fn go(removal: &Removal, cleared: &mut Cleared, watch: &mut dyn FnMut(Step<'_>)) -> Result<(), Fate> {
    let root = root(&removal.place)?;
    let name = removal.place.name.as_bstr();
    if removal.own.kind != Kind::Directory {
        watch(Step::Opened);
        let Some(now) = look(&root, name)? else { return Err(Fate::Gone) };
        same(&now, &removal.own, As::Untouched)?;
        return take(&root, &removal.own, As::Untouched, cleared, watch);
    }
    let directory = match beneath(&root, name) {
        Ok(directory) => directory,
        Err(Errno::NOENT) => return Err(Fate::Gone),
        Err(Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => {
            return Err(Fate::Changed("it is a link, a mount or no directory by now".to_owned()));
        }
        Err(errno) => return Err(refused("opening it", errno)),
    };
    watch(Step::Opened);
    let now = rustix::fs::fstat(&directory).map_err(|errno| refused("looking at it", errno))?;
    if id(&now) != removal.own.file {
        return Err(Fate::Changed("another directory is there by now".to_owned()));
    }
    if now.st_uid != removal.own.uid.0 || now.st_mode & 0o022 != 0 {
        return Err(Fate::Changed("others may write in it by now".to_owned()));
    }
    // All of it before any of it: what is left half is left worse than it was.
    for name in names(&directory)? {
        let Some(recorded) = removal.entries.iter().find(|piece| piece.name == name) else {
            return Err(Fate::Changed(format!("'{name}' in it was not there before")));
        };
        if let Some(now) = look(&directory, name.as_bstr())? {
            same(&now, recorded, As::Untouched)?;
        }
    }
    for piece in &removal.entries {
        match take(&directory, piece, As::Untouched, cleared, watch) {
            Ok(()) | Err(Fate::Gone) => {}
            Err(fate) => return Err(fate),
        }
    }
    take(&root, &removal.own, As::Itself, cleared, watch)
}

/// Opens the directory that something stands in, where it is still the recorded one.
fn root(place: &Place) -> Result<OwnedFd, Fate> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = match rustix::fs::openat(CWD, place.directory.as_bytes(), flags, Mode::empty()) {
        Ok(root) => root,
        Err(Errno::NOENT) => return Err(Fate::Gone),
        Err(errno) => return Err(refused("opening the directory above it", errno)),
    };
    let stat =
        rustix::fs::fstat(&root).map_err(|errno| refused("looking at the directory above it", errno))?;
    if id(&stat) != place.holder {
        return Err(Fate::Changed("the directory above it is another by now".to_owned()));
    }
    Ok(root)
}

/// Opens a directory of one name without following a link or crossing a mount.
fn beneath(root: impl AsFd, name: &BStr) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    #[cfg(target_os = "linux")]
    {
        use rustix::fs::ResolveFlags;
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_XDEV;
        rustix::fs::openat2(root, name.as_bytes(), flags, Mode::empty(), resolve)
    }
    #[cfg(not(target_os = "linux"))]
    rustix::fs::openat(root, name.as_bytes(), flags, Mode::empty())
}

/// Takes one name, looks at it for the last time, and deletes it, or gives it its name back.
fn take(
    directory: &OwnedFd,
    piece: &Piece,
    how: As,
    cleared: &mut Cleared,
    watch: &mut dyn FnMut(Step<'_>),
) -> Result<(), Fate> {
    let name = piece.name.as_bstr();
    let aside = taken(name);
    watch(Step::Take(name));
    match rename(directory, name, aside.as_bstr()) {
        Ok(()) => {}
        Err(Errno::NOENT) => return Err(Fate::Gone),
        Err(errno) => return Err(refused(&format!("taking '{name}'"), errno)),
    }
    watch(Step::Taken(name));
    let fate = match delete(directory, piece, aside.as_bstr(), how) {
        Ok(()) => {
            cleared.removed.push(name.to_owned());
            cleared.freed += piece.bytes;
            return Ok(());
        }
        Err(fate) => fate,
    };
    match rename(directory, aside.as_bstr(), name) {
        Ok(()) | Err(Errno::NOENT) => Err(fate),
        Err(errno) => {
            let why =
                format!("'{name}' is called '{aside}' now, since its name could not be given back: {errno}");
            Err(Fate::Changed(why))
        }
    }
}

fn delete(directory: &OwnedFd, piece: &Piece, aside: &BStr, how: As) -> Result<(), Fate> {
    let Some(now) = look(directory, aside)? else {
        return Err(Fate::Changed(format!("'{}' went away meanwhile", piece.name)));
    };
    same(&now, piece, how)?;
    let flags = match piece.kind {
        Kind::Directory => AtFlags::REMOVEDIR,
        Kind::File => {
            // Whoever opened it before it was taken may yet write to it: a new owner that writes its own state.
            opened::by_nobody(directory, aside)
                .map_err(|why| Fate::Changed(format!("'{}': {why}", piece.name)))?;
            // It may have been written to until a moment ago.
            let Some(now) = look(directory, aside)? else { return Err(Fate::Gone) };
            same(&now, piece, how)?;
            AtFlags::empty()
        }
        Kind::Socket | Kind::Link | Kind::Other => AtFlags::empty(),
    };
    match rustix::fs::unlinkat(directory, aside.as_bytes(), flags) {
        Ok(()) => Ok(()),
        // EEXIST is what POSIX allows instead.
        Err(Errno::NOTEMPTY | Errno::EXIST) => {
            Err(Fate::Changed("something was put into it meanwhile".to_owned()))
        }
        Err(errno) => Err(refused(&format!("deleting '{}'", piece.name), errno)),
    }
}

fn rename(directory: &OwnedFd, from: &BStr, to: &BStr) -> Result<(), Errno> {
    rustix::fs::renameat_with(directory, from.as_bytes(), directory, to.as_bytes(), RenameFlags::NOREPLACE)
}

fn look(directory: &OwnedFd, name: &BStr) -> Result<Option<Stat>, Fate> {
    match rustix::fs::statat(directory, name.as_bytes(), AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(refused(&format!("looking at '{name}'"), errno)),
    }
}

fn same(now: &Stat, recorded: &Piece, how: As) -> Result<(), Fate> {
    let kind = match recorded.kind {
        Kind::File => FileType::RegularFile,
        Kind::Socket => FileType::Socket,
        Kind::Directory => FileType::Directory,
        // Nothing of these is ever recorded to go.
        Kind::Link | Kind::Other => return Err(Fate::Changed(format!("'{}' is no file", recorded.name))),
    };
    let is_itself = id(now) == recorded.file && FileType::from_raw_mode(now.st_mode) == kind;
    if !is_itself {
        return Err(Fate::Changed(format!("'{}' is another by now", recorded.name)));
    }
    // A directory has one link for each directory in it, or one in all: its emptiness is what counts.
    if kind != FileType::Directory && i128::from(now.st_nlink) != 1 {
        return Err(Fate::Changed(format!("'{}' has another name elsewhere by now", recorded.name)));
    }
    let written = i128::from(now.st_mtime) * 1_000_000_000 + i128::from(now.st_mtime_nsec);
    if how == As::Untouched && written != i128::from(recorded.modified) {
        return Err(Fate::Changed(format!("'{}' was written to meanwhile", recorded.name)));
    }
    Ok(())
}

fn names(directory: &OwnedFd) -> Result<Vec<BString>, Fate> {
    let failed = |errno| refused("listing it", errno);
    let mut names = Vec::new();
    for entry in Dir::read_from(directory).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let name = entry.file_name().to_bytes();
        if name != b"." && name != b".." {
            names.push(BString::from(name));
        }
    }
    Ok(names)
}

fn refused(what: &str, errno: Errno) -> Fate {
    Fate::Refused(format!("{what}: {errno}"))
}

/// After a crash: gives back the names of whatever was taken and neither deleted nor given back. What has its own
/// name again by somebody else's hand stays as it is, and so does everything else.
pub fn give_back(removal: &Removal) -> Cleared {
    let mut said = Vec::new();
    let outcome = root(&removal.place).and_then(|root| {
        back(&root, &removal.own, &mut said)?;
        if removal.own.kind != Kind::Directory {
            return Ok(());
        }
        match beneath(&root, removal.place.name.as_bstr()) {
            Ok(directory) => {
                let now = rustix::fs::fstat(&directory).map_err(|errno| refused("looking at it", errno))?;
                if id(&now) != removal.own.file {
                    return Ok(());
                }
                removal.entries.iter().try_for_each(|piece| back(&directory, piece, &mut said))
            }
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP | Errno::XDEV) => Ok(()),
            Err(errno) => Err(refused("opening it", errno)),
        }
    });
    let fate = match outcome {
        Ok(()) if said.is_empty() => Fate::CutShort("nothing had to be put back".to_owned()),
        Ok(()) => Fate::CutShort(format!("put back: {}", said.join(", "))),
        Err(fate) => fate,
    };
    removal.ended(fate)
}

fn back(directory: &OwnedFd, piece: &Piece, said: &mut Vec<String>) -> Result<(), Fate> {
    let aside = taken(piece.name.as_bstr());
    let Some(now) = look(directory, aside.as_bstr())? else { return Ok(()) };
    // Who took its place, or put something else there, knows nothing of us: both stay.
    if id(&now) != piece.file {
        return Ok(());
    }
    match rename(directory, aside.as_bstr(), piece.name.as_bstr()) {
        Ok(()) => {
            said.push(format!("'{}'", piece.name));
            Ok(())
        }
        Err(errno) => Err(Fate::Changed(format!("'{}' is still called '{aside}': {errno}", piece.name))),
    }
}

#[cfg(target_os = "linux")]
fn id(stat: &Stat) -> FileId {
    FileId { dev: stat.st_dev, ino: stat.st_ino }
}

#[cfg(target_os = "macos")]
fn id(stat: &Stat) -> FileId {
    FileId { dev: stat.st_dev.cast_unsigned().into(), ino: stat.st_ino }
}

#[cfg(target_os = "linux")]
#[cfg(test)]
mod tests {
    use std::fs::{self, File};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::model::id::Uid;

    /// A root with one directory as a killed server leaves it.
    struct Ground {
        base: tempfile::TempDir,
    }

    const NAMES: [&str; 3] = ["server.log", "server.pid", "server.sock"];

    impl Ground {
        fn new() -> Ground {
            let ground = Ground { base: tempfile::tempdir().unwrap() };
            fs::create_dir(ground.left()).unwrap();
            fs::set_permissions(ground.left(), fs::Permissions::from_mode(0o700)).unwrap();
            fs::write(ground.left().join("server.log"), "x".repeat(9_000)).unwrap();
            fs::write(ground.left().join("server.pid"), "1").unwrap();
            drop(UnixListener::bind(ground.left().join("server.sock")).unwrap());
            ground
        }

        fn left(&self) -> PathBuf {
            self.base.path().join("left")
        }

        fn removal(&self) -> Removal {
            let place = self.place("left");
            let entries = NAMES.iter().map(|name| piece(&self.left().join(name))).collect();
            Removal { policy: "p".into(), place, own: piece(&self.left()), entries, of: None }
        }

        fn place(&self, name: &str) -> Place {
            let directory = self.base.path().as_os_str().as_bytes().into();
            Place { directory, holder: piece(self.base.path()).file, name: name.into() }
        }

        fn names(&self) -> Vec<String> {
            let mut names: Vec<String> = fs::read_dir(self.left())
                .unwrap()
                .map(|entry| entry.unwrap().file_name().into_string().unwrap())
                .collect();
            names.sort();
            names
        }
    }

    fn piece(path: &Path) -> Piece {
        let stat = fs::symlink_metadata(path).unwrap();
        let kind = match FileType::from_raw_mode(stat.mode()) {
            FileType::Directory => Kind::Directory,
            FileType::Socket => Kind::Socket,
            FileType::RegularFile => Kind::File,
            FileType::Symlink
            | FileType::Fifo
            | FileType::CharacterDevice
            | FileType::BlockDevice
            | FileType::Unknown => Kind::Other,
        };
        Piece {
            name: path.file_name().unwrap().as_bytes().into(),
            file: FileId { dev: stat.dev(), ino: stat.ino() },
            kind,
            uid: Uid(stat.uid()),
            mode: stat.mode() & 0o7777,
            links: stat.nlink(),
            bytes: stat.blocks() * 512,
            length: stat.len(),
            modified: stat.mtime() * 1_000_000_000 + stat.mtime_nsec(),
            changed: stat.ctime() * 1_000_000_000 + stat.ctime_nsec(),
        }
    }

    /// Removes, and does something right before one step.
    fn removed_with(removal: &Removal, at: Step<'_>, change: impl FnOnce()) -> Cleared {
        let mut change = Some(change);
        let mut watch = |step: Step<'_>| {
            if step == at
                && let Some(change) = change.take()
            {
                change();
            }
        };
        let cleared = remove_watched(removal, &mut watch);
        assert!(change.is_none(), "{at:?} never came: {cleared:?}");
        cleared
    }

    fn take(name: &str) -> Step<'_> {
        Step::Take(BStr::new(name))
    }

    #[test]
    fn what_is_as_recorded_goes_whole_and_is_counted() {
        let ground = Ground::new();
        let removal = ground.removal();
        let cleared = remove(&removal);
        assert_eq!(cleared.fate, Fate::Removed);
        assert_eq!(cleared.freed, removal.bytes());
        assert_eq!(fs::read_dir(ground.base.path()).unwrap().count(), 0);
        assert_eq!(remove(&removal).fate, Fate::Gone);
    }

    #[test]
    fn a_successor_that_binds_the_path_keeps_its_socket_c33_f16() {
        for step in [Step::Opened, take("server.log"), take("server.sock")] {
            let ground = Ground::new();
            let socket = ground.left().join("server.sock");
            let mut listener = None;
            let cleared = removed_with(&ground.removal(), step, || {
                fs::remove_file(&socket).unwrap();
                listener = Some(UnixListener::bind(&socket).unwrap());
            });
            assert!(matches!(cleared.fate, Fate::Changed(_)), "{step:?}: {cleared:?}");
            UnixStream::connect(&socket).unwrap();
        }
    }

    #[test]
    fn a_successor_that_binds_while_the_old_socket_is_taken_keeps_its_own_f16() {
        let ground = Ground::new();
        let socket = ground.left().join("server.sock");
        let mut listener = None;
        let cleared = removed_with(&ground.removal(), Step::Taken(BStr::new("server.sock")), || {
            listener = Some(UnixListener::bind(&socket).unwrap());
        });
        assert!(matches!(cleared.fate, Fate::Changed(_)), "{cleared:?}");
        UnixStream::connect(&socket).unwrap();
        assert_eq!(
            ground.names(),
            ["server.sock"],
            "the recorded ones are gone, and nothing of ours is left"
        );
    }

    #[test]
    fn a_link_that_is_put_in_the_place_of_an_entry_leads_nowhere() {
        for step in [Step::Opened, take("server.log"), Step::Taken(BStr::new("server.log"))] {
            let ground = Ground::new();
            let precious = ground.base.path().join("precious");
            fs::write(&precious, "mine").unwrap();
            let at = match step {
                Step::Taken(_) => ground.left().join(".reapd.server.log"),
                Step::Opened | Step::Take(_) => ground.left().join("server.log"),
            };
            let cleared = removed_with(&ground.removal(), step, || {
                fs::remove_file(&at).unwrap();
                symlink(&precious, &at).unwrap();
            });
            assert!(matches!(cleared.fate, Fate::Changed(_)), "{step:?}: {cleared:?}");
            assert_eq!(fs::read_to_string(&precious).unwrap(), "mine");
            assert!(fs::symlink_metadata(ground.left().join("server.log")).unwrap().is_symlink());
        }
    }

    #[test]
    fn another_directory_in_its_place_is_left_whole() {
        let ground = Ground::new();
        let removal = ground.removal();
        let other = ground.base.path().join("other");
        fs::rename(ground.left(), &other).unwrap();
        fs::create_dir(ground.left()).unwrap();
        fs::write(ground.left().join("server.log"), "mine").unwrap();
        assert!(matches!(remove(&removal).fate, Fate::Changed(_)));
        assert_eq!(ground.names(), ["server.log"]);
        // Nor is a link to the recorded one followed.
        fs::remove_dir_all(ground.left()).unwrap();
        symlink(&other, ground.left()).unwrap();
        assert!(matches!(remove(&removal).fate, Fate::Changed(_)));
        assert_eq!(ground.names().len(), 3);
    }

    #[test]
    fn a_directory_that_is_swapped_last_is_given_its_name_back() {
        let ground = Ground::new();
        let cleared = removed_with(&ground.removal(), take("left"), || {
            fs::remove_dir(ground.left()).unwrap();
            fs::create_dir(ground.left()).unwrap();
            fs::write(ground.left().join("a"), "mine").unwrap();
        });
        // The system may give the inode out again at once; what is in it stays in either case.
        assert!(matches!(cleared.fate, Fate::Changed(_)), "{cleared:?}");
        assert_eq!(ground.names(), ["a"]);
    }

    #[test]
    fn what_was_put_into_it_stays_f16() {
        let ground = Ground::new();
        fs::write(ground.left().join("notes"), "mine").unwrap();
        let mut removal = ground.removal();
        assert!(matches!(remove(&removal).fate, Fate::Changed(_)));
        assert_eq!(ground.names().len(), 4, "nothing of it goes then");
        fs::remove_file(ground.left().join("notes")).unwrap();
        removal = ground.removal();
        let cleared = removed_with(&removal, take("left"), || {
            fs::write(ground.left().join("notes"), "mine").unwrap();
        });
        assert!(matches!(cleared.fate, Fate::Changed(_)), "{cleared:?}");
        assert_eq!(ground.names(), ["notes"]);
    }

    #[test]
    fn a_file_with_another_name_elsewhere_stays() {
        let ground = Ground::new();
        let removal = ground.removal();
        fs::hard_link(ground.left().join("server.log"), ground.base.path().join("kept")).unwrap();
        assert!(matches!(remove(&removal).fate, Fate::Changed(_)));
        assert_eq!(ground.names().len(), 3);
    }

    #[test]
    fn a_record_that_is_being_written_stays() {
        let base = tempfile::tempdir().unwrap();
        let ground = Ground { base };
        let path = ground.base.path().join("state.json");
        fs::write(&path, "{}").unwrap();
        let own = piece(&path);
        let removal = Removal {
            policy: "p".into(),
            place: ground.place("state.json"),
            own,
            entries: Vec::new(),
            of: None,
        };
        let writer = File::options().append(true).open(&path).unwrap();
        assert!(matches!(remove(&removal).fate, Fate::Changed(ref why) if why.contains("open")));
        assert!(path.exists());
        drop(writer);
        // Written anew in its place, and renamed over it.
        let cleared = removed_with(&removal, take("state.json"), || {
            std::thread::sleep(std::time::Duration::from_millis(20));
            fs::write(&path, "{ }").unwrap();
        });
        assert!(matches!(cleared.fate, Fate::Changed(_)), "{cleared:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "{ }");
        let removal = Removal { own: piece(&path), ..removal };
        let fresh = ground.base.path().join("fresh");
        fs::write(&fresh, "new").unwrap();
        let cleared = removed_with(&removal, take("state.json"), || fs::rename(&fresh, &path).unwrap());
        assert!(matches!(cleared.fate, Fate::Changed(_)), "{cleared:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), "new");
        assert_eq!(remove(&Removal { own: piece(&path), ..removal }).fate, Fate::Removed, "the twin");
    }

    #[test]
    fn after_a_crash_names_are_given_back_and_nobody_elses_taken() {
        let ground = Ground::new();
        let removal = ground.removal();
        let (sock, aside) = (ground.left().join("server.sock"), ground.left().join(".reapd.server.sock"));
        fs::rename(&sock, &aside).unwrap();
        assert!(matches!(give_back(&removal).fate, Fate::CutShort(ref why) if why.contains("server.sock")));
        assert_eq!(ground.names(), NAMES);
        // A successor has the name by now: both stay, and it is told.
        fs::rename(&sock, &aside).unwrap();
        let _listener = UnixListener::bind(&sock).unwrap();
        assert!(matches!(give_back(&removal).fate, Fate::Changed(_)));
        UnixStream::connect(&sock).unwrap();
        // The directory itself.
        let taken = ground.base.path().join(".reapd.left");
        fs::rename(ground.left(), &taken).unwrap();
        give_back(&removal);
        assert!(ground.left().exists() && !taken.exists());
    }

    #[test]
    fn a_refusal_is_told_and_costs_nothing() {
        if rustix::process::geteuid().is_root() {
            return;
        }
        let ground = Ground::new();
        let removal = ground.removal();
        fs::set_permissions(ground.left(), fs::Permissions::from_mode(0o500)).unwrap();
        assert!(matches!(remove(&removal).fate, Fate::Refused(_)));
        fs::set_permissions(ground.left(), fs::Permissions::from_mode(0o700)).unwrap();
        assert_eq!(ground.names().len(), 3);
        // Nor is it said that nothing had to be put back where nobody could look.
        fs::set_permissions(ground.left(), fs::Permissions::from_mode(0o000)).unwrap();
        assert!(matches!(give_back(&removal).fate, Fate::Refused(_)));
        fs::set_permissions(ground.left(), fs::Permissions::from_mode(0o700)).unwrap();
    }
}
