//! Reads the dear facts of one process, all of them through one pinned descriptor.
//!
//! Every one of these reads can hang in the kernel (a dead FUSE mount, a held mmap lock; CASES C17), so they run in
//! the aside process.

use std::collections::BTreeSet;

use bstr::{BString, ByteSlice as _};
use rustix::fs::{AtFlags, StatxFlags};
use rustix::process::PidfdFlags;

use crate::model::facts::{Executable, Facts, Namespaces};
use crate::model::id::{Pid, ProcessId, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::Activity;
use crate::model::table::{Kernel, Row, State};

use super::directory::{MARK, file_id};
use super::pinned::{Pinned, unknown};
use super::status::Status;
use super::{cgroup, directory, status, vectors};

/// Longest argument vector that is read. exec(3) allows 2 MB and more; a longer one than this matches no policy.
const ARGUMENTS_MOST: usize = 128 * 1024;

/// Longest environment that is read: the kernel's usual limit for arguments and environment together.
const ENVIRONMENT_MOST: usize = 2 * 1024 * 1024;

/// Longest argument vector or environment in which a text is looked for: execve(2) takes three quarters of 8 MiB for
/// both at the most.
const GIVEN_MOST: usize = 8 * 1024 * 1024;

/// Longest other file of `/proc/PID` that is read.
pub(super) const TEXT_MOST: usize = 64 * 1024;

/// Tries before a process that keeps executing programs between our reads is given up.
const TRIES: u32 = 3;

/// `PID_FS_MAGIC` of the kernel's `include/uapi/linux/magic.h`.
const PIDFS: u64 = 0x5049_4446;

/// Returns everything about a process, or why nothing of it can be told.
pub(in crate::observe) fn facts(id: ProcessId, names: &BTreeSet<BString>) -> Known<Facts> {
    let pinned = Pinned::open(id)?;
    for _ in 0..TRIES {
        let before = pinned.row()?;
        let facts = gather(&pinned, &before, names);
        // The facts belong together only if no exec came in between.
        let after = pinned.row()?;
        if before.exec == after.exec {
            return Ok(facts);
        }
    }
    Err(Unknown::new(Reason::Vanished, "it keeps becoming another program"))
}

/// Returns the argument vector.
pub(in crate::observe) fn arguments(id: ProcessId) -> Known<Vec<BString>> {
    let pinned = Pinned::open(id)?;
    argv(&pinned, &pinned.row()?)
}

/// Returns one variable of the environment; nothing where it is not set.
///
/// A live process whose environment is not to be seen at the moment, in the middle of an exec or behind a dead leader,
/// is unknown and has not vanished.
pub(in crate::observe) fn variable(id: ProcessId, name: &str) -> Known<Option<BString>> {
    let pinned = Pinned::open(id)?;
    let names = BTreeSet::from([BString::from(name)]);
    for _ in 0..TRIES {
        let before = pinned.row()?;
        let found = environment(&pinned, &before, &names);
        // A vanished one says so here; whoever is there has an environment that could not be read.
        let after = pinned.row()?;
        match found {
            Ok(mut found) if before.exec == after.exec => return Ok(found.remove(name.as_bytes().as_bstr())),
            Err(why) if why.reason != Reason::Vanished => return Err(why),
            Ok(_) | Err(_) if after.is_gone() => {
                return Err(Unknown::new(Reason::Vanished, "its environment left with its memory"));
            }
            Ok(_) | Err(_) => {}
        }
    }
    Err(Unknown::new(Reason::NoRecord, format!("{name} in its environment, which it keeps changing")))
}

/// Returns the arguments and the values of the environment, each with a NUL behind it; nothing where the process is
/// another user's. An entry of the environment that is no variable counts whole.
///
/// Whose it is goes by the owner of its `/proc` entry, and where that is root by its real user: a process that is not
/// dumpable is shown as root's (proc_pid(5)). With root itself such a one counts, whoever's it is: reading `status` of
/// everybody would cost as much as all the rest.
pub(in crate::observe) fn given(id: ProcessId, user: Uid) -> Known<Option<Vec<u8>>> {
    let (pinned, mut before) = Pinned::with_row(id)?;
    let owner = rustix::fs::fstat(pinned.dir()).map_err(|errno| unknown(errno, "asking who owns it"))?.st_uid;
    let is_theirs = if owner == 0 && user != Uid(0) {
        let status = pinned.read(c"status", TEXT_MOST).map(|text| status::parse(&text));
        line(&status, "user", |status| status.uid)? == user
    } else {
        owner == user.0
    };
    if !is_theirs {
        return Ok(None);
    }
    for _ in 0..TRIES {
        let vectors = pinned.read(c"cmdline", GIVEN_MOST).and_then(|arguments| {
            let environment = pinned.read(c"environ", GIVEN_MOST)?;
            if arguments.is_empty() && environment.is_empty() {
                memory_is_there(&before, "what it was given")?;
            }
            Ok(vectors::values(arguments, &environment))
        });
        // Who is there has vectors; one in the midst of an exec, or with a dead leader, could not be read.
        let after = pinned.row()?;
        match vectors {
            Ok(given) if before.exec == after.exec => return Ok(Some(given)),
            Err(why) if why.reason != Reason::Vanished => return Err(why),
            Ok(_) | Err(_) if after.is_gone() => {
                return Err(Unknown::new(Reason::Vanished, "what it was given left with its memory"));
            }
            Ok(_) | Err(_) => before = after,
        }
    }
    Err(Unknown::new(Reason::NoRecord, "what it was given, which it keeps changing"))
}

/// Returns the bytes that a process moved so far.
pub(in crate::observe) fn activity(id: ProcessId) -> Known<Activity> {
    moved(&Pinned::open(id)?)
}

/// Returns the bytes that a pinned process moved so far.
pub(super) fn moved(pinned: &Pinned) -> Known<Activity> {
    let text = pinned.read(c"io", TEXT_MOST)?;
    let value = |name: &[u8]| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.trim_ascii().to_str().ok()?.parse().ok()
    };
    match (value(b"rchar:"), value(b"wchar:")) {
        (Some(read), Some(written)) => Ok(Activity { read, written }),
        (None, _) | (_, None) => Err(Unknown::new(Reason::Unsupported, "io is not as the manual has it")),
    }
}

