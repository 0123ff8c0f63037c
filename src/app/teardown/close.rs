//! The end of a tree's teardown, and what is written down on the way there.

use crate::model::id::ProcessId;
use crate::model::moment::Moment;
use crate::model::outcome::{Closure, Outcome, Report};
use crate::model::plan::Spared;
use crate::model::table::State;

use super::climb::{Climb, Eyes};
use super::{Event, Scene};

impl Climb<'_> {
    pub(super) fn finish<S: Scene>(&mut self, closure: Closure, scene: &mut S) {
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

    pub(super) fn end_untouched(&mut self, why: &str, now: Moment) {
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
        self.write(&Event::Outcome(&report), scene);
    }

    /// Writes down who was seen gone: after a crash only a root that is on record as gone lets its members be ended
    /// (REDTEAM F12).
    pub(super) fn write_gone<S: Scene>(&mut self, scene: &mut S) {
        if self.unsaid.is_empty() {
            return;
        }
        let ids = std::mem::take(&mut self.unsaid);
        self.write(&Event::SeenGone { root: self.teardown.judgement.root, ids: &ids }, scene);
    }

    /// Writes down what was done. It cannot be undone, so a record that fails ends nothing but what was not begun.
    pub(super) fn write<S: Scene>(&mut self, event: &Event<'_>, scene: &mut S) {
        if let Err(why) = scene.record(event) {
            self.unwritten.get_or_insert(why);
        }
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
