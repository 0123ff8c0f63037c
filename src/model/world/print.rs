//! Writes looks as a strict world.

use std::fmt::Write as _;

use bstr::BString;

use crate::model::facts::{Facts, Fate, FileSystem, Freezer, Hangup, Namespaces};
use crate::model::id::{FileId, ProcessId};
use crate::model::keep::{KeepMark, Kept};
use crate::model::known::Known;
use crate::model::look::{Arguments, Look, Scope};
use crate::model::question::{Answer, Family, Owner, Parent, PathAnswer, Peer, Question, Sockets};
use crate::model::table::{Kernel, Row, State};

use super::words::{known, quote, span, unknown};
use super::{leases, served};

mod channels;

use channels::{channel_words, holder_words};

/// Returns a strict world of this one look; [`super::parse()`] reads the very same look from it.
pub fn print(look: &Look) -> String {
    print_all(std::slice::from_ref(look))
}

/// Returns a strict world of these looks, in order.
pub fn print_all(looks: &[Look]) -> String {
    let mut text = String::from("reapd world 1 strict\n");
    for look in looks {
        print_look(&mut text, look);
    }
    text
}

// Writing to a string cannot fail.
macro_rules! line {
    ($text:expr, $($arguments:tt)*) => {{ let _ = writeln!($text, $($arguments)*); }};
}

fn print_look(text: &mut String, look: &Look) {
    let snapshot = &look.snapshot;
    let own = &snapshot.own;
    line!(
        text,
        "\nlook at {} boot={} monotonic={} wall={} pid={} uid={} sid={} scope={} namespaces={} home={}",
        span(snapshot.began.boot.0),
        quote(snapshot.boot.0.as_bytes()),
        snapshot.began.monotonic,
        snapshot.began.wall,
        own.pid,
        own.uid,
        own.sid,
        match own.scope {
            Scope::User => "user",
            Scope::Host => "host",
        },
        known(&own.namespaces, namespaces),
        own.home.as_ref().map_or("-".to_owned(), |home| quote(home)),
    );
    print_table(text, look);
    let reapers: String = look.reapers.iter().flat_map(|pid| [" ".to_owned(), pid.to_string()]).collect();
    line!(text, "  reapers{reapers}");
    for server in &snapshot.configured {
        let parts = [server.name.as_bytes(), server.file.as_bytes(), &server.command];
        line!(text, "  configured{}", list(parts.into_iter().chain(server.args.iter().map(|a| &a[..]))));
    }
    for gap in &snapshot.gaps {
        let cure = gap.cure.as_ref().map_or("-".to_owned(), |cure| quote(cure.as_bytes()));
        line!(text, "  gap {} {} {cure}", quote(gap.source.as_bytes()), unknown(&gap.why));
    }
    text.push_str(&leases::print(look));
    for mark in look.marks.iter().filter(|mark| !matches!(mark.what, Kept::Container { .. })) {
        print_mark(text, look, mark);
    }
    // Worlds hold no containers.
    let of_processes = |question: &Question| !matches!(question, Question::Engine(_));
    for (question, answer) in look.answers.iter().filter(|(question, _)| of_processes(question)) {
        print_answer(text, look, question, answer);
    }
}

fn list<'a>(parts: impl Iterator<Item = &'a [u8]>) -> String {
    parts.flat_map(|part| [" ".to_owned(), quote(part)]).collect()
}

fn argv(argv: &Known<std::sync::Arc<[BString]>>) -> String {
    match argv {
        Ok(argv) if argv.is_empty() => " none".to_owned(),
        // A first word of ours in the place of the first argument would be read as ours.
        Ok(argv) => {
            let words = list(argv.iter().map(|argument| &argument[..]));
            if argv[0] == "none" { words.replacen("none", "\"none\"", 1) } else { words }
        }
        Err(why) => format!(" {}", unknown(why)),
    }
}

