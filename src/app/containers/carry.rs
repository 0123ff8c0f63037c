//! Stops what the plan says, in batches: a fresh look right before each, the intents on the disk, then the calls.
//!
//! Between the question on the screen and the first call a client may have come, or a person may have said "keep". So
//! no call rests on a look from before: what a fresh one does not condemn for the same run and by the same policy is
//! left alone, and each container is inspected once more right before its first call.

use std::time::Duration;

use crate::act::containers::{self as act, AT_ONCE, Begin, Witness};
use crate::app::journal::entry::{By, Event};
use crate::app::journal::{Durability, Journal};
use crate::app::look::{Eyes, take};
use crate::app::signals;
use crate::app::trouble::chain;
use crate::config::policy::Config;
use crate::judge::Ledger;
use crate::model::container::ContainerRef;
use crate::model::container::judgement::ContainerJudgement;
use crate::model::container::stop::{Stop, StopOutcome, StopReport, StopStep};
use crate::model::keep::KeepMark;
use crate::model::moment::Moment;
use crate::model::verdict::Verdict;

/// An engine that ends a container has more to do than one that lists it: it is given this long, at least, for one call.
const PATIENCE: Duration = Duration::from_secs(3);

/// What stopping stands on.
pub struct Crew<'a, 'j> {
    /// What looks.
    pub eyes: &'a mut dyn Eyes,
    /// The configuration.
    pub config: &'a Config,
    /// What was seen at the looks that confirmed.
    pub ledger: &'a Ledger,
    /// Where it is written down.
    pub journal: &'a mut Journal<'j>,
    /// At whose word.
    pub by: By,
    /// Reads the keep list anew, before each batch.
    pub fresh_marks: &'a dyn Fn() -> Option<Vec<KeepMark>>,
    /// What makes the calls.
    pub hands: &'a mut dyn Hands,
    /// Why something could not be written down, to be said in the end; nothing so far.
    pub unwritten: Option<String>,
}

/// What makes the calls: engines do; tests make them in thought.
pub trait Hands {
    /// Ends these containers side by side, and returns what became of each, in their order.
    fn end(
        &mut self,
        stops: &[Stop],
        begin: Begin,
        patience: Duration,
        witness: &mut dyn Witness,
    ) -> Vec<StopReport>;
}

/// The engines of this machine.
#[derive(Debug, Clone, Copy)]
pub struct Engines;

impl Hands for Engines {
    fn end(
        &mut self,
        stops: &[Stop],
        begin: Begin,
        patience: Duration,
        witness: &mut dyn Witness,
    ) -> Vec<StopReport> {
        act::carry_out(stops, begin, patience, witness)
    }
}

impl Crew<'_, '_> {
    /// Stops these, and returns what became of each.
    pub fn carry_out(&mut self, stops: &[Stop]) -> Vec<StopReport> {
        let mut reports = Vec::new();
        for batch in stops.chunks(AT_ONCE) {
            let (ready, left) = self.ready(batch);
            reports.extend(left);
            reports.extend(self.end(&ready, Begin::Running));
        }
        reports
    }

    /// Removes what is left of containers that have ended by our hand, as the journal says.
    pub fn remove_left(&mut self, stops: &[Stop]) -> Vec<StopReport> {
        let mut reports = Vec::new();
        for batch in stops.chunks(AT_ONCE) {
            reports.extend(self.end(batch, Begin::Ended));
        }
        reports
    }

    /// Takes a fresh look, and returns who is still condemned by it, and the reports of those that are not.
    fn ready(&mut self, batch: &[Stop]) -> (Vec<Stop>, Vec<StopReport>) {
        let now = self.eyes.clocks().boot;
        let left = |stop: &Stop, why: &str| untouched(stop, why, now);
        if signals::asked() {
            return (Vec::new(), batch.iter().map(|stop| left(stop, "reapd was asked to end")).collect());
        }
        let judgements = match self.fresh() {
            Ok(judgements) => judgements,
            Err(why) => return (Vec::new(), batch.iter().map(|stop| left(stop, &why)).collect()),
        };
        let (mut ready, mut reports) = (Vec::new(), Vec::new());
        for stop in batch {
            match still_condemned(stop, &judgements) {
                Ok(()) => ready.push(stop.clone()),
                Err(why) => reports.push(left(stop, &why)),
            }
        }
        (ready, reports)
    }

