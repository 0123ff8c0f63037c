//! One tree before one policy: everything a rule may look at.

use std::collections::{BTreeMap, BTreeSet};

use bstr::{BStr, BString, ByteSlice as _};

use crate::config::policy::{Config, Detached, Policy, Template};
use crate::model::facts::Facts;
use crate::model::id::{Pid, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::Look;
use crate::model::ownership::{Parentage, is_parent_hidden, parentage};
use crate::model::question::{
    Activity, Answer, Channel, Connection, Family, Holders, Listener, Owner, PathAnswer, Peer, Question,
    Sockets,
};
use crate::model::table::Row;

use super::leased::claimed;
use super::ledger::Ledger;
use super::protect::protected;
use super::rule::{Blank, Found};

/// One tree before one policy.
#[derive(Debug, Clone, Copy)]
pub struct Case<'a> {
    /// What was seen at this look.
    pub look: &'a Look,
    /// What was seen at earlier looks.
    pub memory: &'a Ledger,
    /// The configuration.
    pub config: &'a Config,
    /// The policy.
    pub policy: &'a Policy,
    /// The root of the tree.
    pub root: &'a Row,
    /// The policy's captures, as far as they could be filled.
    pub captures: &'a BTreeMap<String, BString>,
    /// The root, everything below it, and the adopted ones in sessions that somebody of it leads. Whoever is in here is
    /// looked at for vetoes: its listeners and its clients are the tree's. What its connections and ends of pipes hold
    /// is held from within only where it would go with the tree: see [`Case::inside`].
    pub tree: &'a [ProcessId],
    /// The roots and captures of everybody that a policy of this look matches, for rules that join processes.
    pub others: &'a [Other],
}

/// Another matched tree, for rules that join processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Other {
    /// The policy that matched it.
    pub policy: String,
    /// Its root.
    pub root: ProcessId,
    /// Its captures.
    pub captures: BTreeMap<String, BString>,
    /// Its members, the root first.
    pub tree: Vec<ProcessId>,
    /// Whether it is judged, or is only there to be joined with.
    pub standing: Standing,
}

/// How another matched tree stands before the judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is judged as this one is.
    Judged,
    /// It is never touched: it counts as a living companion, and what it holds is held.
    Protected,
}

/// An outside peer of a member's socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Client {
    /// The member that serves it.
    pub member: ProcessId,
    /// The local name of the connection.
    pub name: BString,
    /// Who it is, for a person.
    pub peer: String,
}

