//! What a sweep shows: what it would reap, what it would keep, and where it could not tell.
//!
//! Grouping is here, once; `text` and `json` only write it down.

pub mod behind;
pub mod containers;
pub mod json;
pub mod outcome;
pub mod text;

use std::collections::BTreeMap;
use std::time::Duration;

use bstr::{BStr, ByteSlice as _};

use super::legible;
use crate::config::policy::{ArgumentsShown, Config, ProofNeed};
use crate::model::container::stop::StopReport;
use crate::model::escape::escape;
use crate::model::evidence::Says;
use crate::model::id::ProcessId;
use crate::model::look::Look;
use crate::model::outcome::Report;
use crate::model::plan::{Plan, Teardown, Wait, Waiting};
use crate::model::residue::Cleared;
use crate::model::rule::Strength;
use crate::model::verdict::{Judgement, LineFinding, LineList, Lookalike, Mode, Verdict, Verdicts};

/// Everything that a report is made of.
#[derive(Debug, Clone, Copy)]
pub struct Seen<'a> {
    /// What was seen.
    pub look: &'a Look,
    /// What was judged.
    pub verdicts: &'a Verdicts,
    /// What would be done.
    pub plan: &'a Plan,
    /// The configuration.
    pub config: &'a Config,
    /// The home directory, shown as `~`.
    pub home: Option<&'a BStr>,
    /// How long the look took.
    pub took: Duration,
    /// The only policy that was asked for.
    pub only: Option<&'a str>,
    /// What the plan is.
    pub stage: Stage,
    /// How far lists go.
    pub detail: Detail,
}

/// What was done.
#[derive(Debug, Clone, Copy, Default)]
pub struct Done<'a> {
    /// What became of trees.
    pub reports: &'a [Report],
    /// What became of what they left behind.
    pub cleared: &'a [Cleared],
    /// What became of containers.
    pub stopped: &'a [StopReport],
}

/// What the shown plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stage {
    /// What a dry run found at one look; nothing is touched.
    DryRun,
    /// What a sweep by hand found at its first look; further looks come before any signal.
    FirstLook,
    /// What is confirmed and done now.
    Confirmed,
}

/// How far lists go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detail {
    /// A few of each.
    Some,
    /// All of them.
    All,
}

/// As many of a list as a screen bears; the rest is counted.
const FEW: usize = 3;

/// Returns how many of a list of this length are shown.
fn few(detail: Detail, length: usize) -> usize {
    match detail {
        // "… 1 more" takes as much room as the one.
        Detail::Some if length > FEW + 1 => FEW,
        Detail::Some | Detail::All => length,
    }
}

/// Trees of one policy that go for one reason.
#[derive(Debug)]
pub struct ReapGroup<'a> {
    /// The policy.
    pub policy: &'a str,
    /// The reason, in words.
    pub reason: String,
    /// The trees, oldest first.
    pub trees: Vec<&'a Teardown>,
}

/// Trees of one policy that are kept though they may look leaked.
#[derive(Debug)]
pub struct KeepGroup<'a> {
    /// The policy.
    pub policy: &'a str,
    /// Why they are kept.
    pub why: Kept,
    /// The trees.
    pub trees: Vec<&'a Judgement>,
    /// Who holds them, with how many each; the one with most first.
    pub holders: Vec<(ProcessId, usize)>,
}

/// Why something that may look leaked is kept.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kept {
    /// A live process holds their stdin.
    Held,
    /// Their stdin ended, and no more than that.
    StdinEnded,
    /// Adopted, without a proof.
    Adopted,
    /// Proven or not, their policy only reports.
    ReportOnly,
    /// Ownerless, but for this veto or this rule of a `spare-when` line.
    Vetoed(String),
    /// Not for long enough yet.
    NotYet,
}

/// What a policy would add that is off.
#[derive(Debug, PartialEq, Eq)]
pub struct OfferGroup<'a> {
    /// The policy.
    pub policy: &'a str,
    /// How many trees.
    pub trees: usize,
    /// How many processes there are in them.
    pub processes: usize,
    /// Their memory, bytes.
    pub resident: u64,
    /// Why they would go; of several reasons that of the first tree.
    pub because: &'a str,
}

