//! What judge remembers between looks, and between runs.
//!
//! Keyed by identity and boot. A suspend, a clock step or an overslept loop re-arms everything: what is suspected
//! then is suspected anew. What is gone is forgotten.

use std::collections::BTreeSet;
use std::time::Duration;

use bstr::{BStr, BString};
use serde::{Deserialize, Serialize};

use crate::config::policy::Confirm;
use crate::model::id::{BootId, FileId, Identity, Pid, ProcessId};
use crate::model::look::Look;
use crate::model::moment::{Clocks, Moment};
use crate::model::ownership::{Parentage, ancestors, parentage};
use crate::model::question::{Answer, Owner, PathAnswer, Question};
use crate::model::verdict::{LineList, Verdict, Verdicts};

use super::Notes;
use super::candidates::Candidates;

mod containers;
mod fingerprint;
mod leases;
mod left;
pub(super) mod pings;

pub(in crate::judge) use fingerprint::fingerprint;
pub use leases::Pin;
pub use pings::{Asked, Ever, Heard};

/// More drift than this between two clocks is a suspend or a step. Slewing and the rounding of three reads stay far
/// below it.
const DRIFT: Duration = Duration::from_secs(2);

/// With no known rhythm of looks, a gap longer than this counts as overslept.
const UNKNOWN_GAP: Duration = Duration::from_hours(1);

/// Gaps shorter than this never count as overslept: looks by hand come in pairs.
const SHORT_GAP: Duration = Duration::from_mins(1);

/// What judge remembers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Ledger {
    /// The boot that all of this was seen in.
    boot: Option<BootId>,
    /// The pid and time namespaces that all of this was seen from: a container has the boot id of its host, perhaps
    /// its state directory too, and its numbers and stamps mean others.
    #[serde(default)]
    seen_from: Option<(u64, u64)>,
    /// The clocks of the last look.
    last: Option<Clocks>,
    /// The gap between the last two looks: the rhythm by which oversleeping is noticed.
    rhythm: Option<Duration>,
    // Invariant: sorted by (root, policy), no pair twice.
    records: Vec<Record>,
    #[serde(default)]
    leases: leases::Leases,
    #[serde(default)]
    pings: pings::Pings,
    #[serde(default)]
    behind: left::Behind,
    #[serde(default)]
    containers: containers::Containers,
}

/// What is remembered of one tree under one policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Record {
    root: ProcessId,
    policy: String,
    /// Who was suspected; another identity behind the same number starts anew (CASES C07).
    identity: Option<Identity>,
    suspicion: Option<Suspicion>,
    lasting: Vec<(LastingKey, Moment)>,
    spawner: Option<ProcessId>,
    owners: Vec<(Pid, ProcessId)>,
    directories: Vec<(BString, FileId, FileId)>,
    activity: Option<Quiet>,
}

/// An unbroken row of looks at which the same line held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Suspicion {
    /// The line that held.
    pub line: usize,
    /// What the line asked for: its place alone may be another line's since the configuration was changed.
    #[serde(default)]
    pub asked: u64,
    /// The first look of the row.
    pub since: Moment,
    /// The last look that was counted: looks count only when they are far enough apart.
    pub counted: Moment,
    /// Looks counted.
    pub looks: u32,
}

/// Names one condition of one policy, whose period is kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastingKey {
    /// The list it stands in.
    pub list: LineList,
    /// The line in it.
    pub line: usize,
    /// The condition in the line.
    pub condition: usize,
    /// What it asked for, as of [`Suspicion::asked`].
    #[serde(default)]
    pub asked: u64,
}

/// Counters of a tree, and since when they stand still.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
struct Quiet {
    cpu: Duration,
    moved: u64,
    since: Moment,
}

/// What [`Ledger::begin`] did to what was remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begun {
    /// Nothing special.
    Continued,
    /// The first look of this boot.
    Fresh,
    /// Everything was re-armed, for this reason.
    Rearmed(Rearm),
}

/// Why what was suspected is suspected anew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Rearm {
    /// The boot clock ran on while the monotonic clock stood still.
    Suspend,
    /// The wall clock was set.
    ClockStep,
    /// The gap since the last look is far longer than the one before: a paused machine, or starvation.
    Overslept,
}

