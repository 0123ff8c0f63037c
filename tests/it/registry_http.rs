//! Registries of servers, with real processes and the recipes of `docs/registries.md` as they stand, but for the port
//! and the waits: servers in the shapes of the real ones, and a real etcd.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::desk::{Desk, text};
use crate::planted::wait_for;
use crate::registries::recipe;

/// A server with sessions, each with a helper.
struct Server {
    desk: Desk,
    control: PathBuf,
}

impl Server {
    /// Starts one, and configures its recipe with these changes.
    fn start(kind: &str, sessions: &[&str], changes: &[(&str, &str)]) -> Server {
        let desk = Desk::new();
        let control = desk.planted.path("control");
        fs::create_dir(&control).unwrap();
        fs::write(control.join("proxy-bootstrap.js"), "import time\ntime.sleep(600)\n").unwrap();
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/shapes/session-server.py");
        let started = desk
            .planted
            .command("setsid")
            .args(["--fork", "sh", "-c", "exec \"$PYTHON\" \"$@\" 2>server.log", "sh"])
            .arg(script)
            .arg(kind)
            .args([control.as_os_str(), env!("CARGO_BIN_EXE_reapd").as_ref()])
            .args(sessions)
            .env("REAPD_LEASES", desk.leases())
            .env("REAPD_CONFIG", desk.config())
            .status()
            .unwrap();
        assert!(started.success());
        let server = Server { desk, control };
        server.desk.planted.pid_in(&server.control.join("port"));
        for session in sessions {
            let pid = server.helper(session);
            wait_for("the helper", || {
                let argv = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                argv.starts_with(b"sleep\0") || argv.starts_with(b"node\0")
            });
        }
        server.configure(kind, &server.port(), changes);
        server
    }

    fn port(&self) -> String {
        fs::read_to_string(self.control.join("port")).unwrap()
    }

    fn configure(&self, registry: &str, port: &str, changes: &[(&str, &str)]) {
        let mut recipe = recipe(registry);
        let written = recipe.split("http://127.0.0.1:").nth(1).unwrap().split('/').next().unwrap().to_owned();
        recipe = recipe.replace(&format!(":{written}/"), &format!(":{port}/"));
        for (from, to) in changes {
            assert!(recipe.contains(from), "{from} in {recipe}");
            recipe = recipe.replace(from, to);
        }
        self.desk.reconfigure(|text| format!("{text}\n{recipe}"));
    }

    fn helper(&self, session: &str) -> i32 {
        self.desk.planted.pid_in(&self.control.join(format!("{session}.pid")))
    }

    fn forget(&self, session: &str) {
        fs::write(self.control.join(format!("{session}.gone")), "").unwrap();
    }

    fn mode(&self, mode: &str) {
        fs::write(self.control.join("mode"), mode).unwrap();
    }

    /// The requests so far, one a line.
    fn asked(&self) -> Vec<String> {
        let text = fs::read_to_string(self.control.join("asked")).unwrap_or_default();
        text.lines().map(|line| line.trim_end().to_owned()).collect()
    }

    #[track_caller]
    fn is(&self, session: &str, verdict: &str, why: &str) {
        is(&self.desk, self.helper(session), verdict, why);
    }

    #[track_caller]
    fn sweep(&self, live: &[&str], gone: &[&str]) {
        let swept = self.desk.reapd(&["sweep", "--yes"]);
        assert!(swept.status.success(), "{}", text(&swept));
        let is_alive = |session: &&&str| self.desk.planted.is_alive(self.helper(session));
        assert_eq!(live.iter().find(|session| !is_alive(session)), None, "ended:\n{}", text(&swept));
        assert_eq!(gone.iter().find(is_alive), None, "left:\n{}", text(&swept));
    }
}

/// What a dry run says of the tree of a process, by the policy that asks a registry.
#[track_caller]
fn is(desk: &Desk, pid: i32, verdict: &str, why: &str) {
    let dry = desk.reapd(&["sweep", "--dry-run", "--json"]);
    let said = text(&dry);
    let found: Value = serde_json::from_slice(&dry.stdout).expect(&said);
    let trees = found["trees"].as_array().unwrap();
    let of = |tree: &&Value| tree["root"]["pid"] == pid && tree["policy"] != "lease";
    let tree = trees.iter().find(of).unwrap_or_else(|| panic!("{pid} is not judged:\n{said}"));
    let fits = tree["verdict"] == verdict && tree.to_string().contains(why);
    assert!(fits, "not {verdict}, '{why}':\n{tree}");
}

const AT_ONCE: (&str, &str) = ("every = \"45m\"", "every = \"0s\"");

