//! What judge says of each tree that a policy looked at.

use bstr::BString;
use serde::{Deserialize, Serialize};

use super::container::judgement::ContainerJudgement;
use super::container::leftover::ExecJudgement;
use super::evidence::{Cause, Evidence};
use super::id::{Identity, ProcessId, Uid};
use super::known::Known;
use super::lease::{Cgroup, LeaseId};
use super::moment::Moment;

/// The verdict on one tree under one policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Verdict {
    /// Never touched, whatever the evidence says.
    Protected,
    /// A line does not hold, or a veto holds: somebody can still use it, as far as we know.
    Alive,
    /// Something that decides could not be read. Kept.
    Unknown,
    /// A line holds and nothing vetoes, but not for long enough or not often enough yet.
    Suspect {
        /// Since the first look of the unbroken row.
        since: Moment,
        /// Looks that agreed so far, this one included.
        looks: u32,
    },
    /// Confirmed: proven at as many looks as `[confirm]` asks, far enough apart.
    Orphaned {
        /// Since the first look of the unbroken row.
        since: Moment,
    },
}

/// One tree under one policy, with everything that was seen of it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Judgement {
    /// The root of the tree.
    pub root: ProcessId,
    /// What must still be as recorded before a signal; unknown forbids one.
    pub identity: Known<Identity>,
    /// The root's user.
    pub uid: Uid,
    /// The policy's name.
    pub policy: String,
    /// What the policy may do.
    pub mode: Mode,
    /// What the tree was called when judged: the root's argument vector.
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
    /// The root and everything below it, for counting; who really goes is for plan to say.
    pub tree: Vec<ProcessId>,
    /// Resident memory of the tree, bytes.
    pub resident: u64,
    /// When the root began.
    pub began: Moment,
    /// What the deciding line hangs on that may fail for many at once.
    pub causes: Vec<Cause>,
    /// Why a kept tree may look leaked to a person, for the report's counts; `None` when it does not.
    pub lookalike: Option<Lookalike>,
}

/// One line of `reap-when` or `spare-when` as weighed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LineFinding {
    /// Its place in the list, from 0.
    pub line: usize,
    /// Which list it stands in.
    pub list: LineList,
    /// Whether all of it holds; unknown when nothing fails and something is unknown.
    pub says: super::evidence::Says,
    /// What its rules saw, in order.
    pub evidence: Vec<Evidence>,
}

/// The two lists of a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum LineList {
    /// `reap-when`.
    ReapWhen,
    /// `spare-when`.
    SpareWhen,
}

/// Why a tree that is kept may look leaked, so that the report can group and count.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Lookalike {
    /// A live process holds the far end of its stdin; from outside nobody can tell forgotten from idle.
    HeldBy(ProcessId),
    /// Its stdin ended but its answers are still read, or it can be reached in other ways.
    StdinEnded,
    /// Matched by a policy that only reports.
    ReportOnly,
    /// It was adopted by a reaper, and no proof came of it.
    Adopted,
    /// A line of `reap-when` holds, and this veto, or this rule of a `spare-when` line, keeps it.
    Vetoed(String),
}

/// What may be done with what is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// Look at nothing.
    Off,
    /// Only tell.
    Report,
    /// Tear down what is proven.
    Reap,
}

/// All judgements of one look, and where the look was blind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Verdicts {
    /// One per tree and policy, sorted by root and policy.
    pub judgements: Vec<Judgement>,
    /// What policies that are off and only offered say, sorted in the same way. Nothing is ever done by them.
    #[serde(default)]
    pub offered: Vec<Judgement>,
    /// Every process of a judged tree that must not be touched, with the reason; plan prunes it with its subtree. It is
    /// protected for its own sake, or the policy matches it as well and somebody outside the tree holds its stdin or
    /// stdout.
    pub protected: Vec<(ProcessId, String)>,
    /// What leases say of members.
    #[serde(default)]
    pub leased: Leased,
    /// One per container and policy, sorted by container and policy.
    #[serde(default)]
    pub containers: Vec<ContainerJudgement>,
    /// One per command that was started inside a container later, where one may have been left behind; sorted by
    /// container and id. They are only told: nothing that plans or acts looks in here.
    #[serde(default)]
    pub execs: Vec<ExecJudgement>,
}

/// What plan must know of leases; nothing while no tree is condemned.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Leased {
    /// Every lease that does not count as over.
    pub claims: Vec<Claim>,
    /// The leases that cover the root of each condemned tree.
    pub trees: Vec<TreeLease>,
}

/// A lease that holds, or of which it is not known: whoever it names goes with no tree but that of its keepers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claim {
    /// The lease; nothing where its file could not be understood.
    pub lease: Option<LeaseId>,
    /// Its user; nothing where that could not be told, and so everybody's.
    pub owner: Option<Uid>,
    /// The cookie of whom it covers.
    pub cookie: Option<BString>,
    /// Whom it names, its watcher included.
    pub processes: Vec<ProcessId>,
    /// Its living holder and watcher. Empty where they cannot be told.
    pub keepers: Vec<ProcessId>,
    /// Why it holds, for a person; a lowercase fragment.
    pub why: String,
}

/// A lease that covers the root of a condemned tree.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TreeLease {
    /// The root.
    pub root: ProcessId,
    /// The lease's user.
    pub owner: Uid,
    /// The lease.
    pub lease: LeaseId,
    /// The cookie of whom it covers.
    pub cookie: Option<BString>,
    /// The cgroup that `reapd run` made for it.
    pub cgroup: Option<Cgroup>,
}
