//! One tree on its ladder: its handles, and what became of each member.

use std::collections::{BTreeMap, BTreeSet};

use crate::act::processes::{self, Held, HoldError, Lost};
use crate::model::id::{Pid, ProcessId};
use crate::model::known::Known;
use crate::model::moment::Moment;
use crate::model::outcome::{Closure, MemberOutcome, Outcome, Report};
use crate::model::plan::{Joined, Member, Signal, Spared, Teardown};
use crate::plan::escalation::{Escalation, Refusal, Search, Step};
use crate::plan::teardown::Membership;

use super::walk::Adopters;
use super::{Again, Event, Scene};

/// What one step brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is more to do at once.
    Again,
    /// Nothing before then.
    Wait(Moment),
    /// Only a fresh table stands between it and its end: see [`Climb::verified`].
    Scan,
    /// The tree is done with.
    Over,
}

/// One tree on its ladder.
#[derive(Debug)]
pub(super) struct Climb<'a> {
    pub(super) teardown: &'a Teardown,
    pub(super) machine: Escalation,
    /// Whoever is held and not seen gone.
    pub(super) held: BTreeMap<ProcessId, Held>,
    // Invariant: never shrinks; an identity once seen is never forgotten.
    pub(super) members: BTreeMap<ProcessId, Member>,
    pub(super) spared: BTreeMap<ProcessId, String>,
    /// Those that were killed with their cgroup.
    pub(super) grouped: BTreeSet<ProcessId>,
    /// How often each newborn process that is not a member yet was asked about.
    pub(super) tries: BTreeMap<ProcessId, u32>,
    pub(super) sight: Eyes,
    /// Who would adopt what the tree leaves behind.
    pub(super) reapers: Vec<ProcessId>,
    /// Whether who is signalled last must be chosen anew.
    anchors: Anchors,
    pub(super) outcomes: BTreeMap<ProcessId, MemberOutcome>,
    /// Who was seen gone since that was last written down.
    pub(super) unsaid: Vec<ProcessId>,
    /// Why something that was done could not be written down.
    pub(super) unwritten: Option<String>,
    pub(super) stood_down: Option<String>,
    pub(super) span: (Moment, Moment),
    pub(super) over: Option<Closure>,
}

/// Whether children could be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eyes {
    Open,
    /// A list of children could not be read, so empty walks prove nothing.
    Blind,
}

/// Whether the choice of those who are signalled last is up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anchors {
    Stale,
    Chosen,
}

