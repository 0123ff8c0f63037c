//! Containers in a report: what goes, what stays, what could not be told, and what became of them.
//!
//! Grouping is here, once; `text` and `json` only write it down.

mod json;
mod left;
mod outcome;
mod text;

use std::collections::{BTreeMap, BTreeSet};

pub use json::{as_json, judgement as judgement_json, report_json, waiting_json};
pub use left::{exec_json, left, seen_of};
pub use outcome::{exit, outcome_words, outcomes};
pub use text::{kept, planned, totals, unknown, waiting};

use super::{Seen, rules_of};
use crate::app::containers::LEASE;
use crate::app::legible;
use crate::model::container::judgement::{ContainerJudgement, ContainerLookalike};
use crate::model::container::stop::Stop;
use crate::model::container::{ContainerRef, Listed};
use crate::model::evidence::Cause;
use crate::model::id::ProcessId;
use crate::model::plan::Wait;
use crate::model::verdict::Verdict;

/// Containers of one policy that go for one reason.
#[derive(Debug)]
pub(super) struct StopGroup<'a> {
    policy: &'a str,
    reason: String,
    stops: Vec<&'a Stop>,
}

/// Containers of one policy that are kept though they may look leaked.
#[derive(Debug)]
pub(super) struct KeptGroup<'a> {
    policy: &'a str,
    why: Kept,
    all: Vec<&'a ContainerJudgement>,
}

/// Why a container that may look leaked is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Kept {
    /// A client of the engine is, or may be, its own.
    Client,
    /// Its policy only reports.
    ReportOnly,
    /// Ownerless, but for this veto or this rule of a `spare-when` line.
    Vetoed(String),
    /// Not for long enough yet.
    NotYet,
    /// Nobody seems to be its client.
    CannotTell,
}

/// Containers of one policy of which it could not be told, for one reason.
#[derive(Debug)]
pub(super) struct UnknownGroup<'a> {
    policy: &'a str,
    why: &'a str,
    all: Vec<&'a ContainerJudgement>,
}

/// Returns what a container is called on a screen.
pub fn name(listed: &Listed) -> String {
    match listed.names.first() {
        Some(name) => legible::text(name),
        None => listed.id.short().to_owned(),
    }
}

impl<'a> Seen<'a> {
    /// Returns how many containers the engines that answered listed; nothing where no engine was looked at.
    pub fn containers(&self) -> Option<usize> {
        let engines = &self.look.snapshot.engines;
        let counts = || engines.iter().filter_map(|engine| engine.containers.as_ref().ok()).map(Vec::len);
        (!engines.is_empty()).then(|| counts().sum())
    }

    /// Says whether anything is to be done, or waits, about containers.
    pub(super) fn has_container_work(&self) -> bool {
        self.stops().next().is_some()
            || self
                .plan
                .containers
                .waiting
                .iter()
                .any(|(judgement, why)| self.wants(&judgement.policy) && !matches!(why, Wait::ReportOnly))
    }

