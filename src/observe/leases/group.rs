//! Reads who is in the cgroup that `reapd run` made for its command; in the aside process.
//!
//! Only the very directory that the lease recorded counts. One that is gone, or is another one by now, holds nobody.

use std::io::Read as _;

use rustix::fs::{Mode, OFlags, Stat, fstat, open, openat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use crate::model::id::{FileId, Pid, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::lease::{Cgroup, Lease};

use super::directory::failed;

/// Longest list of members that is read, bytes.
const LIST_MOST: u64 = 1 << 20;

/// A cgroup that is to be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::observe) struct Grouping {
    cgroup: Cgroup,
    owner: Uid,
}

impl Grouping {
    /// Returns the cgroup of a lease, where it records one that was made for it.
    pub(super) fn of(lease: &Lease) -> Option<Grouping> {
        let cgroup = lease.run.as_ref()?.cgroup.clone()?;
        cgroup.is_of(&lease.id).then_some(Grouping { cgroup, owner: lease.file.owner })
    }

    /// Returns the numbers of everybody in it, without those of other pid namespaces, whom we cannot see.
    pub(in crate::observe) fn read(&self) -> Known<Vec<Pid>> {
        const WHAT: &str = "who is in it";
        let failed = |errno: Errno| failed(errno, WHAT);
        for mount in Cgroup::MOUNTS {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let path = format!("{mount}{}", self.cgroup.path);
            let directory = match open(path, flags, Mode::empty()) {
                Ok(directory) => directory,
                Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => continue,
                Err(errno) => return Err(failed(errno)),
            };
            let held = fstat(&directory).map_err(failed)?;
            if !is_file(&held, self.cgroup.file) {
                continue;
            }
            if held.st_uid != self.owner.0 {
                return Err(Unknown::new(Reason::Unsound, "it belongs to another user"));
            }
            let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let file = match openat(&directory, "cgroup.procs", flags, Mode::empty()) {
                Ok(file) => std::fs::File::from(file),
                // Removed between the two opens.
                Err(Errno::NOENT | Errno::NODEV) => return Ok(Vec::new()),
                Err(errno) => return Err(failed(errno)),
            };
            let mut text = String::new();
            let length = file.take(LIST_MOST).read_to_string(&mut text);
            let length = length.map_err(|error| failed(Errno::from_io_error(&error).unwrap_or(Errno::IO)))?;
            if u64::try_from(length).unwrap_or(LIST_MOST) >= LIST_MOST {
                return Err(Unknown::new(Reason::Truncated, WHAT));
            }
            return Ok(text.lines().filter_map(|line| line.parse().ok().and_then(Pid::new)).collect());
        }
        Ok(Vec::new())
    }
}

/// Says whether this is the very file.
fn is_file(stat: &Stat, file: FileId) -> bool {
    unsigned(stat.st_dev) == file.dev && unsigned(stat.st_ino) == file.ino
}

/// The fields of stat(2) differ in width and sign between systems; what does not fit is nobody's number.
fn unsigned(number: impl TryInto<u64>) -> u64 {
    number.try_into().unwrap_or(u64::MAX)
}
