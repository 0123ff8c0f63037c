//! What a world written by hand need not say: a quiet live daemon, about whom nothing is a sign of loss.

use std::collections::BTreeMap;

use bstr::{BString, ByteSlice as _};

use crate::model::facts::{Directory, Executable, Facts, Fate, FileSystem, Freezer, Hangup, Namespaces};
use crate::model::id::{FileId, Pid, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::{Look, Own, Scope};
use crate::model::question::{Answer, Binding, Channel, ChannelKind, Owner, Question, Sockets, TerminalFate};

use super::rows::{Person, program};

/// The first namespaces of a kernel, as Linux numbers them.
pub(super) const NAMESPACES: Namespaces = Namespaces {
    pid: 4_026_531_836,
    mount: 4_026_531_841,
    net: 4_026_531_840,
    time: 4_026_531_834,
    user: 4_026_531_837,
};

/// Who looks, where the world does not say: an ordinary user whose own process is in no row.
pub(super) fn own() -> Own {
    Own {
        pid: Pid::new(99_999).unwrap_or(Pid::INIT),
        uid: Uid(1000),
        sid: 99_999,
        namespaces: Ok(NAMESPACES),
        home: Some("/home/ana".into()),
        scope: Scope::User,
    }
}

/// Returns the identity of what is at a path in a world that does not give one: equal paths are equal files.
pub(super) fn file(path: &[u8]) -> FileId {
    // FNV-1a, folded to a number that is pleasant to read.
    let hash = path.iter().fold(0xcbf2_9ce4_8422_2325_u64, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    FileId { dev: 1, ino: (hash >> 32) ^ (hash & 0xffff_ffff) }
}

/// Returns what stands above a path.
pub(super) fn above(path: &[u8]) -> BString {
    match path.rfind_byte(b'/') {
        Some(0) | None => "/".into(),
        Some(at) => path[..at].into(),
    }
}

/// Fills in what nobody needs to say of each process that has no answers yet.
pub(super) fn fill(look: &mut Look, people: &BTreeMap<Pid, Person>) {
    for person in people.values() {
        let id = person.row.id;
        let readable = look.snapshot.own.scope == Scope::Host || person.uid == look.snapshot.own.uid;
        let mut put = |question, answer: Known<Answer>| {
            look.answers.entry(question).or_insert(answer);
        };
        put(Question::Facts(id), Ok(Answer::Facts(Box::new(facts(person, readable)))));
        for fd in 0..3 {
            let answer =
                if readable { Ok(Answer::Channel(channel(person))) } else { refused("its descriptors") };
            put(Question::Channel { of: id, fd }, answer);
        }
        let terminals = if readable { Ok(Answer::Terminals(Vec::new())) } else { refused("its terminals") };
        put(Question::Terminals(id), terminals);
        let sockets = if readable { Ok(Answer::Sockets(Sockets::default())) } else { refused("its sockets") };
        put(Question::Sockets(id), sockets);
    }
}

fn refused<T>(what: &str) -> Known<T> {
    Err(Unknown::new(Reason::Denied, what))
}

fn facts(person: &Person, readable: bool) -> Facts {
    let argv: Known<Vec<BString>> = match &person.argv {
        Some(argv) => argv.as_ref().map(|argv| argv.to_vec()).map_err(Clone::clone),
        None => Ok(Vec::new()),
    };
    let name = argv.as_ref().map_or(person.row.name(), |argv| program(argv)).to_vec();
    let first = argv.as_ref().ok().and_then(|argv| argv.first()).filter(|first| first.starts_with(b"/"));
    let path = first.cloned().unwrap_or_else(|| [b"/usr/bin/", &name[..]].concat().into());
    let gone = person.row.is_gone();
    // A dead process has no executable and no directory any more (proc_pid_exe(5)).
    let linked = |what: &str| {
        if gone {
            Some(Unknown::new(Reason::Vanished, what))
        } else if !readable {
            Some(Unknown::new(Reason::Denied, what))
        } else {
            None
        }
    };
    Facts {
        id: person.row.id,
        uid: Ok(person.uid),
        argv: if gone { Ok(Vec::new()) } else { argv },
        exe: linked("its executable").map_or_else(|| Ok(Executable { file: file(&path), path }), Err),
        cwd: linked("its working directory").map_or_else(|| Ok(directory(b"/")), Err),
        env: linked("its environment").map_or_else(|| Ok(BTreeMap::new()), Err),
        cgroup: Ok("/user.slice/user-1000.slice/session-1.scope".into()),
        namespaces: linked("its namespaces").map_or(Ok(NAMESPACES), Err),
        tracer: Ok(None),
        hangup: Ok(Hangup::Default),
        freezer: Ok(Freezer::Thawed),
        unique: None,
    }
}

/// Returns a directory that stands where its path says.
pub(super) fn directory(path: &[u8]) -> Directory {
    Directory { path: path.into(), file: file(path), fate: Ok(Fate::Linked), on: FileSystem::Local }
}

fn channel(person: &Person) -> Channel {
    let kind =
        if person.row.tty != 0 { ChannelKind::Terminal(TerminalFate::Present) } else { ChannelKind::Null };
    Channel { kind, far: endless(), unread: Ok(0) }
}

/// Returns the far end of what has none.
pub(super) fn endless<T>() -> Known<T> {
    Err(Unknown::new(Reason::Unsupported, "the far end of what has none"))
}

/// Answers what follows from the table of a world written by hand: who bears a number, that descriptors which were not
/// spoken of are closed, and that a socket's file is where it was bound. Nothing else has a harmless default.
pub fn answer(look: &Look, question: &Question) -> Option<Known<Answer>> {
    match question {
        Question::Owner { pid, .. } => Some(Ok(Answer::Owner(match look.snapshot.table.at(*pid) {
            None => Owner::Absent,
            Some(row) if row.is_gone() => Owner::Zombie,
            Some(row) => Owner::Alive(row.id),
        }))),
        Question::Channel { of, fd } if *fd > 2 && look.snapshot.table.get(*of).is_some() => {
            Some(Ok(Answer::Channel(Channel { kind: ChannelKind::Closed, far: endless(), unread: Ok(0) })))
        }
        // Of a socket of which no more is said, whatever path is asked leads to it: that keeps.
        Question::Bound { of, .. } if look.snapshot.table.get(*of).is_some() => {
            Some(Ok(Answer::Bound(Binding::Here)))
        }
        Question::Channel { .. }
        | Question::Facts(_)
        | Question::Path { .. }
        | Question::Holders { .. }
        | Question::Sockets(_)
        | Question::Activity(_)
        | Question::Terminals(_)
        | Question::Bound { .. }
        | Question::Named { .. }
        | Question::Ping { .. }
        | Question::Registered { .. }
        | Question::Engine(_) => None,
    }
}
