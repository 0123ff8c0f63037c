//! Three-valued knowledge: something was read, or it was not and we say why. Never a default.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What was read, or why it could not be.
pub type Known<T> = Result<T, Unknown>;

/// Why something is not known. Unknown is never proof, and an unanswered veto is a veto.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Unknown {
    /// The kind of obstacle.
    pub reason: Reason,
    /// What was being read, for a person; a lowercase fragment.
    pub what: String,
}

impl Unknown {
    /// Returns an unknown with its reason and a lowercase fragment that says what was being read.
    pub fn new(reason: Reason, what: impl Into<String>) -> Unknown {
        Unknown { reason, what: what.into() }
    }
}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.reason)
    }
}

/// The kinds of obstacle between us and a fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reason {
    /// The kernel refused (EACCES, EPERM). It proves that something is there, and no more.
    Denied,
    /// The process went away, or became another, between two reads.
    Vanished,
    /// No answer within the probe's deadline.
    Hung,
    /// It lives in a namespace, on a host or in a boot that is not ours.
    Foreign,
    /// The file system cannot be trusted to say (FUSE, network).
    Untrusted,
    /// There was more than the bounds allow.
    Truncated,
    /// This platform or kernel has no such fact.
    Unsupported,
    /// The prober itself was short of something (descriptors, memory).
    Starved,
    /// Nobody asked.
    NotAsked,
    /// It could be seen earlier only, and reapd did not see it then.
    NoRecord,
    /// It is there, and what it says does not count: malformed, of a foreign owner, open to others.
    Unsound,
    /// Any other error, with its number from errno(3).
    Failed(i32),
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reason::Denied => f.write_str("the kernel refused"),
            Reason::Vanished => f.write_str("it went away while being read"),
            Reason::Hung => f.write_str("no answer in time"),
            Reason::Foreign => f.write_str("it belongs to another namespace"),
            Reason::Untrusted => f.write_str("its file system cannot be trusted to say"),
            Reason::Truncated => f.write_str("more than the bounds allow"),
            Reason::Unsupported => f.write_str("not to be had on this system"),
            Reason::Starved => f.write_str("reapd itself ran short of descriptors or memory"),
            Reason::NotAsked => f.write_str("not asked"),
            Reason::NoRecord => f.write_str("nothing was recorded of it"),
            Reason::Unsound => f.write_str("what it says cannot be relied on"),
            Reason::Failed(errno) => write!(f, "error {errno}"),
        }
    }
}
