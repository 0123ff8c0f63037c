//! The cgroup that `reapd run` made for its command (cgroups(7), version 2): who is in it, and the end of all of them at
//! once, which no chain of forks outruns.
//!
//! Everything goes through one descriptor of the directory that the lease recorded, so that no other cgroup is ever
//! written to, whatever bears its name by then.

use std::io::Read as _;
use std::os::fd::OwnedFd;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, Stat, fstat, open, openat, unlinkat};
use rustix::io::Errno;

use crate::model::id::{FileId, Pid, Uid};
use crate::model::lease::{Cgroup, LeaseId};

/// Longest list of members that is read, bytes.
const LIST_MOST: u64 = 1 << 20;

/// A recorded cgroup, open.
#[derive(Debug)]
pub struct Group {
    directory: OwnedFd,
}

/// Why nothing can be done with a cgroup.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// It is not the recorded one: gone, another directory, another user's, or of another lease.
    #[error("the recorded cgroup is not there")]
    Other,
    /// The kernel refuses.
    #[error("the cgroup could not be used")]
    Refused(#[from] Errno),
    /// Somebody is in it who cannot be seen from here (another pid namespace), or the list makes no sense.
    #[error("its members cannot be told")]
    Unseen,
}

impl Group {
    /// Opens the cgroup of a lease, where it is the very directory that was recorded and of the lease's user.
    pub fn open(cgroup: &Cgroup, lease: &LeaseId, owner: Uid) -> Result<Group, GroupError> {
        if !cgroup.is_of(lease) {
            return Err(GroupError::Other);
        }
        for mount in Cgroup::MOUNTS {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let Ok(directory) = open(format!("{mount}{}", cgroup.path), flags, Mode::empty()) else {
                continue;
            };
            let held = fstat(&directory)?;
            if is_file(&held, cgroup.file) && held.st_uid == owner.0 {
                return Ok(Group { directory });
            }
        }
        Err(GroupError::Other)
    }

    /// Returns the numbers of everybody in it, fresh.
    pub fn members(&self) -> Result<Vec<Pid>, GroupError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = std::fs::File::from(openat(&self.directory, "cgroup.procs", flags, Mode::empty())?);
        let mut text = String::new();
        let length = file.take(LIST_MOST).read_to_string(&mut text).map_err(|_| GroupError::Unseen)?;
        if u64::try_from(length).unwrap_or(LIST_MOST) >= LIST_MOST {
            return Err(GroupError::Unseen);
        }
        numbers(&text)
    }

    /// Says whether there is no cgroup inside of it, whose members its list does not show.
    pub fn is_leaf(&self) -> Result<bool, GroupError> {
        for entry in Dir::read_from(&self.directory)? {
            let entry = entry?;
            let is_self = matches!(entry.file_name().to_bytes(), b"." | b"..");
            if !is_self && entry.file_type() != FileType::RegularFile {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Kills everybody in it (`cgroup.kill`, Linux 5.14).
    pub fn kill(&self) -> Result<(), GroupError> {
        let flags = OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = openat(&self.directory, "cgroup.kill", flags, Mode::empty())?;
        rustix::io::write(file, b"1")?;
        Ok(())
    }

    /// Removes the directory, where nobody is in it; the kernel keeps any other.
    pub fn remove(cgroup: &Cgroup, lease: &LeaseId, owner: Uid) -> Result<(), GroupError> {
        let group = Group::open(cgroup, lease, owner)?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let above = openat(&group.directory, "..", flags, Mode::empty())?;
        unlinkat(above, Cgroup::name(lease), AtFlags::REMOVEDIR)?;
        Ok(())
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

/// Reads `cgroup.procs`. A process of another pid namespace is shown as 0.
fn numbers(text: &str) -> Result<Vec<Pid>, GroupError> {
    text.lines().map(|line| line.parse().ok().and_then(Pid::new).ok_or(GroupError::Unseen)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn somebody_who_cannot_be_seen_is_not_left_out_of_a_cgroup() {
        assert_eq!(numbers("7\n12\n").unwrap(), [Pid::new(7).unwrap(), Pid::new(12).unwrap()]);
        assert!(numbers("").unwrap().is_empty());
        for hidden in ["0\n", "7\n0\n", "7\nx\n", "-1\n"] {
            assert!(matches!(numbers(hidden), Err(GroupError::Unseen)), "{hidden}");
        }
    }

    #[test]
    fn a_cgroup_of_another_name_is_never_opened() {
        let lease = LeaseId::new("run-x").unwrap();
        let cgroup = Cgroup { path: "/".to_owned(), file: FileId { dev: 0, ino: 1 } };
        assert!(matches!(Group::open(&cgroup, &lease, Uid(0)), Err(GroupError::Other)));
    }
}
