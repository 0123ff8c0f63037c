//! An ordinary user on a host with other users' processes: theirs are not judged, and one's own are.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::desk::text;
use crate::planted::{Planted, wait_for};
use crate::support::program;

/// nobody, of no group that anything belongs to.
const USER: u32 = 65_534;
const PYTHON: &str = "/usr/bin/python3";

/// A home of that user with a server in its MCP configuration.
struct Nobody {
    planted: Planted,
}

impl Nobody {
    fn new() -> Nobody {
        let planted = Planted::new();
        let base = planted.path("");
        fs::set_permissions(&base, fs::Permissions::from_mode(0o755)).unwrap();
        let shapes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes");
        program::copy(shapes.join("client.py"), planted.path("client.py"));
        let binary = planted.path("reapd");
        // The build may be where that user cannot go.
        if fs::hard_link(env!("CARGO_BIN_EXE_reapd"), &binary).is_err() {
            program::copy(env!("CARGO_BIN_EXE_reapd"), &binary);
        }
        for directory in ["home/.config/reapd", "run", "state", "pids"] {
            fs::create_dir_all(planted.path(directory)).unwrap();
        }
        let server = planted.path("home/server.py");
        program::copy(shapes.join("files-server"), &server);
        let entry = serde_json::json!({ "command": PYTHON, "args": [server, "--stdio"] });
        let servers = serde_json::json!({ "mcpServers": { "files": entry } });
        fs::write(planted.path("home/.claude.json"), servers.to_string()).unwrap();
        fs::write(planted.path("home/.config/reapd/config.toml"), planted.config()).unwrap();
        for path in [
            "home",
            "home/.config",
            "home/.config/reapd",
            "home/.config/reapd/config.toml",
            "run",
            "state",
            "pids",
        ] {
            let path = planted.path(path);
            if path.is_dir() {
                fs::set_permissions(&path, fs::Permissions::from_mode(0o700)).unwrap();
            }
            chown(path, Some(USER), Some(USER)).unwrap();
        }
        Nobody { planted }
    }

    /// Starts the configured server as a user, ends its client, and returns the server's pid.
    fn orphan(&self, user: u32) -> i32 {
        let planted = &self.planted;
        let pids = planted.path("pids").join(user.to_string());
        let started = planted
            .command("setsid")
            .arg("--fork")
            .args(as_user(user))
            .arg(PYTHON)
            .args([&planted.path("client.py"), &pids])
            .arg(PYTHON)
            .arg(planted.path("home/server.py"))
            .arg("--stdio")
            .env_remove("PYTHON")
            .env_remove("PYTHONHOME")
            .status()
            .unwrap();
        assert!(started.success());
        let client = planted.pid_in(&pids);
        let server = fs::read_to_string(pids).unwrap();
        let server = server.split_whitespace().nth(1).unwrap().parse().unwrap();
        wait_for("the server to read", || planted.below(client) == [server]);
        planted.end(client);
        wait_for("the client to be gone", || !planted.is_alive(client));
        server
    }

    /// Runs reapd as that user.
    fn reapd(&self, arguments: &[&str]) -> Output {
        let [program, rest @ ..] = &as_user(USER)[..] else { panic!("no command") };
        Command::new(program)
            .args(rest)
            .arg(self.planted.path("reapd"))
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.planted.path("home"))
            .env("XDG_RUNTIME_DIR", self.planted.path("run"))
            .env("XDG_STATE_HOME", self.planted.path("state"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }
}

fn as_user(user: u32) -> Vec<String> {
    let words = ["setpriv", "--reuid", "USER", "--regid", "USER", "--clear-groups"];
    words.into_iter().map(|word| word.replace("USER", &user.to_string())).collect()
}

#[test]
#[expect(clippy::print_stderr, reason = "who reads the tests' output must know what was not tested")]
fn others_are_not_judged_and_the_own_configured_server_is_b23() {
    if !rustix::process::geteuid().is_root() || !Path::new(PYTHON).exists() {
        eprintln!("skipped: only root can start processes of another user, with {PYTHON}");
        return;
    }
    let nobody = Nobody::new();
    let (theirs, own) = (nobody.orphan(0), nobody.orphan(USER));

    let dry = nobody.reapd(&["sweep", "--dry-run", "--json"]);
    assert!(dry.status.success(), "{}", text(&dry));
    assert!(dry.stderr.is_empty(), "{}", text(&dry));
    let found: Value = serde_json::from_slice(&dry.stdout).unwrap();
    let judged: Vec<(i64, &str, &str)> = found["trees"]
        .as_array()
        .unwrap()
        .iter()
        .map(|tree| {
            let word = |name: &str| tree[name].as_str().unwrap();
            (tree["root"]["pid"].as_i64().unwrap(), word("policy"), word("verdict"))
        })
        .collect();
    assert_eq!(judged, [(i64::from(own), "mcp-server", "suspect")], "{}", text(&dry));
    assert_eq!(found["user"], USER);

    let why = nobody.reapd(&["why", &theirs.to_string()]);
    assert!(why.status.success() && why.stderr.is_empty(), "{}", text(&why));
    assert!(text(&why).contains("KEEP") && text(&why).contains("another user"), "{}", text(&why));

    let swept = nobody.reapd(&["sweep", "--yes"]);
    assert!(swept.status.success(), "{}", text(&swept));
    assert!(!nobody.planted.is_alive(own), "{}", text(&swept));
    assert!(nobody.planted.is_alive(theirs), "{}", text(&swept));
}
