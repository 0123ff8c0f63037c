//! Who is connected to an engine, by the kernel alone: every connection that its socket accepted, traced to whoever
//! holds its other end.
//!
//! Nobody is left out by mistake: a connection that cannot be traced is counted. Of other network namespaces (a container
//! that has the socket mounted) the kernel tells everybody how many connections there are, and root whose.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bstr::{BStr, BString};
use rustix::io::Errno;

use crate::model::container::{EngineClient, EngineClients, EngineId, EngineKind};
use crate::model::id::{FileId, Pid, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::Census;
use crate::model::table::{Kernel, Table};
use crate::observe::aside::{Aside, Reply, Request};
use crate::observe::sockets::{Dump, UnixState, named};
use crate::observe::stdio::holders::holding;
use crate::observe::{misfit, processes};

use super::{Within, reach};

/// Returns who is connected to an engine, and from where else it can be reached.
pub(super) fn clients(
    engine: &EngineId,
    kind: &EngineKind,
    table: &Table,
    own: Pid,
    dump: &mut Dump,
    aside: &mut Aside,
) -> Known<EngineClients> {
    let mounts = std::fs::read("/proc/self/mountinfo").unwrap_or_default();
    let file = std::fs::metadata(&engine.0).ok().map(|meta| FileId { dev: meta.dev(), ino: meta.ino() });
    let file = file.map(|file| (file, mounts.as_slice()));
    let heard = dump.accepted(&reach::names_of(&engine.0), file)?;
    let mut found = reach::of(engine, kind, &heard.listeners, table, dump, aside);
    found.names.extend(heard.names);
    let accepted = dump.accepted(&found.names, file)?;
    let others = elsewhere(&found.names, table)?;
    // Where nobody is seen to listen, whoever is connected bears a name that we do not know.
    if accepted.listeners.is_empty() && others.listening == Listening::Nobody {
        return Err(Unknown::new(Reason::Foreign, "who is connected to it: nobody is seen to listen there"));
    }
    let (ends, mut unseen) = (accepted.clients, accepted.untold);
    let mut far = BTreeSet::new();
    for Elsewhere { through, count } in others.connections {
        let within = Request::Within(Within { of: through, names: found.names.clone() });
        match aside.ask(&[within]).pop().unwrap_or_else(|| Err(misfit())).and_then(Reply::within) {
            Ok(accepted) => {
                far.extend(accepted.clients);
                unseen = unseen.saturating_add(accepted.untold);
            }
            Err(_) => unseen = unseen.saturating_add(count),
        }
    }
    let mut holders: BTreeSet<ProcessId> = BTreeSet::new();
    let mut untraced = BTreeSet::new();
    for &end in ends.iter().chain(&far) {
        let held = holding(end, table, dump)?;
        if held.is_empty() {
            untraced.insert(end);
        }
        // Our own calls are over; what is ours all the same is a connection that is being closed.
        holders.extend(held.into_iter().filter(|id| id.pid != own));
    }
    // Whoever asked something and left in the meantime is connected to nobody's container any more.
    if untraced.iter().any(|end| ends.contains(end)) {
        let still = Dump::new().accepted(&found.names, file)?.clients;
        untraced.retain(|end| far.contains(end) || still.contains(end));
    }
    unseen = unseen.saturating_add(u32::try_from(untraced.len()).unwrap_or(u32::MAX));
    if processes::is_blind(table)? {
        unseen = unseen.saturating_add(1);
    }
    let census = if unseen == 0 { Census::Whole } else { Census::Partial(unseen) };
    Ok(EngineClients { clients: described(&holders, table, aside), census, reach: found.reach })
}

fn described(holders: &BTreeSet<ProcessId>, table: &Table, aside: &mut Aside) -> Vec<EngineClient> {
    let rows: Vec<_> = holders.iter().filter_map(|id| table.at(id.pid)).collect();
    let requests: Vec<Request> = rows.iter().map(|row| Request::Client(row.id)).collect();
    let replies = aside.ask(&requests);
    let clients = rows.into_iter().zip(replies).map(|(row, reply)| {
        let (argv, cwd, cidfile) = match reply.and_then(Reply::client) {
            Ok(given) => (given.argv, given.cwd, given.cidfile),
            Err(why) => (Err(why.clone()), Err(why), None),
        };
        EngineClient { id: row.id, began: row.began, argv, cwd, cidfile }
    });
    clients.collect()
}

/// Connections of another network namespace.
struct Elsewhere {
    /// A process that is in it.
    through: ProcessId,
    /// How many there are.
    count: u32,
}

/// What other network namespaces show.
struct Others {
    connections: Vec<Elsewhere>,
    listening: Listening,
}

/// Whether anybody listens at a name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listening {
    Somebody,
    Nobody,
}

