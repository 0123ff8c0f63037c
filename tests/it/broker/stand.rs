//! A host with brokers of the codex plugin on it: the plugin, a temporary directory, a state root and workspaces, and
//! the companions that start brokers and speak to them.

use std::collections::BTreeMap;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver};
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::desk::{Desk, text};
use crate::patience::patiently;
use crate::planted::{MARK, wait_for};
use crate::support::program;
use crate::turn::turn;

/// A desk with the plugin laid out.
pub(crate) struct Host {
    pub(crate) desk: Desk,
}

/// One broker, as whoever started it knows it.
#[derive(Debug, Clone)]
pub(crate) struct Broker {
    pub(crate) pid: i32,
    pub(crate) workspace: PathBuf,
    /// `cxc-XXXXXX`.
    pub(crate) session: PathBuf,
    pub(crate) socket: PathBuf,
    /// Its `broker.json`.
    pub(crate) record: PathBuf,
}

/// Where a broker is to be.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    name: String,
    pub(crate) workspace: PathBuf,
    pub(crate) session: PathBuf,
}

/// A name as mkdtemp(3) makes them. The same one in another directory, of tests that run elsewhere on this host, may be
/// this very directory as another mount namespace has it, and whatever is there keeps it.
pub(crate) fn session_name() -> String {
    const LETTERS: &[u8; 36] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let letters = |mut number: u32| {
        [0; 3].map(|_: u8| {
            let letter = LETTERS[(number % 36) as usize];
            number /= 36;
            char::from(letter)
        })
    };
    // The numbers of processes that run at one time rarely agree in three letters, and never where there are 32,768.
    letters(std::process::id()).into_iter().chain(letters(count)).fold(
        "cxc-".to_owned(),
        |mut name, letter| {
            name.push(letter);
            name
        },
    )
}

fn shapes() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes")
}

impl Broker {
    /// Writes its record, naming this number.
    pub(crate) fn write_record(&self, pid: i32) {
        let text = serde_json::to_string_pretty(&json!({
            "endpoint": format!("unix:{}", self.socket.display()),
            "pidFile": self.session.join("broker.pid"),
            "logFile": self.session.join("broker.log"),
            "sessionDir": self.session,
            "pid": pid,
        }));
        fs::create_dir_all(self.record.parent().unwrap()).unwrap();
        fs::write(&self.record, text.unwrap() + "\n").unwrap();
    }
}

impl Place {
    /// Means the endpoint of another one instead of its own.
    pub(crate) fn take_over(&mut self, broker: &Broker) {
        self.session.clone_from(&broker.session);
    }
}

impl Host {
    /// Lays out the plugin and what is around it; nothing is started.
    pub(crate) fn new() -> Host {
        let desk = Desk::new();
        let planted = &desk.planted;
        for directory in ["plugin/scripts", "plugin/bin", "plugin/vendor", "runtime", "tmp", "workspaces"] {
            fs::create_dir_all(planted.path(directory)).unwrap();
        }
        fs::create_dir_all(planted.path("data/state")).unwrap();
        program::copy(
            shapes().join("app-server-broker.mjs"),
            planted.path("plugin/scripts/app-server-broker.mjs"),
        );
        for codex in ["plugin/bin/codex", "plugin/vendor/app-server"] {
            program::copy(shapes().join("codex.py"), planted.path(codex));
        }
        // The kernel names a process after the link that it was started by.
        for program in ["node", "codex"] {
            symlink(planted.python(), planted.path("runtime").join(program)).unwrap();
        }
        Host { desk }
    }

    /// Makes a workspace and a session directory, as the companion does.
    pub(crate) fn place(&self, name: &str) -> Place {
        let workspace = self.desk.planted.path(&format!("workspaces/{name}"));
        let session = self.desk.planted.path(&format!("tmp/{}", session_name()));
        fs::create_dir_all(&workspace).unwrap();
        fs::create_dir(&session).unwrap();
        fs::set_permissions(&session, fs::Permissions::from_mode(0o700)).unwrap();
        Place { name: name.to_owned(), workspace, session }
    }

    /// Starts a broker and waits for nothing. `words` make it differ; see the shapes.
    pub(crate) fn spawn(&self, place: &Place, words: &str) {
        let status = self
            .command(place, words, "setsid")
            .args(["--fork", "bash", "-c"])
            .args(line(self, place))
            .status();
        assert!(status.unwrap().success());
    }

    /// A command with the environment that a companion hands on, standing in the workspace.
    pub(crate) fn command(&self, place: &Place, words: &str, program: &str) -> std::process::Command {
        let planted = &self.desk.planted;
        let log = fs::File::create(place.session.join("broker.log")).unwrap();
        let mut command = planted.command(program);
        command
            .current_dir(&place.workspace)
            .env("CLAUDE_PLUGIN_DATA", planted.path("data"))
            .env("CODEX_COMPANION_SESSION_ID", "0b5c8f0e-0000-4000-8000-000000000000")
            .env("CODEX_HOME", planted.path("home/.codex"))
            .env("TMPDIR", planted.path("tmp"))
            .env("REAPD_STAND_IN", words)
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        command
    }

