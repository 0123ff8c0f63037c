//! What a world says of servers: where a socket's file is, who names it, and whether it answers.

use std::collections::BTreeMap;
use std::time::Duration;

use bstr::BString;

use crate::model::facts::FileSystem;
use crate::model::id::{Pid, ProcessId};
use crate::model::known::Known;
use crate::model::look::Look;
use crate::model::question::{
    Answer, Binding, Call, Carriers, Census, FileKind, Holders, Parent, Pinged, Progress, Question, Response,
};

use super::anonymise::Anonymiser;
use super::print::{file, name, parent_words};
use super::rows::{Person, named};
use super::words::{Word, known, quote};
use super::{defaults, terms};

const KINDS: [(&str, FileKind); 5] = [
    ("socket", FileKind::Socket),
    ("file", FileKind::File),
    ("directory", FileKind::Directory),
    ("link", FileKind::Link),
    ("other", FileKind::Other),
];

/// Reads one statement into the look.
pub(super) fn read(look: &mut Look, people: &BTreeMap<Pid, Person>, words: &[Word]) -> Result<(), String> {
    let id = |word: &Word| named(people, word);
    let [first, rest @ ..] = words else { return Ok(()) };
    let (question, answer) = match (first.keyword().unwrap_or_default(), rest) {
        ("bound", [of, path, own, rest @ ..]) => {
            let question = Question::Bound { of: id(of)?, path: path.text.clone(), file: terms::file(own)? };
            (question, bound(path, rest)?.map(Answer::Bound))
        }
        ("named", [of, text, rest @ ..]) => {
            let question = Question::Named { of: id(of)?, text: text.text.clone() };
            (question, carriers(people, rest)?.map(Answer::Named))
        }
        ("ping", [of, policy, socket, tree, patience, rest @ ..]) => {
            let members = tree.string()?;
            let members = members.split(',').map(|one| self::id(people, one));
            let (call, rest) = call(rest)?;
            let question = Question::Ping {
                of: id(of)?,
                policy: policy.string()?,
                call,
                socket: socket.text.clone(),
                tree: members.collect::<Result<_, _>>()?,
                patience: patience.number()?,
            };
            (question, pinged(rest)?.map(Answer::Ping))
        }
        _ => return Err(format!("'{}' is nothing that a world says", first.text)),
    };
    look.answers.insert(question, answer);
    Ok(())
}

fn id(people: &BTreeMap<Pid, Person>, number: &str) -> Result<ProcessId, String> {
    let (number, start) = number.split_once('@').map_or((number, None), |(number, at)| (number, Some(at)));
    let pid =
        number.parse().ok().and_then(Pid::new).ok_or_else(|| format!("'{number}' is no process number"))?;
    match start {
        Some(start) => {
            let start = start.parse().map_err(|_| format!("'{start}' is no start"))?;
            Ok(ProcessId { pid, start: crate::model::id::Start(start) })
        }
        None => people
            .get(&pid)
            .map(|person| person.row.id)
            .ok_or_else(|| format!("no process {pid} at this look")),
    }
}

fn bound(path: &Word, rest: &[Word]) -> Result<Known<Binding>, String> {
    let (word, rest) = rest
        .split_first()
        .ok_or("a file is 'here', 'absent', 'directory-absent', replaced=WHAT, renamed=NAME or '?reason'")?;
    if let Some(why) = word.unknown(&format!("where the file of {} is", path.text))? {
        return Ok(Err(why));
    }
    let above = defaults::above(&path.text);
    let mut parent =
        Parent { file: defaults::file(&above), path: above, mount: "/".into(), on: FileSystem::Local };
    for (key, value) in terms::pairs(rest)? {
        match key {
            "parent" => {
                parent.file = defaults::file(&value.text);
                parent.path = value.text;
            }
            "parent-file" => parent.file = terms::file(&value)?,
            "mount" => parent.mount = value.text,
            "on" => parent.on = terms::file_system(&value)?,
            other => return Err(format!("'{other}' is nothing a bound file can say")),
        }
    }
    let parent = Box::new(parent);
    Ok(Ok(match (word.keyword(), word.split()) {
        (Some("here"), _) => Binding::Here,
        (Some("absent"), _) => Binding::Absent { parent },
        (Some("directory-absent"), _) => Binding::DirectoryAbsent { nearest: parent },
        (_, Some(("replaced", by))) => {
            let by = by.string()?;
            let kind = KINDS.iter().find(|(word, _)| *word == by);
            Binding::Replaced { by: kind.ok_or_else(|| format!("'{by}' is no kind of file"))?.1, parent }
        }
        (_, Some(("renamed", name))) => Binding::Renamed(name.text),
        _ => return Err(format!("a bound file cannot be '{}'", word.text)),
    }))
}

