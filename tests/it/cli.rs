//! The command line with the real binary: help, exit codes, refusals, files. Nothing here can signal anybody: sweeps
//! are dry, or admit only trees with a mark that nobody bears.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use crate::patience::patiently;

/// A home of its own, so that neither the tester's configuration nor its state is read or written.
struct Home {
    directory: tempfile::TempDir,
}

impl Home {
    fn new() -> Home {
        let home = Home { directory: tempfile::tempdir().unwrap() };
        fs::write(home.config(), "[scope]\nadmit-env = \"REAPD_TEST_NONCE=nobody-bears-this\"\n").unwrap();
        home
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn config(&self) -> PathBuf {
        self.path("config.toml")
    }

    fn state(&self) -> PathBuf {
        self.path("state")
    }

    /// Runs `reapd` with this configuration and state directory.
    fn run(&self, args: &[&str]) -> Ran {
        let mut command = self.bare();
        command.arg("--config").arg(self.config()).arg("--state-dir").arg(self.state()).args(args);
        let _turn = args.contains(&"sweep").then(crate::turn::turn);
        Ran::of(&mut command)
    }

    fn bare(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_reapd"));
        let runtime = self.path("run");
        let _ = fs::create_dir(&runtime);
        command
            .env_clear()
            .env("PATH", "/usr/bin:/bin")
            .env("HOME", self.directory.path())
            .env("XDG_RUNTIME_DIR", &runtime)
            .stdin(Stdio::null());
        command
    }
}

struct Ran {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Ran {
    fn of(command: &mut Command) -> Ran {
        let Output { status, stdout, stderr } = patiently(command);
        Ran {
            code: status.code(),
            out: String::from_utf8(stdout).unwrap(),
            err: String::from_utf8(stderr).unwrap(),
        }
    }

    fn is(&self, code: i32) -> &Ran {
        assert_eq!(self.code, Some(code), "stdout: {}\nstderr: {}", self.out, self.err);
        self
    }

