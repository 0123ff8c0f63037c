//! The dear facts of one process, each known or with its obstacle.

use std::collections::BTreeSet;

use bstr::{BString, ByteSlice as _};

use crate::model::facts::{Executable, Facts, Freezer, Hangup};
use crate::model::id::{FileId, Pid, ProcessId, Start, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::{Activity, Channel, Holders, Owner, Sockets};
use crate::model::table::{Row, State};

use super::arguments::{self, parse_arguments};
use super::channels::{self, Source};
use super::directory::{at, directory};
use super::kinfo::{Entry, parse_kinfo};
use super::pinned::Pinned;
use super::records::{self, Kind};
use super::{host, kernel};

/// Returns the argument vector.
pub(in crate::observe) fn arguments(id: ProcessId) -> Known<Vec<BString>> {
    let pinned = Pinned::open(id)?;
    let both = vectors(id, &BTreeSet::new());
    Ok(pinned.still(both)?.argv)
}

/// Returns one variable of the environment; nothing where it is not set, and unknown where the kernel left all out.
pub(in crate::observe) fn variable(id: ProcessId, name: &str) -> Known<Option<BString>> {
    let pinned = Pinned::open(id)?;
    let both = vectors(id, &BTreeSet::from([BString::from(name)]));
    Ok(pinned.still(both)?.env?.remove(name.as_bytes().as_bstr()))
}

/// Returns the arguments and the values of the environment, each with a NUL behind it; nothing where the process is
/// another user's.
pub(in crate::observe) fn given(id: ProcessId, user: Uid) -> Known<Option<Vec<u8>>> {
    let pinned = Pinned::open(id)?;
    let entry = pinned.entry()?;
    if entry.real_uid != user {
        return Ok(None);
    }
    let bytes = kernel::arguments(id.pid).map_err(|error| kernel::unknown(&error, "arguments"))?;
    pinned.still(arguments::given(&bytes).map(Some))
}

/// Returns the dear facts, with those of `env_names` that are set.
pub(in crate::observe) fn facts(id: ProcessId, env_names: &BTreeSet<BString>) -> Known<Facts> {
    let pinned = Pinned::open(id)?;
    let entry = pinned.entry()?;
    let (argv, env) = match vectors(id, env_names) {
        Ok(both) => (Ok(both.argv), both.env),
        Err(unknown) => (Err(unknown.clone()), Err(unknown)),
    };
    let facts = Facts {
        id,
        uid: Ok(entry.real_uid),
        argv,
        exe: executable(id),
        cwd: cwd(id),
        env,
        // A launchd job is told by its environment instead.
        cgroup: Err(Unknown::new(Reason::Unsupported, "cgroup")),
        namespaces: Ok(host::THE_ONLY),
        tracer: Ok(entry.tracer),
        hangup: hangup(&entry),
        // There are no groups to freeze; a suspended process shows as stopped in the table.
        freezer: Ok(Freezer::Thawed),
        unique: pinned.unique,
    };
    pinned.still(Ok(facts))
}

fn vectors(id: ProcessId, names: &BTreeSet<BString>) -> Known<arguments::Arguments> {
    let bytes = kernel::arguments(id.pid).map_err(|error| kernel::unknown(&error, "arguments"))?;
    parse_arguments(&bytes, names)
}

/// The path's file and not the mapped one, since the kernel names no inode: after an upgrade in place the two differ,
/// and what differs is never signalled.
fn executable(id: ProcessId) -> Known<Executable> {
    let path = kernel::executable(id.pid).map_err(|error| kernel::unknown(&error, "executable"))?;
    let file = at(path.as_bstr())?.ok_or_else(|| Unknown::new(Reason::Vanished, "executable"))?;
    Ok(Executable { path: path.into(), file })
}

fn cwd(id: ProcessId) -> Known<crate::model::facts::Directory> {
    let record = kernel::record(id.pid, kernel::Record::Directories, records::DIRECTORIES)
        .map_err(|error| kernel::unknown(&error, "working directory"))?;
    let held = records::working_directory(&record)
        .ok_or_else(|| Unknown::new(Reason::Unsupported, "working directory"))?;
    if held.file == (FileId { dev: 0, ino: 0 }) {
        return Err(Unknown::new(Reason::Unsupported, "a working directory without a number"));
    }
    directory(held)
}

/// Every process ignores some signals by default. A row in which none is ignored and none caught was not filled in.
fn hangup(entry: &Entry) -> Known<Hangup> {
    const HANGUP: u32 = 1;
    if entry.ignored == 0 && entry.caught == 0 {
        return Err(Unknown::new(Reason::Denied, "which signals it ignores"));
    }
    Ok(if entry.ignored & HANGUP != 0 {
        Hangup::Ignored
    } else if entry.caught & HANGUP != 0 {
        Hangup::Caught
    } else {
        Hangup::Default
    })
}

/// Returns who bears a number.
pub(in crate::observe) fn owner(of: ProcessId, pid: Pid) -> Known<Owner> {
    Pinned::open(of)?;
    Ok(match bearer(pid)? {
        None => Owner::Absent,
        Some(row) if row.state == State::Zombie => Owner::Zombie,
        Some(row) => Owner::Alive(row.id),
    })
}

/// Returns the row of whoever bears a number; nothing where nobody does.
pub(in crate::observe) fn bearer(pid: Pid) -> Known<Option<Row>> {
    let bytes = kernel::row(pid).map_err(|error| kernel::unknown(&error, "owner"))?;
    match parse_kinfo(&bytes, host::clocks()).into_iter().next() {
        Some(entry) if entry.row.id.start == Start(0) => Err(Unknown::new(Reason::Denied, "owner")),
        Some(entry) => Ok(Some(entry.row)),
        None if bytes.is_empty() => Ok(None),
        None => Err(Unknown::new(Reason::Unsupported, "owner")),
    }
}

/// A Mac counts bytes to and from disks only, and a server that talks through pipes would look idle for ever.
pub(in crate::observe) fn activity(_id: ProcessId) -> Known<Activity> {
    Err(Unknown::new(Reason::Unsupported, "bytes moved"))
}

/// Returns what a descriptor is, and whether anybody is at its far end.
pub(in crate::observe) fn channel(of: ProcessId, fd: u32) -> Known<Channel> {
    let pinned = Pinned::open(of)?;
    pinned.still(channels::channel(&Kernel, of.pid, fd))
}

/// Returns who holds the far end of a descriptor.
pub(in crate::observe) fn holders(of: ProcessId, fd: u32) -> Known<Holders> {
    let pinned = Pinned::open(of)?;
    pinned.still(channels::holders(&Kernel, of.pid, fd))
}

/// Returns the terminals whose master side a process holds.
pub(in crate::observe) fn terminals(of: ProcessId) -> Known<Vec<i32>> {
    let pinned = Pinned::open(of)?;
    pinned.still(channels::terminals(&Kernel, of.pid))
}

/// Returns the listening and connected sockets.
pub(in crate::observe) fn sockets(of: ProcessId) -> Known<Sockets> {
    let pinned = Pinned::open(of)?;
    pinned.still(channels::sockets(&Kernel, of.pid))
}

struct Kernel;

impl Source for Kernel {
    fn descriptors(&self, pid: Pid) -> Known<Vec<(u32, Kind)>> {
        let list = kernel::descriptors(pid).map_err(|error| kernel::unknown(&error, "descriptors"))?;
        Ok(records::descriptors(&list))
    }

    fn record(&self, pid: Pid, fd: u32, kind: Kind, length: usize) -> Known<Vec<u8>> {
        let what = match kind {
            Kind::File => kernel::OfDescriptor::File,
            Kind::Socket => kernel::OfDescriptor::Socket,
            Kind::Pipe => kernel::OfDescriptor::Pipe,
            Kind::Other(_) => return Err(Unknown::new(Reason::Unsupported, "a descriptor")),
        };
        kernel::descriptor(pid, fd, what, length).map_err(|error| kernel::unknown(&error, "a descriptor"))
    }

    fn everybody(&self) -> Known<Vec<ProcessId>> {
        let bytes = kernel::table().map_err(|error| kernel::unknown(&error, "the process table"))?;
        let entries = parse_kinfo(&bytes, host::clocks());
        Ok(entries.iter().map(|entry| entry.row).filter(|row| !row.is_gone()).map(|row| row.id).collect())
    }
}
