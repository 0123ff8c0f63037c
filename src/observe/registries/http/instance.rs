//! Who answered: whether it is a server that the asked process stands below, or another one at the same address.
//!
//! A server that was restarted on the same port, a reverse proxy, or a sibling worker that got the connection has never
//! heard of the session, and says "not found" in good faith (REDTEAM F11). So it is looked at from the kernel's side:
//! whoever holds the listening sockets, before and after, and whoever holds the far end of our own connection.

use std::collections::{BTreeMap, BTreeSet};

use bstr::ByteSlice as _;

use super::client::{Endpoint, Line};
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::ownership::{ancestors, reapers};
use crate::model::table::Table;
use crate::observe::descriptors::{Descriptors, Text};
use crate::observe::sockets::Dump;
use crate::observe::stdio::holders::holding;

/// What was seen before anybody was asked.
#[derive(Debug, Default)]
pub(super) struct Before(BTreeMap<Endpoint, Known<Listening>>);

/// Who listens at one address.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Listening {
    sockets: BTreeSet<u64>,
    /// Those above the asked processes that hold any of them.
    held_by: BTreeSet<ProcessId>,
}

impl Before {
    /// Looks at who listens there, among those above the processes that will be asked about.
    pub(super) fn look(at: &BTreeSet<Endpoint>, of: &BTreeSet<ProcessId>, table: &Table) -> Before {
        if at.is_empty() {
            return Before::default();
        }
        let above: BTreeSet<ProcessId> = of.iter().flat_map(|id| ancestors(table, id.pid)).collect();
        let held: Vec<(ProcessId, BTreeSet<u64>)> =
            above.into_iter().filter_map(|id| Some((id, sockets_of(id).ok()?))).collect();
        let mut dump = Dump::new();
        let listening = |to: &Endpoint, dump: &mut Dump| {
            let sockets = listeners(to, dump)?;
            let holds = |(_, held): &&(ProcessId, BTreeSet<u64>)| !held.is_disjoint(&sockets);
            let held_by = held.iter().filter(holds).map(|(id, _)| *id).collect();
            Ok(Listening { sockets, held_by })
        };
        Before(at.iter().map(|to| (to.clone(), listening(to, &mut dump))).collect())
    }

    /// Says who answered on each of these connections, while they are open: everybody at the listening sockets and at
    /// the far end.
    pub(super) fn who_answered(&self, lines: &[&Line], table: &Table) -> Vec<Known<Vec<ProcessId>>> {
        let mut dump = Dump::new();
        lines.iter().map(|line| self.who_answered_on(line, table, &mut dump)).collect()
    }

    fn who_answered_on(&self, line: &Line, table: &Table, dump: &mut Dump) -> Known<Vec<ProcessId>> {
        let before =
            self.0.get(&line.to).ok_or_else(|| Unknown::new(Reason::NotAsked, "who listens there"))?;
        let before = before.as_ref().map_err(Clone::clone)?;
        let now = listeners(&line.to, dump)?;
        if now != before.sockets {
            return Err(Unknown::new(Reason::Unsound, "who listens there changed while it was asked"));
        }
        let mut all = BTreeSet::new();
        for &socket in &now {
            let holders = holding(socket, table, dump)?;
            if holders.is_empty() {
                return Err(unseen("who listens there"));
            }
            all.extend(holders);
        }
        if all.is_disjoint(&before.held_by) {
            return Err(stranger());
        }
        let far = dump
            .far(line.inode)?
            .ok_or_else(|| unseen("who closed the connection before it was looked at"))?;
        let answering = holding(far, table, dump)?;
        let reapers = reapers(table);
        // An inetd hands connections on to whom it likes, and adopts everybody: being below it says nothing.
        if answering.iter().any(|id| reapers.contains(&id.pid)) {
            return Err(stranger());
        }
        if answering.is_empty() {
            return Err(unseen("who answered"));
        }
        all.extend(answering);
        Ok(all.into_iter().collect())
    }
}

/// Says whether the asked process stands below everybody who could have answered, and is younger than each.
pub(super) fn is_below(of: ProcessId, all: &[ProcessId], table: &Table) -> Known<()> {
    let above = ancestors(table, of.pid);
    let is_child = table.get(of).is_some();
    let fits = |id: &ProcessId| above.contains(id) && id.start < of.start;
    if is_child && !all.is_empty() && all.iter().all(fits) { Ok(()) } else { Err(stranger()) }
}

fn stranger() -> Unknown {
    Unknown::new(Reason::Unsound, "another server answers there than the one it stands below")
}

fn unseen(who: &str) -> Unknown {
    Unknown::new(Reason::Unsound, format!("{who} cannot be seen"))
}

fn listeners(at: &Endpoint, dump: &mut Dump) -> Known<BTreeSet<u64>> {
    match at {
        Endpoint::Tcp(address) if address.ip().is_loopback() => dump.listening_tcp(*address),
        Endpoint::Tcp(_) => {
            Err(Unknown::new(Reason::Unsound, "who listens on another machine cannot be seen"))
        }
        Endpoint::Unix(path) => dump.listening_unix(path.as_os_str().as_encoded_bytes().as_bstr()),
    }
}

fn sockets_of(id: ProcessId) -> Known<BTreeSet<u64>> {
    let mut sockets = BTreeSet::new();
    let descriptors = Descriptors::open(id)?;
    descriptors.each_channel(|_, text, _| {
        if let Text::Socket(inode) = text {
            sockets.insert(inode);
        }
    })?;
    Ok(sockets)
}
