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
