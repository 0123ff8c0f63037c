//! Leases: records that say who owns something that no look from outside can tell.
//!
//! `docs/lease.md` is the published format. A lease covers processes of the user that owns its file and nobody else's.

pub mod format;

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use bstr::{BStr, BString, ByteSlice as _};
use serde::{Deserialize, Serialize};

use super::id::{BootId, FileId, Pid, ProcessId, Start, Uid};
use super::known::{Known, Unknown};

/// The variable that carries a lease to what it covers.
pub const COOKIE: &str = "REAPD_LEASE";

/// The name of a lease: up to 64 letters, digits, dots, dashes and underscores, the first a letter or a digit. It is
/// the stem of its file's name, and nothing that a path could be made of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct LeaseId(String);

impl LeaseId {
    /// Returns the text as an id, or nothing where it cannot be one.
    pub fn new(text: &str) -> Option<LeaseId> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
        let fits = (1..=64).contains(&text.len())
            && text.bytes().all(plain)
            && text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
        fits.then(|| LeaseId(text.to_owned()))
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for LeaseId {
    type Error = String;

    fn try_from(text: String) -> Result<LeaseId, String> {
        LeaseId::new(&text).ok_or_else(|| "not the name of a lease".to_owned())
    }
}

impl From<LeaseId> for String {
    fn from(id: LeaseId) -> String {
        id.0
    }
}

impl fmt::Display for LeaseId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A lease as its file says, with what the file system says of that file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// Its name.
    pub id: LeaseId,
    /// The file.
    pub file: LeaseFile,
    /// What ends it, besides its release.
    pub bound: Bound,
    /// Who holds it. A holder-bound lease has one; one that is bound to time may have one.
    pub holder: Option<Holder>,
    /// What it covers.
    pub covers: Covers,
    /// Words of whoever made it, for policies that capture them (`{ lease = "session" }`).
    pub labels: BTreeMap<String, String>,
    /// What it is for, for a person.
    pub note: Option<String>,
    /// Whether it was released.
    pub release: Release,
    /// Set where `reapd run` made it.
    pub run: Option<Run>,
}

/// The file of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseFile {
    /// Its owner: the only user whose processes it counts for.
    pub owner: Uid,
    /// Which file it is; replacing it whole makes another, touching it does not.
    pub file: FileId,
    /// When it was last written or touched, nanoseconds of the wall clock since the epoch. Touching it renews the
    /// lease; the time itself is only ever compared for equality or shown to a person.
    pub modified: i64,
}

/// What ends a lease besides its release.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Bound {
    /// The death of its holder, and never time.
    Holder,
    /// That nobody renewed it for so long, though its holder lives on.
    Ttl(Duration),
}

/// Who holds a lease, as its file says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its number, in its own pid namespace.
    pub pid: Pid,
    /// Its raw start stamp, where the writer knew it.
    pub start: Option<Start>,
    /// The boot, where the writer knew it.
    pub boot: Option<BootId>,
    /// Inode of its pid namespace, where the writer knew it.
    pub pidns: Option<u64>,
    /// Inode of its time namespace, where the writer knew it; 0 where the kernel has none.
    pub timens: Option<u64>,
    /// The host's name, where the writer gave it. Two hosts may share a directory.
    pub host: Option<String>,
    /// How long it had lived when the lease was written, where the writer knew it. One that dies young was an errand:
    /// a hook's shell and not the session (REDTEAM F5).
    pub age: Option<Duration>,
}

/// What a lease covers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Covers {
    /// The value of [`COOKIE`] in the environment of ordinary descendants.
    pub env: Option<BString>,
    /// Processes by identity, each with everything below it.
    pub processes: Vec<ProcessId>,
}

/// Whether a lease was released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Release {
    /// Not so far.
    Open,
    /// It was, by whoever may write the file, for this reason where one is given.
    Released(Option<String>),
}

/// What `reapd run` adds to its lease, so that a sweep can finish when it was killed itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Run {
    /// The `reapd run` that watches; for as long as it is there, only what it starts may end the tree.
    pub watcher: ProcessId,
    /// The command, once it was started.
    pub command: Option<ProcessId>,
    /// What the command's end means for what it left behind.
    pub leftovers: Leftovers,
    /// Whether standard input was a channel (a pipe or a connected pair) from the start, so that the loss of its far end
    /// and that of standard output means that nobody can use it any more.
    pub channel: RunChannel,
    /// The cgroup that was made for the command, where one could be.
    #[serde(default)]
    pub cgroup: Option<Cgroup>,
}

/// A cgroup (version 2) that `reapd run` made for its command.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup {
    /// Its path as in `/proc/PID/cgroup`.
    pub path: String,
    /// Its directory. The kernel gives an inode of this file system to no other directory of one boot.
    pub file: FileId,
}

impl Cgroup {
    /// Where the unified hierarchy is mounted (systemd's file-hierarchy(7)); on hybrid hosts in the second place.
    pub const MOUNTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

