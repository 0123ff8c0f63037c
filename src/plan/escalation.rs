//! The ladder as a machine without clock and signals: it is told what happened and when, and says what to do next.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::model::id::ProcessId;
use crate::model::moment::Moment;
use crate::model::outcome::Closure;
use crate::model::plan::{Ladder, Rung, Signal};

pub use super::step::{Refusal, Search, Step};

/// The part of the first grace that the root has alone, so that it can end its own children. A fifth, since a root
/// that shuts down well does so at once, and the others need their share of the same grace.
const HEAD_START_PART: u32 = 5;

/// The longest head start: a second of the usual five.
const HEAD_START_MOST: Duration = Duration::from_secs(1);

/// Between walks while members are given time: newborn ones are seen soon, and the walks cost under a percent.
const CALM_WALKS: (Duration, Duration) = (Duration::from_millis(5), Duration::from_millis(100));

/// Between walks after KILL: the kernel ends a process in some 30 microseconds, so what is left is stuck.
const KILL_WALKS: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(20));

/// This much later than a wait was to end: the machine slept, or was starved. Nobody could use that time to go, so it
/// does not count (REDTEAM F13). Only waits are forgiven: walks among thousands take longer than this, and a tree that
/// forks meanwhile would put off its own end for ever.
const MISSED: Duration = Duration::from_secs(2);

/// How long newborn ones are followed beyond the ladder's own time.
const CONVERGE: Duration = Duration::from_secs(2);

/// The most walks: the worst tree that was measured took 742.
const WALKS_MOST: u32 = 20_000;

/// Empty walks in a row that prove a tree closed, beside one fresh scan.
const EMPTY_WALKS: u32 = 2;

/// One tree on its way down.
#[derive(Debug, Clone)]
pub struct Escalation {
    rungs: Vec<Rung>,
    root: ProcessId,
    began: Moment,
    /// The rung that was prolonged last, and how often: those that fork without end must not prolong it for ever.
    prolonged: Option<(usize, Prolonged)>,
    /// When it was first polled: the ladder begins then.
    first_poll: Option<Moment>,
    /// Until when was to be waited, where the last step was a wait.
    waiting: Option<Moment>,
    rung: usize,
    rung_began: Moment,
    // Invariant: never shrinks; an identity once seen is never forgotten.
    members: BTreeMap<ProcessId, Stage>,
    /// Who is killed last; see [`Escalation::hold_back`].
    anchors: BTreeSet<ProcessId>,
    /// Whether any signal was sent at all.
    touched: Touched,
    next_walk: Moment,
    pause: Duration,
    walks: u32,
    empty_walks: u32,
    scan: Scan,
}

