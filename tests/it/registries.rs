//! Registries of files, with real processes, the real binary, and the recipes of `docs/registries.md` as they stand.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;

use reapd::config::policy::Origin;
use reapd::config::{self, Context, Source};
use reapd::judge::rules;

use crate::desk::Desk;

/// The TOML blocks of the page.
fn recipes() -> Vec<String> {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/registries.md");
    let text = fs::read_to_string(page).unwrap();
    let blocks: Vec<String> =
        text.split("```toml\n").skip(1).map(|block| block.split("```").next().unwrap().to_owned()).collect();
    assert!(blocks.len() >= 3);
    blocks
}

pub(crate) fn recipe(registry: &str) -> String {
    let section = format!("[registry.{registry}]\n");
    recipes().into_iter().find(|block| block.contains(&section)).unwrap()
}

#[test]
fn every_recipe_is_a_configuration() {
    let specs: Vec<_> = rules::ALL.iter().map(|rule| &rule.spec).collect();
    let context = Context { rules: &specs, home: Some("/home/ana".into()) };
    for block in recipes() {
        let loaded = config::load(Some(Source { name: "docs/registries.md", text: &block }), &context);
        let config = loaded.unwrap_or_else(|faults| panic!("{block}\n{faults:#?}"));
        let own = config.registries.iter().filter(|registry| registry.origin != Origin::Builtin);
        assert_eq!(own.count(), 1, "{block}");
    }
}

/// A desk with a recipe that waits for nobody, and a directory for its records.
struct Registry {
    desk: Desk,
    directory: PathBuf,
}

impl Registry {
    fn new(recipe: &str) -> Registry {
        let desk = Desk::new();
        let directory = desk.planted.path("registry");
        fs::create_dir(&directory).unwrap();
        fs::create_dir_all(desk.planted.path("pids")).unwrap();
        desk.reconfigure(|text| format!("{text}\n{recipe}"));
        Registry { desk, directory }
    }

    /// A registry of previews, as the page has it but for the wait.
    fn previews() -> Registry {
        Registry::new(&recipe("previews").replace("settle = \"30s\"", "settle = \"0s\""))
    }