#[test]
fn the_tool_of_a_forgotten_executor_session_goes_and_its_twin_stays() {
    let server = Server::start("executor", &["one", "two"], &[AT_ONCE]);
    server.is("one", "alive", "lists it");
    for (mode, why) in [("busy", "HTTP 503"), ("locked", "HTTP 401"), ("proxy", "HTTP 404")] {
        server.mode(mode);
        server.is("one", "unknown", why);
        server.sweep(&["one", "two"], &[]);
    }
    server.mode("");
    server.forget("one");
    server.is("one", "suspect", "/error/message = Session not found");
    server.sweep(&["two"], &["one"]);
    assert!(server.asked().iter().all(|line| line.starts_with("POST /mcp ")), "{:?}", server.asked());
    let why = text(&server.desk.reapd(&["why", &server.helper("one").to_string()]));
    assert!(why.contains("registry 'executor' says that it is over"), "{why}");
}

#[test]
fn a_session_that_lives_is_asked_about_no_more_often_than_every() {
    let server = Server::start("executor", &["one", "two"], &[]);
    for _ in 0..3 {
        let swept = server.desk.reapd(&["sweep", "--once", "--yes"]);
        assert!(swept.status.success(), "{}", text(&swept));
        // Writes nothing, and is told what the sweeps were.
        server.is("one", "alive", "lists it");
    }
    let mut asked = server.asked();
    asked.sort();
    assert_eq!(asked, ["POST /mcp one", "POST /mcp two"], "six looks: asking restamps the session");
    server.forget("one");
    server.sweep(&["one", "two"], &[]);
    assert_eq!(server.asked().len(), 2, "until its time is over, it is what it was");
    let answers = server.desk.planted.path("state/registry-answers.json");
    fs::remove_file(answers).unwrap();
    server.sweep(&["two"], &["one"]);
    let asked = server.asked();
    let of = |session: &str| asked.iter().filter(|line| line.ends_with(session)).count();
    assert_eq!(of("two"), 2, "{asked:?}");
    assert!(of("one") >= 4, "both looks and the re-check asked for the end anew: {asked:?}");
}

#[test]
fn another_server_on_the_port_is_not_believed_f11() {
    let server = Server::start("executor", &["one"], &[AT_ONCE]);
    // A second one of the same kind, which knows of no session of the first.
    let other = Server::start("executor", &["three"], &[AT_ONCE]);
    server
        .desk
        .reconfigure(|text| text.replace(&format!(":{}/", server.port()), &format!(":{}/", other.port())));
    server.is("one", "unknown", "another server answers there");
    server.sweep(&["one"], &[]);
    assert!(!other.asked().is_empty(), "it did answer");
}

#[test]
fn the_toolset_of_a_deleted_docker_agent_session_goes_and_its_twin_stays() {
    let server = Server::start("docker-agent", &["one", "two"], &[]);
    server.is("one", "alive", "lists it");
    for mode in ["busy", "proxy"] {
        server.mode(mode);
        server.sweep(&["one", "two"], &[]);
    }
    server.mode("");
    server.forget("two");
    server.sweep(&["one"], &["two"]);
    assert!(server.asked().contains(&"GET /api/sessions/two".to_owned()), "{:?}", server.asked());
}

#[test]
fn the_worker_of_a_debug_session_that_nobody_holds_goes_and_its_twin_stays() {
    let young = ("older-than = \"1m\"", "older-than = \"0s\"");
    let server = Server::start("mcp-debugger", &["one", "two"], &[young]);
    server.is("one", "alive", "lists it");
    server.forget("one");
    for (mode, why) in [("old", "nothing at /details"), ("busy", "HTTP 503"), ("proxy", "HTTP 404")] {
        server.mode(mode);
        server.is("one", "unknown", why);
        server.sweep(&["one", "two"], &[]);
    }
    server.mode("");
    server.is("one", "suspect", "lists 1 others");
    server.sweep(&["two"], &["one"]);
}

/// Says whether there is an etcd, or why the test is skipped.
#[expect(clippy::print_stderr, reason = "who reads the tests' output must know what was not tested")]
fn has_etcd() -> bool {
    let found = Command::new("etcd").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    let has = found.is_ok_and(|status| status.success());
    let required = std::env::var_os("REAPD_REQUIRE_ETCD").is_some_and(|value| value == "1");
    assert!(has || !required, "REAPD_REQUIRE_ETCD=1, and there is no etcd");
    if !has {
        eprintln!("skipped: there is no etcd here (Debian: etcd-server)");
    }
    has
}

/// A running etcd of one member.
struct Etcd {
    child: Child,
    port: u16,
}

