//! Where there are no cgroups, a command is never in one.

use std::ffi::OsString;

use rustix::process::Pid;

use super::signals::Signals;
use super::watch::Group;
use crate::model::lease::{Cgroup, LeaseId};

/// The cgroup that was made for a command: there is none.
#[derive(Debug)]
pub(super) enum Own {}

impl Own {
    /// Makes none.
    pub(super) fn make(_lease: &LeaseId) -> Option<Own> {
        None
    }

    /// Returns what the lease records.
    pub(super) fn cgroup(&self) -> &Cgroup {
        match *self {}
    }

    /// Starts nothing.
    pub(super) fn start(&self, _: &[OsString], _: &LeaseId, _: &Signals, _: Group) -> Option<Pid> {
        match *self {}
    }

    /// Removes nothing.
    pub(super) fn remove(&self) {
        match *self {}
    }
}
