//! A gateway that opens a real MCP server for each session and forgets one while it lives on: what no look from
//! outside can prove, and what a lease or `reapd run` makes a fact.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use crate::desk::{Desk, text};
use crate::planted::wait_for;

/// Returns a Python that has the `mcp` package, or says why the test is skipped.
#[expect(clippy::print_stderr, reason = "who reads the tests' output must know what was not tested")]
fn python_with_mcp() -> Option<PathBuf> {
    let named = std::env::var_os("REAPD_MCP_PYTHON").map(PathBuf::from);
    let python = named.unwrap_or_else(|| "python3".into());
    let has = Command::new(&python)
        .args(["-c", "import sys, mcp.server.mcpserver; print(sys.executable)"])
        .stderr(Stdio::null())
        .output()
        .ok()
        .filter(|output| output.status.success());
    let required = std::env::var_os("REAPD_REQUIRE_MCP").is_some_and(|value| value == "1");
    match has {
        Some(_) => Some(python),
        None if required => panic!("REAPD_REQUIRE_MCP=1, and {} has no mcp package", python.display()),
        None => {
            eprintln!("skipped: {} has no mcp package (pip install mcp; REAPD_MCP_PYTHON)", python.display());
            None
        }
    }
}

/// A running gateway.
struct Gateway {
    child: Child,
    orders: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
}

/// A session's processes: whoever serves, its parent, and its helper.
#[derive(Debug, Clone, Copy)]
struct Session {
    server: i32,
    parent: i32,
    helper: i32,
}