impl<'a> Climb<'a> {
    /// Holds every member, and does nothing yet.
    pub(super) fn hold<S: Scene>(teardown: &'a Teardown, scene: &mut S) -> Climb<'a> {
        let now = scene.now();
        let mut climb = Climb::new(teardown, now);
        climb.reapers = scene.adopters(teardown);
        for member in &teardown.members {
            match Held::hold(&member.identity) {
                Ok(held) => climb.take(member, held),
                Err(error) => {
                    climb.lose(member, &error, now);
                }
            }
        }
        climb
    }

    /// Judges the tree once more and writes down the intent; the first signal is the first step.
    pub(super) fn begin<S: Scene>(&mut self, scene: &mut S) {
        let now = scene.now();
        self.span = (now, now);
        self.drop_strangers();
        if !self.held.contains_key(&self.teardown.judgement.root) {
            // What was judged is not there any more, so nothing is proven of what it left.
            self.end_untouched("its root went, or changed, before the first signal", now);
        } else if let Err(why) = scene.recheck(self.teardown) {
            self.end_untouched(&why, scene.now());
        } else if let Err(why) = scene.record(&Event::Intent(self.teardown)) {
            self.end_untouched(&format!("its intent could not be written down: {why}"), scene.now());
            self.unwritten = Some(why);
        }
    }

    /// Leaves alone a tree that was not begun.
    pub(super) fn stand_down(&mut self, why: &str, now: Moment) {
        self.span = (now, now);
        self.end_untouched(why, now);
    }

    /// Returns why something that was done could not be written down.
    pub(super) fn unwritten(&self) -> Option<&str> {
        self.unwritten.as_deref()
    }

    fn new(teardown: &'a Teardown, now: Moment) -> Climb<'a> {
        Climb {
            teardown,
            machine: Escalation::new(&teardown.ladder, teardown.judgement.root, [], now),
            held: BTreeMap::new(),
            members: BTreeMap::new(),
            spared: teardown.spared.iter().map(|spared| (spared.id, spared.why.clone())).collect(),
            grouped: BTreeSet::new(),
            tries: BTreeMap::new(),
            sight: Eyes::Open,
            reapers: Vec::new(),
            anchors: Anchors::Stale,
            outcomes: BTreeMap::new(),
            unsaid: Vec::new(),
            unwritten: None,
            stood_down: None,
            span: (now, now),
            over: None,
        }
    }

    /// Does what the ladder says next.
    pub(super) fn step<S: Scene>(&mut self, scene: &mut S, adopters: &mut Adopters) -> Progress {
        if self.over.is_some() {
            return Progress::Over;
        }
        self.write_gone(scene);
        if self.anchors == Anchors::Stale {
            self.machine.hold_back(self.newest_of_each_session());
            self.anchors = Anchors::Chosen;
        }
        let now = scene.now();
        match self.machine.poll(now) {
            Step::Signal { signal, to } => {
                if signal == Signal::Kill {
                    self.kill_group(scene);
                }
                // Whoever was killed with its cgroup is on its way out, and cannot be checked any more.
                let mut is_sent = |id: &ProcessId| {
                    self.grouped.contains(id) || self.signal(*id, signal, scene) == Sent::Yes
                };
                let sent: Vec<ProcessId> = to.into_iter().filter(|id| is_sent(id)).collect();
                if !sent.is_empty() {
                    let root = self.teardown.judgement.root;
                    self.write(&Event::Signalled { root, signal, to: &sent }, scene);
                }
                Progress::Again
            }
            Step::Walk => {
                let found = self.walk(scene, adopters);
                self.machine.walked(scene.now(), found);
                Progress::Again
            }
            Step::Rescan => Progress::Scan,
            Step::WaitUntil(until) => Progress::Wait(until),
            // Whoever was refused its signal may have gone by itself since, and is nobody who survived.
            Step::Done(Closure::Survivors) if self.settle(now) == Settled::Some => Progress::Again,
            Step::Done(closure) => {
                self.finish(closure, scene);
                Progress::Over
            }
        }
    }

    /// Returns what its membership is worked out from once more.
    pub(super) fn again(&self) -> Again<'a> {
        Again { teardown: self.teardown, known: self.members.values().cloned().collect(), gone: self.ended() }
    }

    /// Takes in whoever a fresh table showed, `gone` being those that went before it was read.
    pub(super) fn verified<S: Scene>(&mut self, fresh: Known<Membership>, gone: &[ProcessId], scene: &mut S) {
        let found = self.rescan(fresh, gone, scene);
        self.machine.rescanned(found);
    }

    /// Says whether a member was sent KILL already.
    pub(super) fn was_killed(&self, id: ProcessId) -> bool {
        self.outcomes.get(&id).is_some_and(|outcome| outcome.signals.last() == Some(&Signal::Kill))
    }

    /// Returns everybody who is waited for.
    pub(super) fn awaited(&self) -> impl Iterator<Item = (ProcessId, &Held)> {
        let over = self.over.is_some();
        self.machine.live().filter(move |_| !over).filter_map(|id| Some((id, self.held.get(&id)?)))
    }

    /// Notes that a member was seen gone.
    pub(super) fn gone(&mut self, id: ProcessId, now: Moment) {
        self.machine.gone(id);
        if self.machine.is_held_back(id) {
            self.anchors = Anchors::Stale;
        }
        self.held.remove(&id);
        self.unsaid.push(id);
        if let Some(outcome) = self.outcomes.get_mut(&id) {
            outcome.outcome =
                outcome.signals.last().map_or(Outcome::AlreadyGone, |last| Outcome::Exited(*last));
            outcome.gone = Some(now);
        }
    }

    /// Returns what came of the tree.
    pub(super) fn into_report(self) -> Report {
        let planned: BTreeMap<ProcessId, usize> =
            self.teardown.members.iter().enumerate().map(|(at, member)| (member.identity.id, at)).collect();
        let order = |outcome: &MemberOutcome| planned.get(&outcome.id).copied().unwrap_or(planned.len());
        let mut members: Vec<MemberOutcome> = self.outcomes.into_values().collect();
        members.sort_by_key(|outcome| (order(outcome), outcome.id.start, outcome.id.pid));
        Report {
            root: self.teardown.judgement.root,
            policy: self.teardown.judgement.policy.clone(),
            stood_down: self.stood_down,
            members,
            spared: self.spared.into_iter().map(|(id, why)| Spared { id, why }).collect(),
            closure: self.over.unwrap_or(Closure::Untouched),
            span: self.span,
        }
    }

    /// Takes a held process in as a member.
    pub(super) fn take(&mut self, member: &Member, held: Held) {
        let id = member.identity.id;
        self.note(member, Outcome::Survived("not signalled".to_owned()));
        self.held.insert(id, held);
        self.machine.joined(id);
        self.anchors = Anchors::Stale;
    }

    /// Notes a member that could not be held.
    pub(super) fn lose(&mut self, member: &Member, error: &HoldError, now: Moment) {
        let id = member.identity.id;
        let (outcome, refusal) = match error {
            HoldError::Gone => (Outcome::AlreadyGone, None),
            HoldError::IdentityChanged => (Outcome::IdentityChanged, Some(Refusal::IdentityChanged)),
            HoldError::Denied => (Outcome::Denied, Some(Refusal::Denied)),
            HoldError::Forbidden | HoldError::Starved | HoldError::Failed(_) => {
                (Outcome::Survived(error.to_string()), Some(Refusal::Denied))
            }
        };
        self.note(member, outcome);
        self.machine.joined(id);
        match refusal {
            Some(why) => self.machine.refused(id, why),
            None => self.gone(id, now),
        }
    }

    fn note(&mut self, member: &Member, outcome: Outcome) {
        let id = member.identity.id;
        self.members.insert(id, member.clone());
        self.outcomes.insert(
            id,
            MemberOutcome { id, name: member.name.clone(), signals: Vec::new(), outcome, gone: None },
        );
    }

    /// Lets go of those that only seemed to be below a member: the scan that found them takes a while, and a
    /// member's number may have passed to their real parent within it. A parent that is held and alive has its number
    /// still; one that is gone left its children to a reaper.
    fn drop_strangers(&mut self) {
        let bearers: BTreeMap<Pid, ProcessId> = self.members.keys().map(|id| (id.pid, *id)).collect();
        let is_stranger = |held: &Held| {
            let parent_of = |ppid: i32| Pid::new(ppid).and_then(|pid| bearers.get(&pid));
            let lives = |id: &ProcessId| self.held.get(id).is_some_and(|parent| !parent.is_gone());
            match parent_of(held.first_sight().ppid) {
                None => false,
                Some(parent) if lives(parent) => false,
                Some(parent) => {
                    held.sight().is_ok_and(|now| now.ppid == parent.pid.number()) && !lives(parent)
                }
            }
        };
        let strangers: Vec<ProcessId> = self
            .held
            .iter()
            .filter(|(id, _)| self.members.get(id).is_some_and(|member| member.joined == Joined::Descendant))
            .filter(|(_, held)| is_stranger(held))
            .map(|(id, _)| *id)
            .collect();
        for id in strangers {
            self.held.remove(&id);
            self.refuse(id, Outcome::IdentityChanged, Refusal::IdentityChanged);
        }
    }

    /// Notes those among the refused who are gone now: by their handles, or by their numbers where none is held.
    fn settle(&mut self, now: Moment) -> Settled {
        let is_gone = |id: &ProcessId| match self.held.get(id) {
            Some(held) => held.is_gone(),
            None => match processes::sight_of(id.pid) {
                Ok(sight) => sight.id != *id || sight.is_gone(),
                Err(Lost::Gone) => true,
                Err(Lost::Unreadable(_)) => false,
            },
        };
        let gone: Vec<ProcessId> = self.machine.refusals().filter(is_gone).collect();
        for id in &gone {
            self.gone(*id, now);
        }
        if gone.is_empty() { Settled::Nobody } else { Settled::Some }
    }

    pub(super) fn refuse(&mut self, id: ProcessId, outcome: Outcome, why: Refusal) {
        self.machine.refused(id, why);
        if let Some(noted) = self.outcomes.get_mut(&id) {
            noted.outcome = outcome;
        }
    }

    /// Returns the members that are gone by their own handles, whoever bears their numbers now.
    fn ended(&self) -> Vec<ProcessId> {
        let is_gone = |id: &ProcessId| match self.held.get(id) {
            Some(held) => held.is_gone(),
            None => self.outcomes.get(id).is_some_and(|outcome| outcome.gone.is_some()),
        };
        self.members.keys().copied().filter(is_gone).collect()
    }

    /// Takes in whoever a fresh table showed that is new.
    fn rescan<S: Scene>(&mut self, fresh: Known<Membership>, gone: &[ProcessId], scene: &mut S) -> Search {
        let Ok(fresh) = fresh else {
            self.sight = Eyes::Blind;
            return Search::Empty;
        };
        // Who went while the table was read may have passed its number and tick on within it.
        if self.ended() != gone {
            return Search::Newborn;
        }
        let mut found = Search::Empty;
        for member in fresh.members {
            let id = member.identity.id;
            // Whoever the plan left alone stays so, also when the kept one above is gone and a reaper has them.
            let is_spared = self.teardown.spared.iter().any(|spared| spared.id == id);
            if self.members.contains_key(&id) || is_spared {
                continue;
            }
            match Held::hold(&member.identity) {
                Ok(held) => {
                    self.take(&member, held);
                    found = Search::Newborn;
                }
                Err(HoldError::Gone) => {}
                Err(error) => self.lose(&member, &error, scene.now()),
            }
        }
        for spared in fresh.spared {
            self.spared.entry(spared.id).or_insert(spared.why);
        }
        found
    }
}

/// Whether anybody among the refused turned out to be gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Settled {
    Some,
    Nobody,
}

/// Whether a signal went out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sent {
    Yes,
    No,
}
