//! A desk to run the real binary from: a home of its own, and a configuration that admits only what was planted here.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use crate::planted::{Planted, wait_for};
use crate::turn::turn;

/// A home of its own with a configuration that admits nothing but what this test planted.
pub(crate) struct Desk {
    pub(crate) planted: Planted,
}

impl Desk {
    /// A desk with the planted configuration.
    pub(crate) fn new() -> Desk {
        let planted = Planted::new();
        let home = planted.path("home");
        fs::create_dir_all(home.join(".config/reapd")).unwrap();
        fs::create_dir_all(planted.path("run")).unwrap();
        let desk = Desk { planted };
        desk.configure("");
        desk
    }

    /// A desk whose configuration condemns every `bash stubborn.sh` that stands in a deleted directory of this test.
    pub(crate) fn with_stubborn(ladder: &str) -> Desk {
        let desk = Desk::new();
        // Not the whole directory: an ordinary user's home is in it, and no root may hold a home.
        fs::create_dir(desk.planted.path("throwaway")).unwrap();
        let base = desk.planted.path("throwaway").canonicalize().unwrap();
        desk.configure(&format!(
            "\n[escalation]\nladder = {ladder}\n\n[process.planted]\nmatch = {{ program = \"bash\", args = [\"stubborn.sh\", \"...\"] }}\nreap-when = [{{ cwd-gone = {{ roots = [\"{}\"] }} }}]\n",
            base.display()
        ));
        desk
    }

    /// Where leases of this desk are.
    pub(crate) fn leases(&self) -> PathBuf {
        self.planted.path("leases")
    }

    /// Writes the planted configuration, and more behind it.
    pub(crate) fn configure(&self, more: &str) {
        fs::write(self.config(), format!("{}{more}", self.planted.config())).unwrap();
    }

    /// Changes the configuration.
    pub(crate) fn reconfigure(&self, change: impl FnOnce(&str) -> String) {
        let text = fs::read_to_string(self.config()).unwrap();
        let changed = change(&text);
        assert_ne!(changed, text);
        fs::write(self.config(), changed).unwrap();
    }

    /// Where the configuration is.
    pub(crate) fn config(&self) -> PathBuf {
        self.planted.path("home/.config/reapd/config.toml")
    }

    /// Starts `stubborn.sh` with this text in a directory that is deleted once `members` others are below it; returns
    /// its pid.
    pub(crate) fn stubborn(&self, name: &str, text: &str, members: usize) -> i32 {
        let work = self.planted.path(&format!("throwaway/{name}"));
        fs::create_dir(&work).unwrap();
        fs::write(work.join("stubborn.sh"), text).unwrap();
        let file = self.planted.path(&format!("{name}.pid"));
        let line = "cd \"$0\"; echo $$ >\"$1.new\"; mv \"$1.new\" \"$1\"; exec bash stubborn.sh";
        let status = self
            .planted
            .command("setsid")
            .args(["--fork", "bash", "-c", line])
            .args([&work, &file])
            .status()
            .unwrap();
        assert!(status.success());
        let pid = self.planted.pid_in(&file);
        wait_for("the whole stubborn tree", || {
            let below = self.planted.below(pid);
            below.len() == members && below.iter().all(|&pid| runs(pid, "sleep"))
        });
        fs::remove_dir_all(work).unwrap();
        pid
    }

    /// A command that runs reapd here.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        self.command_of(Path::new(env!("CARGO_BIN_EXE_reapd")), arguments)
    }

    fn command_of(&self, program: &Path, arguments: &[&str]) -> Command {
        let mut command = Command::new(program);
        command
            .args(arguments)
            .arg("--config")
            .arg(self.config())
            .arg("--state-dir")
            .arg(self.planted.path("state"))
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.planted.path("home"))
            .env("XDG_RUNTIME_DIR", self.planted.path("run"))
            .env("REAPD_LEASES", self.leases())
            .stdin(Stdio::null());
        command
    }

    /// Runs reapd in a session of its own, since nothing in its session is ever touched. Sweeps take turns.
    pub(crate) fn reapd(&self, arguments: &[&str]) -> Output {
        let _turn = turn();
        self.reapd_in_turn(arguments)
    }

    /// The same for who has the turn already.
    pub(crate) fn reapd_in_turn(&self, arguments: &[&str]) -> Output {
        self.in_session(arguments).output().unwrap()
    }

    /// A command that runs reapd here, in a session of its own.
    pub(crate) fn in_session(&self, arguments: &[&str]) -> Command {
        let mut all = vec!["--wait", env!("CARGO_BIN_EXE_reapd")];
        all.extend(arguments);
        self.command_of(Path::new("setsid"), &all)
    }

    /// Starts reapd in our own session, so that its number is known; what is planted is in others.
    pub(crate) fn start(&self, arguments: &[&str]) -> Running {
        let child = self.command(arguments).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        Running(Some(child))
    }

    /// The journal as it stands.
    pub(crate) fn journal(&self) -> String {
        fs::read_to_string(self.planted.path("state/journal.jsonl")).unwrap_or_default()
    }

    /// Waits until the journal holds a text.
    pub(crate) fn wait_for_journal(&self, text: &str) {
        wait_for(text, || self.journal().contains(text));
    }
}

/// A running reapd; ended when dropped.
pub(crate) struct Running(Option<Child>);

impl Running {
    /// Sends it a signal.
    pub(crate) fn send(&self, signal: rustix::process::Signal) {
        let child = self.0.as_ref().unwrap();
        // Ours and not yet waited for, so the number is its own.
        let pid = rustix::process::Pid::from_child(child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Waits for its end.
    pub(crate) fn end(mut self) -> Output {
        self.0.take().unwrap().wait_with_output().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Some(child) = &mut self.0 {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

/// Everything that reapd said.
pub(crate) fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Says whether a process runs the program of this name.
pub(crate) fn runs(pid: i32, name: &str) -> bool {
    fs::read_to_string(format!("/proc/{pid}/comm")).is_ok_and(|comm| comm.trim_end() == name)
}
