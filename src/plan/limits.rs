//! How much at once: the pace of a sweep, and the breaker that holds verdicts which could all be wrong together.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::policy::Limits;
use crate::model::evidence::Cause;
use crate::model::id::{ProcessId, Uid};
use crate::model::plan::Wait;
use crate::model::verdict::{Judgement, Verdict, Verdicts};

use super::{Asked, Pace, Released};

/// Counts the trees of one sweep, for each user and policy by itself: nobody can flood the reaper off for others
/// (REDTEAM S7).
#[derive(Debug)]
pub(super) struct Pacer {
    at_once: usize,
    taken: BTreeMap<(Uid, String), usize>,
}

impl Pacer {
    pub(super) fn new(limits: Limits, asked: &Asked) -> Pacer {
        let at_once = match asked.pace {
            Pace::Paced => limits.trees_per_sweep,
            Pace::Unpaced => usize::MAX,
        };
        Pacer { at_once, taken: BTreeMap::new() }
    }

    /// Lets one more tree go, or says that it waits for the next sweep.
    pub(super) fn admit(&mut self, judgement: &Judgement) -> Result<(), Wait> {
        let taken = self.taken.entry((judgement.uid, judgement.policy.clone())).or_default();
        if *taken >= self.at_once {
            return Err(Wait::Pace);
        }
        *taken += 1;
        Ok(())
    }
}

/// Returns the causes that too many trees of one user hang on.
///
/// Suspects count beside the confirmed ones: when a mount goes, the first to be confirmed would else slip through
/// before the others are. What hangs on nothing (a held directory's own link count) never counts.
pub(super) fn tripped<'a>(
    verdicts: &'a Verdicts,
    limits: Limits,
    released: &Released,
) -> BTreeSet<(Uid, &'a Cause)> {
    let mut roots: BTreeMap<(Uid, &Cause), BTreeSet<ProcessId>> = BTreeMap::new();
    for judgement in &verdicts.judgements {
        match judgement.verdict {
            Verdict::Suspect { .. } | Verdict::Orphaned { .. } => {}
            Verdict::Protected | Verdict::Alive | Verdict::Unknown => continue,
        }
        for cause in &judgement.causes {
            roots.entry((judgement.uid, cause)).or_default().insert(judgement.root);
        }
    }
    roots
        .into_iter()
        .filter(|((_, cause), roots)| roots.len() > limits.same_cause && !released.causes.contains(cause))
        .map(|(key, _)| key)
        .collect()
}
