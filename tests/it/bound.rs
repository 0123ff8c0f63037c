//! Where the file of a listening socket is, with real servers whose socket was moved, replaced, hidden or removed.
#![expect(clippy::print_stderr, reason = "who reads the tests' output must know what was not tested")]

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use reapd::model::id::{FileId, ProcessId};
use reapd::model::known::{Known, Reason, Unknown};
use reapd::model::question::{Answer, Binding, FileKind, Listener, Question};
use tempfile::TempDir;

use crate::channels::shape::Shape;
use crate::support::observing::{ask, is_root, listeners};

/// Binds to its argument, in its working directory.
const SERVER: &str = "import socket,sys,signal
l=socket.socket(socket.AF_UNIX); l.bind(sys.argv[1]); l.listen(5)
sys.stderr.write('ready\\n'); sys.stderr.flush(); signal.pause()";

/// tmpfs on every Linux, so that the kernel's short inode and device are stat(2)'s.
fn folder() -> TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap()
}

fn server(name: &str, within: &Path) -> Shape {
    let mut python = Command::new("python3");
    Shape::ready(python.args(["-c", SERVER, name]).current_dir(within).stdin(Stdio::null())).0
}

fn listener(of: ProcessId) -> Listener {
    listeners(of).remove(0)
}

fn bound(of: ProcessId, path: &Path, file: FileId) -> Known<Binding> {
    let path = path.as_os_str().as_bytes().into();
    ask(Question::Bound { of, path, file }).map(|answer| match answer {
        Answer::Bound(binding) => binding,
        other => panic!("{other:?}"),
    })
}

/// Starts a server at `s` in a fresh folder and returns what its socket's file is.
fn placed() -> (TempDir, PathBuf, Shape, FileId) {
    let folder = folder();
    let path = folder.path().join("d/s");
    fs::create_dir(folder.path().join("d")).unwrap();
    let server = server(path.to_str().unwrap(), folder.path());
    let file = listener(server.id).file.expect("tmpfs can be trusted");
    assert_eq!(bound(server.id, &path, file), Ok(Binding::Here));
    (folder, path, server, file)
}

