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
    pub ledger: &'a mut Ledger,
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
                // Somebody may use it by now: what was suspected of it is suspected anew.
                ground.ledger.forget_container(&story.stop.run.at);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::journal::entry::{Entry, VERSION};
    use crate::app::sample;
    use crate::config::policy::{ContainerPolicy, Origin, ProofNeed};
    use crate::model::container::RestartPolicy;
    use crate::model::container::sample as container;
    use crate::model::container::stop::{Fate, StopStep};
    use crate::model::facts::Namespaces;
    use crate::model::id::BootId;
    use crate::model::moment::Moment;

    const HERE: u64 = 7;

    fn entry(event: Event) -> Entry {
        let boot = BootId("an earlier one".into());
        Entry { v: VERSION, at: 1, boot, pid_namespace: Some(HERE), sweep: 1, clock: Moment(1), event }
    }

    /// A stop that a crash cut short after these steps.
    fn cut_short(steps: &[StopStep]) -> History {
        let stop = Stop { removal: AutoRemoval::No, ..container::stop(1, "docker-run") };
        let mut entries = vec![entry(Event::StopIntent { stop: Box::new(stop), by: By::Once })];
        let step = |step: &StopStep| entry(Event::StopStep { at: container::at(1), step: step.clone() });
        entries.extend(steps.iter().map(step));
        History { entries, skipped: 0 }
    }

    fn config() -> Config {
        let policy = ContainerPolicy {
            name: "docker-run".into(),
            origin: Origin::Builtin,
            about: String::new(),
            mode: Mode::Reap,
            matches: Vec::new(),
            captures: std::collections::BTreeMap::new(),
            reap_when: Vec::new(),
            spare_when: Vec::new(),
            proof: ProofNeed::Required,
            grace: Duration::from_secs(10),
            volumes: Fate::Keep,
            networks: Fate::Keep,
            ping: None,
        };
        Config { containers: vec![policy], ..sample::config() }
    }

    fn seen() -> Snapshot {
        let mut seen = sample::snapshot(&[]);
        seen.own.namespaces = Ok(Namespaces { pid: HERE, mount: 1, net: 1, time: 1, user: 1 });
        seen
    }

    fn ended() -> ContainerFacts {
        let (state, removal) = (ContainerState::Exited, AutoRemoval::No);
        ContainerFacts { state, removal, ..container::facts(1) }
    }

    fn course_of(history: &History, said: Result<Option<ContainerFacts>, String>) -> Course {
        let open = open(history, &seen());
        course(&open[0], said, &config(), &[], &seen())
    }

    #[test]
    fn what_ended_by_our_hand_is_removed_f12() {
        for steps in [&[StopStep::Stop][..], &[StopStep::Stop, StopStep::Kill]] {
            let course = course_of(&cut_short(steps), Ok(Some(ended())));
            assert!(matches!(course, Course::Remove(_)), "{course:?}");
        }
    }

    #[test]
    fn whatever_is_not_surely_so_stays_f12() {
        let stopped = || cut_short(&[StopStep::Stop]);
        let not = |history: &History, facts: ContainerFacts| {
            let course = course_of(history, Ok(Some(facts)));
            assert!(matches!(course, Course::Close(_)), "{course:?}");
            course
        };
        not(&cut_short(&[]), ended());
        let runs = |course| assert!(matches!(course, Course::Close(StopOutcome::Runs(_))), "{course:?}");
        for state in [ContainerState::Running, ContainerState::Paused, ContainerState::Restarting] {
            runs(not(&stopped(), ContainerFacts { state, ..ended() }));
        }
        let mut anew = ended();
        anew.run.started = "2027-01-01T00:00:00Z".into();
        runs(not(&stopped(), anew));
        not(&stopped(), ContainerFacts { removal: AutoRemoval::Yes, ..ended() });
        not(&stopped(), ContainerFacts { state: ContainerState::Removing, ..ended() });
        // A restart policy alone does not matter any more: it has ended, and is that very run.
        let kept = ContainerFacts { restart: RestartPolicy::Kept("no".into()), ..ended() };
        assert!(matches!(course_of(&stopped(), Ok(Some(kept))), Course::Remove(_)));
    }

    #[test]
    fn an_engine_that_does_not_answer_leaves_it_open_f12() {
        let course = course_of(&cut_short(&[StopStep::Stop]), Err("no answer in time".into()));
        assert!(matches!(course, Course::Leave(_)), "{course:?}");
        assert_eq!(course_of(&cut_short(&[StopStep::Stop]), Ok(None)), Course::Close(StopOutcome::Gone));
    }

    #[test]
    fn what_is_kept_by_now_or_not_reaped_any_more_stays() {
        let history = cut_short(&[StopStep::Stop]);
        let open = open(&history, &seen());
        let with = |config: &Config, marks: &[KeepMark]| {
            let course = course(&open[0], Ok(Some(ended())), config, marks, &seen());
            matches!(course, Course::Remove(_))
        };
        let what = Kept::Container { at: container::at(1), name: String::new() };
        let mark = |until| KeepMark { what: what.clone(), until, set: 0, note: None };
        assert!(with(&config(), &[]));
        assert!(!with(&config(), &[mark(None)]));
        assert!(with(&config(), &[mark(Some(1))]), "its time is over");
        assert!(!with(&Config { mode: Mode::Report, ..config() }, &[]));
        assert!(!with(&Config { containers: Vec::new(), ..config() }, &[]));
        let mut reports = config();
        reports.containers[0].mode = Mode::Report;
        assert!(!with(&reports, &[]));
    }

    #[test]
    fn what_another_pid_namespace_began_is_not_taken_up() {
        let mut history = cut_short(&[StopStep::Stop]);
        assert_eq!(open(&history, &seen()).len(), 1);
        history.entries[0].pid_namespace = Some(HERE + 1);
        assert_eq!(open(&history, &seen()), []);
        history.entries[0].pid_namespace = None;
        assert_eq!(open(&history, &seen()), []);
    }

    #[test]
    fn only_the_latest_stop_of_a_container_is_taken_up() {
        let mut history = cut_short(&[StopStep::Stop]);
        let again = cut_short(&[]);
        history.entries.extend(again.entries);
        let open = open(&history, &seen());
        assert_eq!(open.iter().map(|story| story.steps.len()).collect::<Vec<_>>(), [0]);
    }
}
