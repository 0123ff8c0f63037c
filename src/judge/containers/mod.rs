//! Containers: which policies look at which, what their rules still need to know, and the verdicts.
//!
//! The same order as for process trees, by the same rules where they apply; an engine that did not answer makes nobody an
//! orphan, and whatever is not known keeps.

mod assess;
pub(super) mod assignment;
mod candidates;
pub mod case;
pub(super) mod clients;
mod cure;
pub(super) mod leased;
pub(super) mod leftovers;
pub(super) mod registered;
#[cfg(test)]
pub(super) mod support;
#[cfg(test)]
mod tests;
pub(super) mod vetoes;
mod weigh;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::config::policy::{Config, ContainerPolicy};
use crate::model::container::judgement::ContainerJudgement;
use crate::model::container::{ContainerRef, Engine, EngineId, Listed};
use crate::model::look::Look;
use crate::model::question::{Answer, EngineAnswer, EngineQuestion, Question};

use super::Ledger;
use super::ledger::pings::{Manner, manner};
use super::ledger::{LastingKey, Suspicion, fingerprint};

use assess::Ground;
use case::Crowd;

pub(super) use candidates::is_attached;
pub use candidates::{LEASE, is_admitted};

/// What a look at containers leaves for [`Ledger::remember`], beside the judgements.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct ContainerNotes {
    pub(super) list: Vec<ContainerNote>,
    /// What `[scope] admit-env` asked for, and which of the containers that were asked for carry that.
    pub(super) scope: u64,
    pub(super) admitted: BTreeMap<ContainerRef, Admission>,
}

/// What one assessment leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ContainerNote {
    pub(super) at: ContainerRef,
    pub(super) policy: String,
    pub(super) suspicion: Option<Suspicion>,
    pub(super) lasting: Vec<LastingKey>,
    /// How the policy asks servers, if it does.
    pub(super) manner: Option<Manner>,
}

impl ContainerNotes {
    /// Returns what the assessment of a container by a policy left.
    pub(super) fn get(&self, at: &ContainerRef, policy: &str) -> Option<&ContainerNote> {
        self.list.iter().find(|note| note.at == *at && note.policy == policy)
    }
}

/// Whether a container carries what `[scope] admit-env` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Admission {
    /// It does.
    Admitted,
    /// It does not.
    Foreign,
}

/// Returns every container that a policy may look at, by engine, container and policy.
fn pairs<'a>(
    look: &'a Look,
    config: &'a Config,
) -> impl Iterator<Item = (&'a Engine, &'a Listed, &'a ContainerPolicy)> {
    look.snapshot
        .engines
        .iter()
        .flat_map(|engine| {
            let listed = engine.containers.as_deref().unwrap_or_default();
            listed.iter().map(move |listed| (engine, listed))
        })
        .flat_map(|(engine, listed)| config.containers.iter().map(move |policy| (engine, listed, policy)))
        .filter(|(_, listed, policy)| candidates::may_fit(policy, listed))
}

/// Returns a place for what is found out of the clients of each engine.
fn crowds(look: &Look) -> BTreeMap<&EngineId, Crowd> {
    look.snapshot.engines.iter().map(|engine| (&engine.id, Crowd::default())).collect()
}

/// Returns what the rules still need to know of containers.
pub(super) fn questions(look: &Look, config: &Config, ledger: &Ledger) -> Vec<Question> {
    let mut open = BTreeSet::new();
    let crowds = crowds(look);
    for (engine, listed, policy) in pairs(look, config) {
        let ground = Ground { look, config, engine, listed, policy, ledger, crowd: &crowds[&engine.id] };
        if let Err(questions) = assess::assess(&ground) {
            open.extend(questions);
        }
    }
    open.extend(leftovers::questions(look, config, ledger));
    open.into_iter().collect()
}

/// Returns the verdicts on every container that a policy looks at, sorted by container and policy.
pub(super) fn judge(
    look: &Look,
    config: &Config,
    ledger: &Ledger,
) -> (Vec<ContainerJudgement>, ContainerNotes) {
    let mut judgements = Vec::new();
    let mut notes = ContainerNotes { scope: fingerprint(&config.scope), ..ContainerNotes::default() };
    let crowds = crowds(look);
    for (engine, listed, policy) in pairs(look, config) {
        let ground = Ground { look, config, engine, listed, policy, ledger, crowd: &crowds[&engine.id] };
        let assessed = assess::assess(&ground).unwrap_or_else(|open| assess::unanswered(&ground, &open));
        let Some(assessment) = assessed else { continue };
        notes.list.push(ContainerNote {
            at: assessment.judgement.at.clone(),
            policy: assessment.judgement.policy.clone(),
            suspicion: assessment.suspicion,
            lasting: assessment.lasting,
            manner: manner(&policy.ping, &policy.reap_when),
        });
        judgements.push(assessment.judgement);
    }
    for (question, answer) in &look.answers {
        if let (
            Question::Engine(EngineQuestion::Container(at)),
            Ok(Answer::Engine(EngineAnswer::Container(facts))),
        ) = (question, answer)
        {
            let is_admitted = candidates::is_admitted(&config.scope, facts);
            let admission = if is_admitted { Admission::Admitted } else { Admission::Foreign };
            notes.admitted.insert(at.clone(), admission);
        }
    }
    judgements.sort_by(|one, other| (&one.at, &one.policy).cmp(&(&other.at, &other.policy)));
    (judgements, notes)
}