    /// Waits until a broker can be reached, opens a thread in it and writes its record, as the companion does.
    pub(crate) fn ensure(&self, place: &Place) -> Broker {
        let socket = place.session.join("broker.sock");
        let end = Instant::now() + Duration::from_secs(30);
        let mut companion = loop {
            if let Some(companion) = Companion::connect(&socket) {
                break companion;
            }
            assert!(Instant::now() < end, "the broker of {} does not listen: {}", place.name, log(place));
            std::thread::sleep(Duration::from_millis(5));
        };
        companion.ask("initialize", json!({}));
        companion.ask("thread/start", json!({ "cwd": place.workspace }));
        let broker = self.known(place);
        broker.write_record(broker.pid);
        broker
    }

    /// What is known of a broker that has written its pid file.
    pub(crate) fn known(&self, place: &Place) -> Broker {
        let pid = self.desk.planted.pid_in(&place.session.join("broker.pid"));
        Broker {
            pid,
            workspace: place.workspace.clone(),
            session: place.session.clone(),
            socket: place.session.join("broker.sock"),
            record: self
                .desk
                .planted
                .path(&format!("data/state/{}-2c682aaafe75151d/broker.json", place.name)),
        }
    }

    /// Starts a broker whole.
    pub(crate) fn broker(&self, name: &str, words: &str) -> Broker {
        let place = self.place(name);
        self.spawn(&place, words);
        self.ensure(&place)
    }

    /// Starts many, all at once.
    pub(crate) fn brokers(&self, names: &[(&str, &str)]) -> Vec<Broker> {
        let places: Vec<Place> = names
            .iter()
            .map(|(name, words)| {
                let place = self.place(name);
                self.spawn(&place, words);
                place
            })
            .collect();
        places.iter().map(|place| self.ensure(place)).collect()
    }

    /// The pid of a broker's codex: the child that is called so, behind npm's launcher or not.
    pub(crate) fn codex(&self, broker: &Broker) -> i32 {
        let below = self.desk.planted.below(broker.pid);
        below.into_iter().find(|&pid| crate::desk::runs(pid, "codex")).expect("a broker has a codex")
    }

    /// A broker with everybody below it.
    pub(crate) fn tree(&self, broker: &Broker) -> Vec<i32> {
        let mut tree = self.desk.planted.below(broker.pid);
        tree.push(broker.pid);
        tree
    }

    /// The processes of a broker's session that live: they are found by it when their parents are gone too.
    pub(crate) fn in_session(&self, broker: &Broker) -> Vec<i32> {
        self.sessions().remove(&broker.pid).unwrap_or_default()
    }

    /// Everybody planted here that lives, by session.
    pub(crate) fn sessions(&self) -> BTreeMap<i32, Vec<i32>> {
        let mut sessions = BTreeMap::<i32, Vec<i32>>::new();
        for pid in self.desk.planted.all() {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let session = stat.rsplit_once(") ").and_then(|(_, rest)| rest.split(' ').nth(3)?.parse().ok());
            if let Some(session) = session.filter(|_| self.desk.planted.is_alive(pid)) {
                sessions.entry(session).or_default().push(pid);
            }
        }
        sessions
    }

    /// Sends a signal to what was planted here.
    pub(crate) fn send(&self, pid: i32, signal: rustix::process::Signal) {
        assert!(self.desk.planted.all().contains(&pid), "{pid} was not planted here");
        rustix::process::kill_process(rustix::process::Pid::from_raw(pid).unwrap(), signal).unwrap();
    }

    /// Runs reapd and reads the JSON that it prints.
    #[track_caller]
    pub(crate) fn sweep(&self, arguments: &[&str]) -> Report {
        let mut all = vec!["sweep", "--json"];
        all.extend(arguments);
        let _turn = turn();
        let swept = patiently(&mut self.desk.in_session(&all));
        let said = text(&swept);
        assert!(swept.status.success(), "{}: {said}", swept.status);
        Report { json: serde_json::from_slice(&swept.stdout).expect(&said), said }
    }

    /// Sweeps as a timer does until a broker is gone with everybody in its session, and returns all that was said.
    #[track_caller]
    pub(crate) fn sweep_until_gone(&self, broker: &Broker) -> String {
        let end = Instant::now() + Duration::from_secs(30);
        let mut said = String::new();
        while !self.in_session(broker).is_empty() {
            if Instant::now() >= end {
                let why = text(&self.desk.reapd(&["why", &broker.pid.to_string()]));
                panic!("{broker:?} never went:\n{why}\n{said}");
            }
            said.push_str(&text(&self.desk.reapd(&["sweep", "--once", "--yes"])));
        }
        said
    }

    /// The mark as it stands in an environment.
    pub(crate) fn mark(&self) -> String {
        format!("{MARK}={}", self.desk.planted.nonce())
    }
}

