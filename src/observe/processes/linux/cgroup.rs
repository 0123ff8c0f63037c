//! Which cgroup a process is in, and whether that is frozen (cgroups(7)).

use std::sync::OnceLock;

use bstr::{BStr, BString, ByteSlice as _};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::model::facts::Freezer;
use crate::model::known::{Known, Reason, Unknown};

use super::mounts;
use super::pinned::{Fault, bounded, unknown};

/// Longest file of a cgroup that is read.
const TEXT_MOST: usize = 4096;

/// One line of `/proc/PID/cgroup`: hierarchy number, controllers, path.
struct Line<'a> {
    hierarchy: &'a [u8],
    controllers: &'a [u8],
    path: &'a BStr,
}

fn lines(text: &[u8]) -> impl Iterator<Item = Line<'_>> {
    text.lines().filter_map(|line| {
        let mut parts = line.splitn_str(3, b":");
        let (hierarchy, controllers) = (parts.next()?, parts.next()?);
        let path = parts.next().filter(|path| path.starts_with(b"/"))?;
        Some(Line { hierarchy, controllers, path: path.as_bstr() })
    })
}

fn unified(text: &[u8]) -> Option<&BStr> {
    lines(text).find(|line| line.hierarchy == b"0" && line.controllers.is_empty()).map(|line| line.path)
}

/// Returns the path in the unified hierarchy. Where that is the bare root, as on hybrid hosts whose service manager
/// still uses its own named hierarchy, the path there.
pub(super) fn path(text: &[u8]) -> Known<BString> {
    let unified = unified(text);
    let named = || lines(text).find(|line| line.controllers == b"name=systemd").map(|line| line.path);
    unified
        .filter(|path| *path != "/")
        .or_else(named)
        .or(unified)
        .map(BString::from)
        .ok_or_else(|| Unknown::new(Reason::Unsupported, "its cgroup is in no hierarchy that names services"))
}

/// Says whether the process's cgroup, or one above it, is frozen: in the unified hierarchy or by the version 1
/// freezer. *Thawed* is said only where every freezer that could hold it was read.
pub(super) fn freezer(text: &[u8]) -> Known<Freezer> {
    let first = match unified(text) {
        Some(path) => state(hierarchies()?.unified.as_ref(), path, "cgroup.events", unified_state)?,
        None => Freezer::Thawed,
    };
    let old = lines(text).find(|line| line.controllers.split_str(b",").any(|name| name == b"freezer"));
    let second = match old {
        Some(line) => state(hierarchies()?.freezer.as_ref(), line.path, "freezer.state", old_state)?,
        None => Freezer::Thawed,
    };
    Ok(if first == Freezer::Frozen || second == Freezer::Frozen { Freezer::Frozen } else { Freezer::Thawed })
}

fn unified_state(text: &[u8]) -> Option<Freezer> {
    text.lines().find_map(|line| match line {
        b"frozen 1" => Some(Freezer::Frozen),
        b"frozen 0" => Some(Freezer::Thawed),
        _ => None,
    })
}

fn old_state(text: &[u8]) -> Option<Freezer> {
    match text.trim_ascii() {
        b"THAWED" => Some(Freezer::Thawed),
        b"FROZEN" | b"FREEZING" => Some(Freezer::Frozen),
        _ => None,
    }
}