/// What a report says, grouped.
#[derive(Debug)]
pub struct Groups<'a> {
    /// What goes.
    pub reap: Vec<ReapGroup<'a>>,
    /// What is kept and may look leaked.
    pub keep: Vec<KeepGroup<'a>>,
    /// Proven, but waiting for something.
    pub waiting: Vec<(&'a Waiting, usize)>,
    /// What could not be told, by policy and reason.
    pub unknown: Vec<(&'a str, &'a str, Vec<&'a Judgement>)>,
    /// What policies would add that are off.
    pub offers: Vec<OfferGroup<'a>>,
}

impl<'a> Seen<'a> {
    /// Says whether a policy was asked for.
    pub fn wants(&self, policy: &str) -> bool {
        self.only.is_none_or(|only| only == policy)
    }

    /// Returns the policies that reap without a proof: every output names them.
    pub fn without_proof(&self) -> Vec<&'a str> {
        let trees = self.config.policies.iter().map(|policy| (policy.name.as_str(), policy.proof));
        // One that only reports ends nothing by whatever it sees.
        let containers = self.config.containers.iter().filter(|policy| policy.mode == Mode::Reap);
        let containers = containers.map(|policy| (policy.name.as_str(), policy.proof));
        let mut waived: Vec<&str> = trees
            .chain(containers)
            .filter(|(name, proof)| *proof == ProofNeed::Waived && self.wants(name))
            .map(|(name, _)| name)
            .collect();
        // A policy for trees and one for containers may bear one name.
        waived.dedup();
        waived
    }

    /// Returns how many processes were in scope.
    pub fn processes(&self) -> usize {
        self.look.snapshot.arguments.len()
    }

    /// Returns what the report says, grouped.
    pub fn groups(&self) -> Groups<'a> {
        let mut reap: BTreeMap<(&str, String), Vec<&Teardown>> = BTreeMap::new();
        for teardown in self.plan.teardowns.iter().filter(|teardown| self.wants(&teardown.judgement.policy)) {
            let judgement = &teardown.judgement;
            reap.entry((&judgement.policy, heading(judgement))).or_default().push(teardown);
        }
        let planned = |judgement: &Judgement| {
            let same = |other: &Judgement| other.root == judgement.root && other.policy == judgement.policy;
            self.plan.teardowns.iter().any(|teardown| same(&teardown.judgement))
                || self.plan.waiting.iter().any(|waiting| same(&waiting.judgement))
        };
        let mut keep: BTreeMap<(&str, Kept), Vec<&Judgement>> = BTreeMap::new();
        let mut unknown: BTreeMap<(&str, &str), Vec<&Judgement>> = BTreeMap::new();
        for judgement in self.verdicts.judgements.iter().filter(|judgement| self.wants(&judgement.policy)) {
            match &judgement.verdict {
                Verdict::Unknown => {
                    unknown.entry((&judgement.policy, &judgement.because)).or_default().push(judgement);
                }
                Verdict::Suspect { .. } | Verdict::Orphaned { .. } if !planned(judgement) => {
                    keep.entry((&judgement.policy, Kept::NotYet)).or_default().push(judgement);
                }
                Verdict::Suspect { .. } | Verdict::Orphaned { .. } => {}
                Verdict::Protected | Verdict::Alive => {
                    let Some(lookalike) = &judgement.lookalike else { continue };
                    let why = match lookalike {
                        Lookalike::HeldBy(_) => Kept::Held,
                        Lookalike::StdinEnded => Kept::StdinEnded,
                        Lookalike::Adopted => Kept::Adopted,
                        Lookalike::ReportOnly => Kept::ReportOnly,
                        Lookalike::Vetoed(veto) => Kept::Vetoed(veto.clone()),
                    };
                    keep.entry((&judgement.policy, why)).or_default().push(judgement);
                }
            }
        }
        let mut waiting: Vec<(&Waiting, usize)> = Vec::new();
        for one in self.plan.waiting.iter().filter(|waiting| self.wants(&waiting.judgement.policy)) {
            match &one.why {
                // It goes with the tree it is part of, and is counted there.
                Wait::PartOf(_) => continue,
                Wait::ReportOnly => {
                    keep.entry((&one.judgement.policy, Kept::ReportOnly)).or_default().push(&one.judgement);
                    continue;
                }
                Wait::Pace
                | Wait::SameCause(_)
                | Wait::TooLarge(_)
                | Wait::Unidentified
                | Wait::Successor => {}
            }
            let same =
                |other: &Waiting| other.judgement.policy == one.judgement.policy && other.why == one.why;
            match waiting.iter_mut().find(|(other, _)| same(other)) {
                Some((_, count)) => *count += 1,
                None => waiting.push((one, 1)),
            }
        }
        Groups {
            reap: reap
                .into_iter()
                .map(|((policy, reason), trees)| ReapGroup { policy, reason, trees })
                .collect(),
            keep: keep
                .into_iter()
                .map(|((policy, why), trees)| KeepGroup { policy, why, holders: holders(&trees), trees })
                .collect(),
            waiting,
            offers: self.offers(),
            unknown: unknown.into_iter().map(|((policy, why), trees)| (policy, why, trees)).collect(),
        }
    }

    /// Returns what policies would add that are off, where that is anything: trees that no other policy ends anyway.
    fn offers(&self) -> Vec<OfferGroup<'a>> {
        let goes = |root: ProcessId| {
            let within =
                |teardown: &Teardown| teardown.members.iter().any(|member| member.identity.id == root);
            self.plan.teardowns.iter().any(within)
        };
        let would = |judgement: &&Judgement| {
            matches!(judgement.verdict, Verdict::Suspect { .. } | Verdict::Orphaned { .. })
                && self.wants(&judgement.policy)
                && !goes(judgement.root)
        };
        let mut offers: BTreeMap<&str, OfferGroup<'_>> = BTreeMap::new();
        for judgement in self.verdicts.offered.iter().filter(would) {
            let group = offers.entry(&judgement.policy).or_insert_with(|| OfferGroup {
                policy: &judgement.policy,
                trees: 0,
                processes: 0,
                resident: 0,
                because: &judgement.because,
            });
            group.trees += 1;
            group.processes += judgement.tree.len();
            group.resident = group.resident.saturating_add(judgement.resident);
        }
        offers.into_values().collect()
    }

    /// Returns what a process is called on a screen: its program and its first plain argument.
    pub fn name(&self, id: ProcessId) -> String {
        let argv = self.look.arguments(id).and_then(|entry| entry.argv.as_ref().ok());
        match argv.filter(|argv| !argv.is_empty()) {
            Some(argv) => short_name(argv),
            None => self.look.snapshot.table.get(id).map_or_else(|| "?".to_owned(), |row| escape(row.name())),
        }
    }

    /// Returns where a tree stands or what it is, for its line in a list.
    pub fn place(&self, judgement: &Judgement) -> String {
        let named =
            judgement.captures.iter().find(|(name, value)| name == "workspace" && value.starts_with(b"/"));
        match named {
            Some((_, value)) => super::words::path(value.as_bstr(), self.home),
            None => self.command(judgement),
        }
    }

    /// Returns a tree's command line, secrets starred out, cut to what fits beside the rest of its line.
    pub fn command(&self, judgement: &Judgement) -> String {
        const WIDTH: usize = 72;
        let words = legible::argv(&judgement.argv, ArgumentsShown::Redacted);
        let line = super::words::homely(&words.join(" "), self.home);
        if line.chars().count() <= WIDTH {
            return line;
        }
        line.chars().take(WIDTH - 1).chain(['…']).collect()
    }
}

