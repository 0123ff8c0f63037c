//! Sockets of a process, by one dump of the kernel's.

use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::Sockets;

/// The sockets of one look.
#[derive(Debug)]
pub(super) struct Dump;

impl Dump {
    /// Returns a dump that is taken when it is first needed.
    pub(super) fn new() -> Dump {
        Dump
    }
}

/// Returns the sockets of a process.
pub(super) fn sockets(_of: ProcessId, _dump: &mut Dump) -> Known<Sockets> {
    Err(Unknown::new(Reason::Unsupported, "its sockets"))
}
