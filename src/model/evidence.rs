//! What a rule saw.

use bstr::BString;
use serde::{Deserialize, Serialize};

use super::container::EngineId;
use super::rule::Strength;

/// What one rule, or one veto, saw of one tree at one look.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Evidence {
    /// The rule's or the veto's name.
    pub rule: String,
    /// What a positive finding is worth.
    pub strength: Strength,
    /// The three-valued finding.
    pub says: Says,
    /// Why, for a person; a lowercase fragment.
    pub why: String,
    /// What the finding hangs on that could fail for many trees at once. Held-inode evidence has none.
    pub cause: Option<Cause>,
}

/// Three-valued findings.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Says {
    /// What the rule is named for is so.
    Yes,
    /// It is not so.
    No,
    /// Could not tell.
    Unknown,
}

/// One thing that many verdicts can hang on; when it fails, they are all wrong together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cause {
    /// Absences below one mount point.
    Mount(BString),
    /// One registry.
    Registry(String),
    /// A step of the clock.
    Clock,
    /// What one engine's clients look like, where nothing but that says so.
    Engine(EngineId),
}
