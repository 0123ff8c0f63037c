//! What judge says of each container that a policy looked at.

use bstr::BString;
use serde::{Deserialize, Serialize};

use super::{ContainerRef, ContainerRun, Listed};
use crate::model::evidence::{Cause, Evidence};
use crate::model::id::ProcessId;
use crate::model::known::Known;
use crate::model::moment::Moment;
use crate::model::verdict::{LineFinding, Mode, Verdict};

/// One container under one policy, with everything that was seen of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContainerJudgement {
    /// Which container.
    pub at: ContainerRef,
    /// Which run of it; unknown forbids every step.
    pub run: Known<ContainerRun>,
    /// What the list said of it.
    pub listed: Listed,
    /// The policy's name.
    pub policy: String,
    /// What the policy may do.
    pub mode: Mode,
    /// What it was asked to run, entry point included; empty where it was not asked for.
    pub argv: Vec<BString>,
    /// The values of the policy's captures.
    pub captures: Vec<(String, BString)>,
    /// What was decided.
    pub verdict: Verdict,
    /// The reason that decided, in words for a person; a lowercase fragment.
    pub because: String,
    /// Each line that was weighed, with what its rules saw. A line is cut short where it cannot hold any more.
    pub lines: Vec<LineFinding>,
    /// Each veto that was looked at.
    pub vetoes: Vec<Evidence>,
    /// Its processes, where they are ours to see: its first one and everything below it.
    pub tree: Known<Vec<ProcessId>>,
    /// Resident memory of these, bytes.
    pub resident: u64,
    /// When this run began.
    pub began: Known<Moment>,
    /// What the deciding line hangs on that may fail for many at once.
    pub causes: Vec<Cause>,
    /// Why a kept container may look leaked to a person, for the report's counts; `None` when it does not.
    pub lookalike: Option<ContainerLookalike>,
    /// What a person can do so that it can be told next time; for verdicts that are unknown.
    pub cure: Option<String>,
}

/// Why a container that is kept may look leaked.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ContainerLookalike {
    /// This client of the engine is, or may be, its own.
    Client(ProcessId),
    /// Nobody seems to be its client, and that cannot be told for sure.
    CannotTell,
    /// Matched by a policy that only reports.
    ReportOnly,
    /// A line of `reap-when` holds, and this veto, or this rule of a `spare-when` line, keeps it.
    Vetoed(String),
}
