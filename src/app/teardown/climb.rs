//! One tree on its ladder: its handles, and what became of each member.

use std::collections::{BTreeMap, BTreeSet};

use crate::act::processes::{Held, HoldError, Pinned, SignalError};
use crate::model::id::{Pid, ProcessId};
use crate::model::moment::Moment;
use crate::model::outcome::{Closure, MemberOutcome, Outcome, Report};
use crate::model::plan::{Joined, Member, Signal, Spared, Teardown};
use crate::model::table::State;
use crate::plan::escalation::{Escalation, Refusal, Search, Step};

use super::walk::Adopters;
use super::{Admission, Came, Event, Scene};

/// What one step brought.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Progress {
    /// There is more to do at once.
    Again,
    /// Nothing before then.
    Wait(Moment),
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
    pub(super) sight: Eyes,
    /// Who would adopt what the tree leaves behind.
    pub(super) reapers: Vec<ProcessId>,
    /// Whether who is killed last must be chosen anew.
    anchors: Anchors,
    outcomes: BTreeMap<ProcessId, MemberOutcome>,
    stood_down: Option<String>,
    span: (Moment, Moment),
    over: Option<Closure>,
}

/// Whether children could be listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Eyes {
    Open,
    /// A list of children could not be read, so empty walks prove nothing.
    Blind,
}

/// Whether the choice of those who are killed last is up to date.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Anchors {
    Stale,
    Chosen,
}

