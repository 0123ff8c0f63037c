//! Reads worlds: the frame of looks and who looks; rows and answers have files of their own.

use std::collections::{BTreeMap, BTreeSet};

use crate::model::id::{BootId, Pid, ProcessId, Uid};
use crate::model::look::{Arguments, Look, Own, Scope, Snapshot};
use crate::model::moment::{Clocks, Moment};
use crate::model::ownership::reapers;
use crate::model::question::{Answer, Question};
use crate::model::table::Table;

use super::rows::{self, Column, Person, Reach};
use super::words::{Word, read_span, words};
use super::{Manner, WorldError, answers, defaults, terms};

/// A world as read.
#[derive(Debug, Clone)]
pub struct World {
    /// Whether it leaves things out; see [`super::answer`].
    pub manner: Manner,
    /// Its looks, oldest first.
    pub looks: Vec<Look>,
}

/// Reads the looks of a world.
pub fn parse(text: &str) -> Result<Vec<Look>, WorldError> {
    Ok(parse_world(text)?.looks)
}

/// Reads a world, with the manner it is written in.
pub fn parse_world(text: &str) -> Result<World, WorldError> {
    let mut manner = None;
    let mut done: Vec<Done> = Vec::new();
    let mut draft: Option<Draft> = None;
    for (at, line) in text.lines().enumerate() {
        let fail = |message| WorldError { line: at + 1, message };
        let words = words(line).map_err(fail)?;
        let Some(first) = words.first() else { continue };
        match (manner, first.keyword()) {
            (None, Some("reapd")) => manner = Some(header(&words).map_err(fail)?),
            (None, _) => return Err(fail("a world begins with 'reapd world 1'".to_owned())),
            (Some(manner), Some("look")) => {
                if let Some(draft) = draft.take() {
                    done.push(draft.finish()?);
                }
                draft = Some(Draft::begin(at + 1, &words[1..], done.last(), manner).map_err(fail)?);
            }
            (Some(_), _) => match &mut draft {
                Some(draft) => draft.statements.push((at + 1, words)),
                None => return Err(fail("nothing can stand before the first 'look at ...'".to_owned())),
            },
        }
    }
    let nothing =
        |message: &str| WorldError { line: text.lines().count().max(1), message: message.to_owned() };
    let manner = manner.ok_or_else(|| nothing("a world begins with 'reapd world 1'"))?;
    let draft = draft.ok_or_else(|| nothing("a world holds at least one 'look at ...'"))?;
    done.push(draft.finish()?);
    Ok(World { manner, looks: done.into_iter().map(|done| done.look).collect() })
}

fn header(words: &[Word]) -> Result<Manner, String> {
    let rest: Vec<Option<&str>> = words[1..].iter().map(Word::keyword).collect();
    match rest.as_slice() {
        [Some("world"), Some("1")] => Ok(Manner::Boring),
        [Some("world"), Some("1"), Some("strict")] => Ok(Manner::Strict),
        _ => Err("only 'reapd world 1' and 'reapd world 1 strict' are known".to_owned()),
    }
}

/// A finished look, with what the next one may take over.
struct Done {
    look: Look,
    people: BTreeMap<Pid, Person>,
}

/// A line that is no header: its number and its words.
type Statement = (usize, Vec<Word>);

/// A look while its lines are gathered: rows are needed before any answer can be read.
struct Draft {
    line: usize,
    manner: Manner,
    boot: BootId,
    clocks: Clocks,
    own: Own,
    /// What it begins with: nothing, or everything an earlier look had.
    before: Option<Look>,
    people: BTreeMap<Pid, Person>,
    statements: Vec<Statement>,
}

/// Wall clock of the boot in worlds that give none: 2026-01-01, in milliseconds since the epoch.
const WALL_AT_BOOT: u64 = 1_767_225_600_000;

