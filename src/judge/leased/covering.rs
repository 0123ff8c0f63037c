//! Whom a lease covers. An inherited cookie alone makes nobody a member: shared daemons, panes of multiplexers and the
//! workers of build daemons inherit it too (REDTEAM F4), so only ordinary descendants count.

use std::collections::{BTreeMap, BTreeSet};

use bstr::{BStr, ByteSlice as _};

use crate::judge::protect::{is_shared, person_keeps};
use crate::model::escape::escape;
use crate::model::id::{ProcessId, Uid};
use crate::model::lease::{COOKIE, Cgroup, Lease, LeaseFile};
use crate::model::look::Look;
use crate::model::ownership::{Parentage, ancestors, descendants, is_parent_hidden, parentage};
use crate::model::question::{Answer, Question};
use crate::model::table::{Kernel, Row};

use super::state::{foreign, is_living};

/// Whom a lease covers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Covered {
    /// Those that it covers for their own sake, sorted.
    pub roots: Vec<ProcessId>,
    /// The roots and everything below them, each once.
    pub all: Vec<ProcessId>,
    /// Those that it names, or that carry its cookie, and that it covers all the same not: each with the reason.
    pub spared: Vec<(ProcessId, String)>,
}

/// Returns whom a lease covers, as far as the look knows. Ask [`super::questions`] first: who leads a session of its
/// own is spared for as long as nobody has asked whether it can be reached.
pub fn covered(lease: &Lease, look: &Look) -> Covered {
    let table = &look.snapshot.table;
    let covering = Covering::new(look);
    let mut found = Covered::default();
    let mut seen = BTreeSet::new();
    for id in covering.concerned(lease) {
        let Some(row) = table.get(id) else { continue };
        match standing(look, lease, row) {
            Standing::Root => found.roots.push(id),
            Standing::Spared(why) => found.spared.push((id, why)),
            Standing::Unasked => found.spared.push((id, "whether it can be reached was not asked".into())),
            Standing::None => {}
        }
    }
    for &root in &found.roots {
        for id in descendants(table, root) {
            let goes = table.get(id).is_some_and(|row| !row.is_gone())
                && covering.on_the_way(id, root).all(|row| !is_many_owners(look, row));
            if goes && seen.insert(id) {
                found.all.push(id);
            }
        }
    }
    found
}

/// How a process stands to one lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Standing {
    /// The lease covers it, with everything below it.
    Root,
    /// It is one that the lease concerns, and it is left alone for this reason.
    Spared(String),
    /// It would be covered if it cannot be reached; nobody has asked that yet.
    Unasked,
    /// The lease does not concern it, or only by what is above it.
    None,
}

/// The leases of a look, by what they name.
#[derive(Debug)]
pub(super) struct Covering<'a> {
    look: &'a Look,
    by_process: BTreeMap<ProcessId, Vec<&'a Lease>>,
    by_cookie: BTreeMap<(Uid, &'a BStr), Vec<&'a Lease>>,
    by_watcher: BTreeMap<ProcessId, Vec<&'a Lease>>,
}

