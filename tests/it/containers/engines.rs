//! Engines that do not behave: one that hangs, one that ends in the middle, one that takes no filter to heart. And what a
//! quiet sweep costs.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Child;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use super::field::Fate::Ended;
use super::field::{Field, Role, alone, dead_holder, many};
use crate::patience::patiently;
use crate::planted::{MARK, wait_for};

/// A program that plays an engine, or stands before one. It is ended when it is dropped.
///
/// It is a client of the engine behind it, of which nobody can tell what it is for: whoever has one holds the turn, so
/// that no other test sweeps meanwhile.
struct Played {
    child: Child,
    socket: PathBuf,
    log: PathBuf,
}

impl Played {
    fn start(field: &Field, script: &str, engine: &Path, silent: &[&str]) -> Played {
        let (socket, log) = (field.planted.path("played.sock"), field.planted.path("calls"));
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/engine").join(script);
        let mut command = field.planted.command(field.planted.python().to_str().unwrap());
        // It bears no mark: it is no process that a sweep of this test may look at.
        command.env_remove(MARK).arg(script).arg(&socket).arg(engine).arg(&log).args(silent);
        let child = command.spawn().unwrap();
        wait_for("the played engine", || socket.exists());
        Played { child, socket, log }
    }

    /// A proxy that writes down each call, and falls silent at the first that `silent` fits.
    fn proxy(field: &Field, silent: &[&str]) -> Played {
        Played::start(field, "proxy.py", &field.stand.socket, silent)
    }

    /// An engine that answers from this.
    fn fake(field: &Field, record: &Value) -> Played {
        let file = field.planted.path("record.json");
        fs::write(&file, record.to_string()).unwrap();
        Played::start(field, "fake.py", &file, &[])
    }

    /// Every call since the last time it was asked, in order.
    fn calls(&self) -> Vec<String> {
        let text = fs::read_to_string(&self.log).unwrap_or_default();
        fs::write(&self.log, "").unwrap();
        text.lines().map(str::to_owned).collect()
    }
}

