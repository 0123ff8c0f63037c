//! Containers and clients of one test, and reapd beside them.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Output, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{PoisonError, RwLock, RwLockReadGuard};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use crate::patience::patiently;
use crate::planted::{MARK, Planted, wait_for};
use crate::support::engine::Stand;
use crate::support::look;
use crate::support::observing::is_root;
use crate::turn::turn;

/// What must become of a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    /// It is not listed any more, and reapd says that it ended it.
    Ended,
    /// It is as it was, and this is part of what reapd says of it.
    Kept(&'static str),
    /// It is as it was, and reapd says nothing of it.
    Unseen,
}

/// Who the clients and reapd are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Role {
    /// Whoever runs the tests.
    Ours,
    /// An ordinary user who may use the engine's socket; only root can become one.
    Nobody,
}

/// Nobody begins or ends anything at an engine while somebody sweeps: a client that comes or goes in the middle of a look
/// is one of which nobody can tell what it was for, and then nothing is ended.
static CALM: RwLock<()> = RwLock::new(());

thread_local! {
    /// Whether this thread has a part in it already: whoever waits for a second one may wait for ever.
    static HAS_PART: Cell<bool> = const { Cell::new(false) };
}

/// A part in the calm, or all of it.
struct Calm<T>(T);

impl<T> Drop for Calm<T> {
    fn drop(&mut self) {
        HAS_PART.set(false);
    }
}

/// Waits until nobody sweeps, and keeps others from it; nothing where this thread sees to that already.
fn in_calm() -> Option<Calm<RwLockReadGuard<'static, ()>>> {
    (!HAS_PART.replace(true)).then(|| Calm(CALM.read().unwrap_or_else(PoisonError::into_inner)))
}

/// Waits until no other test sweeps, or begins or ends anything at an engine, and keeps others from it.
pub(super) fn alone() -> impl Drop {
    let turn = turn();
    assert!(!HAS_PART.replace(true), "it has a part already");
    Calm((CALM.write().unwrap_or_else(PoisonError::into_inner), turn))
}

/// How many of something a test makes: `few`, or `many` where REAPD_TEST_MANY says so.
pub(super) fn many(few: usize, many: usize) -> usize {
    if std::env::var_os("REAPD_TEST_MANY").is_some_and(|value| value == "1") { many } else { few }
}

/// The label of a holder who is dead.
pub(super) fn dead_holder() -> String {
    let mut child = Command::new("sleep").arg("600").spawn().unwrap();
    let pid = reapd::model::id::Pid::new(i32::try_from(child.id()).unwrap()).unwrap();
    let start = look::row(pid).unwrap().id.start;
    child.kill().unwrap();
    child.wait().unwrap();
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    let inode: String = namespace.to_str().unwrap().chars().filter(char::is_ascii_digit).collect();
    format!("dev.reapd.holder={pid}:{}:{}:{inode}", start.0, boot.trim())
}

/// The containers and clients of one test. Whatever bears its mark is removed when it is dropped.
pub(super) struct Field {
    pub(super) stand: Stand,
    pub(super) planted: Planted,
    role: Role,
}

/// A container, and the client that it was started by.
pub(super) struct Started {
    pub(super) id: String,
    pub(super) client: Client,
}

impl Field {
    /// A place on the engine that all tests share; nothing where there is none.
    pub(super) fn new() -> Option<Field> {
        Some(Field::on(Stand::docker()?, Role::Ours))
    }

    /// A place on an engine of its own.
    pub(super) fn alone(role: Role) -> Option<Field> {
        let planted = Planted::new();
        let stand = Stand::own(&planted.path(""))?;
        Some(Field::prepare(stand, planted, role))
    }

    /// A place on this engine.
    pub(super) fn on(stand: Stand, role: Role) -> Field {
        Field::prepare(stand, Planted::new(), role)
    }

    fn prepare(stand: Stand, planted: Planted, role: Role) -> Field {
        let field = Field { stand, planted, role };
        for (directory, bits) in
            [("", 0o755), ("home", 0o700), ("run", 0o700), ("state", 0o700), ("leases", 0o700)]
        {
            let directory = field.planted.path(directory);
            fs::create_dir_all(&directory).unwrap();
            fs::set_permissions(&directory, fs::Permissions::from_mode(bits)).unwrap();
            if role == Role::Nobody && bits == 0o700 {
                std::os::unix::fs::chown(&directory, Some(65534), Some(65534)).unwrap();
            }
        }
        field.configure("");
        field
    }

