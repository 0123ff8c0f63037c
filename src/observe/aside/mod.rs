//! The aside: a disposable process of our own that does every read which can hang.
//!
//! A working directory on a dead FUSE or NFS mount, or a held mmap lock, leaves the reader in uninterruptible sleep
//! (CASES C17, C18); a thread with a deadline would be stuck in us for ever. So the reads run in `reapd aside`; when
//! an answer is late, that process is killed and abandoned, and a new one does the rest.

mod frame;
mod pen;
mod serve;

pub(super) use pen::Aside;
pub use serve::aside_main;

use std::collections::BTreeSet;

use bstr::BString;
use serde::{Deserialize, Serialize};

use crate::model::id::{Pid, ProcessId};
use crate::model::known::Known;
use crate::model::question::{Answer, Pinged, Question};
use crate::model::residue;

use super::engines::{Accepted, Found, Given, Seek, Within};
use super::leases;
use super::mcp::{Configured, Place};
use super::naming::{Carried, Naming};
use super::pings::Pinging;
use super::registries::{Reading, Records};

/// What is asked of the aside process, in order.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Request {
    /// A new look begins: what was kept of the last one is dropped. The only request without a reply.
    Begin {
        /// The variables to read of each environment.
        env_names: BTreeSet<BString>,
        /// When to send replies off.
        flush: Flush,
    },
    /// The argument vector of a process.
    Arguments(ProcessId),
    /// The leases of a directory.
    Leases(leases::Place),
    /// The members of a cgroup that `reapd run` made.
    Group(leases::Grouping),
    /// The lease cookie in the environment of a process.
    Cookie(ProcessId),
    /// The MCP servers that configuration files name.
    Configured(Place),
    /// A secret for a header, by its path.
    Secret(BString),
    /// What a registry of files lists at one place.
    Registry(Reading),
    /// Which of some texts some processes carry.
    Naming(Naming),
    /// Where container engines are.
    Engines(Seek),
    /// What a client of an engine was started with.
    Client(ProcessId),
    /// Who is connected to an engine from another network namespace.
    Within(Within),
    /// Requests to servers, all at once. Never asked twice.
    Pings(Vec<Pinging>),
    /// What trees left behind.
    Residue(residue::Ask),
    /// A question of a rule.
    Ask(Question),
}

impl Request {
    /// Returns the process that a hang would be about.
    fn about(&self) -> Option<ProcessId> {
        match self {
            Request::Begin { .. }
            | Request::Configured(_)
            | Request::Engines(_)
            | Request::Group(_)
            | Request::Leases(_)
            | Request::Naming(_)
            | Request::Pings(_)
            | Request::Registry(_)
            | Request::Residue(_)
            | Request::Secret(_)
            | Request::Ask(Question::Engine(_)) => None,
            Request::Arguments(id)
            | Request::Client(id)
            | Request::Within(Within { of: id, .. })
            | Request::Cookie(id)
            | Request::Ask(
                Question::Facts(id)
                | Question::Sockets(id)
                | Question::Activity(id)
                | Question::Terminals(id)
                | Question::Path { of: id, .. }
                | Question::Channel { of: id, .. }
                | Question::Holders { of: id, .. }
                | Question::Owner { of: id, .. }
                | Question::Bound { of: id, .. }
                | Question::Named { of: id, .. }
                | Question::Ping { of: id, .. }
                | Question::Registered { of: id, .. },
            ) => Some(*id),
        }
    }
}

/// When replies are sent off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Flush {
    /// Many at a time: cheap, but a hang takes finished replies with it.
    Together,
    /// One by one: the first one missing is the one that hangs.
    Each,
}

