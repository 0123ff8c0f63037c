//! What judge remembers between looks, and between runs.

use serde::{Deserialize, Serialize};

use crate::model::id::{FileId, ProcessId};
use crate::model::moment::Moment;

/// What judge remembers. Keyed by identity and boot; it forgets what is gone.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {}

impl Ledger {
    /// Returns the process that was `root`'s living parent when it was first seen: its spawner.
    pub fn spawner(&self, _root: ProcessId) -> Option<ProcessId> {
        None
    }

    /// Returns whom a bare process number named when it was last seen alive for this root.
    pub fn owner(&self, _root: ProcessId, _pid: crate::model::id::Pid) -> Option<ProcessId> {
        None
    }

    /// Returns the identities of a captured directory and of its parent as recorded while it was there.
    pub fn directory(&self, _root: ProcessId, _path: &bstr::BStr) -> Option<(FileId, FileId)> {
        None
    }

    /// Returns since when a tree has used no processor time and moved no bytes.
    pub fn quiet_since(&self, _root: ProcessId) -> Option<Moment> {
        None
    }

    /// Says whether a matched tree by this policy with this capture value was ever seen in this boot.
    pub fn has_seen(&self, _policy: &str, _capture: &str, _value: &bstr::BStr) -> bool {
        false
    }
}
