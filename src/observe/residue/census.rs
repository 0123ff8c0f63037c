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

    use bstr::ByteSlice as _;

    use super::{BString, BTreeMap, Known, Pid, Served};
    use crate::model::known::{Reason, Unknown};
    use crate::observe::sockets::Dump;

    /// The arguments of one process are read no further; the kernel itself bears 128 KiB each, and some megabytes
    /// together (execve(2)).
    const LONGEST: u64 = 8 * 1024 * 1024;

    /// Returns somebody for each name that stands anywhere in the arguments of anybody, or as a word of its own in
    /// somebody's environment. Whose arguments are there and cannot be read may say any of them, so that nothing is
    /// known then; an environment that cannot be read says nothing, since hardly any could be relied on.
    pub(in super::super) fn named(names: &[BString]) -> Known<BTreeMap<BString, Pid>> {
        // A directory that is shared with a container is used by processes of the host, which nobody sees from within.
        if !crate::observe::processes::is_outermost()? {
            let what = "who else uses it: reapd runs in a pid namespace of its own";
            return Err(Unknown::new(Reason::Foreign, what));
        }
        let mut found = BTreeMap::new();
        let words: BTreeSet<&[u8]> = names.iter().map(|name| name.as_slice()).collect();
        for (pid, path) in processes()? {
            let Some(arguments) = read(&path.join("cmdline"))? else { continue };
            for name in names {
                if arguments.contains_str(name) {
                    found.entry(name.clone()).or_insert(pid);
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

    fn is_plain(byte: u8) -> bool {
        byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-' | b'+' | b'@' | b'~')
    }

    /// Returns the names of the Unix sockets of every network namespace that anybody alive is in: a path leads to its
    /// socket from all of them, and the kernel's list has those of one.
    pub(in super::super) fn served() -> Known<Served> {
        let mut served = Dump::new().bound()?;
        let ours = inode("/proc/self/net/unix").map_err(|error| denied(&error, "our own sockets"))?;
        let mut seen = BTreeSet::from([ours]);
        for (pid, path) in processes()? {
            let list = path.join("net/unix");
            match inode(&list) {
                Ok(inode) if seen.insert(inode) => {
                    let what = format!("the sockets of the network namespace of {pid}");
                    match std::fs::read(&list) {
                        Ok(text) => served.names.extend(listed(&text)),
                        Err(error) if is_gone(&error) => {
                            // Others may be in that namespace, too.
                            seen.remove(&inode);
                        }
                        Err(error) => return Err(denied(&error, &what)),
                    }
                }
                Ok(_) => {}
                // A zombie is in no namespace any more.
                Err(error) if is_gone(&error) || error.raw_os_error() == Some(22) => {}
                Err(error) => return Err(denied(&error, &format!("the network namespace of {pid}"))),
            }
        }
        Ok(served)
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

    fn processes() -> Known<Vec<(Pid, PathBuf)>> {
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
        // ESRCH has no kind of its own.
        error.kind() == io::ErrorKind::NotFound || error.raw_os_error() == Some(3)
    }

    fn denied(error: &io::Error, what: &str) -> Unknown {
        let reason = if error.kind() == io::ErrorKind::PermissionDenied {
            Reason::Denied
        } else {
            Reason::Failed(error.raw_os_error().unwrap_or(0))
        };
        Unknown::new(reason, what)
    }

    #[cfg(test)]
    mod tests {
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