fn gather(pinned: &Pinned, row: &Row, names: &BTreeSet<BString>) -> Facts {
    let status = pinned.read(c"status", TEXT_MOST).map(|text| status::parse(&text));
    let groups = pinned.read(c"cgroup", TEXT_MOST);
    let namespaces = namespaces(pinned);
    Facts {
        id: pinned.id,
        uid: line(&status, "user", |status| status.uid),
        argv: argv(pinned, row),
        exe: executable(pinned),
        cwd: directory::cwd(pinned),
        env: environment(pinned, row, names),
        cgroup: groups.clone().and_then(|text| cgroup::path(&text)),
        namespaces,
        tracer: line(&status, "tracer", |status| status.tracer).map(Pid::new),
        hangup: line(&status, "SIGHUP", |status| status.hangup),
        freezer: groups.and_then(|text| cgroup::freezer(&text)),
        unique: unique(pinned),
    }
}

fn line<T>(status: &Known<Status>, what: &str, pick: impl Fn(&Status) -> Option<T>) -> Known<T> {
    let status = status.as_ref().map_err(Clone::clone)?;
    pick(status).ok_or_else(|| Unknown::new(Reason::Unsupported, format!("status does not tell the {what}")))
}

fn argv(pinned: &Pinned, row: &Row) -> Known<Vec<BString>> {
    let text = pinned.read(c"cmdline", ARGUMENTS_MOST)?;
    if text.is_empty() {
        memory_is_there(row, "its arguments")?;
    }
    Ok(vectors::arguments(&text))
}

fn environment(
    pinned: &Pinned,
    row: &Row,
    names: &BTreeSet<BString>,
) -> Known<std::collections::BTreeMap<BString, BString>> {
    let text = pinned.read(c"environ", ENVIRONMENT_MOST)?;
    if text.is_empty() {
        memory_is_there(row, "its environment")?;
    }
    Ok(vectors::variables(&text, names))
}

/// Tells an empty vector from one that cannot be seen: a dead leader has no memory any more (CASES C24), and a
/// process in the middle of an exec has none yet.
fn memory_is_there(row: &Row, what: &str) -> Known<()> {
    let dying = matches!(row.state, State::Zombie | State::Dead);
    if dying || row.kernel == Kernel::No && row.exec.arg_start == 0 {
        return Err(Unknown::new(Reason::Vanished, format!("{what} left with its memory")));
    }
    Ok(())
}

/// The path is for matching; the file is the identity, read without asking a file server.
fn executable(pinned: &Pinned) -> Known<Executable> {
    let mut path = pinned.link(c"exe")?;
    let flags = AtFlags::from_bits_retain(AtFlags::STATX_DONT_SYNC.bits() | AtFlags::NO_AUTOMOUNT.bits());
    let wanted = StatxFlags::INO | StatxFlags::NLINK;
    let stat = rustix::fs::statx(pinned.dir(), c"exe", flags, wanted)
        .map_err(|errno| unknown(errno, "asking what the executable is"))?;
    let file = file_id(&stat);
    if let Some(bare) = path.strip_suffix(MARK)
        && !is_named(path.as_bstr(), &stat, flags)
    {
        path = bare.into();
    }
    Ok(Executable { path, file })
}