impl<'a> Covering<'a> {
    pub(super) fn new(look: &'a Look) -> Covering<'a> {
        let mut covering = Covering {
            look,
            by_process: BTreeMap::new(),
            by_cookie: BTreeMap::new(),
            by_watcher: BTreeMap::new(),
        };
        for lease in &look.snapshot.leases.list {
            for &id in &lease.covers.processes {
                covering.by_process.entry(id).or_default().push(lease);
            }
            if let Some(cookie) = &lease.covers.env {
                covering.by_cookie.entry((lease.file.owner, cookie.as_bstr())).or_default().push(lease);
            }
            if let Some(run) = &lease.run {
                covering.by_watcher.entry(run.watcher).or_default().push(lease);
                if let Some(command) = run.command {
                    covering.by_process.entry(command).or_default().push(lease);
                }
            }
        }
        covering
    }

    /// Returns the leases that name this process, whose cookie it carries, in whose cgroup it is, or whose watcher is
    /// its parent; each once.
    pub(super) fn naming(&self, id: ProcessId) -> Vec<&'a Lease> {
        let mut found: Vec<&'a Lease> = self.by_process.get(&id).into_iter().flatten().copied().collect();
        if let Some(uid) = uid(self.look, id)
            && let Some(cookie) = cookie(self.look, id)
        {
            found.extend(self.by_cookie.get(&(uid, cookie)).into_iter().flatten());
        }
        found.extend(self.of_group(id));
        if let Some(parent) = self.look.snapshot.table.parent(id) {
            found.extend(self.by_watcher.get(&parent.id).into_iter().flatten());
        }
        found.sort_by_key(|lease| (lease.file.owner, &lease.id));
        found.dedup_by_key(|lease| (lease.file.owner, &lease.id));
        found.retain(|lease| uid(self.look, id) == Some(lease.file.owner));
        found
    }

    /// Returns the lease in whose cgroup a process is.
    fn of_group(&self, id: ProcessId) -> Option<&'a Lease> {
        let leases = &self.look.snapshot.leases;
        let lease = leases.get(uid(self.look, id)?, leases.grouped.get(&id)?)?;
        is_grouped(self.look, lease, id).then_some(lease)
    }

    /// Returns the leases that cover a process, itself or by what is above it, and the leases that may, once those
    /// were asked whether they can be reached.
    pub(super) fn covering(&self, id: ProcessId) -> (Vec<&'a Lease>, Vec<ProcessId>) {
        let table = &self.look.snapshot.table;
        let mut found: Vec<&'a Lease> = Vec::new();
        let mut unasked = Vec::new();
        for above in std::iter::once(id).chain(ancestors(table, id.pid)) {
            let Some(row) = table.get(above) else { break };
            // Whoever serves many is never of a tree, and neither is what it started.
            if is_many_owners(self.look, row) {
                break;
            }
            for lease in self.naming(above) {
                match standing(self.look, lease, row) {
                    Standing::Root if !found.iter().any(|known| is_same(known, lease)) => found.push(lease),
                    Standing::Unasked if !unasked.contains(&above) => unasked.push(above),
                    Standing::Root | Standing::Unasked | Standing::Spared(_) | Standing::None => {}
                }
            }
        }
        (found, unasked)
    }

    /// Returns everybody whom a lease names in any way, sorted.
    fn concerned(&self, lease: &Lease) -> BTreeSet<ProcessId> {
        let table = &self.look.snapshot.table;
        let carriers = self.look.snapshot.leases.cookies.iter().filter_map(|(id, cookie)| {
            let carried = cookie.as_ref().is_ok_and(|cookie| lease.covers.env.as_ref() == Some(cookie));
            (carried && uid(self.look, *id) == Some(lease.file.owner)).then_some(*id)
        });
        let named = lease.covers.processes.iter().copied();
        let run = lease.run.iter().flat_map(|run| {
            let children = table.get(run.watcher).into_iter().flat_map(|row| table.children(row.id.pid));
            run.command.into_iter().chain(children.map(|row| row.id))
        });
        carriers.chain(named).chain(run).chain(grouped(self.look, lease)).collect()
    }

    /// Returns the rows from a process up to one above it, both included.
    fn on_the_way(&self, id: ProcessId, root: ProcessId) -> impl Iterator<Item = &'a Row> {
        let table = &self.look.snapshot.table;
        let mut reached = false;
        std::iter::once(id)
            .chain(ancestors(table, id.pid))
            .take_while(move |above| !std::mem::replace(&mut reached, *above == root))
            .filter_map(|above| table.get(above))
    }
}

/// Says whether two are one lease.
pub(super) fn is_same(one: &Lease, other: &Lease) -> bool {
    (one.file.owner, &one.id) == (other.file.owner, &other.id)
}

