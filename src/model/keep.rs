//! Keep marks that a person set with `reapd keep`: what is never touched, until when.

use bstr::BString;
use serde::{Deserialize, Serialize};

use super::container::ContainerRef;
use super::id::{BootId, ProcessId};

/// One keep mark.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeepMark {
    /// What is kept.
    pub what: Kept,
    /// Until when, milliseconds of the wall clock since the epoch; `None` for good.
    pub until: Option<u64>,
    /// When it was set, milliseconds of the wall clock since the epoch.
    pub set: u64,
    /// What the person said about it.
    pub note: Option<String>,
}

/// What a keep mark covers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kept {
    /// One process and everything below it.
    Process {
        /// The boot it was seen in.
        boot: BootId,
        /// Who.
        id: ProcessId,
        /// What it was called, for the list.
        name: String,
    },
    /// Whatever stands at or below a directory.
    Directory {
        /// Its absolute path.
        path: BString,
    },
    /// One container.
    Container {
        /// Which.
        at: ContainerRef,
        /// What it was called, for the list.
        name: String,
    },
}
