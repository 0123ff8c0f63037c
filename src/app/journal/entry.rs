//! The lines of the journal: a format of its own version, read by `log`, by `why` and after a crash.

use serde::{Deserialize, Serialize};

use crate::model::container::ContainerRef;
use crate::model::container::stop::{Stop, StopReport, StopStep};
use crate::model::id::{BootId, ProcessId};
use crate::model::moment::Moment;
use crate::model::outcome::Report;
use crate::model::plan::{Signal, Teardown};
use crate::model::residue::{Cleared, Removal};

/// The version that is written. Lines of another are skipped when reading.
pub const VERSION: u32 = 1;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Entry {
    /// The version of the format.
    pub v: u32,
    /// When, milliseconds of the wall clock since the epoch.
    pub at: u64,
    /// The run of the kernel; process numbers mean nothing outside it.
    pub boot: BootId,
    /// The pid namespace; process numbers mean others in another, and a container has the boot id of its host.
    /// Nothing where it was not known, and in lines from before it was written down.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pid_namespace: Option<u64>,
    /// The sweep, by the wall clock when it began.
    pub sweep: u64,
    /// When, on the boot clock.
    pub clock: Moment,
    /// What.
    pub event: Event,
}

/// What happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Event {
    /// This is about to be torn down; on the disk before the first signal.
    Intent {
        /// The judgement, the members and the ladder.
        teardown: Box<Teardown>,
        /// At whose word.
        by: By,
    },
    /// A rung: this signal goes to these.
    Signalled {
        /// The tree.
        root: ProcessId,
        /// The signal.
        signal: Signal,
        /// To whom.
        to: Vec<ProcessId>,
    },
    /// Everybody in the cgroup that `reapd run` made for this tree is killed at once; all of them are members.
    GroupKilled {
        /// The tree.
        root: ProcessId,
        /// The cgroup, as in `/proc/PID/cgroup`.
        cgroup: String,
        /// Who was in it.
        members: Vec<ProcessId>,
    },
    /// These were seen gone.
    SeenGone {
        /// The tree.
        root: ProcessId,
        /// Who.
        ids: Vec<ProcessId>,
    },
    /// What became of it.
    Outcome {
        /// The report.
        report: Box<Report>,
    },
    /// This, which a tree left behind, is about to be removed; on the disk before anything of it is.
    ResidueIntent {
        /// What.
        removal: Box<Removal>,
        /// At whose word.
        by: By,
    },
    /// What became of it.
    ResidueOutcome {
        /// That.
        cleared: Box<Cleared>,
    },
    /// This container is about to be stopped; on the disk before the first call.
    StopIntent {
        /// The judgement, the run that is meant, and how.
        stop: Box<Stop>,
        /// At whose word.
        by: By,
    },
    /// This is about to be done to it; on the disk before it is.
    StopStep {
        /// The container.
        at: ContainerRef,
        /// What.
        step: StopStep,
    },
    /// What became of it.
    StopOutcome {
        /// The report.
        report: Box<StopReport>,
    },
    /// A teardown that a crash cut short is not gone on with.
    Abandoned {
        /// The tree.
        root: ProcessId,
        /// Why.
        why: String,
    },
}

impl Event {
    /// Returns the root of the tree that it is about; nothing where it is about what one left behind, or a container.
    pub fn root(&self) -> Option<ProcessId> {
        Some(match self {
            Event::ResidueIntent { .. }
            | Event::ResidueOutcome { .. }
            | Event::StopIntent { .. }
            | Event::StopStep { .. }
            | Event::StopOutcome { .. } => return None,
            Event::Intent { teardown, .. } => teardown.judgement.root,
            Event::GroupKilled { root, .. }
            | Event::Signalled { root, .. }
            | Event::SeenGone { root, .. }
            | Event::Abandoned { root, .. } => *root,
            Event::Outcome { report } => report.root,
        })
    }
}

/// At whose word something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// A person ran `reapd sweep` and said yes, at the question or with `--yes`.
    Hand,
    /// A timer ran `reapd sweep --once`.
    Once,
    /// `reapd finish`: a lease was over, and whoever said so waited for it.
    Finish,
    /// A crash cut it short, and it was taken up again.
    Resumed,
}