fn print_table(text: &mut String, look: &Look) {
    const HEADER: [&str; 16] = [
        "pid", "ppid", "pgid", "sid", "began", "start", "uid", "tty", "state", "threads", "cpu", "rss",
        "kernel", "exec", "comm", "command",
    ];
    let mut lines = vec![HEADER.map(str::to_owned)];
    for row in look.snapshot.table.rows() {
        lines.push(cells(look, row));
    }
    let widths: Vec<usize> =
        (0..HEADER.len()).map(|at| lines.iter().map(|line| line[at].len()).max().unwrap_or(0)).collect();
    for cells in lines {
        let mut line = String::from(" ");
        for (cell, width) in cells.iter().zip(&widths) {
            let _ = write!(line, " {cell:width$}");
        }
        line!(text, "{}", line.trim_end_matches(' '));
    }
    // What has no row is listed on its own: the two are read at different moments.
    for entry in &look.snapshot.arguments {
        if look.snapshot.table.get(entry.id).is_none() {
            line!(text, "  arguments {} {}{}", name(look, entry.id), entry.uid, argv(&entry.argv));
        }
    }
}

fn cells(look: &Look, row: &Row) -> [String; 16] {
    let boot = look.snapshot.began.boot;
    let entry: Option<&Arguments> = look.arguments(row.id);
    [
        row.id.pid.to_string(),
        row.ppid.to_string(),
        row.pgid.to_string(),
        row.sid.to_string(),
        match boot.0.checked_sub(row.began.0) {
            Some(age) => span(age),
            None => format!("@{}", span(row.began.0)),
        },
        row.id.start.0.to_string(),
        entry.map_or("-".to_owned(), |entry| entry.uid.to_string()),
        row.tty.to_string(),
        match row.state {
            State::Running => "R".to_owned(),
            State::Sleeping => "S".to_owned(),
            State::Uninterruptible => "D".to_owned(),
            State::Stopped => "T".to_owned(),
            State::Zombie => "Z".to_owned(),
            State::Dead => "X".to_owned(),
            State::Other(letter) => format!("other/{letter}"),
        },
        row.threads.to_string(),
        span(u64::try_from(row.cpu.as_nanos()).unwrap_or(u64::MAX)),
        row.resident.to_string(),
        match row.kernel {
            Kernel::Thread => "thread".to_owned(),
            Kernel::No => "no".to_owned(),
        },
        format!(
            "{}:{}:{}:{}",
            row.exec.start_stack, row.exec.arg_start, row.exec.arg_end, row.exec.env_start
        ),
        quote(row.name()),
        entry.map_or("-".to_owned(), |entry| argv(&entry.argv).trim_start().to_owned()),
    ]
}

/// Returns a process as a word: its number where that names it at this look, else with its start.
pub(super) fn name(look: &Look, id: ProcessId) -> String {
    if look.snapshot.table.get(id).is_some() {
        id.pid.to_string()
    } else {
        format!("{}@{}", id.pid, id.start.0)
    }
}

fn namespaces(ns: &Namespaces) -> String {
    format!("{}:{}:{}:{}:{}", ns.pid, ns.mount, ns.net, ns.time, ns.user)
}

pub(super) fn file(file: FileId) -> String {
    format!("{}:{}", file.dev, file.ino)
}

fn print_mark(text: &mut String, look: &Look, mark: &KeepMark) {
    let what = match &mark.what {
        Kept::Process { boot, id, name: called } => format!(
            "process {} boot={} name={}",
            name(look, *id),
            quote(boot.0.as_bytes()),
            quote(called.as_bytes())
        ),
        Kept::Directory { path } => format!("directory {}", quote(path)),
        Kept::Container { .. } => return,
    };
    let until = mark.until.map(|until| format!(" until={until}")).unwrap_or_default();
    let note = mark.note.as_ref().map(|note| format!(" note={}", quote(note.as_bytes()))).unwrap_or_default();
    line!(text, "  mark {what} set={}{until}{note}", mark.set);
}

