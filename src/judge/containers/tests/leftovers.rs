//! Commands inside containers: which are told to be left behind, and what keeps each from being told.

use crate::judge::Ledger;
use crate::judge::containers::support::{World, at, config, container, engine, given, pipe, unknown};
use crate::judge::rules::support::{id, pid};
use crate::model::container::leftover::{ExecFate, ExecJudgement};
use crate::model::container::{Attached, ContainerState, EngineKind, ExecFacts, Reach, Tty};
use crate::model::id::Start;
use crate::model::known::{Known, Reason};
use crate::model::moment::Moment;
use crate::model::question::{
    Answer, Census, Channel, ChannelKind, EngineAnswer, EngineQuestion, FarEnd, Question,
};
use crate::model::table::plain_row;

/// The shim above the container, and the first process of the command.
const SHIM: i32 = 800;
const INIT: i32 = 2_000;

fn exec_question() -> Question {
    Question::Engine(EngineQuestion::Exec { at: at(1), exec: "e1".into() })
}

fn facts() -> ExecFacts {
    ExecFacts {
        init: Ok(id(INIT)),
        argv: vec!["tool".into(), "--serve".into()],
        stdin: Attached::Yes,
        tty: Tty::No,
    }
}

fn row(world: &mut World, number: i32, parent: i32, began: u64) {
    let mut row = plain_row(pid(number), parent, Start(u64::try_from(number).unwrap() * 10));
    row.began = Moment(began * 1_000_000_000);
    row.resident = 1_000;
    world.rows.push(row);
}

/// A container in use, and in it a command with a child that began at 5000 by `docker exec -i`, its client dead.
fn left() -> World {
    let mut world = World::new().made(1, 1_000).open(1);
    for first in world.rows.iter_mut().filter(|row| row.id.pid == pid(1_001)) {
        first.ppid = SHIM;
    }
    row(&mut world, SHIM, 1, 900);
    row(&mut world, INIT, SHIM, 5_000);
    row(&mut world, INIT + 1, INIT, 5_001);
    world.facts(1, |facts| facts.execs = vec!["e1".into()]).exec(Ok(facts())).input(Ok(pipe(FarEnd::Gone)))
}

impl World {
    fn exec(self, said: Known<ExecFacts>) -> World {
        self.answer(exec_question(), said.map(|facts| Answer::Engine(EngineAnswer::Exec(facts))))
    }

    fn input(self, channel: Known<Channel>) -> World {
        self.answer(Question::Channel { of: id(INIT), fd: 0 }, channel.map(Answer::Channel))
    }

    fn execs(&self) -> Vec<ExecJudgement> {
        self.look_with(&mut Ledger::default()).0.execs
    }

    #[track_caller]
    fn told(&self, fate: ExecFate, why: &str) {
        let execs = self.execs();
        let [exec] = execs.as_slice() else { panic!("{execs:?}") };
        assert_eq!(exec.fate, fate, "{}", exec.because);
        assert!(exec.because.contains(why), "{}", exec.because);
    }
}

#[test]
fn a_command_whose_client_is_gone_is_told_a20() {
    let world = left();
    world.told(ExecFate::LeftBehind, "its input ended for good, and none of the 0 clients");
    let (verdicts, _) = world.look_with(&mut Ledger::default());
    let exec = &verdicts.execs[0];
    assert_eq!((&exec.at, exec.exec.as_str(), &exec.init), (&at(1), "e1", &Ok(id(INIT))));
    assert_eq!(exec.tree, [id(INIT), id(INIT + 1)]);
    assert_eq!((exec.resident, exec.argv.len()), (2_000, 2));
    // Nothing that acts goes by it.
    assert!(verdicts.judgements.is_empty());
    assert!(verdicts.containers.iter().all(|judgement| judgement.because.contains("its input is open")));
}

#[test]
fn a_quiet_container_is_not_asked_for() {
    let asked = |world: &World, ledger: &mut Ledger| {
        let (_, look) = world.look_with(ledger);
        let is_call = |question: &&Question| {
            let Question::Engine(question) = question else { return false };
            matches!(question, EngineQuestion::Container(_) | EngineQuestion::Exec { .. })
        };
        look.answers.keys().filter(is_call).count()
    };
    let mut ledger = Ledger::default();
    let mut quiet = left();
    quiet.rows.retain(|row| row.id.pid.number() < INIT);
    assert_eq!(asked(&quiet, &mut ledger), 1, "what is fixed of it, once");
    assert_eq!(asked(&quiet, &mut ledger), 0);
    // Something runs beside its first process: then it is asked for anew, and so is the command.
    assert_eq!(asked(&left(), &mut ledger), 2);
    // Whether it is admitted is asked once.
    let foreign = left().configured("[scope]\nadmit-env = \"PILOT=1\"\n");
    let mut fresh = Ledger::default();
    assert_eq!((asked(&foreign, &mut fresh), asked(&foreign, &mut fresh)), (1, 0));
    // Where the shim died everybody is a child of init.
    let mut adopted = left();
    for row in &mut adopted.rows {
        row.ppid = if row.ppid == SHIM { 1 } else { row.ppid };
    }
    assert_eq!(asked(&adopted, &mut ledger), 0);
    assert_eq!(adopted.execs(), []);
}