/// Reads who was seen to hold or to name something.
pub(super) fn holders(
    people: &BTreeMap<Pid, Person>,
    rest: &[Word],
    what: &str,
) -> Result<Known<Holders>, String> {
    let mut holders = Holders { seen: Vec::new(), census: Census::Whole };
    for word in rest {
        if let Some(why) = word.unknown(what)? {
            return Ok(Err(why));
        }
        match word.split() {
            Some(("census", value)) => {
                let text = value.string()?;
                holders.census = match text.strip_prefix("partial/") {
                    Some(count) => Census::Partial(count.parse().map_err(|_| "partial/ takes a number")?),
                    None if text == "whole" => Census::Whole,
                    None => return Err("a census is 'whole' or 'partial/NUMBER'".to_owned()),
                };
            }
            _ => holders.seen.push(named(people, word)?),
        }
    }
    Ok(Ok(holders))
}

/// Reads what is said to a server, up to where the answer begins.
fn call(words: &[Word]) -> Result<(Call, &[Word]), String> {
    const KEYS: [&str; 4] = ["send", "expect", "path", "status"];
    let (kind, rest) =
        words.split_first().ok_or("a ping says lines, content-length, mcp, http or connect")?;
    let is_ours = |word: &Word| word.split().is_some_and(|(key, _)| KEYS.contains(&key));
    let end = rest.iter().position(|word| !is_ours(word)).unwrap_or(rest.len());
    let (own, rest) = rest.split_at(end);
    let mut said: BTreeMap<&str, Word> = terms::pairs(own)?.into_iter().collect();
    let mut text = |key| said.remove(key).map(|word| word.text);
    let needed = |value: Option<BString>, key: &str| value.ok_or_else(|| format!("a ping needs {key}="));
    let call = match kind.keyword() {
        Some("lines") => {
            Call::Lines { send: needed(text("send"), "send")?, expect: needed(text("expect"), "expect")? }
        }
        Some("content-length") => Call::ContentLength {
            send: needed(text("send"), "send")?,
            expect: needed(text("expect"), "expect")?,
        },
        Some("mcp") => Call::Mcp,
        Some("http") => {
            let (path, expect) = (needed(text("path"), "path")?, text("expect"));
            let status = said.remove("status").map(|word| word.number()).transpose()?;
            Call::Http { path, status, expect }
        }
        Some("connect") => Call::Greeting,
        _ => return Err(format!("'{}' is nothing that a ping speaks", kind.text)),
    };
    match said.keys().next() {
        Some(key) => Err(format!("'{key}' is nothing that a ping of this kind can say")),
        None => Ok((call, rest)),
    }
}

fn call_words(call: &Call) -> String {
    let talk = |kind: &str, send: &BString, expect: &BString| {
        format!("{kind} send={} expect={}", quote(send), quote(expect))
    };
    match call {
        Call::Lines { send, expect } => talk("lines", send, expect),
        Call::ContentLength { send, expect } => talk("content-length", send, expect),
        Call::Mcp => "mcp".to_owned(),
        Call::Http { path, status, expect } => {
            let status = status.map(|status| format!(" status={status}")).unwrap_or_default();
            let expect = expect.as_ref().map(|expect| format!(" expect={}", quote(expect)));
            format!("http path={}{status}{}", quote(path), expect.unwrap_or_default())
        }
        Call::Greeting => "connect".to_owned(),
    }
}

fn carriers(people: &BTreeMap<Pid, Person>, rest: &[Word]) -> Result<Known<Carriers>, String> {
    let mut carriers = Carriers { seen: Vec::new(), unread: Vec::new(), unseen: 0 };
    for word in rest {
        if let Some(why) = word.unknown("who names it")? {
            return Ok(Err(why));
        }
        match word.split() {
            Some(("unread", value)) => carriers.unread.push(named(people, &value)?),
            Some(("unseen", value)) => carriers.unseen = value.number()?,
            _ => carriers.seen.push(named(people, word)?),
        }
    }
    Ok(Ok(carriers))
}

/// Returns how the answer of who carries a text is written.
pub(super) fn carrier_words(look: &Look, carriers: &Carriers) -> String {
    let seen = carriers.seen.iter().map(|id| name(look, *id));
    let unread = carriers.unread.iter().map(|id| format!("unread={}", name(look, *id)));
    let words: Vec<String> = seen.chain(unread).chain([format!("unseen={}", carriers.unseen)]).collect();
    words.join(" ")
}

