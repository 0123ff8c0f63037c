//! From where an engine can be reached: by the sockets of its process where we may see them, and by its arguments and
//! configuration.
//!
//! A caller who comes over the network is seen by nobody here, so that "it has no client" holds of an engine only where
//! all that it listens at are Unix sockets of this machine.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use bstr::{BStr, BString, ByteSlice as _};

use super::{daemon, init};
use crate::model::container::{EngineId, EngineKind, Reach};
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::Family;
use crate::model::table::{Kernel, Row, Table};
use crate::observe::aside::{Aside, Reply, Request};
use crate::observe::processes;
use crate::observe::sockets::{self, Dump};
use crate::observe::stdio::holders::holding;

/// What was found of an engine.
#[derive(Debug)]
pub(super) struct Found {
    /// From where it can be reached.
    pub(super) reach: Known<Reach>,
    /// Names of all Unix sockets that it is known to listen at.
    pub(super) names: BTreeSet<BString>,
}

/// Returns the names that a socket at this path may have been bound by: `/var/run` is a link nearly everywhere.
pub(super) fn names_of(path: &str) -> BTreeSet<BString> {
    let mut names = BTreeSet::from([BString::from(path)]);
    if let Some(rest) = path.strip_prefix("/run/") {
        names.insert(format!("/var/run/{rest}").into());
    } else if let Some(rest) = path.strip_prefix("/var/run/") {
        names.insert(format!("/run/{rest}").into());
    }
    names
}

/// Looks.
pub(super) fn of(
    engine: &EngineId,
    kind: &EngineKind,
    listeners: &[u64],
    table: &Table,
    dump: &mut Dump,
    aside: &mut Aside,
) -> Found {
    let mut found = Found { reach: Ok(Reach::Local), names: names_of(&engine.0) };
    if let EngineKind::Podman(_) = kind {
        // podman(1) starts containers by itself, and stays with them through a socket of each.
        let what = "who uses Podman, whose own commands need no engine";
        found.reach = Err(Unknown::new(Reason::Unsupported, what));
        return found;
    }
    let (process, argv) = match process(engine, listeners, table, dump, aside) {
        Ok(process) => process,
        Err(why) => {
            found.reach = Err(why);
            return found;
        }
    };
    let configured = daemon::listening(&argv, Path::new("/"));
    if let Ok(configured) = &configured {
        for name in &configured.names {
            found.names.extend(name.to_str().map(names_of).unwrap_or_default());
        }
    }
    found.reach = match (by_sockets(process, dump), configured.map(|configured| configured.reach)) {
        (Ok(Reach::Network(at)), _) | (_, Ok(Reach::Network(at))) => Ok(Reach::Network(at)),
        // What it listens at besides, and nobody can see, is not known from either alone.
        (Ok(Reach::Local) | Err(_), Ok(Reach::Local)) => Ok(Reach::Local),
        (_, Err(why)) => Err(why),
    };
    found
}

/// Returns the process that is the engine, with its arguments. A program that is none, and listens in its place, may
/// lead anywhere.
fn process(
    engine: &EngineId,
    listeners: &[u64],
    table: &Table,
    dump: &mut Dump,
    aside: &mut Aside,
) -> Known<(ProcessId, Vec<BString>)> {
    let mut holders = BTreeSet::new();
    for &listener in listeners {
        holders.extend(holding(listener, table, dump)?);
    }
    // The service manager holds what it hands on.
    holders.retain(|id| table.at(id.pid).is_some_and(|row| comm(row) != "systemd" && row.ppid != 0));
    let is_seen = !holders.is_empty();
    if !is_seen {
        holders.extend(likely(engine, table)?);
    }
    let ids: Vec<ProcessId> = holders.into_iter().collect();
    let requests: Vec<Request> = ids.iter().map(|&id| Request::Arguments(id)).collect();
    let mut found = None;
    for (id, reply) in ids.into_iter().zip(aside.ask(&requests)) {
        let argv = reply.and_then(Reply::arguments)?;
        let program = argv.first().map(|word| word.rsplit_str(b"/").next().unwrap_or_default().to_vec());
        if program.as_deref() != Some(b"dockerd") {
            let program = BStr::new(program.as_deref().unwrap_or_default()).to_string();
            let what = format!("who else uses it: '{program}' listens there, which is no engine itself");
            return Err(Unknown::new(Reason::Foreign, what));
        }
        let is_its = is_seen
            || daemon::listening(&argv, Path::new("/"))
                .is_ok_and(|listening| !listening.names.is_disjoint(&names_of(&engine.0)));
        if !is_its {
            continue;
        }
        if found.is_some() {
            return Err(Unknown::new(Reason::NoRecord, "which of several processes the engine is"));
        }
        found = Some((id, argv));
    }
    found.ok_or_else(|| Unknown::new(Reason::NoRecord, "which process the engine is"))
}

/// Returns processes that may be the engine, where its descriptors are hidden from us: of the user whose socket it is,
/// since everybody may call a process of theirs so, and in no container.
fn likely(engine: &EngineId, table: &Table) -> Known<Vec<ProcessId>> {
    let refused = |error: std::io::Error| {
        let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
        processes::unknown(errno, "whose socket it is")
    };
    let owner = std::fs::metadata(&engine.0).map_err(refused)?.uid();
    let is_its = |row: &&Row| {
        let user = std::fs::metadata(format!("/proc/{}", row.id.pid)).map(|meta| meta.uid());
        row.kernel == Kernel::No
            && !row.is_gone()
            && comm(row) == "dockerd"
            && user.is_ok_and(|user| user == owner)
            && processes::cgroups(row.id).is_ok_and(|text| init::bearer(&text).is_none())
    };
    Ok(table.rows().iter().filter(is_its).map(|row| row.id).collect())
}

fn comm(row: &Row) -> &BStr {
    BStr::new(row.comm.split(|&byte| byte == 0).next().unwrap_or_default())
}

/// Returns from where a process can be reached, by its sockets. Those that it has in the networks of its containers are
/// no part of it: there it answers for their names (its resolver at 127.0.0.11).
fn by_sockets(of: ProcessId, dump: &mut Dump) -> Known<Reach> {
    let sockets = sockets::sockets(of, dump)?;
    let tcp = sockets.listeners.iter().find(|listener| listener.family == Family::Tcp);
    Ok(tcp.map_or(Reach::Local, |listener| Reach::Network(format!("tcp {}", listener.name))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_names_of_one_socket() {
        let names = |path| names_of(path).into_iter().collect::<Vec<_>>();
        assert_eq!(names("/run/docker.sock"), ["/run/docker.sock", "/var/run/docker.sock"]);
        assert_eq!(names("/var/run/docker.sock"), ["/run/docker.sock", "/var/run/docker.sock"]);
        assert_eq!(names("/x/docker.sock"), ["/x/docker.sock"]);
    }
}
