//! The public cases with real processes and the real binary: each family is planted at once, swept once under policies
//! that would take everything, and each root is checked by name. What is kept has a twin beside it that differs in the
//! gate alone and is ended.

mod directories;
mod owners;
mod streams;
mod terminals;
mod trees;
mod users;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::patience::patiently;
use crate::planted::Planted;
use crate::support::program;

/// What must become of a root.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// It is gone with everybody below it, and reapd says so.
    Ended,
    /// It lives, and this is part of what reapd says of it.
    Kept(&'static str),
}

use Fate::{Ended, Kept};

/// One family of shapes, standing.
struct Field {
    planted: Planted,
}

/// What a sweep said, and whom it was asked of.
struct Swept {
    trees: BTreeMap<i32, Value>,
    teardowns: BTreeMap<i32, Value>,
    said: String,
}

impl Field {
    /// Plants every shape of a family.
    fn plant(family: &str) -> Field {
        let field = Field::prepare();
        field.grow(family);
        field
    }

    /// Lays the scripts out; nothing is started.
    fn prepare() -> Field {
        let planted = Planted::new();
        let shapes = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes");
        for script in ["plant.py", "server.py"] {
            program::copy(shapes.join(script), planted.path(script));
        }
        for directory in ["home", "run", "throwaway"] {
            fs::create_dir(planted.path(directory)).unwrap();
        }
        let field = Field { planted };
        fs::write(field.config(), field.policies()).unwrap();
        field
    }

    fn grow(&self, family: &str) {
        let errors = fs::File::create(self.planted.path("plant.err")).unwrap();
        let status = self
            .planted
            .command("python3")
            .arg(self.planted.path("plant.py"))
            .arg(self.planted.path(""))
            .arg(family)
            .stderr(errors)
            .status()
            .unwrap();
        let said = fs::read_to_string(self.planted.path("plant.err")).unwrap();
        assert!(status.success(), "the family {family} does not stand: {said}");
    }

    fn config(&self) -> PathBuf {
        self.planted.path("config.toml")
    }

    /// Policies that take whatever their one proof allows. They fit the scripts of this very directory alone.
    fn policies(&self) -> String {
        let mut text = self.planted.config();
        text.push_str(
            "\n[limits]\nsame-cause = 1000\n\n[escalation]\nladder = [\"TERM 300ms\", \"KILL 20s\"]\n",
        );
        let script = self.planted.path("server.py");
        let throwaway = self.planted.path("throwaway");
        let proofs = [
            ("streams", "stdin-abandoned = true".to_owned(), ""),
            ("private", "stdin-abandoned = true".to_owned(), "private-listeners = [\"**/private-*.sock\"]\n"),
            ("terminals", "terminal-gone = true".to_owned(), ""),
            ("directories", "cwd-gone = \"{workspace}\"".to_owned(), ""),
            ("roots", format!("cwd-gone = {{ roots = [\"{}\"] }}", throwaway.display()), ""),
            ("owner", "owner-gone = \"{owner}\"".to_owned(), ""),
            ("spawner", "owner-gone = { spawner = \"dies-with\" }".to_owned(), ""),
        ];
        for (name, proof, more) in &proofs {
            let _ = write!(
                text,
                "\n[process.{name}]\nmatch = {{ program = \"*\", args = [\"{}\", \"{name}\", \"...\"] }}\n\
                 reap-when = [{{ {proof} }}]\n{more}",
                script.display(),
            );
            match *name {
                "directories" => {
                    text.push_str("[process.directories.capture]\nworkspace = { flag = \"--cwd\" }\n");
                }
                "owner" => text.push_str("[process.owner.capture]\nowner = { flag = \"--owner\" }\n"),
                _ => {}
            }
        }
        // Daemons that whole logins share: nothing of theirs names this directory but where they stand.
        let _ = write!(
            text,
            "\n[process.shared]\nmatch = {{ program = [\"tmux\", \"ssh-agent\", \"sleep\"] }}\n\
             reap-when = [{{ cwd-gone = {{ roots = [\"{}\"] }} }}]\n",
            throwaway.display(),
        );
        text
    }

