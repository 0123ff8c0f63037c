//! What a container publishes is asked last, and its silences count one by one.

use std::time::Duration;

use crate::judge::containers::support::{World, at, container, named, unknown};
use crate::judge::rules::support::pid;
use crate::judge::{Ledger, questions};
use crate::model::container::{
    ContainerMount, ContainerRun, MountAccess, MountKind, Published, RestartPolicy,
};
use crate::model::id::{ProcessId, Start};
use crate::model::known::{Known, Reason};
use crate::model::question::{
    Answer, Call, EngineAnswer, EngineQuestion, Pinged, Progress, Question, Response,
};
use crate::model::table::plain_row;

const POLICY: &str = "[container.x]\nmatch = { name = \"calm_ab\" }\nwithout-proof = true\n\
    ping = { port = \"5432/tcp\", send = \"hello {who}\", expect = \"ok\" }\n\
    capture = { who = { label = \"maker\" } }\n\
    reap-when = [{ socket-unresponsive = true, no-clients = true }]\n\
    spare-when = [{ shares-files = true }]\n";

fn led(address: &str, port: u16, inside: &str) -> Published {
    Published { address: address.into(), port, inside: inside.into() }
}

/// A container whose port leads to 49153, so many seconds after the first attempt.
fn after(seconds: u64) -> World {
    World::stray()
        .configured(POLICY)
        .facts(1, |facts| facts.published = vec![led("0.0.0.0", 49153, "5432/tcp")])
        .socket(1, &["tcp 0.0.0.0:5432"], &[])
        .now(10_000 + seconds)
}

fn asked_at(address: &str, patience: u64) -> Question {
    Question::Engine(EngineQuestion::Ping {
        run: ContainerRun { at: at(1), started: "started-1".into() },
        policy: "x".into(),
        call: Call::Lines { send: "hello someone".into(), expect: "ok".into() },
        address: address.into(),
        inside: 5432,
        tree: vec![ProcessId { pid: pid(1_001), start: Start(5) }],
        patience,
    })
}

fn asked(patience: u64) -> Question {
    asked_at("127.0.0.1:49153", patience)
}

#[expect(clippy::unnecessary_wraps, reason = "what comes of an attempt may be a refusal, too")]
fn pinged(response: Response, before: u64, after: u64) -> Known<Pinged> {
    let progress = |moved| Ok(Progress { moved, cpu: Duration::from_secs(1) });
    Ok(Pinged { response, before: progress(before), after: progress(after) })
}

fn silent() -> Known<Pinged> {
    pinged(Response::Silent(2000), 5, 5)
}

fn says(world: World, came: &Known<Pinged>) -> World {
    [2000, 4000, 8000].into_iter().fold(world, |world, patience| {
        let answer = came.clone().map(|pinged| Answer::Engine(EngineAnswer::Pinged(pinged)));
        world.answer(asked(patience), answer)
    })
}

/// Returns what the world is still asked for.
fn open(world: &World, ledger: &Ledger) -> Vec<Question> {
    let mut ledger = ledger.clone();
    let (look, candidates) = world.asked(&mut ledger);
    questions(&look, &world.config, &candidates, &ledger)
}

/// Returns what is remembered after these attempts, each at its second.
fn ledger(attempts: &[(u64, Known<Pinged>)]) -> Ledger {
    let mut ledger = Ledger::default();
    for (second, came) in attempts {
        says(after(*second), came).look_with(&mut ledger);
    }
    ledger
}

#[track_caller]
fn check(world: &World, ledger: &Ledger, word: &str, why: &str) {
    let judgement = world.judged_with(1, "x", &mut ledger.clone()).unwrap();
    assert_eq!(named(&judgement.verdict), word, "{}", judgement.because);
    assert!(judgement.because.contains(why), "{}", judgement.because);
}

/// Checks that nobody is asked, and why.
#[track_caller]
fn unasked(world: &World, word: &str, why: &str) {
    assert_eq!(open(world, &Ledger::default()), [], "{why}");
    check(world, &Ledger::default(), word, why);
}

