//! Asks what descriptors are and what sockets a process has, sharing one dump of the kernel's sockets in a look.

use crate::model::id::ProcessId;
use crate::model::known::Known;
use crate::model::question::{Channel, Holders, Sockets};
use crate::model::table::Table;

#[cfg(target_os = "linux")]
use super::{sockets, stdio};

/// The channels of one look. The dump is taken when it is first needed.
#[cfg(target_os = "linux")]
pub(super) struct Channels {
    dump: sockets::Dump,
}

#[cfg(target_os = "linux")]
impl Channels {
    /// Returns channels that have dumped nothing yet.
    pub(super) fn new() -> Channels {
        Channels { dump: sockets::Dump::new() }
    }

    /// Lends the dump.
    pub(super) fn dump(&mut self) -> &mut sockets::Dump {
        &mut self.dump
    }

    /// Returns what a descriptor is.
    pub(super) fn channel(&mut self, of: ProcessId, fd: u32) -> Known<Channel> {
        stdio::channel(of, fd, &mut self.dump)
    }

    /// Returns who holds the far end of a descriptor.
    pub(super) fn holders(&mut self, of: ProcessId, fd: u32, table: &Table) -> Known<Holders> {
        stdio::holders(of, fd, table, &mut self.dump)
    }

    /// Returns the sockets of a process.
    pub(super) fn sockets(&mut self, of: ProcessId) -> Known<Sockets> {
        sockets::sockets(of, &mut self.dump)
    }

    /// Returns the terminals whose master side a process holds.
    #[expect(clippy::unused_self, reason = "all questions about descriptors go one way")]
    pub(super) fn terminals(&mut self, of: ProcessId) -> Known<Vec<i32>> {
        stdio::terminals(of)
    }
}

/// The channels of one look. macOS tells of one process at a time, so there is nothing to share.
#[cfg(not(target_os = "linux"))]
pub(super) struct Channels;

#[cfg(not(target_os = "linux"))]
#[expect(
    clippy::unused_self,
    reason = "the same signatures as on Linux, where the channels of a look share a dump"
)]
impl Channels {
    /// Returns the channels of a look.
    pub(super) fn new() -> Channels {
        Channels
    }

    /// Returns what a descriptor is.
    pub(super) fn channel(&mut self, of: ProcessId, fd: u32) -> Known<Channel> {
        super::processes::channel(of, fd)
    }

    /// Returns who holds the far end of a descriptor.
    pub(super) fn holders(&mut self, of: ProcessId, fd: u32, _table: &Table) -> Known<Holders> {
        super::processes::holders(of, fd)
    }

    /// Returns the sockets of a process.
    pub(super) fn sockets(&mut self, of: ProcessId) -> Known<Sockets> {
        super::processes::sockets(of)
    }

    /// Returns the terminals whose master side a process holds.
    pub(super) fn terminals(&mut self, of: ProcessId) -> Known<Vec<i32>> {
        super::processes::terminals(of)
    }
}
