//! Real processes for tests: each is marked with a nonce in its environment, and only marked ones are ever ended.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// The variable that marks planted processes.
pub(crate) const MARK: &str = "REAPD_TEST_NONCE";

/// Waits until `condition` holds; fails after half a minute.
pub(crate) fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !condition() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A directory with marked processes; everything marked is ended when this is dropped.
pub(crate) struct Planted {
    directory: tempfile::TempDir,
    nonce: String,
    python: PathBuf,
    // Python looks for its library beside argv[0], which here bears another program's name.
    python_home: String,
}

impl Planted {
    /// Starts with nothing planted.
    pub(crate) fn new() -> Planted {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let nonce = format!("{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let told = Command::new("python3")
            .args(["-c", "import sys; print(sys.executable, sys.base_prefix, sep='\\n')"])
            .output()
            .unwrap();
        let told = String::from_utf8(told.stdout).unwrap();
        let mut lines = told.lines();
        Planted {
            directory: tempfile::tempdir().unwrap(),
            nonce,
            python: lines.next().unwrap().into(),
            python_home: lines.next().unwrap().into(),
        }
    }

    /// A path in the directory.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// The value of the mark.
    pub(crate) fn nonce(&self) -> &str {
        &self.nonce
    }

    /// The Python itself, and no script that picks one.
    pub(crate) fn python(&self) -> &Path {
        &self.python
    }

    /// A configuration that admits only what carries the nonce, and waits no longer than a test can.
    pub(crate) fn config(&self) -> String {
        format!(
            "[scope]\nadmit-env = \"{MARK}={}\"\n\n[confirm]\napart = \"300ms\"\nmin-age = \"0s\"\n",
            self.nonce
        )
    }

    /// Runs a shell line as its own session, adopted by whoever reaps here.
    pub(crate) fn detached(&self, line: &str) {
        let status = self.command("setsid").args(["--fork", "bash", "-c", line]).status().unwrap();
        assert!(status.success());
    }

    /// The same, with the pid of what the shell execs into; the line must not fork.
    pub(crate) fn marked(&self, line: &str, name: &str) -> i32 {
        let file = self.path(&format!("{name}.pid"));
        self.detached(&format!("echo $$ >{0}.new; mv {0}.new {0}; exec {line}", file.display()));
        self.pid_in(&file)
    }

    /// A command with the nonce in its environment and nothing of ours.
    pub(crate) fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .current_dir(self.directory.path())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("HOME", self.path("home"))
            .env("SHELL", "/bin/sh")
            .env("PYTHON", &self.python)
            .env("PYTHONHOME", &self.python_home)
            .env(MARK, &self.nonce)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        command
    }

    /// Waits for a pid file and returns its first number.
    #[expect(clippy::unused_self, reason = "it is asked of what was planted")]
    pub(crate) fn pid_in(&self, file: &Path) -> i32 {
        let mut pid = None;
        wait_for(&format!("{}", file.display()), || {
            pid = fs::read_to_string(file).ok().and_then(|text| text.split_whitespace().next()?.parse().ok());
            pid.is_some()
        });
        pid.unwrap()
    }

    /// A multiplexer that inherited the mark, with a pane.
    pub(crate) fn tmux(&self) -> i32 {
        let socket = self.path("tmux.sock");
        let started = self
            .command("tmux")
            .args(["-S", socket.to_str().unwrap(), "-f", "/dev/null", "new-session", "-d", "sleep 600"])
            .status()
            .unwrap();
        assert!(started.success());
        let asked = self
            .command("tmux")
            .args(["-S", socket.to_str().unwrap(), "display-message", "-p", "#{pid}"])
            .stdout(Stdio::piped())
            .output()
            .unwrap();
        String::from_utf8(asked.stdout).unwrap().trim().parse().unwrap()
    }

    /// An agent that a whole login shares.
    pub(crate) fn ssh_agent(&self) -> i32 {
        let socket = self.path("agent.sock");
        self.detached(&format!("exec ssh-agent -a {} >agent.out", socket.display()));
        wait_for("the agent's socket", || socket.exists());
        let mut pid = None;
        wait_for("the agent's pid", || {
            let said = fs::read_to_string(self.path("agent.out")).unwrap_or_default();
            pid = said.split("SSH_AGENT_PID=").nth(1).and_then(|rest| rest.split(';').next()?.parse().ok());
            pid.is_some()
        });
        pid.unwrap()
    }

