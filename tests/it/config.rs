//! Every file of `tests/configs`, and `config.example.toml` against the defaults.
#![expect(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests read their files, and panic")]

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};

use bstr::{BStr, BString};
use proptest::prelude::*;
use reapd::config::policy::{
    Config, ContainerCapture, ExecReport, Match, Offer, Policy, ProofNeed, Setting, Sockets, StdinMatch,
    StdinReader, Talk, Telling, TemplatePart,
};
use reapd::config::{self, Context, Fault, Source, Whole};
use reapd::model::container::stop::Fate;
use reapd::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};
use reapd::model::verdict::Mode;

const fn setting(name: &'static str, kind: SettingKind, need: Need) -> SettingSpec {
    SettingSpec { name, kind, need, doc: "what it means" }
}

const fn rule(
    name: &'static str,
    strength: Strength,
    settings: &'static [SettingSpec],
    bare: Option<&'static str>,
    place: Place,
) -> RuleSpec {
    let (asks, clients) = (Asks::Passively, Clients::Served);
    RuleSpec {
        name,
        strength,
        summary: "what it finds",
        doc: "",
        settings,
        bare,
        place,
        asks,
        clients,
        serves: Serves::Processes,
    }
}

/// The same rule, for these as well.
const fn serving(rule: &RuleSpec, serves: Serves) -> RuleSpec {
    RuleSpec { serves, ..*rule }
}

use Need::{Optional, Required};
use Place::{ReapWhen, SpareWhen};
use SettingKind::{Duration, Number, Patterns, Template, Text, Word};
use Strength::{Proof, Sign};

/// The rules as their specs will be.
static RULES: &[&RuleSpec] = &[
    &serving(
        &rule(
            "cwd-gone",
            Proof,
            &[setting("path", Template, Optional), setting("roots", Patterns, Optional)],
            Some("path"),
            ReapWhen,
        ),
        Serves::Both(&["path"]),
    ),
    &serving(
        &rule(
            "owner-gone",
            Proof,
            &[setting("pid", Template, Optional), setting("spawner", Word(&["dies-with"]), Optional)],
            Some("pid"),
            ReapWhen,
        ),
        Serves::Both(&[]),
    ),
    &serving(
        &rule(
            "lease-expired",
            Proof,
            &[
                setting("in", SettingKind::Registry, Need::With("key")),
                setting("key", Template, Need::With("in")),
            ],
            None,
            ReapWhen,
        ),
        Serves::Both(&["in", "key"]),
    ),
    &serving(&rule("client-gone", Proof, &[], None, ReapWhen), Serves::Containers),
    &rule("stdin-abandoned", Proof, &[], None, ReapWhen),
    &rule(
        "channel-abandoned",
        Proof,
        &[setting("read", Number, Required), setting("write", Number, Required)],
        None,
        ReapWhen,
    ),
    &rule(
        "companion-gone",
        Proof,
        &[setting("policy", Text, Required), setting("key", Text, Required)],
        None,
        ReapWhen,
    ),
    &rule("terminal-gone", Proof, &[], None, ReapWhen),
    &rule("stdin-ended", Sign, &[setting("for", Duration, Optional)], None, ReapWhen),
    &rule(
        "no-clients",
        Sign,
        &[setting("socket", Template, Optional), setting("for", Duration, Optional)],
        Some("socket"),
        ReapWhen,
    ),
    &rule("no-children", Sign, &[setting("for", Duration, Optional)], None, ReapWhen),
    &rule("idle", Sign, &[setting("for", Duration, Required)], Some("for"), ReapWhen),
    &rule("reparented", Sign, &[], None, ReapWhen),
    &serving(
        &rule("older-than", Sign, &[setting("age", Duration, Required)], Some("age"), ReapWhen),
        Serves::Both(&["age"]),
    ),
    &serving(
        &rule("unhealthy", Sign, &[setting("for", Duration, Optional)], Some("for"), ReapWhen),
        Serves::Containers,
    ),
    &serving(&rule("shares-files", Sign, &[], None, SpareWhen), Serves::Containers),
    &serving(
        &rule("reaper-gone", Sign, &[setting("for", Duration, Optional)], Some("for"), ReapWhen),
        Serves::Containers,
    ),
    &serving(
        &rule("clients", Sign, &[setting("socket", Template, Optional)], Some("socket"), SpareWhen),
        Serves::Both(&[]),
    ),
    &rule("socket-unreachable", Proof, &[setting("socket", Template, Required)], Some("socket"), ReapWhen),
    &rule(
        "backend-gone",
        Proof,
        &[setting("because", Text, Required), setting("socket", Template, Optional)],
        Some("because"),
        ReapWhen,
    ),
    &rule(
        "unnamed",
        Sign,
        &[
            setting("text", Template, Required),
            setting("made", SettingKind::Word(&["ever", "with-tree"]), Optional),
        ],
        Some("text"),
        ReapWhen,
    ),
    &RuleSpec {
        asks: Asks::ByPing,
        serves: Serves::Both(&["attempts", "every"]),
        ..rule(
            "socket-unresponsive",
            Sign,
            &[
                setting("attempts", SettingKind::Times(2), Optional),
                setting("every", SettingKind::Pause, Optional),
            ],
            None,
            ReapWhen,
        )
    },
];