impl Draft {
    fn begin(line: usize, words: &[Word], last: Option<&Done>, manner: Manner) -> Result<Draft, String> {
        let usage = "a look begins with 'look at 10d' or 'look after 10s', and may go on 'as before'";
        let [how, when, rest @ ..] = words else { return Err(usage.to_owned()) };
        let when = read_span(&when.string()?).ok_or(usage)?;
        let (boot, own, clocks) = match (how.keyword(), last.map(|done| &done.look.snapshot)) {
            (Some("at"), last) => {
                let clocks =
                    Clocks { boot: Moment(when), monotonic: when, wall: WALL_AT_BOOT + when / 1_000_000 };
                let boot = last.map_or_else(|| BootId("boot-1".to_owned()), |last| last.boot.clone());
                (boot, last.map_or_else(defaults::own, |last| last.own.clone()), clocks)
            }
            (Some("after"), Some(last)) => {
                let began = last.began;
                let clocks = Clocks {
                    boot: Moment(began.boot.0.saturating_add(when)),
                    monotonic: began.monotonic.saturating_add(when),
                    wall: began.wall.saturating_add(when / 1_000_000),
                };
                (last.boot.clone(), last.own.clone(), clocks)
            }
            (Some("after"), None) => return Err("the first look has none to come after".to_owned()),
            _ => return Err(usage.to_owned()),
        };
        let (before, people, rest) = match (rest, last) {
            ([a, b, rest @ ..], Some(last)) if a.keyword() == Some("as") && b.keyword() == Some("before") => {
                (Some(last.look.clone()), last.people.clone(), rest)
            }
            _ => (None, BTreeMap::new(), rest),
        };
        let mut draft = Draft { line, manner, boot, clocks, own, before, people, statements: Vec::new() };
        for word in rest {
            let (key, value) =
                word.split().ok_or_else(|| format!("'{}' is not of the form key=value", word.text))?;
            draft.setting(key, &value, last)?;
        }
        Ok(draft)
    }

    fn setting(&mut self, key: &str, value: &Word, last: Option<&Done>) -> Result<(), String> {
        match key {
            "boot" => self.boot = BootId(value.string()?),
            "monotonic" => self.clocks.monotonic = value.number()?,
            // A suspend, or a machine that was paused: the monotonic clock ran only this much.
            "awake" => {
                let awake = read_span(&value.string()?).ok_or("awake= takes a span such as 10s")?;
                let before = last.map_or(0, |done| done.look.snapshot.began.monotonic);
                self.clocks.monotonic = before.saturating_add(awake);
            }
            "wall" => self.clocks.wall = value.number()?,
            "pid" => {
                let number = value.number()?;
                self.own.pid = Pid::new(number).ok_or_else(|| format!("{number} is no process number"))?;
                self.own.sid = number;
            }
            "sid" => self.own.sid = value.number()?,
            "uid" => self.own.uid = Uid(value.number()?),
            "home" => self.own.home = (value.keyword() != Some("-")).then(|| value.text.clone()),
            "scope" => {
                self.own.scope = match value.keyword() {
                    Some("user") => Scope::User,
                    Some("host") => Scope::Host,
                    _ => return Err("scope is 'user' or 'host'".to_owned()),
                }
            }
            "namespaces" => self.own.namespaces = terms::namespaces(value)?,
            _ => return Err(format!("'{key}' is nothing a look can say")),
        }
        Ok(())
    }

    fn finish(mut self) -> Result<Done, WorldError> {
        let statements = std::mem::take(&mut self.statements);
        let (told, rest) = self.table(statements)?;
        rows::fill(&mut self.people, &self.own, self.clocks.boot, self.manner);
        let table = Table::new(self.people.values().map(|person| person.row).collect());
        let arguments = self.people.values().filter_map(|person| match (person.reach, &person.argv) {
            (Reach::InScope, Some(argv)) => {
                Some(Arguments { id: person.row.id, uid: person.uid, argv: argv.clone() })
            }
            (Reach::InScope | Reach::Outside, _) => None,
        });
        let snapshot = Snapshot {
            boot: self.boot,
            began: self.clocks,
            table,
            arguments: arguments.collect(),
            own: self.own,
            configured: Vec::new(),
            leases: crate::model::lease::Leases::default(),
            engines: Vec::new(),
            gaps: Vec::new(),
        };
        let mut look = Look::new(snapshot);
        if let Some(before) = self.before {
            take_over(&mut look, before, &told, &self.people);
        }
        if self.manner == Manner::Boring {
            defaults::fill(&mut look, &self.people);
        }
        for (line, words) in rest {
            answers::read(&mut look, &self.people, &words, self.manner)
                .map_err(|message| WorldError { line, message })?;
        }
        look.snapshot.arguments.sort_by_key(|entry| entry.id);
        if look.snapshot.table.rows().is_empty() && self.manner == Manner::Boring {
            return Err(WorldError { line: self.line, message: "a look without any process".to_owned() });
        }
        Ok(Done { look, people: self.people })
    }

