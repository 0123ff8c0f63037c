//! Reads containers back from the journal: which were to be stopped, what was done to each, and what a crash cut short.

use std::collections::BTreeMap;

use super::entry::{Entry, Event};
use super::history::History;
use crate::model::container::ContainerRef;
use crate::model::container::stop::{Stop, StopOutcome, StopReport, StopStep};
use crate::model::id::BootId;

/// One container, from the intent to stop it to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StopStory<'a> {
    /// The intent.
    pub intent: &'a Entry,
    /// What was intended.
    pub stop: &'a Stop,
    /// What was done, each step with its line.
    pub steps: Vec<(&'a Entry, &'a StopStep)>,
    /// What became of it; nothing where that was never written down.
    pub report: Option<&'a StopReport>,
}

impl StopStory<'_> {
    /// Says whether what became of it is not known, by a crash of ours or a silence of its engine.
    pub fn is_open(&self) -> bool {
        self.report.is_none_or(|report| matches!(report.outcome, StopOutcome::NotProven(_)))
    }

    /// Says whether what has ended since surely did so by our hand: in the boot that is now, the engine took a request
    /// to end it, as a report says. A step alone is written down before its call, and proves none.
    pub fn is_ours(&self, now: &BootId) -> bool {
        let steps = self.report.map(|report| report.steps.as_slice()).unwrap_or_default();
        let is_taken = |(step, words): &(StopStep, Option<String>)| {
            matches!(step, StopStep::Stop | StopStep::Kill) && words.is_none()
        };
        self.intent.boot == *now && steps.iter().any(is_taken)
    }
}

/// Returns every container that was to be stopped, in the order of the intents. Steps and outcomes belong to the latest
/// intent about the same container, of whatever boot: containers outlive it.
pub fn stops(history: &History) -> Vec<StopStory<'_>> {
    let mut stories: Vec<StopStory<'_>> = Vec::new();
    let mut latest: BTreeMap<&ContainerRef, usize> = BTreeMap::new();
    for entry in &history.entries {
        match &entry.event {
            Event::StopIntent { stop, .. } => {
                latest.insert(&stop.run.at, stories.len());
                stories.push(StopStory { intent: entry, stop, steps: Vec::new(), report: None });
            }
            Event::StopStep { at, step } => {
                if let Some(story) = latest.get(at).and_then(|at| stories.get_mut(*at)) {
                    story.steps.push((entry, step));
                }
            }
            Event::StopOutcome { report } => {
                if let Some(story) = latest.get(&report.at).and_then(|at| stories.get_mut(*at)) {
                    story.report = Some(report);
                }
            }
            Event::Intent { .. }
            | Event::Signalled { .. }
            | Event::GroupKilled { .. }
            | Event::SeenGone { .. }
            | Event::Outcome { .. }
            | Event::ResidueIntent { .. }
            | Event::ResidueOutcome { .. }
            | Event::Abandoned { .. } => {}
        }
    }
    stories
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::containers::report;
    use crate::app::journal::entry::{By, VERSION};
    use crate::model::container::sample;
    use crate::model::moment::Moment;

    fn history(events: Vec<Event>) -> History {
        let entry = |(at, event)| Entry {
            v: VERSION,
            at,
            boot: BootId(if at > 2 { "b" } else { "a" }.into()),
            pid_namespace: None,
            sweep: 1,
            clock: Moment(at),
            event,
        };
        History { entries: (1..).zip(events).map(entry).collect(), skipped: 0 }
    }

    fn intent(number: u32) -> Event {
        Event::StopIntent { stop: Box::new(sample::stop(number, "docker-run")), by: By::Once }
    }

    fn step(number: u32, step: StopStep) -> Event {
        Event::StopStep { at: sample::at(number), step }
    }

    fn outcome(number: u32, outcome: StopOutcome) -> Event {
        let stop = sample::stop(number, "docker-run");
        let report = report(&stop, Vec::new(), outcome, (Moment(0), Moment(0)));
        Event::StopOutcome { report: Box::new(report) }
    }

    #[test]
    fn steps_and_ends_belong_to_the_latest_intent_of_their_container_f12() {
        let history = history(vec![
            intent(1),
            intent(2),
            step(1, StopStep::Stop),
            outcome(1, StopOutcome::Runs("it is still running".into())),
            intent(1),
            step(9, StopStep::Kill),
            step(1, StopStep::Kill),
        ]);
        let stories = stops(&history);
        let told: Vec<_> = stories.iter().map(|story| (story.is_open(), story.steps.len())).collect();
        assert_eq!(told, [(false, 1), (true, 0), (true, 1)]);
    }

    #[test]
    fn only_what_the_engine_took_in_this_boot_is_by_our_hand_f12() {
        let stop = sample::stop(1, "docker-run");
        let is_ours = |steps: &[(StopStep, Option<String>)], now: &str| {
            let silence = StopOutcome::NotProven("no answer in time".into());
            let report = report(&stop, steps.to_vec(), silence, (Moment(0), Moment(0)));
            let history = history(vec![intent(1), Event::StopOutcome { report: Box::new(report) }]);
            stops(&history)[0].is_ours(&BootId(now.into()))
        };
        for asked in [StopStep::Stop, StopStep::Kill] {
            assert!(is_ours(&[(asked.clone(), None)], "a"));
            assert!(!is_ours(&[(asked.clone(), None)], "b"), "what a boot ended, its end may have");
            assert!(!is_ours(&[(asked.clone(), Some("no answer in time".into()))], "a"));
            let history = history(vec![intent(1), step(1, asked)]);
            assert!(!stops(&history)[0].is_ours(&BootId("a".into())), "it may never have been made");
        }
        assert!(is_ours(&[(StopStep::Stop, Some("no".into())), (StopStep::Kill, None)], "a"));
        assert!(!is_ours(&[(StopStep::Remove, None)], "a"), "it had ended by then");
        assert!(!is_ours(&[], "a"));
    }

    #[test]
    fn an_end_that_its_engine_did_not_say_is_none() {
        let ended = |end| stops(&history(vec![intent(1), outcome(1, end)]))[0].is_open();
        assert!(ended(StopOutcome::NotProven("no answer in time".into())));
        assert!(!ended(StopOutcome::Gone));
        assert!(!ended(StopOutcome::Left("its engine has not yet".into())));
    }
}
