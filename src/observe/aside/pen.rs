//! Our end of the aside process: starts it when needed, asks with a deadline, kills and abandons what hangs.

use std::collections::{BTreeSet, VecDeque};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use bstr::BString;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use crate::model::id::{Pid, ProcessId};
use crate::model::known::{Known, Reason, Unknown};

use super::frame::{self, Front};
use super::{Flush, Reply, Request};

/// Requests that are on their way together.
const BATCH: usize = 256;

/// Late answers in one look before the rest of it is given up, so that many dead mounts cannot hold a sweep for
/// longer than a few deadlines.
const LATE_MOST: u32 = 3;

/// Killed processes that may still be waited for. More, and the machine is beyond what probing could tell.
const ABANDONED_MOST: usize = 4;

/// Processes that are remembered as having hung.
const HUNG_MOST: usize = 1024;

/// Our end of the aside process.
#[derive(Debug)]
pub(in crate::observe) struct Aside {
    program: PathBuf,
    timeout: Duration,
    env_names: BTreeSet<BString>,
    running: Option<Running>,
    abandoned: Vec<Child>,
    late: u32,
    // How the next process sends its replies: one by one once something was late in this look.
    flush: Flush,
    // Invariant: at most HUNG_MOST. Asked last, so that they do not take others' answers with them.
    hung: BTreeSet<ProcessId>,
    fault: Option<Unknown>,
}

#[derive(Debug)]
struct Running {
    child: Child,
    to: ChildStdin,
    from: ChildStdout,
    flush: Flush,
}

/// How one batch came to its end.
enum End {
    /// Every reply is there.
    Done,
    /// The next one did not come in time.
    Late,
    /// The process ended, or spoke rubbish.
    Lost,
}

impl Aside {
    /// Returns an aside that has not been started.
    pub(in crate::observe) fn new(
        program: PathBuf,
        timeout: Duration,
        env_names: BTreeSet<BString>,
    ) -> Aside {
        Aside {
            program,
            timeout,
            env_names,
            running: None,
            abandoned: Vec::new(),
            late: 0,
            flush: Flush::Together,
            hung: BTreeSet::new(),
            fault: None,
        }
    }

    /// Begins a new look: late answers count afresh, and the aside process drops what it kept of the last one.
    pub(in crate::observe) fn begin(&mut self) {
        self.late = 0;
        self.flush = Flush::Together;
        self.fault = None;
        self.abandoned.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        let began = self.running.as_mut().map(|running| running.begin(&self.env_names, Flush::Together));
        if let Some(Err(_)) = began {
            self.abandon();
        }
    }

    /// Returns why answers were missing since the look began, where they were.
    pub(in crate::observe) fn fault(&self) -> Option<&Unknown> {
        self.fault.as_ref()
    }

    /// Says whether a number is that of a process which does the reading for us.
    pub(in crate::observe) fn is_own(&self, pid: Pid) -> bool {
        let running = self.running.iter().map(|running| &running.child);
        let mut all = running.chain(&self.abandoned);
        all.any(|child| i32::try_from(child.id()) == Ok(pid.number()))
    }

    /// Asks one thing that must not be asked twice, whatever comes of it, and waits as long as is said here. An aside
    /// that is asked like this is asked nothing else.
    pub(in crate::observe) fn ask_once(&mut self, request: Request, patience: Duration) -> Known<Reply> {
        self.timeout = patience;
        self.late = 0;
        // With replies that come one by one, one that is missing is never asked for again.
        self.flush = Flush::Each;
        let silent = || Err(Unknown::new(Reason::NotAsked, "asking it"));
        self.ask(&[request]).pop().unwrap_or_else(silent)
    }

    /// Asks everything and returns the replies in the order of the requests.
    pub(in crate::observe) fn ask(&mut self, requests: &[Request]) -> Vec<Known<Reply>> {
        let mut replies: Vec<Option<Known<Reply>>> = requests.iter().map(|_| None).collect();
        let has_hung = |at: &usize| requests[*at].about().is_some_and(|id| self.hung.contains(&id));
        let (last, first): (Vec<usize>, Vec<usize>) = (0..requests.len()).partition(has_hung);
        let mut left: VecDeque<usize> = first.into_iter().chain(last).collect();
        while !left.is_empty() {
            if let Err(unknown) = self.ready() {
                self.fault.get_or_insert_with(|| unknown.clone());
                for at in left.drain(..) {
                    replies[at] = Some(Err(unknown.clone()));
                }
                break;
            }
            match self.batch(requests, &mut left, &mut replies) {
                End::Done => {}
                // Replies may have gone down together with it: ask again one by one, to see whose is late.
                End::Late | End::Lost if self.abandon() == Flush::Together => {}
                End::Late => {
                    self.late += 1;
                    let unknown = Unknown::new(Reason::Hung, "reading it");
                    self.fault.get_or_insert_with(|| unknown.clone());
                    if let Some(at) = left.pop_front() {
                        if let Some(id) = requests[at].about()
                            && self.hung.len() < HUNG_MOST
                        {
                            self.hung.insert(id);
                        }
                        replies[at] = Some(Err(unknown));
                    }
                }
                End::Lost => {
                    self.late += 1;
                    let unknown = Unknown::new(Reason::Starved, "the process that does the reading ended");
                    self.fault.get_or_insert_with(|| unknown.clone());
                    if let Some(at) = left.pop_front() {
                        replies[at] = Some(Err(unknown));
                    }
                }
            }
        }
        let unasked = || Err(Unknown::new(Reason::NotAsked, "reading it"));
        replies.into_iter().map(|reply| reply.unwrap_or_else(unasked)).collect()
    }

