//! How much at once: the pace of a sweep, and the breaker that holds verdicts which could all be wrong together.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::policy::Limits;
use crate::model::container::{ContainerRef, EngineId};
use crate::model::evidence::Cause;
use crate::model::id::{ProcessId, Uid};
use crate::model::plan::Wait;
use crate::model::verdict::{Verdict, Verdicts};

use super::{Asked, Pace, Released};

/// Who is counted by himself.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Whose {
    /// The trees of one user.
    User(Uid),
    /// The containers of one engine, which says nothing of users.
    Engine(EngineId),
}

/// Counts the trees of one sweep, for each user and policy by itself, and containers by themselves: nobody can flood
/// the reaper off for others (REDTEAM S7).
#[derive(Debug)]
pub(super) struct Pacer {
    at_once: usize,
    taken: BTreeMap<(Whose, String), usize>,
}

impl Pacer {
    pub(super) fn new(limits: Limits, asked: &Asked) -> Pacer {
        let at_once = match asked.pace {
            Pace::Paced => limits.trees_per_sweep,
            Pace::Unpaced => usize::MAX,
        };
        Pacer { at_once, taken: BTreeMap::new() }
    }

    /// Lets one more go by this policy, or says that it waits for the next sweep.
    pub(super) fn admit(&mut self, whose: Whose, policy: &str) -> Result<(), Wait> {
        let taken = self.taken.entry((whose, policy.to_owned())).or_default();
        if *taken >= self.at_once {
            return Err(Wait::Pace);
        }
        *taken += 1;
        Ok(())
    }
}

/// The causes that too many verdicts hang on.
#[derive(Debug, Default)]
pub(super) struct Tripped<'a> {
    trees: BTreeSet<(Uid, &'a Cause)>,
    containers: BTreeSet<&'a Cause>,
}

impl Tripped<'_> {
    /// Returns the cause that holds a tree of this user, where one does.
    pub(super) fn tree(&self, uid: Uid, causes: &[Cause]) -> Option<Cause> {
        causes.iter().find(|cause| self.trees.contains(&(uid, *cause))).cloned()
    }

    /// Returns the cause that holds a container, where one does.
    pub(super) fn container(&self, causes: &[Cause]) -> Option<Cause> {
        causes.iter().find(|cause| self.containers.contains(cause)).cloned()
    }
}

/// Returns the causes that too many verdicts hang on, trees and containers counted together: the trees of one user with
/// all containers, and the containers with the trees of everybody.
///
/// Suspects count beside the confirmed ones: when a mount goes, the first to be confirmed would else slip through
/// before the others are. What hangs on nothing (a held directory's own link count) never counts.
pub(super) fn tripped<'a>(verdicts: &'a Verdicts, limits: Limits, released: &Released) -> Tripped<'a> {
    let mut roots: BTreeMap<(Uid, &Cause), BTreeSet<ProcessId>> = BTreeMap::new();
    for judgement in verdicts.judgements.iter().filter(|judgement| is_condemned(&judgement.verdict)) {
        for cause in &judgement.causes {
            roots.entry((judgement.uid, cause)).or_default().insert(judgement.root);
        }
    }
    let mut containers: BTreeMap<&Cause, BTreeSet<&ContainerRef>> = BTreeMap::new();
    for judgement in verdicts.containers.iter().filter(|judgement| is_condemned(&judgement.verdict)) {
        for cause in &judgement.causes {
            containers.entry(cause).or_default().insert(&judgement.at);
        }
    }
    let is_too_many =
        |cause: &Cause, count: usize| count > limits.same_cause && !released.causes.contains(cause);
    let contained = |cause: &Cause| containers.get(cause).map_or(0, BTreeSet::len);
    let in_trees = |cause: &Cause| -> usize {
        roots.iter().filter(|((_, other), _)| *other == cause).map(|(_, roots)| roots.len()).sum()
    };
    let trees = roots
        .iter()
        .filter(|((_, cause), roots)| is_too_many(cause, roots.len() + contained(cause)))
        .map(|(key, _)| *key)
        .collect();
    let containers = containers
        .iter()
        .filter(|(cause, found)| is_too_many(cause, found.len() + in_trees(cause)))
        .map(|(cause, _)| *cause)
        .collect();
    Tripped { trees, containers }
}

fn is_condemned(verdict: &Verdict) -> bool {
    match verdict {
        Verdict::Suspect { .. } | Verdict::Orphaned { .. } => true,
        Verdict::Protected | Verdict::Alive | Verdict::Unknown => false,
    }
}