impl<'a> Case<'a> {
    /// Returns the facts of a process.
    pub fn facts(&self, id: ProcessId) -> Found<&'a Facts> {
        let Answer::Facts(facts) = self.answer(Question::Facts(id))? else { return Err(misfit()) };
        Ok(facts)
    }

    /// Returns the facts of every member of the tree; asks for all missing ones at once.
    pub fn members(&self) -> Found<Vec<&'a Facts>> {
        gather(self.tree.iter().map(|&id| self.facts(id)))
    }

    /// Returns a descriptor of the root.
    pub fn channel(&self, fd: u32) -> Found<&'a Channel> {
        self.channel_of(self.root.id, fd)
    }

    /// Returns a descriptor of any process.
    pub fn channel_of(&self, of: ProcessId, fd: u32) -> Found<&'a Channel> {
        let Answer::Channel(channel) = self.answer(Question::Channel { of, fd })? else {
            return Err(misfit());
        };
        Ok(channel)
    }

    /// Returns who holds the far end of a descriptor.
    pub fn holders_of(&self, of: ProcessId, fd: u32) -> Found<&'a Holders> {
        let Answer::Holders(holders) = self.answer(Question::Holders { of, fd })? else {
            return Err(misfit());
        };
        Ok(holders)
    }

    /// Returns what is at an absolute path, as the root means it. A relative path is unknown: nobody can say what
    /// it was relative to.
    pub fn path(&self, path: &BStr) -> Found<&'a PathAnswer> {
        if !path.starts_with(b"/") {
            return Err(Unknown::new(Reason::Unsupported, format!("'{path}' is not an absolute path")).into());
        }
        let question = Question::Path { of: self.root.id, path: path.to_owned() };
        let Answer::Path(path) = self.answer(question)? else { return Err(misfit()) };
        Ok(path)
    }

    /// Returns who bears a bare process number.
    pub fn owner(&self, pid: Pid) -> Found<Owner> {
        let Answer::Owner(owner) = self.answer(Question::Owner { of: self.root.id, pid })? else {
            return Err(misfit());
        };
        Ok(*owner)
    }

    /// Returns the bytes that a process moved so far.
    pub fn activity(&self, id: ProcessId) -> Found<Activity> {
        let Answer::Activity(activity) = self.answer(Question::Activity(id))? else { return Err(misfit()) };
        Ok(*activity)
    }

    /// Returns the terminals whose master side a process holds, by device number.
    pub fn terminals_of(&self, id: ProcessId) -> Found<&'a [i32]> {
        let Answer::Terminals(terminals) = self.answer(Question::Terminals(id))? else {
            return Err(misfit());
        };
        Ok(terminals)
    }

    /// Returns the sockets of one process.
    pub fn sockets_of(&self, id: ProcessId) -> Found<&'a Sockets> {
        let Answer::Sockets(sockets) = self.answer(Question::Sockets(id))? else { return Err(misfit()) };
        Ok(sockets)
    }

    /// Returns the sockets of every member; asks for all missing ones at once.
    pub fn sockets(&self) -> Found<Vec<(ProcessId, &'a Sockets)>> {
        gather(self.tree.iter().map(|&id| self.sockets_of(id).map(|sockets| (id, sockets))))
    }

    /// Returns every socket by which the tree can be reached, but for those that the policy names private.
    pub fn listeners(&self) -> Found<Vec<(ProcessId, &'a Listener)>> {
        Ok(self
            .sockets()?
            .into_iter()
            .flat_map(|(id, sockets)| sockets.listeners.iter().map(move |listener| (id, listener)))
            .filter(|(_, listener)| !self.is_private(&listener.name))
            .collect())
    }

    /// Returns the members that would go with the root, as far as it is known without asking: those that are not
    /// protected, nor below or in the session of one that is. Whom plan spares since it is the root of another policy's
    /// tree is still among them: it is judged at the same time as this one.
    ///
    /// Whoever stays behind is somebody else: a kept or shared daemon that the root started and that is connected to it
    /// is a client like any other. A tree never gains from this, since fewer inside are more outside.
    pub fn inside(&self) -> BTreeSet<ProcessId> {
        self.inside_but(|_| false)
    }

    /// Returns those inside, but for whomever else stays behind, with all that hangs on it.
    fn inside_but(&self, stays: impl Fn(&Row) -> bool) -> BTreeSet<ProcessId> {
        let table = &self.look.snapshot.table;
        let mut protected: BTreeSet<ProcessId> =
            protected(self.look, self.config, self.tree).into_iter().map(|(id, _)| id).collect();
        protected.extend(claimed(self));
        let tree: BTreeSet<i32> = self.tree.iter().map(|id| id.pid.number()).collect();
        let mut inside = BTreeSet::from([self.root.id]);
        let mut numbers = BTreeSet::from([self.root.id.pid.number()]);
        // Parents and leaders come before those that are here because of them.
        for &id in self.tree {
            let goes = table.get(id).is_some_and(|row| {
                let by = if tree.contains(&row.ppid) { row.ppid } else { row.sid };
                numbers.contains(&by) && !protected.contains(&id) && !stays(row)
            });
            if goes && inside.insert(id) {
                numbers.insert(id.pid.number());
            }
        }
        inside
    }

    /// Says whether a member is known to stand on its own: it leads its session, and has a terminal or can be reached.
    /// As a client it is somebody else. In a terminal that the root serves it is not: it ends with that terminal.
    fn stands_alone(&self, row: &Row) -> bool {
        self.policy.detached != Detached::Join
            && row.sid == row.id.pid.number()
            && (row.tty != 0
                || self.sockets_of(row.id).is_ok_and(|sockets| {
                    sockets.listeners.iter().any(|listener| !self.is_private(&listener.name))
                }))
    }

    /// Says whether the policy names a socket private.
    fn is_private(&self, name: &BString) -> bool {
        self.policy.private_listeners.iter().any(|glob| glob.fits(name.as_bstr()))
    }

    /// Returns the live outside peers of the tree's *accepted* connections, and its pending clients.
    ///
    /// A connection counts as accepted when it bears the name of one of the tree's listeners, or one that no caller is
    /// given: the listener may be closed, or somebody else's, by now. A peer that is gone (inode 0) or that is [inside]
    /// is no client, but for one that stands on its own; a peer that the kernel did not name is unknown. Of two that
    /// both stay behind neither is a client of the tree.
    ///
    /// [inside]: Case::inside
    pub fn clients(&self) -> Found<Vec<Client>> {
        let all = self.sockets()?;
        let inside = self.inside_but(|row| self.stands_alone(row));
        let names: BTreeSet<(Family, &BString)> = all
            .iter()
            .flat_map(|(_, sockets)| {
                sockets.listeners.iter().map(|listener| (listener.family, &listener.name))
            })
            .collect();
        let ports: BTreeSet<&[u8]> = names
            .iter()
            .filter(|(family, _)| *family == Family::Tcp)
            .filter_map(|(_, name)| port(name))
            .collect();
        let mut clients = Vec::new();
        for (member, sockets) in &all {
            for listener in &sockets.listeners {
                if listener.pending > 0 {
                    clients.push(Client {
                        member: *member,
                        name: listener.name.clone(),
                        peer: format!("{} waiting to be accepted", listener.pending),
                    });
                }
            }
            for connection in &sockets.connections {
                if accepted(connection, &names, &ports) {
                    let ours = |other: ProcessId| !inside.contains(member) || inside.contains(&other);
                    clients.extend(client(*member, connection, &all, ours)?);
                }
            }
        }
        Ok(clients)
    }

    /// Returns how the root stands to its parent.
    pub fn parentage(&self) -> Parentage {
        parentage(&self.look.snapshot.table, &self.look.reapers, self.root)
    }

    /// Returns the live parent that may have started the root and is not itself of the tree.
    pub fn outside_parent(&self) -> Option<ProcessId> {
        match self.parentage() {
            Parentage::Living(parent) if !self.tree.contains(&parent) => Some(parent),
            Parentage::Living(_) | Parentage::Adopted(_) | Parentage::None => None,
        }
    }

    /// Says why nobody can tell whether the root has a living parent: it has one that the table does not show. Where
    /// other users' processes are hidden, that one is as likely the living sudo(8), cron(8) or sshd(8).
    pub fn parent_seen(&self) -> Found<()> {
        if !is_parent_hidden(&self.look.snapshot.table, self.root) {
            return Ok(());
        }
        let (reason, what) = match self.root.ppid {
            // proc_pid_stat(5): it came into our pid namespace from outside, e.g. by `docker exec` (A20, B25).
            0 => (Reason::Foreign, "its parent".to_owned()),
            pid => (Reason::Denied, format!("who its parent {pid} is")),
        };
        Err(Unknown::new(reason, what).into())
    }

    /// Returns the first member with a controlling terminal.
    pub fn terminal(&self) -> Option<ProcessId> {
        let table = &self.look.snapshot.table;
        self.tree.iter().copied().find(|&id| table.get(id).is_some_and(|row| row.tty != 0))
    }

    /// Returns a template filled in, or nothing where one of its captures is empty for this process.
    pub fn fill(&self, template: &Template) -> Option<BString> {
        template.fill(|name| self.captures.get(name).map(|value| value.as_slice()))
    }

    pub(super) fn answer(&self, question: Question) -> Found<&'a Answer> {
        match self.look.answers.get(&question) {
            None => Err(Blank::Ask(vec![question])),
            Some(Ok(answer)) => Ok(answer),
            Some(Err(unknown)) => Err(Blank::Unknown(unknown.clone())),
        }
    }
}

