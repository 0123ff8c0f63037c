//! The way to a socket's file as a process means its path: its root directory, and whose ids may go there.

use std::os::fd::OwnedFd;

use bstr::BStr;
use rustix::fs::OFlags;

use crate::model::id::{FileId, ProcessId};
use crate::model::known::{Known, Reason, Unknown};

use super::bound::is;
use super::directory::stat_of;
use super::facts::TEXT_MOST;
use super::path::{beneath, lookup};
use super::pinned::Pinned;
use super::status;

/// The root directory of a process, held, and its real user and group.
#[derive(Debug)]
pub(in crate::observe) struct Way {
    root: OwnedFd,
    /// Its real user.
    pub(in crate::observe) user: u32,
    /// Its real group.
    pub(in crate::observe) group: u32,
}

/// Opens the way of a process.
pub(in crate::observe) fn way(of: ProcessId) -> Known<Way> {
    let pinned = Pinned::open(of)?;
    let root = pinned.root()?;
    let status = status::parse(&pinned.read(c"status", TEXT_MOST)?);
    let (Some(user), Some(group)) = (status.uid, status.gid) else {
        return Err(Unknown::new(Reason::Unsupported, "status does not tell the user and group"));
    };
    pinned.row()?;
    Ok(Way { root, user: user.0, group })
}

impl Way {
    /// Returns a reference to the socket's file at a path, links followed; anything else there is unknown.
    pub(in crate::observe) fn to(&self, path: &BStr, file: FileId) -> Known<OwnedFd> {
        if !path.starts_with(b"/") || path.contains(&0) {
            return Err(Unknown::new(Reason::Unsupported, "going to a socket that has no absolute path"));
        }
        let found = beneath(&self.root, path, OFlags::PATH).map_err(lookup)?;
        if is(&stat_of(&found)?, file) {
            Ok(found)
        } else {
            Err(Unknown::new(Reason::Unsound, format!("{path} is another file than its socket's")))
        }
    }
}