    /// Writes a configuration that admits what bears the nonce on this engine, takes whatever `client-gone` allows, and
    /// waits no longer than it must; with more behind it.
    pub(super) fn configure(&self, more: &str) {
        self.configure_at(&self.stand.socket, more);
    }

    /// The same for an engine at this socket.
    pub(super) fn configure_at(&self, socket: &Path, more: &str) {
        let reader = self.reader();
        self.write(&format!(
            "\n[docker]\nsocket = \"{}\"\nstdin = \"{reader}\"\n\n[builtin]\ndocker-run = \"off\"\n\n[container.stand]\n\
             match = {{ image = [\"reapd-stand/*\", \"localhost/reapd-stand/*\"] }}\nreap-when = [{{ client-gone = true }}]\ngrace = \"1s\"\n{more}",
            socket.display()
        ));
    }

    /// Returns who reads the streams of containers, which are root's: others have a container read them.
    pub(super) fn reader(&self) -> &'static str {
        if is_root() && self.role == Role::Ours { "auto" } else { "helper" }
    }

    /// Leaves to the kernel who reads a container's streams, in the configuration that is written.
    pub(super) fn without_helper(&self) {
        let text = fs::read_to_string(self.config()).unwrap();
        fs::write(self.config(), text.replace("stdin = \"helper\"", "stdin = \"auto\"")).unwrap();
    }

    /// Writes a configuration that admits what bears the nonce, and this behind it.
    pub(super) fn write(&self, more: &str) {
        let path = self.config();
        fs::write(&path, format!("{}{more}", self.planted.config())).unwrap();
        if self.role == Role::Nobody {
            std::os::unix::fs::chown(&path, Some(65534), Some(65534)).unwrap();
        }
    }

    pub(super) fn config(&self) -> PathBuf {
        self.planted.path("home/config.toml")
    }

    /// A program that is started as whoever the clients are, with the mark.
    pub(super) fn command(&self, program: &Path) -> Command {
        let mut command = match self.role {
            Role::Ours => self.planted.command(program.to_str().unwrap()),
            Role::Nobody => {
                let mut command = self.planted.command("setpriv");
                command.args(["--reuid", "65534", "--regid", "65534", "--clear-groups"]).arg(program);
                command
            }
        };
        command
            .env("DOCKER_HOST", format!("unix://{}", self.stand.socket.display()))
            .env("CONTAINER_HOST", format!("unix://{}", self.stand.socket.display()))
            .env("XDG_RUNTIME_DIR", self.planted.path("run"))
            .env("REAPD_LEASES", self.planted.path("leases"))
            // A test that fails shows it.
            .stderr(Stdio::inherit());
        command
    }

    /// Runs the engine's client to its end.
    pub(super) fn try_docker(&self, words: &[&str]) -> Output {
        let _calm = in_calm();
        self.command(&self.stand.client)
            .args(words)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .output()
            .unwrap()
    }

    /// Runs the engine's client, which must succeed, and returns what it printed.
    pub(super) fn docker(&self, words: &[&str]) -> String {
        let output = self.try_docker(words);
        assert!(output.status.success(), "docker {words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap().trim().to_owned()
    }

    /// The label that marks what this test made.
    pub(super) fn label(&self) -> String {
        format!("{MARK}={}", self.planted.nonce())
    }

    /// The full ids of every container of this test, in whatever state.
    pub(super) fn ids(&self) -> BTreeSet<String> {
        let filter = format!("label={}", self.label());
        self.docker(&["ps", "-aq", "--no-trunc", "--filter", &filter]).lines().map(str::to_owned).collect()
    }

    /// Starts `docker run FLAGS … IMAGE ARGS` without a network, with the mark as a label, and waits for its container to
    /// run.
    pub(super) fn run(&self, flags: &[&str], image: &str, args: &[&str]) -> Started {
        let label = self.label();
        let mut all = vec!["run"];
        all.extend(self.stand.run_flags);
        all.extend(flags);
        if !flags.iter().any(|flag| flag.starts_with("--net")) {
            all.extend(["--network", "none"]);
        }
        let image = format!("reapd-stand/{image}:1");
        all.extend(["--label", &label, &image]);
        all.extend(args);
        self.start(&all)
    }

    /// Starts a client with these words, and waits for the container that it makes to run.
    pub(super) fn start(&self, words: &[&str]) -> Started {
        let mut command = self.command(&self.stand.client);
        command.args(words);
        self.start_by(command)
    }

    /// Starts this command, and waits for the container that it makes to run.
    pub(super) fn start_by(&self, command: Command) -> Started {
        let _calm = in_calm();
        let before = self.ids();
        let client = Client::start(command);
        let mut id = String::new();
        wait_for("the container to be there", || {
            self.ids().difference(&before).next().is_some_and(|new| {
                id.clone_from(new);
                true
            })
        });
        wait_for("the container to have begun", || !["created", "gone"].contains(&self.state(&id).as_str()));
        Started { id, client }
    }

    /// Starts `docker run -d FLAGS IMAGE ARGS`, and returns the id.
    pub(super) fn detached(&self, flags: &[&str], image: &str, args: &[&str]) -> String {
        let mut started = self.run(&[&["-d"], flags].concat(), image, args);
        assert!(started.client.ends().success());
        started.id
    }

    /// Starts a stray: a container whose client was killed after it had answered once.
    pub(super) fn stray(&self, flags: &[&str], image: &str, args: &[&str]) -> String {
        let mut started = self.run(&[&["-i"], flags].concat(), image, args);
        assert_eq!(started.client.ask("first"), "answer to first");
        started.client.kill();
        started.id
    }

    /// A client beside those that made containers.
    pub(super) fn client(&self, words: &[&str]) -> Client {
        let mut command = self.command(&self.stand.client);
        command.args(words);
        Client::start(command)
    }

    /// What the engine says that a container does; `gone` where it does not list it.
    pub(super) fn state(&self, id: &str) -> String {
        let output =
            self.try_docker(&["inspect", "--type", "container", "--format", "{{.State.Status}}", id]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            return String::from_utf8(output.stdout).unwrap().trim().to_owned();
        }
        assert!(said.to_lowercase().contains("no such container"), "{said}");
        "gone".to_owned()
    }

    /// The container's first process.
    pub(super) fn init(&self, id: &str) -> i32 {
        self.docker(&["inspect", "--format", "{{.State.Pid}}", id]).parse().unwrap()
    }

    /// A command line of reapd's, as whoever the clients are, with this field's configuration and state.
    pub(super) fn reapd(&self, arguments: &[&str]) -> Command {
        // In a session of its own: nothing in its session is ever touched. An ordinary user cannot go where it was built.
        let mut command = self.command(Path::new("setsid"));
        let program = match self.role {
            Role::Ours => PathBuf::from(env!("CARGO_BIN_EXE_reapd")),
            Role::Nobody => {
                let copy = self.planted.path("reapd");
                if !copy.exists() {
                    crate::support::program::copy(env!("CARGO_BIN_EXE_reapd"), &copy);
                }
                copy
            }
        };
        command
            .arg("--wait")
            .arg(program)
            .args(arguments)
            .arg("--config")
            .arg(self.config())
            .arg("--state-dir")
            .arg(self.planted.path("state"))
            .env_remove("DOCKER_HOST")
            .env_remove(MARK)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        command
    }

    /// Runs reapd to its end, in turn with every other test.
    pub(super) fn ask(&self, arguments: &[&str]) -> Output {
        let _alone = alone();
        patiently(&mut self.reapd(arguments))
    }

    /// Sweeps, and returns what was said of whom.
    pub(super) fn sweep(&self) -> Swept {
        self.swept(&["--yes"])
    }

    /// Sweeps with these flags, and returns what was said of whom.
    pub(super) fn swept(&self, flags: &[&str]) -> Swept {
        let output = self.ask(&[&["sweep", "--json"], flags].concat());
        let said = String::from_utf8_lossy(&output.stderr);
        let swept = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "{}: {said}{swept}", output.status);
        Swept::read(&output.stdout)
    }

    /// What `reapd why` says.
    pub(super) fn why(&self, id: &str) -> String {
        let output = self.ask(&["why", id]);
        format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
    }

    /// Checks one container after another, and shows all that is wrong at once. Each must have run before the sweep.
    pub(super) fn check(&self, swept: &Swept, expected: &[(&str, &str, Fate)]) {
        let mut wrong = String::new();
        for &(name, id, fate) in expected {
            let state = self.state(id);
            let because = swept.because(id);
            let stop = swept.stops.get(id);
            let right = match fate {
                Fate::Ended => state == "gone" && stop.is_some_and(|stop| stop["outcome"] == "gone"),
                Fate::Kept(why) => {
                    ["running", "paused"].contains(&state.as_str()) && stop.is_none() && because.contains(why)
                }
                Fate::Unseen => state != "gone" && stop.is_none() && !swept.containers.contains_key(id),
            };
            if !right {
                let stop = stop.map(Value::to_string).unwrap_or_default();
                let _ =
                    writeln!(wrong, "{name} ({id:.12}): expected {fate:?}, it is {state}: {because} {stop}");
            }
        }
        assert!(wrong.is_empty(), "\n{wrong}\n{}", swept.said);
    }
}

