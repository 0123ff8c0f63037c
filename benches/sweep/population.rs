//! A population of idle processes: one process forks them all, and ends and reaps them by their numbers.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::process::{Child, Command, Stdio};

/// Tells the started benchmark that it is the forker, and how many to fork.
const ROLE: &str = "REAPD_BENCH_FORK";

/// Length of each one's arguments: that of a typical server's command line.
const ARGUMENT: usize = 430;

/// The idle processes; they end with this.
pub(crate) struct Population(Child);

impl Population {
    /// Starts them and returns when all are there.
    pub(crate) fn start(count: usize) -> Population {
        let mut child = Command::new(std::env::current_exe().expect("we have a path"))
            .arg("x".repeat(ARGUMENT))
            .env(ROLE, count.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("we can start ourselves");
        let mut line = String::new();
        let out = child.stdout.as_mut().expect("it has a pipe");
        BufReader::new(out).read_line(&mut line).expect("it speaks");
        assert_eq!(line, "ready\n", "not all could be started");
        Population(child)
    }
}

impl Drop for Population {
    fn drop(&mut self) {
        // The end of its input tells the forker to end them all.
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Says whether this process is the forker.
pub(crate) fn is_forker() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// Forks, waits for the end of standard input, ends and reaps.
#[expect(unsafe_code, reason = "only fork(2) makes thousands of processes that share all memory")]
pub(crate) fn fork_and_wait() {
    let count: usize = std::env::var(ROLE).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut children = Vec::with_capacity(count);
    while children.len() < count {
        // SAFETY: this process has one thread, and the child calls nothing but prctl and pause.
        let pid = unsafe { libc::fork() };
        if pid == 0 {
            idle();
        }
        if pid < 0 {
            break;
        }
        children.push(pid);
    }
    let word = if children.len() == count { "ready" } else { "short" };
    let _ = writeln!(std::io::stdout(), "{word}");
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
    for &pid in &children {
        // SAFETY: it is our own child and not reaped yet, so the number is still its.
        unsafe { libc::kill(pid, libc::SIGKILL) };
    }
    for pid in children {
        // SAFETY: a null status pointer is allowed.
        unsafe { libc::waitpid(pid, std::ptr::null_mut(), 0) };
    }
}

#[expect(unsafe_code, reason = "no allocation may happen after fork")]
fn idle() -> ! {
    // SAFETY: a plain system call: should the forker be killed, none of us stays.
    unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL) };
    loop {
        // SAFETY: it only waits.
        unsafe { libc::pause() };
    }
}