fn print_answer(text: &mut String, look: &Look, question: &Question, answer: &Known<Answer>) {
    let asked = match question {
        Question::Facts(id) => format!("facts {}", name(look, *id)),
        Question::Path { of, path } => format!("path {} {}", name(look, *of), quote(path)),
        Question::Channel { of, fd } => format!("channel {} {fd}", name(look, *of)),
        Question::Holders { of, fd } => format!("holders {} {fd}", name(look, *of)),
        Question::Sockets(id) => format!("sockets {}", name(look, *id)),
        Question::Owner { of, pid } => format!("owner {} {pid}", name(look, *of)),
        Question::Activity(id) => format!("activity {}", name(look, *id)),
        Question::Terminals(id) => format!("terminals {}", name(look, *id)),
        Question::Registered { of, registry, place, key } => {
            let registry = quote(registry.as_bytes());
            format!("registered {} {registry} {} {}", name(look, *of), quote(place), quote(key))
        }
        Question::Bound { .. } | Question::Named { .. } | Question::Ping { .. } => {
            served::asked(look, question).unwrap_or_default()
        }
        Question::Engine(_) => return,
    };
    let answer = match answer {
        Err(why) => {
            line!(text, "  {asked} {}", unknown(why));
            return;
        }
        Ok(answer) => answer,
    };
    match answer {
        Answer::Facts(facts) => print_facts(text, &asked, facts),
        Answer::Path(path) => line!(text, "  {asked} {}", path_words(path)),
        Answer::Channel(channel) => line!(text, "  {asked} {}", channel_words(channel)),
        Answer::Named(carriers) => line!(text, "  {asked} {}", served::carrier_words(look, carriers)),
        Answer::Holders(holders) => {
            line!(text, "  {asked} {}", holder_words(look, holders));
        }
        Answer::Sockets(sockets) => print_sockets(text, &asked, sockets),
        Answer::Owner(owner) => {
            let who = match owner {
                Owner::Absent => "absent".to_owned(),
                Owner::Zombie => "zombie".to_owned(),
                Owner::Alive(id) => format!("alive={}", name(look, *id)),
            };
            line!(text, "  {asked} {who}");
        }
        Answer::Terminals(terminals) if terminals.is_empty() => line!(text, "  {asked} none"),
        Answer::Terminals(terminals) => {
            let numbers: String =
                terminals.iter().flat_map(|tty| [" ".to_owned(), tty.to_string()]).collect();
            line!(text, "  {asked}{numbers}");
        }
        Answer::Bound(bound) => line!(text, "  {asked} {}", served::bound_words(bound)),
        Answer::Engine(_) => {}
        Answer::Ping(pinged) => line!(text, "  {asked} {}", served::ping_words(pinged)),
        Answer::Registered(registered) => line!(text, "  {asked} {}", leases::registered(registered)),
        Answer::Activity(activity) => {
            line!(text, "  {asked} read={} written={}", activity.read, activity.written);
        }
    }
}

