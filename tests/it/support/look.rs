//! A small reader of `/proc`, apart from the one under test.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use bstr::{BString, ByteSlice as _};
use reapd::model::facts::{Executable, Facts};
use reapd::model::id::{BootId, FileId, Pid, ProcessId, Start, Uid};
use reapd::model::known::{Known, Reason, Unknown};
use reapd::model::look::{Look, Own, Scope, Snapshot};
use reapd::model::moment::{Clocks, Moment};
use reapd::model::question::{Answer, Family, Listener, Question, Sockets};
use reapd::model::table::{Kernel, Row, State, Table, plain_row};
use rustix::time::{ClockId, clock_gettime};

/// Returns what is in a directory, in order.
#[cfg(target_os = "linux")]
pub(crate) fn names(directory: &std::path::Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort_unstable();
    names
}

/// Returns the boot clock.
pub(crate) fn now() -> Moment {
    let time = clock_gettime(ClockId::Boottime);
    Moment(u64::try_from(time.tv_sec).unwrap() * 1_000_000_000 + u64::try_from(time.tv_nsec).unwrap())
}

/// Returns every process number.
pub(crate) fn pids() -> Vec<Pid> {
    std::fs::read_dir("/proc")
        .unwrap()
        .filter_map(|entry| Pid::new(entry.ok()?.file_name().to_str()?.parse().ok()?))
        .collect()
}

/// Returns one row, if the process is there.
pub(crate) fn row(pid: Pid) -> Option<Row> {
    let stat = std::fs::read(format!("/proc/{pid}/stat")).ok()?;
    let (open, close) = (stat.find_byte(b'(')?, stat.rfind_byte(b')')?);
    let fields: Vec<&str> = std::str::from_utf8(&stat[close + 2..]).ok()?.split_ascii_whitespace().collect();
    let number = |at: usize| fields.get(at)?.parse::<i64>().ok();
    let int = |at: usize| i32::try_from(number(at)?).ok();
    let start = Start(u64::try_from(number(19)?).ok()?);
    let mut row = plain_row(pid, int(1)?, start);
    row.state = match *fields.first()? {
        "R" => State::Running,
        "S" | "I" => State::Sleeping,
        "D" => State::Uninterruptible,
        "T" | "t" => State::Stopped,
        "Z" => State::Zombie,
        "X" => State::Dead,
        _ => State::Other(b'?'),
    };
    (row.pgid, row.sid, row.tty) = (int(2)?, int(3)?, int(4)?);
    row.kernel = if number(6)? & 0x0020_0000 == 0 { Kernel::No } else { Kernel::Thread };
    row.threads = u32::try_from(number(17)?).ok()?;
    row.cpu = Duration::ZERO;
    let name = &stat[open + 1..close];
    let length = name.len().min(15);
    row.comm[..length].copy_from_slice(&name[..length]);
    Some(row)
}

/// Returns a fresh look that has asked nothing, as from a reapd that runs here.
pub(crate) fn look() -> Look {
    look_of(pids().into_iter().filter_map(row).collect())
}

/// Returns a look at these rows alone.
pub(crate) fn look_of(rows: Vec<Row>) -> Look {
    let own = Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap();
    let table = Table::new(rows);
    let mut look = Look::new(Snapshot {
        boot: boot(),
        began: Clocks { boot: now(), monotonic: 0, wall: 0 },
        own: Own {
            pid: own,
            uid: Uid(rustix::process::geteuid().as_raw()),
            sid: table.at(own).map_or(0, |row| row.sid),
            namespaces: Err(unknown()),
            home: None,
            scope: Scope::User,
        },
        table,
        arguments: Vec::new(),
        configured: Vec::new(),
        leases: reapd::model::lease::Leases::default(),
        engines: Vec::new(),
        gaps: Vec::new(),
    });
    look.reapers.insert(super::tree::adopter());
    look
}

/// Answers questions for facts and sockets.
pub(crate) fn answer(look: &mut Look, questions: Vec<Question>) {
    for question in questions {
        let answer = match &question {
            Question::Facts(id) => facts(*id).map(|facts| Answer::Facts(Box::new(facts))),
            Question::Sockets(id) => sockets(id.pid).map(Answer::Sockets),
            _ => Err(unknown()),
        };
        look.answers.insert(question, answer);
    }
}

/// Returns the facts that an identity and the gates need.
pub(crate) fn facts(id: ProcessId) -> Known<Facts> {
    let gone = || Unknown::new(Reason::Vanished, "facts");
    let path = |name: &str| format!("/proc/{}/{name}", id.pid);
    let unique = rustix::process::Pid::from_raw(id.pid.number())
        .and_then(|pid| rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok())
        .and_then(|pidfd| rustix::fs::fstat(pidfd).ok())
        .map(|stat| stat.st_ino);
    let status = std::fs::read_to_string(path("status")).map_err(|_| gone())?;
    let uid = status
        .lines()
        .find_map(|line| line.strip_prefix("Uid:")?.split_ascii_whitespace().next()?.parse().ok())
        .map(Uid)
        .ok_or_else(gone);
    let exe = std::fs::metadata(path("exe"))
        .map(|file| Executable {
            path: BString::from("?"),
            file: FileId { dev: file.dev(), ino: file.ino() },
        })
        .map_err(|_| Unknown::new(Reason::Denied, "exe"));
    let env =
        std::fs::read(path("environ")).map_err(|_| Unknown::new(Reason::Denied, "environ")).map(|text| {
            text.split(|byte| *byte == 0)
                .filter_map(|variable| variable.split_once_str("="))
                .map(|(name, value)| (BString::from(name), BString::from(value)))
                .collect::<BTreeMap<_, _>>()
        });
    if row(id.pid).is_none_or(|row| row.id != id) {
        return Err(gone());
    }
    Ok(Facts {
        id,
        uid,
        argv: Err(unknown()),
        exe,
        cwd: Err(unknown()),
        env,
        cgroup: Err(unknown()),
        namespaces: Err(unknown()),
        tracer: Err(unknown()),
        hangup: Err(unknown()),
        freezer: Err(unknown()),
        unique,
    })
}

/// Returns the TCP listeners of a process.
pub(crate) fn sockets(pid: Pid) -> Known<Sockets> {
    let denied = |_| Unknown::new(Reason::Denied, "sockets");
    let table = std::fs::read_to_string(format!("/proc/{pid}/net/tcp")).map_err(denied)?;
    let listening: BTreeMap<u64, &str> = table
        .lines()
        .skip(1)
        .map(|line| line.split_ascii_whitespace().collect::<Vec<_>>())
        .filter(|fields| fields.get(3) == Some(&"0A"))
        .filter_map(|fields| Some((fields.get(9)?.parse().ok()?, *fields.get(1)?)))
        .collect();
    let mut sockets = Sockets::default();
    for entry in std::fs::read_dir(format!("/proc/{pid}/fd")).map_err(denied)? {
        let Ok(link) = entry.and_then(|entry| std::fs::read_link(entry.path())) else { continue };
        let inode =
            link.to_str().and_then(|text| text.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok());
        if let Some(inode) = inode
            && let Some(name) = listening.get(&inode)
        {
            sockets.listeners.push(Listener {
                family: Family::Tcp,
                name: BString::from(*name),
                inode,
                file: None,
                pending: 0,
            });
        }
    }
    Ok(sockets)
}

fn boot() -> BootId {
    BootId(std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap().trim().to_owned())
}

fn unknown() -> Unknown {
    Unknown::new(Reason::NotAsked, "not read by this reader")
}