impl<'a> Climb<'a> {
    /// Holds every member, judges the tree once more, and writes down the intent; the first signal is the first step.
    pub(super) fn begin<S: Scene>(teardown: &'a Teardown, scene: &mut S) -> Climb<'a> {
        let now = scene.now();
        let mut climb = Climb::new(teardown, now);
        climb.reapers = scene.adopters(teardown);
        let root = teardown.judgement.root;
        for member in &teardown.members {
            match Held::hold(&member.identity) {
                Ok(held) => climb.take(member, held),
                Err(error) => {
                    climb.lose(member, &error, now);
                }
            }
        }
        climb.drop_strangers();
        if !climb.held.contains_key(&root) {
            // What was judged is not there any more, so nothing is proven of what it left.
            climb.end_untouched("its root went, or changed, before the first signal", now);
        } else if let Err(why) = scene.recheck(teardown) {
            climb.end_untouched(&why, now);
        } else if let Err(why) = scene.record(&Event::Intent(teardown)) {
            climb.end_untouched(&format!("its intent could not be written down: {why}"), now);
        }
        climb
    }

    /// Returns a tree that is left alone.
    pub(super) fn stand_down(teardown: &'a Teardown, why: &str, now: Moment) -> Climb<'a> {
        let mut climb = Climb::new(teardown, now);
        climb.end_untouched(why, now);
        climb
    }

    fn new(teardown: &'a Teardown, now: Moment) -> Climb<'a> {
        Climb {
            teardown,
            machine: Escalation::new(&teardown.ladder, teardown.judgement.root, [], now),
            held: BTreeMap::new(),
            members: BTreeMap::new(),
            spared: teardown.spared.iter().map(|spared| (spared.id, spared.why.clone())).collect(),
            sight: Eyes::Open,
            reapers: Vec::new(),
            anchors: Anchors::Stale,
            outcomes: BTreeMap::new(),
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
        if self.machine.is_killing() && self.anchors == Anchors::Stale {
            self.machine.hold_back(self.newest_of_each_session());
            self.anchors = Anchors::Chosen;
        }
        let now = scene.now();
        match self.machine.poll(now) {
            Step::Signal { signal, to } => {
                for id in to {
                    self.signal(id, signal, scene);
                }
                Progress::Again
            }
            Step::Walk => {
                let found = self.walk(scene, adopters);
                self.machine.walked(scene.now(), found);
                Progress::Again
            }
            Step::Rescan => {
                let found = self.rescan(scene);
                self.machine.rescanned(found);
                Progress::Again
            }
            Step::WaitUntil(until) => Progress::Wait(until),
            Step::Done(closure) => {
                self.finish(closure, scene);
                Progress::Over
            }
        }
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

    fn signal<S: Scene>(&mut self, id: ProcessId, signal: Signal, scene: &mut S) {
        let Some(mut held) = self.held.get(&id) else {
            self.machine.refused(id, Refusal::Denied);
            return;
        };
        let mut sent = held.signal(signal);
        if matches!(sent, Err(SignalError::IdentityChanged)) && self.was_about_to_exec(id) {
            match self.held_anew(id, scene) {
                Some(again) => held = self.held.entry(id).insert_entry(again).into_mut(),
                None => return self.refuse(id, Outcome::IdentityChanged, Refusal::IdentityChanged),
            }
            sent = held.signal(signal);
        }
        // Nobody forks any more once KILL is pending (copy_process() refuses), and ending takes longer than this
        // read: the list is whole now, and a moment later a reaper has the children.
        let children = match signal {
            Signal::Kill if sent.is_ok() => held.children().unwrap_or_default(),
            Signal::Hup
            | Signal::Int
            | Signal::Quit
            | Signal::Usr1
            | Signal::Usr2
            | Signal::Term
            | Signal::Kill => Vec::new(),
        };
        match sent {
            Ok(()) => {
                if let Some(outcome) = self.outcomes.get_mut(&id) {
                    outcome.signals.push(signal);
                }
            }
            Err(SignalError::Gone) => self.gone(id, scene.now()),
            Err(SignalError::Denied) => self.refuse(id, Outcome::Denied, Refusal::Denied),
            Err(SignalError::IdentityChanged) => {
                self.refuse(id, Outcome::IdentityChanged, Refusal::IdentityChanged);
            }
            Err(SignalError::Failed(error)) => {
                self.refuse(
                    id,
                    Outcome::Survived(format!("the signal could not be sent: {error}")),
                    Refusal::Denied,
                );
            }
        }
        self.consider_children(id, &children, scene);
    }

    /// Says whether a member was surely or likely seen between fork(2) and execve(2) (CASES C26): it was born during
    /// the teardown, or ran its parent's own program when it was planned. Its membership comes from its parent, and
    /// not from the program. The root's proof is of the program it ran, so it is never one of these.
    fn was_about_to_exec(&self, id: ProcessId) -> bool {
        if id == self.teardown.judgement.root {
            return false;
        }
        let exe = |id: &ProcessId| self.members.get(id).and_then(|member| member.identity.exe);
        let is_planned = self.teardown.members.iter().any(|member| member.identity.id == id);
        let parent = self
            .held
            .get(&id)
            .and_then(|held| self.members.keys().find(|above| above.pid.number() == held.first_sight().ppid));
        !is_planned || parent.is_some_and(|parent| exe(parent) == exe(&id))
    }

    /// Lets a member that ran another program pass all gates once more, as what it is now.
    fn held_anew<S: Scene>(&self, id: ProcessId, scene: &mut S) -> Option<Held> {
        let old = self.held.get(&id)?;
        let pinned = Pinned::pin(id).ok()?;
        // While the old handle's process lives, the number and start are its own.
        if old.is_gone() {
            return None;
        }
        match scene.admit(self.teardown, pinned.sight(), Came::Below(self.teardown.judgement.root)) {
            Admission::Join(member) => pinned.hold(&member.identity).ok(),
            Admission::Spare(_) => None,
        }
    }

    /// Returns the newest live member of each session that a member leads: it is the least likely to have children.
    fn newest_of_each_session(&self) -> BTreeSet<ProcessId> {
        let led = self.led_sessions();
        let mut newest: BTreeMap<i32, ProcessId> = BTreeMap::new();
        for id in self.machine.live() {
            let Some(sid) = self.held.get(&id).map(|held| held.first_sight().sid) else { continue };
            if led.binary_search(&sid).is_err() {
                continue;
            }
            let entry = newest.entry(sid).or_insert(id);
            if (entry.start, entry.pid) < (id.start, id.pid) {
                *entry = id;
            }
        }
        newest.into_values().collect()
    }

    fn refuse(&mut self, id: ProcessId, outcome: Outcome, why: Refusal) {
        self.machine.refused(id, why);
        if let Some(noted) = self.outcomes.get_mut(&id) {
            noted.outcome = outcome;
        }
    }

    /// Works out membership from a fresh table and takes in whoever is new.
    fn rescan<S: Scene>(&mut self, scene: &mut S) -> Search {
        let known: Vec<Member> = self.members.values().cloned().collect();
        let Ok(fresh) = scene.fresh(self.teardown, &known) else {
            self.sight = Eyes::Blind;
            return Search::Empty;
        };
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

    fn finish<S: Scene>(&mut self, closure: Closure, scene: &mut S) {
        let now = scene.now();
        let left: Vec<ProcessId> = self.held.keys().copied().collect();
        for id in left {
            let Some(held) = self.held.get(&id) else { continue };
            if held.is_gone() {
                self.gone(id, now);
                continue;
            }
            let state = held.sight().map_or("unreadable", |sight| describe(sight.state));
            if let Some(outcome) = self.outcomes.get_mut(&id)
                && matches!(outcome.outcome, Outcome::Survived(_))
            {
                outcome.outcome = Outcome::Survived(state.to_owned());
            }
        }
        self.held.clear();
        let closure = match (closure, self.sight) {
            (Closure::Gone, Eyes::Blind) => Closure::NotProven,
            (closure, Eyes::Open | Eyes::Blind) => closure,
        };
        if closure == Closure::Untouched {
            self.stood_down = Some("its root was not surely the judged process any more".to_owned());
        }
        self.over = Some(closure);
        self.span.1 = now;
        self.write_outcome(scene);
    }

    fn end_untouched(&mut self, why: &str, now: Moment) {
        for (id, outcome) in &mut self.outcomes {
            if self.held.contains_key(id) {
                outcome.outcome = Outcome::Survived("left alone".to_owned());
            }
        }
        self.held.clear();
        self.stood_down = Some(why.to_owned());
        self.over = Some(Closure::Untouched);
        self.span.1 = now;
    }

    fn write_outcome<S: Scene>(&mut self, scene: &mut S) {
        let report = Report {
            root: self.teardown.judgement.root,
            policy: self.teardown.judgement.policy.clone(),
            stood_down: self.stood_down.clone(),
            members: self.outcomes.values().cloned().collect(),
            spared: self.spared.iter().map(|(id, why)| Spared { id: *id, why: why.clone() }).collect(),
            closure: self.over.unwrap_or(Closure::Untouched),
            span: self.span,
        };
        // What was done cannot be undone: a record that fails is reported all the same, by the report itself.
        let _ = scene.record(&Event::Outcome(&report));
    }
}

fn describe(state: State) -> &'static str {
    match state {
        State::Running => "running",
        State::Sleeping => "sleeping",
        State::Uninterruptible => "uninterruptible, or in a frozen cgroup",
        State::Stopped => "stopped",
        State::Zombie => "its main thread is dead, and others run",
        State::Dead => "on its way out",
        State::Other(_) => "in an unknown state",
    }
}
