//! Brokers that nobody uses or that nobody gets an answer from: only where the operator turned that on, and with short
//! spans here.

use std::fs;

use reapd::model::id::Pid;
use reapd::model::question::{Answer, Call, Pinged, Question, Response};
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::broker::stand::{Broker, Companion, Host, built_in};
use crate::channels::shape::id;
use crate::desk::text;
use crate::planted::wait_for;
use crate::support::observing::ask;

/// The policy turned on, for brokers without a client for `idle`, or without one for `unused` and without an answer.
fn turned_on(idle: &str, unused: &str, unresponsive: &str) -> String {
    let policy = built_in(
        "codex-broker-idle",
        &[
            ("30m", idle),
            ("5m", unused),
            ("mode = \"off\"", "mode = \"reap\""),
            ("offer = true\n", ""),
            ("socket-unresponsive = true", unresponsive),
        ],
    );
    format!("\n{policy}")
}

fn configure(host: &Host, idle: &str, unused: &str, unresponsive: &str) {
    host.desk.configure(&turned_on(idle, unused, unresponsive));
    host.desk.reconfigure(|text| text.replacen("[confirm]\n", "[confirm]\nprobe-timeout = \"300ms\"\n", 1));
}

/// What a broker was asked so far, by method; it was started with `tells`.
fn asked(broker: &Broker) -> Vec<String> {
    let log = fs::read_to_string(broker.session.join("broker.log")).unwrap();
    log.lines().map(ToOwned::to_owned).collect()
}

fn alive(host: &Host, broker: &Broker) -> bool {
    host.in_session(broker).len() == 8
}

#[test]
fn a_broker_without_client_for_its_period_goes_and_one_with_a_client_stays() {
    let host = Host::new();
    configure(&host, "2s", "1h", "socket-unresponsive = true");
    let names = [("idle", ""), ("used", ""), ("review", "")];
    let [idle, used, review] = &host.brokers(&names)[..] else { panic!() };
    let client = Companion::connect(&used.socket).unwrap();
    let reviewer = Companion::review(review);
    let said = host.sweep_until_gone(idle);
    assert!(alive(&host, used) && alive(&host, review), "{said}");
    reviewer.hears();
    assert!(said.contains("without a proof") || said.contains("without proof"), "{said}");
    // The twin: its client alone kept it.
    drop(client);
    host.sweep_until_gone(used);
    assert!(alive(&host, review));
    reviewer.hears();
}

#[test]
fn a_broker_that_never_answers_goes_and_one_that_does_is_asked_initialize_only_b13_b16() {
    let host = Host::new();
    configure(&host, "1h", "1s", "socket-unresponsive = { attempts = 2, every = \"1s\" }");
    let names = [("silent", ""), ("answers", "tells"), ("review", "tells"), ("stopped", "")];
    let [silent, answers, review, stopped] = &host.brokers(&names)[..] else { panic!() };
    let reviewer = Companion::review(review);
    host.send(silent.pid, Signal::USR2);
    host.send(stopped.pid, Signal::STOP);
    let (before, reviewed) = (asked(answers), asked(review));
    let said = host.sweep_until_gone(silent);
    for broker in [answers, review, stopped] {
        assert!(alive(&host, broker), "{broker:?}: {said}");
    }
    reviewer.hears();
    let after = asked(answers);
    assert!(after.len() > before.len(), "it was asked: {said}");
    assert!(after[before.len()..].iter().all(|method| method == "initialize"), "{after:?}");
    assert_eq!(asked(review), reviewed, "who has a client is not asked at all");
    host.send(stopped.pid, Signal::CONT);
}

#[test]
fn a_full_backlog_is_not_silence_b14() {
    let host = Host::new();
    configure(&host, "1h", "1s", "socket-unresponsive = { attempts = 2, every = \"1s\" }");
    let names = [("full", "backlog=2"), ("silent", "")];
    let [full, silent] = &host.brokers(&names)[..] else { panic!() };
    host.send(full.pid, Signal::USR2);
    host.send(silent.pid, Signal::USR2);
    // As many as it takes, until the kernel takes no more; they stay, and nobody accepts them.
    let mut waiting = Vec::new();
    let address = rustix::net::SocketAddrUnix::new(&full.socket).unwrap();
    loop {
        let flags = rustix::net::SocketFlags::NONBLOCK | rustix::net::SocketFlags::CLOEXEC;
        let kind = rustix::net::SocketType::STREAM;
        let socket = rustix::net::socket_with(rustix::net::AddressFamily::UNIX, kind, flags, None).unwrap();
        match rustix::net::connect(&socket, &address) {
            Ok(()) => waiting.push(socket),
            Err(error) => {
                assert_eq!(error, rustix::io::Errno::AGAIN);
                break;
            }
        }
        assert!(waiting.len() < 100, "a backlog of two that never fills");
    }
    // Even when those who wait have given up: their places are taken all the same.
    drop(waiting);
    let said = host.sweep_until_gone(silent);
    assert!(alive(&host, full), "{said}");
}