#[derive(Debug, Clone, Copy, Default)]
struct Stage {
    /// The last rung whose signal it was sent.
    asked: Option<usize>,
    /// Whether it joined after KILL had been sent.
    late: Late,
    over: Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Late {
    #[default]
    No,
    Yes,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
enum Over {
    #[default]
    No,
    Gone,
    Refused,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Prolonged {
    Once,
    Twice,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Touched {
    No,
    Yes,
    /// The root was refused before anybody was signalled: what was judged is not what is there.
    Forbidden,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Scan {
    Due,
    Empty,
}

impl Escalation {
    /// Returns a tree at the foot of its ladder. The members need not hold the root.
    pub fn new(
        ladder: &Ladder,
        root: ProcessId,
        members: impl IntoIterator<Item = ProcessId>,
        now: Moment,
    ) -> Escalation {
        let rungs = ladder.0.clone();
        let (pause, _) = walks(rungs.first());
        Escalation {
            rungs,
            root,
            began: now,
            prolonged: None,
            first_poll: None,
            waiting: None,
            rung: 0,
            rung_began: now,
            members: members.into_iter().map(|id| (id, Stage::default())).collect(),
            anchors: BTreeSet::new(),
            touched: Touched::No,
            next_walk: now.plus(pause),
            pause,
            walks: 0,
            empty_walks: 0,
            scan: Scan::Due,
        }
    }

    /// Returns what is to be done now. What it says to signal counts as sent; tell what came of it.
    pub fn poll(&mut self, now: Moment) -> Step {
        self.forgive(now);
        if self.touched == Touched::Forbidden || self.rungs.is_empty() {
            return Step::Done(Closure::Untouched);
        }
        let over = now >= self.began.plus(self.total() + CONVERGE) || self.walks >= WALKS_MOST;
        if self.live().next().is_none() {
            return if over { Step::Done(self.ending()) } else { self.verify() };
        }
        while let Some(rung) = self.rungs.get(self.rung).copied()
            && now >= self.rung_began.plus(rung.grace)
        {
            // A poll that came late must not end a rung before everybody was asked.
            if let Some((again, from)) = self.owes(rung) {
                let late = now.since(self.rung_began.plus(from));
                self.prolonged = Some((self.rung, again));
                self.rung_began = self.rung_began.plus(late);
                self.began = self.began.plus(late);
                break;
            }
            self.rung += 1;
            self.rung_began = now;
            self.next_walk = now;
            (self.pause, _) = walks(self.rungs.get(self.rung));
        }
        let Some(rung) = self.rungs.get(self.rung).copied() else { return Step::Done(self.ending()) };
        if over {
            return Step::Done(self.ending());
        }
        let to = self.unasked(now, rung);
        if !to.is_empty() {
            for id in &to {
                if let Some(stage) = self.members.get_mut(id) {
                    stage.asked = Some(self.rung);
                }
            }
            if self.touched == Touched::No {
                self.touched = Touched::Yes;
            }
            if rung.signal == Signal::Kill {
                self.next_walk = now;
            }
            return Step::Signal { signal: rung.signal, to };
        }
        if now >= self.next_walk || self.awaits_proof(now, rung) {
            return Step::Walk;
        }
        let mut until = self.next_walk.min(self.rung_began.plus(rung.grace));
        let head_start = self.rung_began.plus(self.head_start(rung));
        if now < head_start {
            until = until.min(head_start);
        }
        self.waiting = Some(until);
        Step::WaitUntil(until)
    }

    /// Keeps these from each rung's signal until everybody else is gone and one more walk was empty.
    ///
    /// What is born right before its parent ends is adopted, and only a member that is still in its session can
    /// witness where it comes from; most processes end of TERM at once. For half of the grace at most: one stuck
    /// process must not save the rest.
    pub fn hold_back(&mut self, anchors: BTreeSet<ProcessId>) {
        self.anchors = anchors;
    }

    /// Says whether this one is kept from a signal until the others are gone.
    pub fn is_held_back(&self, id: ProcessId) -> bool {
        self.anchors.contains(&id)
    }

    /// Says whether KILL is the signal of the rung that is reached.
    pub fn is_killing(&self) -> bool {
        self.touched != Touched::Forbidden
            && self.rungs.get(self.rung).is_some_and(|rung| rung.signal == Signal::Kill)
    }

    /// A member was seen gone.
    pub fn gone(&mut self, id: ProcessId) {
        if !self.anchors.contains(&id) {
            self.empty_walks = 0;
        }
        if let Some(stage) = self.members.get_mut(&id) {
            stage.over = Over::Gone;
        }
    }

    /// A member cannot be signalled, and is not waited for. When it is the root, before anybody else was signalled,
    /// the whole tree is left alone: what was judged is not what is there.
    pub fn refused(&mut self, id: ProcessId, _why: Refusal) {
        let alone = self.members.iter().all(|(other, stage)| *other == id || stage.asked.is_none());
        let first = self.members.get(&id).is_some_and(|stage| stage.asked.is_none_or(|rung| rung == 0));
        if id == self.root && alone && first {
            self.touched = Touched::Forbidden;
        }
        if let Some(stage) = self.members.get_mut(&id)
            && stage.over == Over::No
        {
            stage.over = Over::Refused;
        }
    }

    /// Somebody was found to be of the tree, and is held.
    pub fn joined(&mut self, id: ProcessId) {
        let killing = self.rungs.get(self.rung).is_none_or(|rung| rung.signal == Signal::Kill);
        let late = if killing && self.touched == Touched::Yes { Late::Yes } else { Late::No };
        self.members.entry(id).or_insert(Stage { late, ..Stage::default() });
    }

    /// A walk was made.
    pub fn walked(&mut self, now: Moment, found: Search) {
        self.walks += 1;
        let (least, most) = walks(self.rungs.get(self.rung));
        match found {
            Search::Empty => {
                self.empty_walks += 1;
                self.next_walk = now.plus(self.pause);
                self.pause = (self.pause * 2).min(most);
            }
            Search::Newborn => {
                self.empty_walks = 0;
                self.scan = Scan::Due;
                self.pause = least;
                self.next_walk = now;
            }
        }
    }

    /// Membership was worked out from a fresh table.
    pub fn rescanned(&mut self, found: Search) {
        match found {
            Search::Empty => self.scan = Scan::Empty,
            Search::Newborn => {
                self.walks += 1;
                self.empty_walks = 0;
                self.scan = Scan::Due;
            }
        }
    }

    /// Returns the members that are neither gone nor refused.
    pub fn live(&self) -> impl Iterator<Item = ProcessId> {
        self.members.iter().filter(|(_, stage)| stage.over == Over::No).map(|(id, _)| *id)
    }

    /// Returns the members that were refused their signal, and were not seen gone since.
    pub fn refusals(&self) -> impl Iterator<Item = ProcessId> {
        self.members.iter().filter(|(_, stage)| stage.over == Over::Refused).map(|(id, _)| *id)
    }

    /// Nobody is left to wait for: two empty walks and one empty scan prove it.
    fn verify(&self) -> Step {
        if self.empty_walks < EMPTY_WALKS {
            Step::Walk
        } else if self.scan == Scan::Due {
            Step::Rescan
        } else {
            Step::Done(self.ending())
        }
    }

    fn ending(&self) -> Closure {
        if self.members.values().any(|stage| stage.over == Over::Refused) {
            return Closure::Survivors;
        }
        let mut left = self.members.values().filter(|stage| stage.over == Over::No).peekable();
        if left.peek().is_none() {
            return if self.empty_walks >= EMPTY_WALKS && self.scan == Scan::Empty {
                Closure::Gone
            } else {
                Closure::NotProven
            };
        }
        // Those who came after KILL and were not given its time are a fork chain, not survivors of it.
        if left.all(|stage| stage.late == Late::Yes) { Closure::NotProven } else { Closure::Survivors }
    }

    /// Returns who is still to be sent this rung's signal.
    fn unasked(&self, now: Moment, rung: Rung) -> Vec<ProcessId> {
        let root_only = now < self.rung_began.plus(self.head_start(rung));
        let held_back = self.anchors_wait(now, rung);
        self.members
            .iter()
            .filter(|(id, stage)| {
                stage.over == Over::No
                    && stage.asked.is_none_or(|asked| asked < self.rung)
                    && (!root_only || **id == self.root)
                    && !(held_back && self.anchors.contains(id))
            })
            .map(|(id, _)| *id)
            .collect()
    }

    /// Returns from where a rung goes on, if somebody was not asked yet on it: behind the root's head start, and when
    /// polls go on coming late, from where nobody is held back any more.
    fn owes(&self, rung: Rung) -> Option<(Prolonged, Duration)> {
        let unasked =
            |stage: &Stage| stage.over == Over::No && stage.asked.is_none_or(|asked| asked < self.rung);
        if rung.signal == Signal::Kill || !self.members.values().any(unasked) {
            return None;
        }
        match self.prolonged {
            Some((at, Prolonged::Once)) if at == self.rung => Some((Prolonged::Twice, rung.grace / 2)),
            Some((at, Prolonged::Twice)) if at == self.rung => None,
            Some(_) | None => Some((Prolonged::Once, self.head_start(rung))),
        }
    }

    fn anchors_wait(&self, now: Moment, rung: Rung) -> bool {
        now < self.rung_began.plus(rung.grace / 2)
            && (self.empty_walks == 0 || self.live().any(|id| !self.anchors.contains(&id)))
    }

    /// Says whether nothing but an empty walk stands between the last ones and KILL.
    fn awaits_proof(&self, now: Moment, rung: Rung) -> bool {
        let is_unasked =
            |id: &ProcessId| self.members.get(id).is_some_and(|stage| stage.asked != Some(self.rung));
        self.anchors_wait(now, rung)
            && self.live().all(|id| self.anchors.contains(&id))
            && self.live().any(|id| is_unasked(&id))
    }

    /// Only the first rung has one, and KILL gives nobody time to end anything.
    fn head_start(&self, rung: Rung) -> Duration {
        if self.rung > 0 || rung.signal == Signal::Kill {
            return Duration::ZERO;
        }
        (rung.grace / HEAD_START_PART).min(HEAD_START_MOST)
    }

    fn total(&self) -> Duration {
        self.rungs.iter().map(|rung| rung.grace).sum()
    }

    /// Leaves out the time in which nobody could run.
    fn forgive(&mut self, now: Moment) {
        if self.first_poll.is_none() {
            // Until its first poll other trees were judged once more and written down, and what that took is nobody's
            // grace: with many trees, or a short rung, TERM would be skipped.
            self.first_poll = Some(now);
            self.began = now;
            self.rung_began = now;
            self.next_walk = now.plus(self.pause);
        }
        let late = self.waiting.take().map_or(Duration::ZERO, |until| now.since(until));
        if late > MISSED {
            self.began = self.began.plus(late);
            self.rung_began = self.rung_began.plus(late);
        }
    }
}

fn walks(rung: Option<&Rung>) -> (Duration, Duration) {
    match rung.map(|rung| rung.signal) {
        Some(Signal::Kill) => KILL_WALKS,
        Some(Signal::Hup | Signal::Int | Signal::Quit | Signal::Usr1 | Signal::Usr2 | Signal::Term)
        | None => CALM_WALKS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::{Pid, Start};
    use proptest::prelude::*;

    fn id(pid: i32) -> ProcessId {
        ProcessId { pid: Pid::new(pid).unwrap(), start: Start(1) }
    }

    fn ladder(rungs: &[(Signal, u64)]) -> Ladder {
        Ladder(
            rungs
                .iter()
                .map(|&(signal, millis)| Rung { signal, grace: Duration::from_millis(millis) })
                .collect(),
        )
    }

    fn usual() -> Ladder {
        ladder(&[(Signal::Term, 5000), (Signal::Kill, 3000)])
    }

    fn at(millis: u64) -> Moment {
        Moment(millis * 1_000_000)
    }

    /// Polls until a signal or the end, walking in vain meanwhile; returns when it came.
    fn next(machine: &mut Escalation, now: &mut Moment) -> Step {
        for _ in 0..100_000 {
            match machine.poll(*now) {
                Step::WaitUntil(then) => {
                    assert!(then > *now, "waiting for the past");
                    *now = then;
                }
                Step::Walk => machine.walked(*now, Search::Empty),
                Step::Rescan => machine.rescanned(Search::Empty),
                step @ (Step::Signal { .. } | Step::Done(_)) => return step,
            }
        }
        panic!("no end");
    }

    #[test]
    fn who_outlives_a_root_that_went_before_the_first_signal_is_asked_all_the_same() {
        let mut machine = Escalation::new(&usual(), id(10), [id(10), id(11)], at(0));
        machine.gone(id(10));
        let mut now = at(0);
        assert_eq!(next(&mut machine, &mut now), Step::Signal { signal: Signal::Term, to: vec![id(11)] });
        assert!(now <= at(1000), "{now:?}");
    }

    #[test]
    fn what_comes_before_the_first_signal_is_nobodys_grace() {
        // Twenty trees are judged once more and written down one after the other before the first is signalled.
        let ladder = ladder(&[(Signal::Term, 300), (Signal::Kill, 3000)]);
        let mut machine = Escalation::new(&ladder, id(10), [id(10)], at(0));
        let first = at(1900);
        assert_eq!(machine.poll(first), Step::Signal { signal: Signal::Term, to: vec![id(10)] });
        let mut now = first;
        assert_eq!(
            next(&mut machine, &mut now),
            Step::Signal { signal: Signal::Kill, to: vec![id(10)] },
            "and then it has the whole of its grace"
        );
        assert_eq!(now, first.plus(Duration::from_millis(300)));
    }

    #[test]
    fn the_root_is_asked_first_then_the_rest_then_all_are_killed_c32() {
        let mut machine = Escalation::new(&usual(), id(5), [id(5), id(6), id(7)], at(0));
        let mut now = at(0);
        assert_eq!(next(&mut machine, &mut now), Step::Signal { signal: Signal::Term, to: vec![id(5)] });
        machine.gone(id(5));
        assert_eq!(
            next(&mut machine, &mut now),
            Step::Signal { signal: Signal::Term, to: vec![id(6), id(7)] }
        );
        assert_eq!(now, at(1000));
        machine.gone(id(6));
        assert_eq!(next(&mut machine, &mut now), Step::Signal { signal: Signal::Kill, to: vec![id(7)] });
        assert_eq!(now, at(5000));
        machine.gone(id(7));
        assert_eq!(next(&mut machine, &mut now), Step::Done(Closure::Gone));
        assert_eq!(now, at(5000));
    }

    #[test]
    fn a_tree_that_goes_at_once_is_not_waited_for() {
        let mut machine = Escalation::new(&usual(), id(5), [id(5)], at(0));
        let mut now = at(0);
        next(&mut machine, &mut now);
        machine.gone(id(5));
        assert_eq!(next(&mut machine, &mut now), Step::Done(Closure::Gone));
        assert_eq!(now, at(0));
    }

    #[test]
    fn gone_is_said_after_two_empty_walks_and_one_scan_only() {
        let mut machine = Escalation::new(&usual(), id(5), [id(5)], at(0));
        machine.poll(at(0));
        machine.gone(id(5));
        assert_eq!(machine.poll(at(1)), Step::Walk);
        machine.walked(at(1), Search::Empty);
        assert_eq!(machine.poll(at(1)), Step::Walk);
        machine.walked(at(1), Search::Empty);
        assert_eq!(machine.poll(at(1)), Step::Rescan);
        machine.joined(id(9));
        machine.rescanned(Search::Newborn);
        assert!(matches!(machine.poll(at(2000)), Step::Signal { to, .. } if to == [id(9)]), "C01");
    }

    #[test]
    fn without_a_kill_rung_survivors_are_reported() {
        let mut machine = Escalation::new(&ladder(&[(Signal::Term, 500)]), id(5), [id(5)], at(0));
        let mut now = at(0);
        next(&mut machine, &mut now);
        assert_eq!(next(&mut machine, &mut now), Step::Done(Closure::Survivors));
        assert!(now >= at(500) && now <= at(600), "{now:?}");
    }

    #[test]
    fn nobody_is_killed_unasked_because_a_poll_came_late_c32() {
        let rungs = [(Signal::Term, 1000), (Signal::Kill, 500)];
        let mut machine = Escalation::new(&ladder(&rungs), id(5), [id(5), id(6)], at(0));
        assert_eq!(machine.poll(at(0)), Step::Signal { signal: Signal::Term, to: vec![id(5)] });
        machine.gone(id(5));
        // The next poll comes long after the grace: a machine under load.
        assert_eq!(machine.poll(at(1500)), Step::Signal { signal: Signal::Term, to: vec![id(6)] });
        let mut now = 1500;
        let killed = loop {
            match machine.poll(at(now)) {
                Step::Signal { signal, to } => break (signal, to, now),
                Step::Walk => machine.walked(at(now), Search::Empty),
                Step::Rescan => machine.rescanned(Search::Empty),
                Step::WaitUntil(_) => now += 10,
                Step::Done(closure) => panic!("{closure:?}"),
            }
        };
        assert_eq!(
            killed,
            (Signal::Kill, vec![id(6)], 2300),
            "what is left of the grace behind the head start"
        );
    }

    #[test]
    fn nor_is_the_witness_when_polls_go_on_coming_late_c32() {
        let rungs = [(Signal::Term, 1000), (Signal::Kill, 500)];
        let mut machine = Escalation::new(&ladder(&rungs), id(5), [id(5), id(6), id(7)], at(0));
        machine.hold_back([id(7)].into());
        assert_eq!(machine.poll(at(0)), Step::Signal { signal: Signal::Term, to: vec![id(5)] });
        machine.gone(id(5));
        assert_eq!(machine.poll(at(1500)), Step::Signal { signal: Signal::Term, to: vec![id(6)] });
        // Late once more: the one that is held back has half of the grace from here on.
        assert_eq!(machine.poll(at(3000)), Step::Signal { signal: Signal::Term, to: vec![id(7)] });
        let mut now = at(3000);
        assert_eq!(next(&mut machine, &mut now), Step::Signal { signal: Signal::Kill, to: vec![id(6)] });
        assert_eq!(now, at(3500));
        // And whoever joins while polls are late for ever puts nothing off for ever.
        let mut machine = Escalation::new(&ladder(&rungs), id(5), [id(5)], at(0));
        machine.poll(at(0));
        let mut asked = Vec::new();
        for round in 1..6 {
            machine.joined(id(10 + round));
            if let Step::Signal { signal, .. } = machine.poll(at(1500 * u64::from(round.unsigned_abs()))) {
                asked.push(signal);
            }
        }
        assert_eq!(asked[..3], [Signal::Term, Signal::Term, Signal::Kill]);
    }

    #[test]
    fn gone_is_not_said_when_the_time_ran_out_before_the_proof() {
        let mut machine = Escalation::new(&ladder(&[(Signal::Kill, 500)]), id(5), [id(5)], at(0));
        machine.poll(at(0));
        machine.gone(id(5));
        let mut now = 0;
        let closure = loop {
            now += 1000;
            if let Step::Done(closure) = machine.poll(at(now)) {
                break closure;
            }
            machine.walked(at(now), Search::Newborn);
            assert!(now < 60_000, "time is capped");
        };
        assert_eq!(closure, Closure::NotProven);
    }

    #[test]
    fn somebody_new_makes_the_proof_start_anew_c01() {
        let mut machine = Escalation::new(&usual(), id(5), [id(5)], at(0));
        machine.poll(at(0));
        machine.gone(id(5));
        machine.walked(at(1), Search::Empty);
        machine.walked(at(1), Search::Empty);
        machine.rescanned(Search::Empty);
        assert_eq!(machine.clone().poll(at(1)), Step::Done(Closure::Gone));
        machine.walked(at(1), Search::Newborn);
        assert_eq!(machine.poll(at(1)), Step::Walk);
        machine.walked(at(1), Search::Empty);
        machine.walked(at(1), Search::Empty);
        assert_eq!(machine.poll(at(1)), Step::Rescan);
    }

    #[test]
    fn walks_are_capped() {
        let mut machine = Escalation::new(&usual(), id(5), [id(5)], at(0));
        machine.poll(at(0));
        for _ in 0..WALKS_MOST {
            machine.walked(at(1), Search::Newborn);
        }
        assert_eq!(machine.poll(at(1)), Step::Done(Closure::Survivors));
    }

    #[test]
    fn a_root_that_is_not_what_was_judged_stands_the_whole_tree_down_c08() {
        let mut machine = Escalation::new(&usual(), id(5), [id(5), id(6)], at(0));
        machine.poll(at(0));
        machine.refused(id(5), Refusal::IdentityChanged);
        assert_eq!(machine.poll(at(6000)), Step::Done(Closure::Untouched));
    }

    #[test]
    fn a_changed_member_is_left_alone_and_not_waited_for() {
        let mut machine = Escalation::new(&ladder(&[(Signal::Kill, 500)]), id(5), [id(5), id(6)], at(0));
        machine.poll(at(0));
        machine.refused(id(6), Refusal::IdentityChanged);
        machine.gone(id(5));
        let mut now = at(1);
        assert_eq!(next(&mut machine, &mut now), Step::Done(Closure::Survivors));
        assert_eq!(now, at(1));
    }

    #[test]
    fn the_witness_is_killed_last_and_only_after_an_empty_walk_c01() {
        let mut machine = Escalation::new(&ladder(&[(Signal::Kill, 1000)]), id(5), [id(5), id(6)], at(0));
        machine.hold_back([id(6)].into());
        assert_eq!(machine.poll(at(0)), Step::Signal { signal: Signal::Kill, to: vec![id(5)] });
        machine.walked(at(0), Search::Empty);
        machine.gone(id(5));
        assert_eq!(machine.poll(at(0)), Step::Walk, "an adopted one may have come since");
        machine.joined(id(7));
        machine.walked(at(0), Search::Newborn);
        assert_eq!(machine.poll(at(0)), Step::Signal { signal: Signal::Kill, to: vec![id(7)] });
        let mut late = machine.clone();
        assert_eq!(next(&mut late, &mut at(0)), Step::Signal { signal: Signal::Kill, to: vec![id(6)] });
        machine.gone(id(7));
        assert_eq!(machine.poll(at(0)), Step::Walk);
        machine.walked(at(0), Search::Empty);
        assert_eq!(machine.poll(at(0)), Step::Signal { signal: Signal::Kill, to: vec![id(6)] });
    }

    #[test]
    fn the_witness_is_asked_last_too_since_most_end_of_term_c01() {
        let mut machine =
            Escalation::new(&ladder(&[(Signal::Term, 1000)]), id(5), [id(5), id(6), id(7)], at(0));
        machine.hold_back([id(7)].into());
        let mut now = at(0);
        let term =
            |to: &[i32]| Step::Signal { signal: Signal::Term, to: to.iter().map(|pid| id(*pid)).collect() };
        assert_eq!(next(&mut machine, &mut now), term(&[5]));
        assert_eq!(next(&mut machine, &mut now), term(&[6]));
        machine.walked(now, Search::Empty);
        machine.gone(id(5));
        machine.gone(id(6));
        assert_eq!(machine.poll(now), Step::Walk, "an adopted one may have come since");
        let mut stuck = machine.clone();
        machine.walked(now, Search::Empty);
        assert_eq!(machine.poll(now), term(&[7]));
        stuck.joined(id(8));
        stuck.walked(now, Search::Newborn);
        assert_eq!(stuck.poll(now), term(&[8]));
        assert_eq!(next(&mut stuck, &mut now), term(&[7]), "half of the grace is its own");
        assert!(now >= at(500) && now <= at(600), "{now:?}");
    }

    #[test]
    fn time_asleep_is_nobodys_grace_f13() {
        let mut machine = Escalation::new(&usual(), id(5), [id(5)], at(0));
        machine.poll(at(0));
        assert_eq!(machine.poll(at(0)), Step::WaitUntil(at(5)));
        let mut now = at(60_000);
        assert_eq!(next(&mut machine, &mut now), Step::Signal { signal: Signal::Kill, to: vec![id(5)] });
        assert_eq!(now, at(64_995));
    }

    #[test]
    fn slow_walks_of_a_tree_that_forks_put_nothing_off_c01() {
        let mut machine = Escalation::new(&usual(), id(5), [id(5)], at(0));
        let (mut now, mut born) = (at(0), 5);
        let ending = loop {
            match machine.poll(now) {
                Step::Walk => {
                    now = now.plus(Duration::from_secs(3));
                    born += 1;
                    machine.joined(id(born));
                    machine.walked(now, Search::Newborn);
                }
                Step::WaitUntil(then) => now = then,
                Step::Signal { .. } | Step::Rescan => {}
                Step::Done(ending) => break ending,
            }
            assert!(now < at(60_000), "it goes on for ever");
        };
        assert_eq!(ending, Closure::Survivors);
    }

    #[test]
    fn newborn_ones_without_end_are_not_proven_gone() {
        let mut machine = Escalation::new(&ladder(&[(Signal::Kill, 500)]), id(5), [id(5)], at(0));
        let (mut now, mut born) = (at(0), 5);
        let ending = loop {
            now = now.plus(Duration::from_micros(200));
            match machine.poll(now) {
                Step::Signal { to, .. } => to.into_iter().for_each(|id| machine.gone(id)),
                Step::Walk => {
                    born += 1;
                    machine.joined(id(born));
                    machine.walked(now, Search::Newborn);
                }
                Step::Rescan | Step::WaitUntil(_) => {}
                Step::Done(ending) => break ending,
            }
        };
        assert_eq!(ending, Closure::NotProven);
        assert!(now <= at(3000));
    }

    fn signals() -> impl Strategy<Value = Signal> {
        proptest::sample::select(&[Signal::Hup, Signal::Int, Signal::Term, Signal::Kill][..])
    }

    #[derive(Debug, Clone)]
    enum Happens {
        Goes(usize),
        IsRefused(usize),
        Time(u64),
        Born,
    }

    fn happening() -> impl Strategy<Value = Happens> {
        prop_oneof![
            (0_usize..8).prop_map(Happens::Goes),
            (1_usize..8).prop_map(Happens::IsRefused),
            (1_u64..1500).prop_map(Happens::Time),
            Just(Happens::Born),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn the_ladder_keeps_its_promises(
            rungs in proptest::collection::vec((signals(), 1_u64..2000), 1..4),
            count in 1_i32..6,
            happenings in proptest::collection::vec(happening(), 0..40),
        ) {
            let ladder = ladder(&rungs);
            let mut members: Vec<ProcessId> = (0..count).map(|n| id(10 + n)).collect();
            let mut machine = Escalation::new(&ladder, id(10), members.clone(), at(0));
            let mut gone = std::collections::BTreeSet::new();
            let mut refused = std::collections::BTreeSet::new();
            let mut sent: Vec<(ProcessId, Signal)> = Vec::new();
            let mut now = at(0);
            let mut happenings = happenings.into_iter();
            let before_kill: u64 = rungs.iter().take_while(|(signal, _)| *signal != Signal::Kill).map(|(_, ms)| ms).sum();
            let mut steps = 0;
            let ending = loop {
                steps += 1;
                prop_assert!(steps < 200_000, "it ends");
                match machine.poll(now) {
                    Step::Signal { signal, to } => {
                        prop_assert!(!to.is_empty());
                        if signal == Signal::Kill {
                            prop_assert!(now >= at(before_kill), "KILL before the grace has passed");
                        }
                        for id in to {
                            prop_assert!(!gone.contains(&id) && !refused.contains(&id), "signalled after its end");
                            sent.push((id, signal));
                        }
                    }
                    Step::Walk => {
                        let found = match happenings.next() {
                            Some(Happens::Born) => {
                                let newborn = id(100 + i32::try_from(members.len()).unwrap());
                                members.push(newborn);
                                machine.joined(newborn);
                                Search::Newborn
                            }
                            Some(Happens::Goes(at)) => {
                                let id = members[at % members.len()];
                                gone.insert(id);
                                machine.gone(id);
                                Search::Empty
                            }
                            Some(Happens::IsRefused(at)) => {
                                let id = members[at % members.len()];
                                refused.insert(id);
                                machine.refused(id, Refusal::Denied);
                                Search::Empty
                            }
                            Some(Happens::Time(millis)) => {
                                now = now.plus(Duration::from_millis(millis));
                                Search::Empty
                            }
                            None => Search::Empty,
                        };
                        machine.walked(now, found);
                    }
                    Step::Rescan => machine.rescanned(Search::Empty),
                    Step::WaitUntil(then) => {
                        prop_assert!(then > now);
                        now = then;
                    }
                    Step::Done(ending) => break ending,
                }
            };
            // Identities once seen are never forgotten: whoever is not accounted for is still there.
            let left: Vec<ProcessId> = members.iter().copied().filter(|id| !gone.contains(id)).collect();
            prop_assert!(ending != Closure::Gone || left.is_empty());
            prop_assert!(machine.live().all(|id| left.contains(&id)));
            prop_assert!(left.iter().all(|id| refused.contains(id) || machine.live().any(|live| live == *id)));
            let _ = sent;
        }
    }
}
