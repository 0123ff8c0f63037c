//! Looks: what is there, at one moment, and where we are blind. It decides nothing and touches nothing.
#![allow(clippy::disallowed_methods, reason = "an edge floor: clocks, files and sockets are its work")]

mod arguments;
mod aside;
mod channels;
mod configuration;
#[cfg(target_os = "linux")]
mod descriptors;
mod engines;
mod leases;
mod mcp;
mod naming;
mod opened;
mod pings;
mod processes;
mod registries;
mod residue;
mod setup;
#[cfg(target_os = "linux")]
pub mod sockets;
#[cfg(target_os = "linux")]
pub mod stdio;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;

use bstr::BString;

use crate::model::facts::Namespaces;
use crate::model::id::{BootId, Pid, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::{Arguments, Gap, Scope, Snapshot};
use crate::model::moment::Clocks;
use crate::model::question::{Answer, EngineAnswer, EngineQuestion, Question};
use crate::model::residue::{Ask, Told};
use crate::model::table::{Row, Table};

use arguments::Memory;
use aside::{Aside, Reply, Request};
use channels::Channels;
use configuration::Configuration;
use engines::Engines;
use leases::Leasing;
use processes::{Pinned, Scanner};
use registries::Registries;

pub use aside::aside_main;
pub use engines::{EngineSetup, EngineSurroundings, stdin_main};
pub use leases::LeaseDirectory;
pub use registries::Heard;
pub use setup::{ObserveError, Setup};

/// Variables that are read of every process besides those that policies name: marks that keep, and what tells a
/// service's main process.
const ENV_NAMES: [&str; 5] =
    ["REAPD_KEEP", "REAPD_LEASE", "SYSTEMD_EXEC_PID", "INVOCATION_ID", "XPC_SERVICE_NAME"];

/// Whether a pinned process still runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// It does.
    Alive,
    /// It does not, whoever bears its number now.
    Gone,
    /// The kernel did not say.
    Unknown,
}

/// Looks, and keeps what makes the next look cheap.
#[derive(Debug)]
pub struct Observer {
    setup: Setup,
    boot: BootId,
    scanner: Scanner,
    memory: Memory,
    aside: Aside,
    /// A second one, for requests to servers: they take longer than any read, and must not be asked twice.
    pinging: Aside,
    configured: Configuration,
    leasing: Leasing,
    registries: Registries,
    engines: Engines,
    /// Where a handle could not be had, the reason.
    pinned: BTreeMap<ProcessId, Known<Pinned>>,
    spare: Option<(Table, Vec<Arguments>)>,
}

impl Observer {
    /// Opens what stays open between looks.
    pub fn open(setup: Setup) -> Result<Observer, ObserveError> {
        let scanner = Scanner::open()?;
        let boot = processes::boot_id()?;
        let mut names = setup.env_names.clone();
        names.extend(ENV_NAMES.iter().map(|&name| BString::from(name)));
        let aside = Aside::new(setup.aside.clone(), setup.probe_timeout, names);
        let pinging = Aside::new(setup.aside.clone(), setup.probe_timeout, BTreeSet::new());
        let configured = Configuration::new(setup.home.as_deref());
        let leasing = Leasing::new(&setup.leases);
        let registries = Registries::new(setup.registries.clone());
        let engines = Engines::new(&setup, &ENV_NAMES);
        let pinned = BTreeMap::new();
        Ok(Observer {
            setup,
            boot,
            scanner,
            memory: Memory::default(),
            aside,
            pinging,
            configured,
            leasing,
            registries,
            engines,
            pinned,
            spare: None,
        })
    }

    /// Begins a look: the table of everybody, the arguments of those in scope, and what each engine runs.
    pub fn table(&mut self) -> Result<Snapshot, ObserveError> {
        let mut snapshot = self.processes()?;
        let (engines, unheard) = self.engines.look(&mut self.aside);
        snapshot.engines = engines;
        snapshot.gaps.extend(unheard);
        Ok(snapshot)
    }