fn name(binding: &Known<Binding>) -> &[u8] {
    match binding {
        Ok(Binding::Renamed(name)) => name,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_socket_is_here_by_whatever_way_leads_to_it_f7() {
    let (folder, path, server, file) = placed();
    symlink(&path, folder.path().join("link")).unwrap();
    symlink("d", folder.path().join("linked")).unwrap();
    fs::hard_link(&path, folder.path().join("second")).unwrap();
    for way in ["link", "linked/s", "second", "d/../d/./s", "d//s"] {
        assert_eq!(bound(server.id, &folder.path().join(way), file), Ok(Binding::Here), "{way}");
    }
    let relative = self::server("r", folder.path());
    let file = listener(relative.id).file.unwrap();
    assert_eq!(bound(relative.id, &folder.path().join("r"), file), Ok(Binding::Here));
    let odd = bound(relative.id, Path::new("r"), file).unwrap_err();
    assert_eq!(odd.reason, Reason::Unsupported, "a name that only the server itself could follow");
}

#[test]
fn a_renamed_socket_is_renamed_and_no_absence_f7() {
    let (_folder, path, server, file) = placed();
    fs::rename(&path, path.with_file_name("t")).unwrap();
    assert_eq!(name(&bound(server.id, &path, file)), b"t");
    assert_eq!(bound(server.id, &path.with_file_name("t"), file), Ok(Binding::Here));
    fs::write(&path, "").unwrap();
    assert_eq!(name(&bound(server.id, &path, file)), b"t", "whatever took its old name");
}

#[test]
fn a_socket_bound_under_a_passing_name_is_here_f7() {
    let folder = folder();
    let (passing, path) = (folder.path().join("s.new"), folder.path().join("s"));
    let server = server(passing.to_str().unwrap(), folder.path());
    fs::rename(&passing, &path).unwrap();
    let listener = listener(server.id);
    assert_eq!(listener.name, passing.to_str().unwrap());
    assert_eq!(bound(server.id, &path, listener.file.unwrap()), Ok(Binding::Here));
}

#[test]
fn an_unlinked_socket_is_absent_and_its_directory_is_named_b12() {
    let (_folder, path, server, file) = placed();
    fs::remove_file(&path).unwrap();
    match bound(server.id, &path, file) {
        Ok(Binding::Absent { parent }) => {
            assert_eq!(parent.path, path.parent().unwrap().to_str().unwrap());
            assert_eq!(parent.file.dev, file.dev);
            assert_eq!(parent.mount, "/dev/shm");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_removed_directory_is_absent_and_a_renamed_one_is_not_b33() {
    let (folder, path, server, file) = placed();
    let (old, new) = (path.parent().unwrap(), folder.path().join("e"));
    fs::rename(old, &new).unwrap();
    assert_eq!(name(&bound(server.id, &path, file)), b"e/s");
    fs::remove_dir_all(&new).unwrap();
    match bound(server.id, &path, file) {
        Ok(Binding::DirectoryAbsent { nearest }) => {
            assert_eq!(nearest.path, folder.path().to_str().unwrap());
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_directory_above_that_was_renamed_took_the_socket_along_b33() {
    let folder = folder();
    let run = folder.path().join("work/.run/x");
    fs::create_dir_all(&run).unwrap();
    let path = run.join("s");
    let server = server(path.to_str().unwrap(), Path::new("/"));
    let file = listener(server.id).file.unwrap();
    fs::rename(folder.path().join("work"), folder.path().join("moved")).unwrap();
    assert_eq!(name(&bound(server.id, &path, file)), b"moved/.run/x/s");
    // Whatever stands at the old name by now, up to another server's socket.
    fs::create_dir_all(&run).unwrap();
    assert_eq!(name(&bound(server.id, &path, file)), b"moved/.run/x/s");
    let _successor = self::server(path.to_str().unwrap(), Path::new("/"));
    assert_eq!(name(&bound(server.id, &path, file)), b"moved/.run/x/s");
    fs::remove_dir_all(folder.path().join("moved")).unwrap();
    assert!(matches!(bound(server.id, &path, file), Ok(Binding::Replaced { by: FileKind::Socket, .. })));
}

#[test]
fn what_was_moved_with_the_server_in_it_is_found_from_where_that_stands_b33() {
    let folder = folder();
    let work = folder.path().join("work");
    fs::create_dir_all(work.join(".run")).unwrap();
    fs::create_dir_all(work.join("src/deep")).unwrap();
    fs::create_dir_all(folder.path().join("far/away")).unwrap();
    let path = work.join(".run/s");
    let server = server(path.to_str().unwrap(), &work.join("src/deep"));
    let file = listener(server.id).file.unwrap();
    let moved = folder.path().join("far/away/other");
    fs::rename(&work, &moved).unwrap();
    assert_eq!(name(&bound(server.id, &path, file)), b"../../.run/s");
    fs::remove_file(moved.join(".run/s")).unwrap();
    assert!(matches!(bound(server.id, &path, file), Ok(Binding::DirectoryAbsent { .. })));
}

#[test]
fn whoever_took_the_place_is_told_by_its_kind_c33() {
    let (_folder, path, server, file) = placed();
    fs::remove_file(&path).unwrap();
    let taken = || match bound(server.id, &path, file) {
        Ok(Binding::Replaced { by, parent }) => {
            assert_eq!(parent.path, path.parent().unwrap().to_str().unwrap());
            by
        }
        other => panic!("{other:?}"),
    };
    {
        let successor = self::server(path.to_str().unwrap(), path.parent().unwrap());
        assert_eq!(taken(), FileKind::Socket);
        assert_eq!(bound(successor.id, &path, listener(successor.id).file.unwrap()), Ok(Binding::Here));
    }
    fs::remove_file(&path).unwrap();
    fs::write(&path, "x").unwrap();
    assert_eq!(taken(), FileKind::File);
    fs::remove_file(&path).unwrap();
    symlink("nowhere", &path).unwrap();
    assert_eq!(taken(), FileKind::Link);
    fs::remove_file(&path).unwrap();
    fs::create_dir(&path).unwrap();
    assert_eq!(taken(), FileKind::Directory);
}

#[test]
fn a_large_directory_hides_no_other_name() {
    let (_folder, path, server, file) = placed();
    fs::remove_file(&path).unwrap();
    for number in 0..10_001 {
        fs::write(path.with_file_name(number.to_string()), "").unwrap();
    }
    let many = bound(server.id, &path, file).unwrap_err();
    assert_eq!(many.reason, Reason::Truncated);
    for number in 0..200 {
        fs::remove_file(path.with_file_name(number.to_string())).unwrap();
    }
    assert!(matches!(bound(server.id, &path, file), Ok(Binding::Absent { .. })));
}

/// Starts a server in mount namespaces of its own, which then mounts as it is told.
fn apart(folder: &Path, mounts: &str) -> Option<(Shape, PathBuf)> {
    if !is_root() {
        eprintln!("skipped: only root can mount");
        return None;
    }
    let path = folder.join("d/s");
    fs::create_dir(folder.join("d")).unwrap();
    fs::create_dir(folder.join("other")).unwrap();
    let program =
        SERVER.replace("sys.stderr.write", "import os; assert not os.system(sys.argv[2]); sys.stderr.write");
    let mut command = Command::new("unshare");
    command.args(["-m", "python3", "-c", &program, path.to_str().unwrap(), mounts]);
    Some((Shape::ready(command.current_dir(folder).stdin(Stdio::null())).0, path))
}

#[test]
fn what_is_mounted_over_the_directory_hides_and_removes_nothing_b35() {
    let unseen = |mounts: &str| -> Option<Unknown> {
        let folder = folder();
        let (server, path) = apart(folder.path(), mounts)?;
        let file = listener(server.id).file.unwrap();
        // Whoever is outside finds it where it always was.
        let ours = fs::symlink_metadata(&path).unwrap();
        assert_eq!(std::os::linux::fs::MetadataExt::st_ino(&ours), file.ino);
        Some(bound(server.id, &path, file).unwrap_err())
    };
    let Some(other) = unseen("mount -t tmpfs none d") else { return };
    assert_eq!(other.reason, Reason::Foreign, "{other}");
    let same = unseen("mount --bind other d").unwrap();
    assert_eq!(same.reason, Reason::Foreign, "the very file system, and another part of it: {same}");
}

#[test]
fn a_path_means_what_it_means_to_the_server_f7() {
    let folder = folder();
    let Some((server, path)) = apart(folder.path(), "true") else { return };
    let file = listener(server.id).file.unwrap();
    assert_eq!(bound(server.id, &path, file), Ok(Binding::Here), "the twin that mounts nothing");
    fs::remove_file(&path).unwrap();
    assert!(matches!(bound(server.id, &path, file), Ok(Binding::Absent { .. })));
}

#[test]
fn a_directory_that_is_closed_to_us_is_unknown_b15() {
    let (folder, path, server, file) = placed();
    fs::remove_file(&path).unwrap();
    let above = path.parent().unwrap();
    fs::set_permissions(above, fs::Permissions::from_mode(0o000)).unwrap();
    let seen = bound(server.id, &path, file);
    fs::set_permissions(above, fs::Permissions::from_mode(0o700)).unwrap();
    if is_root() {
        assert!(matches!(seen, Ok(Binding::Absent { .. })), "root goes everywhere: {seen:?}");
    } else {
        assert_eq!(seen.unwrap_err().reason, Reason::Denied);
    }
    drop(folder);
}

#[test]
fn who_went_meanwhile_is_unknown() {
    let (_folder, path, mut server, file) = placed();
    server.kill();
    assert_eq!(bound(server.id, &path, file).unwrap_err().reason, Reason::Vanished);
}
