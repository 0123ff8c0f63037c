//! What a ladder and whoever climbs it say to each other.

use crate::model::id::ProcessId;
use crate::model::moment::Moment;
use crate::model::outcome::Closure;
use crate::model::plan::Signal;

/// What is to be done now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send this signal to each of these, by identity.
    Signal {
        /// Which.
        signal: Signal,
        /// To whom.
        to: Vec<ProcessId>,
    },
    /// Look for newborn children of all members, and tell [`super::escalation::Escalation::walked`].
    Walk,
    /// Work out membership from a fresh table, and tell [`super::escalation::Escalation::rescanned`].
    Rescan,
    /// Nothing before then, unless somebody goes.
    WaitUntil(Moment),
    /// It is over.
    Done(Closure),
}

/// What a search for newborn members brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Search {
    /// Nobody new.
    Empty,
    /// Somebody new, who was told by [`super::escalation::Escalation::joined`].
    Newborn,
}

/// Why a member will not be signalled again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// The kernel refused.
    Denied,
    /// It is not surely the recorded process any more.
    IdentityChanged,
}
