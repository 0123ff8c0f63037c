//! Reads the process table of a world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bstr::{BString, ByteSlice as _};

use crate::model::id::{Pid, ProcessId, Start, Uid};
use crate::model::known::Known;
use crate::model::look::{Own, Scope};
use crate::model::moment::Moment;
use crate::model::table::{ExecSignature, Kernel, Row, State, plain_row};

use super::Manner;
use super::words::{Word, read_span};

/// One process as a world has it: its row, and the cheap text that goes with it.
#[derive(Debug, Clone)]
pub(super) struct Person {
    pub(super) row: Row,
    pub(super) uid: Uid,
    /// The argument vector, if the world gives one.
    pub(super) argv: Option<Known<Arc<[BString]>>>,
    /// Whether the look has it among its arguments.
    pub(super) reach: Reach,
    // What the world left out, to be filled from the parent.
    missing: BTreeSet<Column>,
}

/// Whether a process is in the scope of the look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Reach {
    InScope,
    Outside,
}

/// The columns of a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Column {
    Pid,
    Ppid,
    Pgid,
    Sid,
    Began,
    Start,
    Uid,
    Tty,
    State,
    Threads,
    Cpu,
    Rss,
    Kernel,
    Exec,
    Comm,
    Command,
}

const COLUMNS: [(&str, Column); 16] = [
    ("pid", Column::Pid),
    ("ppid", Column::Ppid),
    ("pgid", Column::Pgid),
    ("sid", Column::Sid),
    ("began", Column::Began),
    ("start", Column::Start),
    ("uid", Column::Uid),
    ("tty", Column::Tty),
    ("state", Column::State),
    ("threads", Column::Threads),
    ("cpu", Column::Cpu),
    ("rss", Column::Rss),
    ("kernel", Column::Kernel),
    ("exec", Column::Exec),
    ("comm", Column::Comm),
    ("command", Column::Command),
];

/// Reads a header row.
pub(super) fn header(words: &[Word]) -> Result<Vec<Column>, String> {
    let mut columns = Vec::new();
    for word in words {
        let name = word.keyword().unwrap_or_default();
        let found = COLUMNS.iter().find(|(known, _)| *known == name).map(|(_, column)| *column);
        let column = found.ok_or_else(|| format!("'{}' is no column", word.text))?;
        if columns.contains(&column) {
            return Err(format!("column '{name}' stands twice"));
        }
        columns.push(column);
    }
    if columns.last() != Some(&Column::Command) || columns.first() != Some(&Column::Pid) {
        return Err("a table begins with 'pid' and ends with 'command'".to_owned());
    }
    Ok(columns)
}

/// Reads one row; `before` is what an earlier look had at this number.
pub(super) fn read(
    columns: &[Column],
    words: &[Word],
    now: Moment,
    before: Option<&Person>,
    manner: Manner,
) -> Result<Person, String> {
    let (fixed, command) = words.split_at_checked(columns.len() - 1).ok_or("the row is too short")?;
    let number: i32 = fixed[0].number()?;
    let pid = Pid::new(number).ok_or_else(|| format!("{number} is no process number"))?;
    let mut person = before.cloned().unwrap_or_else(|| Person {
        row: plain_row(pid, 1, Start(0)),
        uid: Uid(0),
        argv: None,
        reach: Reach::Outside,
        missing: COLUMNS.iter().map(|(_, column)| *column).filter(|column| *column != Column::Pid).collect(),
    });
    for (column, word) in columns.iter().zip(fixed).skip(1) {
        if word.keyword() != Some("-") {
            cell(&mut person, *column, word, now)?;
            person.missing.remove(column);
            // Another beginning is another process, whatever the earlier look knew of its stamp.
            if *column == Column::Began && !columns.contains(&Column::Start) {
                person.missing.insert(Column::Start);
            }
        }
    }
    match command {
        [] => return Err("the row has no command; '-' stands for none".to_owned()),
        [dash] if dash.keyword() == Some("-") => {}
        words => {
            person.argv = Some(argv(words)?);
            person.missing.remove(&Column::Command);
            if manner == Manner::Boring && !columns.contains(&Column::Comm) {
                person.missing.insert(Column::Comm);
            }
        }
    }
    if let (Manner::Strict, Some(missing)) =
        (manner, person.missing.iter().find(|column| !matches!(column, Column::Uid | Column::Command)))
    {
        return Err(format!("a strict world leaves nothing out, but {missing:?} is not given"));
    }
    Ok(person)
}