/// Says how a process stands to a lease.
pub(super) fn standing(look: &Look, lease: &Lease, row: &Row) -> Standing {
    if row.is_gone() || uid(look, row.id) != Some(lease.file.owner) {
        return Standing::None;
    }
    let named = is_named(lease, row.id);
    let carries = is_marked(look, lease, row.id);
    let watched = lease.run.as_ref().is_some_and(|run| {
        is_living(look, run.watcher)
            && look.snapshot.table.parent(row.id).is_some_and(|parent| parent.id == run.watcher)
    });
    if !named && !carries && !watched {
        return Standing::None;
    }
    if is_many_owners(look, row) {
        return Standing::Spared("it serves more than one owner".into());
    }
    if is_our_own(look, row) {
        return Standing::Spared("it is reapd's own".into());
    }
    if named {
        return if is_of_this_boot(look, lease) {
            Standing::Root
        } else {
            Standing::Spared("the lease is of another boot or namespace, and names somebody else".into())
        };
    }
    if !watched {
        let is_inner = look.snapshot.table.parent(row.id).is_some_and(|parent| {
            !parent.is_gone()
                && uid(look, parent.id) == Some(lease.file.owner)
                && is_marked(look, lease, parent.id)
        });
        if is_inner {
            return Standing::None;
        }
        if let Err(why) = is_ordinary(look, lease, row) {
            return Standing::Spared(why);
        }
    }
    alone(look, row)
}

fn is_named(lease: &Lease, id: ProcessId) -> bool {
    lease.covers.processes.contains(&id) || lease.run.as_ref().is_some_and(|run| run.command == Some(id))
}

fn carries(look: &Look, lease: &Lease, id: ProcessId) -> bool {
    lease.covers.env.as_ref().is_some_and(|env| cookie(look, id) == Some(env.as_bstr()))
}

/// Says whether a process bears a mark of the lease: its cookie, or its cgroup, which no clearing of an environment
/// and no session of one's own leaves.
fn is_marked(look: &Look, lease: &Lease, id: ProcessId) -> bool {
    carries(look, lease, id) || is_grouped(look, lease, id)
}

/// Returns the cgroup that was made for a lease, and for no other.
pub(super) fn cgroup_of(lease: &Lease) -> Option<&Cgroup> {
    lease.run.as_ref()?.cgroup.as_ref().filter(|cgroup| cgroup.is_of(&lease.id))
}

/// Says whether a process was seen in the cgroup that was made for a lease, and may have been born there: whoever is
/// older than the run was moved there by somebody.
pub(super) fn is_grouped(look: &Look, lease: &Lease, id: ProcessId) -> bool {
    look.snapshot.leases.grouped.get(&id) == Some(&lease.id)
        && uid(look, id) == Some(lease.file.owner)
        && cgroup_of(lease).is_some()
        && is_of_this_boot(look, lease)
        && lease.run.as_ref().is_some_and(|run| id.start >= run.watcher.start)
}

/// Returns everybody in the cgroup of a lease.
pub(super) fn grouped<'a>(look: &'a Look, lease: &'a Lease) -> impl Iterator<Item = ProcessId> + 'a {
    look.snapshot.leases.grouped.keys().copied().filter(move |id| is_grouped(look, lease, *id))
}

/// Says why the outermost carrier of a cookie is no ordinary descendant of whom the lease belongs to.
fn is_ordinary(look: &Look, lease: &Lease, row: &Row) -> Result<(), String> {
    let table = &look.snapshot.table;
    if is_parent_hidden(table, row) {
        return Err(format!("its parent {} cannot be seen", row.ppid));
    }
    match parentage(table, &look.reapers, row) {
        Parentage::Adopted(_) | Parentage::None => Ok(()),
        // Whoever bears only the cgroup and is below the holder was moved into it: nobody is born there but below the
        // watcher.
        Parentage::Living(_) if carries(look, lease, row.id) && leads_to_holder(look, lease, row) => Ok(()),
        Parentage::Living(parent) => {
            Err(format!("its parent {parent} is alive, and neither the lease's holder nor below it"))
        }
    }
}

