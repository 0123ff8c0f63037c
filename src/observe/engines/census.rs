//! Who is connected to an engine, by the kernel alone: every connection that its socket accepted, traced to whoever
//! holds its other end.
//!
//! Nobody is left out by mistake: a connection that cannot be traced is counted, and so is each one of another network
//! namespace (a container that has the socket mounted), of which the kernel tells no more than that it is there.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use bstr::BString;
use rustix::io::Errno;

use crate::model::container::{EngineClient, EngineClients, EngineId, EngineKind};
use crate::model::id::{FileId, Pid, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::Census;
use crate::model::table::{Kernel, Table};
use crate::observe::aside::{Aside, Reply, Request};
use crate::observe::processes;
use crate::observe::sockets::{Dump, NamedRow, UnixState, named};
use crate::observe::stdio::holders::holding;

use super::reach;

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
    let listeners = dump.accepted(&reach::names_of(&engine.0), file)?.listeners;
    let found = reach::of(engine, kind, &listeners, table, dump, aside);
    let accepted = dump.accepted(&found.names, file)?;
    let mut unseen = accepted.untold;
    let mut holders: BTreeSet<ProcessId> = BTreeSet::new();
    for client in accepted.clients {
        let held = holding(client, table, dump)?;
        if held.is_empty() {
            unseen = unseen.saturating_add(1);
        }
        // Our own calls are over; what is ours all the same is a connection that is being closed.
        holders.extend(held.into_iter().filter(|id| id.pid != own));
    }
    unseen = unseen.saturating_add(elsewhere(&found.names, table)?);
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

/// Returns how many connections such a socket accepted from other network namespaces. Each namespace is read once,
/// through any process that is in it; everybody may. A process whose namespace cannot be seen counts as one.
fn elsewhere(names: &BTreeSet<BString>, table: &Table) -> Known<u32> {
    let ours = inode(Path::new("/proc/self/net/unix")).map_err(|errno| unread(errno, "our own sockets"))?;
    let mut seen = BTreeSet::from([ours]);
    let mut count: u32 = 0;
    for row in table.rows().iter().filter(|row| row.kernel == Kernel::No && !row.is_gone()) {
        let process = PathBuf::from(format!("/proc/{}", row.id.pid));
        let found = match counted(&process.join("net/unix"), &mut seen, names) {
            // Its first thread has ended and is in no namespace any more; the others are (CASES C24).
            Err(Errno::INVAL) => through_threads(&process, &mut seen, names),
            found => found,
        };
        match found {
            Ok(more) => count = count.saturating_add(more),
            Err(Errno::NOENT | Errno::SRCH) => {}
            Err(errno @ (Errno::MFILE | Errno::NFILE | Errno::NOMEM)) => {
                return Err(unread(errno, "the sockets of other network namespaces"));
            }
            Err(_) => count = count.saturating_add(1),
        }
    }
    Ok(count)
}

fn through_threads(
    process: &Path,
    seen: &mut BTreeSet<u64>,
    names: &BTreeSet<BString>,
) -> Result<u32, Errno> {
    let list = std::fs::read_dir(process.join("task")).map_err(|error| errno(&error))?;
    let mut count: u32 = 0;
    for thread in list {
        let thread = thread.map_err(|error| errno(&error))?.path();
        match counted(&thread.join("net/unix"), seen, names) {
            Ok(more) => count = count.saturating_add(more),
            Err(Errno::INVAL | Errno::NOENT | Errno::SRCH) => {}
            Err(errno) => return Err(errno),
        }
    }
    Ok(count)
}

/// Returns how many accepted connections of that name a namespace's list has; none where it was seen before.
fn counted(list: &Path, seen: &mut BTreeSet<u64>, names: &BTreeSet<BString>) -> Result<u32, Errno> {
    let namespace = inode(list)?;
    if seen.contains(&namespace) {
        return Ok(0);
    }
    let text = std::fs::read(list).map_err(|error| errno(&error))?;
    // It counts as seen once it was read: others may be in that namespace, too.
    seen.insert(namespace);
    let is_its = |row: &NamedRow<'_>| {
        row.state == UnixState::Connected && names.iter().any(|name| name.as_slice() == row.name)
    };
    Ok(u32::try_from(named(&text).filter(is_its).count()).unwrap_or(u32::MAX))
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
