//! Against an engine in thought: each way a stop may go.

use std::rc::Rc;
use std::time::Instant;

use super::*;
use crate::engine::{Fault, NetworkOrigin, NetworkUse, Said};
use crate::model::container::stop::Fate;
use crate::model::container::{
    AutoRemoval, ContainerFacts, ContainerId, ContainerState, Listed, RestartPolicy, sample,
};

/// Short, since nothing here takes time but what the test says.
const SOON: Pauses = Pauses([Duration::from_millis(1); 3]);

/// What it takes to end a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// It ends when it is asked.
    Asked,
    /// It ignores that, and its engine kills it after the grace.
    AfterGrace,
    /// Its engine's own kill is lost; one more helps.
    Killed,
    /// Nothing ends it: it waits for a disk (C11).
    Never,
}

#[derive(Debug, Clone)]
struct Contained {
    facts: ContainerFacts,
    ends: Ends,
    networks: Vec<NetworkUse>,
}

type Event = Box<dyn FnOnce(&Fake)>;

type Change = fn(&mut ContainerFacts);

/// An engine in thought.
#[derive(Default)]
struct Fake {
    all: RefCell<BTreeMap<ContainerId, Contained>>,
    calls: RefCell<Vec<String>>,
    /// What happens right before the next call of this name.
    events: RefCell<Vec<(&'static str, Event)>>,
    /// What the next call of this name says instead of being made.
    says: RefCell<Vec<(&'static str, Result<Said, Fault>)>>,
    /// Who is in each network once the container is gone; nothing where no network is there any more.
    joined: RefCell<Option<Vec<ContainerId>>>,
}

impl Fake {
    fn of(numbers: &[u32], removal: AutoRemoval, ends: Ends) -> Rc<Fake> {
        let fake = Fake { joined: RefCell::new(Some(Vec::new())), ..Fake::default() };
        for &number in numbers {
            let facts = ContainerFacts { removal, ..sample::facts(number) };
            let contained = Contained { facts, ends, networks: Vec::new() };
            fake.all.borrow_mut().insert(sample::id(number), contained);
        }
        Rc::new(fake)
    }

    fn before(&self, call: &'static str, event: impl FnOnce(&Fake) + 'static) {
        self.events.borrow_mut().push((call, Box::new(event)));
    }

    fn says(&self, call: &'static str, said: Result<Said, Fault>) {
        self.says.borrow_mut().push((call, said));
    }

    fn change(&self, number: u32, change: impl FnOnce(&mut Contained)) {
        if let Some(contained) = self.all.borrow_mut().get_mut(&sample::id(number)) {
            change(contained);
        }
    }

    fn is_there(&self, number: u32) -> bool {
        self.all.borrow().contains_key(&sample::id(number))
    }

    fn made(&self, call: &str) -> usize {
        self.calls.borrow().iter().filter(|made| *made == call).count()
    }

    fn begin(&self, call: &'static str) -> Option<Result<Said, Fault>> {
        let event = {
            let mut events = self.events.borrow_mut();
            events.iter().position(|(name, _)| *name == call).map(|at| events.remove(at).1)
        };
        if let Some(event) = event {
            event(self);
        }
        self.calls.borrow_mut().push(call.to_owned());
        let mut says = self.says.borrow_mut();
        says.iter().position(|(name, _)| *name == call).map(|at| says.remove(at).1)
    }

    fn end(&self, id: &ContainerId) {
        let mut all = self.all.borrow_mut();
        match all.get_mut(id) {
            Some(contained) if contained.facts.removal == AutoRemoval::No => {
                contained.facts.state = ContainerState::Exited;
            }
            Some(_) | None => drop(all.remove(id)),
        }
    }

    fn state(&self, id: &ContainerId) -> Option<(ContainerState, Ends)> {
        self.all.borrow().get(id).map(|contained| (contained.facts.state.clone(), contained.ends))
    }
}

fn no_such() -> Said {
    Said::Already("no such container".into())
}

fn refused() -> Fault {
    let message = "tried to kill container, but did not receive an exit event".to_owned();
    Fault::Refused { status: 500, message }
}

impl Calls for Rc<Fake> {
    async fn list(&self) -> Result<Vec<Listed>, Fault> {
        // As over a socket, others have their turn meanwhile.
        tokio::time::sleep(Duration::from_millis(1)).await;
        if let Some(Err(fault)) = self.begin("list") {
            return Err(fault);
        }
        let all = self.all.borrow();
        let row = |(id, contained): (&ContainerId, &Contained)| Listed {
            id: id.clone(),
            state: contained.facts.state.clone(),
            ..sample::listed(0)
        };
        Ok(all.iter().map(row).collect())
    }

    async fn inspect(&self, id: &ContainerId) -> Result<Option<ContainerFacts>, Fault> {
        if let Some(Err(fault)) = self.begin("inspect") {
            return Err(fault);
        }
        Ok(self.all.borrow().get(id).map(|contained| contained.facts.clone()))
    }

    async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<Said, Fault> {
        if let Some(said) = self.begin("stop") {
            return said;
        }
        match self.state(id) {
            None => return Ok(no_such()),
            Some((ContainerState::Exited, _)) => return Ok(Said::Already("it had ended".into())),
            Some((_, Ends::Asked)) => {}
            Some((_, Ends::AfterGrace)) => tokio::time::sleep(grace).await,
            Some((_, Ends::Killed | Ends::Never)) => return Err(refused()),
        }
        self.end(id);
        Ok(Said::Done)
    }

    async fn kill(&self, id: &ContainerId) -> Result<Said, Fault> {
        if let Some(said) = self.begin("kill") {
            return said;
        }
        match self.state(id) {
            None => return Ok(no_such()),
            Some((_, Ends::Never)) => return Err(refused()),
            Some(_) => {}
        }
        self.end(id);
        Ok(Said::Done)
    }

    async fn remove(&self, id: &ContainerId, volumes: Fate) -> Result<Said, Fault> {
        if let Some(said) = self.begin(if volumes == Fate::Remove { "remove v" } else { "remove" }) {
            return said;
        }
        match self.all.borrow_mut().remove(id) {
            None => Ok(no_such()),
            Some(_) => Ok(Said::Done),
        }
    }

    async fn networks(&self, id: &ContainerId) -> Result<Vec<NetworkUse>, Fault> {
        if let Some(Err(fault)) = self.begin("networks") {
            return Err(fault);
        }
        Ok(self.all.borrow().get(id).map(|contained| contained.networks.clone()).unwrap_or_default())
    }

    async fn network(&self, network: &NetworkUse, _: &ContainerId) -> Result<Option<NetworkUse>, Fault> {
        if let Some(Err(fault)) = self.begin("network") {
            return Err(fault);
        }
        let joined = self.joined.borrow().clone();
        Ok(joined.map(|others| NetworkUse { others, ..network.clone() }))
    }

    async fn remove_network(&self, id: &str) -> Result<Said, Fault> {
        self.calls.borrow_mut().push(format!("remove network {id}"));
        Ok(Said::Done)
    }
}

/// Writes down what it is told, until its disk is full.
struct Book {
    lines: Vec<String>,
    room: usize,
    /// What was asked of the engine when each step was written down.
    engine: Option<Rc<Fake>>,
}

impl Witness for Book {
    fn now(&mut self) -> Moment {
        Moment(0)
    }

    fn step(&mut self, at: &ContainerRef, step: &StopStep) -> Result<(), String> {
        if self.lines.len() >= self.room {
            return Err("no space is left".to_owned());
        }
        let call = match step {
            StopStep::Stop => "stop",
            StopStep::Kill => "kill",
            StopStep::Remove => "remove",
            StopStep::RemoveNetwork(_) => "remove network",
        };
        // The line is there first.
        if let Some(engine) = &self.engine {
            let written = self.lines.iter().filter(|line| line.ends_with(call)).count();
            assert_eq!(engine.made(call), written, "{call}: {:?}", self.lines);
        }
        self.lines.push(format!("{at} {call}"));
        Ok(())
    }

    fn ended(&mut self, report: &StopReport) {
        self.lines.push(format!("{} ended", report.at));
    }
}

fn carry(fake: &Rc<Fake>, stops: &[Stop], begin: Begin, book: &mut Book) -> Vec<StopReport> {
    let id = sample::at(0).engine;
    let engines = BTreeMap::from([(&id, Ok(Rc::clone(fake)))]);
    let witness: Told<'_> = RefCell::new(book);
    engine::run(side_by_side(stops, &engines, begin, SOON, &witness)).unwrap()
}

fn book() -> Book {
    Book { lines: Vec::new(), room: usize::MAX, engine: None }
}

/// Stops one container, and returns what became of it.
fn one(fake: &Rc<Fake>, change: impl FnOnce(&mut Stop)) -> StopReport {
    let mut stop = sample::stop(1, "docker-run");
    stop.grace = Duration::from_millis(20);
    stop.removal = fake.all.borrow().values().next().map_or(AutoRemoval::Yes, |one| one.facts.removal);
    change(&mut stop);
    let mut book = Book { engine: Some(Rc::clone(fake)), ..book() };
    carry(fake, &[stop], Begin::Running, &mut book).remove(0)
}

fn steps(report: &StopReport) -> Vec<&StopStep> {
    report.steps.iter().map(|(step, _)| step).collect()
}

const RM: AutoRemoval = AutoRemoval::Yes;
const STAYS: AutoRemoval = AutoRemoval::No;

#[test]
fn one_that_ends_when_asked_is_gone_once_the_list_lacks_it() {
    let fake = Fake::of(&[1], RM, Ends::Asked);
    let report = one(&fake, |_| {});
    assert_eq!((steps(&report), &report.outcome), (vec![&StopStep::Stop], &StopOutcome::Gone));
    assert_eq!((fake.made("kill"), fake.made("remove")), (0, 0), "its engine removes it");

    let fake = Fake::of(&[1], STAYS, Ends::Asked);
    let report = one(&fake, |_| {});
    assert_eq!(steps(&report), [&StopStep::Stop, &StopStep::Remove]);
    assert_eq!((report.outcome, fake.is_there(1)), (StopOutcome::Gone, false));
}

#[test]
fn thirty_five_take_one_grace() {
    let numbers: Vec<u32> = (0..35).collect();
    let fake = Fake::of(&numbers, RM, Ends::AfterGrace);
    let grace = Duration::from_millis(300);
    let stops: Vec<Stop> =
        numbers.iter().map(|&number| Stop { grace, ..sample::stop(number, "docker-run") }).collect();
    let began = Instant::now();
    let reports = carry(&fake, &stops, Begin::Running, &mut book());
    assert!(began.elapsed() < grace * 5, "{:?}", began.elapsed());
    assert!(reports.iter().all(|report| report.outcome == StopOutcome::Gone), "{reports:?}");
    let order: Vec<&ContainerRef> = reports.iter().map(|report| &report.at).collect();
    assert_eq!(order, stops.iter().map(|stop| &stop.run.at).collect::<Vec<_>>());
    assert!(fake.made("list") < 35, "one list serves many: {}", fake.made("list"));
}

#[test]
fn no_more_than_so_many_are_stopped_at_a_time() {
    let numbers: Vec<u32> = (0..u32::try_from(AT_ONCE).unwrap() + 3).collect();
    let fake = Fake::of(&numbers, RM, Ends::AfterGrace);
    let grace = Duration::from_millis(50);
    let stops: Vec<Stop> =
        numbers.iter().map(|&number| Stop { grace, ..sample::stop(number, "docker-run") }).collect();
    let most = Rc::new(RefCell::new(0));
    let seen = Rc::clone(&most);
    // When the first of them is gone, no further one was asked so far.
    fake.before("list", move |fake| *seen.borrow_mut() = fake.made("stop"));
    let reports = carry(&fake, &stops, Begin::Running, &mut book());
    assert!(reports.iter().all(|report| report.outcome == StopOutcome::Gone));
    assert_eq!(*most.borrow(), AT_ONCE);
}

#[test]
fn whoever_is_not_what_was_judged_is_not_touched_c15() {
    let changes: [(&str, Change); 6] = [
        ("started anew", |facts| facts.run.started = "2027-01-01T00:00:00Z".into()),
        ("paused", |facts| facts.state = ContainerState::Paused),
        ("restarting", |facts| facts.state = ContainerState::Restarting),
        ("restart policy", |facts| facts.restart = RestartPolicy::Kept("always".into())),
        ("labels", |facts| drop(facts.labels.insert("dev.reapd.keep".into(), "1".into()))),
        ("who removes it", |facts| facts.removal = STAYS),
    ];
    for (words, change) in changes {
        let fake = Fake::of(&[1], RM, Ends::Asked);
        fake.change(1, |contained| change(&mut contained.facts));
        let report = one(&fake, |stop| stop.removal = RM);
        let StopOutcome::Untouched(why) = &report.outcome else { panic!("{words}: {report:?}") };
        assert!(why.contains(words), "{words}: {why}");
        assert_eq!((steps(&report).len(), fake.made("stop")), (0, 0), "{words}");
    }
    let gone = Fake::of(&[], RM, Ends::Asked);
    let report = one(&gone, |_| {});
    assert!(matches!(report.outcome, StopOutcome::Untouched(_)), "{report:?}");
}

#[test]
fn an_engine_that_does_not_say_who_it_is_stops_nothing() {
    let fake = Fake::of(&[1], RM, Ends::Asked);
    fake.says("inspect", Err(Fault::Hung));
    let report = one(&fake, |_| {});
    assert!(matches!(report.outcome, StopOutcome::Untouched(_)), "{report:?}");
    assert_eq!(fake.made("stop"), 0);

    let id = sample::at(0).engine;
    let engines: BTreeMap<&EngineId, Result<Rc<Fake>, String>> =
        BTreeMap::from([(&id, Err("no engine answers there".to_owned()))]);
    let mut book = book();
    let witness: Told<'_> = RefCell::new(&mut book);
    let stops = [sample::stop(1, "docker-run")];
    let all = engine::run(side_by_side(&stops, &engines, Begin::Running, SOON, &witness)).unwrap();
    assert_eq!(all[0].outcome, StopOutcome::Untouched("no engine answers there".into()));
}

#[test]
fn one_whose_end_the_engine_did_not_see_is_killed_once_more_c12() {
    let fake = Fake::of(&[1], RM, Ends::Killed);
    let report = one(&fake, |_| {});
    assert_eq!(steps(&report), [&StopStep::Stop, &StopStep::Kill]);
    assert_eq!(report.outcome, StopOutcome::Gone);
    assert!(report.steps[0].1.as_ref().unwrap().contains("exit event"), "{report:?}");
}

#[test]
fn one_that_nothing_ends_runs_on_with_the_engines_words_c11() {
    for removal in [RM, STAYS] {
        let fake = Fake::of(&[1], removal, Ends::Never);
        let report = one(&fake, |_| {});
        let StopOutcome::Runs(why) = &report.outcome else { panic!("{report:?}") };
        assert!(why.contains("did not receive an exit event"), "{why}");
        assert_eq!((fake.made("kill"), fake.made("remove")), (1, 0), "nothing is removed that runs");
    }
}

#[test]
fn who_was_started_anew_meanwhile_is_not_killed_c15() {
    let fake = Fake::of(&[1], RM, Ends::Killed);
    fake.before("list", |fake| {
        fake.change(1, |contained| contained.facts.run.started = "2027-01-01T00:00:00Z".into());
    });
    let report = one(&fake, |_| {});
    assert!(matches!(&report.outcome, StopOutcome::Runs(why) if why.contains("anew")), "{report:?}");
    assert_eq!(fake.made("kill"), 0);

    // Or once it had ended: what is there now is another run, and is not removed.
    let fake = Fake::of(&[1], STAYS, Ends::Asked);
    let seen = |fake: &Fake| {
        // The first was before the stop.
        fake.before("inspect", |fake| {
            fake.change(1, |contained| contained.facts.run.started = "2027-01-01T00:00:00Z".into());
        });
    };
    fake.before("stop", seen);
    let report = one(&fake, |_| {});
    assert!(matches!(&report.outcome, StopOutcome::Left(why) if why.contains("anew")), "{report:?}");
    assert_eq!((fake.made("remove"), fake.is_there(1)), (0, true));
}

#[test]
fn a_restart_policy_that_came_meanwhile_is_not_fought_c15() {
    let fake = Fake::of(&[1], STAYS, Ends::Killed);
    fake.before("list", |fake| {
        fake.change(1, |contained| contained.facts.restart = RestartPolicy::Kept("always".into()));
    });
    let report = one(&fake, |_| {});
    assert!(
        matches!(&report.outcome, StopOutcome::Runs(why) if why.contains("restart policy")),
        "{report:?}"
    );
    assert_eq!(fake.made("kill"), 0);
}

#[test]
fn only_what_ended_by_our_hand_is_removed() {
    let fake = Fake::of(&[1], STAYS, Ends::Asked);
    // It ends by itself between the last look and the stop.
    fake.before("stop", |fake| fake.end(&sample::id(1)));
    let report = one(&fake, |_| {});
    assert!(matches!(&report.outcome, StopOutcome::Left(why) if why.contains("our hand")), "{report:?}");
    assert_eq!((fake.made("remove"), fake.is_there(1)), (0, true));
}

#[test]
fn whoever_another_one_removes_meanwhile_is_gone() {
    let fake = Fake::of(&[1], STAYS, Ends::Asked);
    fake.before("stop", |fake| fake.all.borrow_mut().clear());
    let report = one(&fake, |_| {});
    assert_eq!((report.outcome, fake.made("remove")), (StopOutcome::Gone, 0));

    let fake = Fake::of(&[1], STAYS, Ends::Asked);
    fake.before("remove", |fake| fake.all.borrow_mut().clear());
    let report = one(&fake, |_| {});
    assert_eq!(report.outcome, StopOutcome::Gone);
    assert_eq!(report.steps[1].1.as_deref(), Some("no such container"), "success only after the list agrees");
}

#[test]
fn an_answer_is_no_success_before_the_list_agrees_c16() {
    for said in [Ok(Said::Done), Ok(Said::Already("removal is already in progress".into()))] {
        let fake = Fake::of(&[1], STAYS, Ends::Asked);
        for _ in 0..3 {
            fake.says("remove", said.as_ref().map(Said::clone).map_err(|_| Fault::Hung));
        }
        let report = one(&fake, |_| {});
        assert!(matches!(report.outcome, StopOutcome::Left(_)), "{report:?}");
        assert_eq!(fake.made("remove"), 3, "retries are bounded");

        // The twin where the second try helps.
        let fake = Fake::of(&[1], STAYS, Ends::Asked);
        fake.says("remove", said);
        assert_eq!(one(&fake, |_| {}).outcome, StopOutcome::Gone);
        assert_eq!(fake.made("remove"), 2);
    }
    let fake = Fake::of(&[1], STAYS, Ends::Asked);
    fake.says("stop", Ok(Said::Done));
    let report = one(&fake, |_| {});
    assert_eq!(steps(&report), [&StopStep::Stop, &StopStep::Kill, &StopStep::Remove], "it ran on");
}

#[test]
fn what_its_engine_does_not_remove_is_left_and_said() {
    let fake = Fake::of(&[1], RM, Ends::Asked);
    fake.before("stop", |fake| {
        fake.change(1, |contained| contained.facts.state = ContainerState::Removing);
    });
    fake.says("stop", Ok(Said::Done));
    let report = one(&fake, |_| {});
    assert!(matches!(report.outcome, StopOutcome::Left(_)), "{report:?}");
    assert_eq!(fake.made("remove"), 0, "nobody is raced for it");
}

#[test]
fn an_engine_that_falls_silent_meanwhile_hangs_nobody() {
    for fault in [|| Fault::Hung, || Fault::Absent] {
        let fake = Fake::of(&[1], STAYS, Ends::Asked);
        fake.says("stop", Err(fault()));
        for _ in 0..20 {
            fake.says("list", Err(fault()));
        }
        let report = one(&fake, |_| {});
        assert!(matches!(report.outcome, StopOutcome::NotProven(_)), "{report:?}");
        assert!(fake.made("list") <= 4, "bounded: {}", fake.made("list"));
        assert_eq!((fake.made("kill"), fake.made("remove")), (0, 0), "nothing rests on silence");
    }
    // One that hangs is not asked again: each try costs a whole deadline.
    let fake = Fake::of(&[1], RM, Ends::Asked);
    fake.says("list", Err(Fault::Hung));
    assert!(matches!(one(&fake, |_| {}).outcome, StopOutcome::NotProven(_)));
    assert_eq!(fake.made("list"), 1);
}

#[test]
fn a_step_that_cannot_be_written_down_is_not_made_s8() {
    for (room, made) in [(0, [0, 0, 0]), (1, [1, 0, 0]), (2, [1, 1, 0])] {
        let fake = Fake::of(&[1], STAYS, Ends::Killed);
        let stop = Stop { removal: STAYS, ..sample::stop(1, "docker-run") };
        let mut book = Book { room, ..book() };
        let report = carry(&fake, &[stop], Begin::Running, &mut book).remove(0);
        assert_eq!(["stop", "kill", "remove"].map(|call| fake.made(call)), made, "{report:?}");
        assert_ne!(report.outcome, StopOutcome::Gone);
        assert_eq!(matches!(report.outcome, StopOutcome::Untouched(_)), room == 0, "{report:?}");
    }
}

fn network(name: &str, origin: NetworkOrigin, others: &[u32]) -> NetworkUse {
    let others = others.iter().map(|&number| sample::id(number)).collect();
    NetworkUse { name: name.into(), id: name.into(), origin, others }
}

#[test]
fn only_networks_that_it_alone_used_go_and_only_where_its_policy_says() {
    for (removal, fate) in [(RM, Fate::Remove), (STAYS, Fate::Remove), (RM, Fate::Keep), (STAYS, Fate::Keep)]
    {
        let fake = Fake::of(&[1], removal, Ends::Asked);
        fake.change(1, |contained| {
            contained.networks = vec![
                network("own", NetworkOrigin::Made, &[]),
                network("shared", NetworkOrigin::Made, &[2]),
                network("bridge", NetworkOrigin::Predefined, &[]),
            ];
        });
        let report = one(&fake, |stop| stop.networks = fate);
        assert_eq!(report.outcome, StopOutcome::Gone);
        let removed: Vec<String> =
            fake.calls.borrow().iter().filter(|call| call.starts_with("remove network")).cloned().collect();
        let expected: &[&str] = if fate == Fate::Remove { &["remove network own"] } else { &[] };
        assert_eq!(removed, expected, "{removal:?} {fate:?}");
    }
    // And only with the container.
    let fake = Fake::of(&[1], RM, Ends::Never);
    fake.change(1, |contained| contained.networks = vec![network("own", NetworkOrigin::Made, &[])]);
    one(&fake, |stop| stop.networks = Fate::Remove);
    assert_eq!(fake.made("remove network own"), 0);
}

#[test]
fn a_network_is_looked_at_again_right_before_it_goes() {
    let removed = |joined: Option<Vec<ContainerId>>, said: Option<Fault>| {
        let fake = Fake::of(&[1], RM, Ends::Asked);
        fake.change(1, |contained| contained.networks = vec![network("own", NetworkOrigin::Made, &[])]);
        *fake.joined.borrow_mut() = joined;
        if let Some(fault) = said {
            fake.says("network", Err(fault));
        }
        let report = one(&fake, |stop| stop.networks = Fate::Remove);
        assert_eq!(report.outcome, StopOutcome::Gone);
        fake.made("remove network own")
    };
    assert_eq!(removed(Some(Vec::new()), None), 1);
    assert_eq!(removed(Some(vec![sample::id(2)]), None), 0, "somebody joined it meanwhile");
    assert_eq!(removed(None, None), 0, "it is gone");
    assert_eq!(removed(Some(Vec::new()), Some(Fault::Hung)), 0, "nobody can tell");
}

#[test]
fn networks_of_what_ended_otherwise_stay() {
    let fake = Fake::of(&[1], RM, Ends::Asked);
    fake.change(1, |contained| contained.networks = vec![network("own", NetworkOrigin::Made, &[])]);
    fake.before("stop", |fake| fake.end(&sample::id(1)));
    let report = one(&fake, |stop| stop.networks = Fate::Remove);
    assert_eq!((report.outcome, fake.made("remove network own")), (StopOutcome::Gone, 0));
}

#[test]
fn a_command_that_was_started_in_it_meanwhile_keeps_it() {
    for (known, now, outcome) in [
        (&["e1"][..], &["e1"][..], StopOutcome::Gone),
        (&["e1"], &[], StopOutcome::Gone),
        (
            &["e1"],
            &["e1", "e2"],
            StopOutcome::Untouched(
                "right before the first call: a command was started in it meanwhile".into(),
            ),
        ),
    ] {
        let fake = Fake::of(&[1], RM, Ends::Asked);
        let words = |all: &[&str]| all.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        fake.change(1, |contained| contained.facts.execs = words(now));
        let report = one(&fake, |stop| stop.execs = words(known));
        assert_eq!(report.outcome, outcome);
        assert_eq!(fake.made("stop"), usize::from(report.outcome == StopOutcome::Gone));
    }
}

#[test]
fn anonymous_volumes_go_only_where_its_policy_says() {
    for (fate, call, other) in [(Fate::Remove, "remove v", "remove"), (Fate::Keep, "remove", "remove v")] {
        let fake = Fake::of(&[1], STAYS, Ends::Asked);
        let stop = Stop { removal: STAYS, volumes: fate, ..sample::stop(1, "docker-run") };
        let report = carry(&fake, &[stop], Begin::Running, &mut book()).remove(0);
        assert_eq!(report.outcome, StopOutcome::Gone);
        assert_eq!((fake.made(call), fake.made(other)), (1, 0));
    }
}

#[test]
fn what_ended_before_a_crash_is_only_removed_f12() {
    let left = |change: fn(&mut ContainerFacts)| {
        let fake = Fake::of(&[1], STAYS, Ends::Asked);
        fake.change(1, |contained| {
            contained.facts.state = ContainerState::Exited;
            change(&mut contained.facts);
        });
        let stop = Stop { removal: STAYS, ..sample::stop(1, "docker-run") };
        let report = carry(&fake, &[stop], Begin::Ended, &mut book()).remove(0);
        assert_eq!((fake.made("stop"), fake.made("kill")), (0, 0));
        (report.outcome, fake.made("remove"))
    };
    assert_eq!(left(|_| {}), (StopOutcome::Gone, 1));
    let (outcome, removed) = left(|facts| facts.run.started = "2027-01-01T00:00:00Z".into());
    assert!(matches!(outcome, StopOutcome::Untouched(_)) && removed == 0, "{outcome:?}");
    let (outcome, removed) = left(|facts| facts.state = ContainerState::Running);
    assert!(matches!(outcome, StopOutcome::Runs(_)) && removed == 0, "{outcome:?}");
}