    /// A command line of reapd's, with this field's configuration and state.
    fn reapd(&self, arguments: &[&str]) -> Command {
        // In a session of its own: nothing in its session is ever touched.
        let mut command = Command::new("setsid");
        command
            .arg("--wait")
            .arg(env!("CARGO_BIN_EXE_reapd"))
            .args(arguments)
            .arg("--config")
            .arg(self.config())
            .arg("--state-dir")
            .arg(self.planted.path("state"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.planted.path("home"))
            .env("XDG_RUNTIME_DIR", self.planted.path("run"))
            .stdin(Stdio::null());
        command
    }

    fn sweep(&self) -> Swept {
        let output = patiently(&mut self.reapd(&["sweep", "--yes", "--json"]));
        let said = String::from_utf8_lossy(&output.stderr);
        let swept = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {said}\n{swept}", output.status);
        Swept::read(&output.stdout)
    }

    /// The pids that a shape wrote: its own, and those of the processes it started.
    fn pids(&self, name: &str) -> Vec<i32> {
        let file = self.planted.path(&format!("{name}.pid"));
        self.planted.pid_in(&file);
        let text = fs::read_to_string(file).unwrap();
        text.split_whitespace().map(|word| word.parse().unwrap()).collect()
    }

    /// Checks one root after another, and shows all that is wrong at once.
    fn check(&self, swept: &Swept, expected: &[(&str, Fate)]) {
        let mut wrong = Vec::new();
        for &(name, fate) in expected {
            let pids = self.pids(name);
            let lives = self.lives(pids[0]);
            let because = self.because(swept, pids[0]);
            let right = match fate {
                Ended => {
                    !lives
                        && pids.iter().all(|&pid| !self.planted.is_alive(pid))
                        && swept.teardowns.get(&pids[0]).is_some_and(|one| one["closure"] == "gone")
                }
                Kept(why) => lives && !swept.teardowns.contains_key(&pids[0]) && because.contains(why),
            };
            if !right {
                let lives = if lives { "lives" } else { "is gone" };
                wrong.push(format!("{name} ({}): expected {fate:?}, it {lives}: {because}", pids[0]));
            }
        }
        assert!(
            wrong.is_empty(),
            "{}\n{:#?}",
            wrong.join("\n"),
            swept.teardowns.values().map(Value::to_string).collect::<Vec<_>>()
        );
    }

    /// Says whether a process runs, be it with its first thread gone (C24).
    fn lives(&self, pid: i32) -> bool {
        let threads = fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
        self.planted.is_alive(pid) || threads > 1
    }

    /// What the sweep said of a root; of one that it did not judge, what `why` says.
    fn because(&self, swept: &Swept, pid: i32) -> String {
        if let Some(tree) = swept.trees.get(&pid) {
            let evidence = tree["evidence"].as_array().unwrap().iter();
            let whys: Vec<&str> = evidence.filter_map(|entry| entry["why"].as_str()).collect();
            return format!("{} because {}: {}", tree["verdict"], tree["because"], whys.join("; "));
        }
        let said = self.reapd(&["why", &pid.to_string()]).output().unwrap();
        String::from_utf8(said.stdout).unwrap()
    }
}

impl Swept {
    fn read(json: &[u8]) -> Swept {
        let said = String::from_utf8(json.to_vec()).unwrap();
        let json: Value = serde_json::from_str(&said).unwrap();
        let by_root = |key: &str| {
            let list = json[key].as_array().unwrap().iter();
            list.map(|one| {
                // A tree tells its root's whole identity, a teardown its number.
                let pid = one["root"]["pid"].as_i64().or(one["root"].as_i64()).unwrap();
                (i32::try_from(pid).unwrap(), one.clone())
            })
            .collect()
        };
        Swept { trees: by_root("trees"), teardowns: by_root("teardowns"), said }
    }

    /// The signals that a member got.
    fn signals(&self, root: i32, pid: i32) -> Vec<String> {
        let members = self.teardowns[&root]["members"].as_array().unwrap();
        let member = members.iter().find(|member| member["pid"] == pid).expect("it is a member");
        let signals = member["signals"].as_array().unwrap().iter();
        signals.map(|signal| signal.as_str().unwrap().to_owned()).collect()
    }
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}