    /// Makes sure that a process is there to be asked.
    fn ready(&mut self) -> Known<()> {
        if self.late >= LATE_MOST {
            return Err(Unknown::new(
                Reason::Hung,
                "given up after several reads that did not answer in time",
            ));
        }
        if self.running.is_some() {
            return Ok(());
        }
        self.abandoned.retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_))));
        if self.abandoned.len() >= ABANDONED_MOST {
            return Err(Unknown::new(Reason::Hung, "too many processes hang in reads already"));
        }
        let running = Running::start(&self.program, &self.env_names, self.flush).map_err(|error| {
            let reason = match Errno::from_io_error(&error) {
                Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::AGAIN) | None => Reason::Starved,
                Some(Errno::ACCESS | Errno::PERM) => Reason::Denied,
                Some(errno) => Reason::Failed(errno.raw_os_error()),
            };
            Unknown::new(reason, "starting the process that does the reading")
        })?;
        self.running = Some(running);
        Ok(())
    }

    /// Kills what does not answer. It is not waited for: in uninterruptible sleep the signal stays pending.
    fn abandon(&mut self) -> Flush {
        self.flush = Flush::Each;
        let Some(Running { mut child, flush, to, from }) = self.running.take() else { return Flush::Each };
        drop((to, from));
        let _ = child.kill();
        self.abandoned.push(child);
        flush
    }

    fn batch(
        &mut self,
        requests: &[Request],
        left: &mut VecDeque<usize>,
        replies: &mut [Option<Known<Reply>>],
    ) -> End {
        let Some(running) = &mut self.running else { return End::Lost };
        let mut outbox = Vec::new();
        let mut waiting = left.len().min(BATCH);
        for &at in left.iter().take(waiting) {
            if frame::put(&mut outbox, &requests[at]).is_err() {
                return End::Lost;
            }
        }
        let mut inbox = Vec::new();
        let mut sent = 0;
        let mut deadline = Instant::now() + self.timeout;
        while waiting > 0 {
            match running.exchange(&outbox, &mut sent, &mut inbox, deadline) {
                Ok(Progress::Some) => {}
                Ok(Progress::Late) => return End::Late,
                Err(_) => return End::Lost,
            }
            let mut used = 0;
            while waiting > 0 {
                match frame::take::<Reply>(&inbox[used..]) {
                    Front::Whole(reply, length) => {
                        used += length;
                        waiting -= 1;
                        deadline = Instant::now() + self.timeout;
                        let Some(at) = left.pop_front() else { return End::Lost };
                        replies[at] = Some(Ok(reply));
                    }
                    Front::Part => break,
                    Front::Broken => return End::Lost,
                }
            }
            inbox.drain(..used);
        }
        End::Done
    }
}

impl Drop for Aside {
    fn drop(&mut self) {
        // Between two requests it waits for the next one, so it dies at once and can be waited for.
        if let Some(Running { mut child, to, from, .. }) = self.running.take() {
            drop((to, from));
            let _ = child.kill();
            let _ = child.wait();
        }
        for mut child in self.abandoned.drain(..) {
            let _ = child.try_wait();
        }
    }
}

enum Progress {
    Some,
    Late,
}

impl Running {
    fn start(program: &PathBuf, env_names: &BTreeSet<BString>, flush: Flush) -> io::Result<Running> {
        let mut child = Command::new(program)
            .arg("aside")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .current_dir("/")
            .spawn()?;
        let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
            let _ = child.kill();
            let _ = child.wait();
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        let mut running = Running { child, to, from, flush };
        let prepared = nonblocking(running.to.as_fd())
            .and_then(|()| nonblocking(running.from.as_fd()))
            .map_err(io::Error::from)
            .and_then(|()| running.begin(env_names, flush));
        if let Err(error) = prepared {
            let _ = running.child.kill();
            let _ = running.child.wait();
            return Err(error);
        }
        Ok(running)
    }

    /// Says that a look begins. A fresh pipe, or one whose last reply was read, has room for this.
    fn begin(&mut self, env_names: &BTreeSet<BString>, flush: Flush) -> io::Result<()> {
        self.flush = flush;
        let mut outbox = Vec::new();
        frame::put(&mut outbox, &Request::Begin { env_names: env_names.clone(), flush })
            .map_err(io::Error::other)?;
        self.to.write_all(&outbox)
    }

    /// Writes what can be written and reads what is there, waiting until the deadline for either.
    fn exchange(
        &mut self,
        outbox: &[u8],
        sent: &mut usize,
        inbox: &mut Vec<u8>,
        deadline: Instant,
    ) -> io::Result<Progress> {
        let left = deadline.saturating_duration_since(Instant::now());
        let timeout = Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: left.subsec_nanos().into(),
        };
        let mut ends = vec![PollFd::new(&self.from, PollFlags::IN)];
        if *sent < outbox.len() {
            ends.push(PollFd::new(&self.to, PollFlags::OUT));
        }
        match poll(&mut ends, Some(&timeout)) {
            Ok(0) => return Ok(Progress::Late),
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno.into()),
        }
        let readable = !ends[0].revents().is_empty();
        let writable = ends.get(1).is_some_and(|end| !end.revents().is_empty());
        if writable {
            match self.to.write(&outbox[*sent..]) {
                Ok(length) => *sent += length,
                Err(error) if is_for_later(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if readable {
            let mut chunk = [0; 16 * 1024];
            match self.from.read(&mut chunk) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(length) => inbox.extend_from_slice(&chunk[..length]),
                Err(error) if is_for_later(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(Progress::Some)
    }
}

fn is_for_later(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
}

fn nonblocking(end: BorrowedFd<'_>) -> Result<(), Errno> {
    let flags = rustix::fs::fcntl_getfl(end)?;
    rustix::fs::fcntl_setfl(end, flags | rustix::fs::OFlags::NONBLOCK)
}