impl Drop for Field {
    fn drop(&mut self) {
        // An engine of a test's own goes with everything on it; a shared one must be there for others.
        let filter = format!("label={}", self.label());
        let all = self.try_docker(&["ps", "-aq", "--no-trunc", "--filter", &filter]);
        let all = String::from_utf8_lossy(&all.stdout).into_owned();
        let ids: Vec<&str> = all.lines().collect();
        if !ids.is_empty() {
            // Podman's `rm -f` waits for each one's grace.
            let _ = self.try_docker(&[&["kill"], ids.as_slice()].concat());
            let _ = self.try_docker(&[&["rm", "-f", "-v"], ids.as_slice()].concat());
        }
    }
}

/// What a sweep said, and of which containers.
pub(super) struct Swept {
    /// What each policy says of each container, by its id.
    pub(super) containers: BTreeMap<String, Vec<Value>>,
    /// What became of each that was stopped, by its id.
    pub(super) stops: BTreeMap<String, Value>,
    /// All of it, on one line.
    pub(super) said: String,
}

impl Swept {
    pub(super) fn read(json: &[u8]) -> Swept {
        let all: Value =
            serde_json::from_slice(json).unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(json)));
        let list = |key: &str| {
            let list = all[key].as_array().unwrap_or_else(|| panic!("no {key} in {all}")).iter();
            list.map(|one| (one["id"].as_str().unwrap().to_owned(), one.clone())).collect::<Vec<_>>()
        };
        let mut containers: BTreeMap<String, Vec<Value>> = BTreeMap::new();
        for (id, one) in list("containers") {
            containers.entry(id).or_default().push(one);
        }
        Swept { containers, stops: list("container_reports").into_iter().collect(), said: all.to_string() }
    }

    /// What one policy said of a container.
    pub(super) fn by(&self, policy: &str, id: &str) -> &Value {
        let all = self.containers.get(id).into_iter().flatten();
        all.into_iter()
            .find(|one| one["policy"] == policy)
            .unwrap_or_else(|| panic!("{id:.12} by {policy}: {}", self.said))
    }

    /// What was said of a container, by each policy.
    pub(super) fn because(&self, id: &str) -> String {
        let Some(all) = self.containers.get(id) else { return "nothing is said of it".to_owned() };
        let said = all.iter().map(|one| {
            let evidence = one["evidence"].as_array().into_iter().flatten();
            let whys: Vec<&str> = evidence.filter_map(|entry| entry["why"].as_str()).collect();
            format!("{}: {} because {}: {}", one["policy"], one["verdict"], one["because"], whys.join("; "))
        });
        said.collect::<Vec<_>>().join(" | ")
    }
}