#[test]
fn three_silences_with_growing_patience_half_a_minute_apart() {
    let none = Ledger::default();
    assert_eq!(open(&after(0), &none), [asked(2000)]);
    check(&after(0), &none, "unknown", "1 questions about it");
    check(&says(after(0), &silent()), &none, "alive", "1 of 3 times");
    let once = ledger(&[(0, silent())]);
    check(&after(29), &once, "alive", "1 of 3 times so far");
    assert_eq!(open(&after(30), &once), [asked(4000)]);
    let twice = ledger(&[(0, silent()), (30, silent())]);
    assert_eq!(open(&after(60), &twice), [asked(8000)]);
    check(&says(after(60), &silent()), &twice, "suspect", "3 times over 1m");
    // It comes back whole from the disk.
    let text = serde_json::to_string(&twice).unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), twice);
}

#[test]
fn any_word_and_any_progress_is_life_and_what_tells_nothing_begins_anew() {
    let twice = ledger(&[(0, silent()), (30, silent())]);
    let answered = pinged(Response::Answered(3), 5, 9);
    check(&says(after(60), &answered), &twice, "alive", "it answered in 3 ms");
    let other = pinged(Response::Otherwise("busy".into()), 5, 5);
    check(&says(after(60), &other), &twice, "alive", "said something");
    check(&says(after(60), &pinged(Response::Silent(1), 6, 6)), &twice, "alive", "it got on");
    let refused = Err(unknown(Reason::Failed(111)));
    check(&says(after(60), &refused), &twice, "unknown", "it");
    for came in [answered, other, refused, pinged(Response::Silent(1), 6, 6)] {
        let broken = ledger(&[(0, silent()), (30, came), (60, silent())]);
        assert_ne!(open(&after(90), &broken), [asked(8000)], "the row began anew");
        let silence = pinged(Response::Silent(1), 6, 6);
        assert_ne!(
            named(&says(after(90), &silence).judged_with(1, "x", &mut broken.clone()).unwrap().verdict),
            "suspect"
        );
    }
}

#[test]
fn a_row_is_of_one_run_one_tree_and_one_ping() {
    let twice = ledger(&[(0, silent()), (30, silent())]);
    let run = ContainerRun { at: at(1), started: "again".into() };
    let again = after(60).facts(1, |facts| facts.run = run.clone());
    let [Question::Engine(EngineQuestion::Ping { run: other, patience: 2000, .. })] =
        &open(&again, &twice)[..]
    else {
        panic!("the row of another run went on")
    };
    assert_eq!(*other, run);
    let mut larger = after(60);
    larger.rows.push(plain_row(pid(1_050), 1_001, Start(9)));
    let [Question::Engine(EngineQuestion::Ping { tree, patience: 2000, .. })] = &open(&larger, &twice)[..]
    else {
        panic!("the row of another tree went on")
    };
    assert_eq!(tree.len(), 2);
    let mut moved = after(60).facts(1, |facts| facts.published[0].port = 49154);
    assert_eq!(open(&moved, &twice), [asked_at("127.0.0.1:49154", 2000)]);
    moved = after(60).configured(&POLICY.replace("expect = \"ok\"", "expect = \"yes\""));
    assert!(matches!(
        &open(&moved, &twice)[..],
        [Question::Engine(EngineQuestion::Ping { patience: 2000, .. })]
    ));
    let mut forgotten = twice.clone();
    forgotten.forget_container(&at(1));
    assert_eq!(open(&after(60), &forgotten), [asked(2000)]);
    // A look that had nothing to say of it breaks the row too.
    let mut unjudged = twice;
    after(40).configured("").look_with(&mut unjudged);
    assert_eq!(open(&after(60), &unjudged), [asked(2000)]);
}