/// Returns all values, or all missing questions together, or else the first unknown.
pub fn gather<T>(each: impl Iterator<Item = Found<T>>) -> Found<Vec<T>> {
    let mut values = Vec::new();
    let mut asked = Vec::new();
    let mut unknown = None;
    for found in each {
        match found {
            Ok(value) => values.push(value),
            Err(Blank::Ask(questions)) => asked.extend(questions),
            Err(Blank::Unknown(why)) => unknown = unknown.or(Some(why)),
        }
    }
    match (asked.is_empty(), unknown) {
        (false, _) => Err(Blank::Ask(asked)),
        (true, Some(why)) => Err(Blank::Unknown(why)),
        (true, None) => Ok(values),
    }
}

/// Returns a known value by reference, or the unknown as a blank.
pub fn known<T>(value: &Known<T>) -> Found<&T> {
    value.as_ref().map_err(|unknown| Blank::Unknown(unknown.clone()))
}

pub(super) fn misfit() -> Blank {
    Unknown::new(Reason::Unsupported, "an answer to another question").into()
}

/// Returns the port of an address of the network.
pub(super) fn port(name: &[u8]) -> Option<&[u8]> {
    name.rfind_byte(b':').map(|at| &name[at + 1..])
}

/// Says whether a port was surely not given out by the kernel: those begin at 32768 (`ip_local_port_range` of
/// Linux) or 49152 (macOS). Where somebody moved that down, a caller looks like a server here, which keeps.
fn is_chosen(port: &[u8]) -> bool {
    port.to_str().ok().and_then(|port| port.parse::<u16>().ok()).is_some_and(|port| port < 32_768)
}