    /// Returns the stops of the plan that were asked for.
    pub(super) fn stops(&self) -> impl Iterator<Item = &'a Stop> {
        let seen = *self;
        self.plan.containers.stops.iter().filter(move |stop| seen.wants(&stop.judgement.policy))
    }

    fn container_judgements(&self) -> impl Iterator<Item = &'a ContainerJudgement> {
        let seen = *self;
        self.verdicts.containers.iter().filter(move |judgement| seen.wants(&judgement.policy))
    }

    pub(super) fn stop_groups(&self) -> Vec<StopGroup<'a>> {
        let mut groups: BTreeMap<(&str, String), Vec<&Stop>> = BTreeMap::new();
        for stop in self.stops() {
            let judgement = &stop.judgement;
            groups.entry((&judgement.policy, heading(judgement))).or_default().push(stop);
        }
        groups.into_iter().map(|((policy, reason), stops)| StopGroup { policy, reason, stops }).collect()
    }

    /// Returns those that wait, one for each policy and reason, with how many there are.
    pub(super) fn containers_waiting(&self) -> Vec<(&'a ContainerJudgement, &'a Wait, usize)> {
        let mut waiting: Vec<(&ContainerJudgement, &Wait, usize)> = Vec::new();
        for (judgement, why) in &self.plan.containers.waiting {
            if *why == Wait::ReportOnly || !self.wants(&judgement.policy) {
                continue;
            }
            let same = |(other, wait, _): &&mut (&ContainerJudgement, &Wait, usize)| {
                other.policy == judgement.policy && *wait == why
            };
            match waiting.iter_mut().find(same) {
                Some((_, _, count)) => *count += 1,
                None => waiting.push((judgement, why, 1)),
            }
        }
        waiting
    }

    pub(super) fn kept_groups(&self) -> Vec<KeptGroup<'a>> {
        let going: BTreeSet<&ContainerRef> =
            self.plan.containers.stops.iter().map(|stop| &stop.judgement.at).collect();
        let waits = |judgement: &ContainerJudgement| {
            let of = |(other, why): &&(ContainerJudgement, Wait)| {
                other.at == judgement.at && other.policy == judgement.policy && *why != Wait::ReportOnly
            };
            self.plan.containers.waiting.iter().any(|one| of(&one))
        };
        let reported = |judgement: &ContainerJudgement| {
            let of = |(other, why): &&(ContainerJudgement, Wait)| {
                other.at == judgement.at && other.policy == judgement.policy && *why == Wait::ReportOnly
            };
            self.plan.containers.waiting.iter().any(|one| of(&one))
        };
        let mut groups: BTreeMap<(&str, Kept), Vec<&ContainerJudgement>> = BTreeMap::new();
        for judgement in self.container_judgements() {
            // Whoever goes by another policy is no longer kept by this one.
            if going.contains(&judgement.at) || waits(judgement) {
                continue;
            }
            let why = match (&judgement.verdict, &judgement.lookalike) {
                (Verdict::Unknown, _) | (Verdict::Protected | Verdict::Alive, None) => continue,
                (Verdict::Suspect { .. } | Verdict::Orphaned { .. }, _) if reported(judgement) => {
                    Kept::ReportOnly
                }
                (Verdict::Suspect { .. } | Verdict::Orphaned { .. }, _) => Kept::NotYet,
                (Verdict::Protected | Verdict::Alive, Some(lookalike)) => match lookalike {
                    ContainerLookalike::Client(_) => Kept::Client,
                    ContainerLookalike::CannotTell => Kept::CannotTell,
                    ContainerLookalike::ReportOnly => Kept::ReportOnly,
                    ContainerLookalike::Vetoed(veto) => Kept::Vetoed(veto.clone()),
                },
            };
            groups.entry((&judgement.policy, why)).or_default().push(judgement);
        }
        groups.into_iter().map(|((policy, why), all)| KeptGroup { policy, why, all }).collect()
    }

    pub(super) fn unknown_groups(&self) -> Vec<UnknownGroup<'a>> {
        let mut groups: BTreeMap<(&str, &str), Vec<&ContainerJudgement>> = BTreeMap::new();
        for judgement in self.container_judgements() {
            if judgement.verdict == Verdict::Unknown {
                groups.entry((&judgement.policy, &judgement.because)).or_default().push(judgement);
            }
        }
        groups.into_iter().map(|((policy, why), all)| UnknownGroup { policy, why, all }).collect()
    }
}

/// Returns the clients that are, or may be, the owners of these, by how many each.
fn clients(all: &[&ContainerJudgement]) -> Vec<(ProcessId, usize)> {
    let mut counts: BTreeMap<ProcessId, usize> = BTreeMap::new();
    for judgement in all {
        if let Some(ContainerLookalike::Client(client)) = judgement.lookalike {
            *counts.entry(client).or_default() += 1;
        }
    }
    let mut clients: Vec<_> = counts.into_iter().collect();
    clients.sort_by_key(|&(id, count)| (std::cmp::Reverse(count), id));
    clients
}

/// Returns the images of these, the one with most containers first.
fn images<'a>(all: impl Iterator<Item = &'a Listed>) -> Vec<(&'a str, usize)> {
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for listed in all {
        *counts.entry(&listed.image).or_default() += 1;
    }
    let mut images: Vec<_> = counts.into_iter().collect();
    images.sort_by_key(|&(image, count)| (std::cmp::Reverse(count), image));
    images
}

/// Says whether a registry of somebody else's is a cause: our own leases bear a name that none of those can have.
fn is_of_others(cause: &Cause) -> bool {
    matches!(cause, Cause::Registry(name) if name != "leases")
}

/// Returns why a group of containers goes, in words that fit all of them.
fn heading(judgement: &ContainerJudgement) -> String {
    let words = match rules_of(&judgement.lines).first().copied() {
        Some("client-gone") => "its client is gone, and nobody can ever speak to it again",
        // A registry says of each what it saw of it.
        Some("lease-expired") if !judgement.causes.iter().any(is_of_others) => "its lease is over",
        Some("owner-gone") => "its owner is gone",
        Some("cwd-gone") => "the directory that it was made for was deleted",
        Some(_) | None => return legible::text(&judgement.because),
    };
    words.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::container::sample;

    #[test]
    fn what_somebody_elses_registry_says_is_told_as_it_is() {
        let mut judgement = sample::judgement(1, "x");
        judgement.lines[0].evidence[0].rule = "lease-expired".into();
        judgement.because = "registry 'hub' says that it is over".into();
        judgement.causes = vec![Cause::Registry("leases".into())];
        assert_eq!(heading(&judgement), "its lease is over");
        judgement.causes = vec![Cause::Registry("hub".into())];
        assert_eq!(heading(&judgement), judgement.because);
    }
}
