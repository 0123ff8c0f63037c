//! Weighs what was seen: evidence in, verdicts out.
//!
//! No clock, file, socket or environment: time is in the [`crate::model::look::Snapshot`], and what was seen before
//! is in the [`ledger::Ledger`]. Unknown is never proof, and an unanswered veto is a veto.

pub mod case;
pub mod ledger;
pub mod rule;
pub mod rules;

use crate::config::policy::Config;
use crate::model::look::Look;
use crate::model::question::Question;
use crate::model::verdict::Verdicts;

/// Stub.
#[derive(Debug, Clone, Default)]
pub struct Candidates {}

/// Stub.
pub fn candidates(_look: &Look, _config: &Config) -> Candidates {
    Candidates {}
}

/// Stub.
pub fn questions(
    _look: &Look,
    _config: &Config,
    _candidates: &Candidates,
    _ledger: &ledger::Ledger,
) -> Vec<Question> {
    Vec::new()
}

/// Stub.
pub fn judge(_look: &Look, _config: &Config, _candidates: &Candidates, _ledger: &ledger::Ledger) -> Verdicts {
    Verdicts::default()
}