#[test]
fn a_slow_broker_under_load_is_kept_b13_b16() {
    let host = Host::new();
    configure(&host, "1h", "1s", "socket-unresponsive = { attempts = 2, every = \"1s\" }");
    host.desk.reconfigure(|text| text.replace("probe-timeout = \"300ms\"", "probe-timeout = \"20ms\""));
    let slow = host.broker("slow", "tells slow");
    let renice = std::process::Command::new("renice")
        .args(["-n", "19", "-p", &slow.pid.to_string()])
        .output()
        .unwrap();
    assert!(renice.status.success(), "{}", text(&renice));
    let load: Vec<i32> = (0..4)
        .map(|index| host.desk.planted.marked("bash -c 'while :; do :; done'", &format!("load-{index}")))
        .collect();
    // Twice would be enough to condemn it, were it merely silent; it may have been asked once more than it has read.
    let mut said = String::new();
    let before = asked(&slow).len();
    wait_for("a slow broker to be asked four times", || {
        said.push_str(&text(&host.desk.reapd(&["sweep", "--once", "--yes"])));
        assert!(alive(&host, &slow), "{said}");
        asked(&slow).len() >= before + 4
    });
    for pid in load {
        host.desk.planted.end(pid);
    }
}

/// Moves what the ledger remembers of lasting conditions back by half an hour and more; nothing where the machine has
/// not been up that long.
#[expect(clippy::print_stderr, reason = "who reads the tests' output must know what was not tested")]
fn half_an_hour_ago(host: &Host) -> Option<()> {
    const BACK: u64 = 31 * 60 * 1_000_000_000;
    let file = host.desk.planted.path("state/ledger.json");
    let mut ledger: Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    let mut moved = 0;
    for record in ledger["ledger"]["records"].as_array_mut().unwrap() {
        for lasting in record["lasting"].as_array_mut().unwrap() {
            let Some(before) = lasting[1].as_u64().unwrap().checked_sub(BACK) else {
                eprintln!("skipped: this machine was started less than half an hour ago");
                return None;
            };
            lasting[1] = before.into();
            moved += 1;
        }
    }
    assert!(moved > 0, "{ledger}");
    fs::write(file, ledger.to_string()).unwrap();
    Some(())
}

#[test]
fn what_nobody_turned_on_is_told_in_one_line_and_reaps_nothing() {
    let host = Host::new();
    let names = [("idle", "tells"), ("used", "tells")];
    let [idle, used] = &host.brokers(&names)[..] else { panic!() };
    let _client = Companion::connect(&used.socket).unwrap();
    let before = (asked(idle), asked(used));
    let first = text(&host.desk.reapd(&["sweep", "--once", "--yes"]));
    assert!(!first.contains("would add"), "{first}");
    let Some(()) = half_an_hour_ago(&host) else { return };
    let said = text(&host.desk.reapd(&["sweep", "--once", "--yes"]));
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("would add")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    assert!(lines[0].contains("codex-broker-idle (off) would add 1 tree, "), "{said}");
    let swept = host.sweep(&["--once", "--yes"]);
    assert_eq!(swept.json["would_add"][0]["policy"], "codex-broker-idle", "{}", swept.said);
    assert_eq!(swept.json["would_add"][0]["trees"], 1, "{}", swept.said);
    assert_eq!(swept.json["would_add"][0]["processes"], 8, "{}", swept.said);
    assert!(alive(&host, idle) && alive(&host, used), "{said}");
    assert_eq!((asked(idle), asked(used)), before, "nobody is asked for the sake of what is off");
}

#[test]
fn the_ping_of_the_policy_takes_nothing_from_a_review() {
    let host = Host::new();
    let broker = host.broker("review", "tells");
    let reviewer = Companion::review(&broker);
    let before = asked(&broker);
    // What the built-in policy sends.
    let sends = "'{\"id\":1,\"method\":\"initialize\",\"params\":{}}', expect = '\"id\":1'";
    built_in("codex-broker-idle", &[(sends, "")]);
    let call = Call::Lines {
        send: "{\"id\":1,\"method\":\"initialize\",\"params\":{}}".into(),
        expect: "\"id\":1".into(),
    };
    let root = id(Pid::new(broker.pid).unwrap()).unwrap();
    let socket = broker.socket.to_str().unwrap().into();
    let (policy, tree) = ("codex-broker-idle".to_owned(), vec![root]);
    let question = Question::Ping { of: root, policy, call, socket, tree, patience: 20_000 };
    for _ in 0..8 {
        match ask(question.clone()) {
            // Who was caught at work, as one is that sends notifications, is asked again another time.
            Err(_) | Ok(Answer::Ping(Pinged { response: Response::Answered(_), .. })) => {}
            other => panic!("{other:?}"),
        }
        reviewer.hears();
    }
    let after = asked(&broker)[before.len()..].to_vec();
    assert!(after.len() >= 4 && after.iter().all(|method| method == "initialize"), "{after:?}");
    // The review is still its owner's, who can end it, and nobody holds the broker.
    let mut reviewer = reviewer;
    assert!(reviewer.ask("turn/interrupt", json!({}))["result"].is_object());
    drop(reviewer);
    let mut next = Companion::connect(&broker.socket).unwrap();
    wait_for("the review to be over", || next.ask("thread/list", json!({}))["result"].is_object());
}
