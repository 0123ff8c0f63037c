//! What judge says of each command that was started inside a container later (`docker exec`). It is only ever told:
//! nothing that plans or acts meets it.

use bstr::BString;
use serde::{Deserialize, Serialize};

use super::{ContainerRef, Listed};
use crate::model::id::ProcessId;
use crate::model::known::Known;
use crate::model::moment::Moment;

/// One command inside a container, with what was seen of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExecJudgement {
    /// In which container.
    pub at: ContainerRef,
    /// What the list said of that.
    pub listed: Listed,
    /// The engine's id for the command.
    pub exec: String,
    /// Its arguments; empty where the engine did not say.
    pub argv: Vec<BString>,
    /// Its first process, where that is one of ours.
    pub init: Known<ProcessId>,
    /// That and everything below it; empty where it is not ours to see.
    pub tree: Vec<ProcessId>,
    /// Resident memory of these, bytes.
    pub resident: u64,
    /// When it began, by its first process.
    pub began: Known<Moment>,
    /// What was decided.
    pub fate: ExecFate,
    /// The reason that decided, in words for a person; a lowercase fragment.
    pub because: String,
}

/// Whether somebody can still use a command inside a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ExecFate {
    /// Nobody: its input ended, and its client is gone.
    LeftBehind,
    /// Somebody, as far as we know, or it is meant to stay.
    Used,
    /// Something that decides could not be read.
    CannotTell,
}