/// Reads an argument vector: `none`, `?reason`, or its elements.
pub(super) fn argv(words: &[Word]) -> Result<Known<Arc<[BString]>>, String> {
    match words {
        [word] if word.keyword() == Some("none") => Ok(Ok(Arc::from([]))),
        [word] if word.is_marked(b'?') => {
            Ok(word.unknown("its arguments")?.map_or_else(|| Ok(Arc::from([])), Err))
        }
        words => Ok(Ok(words.iter().map(|word| word.text.clone()).collect())),
    }
}

fn cell(person: &mut Person, column: Column, word: &Word, now: Moment) -> Result<(), String> {
    let row = &mut person.row;
    match column {
        Column::Pid | Column::Command => {}
        Column::Ppid => row.ppid = word.number()?,
        Column::Pgid => row.pgid = word.number()?,
        Column::Sid => row.sid = word.number()?,
        Column::Began => row.began = moment(word, now)?,
        Column::Start => row.id.start = Start(word.number()?),
        Column::Uid => person.uid = Uid(word.number()?),
        Column::Tty => row.tty = tty(word)?,
        Column::State => row.state = state(word)?,
        Column::Threads => row.threads = word.number()?,
        Column::Cpu => row.cpu = Duration::from_nanos(duration(word)?),
        Column::Rss => row.resident = size(word)?,
        Column::Kernel => {
            row.kernel = match word.keyword() {
                Some("thread") => Kernel::Thread,
                Some("no") => Kernel::No,
                _ => return Err(format!("'{}' is neither 'thread' nor 'no'", word.text)),
            }
        }
        Column::Exec => row.exec = exec(word)?,
        Column::Comm => row.comm = comm(&word.text)?,
    }
    Ok(())
}

fn moment(word: &Word, now: Moment) -> Result<Moment, String> {
    let text = word.string()?;
    if let Some(absolute) = text.strip_prefix('@') {
        return read_span(absolute).map(Moment).ok_or_else(|| format!("'{text}' is no moment such as @3d"));
    }
    let age = read_span(&text).ok_or_else(|| format!("'{text}' is no age such as 3d or 2h30m"))?;
    now.0.checked_sub(age).map(Moment).ok_or_else(|| format!("{text} ago the machine was not up yet"))
}

fn duration(word: &Word) -> Result<u64, String> {
    let text = word.string()?;
    read_span(&text).ok_or_else(|| format!("'{text}' is no span such as 2h30m"))
}

/// Reads a terminal: `pts/3`, or its device number.
pub(super) fn tty(word: &Word) -> Result<i32, String> {
    match word.string()?.strip_prefix("pts/") {
        // Device numbers of Unix 98 terminals begin at major 136 (pts(4)).
        Some(number) => {
            number.parse::<u8>().map(|n| 136 << 8 | i32::from(n)).map_err(|error| error.to_string())
        }
        None => word.number(),
    }
}

fn state(word: &Word) -> Result<State, String> {
    Ok(match word.string()?.as_str() {
        "R" => State::Running,
        "S" => State::Sleeping,
        "D" => State::Uninterruptible,
        "T" => State::Stopped,
        "Z" => State::Zombie,
        "X" => State::Dead,
        text => text
            .strip_prefix("other/")
            .and_then(|letter| letter.parse().ok())
            .map(State::Other)
            .ok_or_else(|| format!("'{text}' is no state; they are R S D T Z X other/NUMBER"))?,
    })
}

fn size(word: &Word) -> Result<u64, String> {
    let text = word.string()?;
    let (digits, unit) = match text.strip_suffix(['k', 'M', 'G']) {
        Some(digits) => (digits, text.as_bytes()[digits.len()]),
        None => (text.as_str(), b' '),
    };
    let count: u64 = digits.parse().map_err(|_| format!("'{text}' is no size such as 812M"))?;
    let shift = match unit {
        b'k' => 10,
        b'M' => 20,
        b'G' => 30,
        _ => 0,
    };
    count.checked_mul(1 << shift).ok_or_else(|| format!("'{text}' is too large"))
}

fn exec(word: &Word) -> Result<ExecSignature, String> {
    let text = word.string()?;
    let parts: Option<Vec<u64>> = text.split(':').map(|part| part.parse().ok()).collect();
    match parts.as_deref() {
        Some(&[start_stack, arg_start, arg_end, env_start]) => {
            Ok(ExecSignature { start_stack, arg_start, arg_end, env_start })
        }
        _ => Err(format!("'{text}' is not of the form STACK:ARG:ARG:ENV")),
    }
}

