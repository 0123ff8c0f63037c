//! The watcher: waits beside a command that does not know of it, passes signals on, and has its tree ended when nobody
//! can use it any more. It ends nothing itself: `reapd finish` looks, judges and signals, with all gates.

use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::process::CommandExt as _;
use std::process::{ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal, WaitOptions, WaitStatus, kill_process};

use super::caller::{Caller, Death, Hangup};
use super::channel::{Channel, Streams};
use super::family::Idle;
use super::group::Own;
use super::record::{NoRecord, Record};
use super::signals::{Sender, Signals};
use super::tell;
use super::words::{Order, Talk};
use crate::app::trouble::chain;
use crate::model::id::ProcessId;

/// A refused end is asked for again after this, and then after twice as long each time.
pub(super) const AGAIN: Duration = Duration::from_secs(5);
const SELDOM: Duration = Duration::from_mins(10);
/// Whoever blocked SIGCHLD before us is not told of ends; then they are looked for this often.
pub(super) const LOOK: Duration = Duration::from_secs(1);
/// How often a holder is looked at who has no descriptor to wait for.
const HOLDER: Duration = Duration::from_secs(2);

/// The command, not yet waited for: its number is its own.
#[derive(Debug, Clone, Copy)]
pub(super) struct Command {
    /// Its number.
    pub(super) pid: Pid,
    /// Its process group.
    pub(super) group: Group,
}

/// Whose process group the command is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    /// Ours, since a terminal signals, stops and continues a whole group.
    Shared,
    /// One of its own.
    Own,
}

/// Why the tree is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    /// The far ends of stdin and stdout are gone. Whether that is proof is judged without the lease being released.
    Channel,
    /// Whoever held it is dead.
    Holder,
    /// Nothing moved for as long as `--idle` says.
    Idle,
    /// The command ended, and this is what it left behind.
    Ended,
}

impl Why {
    /// Returns the reason that goes into the lease.
    fn reason(self) -> Option<&'static str> {
        match self {
            Why::Channel => None,
            Why::Holder => Some("its holder died"),
            Why::Idle => Some("it moved no byte for as long as --idle says"),
            Why::Ended => Some("its command ended"),
        }
    }
}

/// How far the end of the tree is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asking {
    /// Nobody asked so far.
    Never,
    /// `reapd finish` is at work.
    Running { pid: Pid, why: Why, pause: Duration },
    /// It left something standing; again at this moment.
    Again { at: Instant, pause: Duration },
}

/// Waits for a command.
pub(super) struct Watch<'a> {
    pub(super) order: &'a Order,
    command: Command,
    streams: Streams,
    channel: Channel,
    caller: Option<Caller>,
    /// Whether the caller died and that counts.
    ownerless: Option<Death>,
    idle: Option<Idle>,
    pub(super) root: Option<ProcessId>,
    pub(super) hangup: Hangup,
    pub(super) record: Option<Record>,
    /// The command's own cgroup.
    pub(super) place: Option<Own>,
    pub(super) asking: Asking,
}