/// Says whether a file whose text ends in the kernel's mark really has that name.
fn is_named(path: &bstr::BStr, held: &rustix::fs::Statx, flags: AtFlags) -> bool {
    let flags = flags | AtFlags::SYMLINK_NOFOLLOW;
    held.stx_nlink > 0
        && rustix::fs::statx(rustix::fs::CWD, path.as_bytes(), flags, StatxFlags::INO)
            .is_ok_and(|named| file_id(&named) == file_id(held))
}

/// Reads the namespaces' inodes off their links, e.g. `pid:[4026531836]`.
pub(super) fn namespaces(pinned: &Pinned) -> Known<Namespaces> {
    let inode = |name| pinned.link(name).and_then(|text| namespace(&text));
    Ok(Namespaces {
        pid: inode(c"ns/pid")?,
        mount: inode(c"ns/mnt")?,
        net: inode(c"ns/net")?,
        // Absent on kernels before 5.6, and then all clocks are one. A dead leader has lost the others too.
        time: match inode(c"ns/time") {
            Err(Unknown { reason: Reason::Vanished, .. }) => 0,
            known => known?,
        },
        user: inode(c"ns/user")?,
    })
}

/// Returns the number in the brackets.
pub(super) fn namespace(text: &[u8]) -> Known<u64> {
    text.split_once_str(b":[")
        .and_then(|(_, rest)| rest.strip_suffix(b"]")?.to_str().ok()?.parse().ok())
        .ok_or_else(|| Unknown::new(Reason::Unsupported, "a namespace link is not as the manual has it"))
}

/// Returns the inode of the process's pidfd where that lives on pidfs (Linux 6.9): it is never used again within a
/// boot. Older kernels give every pidfd one and the same inode, which would say nothing.
fn unique(pinned: &Pinned) -> Option<u64> {
    let pid = rustix::process::Pid::from_raw(pinned.id.pid.number())?;
    let pidfd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    let on = rustix::fs::fstatfs(&pidfd).ok()?;
    if u64::try_from(on.f_type).ok()? != PIDFS {
        return None;
    }
    let inode = rustix::fs::fstat(&pidfd).ok()?.st_ino;
    // The number was looked up by pidfd_open: only if the pinned process still is there was it that one.
    pinned.row().ok().map(|_| inode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::facts::Fate;
    use crate::model::id::Start;
    use crate::model::table::plain_row;

    #[test]
    fn namespace_links() {
        assert_eq!(namespace(b"pid:[4026531836]").unwrap(), 4_026_531_836);
        assert!(namespace(b"pid:4026531836").is_err());
        assert!(namespace(b"pid:[x]").is_err());
    }

    #[test]
    fn an_empty_vector_of_a_dead_leader_is_unknown_c24() {
        let mut row = plain_row(Pid::new(9).unwrap(), 1, Start(1));
        row.exec.arg_start = 1;
        assert!(memory_is_there(&row, "x").is_ok());
        row.state = State::Zombie;
        row.threads = 2;
        assert_eq!(memory_is_there(&row, "x").unwrap_err().reason, Reason::Vanished);
        row.state = State::Running;
        row.exec.arg_start = 0;
        assert!(memory_is_there(&row, "x").is_err(), "in the middle of an exec");
    }

    #[test]
    fn our_own_facts_are_whole() {
        let pid = Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap();
        let text = std::fs::read("/proc/self/stat").unwrap();
        let row = super::super::stat::parse(&text, super::super::stat::Units::of_this_kernel()).unwrap();
        let facts = facts(row.id, &BTreeSet::from([BString::from("PATH")])).unwrap();
        assert_eq!(facts.id.pid, pid);
        assert_eq!(facts.uid.unwrap().0, rustix::process::getuid().as_raw());
        assert_eq!(facts.argv.unwrap().len(), std::env::args_os().count());
        assert_eq!(facts.cwd.unwrap().fate, Ok(Fate::Linked));
        assert_eq!(facts.env.unwrap().len(), 1);
        assert!(facts.exe.is_ok() && facts.namespaces.is_ok() && facts.tracer.is_ok());
        let stranger = ProcessId { start: Start(row.id.start.0 + 1), ..row.id };
        assert_eq!(super::facts(stranger, &BTreeSet::new()).unwrap_err().reason, Reason::Vanished);
    }
}