fn print_facts(text: &mut String, asked: &str, facts: &Facts) {
    let mut line = format!("  {asked} uid={}", known(&facts.uid, ToString::to_string));
    let mut add = |key: &str, value: String| {
        let _ = write!(line, " {key}={value}");
    };
    match &facts.exe {
        Ok(exe) => {
            add("exe", quote(&exe.path));
            add("exe-file", file(exe.file));
        }
        Err(why) => add("exe", unknown(why)),
    }
    match &facts.cwd {
        Ok(cwd) => {
            add("cwd", quote(&cwd.path));
            add("cwd-file", file(cwd.file));
            add("fate", known(&cwd.fate, |fate| fate_word(*fate).to_owned()));
            add("on", file_system(cwd.on).to_owned());
        }
        Err(why) => add("cwd", unknown(why)),
    }
    add("cgroup", known(&facts.cgroup, |cgroup| quote(cgroup)));
    add("namespaces", known(&facts.namespaces, namespaces));
    add("tracer", known(&facts.tracer, |tracer| tracer.map_or("none".to_owned(), |pid| pid.to_string())));
    let hangup = known(&facts.hangup, |hangup| {
        match hangup {
            Hangup::Ignored => "ignored",
            Hangup::Caught => "caught",
            Hangup::Default => "default",
        }
        .to_owned()
    });
    add("hangup", hangup);
    let freezer = known(&facts.freezer, |freezer| {
        match freezer {
            Freezer::Frozen => "frozen",
            Freezer::Thawed => "thawed",
        }
        .to_owned()
    });
    add("freezer", freezer);
    add("unique", facts.unique.map_or("none".to_owned(), |unique| unique.to_string()));
    line!(text, "{line}");
    let of = asked.trim_start_matches("facts ");
    let shared = facts.argv.as_ref().map(|argv| argv.as_slice().into()).map_err(Clone::clone);
    line!(text, "  argv {of}{}", argv(&shared));
    match &facts.env {
        Ok(env) if env.is_empty() => line!(text, "  env {of} none"),
        Ok(env) => {
            let variables: Vec<Vec<u8>> =
                env.iter().map(|(name, value)| [&name[..], b"=", &value[..]].concat()).collect();
            line!(text, "  env {of}{}", list(variables.iter().map(|variable| &variable[..])));
        }
        Err(why) => line!(text, "  env {of} {}", unknown(why)),
    }
}

fn fate_word(fate: Fate) -> &'static str {
    match fate {
        Fate::Linked => "linked",
        Fate::Deleted => "deleted",
    }
}

fn file_system(on: FileSystem) -> &'static str {
    match on {
        FileSystem::Local => "local",
        FileSystem::Overlay => "overlay",
        FileSystem::Fuse => "fuse",
        FileSystem::Network => "network",
    }
}

fn path_words(path: &PathAnswer) -> String {
    let (word, own, parent) = match path {
        PathAnswer::Present { file: own, parent } => ("present", Some(*own), parent),
        PathAnswer::Absent { parent } => ("absent", None, parent),
        PathAnswer::ParentAbsent { nearest } => ("parent-absent", None, nearest),
    };
    let own = own.map(|own| format!(" file={}", file(own))).unwrap_or_default();
    format!("{word}{own} {}", parent_words(parent))
}

/// Returns how a directory above a path is written.
pub(super) fn parent_words(parent: &Parent) -> String {
    let Parent { path, file: above, mount, on } = parent;
    format!(
        "parent={} parent-file={} mount={} on={}",
        quote(path),
        file(*above),
        quote(mount),
        file_system(*on)
    )
}

fn print_sockets(text: &mut String, asked: &str, sockets: &Sockets) {
    line!(text, "  {asked} none");
    let of = asked.trim_start_matches("sockets ");
    for listener in &sockets.listeners {
        line!(
            text,
            "  listens {of} {} {} inode={} file={} pending={}",
            family(listener.family),
            quote(&listener.name),
            listener.inode,
            listener.file.map_or("none".to_owned(), file),
            listener.pending
        );
    }
    for connection in &sockets.connections {
        let peer = match &connection.peer {
            Peer::Gone => "gone".to_owned(),
            Peer::Inode(inode) => format!("inode/{inode}"),
            Peer::Remote(address) => format!("remote/{}", quote(address.as_bytes())),
            Peer::Unknown => "unknown".to_owned(),
        };
        line!(
            text,
            "  client {of} {} {} inode={} peer={peer}",
            family(connection.family),
            quote(&connection.name),
            connection.inode
        );
    }
}

fn family(family: Family) -> &'static str {
    match family {
        Family::Unix => "unix",
        Family::UnixDatagram => "unix-datagram",
        Family::Tcp => "tcp",
        Family::Udp => "udp",
    }
}
