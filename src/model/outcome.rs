//! What became of each step. "Signalled" is never reported as "gone".

use serde::{Deserialize, Serialize};

use super::id::ProcessId;
use super::moment::Moment;
use super::plan::{Signal, Spared};

/// What became of one teardown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The root of the tree.
    pub root: ProcessId,
    /// The policy that condemned it.
    pub policy: String,
    /// Why nothing was done, where the re-check right before the first signal stopped it.
    pub stood_down: Option<String>,
    /// What became of each member, newborn ones included.
    pub members: Vec<MemberOutcome>,
    /// Related processes that were left alone.
    pub spared: Vec<Spared>,
    /// Whether the tree is surely gone.
    pub closure: Closure,
    /// When it began and when it was over.
    pub span: (Moment, Moment),
}

/// How sure we are that nothing of a tree is left.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Closure {
    /// Every member was seen gone, and two walks for newborn ones came back empty.
    Gone,
    /// Members are left.
    Survivors,
    /// Every member that was ever seen is gone, but newborn ones kept coming until the cap on rounds or time.
    NotProven,
    /// Nothing was signalled.
    Untouched,
}

/// What became of one member.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberOutcome {
    /// Who.
    pub id: ProcessId,
    /// Its command name.
    pub name: String,
    /// The signals it was sent, in order.
    pub signals: Vec<Signal>,
    /// What became of it.
    pub outcome: Outcome,
    /// When it was seen gone.
    pub gone: Option<Moment>,
}

/// What became of one process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Outcome {
    /// It was seen gone, and the last signal before was this one.
    Exited(Signal),
    /// It went without having been signalled.
    AlreadyGone,
    /// What bears the number is not surely the recorded process any more: nothing was sent.
    IdentityChanged,
    /// The kernel refused the signal (EPERM).
    Denied,
    /// It is still there after the last rung; the text says in which state.
    Survived(String),
}