    fn fresh(&mut self) -> Result<Vec<ContainerJudgement>, String> {
        let marks =
            (self.fresh_marks)().ok_or("the keep list could not be read right before the first call")?;
        // A copy: this look is no further look for the ledger, but a suspend since the last one must show.
        let mut ledger = self.ledger.clone();
        let sight =
            take(self.eyes, self.config, &mut ledger, &marks).map_err(|trouble| trouble.to_string())?;
        Ok(sight.verdicts.containers)
    }

    /// Writes down what is about to be ended, and ends it.
    fn end(&mut self, stops: &[Stop], begin: Begin) -> Vec<StopReport> {
        let now = self.eyes.clocks().boot;
        if let Some(why) = &self.unwritten {
            let why = format!("the journal cannot be written any more: {why}");
            return stops.iter().map(|stop| untouched(stop, &why, now)).collect();
        }
        for (at, stop) in stops.iter().enumerate() {
            // All of them at once on the disk: a disk is waited for once.
            let durability = if at + 1 == stops.len() { Durability::Synced } else { Durability::Handed };
            let event = Event::StopIntent { stop: Box::new(written(stop)), by: self.by };
            if let Err(why) = self.note(event, durability) {
                let why = format!("its intent could not be written down: {why}");
                return stops.iter().map(|stop| untouched(stop, &why, now)).collect();
            }
        }
        if stops.is_empty() {
            return Vec::new();
        }
        let patience = self.config.confirm.probe_timeout.max(PATIENCE);
        let mut scribe = Scribe { eyes: self.eyes, journal: self.journal, unwritten: &mut self.unwritten };
        self.hands.end(stops, begin, patience, &mut scribe)
    }

    fn note(&mut self, event: Event, durability: Durability) -> Result<(), String> {
        Scribe { eyes: self.eyes, journal: self.journal, unwritten: &mut self.unwritten }
            .note(event, durability)
    }
}

/// Writes down each step before it is made, and each end.
struct Scribe<'a, 'j> {
    eyes: &'a mut dyn Eyes,
    journal: &'a mut Journal<'j>,
    unwritten: &'a mut Option<String>,
}

impl Scribe<'_, '_> {
    fn note(&mut self, event: Event, durability: Durability) -> Result<(), String> {
        let now = self.eyes.clocks();
        let written = self.journal.note(event, now, durability).map_err(|error| chain(&error));
        if let Err(why) = &written {
            self.unwritten.get_or_insert_with(|| why.clone());
        }
        written
    }
}

impl Witness for Scribe<'_, '_> {
    fn now(&mut self) -> Moment {
        self.eyes.clocks().boot
    }

    fn step(&mut self, at: &ContainerRef, step: &StopStep) -> Result<(), String> {
        // Once a line is lost, nothing more is done: what was done could not be told.
        if let Some(why) = &*self.unwritten {
            return Err(why.clone());
        }
        self.note(Event::StopStep { at: at.clone(), step: step.clone() }, Durability::Synced)
    }

    fn ended(&mut self, report: &StopReport) {
        // What could not be written down is said in the end.
        let _ = self.note(Event::StopOutcome { report: Box::new(report.clone()) }, Durability::Handed);
    }
}

/// Returns a stop as it is written down: a container's labels may hold anything, and nobody reads them back.
fn written(stop: &Stop) -> Stop {
    let mut stop = stop.clone();
    stop.judgement.listed.labels.retain(|name, _| name.starts_with("dev.reapd."));
    stop
}

