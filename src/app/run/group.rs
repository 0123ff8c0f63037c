//! A cgroup of its own for the command, where we may make one: below our own, in the unified hierarchy (cgroups(7)).
//!
//! What is started in it cannot leave it by clearing its environment or by sessions of its own. Moving a process into a
//! cgroup waits for every other processor (a few milliseconds); starting it there does not.

use std::ffi::OsString;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::{Duration, SystemTime};

use bstr::ByteSlice as _;
use rustix::fs::{AtFlags, Dir, Mode, OFlags, fstat, fstatfs, mkdirat, open, openat, statat, unlinkat};
use rustix::process::Pid;

use super::signals::Signals;
use super::spawn::Prepared;
use super::watch::Group;
use crate::model::id::FileId;
use crate::model::lease::{COOKIE, Cgroup, LeaseId};

/// `CGROUP2_SUPER_MAGIC` of statfs(2).
const CGROUP2: i64 = 0x6367_7270;

/// An empty cgroup of a run that is younger may be about to be used.
const YOUNG: Duration = Duration::from_mins(1);

/// The cgroup that was made for a command.
#[derive(Debug)]
pub(super) struct Own {
    above: OwnedFd,
    directory: OwnedFd,
    name: String,
    cgroup: Cgroup,
}

impl Own {
    /// Makes one, where it can be. There is no fault that a person should hear of: the command runs all the same.
    pub(super) fn make(lease: &LeaseId) -> Option<Own> {
        let groups = std::fs::read("/proc/self/cgroup").ok()?;
        let above = unified(&groups)?.trim_end_matches('/');
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = Cgroup::MOUNTS.into_iter().find_map(|mount| {
            let found = open(format!("{mount}{above}/"), flags | OFlags::RDONLY, Mode::empty()).ok()?;
            let kind = fstatfs(&found).ok()?.f_type;
            (i128::from(kind) == i128::from(CGROUP2)).then_some(found)
        })?;
        let name = Cgroup::name(lease);
        mkdirat(&opened, name.as_str(), Mode::from_raw_mode(0o755)).ok()?;
        let remove = || unlinkat(&opened, name.as_str(), AtFlags::REMOVEDIR);
        let made = openat(&opened, name.as_str(), flags | OFlags::RDONLY, Mode::empty())
            .and_then(|directory| Ok((fstat(&directory)?, directory)));
        let Ok((stat, directory)) = made else {
            let _ = remove();
            return None;
        };
        let file = FileId { dev: stat.st_dev, ino: stat.st_ino };
        let cgroup = Cgroup { path: format!("{above}/{name}"), file };
        Some(Own { above: opened, directory, name, cgroup })
    }

    /// Returns what the lease records.
    pub(super) fn cgroup(&self) -> &Cgroup {
        &self.cgroup
    }

    /// Starts a command in it; nothing where that could not be done, and then nobody was started.
    pub(super) fn start(
        &self,
        words: &[OsString],
        lease: &LeaseId,
        signals: &Signals,
        group: Group,
    ) -> Option<Pid> {
        Prepared::new(words, (COOKIE, lease.as_str()), signals, group)?.start(self.directory.as_fd())
    }

    /// Removes it, where nobody is in it any more: the kernel keeps any other. Then those of earlier runs beside it that
    /// somebody had stayed in.
    pub(super) fn remove(&self) {
        let _ = unlinkat(&self.above, self.name.as_str(), AtFlags::REMOVEDIR);
        let Ok(beside) = Dir::read_from(&self.above) else { return };
        for entry in beside.flatten() {
            let name = entry.file_name();
            if name.to_bytes().starts_with(b"reapd-run-") && self.is_old(name) {
                let _ = unlinkat(&self.above, name, AtFlags::REMOVEDIR);
            }
        }
    }

    fn is_old(&self, name: &std::ffi::CStr) -> bool {
        let Ok(stat) = statat(&self.above, name, AtFlags::SYMLINK_NOFOLLOW) else { return false };
        let Ok(seconds) = u64::try_from(stat.st_mtime) else { return false };
        let made = SystemTime::UNIX_EPOCH + Duration::from_secs(seconds);
        stat.st_uid == rustix::process::geteuid().as_raw()
            && SystemTime::now().duration_since(made).is_ok_and(|age| age > YOUNG)
    }
}

/// Returns the path in the unified hierarchy, where it is a plain one that can stand in a file.
fn unified(groups: &[u8]) -> Option<&str> {
    let path = groups.lines().find_map(|line| line.strip_prefix(b"0::"))?.to_str().ok()?;
    // Outside of our cgroup namespace the kernel shows `/..`, which is a directory of somebody else's here.
    (path.starts_with('/') && !path.split('/').any(|part| part == "..") && !path.ends_with(" (deleted)"))
        .then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn our_own_place_in_the_unified_hierarchy() {
        assert_eq!(unified(b"9:name=systemd:/x\n0::/user.slice/a\n"), Some("/user.slice/a"));
        assert_eq!(unified(b"0::/\n"), Some("/"));
        for none in [&b"8:pids:/\n"[..], b"", b"0::/../a\n", b"0::/a (deleted)\n", b"0::/\xff\n"] {
            assert_eq!(unified(none), None, "{none:?}");
        }
    }
}
