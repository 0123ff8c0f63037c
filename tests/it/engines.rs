//! Looks at engines that answer right, wrong or not at all, and the census of whoever is connected to one.

use std::collections::BTreeSet;
use std::fs::Permissions;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use reapd::config::policy::{Docker, Sockets};
use reapd::model::container::{EngineClients, EngineId, EngineKind};
use reapd::model::known::{Known, Reason};
use reapd::model::look::{Scope, Snapshot};
use reapd::model::question::{Answer, Census, EngineAnswer, EngineQuestion, Question};
use reapd::observe::{EngineSetup, EngineSurroundings, Observer, Setup};

use crate::support::observing::is_root;

const PATIENCE: Duration = Duration::from_secs(20);
const VERSION: &str =
    r#"{"Components":[{"Name":"Engine","Version":"20.10.24"}],"Version":"20.10.24","ApiVersion":"1.41"}"#;

/// What an engine lists.
#[derive(Clone, Copy)]
enum Lists {
    /// One container that runs.
    One,
    /// No JSON.
    Rubbish,
    /// Nothing, ever.
    Silence,
    /// An error.
    Error,
}

/// An engine of a test.
struct Stub {
    path: PathBuf,
    /// How many requests it got.
    asked: Arc<AtomicUsize>,
}

impl Stub {
    fn new(directory: &Path, name: &str, lists: Lists) -> Stub {
        let path = directory.join(name);
        let listener = UnixListener::bind(&path).unwrap();
        std::fs::set_permissions(&path, Permissions::from_mode(0o777)).unwrap();
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (stream, count) = (stream.unwrap(), Arc::clone(&count));
                thread::spawn(move || serve(stream, lists, &count));
            }
        });
        Stub { path, asked }
    }

    fn id(&self) -> EngineId {
        EngineId(self.path.canonicalize().unwrap().to_str().unwrap().into())
    }
}

fn serve(mut stream: UnixStream, lists: Lists, asked: &AtomicUsize) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    asked.fetch_add(1, Ordering::SeqCst);
    let (status, body) = match lists {
        _ if head.starts_with(b"GET /version") => (200, VERSION.to_owned()),
        Lists::One => (200, one()),
        Lists::Rubbish => (200, "<html>".to_owned()),
        Lists::Error => (500, r#"{"message":"not today"}"#.to_owned()),
        Lists::Silence => {
            drop(stream.read(&mut byte));
            return;
        }
    };
    let answer = format!("HTTP/1.1 {status} Said\r\nContent-Length: {}\r\n\r\n{body}", body.len());
    drop(stream.write_all(answer.as_bytes()));
}

fn one() -> String {
    let id = "a".repeat(64);
    format!(
        r#"[{{"Id":"{id}","Names":["/one"],"Image":"box:1","ImageID":"sha256:0","Created":7,"State":"running",
        "Labels":{{}}}}]"#
    )
}

fn observer(sockets: &[&Path], probe_timeout: Duration) -> Observer {
    let paths = sockets.iter().map(|path| path.to_str().unwrap().to_owned()).collect();
    Observer::open(Setup {
        scope: Scope::User,
        probe_timeout,
        env_names: BTreeSet::new(),
        aside: env!("CARGO_BIN_EXE_reapd").into(),
        home: None,
        leases: Vec::new(),
        registries: Vec::new(),
        engines: Some(EngineSetup {
            docker: Docker { sockets: Sockets::These(paths), ..Docker::default() },
            around: EngineSurroundings::default(),
        }),
    })
    .unwrap()
}

/// Returns how many containers each engine lists, or why nobody knows.
fn listed(snapshot: &Snapshot) -> Vec<Result<usize, Reason>> {
    let engines = snapshot.engines.iter();
    engines.map(|engine| engine.containers.as_ref().map(Vec::len).map_err(|why| why.reason)).collect()
}

fn gap(snapshot: &Snapshot, path: &Path) -> Option<Reason> {
    let source = format!("docker at {}", path.display());
    let gap = snapshot.gaps.iter().find(|gap| gap.source == source)?;
    assert!(gap.cure.is_some(), "{source} has no cure");
    Some(gap.why.reason)
}