impl Drop for Played {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn counted(calls: &[String], what: &str) -> usize {
    calls.iter().filter(|call| call.contains(what)).count()
}

#[test]
fn a_quiet_sweep_makes_one_list_call() {
    let Some(field) = Field::new() else { return };
    let count = many(12, 100);
    let mut live = field.run(&["-i", "--rm"], "notes", &["deaf"]);
    let made: Vec<String> = (0..count).map(|_| field.detached(&["--rm"], "maps", &["deaf"])).collect();
    // Containers of other tests are looked at once, when they come: to see that they are none of ours.
    let _alone = alone();
    let proxy = Played::proxy(&field, &[]);
    field.configure_at(&proxy.socket, "");
    field.without_helper();
    let sweep = || {
        let output = patiently(&mut field.reapd(&["sweep", "--once", "--yes", "--json"]));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        (super::field::Swept::read(&output.stdout), proxy.calls())
    };
    let (first, calls) = sweep();
    assert_eq!(counted(&calls, "GET /containers/json"), 1, "{calls:#?}");
    assert!(counted(&calls, "POST ") + counted(&calls, "DELETE ") == 0, "{calls:#?}");
    assert!(first.stops.is_empty());
    for _ in 0..2 {
        let (_, calls) = sweep();
        assert_eq!(counted(&calls, "GET /containers/json"), 1, "{calls:#?}");
        assert_eq!(
            counted(&calls, "GET /containers/") + counted(&calls, "GET /images/"),
            1,
            "no more: {calls:#?}"
        );
    }
    // One more is one more question, and no more than that.
    let newcomer = field.detached(&["--rm"], "maps", &["deaf"]);
    let (_, calls) = sweep();
    let asked: Vec<&String> = calls.iter().filter(|call| call.ends_with("/json")).collect();
    assert!(asked.iter().all(|call| call.contains(&newcomer)), "{calls:#?}");
    assert_eq!(live.client.ask("still"), "answer to still");
    assert!(made.iter().all(|id| field.state(id) == "running"));
}

#[test]
fn an_engine_that_hangs_stops_nothing_but_itself() {
    let Some(field) = Field::new() else { return };
    let stray = field.stray(&["--rm"], "notes", &["deaf"]);
    let _turn = crate::turn::turn();
    for (counted, silent) in ["^GET /version|_ping", "^GET /containers/json"].into_iter().enumerate() {
        // A tree that is to go, whatever the engine does.
        let throwaway = field.planted.path("throwaway").join(counted.to_string());
        let work = throwaway.join("work");
        fs::create_dir_all(&work).unwrap();
        let sleeper = format!("env -C {} sleep 600", work.display());
        let tree = field.planted.marked(&sleeper, &format!("tree-{counted}"));
        let gone = work.canonicalize().unwrap();
        wait_for("the tree to stand there", || {
            fs::read_link(format!("/proc/{tree}/cwd")).is_ok_and(|at| at == gone)
        });
        fs::remove_dir(&work).unwrap();
        let proxy = Played::proxy(&field, &[silent]);
        field.configure_at(
            &proxy.socket,
            &format!(
                "\n[process.tree]\nmatch = {{ program = \"sleep\", args = [\"600\"] }}\n\
                 reap-when = [{{ cwd-gone = {{ roots = [\"{}\"] }} }}]\n",
                throwaway.canonicalize().unwrap().display()
            ),
        );
        let began = Instant::now();
        let output = patiently(&mut field.reapd(&["sweep", "--yes", "--json"]));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
        assert!(said.contains(&format!("docker at {}", proxy.socket.display())), "the gap is said: {said}");
        let swept = super::field::Swept::read(&output.stdout);
        assert!(swept.stops.is_empty() && !swept.containers.contains_key(&stray), "{said}");
        wait_for("the tree to be gone", || !field.planted.is_alive(tree));
        assert_eq!(field.state(&stray), "running");
    }
}

#[test]
fn a_stop_that_is_never_answered_is_not_taken_for_done_c11_c12() {
    let Some(field) = Field::new() else { return };
    let holder = dead_holder();
    let mut started =
        field.run(&["--rm", "--label", &holder, "--label", "dev.reapd.lease=of-a-test"], "notes", &["deaf"]);
    started.client.kill();
    let id = started.id;
    // Whoever comes or goes at the engine meanwhile is somebody that nobody can tell.
    let calm = alone();
    let proxy = Played::proxy(&field, &["^POST /containers/[0-9a-f]+/(stop|kill)"]);
    field.configure_at(&proxy.socket, "");
    let output = patiently(&mut field.reapd(&["sweep", "--yes", "--json"]));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let swept = super::field::Swept::read(&output.stdout);
    let stop = swept.stops.get(&id).unwrap_or_else(|| panic!("it was to be stopped: {said}"));
    assert_ne!(stop["outcome"], "gone", "{said}");
    assert_eq!(field.state(&id), "running");
    drop(proxy);
    // The next sweep, by the engine itself, takes it up again.
    field.configure("");
    drop(calm);
    let again = field.sweep();
    field.check(&again, &[("taken up again", &id, Ended)]);
}

#[test]
fn an_engine_that_ends_in_the_middle_proves_nothing_c12() {
    for signal in [Signal::TERM, Signal::KILL] {
        let Some(field) = Field::alone(Role::Ours) else { return };
        // Long enough for the engine to be ended meanwhile.
        let text = fs::read_to_string(field.config()).unwrap();
        fs::write(field.config(), text.replace("grace = \"1s\"", "grace = \"10s\"")).unwrap();
        let id = field.stray(&[], "notes", &["stone"]);
        let _turn = crate::turn::turn();
        let mut command = field.reapd(&["sweep", "--yes", "--json"]);
        let running = command.spawn().unwrap();
        wait_for("the stop to have begun", || {
            fs::read_to_string(field.planted.path("state/journal.jsonl"))
                .is_ok_and(|text| text.contains("stop-step") && text.contains(&id))
        });
        let engine = field.stand.pid();
        kill_process(Pid::from_raw(engine).unwrap(), signal).unwrap();
        let output = running.wait_with_output().unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        let swept = super::field::Swept::read(&output.stdout);
        let stop = swept.stops.get(&id).unwrap_or_else(|| panic!("it is reported: {said}"));
        assert_ne!(stop["outcome"], "gone", "{said}");
        // An engine that is not there is a gap, and no reason for anything.
        let output = patiently(&mut field.reapd(&["sweep", "--yes", "--json"]));
        let said = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stderr));
        assert!(said.contains("docker at "), "{said}");
    }
}

