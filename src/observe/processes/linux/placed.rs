//! Where a process stands: its cgroups, its number in its own pid namespace, its working directory, and what a short
//! file says that it names.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use bstr::{BStr, BString, ByteSlice as _};
use rustix::fs::{FileType, Mode, OFlags, ResolveFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};

use super::directory::{MARK, stat_of};
use super::facts::TEXT_MOST;
use super::path::{beneath, lookup};
use super::pinned::{Fault, Pinned, bounded, unknown};

/// Returns the text of `/proc/PID/cgroup` (cgroups(7)). Everybody may read it.
pub(in crate::observe) fn cgroups(of: ProcessId) -> Known<Vec<u8>> {
    Pinned::open(of)?.read(c"cgroup", TEXT_MOST)
}

/// Returns the numbers of a process in the pid namespaces from ours down to its own (`NSpid` of proc_pid_status(5)).
/// Everybody may read them.
pub(in crate::observe) fn numbers(of: ProcessId) -> Known<Vec<i32>> {
    let text = Pinned::open(of)?.read(c"status", TEXT_MOST)?;
    let line = text.lines().find_map(|line| line.strip_prefix(b"NSpid:"));
    let line = line.ok_or_else(|| Unknown::new(Reason::Unsupported, "status has no NSpid"))?;
    let number = |word: &[u8]| word.to_str().ok().and_then(|word| word.parse().ok());
    let numbers: Option<Vec<i32>> =
        line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).map(number).collect();
    numbers.ok_or_else(|| Unknown::new(Reason::Unsupported, "NSpid is not as the manual has it"))
}

/// Returns the working directory as the kernel writes it; a deleted one is unknown, for no path leads there.
pub(in crate::observe) fn working_directory(of: ProcessId) -> Known<BString> {
    let text = Pinned::open(of)?.link(c"cwd")?;
    if text.ends_with(MARK) || !text.starts_with(b"/") {
        return Err(Unknown::new(Reason::Vanished, "the working directory"));
    }
    Ok(text)
}

/// Returns what stands in a regular file of at most `most` bytes, by a path as the process means it: in its own mount
/// namespace, and from its working directory where the path is relative. May hang where the file system does.
pub(in crate::observe) fn short_text(of: ProcessId, path: &BStr, most: usize) -> Known<Vec<u8>> {
    if path.is_empty() || path.contains(&0) {
        return Err(Unknown::new(Reason::Unsupported, "reading a file without a name"));
    }
    let pinned = Pinned::open(of)?;
    let held = if path.starts_with(b"/") {
        beneath(pinned.root()?, path, OFlags::PATH)
    } else {
        let directory = pinned.file(c"cwd", OFlags::PATH | OFlags::DIRECTORY);
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        directory.and_then(|at| rustix::fs::openat2(at, path.as_bytes(), flags, Mode::empty(), resolve))
    };
    let held = held.map_err(lookup)?;
    if FileType::from_raw_mode(stat_of(&held)?.stx_mode.into()) != FileType::RegularFile {
        return Err(Unknown::new(Reason::Unsound, format!("{path} is no regular file")));
    }
    // Through the reference, so that it is the file that was looked at.
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = rustix::fs::open(format!("/proc/self/fd/{}", held.as_raw_fd()), flags, Mode::empty());
    let text =
        file.map_err(Fault::Errno).and_then(|file| bounded(file, most)).map_err(|fault| match fault {
            Fault::More => Unknown::new(Reason::Truncated, format!("reading {path}")),
            Fault::Errno(errno) => unknown(errno, format!("reading {path}")),
        })?;
    // What was opened was the process's only if it is still there.
    pinned.row()?;
    Ok(text)
}

/// Looks from within a process's network namespace. Only for the aside process, which has one thread; it is root's to
/// do (setns(2)).
pub(in crate::observe) fn within_network<T>(of: ProcessId, look: impl FnOnce() -> T) -> Known<T> {
    let what = "entering another network namespace";
    let enter = |namespace: &OwnedFd| {
        move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
            .map_err(|errno| unknown(errno, what))
    };
    let flags = OFlags::RDONLY | OFlags::CLOEXEC;
    let ours = rustix::fs::open("/proc/self/ns/net", flags, Mode::empty());
    let ours = ours.map_err(|errno| unknown(errno, what))?;
    let pinned = Pinned::open(of)?;
    let theirs = pinned.file(c"ns/net", OFlags::RDONLY).map_err(|errno| unknown(errno, what))?;
    enter(&theirs)?;
    let found = look();
    if enter(&ours).is_err() {
        // Whatever was looked at from here on would be another namespace's: this process is there to be thrown away.
        std::process::abort();
    }
    // What was entered was its only if it is still there.
    pinned.row()?;
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::Pid;
    use crate::observe::processes::bearer;

    fn own() -> ProcessId {
        let pid = Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap();
        bearer(pid).unwrap().unwrap().id
    }

    #[test]
    fn we_stand_where_we_stand() {
        assert!(cgroups(own()).unwrap().contains(&b':'));
        assert_eq!(numbers(own()).unwrap()[0], own().pid.number());
        let directory = std::env::current_dir().unwrap();
        assert_eq!(working_directory(own()).unwrap(), directory.to_str().unwrap());
    }

    #[test]
    fn a_short_text_of_a_regular_file_and_of_nothing_else() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| BString::from(directory.path().join(name).to_str().unwrap());
        std::fs::write(directory.path().join("id"), "abc").unwrap();
        let read = |name: &str, most| short_text(own(), at(name).as_bstr(), most);
        assert_eq!(read("id", 3).unwrap(), b"abc");
        assert_eq!(read("id", 2).unwrap_err().reason, Reason::Truncated);
        assert_eq!(read("none", 3).unwrap_err().reason, Reason::Vanished);
        assert_eq!(read("", 3).unwrap_err().reason, Reason::Unsound, "a directory");
        // Opening this for reading would wait for ever.
        let fifo = std::process::Command::new("mkfifo").arg(directory.path().join("fifo")).status();
        assert!(fifo.unwrap().success());
        assert_eq!(read("fifo", 3).unwrap_err().reason, Reason::Unsound);
        let manifest = short_text(own(), BStr::new("Cargo.toml"), 1 << 20).unwrap();
        assert!(manifest.starts_with(b"[package]"), "from the working directory");
    }
}