    /// The same without engines.
    pub fn processes(&mut self) -> Result<Snapshot, ObserveError> {
        let began = processes::clocks();
        let home = self.setup.home.as_ref().map(|home| BString::from(home.as_os_str().as_bytes()));
        let own = processes::own(self.setup.scope, home);
        let (mut table, mut arguments) = self.spare.take().unwrap_or_default();
        let unread = self.scanner.scan(&mut table)?;
        self.aside.begin();
        self.registries.begin();
        let scanner = &self.scanner;
        let aside = &mut self.aside;
        // On the same way as the arguments, so that a host without leases pays for one look at a missing directory.
        let directories = self.leasing.requests();
        let mut found = None;
        self.memory.refresh(
            &table,
            self.setup.scope,
            own.uid,
            &mut arguments,
            |id| scanner.user(id),
            |ids| {
                let (arguments, leases) = read_arguments(aside, ids, &directories);
                found = Some(leases);
                arguments
            },
        );
        let found = found.unwrap_or_else(|| self.aside.ask(&directories));
        let (mut leases, blind) = self.leasing.take(found);
        leases.cookies = self.leasing.carriers(&leases, &table, &arguments, &mut self.aside);
        let (grouped, unread_groups) = Leasing::grouped(&leases, &table, &mut self.aside);
        leases.grouped = grouped;
        let mut gaps = processes::gaps();
        gaps.extend(blind);
        gaps.extend(unread_groups);
        if unread > 0 {
            gaps.push(Gap {
                source: Gap::UNREAD.into(),
                why: Unknown::new(Reason::Denied, format!("{unread} processes could not be read")),
                cure: None,
            });
        }
        let configured = match self.setup.scope {
            Scope::User => {
                let (servers, unreadable) = self.configured.read(&mut self.aside);
                gaps.extend(unreadable);
                servers
            }
            // Root looks at everybody, and nobody's files speak for everybody.
            Scope::Host => Vec::new(),
        };
        if let Some((count, reason)) = unread_arguments(&arguments)
            && self.aside.fault().is_none()
        {
            gaps.push(Gap {
                source: "arguments".into(),
                why: Unknown::new(reason, format!("{count} processes show none, and match no policy")),
                cure: None,
            });
        }
        if let Some(why) = self.aside.fault() {
            gaps.push(Gap {
                source: "arguments and other facts of some processes".into(),
                why: why.clone(),
                cure: None,
            });
        }
        Ok(Snapshot {
            boot: self.boot.clone(),
            began,
            table,
            arguments,
            own,
            configured,
            leases,
            engines: Vec::new(),
            gaps,
        })
    }

    /// Answers questions, in their order. What hangs is unknown, and the rest goes on.
    pub fn answer(&mut self, snapshot: &Snapshot, questions: &[Question]) -> Vec<(Question, Known<Answer>)> {
        let mut requests = Vec::new();
        for question in questions {
            if !is_apart(question) {
                requests.push(Request::Ask(question.clone()));
            }
        }
        let mut replies = self.aside.ask(&requests).into_iter();
        let limit = self.setup.probe_timeout;
        let mut registered = self.registries.answer(&mut self.aside, snapshot, questions, limit).into_iter();
        let mut named = naming::answer(&mut self.aside, &self.pinging, snapshot, questions).into_iter();
        let mut channels = Channels::new();
        let mut engines =
            self.engines.answer(&mut self.aside, &mut channels, snapshot, questions).into_iter();
        // Last of all: what acts comes after everything that only looks.
        let mut pinged = pings::answer(&mut self.pinging, questions).into_iter();
        let mut answers = Vec::with_capacity(questions.len());
        for question in questions {
            let answer = if let Question::Holders { of, fd } = question {
                channels.holders(*of, *fd, &snapshot.table).map(Answer::Holders)
            } else if let Question::Registered { .. } = question {
                registered.next().unwrap_or_else(|| Err(misfit())).map(Answer::Registered)
            } else if let Question::Engine(EngineQuestion::Ping { .. }) = question {
                let pinged = pinged.next().unwrap_or_else(|| Err(misfit()));
                pinged.map(|pinged| Answer::Engine(EngineAnswer::Pinged(pinged)))
            } else if let Question::Engine(_) = question {
                engines.next().unwrap_or_else(|| Err(misfit())).map(Answer::Engine)
            } else if let Question::Named { .. } = question {
                named.next().unwrap_or_else(|| Err(misfit())).map(Answer::Named)
            } else if let Question::Ping { .. } = question {
                pinged.next().unwrap_or_else(|| Err(misfit())).map(Answer::Ping)
            } else {
                replies.next().unwrap_or_else(|| Err(misfit())).and_then(Reply::answer)
            };
            answers.push((question.clone(), answer));
        }
        answers
    }

    /// Looks at what trees left behind, and at who still uses it. What hangs is unknown.
    pub fn residue(&mut self, asked: Vec<Ask>) -> Vec<Known<Told>> {
        let requests: Vec<Request> = asked.into_iter().map(Request::Residue).collect();
        self.aside.ask(&requests).into_iter().map(|reply| reply.and_then(Reply::residue)).collect()
    }

    /// Returns what servers said of the living, for a later run of this boot.
    pub fn heard(&self) -> Heard {
        self.registries.heard(&self.boot)
    }

    /// Takes up what an earlier run heard.
    pub fn remember(&mut self, heard: Heard) {
        self.registries.remember(heard, &self.boot);
    }

