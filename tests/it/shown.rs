//! The main job as a user meets it: two dead trees among everything that merely looks dead.

use std::fs;
use std::path::{Path, PathBuf};

use crate::broker::stand::Host;
use crate::desk::{Desk, text};
use crate::planted::{MARK, Planted, wait_for};
use crate::support::program;

fn shapes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes")
}

/// Lays out a package as npm does, and returns its script.
fn package(planted: &Planted) -> PathBuf {
    let package = planted.path("lib/node_modules/@modelcontextprotocol/server-filesystem/dist");
    fs::create_dir_all(&package).unwrap();
    program::copy(shapes().join("npx"), planted.path("lib/npx"));
    program::copy(shapes().join("files-server"), package.join("index.js"));
    package.join("index.js")
}

/// Starts an MCP client with one server behind its wrapper; returns the client's pid and the wrapper's.
fn client(planted: &Planted, script: &Path, name: &str) -> (i32, i32) {
    let pids = planted.path(&format!("{name}.pids"));
    planted.detached(&format!(
        "exec \"$PYTHON\" {} {} node {} -y @modelcontextprotocol/server-filesystem {}",
        shapes().join("client.py").display(),
        pids.display(),
        planted.path("lib/npx").display(),
        script.display()
    ));
    planted.pid_in(&pids);
    let text = fs::read_to_string(&pids).unwrap();
    let mut numbers = text.split_whitespace().map(|word| word.parse().unwrap());
    let (client, server) = (numbers.next().unwrap(), numbers.next().unwrap());
    wait_for("the server behind its wrapper", || planted.below(server).len() == 1);
    (client, server)
}

/// What was saved of this host names nobody, and is judged as the host was.
fn the_same_in_a_saved_world(desk: &Desk, session: &str, condemned: &[(i64, &str)]) {
    let file = desk.planted.path("world.txt");
    let saved = desk.reapd(&["observe", "--save", file.to_str().unwrap()]);
    assert!(saved.status.success(), "{}", text(&saved));
    let world = fs::read_to_string(&file).unwrap();
    let host = rustix::system::uname().nodename().to_string_lossy().into_owned();
    let base = desk.planted.path("").file_name().unwrap().to_str().unwrap().to_owned();
    for private in [host.as_str(), base.as_str(), session, "dead-client", "dev-server"] {
        assert!(!world.contains(private), "{private} is in a saved world");
    }
    // The mark's value became another word, the same one for all that bear it.
    let (row, mark) = (format!("  env {} ", condemned[0].0), format!("{MARK}="));
    let value = world
        .lines()
        .filter_map(|line| line.strip_prefix(&row))
        .find_map(|variables| variables.split(' ').find_map(|variable| variable.strip_prefix(&mark)))
        .expect("the mark is in the world");
    let config = desk.planted.config();
    let admits = format!("admit-env = \"{MARK}={value}\"");
    let config: Vec<&str> =
        config.lines().map(|line| if line.starts_with("admit-env") { &admits } else { line }).collect();
    let (said, _) = crate::scenarios::play(&world, Some(&config.join("\n"))).unwrap();
    let suspects = said.lines().filter_map(|line| line.trim().split_once(": suspect"));
    let mut again: Vec<String> = suspects.map(|(who, _)| who.to_owned()).collect();
    again.sort_unstable();
    let mut before: Vec<String> = condemned.iter().map(|(pid, policy)| format!("{pid} {policy}")).collect();
    before.sort_unstable();
    assert_eq!(again, before, "{said}");
}

#[test]
fn two_dead_trees_are_ended_whole_and_nothing_else() {
    let host = Host::new();
    let desk = &host.desk;
    let planted = &desk.planted;
    let script = package(planted);

    // The two dead ones.
    let dead_one = host.broker("dead", "servers=2 deaf-helper");
    let dead_broker = dead_one.pid;
    let (dead_client, dead_server) = client(planted, &script, "dead-client");
    // A live twin of each.
    let live_broker = host.broker("live", "servers=2 deaf-helper").pid;
    let (live_client, live_server) = client(planted, &script, "live-client");
    // What merely looks dead.
    let lookalikes = [
        ("tmux", planted.tmux()),
        ("ssh-agent", planted.ssh_agent()),
        ("nohup job", planted.marked("nohup sleep 600 >nohup.log 2>&1 </dev/null", "nohup")),
        ("rebuilt directory", planted.dev_server()),
        ("waiting pipeline", planted.pipeline(&script)),
    ];
    wait_for("the live broker's whole tree", || planted.below(live_broker).len() == 5);
    let mut dead: Vec<i32> = Vec::new();
    wait_for("the trees that are to die", || {
        dead = [dead_broker, dead_server]
            .into_iter()
            .flat_map(|root| planted.below(root).into_iter().chain([root]))
            .collect();
        dead.len() == 8
    });

    fs::remove_dir(&dead_one.workspace).unwrap();
    planted.end(dead_client);
    wait_for("the client to be gone", || !planted.is_alive(dead_client));

    let dry = desk.reapd(&["sweep", "--dry-run", "--json"]);
    assert!(dry.status.success(), "{}", text(&dry));
    let found: serde_json::Value = serde_json::from_slice(&dry.stdout).unwrap();
    let mut condemned: Vec<(i64, &str)> = found["trees"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|tree| matches!(tree["verdict"].as_str(), Some("suspect" | "orphaned")))
        .map(|tree| (tree["root"]["pid"].as_i64().unwrap(), tree["policy"].as_str().unwrap()))
        .collect();
    condemned.sort_unstable();
    let mut expected = [(i64::from(dead_broker), "codex-broker"), (i64::from(dead_server), "mcp-server")];
    expected.sort_unstable();
    assert_eq!(condemned, expected, "{}", text(&dry));
    assert!(!planted.path("state").exists(), "a dry run writes nothing");
    for &pid in &dead {
        assert!(planted.is_alive(pid), "a dry run ends nothing");
    }

    the_same_in_a_saved_world(desk, dead_one.session.file_name().unwrap().to_str().unwrap(), &condemned);

    let swept = desk.reapd(&["sweep", "--yes"]);
    assert!(swept.status.success(), "{}", text(&swept));
    for &pid in &dead {
        assert!(!planted.is_alive(pid), "{pid} is left of {dead:?}:\n{}", text(&swept));
    }
    for pid in [live_broker, live_client, live_server].into_iter().chain(planted.below(live_broker)) {
        assert!(planted.is_alive(pid), "{pid} was ended:\n{}", text(&swept));
    }
    assert_eq!(planted.below(live_broker).len(), 5);
    for (name, pid) in lookalikes {
        assert!(planted.is_alive(pid), "{name} was ended:\n{}", text(&swept));
    }

    let again = desk.reapd(&["sweep", "--yes", "--exit-code"]);
    assert!(again.status.success(), "a second sweep finds nothing:\n{}", text(&again));

    for pid in [dead_broker, dead_server] {
        let why = desk.reapd(&["why", &pid.to_string()]);
        let said = text(&why);
        assert!(said.contains("gone, "), "why {pid}:\n{said}");
    }
    assert!(text(&desk.reapd(&["why", &dead_broker.to_string()])).contains("deleted"));
    for pid in [live_broker, live_server].into_iter().chain(lookalikes.map(|(_, pid)| pid)) {
        let said = text(&desk.reapd(&["why", &pid.to_string()]));
        assert!(said.contains("KEEP"), "why {pid}:\n{said}");
    }
}
