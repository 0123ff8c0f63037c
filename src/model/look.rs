//! One look: everything that was seen at one moment, and where we were blind.

use std::collections::BTreeSet;

use bstr::BString;
use serde::{Deserialize, Serialize};

use super::container::Engine;
use super::facts::{Facts, Namespaces};
use super::id::{BootId, Pid, ProcessId, Uid};
use super::keep::KeepMark;
use super::known::{Known, Unknown};
use super::lease::Leases;
use super::moment::Clocks;
use super::question::{Answer, Answers, Question};
use super::table::Table;

/// What the table scan saw, with what is needed to read it.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The run of the kernel.
    pub boot: BootId,
    /// The clocks when the scan began.
    pub began: Clocks,
    /// Every process.
    pub table: Table,
    /// Argument vectors and users of those in scope; a cached one may be stale and never decides.
    pub arguments: Vec<Arguments>,
    /// Who is looking.
    pub own: Own,
    /// MCP servers that the user's own configuration files name.
    pub configured: Vec<McpServer>,
    /// Leases of the users in scope, and the cookies that processes carry.
    pub leases: Leases,
    /// Container engines, sorted by id.
    pub engines: Vec<Engine>,
    /// Where we were blind.
    pub gaps: Vec<Gap>,
}

/// The cheap text of one process, for matching. Sorted by id in [`Snapshot::arguments`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arguments {
    /// Whose.
    pub id: ProcessId,
    /// Its user, as the owner of its `/proc` entry has it.
    pub uid: Uid,
    /// Its argument vector, element by element; empty ones kept. Shared, since most do not change between looks.
    pub argv: Known<std::sync::Arc<[BString]>>,
}

/// The looking process itself: what must never be touched, and whose namespaces ours are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Own {
    /// Our number.
    pub pid: Pid,
    /// Our effective user.
    pub uid: Uid,
    /// Our session.
    pub sid: i32,
    /// Our namespaces.
    pub namespaces: Known<Namespaces>,
    /// Our home directory, for patterns that begin with `~`.
    pub home: Option<BString>,
    /// Whose processes are looked at.
    pub scope: Scope,
}

/// Whose processes are looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Scope {
    /// Our own user's.
    User,
    /// Everybody's; only as root.
    Host,
}

/// A stdio server that a user's MCP configuration file names.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct McpServer {
    /// The name it has there.
    pub name: String,
    /// The file that names it, for a person.
    pub file: String,
    /// The program.
    pub command: BString,
    /// Its arguments, variables expanded.
    pub args: Vec<BString>,
}

/// Something that could not be seen, or only in part. A silent "0 orphans" where we are blind is a defect.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// What could not be seen.
    pub source: String,
    /// Why.
    pub why: Unknown,
    /// What a person can do about it.
    pub cure: Option<String>,
}

/// A snapshot with what was asked beyond it.
#[derive(Debug, Clone)]
pub struct Look {
    /// The cheap facts of everybody.
    pub snapshot: Snapshot,
    /// Processes that reap for others; see [`super::ownership::reapers`].
    pub reapers: BTreeSet<Pid>,
    /// The answers so far.
    pub answers: Answers,
    /// What a person said to keep.
    pub marks: Vec<KeepMark>,
}

impl Gap {
    /// The source of a gap that hides other users' processes: a number that the table does not show may be theirs.
    pub const HIDDEN: &str = "other users' processes";
    /// The source of a gap of processes that are there and could not be read.
    pub const UNREAD: &str = "the process table";
    /// Stands in the source of every gap of the lease directories.
    pub const LEASES: &str = "lease";
}

impl Snapshot {
    /// Returns the cheap text of a process that is in scope.
    pub fn arguments_of(&self, id: ProcessId) -> Option<&Arguments> {
        self.arguments.binary_search_by_key(&id, |entry| entry.id).ok().map(|at| &self.arguments[at])
    }
}

impl Look {
    /// Returns a look that has asked nothing yet.
    pub fn new(snapshot: Snapshot) -> Look {
        let reapers = super::ownership::reapers(&snapshot.table);
        Look { snapshot, reapers, answers: Answers::new(), marks: Vec::new() }
    }

    /// Returns the cheap text of a process that is in scope.
    pub fn arguments(&self, id: ProcessId) -> Option<&Arguments> {
        self.snapshot.arguments_of(id)
    }

    /// Returns the facts of a process, where they were asked.
    pub fn facts(&self, id: ProcessId) -> Option<Known<&Facts>> {
        let answer = match self.answers.get(&Question::Facts(id))? {
            Ok(answer) => answer,
            Err(unknown) => return Some(Err(unknown.clone())),
        };
        let Answer::Facts(facts) = answer else { return None };
        Some(Ok(facts))
    }
}