impl Ledger {
    /// Prepares for a look: drops what belongs to another boot or was seen from other namespaces, re-arms after a suspend, a clock step or
    /// oversleeping, and forgets what is gone.
    pub fn begin(&mut self, look: &Look, confirm: &Confirm) -> Begun {
        let now = look.snapshot.began;
        let seen_from = look.snapshot.own.namespaces.as_ref().ok().map(|own| (own.pid, own.time));
        let begun = if self.boot.as_ref() == Some(&look.snapshot.boot) && self.seen_from == seen_from {
            match self.last.and_then(|last| self.disturbed(last, now, confirm)) {
                Some(why) => {
                    self.rearm();
                    Begun::Rearmed(why)
                }
                None => Begun::Continued,
            }
        } else {
            *self = Ledger { boot: Some(look.snapshot.boot.clone()), seen_from, ..Ledger::default() };
            Begun::Fresh
        };
        self.rhythm = self.last.map(|last| now.boot.since(last.boot)).or(self.rhythm);
        self.last = Some(now);
        let table = &look.snapshot.table;
        let is_here = |id| table.get(id).is_some_and(|row| !row.is_gone());
        self.records.retain(|record| is_here(record.root));
        self.pings.retain(is_here);
        self.containers.begin(look);
        begun
    }

    fn disturbed(&self, last: Clocks, now: Clocks, confirm: &Confirm) -> Option<Rearm> {
        let boot = now.boot.since(last.boot);
        let monotonic = Duration::from_nanos(now.monotonic.saturating_sub(last.monotonic));
        // Clocks that ran backwards within one boot were not read from this boot.
        if now.boot < last.boot || now.monotonic < last.monotonic {
            return Some(Rearm::ClockStep);
        }
        if boot.abs_diff(monotonic) > DRIFT {
            return Some(Rearm::Suspend);
        }
        let wall = i128::from(now.wall) - i128::from(last.wall);
        let drift = (wall - i128::try_from(boot.as_millis()).unwrap_or(i128::MAX)).unsigned_abs();
        if drift > DRIFT.as_millis() {
            return Some(Rearm::ClockStep);
        }
        let longest = match self.rhythm {
            Some(rhythm) => (rhythm * 2).max(confirm.apart * 2).max(SHORT_GAP),
            None => UNKNOWN_GAP,
        };
        (boot > longest).then_some(Rearm::Overslept)
    }

    fn rearm(&mut self) {
        for record in &mut self.records {
            record.suspicion = None;
            record.lasting.clear();
            record.activity = None;
        }
        self.leases.rearm();
        self.pings.rearm();
        self.behind.rearm();
        self.containers.rearm();
    }

    /// Drops every suspicion of one root: an unfinished teardown is judged anew from the first look.
    pub fn forget(&mut self, root: ProcessId) {
        self.records.retain(|record| record.root != root);
        self.pings.forget(root);
    }

    /// Remembers a look, once it has been judged.
    pub fn remember(&mut self, look: &Look, candidates: &Candidates, verdicts: &Verdicts, notes: &Notes) {
        let now = look.snapshot.began.boot;
        let table = &look.snapshot.table;
        let all = || verdicts.judgements.iter().chain(&verdicts.offered);
        let judged: BTreeSet<(ProcessId, &str)> =
            all().map(|judgement| (judgement.root, judgement.policy.as_str())).collect();
        for record in &mut self.records {
            // A look that had nothing to say of it is a look that did not agree: the row is broken.
            if !judged.contains(&(record.root, record.policy.as_str())) {
                record.suspicion = None;
                record.lasting.clear();
                record.activity = None;
            }
        }
        for judgement in all() {
            let key = (judgement.root, judgement.policy.as_str());
            let identity = judgement.identity.clone().ok();
            let record = self.record(key);
            if record.identity.is_some() && !same(record.identity.as_ref(), identity.as_ref()) {
                *record = Record::new(judgement.root, &judgement.policy);
                self.pings.forget(judgement.root);
            }
            let record = self.record(key);
            record.identity = identity;
            record.suspicion = match judgement.verdict {
                Verdict::Suspect { .. } | Verdict::Orphaned { .. } => notes.suspicion(key),
                Verdict::Protected | Verdict::Alive | Verdict::Unknown => None,
            };
            let lasting = notes.lasting(key);
            record.lasting.retain(|(key, _)| lasting.contains(key));
            for &key in lasting {
                if !record.lasting.iter().any(|(kept, _)| *kept == key) {
                    record.lasting.push((key, now));
                }
            }
            if record.spawner.is_none()
                && let Some(row) = table.get(judgement.root)
                && let Parentage::Living(parent) = parentage(table, &look.reapers, row)
            {
                record.spawner = Some(parent);
            }
        }
        self.remember_activity(look, candidates, now);
        self.remember_answers(look);
        self.leases.remember(look);
        self.containers.remember(look, &verdicts.containers, &notes.containers);
        self.pings.remember(look, &judged, &notes.containers, |key| notes.manner(key));
    }

