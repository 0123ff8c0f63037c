//! The stand-in does as the real broker was seen to do; what is shown with it is worth no more than that.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use rustix::process::Signal;
use serde_json::json;

use crate::broker::stand::{Broker, Companion, Host};
use crate::planted::wait_for;

fn gone(host: &Host, broker: &Broker) {
    wait_for("the whole tree to be gone", || host.in_session(broker).is_empty());
}

#[test]
fn a_stand_in_has_the_shape_of_a_broker() {
    let host = Host::new();
    let broker = host.broker("shape", "");
    let status = |pid: i32, field: usize| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        stat.rsplit_once(") ").unwrap().1.split(' ').nth(field).unwrap().parse::<i32>().unwrap()
    };
    let argv = |pid: i32| fs::read_to_string(format!("/proc/{pid}/cmdline")).unwrap();
    let comm = |pid: i32| fs::read_to_string(format!("/proc/{pid}/comm")).unwrap();
    let codex = host.codex(&broker);
    assert!(argv(broker.pid).starts_with("node\0"));
    assert!(argv(broker.pid).contains("/app-server-broker.mjs\0serve\0--endpoint\0unix:"));
    assert_eq!((comm(broker.pid).as_str(), comm(codex).as_str()), ("node\n", "codex\n"));
    assert_eq!(argv(codex), "codex\0app-server\0");
    for pid in [broker.pid, codex] {
        assert_eq!((status(pid, 2), status(pid, 3)), (broker.pid, broker.pid), "group and session of {pid}");
        assert_eq!(
            fs::read_link(format!("/proc/{pid}/cwd")).unwrap(),
            broker.workspace.canonicalize().unwrap()
        );
    }
    let mut groups = Vec::new();
    for pid in host.desk.planted.below(codex) {
        assert_eq!(status(pid, 3), broker.pid, "session of {pid}");
        groups.push(status(pid, 2));
        let environment = fs::read_to_string(format!("/proc/{pid}/environ")).unwrap();
        assert!(environment.contains(&host.mark()) && !environment.contains("CODEX_"), "{environment}");
    }
    groups.sort_unstable();
    assert_eq!(groups.len(), 6, "three servers, each with a helper");
    groups.dedup();
    assert_eq!(groups.len(), 3, "each server leads a group");
    let mode = |path| fs::metadata(path).unwrap().permissions().mode() & 0o7777;
    assert_eq!((mode(&broker.socket), mode(&broker.session)), (0o755, 0o700));
    assert_eq!(fs::read_link(format!("/proc/{}/fd/0", broker.pid)).unwrap().to_str(), Some("/dev/null"));
    for fd in [1, 2] {
        let link = fs::read_link(format!("/proc/{}/fd/{fd}", broker.pid)).unwrap();
        assert_eq!(link.file_name().unwrap(), "broker.log");
    }
}

#[test]
fn a_stand_in_answers_as_a_broker() {
    let host = Host::new();
    let broker = host.broker("answers", "");
    let short = Duration::from_millis(100);
    let mut idle = Companion::connect(&broker.socket).unwrap();
    let hello = idle.ask("initialize", json!({}));
    assert_eq!(hello, json!({ "id": 1, "result": { "userAgent": "codex-companion-broker" } }));
    idle.say("{\"method\":\"initialized\"}");
    idle.say("{}");
    assert_eq!(idle.answer_within(short), None, "what has no id gets no answer");
    assert_eq!(idle.ask("broker/ping", json!({}))["error"]["code"], -32600);
    idle.say("this is no JSON");
    assert_eq!(idle.answer(), json!({ "id": null, "error": { "code": -32700, "message": "Parse error" } }));

    let review = Companion::review(&broker);
    assert_eq!(idle.ask("thread/list", json!({}))["error"]["code"], -32001);
    assert_eq!(idle.ask("initialize", json!({}))["result"]["userAgent"], "codex-companion-broker");
    review.hears();
    drop(review);
    wait_for("the stream to be nobody's", || {
        idle.ask("thread/list", json!({}))["result"]["data"] == json!(["thread-1"])
    });

    // A codex that is gone is not started again, and nobody is told.
    host.send(host.codex(&broker), Signal::KILL);
    wait_for("codex to be gone", || !host.tree(&broker).iter().any(|&pid| crate::desk::runs(pid, "codex")));
    idle.request("thread/list", json!({}));
    assert_eq!(idle.answer_within(short), None, "a wedged broker never answers");
    let mut other = Companion::connect(&broker.socket).unwrap();
    assert_eq!(other.ask("initialize", json!({}))["result"]["userAgent"], "codex-companion-broker");

    other.say("null");
    wait_for("the broker to crash", || !host.desk.planted.is_alive(broker.pid));
    assert!(broker.socket.exists() && broker.session.join("broker.pid").exists());
}

#[test]
fn a_stand_in_ends_as_a_broker() {
    let host = Host::new();
    let names = [("asked", ""), ("held", ""), ("deaf", "deaf-codex"), ("killed", ""), ("told", "launcher")];
    let [asked, held, deaf, killed, told] = &host.brokers(&names)[..] else { panic!() };
    let alive = |broker: &Broker| host.desk.planted.is_alive(broker.pid);
    let client = Companion::connect(&held.socket).unwrap();
    for broker in [asked, held, deaf] {
        host.send(broker.pid, Signal::TERM);
    }
    host.send(killed.pid, Signal::KILL);
    let mut last = Companion::connect(&told.socket).unwrap();
    assert_eq!(last.ask("broker/shutdown", json!({}))["result"], json!({}));
    drop(last);

    gone(&host, asked);
    let left = |broker: &Broker| {
        let mut names: Vec<String> = fs::read_dir(&broker.session)
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        names
    };
    assert_eq!(left(asked), ["broker.log"]);
    gone(&host, told);
    assert_eq!(left(told), ["broker.log"]);
    gone(&host, killed);
    assert_eq!(left(killed), ["broker.log", "broker.pid", "broker.sock"]);

    wait_for("the held broker to close its socket", || left(held) == ["broker.log", "broker.pid"]);
    assert!(alive(held), "it waits for its client");
    assert_eq!(host.in_session(held), [held.pid]);
    drop(client);
    gone(&host, held);

    assert!(alive(deaf) && deaf.socket.exists(), "it waits for its codex for ever");
    assert!(Companion::connect(&deaf.socket).is_some(), "and its socket still accepts");
}