fn context() -> Context<'static> {
    Context { rules: RULES, home: Some(BStr::new("/home/ana")) }
}

fn load(text: &str) -> Result<Whole, Vec<Fault>> {
    config::load_whole(Some(Source { name: "config.toml", text }), &context())
}

fn defaults() -> Config {
    config::load(None, &context()).unwrap()
}

fn folder(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/configs").join(name)
}

fn files(name: &str) -> Vec<(PathBuf, String)> {
    let mut files: Vec<_> = fs::read_dir(folder(name))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
        .map(|path| (path.clone(), fs::read_to_string(path).unwrap()))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    files
}

fn drawn(faults: &[Fault], text: &str) -> String {
    let mut out = String::new();
    for fault in faults {
        writeln!(out, "{}", config::render(fault, text)).unwrap();
    }
    out
}

#[test]
fn valid_files_load() {
    for (path, text) in files("valid") {
        if let Err(faults) = load(&text) {
            panic!("{}\n{}", path.display(), drawn(&faults, &text));
        }
    }
}

/// `REAPD_BLESS=1` writes what is drawn now; read it before it is committed.
#[test]
fn invalid_files_are_refused_as_written() {
    let bless = std::env::var_os("REAPD_BLESS").is_some();
    let mut wrong = String::new();
    for (path, text) in files("invalid") {
        let Err(faults) = load(&text) else { panic!("{} was not refused", path.display()) };
        let drawn = drawn(&faults, &text);
        let expected = path.with_extension("txt");
        if bless {
            fs::write(&expected, &drawn).unwrap();
        }
        if fs::read_to_string(&expected).unwrap_or_default() != drawn {
            write!(wrong, "{}\n{drawn}", path.display()).unwrap();
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// The example without what it marks as an example of one's own.
fn example() -> String {
    let text = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("config.example.toml")).unwrap();
    let mut kept = String::new();
    let mut example = false;
    for line in text.lines() {
        if line.starts_with('[') {
            example = line.contains("e.g.");
        }
        if !example && !line.contains("e.g.") {
            kept.push_str(line);
            kept.push('\n');
        }
    }
    kept
}

#[test]
fn the_example_is_the_defaults_key_by_key() {
    let whole = load(&example()).map_err(|faults| drawn(&faults, &example())).unwrap();
    assert_eq!(whole, config::load_whole(None, &context()).unwrap());
    // And nothing is left out: each key must be there, or a default could change unseen.
    for key in [
        "mode = ",
        "looks = ",
        "apart = ",
        "min-age = ",
        "probe-timeout = ",
        "trees-per-sweep = ",
        "processes-per-tree = ",
        "same-cause = ",
        "ladder = ",
        "keep = ",
        "arguments = ",
        "socket = ",
        "stdin = ",
        "watchers = ",
    ] {
        assert!(example().lines().any(|line| line.starts_with(key)), "{key}");
    }
    for name in config::builtin_names() {
        assert!(example().lines().any(|line| line.starts_with(&format!("{name} = "))), "{name}");
    }
}

#[test]
fn the_whole_example_loads_with_its_examples_too() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("config.example.toml");
    let text = fs::read_to_string(path).unwrap();
    let whole = load(&text).map_err(|faults| drawn(&faults, &text)).unwrap();
    assert!(whole.config.policies.iter().any(|policy| policy.name == "preview-server"));
    assert!(whole.config.containers.iter().any(|policy| policy.name == "acme-tool"));
    assert_ne!(whole.config.keep, defaults().keep);
    let registries: Vec<&str> =
        whole.config.registries.iter().map(|registry| registry.name.as_str()).collect();
    assert_eq!(registries, ["codex-brokers", "gateway", "previews"]);
}

#[test]
fn built_in_policies_are_named_for_their_files_and_sorted() {
    assert!(config::builtin_names().is_sorted());
    let whole = config::load_whole(None, &context()).unwrap();
    let processes = whole.config.policies.iter().chain(&whole.off).map(|policy| policy.name.as_str());
    let containers = whole.config.containers.iter().chain(&whole.off_containers);
    let containers: Vec<&str> = containers.map(|policy| policy.name.as_str()).collect();
    assert_eq!(containers, ["compose", "devcontainer", "docker-run", "lease", "testcontainers"]);
    let execs = [ExecReport::NAME];
    let mut names: Vec<&str> = processes.chain(containers.iter().copied()).chain(execs).collect();
    names.sort_unstable();
    let parts = config::builtin_names()
        .iter()
        .flat_map(|name| config::builtin_sections(name).into_iter().map(|_| *name));
    assert_eq!(names, parts.collect::<Vec<_>>());
    assert_eq!(config::builtin_sections("lease"), ["process", "container"]);
    let off: Vec<&str> = whole.off.iter().map(|policy| policy.name.as_str()).collect();
    assert_eq!(off, ["codex-broker-idle", "deleted-worktree"]);
    assert_eq!(whole.config.offered, whole.off[..1], "told of, and in no list that anything acts by");
    let report: Vec<&str> = whole
        .config
        .policies
        .iter()
        .filter(|policy| policy.mode == Mode::Report)
        .map(|policy| policy.name.as_str())
        .collect();
    assert_eq!(report, ["agent-shell", "headless-browser", "mcp-debugger-jvm"]);
    let reap: Vec<&str> = whole
        .config
        .containers
        .iter()
        .filter(|policy| policy.mode == Mode::Reap)
        .map(|policy| policy.name.as_str())
        .collect();
    assert_eq!(reap, ["docker-run", "lease"]);
}

#[test]
fn built_in_policies_load_with_the_rules_there_are() {
    let rules: Vec<&RuleSpec> = reapd::judge::rules::ALL.iter().map(|rule| &rule.spec).collect();
    let whole = config::load_whole(None, &Context { rules: &rules, home: None });
    let whole = whole.map_err(|faults| format!("{faults:#?}")).unwrap();
    assert_eq!(whole.config.execs.telling, Telling::Report);
    let parts = whole.config.policies.len() + whole.off.len() + whole.config.containers.len() + 1;
    assert_eq!(
        parts,
        config::builtin_names().iter().map(|name| config::builtin_sections(name).len()).sum::<usize>()
    );
}

#[test]
fn no_built_in_policy_goes_without_proof() {
    let whole = config::load_whole(None, &context()).unwrap();
    for policy in whole.config.policies.iter().chain(&whole.off) {
        // Without proof only what somebody turned on on purpose, and what is told until then.
        if policy.proof == ProofNeed::Waived {
            assert_eq!(
                (policy.name.as_str(), policy.mode, policy.offer),
                ("codex-broker-idle", Mode::Off, Offer::Told)
            );
            continue;
        }
        for line in &policy.reap_when {
            let proof = line.conditions.iter().any(|condition| condition.strength == Proof);
            assert!(proof && line.by_knowledge.is_none(), "{}", policy.name);
        }
    }
    for policy in &whole.config.containers {
        // Without proof only what does nothing but tell.
        if policy.proof == ProofNeed::Waived {
            assert_eq!((policy.name.as_str(), policy.mode), ("testcontainers", Mode::Report));
            continue;
        }
        for line in &policy.reap_when {
            assert!(line.conditions.iter().any(|condition| condition.strength == Proof), "{}", policy.name);
        }
    }
}

#[test]
fn a_name_has_a_part_for_each_kind_and_each_is_replaced_alone() {
    let own = "[container.lease]\nmatch = { name = \"x\" }\nreap-when = [{ owner-gone = true }]\n";
    let whole = load(&format!("[builtin]\nlease = \"report\"\n{own}")).unwrap();
    let process = whole.config.policies.iter().find(|policy| policy.name == "lease").unwrap();
    assert_eq!(process.mode, Mode::Report);
    let container = whole.config.containers.iter().find(|policy| policy.name == "lease").unwrap();
    assert_eq!((container.mode, container.matches[0].names[0].text.as_str()), (Mode::Reap, "x"));
    let both = format!(
        "{own}[process.lease]\nmatch = {{ program = \"x\" }}\nreap-when = [{{ terminal-gone = true }}]\n"
    );
    assert!(load(&both).is_ok());
    let faults = load(&format!("[builtin]\nlease = \"report\"\n{both}")).unwrap_err();
    assert!(faults[0].message.contains("is replaced"), "{faults:#?}");
    let set = |text: &str| config::set_builtin_mode(text, "lease", Mode::Off);
    assert!(set(own).is_ok() && set(&both).is_err());
    let off = load("[builtin]\nlease = \"off\"\n").unwrap();
    assert!(off.off_containers.iter().any(|policy| policy.name == "lease"));
    assert!(!off.config.containers.iter().any(|policy| policy.name == "lease"));
}

#[test]
fn a_policy_for_containers_is_read_as_it_is_meant() {
    let text = fs::read_to_string(folder("valid").join("containers.toml")).unwrap();
    let whole = load(&text).unwrap();
    let docker = &whole.config.docker;
    assert_eq!(docker.stdin, StdinReader::Helper);
    let sockets = ["/home/ana/.colima/default/docker.sock", "/run/docker.sock"].map(str::to_owned);
    assert_eq!(docker.sockets, Sockets::These(sockets.to_vec()));
    assert_eq!(
        docker.watchers.iter().map(|glob| glob.text.as_str()).collect::<Vec<_>>(),
        ["portainer", "dockge-*"]
    );
    let policy = whole.config.containers.iter().find(|policy| policy.name == "gateway-tool").unwrap();
    assert_eq!((policy.grace.as_secs(), policy.volumes, policy.networks), (30, Fate::Remove, Fate::Remove));
    let [tool, named] = policy.matches.as_slice() else { panic!("{:?}", policy.matches) };
    assert_eq!((tool.images.len(), tool.stdin, named.names.len()), (2, StdinMatch::Attached, 1));
    assert_eq!(tool.labels["acme.session"], None);
    assert!(tool.labels["acme.role"].as_ref().unwrap().fits(BStr::new("tool")));
    assert!(matches!(&policy.captures["work"], ContainerCapture::Bind { bind } if bind == "/workspace"));
    let hub = whole.config.containers.iter().find(|policy| policy.name == "hub-tool").unwrap();
    let asked = hub.reap_when.iter().map(|line| line.conditions.last().unwrap());
    let asked: Vec<_> = asked.map(|last| (last.rule, last.settings.get("in").cloned())).collect();
    let of = |name: &str| ("lease-expired", Some(Setting::Text(name.into())));
    assert_eq!(asked, [of("hub"), of("seats")], "a server is asked last of its line");
    let database = whole.config.containers.iter().find(|policy| policy.name == "database").unwrap();
    let ping = database.ping.as_ref().unwrap();
    let Talk::Http { path, status: None, expect: None } = &ping.talk else { panic!("{ping:?}") };
    assert_eq!((ping.port, path.parts.len()), (5432, 2));
    let order: Vec<&str> = database.reap_when[0].conditions.iter().map(|condition| condition.rule).collect();
    assert_eq!(order, ["older-than", "socket-unresponsive"], "it is asked last");
    let run = whole.config.containers.iter().find(|policy| policy.name == "docker-run").unwrap();
    assert_eq!(
        (run.mode, run.volumes, run.matches[0].stdin),
        (Mode::Report, Fate::Keep, StdinMatch::Attached)
    );
}

#[test]
fn commands_inside_containers_are_told_or_not_and_never_reaped() {
    let told = |text: &str| load(text).unwrap().config.execs.telling;
    assert_eq!(told(""), Telling::Report);
    assert_eq!(told("[builtin]\ndocker-exec = \"report\"\n"), Telling::Report);
    assert_eq!(told("[builtin]\ndocker-exec = { mode = \"off\" }\n"), Telling::Off);
    for text in ["[builtin]\ndocker-exec = \"reap\"\n", "[builtin]\ndocker-exec = { mode = \"reap\" }\n"] {
        let faults = load(text).unwrap_err();
        assert!(drawn(&faults, text).contains("only \"report\" and \"off\" exist for it"), "{faults:#?}");
    }
    // No file makes one of its own.
    assert!(load("[exec.docker-exec]\nabout = \"x\"\nmode = \"report\"\n").is_err());
}

#[test]
fn what_is_offered_is_an_ordinary_policy_once_it_is_turned_on() {
    for mode in ["reap", "report"] {
        let whole = load(&format!("[builtin]\ncodex-broker-idle = \"{mode}\"\n")).unwrap();
        let policy = whole.config.policies.iter().find(|policy| policy.name == "codex-broker-idle").unwrap();
        assert_eq!((config::mode_word(policy.mode), policy.offer), (mode, Offer::No));
        assert!(whole.config.offered.is_empty() && policy.ping.is_some());
    }
    let own = "[process.codex-broker-idle]\nmatch = { program = \"x\" }\nmode = \"off\"\nreap-when = [{ terminal-gone = true }]\n";
    assert!(load(own).unwrap().config.offered.is_empty());
}

#[test]
fn a_policy_of_the_same_name_replaces_ours_whole() {
    let text = "[process.mcp-server]\nmatch = { program = \"x\" }\nreap-when = [{ terminal-gone = true }]\n";
    let config = load(text).unwrap().config;
    let policy = config.policies.iter().find(|policy| policy.name == "mcp-server").unwrap();
    assert_eq!(policy.matches.len(), 1);
    assert_eq!(policy.ladder, config.ladder);
}

#[test]
fn the_mode_of_the_whole_run_bounds_every_policy() {
    let config = load("mode = \"report\"\n").unwrap().config;
    assert!(config.policies.iter().all(|policy| policy.mode == Mode::Report));
}

#[test]
fn roots_of_deleted_worktrees_come_from_the_operator_a21() {
    let text = "[builtin]\ndeleted-worktree = { mode = \"reap\", roots = [\"~/src/*/.worktrees\"] }\n";
    let config = load(text).unwrap().config;
    let policy = config.policies.iter().find(|policy| policy.name == "deleted-worktree").unwrap();
    assert_eq!(policy.mode, Mode::Reap);
    let [Match::Roots(roots)] = policy.matches.as_slice() else { panic!("{:?}", policy.matches) };
    assert!(roots[0].fits_at_or_below(BStr::new("/home/ana/src/app/.worktrees/fix/src")));
    assert!(!roots[0].fits_at_or_below(BStr::new("/home/ana/src/app")));
    assert_eq!(policy.reap_when[0].conditions[0].settings["roots"], Setting::Patterns(roots.clone()));
}

#[test]
fn a_server_is_asked_last_of_its_line() {
    let text = fs::read_to_string(folder("valid/registries.toml")).unwrap();
    let config = load(&text).unwrap().config;
    let policy = config.policies.iter().find(|policy| policy.name == "helper").unwrap();
    let asked: Vec<Vec<Option<&Setting>>> = policy
        .reap_when
        .iter()
        .map(|line| line.conditions.iter().map(|condition| condition.settings.get("in")).collect())
        .collect();
    let registry = |name: &str| Some(Setting::Text(name.to_owned()));
    let (server, files) = (registry("a-server"), registry("z-files"));
    assert_eq!(asked, [vec![None, server.as_ref()], vec![files.as_ref(), None], vec![None]]);
}

#[test]
fn what_is_set_by_command_is_read_back() {
    let text = config::set_builtin_mode("# mine\n", "codex-broker", Mode::Report).unwrap();
    let config = load(&text).unwrap().config;
    let policy = config.policies.iter().find(|policy| policy.name == "codex-broker").unwrap();
    assert_eq!(policy.mode, Mode::Report);
}

/// Says which built-in policies match, by shape alone.
fn matching(executable: &str, words: &[&str]) -> Vec<String> {
    let argv: Vec<BString> = words.iter().map(|word| BString::from(*word)).collect();
    let fits = |policy: &&Policy| {
        policy.matches.iter().any(|form| match form {
            Match::Shape { programs, args } => {
                config::fits_shape(programs, args.as_deref(), Some(BStr::new(executable)), &argv)
            }
            Match::McpConfigured | Match::Roots(_) | Match::Leased => false,
        })
    };
    defaults().policies.iter().filter(fits).map(|policy| policy.name.clone()).collect()
}

#[track_caller]
fn check(executable: &str, command: &str, want: &[&str]) {
    let words: Vec<&str> = command.split(' ').collect();
    assert_eq!(matching(executable, &words), want, "{command}");
}

#[test]
fn the_broker_and_nothing_like_it() {
    let broker = "/usr/bin/node /home/ana/.claude/plugins/cache/x/scripts/app-server-broker.mjs serve --endpoint \
                  unix:/tmp/cxc-Ab12Cd/broker.sock --cwd /home/ana/w --pid-file /tmp/cxc-Ab12Cd/broker.pid";
    check("/usr/bin/node", broker, &["codex-broker"]);
    check("/usr/bin/vim", "vim app-server-broker.mjs serve", &[]);
    check("/usr/bin/node", "node build.js app-server-broker.mjs serve", &[]);
    check("/usr/bin/node", "node /x/app-server-broker.mjs", &[]);
    check("/usr/bin/node", "node /x/bin/codex app-server", &[]);
    check("/opt/codex", "codex -c features.code_mode_host=true app-server", &[]);
    check("/opt/codex", "codex -s read-only -a untrusted", &["agent-shell"]);
    let argv: Vec<BString> = broker.split(' ').map(BString::from).collect();
    let config = defaults();
    let policy = config.policies.iter().find(|policy| policy.name == "codex-broker").unwrap();
    let captured = config::capture(&policy.captures, &argv, &std::collections::BTreeMap::new());
    assert_eq!(captured["workspace"], "/home/ana/w");
    assert_eq!(captured["socket"], "/tmp/cxc-Ab12Cd/broker.sock");
}

#[test]
fn stdio_servers_and_their_wrappers_a01() {
    let only = &["mcp-server"];
    let titled = ["npm exec @modelcontextprotocol/server-memory@0.6 --x", "", "", ""];
    assert_eq!(matching("/usr/bin/node", &titled), only);
    assert_eq!(matching("/usr/bin/node", &["npm exec cowsay mcp-server-git", ""]), [""; 0]);
    check("/usr/bin/node", "node /usr/bin/npx -y @playwright/mcp@latest --headless", only);
    check("/usr/bin/node", "node /home/ana/.npm/_npx/1f/node_modules/.bin/mcp-server-filesystem /srv", only);
    check("/usr/bin/node", "node /x/node_modules/@modelcontextprotocol/server-memory/dist/index.js", only);
    check("/home/ana/.local/bin/uv", "uv tool uvx mcp-server-git", only);
    check(
        "/usr/bin/python3.12",
        "/home/ana/.cache/uv/a/bin/python /home/ana/.cache/uv/a/bin/mcp-server-git",
        only,
    );
    check("/usr/bin/python3", "python3 -m mcp_server_time", only);
    // Somebody who reads or builds one.
    check("/usr/bin/vim", "vim /x/node_modules/@modelcontextprotocol/server-memory/dist/index.js", &[]);
    check("/usr/bin/node", "node /x/node_modules/.bin/tsc mcp-server-git", &[]);
    check("/usr/bin/python3", "python3 -m pytest mcp_server_time", &[]);
    check("/opt/codex", "codex mcp list", &[]);
}

#[test]
fn workers_and_adapters_of_the_debugger_but_no_editors() {
    check(
        "/usr/bin/node",
        "node --trace-uncaught --trace-exit /x/dist/proxy/proxy-bootstrap.js --mcp-owner-pid=12 --mcp-session-id=ab",
        &["mcp-debugger"],
    );
    let adapter = "node /x/vendor/js-debug/vsDebugServer.cjs 4711 127.0.0.1";
    check("/usr/bin/node", adapter, &[]);
    let tagged = format!("{adapter} --mcp-owner-pid=12 --mcp-session-id=ab");
    check("/usr/bin/node", &tagged, &["mcp-debugger-adapter"]);
}

#[test]
fn language_servers_and_not_their_batch_uses_a13() {
    let only = &["language-server"];
    check("/x/rust-analyzer", "rust-analyzer", only);
    check("/x/rust-analyzer", "rust-analyzer analysis-stats .", &[]);
    check("/usr/bin/gopls", "gopls serve", only);
    check("/usr/bin/gopls", "gopls check x.go", &[]);
    check("/usr/bin/node", "node /x/node_modules/.bin/typescript-language-server --stdio", only);
    check("/usr/bin/node", "node /x/node_modules/pyright/index.js .", &[]);
    check("/x/jre/bin/java", "/x/jre/bin/java -Xmx1G org.javacs.kt.MainKt", only);
    check("/usr/bin/java", "java org.gradle.launcher.daemon.bootstrap.GradleDaemon 8.5", &[]);
}

#[test]
fn browsers_with_a_profile_to_throw_away_a08() {
    let only = &["headless-browser"];
    check(
        "/x/chrome",
        "chrome --disable-x --user-data-dir=/home/ana/.cache/ms-playwright/mcp-chrome-1 --remote-debugging-pipe",
        only,
    );
    check("/x/chrome", "chrome --disable-x --remote-debugging-pipe --user-data-dir=/tmp/p --headless", only);
    check("/x/chrome", "chrome --type=renderer --remote-debugging-pipe --user-data-dir=/tmp/p", &[]);
    check("/x/chrome", "chrome --a --remote-debugging-pipe --user-data-dir=/home/ana/.config/chrome", &[]);
    check("/x/chrome", "chrome --a --remote-debugging-port=9222 --user-data-dir=/tmp/p", &[]);
    check("/x/chrome", "chrome --a --remote-debugging-pipe", &[]);
}

#[test]
fn tool_shells_by_their_snapshot() {
    let shell = |command| matching("/usr/bin/zsh", &["/bin/zsh", "-c", "-l", command]);
    let marked = "source /home/ana/.claude/shell-snapshots/snapshot-zsh-1-ab.sh && eval 'make check'";
    assert_eq!(shell(marked), ["agent-shell"]);
    assert_eq!(shell("make check"), [""; 0]);
}

#[test]
fn the_rest_of_the_families() {
    check("/x/executor", "executor mcp", &["executor-tool"]);
    check("/x/executor", "executor daemon run --port 4789 --foreground", &[]);
    check("/usr/bin/docker", "docker mcp gateway run --servers x", &["docker-agent-tool"]);
    check("/usr/bin/docker", "docker run -i --rm mcp/x", &[]);
}

fn within(faults: &[Fault], text: &str) -> Result<(), TestCaseError> {
    let lines = text.split('\n').count();
    for fault in faults {
        let line = text.split('\n').nth(fault.line - 1);
        prop_assert!(fault.line <= lines, "{fault:?}");
        let width = line.unwrap_or_default().chars().count();
        prop_assert!(fault.column >= 1 && fault.column <= width + 1, "{fault:?}");
        prop_assert!(fault.length >= 1 && fault.column + fault.length <= width + 2, "{fault:?}");
        let drawn = config::render(fault, text);
        prop_assert!(!drawn.contains(['\x1b', '\r']), "unescaped");
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_text_is_read_without_panic(text in "\\PC{0,80}|[\\s\\S]{0,80}") {
        if let Err(faults) = load(&text) {
            within(&faults, &text)?;
        }
    }

    #[test]
    fn a_file_damaged_anywhere_has_its_faults_within(
        from in any::<prop::sample::Index>(),
        cut in 0_usize..30,
        with in "[\\]\\[{}=\"'\\\\#,.a-z0-9~*\n\r\u{e4}\u{1b}-]{0,6}",
    ) {
        let mut text = fs::read_to_string(folder("valid/everything.toml")).unwrap();
        let mut from = from.index(text.len());
        let mut to = (from + cut).min(text.len());
        while !text.is_char_boundary(from) { from -= 1; }
        while !text.is_char_boundary(to) { to += 1; }
        text.replace_range(from..to, &with);
        if let Err(faults) = load(&text) {
            within(&faults, &text)?;
        }
    }
}

#[test]
fn deep_nesting_is_refused_and_not_a_crash() {
    for text in [
        format!("a = {}", "[".repeat(100_000)),
        format!("a = {}", "{ a = ".repeat(100_000)),
        format!("[{}a]", "a.".repeat(100_000)),
    ] {
        assert!(load(&text).is_err());
    }
}

#[test]
fn sixty_thousand_faults_on_one_line_are_soon_told() {
    let keys: Vec<String> = (0..60_000).map(|at| format!("k{at}=1")).collect();
    let faults = load(&format!("confirm = {{ {} }}", keys.join(","))).unwrap_err();
    assert_eq!(faults.len(), 100);
}

/// An active question comes last of its line, whatever was written first, and somebody else's server right before it.
#[test]
fn what_connects_to_the_server_itself_is_asked_last_of_its_line() {
    let text = "[registry.r]\nurl = \"http://127.0.0.1:1/{key}\"\nalive = { status = 200 }\ngone = { status = 404 }\n\
                [process.x]\nmatch = { program = \"x\" }\nping = { socket = \"@x\", as = \"mcp\" }\n\
                reap-when = [{ socket-unresponsive = true, lease-expired = { in = \"r\", key = \"{pid}\" }, \
                unnamed = \"@x\", cwd-gone = \"{cwd}\" }]\n";
    let whole = load(text).map_err(|faults| drawn(&faults, text)).unwrap();
    let policy = whole.config.policies.iter().find(|policy| policy.name == "x").unwrap();
    let order: Vec<&str> = policy.reap_when[0].conditions.iter().map(|condition| condition.rule).collect();
    assert_eq!(order, ["unnamed", "cwd-gone", "lease-expired", "socket-unresponsive"]);
}

#[test]
fn a_ping_is_read_as_it_is_meant() {
    let text = fs::read_to_string(folder("valid").join("pings.toml")).unwrap();
    let whole = load(&text).map_err(|faults| drawn(&faults, &text)).unwrap();
    let of = |name: &str| {
        let policy = whole.config.policies.iter().find(|policy| policy.name == name).unwrap();
        policy.ping.clone().unwrap()
    };
    let Talk::Lines { send, expect } = of("lines").talk else { panic!("lines is the default") };
    assert_eq!(send.parts, [TemplatePart::Literal("{\"id\":1,\"method\":\"ping\",\"params\":{}}".into())]);
    assert_eq!(expect.text, "\"id\":1");
    assert_eq!(of("lines").socket.parts, [TemplatePart::Capture("socket".into())]);
    assert!(matches!(of("content-length").talk, Talk::ContentLength { .. }));
    assert_eq!((of("mcp").talk, of("connect").talk), (Talk::Mcp, Talk::Greeting));
    let Talk::Http { path, status: Some(200), expect: Some(_) } = of("http").talk else { panic!("http") };
    assert_eq!(path.parts.len(), 2);
    assert!(matches!(of("any-status").talk, Talk::Http { status: None, expect: None, .. }));
}

/// The TOML that the README shows for a server of one's own, taken as it stands there.
#[test]
fn the_readmes_own_wedged_server_loads() {
    let page = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("README.md")).unwrap();
    let blocks: Vec<&str> =
        page.split("```toml\n").skip(1).filter_map(|block| block.split("```").next()).collect();
    let block = blocks.iter().find(|block| block.contains("socket-unresponsive")).expect("it is shown");
    assert!(block.lines().count() <= 10, "{block}");
    let rules: Vec<&RuleSpec> = reapd::judge::rules::ALL.iter().map(|rule| &rule.spec).collect();
    let context = Context { rules: &rules, home: None };
    let config = config::load(Some(Source { name: "README.md", text: block }), &context).unwrap();
    let policy = config.policies.iter().find(|policy| policy.name == "my-server").unwrap();
    assert_eq!((policy.proof, policy.ping.is_some()), (ProofNeed::Waived, true));
    let line = &policy.reap_when[0];
    let rules: Vec<&str> = line.conditions.iter().map(|condition| condition.rule).collect();
    assert_eq!(rules, ["no-clients", "socket-unresponsive"]);
    let over_http = page.lines().find(|line| line.starts_with("Over HTTP: ")).unwrap();
    let ping = over_http.split('`').nth(1).unwrap();
    let text = format!(
        "[process.x]\nmatch = {{ program = \"x\" }}\nreap-when = [{{ cwd-gone = \"{{cwd}}\" }}]\n{ping}\n"
    );
    assert!(load(&text).is_ok(), "{text}");
}