impl Etcd {
    /// Starts a cluster of its own; on a port, where one is given.
    fn start(desk: &Desk, cluster: &str, port: Option<u16>) -> Etcd {
        for _ in 0..5 {
            let port = port.unwrap_or_else(free);
            let (client, peer) = (format!("http://127.0.0.1:{port}"), format!("http://127.0.0.1:{}", free()));
            let child = desk
                .planted
                .command("etcd")
                .arg("--data-dir")
                .arg(desk.planted.path(cluster))
                .args(["--listen-client-urls", &client, "--advertise-client-urls", &client])
                .args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer])
                .args(["--initial-cluster", &format!("default={peer}"), "--initial-cluster-token", cluster])
                .spawn()
                .unwrap();
            let mut etcd = Etcd { child, port };
            let mut has_ended = false;
            wait_for("etcd", || {
                has_ended = etcd.child.try_wait().unwrap().is_some();
                has_ended || etcd.post("/v3/lease/timetolive", r#"{"ID":"1"}"#).is_some()
            });
            if !has_ended {
                return etcd;
            }
            // Somebody was given one of the ports meanwhile.
        }
        panic!("etcd does not start");
    }

    fn post(&self, path: &str, body: &str) -> Option<Value> {
        let mut stream = TcpStream::connect(("127.0.0.1", self.port)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        let length = body.len();
        write!(stream, "POST {path} HTTP/1.0\r\ncontent-length: {length}\r\n\r\n{body}").ok()?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).ok()?;
        let (head, body) = answer.split_once("\r\n\r\n")?;
        head.split(' ').nth(1).filter(|status| *status == "200")?;
        serde_json::from_str(body).ok()
    }

    fn grant(&self, id: &str, seconds: u64) {
        let granted = self.post("/v3/lease/grant", &format!(r#"{{"ID":"{id}","TTL":"{seconds}"}}"#));
        assert_eq!(granted.unwrap()["ID"], id);
    }

    fn left(&self, id: &str) -> Value {
        self.post("/v3/lease/timetolive", &format!(r#"{{"ID":"{id}"}}"#)).unwrap()["TTL"].clone()
    }

    fn cluster(&self) -> String {
        let answer = self.post("/v3/lease/timetolive", r#"{"ID":"1"}"#).unwrap();
        answer["header"]["cluster_id"].as_str().unwrap().to_owned()
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free() -> u16 {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// A helper whose launcher registered it by an etcd lease.
fn fleet_helper(desk: &Desk, lease: &str) -> i32 {
    let file = desk.planted.path(&format!("{lease}.pid"));
    let line = "echo $$ >\"$0.new\"; mv \"$0.new\" \"$0\"; exec \"$1\" run --exec --holder $$ --label \"etcd-lease=$2\" -- sleep 600";
    let started = desk
        .planted
        .command("setsid")
        .args(["--fork", "sh", "-c", line])
        .arg(&file)
        .args([env!("CARGO_BIN_EXE_reapd"), lease])
        .env("REAPD_LEASES", desk.leases())
        .env("REAPD_CONFIG", desk.config())
        .status()
        .unwrap();
    assert!(started.success());
    let pid = desk.planted.pid_in(&file);
    wait_for("the helper", || crate::desk::runs(pid, "sleep"));
    pid
}

#[test]
fn an_etcd_lease_that_lapses_ends_its_helper_and_an_etcd_that_is_away_ends_nobody() {
    if !has_etcd() {
        return;
    }
    let desk = Desk::new();
    let etcd = Etcd::start(&desk, "ours", None);
    let mut recipe = recipe("fleet");
    recipe = recipe
        .replace(":2379/", &format!(":{}/", etcd.port))
        .replace("14841639068965178418", &etcd.cluster());
    desk.reconfigure(|text| format!("{text}\n{recipe}"));
    etcd.grant("701", 3);
    etcd.grant("702", 3600);
    let (lapsing, kept) = (fleet_helper(&desk, "701"), fleet_helper(&desk, "702"));
    let sweep = || {
        let swept = desk.reapd(&["sweep", "--yes"]);
        assert!(swept.status.success(), "{}", text(&swept));
    };
    let alive = || [lapsing, kept].map(|pid| desk.planted.is_alive(pid));

    for _ in 0..3 {
        let renewed = etcd.post("/v3/lease/keepalive", r#"{"ID":"701"}"#).unwrap();
        assert_eq!(renewed["result"]["TTL"], "3");
        is(&desk, lapsing, "alive", "lists it");
    }
    wait_for("the lease to lapse", || etcd.left("701") == "-1");
    is(&desk, lapsing, "suspect", "/TTL = -1");
    is(&desk, kept, "alive", "lists it");

    // Not there, and another one in its place, which knows neither lease: nobody is ended.
    let port = etcd.port;
    drop(etcd);
    is(&desk, lapsing, "unknown", "connecting to its server");
    sweep();
    assert_eq!(alive(), [true, true]);
    let other = Etcd::start(&desk, "theirs", Some(port));
    assert_eq!(other.left("702"), "-1");
    is(&desk, kept, "unknown", "another server answers there");
    sweep();
    assert_eq!(alive(), [true, true]);
    drop(other);

    let etcd = Etcd::start(&desk, "ours", Some(port));
    wait_for("its leases to be back", || etcd.left("702") != "-1" && etcd.left("701") == "-1");
    sweep();
    assert_eq!(alive(), [false, true]);
}