impl<'a> Watch<'a> {
    /// Returns a watch over a command that was just started. `root` is who we are.
    pub(super) fn new(
        order: &'a Order,
        command: Command,
        streams: Streams,
        caller: Option<Caller>,
        root: Option<ProcessId>,
        hangup: Hangup,
        record: Option<Record>,
    ) -> Watch<'a> {
        let idle = order.idle.zip(root).map(|(span, root)| Idle::new(span, root));
        let asking = Asking::Never;
        let channel = Channel::default();
        let ownerless = None;
        Watch {
            order,
            command,
            streams,
            channel,
            caller,
            ownerless,
            idle,
            root,
            hangup,
            record,
            place: None,
            asking,
        }
    }

    /// Removes this cgroup at the end.
    pub(super) fn over(mut self, place: Option<Own>) -> Watch<'a> {
        self.place = place;
        self
    }

    /// Waits until the command has ended, and ends like it.
    pub(super) fn run(mut self, signals: &Signals) -> ExitCode {
        loop {
            if let Some(status) = self.reap() {
                return self.after(status, signals);
            }
            self.pass_on(signals);
            let until = self.look(Instant::now());
            self.wait(signals, until);
        }
    }

    /// Takes note of every child that changed; returns how the command ended, where it has.
    pub(super) fn reap(&mut self) -> Option<WaitStatus> {
        let options = WaitOptions::NOHANG | WaitOptions::UNTRACED;
        while let Ok(Some((pid, status))) = rustix::process::wait(options) {
            if pid == self.command.pid {
                if status.exited() || status.signaled() {
                    return Some(status);
                }
                if status.stopped() && self.command.group == Group::Shared {
                    // So that the shell sees it, and continues us together.
                    let _ = kill_process(rustix::process::getpid(), Signal::STOP);
                }
            } else if let Asking::Running { pid: asked, why, pause } = self.asking
                && asked == pid
                && !status.stopped()
            {
                self.asking = Asking::Again { at: Instant::now() + pause, pause: (pause * 2).min(SELDOM) };
                self.refused(why);
            }
        }
        None
    }

    /// Somebody still uses what was to end, or it could not be ended.
    fn refused(&mut self, why: Why) {
        if why != Why::Ended {
            tell(self.order, || format!("the tree stays for now ({why:?})"));
        }
        // It may speak again, and then the lease must not say that it is over.
        if let (Why::Idle, Some(reason), Some(record)) = (why, why.reason(), &self.record)
            && let Err(error) = record.reopen(reason)
        {
            tell(self.order, || chain(&error));
        }
    }

    fn pass_on(&self, signals: &Signals) {
        for (signal, sender) in signals.take() {
            // What the terminal says, it says to the whole group, and the command is in it.
            let heard = self.command.group == Group::Shared && sender == Sender::Kernel;
            let continued = self.command.group == Group::Shared && signal == Signal::CONT;
            if heard || (continued && !self.is_stopped()) {
                continue;
            }
            let _ = kill_process(self.command.pid, signal);
        }
    }

    fn is_stopped(&self) -> bool {
        use crate::model::table::State;
        crate::model::id::Pid::new(self.command.pid.as_raw_nonzero().get())
            .and_then(|pid| crate::act::processes::sight_of(pid).ok())
            .is_some_and(|sight| sight.state == State::Stopped)
    }

    /// Looks who still uses the command, and asks for its end where nobody does. Returns when to look again.
    fn look(&mut self, now: Instant) -> Option<Instant> {
        let mut until = None;
        let mut at = |moment: Instant| until = Some(until.map_or(moment, |until: Instant| until.min(moment)));
        if let Some(death) = self.caller.as_ref().and_then(Caller::death) {
            self.caller = None;
            self.ownerless = Some(death);
            if death == Death::Errand {
                tell(self.order, || "the caller went its way; its death means nothing".to_owned());
                if let Some(error) = self.record.as_ref().and_then(|record| record.disown().err()) {
                    tell(self.order, || chain(&error));
                }
            }
        }
        if self.caller.as_ref().is_some_and(|caller| caller.ready().is_none()) {
            at(now + HOLDER);
        }
        if self.streams == Streams::Channel {
            self.channel.look(now);
        }
        let idle = self.idle.as_mut().is_some_and(|idle| idle.is_over(now));
        if let Some(idle) = &self.idle {
            at(idle.due());
        }
        let why = if self.ownerless == Some(Death::Counts) {
            Some(Why::Holder)
        } else if self.channel.due().is_some_and(|due| due <= now && Channel::is_drained()) {
            Some(Why::Channel)
        } else if idle {
            Some(Why::Idle)
        } else {
            None
        };
        match (self.asking, why) {
            (Asking::Running { .. }, _) => at(now + LOOK),
            (Asking::Never, Some(why)) => self.ask(why, AGAIN),
            (Asking::Again { at: due, pause }, Some(why)) if due <= now => self.ask(why, pause),
            (Asking::Again { at: due, .. }, Some(_)) => at(due),
            (Asking::Never | Asking::Again { .. }, None) => {}
        }
        if let Some(due) = self.channel.due() {
            // What is unread then is looked at again like a refusal.
            at(if due > now { due } else { now + AGAIN });
        }
        until
    }

    fn wait(&self, signals: &Signals, until: Option<Instant>) {
        let (stdin, stdout) = (io::stdin(), io::stdout());
        let mut fds = vec![PollFd::from_borrowed_fd(signals.ready(), PollFlags::IN)];
        if let Some(ready) = self.caller.as_ref().and_then(Caller::ready) {
            fds.push(PollFd::from_borrowed_fd(ready, PollFlags::IN));
        }
        if self.streams == Streams::Channel {
            let (input, output) = self.channel.watched();
            if input {
                fds.push(PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::empty()));
            }
            if output {
                fds.push(PollFd::from_borrowed_fd(stdout.as_fd(), PollFlags::empty()));
            }
        }
        let time = until.map(|until| {
            let left = until.saturating_duration_since(Instant::now()) + Duration::from_millis(1);
            Timespec {
                tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        // Interrupted or not: whatever came is looked for next.
        let _ = poll(&mut fds, time.as_ref());
    }

    /// Has `reapd finish` look at the tree and end it, where it may.
    pub(super) fn ask(&mut self, why: Why, pause: Duration) {
        self.asking = match self.begin_end(why) {
            Ok(Some(pid)) => Asking::Running { pid, why, pause },
            Ok(None) => Asking::Again { at: Instant::now() + SELDOM, pause: SELDOM },
            Err(error) => {
                tell(self.order, || format!("cannot end the tree: {}", chain(&error)));
                Asking::Again { at: Instant::now() + pause, pause: (pause * 2).min(SELDOM) }
            }
        };
    }

    /// Releases the lease and starts whoever ends; without a lease nobody can.
    fn begin_end(&self, why: Why) -> Result<Option<Pid>, NoEnd> {
        let Some(record) = &self.record else { return Ok(None) };
        tell(self.order, || format!("asking for the tree's end ({why:?})"));
        if let Some(reason) = why.reason() {
            record.release(reason)?;
        }
        let mut finish = std::process::Command::new(program()?);
        // Whoever counts an engine's clients knows us by our name.
        finish.arg0("reapd");
        // First, since that is what tells it from what the command started, for whoever else looks.
        finish.arg("finish").arg(record.id().as_str());
        let place = &self.order.place;
        if let Some(path) = &place.config {
            finish.arg("--config").arg(path);
        }
        if let Some(path) = &place.state_dir {
            finish.arg("--state-dir").arg(path);
        }
        // Another engine than the usual one, where the command says so.
        finish.envs(super::container::engine(&self.order.command));
        let talk = match self.order.talk {
            Talk::Quiet => Stdio::null(),
            Talk::Verbose => Stdio::inherit(),
        };
        let child = finish.stdin(Stdio::null()).stdout(Stdio::null()).stderr(talk).spawn()?;
        Ok(i32::try_from(child.id()).ok().and_then(Pid::from_raw))
    }
}

/// Why nobody was asked to end the tree.
#[derive(Debug, thiserror::Error)]
enum NoEnd {
    /// The lease could not be released.
    #[error(transparent)]
    Record(#[from] NoRecord),
    /// `reapd finish` could not be started.
    #[error("cannot start reapd finish")]
    Start(#[from] io::Error),
}

/// Returns our own program, though its file may have been replaced or removed meanwhile.
fn program() -> io::Result<std::path::PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

pub(super) fn wait_on(signals: &Signals, span: Duration) {
    let time =
        Timespec { tv_sec: i64::try_from(span.as_secs()).unwrap_or(1), tv_nsec: span.subsec_nanos().into() };
    let _ = poll(&mut [PollFd::from_borrowed_fd(signals.ready(), PollFlags::IN)], Some(&time));
}

/// Lets go of stdin and stdout, so that their far ends see the command alone.
pub(super) fn let_go_of_streams() {
    let flags = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::CLOEXEC;
    if let Ok(null) = rustix::fs::open("/dev/null", flags, rustix::fs::Mode::empty()) {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
    }
}