    /// Reads the rows and who is gone; returns the numbers that were told and all other lines.
    fn table(&mut self, statements: Vec<Statement>) -> Result<(BTreeSet<Pid>, Vec<Statement>), WorldError> {
        let mut columns: Option<Vec<Column>> = None;
        let mut told = BTreeSet::new();
        let mut rest = Vec::new();
        for (line, words) in statements {
            let fail = |message| WorldError { line, message };
            let first = words[0].keyword().unwrap_or_default();
            if first == "pid" {
                columns = Some(rows::header(&words).map_err(fail)?);
            } else if first == "gone" {
                for word in &words[1..] {
                    let id = rows::named(&self.people, word).map_err(fail)?;
                    self.people.remove(&id.pid);
                }
            } else if first.as_bytes().first().is_some_and(u8::is_ascii_digit) {
                let columns =
                    columns.as_deref().ok_or_else(|| fail("a row needs a header above it".to_owned()))?;
                let before = words[0].number().ok().and_then(Pid::new).and_then(|pid| self.people.get(&pid));
                let person =
                    rows::read(columns, &words, self.clocks.boot, before, self.manner).map_err(fail)?;
                if !told.insert(person.row.id.pid) {
                    return Err(fail(format!("process {} stands twice in this look", person.row.id.pid)));
                }
                self.people.insert(person.row.id.pid, person);
            } else {
                rest.push((line, words));
            }
        }
        Ok((told, rest))
    }
}

/// Takes over what an earlier look knew, but for processes that are not the same any more.
fn take_over(look: &mut Look, before: Look, told: &BTreeSet<Pid>, people: &BTreeMap<Pid, Person>) {
    look.marks = before.marks;
    if before.reapers != reapers(&before.snapshot.table) {
        look.reapers = before.reapers;
    }
    look.snapshot.configured = before.snapshot.configured;
    look.snapshot.gaps = before.snapshot.gaps;
    look.snapshot.leases = before.snapshot.leases;
    let is_still = |id: ProcessId| people.get(&id.pid).is_some_and(|person| person.row.id == id);
    look.snapshot.leases.cookies.retain(|id, _| is_still(*id));
    look.snapshot.leases.grouped.retain(|id, _| is_still(*id));
    for (question, mut answer) in before.answers {
        let Some(of) = subject(&question) else { continue };
        let Some(person) = people.get(&of.pid).filter(|person| person.row.id == of) else { continue };
        if let (Ok(Answer::Facts(facts)), true) = (&mut answer, told.contains(&of.pid)) {
            facts.uid = facts.uid.clone().map(|_| person.uid);
            if let Some(argv) = &person.argv {
                facts.argv = argv.as_ref().map(|argv| argv.to_vec()).map_err(Clone::clone);
            }
        }
        look.answers.insert(question, answer);
    }
}

/// Returns which process a question is about.
pub(super) fn subject(question: &Question) -> Option<ProcessId> {
    Some(match question {
        Question::Engine(_) => return None,
        Question::Facts(id) | Question::Sockets(id) | Question::Activity(id) | Question::Terminals(id) => *id,
        Question::Path { of, .. }
        | Question::Channel { of, .. }
        | Question::Holders { of, .. }
        | Question::Owner { of, .. }
        | Question::Bound { of, .. }
        | Question::Named { of, .. }
        | Question::Ping { of, .. }
        | Question::Registered { of, .. } => *of,
    })
}
