//! Who is who: numbers the kernel reuses, and the identities made of them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A process number. Never zero or negative, so that no sentinel can reach a signal
/// (`kill(-1)` and `kill(0)` mean whole groups; kill(2)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i32", into = "i32")]
pub struct Pid(i32);

impl Pid {
    /// Process 1: init, launchd, or a container's first process.
    pub const INIT: Pid = Pid(1);

    /// Returns the number as a pid, or nothing where it names no single process (`<= 0`).
    pub fn new(number: i32) -> Option<Pid> {
        (number > 0).then_some(Pid(number))
    }

    /// Returns the bare number.
    pub fn number(self) -> i32 {
        self.0
    }
}

impl TryFrom<i32> for Pid {
    type Error = String;

    fn try_from(number: i32) -> Result<Pid, String> {
        Pid::new(number).ok_or_else(|| format!("{number} is no process number"))
    }
}

impl From<Pid> for i32 {
    fn from(pid: Pid) -> i32 {
        pid.0
    }
}

impl fmt::Display for Pid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A user number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Uid(pub u32);

impl Uid {
    /// The superuser.
    pub const ROOT: Uid = Uid(0);
}

impl fmt::Display for Uid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// When a process started, in the kernel's own raw unit and never by way of a wall clock.
///
/// Linux: clock ticks since boot, field 22 of `/proc/PID/stat` (proc_pid_stat(5)).
/// macOS: microseconds since the epoch, `p_starttime` of `kinfo_proc`.
/// Compare for equality and order only; ages come from [`crate::model::table::Row::began`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Start(pub u64);

/// Names one process within one boot: its number and its raw start stamp.
///
/// This is a key for tables and maps. It is *not* enough to signal by: a forced reuse of a number gave the same
/// pid and the same 10 ms tick in 176 of 200 tries. See [`Identity`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ProcessId {
    /// Its number.
    pub pid: Pid,
    /// Its raw start stamp.
    pub start: Start,
}

impl fmt::Display for ProcessId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.pid.fmt(f)
    }
}

/// One run of the kernel. Linux: `/proc/sys/kernel/random/boot_id`; macOS: `kern.bootsessionuuid`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct BootId(pub String);

/// A file or directory as the kernel knows it; text is never an identity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct FileId {
    /// The device (`st_dev`).
    pub dev: u64,
    /// The inode (`st_ino`).
    pub ino: u64,
}

/// Everything that must be as recorded before a process may be signalled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// The run of the kernel it was seen in.
    pub boot: BootId,
    /// Its number and start.
    pub id: ProcessId,
    /// Its real user.
    pub uid: Uid,
    /// The executable's (dev, ino); `None` where it could not be read, which forbids a signal.
    pub exe: Option<FileId>,
    /// A number the kernel never reuses within a boot, where it has one.
    /// Linux 6.9+: the inode of a pidfd on pidfs; macOS: `p_uniqueid`.
    pub unique: Option<u64>,
}

impl Identity {
    /// Says whether `now` is surely still the recorded process: the strict question, "may I signal this?".
    ///
    /// A missing executable on either side is *no*; a missing unique number is not, since older kernels have none.
    pub fn is_surely(&self, now: &Identity) -> bool {
        self.boot == now.boot
            && self.id == now.id
            && self.uid == now.uid
            && self.exe.is_some()
            && self.exe == now.exe
            && match (self.unique, now.unique) {
                (Some(recorded), Some(seen)) => recorded == seen,
                (None, _) | (_, None) => true,
            }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sentinels_are_no_pids_c05() {
        assert_eq!(Pid::new(-1), None);
        assert_eq!(Pid::new(0), None);
        assert_eq!(Pid::new(1), Some(Pid::INIT));
    }

    fn identity() -> Identity {
        Identity {
            boot: BootId("a".into()),
            id: ProcessId { pid: Pid(7), start: Start(9) },
            uid: Uid(1000),
            exe: Some(FileId { dev: 1, ino: 2 }),
            unique: Some(5),
        }
    }

    #[test]
    fn strict_identity_needs_every_part_c07() {
        let recorded = identity();
        assert!(recorded.is_surely(&identity()));
        assert!(!recorded.is_surely(&Identity { boot: BootId("b".into()), ..identity() }));
        assert!(!recorded.is_surely(&Identity { uid: Uid(0), ..identity() }));
        assert!(!recorded.is_surely(&Identity { exe: Some(FileId { dev: 1, ino: 3 }), ..identity() }));
        assert!(!recorded.is_surely(&Identity { exe: None, ..identity() }));
        assert!(!Identity { exe: None, ..identity() }.is_surely(&Identity { exe: None, ..identity() }));
        assert!(!recorded.is_surely(&Identity { unique: Some(6), ..identity() }));
        assert!(recorded.is_surely(&Identity { unique: None, ..identity() }));
    }

    #[test]
    fn every_part_of_an_identity_counts_c07_c08() {
        let recorded = Identity {
            boot: BootId("boot".into()),
            id: ProcessId { pid: Pid(50), start: Start(500) },
            uid: Uid(1000),
            exe: Some(FileId { dev: 1, ino: 2 }),
            unique: Some(7),
        };
        assert!(recorded.is_surely(&recorded.clone()));
        let changes: [fn(&mut Identity); 8] = [
            |now| now.boot = BootId("next".into()),
            |now| now.id.pid = Pid(51),
            |now| now.id.start = Start(501),
            |now| now.uid = Uid(0),
            |now| now.exe = None,
            |now| now.exe = Some(FileId { dev: 9, ino: 2 }),
            |now| now.exe = Some(FileId { dev: 1, ino: 9 }),
            |now| now.unique = Some(8),
        ];
        for change in changes {
            let mut now = recorded.clone();
            change(&mut now);
            assert!(!recorded.is_surely(&now), "{now:?}");
            assert!(!now.is_surely(&recorded), "{now:?}");
        }
        let nameless = Identity { exe: None, ..recorded.clone() };
        assert!(!nameless.is_surely(&nameless.clone()), "two that cannot be read are not one");
        let older = Identity { unique: None, ..recorded.clone() };
        assert!(
            recorded.is_surely(&older) && older.is_surely(&recorded),
            "an older kernel has no such number"
        );
    }
}