/// What a list and an inspection say of one container.
struct Recorded {
    id: String,
    row: Value,
    facts: Value,
}

impl Recorded {
    fn new(digit: char, state: &str, labels: &[&str]) -> Recorded {
        let id = digit.to_string().repeat(64);
        let labels: serde_json::Map<String, Value> = labels
            .iter()
            .map(|label| label.split_once('=').unwrap())
            .map(|(key, value)| (key.to_owned(), json!(value)))
            .collect();
        let name = format!("/recorded-{digit}");
        let image = "sha256:".to_owned() + &"e".repeat(64);
        let row = json!({
            "Id": id, "Names": [name], "Image": "reapd-stand/notes:1", "ImageID": image, "Command": "/bin/server deaf",
            "Created": 1_700_000_000, "Ports": [], "Labels": labels, "State": state, "Status": "Up 2 days",
            "HostConfig": { "NetworkMode": "none" }, "NetworkSettings": { "Networks": {} }, "Mounts": [],
        });
        let facts = json!({
            "Id": id, "Created": "2023-11-14T22:13:20.000000000Z", "Path": "/bin/server", "Args": ["deaf"],
            "State": { "Status": state, "Running": state == "running", "Paused": false, "Restarting": false,
                "OOMKilled": false, "Dead": false, "Pid": 1, "ExitCode": 0, "Error": "",
                "StartedAt": "2023-11-14T22:13:21.000000000Z", "FinishedAt": "0001-01-01T00:00:00Z" },
            "Image": image, "Name": name, "RestartCount": 0, "Mounts": [],
            "HostConfig": { "AutoRemove": true, "NetworkMode": "none", "RestartPolicy": { "Name": "no", "MaximumRetryCount": 0 },
                "PortBindings": {}, "Binds": null },
            "Config": { "Hostname": "x", "User": "", "AttachStdin": false, "AttachStdout": true, "AttachStderr": false,
                "Tty": false, "OpenStdin": false, "StdinOnce": false, "Env": ["PATH=/bin"], "Cmd": ["deaf"],
                "Image": "reapd-stand/notes:1", "Entrypoint": ["/bin/server"], "Labels": labels },
            "NetworkSettings": { "Networks": {}, "Ports": {} }, "ExecIDs": null,
        });
        Recorded { id, row, facts }
    }
}