fn comm(text: &[u8]) -> Result<[u8; 16], String> {
    let mut comm = [0; 16];
    if text.len() > 15 || text.contains(&0) {
        return Err(format!("'{}' is longer than the 15 bytes of a command name", text.as_bstr()));
    }
    comm[..text.len()].copy_from_slice(text);
    Ok(comm)
}

/// Returns the file name of a program, as the first argument gives it: a login shell's dash is no part of it.
pub(super) fn program(argv: &[BString]) -> &[u8] {
    let first = argv.first().map_or(&b""[..], |first| first);
    let name = first.rfind_byte(b'/').map_or(first, |at| &first[at + 1..]);
    name.strip_prefix(b"-").unwrap_or(name)
}

/// Fills in what the world left out of its rows: mostly what a process inherits from its parent.
pub(super) fn fill(people: &mut BTreeMap<Pid, Person>, own: &Own, now: Moment, manner: Manner) {
    let pids: Vec<Pid> = people.keys().copied().collect();
    for pid in pids {
        fill_one(people, pid, own, now, manner, &mut BTreeSet::new());
    }
}

fn fill_one(
    people: &mut BTreeMap<Pid, Person>,
    pid: Pid,
    own: &Own,
    now: Moment,
    manner: Manner,
    below: &mut BTreeSet<Pid>,
) {
    let Some(mut person) = people.get(&pid).cloned() else { return };
    let missing = std::mem::take(&mut person.missing);
    below.insert(pid);
    let above = Pid::new(person.row.ppid).filter(|above| !below.contains(above) && !missing.is_empty());
    if let Some(above) = above {
        fill_one(people, above, own, now, manner, below);
    }
    // A child of a reaper is an adopted one, or a daemon of its own: it shares nothing with its parent.
    let parent = above
        .and_then(|above| people.get(&above))
        .filter(|parent| parent.row.id.pid != Pid::INIT && parent.row.name() != b"systemd");
    for column in missing {
        match column {
            Column::Pgid => person.row.pgid = parent.map_or(pid.number(), |parent| parent.row.pgid),
            Column::Sid => person.row.sid = parent.map_or(pid.number(), |parent| parent.row.sid),
            Column::Tty => person.row.tty = parent.map_or(0, |parent| parent.row.tty),
            Column::Began => {
                let hour = now.minus(Duration::from_hours(1));
                person.row.began = parent.map_or(hour, |parent| parent.row.began);
            }
            Column::Uid => {
                person.uid = if pid == Pid::INIT || person.row.kernel == Kernel::Thread {
                    Uid::ROOT
                } else {
                    parent.map_or(own.uid, |parent| parent.uid)
                }
            }
            Column::Comm => {
                if let Some(Ok(argv)) = &person.argv {
                    let name = program(argv);
                    person.row.comm = comm(&name[..name.len().min(15)]).unwrap_or_default();
                }
            }
            Column::Pid
            | Column::Ppid
            | Column::Start
            | Column::State
            | Column::Threads
            | Column::Cpu
            | Column::Rss
            | Column::Kernel
            | Column::Exec
            | Column::Command => {}
        }
        if column == Column::Start {
            // Ticks of 10 ms, as Linux counts them.
            person.row.id.start = Start(person.row.began.0 / 10_000_000);
        }
    }
    let mine = own.scope == Scope::Host || person.uid == own.uid || manner == Manner::Strict;
    let real = (person.row.kernel == Kernel::No || manner == Manner::Strict) && person.argv.is_some();
    person.reach = if mine && real { Reach::InScope } else { Reach::Outside };
    people.insert(pid, person);
}

/// Returns the identity of a process that a statement names by number, or by number and start.
pub(super) fn named(people: &BTreeMap<Pid, Person>, word: &Word) -> Result<ProcessId, String> {
    named_text(people, &word.string()?)
}

/// Returns the identity that such a text names.
pub(super) fn named_text(people: &BTreeMap<Pid, Person>, text: &str) -> Result<ProcessId, String> {
    let (number, start) = match text.split_once('@') {
        Some((number, start)) => (number, Some(start)),
        None => (text, None),
    };
    let pid =
        number.parse().ok().and_then(Pid::new).ok_or_else(|| format!("'{text}' is no process number"))?;
    match start {
        Some(start) => {
            let start = start.parse().map_err(|_| format!("'{start}' is no start stamp"))?;
            Ok(ProcessId { pid, start: Start(start) })
        }
        None => people
            .get(&pid)
            .map(|person| person.row.id)
            .ok_or_else(|| format!("no process {pid} at this look")),
    }
}