/// A running client with pipes. It is ended and waited for when it is dropped.
pub(super) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
}

impl Client {
    pub(super) fn start(mut command: Command) -> Client {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let stdin = child.stdin.take();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        // Ends with the client's output.
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    break;
                }
            }
        });
        Client { child, stdin, lines }
    }

    /// Says a line and returns the answer.
    pub(super) fn ask(&mut self, line: &str) -> String {
        let stdin = self.stdin.as_mut().unwrap();
        writeln!(stdin, "{line}").unwrap();
        stdin.flush().unwrap();
        self.line()
    }

    /// The next line of its output.
    pub(super) fn line(&self) -> String {
        self.lines.recv_timeout(Duration::from_secs(30)).expect("an answer")
    }

    /// Says whether a line of its output is there by now, and takes it.
    pub(super) fn has_line(&self) -> bool {
        self.lines.try_recv().is_ok()
    }

    /// Writes bytes that nobody reads.
    pub(super) fn pour(&mut self, bytes: &[u8]) {
        self.stdin.as_mut().unwrap().write_all(bytes).unwrap();
    }

    /// Ends its input.
    pub(super) fn close(&mut self) {
        self.stdin = None;
    }

    pub(super) fn pid(&self) -> i32 {
        i32::try_from(self.child.id()).unwrap()
    }

    pub(super) fn send(&self, signal: Signal) {
        // Ours and not yet waited for, so the number is its own.
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Kills it and sees it gone.
    pub(super) fn kill(&mut self) {
        let _calm = in_calm();
        self.send(Signal::KILL);
        self.ends();
    }

    /// Waits for its end.
    pub(super) fn ends(&mut self) -> ExitStatus {
        let mut status = None;
        wait_for("the client's end", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }

    pub(super) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        let _calm = in_calm();
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
