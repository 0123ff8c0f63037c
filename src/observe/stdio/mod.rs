//! Far ends of descriptors.

use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::{Channel, Holders};
use crate::model::table::Table;

use super::sockets::Dump;

/// Returns what a descriptor is.
pub(super) fn channel(_of: ProcessId, fd: u32, _dump: &mut Dump) -> Known<Channel> {
    Err(Unknown::new(Reason::Unsupported, format!("what descriptor {fd} is")))
}

/// Returns who holds the far end of a descriptor.
pub(super) fn holders(_of: ProcessId, fd: u32, _table: &Table, _dump: &mut Dump) -> Known<Holders> {
    Err(Unknown::new(Reason::Unsupported, format!("who holds the far end of descriptor {fd}")))
}
