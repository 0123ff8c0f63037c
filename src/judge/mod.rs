//! Weighs what was seen: evidence in, verdicts out.
//!
//! No clock, file, socket or environment: time is in the [`crate::model::look::Snapshot`], and what was seen before
//! is in the [`Ledger`]. Unknown is never proof, and an unanswered veto is a veto.
//!
//! The order of one look: [`Ledger::begin`], [`candidates()`], then [`questions`] until it has none, then [`judge()`],
//! then [`Ledger::remember`].

mod assess;
pub mod candidates;
pub mod case;
pub mod containers;
mod inner;
pub mod leased;
pub mod ledger;
mod mcp;
pub mod protect;
mod registered;
pub mod residue;
pub mod rule;
pub mod rules;
mod served;
mod vetoes;
mod weigh;

#[cfg(test)]
mod tests;

use std::collections::BTreeSet;

use crate::config::policy::{Config, Offer};
use crate::model::id::ProcessId;
use crate::model::look::Look;
use crate::model::question::Question;
use crate::model::verdict::Verdicts;

pub use candidates::{Candidates, candidates};
pub use ledger::Ledger;

use inner::inner;
use ledger::pings::{Manner, manner};
use ledger::{LastingKey, Suspicion};

/// What a look leaves for [`Ledger::remember`], beside its verdicts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notes {
    trees: Vec<Note>,
    containers: containers::ContainerNotes,
}

/// What one assessment leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Note {
    root: ProcessId,
    policy: String,
    suspicion: Option<Suspicion>,
    lasting: Vec<LastingKey>,
    /// How the policy asks servers, if it does.
    manner: Option<Manner>,
}

impl Notes {
    fn get(&self, (root, policy): (ProcessId, &str)) -> Option<&Note> {
        self.trees.iter().find(|note| note.root == root && note.policy == policy)
    }

    fn suspicion(&self, key: (ProcessId, &str)) -> Option<Suspicion> {
        self.get(key)?.suspicion
    }

    fn lasting(&self, key: (ProcessId, &str)) -> &[LastingKey] {
        self.get(key).map(|note| note.lasting.as_slice()).unwrap_or_default()
    }

    fn manner(&self, key: (ProcessId, &str)) -> Option<Manner> {
        self.get(key)?.manner
    }
}

/// Returns what the rules still need to know. Ask them, add the answers to the look, and come again until there are
/// none; dearer questions are only raised when the cheaper ones left the matter open.
pub fn questions(look: &Look, config: &Config, candidates: &Candidates, ledger: &Ledger) -> Vec<Question> {
    let mut open = BTreeSet::new();
    for candidate in &candidates.list {
        match assess::assess(look, config, candidates, candidate, ledger) {
            Err(questions) => open.extend(questions),
            // What is only offered takes nobody along, so nothing is asked for the sake of whom it would take.
            Ok(Some(_)) if candidate.policy(config).offer == Offer::Told => {}
            Ok(Some(assessment)) => open.extend(inner(look, candidates, &assessment.judgement).asks),
            Ok(None) => {}
        }
    }
    open.extend(containers::questions(look, config, ledger));
    open.into_iter().filter(|question| !look.answers.contains_key(question)).collect()
}

/// Returns the verdicts on every tree and every container that a policy looks at, with notes for the ledger.
///
/// A question that was never answered leaves its tree or container unknown, and unknown is kept.
pub fn judge(look: &Look, config: &Config, candidates: &Candidates, ledger: &Ledger) -> (Verdicts, Notes) {
    let mut verdicts = Verdicts::default();
    let mut notes = Notes::default();
    let mut members = BTreeSet::new();
    let mut held = Vec::new();
    for candidate in &candidates.list {
        let assessed = assess::assess(look, config, candidates, candidate, ledger)
            .unwrap_or_else(|open| assess::unanswered(look, config, candidate, &open));
        let Some(assessment) = assessed else { continue };
        let policy = candidate.policy(config);
        notes.trees.push(Note {
            root: candidate.root,
            policy: assessment.judgement.policy.clone(),
            suspicion: assessment.suspicion,
            lasting: assessment.lasting,
            manner: manner(&policy.ping, &policy.reap_when),
        });
        // Whatever acts goes by the judgements alone.
        if policy.offer == Offer::Told {
            verdicts.offered.push(assessment.judgement);
            continue;
        }
        members.extend(assessment.judgement.tree.iter().copied());
        held.extend(inner(look, candidates, &assessment.judgement).held);
        verdicts.judgements.push(assessment.judgement);
    }
    let members: Vec<ProcessId> = members.into_iter().collect();
    verdicts.protected = protect::protected(look, config, &members);
    for (id, why) in held {
        if !verdicts.protected.iter().any(|(known, _)| *known == id) {
            verdicts.protected.push((id, why));
        }
    }
    (verdicts.containers, notes.containers) = containers::judge(look, config, ledger);
    verdicts.execs = containers::leftovers::judge(look, config, ledger);
    verdicts.leased = leased::leased(&verdicts, look, ledger, &config.confirm);
    (verdicts, notes)
}