/// Returns which connections such a socket accepted from other network namespaces. Each namespace is read once, through
/// any process that is in it; everybody may. A process whose namespace cannot be seen counts as one connection.
fn elsewhere(names: &BTreeSet<BString>, table: &Table) -> Known<Others> {
    let ours = inode(Path::new("/proc/self/net/unix")).map_err(|errno| unread(errno, "our own sockets"))?;
    let mut seen = BTreeSet::from([ours]);
    let mut others = Others { connections: Vec::new(), listening: Listening::Nobody };
    for row in table.rows().iter().filter(|row| row.kernel == Kernel::No && !row.is_gone()) {
        let process = PathBuf::from(format!("/proc/{}", row.id.pid));
        let counted = match counted(&process.join("net/unix"), &mut seen, names) {
            // Its first thread has ended and is in no namespace any more; the others are (CASES C24).
            Err(Errno::INVAL) => through_threads(&process, &mut seen, names),
            counted => counted,
        };
        let count = match counted {
            Ok((count, listening)) => {
                if listening == Listening::Somebody {
                    others.listening = listening;
                }
                count
            }
            Err(Errno::NOENT | Errno::SRCH) => 0,
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
                return Err(unread(errno, "the sockets of other network namespaces"));
            }
            Err(_) => 1,
        };
        if count > 0 {
            others.connections.push(Elsewhere { through: row.id, count });
        }
    }
    Ok(others)
}

fn through_threads(
    process: &Path,
    seen: &mut BTreeSet<u64>,
    names: &BTreeSet<BString>,
) -> Result<(u32, Listening), Errno> {
    let list = std::fs::read_dir(process.join("task")).map_err(|error| errno(&error))?;
    for thread in list {
        let thread = thread.map_err(|error| errno(&error))?.path();
        match counted(&thread.join("net/unix"), seen, names) {
            Err(Errno::INVAL | Errno::NOENT | Errno::SRCH) => {}
            // All of its threads but for one that entered another by itself are in one namespace.
            found => return found,
        }
    }
    Ok((0, Listening::Nobody))
}

/// Returns how many accepted connections of these names a namespace's list has, and whether one listens; nothing where
/// it was seen before.
fn counted(
    list: &Path,
    seen: &mut BTreeSet<u64>,
    names: &BTreeSet<BString>,
) -> Result<(u32, Listening), Errno> {
    let namespace = inode(list)?;
    if seen.contains(&namespace) {
        return Ok((0, Listening::Nobody));
    }
    let text = std::fs::read(list).map_err(|error| errno(&error))?;
    // It counts as seen once it was read: others may be in that namespace, too.
    seen.insert(namespace);
    let (mut count, mut listening) = (0, Listening::Nobody);
    for row in named(&text).filter(|row| names.contains(BStr::new(row.name))) {
        match row.state {
            UnixState::Connected => count += 1,
            UnixState::Listening => listening = Listening::Somebody,
            UnixState::Neither => {}
        }
    }
    Ok((count, listening))
}

/// Returns the inode of a namespace's list of sockets, which tells namespaces apart and which everybody may see.
pub(super) fn inode(list: &Path) -> Result<u64, Errno> {
    std::fs::metadata(list).map(|meta| meta.ino()).map_err(|error| errno(&error))
}

fn errno(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

fn unread(errno: Errno, what: &str) -> Unknown {
    match processes::unknown(errno, what) {
        Unknown { reason: Reason::Vanished, what } => Unknown::new(Reason::Unsupported, what),
        other => other,
    }
}