fn untouched(stop: &Stop, why: &str, now: Moment) -> StopReport {
    act::report(stop, Vec::new(), StopOutcome::Untouched(why.to_owned()), (now, now))
}

/// Says why a container must not be touched now, if its verdict or its run is not what it was.
fn still_condemned(stop: &Stop, now: &[ContainerJudgement]) -> Result<(), String> {
    let before = &stop.judgement;
    let same =
        |judgement: &&ContainerJudgement| judgement.at == before.at && judgement.policy == before.policy;
    let Some(judgement) = now.iter().find(same) else {
        return Err("right before the first call no policy looked at it any more".to_owned());
    };
    match judgement.verdict {
        Verdict::Orphaned { .. } => {}
        Verdict::Protected | Verdict::Alive | Verdict::Unknown | Verdict::Suspect { .. } => {
            return Err(format!("right before the first call: {}", judgement.because));
        }
    }
    match &judgement.run {
        Ok(run) if *run == stop.run => Ok(()),
        Ok(_) => Err("it was started anew meanwhile, so somebody uses it".to_owned()),
        Err(unknown) => Err(format!("which run of it that is could not be read: {unknown}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::journal::stopped::stops;
    use crate::app::journal::{USUAL, history};
    use crate::app::machine::Machine;
    use crate::app::sample;
    use crate::app::signals::Alone;
    use crate::app::state::State;
    use crate::model::container::sample as container;
    use crate::model::known::{Reason, Unknown};

    /// Ends whatever it is told to, and says what was on the disk by then.
    #[derive(Default)]
    struct Hand<'a> {
        state: Option<&'a State>,
        ended: Vec<Vec<String>>,
        /// How many intents and steps were written down when it was told, and after each step.
        written: Vec<(usize, usize)>,
    }

    impl Hand<'_> {
        fn count(&mut self) {
            let Some(state) = self.state else { return };
            let history = history::read(state, 0).unwrap();
            let stories = stops(&history);
            let steps = stories.iter().map(|story| story.steps.len()).sum();
            self.written.push((stories.len(), steps));
        }
    }

    impl Hands for Hand<'_> {
        fn end(
            &mut self,
            stops: &[Stop],
            _: Begin,
            _: Duration,
            witness: &mut dyn Witness,
        ) -> Vec<StopReport> {
            self.ended.push(stops.iter().map(|stop| stop.run.at.to_string()).collect());
            self.count();
            let end = |stop: &Stop| {
                let outcome = match witness.step(&stop.run.at, &StopStep::Stop) {
                    Ok(()) => StopOutcome::Gone,
                    Err(why) => StopOutcome::Untouched(why),
                };
                let now = witness.now();
                let report = act::report(stop, Vec::new(), outcome, (now, now));
                witness.ended(&report);
                report
            };
            let reports = stops.iter().map(end).collect();
            self.count();
            reports
        }
    }

    fn state() -> (tempfile::TempDir, State) {
        let base = tempfile::tempdir().unwrap();
        let state = State::open(&base.path().join("s")).unwrap();
        (base, state)
    }

    fn some(count: u32) -> Vec<Stop> {
        (0..count).map(|number| container::stop(number, "docker-run")).collect()
    }

    fn crew<T>(
        state: &State,
        hand: &mut Hand<'_>,
        marks: &dyn Fn() -> Option<Vec<KeepMark>>,
        act: impl FnOnce(&mut Crew<'_, '_>) -> T,
    ) -> T {
        let mut eyes = Machine::new("");
        let (config, ledger) = (sample::config(), Ledger::default());
        let mut journal = Journal::open(state, USUAL, &sample::snapshot(&[]), eyes.clocks()).unwrap();
        act(&mut Crew {
            eyes: &mut eyes,
            config: &config,
            ledger: &ledger,
            journal: &mut journal,
            by: By::Once,
            fresh_marks: marks,
            hands: hand,
            unwritten: None,
        })
    }

    #[test]
    fn every_intent_and_every_step_is_on_the_disk_before_it_is_made_s8() {
        let (_base, state) = state();
        let mut hand = Hand { state: Some(&state), ..Hand::default() };
        let reports =
            crew(&state, &mut hand, &|| Some(Vec::new()), |crew| crew.end(&some(3), Begin::Running));
        assert_eq!(hand.written, [(3, 0), (3, 3)]);
        assert!(reports.iter().all(|report| report.outcome == StopOutcome::Gone), "{reports:?}");
        let history = history::read(&state, 0).unwrap();
        assert!(stops(&history).iter().all(|story| !story.is_open()), "each end follows");
    }

    #[test]
    fn without_a_journal_nothing_is_stopped_s8() {
        let (_base, state) = state();
        let mut hand = Hand::default();
        let reports = crew(&state, &mut hand, &|| Some(Vec::new()), |crew| {
            crew.unwritten = Some("no space is left".into());
            crew.end(&some(2), Begin::Running)
        });
        assert_eq!((reports.len(), hand.ended.len()), (2, 0));
        assert!(reports.iter().all(|report| matches!(&report.outcome, StopOutcome::Untouched(_))));
    }

    #[test]
    fn what_a_fresh_look_does_not_condemn_is_left_alone() {
        let (_base, state) = state();
        let mut hand = Hand::default();
        let stop = |hand: &mut Hand<'_>, marks: &dyn Fn() -> Option<Vec<KeepMark>>| {
            let mut reports = crew(&state, hand, marks, |crew| crew.carry_out(&some(1)));
            let StopOutcome::Untouched(why) = reports.remove(0).outcome else { panic!() };
            why
        };
        // Nobody on this machine is a container.
        let why = stop(&mut hand, &|| Some(Vec::new()));
        assert!(why.contains("no policy looked at it"), "{why}");
        let why = stop(&mut hand, &|| None);
        assert!(why.contains("keep list"), "{why}");
        let _alone = Alone::new();
        Alone::ask_to_stop();
        let why = stop(&mut hand, &|| Some(Vec::new()));
        assert!(why.contains("asked to end"), "{why}");
        assert_eq!(hand.ended.len(), 0);
    }

    #[test]
    fn only_the_same_run_by_the_same_policy_is_condemned_still() {
        let stop = container::stop(1, "docker-run");
        let now = |change: fn(&mut ContainerJudgement)| {
            let mut judgement = container::judgement(1, "docker-run");
            change(&mut judgement);
            still_condemned(&stop, &[container::judgement(2, "docker-run"), judgement])
        };
        assert_eq!(now(|_| {}), Ok(()));
        let changes: [fn(&mut ContainerJudgement); 8] = [
            |judgement| judgement.policy = "lease".into(),
            |judgement| judgement.at.engine.0 = "/run/other.sock".into(),
            |judgement| judgement.verdict = Verdict::Alive,
            |judgement| judgement.verdict = Verdict::Unknown,
            |judgement| judgement.verdict = Verdict::Protected,
            |judgement| judgement.verdict = Verdict::Suspect { since: Moment(0), looks: 1 },
            |judgement| judgement.run.as_mut().unwrap().started = "2027-01-01T00:00:00Z".into(),
            |judgement| judgement.run = Err(Unknown::new(Reason::Hung, "which run")),
        ];
        for (at, change) in changes.into_iter().enumerate() {
            assert!(now(change).is_err(), "change {at}");
        }
    }

    #[test]
    fn labels_of_others_are_not_written_down() {
        let mut stop = container::stop(1, "docker-run");
        stop.judgement.listed.labels =
            [("secret", "t0p"), ("dev.reapd.lease", "run-1")].map(|(a, b)| (a.into(), b.into())).into();
        let labels = written(&stop).judgement.listed.labels;
        assert_eq!(labels.into_keys().collect::<Vec<_>>(), ["dev.reapd.lease"]);
    }
}
