//! `reapd run`: runs a command as if it were not there, and ends what it leaves behind.
//!
//! Nothing here reads a configuration, asks clap, starts a thread or copies a byte of the command's streams. Whatever
//! goes wrong with the lease, the command runs (fail-open). Only `reapd finish` ends anything, as a child of ours.

mod aftermath;
mod caller;
mod channel;
mod container;
mod end;
mod family;
mod finish;
#[cfg_attr(target_os = "macos", path = "groupless.rs")]
mod group;
mod inherited;
mod record;
mod signals;
#[cfg(target_os = "linux")]
mod spawn;
mod watch;
mod words;

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode};

use super::cli::{Place, Run};
use super::place::Surroundings;
use super::trouble::chain;
use crate::act::processes::sight_of;
use crate::model::id::{Pid, ProcessId};
use crate::model::lease::{COOKIE, RunChannel};
use crate::observe;

pub use finish::{FINISHING, finish};

use caller::{Caller, Started};
use channel::Streams;
use group::Own;
use record::{HeldBy, Record};
use signals::Signals;
use watch::{Command as Watched, Group, Watch};
use words::{Order, Talk, Way};

/// The exit code for faults of the command line: those of the command itself would be taken for its own.
pub const USAGE: u8 = end::OWN_FAULT;

/// Says whether this process was started as `reapd run`.
pub fn is_asked() -> bool {
    std::env::args_os().nth(1).is_some_and(|word| word == "run")
}

/// Runs a command, where the command line is one that needs no clap.
pub fn main() -> Option<ExitCode> {
    if !is_asked() {
        return None;
    }
    let (place, run) = words::read(std::env::args_os().skip(2))?;
    Some(begin(place, run))
}

/// Runs a command.
pub fn begin(place: Place, run: Run) -> ExitCode {
    match words::check(place, run) {
        Ok(order) => start(&order),
        Err(fault) => {
            say(&fault);
            ExitCode::from(USAGE)
        }
    }
}

/// Says something on stderr. Where nobody listens, nothing is lost.
fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "reapd: {text}");
}

fn tell(order: &Order, text: impl FnOnce() -> String) {
    match order.talk {
        Talk::Quiet => {}
        Talk::Verbose => say(&text()),
    }
}

/// Who uses the command, as far as it can be seen when we begin.
struct Users {
    streams: Streams,
    /// Whose death counts, where somebody's does.
    caller: Option<Caller>,
    /// Who is written down as the holder.
    held: HeldBy,
}

impl Users {
    fn look(order: &Order, started: Started<'_>) -> Users {
        let streams = Streams::now();
        if let Some(pid) = order.holder {
            return Users { streams, caller: Caller::named(pid), held: HeldBy::Process(pid) };
        }
        match Caller::parent(started) {
            None => Users { streams, caller: None, held: HeldBy::Init },
            Some((pid, caller)) => {
                // Where stdin is a channel, it says more than the caller does.
                let counts = streams == Streams::Other || order.way == Way::Exec;
                Users { streams, caller: counts.then_some(caller), held: HeldBy::Process(pid) }
            }
        }
    }

    fn channel(&self) -> RunChannel {
        match self.streams {
            Streams::Channel | Streams::InputOnly => RunChannel::Stdio,
            Streams::Other => RunChannel::None,
        }
    }
}

fn start(order: &Order) -> ExitCode {
    let foreign = inherited::descriptors();
    let hangup = signals::hangup();
    let own = own_pid().and_then(|pid| observe::bearer(pid).ok().flatten());
    let users = Users::look(order, Started { own: own.as_ref(), hangup });
    let record = match draft(order, &users) {
        Ok(record) => record,
        Err(error) => {
            tell(order, || format!("no lease ({}): the command runs without", chain(&error)));
            None
        }
    };
    let mut record = record;
    let place = record.as_mut().filter(|_| order.way == Way::Watch).and_then(place);
    let (record, words) = write(order, record);
    let mut command = command(order, &words, record.as_ref());
    if order.way == Way::Exec {
        inherited::restore(&mut command, inherited::pipe(), None);
        let error = command.exec();
        return unstarted(order, record.as_ref(), &error);
    }
    let signals = match Signals::listen() {
        Ok(signals) => signals,
        Err(error) => {
            leave(place);
            // Without signals nothing can be watched; the command runs all the same.
            tell(order, || format!("cannot watch ({error}): the command runs alone"));
            inherited::restore(&mut command, inherited::pipe(), None);
            return unstarted(order, record.as_ref(), &command.exec());
        }
    };
    #[cfg(target_os = "linux")]
    {
        // A kernel that refuses leaves us with the direct children; the lease covers the others.
        let _ = rustix::process::set_child_subreaper(Some(rustix::process::getpid()));
    }
    let has_terminal = own.as_ref().is_some_and(|row| row.tty != 0);
    let group = if has_terminal { Group::Shared } else { Group::Own };
    let placed = record
        .as_ref()
        .zip(place.as_ref())
        .and_then(|(record, place)| place.start(&words, record.id(), &signals, group));
    // Where it could not be started there, it is started as ever, which says what is wrong with it.
    let place = match placed {
        Some(_) => place,
        None => leave(place),
    };
    let pid = match placed {
        Some(pid) => pid,
        None => match spawn(&mut command, &signals, group) {
            Ok(pid) => pid,
            Err(error) => return unstarted(order, record.as_ref(), &error),
        },
    };
    drop(command);
    inherited::close(foreign);
    if users.streams != Streams::Channel {
        // Nothing is told from them, and whoever has the far ends is to see the command alone.
        watch::let_go_of_streams();
    }
    if let (Some(record), Some(id)) = (&record, identity(pid))
        && let Err(error) = record.started(id, place.as_ref().map(Own::cgroup))
    {
        tell(order, || format!("the lease does not name the command ({})", chain(&error)));
    }
    let root = own.map(|row| row.id);
    Watch::new(order, Watched { pid, group }, users.streams, users.caller, root, hangup, record)
        .over(place)
        .run(&signals)
}