    fn json(&self) -> Value {
        let json: Value = serde_json::from_str(&self.out).expect("JSON on stdout");
        assert_eq!(json["schema"], 1, "{json}");
        json
    }
}

fn names(directory: &Path) -> Vec<String> {
    let Ok(entries) = fs::read_dir(directory) else { return Vec::new() };
    entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
}

#[test]
fn help_and_version_are_data() {
    let home = Home::new();
    let help = home.run(&["--help"]);
    help.is(0);
    for word in ["sweep", "why", "log", "keep", "policies", "rules", "check", "held", "release", "observe"] {
        assert!(help.out.contains(word), "{word} is not in {}", help.out);
    }
    assert!(help.out.contains("Exit codes: 0 done"), "{}", help.out);
    assert!(!help.out.contains("aside"), "{}", help.out);
    let version = home.run(&["--version"]);
    assert_eq!(version.is(0).out, format!("reapd {}\n", env!("CARGO_PKG_VERSION")));
}

#[test]
fn a_wrong_command_line_ends_with_2() {
    let home = Home::new();
    home.run(&["frobnicate"]).is(2);
    home.run(&["sweep", "--dry-run", "--yes"]).is(2);
    home.run(&["sweep", "--dry-run", "--policy", "no-such-policy"]).is(2);
    home.run(&["keep", "1", "--for", "soon"]).is(2);
    home.run(&["release", "nonsense"]).is(2);
    home.run(&["policies", "--set", "codex-broker"]).is(2);
}

#[test]
fn without_a_terminal_nothing_is_done_unasked() {
    let home = Home::new();
    let refused = home.run(&["sweep"]);
    refused.is(2);
    assert!(refused.err.contains("--dry-run") && refused.err.contains("--yes"), "{}", refused.err);
    assert!(refused.out.is_empty());
    assert!(names(&home.state()).is_empty());
}

#[test]
fn a_dry_run_writes_nothing_at_all() {
    let home = Home::new();
    let before = names(home.directory.path());
    let ran = home.run(&["sweep", "--dry-run"]);
    ran.is(0);
    assert!(ran.out.contains("nothing to reap"), "{}", ran.out);
    let mut after = names(home.directory.path());
    after.retain(|name| name != "run");
    assert_eq!(after, before);
    assert!(names(&home.path("run")).is_empty(), "not even the lock");
}

#[test]
fn a_sweep_that_admits_nobody_finds_nobody_and_leaves_a_ledger() {
    let home = Home::new();
    let ran = home.run(&["sweep", "--once", "--exit-code"]);
    ran.is(0);
    let state = names(&home.state());
    assert!(state.contains(&"ledger.json".to_owned()), "{state:?}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(home.state()).unwrap().permissions());
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn a_state_directory_that_others_may_write_is_refused() {
    let home = Home::new();
    fs::create_dir(home.state()).unwrap();
    fs::set_permissions(home.state(), std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap();
    let refused = home.run(&["sweep", "--once"]);
    refused.is(2);
    assert!(refused.err.contains("others may write"), "{}", refused.err);
}

#[test]
fn a_bad_ledger_is_set_aside() {
    let home = Home::new();
    home.run(&["sweep", "--once"]).is(0);
    fs::write(home.state().join("ledger.json"), "{").unwrap();
    let ran = home.run(&["sweep", "--once"]);
    ran.is(0);
    assert!(ran.err.contains("ledger.json.bad"), "{}", ran.err);
    assert!(names(&home.state()).contains(&"ledger.json.bad".to_owned()));
}

#[test]
fn no_writable_journal_no_sweep_s8() {
    let home = Home::new();
    fs::create_dir_all(home.state().join("journal.jsonl")).unwrap();
    fs::set_permissions(home.state(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    let refused = home.run(&["sweep", "--once"]);
    refused.is(3);
    assert!(refused.err.contains("journal"), "{}", refused.err);
}

#[test]
fn faults_are_shown_where_they_stand() {
    let home = Home::new();
    home.run(&["check"]).is(0);
    fs::write(home.config(), "[confirm]\nmin_age = \"1s\"\n").unwrap();
    let faulty = home.run(&["check"]);
    faulty.is(2);
    assert!(faulty.out.contains("config.toml:2:1") && faulty.out.contains("min-age"), "{}", faulty.out);
    let json = home.run(&["check", "--json"]);
    json.is(2);
    assert_eq!(json.json()["ok"], false);
    let refused = home.run(&["sweep", "--dry-run"]);
    refused.is(2);
    assert!(refused.err.contains("min_age"), "{}", refused.err);
    home.run(&["check", "/nonexistent.toml"]).is(2);
}

#[test]
fn json_has_the_documented_keys() {
    let home = Home::new();
    let json = home.run(&["sweep", "--dry-run", "--json"]).json();
    let document = fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/json.md")).unwrap();
    for key in json.as_object().unwrap().keys() {
        assert!(document.contains(&format!("`{key}`")), "{key} is not in docs/json.md");
    }
    for key in ["trees", "planned", "waiting", "teardowns", "gaps", "took_ms", "without_proof"] {
        assert!(!json[key].is_null(), "{key}");
    }
    let error = home.run(&["sweep", "--json"]);
    error.is(2);
    assert_eq!(error.json()["error"]["exit"], 2);
}

#[test]
fn no_colour_into_a_pipe_nor_with_no_color() {
    let home = Home::new();
    assert!(!home.run(&["sweep", "--dry-run"]).out.contains('\u{1b}'));
    let mut command = home.bare();
    command.env("NO_COLOR", "1").arg("--config").arg(home.config()).args(["sweep", "--dry-run"]);
    assert!(!Ran::of(&mut command).out.contains('\u{1b}'));
}

#[test]
fn setting_a_mode_keeps_what_else_stands_in_the_file() {
    let home = Home::new();
    let before = "# mine\nmode = \"report\" # for now\n\n[builtin]\nmcp-server = \"reap\" # good\n";
    fs::write(home.config(), before).unwrap();
    home.run(&["policies", "--set", "mcp-server=off"]).is(0);
    let after = fs::read_to_string(home.config()).unwrap();
    assert_eq!(after, before.replace("mcp-server = \"reap\"", "mcp-server = \"off\""));
    home.run(&["policies", "--set", "no-such=off"]).is(2);
    home.run(&["policies", "--set", "mcp-server=sometimes"]).is(2);
    assert_eq!(fs::read_to_string(home.config()).unwrap(), after);
    let listed = home.run(&["policies"]);
    assert!(listed.is(0).out.contains("mcp-server"), "{}", listed.out);
    assert!(home.run(&["policies", "mcp-server"]).is(0).out.contains("[process.mcp-server]"));
}

#[test]
fn rules_explain_themselves() {
    let home = Home::new();
    let listed = home.run(&["rules"]);
    assert!(listed.is(0).out.contains("stdin-abandoned"), "{}", listed.out);
    assert!(home.run(&["rules", "stdin-abandoned"]).is(0).out.contains("proof"));
    home.run(&["rules", "no-such-rule"]).is(2);
}

#[test]
fn what_is_kept_is_listed_and_taken_back() {
    let home = Home::new();
    assert!(home.run(&["keep"]).is(0).out.is_empty());
    let own = std::process::id().to_string();
    home.run(&["keep", &own, "--for", "2d", "--note", "the test itself"]).is(0);
    let directory = home.directory.path().canonicalize().unwrap();
    home.run(&["keep", directory.to_str().unwrap()]).is(0);
    home.run(&["keep", "/nonexistent"]).is(3);
    let list = home.run(&["keep"]);
    assert!(list.out.contains(&own) && list.out.contains("the test itself"), "{}", list.out);
    assert_eq!(home.run(&["keep", "--json"]).json()["keep"].as_array().unwrap().len(), 2);
    home.run(&["keep", "--remove", "1"]).is(0);
    assert!(!home.run(&["keep"]).out.contains(&own));
    home.run(&["keep", "--remove", "7"]).is(3);
}

#[test]
fn why_knows_the_living_and_says_so_of_strangers() {
    let home = Home::new();
    let own = std::process::id().to_string();
    let why = home.run(&["why", &own]);
    assert!(why.is(0).out.contains("KEEP"), "{}", why.out);
    assert_eq!(home.run(&["why", &own, "--json"]).json()["state"], "alive");
    let unknown = home.run(&["why", "2147483646"]);
    unknown.is(3);
    assert!(unknown.err.contains("there is no process 2147483646"), "{}", unknown.err);
    home.run(&["why", "-1"]).is(2);
    home.run(&["log"]).is(0);
    assert_eq!(home.run(&["log", "--json"]).json()["teardowns"].as_array().unwrap().len(), 0);
    home.run(&["held"]).is(0);
}

/// In a pid namespace below a session that began outside of it, as with `docker exec`, the session has the number 0.
#[cfg(target_os = "linux")]
#[test]
fn a_session_that_began_outside_of_the_pid_namespace_is_no_fault() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let home = Home::new();
    let bare = home.bare();
    let mut command = Command::new("unshare");
    command.args(["--pid", "--fork", "--kill-child", "--mount-proc"]).arg(bare.get_program());
    command.env_clear().envs(bare.get_envs().filter_map(|(name, value)| Some((name, value?))));
    command.arg("--config").arg(home.config()).args(["sweep", "--dry-run"]);
    let ran = Ran::of(&mut command);
    assert!(ran.is(0).out.contains("nothing to reap"), "{}", ran.out);
}

#[test]
fn a_reader_that_went_away_is_no_failure() {
    let home = Home::new();
    let mut command = home.bare();
    command.arg("--config").arg(home.config()).args(["policies"]);
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let status = command.stdout(writer).stderr(Stdio::null()).status().unwrap();
    assert_eq!(status.code(), Some(0));
}

#[test]
fn a_saved_world_names_nobody() {
    let home = Home::new();
    let file = home.path("world.txt");
    home.run(&["observe", "--save", file.to_str().unwrap()]).is(0);
    let world = fs::read_to_string(&file).unwrap();
    assert!(world.starts_with("reapd world 1 strict"), "{}", world.lines().next().unwrap_or_default());
    let base = home.directory.path().file_name().unwrap().to_str().unwrap();
    assert!(!world.contains(base), "the tester's paths are in it");
}