    /// A server that stands in a directory that was deleted and made again.
    pub(crate) fn dev_server(&self) -> i32 {
        let build = self.path("build");
        fs::create_dir(&build).unwrap();
        let file = self.path("dev-server.pid");
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes/dev-server.py");
        self.detached(&format!(
            "exec \"$PYTHON\" {} {} {} >dev-server.log 2>&1 </dev/null",
            script.display(),
            build.display(),
            file.display()
        ));
        let pid = self.pid_in(&file);
        fs::remove_dir(&build).unwrap();
        fs::create_dir(&build).unwrap();
        pid
    }

    /// `printf … | server | reader`: the server's input has ended and its answer is still awaited.
    pub(crate) fn pipeline(&self, script: &Path) -> i32 {
        self.detached(&format!(
            "printf 'init\\n' | (exec -a node \"$PYTHON\" {} --stdio) | cat >answers",
            script.display()
        ));
        wait_for("the pipeline's answer", || {
            fs::read_to_string(self.path("answers")).is_ok_and(|text| text.contains("answer to init"))
        });
        let mut found = None;
        wait_for("the pipeline's server", || {
            found = self.all().into_iter().find(|&pid| {
                let parent = Self::parent(pid);
                let argv = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                argv.windows(7).any(|part| part == b"--stdio")
                    && parent.is_some_and(|parent| {
                        fs::read(format!("/proc/{parent}/cmdline"))
                            .is_ok_and(|argv| argv.windows(6).any(|part| part == b"printf"))
                    })
            });
            found.is_some()
        });
        found.unwrap()
    }

    /// Every marked process that is alive.
    pub(crate) fn all(&self) -> Vec<i32> {
        let mark = format!("{MARK}={}", self.nonce);
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|&pid: &i32| pid != rustix::process::getpid().as_raw_nonzero().get())
            .filter(|pid| {
                fs::read(format!("/proc/{pid}/environ"))
                    .is_ok_and(|environ| environ.split(|&byte| byte == 0).any(|item| item == mark.as_bytes()))
            })
            .collect()
    }

    /// The ssh-agents that were planted here: they hide their environment from an ordinary user (they are not
    /// dumpable), so they are known by the socket in this directory that stands in their arguments.
    fn agents(&self) -> Vec<i32> {
        let here = self.directory.path().as_os_str().as_encoded_bytes();
        fs::read_dir("/proc")
            .unwrap()
            .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
            .filter(|&pid: &i32| self.is_alive(pid))
            .filter(|pid| {
                let argv = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                argv.starts_with(b"ssh-agent\0") && argv.windows(here.len()).any(|part| part == here)
            })
            .collect()
    }

    /// Every living descendant of a process.
    pub(crate) fn below(&self, root: i32) -> Vec<i32> {
        let all = self.all();
        let mut found = vec![root];
        let mut at = 0;
        while at < found.len() {
            let above = found[at];
            found.extend(all.iter().copied().filter(|&pid| Self::parent(pid) == Some(above)));
            at += 1;
        }
        found.retain(|&pid| pid != root && self.is_alive(pid));
        found
    }

    fn parent(pid: i32) -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat[stat.rfind(')')? + 1..].split_whitespace().nth(1)?.parse().ok()
    }

    /// Says whether a process runs: absent and zombie are both gone.
    #[expect(clippy::unused_self, reason = "it is asked of what was planted")]
    pub(crate) fn is_alive(&self, pid: i32) -> bool {
        fs::read_to_string(format!("/proc/{pid}/stat"))
            .ok()
            .and_then(|stat| stat[stat.rfind(')')? + 1..].split_whitespace().next().map(str::to_owned))
            .is_some_and(|state| state != "Z" && state != "X")
    }

    /// Ends one planted process at once.
    pub(crate) fn end(&self, pid: i32) {
        assert!(self.all().contains(&pid), "{pid} was not planted here");
        let _ = kill_process(Pid::from_raw(pid).unwrap(), Signal::KILL);
    }
}

impl Drop for Planted {
    fn drop(&mut self) {
        // To a fixed point: a planted process may be forking.
        for _ in 0..50 {
            let mut left = self.all();
            left.extend(self.agents());
            if left.is_empty() {
                return;
            }
            for pid in left {
                if let Some(pid) = Pid::from_raw(pid) {
                    let _ = kill_process(pid, Signal::KILL);
                }
            }
            std::thread::sleep(Duration::from_millis(10));
        }
    }
}