    /// Takes a snapshot's buffers back, so that the next look allocates nothing for a process that did not change.
    pub fn recycle(&mut self, snapshot: Snapshot) {
        let Snapshot {
            boot: _,
            began: _,
            table,
            mut arguments,
            own: _,
            configured: _,
            leases: _,
            engines: _,
            gaps: _,
        } = snapshot;
        arguments.clear();
        self.spare = Some((table, arguments));
    }

    /// Refills a table and does nothing else, for walks that need no arguments.
    pub fn scan(&mut self, table: &mut Table) -> Result<(), ObserveError> {
        self.scanner.scan(table).map(drop)
    }

    /// Keeps a handle on exactly these processes until the next call. One that is held already is not opened anew,
    /// though its process may have gone: only who is left out once is held afresh.
    pub fn pin(&mut self, ids: &[ProcessId]) {
        let wanted: BTreeSet<ProcessId> = ids.iter().copied().collect();
        self.pinned.retain(|id, _| wanted.contains(id));
        for id in wanted {
            self.pinned.entry(id).or_insert_with(|| Pinned::open(id));
        }
    }

    /// Says whether the process that was pinned under this id still runs, though number and start tick may have
    /// been given out again (CASES C07); nothing where nobody asked to pin it.
    pub fn is_pinned_alive(&self, id: ProcessId) -> Option<Life> {
        self.pinned.get(&id).map(life)
    }

    /// Returns those that were pinned and do not surely run any more, whoever bears their numbers now.
    pub fn lost(&self) -> Vec<ProcessId> {
        self.pinned.iter().filter(|(_, pinned)| life(pinned) != Life::Alive).map(|(id, _)| *id).collect()
    }
}

/// Says whether a question is not one request to the aside process: it takes several, or goes elsewhere.
fn is_apart(question: &Question) -> bool {
    matches!(
        question,
        Question::Holders { .. }
            | Question::Registered { .. }
            | Question::Named { .. }
            | Question::Ping { .. }
            | Question::Engine(_)
    )
}

fn life(pinned: &Known<Pinned>) -> Life {
    pinned.as_ref().map_or(Life::Unknown, Pinned::life)
}

/// Reads the clocks together.
pub fn clocks() -> Clocks {
    processes::clocks()
}

/// Returns the row of whoever bears a number in our own pid namespace; nothing where nobody does. One process and no
/// table: for what must be quick.
pub fn bearer(pid: Pid) -> Known<Option<Row>> {
    processes::bearer(pid)
}

/// Returns the arguments of one process. Where its memory is locked, this hangs for as long as it is.
pub fn arguments_of(id: ProcessId) -> Known<Vec<BString>> {
    processes::arguments(id)
}

/// Returns this run of the kernel.
pub fn boot() -> Result<BootId, ObserveError> {
    processes::boot_id()
}

/// Returns our own namespaces.
pub fn namespaces() -> Known<Namespaces> {
    processes::own(Scope::User, None).namespaces
}

/// Reads arguments, and then whatever else; what may hang comes last.
fn read_arguments(
    aside: &mut Aside,
    ids: &[ProcessId],
    also: &[Request],
) -> (Vec<Known<Vec<BString>>>, Vec<Known<Reply>>) {
    let mut requests: Vec<Request> = ids.iter().map(|&id| Request::Arguments(id)).collect();
    requests.extend_from_slice(also);
    let mut replies = aside.ask(&requests);
    let others = replies.split_off(ids.len());
    let arguments = replies.into_iter().map(|reply| reply.and_then(Reply::arguments)).collect();
    (arguments, others)
}

/// Returns how many processes in scope could not be matched for want of their arguments, and why the first could not.
/// Those that went meanwhile are not there to be matched, and too long ones are told from every form by that alone.
fn unread_arguments(arguments: &[Arguments]) -> Option<(usize, Reason)> {
    let reasons = || {
        let refused = arguments.iter().filter_map(|entry| entry.argv.as_ref().err().map(|why| why.reason));
        refused.filter(|reason| !matches!(reason, Reason::Vanished | Reason::Truncated))
    };
    Some((reasons().count(), reasons().next()?))
}

fn misfit() -> Unknown {
    Unknown::new(Reason::Unsupported, "an answer to another question")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::{Start, Uid};

    #[test]
    fn who_shows_no_arguments_is_counted_and_who_went_is_not() {
        let entry =
            |argv| Arguments { id: ProcessId { pid: Pid::INIT, start: Start(1) }, uid: Uid(1000), argv };
        let lost = |reason| entry(Err(Unknown::new(reason, "its arguments")));
        let read = entry(Ok(Vec::new().into()));
        assert_eq!(unread_arguments(&[read, lost(Reason::Vanished), lost(Reason::Truncated)]), None);
        assert_eq!(unread_arguments(&[lost(Reason::Denied), lost(Reason::Hung)]), Some((2, Reason::Denied)));
    }
}