    /// Returns the name of the directory that is made for a lease, and for no other.
    pub fn name(lease: &LeaseId) -> String {
        format!("reapd-run-{lease}")
    }

    /// Says whether this is one that was made for this lease: a plain path that ends in its name.
    pub fn is_of(&self, lease: &LeaseId) -> bool {
        self.path.starts_with('/')
            && !self.path.split('/').any(|part| part == "..")
            && self.path.rsplit('/').next() == Some(&Cgroup::name(lease))
    }
}

/// What becomes of what a command left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Leftovers {
    /// It goes with the command's end.
    Reap,
    /// It is only told of.
    Report,
}

/// Whether a command was started on channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RunChannel {
    /// Its standard input was. Only where standard output was one too can the loss of both be seen.
    Stdio,
    /// It was not, so that its holder's death counts.
    None,
}

/// Every lease that a look found.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Leases {
    /// Sorted by owner and id.
    pub list: Vec<Lease>,
    /// Files that say nothing that counts: malformed, oversized, links, of foreign owners. What they may cover is
    /// unknown and never uncovered. Each is also a gap of the look.
    pub faulty: Vec<FaultyLease>,
    /// The cookies that processes carry, by process, where one was looked for and found, or could not be read. They
    /// are looked for with processes in scope whose user has a lease, sound or faulty, and with nobody else.
    pub cookies: BTreeMap<ProcessId, Known<BString>>,
    /// The processes that were seen in the cgroup of a `reapd run`, with the lease of that run. A cgroup inside of it is
    /// another one. What could not be read is a gap of the look.
    pub grouped: BTreeMap<ProcessId, LeaseId>,
}

/// A file in a lease directory that says nothing that counts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FaultyLease {
    /// Whose directory it stands in: the one user whose processes it may be about. Nothing where that is not known.
    pub owner: Option<Uid>,
    /// Its name in the directory, without `.json`. Empty where the directory as a whole could not be read: then any
    /// lease may stand in it.
    pub stem: BString,
    /// What is wrong with it.
    pub why: Unknown,
}

impl Leases {
    /// Returns the lease of this name that belongs to this user.
    pub fn get(&self, owner: Uid, id: &LeaseId) -> Option<&Lease> {
        self.list
            .binary_search_by(|lease| (lease.file.owner, &lease.id).cmp(&(owner, id)))
            .ok()
            .map(|at| &self.list[at])
    }

    /// Returns the file that may say what becomes of whoever of `uid` carries this cookie, and says nothing that counts:
    /// the one of its name, or any where no good lease has that cookie. A file in the directory of another user is about
    /// that user's processes; of a user that is not known (nothing) every file counts.
    pub fn unread(&self, cookie: &BStr, uid: Option<Uid>) -> Option<&FaultyLease> {
        let is_theirs =
            |faulty: &&FaultyLease| faulty.owner.is_none() || uid.is_none() || faulty.owner == uid;
        let mut theirs = self.faulty.iter().filter(is_theirs);
        let first = theirs.clone().next()?;
        let is_known = || {
            self.list.iter().any(|lease| {
                uid.is_none_or(|uid| uid == lease.file.owner)
                    && lease.covers.env.as_ref().is_some_and(|env| env.as_bstr() == cookie)
            })
        };
        theirs.find(|faulty| faulty.stem == cookie).or_else(|| (!is_known()).then_some(first))
    }

    /// Returns the leases of `uid` that name this process or the cookie that it carries. An inherited cookie alone
    /// makes nobody a member: shared daemons and panes inherit it too.
    pub fn naming<'a>(
        &'a self,
        id: ProcessId,
        uid: Uid,
        cookie: Option<&'a BStr>,
    ) -> impl Iterator<Item = &'a Lease> + 'a {
        self.list.iter().filter(move |lease| {
            lease.file.owner == uid
                && (lease.covers.processes.contains(&id)
                    || cookie.is_some_and(|cookie| {
                        lease.covers.env.as_ref().is_some_and(|env| env.as_bstr() == cookie)
                    }))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cgroup_is_of_the_lease_that_it_is_named_after() {
        let id = LeaseId::new("run-1").unwrap();
        let is_of = |path: &str| Cgroup { path: path.to_owned(), file: FileId { dev: 1, ino: 2 } }.is_of(&id);
        assert!(is_of("/reapd-run-run-1") && is_of("/user.slice/a/reapd-run-run-1"));
        for other in
            ["/", "", "reapd-run-run-1", "/reapd-run-run-2", "/reapd-run-run-1/x", "/a/../reapd-run-run-1"]
        {
            assert!(!is_of(other), "{other}");
        }
    }

    #[test]
    fn an_id_is_nothing_that_a_path_is_made_of() {
        for good in ["gw-51779093", "a", "n_81.aa02"] {
            assert_eq!(LeaseId::new(good).map(String::from).as_deref(), Some(good));
        }
        for bad in ["", ".", "..", ".a", "-a", "a/b", "a b", "a\n", "ä", &"x".repeat(65)] {
            assert_eq!(LeaseId::new(bad), None, "{bad:?}");
        }
    }
}