/// Returns the program's file name and the first argument that is a plain word.
pub fn short_name<A: AsRef<[u8]>>(argv: &[A]) -> String {
    let words = legible::argv(argv, ArgumentsShown::Redacted);
    let file_name = |word: &String| word.rsplit('/').next().unwrap_or(word).to_owned();
    let Some(program) = words.first().map(file_name) else { return "?".to_owned() };
    match words.get(1).filter(|word| !word.starts_with('-')).map(file_name) {
        Some(second) if second.chars().count() <= 32 && !second.is_empty() => format!("{program} {second}"),
        Some(_) | None => program,
    }
}

/// Returns the rules of the line that condemned a tree, proofs first.
pub fn deciding(judgement: &Judgement) -> Vec<&str> {
    rules_of(&judgement.lines)
}

/// Returns the rules of the line that condemned, proofs first.
pub fn rules_of(lines: &[LineFinding]) -> Vec<&str> {
    let line = lines.iter().find(|line| line.list == LineList::ReapWhen && line.says == Says::Yes);
    let mut evidence: Vec<_> = line.map(|line| line.evidence.iter().collect()).unwrap_or_default();
    evidence.sort_by_key(|evidence: &&crate::model::evidence::Evidence| evidence.strength != Strength::Proof);
    evidence.iter().map(|evidence| evidence.rule.as_str()).collect()
}

/// Returns why a group of trees goes, in words that fit all of them.
fn heading(judgement: &Judgement) -> String {
    let rules = deciding(judgement);
    let words = match rules.first().copied() {
        Some("cwd-gone") => "its workspace was deleted",
        Some("socket-unreachable") => "nobody can reach its socket any more",
        Some("backend-gone") => "its backend is gone, and it never starts another",
        Some("stdin-abandoned") => "nobody holds the other end of its stdin",
        Some("channel-abandoned") => "nobody holds the other end of its channel",
        Some("owner-gone") => "its owner is gone",
        Some("companion-gone") => "the process it belongs to is gone",
        Some("terminal-gone") => "its terminal is gone",
        Some(_) | None => return legible::text(&judgement.because),
    };
    words.to_owned()
}

fn holders(trees: &[&Judgement]) -> Vec<(ProcessId, usize)> {
    let mut counts: BTreeMap<ProcessId, usize> = BTreeMap::new();
    for judgement in trees {
        if let Some(Lookalike::HeldBy(holder)) = &judgement.lookalike {
            *counts.entry(*holder).or_default() += 1;
        }
    }
    let mut holders: Vec<_> = counts.into_iter().collect();
    holders.sort_by_key(|&(id, count)| (std::cmp::Reverse(count), id));
    holders
}
