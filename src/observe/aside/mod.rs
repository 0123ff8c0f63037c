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

use crate::model::id::ProcessId;
use crate::model::known::Known;
use crate::model::question::{Answer, Question};

use super::mcp::{Configured, Place};
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
    /// The MCP servers that configuration files name.
    Configured(Place),
    /// A secret for a header, by its path.
    Secret(BString),
    /// What a registry of files lists at one place.
    Registry(Reading),
    /// A question of a rule.
    Ask(Question),
}

impl Request {
    /// Returns the process that a hang would be about.
    fn about(&self) -> Option<ProcessId> {
        match self {
            Request::Begin { .. } | Request::Configured(_) | Request::Registry(_) | Request::Secret(_) => {
                None
            }
            Request::Arguments(id)
            | Request::Ask(
                Question::Facts(id)
                | Question::Sockets(id)
                | Question::Activity(id)
                | Question::Terminals(id)
                | Question::Path { of: id, .. }
                | Question::Channel { of: id, .. }
                | Question::Holders { of: id, .. }
                | Question::Owner { of: id, .. }
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
    /// To [`Request::Configured`].
    Configured(Configured),
    /// To [`Request::Secret`].
    Secret(Known<BString>),
    /// To [`Request::Registry`].
    Records(Box<Known<Records>>),
    /// To [`Request::Ask`].
    Answer(Box<Known<Answer>>),
}