impl Gateway {
    fn start(desk: &Desk, python: &Path) -> Gateway {
        let shapes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes");
        let mut child = desk
            .planted
            .command("setsid")
            .arg("--wait")
            .arg(python)
            .arg(shapes.join("gateway.py"))
            .arg(shapes.join("mcp_server.py"))
            .arg(env!("CARGO_BIN_EXE_reapd"))
            .env_remove("PYTHONHOME")
            .env("REAPD_LEASES", desk.leases())
            .env("REAPD_CONFIG", desk.config())
            .env("REAPD_STATE", desk.planted.path("state"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let orders = child.stdin.take();
        let answers = BufReader::new(child.stdout.take().unwrap());
        Gateway { child, orders, answers }
    }

    fn order(&mut self, order: &str) -> String {
        writeln!(self.orders.as_mut().unwrap(), "{order}").unwrap();
        let mut answer = String::new();
        self.answers.read_line(&mut answer).unwrap();
        assert!(!answer.is_empty(), "the gateway ended at '{order}'");
        answer.trim_end().to_owned()
    }

    fn open(&mut self, order: &str) -> Session {
        let answer = self.order(order);
        let pids: Vec<i32> = answer.split(' ').map(|pid| pid.parse().unwrap()).collect();
        Session { server: pids[0], parent: pids[1], helper: pids[2] }
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        self.orders.take();
        // `setsid --wait` passes its child's end on; what is planted is ended by the desk.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn is_alive(desk: &Desk, session: Session) -> [bool; 2] {
    [session.server, session.helper].map(|pid| desk.planted.is_alive(pid))
}

/// Sweeps as a timer does until a session is gone.
fn sweep_until_gone(desk: &Desk, session: Session) -> String {
    let mut said = String::new();
    wait_for("the forgotten session to go", || {
        said.push_str(&text(&desk.reapd(&["sweep", "--once", "--yes"])));
        is_alive(desk, session) == [false, false]
    });
    said
}

#[test]
fn without_a_record_a_forgotten_session_is_told_of_and_kept() {
    let Some(python) = python_with_mcp() else { return };
    let desk = Desk::new();
    desk.configure(concat!(
        "\n[process.gateway-tool]\nmatch = { program = \"python*\", args = [\"**/mcp_server.py\"] }\n",
        "reap-when = [{ stdin-abandoned = true }]\n",
    ));
    let mut gateway = Gateway::start(&desk, &python);
    let forgotten = gateway.open("open one bare");
    let live = gateway.open("open two bare");
    gateway.order("forget one");
    for _ in 0..3 {
        let swept = desk.reapd(&["sweep", "--yes", "--exit-code"]);
        assert!(swept.status.success(), "{}", text(&swept));
    }
    // The package moves the protocol off fd 0, which reads /dev/null then: from outside it is just a live child.
    let told = text(&desk.reapd(&["why", &forgotten.server.to_string()]));
    assert!(told.contains("KEEP") && told.contains("gateway.py is alive"), "{told}");
    assert_eq!(is_alive(&desk, forgotten), [true, true]);
    assert_eq!(gateway.order("call two hello"), "hello");
    assert_eq!(is_alive(&desk, live), [true, true]);
}

#[test]
fn a_released_lease_ends_the_forgotten_session_and_spares_its_twin() {
    let Some(python) = python_with_mcp() else { return };
    let desk = Desk::new();
    let mut gateway = Gateway::start(&desk, &python);
    let forgotten = gateway.open("open one held");
    let live = gateway.open("open two held");
    let list = text(&desk.reapd(&["lease", "list"]));
    assert!(list.contains("one") && list.contains("held"), "{list}");
    let quiet = desk.reapd(&["sweep", "--yes", "--exit-code"]);
    assert!(quiet.status.success(), "both are held:\n{}", text(&quiet));

    gateway.order("release one");
    let list = text(&desk.reapd(&["lease", "list"]));
    assert!(list.contains("released"), "{list}");
    let why = text(&desk.reapd(&["why", &forgotten.server.to_string()]));
    assert!(why.contains("lease-expired"), "{why}");
    let said = sweep_until_gone(&desk, forgotten);
    assert_eq!(is_alive(&desk, live), [true, true], "{said}");
    assert_eq!(gateway.order("call two hello"), "hello");
    let why = text(&desk.reapd(&["why", &forgotten.server.to_string()]));
    assert!(why.contains("gone, ") && why.contains("released"), "{why}");
    let why = text(&desk.reapd(&["why", &live.server.to_string()]));
    assert!(why.contains("KEEP"), "{why}");
}

#[test]
fn a_lease_that_is_not_renewed_ends_the_forgotten_session_and_spares_its_twin() {
    let Some(python) = python_with_mcp() else { return };
    let desk = Desk::new();
    let mut gateway = Gateway::start(&desk, &python);
    let forgotten = gateway.open("open one ttl 2");
    let live = gateway.open("open two ttl 2");
    gateway.order("forget one");
    let said = sweep_until_gone(&desk, forgotten);
    assert_eq!(is_alive(&desk, live), [true, true], "{said}");
    assert_eq!(gateway.order("call two hello"), "hello");
    let list = text(&desk.reapd(&["lease", "list"]));
    assert!(list.contains("two"), "{list}");
}

#[test]
fn behind_reapd_run_an_idle_session_ends_and_a_used_one_does_not() {
    let Some(python) = python_with_mcp() else { return };
    let desk = Desk::new();
    let mut gateway = Gateway::start(&desk, &python);
    let forgotten = gateway.open("open one run --idle 5s");
    let live = gateway.open("open two run --idle 5s");
    assert_ne!(forgotten.parent, live.parent, "each has a watcher of its own");
    gateway.order("forget one");
    wait_for("the idle session to end", || {
        assert_eq!(gateway.order("call two hello"), "hello");
        is_alive(&desk, forgotten) == [false, false]
    });
    assert_eq!(is_alive(&desk, live), [true, true]);
    wait_for("its watcher to go", || !desk.planted.is_alive(forgotten.parent));
}

#[test]
fn a_killed_client_leaves_its_servers_helper_bare_and_nothing_behind_reapd_run() {
    let Some(python) = python_with_mcp() else { return };
    let desk = Desk::new();
    let mut gateway = Gateway::start(&desk, &python);
    let bare = gateway.open("open one bare");
    let run = gateway.open("open two run");
    let client = desk
        .planted
        .all()
        .into_iter()
        .find(|pid| {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|argv| {
                argv.windows(10).any(|part| part == b"gateway.py") && !argv.starts_with(b"setsid")
            })
        })
        .unwrap();
    desk.planted.end(client);
    wait_for("both servers to see their end", || {
        !desk.planted.is_alive(bare.server) && !desk.planted.is_alive(run.server)
    });
    wait_for("the helper behind reapd run to be ended", || !desk.planted.is_alive(run.helper));
    assert!(desk.planted.is_alive(bare.helper), "bare, the helper is left behind");
}
