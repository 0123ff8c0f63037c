//! Real process trees, orphaned, each process marked by a nonce in its environment.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use reapd::model::id::Pid;
use rustix::process::{PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::look;

/// The variable that marks what a test started.
pub(crate) const MARK: &str = "REAPD_TEST_TREE";

/// A planted tree: an orphan that leads its own session. Whatever bears its mark is killed when it is dropped.
pub(crate) struct Tree {
    pub(crate) root: Pid,
    pub(crate) nonce: String,
}

impl Tree {
    /// Starts `sh -c script` as an orphan that leads its own session.
    pub(crate) fn plant(script: &str) -> Tree {
        Tree::plant_with(script, &[])
    }

    /// The same, with further arguments `$1`, `$2`, ….
    pub(crate) fn plant_with(script: &str, args: &[&str]) -> Tree {
        let nonce = nonce();
        let root = start(&nonce, script, args);
        Tree { root, nonce }
    }

    /// Returns the live processes that bear the mark.
    pub(crate) fn alive(&self) -> BTreeSet<Pid> {
        marked(&self.nonce)
    }

    /// Waits until at least so many bear the mark.
    pub(crate) fn wait_for(&self, count: usize) -> &Tree {
        until(&format!("{count} processes"), || self.alive().len() >= count);
        self
    }

    /// Waits until the tree holds a live process with this command name, and returns its number.
    pub(crate) fn find(&self, comm: &str) -> Pid {
        let mut found = None;
        until(comm, || {
            found = self
                .alive()
                .into_iter()
                .find(|pid| look::row(*pid).is_some_and(|row| row.name() == comm.as_bytes()));
            found.is_some()
        });
        found.unwrap()
    }

    /// Returns the live process whose command line holds this text.
    pub(crate) fn find_by_argument(&self, text: &str) -> Pid {
        let mut found = None;
        until(text, || {
            found = self.alive().into_iter().find(|pid| {
                let line = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
                line.split(|byte| *byte == 0).any(|argument| argument == text.as_bytes())
            });
            found.is_some()
        });
        found.unwrap()
    }
}

impl Drop for Tree {
    fn drop(&mut self) {
        let end = Instant::now() + Duration::from_secs(20);
        loop {
            let left = marked(&self.nonce);
            if left.is_empty() || Instant::now() > end {
                break;
            }
            for pid in left {
                kill(pid, &self.nonce);
            }
        }
    }
}

/// Starts an orphan `sh -c script` with a mark, in its own session.
pub(crate) fn start(nonce: &str, script: &str, args: &[&str]) -> Pid {
    // In the background of a shell without job control nobody leads a group, so setsid(1) execs in place.
    let output = Command::new("sh")
        .args(["-c", "setsid sh -c \"$0\" sh \"$@\" >/dev/null 2>&1 </dev/null & echo $!", script])
        .args(args)
        .env(MARK, nonce)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let root =
        String::from_utf8(output.stdout).unwrap().trim().parse::<i32>().ok().and_then(Pid::new).unwrap();
    until("the root to lead its session", || look::row(root).is_some_and(|row| row.sid == root.number()));
    root
}

/// Returns a mark that nobody else bears.
pub(crate) fn nonce() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let nanos = std::time::UNIX_EPOCH.elapsed().unwrap().as_nanos();
    format!("{}-{}-{nanos}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Returns the live processes that bear a mark.
pub(crate) fn marked(nonce: &str) -> BTreeSet<Pid> {
    look::pids()
        .into_iter()
        .filter(|pid| bears(*pid, nonce) && look::row(*pid).is_some_and(|row| !row.is_gone()))
        .collect()
}

/// Returns how many live `sleep` processes are in a session.
pub(crate) fn in_session(leader: Pid) -> usize {
    let is_in = |row: &reapd::model::table::Row| row.sid == leader.number() && row.name() == b"sleep";
    look::pids().into_iter().filter_map(look::row).filter(is_in).count()
}

/// Says whether a process is there and not a dead zombie.
pub(crate) fn is_alive(pid: Pid) -> bool {
    look::row(pid).is_some_and(|row| !row.is_gone())
}

/// Waits for a condition; fails after half a minute.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let end = Instant::now() + Duration::from_secs(30);
    while !holds() {
        assert!(Instant::now() < end, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

fn bears(pid: Pid, nonce: &str) -> bool {
    let mark = format!("{MARK}={nonce}");
    std::fs::read(format!("/proc/{pid}/environ"))
        .is_ok_and(|environ| environ.split(|byte| *byte == 0).any(|variable| variable == mark.as_bytes()))
}

/// Kills one process that bears the mark, through a handle, so that nobody else can have its number.
fn kill(pid: Pid, nonce: &str) {
    let Some(raw) = rustix::process::Pid::from_raw(pid.number()) else { return };
    let Ok(handle) = pidfd_open(raw, PidfdFlags::empty()) else { return };
    if bears(pid, nonce) {
        let _ = pidfd_send_signal(&handle, Signal::KILL);
    }
}

/// Sends a signal to a process of a test's own.
pub(crate) fn send(pid: Pid, signal: Signal) {
    let raw = rustix::process::Pid::from_raw(pid.number()).unwrap();
    pidfd_send_signal(pidfd_open(raw, PidfdFlags::empty()).unwrap(), signal).unwrap();
}

/// Returns who adopts orphans here: process 1, or a subreaper above the tests.
pub(crate) fn adopter() -> Pid {
    static ADOPTER: std::sync::OnceLock<Pid> = std::sync::OnceLock::new();
    *ADOPTER.get_or_init(|| {
        let nonce = nonce();
        let orphan = start(&nonce, "exec sleep 60", &[]);
        let adopter = look::row(orphan).and_then(|row| Pid::new(row.ppid));
        kill(orphan, &nonce);
        adopter.unwrap()
    })
}