#[test]
fn what_an_engine_returns_unasked_is_left_alone_s7() {
    let Some(field) = Field::new() else { return };
    let mark = field.label();
    let other = format!("{MARK}=of-another-test");
    let lease = "dev.reapd.lease=of-a-test";
    // A lease that is over.
    let own = std::process::id().to_string();
    for words in
        [&["lease", "acquire", "--holder", &own, "--id", "of-a-test"][..], &["lease", "release", "of-a-test"]]
    {
        let done = field.ask(words);
        assert!(done.status.success(), "{done:?}");
    }
    // All of them would go by their labels; only the first is ours, runs, and is what it is said to be.
    let ours = Recorded::new('a', "running", &[&mark, lease]);
    let mut foreign = vec![
        Recorded::new('b', "running", &[lease]),
        Recorded::new('c', "running", &[&other, lease]),
        // The list shows what ended as well, whatever it was asked for.
        Recorded::new('d', "exited", &[&mark, lease]),
        Recorded::new('f', "created", &[&mark, lease]),
    ];
    // The list says that it is ours, and the engine tells of another when it is asked.
    let mut swapped = Recorded::new('1', "running", &[&mark, lease]);
    swapped.facts = foreign[0].facts.clone();
    foreign.push(swapped);
    // Its id is none: a prefix may come to mean another.
    let mut short = Recorded::new('2', "running", &[&mark, lease]);
    short.id.truncate(12);
    short.row["Id"] = json!(short.id);
    let record = |all: &[&Recorded]| {
        json!({
            "list": all.iter().map(|one| one.row.clone()).collect::<Vec<_>>(),
            "inspect": all.iter().map(|one| (one.id.clone(), one.facts.clone())).collect::<serde_json::Map<_, _>>(),
            "images": { ("sha256:".to_owned() + &"e".repeat(64)): { "Id": "sha256:".to_owned() + &"e".repeat(64), "Config": { "Labels": {} } } },
        })
    };
    let mut all: Vec<&Recorded> = foreign.iter().collect();
    all.push(&ours);
    let _turn = crate::turn::turn();
    let fake = Played::fake(&field, &record(&all));
    field.write(&format!("\n[docker]\nsocket = \"{}\"\n", fake.socket.display()));
    let output = patiently(&mut field.reapd(&["sweep", "--yes", "--json"]));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let calls = fake.calls();
    let changing: Vec<&String> =
        calls.iter().filter(|call| !call.starts_with("GET ") && !call.starts_with("HEAD ")).collect();
    assert!(!changing.is_empty(), "ours was to be stopped: {said}\n{calls:#?}");
    assert!(changing.iter().all(|call| call.contains(&ours.id)), "{changing:#?}\n{said}");
    let swept = super::field::Swept::read(&output.stdout);
    assert_eq!(swept.stops.keys().collect::<Vec<_>>(), [&ours.id], "{said}");
    drop(fake);

    // With an id that is none among them the whole list is not what it should be.
    let mut all: Vec<&Recorded> = vec![&short];
    all.push(&ours);
    let fake = Played::fake(&field, &record(&all));
    let output = patiently(&mut field.reapd(&["sweep", "--yes", "--json"]));
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    let calls = fake.calls();
    assert!(calls.iter().all(|call| call.starts_with("GET ") || call.starts_with("HEAD ")), "{calls:#?}");
    assert!(said.contains("docker at "), "the gap is said: {said}");
}

#[test]
fn a_usual_place_without_an_engine_is_no_gap() {
    let Some(field) = Field::new() else { return };
    let stray = field.stray(&["--rm"], "notes", &["deaf"]);
    // Nobody named an engine, none is told of, and none is at this user's places; those of the host may be there.
    field.write("");
    let swept = field.swept(&["--dry-run"]);
    assert!(!swept.containers.contains_key(&stray), "{}", swept.said);
    let gap = format!("docker at {}", field.stand.socket.display());
    assert!(!swept.said.contains(&gap), "{}", swept.said);
    // By the variable that its clients go by, it is found.
    let _turn = crate::turn::turn();
    let mut command = field.reapd(&["sweep", "--dry-run", "--json"]);
    command.env("DOCKER_HOST", format!("unix://{}", field.stand.socket.display()));
    let output = patiently(&mut command);
    let swept = super::field::Swept::read(&output.stdout);
    assert!(swept.containers.contains_key(&stray), "{}", swept.said);
    // Another machine's is never spoken to.
    let mut command = field.reapd(&["sweep", "--dry-run", "--json"]);
    command.env("DOCKER_HOST", "tcp://127.0.0.1:1");
    let output = patiently(&mut command);
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(said.contains("not on this machine"), "{said}");
}