#[test]
fn what_was_remembered_tells_nothing() {
    let mut ledger = Ledger::default();
    left().look_with(&mut ledger);
    let ended = left().facts(1, |facts| facts.state = ContainerState::Exited);
    assert_eq!(ended.look_with(&mut ledger).0.execs, []);
    let mut silent = left();
    silent.facts.insert(container(1), Err(unknown(Reason::Hung)));
    assert_eq!(silent.look_with(&mut ledger).0.execs, []);
    let another = left().facts(1, |facts| facts.run.at = at(2));
    assert_eq!(another.look_with(&mut ledger).0.execs, []);
    // A command that its engine does not name any more.
    assert_eq!(left().facts(1, |facts| facts.execs.clear()).execs(), []);
    assert_eq!(left().exec(Err(unknown(Reason::Vanished))).execs(), []);
}

#[test]
fn only_a_command_with_an_input_that_ended_can_be_left_behind() {
    let with = |change: fn(&mut ExecFacts)| {
        let mut said = facts();
        change(&mut said);
        left().exec(Ok(said))
    };
    with(|exec| exec.tty = Tty::Yes).told(ExecFate::CannotTell, "has a terminal");
    // `docker exec -d`, and one that only writes.
    with(|exec| exec.stdin = Attached::No).told(ExecFate::CannotTell, "no input");
    with(|exec| exec.init = Err(unknown(Reason::Foreign))).told(ExecFate::CannotTell, "");
    with(|exec| exec.init = Ok(id(9_999))).told(ExecFate::CannotTell, "not in the table");
    left().exec(Err(unknown(Reason::Hung))).told(ExecFate::CannotTell, "");
    left().input(Ok(pipe(FarEnd::Held))).told(ExecFate::Used, "its input is open");
    left().input(Err(unknown(Reason::Denied))).told(ExecFate::CannotTell, "");
    let channel = || pipe(FarEnd::Gone);
    let unread = left().input(Ok(Channel { unread: Ok(3), ..channel() }));
    unread.told(ExecFate::Used, "3 bytes of its input");
    let untold = left().input(Ok(Channel { unread: Err(unknown(Reason::Denied)), ..channel() }));
    untold.told(ExecFate::CannotTell, "");
    let untold = left().input(Ok(Channel { far: Err(unknown(Reason::Denied)), ..channel() }));
    untold.told(ExecFate::CannotTell, "");
    for kind in [ChannelKind::Null, ChannelKind::Closed, ChannelKind::File] {
        left().input(Ok(Channel { kind, ..channel() })).told(ExecFate::CannotTell, "is not the one");
    }
}

/// Health checks and other short ones.
#[test]
fn the_young_are_not_told() {
    left().now(5_059).told(ExecFate::Used, "younger than 60s");
    left().now(5_060).told(ExecFate::LeftBehind, "");
}

#[test]
fn who_cannot_be_counted_may_be_its_client() {
    let mut refused = left();
    refused.clients = Err(unknown(Reason::Denied));
    refused.told(ExecFate::CannotTell, "");
    let partial = left().clients(|clients| clients.census = Census::Partial(2));
    partial.told(ExecFate::CannotTell, "who 2 of the connections");
    let network = left().clients(|clients| clients.reach = Ok(Reach::Network("tcp 0.0.0.0:2375".into())));
    network.told(ExecFate::CannotTell, "from elsewhere");
    left().clients(|clients| clients.reach = Err(unknown(Reason::Denied))).told(ExecFate::CannotTell, "");
}

#[test]
fn a_live_client_that_names_container_and_command_runs_it_a20() {
    let short = container(1).short().to_owned();
    for name in [given(1), short.clone(), short[..3].to_owned(), container(1).as_str().to_owned()] {
        let line = format!("docker exec -i -u me {name} tool --serve");
        left().client(3_000, 4_999, &line).told(ExecFate::Used, "process 3000 (docker), is alive");
        // Its start is told by ticks.
        left().client(3_000, 5_000, &line).told(ExecFate::Used, "is alive");
        // Nobody can be attached to a command that runs.
        left().client(3_000, 5_001, &line).told(ExecFate::LeftBehind, "none of the 1 clients");
    }
}

