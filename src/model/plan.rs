//! What is to be done: printed by a dry run, carried out by act.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::container::stop::Containers;
use super::evidence::Cause;
use super::id::{Identity, ProcessId};
use super::residue::Removal;
use super::verdict::Judgement;

/// Everything one sweep would do.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Plan {
    /// Trees to tear down, oldest suspicion first.
    pub teardowns: Vec<Teardown>,
    /// Proven, but not now.
    pub waiting: Vec<Waiting>,
    /// What trees left behind.
    #[serde(default)]
    pub residue: Residue,
    /// Containers.
    #[serde(default)]
    pub containers: Containers,
}

/// What would be removed of what trees left behind.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Residue {
    /// What goes, oldest first; what belongs to a tree of this plan goes once that is seen gone.
    pub removals: Vec<Removal>,
    /// What is left for now, with the reason.
    pub waiting: Vec<(Removal, Spare)>,
    /// What stays, and why.
    pub kept: Vec<(Removal, String)>,
}

/// Why residue is left for now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spare {
    /// Its policy, or the whole configuration, only reports.
    ReportOnly,
    /// More at once than one sweep removes; the next one goes on.
    Pace,
}

/// A proven tree that this plan leaves alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// The tree.
    pub judgement: Judgement,
    /// Why it waits.
    pub why: Wait,
}

/// Why a proven tree is left alone for now.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Wait {
    /// Its policy, or the whole configuration, only reports.
    ReportOnly,
    /// Pace: more than `trees-per-sweep`; the next sweep takes it.
    Pace,
    /// Breaker: too many verdicts hang on this one cause. Waits for `reapd release`, never merely for time.
    SameCause(Cause),
    /// More than `processes-per-tree` members: held for a person.
    TooLarge(usize),
    /// Its identity is not fully known, so nothing may be signalled.
    Unidentified,
    /// It listens by a name that another server has by now, which it would remove when asked to end; and its ladder
    /// never kills.
    Successor,
    /// It is a member of this other tree, which goes as a whole.
    PartOf(ProcessId),
}

/// One tree's teardown: who goes, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Teardown {
    /// The judgement that it rests on.
    pub judgement: Judgement,
    /// The root first, then the others, parents before children.
    pub members: Vec<Member>,
    /// Related processes that are left alone, with the reason: pruned subtrees and possible escapes.
    pub spared: Vec<Spared>,
    /// The signals and how long each is given.
    pub ladder: Ladder,
}

/// One process of a tree that is to go.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Who it is.
    pub identity: Identity,
    /// What made it a member.
    pub joined: Joined,
    /// Its command name, for the report.
    pub name: String,
}

/// What makes a process a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Joined {
    /// It is the root.
    Root,
    /// It descends from a member.
    Descendant,
    /// It is in the session that the root leads, with a witness.
    Session,
    /// It is in the process group that the root leads, with a witness.
    Group,
    /// It carries the tree's lease cookie.
    Cookie,
    /// It is in a cgroup that reapd made for this tree.
    Cgroup,
}

/// A process that is related to a tree and is left alone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Spared {
    /// Who.
    pub id: ProcessId,
    /// Why, for a person; a lowercase fragment.
    pub why: String,
}

/// Signals with the time each is given.
///
/// Without a KILL rung, what is left is reported, not killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ladder(pub Vec<Rung>);

/// One rung: a signal, and how long it is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Rung {
    /// The signal.
    pub signal: Signal,
    /// How long members have to go before the next rung.
    pub grace: Duration,
}

/// Signals a ladder may hold (signal(7)). STOP is not among them: it hangs up orphaned groups, and a crash between
/// STOP and KILL would leave live work frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "UPPERCASE")]
pub enum Signal {
    /// SIGHUP.
    Hup,
    /// SIGINT.
    Int,
    /// SIGQUIT.
    Quit,
    /// SIGUSR1.
    Usr1,
    /// SIGUSR2.
    Usr2,
    /// SIGTERM.
    Term,
    /// SIGKILL.
    Kill,
}

impl Signal {
    /// All of them, mildest first.
    pub const ALL: [Signal; 7] =
        [Signal::Hup, Signal::Int, Signal::Quit, Signal::Usr1, Signal::Usr2, Signal::Term, Signal::Kill];

    /// Returns the name without `SIG`, as ladders write it.
    pub fn name(self) -> &'static str {
        match self {
            Signal::Hup => "HUP",
            Signal::Int => "INT",
            Signal::Quit => "QUIT",
            Signal::Usr1 => "USR1",
            Signal::Usr2 => "USR2",
            Signal::Term => "TERM",
            Signal::Kill => "KILL",
        }
    }
}
