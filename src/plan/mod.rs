//! Says who goes, in what order and how. Pure: it reads verdicts and a look, and signals nobody.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::policy::{Config, Policy};
use crate::model::evidence::Cause;
use crate::model::id::{ProcessId, Uid};
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::plan::{Plan, Teardown, Wait, Waiting};
use crate::model::question::Question;
use crate::model::verdict::{Judgement, Mode, Verdict, Verdicts};

use limits::Pacer;
use teardown::{Ground, membership};

pub mod escalation;
pub mod limits;
pub mod teardown;

/// How this sweep was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// Whether a person saw the plan and decided.
    pub pace: Pace,
    /// What a person released from the breaker or from the limit on size.
    pub released: Released,
    /// The only policy to plan for, where one was named.
    pub only: Option<String>,
}

/// Whether the number of trees at once is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// Nobody watches: a few at a time.
    #[default]
    Paced,
    /// A person saw the plan and decided.
    Unpaced,
}

/// What a person let go on in spite of a limit (`reapd release`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Released {
    /// Causes that many verdicts may hang on.
    pub causes: BTreeSet<Cause>,
    /// Roots of single trees, whatever their size and cause.
    pub roots: BTreeSet<ProcessId>,
}

/// Returns everything this sweep would do: proven trees that go now, oldest suspicion first, and those that wait.
pub fn plan(verdicts: &Verdicts, look: &Look, config: &Config, asked: &Asked) -> Plan {
    let mut plan = Plan::default();
    let mut pacer = Pacer::new(config.limits, asked);
    let tripped = limits::tripped(verdicts, config.limits, &asked.released);
    // Whoever goes with a tree that is planned already, by the root of that tree.
    let mut taken: BTreeMap<ProcessId, ProcessId> = BTreeMap::new();
    let mut ready: Vec<(Moment, Teardown)> = Vec::new();
    for (since, judgement) in proven(verdicts, asked) {
        let wait = |why| Waiting { judgement: judgement.clone(), why };
        if config.mode != Mode::Reap || judgement.mode != Mode::Reap {
            plan.waiting.push(wait(Wait::ReportOnly));
            continue;
        }
        let Some(teardown) = prepare(judgement, verdicts, look, config) else {
            plan.waiting.push(wait(Wait::Unidentified));
            continue;
        };
        if let Some(cause) = tripped_by(judgement, &tripped, &asked.released) {
            plan.waiting.push(wait(Wait::SameCause(cause)));
            continue;
        }
        let size = teardown.members.len();
        if size > config.limits.processes_per_tree && !asked.released.roots.contains(&judgement.root) {
            plan.waiting.push(wait(Wait::TooLarge(size)));
            continue;
        }
        ready.push((since, teardown));
    }
    // A tree within another is known only when all memberships are: the inner root may be the older suspicion.
    for (_, teardown) in &ready {
        let root = teardown.judgement.root;
        for member in &teardown.members {
            if member.identity.id != root {
                taken.entry(member.identity.id).or_insert(root);
            }
        }
    }
    let mut planned: BTreeSet<ProcessId> = BTreeSet::new();
    for (_, teardown) in ready {
        let judgement = &teardown.judgement;
        let whole =
            taken.get(&judgement.root).copied().filter(|outer| !is_mutual(&taken, judgement.root, *outer));
        let why = match whole {
            Some(outer) => Some(Wait::PartOf(outer)),
            // The same root by another policy.
            None if planned.contains(&judgement.root) => Some(Wait::PartOf(judgement.root)),
            None => pacer.admit(judgement).err(),
        };
        match why {
            Some(why) => plan.waiting.push(Waiting { judgement: teardown.judgement, why }),
            None => {
                planned.insert(judgement.root);
                plan.teardowns.push(teardown);
            }
        }
    }
    plan
}

/// Returns what must still be asked before [`plan`] can tell who would go.
pub fn questions(verdicts: &Verdicts, look: &Look, config: &Config, asked: &Asked) -> Vec<Question> {
    let mut questions: BTreeSet<Question> = BTreeSet::new();
    for (_, judgement) in proven(verdicts, asked) {
        questions.extend(teardown::questions(&Ground { judgement, verdicts, look, config, known: &[] }));
    }
    questions.into_iter().collect()
}

/// Returns the proven ones, oldest suspicion first.
fn proven<'a>(verdicts: &'a Verdicts, asked: &Asked) -> Vec<(Moment, &'a Judgement)> {
    let wanted = |judgement: &&Judgement| asked.only.as_ref().is_none_or(|only| *only == judgement.policy);
    let mut found: Vec<(Moment, &Judgement)> = verdicts
        .judgements
        .iter()
        .filter(wanted)
        .filter_map(|judgement| match judgement.verdict {
            Verdict::Orphaned { since } => Some((since, judgement)),
            Verdict::Protected | Verdict::Alive | Verdict::Unknown | Verdict::Suspect { .. } => None,
        })
        .collect();
    found.sort_by(|(a_since, a), (b_since, b)| {
        (a_since, a.began, a.root, &a.policy).cmp(&(b_since, b.began, b.root, &b.policy))
    });
    found
}

/// Returns the teardown of one proven tree, or nothing where its root may not be signalled.
fn prepare(judgement: &Judgement, verdicts: &Verdicts, look: &Look, config: &Config) -> Option<Teardown> {
    let identity = judgement.identity.as_ref().ok()?;
    identity.exe?;
    let ground = Ground { judgement, verdicts, look, config, known: &[] };
    let found = membership(&ground);
    let root = found.members.first().filter(|member| member.identity.id == judgement.root)?;
    // The judged identity and the one just read must be one and the same.
    if !identity.is_surely(&root.identity) {
        return None;
    }
    let ladder = policy(config, &judgement.policy).map_or(&config.ladder, |policy| &policy.ladder);
    Some(Teardown {
        judgement: judgement.clone(),
        members: found.members,
        spared: found.spared,
        ladder: ladder.clone(),
    })
}

/// Returns a policy by its name.
fn policy<'a>(config: &'a Config, name: &str) -> Option<&'a Policy> {
    config.policies.iter().find(|policy| policy.name == name)
}

fn tripped_by(
    judgement: &Judgement,
    tripped: &BTreeSet<(Uid, &Cause)>,
    released: &Released,
) -> Option<Cause> {
    if released.roots.contains(&judgement.root) {
        return None;
    }
    judgement.causes.iter().find(|cause| tripped.contains(&(judgement.uid, *cause))).cloned()
}

/// Says whether two roots are each in the other's tree; then neither may wait for the other for ever.
fn is_mutual(taken: &BTreeMap<ProcessId, ProcessId>, inner: ProcessId, outer: ProcessId) -> bool {
    taken.get(&outer) == Some(&inner) && inner < outer
}

#[cfg(test)]
mod tests;
