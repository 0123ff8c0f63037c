//! `reapd run`: as if it were not there, and nothing left when nobody is.

mod bare;
#[cfg(target_os = "linux")]
mod cgroup;
mod ends;
mod terminal;
mod torture;

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};

use rustix::process::{Pid, Signal, kill_process};

use crate::planted::{Planted, wait_for};

/// A place to run commands in: a lease directory of its own, and a configuration that admits nothing but what was
/// planted here.
struct Field {
    planted: Planted,
}

impl Field {
    fn new() -> Field {
        let planted = Planted::new();
        for directory in ["home", "leases", "state"] {
            fs::create_dir(planted.path(directory)).unwrap();
            fs::set_permissions(planted.path(directory), fs::Permissions::from_mode(0o700)).unwrap();
        }
        let field = Field { planted };
        field.configure("");
        field
    }

    fn configure(&self, more: &str) {
        let text = format!(
            "{}\n[escalation]\nladder = [\"TERM 300ms\", \"KILL 20s\"]\n{more}",
            self.planted.config()
        );
        fs::write(self.config(), text).unwrap();
    }

    fn config(&self) -> PathBuf {
        self.planted.path("config.toml")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.planted.path(name)
    }

    /// The words that stand in front of a command for it to be run by reapd.
    fn prefix(&self, flags: &[&str]) -> Vec<String> {
        let mut words = vec![env!("CARGO_BIN_EXE_reapd").to_owned(), "run".to_owned()];
        words.extend(["--config".to_owned(), self.config().display().to_string()]);
        words.extend(["--state-dir".to_owned(), self.path("state").display().to_string()]);
        words.extend(flags.iter().map(|flag| (*flag).to_owned()));
        words.push("--".to_owned());
        words
    }

    /// The same as one word for a shell.
    fn shell_prefix(&self, flags: &[&str]) -> String {
        self.prefix(flags).iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ")
    }

    /// A command of this field, with the planted environment.
    fn command(&self, words: &[String]) -> Command {
        let mut command = self.planted.command(&words[0]);
        command
            .args(&words[1..])
            .env("REAPD_LEASES", self.path("leases"))
            .env("REAPD", self.shell_prefix(&[]));
        command
    }

    /// `reapd run FLAGS -- sh -c LINE`.
    fn run(&self, flags: &[&str], line: &str) -> Command {
        let mut words = self.prefix(flags);
        words.extend(["sh", "-c", line].map(str::to_owned));
        self.command(&words)
    }

    /// A shell line, in which `$REAPD` stands for `reapd run --`. It is run as a session of its own.
    fn shell(&self, line: &str) -> Command {
        let words = ["setsid", "--wait", "bash", "-c"].map(str::to_owned);
        let mut command = self.command(&words);
        command.arg(line.replace("$REAPD", &self.shell_prefix(&[])));
        command
    }

    /// Runs a sweep as a timer does.
    fn sweep(&self) -> Output {
        let _turn = crate::turn::turn();
        let words: Vec<String> =
            ["setsid", "--wait", env!("CARGO_BIN_EXE_reapd"), "sweep", "--once", "--yes"]
                .iter()
                .map(|word| (*word).to_owned())
                .chain(["--config".to_owned(), self.config().display().to_string()])
                .chain(["--state-dir".to_owned(), self.path("state").display().to_string()])
                .collect();
        crate::patience::patiently(&mut self.command(&words))
    }

    /// The lease files.
    fn leases(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("leases")).unwrap();
        entries
            .filter_map(|entry| {
                let path = entry.unwrap().path();
                (path.extension()? == "json").then(|| fs::read_to_string(&path).unwrap_or_default())
            })
            .collect()
    }

    fn journal(&self) -> String {
        fs::read_to_string(self.path("state/journal.jsonl")).unwrap_or_default()
    }

    fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    fn wait_for_file(&self, name: &str, text: &str) {
        wait_for(&format!("'{text}' in {name}"), || self.read(name).contains(text));
    }

    /// Waits until nothing of this field is left but what is told.
    fn wait_until_gone(&self, but: &[i32]) {
        wait_for("everything to be gone", || self.alive().iter().all(|pid| but.contains(pid)));
    }

    fn alive(&self) -> Vec<i32> {
        self.planted.all().into_iter().filter(|&pid| self.planted.is_alive(pid)).collect()
    }
}

/// A child that is ended and waited for when it is dropped.
struct Held(Child);

impl Held {
    fn start(command: &mut Command) -> Held {
        Held(command.spawn().unwrap())
    }

    fn pid(&self) -> i32 {
        i32::try_from(self.0.id()).unwrap()
    }

    fn send(&self, signal: Signal) {
        // Ours and not yet waited for, so the number is its own.
        kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    fn ends(&mut self) -> std::process::ExitStatus {
        let mut status = None;
        wait_for("the end", || {
            status = self.0.try_wait().unwrap();
            status.is_some()
        });
        status.unwrap()
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Everything as pipes.
fn piped(command: &mut Command) -> &mut Command {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped())
}