#[test]
fn an_engine_that_fails_is_a_gap_and_keeps_no_other_from_being_seen() {
    let directory = tempfile::tempdir().unwrap();
    let at = directory.path().canonicalize().unwrap();
    let good = Stub::new(&at, "a.sock", Lists::One);
    let rubbish = Stub::new(&at, "b.sock", Lists::Rubbish);
    let error = Stub::new(&at, "c.sock", Lists::Error);
    let none = at.join("none.sock");
    let mut observer = observer(&[&good.path, &rubbish.path, &error.path, &none], PATIENCE);
    let snapshot = observer.table().unwrap();
    assert_eq!(listed(&snapshot), [Ok(1), Err(Reason::Unsound), Err(Reason::Failed(500))]);
    assert_eq!(snapshot.engines[0].kind, Ok(EngineKind::Docker("20.10.24".into())));
    assert_eq!(gap(&snapshot, &good.path), None);
    assert_eq!(gap(&snapshot, &rubbish.path), Some(Reason::Unsound));
    assert_eq!(gap(&snapshot, &error.path), Some(Reason::Failed(500)));
    assert_eq!(gap(&snapshot, &none), Some(Reason::Vanished));
    assert!(!snapshot.table.rows().is_empty(), "the rest of the look is there");
    assert_eq!(good.asked.load(Ordering::SeqCst), 2, "its version and one list");
}

#[test]
fn engines_that_hang_cost_one_deadline_together() {
    let directory = tempfile::tempdir().unwrap();
    let limit = Duration::from_secs(1);
    let names = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let stubs = names.map(|name| Stub::new(directory.path(), name, Lists::Silence));
    let paths: Vec<&Path> = stubs.iter().map(|stub| stub.path.as_path()).collect();
    let mut observer = observer(&paths, limit);
    let began = Instant::now();
    let snapshot = observer.table().unwrap();
    let took = began.elapsed();
    assert_eq!(listed(&snapshot), names.map(|_| Err(Reason::Hung)));
    assert!(took < limit * 4, "{took:?}");
}

#[test]
fn an_engine_that_was_started_anew_is_found_again() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap().join("docker.sock");
    let mut observer = observer(&[&path], PATIENCE);
    assert_eq!(gap(&observer.table().unwrap(), &path), Some(Reason::Vanished));
    let first = Stub::new(path.parent().unwrap(), "docker.sock", Lists::One);
    assert_eq!(listed(&observer.table().unwrap()), [Ok(1)]);
    std::fs::remove_file(&first.path).unwrap();
    assert_eq!(listed(&observer.table().unwrap()), []);
    let _second = Stub::new(path.parent().unwrap(), "docker.sock", Lists::One);
    assert_eq!(listed(&observer.table().unwrap()), [Ok(1)]);
}

#[test]
fn nobody_is_asked_where_no_policy_is_about_containers() {
    let directory = tempfile::tempdir().unwrap();
    let stub = Stub::new(directory.path(), "docker.sock", Lists::One);
    let mut observer = crate::support::observing::observer();
    assert_eq!(listed(&observer.table().unwrap()), []);
    assert_eq!(stub.asked.load(Ordering::SeqCst), 0);
}

// -- who is connected

/// A process that is connected to an engine and waits.
struct Connected(Child);