#[test]
fn each_client_that_may_be_its_own_keeps_it_untold() {
    let left = || left().made(2, 3_000).open(2);
    let other = given(2);
    let second = container(2).short().to_owned();
    for (line, fate, why) in [
        // Other commands, other containers, other verbs.
        (format!("docker exec -i {} other", given(1)), ExecFate::LeftBehind, ""),
        (format!("docker exec -i {other} tool --serve"), ExecFate::LeftBehind, ""),
        (format!("docker exec -i {second} tool --serve"), ExecFate::LeftBehind, ""),
        (format!("docker logs -f {}", given(1)), ExecFate::LeftBehind, ""),
        ("docker run -i image tool --serve".to_owned(), ExecFate::LeftBehind, ""),
        (format!("docker attach {}", given(1)), ExecFate::LeftBehind, ""),
        ("docker events".to_owned(), ExecFate::LeftBehind, ""),
        ("docker compose exec web tool".to_owned(), ExecFate::LeftBehind, ""),
        // A name that nobody bears now, or that passed on: it may have been this one's.
        ("docker exec -i renamed tool --serve".to_owned(), ExecFate::CannotTell, "not there under that name"),
        ("docker exec -i --new web tool".to_owned(), ExecFate::CannotTell, "was not understood"),
        // Whatever may be anything.
        ("docker buildx build .".to_owned(), ExecFate::CannotTell, "it builds"),
        ("/usr/libexec/docker-buildx bake".to_owned(), ExecFate::CannotTell, "it builds"),
        ("docker system dial-stdio".to_owned(), ExecFate::CannotTell, "cannot be told"),
        ("python3 agent.py".to_owned(), ExecFate::CannotTell, "cannot be told"),
    ] {
        left().client(3_000, 4_000, &line).told(fate, why);
        left().client(3_000, 6_000, &line).told(ExecFate::LeftBehind, "");
    }
    let early = format!("docker exec -i {other} tool --serve");
    left().client(3_000, 2_000, &early).told(ExecFate::CannotTell, "not there under that name");
    let unread = left().client(3_000, 4_000, "x").clients(|all| {
        all.clients[0].argv = Err(unknown(Reason::Denied));
    });
    unread.told(ExecFate::CannotTell, "cannot be read");
    let project = left().label(1, "com.docker.compose.project", "shop");
    project
        .client(3_000, 4_000, "docker compose exec web tool")
        .told(ExecFate::CannotTell, "compose project");
    // Whoever the configuration says runs containers for nobody.
    let mut watched = left().client(3_000, 4_000, "portainer");
    watched.told(ExecFate::CannotTell, "portainer");
    watched.config = config("[docker]\nwatchers = [\"portainer\"]\n");
    watched.told(ExecFate::LeftBehind, "");
}

#[test]
fn a_command_line_that_is_no_text_may_have_run_anything() {
    let world = left().client(3_000, 4_000, &format!("docker exec -i {} tool", given(1)));
    world.told(ExecFate::LeftBehind, "");
    let world = world.clients(|all| {
        let argv = all.clients[0].argv.as_mut().unwrap();
        argv.push(b"\xff".as_slice().into());
    });
    world.told(ExecFate::Used, "is alive");
}

#[test]
fn what_is_not_looked_at() {
    let mut podman = left();
    podman.kind = Ok(EngineKind::Podman("5".into()));
    assert_eq!(podman.execs(), []);
    let mut untold = left();
    untold.kind = Err(unknown(Reason::Hung));
    assert_eq!(untold.execs(), []);
    assert_eq!(left().list(1, |listed| listed.state = ContainerState::Paused).execs(), []);
    let off = left().configured("[builtin]\ndocker-exec = \"off\"\ndocker-run = \"off\"\nlease = \"off\"\n");
    let (verdicts, look) = off.look_with(&mut Ledger::default());
    assert_eq!(verdicts.execs, []);
    assert!(!look.answers.contains_key(&Question::Engine(EngineQuestion::Clients(engine()))));
    assert!(!look.answers.contains_key(&exec_question()));
    // Only what is admitted is looked at.
    let scope = "[scope]\nadmit-env = \"PILOT=1\"\n";
    assert_eq!(left().configured(scope).execs(), []);
    left().configured(scope).label(1, "PILOT", "1").told(ExecFate::LeftBehind, "");
}

#[test]
fn without_answers_nothing_is_told() {
    for question in [
        Question::Engine(EngineQuestion::Container(at(1))),
        exec_question(),
        Question::Channel { of: id(INIT), fd: 0 },
        Question::Engine(EngineQuestion::Clients(engine())),
    ] {
        let mut world = left();
        world.unasked.insert(question);
        assert_eq!(world.execs(), []);
    }
}