fn pinged(rest: &[Word]) -> Result<Known<Pinged>, String> {
    let (word, rest) =
        rest.split_first().ok_or("a ping is answered=MS, otherwise=TEXT, silent=MS or '?reason'")?;
    if let Some(why) = word.unknown("whether it answers")? {
        return Ok(Err(why));
    }
    let response = match word.split() {
        Some(("answered", value)) => Response::Answered(value.number()?),
        Some(("otherwise", value)) => Response::Otherwise(value.text),
        Some(("silent", value)) => Response::Silent(value.number()?),
        _ => return Err(format!("a ping cannot be '{}'", word.text)),
    };
    // Of a world written by hand nothing moves, unless it says so.
    let still = Ok(Progress { moved: 0, cpu: Duration::ZERO });
    let mut pinged = Pinged { response, before: still.clone(), after: still };
    for (key, value) in terms::pairs(rest)? {
        match key {
            "before" => pinged.before = progress(&value)?,
            "after" => pinged.after = progress(&value)?,
            other => return Err(format!("'{other}' is nothing a ping can say")),
        }
    }
    Ok(Ok(pinged))
}

fn progress(value: &Word) -> Result<Known<Progress>, String> {
    if let Some(why) = value.unknown("how far it got")? {
        return Ok(Err(why));
    }
    let text = value.string()?;
    let parts = text.split_once('/').and_then(|(moved, cpu)| Some((moved.parse().ok()?, cpu.parse().ok()?)));
    let (moved, cpu) = parts.ok_or_else(|| format!("'{text}' is not of the form BYTES/NANOSECONDS"))?;
    Ok(Ok(Progress { moved, cpu: Duration::from_nanos(cpu) }))
}

/// Returns how a question about servers is written; nothing for any other.
pub(super) fn asked(look: &Look, question: &Question) -> Option<String> {
    Some(match question {
        Question::Bound { of, path, file: own } => {
            format!("bound {} {} {}", name(look, *of), quote(path), file(*own))
        }
        Question::Named { of, text } => format!("named {} {}", name(look, *of), quote(text)),
        Question::Ping { of, policy, call, socket, tree, patience } => {
            let tree: Vec<String> = tree.iter().map(|id| name(look, *id)).collect();
            format!(
                "ping {} {} {} {} {patience} {}",
                name(look, *of),
                quote(policy.as_bytes()),
                quote(socket),
                tree.join(","),
                call_words(call)
            )
        }
        Question::Facts(_)
        | Question::Path { .. }
        | Question::Channel { .. }
        | Question::Holders { .. }
        | Question::Sockets(_)
        | Question::Owner { .. }
        | Question::Activity(_)
        | Question::Terminals(_)
        | Question::Registered { .. }
        | Question::Engine(_) => return None,
    })
}

/// Returns how the answer of where a file is is written.
pub(super) fn bound_words(bound: &Binding) -> String {
    match bound {
        Binding::Here => "here".to_owned(),
        Binding::Renamed(to) => format!("renamed={}", quote(to)),
        Binding::Absent { parent } => format!("absent {}", parent_words(parent)),
        Binding::DirectoryAbsent { nearest } => format!("directory-absent {}", parent_words(nearest)),
        Binding::Replaced { by, parent } => {
            let word = KINDS.iter().find(|(_, kind)| kind == by).map_or("other", |(word, _)| word);
            format!("replaced={word} {}", parent_words(parent))
        }
    }
}

/// Returns how the answer of a ping is written.
pub(super) fn ping_words(pinged: &Pinged) -> String {
    let response = match &pinged.response {
        Response::Answered(millis) => format!("answered={millis}"),
        Response::Otherwise(text) => format!("otherwise={}", quote(text)),
        Response::Silent(millis) => format!("silent={millis}"),
    };
    let progress = |value: &Known<Progress>| {
        known(value, |progress| format!("{}/{}", progress.moved, progress.cpu.as_nanos()))
    };
    format!("{response} before={} after={}", progress(&pinged.before), progress(&pinged.after))
}

impl Anonymiser {
    /// Cleans what is said to a server.
    pub(super) fn call(&mut self, call: &Call) -> Call {
        match call {
            Call::Lines { send, expect } => Call::Lines { send: self.text(send), expect: self.text(expect) },
            Call::ContentLength { send, expect } => {
                Call::ContentLength { send: self.text(send), expect: self.text(expect) }
            }
            Call::Http { path, status, expect } => Call::Http {
                path: self.text(path),
                status: *status,
                expect: expect.as_ref().map(|expect| self.text(expect)),
            },
            same @ (Call::Mcp | Call::Greeting) => same.clone(),
        }
    }
}