#[test]
fn nobody_connects_to_a_container_that_is_kept_anyway() {
    let bind = ContainerMount {
        kind: MountKind::Bind,
        source: "/home/a/out".into(),
        inside: "/out".into(),
        access: MountAccess::Writable,
    };
    unasked(&after(0).facts(1, |facts| facts.mounts = vec![bind]), "alive", "it was not asked: ");
    let restarted = after(0).facts(1, |facts| facts.restart = RestartPolicy::Kept("always".into()));
    unasked(&restarted, "alive", "it was not asked: its restart policy");
    let policy = POLICY.replace(", no-clients = true", "");
    let used =
        after(0).configured(&policy).socket(1, &["tcp 0.0.0.0:5432"], &["tcp 10.0.0.2:5432 10.0.0.1:9"]);
    unasked(&used, "alive", "it was not asked: it can be reached");
    let mut untold = after(0).configured(&policy);
    untold.clients = Err(unknown(Reason::Denied));
    unasked(&untold, "unknown", "it was not asked: ");
    let began = |moment| after(0).facts(1, move |facts| facts.began = moment);
    let young = World::new().made(1, 9_990).judged(1, "docker-run").map(|judgement| judgement.began).unwrap();
    unasked(&began(young), "alive", "it was not asked: it is younger than 60s");
    // And nothing is asked before the rest of its line holds.
    let aged = POLICY.replace("no-clients = true", "older-than = \"9h\"");
    unasked(&after(0).configured(&aged), "alive", "");
    let off = format!("{POLICY}mode = \"off\"\n");
    assert_eq!(open(&after(0).configured(&off), &Ledger::default()), []);
}

#[test]
fn nobody_connects_by_what_was_only_remembered() {
    let once = ledger(&[(0, silent())]);
    let container = Question::Engine(EngineQuestion::Container(at(1)));
    let mut world = after(30);
    world.unasked.insert(container.clone());
    assert_eq!(open(&world, &once), [container]);
}

#[test]
fn only_a_published_tcp_port_of_a_container_of_ours_is_asked() {
    let by = |published: &[Published]| {
        let published = published.to_vec();
        after(0).facts(1, move |facts| facts.published = published)
    };
    for (address, at) in [
        ("", "127.0.0.1:9"),
        ("0.0.0.0", "127.0.0.1:9"),
        ("::", "[::1]:9"),
        ("127.0.0.1", "127.0.0.1:9"),
        ("192.168.7.7", "192.168.7.7:9"),
        ("fd00::1", "[fd00::1]:9"),
    ] {
        let world = by(&[led(address, 9, "5432/tcp")]);
        assert_eq!(open(&world, &Ledger::default()), [asked_at(at, 2000)], "{address}");
    }
    let both = by(&[led("::", 9, "5432/tcp"), led("0.0.0.0", 9, "5432/tcp"), led("0.0.0.0", 8, "80/tcp")]);
    assert_eq!(open(&both, &Ledger::default()), [asked_at("127.0.0.1:9", 2000)]);
    for other in [
        by(&[]),
        by(&[led("0.0.0.0", 9, "5432/udp")]),
        by(&[led("0.0.0.0", 9, "54321/tcp")]),
        by(&[led("0.0.0.0", 0, "5432/tcp")]),
    ] {
        unasked(&other, "unknown", "it is not published on this machine");
    }
    let foreign = after(0).facts(1, |facts| facts.init = Err(unknown(Reason::Foreign)));
    unasked(&foreign, "unknown", "it");
    let uncaptured = after(0).configured(&POLICY.replace("\"maker\"", "\"nobody\""));
    unasked(&uncaptured, "unknown", "what 'hello {who}' is for it");
}

#[test]
fn only_where_it_listens_in_a_network_of_its_own() {
    let policy = POLICY.replace(", no-clients = true", "");
    for listener in ["udp 0.0.0.0:5432", "tcp 0.0.0.0:15432", "unix /run/:5432"] {
        let elsewhere = after(0).configured(&policy).socket(1, &[listener], &[]);
        unasked(&elsewhere, "unknown", "nobody listens there inside of it");
    }
    let mut shared = after(0).configured(&policy);
    shared.sockets.insert(container(1), Err(unknown(Reason::Unsupported)));
    unasked(&shared, "unknown", "it");
}
