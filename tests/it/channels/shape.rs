//! Real processes of a wanted shape: marked by a nonce, and ended by pid when the test is over.

use std::fs;
use std::io::{BufRead, BufReader};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use reapd::model::id::{Pid, ProcessId, Start};
use reapd::model::table::{Kernel, Row, State, Table, plain_row};
use rustix::process::{Signal, kill_process};

/// How long a condition may take to come true on a busy machine.
const PATIENCE: Duration = Duration::from_secs(20);

/// A process that this test started, itself or through another; killed when dropped.
#[derive(Debug)]
pub(crate) struct Shape {
    pub(crate) id: ProcessId,
    child: Option<Child>,
}

impl Shape {
    /// Starts a program.
    pub(crate) fn start(command: &mut Command) -> Shape {
        let child = marked(command).spawn().unwrap();
        let pid = Pid::new(i32::try_from(child.id()).unwrap()).unwrap();
        Shape { id: id(pid).unwrap(), child: Some(child) }
    }

    /// Starts a Python program and returns it with the words of the one line it says on stderr when it is ready.
    pub(crate) fn python(program: &str) -> (Shape, Vec<String>) {
        Shape::ready(Command::new("python3").arg("-c").arg(program).stdin(Stdio::null()))
    }

    /// Starts a program and returns it with the words of the one line it says on stderr when it is ready.
    pub(crate) fn ready(command: &mut Command) -> (Shape, Vec<String>) {
        let mut shape = Shape::start(command.stderr(Stdio::piped()));
        let mut line = String::new();
        let stderr = shape.child.as_mut().unwrap().stderr.take().unwrap();
        BufReader::new(stderr).read_line(&mut line).unwrap();
        assert!(line.starts_with("ready"), "not ready: {line}");
        (shape, line.split_whitespace().skip(1).map(ToOwned::to_owned).collect())
    }

    /// Takes charge of a process that one of ours started.
    pub(crate) fn adopt(pid: &str) -> Shape {
        let pid = Pid::new(pid.parse().unwrap()).unwrap();
        // The starter of a process goes on a little before exec has laid out the new environment.
        let environment = || fs::read(format!("/proc/{pid}/environ")).unwrap();
        until(environment, |words| words.split(|&byte| byte == 0).any(|word| word == mark().as_bytes()));
        Shape { id: id(pid).unwrap(), child: None }
    }

    /// Returns the process as its starter sees it.
    pub(crate) fn child(&mut self) -> &mut Child {
        self.child.as_mut().unwrap()
    }

    /// Kills the process and waits until nothing of it runs.
    pub(crate) fn kill(&mut self) {
        if id(self.id.pid) == Some(self.id) {
            let pid = rustix::process::Pid::from_raw(self.id.pid.number()).unwrap();
            let _ = kill_process(pid, Signal::KILL);
        }
        if let Some(child) = &mut self.child {
            child.wait().unwrap();
        }
    }
}

impl Drop for Shape {
    fn drop(&mut self) {
        self.kill();
    }
}

fn mark() -> String {
    format!("REAPD_TEST_NONCE={}", std::process::id())
}

fn marked(command: &mut Command) -> &mut Command {
    let mark = mark();
    let (name, value) = mark.split_once('=').unwrap();
    command.env(name, value)
}

/// Returns the fields of `stat` from the third on.
fn stat(pid: Pid) -> Option<Vec<String>> {
    let line = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    Some(line.rsplit_once(") ")?.1.split_whitespace().map(ToOwned::to_owned).collect())
}

/// Returns who bears a number now.
pub(crate) fn id(pid: Pid) -> Option<ProcessId> {
    Some(ProcessId { pid, start: Start(stat(pid)?[19].parse().unwrap()) })
}

/// Returns the controlling terminal's device number.
pub(crate) fn tty(pid: Pid) -> i32 {
    stat(pid).unwrap()[4].parse().unwrap()
}

/// Returns everybody there is, but for those whom the kernel does not let us read: they pass for its own threads.
pub(crate) fn readable_table() -> Table {
    let mut rows = table().rows().to_vec();
    for row in &mut rows {
        if refuses(row.id.pid) {
            row.kernel = Kernel::Thread;
        }
    }
    Table::new(rows)
}

/// Says whether the kernel does not let us read a process's descriptors.
pub(crate) fn refuses(pid: Pid) -> bool {
    let denied = |error: std::io::Error| error.kind() == std::io::ErrorKind::PermissionDenied;
    fs::read_dir(format!("/proc/{pid}/fd")).is_err_and(denied)
        || fs::read_link(format!("/proc/{pid}/fd/0")).is_err_and(denied)
}

/// Returns everybody there is.
pub(crate) fn table() -> Table {
    let numbers =
        fs::read_dir("/proc").unwrap().filter_map(|entry| entry.unwrap().file_name().into_string().ok());
    let rows = numbers.filter_map(|name| row(Pid::new(name.parse().ok()?)?));
    Table::new(rows.collect())
}

fn row(pid: Pid) -> Option<Row> {
    let fields = stat(pid)?;
    let mut row = plain_row(pid, fields[1].parse().unwrap(), Start(fields[19].parse().unwrap()));
    if fields[0] == "Z" {
        row.state = State::Zombie;
    }
    // PF_KTHREAD of the kernel's sched.h.
    if fields[6].parse::<u64>().unwrap() & 0x0020_0000 != 0 {
        row.kernel = Kernel::Thread;
    }
    Some(row)
}

/// Waits for a condition, and says what was there last if it never comes true.
pub(crate) fn until<T: std::fmt::Debug>(mut look: impl FnMut() -> T, is_met: impl Fn(&T) -> bool) -> T {
    let begun = Instant::now();
    loop {
        let seen = look();
        if is_met(&seen) {
            return seen;
        }
        assert!(begun.elapsed() < PATIENCE, "never came true; last seen: {seen:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}
