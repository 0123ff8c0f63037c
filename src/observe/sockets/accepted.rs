//! Who is connected to a listening Unix socket, by the name or the file that its accepted ones bear.

use std::collections::BTreeSet;

use bstr::{BString, ByteSlice as _};

use super::Dump;
use super::unix::{self, State};
use crate::model::id::FileId;
use crate::model::known::Known;
use crate::model::question::Peer;
use crate::observe::engines::Accepted;

impl Dump {
    /// Returns who is connected to what listens at one of these names, or at this file, whose identity counts where
    /// the kernel's list has it as stat(2) does.
    pub(in crate::observe) fn accepted(
        &mut self,
        names: &BTreeSet<BString>,
        file: Option<(FileId, &[u8])>,
    ) -> Known<Accepted> {
        let is_named = |row: &unix::Socket| row.name.as_ref().is_some_and(|name| names.contains(name));
        // Whether it was bound to that very file; nothing where the kernel's list cannot tell.
        let is_bound = |row: &unix::Socket| {
            let (bound, (wanted, mounts)) = row.file.zip(file)?;
            unix::trusted(bound, mounts).map(|bound| bound == wanted)
        };
        let mut found = Accepted::default();
        for row in self.unix()?.values().filter(|row| is_named(row) || is_bound(row) == Some(true)) {
            match row.state {
                State::Listening => {
                    // One that bears the name and was bound to another file is not what the path leads to.
                    if is_bound(row) != Some(false) {
                        found.listeners.push(row.inode);
                        found.names.extend(row.name.clone());
                    }
                    found.untold = found.untold.saturating_add(row.queue.unwrap_or(1));
                }
                State::Connected => match row.peer() {
                    Peer::Inode(client) => {
                        found.clients.insert(client);
                    }
                    Peer::Gone => {}
                    Peer::Remote(_) | Peer::Unknown => found.untold = found.untold.saturating_add(1),
                },
                State::Neither => {}
            }
        }
        Ok(found)
    }
}

/// A row of `/proc/PID/net/unix` (proc_net_unix(5)) that bears a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::observe) struct Named<'a> {
    /// Whether it listens.
    pub(in crate::observe) state: State,
    /// The name, abstract ones with `@`.
    pub(in crate::observe) name: &'a [u8],
}

/// `__SO_ACCEPTCON` of the kernel's net.h.
const LISTENS: &[u8] = b"00010000";
/// `SS_CONNECTED`.
const CONNECTED: &[u8] = b"03";

/// Returns the rows of such a list that bear a name. Seven fields stand before it, and it may hold blanks.
pub(in crate::observe) fn named(text: &[u8]) -> impl Iterator<Item = Named<'_>> {
    text.lines().skip(1).filter_map(|line| {
        let mut rest = line.trim_ascii_start();
        let mut fields = [&b""[..]; 7];
        for field in &mut fields {
            let end = rest.find_byte(b' ')?;
            *field = &rest[..end];
            rest = rest[end..].trim_ascii_start();
        }
        let state = match (fields[3], fields[5]) {
            (LISTENS, _) => State::Listening,
            (_, CONNECTED) => State::Connected,
            (_, _) => State::Neither,
        };
        (!rest.is_empty()).then_some(Named { state, name: rest })
    })
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::net::{UnixListener, UnixStream};
    use std::time::{Duration, Instant};

    use super::*;

    #[test]
    fn rows_with_names() {
        let text = b"Num       RefCount Protocol Flags    Type St Inode Path\n\
            0000000000000000: 00000002 00000000 00010000 0001 01 20742 /run/a b.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 20743 /run/a b.sock\n\
            0000000000000000: 00000003 00000000 00000000 0001 03 20743\n\
            0000000000000000: 00000002 00000000 00010000 0001 01     7 @abstract\n";
        let rows: Vec<_> = named(text).map(|row| (row.state, row.name)).collect();
        let expected: [(State, &[u8]); 3] = [
            (State::Listening, b"/run/a b.sock"),
            (State::Connected, b"/run/a b.sock"),
            (State::Listening, b"@abstract"),
        ];
        assert_eq!(rows, expected);
    }

    #[test]
    fn the_living_are_told_from_the_dead_and_the_waiting() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let listener = UnixListener::bind(&path).unwrap();
        let names = BTreeSet::from([BString::from(path.to_str().unwrap())]);
        let inode = |end: &dyn AsFd| rustix::fs::fstat(end.as_fd()).unwrap().st_ino;
        let alive = UnixStream::connect(&path).unwrap();
        let _one = listener.accept().unwrap();
        let dead = UnixStream::connect(&path).unwrap();
        let _two = listener.accept().unwrap();
        drop(dead);
        let _waiting = UnixStream::connect(&path).unwrap();
        let wanted = Accepted {
            listeners: vec![inode(&listener)],
            names: names.clone(),
            clients: BTreeSet::from([inode(&alive)]),
            untold: 1,
        };
        // What another test forks holds copies until it execs.
        let began = Instant::now();
        while Dump::new().accepted(&names, None).unwrap() != wanted
            && began.elapsed() < Duration::from_secs(10)
        {
            std::thread::yield_now();
        }
        assert_eq!(Dump::new().accepted(&names, None).unwrap(), wanted);
        let other = BTreeSet::from([BString::from("/elsewhere")]);
        assert_eq!(Dump::new().accepted(&other, None).unwrap(), Accepted::default());
    }

    #[test]
    fn a_listener_of_that_name_at_another_file_is_not_what_the_path_leads_to() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s");
        let mounts = std::fs::read("/proc/self/mountinfo").unwrap();
        let id = || {
            let meta = std::fs::metadata(&path).unwrap();
            FileId { dev: meta.dev(), ino: meta.ino() }
        };
        let names = BTreeSet::from([BString::from(path.to_str().unwrap())]);
        let listeners = |names: &BTreeSet<BString>, file| {
            Dump::new().accepted(names, Some((file, mounts.as_slice()))).unwrap().listeners.len()
        };
        let first = UnixListener::bind(&path).unwrap();
        if unix::trusted(id(), &mounts).is_none() {
            return;
        }
        assert_eq!(listeners(&names, id()), 1);
        assert_eq!(listeners(&BTreeSet::new(), id()), 1, "by its file alone");
        // Somebody else took its place, and listens no more.
        let old = id();
        std::fs::rename(&path, directory.path().join("old")).unwrap();
        drop(UnixListener::bind(&path).unwrap());
        assert_eq!(listeners(&names, old), 1);
        let began = Instant::now();
        while listeners(&names, id()) != 0 && began.elapsed() < Duration::from_secs(10) {
            std::thread::yield_now();
        }
        assert_eq!(listeners(&names, id()), 0);
        drop(first);
    }
}