/// The shell line that becomes a broker, and its words.
pub(crate) fn line(host: &Host, place: &Place) -> Vec<String> {
    let planted = &host.desk.planted;
    let text = |path: PathBuf| path.to_str().unwrap().to_owned();
    vec![
        "exec -a node \"$0\" \"$@\"".to_owned(),
        text(planted.path("runtime/node")),
        text(planted.path("plugin/scripts/app-server-broker.mjs")),
        "serve".to_owned(),
        "--endpoint".to_owned(),
        format!("unix:{}", place.session.join("broker.sock").display()),
        "--cwd".to_owned(),
        text(place.workspace.clone()),
        "--pid-file".to_owned(),
        text(place.session.join("broker.pid")),
    ]
}

fn log(place: &Place) -> String {
    fs::read_to_string(place.session.join("broker.log")).unwrap_or_default()
}

/// A built-in policy as a policy of the test's own, with these words of it changed.
pub(crate) fn built_in(name: &str, changes: &[(&str, &str)]) -> String {
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("src/config/builtin/{name}.toml"));
    let mut text = fs::read_to_string(file).unwrap();
    for (from, to) in changes {
        assert!(text.contains(from), "{name} has no '{from}'");
        text = text.replace(from, to);
    }
    text
}

/// What a sweep said.
pub(crate) struct Report {
    pub(crate) json: Value,
    pub(crate) said: String,
}

impl Report {
    /// What was said of the tree of this root; nothing where no policy looked at it.
    pub(crate) fn tree(&self, root: i32) -> Option<&Value> {
        self.json["trees"].as_array().unwrap().iter().find(|tree| tree["root"]["pid"] == root)
    }

    /// The verdict on a root, and everything that was said of it.
    #[track_caller]
    pub(crate) fn verdict(&self, root: i32) -> (String, String) {
        let tree = self.tree(root).unwrap_or_else(|| panic!("{root} is not judged:\n{}", self.said));
        (tree["verdict"].as_str().unwrap().to_owned(), tree.to_string())
    }

    /// The roots that are or would be ended, in order.
    pub(crate) fn condemned(&self) -> Vec<i32> {
        let trees = self.json["trees"].as_array().unwrap().iter();
        let mut roots: Vec<i32> = trees
            .filter(|tree| matches!(tree["verdict"].as_str(), Some("suspect" | "orphaned")))
            .map(|tree| i32::try_from(tree["root"]["pid"].as_i64().unwrap()).unwrap())
            .collect();
        roots.sort_unstable();
        roots
    }

    /// What came of the teardown of a root.
    pub(crate) fn teardown(&self, root: i32) -> Option<&Value> {
        self.json["teardowns"].as_array().unwrap().iter().find(|one| one["root"] == root)
    }
}

/// Somebody connected to a broker. What it hears unasked is counted; leaves when dropped.
pub(crate) struct Companion {
    stream: UnixStream,
    answers: Receiver<Value>,
    heard: Arc<AtomicU64>,
    asked: u64,
}

impl Companion {
    /// Connects, where somebody listens.
    pub(crate) fn connect(socket: &Path) -> Option<Companion> {
        let stream = UnixStream::connect(socket).ok()?;
        let (sender, answers) = mpsc::channel();
        let heard = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&heard);
        let reader = BufReader::new(stream.try_clone().unwrap());
        std::thread::spawn(move || {
            for line in reader.lines() {
                let Ok(line) = line else { return };
                let message: Value = serde_json::from_str(&line).unwrap();
                if message["method"].is_null() {
                    let _ = sender.send(message);
                } else {
                    count.fetch_add(1, Ordering::SeqCst);
                }
            }
        });
        Some(Companion { stream, answers, heard, asked: 0 })
    }

    /// Sends one line as it is.
    pub(crate) fn say(&mut self, line: &str) {
        self.stream.write_all(line.as_bytes()).unwrap();
        self.stream.write_all(b"\n").unwrap();
    }

    /// Sends a request and returns at once.
    #[expect(clippy::needless_pass_by_value, reason = "it is written where it is passed")]
    pub(crate) fn request(&mut self, method: &str, params: Value) {
        self.asked += 1;
        let line = json!({ "id": self.asked, "method": method, "params": params }).to_string();
        self.say(&line);
    }

    /// Sends a request and returns its answer.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> Value {
        self.request(method, params);
        self.answer()
    }

    /// The next answer.
    pub(crate) fn answer(&self) -> Value {
        self.answers.recv_timeout(Duration::from_secs(20)).unwrap()
    }

    /// The next answer, if one comes within this time.
    pub(crate) fn answer_within(&self, time: Duration) -> Option<Value> {
        self.answers.recv_timeout(time).ok()
    }

    /// Begins a review that goes on for ever.
    pub(crate) fn review(broker: &Broker) -> Companion {
        let mut companion = Companion::connect(&broker.socket).unwrap();
        companion.ask("initialize", json!({}));
        let begun = companion.ask("review/start", json!({}));
        assert!(begun["result"].is_object(), "{begun}");
        companion.hears();
        companion
    }

    /// Waits until more of a review was heard.
    pub(crate) fn hears(&self) {
        let before = self.heard.load(Ordering::SeqCst);
        wait_for("a review to go on", || self.heard.load(Ordering::SeqCst) > before + 2);
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        // The reading thread has the same connection.
        let _ = self.stream.shutdown(std::net::Shutdown::Both);
    }
}