    /// Starts a program under a name, with these words and variables, in a session of its own.
    fn start(&self, program: &str, script: &str, words: &[&str], variables: &[(&str, &Path)]) -> i32 {
        static COUNT: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);
        let count = COUNT.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let script = self.desk.planted.path(script);
        // A broker is reached by its socket; nobody else here is.
        let text = "import socket, sys, time\n\
                    server = socket.socket(socket.AF_UNIX)\n\
                    if '--endpoint' in sys.argv:\n    \
                        server.bind(sys.argv[sys.argv.index('--endpoint') + 1].removeprefix('unix:'))\n    \
                        server.listen()\n\
                    time.sleep(600)\n";
        // Whoever was started before may not have read it so far.
        if !script.exists() {
            fs::write(&script, text).unwrap();
        }
        let file = self.desk.planted.path(&format!("pids/{count}"));
        let line =
            "echo $$ >\"$1.new\"; mv \"$1.new\" \"$1\"; name=$0; shift; exec -a \"$name\" \"$PYTHON\" \"$@\"";
        let status = self
            .desk
            .planted
            .command("setsid")
            .args(["--fork", "bash", "-c", line, program])
            .arg(&file)
            .arg(&script)
            .args(words)
            .envs(variables.iter().copied())
            .status()
            .unwrap();
        assert!(status.success());
        let pid = self.desk.planted.pid_in(&file);
        let name = program.as_bytes();
        crate::planted::wait_for("the program", || {
            fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|argv| argv.starts_with(name))
        });
        pid
    }

    fn preview(&self, key: &str) -> i32 {
        self.preview_by(key, &self.directory)
    }

    /// A preview server whose environment names this directory.
    fn preview_by(&self, key: &str, directory: &Path) -> i32 {
        self.start("preview-server", "preview.py", &["--listen", key], &[("PREVIEWS", directory)])
    }

    fn record(&self, name: &str, text: &str) -> PathBuf {
        let path = self.directory.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(&path, text).unwrap();
        path
    }

    /// What a dry run says of the tree of a process.
    fn verdict(&self, pid: i32) -> (String, String) {
        let dry = self.desk.reapd(&["sweep", "--dry-run", "--json"]);
        let said = text(&dry);
        let found: serde_json::Value = serde_json::from_slice(&dry.stdout).expect(&said);
        let tree = found["trees"].as_array().unwrap().iter().find(|tree| tree["root"]["pid"] == pid);
        let tree = tree.unwrap_or_else(|| panic!("{pid} is not judged:\n{said}"));
        (tree["verdict"].as_str().unwrap().to_owned(), tree.to_string())
    }

    #[track_caller]
    fn is(&self, pid: i32, verdict: &str, why: &str) {
        let (said, tree) = self.verdict(pid);
        assert!(said == verdict && tree.contains(why), "{said} and not {verdict}, '{why}':\n{tree}");
    }

    #[track_caller]
    fn sweep(&self, live: &[i32], gone: &[i32]) {
        let swept = self.desk.reapd(&["sweep", "--yes"]);
        assert!(swept.status.success(), "{}", text(&swept));
        for &pid in live {
            assert!(self.desk.planted.is_alive(pid), "{pid} was ended:\n{}", text(&swept));
        }
        for &pid in gone {
            assert!(!self.desk.planted.is_alive(pid), "{pid} is left:\n{}", text(&swept));
        }
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn who_is_listed_lives_and_who_is_removed_is_reaped() {
    let registry = Registry::previews();
    let (one, two) = (registry.preview("unix-one"), registry.preview("7002"));
    registry.record("one.toml", "listen = \"unix-one\"\n");
    let second = registry.record("two.toml", "[more]\nx = 1\n");
    fs::write(&second, "listen = 7002\n").unwrap();
    registry.sweep(&[one, two], &[]);
    fs::remove_file(second).unwrap();
    registry.sweep(&[one], &[two]);
    let why = text(&registry.desk.reapd(&["why", &two.to_string()]));
    assert!(why.contains("registry 'previews' does not list it"), "{why}");
}

#[test]
fn a_registry_that_is_not_whole_keeps_everybody_f11() {
    let registry = Registry::previews();
    let lost = registry.preview("lost");
    let other = registry.record("other.toml", "listen = \"other\"\n");
    let control = || registry.is(lost, "suspect", "lists 1 others");
    control();

    let away = registry.desk.planted.path("away");
    fs::rename(&registry.directory, &away).unwrap();
    registry.is(lost, "unknown", "registry");
    fs::rename(&away, &registry.directory).unwrap();
    control();

    fs::remove_file(&other).unwrap();
    registry.is(lost, "unknown", "lists nobody");
    registry.record("other.toml", "listen = \"other\"\n");
    control();

    if !rustix::process::geteuid().is_root() {
        for path in [&other, &registry.directory] {
            let before = fs::metadata(path).unwrap().permissions();
            fs::set_permissions(path, fs::Permissions::from_mode(0o000)).unwrap();
            registry.is(lost, "unknown", "registry");
            fs::set_permissions(path, before).unwrap();
        }
        control();
    }

    let whole = "listen = \"third\"\npid = 4\n";
    for half in ["", "lis", "listen = \"thi", "listen = \"third\"\npid", "[more]\n"] {
        let path = registry.record("third.toml", half);
        registry.is(lost, "unknown", "third.toml");
        fs::remove_file(path).unwrap();
    }
    let path = registry.record("third.toml", whole);
    registry.is(lost, "suspect", "lists 2 others");
    fs::remove_file(path).unwrap();

    let huge = registry.record("huge.toml", &format!("listen = \"{}\"\n", "x".repeat(300 * 1024)));
    registry.is(lost, "unknown", "huge.toml");
    fs::remove_file(huge).unwrap();

    let fifo = registry.directory.join("fifo.toml");
    rustix::fs::mknodat(
        rustix::fs::CWD,
        &fifo,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
    registry.is(lost, "unknown", "fifo.toml");
    fs::remove_file(fifo).unwrap();
    control();

    let many: Vec<PathBuf> =
        (0..5_000).map(|at| registry.record(&format!("{at}.toml"), &format!("listen = {at}\n"))).collect();
    registry.is(lost, "unknown", "more than");
    for path in many {
        fs::remove_file(path).unwrap();
    }
    control();
    registry.sweep(&[], &[lost]);
}

#[test]
fn a_registry_elsewhere_is_asked_where_the_process_itself_would_look() {
    let registry = Registry::previews();
    registry.record("other.toml", "listen = \"other\"\n");
    let elsewhere = registry.desk.planted.path("elsewhere");
    fs::create_dir(&elsewhere).unwrap();
    fs::write(elsewhere.join("mine.toml"), "listen = \"mine\"\n").unwrap();
    let mine = registry.preview_by("mine", &elsewhere);
    registry.is(mine, "alive", "lists it");
    let nowhere = registry.preview_by("mine", &registry.desk.planted.path("nowhere"));
    registry.is(nowhere, "unknown", "nowhere");
    let relative = registry.preview_by("mine", Path::new("registry"));
    registry.is(relative, "unknown", "no whole directory");
    let unset = registry.start("preview-server", "preview.py", &["--listen", "mine"], &[]);
    registry.is(unset, "unknown", "none of the variables");
    registry.sweep(&[mine, nowhere, relative, unset], &[]);
}

#[test]
fn who_is_younger_than_settle_may_be_listed_yet() {
    let registry = Registry::new(&recipe("previews").replace("settle = \"30s\"", "settle = \"1h\""));
    registry.record("other.toml", "listen = \"other\"\n");
    let young = registry.preview("young");
    registry.is(young, "alive", "may list it later");
    registry.sweep(&[young], &[]);
}

#[test]
fn codex_brokers_by_the_state_directory_of_their_own() {
    // The built-in policy at once, and without its line for a broker that has lost its codex: these never had one.
    let ours = config::builtin_text("codex-broker").unwrap();
    let (before, backend) = ours.split_once("    { backend-gone = ").unwrap();
    let at_once = format!("{before}{}", backend.split_once('\n').unwrap().1)
        .replace("for = \"30m\"", "for = \"0s\"")
        .replace("settle = \"2m\"", "settle = \"0s\"")
        // Who carries the address cannot be told where one process of the user refuses to be read.
        .replace(", unnamed = { text = \"{socket}\", made = \"with-tree\" }", "");
    assert!(
        !at_once.contains("unnamed = ")
            && !at_once.contains("backend-gone")
            && at_once.matches("\"0s\"").count() == 2,
        "{at_once}"
    );
    let registry = Registry::new(&at_once);
    let temporary = registry.desk.planted.path("registry");
    let data = registry.desk.planted.path("data");
    let json = |endpoint: &str| {
        format!(
            "{{\n  \"endpoint\": \"{endpoint}\",\n  \"pidFile\": \"/x/broker.pid\",\n  \"pid\": 24061\n}}\n"
        )
    };
    let endpoint = |name: &str| format!("unix:{}", registry.desk.planted.path(name).display());
    let broker = |name: &str, variables: &[(&str, &Path)]| {
        let words = ["serve", "--endpoint", &endpoint(name), "--cwd", "/", "--pid-file", "/x/broker.pid"];
        let pid = registry.start("node", "app-server-broker.mjs", &words, variables);
        crate::planted::wait_for("the broker's socket", || registry.desk.planted.path(name).exists());
        pid
    };
    registry.record("codex-companion/work-2c682aaafe75151d/broker.json", &json(&endpoint("listed")));
    registry.record("codex-companion/work-2c682aaafe75151d/state.json", "{");
    let state = data.join("state/other-0000000000000000");
    fs::create_dir_all(&state).unwrap();
    fs::write(state.join("broker.json"), json(&endpoint("by-data"))).unwrap();
    let second = data.join("state/astray-0000000000000000");
    fs::create_dir(&second).unwrap();
    fs::write(second.join("broker.json"), json(&endpoint("astray"))).unwrap();
    let listed = broker("listed", &[("TMPDIR", &temporary)]);
    let by_data = broker("by-data", &[("CLAUDE_PLUGIN_DATA", &data), ("TMPDIR", &temporary)]);
    // Its own directory lists others, and that another one lists it is nobody's way to find it.
    let astray = broker("astray", &[("TMPDIR", &temporary)]);
    let unlisted = broker("unlisted", &[("CLAUDE_PLUGIN_DATA", &data)]);
    registry.sweep(&[listed, by_data], &[astray, unlisted]);
}

/// The number and the raw start stamp of a process, as `/proc/PID/stat` has them.
fn started(pid: i32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    stat[stat.rfind(')').unwrap() + 1..].split_whitespace().nth(19).unwrap().parse().unwrap()
}

#[test]
fn helpers_of_claude_code_by_number_and_start() {
    let at_once = recipe("claude-sessions").replace("key = \"/pid\"\n", "key = \"/pid\"\nsettle = \"0s\"\n");
    let registry = Registry::new(&at_once);
    let agents: Vec<i32> =
        (0..3).map(|at| registry.start("claude", &format!("agent{at}.py"), &[], &[])).collect();
    let config = registry.directory.clone();
    let helper = |agent: i32| {
        let words = ["--claude-pid", &agent.to_string()];
        registry.start("my-helper", "helper.py", &words, &[("CLAUDE_CONFIG_DIR", &config)])
    };
    let helpers: Vec<i32> = agents.iter().map(|&agent| helper(agent)).collect();
    let records: Vec<PathBuf> = agents
        .iter()
        .map(|&agent| {
            let text = format!(
                "{{\"pid\": {agent}, \"sessionId\": \"x\", \"procStart\": \"{}\", \"status\": \"idle\"}}",
                started(agent)
            );
            registry.record(&format!("sessions/{agent}.json"), &text)
        })
        .collect();
    registry.sweep(&helpers, &[]);
    // One ends in order and takes its record along, and one is killed and leaves it behind.
    fs::remove_file(&records[1]).unwrap();
    for &agent in &agents[1..] {
        registry.desk.planted.end(agent);
        crate::planted::wait_for("the agent to be gone", || !registry.desk.planted.is_alive(agent));
    }
    registry.sweep(&helpers[..1], &helpers[1..]);
    let why = text(&registry.desk.reapd(&["why", &helpers[2].to_string()]));
    assert!(why.contains("which held it in registry 'claude-sessions', is gone"), "{why}");
    // One that no look ever saw alive proves nothing by its death.
    let stranger = registry.start("claude", "agent3.py", &[], &[]);
    registry.record(
        &format!("sessions/{stranger}.json"),
        &format!("{{\"pid\": {stranger}, \"procStart\": {}}}", started(stranger)),
    );
    let of_stranger = helper(stranger);
    registry.desk.planted.end(stranger);
    crate::planted::wait_for("the stranger to be gone", || !registry.desk.planted.is_alive(stranger));
    registry.is(of_stranger, "unknown", "while it lived");
    registry.sweep(&[of_stranger], &[]);
}
