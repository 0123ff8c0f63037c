//! A broker in each of its states, kills on: whatever is kept has a twin that differs in the gate alone and is ended.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::Signal;
use serde_json::json;

use crate::broker::stand::{Broker, Companion, Host, Report};
use crate::desk::runs;
use crate::planted::wait_for;
use crate::support::program;

/// What must become of a broker.
#[derive(Debug, Clone, Copy)]
enum Fate {
    /// It is gone with everybody in its session, and this rule's finding ended it.
    Ended(&'static str),
    /// It lives with everybody it had, and this is part of what is said of it.
    Kept(&'static str),
}

use Fate::{Ended, Kept};

/// A broker in some state.
struct Case {
    name: &'static str,
    broker: Broker,
    /// Who was in its session when it was looked at.
    tree: Vec<i32>,
    fate: Fate,
}

/// Brokers in their states, and what must become of them.
struct Field {
    host: Host,
    cases: Vec<Case>,
}

impl Field {
    fn new() -> Field {
        let host = Host::new();
        host.desk.configure(
            "\n[limits]\nsame-cause = 1000\n\n[escalation]\nladder = [\"TERM 4s\", \"KILL 20s\"]\n",
        );
        Field { host, cases: Vec::new() }
    }

    fn add(&mut self, name: &'static str, broker: &Broker, fate: Fate) {
        let tree = self.host.in_session(broker);
        self.cases.push(Case { name, broker: broker.clone(), tree, fate });
    }

    /// Sweeps, and checks one case after another; shows all that is wrong at once.
    #[track_caller]
    fn check(&self) -> Report {
        let swept = self.host.sweep(&["--yes"]);
        let mut wrong = Vec::new();
        for case in &self.cases {
            let left = self.host.in_session(&case.broker);
            let root = case.broker.pid;
            let said = swept.tree(root).map_or_else(|| "not judged".to_owned(), |_| swept.verdict(root).1);
            let right = match case.fate {
                Ended(rule) => {
                    let holds = format!("\"rule\":\"{rule}\"");
                    left.is_empty()
                        && said.contains(&holds)
                        && swept.teardown(root).is_some_and(|one| one["closure"] == "gone")
                }
                Kept(why) => left == case.tree && swept.teardown(root).is_none() && said.contains(why),
            };
            if !right {
                wrong.push(format!(
                    "{} ({root}), {:?}: {left:?} of {:?} live\n  {said}",
                    case.name, case.fate, case.tree
                ));
            }
        }
        assert!(wrong.is_empty(), "{}\n{}", wrong.join("\n"), swept.json["teardowns"]);
        swept
    }
}

/// Ends codex as TERM does, and waits until these brokers have nobody.
pub(super) fn wedge(host: &Host, brokers: &[Broker]) {
    for broker in brokers {
        host.send(host.codex(broker), Signal::TERM);
    }
    for broker in brokers {
        wait_for("a broker without codex", || host.in_session(broker) == [broker.pid]);
    }
}

fn has_state(pid: i32, state: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/status")).is_ok_and(|status| status.contains(state))
}

#[test]
#[expect(clippy::too_many_lines, reason = "all states stand side by side, so that one sweep meets them all")]
fn each_state_has_its_verdict_and_its_end_f7_b15_b33_b39_c10_c33() {
    let mut field = Field::new();
    let names = [
        ("live", ""),
        ("review", ""),
        ("renamed", ""),
        ("deleted", ""),
        ("deleted-launcher", "launcher"),
        ("deleted-deaf", "deaf-codex"),
        ("deleted-helper", "deaf-helper"),
        ("deleted-recycled", ""),
        ("deleted-review", ""),
        ("deleted-stopped", ""),
        ("deleted-traced", ""),
        ("unlinked", ""),
        ("unlinked-review", ""),
        ("unlinked-stopped", ""),
        ("no-directory", ""),
        ("renamed-socket", ""),
        ("replaced", ""),
        ("wedged", ""),
        ("wedged-client", ""),
        ("wedged-stopped", ""),
    ];
    let brokers = field.host.brokers(&names);
    let named = |name: &str| &brokers[names.iter().position(|(one, _)| *one == name).unwrap()];
    let host = &field.host;
    let planted = &host.desk.planted;
    let bystander = planted.marked("sleep 600", "bystander");

    let review = Companion::review(named("review"));
    let deleted_review = Companion::review(named("deleted-review"));
    let unlinked_review = Companion::review(named("unlinked-review"));
    for (name, _) in names.iter().filter(|(name, _)| name.starts_with("deleted")) {
        fs::remove_dir(&named(name).workspace).unwrap();
    }
    for name in ["unlinked", "unlinked-review", "unlinked-stopped"] {
        fs::remove_file(&named(name).socket).unwrap();
    }
    fs::rename(&named("renamed").workspace, planted.path("workspaces/new-name")).unwrap();
    fs::remove_dir_all(&named("no-directory").session).unwrap();
    fs::rename(&named("renamed-socket").socket, named("renamed-socket").session.join("other.sock")).unwrap();
    // The number in its files is somebody else's by now.
    fs::write(named("deleted-recycled").session.join("broker.pid"), format!("{bystander}\n")).unwrap();
    named("deleted-recycled").write_record(bystander);
    let mut hanging = Companion::connect(&named("wedged-client").socket).unwrap();
    wedge(host, &["wedged", "wedged-client", "wedged-stopped"].map(|name| named(name).clone()));
    hanging.request("thread/list", json!({}));
    for name in ["deleted-stopped", "unlinked-stopped", "wedged-stopped"] {
        host.send(named(name).pid, Signal::STOP);
        wait_for("a stopped broker", || has_state(named(name).pid, "State:\tT"));
    }
    let traced = named("deleted-traced").pid;
    let mut tracer = planted
        .command("strace")
        .args(["-qq", "-o", "/dev/null", "-p", &traced.to_string()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("a traced broker", || !has_state(traced, "TracerPid:\t0\n"));

    // Another broker takes the endpoint over, and one is only starting.
    let mut second = host.place("second");
    fs::remove_file(&named("replaced").socket).unwrap();
    second.take_over(named("replaced"));
    host.spawn(&second, "");
    let second = host.ensure(&second);
    let gate = planted.path("gate");
    let starting = host.place("starting");
    host.spawn(&starting, &format!("wait-for={}", gate.display()));
    let new = host.known(&starting);
    wait_for("codex of the new one", || host.in_session(&new).iter().any(|&pid| runs(pid, "codex")));

    for (name, fate) in [
        ("live", Kept("is there")),
        ("review", Kept("is there")),
        ("renamed", Kept("nothing was recorded of it")),
        ("deleted", Ended("cwd-gone")),
        ("deleted-launcher", Ended("cwd-gone")),
        ("deleted-deaf", Ended("cwd-gone")),
        ("deleted-helper", Ended("cwd-gone")),
        ("deleted-recycled", Ended("cwd-gone")),
        ("deleted-review", Kept("a client is connected")),
        ("deleted-stopped", Kept("stopped")),
        ("deleted-traced", Kept("traced")),
        ("unlinked", Ended("socket-unreachable")),
        ("unlinked-review", Kept("a client is connected")),
        ("unlinked-stopped", Kept("stopped")),
        ("no-directory", Ended("socket-unreachable")),
        ("renamed-socket", Kept("other.sock")),
        ("replaced", Ended("socket-unreachable")),
        ("wedged", Ended("backend-gone")),
        ("wedged-client", Ended("backend-gone")),
        ("wedged-stopped", Kept("stopped")),
    ] {
        let broker = named(name).clone();
        field.add(name, &broker, fate);
    }
    field.add("second", &second, Kept("is there"));
    field.add("starting", &new, Kept("no member listens there"));
    let deaf = field.host.codex(named("deleted-deaf"));
    let swept = field.check();

    let host = &field.host;
    let planted = &host.desk.planted;
    let signals = |root: i32, pid: i32| {
        let members = swept.teardown(root).unwrap()["members"].as_array().unwrap().clone();
        members.iter().find(|member| member["pid"] == pid).unwrap()["signals"].to_string()
    };
    let root = named("deleted-deaf").pid;
    for pid in [root, deaf] {
        assert!(signals(root, pid).contains("KILL"), "{pid}: {}", swept.said);
    }
    assert!(
        !signals(named("deleted").pid, named("deleted").pid).contains("KILL"),
        "TERM was enough: {}",
        swept.said
    );
    assert!(planted.is_alive(bystander), "a number in a file is nobody's name");
    for one in [&review, &deleted_review, &unlinked_review] {
        one.hears();
    }
    // What stood at the endpoint of the one that was replaced is another's.
    let mut companion = Companion::connect(&second.socket).expect("the second broker can be reached");
    assert_eq!(companion.ask("initialize", json!({}))["result"]["userAgent"], "codex-companion-broker");
    drop(companion);
    assert_eq!(fs::read_to_string(second.session.join("broker.pid")).unwrap(), format!("{}\n", second.pid));
    assert!(second.record.exists());

    // What kept them was that alone.
    drop((deleted_review, unlinked_review, hanging));
    rustix::process::kill_process(rustix::process::Pid::from_child(&tracer), Signal::INT).unwrap();
    tracer.wait().unwrap();
    for name in ["deleted-stopped", "unlinked-stopped", "wedged-stopped"] {
        host.send(named(name).pid, Signal::CONT);
        wait_for("a broker that goes on", || has_state(named(name).pid, "State:\tS"));
    }
    fs::write(&gate, "").unwrap();
    host.ensure(&starting);
    // Its connection is seen to be closed once it has read that.
    field.cases.clear();
    for (name, fate) in [
        ("live", Kept("is there")),
        ("review", Kept("is there")),
        ("renamed", Kept("nothing was recorded of it")),
        ("renamed-socket", Kept("other.sock")),
        ("deleted-review", Ended("cwd-gone")),
        ("deleted-stopped", Ended("cwd-gone")),
        ("deleted-traced", Ended("cwd-gone")),
        ("unlinked-review", Ended("socket-unreachable")),
        ("unlinked-stopped", Ended("socket-unreachable")),
        ("wedged-stopped", Ended("backend-gone")),
    ] {
        let broker = named(name).clone();
        field.add(name, &broker, fate);
    }
    field.add("second", &second, Kept("is there"));
    field.add("starting", &new, Kept("is there"));
    field.check();
    review.hears();
}

#[test]
fn others_that_are_called_so_are_no_brokers() {
    let host = Host::new();
    let place = host.place("others");
    let codex = host.desk.planted.path("runtime/codex").to_str().unwrap().to_owned();
    let node = host.desk.planted.path("runtime/node").to_str().unwrap().to_owned();
    // They all sleep, whatever their arguments say: SYSTEMS 1.1 lists who else is called so.
    let script = place.workspace.join("app-server");
    fs::write(&script, "import time\ntime.sleep(600)\n").unwrap();
    program::copy(&script, place.workspace.join("app-server-broker.mjs"));
    let broker: PathBuf = place.workspace.join("app-server-broker.mjs");
    let broker = broker.to_str().unwrap();
    let socket = place.session.join("app.sock");
    let listen = format!("unix://{}", socket.display());
    let others: [(&str, &str, Vec<&str>); 8] = [
        ("codex", &codex, vec!["app-server"]),
        ("codex", &codex, vec!["app-server", "--analytics-default-enabled"]),
        ("codex", &codex, vec!["app-server", "--listen", &listen]),
        ("codex", &codex, vec!["app-server", "daemon"]),
        ("codex", &codex, vec!["app-server", "proxy"]),
        // An editor that shows the script, and one that has it as an argument of its own.
        ("node", &node, vec![broker]),
        ("node", &node, vec!["app-server", broker, "serve"]),
        ("vim", &node, vec![broker, "serve", "--cwd", "/nowhere"]),
    ];
    let mut pids = Vec::new();
    for (index, (name, program, words)) in others.iter().enumerate() {
        let file = host.desk.planted.path(&format!("other-{index}.pid"));
        let line = "echo $$ >\"$1.new\"; mv \"$1.new\" \"$1\"; program=$2; name=$0; shift 2; exec -a \"$name\" \"$program\" \"$@\"";
        let status = host
            .command(&place, "", "setsid")
            .args(["--fork", "bash", "-c", line, name])
            .arg(&file)
            .arg(program)
            .args(words)
            .status()
            .unwrap();
        assert!(status.success());
        let pid = host.desk.planted.pid_in(&file);
        wait_for("the other one", || {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|argv| argv.starts_with(name.as_bytes()))
        });
        pids.push(pid);
    }
    let twin = host.broker("twin", "");
    // They have read their script by the time that the twin stands, or die of its absence and fail this test.
    for &pid in &pids {
        wait_for("the other one to sleep", || has_state(pid, "State:\tS"));
    }
    fs::remove_dir_all(&place.workspace).unwrap();
    fs::remove_dir(&twin.workspace).unwrap();
    let swept = host.sweep(&["--yes"]);
    for (index, &pid) in pids.iter().enumerate() {
        assert!(host.desk.planted.is_alive(pid), "{:?}: {}", others[index], swept.said);
    }
    assert!(host.in_session(&twin).is_empty(), "{}", swept.said);
}
