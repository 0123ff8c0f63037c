//! Takes up the stops that a crash cut short, without trusting that nothing has changed since (REDTEAM F12).
//!
//! A container that runs is judged anew, whatever was intended. One that has ended is removed where the journal says
//! that it ended by our hand, it is that very run, and its policy still reaps. An engine that does not answer leaves all
//! of its own as they are, for the next sweep.

use std::time::Duration;

use super::carry::{Crew, Hands};
use crate::act::containers::report;
use crate::app::journal::entry::{By, Event};
use crate::app::journal::history::History;
use crate::app::journal::stopped::{StopStory, stops};
use crate::app::journal::{Durability, Journal, pid_namespace};
use crate::app::legible;
use crate::app::look::Eyes;
use crate::app::memory::holds;
use crate::app::session::Session;
use crate::app::trouble::Trouble;
use crate::config::policy::Config;
use crate::engine::{self, Client};
use crate::judge::Ledger;
use crate::model::container::stop::{Stop, StopOutcome, StopReport};
use crate::model::container::{AutoRemoval, ContainerFacts, ContainerRef, ContainerState};
use crate::model::keep::{KeepMark, Kept};
use crate::model::look::Snapshot;
use crate::model::verdict::Mode;

/// What is to be done about one stop that has no end on record.
#[derive(Debug, Clone, PartialEq)]
enum Course {
    /// What is left of it is removed.
    Remove(Box<Stop>),
    /// It is over, with this outcome.
    Close(StopOutcome),
    /// Its engine did not say; the next sweep asks again.
    Leave(String),
}

/// Asks an engine about one container: its facts, nothing where there is none, or why there is no answer.
pub type Inspect<'a> = &'a mut dyn FnMut(&ContainerRef) -> Result<Option<ContainerFacts>, String>;

/// What taking up stands on.
pub struct Ground<'a, 'j> {
    /// What looks.
    pub eyes: &'a mut dyn Eyes,
    /// The configuration.
    pub config: &'a Config,
    /// What was seen before.
    pub ledger: &'a Ledger,
    /// Where it is written down.
    pub journal: &'a mut Journal<'j>,
    /// What a person keeps.
    pub marks: &'a [KeepMark],
    /// What makes the calls.
    pub hands: &'a mut dyn Hands,
}

/// Takes up what is unfinished, and returns what became of what was removed.
pub fn take_up(
    session: &mut Session,
    history: &History,
    seen: &Snapshot,
    inspect: Inspect<'_>,
    ground: Ground<'_, '_>,
) -> Result<Vec<StopReport>, Trouble> {
    let mut left: Vec<Stop> = Vec::new();
    for story in open(history, seen) {
        let name = format!("{} {}", story.stop.run.at, legible::text(&name(&story)));
        match course(&story, inspect(&story.stop.run.at), ground.config, ground.marks, seen) {
            Course::Leave(why) => {
                session.talk(&format!("what became of container {name} is still not known: {why}"));
            }
            Course::Remove(stop) => {
                session.talk(&format!("container {name} ended by our hand before a crash: removing it"));
                left.push(*stop);
            }
            Course::Close(outcome) => {
                let words = crate::app::report::containers::outcome_words(&outcome);
                session.talk(&format!("the stop of container {name} was cut short: {words}"));
                let now = ground.eyes.clocks();
                let report = report(story.stop, Vec::new(), outcome, (now.boot, now.boot));
                ground
                    .journal
                    .note(Event::StopOutcome { report: Box::new(report) }, now, Durability::Synced)
                    .map_err(|error| Trouble::because("nothing is done without a journal", &error))?;
            }
        }
    }
    if left.is_empty() {
        return Ok(Vec::new());
    }
    let Ground { eyes, config, ledger, journal, marks, hands } = ground;
    let marks = || Some(marks.to_vec());
    let mut crew =
        Crew { eyes, config, ledger, journal, by: By::Resumed, fresh_marks: &marks, hands, unwritten: None };
    let reports = crew.remove_left(&left);
    match crew.unwritten {
        None => Ok(reports),
        Some(why) => Err(Trouble::failed(format!("nothing more is done without a journal: {why}"))),
    }
}

/// Returns the latest stop of each container that has no end on record. Those of another pid namespace are passed over,
/// as trees are: there, another engine may stand at the same path.
fn open<'a>(history: &'a History, seen: &Snapshot) -> Vec<StopStory<'a>> {
    let Some(here) = pid_namespace(seen) else { return Vec::new() };
    let all = stops(history);
    let is_latest = |at: usize, story: &StopStory<'_>| {
        all[at + 1..].iter().all(|later| later.stop.run.at != story.stop.run.at)
    };
    all.iter()
        .enumerate()
        .filter(|(at, story)| story.is_open() && is_latest(*at, story))
        .filter(|(_, story)| story.intent.pid_namespace == Some(here))
        .map(|(_, story)| story.clone())
        .collect()
}

fn name(story: &StopStory<'_>) -> String {
    story.stop.judgement.listed.names.first().cloned().unwrap_or_default()
}

fn course(
    story: &StopStory<'_>,
    said: Result<Option<ContainerFacts>, String>,
    config: &Config,
    marks: &[KeepMark],
    seen: &Snapshot,
) -> Course {
    let left = |why: &str| Course::Close(StopOutcome::Left(why.to_owned()));
    let runs = |why: &str| Course::Close(StopOutcome::Runs(why.to_owned()));
    let facts = match said {
        Err(why) => return Course::Leave(why),
        Ok(None) => return Course::Close(StopOutcome::Gone),
        Ok(Some(facts)) => facts,
    };
    if facts.run != story.stop.run {
        return runs("it was started anew since, so it is judged anew");
    }
    match facts.state {
        ContainerState::Exited | ContainerState::Dead => {}
        ContainerState::Removing => return left("its engine is removing it"),
        ContainerState::Running
        | ContainerState::Paused
        | ContainerState::Restarting
        | ContainerState::Created
        | ContainerState::Other(_) => return runs("it runs, so it is judged anew"),
    }
    if !story.is_ours() {
        return left("it ended, and not surely by our hand");
    }
    if facts.removal == AutoRemoval::Yes || story.stop.removal == AutoRemoval::Yes {
        return left("its engine removes it by itself, and has not yet");
    }
    let policy = &story.stop.judgement.policy;
    let reaps =
        |name: &str| config.containers.iter().any(|known| known.name == name && known.mode == Mode::Reap);
    if config.mode != Mode::Reap || !reaps(policy) {
        return left("its policy does not reap any more");
    }
    let is_kept = |mark: &&KeepMark| {
        let is_meant = matches!(&mark.what, Kept::Container { at, .. } if *at == story.stop.run.at);
        is_meant && holds(mark, &seen.boot, seen.began.wall)
    };
    if marks.iter().any(|mark| is_kept(&mark)) {
        return left("you marked it to be kept");
    }
    Course::Remove(Box::new(story.stop.clone()))
}

/// Asks the engine of a container, within this deadline.
pub fn ask(at: &ContainerRef, patience: Duration) -> Result<Option<ContainerFacts>, String> {
    let asked = engine::run(async {
        let client = Client::connect(&at.engine, patience).await?;
        client.inspect(&at.id, &std::collections::BTreeSet::new()).await
    });
    match asked {
        Ok(Ok(inspected)) => Ok(inspected.map(|inspected| inspected.facts)),
        Ok(Err(fault)) | Err(fault) => Err(fault.to_string()),
    }
}