fn state(
    mounted: Option<&Hierarchy>,
    path: &BStr,
    file: &str,
    read: impl Fn(&[u8]) -> Option<Freezer>,
) -> Known<Freezer> {
    // The root of a hierarchy cannot be frozen and has no such file.
    if path == "/" {
        return Ok(Freezer::Thawed);
    }
    let what = "reading whether its cgroup is frozen";
    let hierarchy = mounted.ok_or_else(|| Unknown::new(Reason::Unsupported, what))?;
    let mut full = hierarchy.at(path)?;
    full.push(b'/');
    full.extend_from_slice(file.as_bytes());
    let opened = rustix::fs::open(full.as_bytes(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let text = match opened.map_err(Fault::Errno).and_then(|file| bounded(file, TEXT_MOST)) {
        Ok(text) => text,
        // The cgroup was removed, or the freezer is older than this file: neither says thawed.
        Err(Fault::Errno(Errno::NOENT)) => return Err(Unknown::new(Reason::Vanished, what)),
        Err(Fault::Errno(errno)) => return Err(unknown(errno, what)),
        Err(Fault::More) => return Err(Unknown::new(Reason::Truncated, what)),
    };
    read(&text).ok_or_else(|| Unknown::new(Reason::Unsupported, what))
}

/// Where a hierarchy is mounted, and which part of it.
#[derive(Debug)]
struct Hierarchy {
    root: BString,
    point: BString,
}

impl Hierarchy {
    /// Returns where a cgroup's directory is. A container may have only a part of the hierarchy mounted, and
    /// cgroup namespaces show what is outside as `/..`.
    fn at(&self, path: &BStr) -> Known<BString> {
        let foreign = || Unknown::new(Reason::Foreign, "finding its cgroup");
        let below = if self.root == "/" {
            path.as_bytes()
        } else {
            path.strip_prefix(self.root.as_slice())
                .filter(|rest| rest.is_empty() || rest[0] == b'/')
                .ok_or_else(foreign)?
        };
        if below.split_str(b"/").any(|part| part == b"..") {
            return Err(foreign());
        }
        let mut full = self.point.clone();
        full.extend_from_slice(below);
        Ok(full)
    }
}

#[derive(Debug)]
struct Hierarchies {
    unified: Option<Hierarchy>,
    freezer: Option<Hierarchy>,
}

/// Returns the cgroup mounts. They are made at boot and stay, so one look at them is enough.
fn hierarchies() -> Known<&'static Hierarchies> {
    static FOUND: OnceLock<Hierarchies> = OnceLock::new();
    if let Some(found) = FOUND.get() {
        return Ok(found);
    }
    let text = std::fs::read("/proc/self/mountinfo").map_err(|error| {
        unknown(Errno::from_io_error(&error).unwrap_or(Errno::IO), "reading our own mounts")
    })?;
    let mut found = Hierarchies { unified: None, freezer: None };
    for mount in mounts::parse(&text) {
        let hierarchy = Hierarchy { root: mount.root, point: mount.point };
        if mount.kind == "cgroup2" {
            found.unified = Some(hierarchy);
        } else if mount.kind == "cgroup" && mount.options.split_str(b",").any(|option| option == b"freezer") {
            found.freezer = Some(hierarchy);
        }
    }
    Ok(FOUND.get_or_init(|| found))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_hierarchy_that_names_services() {
        assert_eq!(path(b"0::/user.slice/a.service\n").unwrap(), "/user.slice/a.service");
        assert_eq!(path(b"9:name=systemd:/s/b.service\n6:freezer:/x\n0::/\n").unwrap(), "/s/b.service");
        assert_eq!(path(b"9:name=systemd:/s\n0::/u:v\n").unwrap(), "/u:v");
        assert_eq!(path(b"0::/\n").unwrap(), "/");
        assert!(path(b"6:freezer:/x\n").is_err());
        assert!(path(b"").is_err());
    }

    #[test]
    fn states_as_the_kernel_writes_them() {
        assert_eq!(unified_state(b"populated 1\nfrozen 1\n"), Some(Freezer::Frozen));
        assert_eq!(unified_state(b"populated 1\nfrozen 0\n"), Some(Freezer::Thawed));
        assert_eq!(unified_state(b"populated 1\n"), None, "no line is not thawed");
        assert_eq!(old_state(b"FREEZING\n"), Some(Freezer::Frozen));
        assert_eq!(old_state(b"?"), None);
    }

    #[test]
    fn the_root_cannot_be_frozen_and_the_unmounted_is_unknown() {
        assert_eq!(state(None, "/".into(), "cgroup.events", unified_state), Ok(Freezer::Thawed));
        let unread = state(None, "/a".into(), "cgroup.events", unified_state).unwrap_err();
        assert_eq!(unread.reason, Reason::Unsupported);
    }

    #[test]
    fn parts_of_a_hierarchy() {
        let part = Hierarchy { root: "/docker/1".into(), point: "/sys/fs/cgroup".into() };
        assert_eq!(part.at("/docker/1/a".into()).unwrap(), "/sys/fs/cgroup/a");
        assert_eq!(part.at("/docker/12".into()).unwrap_err().reason, Reason::Foreign);
        let whole = Hierarchy { root: "/".into(), point: "/c".into() };
        assert_eq!(whole.at("/../x".into()).unwrap_err().reason, Reason::Foreign);
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(text in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = path(&text);
            let _ = lines(&text).count();
        }
    }
}