/// Makes a cgroup for the command, where we may, and notes it in the lease.
fn place(record: &mut Record) -> Option<Own> {
    let own = Own::make(record.id())?;
    record.note_cgroup(own.cgroup());
    Some(own)
}

/// Removes a cgroup that nobody was started in.
fn leave(place: Option<Own>) -> Option<Own> {
    if let Some(place) = place {
        place.remove();
    }
    None
}

/// Starts a command the usual way.
fn spawn(command: &mut Command, signals: &Signals, group: Group) -> std::io::Result<rustix::process::Pid> {
    inherited::restore(command, signals.ignored.clone(), signals.blocked);
    if group == Group::Own {
        command.process_group(0);
    }
    let child = command.spawn()?;
    let pid = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw);
    pid.ok_or_else(|| std::io::Error::from_raw_os_error(libc::EAGAIN))
}

/// Makes a lease, where one means something.
fn draft(order: &Order, users: &Users) -> Result<Option<Record>, record::NoRecord> {
    match (order.way, users.held) {
        // With nobody to watch and nobody whose death counts it could never end.
        (Way::Exec, HeldBy::Init) => Ok(None),
        (Way::Exec, HeldBy::Process(_)) => {
            let mut record = Record::draft(&Surroundings::read(), order, users.held, users.channel())?;
            record.become_command();
            Ok(Some(record))
        }
        (Way::Watch, _) => Record::draft(&Surroundings::read(), order, users.held, users.channel()).map(Some),
    }
}

/// Writes the lease, and returns the words of the command with its marks where they belong.
fn write(order: &Order, record: Option<Record>) -> (Option<Record>, Vec<OsString>) {
    let Some(mut record) = record else { return (None, order.command.clone()) };
    let cidfile = record.cidfile();
    let stamp = container::Stamp { id: record.id(), holder: record.holder(), cidfile: &cidfile };
    let stamped = container::stamped(&order.command, stamp);
    if let Some(path) = stamped.as_ref().and_then(|stamped| stamped.cidfile.as_deref()) {
        record.note_cidfile(path);
    }
    match record.write() {
        Ok(()) => {
            tell(order, || format!("lease {}", record.id()));
            let words = stamped.map_or_else(|| order.command.clone(), |stamped| stamped.command);
            (Some(record), words)
        }
        Err(error) => {
            tell(order, || format!("no lease ({}): the command runs without", chain(&error)));
            (None, order.command.clone())
        }
    }
}

fn command(order: &Order, words: &[OsString], record: Option<&Record>) -> Command {
    let program = words.first().or(order.command.first()).cloned().unwrap_or_default();
    let mut command = Command::new(program);
    command.args(words.iter().skip(1));
    if let Some(record) = record {
        command.env(COOKIE, record.id().as_str());
    }
    command
}

fn unstarted(order: &Order, record: Option<&Record>, error: &std::io::Error) -> ExitCode {
    if let Some(record) = record {
        record.remove();
    }
    let name = order.command.first().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    say(&format!("{}: {error}", crate::model::escape::escape(name.as_bytes())));
    ExitCode::from(end::unstarted(error))
}

fn own_pid() -> Option<Pid> {
    Pid::new(rustix::process::getpid().as_raw_nonzero().get())
}

/// Returns a child that was not waited for, by its start too.
fn identity(pid: rustix::process::Pid) -> Option<ProcessId> {
    let pid = Pid::new(pid.as_raw_nonzero().get())?;
    sight_of(pid).ok().map(|sight| sight.id)
}
