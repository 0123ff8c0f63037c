//! Takes up the stops that a crash cut short, without trusting that nothing has changed since (REDTEAM F12).
//!
//! A container that runs is judged anew, whatever was intended. One that has ended is removed where its engine took our
//! request to end it, as the journal says, it is that very run, its policy still reaps, and nothing keeps it by now. An
//! engine that does not answer leaves all of its own as they are, for the next sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bstr::{BString, ByteSlice as _};

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
use crate::config::policy::{AdmitEnv, Config};
use crate::engine::{self, Client};
use crate::judge::Ledger;
use crate::judge::containers::is_admitted;
use crate::model::container::stop::{Stop, StopOutcome, StopReport};
use crate::model::container::{
    AutoRemoval, ContainerFacts, ContainerRef, ContainerState, EngineId, RestartPolicy,
};
use crate::model::keep::{KeepMark, Kept};
use crate::model::look::Snapshot;
use crate::model::verdict::Mode;

/// The label that keeps a container.
const KEEP_LABEL: &str = "dev.reapd.keep";
/// The variable that keeps one.
const KEEP: &str = "REAPD_KEEP";

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
    for (story, course) in courses(open(history, seen), inspect, ground.config, ground.marks, seen) {
        let name = format!("{} {}", story.stop.run.at, legible::text(&name(&story)));
        match course {
            Course::Leave(why) => {
                session.talk(&format!("what became of container {name} is still not known: {why}"));
            }
            Course::Remove(stop) => {
                session.talk(&format!(
                    "container {name} was asked to end, and has ended: removing what is left"
                ));
                left.push(*stop);
            }
            Course::Close(outcome) => {
                // Somebody may use it by now: what was suspected of it is suspected anew.
                ground.ledger.forget_container(&story.stop.run.at);
                let words = crate::app::report::containers::outcome_words(&outcome);
                session.talk(&format!("what became of container {name} was not known: {words}"));
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

/// Returns what is to be done about each. After its first fault, an engine is not asked about the others: each of them
/// could take a whole deadline.
fn courses<'a>(
    stories: Vec<StopStory<'a>>,
    inspect: Inspect<'_>,
    config: &Config,
    marks: &[KeepMark],
    seen: &Snapshot,
) -> Vec<(StopStory<'a>, Course)> {
    let mut faults: BTreeMap<&EngineId, String> = BTreeMap::new();
    let mut all = Vec::new();
    for story in stories {
        let at = &story.stop.run.at;
        let said = match faults.get(&at.engine) {
            Some(why) => Err(why.clone()),
            None => inspect(at),
        };
        if let Err(why) = &said {
            faults.insert(&at.engine, why.clone());
        }
        let course = course(&story, said, config, marks, seen);
        all.push((story, course));
    }
    all
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
        | ContainerState::Other(_) => return runs("it has not ended, so it is judged anew"),
    }
    if !story.is_ours(&seen.boot) {
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
    match keeps(&facts, config, marks, seen) {
        Some(why) => left(&why),
        None => Course::Remove(Box::new(story.stop.clone())),
    }
}

/// Returns what keeps by now what is left of a container; nothing where nothing does. There is no look here in which
/// what it uses could be weighed, so this keeps more than a judgement would: whatever is to be kept somewhere.
fn keeps(facts: &ContainerFacts, config: &Config, marks: &[KeepMark], seen: &Snapshot) -> Option<String> {
    if let RestartPolicy::Kept(policy) = &facts.restart {
        return Some(format!("its restart policy is '{policy}' now"));
    }
    if !is_admitted(&config.scope, facts) {
        return Some("it does not carry the marker of the configured scope".to_owned());
    }
    let is_set = |value: &[u8]| !value.is_empty() && value != b"0";
    if facts.labels.get(KEEP_LABEL).is_some_and(|value| is_set(value.as_bytes())) {
        return Some(format!("its label {KEEP_LABEL} keeps it"));
    }
    if facts.env.get(KEEP.as_bytes().as_bstr()).is_some_and(|value| is_set(value)) {
        return Some(format!("{KEEP} is set in its environment"));
    }
    if !config.keep.programs.is_empty() || !config.keep.directories.is_empty() {
        return Some("something stands under [keep], which may be about it".to_owned());
    }
    marks.iter().filter(|mark| holds(mark, &seen.boot, seen.began.wall)).find_map(|mark| match &mark.what {
        // One container may be seen at several sockets; its id is the same.
        Kept::Container { at, .. } => {
            (at.id == facts.run.at.id).then(|| "it was marked with `reapd keep`".to_owned())
        }
        Kept::Directory { .. } => Some("a directory is marked to be kept, which it may use".to_owned()),
        Kept::Process { .. } => None,
    })
}

/// Asks the engine of a container, within this deadline.
pub fn ask(at: &ContainerRef, config: &Config, patience: Duration) -> Result<Option<ContainerFacts>, String> {
    let names = variables(config);
    let asked = engine::run(async {
        let client = Client::connect(&at.engine, patience).await?;
        client.inspect(&at.id, &names).await
    });
    match asked {
        Ok(Ok(inspected)) => Ok(inspected.map(|inspected| inspected.facts)),
        Ok(Err(fault)) | Err(fault) => Err(fault.to_string()),
    }
}

/// Returns the variables that may keep a container, or admit it.
fn variables(config: &Config) -> BTreeSet<BString> {
    let mut names = BTreeSet::from([BString::from(KEEP)]);
    if let AdmitEnv::Marked { name, .. } = &config.scope {
        names.insert(name.clone());
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::journal::entry::{Entry, VERSION};
    use crate::app::sample;
    use crate::config::policy::{ContainerPolicy, Glob, Origin, ProofNeed};
    use crate::model::container::sample as container;
    use crate::model::container::stop::{Fate, StopStep};
    use crate::model::facts::Namespaces;
    use crate::model::id::BootId;
    use crate::model::moment::Moment;

    const HERE: u64 = 7;

    fn entry(event: Event) -> Entry {
        Entry {
            v: VERSION,
            at: 1,
            boot: seen().boot,
            pid_namespace: Some(HERE),
            sweep: 1,
            clock: Moment(1),
            event,
        }
    }

    fn intended(number: u32) -> Event {
        let stop = Stop { removal: AutoRemoval::No, ..container::stop(number, "docker-run") };
        Event::StopIntent { stop: Box::new(stop), by: By::Once }
    }

    /// A stop that a crash cut short after these steps.
    fn cut_short(steps: &[StopStep]) -> History {
        let step = |step: &StopStep| Event::StopStep { at: container::at(1), step: step.clone() };
        let events = [intended(1)].into_iter().chain(steps.iter().map(step));
        History { entries: events.map(entry).collect(), skipped: 0 }
    }

    /// One whose engine took these steps, and did not say what became of it.
    fn taken(steps: &[StopStep]) -> History {
        let mut history = cut_short(steps);
        let silence = StopOutcome::NotProven("no answer in time".into());
        let steps = steps.iter().map(|step| (step.clone(), None)).collect();
        let report = report(&container::stop(1, "docker-run"), steps, silence, (Moment(1), Moment(1)));
        history.entries.push(entry(Event::StopOutcome { report: Box::new(report) }));
        history
    }

    fn config() -> Config {
        let policy = ContainerPolicy {
            name: "docker-run".into(),
            origin: Origin::Builtin,
            about: String::new(),
            mode: Mode::Reap,
            matches: Vec::new(),
            captures: BTreeMap::new(),
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
            let course = course_of(&taken(steps), Ok(Some(ended())));
            assert!(matches!(course, Course::Remove(_)), "{course:?}");
        }
    }

    #[test]
    fn what_may_have_ended_by_itself_stays_f12() {
        let stays = |history: &History| {
            let course = course_of(history, Ok(Some(ended())));
            let Course::Close(StopOutcome::Left(why)) = course else { panic!("{course:?}") };
            assert!(why.contains("not surely by our hand"), "{why}");
        };
        stays(&cut_short(&[]));
        // Written down, and perhaps never made.
        stays(&cut_short(&[StopStep::Stop]));
        stays(&cut_short(&[StopStep::Stop, StopStep::Kill]));
        let mut earlier = taken(&[StopStep::Stop]);
        for entry in &mut earlier.entries {
            entry.boot = BootId("an earlier one".into());
        }
        stays(&earlier);
    }

    #[test]
    fn whatever_is_not_surely_so_stays_f12() {
        let stopped = || taken(&[StopStep::Stop]);
        let not = |history: &History, facts: ContainerFacts| {
            let course = course_of(history, Ok(Some(facts)));
            assert!(matches!(course, Course::Close(_)), "{course:?}");
            course
        };
        let runs = |course| assert!(matches!(course, Course::Close(StopOutcome::Runs(_))), "{course:?}");
        for state in [ContainerState::Running, ContainerState::Paused, ContainerState::Restarting] {
            runs(not(&stopped(), ContainerFacts { state, ..ended() }));
        }
        let mut anew = ended();
        anew.run.started = "2027-01-01T00:00:00Z".into();
        runs(not(&stopped(), anew));
        not(&stopped(), ContainerFacts { removal: AutoRemoval::Yes, ..ended() });
        not(&stopped(), ContainerFacts { state: ContainerState::Removing, ..ended() });
    }

    #[test]
    fn an_engine_that_does_not_answer_leaves_it_open_f12() {
        let course = course_of(&taken(&[StopStep::Stop]), Err("no answer in time".into()));
        assert!(matches!(course, Course::Leave(_)), "{course:?}");
        assert_eq!(course_of(&taken(&[StopStep::Stop]), Ok(None)), Course::Close(StopOutcome::Gone));
    }

    #[test]
    fn an_engine_is_not_asked_again_after_its_first_fault() {
        let entries = [1, 2, 3].map(|number| entry(intended(number))).into();
        let history = History { entries, skipped: 0 };
        let mut asked = 0;
        let mut silent = |_: &ContainerRef| {
            asked += 1;
            Err("no answer in time".to_owned())
        };
        let all = courses(open(&history, &seen()), &mut silent, &config(), &[], &seen());
        assert!(
            all.iter().all(|(_, course)| matches!(course, Course::Leave(_))) && all.len() == 3,
            "{all:?}"
        );
        assert_eq!(asked, 1);
        // Another engine is.
        let mut history = history;
        if let Event::StopIntent { stop, .. } = &mut history.entries[2].event {
            stop.run.at.engine.0 = "/run/other.sock".into();
        }
        let mut asked = Vec::new();
        let mut silent = |at: &ContainerRef| {
            asked.push(at.engine.0.clone());
            Err("no answer in time".to_owned())
        };
        courses(open(&history, &seen()), &mut silent, &config(), &[], &seen());
        assert_eq!(asked, ["/run/docker.sock", "/run/other.sock"]);
    }

    /// Says whether what the engine took a stop of is removed.
    fn is_removed(facts: ContainerFacts, config: &Config, marks: &[KeepMark]) -> bool {
        let history = taken(&[StopStep::Stop]);
        let open = open(&history, &seen());
        matches!(course(&open[0], Ok(Some(facts)), config, marks, &seen()), Course::Remove(_))
    }

    #[test]
    fn what_is_kept_by_now_or_not_reaped_any_more_stays() {
        let with = |config: &Config, marks: &[KeepMark]| is_removed(ended(), config, marks);
        let container = |at| Kept::Container { at, name: String::new() };
        let mark = |what, until| KeepMark { what, until, set: 0, note: None };
        assert!(with(&config(), &[]));
        let own = container::at(1);
        assert!(!with(&config(), &[mark(container(own.clone()), None)]));
        assert!(with(&config(), &[mark(container(own.clone()), Some(1))]), "its time is over");
        let elsewhere = ContainerRef { engine: EngineId("/run/other.sock".into()), ..own };
        assert!(!with(&config(), &[mark(container(elsewhere), None)]), "by its id, at whatever socket");
        assert!(with(&config(), &[mark(container(container::at(2)), None)]));
        assert!(!with(&config(), &[mark(Kept::Directory { path: "/work".into() }, None)]));
        let mut keeps = config();
        keeps.keep.directories = vec!["/work".into()];
        assert!(!with(&keeps, &[]));
        let mut keeps = config();
        keeps.keep.programs = vec![Glob::parse("postgres").unwrap()];
        assert!(!with(&keeps, &[]));
        assert!(!with(&Config { mode: Mode::Report, ..config() }, &[]));
        assert!(!with(&Config { containers: Vec::new(), ..config() }, &[]));
        let mut reports = config();
        reports.containers[0].mode = Mode::Report;
        assert!(!with(&reports, &[]));
    }

    #[test]
    fn what_its_engine_says_now_may_keep_it() {
        let with = |change: fn(&mut ContainerFacts)| {
            let mut facts = ended();
            change(&mut facts);
            is_removed(facts, &config(), &[])
        };
        assert!(!with(|facts| facts.restart = RestartPolicy::Kept("always".into())));
        for (value, is_kept) in [("1", true), ("yes", true), ("0", false), ("", false)] {
            let mut facts = ended();
            facts.labels.insert(KEEP_LABEL.into(), value.into());
            assert_eq!(is_removed(facts, &config(), &[]), !is_kept, "{value}");
            let mut facts = ended();
            facts.env.insert(KEEP.into(), value.into());
            assert_eq!(is_removed(facts, &config(), &[]), !is_kept, "{value}");
        }
    }

    #[test]
    fn what_the_scope_does_not_admit_stays() {
        let config =
            Config { scope: AdmitEnv::Marked { name: "NONCE".into(), value: "7".into() }, ..config() };
        assert_eq!(variables(&config), BTreeSet::from(["NONCE".into(), "REAPD_KEEP".into()]));
        assert!(!is_removed(ended(), &config, &[]));
        let mut facts = ended();
        facts.labels.insert("NONCE".into(), "7".into());
        assert!(is_removed(facts, &config, &[]));
        for (value, admitted) in [("7", true), ("8", false)] {
            let mut facts = ended();
            facts.env.insert("NONCE".into(), value.into());
            assert_eq!(is_removed(facts, &config, &[]), admitted);
        }
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