/// Says whether the living parents of a process lead up to the lease's holder, by nobody who serves others too.
fn leads_to_holder(look: &Look, lease: &Lease, row: &Row) -> bool {
    let Some(holder) = lease.holder.as_ref().filter(|holder| foreign(look, holder).is_ok()) else {
        return false;
    };
    let table = &look.snapshot.table;
    let mut below = row;
    while let Parentage::Living(parent) = parentage(table, &look.reapers, below) {
        if parent.pid == holder.pid && holder.start.is_none_or(|start| start == parent.start) {
            return true;
        }
        let Some(above) = table.get(parent) else { return false };
        if is_many_owners(look, above) || person_keeps(look, parent).is_some() {
            return false;
        }
        below = above;
    }
    false
}

/// Says whether it stands on its own: it leads its session, and has a terminal or can be reached. A pane, or a daemon
/// that the helper only happened to start.
fn alone(look: &Look, row: &Row) -> Standing {
    if row.sid != row.id.pid.number() {
        return Standing::Root;
    }
    if row.tty != 0 {
        return Standing::Spared("it leads its own session and has a terminal".into());
    }
    match look.answers.get(&Question::Sockets(row.id)) {
        None => Standing::Unasked,
        Some(Ok(Answer::Sockets(sockets))) => match sockets.listeners.first() {
            None => Standing::Root,
            Some(listener) => Standing::Spared(format!(
                "it leads its own session and listens on {}",
                escape(&listener.name)
            )),
        },
        Some(Ok(_)) => Standing::Spared("whether it can be reached is unknown".into()),
        Some(Err(unknown)) => Standing::Spared(format!(
            "it leads its own session, and whether it can be reached is unknown: {unknown}"
        )),
    }
}

/// Says whether a process serves more than one owner, whatever it carries.
fn is_many_owners(look: &Look, row: &Row) -> bool {
    look.reapers.contains(&row.id.pid) || is_shared(row.name()) || row.kernel == Kernel::Thread
}

/// Says whether it is the looking process, one above it, or a `reapd finish` of somebody else's.
fn is_our_own(look: &Look, row: &Row) -> bool {
    let own = look.snapshot.own.pid;
    let table = &look.snapshot.table;
    if row.id.pid == own || ancestors(table, own).contains(&row.id) {
        return true;
    }
    // The watcher starts its own file as `/proc/self/exe`.
    let same_name = table.at(own).is_some_and(|own| own.name() == row.name())
        || [&b"reapd"[..], b"exe"].contains(&row.name());
    let argv = look.arguments(row.id).and_then(|arguments| arguments.argv.as_deref().ok());
    same_name && argv.is_some_and(|argv| argv.get(1).is_some_and(|word| word == "finish"))
}

/// Says whether numbers and stamps in a lease mean what they mean here: they begin anew with each boot, and a file in
/// a directory on disk may outlive one.
fn is_of_this_boot(look: &Look, lease: &Lease) -> bool {
    if let Some(holder) = &lease.holder {
        if foreign(look, holder).is_err() {
            return false;
        }
        if holder.boot.is_some() {
            return true;
        }
    }
    let began = look.snapshot.began;
    let booted = i128::from(began.wall) * 1_000_000 - i128::from(began.boot.0);
    let LeaseFile { modified, .. } = lease.file;
    i128::from(modified) >= booted
}

pub(super) fn uid(look: &Look, id: ProcessId) -> Option<Uid> {
    look.arguments(id).map(|arguments| arguments.uid)
}

pub(super) fn cookie(look: &Look, id: ProcessId) -> Option<&BStr> {
    if let Some(Ok(cookie)) = look.snapshot.leases.cookies.get(&id) {
        return Some(cookie.as_bstr());
    }
    // Where there is no lease that could be read, nobody looked for cookies.
    let env = look.facts(id)?.ok()?.env.as_ref().ok()?;
    env.get(COOKIE.as_bytes().as_bstr()).map(|cookie| cookie.as_bstr())
}