fn accepted(connection: &Connection, names: &BTreeSet<(Family, &BString)>, ports: &BTreeSet<&[u8]>) -> bool {
    match connection.family {
        // A wildcard listener's name is not its connections' name: the port is what they share. A server that takes
        // one client closes its listener then (debug adapters do); the kernel gave the port to nobody who called.
        Family::Tcp => port(&connection.name).is_some_and(|port| ports.contains(port) || is_chosen(port)),
        // Who calls has no name unless it binds one first, so a name without its listener was once served too.
        Family::Unix => !connection.name.is_empty(),
        Family::UnixDatagram | Family::Udp => {
            !connection.name.is_empty() && names.contains(&(connection.family, &connection.name))
        }
    }
}

/// Returns the client at the other end of an accepted connection, if it is not one of ours.
fn client(
    member: ProcessId,
    connection: &Connection,
    all: &[(ProcessId, &Sockets)],
    ours: impl Fn(ProcessId) -> bool,
) -> Found<Option<Client>> {
    let within = |is_other_end: &dyn Fn(&Connection) -> bool| {
        all.iter().any(|(id, sockets)| ours(*id) && sockets.connections.iter().any(is_other_end))
    };
    let (is_within, peer) = match &connection.peer {
        Peer::Gone => return Ok(None),
        Peer::Inode(inode) => (within(&|other| other.inode == *inode), format!("socket {inode}")),
        // Both ends of a loopback connection between members: the other row has our name as its peer.
        Peer::Remote(address) => {
            let here = connection.name.to_str_lossy();
            let is_other_end = |other: &Connection| {
                other.name == address.as_bytes()
                    && matches!(&other.peer, Peer::Remote(there) if *there == here)
            };
            (within(&is_other_end), address.clone())
        }
        Peer::Unknown => {
            return Err(
                Unknown::new(Reason::Denied, format!("who is connected to {}", connection.name)).into()
            );
        }
    };
    Ok((!is_within).then(|| Client { member, name: connection.name.clone(), peer }))
}
