//! A secret for a header: a small file of our own that nobody else may write.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;

use bstr::BString;
use rustix::fs::{FileType, Mode, OFlags};
use rustix::io::Errno;

use crate::model::known::{Known, Reason, Unknown};

/// More than this is no token.
const LARGEST: u64 = 64 * 1024;

/// Reads a secret, without the line's end that editors leave. What the file says is never part of an error.
pub(in crate::observe) fn read(path: &Path) -> Known<BString> {
    let unknown = |reason, why: &str| Unknown::new(reason, format!("secret {}{why}", path.display()));
    let failed = |errno: Errno| {
        let reason = match errno {
            Errno::ACCESS | Errno::PERM => Reason::Denied,
            Errno::MFILE | Errno::NFILE | Errno::NOMEM => Reason::Starved,
            other => Reason::Failed(other.raw_os_error()),
        };
        unknown(reason, "")
    };
    if !path.is_absolute() {
        return Err(unknown(Reason::Unsound, ", which is no absolute path"));
    }
    // NONBLOCK, since a FIFO would hang us; a regular file does not care.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY | OFlags::NONBLOCK;
    // What is no file is not opened either: an open arms devices and takes terminals.
    let found = rustix::fs::stat(path).map_err(failed)?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return Err(unknown(Reason::Unsound, ", which is no file"));
    }
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).map_err(failed)?);
    let stat = rustix::fs::fstat(&file).map_err(failed)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err(unknown(Reason::Unsound, ", which is no file"));
    }
    if stat.st_uid != rustix::process::geteuid().as_raw() {
        return Err(unknown(Reason::Unsound, ", which belongs to another user"));
    }
    if stat.st_mode & 0o022 != 0 {
        return Err(unknown(Reason::Unsound, ", which others may write (chmod go-w)"));
    }
    let mut bytes = Vec::new();
    let read = file.take(LARGEST + 1).read_to_end(&mut bytes);
    read.map_err(|error| unknown(Reason::Failed(error.raw_os_error().unwrap_or(0)), ""))?;
    if bytes.len() as u64 > LARGEST {
        return Err(unknown(Reason::Truncated, ""));
    }
    if bytes.last() == Some(&b'\n') {
        bytes.pop();
        if bytes.last() == Some(&b'\r') {
            bytes.pop();
        }
    }
    Ok(bytes.into())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[test]
    fn only_our_own_small_file_that_nobody_else_may_write_is_a_secret_s2() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("token");
        let mode = |mode| std::fs::set_permissions(&path, PermissionsExt::from_mode(mode)).unwrap();
        let refused = || read(&path).unwrap_err().to_string();
        assert!(refused().contains("error 2"));
        std::fs::write(&path, "abc\r\n").unwrap();
        mode(0o600);
        assert_eq!(read(&path).unwrap(), "abc");
        for others in [0o620, 0o602, 0o666] {
            mode(others);
            assert!(refused().contains("others may write"), "{}", refused());
        }
        mode(0o644);
        assert!(read(&path).is_ok(), "the twin that others may only read");
        if rustix::process::geteuid().is_root() {
            std::os::unix::fs::chown(&path, Some(65534), None).unwrap();
            assert!(refused().contains("another user"));
            std::os::unix::fs::chown(&path, Some(0), None).unwrap();
        }
        std::fs::write(&path, vec![b'x'; 65 * 1024]).unwrap();
        assert!(refused().contains("more than the bounds allow"), "{}", refused());
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert!(refused().contains("no file"));
        assert!(read(Path::new("token")).is_err());
    }
}
