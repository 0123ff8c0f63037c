//! Weighs what was seen: evidence in, verdicts out.
//!
//! No clock, file, socket or environment: time is in the [`crate::model::look::Snapshot`], and what was seen before
//! is in the [`ledger::Ledger`]. Unknown is never proof, and an unanswered veto is a veto.

pub mod case;
pub mod ledger;
pub mod rule;
pub mod rules;