impl Drop for Connected {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn connected(command: &mut Command, path: &Path) -> Connected {
    let script = "import socket, sys, time\n\
        own = socket.socket(socket.AF_UNIX)\nown.connect(sys.argv[1])\nprint('connected', flush=True)\ntime.sleep(120)\n";
    let child = command.args(["python3", "-c", script]).arg(path).stdout(Stdio::piped()).spawn().unwrap();
    let mut client = Connected(child);
    let mut word = [0; 9];
    client.0.stdout.as_mut().unwrap().read_exact(&mut word).unwrap();
    client
}

/// Asks until the answer is as it should be: a copy of a connection is gone once whoever was just being started runs.
fn clients(stub: &Stub, is_right: impl Fn(&EngineClients) -> bool) -> EngineClients {
    let mut observer = observer(&[&stub.path], PATIENCE);
    let began = Instant::now();
    loop {
        let snapshot = observer.table().unwrap();
        let asked = Question::Engine(EngineQuestion::Clients(stub.id()));
        let answer: Known<Answer> = observer.answer(&snapshot, &[asked]).remove(0).1;
        let Ok(Answer::Engine(EngineAnswer::Clients(found))) = answer else { panic!("{answer:?}") };
        if is_right(&found) || began.elapsed() > PATIENCE {
            return found;
        }
    }
}

fn numbers(found: &EngineClients) -> Vec<i32> {
    found.clients.iter().map(|client| client.id.pid.number()).collect()
}

#[test]
fn whoever_is_connected_is_found_with_what_it_was_started_with_and_the_dead_are_not() {
    let directory = tempfile::tempdir().unwrap();
    let stub = Stub::new(directory.path(), "docker.sock", Lists::One);
    let client = connected(&mut Command::new("env"), &stub.path);
    let pid = i32::try_from(client.0.id()).unwrap();
    let found = clients(&stub, |found| numbers(found) == [pid] && found.census == Census::Whole);
    assert_eq!(numbers(&found), [pid], "and reapd, which asked a moment ago, is none");
    assert_eq!(found.census, Census::Whole);
    let argv = found.clients[0].argv.as_ref().unwrap();
    assert_eq!(argv.last().unwrap(), stub.path.to_str().unwrap());
    assert_eq!(found.clients[0].cwd.as_ref().unwrap(), env!("CARGO_MANIFEST_DIR"));
    // What listens is this test, and no engine: it may lead anywhere.
    assert_eq!(found.reach.unwrap_err().reason, Reason::Foreign);
    drop(client);
    let found = clients(&stub, |found| found.clients.is_empty() && found.census == Census::Whole);
    assert_eq!((found.clients.len(), found.census), (0, Census::Whole));
}

#[test]
#[expect(clippy::print_stderr, reason = "a test that skips says why")]
fn whoever_is_connected_from_another_network_is_counted_and_root_sees_who() {
    let apart = || {
        let mut command = Command::new("unshare");
        command.args(["--user", "--map-root-user", "--net"]);
        command
    };
    if !apart().arg("true").stderr(Stdio::null()).status().is_ok_and(|status| status.success()) {
        eprintln!("no network namespace to be had here: skipped");
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let stub = Stub::new(directory.path(), "docker.sock", Lists::One);
    let client = connected(&mut apart(), &stub.path);
    let pid = i32::try_from(client.0.id()).unwrap();
    if is_root() {
        let found = clients(&stub, |found| numbers(found) == [pid] && found.census == Census::Whole);
        assert_eq!((numbers(&found), found.census), (vec![pid], Census::Whole));
    } else {
        let found = clients(&stub, |found| found.census == Census::Partial(1));
        assert_eq!((found.clients.len(), found.census), (0, Census::Partial(1)));
    }
}

#[test]
fn where_nobody_is_seen_to_listen_nobody_knows_who_is_connected() {
    let directory = tempfile::tempdir().unwrap();
    let stub = Stub::new(directory.path(), "docker.sock", Lists::One);
    // The path leads to a listener that was bound by another name, as it does through a mount; where the kernel's list
    // tells files apart, it is found by its file.
    let other = directory.path().join("other.sock");
    std::fs::rename(&stub.path, &other).unwrap();
    let moved = Stub { path: other, asked: stub.asked };
    let client = connected(&mut Command::new("env"), &moved.path);
    let pid = i32::try_from(client.0.id()).unwrap();
    let mut observer = observer(&[&moved.path], PATIENCE);
    let snapshot = observer.table().unwrap();
    assert_eq!(listed(&snapshot), [Ok(1)]);
    let asked = Question::Engine(EngineQuestion::Clients(moved.id()));
    match observer.answer(&snapshot, &[asked]).remove(0).1 {
        Ok(Answer::Engine(EngineAnswer::Clients(found))) => assert_eq!(numbers(&found), [pid]),
        Err(why) => assert_eq!(why.reason, Reason::Foreign),
        other => panic!("{other:?}"),
    }
}
