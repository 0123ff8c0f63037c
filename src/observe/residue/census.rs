//! Who still uses a name: in an argument or the environment of anybody alive, or as the name of a socket.

use std::collections::BTreeMap;

use bstr::BString;

use crate::model::id::Pid;
use crate::model::known::Known;
#[cfg(not(target_os = "linux"))]
use crate::model::known::{Reason, Unknown};
use crate::model::residue::Served;

#[cfg(target_os = "linux")]
pub(super) use linux::{named, served};

/// Returns somebody for each name that anybody says.
#[cfg(not(target_os = "linux"))]
pub(super) fn named(_: &[BString]) -> Known<BTreeMap<BString, Pid>> {
    Err(Unknown::new(Reason::Unsupported, "the arguments of everybody"))
}

/// Returns the names of all Unix sockets.
#[cfg(not(target_os = "linux"))]
pub(super) fn served() -> Known<Served> {
    Err(Unknown::new(Reason::Unsupported, "the names of all sockets"))
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeSet;
    use std::fs::File;
    use std::io::{self, Read as _};
    use std::os::unix::fs::MetadataExt as _;
    use std::path::{Path, PathBuf};
    use std::time::Duration;

    use bstr::{ByteSlice as _, Finder};
    use rustix::io::Errno;

    use super::{BString, BTreeMap, Known, Pid, Served};
    use crate::model::known::{Reason, Unknown};
    use crate::model::table::{Kernel, Row, State};
    use crate::observe::processes;
    use crate::observe::sockets::Dump;

    /// The arguments of one process are read no further; the kernel itself bears 128 KiB each, and some megabytes
    /// together (execve(2)).
    const LONGEST: u64 = 8 * 1024 * 1024;

    /// How often the arguments of one that is in the midst of an exec are read, and how long after one another: it may
    /// wait for its program to come from a disk.
    const TRIES: u32 = 20;
    const AGAIN: Duration = Duration::from_millis(2);

    /// Returns somebody for each name that stands anywhere in the arguments of anybody, or as a word of its own in
    /// somebody's environment. Whose arguments are there and cannot be read may say any of them, so that nothing is
    /// known then; an environment that cannot be read says nothing, since hardly any could be relied on.
    pub(in super::super) fn named(names: &[BString]) -> Known<BTreeMap<BString, Pid>> {
        // A directory that is shared with a container is used by processes of the host, which nobody sees from within.
        if !processes::is_outermost()? {
            let what = "who else uses it: reapd runs in a pid namespace of its own";
            return Err(Unknown::new(Reason::Foreign, what));
        }
        let mut found = BTreeMap::new();
        let words: BTreeSet<&[u8]> = names.iter().map(|name| name.as_slice()).collect();
        let finders: Vec<(&BString, Finder<'_>)> =
            names.iter().map(|name| (name, Finder::new(name))).collect();
        for (pid, path) in everybody()? {
            let Some((path, arguments)) = given(pid, path)? else { continue };
            for (name, finder) in &finders {
                if !found.contains_key(*name) && finder.find(&arguments).is_some() {
                    found.insert((*name).clone(), pid);
                }
            }
            if let Ok(Some(environment)) = read(&path.join("environ")) {
                for word in environment.split(|&byte| !is_plain(byte)) {
                    if words.contains(word) {
                        found.entry(word.into()).or_insert(pid);
                    }
                }
            }
        }
        Ok(found)
    }

    /// Returns the arguments of a process, and where they were read; nothing where it is gone. Those of one whose first
    /// thread has ended are with the threads that live (CASES C24), and in the midst of an exec there are none yet.
    fn given(pid: Pid, path: PathBuf) -> Known<Option<(PathBuf, Vec<u8>)>> {
        for _ in 0..TRIES {
            match read(&path.join("cmdline"))? {
                None => return Ok(None),
                Some(arguments) if !arguments.is_empty() => return Ok(Some((path, arguments))),
                Some(_) => {}
            }
            let Some(row) = living(pid, &path)? else { return Ok(None) };
            if row.kernel == Kernel::Thread || is_led(&row) && row.exec.arg_start != 0 {
                return Ok(Some((path, Vec::new())));
            }
            for thread in threads(&path)? {
                if let Some(arguments) = read(&thread.join("cmdline"))?.filter(|text| !text.is_empty()) {
                    return Ok(Some((thread, arguments)));
                }
            }
            std::thread::sleep(AGAIN);
        }
        Err(Unknown::new(Reason::NoRecord, format!("the arguments of {pid}, which shows none")))
    }

    /// Returns who bears a number and lives; nobody where it went while it was asked for.
    fn living(pid: Pid, path: &Path) -> Known<Option<Row>> {
        match processes::bearer(pid) {
            Err(_) if !path.exists() => Ok(None),
            asked => Ok(asked?.filter(|row| !row.is_gone())),
        }
    }

    /// Says whether the first thread lives.
    fn is_led(row: &Row) -> bool {
        !matches!(row.state, State::Zombie | State::Dead)
    }

    /// Returns where the threads of a process stand; none where it is gone.
    fn threads(path: &Path) -> Known<Vec<PathBuf>> {
        let what = || format!("the threads of '{}'", path.display());
        match std::fs::read_dir(path.join("task")) {
            Ok(list) => Ok(list.filter_map(|entry| Some(entry.ok()?.path())).collect()),
            Err(error) if is_gone(&error) => Ok(Vec::new()),
            Err(error) => Err(denied(&error, &what())),
        }
    }

    fn is_plain(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+' | b'@' | b'~')
    }

    /// Returns the names of the Unix sockets of every network namespace that anybody alive is in: a path leads to its
    /// socket from all of them, and the kernel's list has those of one.
    pub(in super::super) fn served() -> Known<Served> {
        let mut served = Dump::new().bound()?;
        let ours = inode("/proc/self/net/unix").map_err(|error| denied(&error, "our own sockets"))?;
        let mut seen = BTreeSet::from([ours]);
        for (pid, path) in everybody()? {
            if add(&path, &mut seen, &mut served)? == Found::There {
                continue;
            }
            // Its first thread may have ended and be in no namespace any more; the others are (CASES C24).
            let mut found = Found::Nowhere;
            for thread in threads(&path)? {
                if add(&thread, &mut seen, &mut served)? == Found::There {
                    found = Found::There;
                }
            }
            if found == Found::Nowhere && living(pid, &path)?.is_some() {
                let what = format!("the network namespace of {pid}, which shows none");
                return Err(Unknown::new(Reason::NoRecord, what));
            }
        }
        Ok(served)
    }

    /// Whether a process or a thread is in a network namespace.
    #[derive(Debug, Clone, Copy, PartialEq, Eq)]
    enum Found {
        There,
        /// It is gone, or dead and not yet waited for.
        Nowhere,
    }

    /// Adds the names of the network namespace that a process or a thread is in, where they were not seen yet.
    fn add(path: &Path, seen: &mut BTreeSet<u64>, served: &mut Served) -> Known<Found> {
        let list = path.join("net/unix");
        let nowhere = |error: &io::Error| is_gone(error) || error.kind() == io::ErrorKind::InvalidInput;
        let failed = |error: io::Error| Err(denied(&error, &format!("'{}'", list.display())));
        match inode(&list) {
            Ok(inode) if seen.contains(&inode) => Ok(Found::There),
            // It counts as seen once it was read: others may be in that namespace, too.
            Ok(inode) => match std::fs::read(&list) {
                Ok(text) => {
                    seen.insert(inode);
                    served.names.extend(listed(&text));
                    Ok(Found::There)
                }
                Err(error) if nowhere(&error) => Ok(Found::Nowhere),
                Err(error) => failed(error),
            },
            Err(error) if nowhere(&error) => Ok(Found::Nowhere),
            Err(error) => failed(error),
        }
    }

    /// Returns the inode of a namespace's list of sockets: procfs gives each namespace a directory of its own, so that
    /// it tells namespaces apart, and unlike `ns/net` everybody may look at it.
    fn inode(path: impl AsRef<Path>) -> io::Result<u64> {
        std::fs::metadata(path).map(|found| found.ino())
    }

    /// Returns the names in a list such as /proc/net/unix (proc_net(5)): seven fields, and what follows is the name.
    fn listed(text: &[u8]) -> impl Iterator<Item = BString> + '_ {
        text.lines().skip(1).filter_map(|line| {
            let mut rest = line;
            for _ in 0..7 {
                rest = rest.trim_ascii_start();
                rest = &rest[rest.find_byte(b' ')?..];
            }
            let name = rest.trim_ascii_start();
            (!name.is_empty()).then(|| name.into())
        })
    }

    fn everybody() -> Known<Vec<(Pid, PathBuf)>> {
        let list = std::fs::read_dir("/proc").map_err(|error| denied(&error, "the list of processes"))?;
        // Where other users' processes are hidden (hidepid, proc(5)), process 1 is, too.
        if let Err(error) = std::fs::metadata("/proc/1") {
            return Err(denied(&error, "the list of processes"));
        }
        let mut processes = Vec::new();
        for entry in list {
            let entry = entry.map_err(|error| denied(&error, "the list of processes"))?;
            let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
            if let Some(pid) = number.and_then(|number: i32| Pid::new(number)) {
                processes.push((pid, entry.path()));
            }
        }
        Ok(processes)
    }

    /// Reads a file of a process; nothing where the process is gone.
    fn read(path: &Path) -> Known<Option<Vec<u8>>> {
        let what = || format!("'{}'", path.display());
        let mut text = Vec::new();
        match File::open(path).and_then(|file| file.take(LONGEST).read_to_end(&mut text)) {
            Ok(length) if length as u64 == LONGEST => Err(Unknown::new(Reason::Truncated, what())),
            Ok(_) => Ok(Some(text)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(denied(&error, &what())),
        }
    }

    fn is_gone(error: &io::Error) -> bool {
        matches!(Errno::from_io_error(error), Some(Errno::NOENT | Errno::SRCH))
    }

    fn denied(error: &io::Error, what: &str) -> Unknown {
        match Errno::from_io_error(error) {
            Some(errno) => processes::unknown(errno, what),
            None => Unknown::new(Reason::Failed(0), what),
        }
    }

    #[cfg(test)]
    mod tests {
        use std::process::{Child, Command, Stdio};
        use std::time::Instant;

        use super::*;

        #[test]
        fn names_are_what_follows_seven_fields() {
            let text = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
                0000000000000000: 00000002 00000000 00010000 0001 01 20742 /run/a b.sock\n\
                0000000000000000: 00000003 00000000 00000000 0001 03 20743\n\
                0000000000000000: 00000002 00000000 00010000 0001 01     7 @abstract\n";
            let names: Vec<_> = listed(text).collect();
            assert_eq!(names, ["/run/a b.sock", "@abstract"]);
        }

        /// Starts a program whose first thread has ended and whose second one listens at a name.
        fn without_leader(command: &mut Command, name: &str) -> Child {
            let script = "import ctypes, socket, sys, threading, time\n\
                own = socket.socket(socket.AF_UNIX)\n\
                own.bind('\\0' + sys.argv[1])\n\
                own.listen()\n\
                threading.Thread(target=time.sleep, args=(60,)).start()\n\
                ctypes.CDLL(None).pthread_exit(None)\n";
            let child = command.args(["python3", "-c", script, name]).stderr(Stdio::null()).spawn().unwrap();
            let pid = pid_of(&child);
            let begun = Instant::now();
            while processes::bearer(pid).unwrap().is_none_or(|row| is_led(&row)) {
                assert!(begun.elapsed() < Duration::from_secs(20), "its first thread never ended");
                std::thread::sleep(Duration::from_millis(5));
            }
            child
        }

        fn pid_of(child: &Child) -> Pid {
            Pid::new(child.id().try_into().unwrap()).unwrap()
        }

        #[test]
        fn whoever_lost_its_first_thread_says_what_it_said_c24() {
            let name = format!("zz-led-{}", std::process::id());
            let mut child = without_leader(&mut Command::new("env"), &name);
            let found = named(&[BString::from(name.as_str())]).unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            assert_eq!(found.get(name.as_bytes().as_bstr()), Some(&pid_of(&child)));
        }

        #[test]
        #[expect(clippy::print_stderr, reason = "a test that skips says why")]
        fn and_its_sockets_are_seen_in_whatever_namespace_they_are_c24() {
            let apart = || {
                let mut command = Command::new("unshare");
                command.args(["--user", "--map-root-user", "--net"]);
                command
            };
            if !apart().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
                eprintln!("no network namespace to be had here: skipped");
                return;
            }
            let name = format!("zz-apart-{}", std::process::id());
            let mut child = without_leader(&mut apart(), &name);
            let found = served().unwrap();
            child.kill().unwrap();
            child.wait().unwrap();
            assert!(found.names.contains(format!("@{name}").as_bytes().as_bstr()), "{:?}", found.names);
        }

        #[test]
        fn our_own_arguments_are_found_and_what_nobody_says_is_not() {
            let own = std::env::args().next().unwrap();
            let own = BString::from(own.rsplit('/').next().unwrap());
            let found = named(&[own.clone(), "zz-no-such-name-\u{1f}".into()]).unwrap();
            assert!(found.contains_key(&own));
            assert_eq!(found.len(), 1);
        }
    }
}