    fn remember_activity(&mut self, look: &Look, candidates: &Candidates, now: Moment) {
        let table = &look.snapshot.table;
        for other in &candidates.others {
            let mut cpu = Duration::ZERO;
            let mut moved = Some(0_u64);
            for &id in &other.tree {
                cpu += table.get(id).map_or(Duration::ZERO, |row| row.cpu);
                moved = match (moved, look.answers.get(&Question::Activity(id))) {
                    (Some(sum), Some(Ok(Answer::Activity(activity)))) => {
                        Some(sum.wrapping_add(activity.read).wrapping_add(activity.written))
                    }
                    _ => None,
                };
            }
            let Some(record) = self
                .records
                .iter_mut()
                .find(|record| record.root == other.root && record.policy == other.policy)
            else {
                continue;
            };
            record.activity = moved.map(|moved| match record.activity {
                Some(quiet) if quiet.cpu == cpu && quiet.moved == moved => quiet,
                Some(_) | None => Quiet { cpu, moved, since: now },
            });
        }
    }

    /// Records owners and directories while they are there: a death or a deletion counts only for what was once seen
    /// alive (REDTEAM F8, F10).
    fn remember_answers(&mut self, look: &Look) {
        let table = &look.snapshot.table;
        for (question, answer) in &look.answers {
            match (question, answer) {
                (Question::Owner { of, pid }, Ok(Answer::Owner(Owner::Alive(owner))))
                    if ancestors(table, of.pid).contains(owner) =>
                {
                    for record in self.records.iter_mut().filter(|record| record.root == *of) {
                        if !record.owners.iter().any(|(known, _)| known == pid) {
                            record.owners.push((*pid, *owner));
                        }
                    }
                }
                (Question::Path { of, path }, Ok(Answer::Path(PathAnswer::Present { file, parent }))) => {
                    for record in self.records.iter_mut().filter(|record| record.root == *of) {
                        if !record.directories.iter().any(|(known, _, _)| known == path) {
                            record.directories.push((path.clone(), *file, parent.file));
                        }
                    }
                }
                _ => {}
            }
        }
    }

    fn record(&mut self, (root, policy): (ProcessId, &str)) -> &mut Record {
        let at = match self
            .records
            .binary_search_by(|record| (record.root, record.policy.as_str()).cmp(&(root, policy)))
        {
            Ok(at) => at,
            Err(at) => {
                self.records.insert(at, Record::new(root, policy));
                at
            }
        };
        &mut self.records[at]
    }

    fn of(&self, root: ProcessId) -> impl Iterator<Item = &Record> {
        self.records.iter().filter(move |record| record.root == root)
    }

    fn get(&self, root: ProcessId, policy: &str) -> Option<&Record> {
        self.of(root).find(|record| record.policy == policy)
    }

    /// Returns the unbroken suspicion of this very process under a policy.
    pub fn suspicion(&self, identity: &Identity, policy: &str) -> Option<Suspicion> {
        let record = self.get(identity.id, policy)?;
        if same(record.identity.as_ref(), Some(identity)) { record.suspicion } else { None }
    }

    /// Returns since when a condition has held at every look.
    pub fn lasting_since(&self, root: ProcessId, policy: &str, key: LastingKey) -> Option<Moment> {
        self.get(root, policy)?.lasting.iter().find(|(kept, _)| *kept == key).map(|(_, since)| *since)
    }

    /// Returns the process that was the living parent of `root` when it was first seen: its spawner.
    pub fn spawner(&self, root: ProcessId) -> Option<ProcessId> {
        self.of(root).find_map(|record| record.spawner)
    }

    /// Returns whom a bare process number named when it was seen alive as an ancestor of this root.
    pub fn owner(&self, root: ProcessId, pid: Pid) -> Option<ProcessId> {
        self.of(root)
            .flat_map(|record| &record.owners)
            .find(|(known, _)| *known == pid)
            .map(|(_, owner)| *owner)
    }

    /// Returns the identities of a captured path and of its parent as recorded while it was there.
    pub fn directory(&self, root: ProcessId, path: &BStr) -> Option<(FileId, FileId)> {
        self.of(root)
            .flat_map(|record| &record.directories)
            .find(|(known, _, _)| known == path)
            .map(|(_, file, parent)| (*file, *parent))
    }

    /// Returns since when a tree has used no processor time and moved no bytes, at every look.
    pub fn quiet_since(&self, root: ProcessId) -> Option<Moment> {
        self.of(root).find_map(|record| record.activity).map(|quiet| quiet.since)
    }
}

impl Record {
    fn new(root: ProcessId, policy: &str) -> Record {
        Record {
            root,
            policy: policy.to_owned(),
            identity: None,
            suspicion: None,
            lasting: Vec::new(),
            spawner: None,
            owners: Vec::new(),
            directories: Vec::new(),
            activity: None,
        }
    }
}

/// Says whether two sightings behind one number are surely one process.
fn same(before: Option<&Identity>, now: Option<&Identity>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => before.is_surely(now),
        (None, _) | (_, None) => false,
    }
}