/// What comes back, one for each request but [`Request::Begin`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum Reply {
    /// To [`Request::Arguments`].
    Arguments(Known<Vec<BString>>),
    /// To [`Request::Leases`].
    Leases(Box<leases::Found>),
    /// To [`Request::Group`].
    Group(Known<Vec<Pid>>),
    /// To [`Request::Cookie`]; nothing where it carries none.
    Cookie(Known<Option<BString>>),
    /// To [`Request::Configured`].
    Configured(Configured),
    /// To [`Request::Secret`].
    Secret(Known<BString>),
    /// To [`Request::Registry`].
    Records(Box<Known<Records>>),
    /// To [`Request::Naming`].
    Carried(Carried),
    /// To [`Request::Engines`].
    Engines(Found),
    /// To [`Request::Client`].
    Client(Box<Given>),
    /// To [`Request::Within`].
    Within(Known<Accepted>),
    /// To [`Request::Pings`].
    Pings(Vec<Known<Pinged>>),
    /// To [`Request::Residue`].
    Residue(Box<Known<residue::Told>>),
    /// To [`Request::Ask`].
    Answer(Box<Known<Answer>>),
}

impl Reply {
    /// Returns the answer to [`Request::Arguments`].
    pub(super) fn arguments(self) -> Known<Vec<BString>> {
        let Reply::Arguments(argv) = self else { return Err(super::misfit()) };
        argv
    }

    /// Returns the answer to [`Request::Leases`].
    pub(super) fn leases(self) -> Known<leases::Found> {
        let Reply::Leases(found) = self else { return Err(super::misfit()) };
        Ok(*found)
    }

    /// Returns the answer to [`Request::Group`].
    pub(super) fn group(self) -> Known<Vec<Pid>> {
        let Reply::Group(numbers) = self else { return Err(super::misfit()) };
        numbers
    }

    /// Returns the answer to [`Request::Cookie`].
    pub(super) fn cookie(self) -> Known<Option<BString>> {
        let Reply::Cookie(cookie) = self else { return Err(super::misfit()) };
        cookie
    }

    /// Returns the answer to [`Request::Configured`].
    pub(super) fn configured(self) -> Known<Configured> {
        let Reply::Configured(configured) = self else { return Err(super::misfit()) };
        Ok(configured)
    }

    /// Returns the answer to [`Request::Secret`].
    pub(super) fn secret(self) -> Known<BString> {
        let Reply::Secret(secret) = self else { return Err(super::misfit()) };
        secret
    }

    /// Returns the answer to [`Request::Registry`].
    pub(super) fn records(self) -> Known<Records> {
        let Reply::Records(records) = self else { return Err(super::misfit()) };
        *records
    }

    /// Returns the answer to [`Request::Naming`].
    pub(super) fn carried(self) -> Known<Carried> {
        let Reply::Carried(carried) = self else { return Err(super::misfit()) };
        Ok(carried)
    }

    /// Returns the answer to [`Request::Engines`].
    pub(super) fn engines(self) -> Known<Found> {
        let Reply::Engines(found) = self else { return Err(super::misfit()) };
        Ok(found)
    }

    /// Returns the answer to [`Request::Client`].
    #[cfg(target_os = "linux")]
    pub(super) fn client(self) -> Known<Given> {
        let Reply::Client(given) = self else { return Err(super::misfit()) };
        Ok(*given)
    }

    /// Returns the answer to [`Request::Within`].
    #[cfg(target_os = "linux")]
    pub(super) fn within(self) -> Known<Accepted> {
        let Reply::Within(accepted) = self else { return Err(super::misfit()) };
        accepted
    }

    /// Returns the answer to [`Request::Pings`].
    pub(super) fn pings(self) -> Known<Vec<Known<Pinged>>> {
        let Reply::Pings(pings) = self else { return Err(super::misfit()) };
        Ok(pings)
    }

    /// Returns the answer to [`Request::Residue`].
    pub(super) fn residue(self) -> Known<residue::Told> {
        let Reply::Residue(told) = self else { return Err(super::misfit()) };
        *told
    }

    /// Returns the answer to [`Request::Ask`].
    pub(super) fn answer(self) -> Known<Answer> {
        let Reply::Answer(answer) = self else { return Err(super::misfit()) };
        *answer
    }
}
