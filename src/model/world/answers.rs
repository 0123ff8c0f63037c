//! Reads what a world says beyond its table: facts, paths, channels, sockets, owners, marks and gaps.

use std::collections::BTreeMap;

use bstr::ByteSlice as _;

use crate::model::facts::{Facts, FileSystem};
use crate::model::id::{BootId, Pid, ProcessId, Uid};
use crate::model::keep::{KeepMark, Kept};
use crate::model::known::Known;
use crate::model::look::{Arguments, Gap, Look, McpServer};
use crate::model::question::{
    Activity, Answer, Census, Channel, Connection, Family, FarEnd, Holders, Listener, Owner, Parent,
    PathAnswer, Peer, Question, Sockets,
};

use super::rows::{self, Person, argv, named};
use super::words::Word;
use super::{Manner, defaults, leases, served, terms};

/// What a statement is read against.
struct Reader<'a> {
    look: &'a mut Look,
    people: &'a BTreeMap<Pid, Person>,
    manner: Manner,
}

/// Reads one statement into the look.
pub(super) fn read(
    look: &mut Look,
    people: &BTreeMap<Pid, Person>,
    words: &[Word],
    manner: Manner,
) -> Result<(), String> {
    let mut reader = Reader { look, people, manner };
    let [first, rest @ ..] = words else { return Ok(()) };
    let word = first.keyword().unwrap_or_default();
    match (word, rest) {
        ("reapers", pids) => reader.reapers(pids),
        ("configured", [name, file, command, args @ ..]) => {
            reader.look.snapshot.configured.push(McpServer {
                name: name.string()?,
                file: file.string()?,
                command: command.text.clone(),
                args: args.iter().map(|arg| arg.text.clone()).collect(),
            });
            Ok(())
        }
        ("gap", [source, why, cure @ ..]) => reader.gap(source, why, cure.first()),
        ("mark", [what, rest @ ..]) => reader.mark(what, rest),
        ("arguments", [of, uid, words @ ..]) => {
            let entry = Arguments { id: reader.id(of)?, uid: Uid(uid.number()?), argv: argv(words)? };
            reader.look.snapshot.arguments.push(entry);
            Ok(())
        }
        ("facts", [of, rest @ ..]) => reader.facts(of, rest),
        ("argv", [of, rest @ ..]) => {
            let argv = argv(rest)?.map(|argv| argv.to_vec());
            reader.facts_of(of)?.argv = argv;
            Ok(())
        }
        ("env", [of, rest @ ..]) => reader.env(of, rest),
        ("path", [of, path, rest @ ..]) => reader.path(of, path, rest),
        ("channel", [of, fd, rest @ ..]) => {
            let fd = fd.number()?;
            reader.channel(of, fd, rest)
        }
        ("stdin", [of, rest @ ..]) => reader.channel(of, 0, rest),
        ("stdout", [of, rest @ ..]) => reader.channel(of, 1, rest),
        ("stderr", [of, rest @ ..]) => reader.channel(of, 2, rest),
        ("holders", [of, fd, rest @ ..]) => reader.holders(of, fd, rest),
        ("sockets", [of, what]) => {
            let id = reader.id(of)?;
            let answer = match what.keyword() {
                Some("none") => Ok(Answer::Sockets(Sockets::default())),
                _ => Err(what.unknown("its sockets")?.ok_or("sockets are 'none' or '?reason'")?),
            };
            reader.put(Question::Sockets(id), answer)
        }
        ("listens", [of, family, name, rest @ ..]) => reader.listens(of, family, name, rest),
        ("client", [of, family, name, rest @ ..]) => reader.client(of, family, name, rest),
        ("owner", [of, pid, who]) => reader.owner(of, pid, who),
        ("terminals", [of, rest @ ..]) => reader.terminals(of, rest),
        ("activity", [of, rest @ ..]) => reader.activity(of, rest),
        ("bound" | "named" | "ping", _) => served::read(reader.look, people, words),
        _ => leases::read(reader.look, people, words, manner),
    }
}

impl Reader<'_> {
    fn id(&self, word: &Word) -> Result<ProcessId, String> {
        named(self.people, word)
    }

    #[expect(clippy::unnecessary_wraps, reason = "it ends every branch of the reader")]
    fn put(&mut self, question: Question, answer: Known<Answer>) -> Result<(), String> {
        self.look.answers.insert(question, answer);
        Ok(())
    }

    fn reapers(&mut self, pids: &[Word]) -> Result<(), String> {
        self.look.reapers.clear();
        for word in pids {
            let pid =
                Pid::new(word.number()?).ok_or_else(|| format!("'{}' is no process number", word.text))?;
            self.look.reapers.insert(pid);
        }
        Ok(())
    }

    fn gap(&mut self, source: &Word, why: &Word, cure: Option<&Word>) -> Result<(), String> {
        let why = why.unknown("it")?.ok_or("a gap says why: ?reason:\"what\"")?;
        let cure = cure.filter(|cure| cure.keyword() != Some("-")).map(Word::string).transpose()?;
        self.look.snapshot.gaps.push(Gap { source: source.string()?, why, cure });
        Ok(())
    }

    fn mark(&mut self, what: &Word, rest: &[Word]) -> Result<(), String> {
        let (subject, rest) = rest.split_first().ok_or("a mark names what is kept")?;
        let mut mark = match what.keyword() {
            Some("process") => {
                let boot = self.look.snapshot.boot.clone();
                let what = Kept::Process { boot, id: self.id(subject)?, name: String::new() };
                KeepMark { what, until: None, set: 0, note: None }
            }
            Some("directory") => {
                let what = Kept::Directory { path: subject.text.clone() };
                KeepMark { what, until: None, set: 0, note: None }
            }
            _ => return Err("a mark is on a 'process' or a 'directory'".to_owned()),
        };
        for (key, value) in terms::pairs(rest)? {
            match (key, &mut mark.what) {
                ("boot", Kept::Process { boot, .. }) => *boot = BootId(value.string()?),
                ("name", Kept::Process { name, .. }) => *name = value.string()?,
                ("set", _) => mark.set = value.number()?,
                ("until", _) => mark.until = Some(value.number()?),
                ("note", _) => mark.note = Some(value.string()?),
                (other, _) => return Err(format!("'{other}' is nothing such a mark can say")),
            }
        }
        self.look.marks.push(mark);
        Ok(())
    }

    fn facts(&mut self, of: &Word, rest: &[Word]) -> Result<(), String> {
        if let [why] = rest
            && why.is_marked(b'?')
        {
            let id = self.id(of)?;
            let why = why.unknown("its facts")?.ok_or("no reason")?;
            return self.put(Question::Facts(id), Err(why));
        }
        let facts = self.facts_of(of)?;
        for (key, value) in terms::pairs(rest)? {
            terms::fact(facts, key, &value)?;
        }
        Ok(())
    }

    /// Returns the facts of a process, to be changed; a strict world begins them from nothing.
    fn facts_of(&mut self, of: &Word) -> Result<&mut Facts, String> {
        let id = self.id(of)?;
        let question = Question::Facts(id);
        if self.manner == Manner::Strict {
            self.look
                .answers
                .entry(question.clone())
                .or_insert_with(|| Ok(Answer::Facts(Box::new(terms::blank(id)))));
        }
        match self.look.answers.get_mut(&question) {
            Some(Ok(Answer::Facts(facts))) => Ok(facts),
            _ => Err(format!("there are no facts of {} to change", of.text)),
        }
    }

    fn env(&mut self, of: &Word, rest: &[Word]) -> Result<(), String> {
        let facts = self.facts_of(of)?;
        facts.env = match rest {
            [word] if word.keyword() == Some("none") => Ok(BTreeMap::new()),
            [word] if word.is_marked(b'?') => Err(word.unknown("its environment")?.ok_or("no reason")?),
            words => {
                let mut env = BTreeMap::new();
                for word in words {
                    let at = word.text.find_byte(b'=').ok_or("a variable has the form NAME=VALUE")?;
                    env.insert(word.text[..at].into(), word.text[at + 1..].into());
                }
                Ok(env)
            }
        };
        Ok(())
    }

    fn path(&mut self, of: &Word, path: &Word, rest: &[Word]) -> Result<(), String> {
        let question = Question::Path { of: self.id(of)?, path: path.text.clone() };
        let (word, rest) =
            rest.split_first().ok_or("a path is 'present', 'absent', 'parent-absent' or '?reason'")?;
        if let Some(why) = word.unknown(&format!("what is at {}", path.text))? {
            return self.put(question, Err(why));
        }
        let above = defaults::above(&path.text);
        let mut parent =
            Parent { file: defaults::file(&above), path: above, mount: "/".into(), on: FileSystem::Local };
        let mut own = defaults::file(&path.text);
        let mut given = None;
        for (key, value) in terms::pairs(rest)? {
            match key {
                "file" => own = terms::file(&value)?,
                "parent" => {
                    parent.file = given.unwrap_or_else(|| defaults::file(&value.text));
                    parent.path = value.text;
                }
                "parent-file" => {
                    parent.file = terms::file(&value)?;
                    given = Some(parent.file);
                }
                "mount" => parent.mount = value.text,
                "on" => parent.on = terms::file_system(&value)?,
                other => return Err(format!("'{other}' is nothing a path can say")),
            }
        }
        let parent = Box::new(parent);
        let answer = match word.keyword() {
            Some("present") => PathAnswer::Present { file: own, parent },
            Some("absent") => PathAnswer::Absent { parent },
            Some("parent-absent") => PathAnswer::ParentAbsent { nearest: parent },
            _ => return Err(format!("a path cannot be '{}'", word.text)),
        };
        self.put(question, Ok(Answer::Path(answer)))
    }

    fn channel(&mut self, of: &Word, fd: u32, rest: &[Word]) -> Result<(), String> {
        let id = self.id(of)?;
        let question = Question::Channel { of: id, fd };
        let (word, rest) =
            rest.split_first().ok_or("a channel is a pipe, a stream, null, ... or '?reason'")?;
        if let Some(why) = word.unknown("a descriptor")? {
            return self.put(question, Err(why));
        }
        // Numbers that no two channels of a world share, unless it says so.
        let inode = u64::try_from(id.pid.number()).unwrap_or(0) * 100 + u64::from(fd);
        let mut channel =
            Channel { kind: terms::kind(word, inode)?, far: defaults::endless(), unread: Ok(0) };
        for word in rest {
            match (word.keyword(), word.split()) {
                (Some("gone"), _) => channel.far = Ok(FarEnd::Gone),
                (Some("held"), _) => channel.far = Ok(FarEnd::Held),
                (_, Some(("unread", value))) => {
                    channel.unread = match value.unknown("bytes that wait")? {
                        Some(why) => Err(why),
                        None => Ok(value.number()?),
                    }
                }
                (_, Some(("by", value))) => {
                    let holders = value.string()?;
                    let seen = holders.split(',').map(|one| self.id_of(one)).collect::<Result<_, _>>()?;
                    let holders = Holders { seen, census: Census::Whole };
                    self.put(Question::Holders { of: id, fd }, Ok(Answer::Holders(holders)))?;
                }
                _ => match word.unknown("whether anybody is at the far end")? {
                    Some(why) => channel.far = Err(why),
                    None => return Err(format!("'{}' is nothing a channel can say", word.text)),
                },
            }
        }
        self.put(question, Ok(Answer::Channel(channel)))
    }

    fn id_of(&self, number: &str) -> Result<ProcessId, String> {
        let pid = number
            .parse()
            .ok()
            .and_then(Pid::new)
            .ok_or_else(|| format!("'{number}' is no process number"))?;
        self.people
            .get(&pid)
            .map(|person| person.row.id)
            .ok_or_else(|| format!("no process {pid} at this look"))
    }

    fn holders(&mut self, of: &Word, fd: &Word, rest: &[Word]) -> Result<(), String> {
        let question = Question::Holders { of: self.id(of)?, fd: fd.number()? };
        let holders = served::holders(self.people, rest, "who holds the far end")?;
        self.put(question, holders.map(Answer::Holders))
    }

    fn sockets_of(&mut self, of: &Word) -> Result<&mut Sockets, String> {
        match self.look.answers.get_mut(&Question::Sockets(named(self.people, of)?)) {
            Some(Ok(Answer::Sockets(sockets))) => Ok(sockets),
            _ => Err(format!(
                "there are no sockets of {} to add to; 'sockets {} none' first",
                of.text, of.text
            )),
        }
    }

    fn listens(&mut self, of: &Word, family: &Word, name: &Word, rest: &[Word]) -> Result<(), String> {
        let family = terms::family(family)?;
        let path = family == Family::Unix && name.text.starts_with(b"/");
        let mut listener = Listener {
            family,
            file: path.then(|| defaults::file(&name.text)),
            inode: defaults::file(&[&name.text[..], b" listener"].concat()).ino,
            name: name.text.clone(),
            pending: 0,
        };
        for (key, value) in terms::pairs(rest)? {
            match key {
                "inode" => listener.inode = value.number()?,
                "file" => {
                    listener.file =
                        if value.keyword() == Some("none") { None } else { Some(terms::file(&value)?) };
                }
                "pending" => listener.pending = value.number()?,
                other => return Err(format!("'{other}' is nothing a listener can say")),
            }
        }
        self.sockets_of(of)?.listeners.push(listener);
        Ok(())
    }

    fn client(&mut self, of: &Word, family: &Word, name: &Word, rest: &[Word]) -> Result<(), String> {
        let family = terms::family(family)?;
        let sockets = self.sockets_of(of)?;
        let mut connection = Connection {
            family,
            inode: defaults::file(&[&name.text[..], b" client"].concat()).ino
                + sockets.connections.len() as u64,
            name: name.text.clone(),
            peer: Peer::Unknown,
        };
        for (key, value) in terms::pairs(rest)? {
            match key {
                "inode" => connection.inode = value.number()?,
                "peer" => connection.peer = terms::peer(&value)?,
                other => return Err(format!("'{other}' is nothing a connection can say")),
            }
        }
        sockets.connections.push(connection);
        Ok(())
    }

    fn owner(&mut self, of: &Word, pid: &Word, who: &Word) -> Result<(), String> {
        let pid = Pid::new(pid.number()?).ok_or_else(|| format!("'{}' is no process number", pid.text))?;
        let question = Question::Owner { of: self.id(of)?, pid };
        let answer = match (who.keyword(), who.split()) {
            (Some("absent"), _) => Ok(Answer::Owner(Owner::Absent)),
            (Some("zombie"), _) => Ok(Answer::Owner(Owner::Zombie)),
            (Some("alive"), _) => Ok(Answer::Owner(Owner::Alive(self.id_of(&pid.to_string())?))),
            (_, Some(("alive", id))) => Ok(Answer::Owner(Owner::Alive(self.id(&id)?))),
            _ => {
                Err(who.unknown("whose number it is")?.ok_or("an owner is 'absent', 'zombie' or 'alive'")?)
            }
        };
        self.put(question, answer)
    }

    fn terminals(&mut self, of: &Word, rest: &[Word]) -> Result<(), String> {
        let answer = match rest {
            [word] if word.keyword() == Some("none") => Ok(Answer::Terminals(Vec::new())),
            [word] if word.is_marked(b'?') => Err(word.unknown("its terminals")?.ok_or("no reason")?),
            words => Ok(Answer::Terminals(words.iter().map(rows::tty).collect::<Result<_, _>>()?)),
        };
        let id = self.id(of)?;
        self.put(Question::Terminals(id), answer)
    }

    fn activity(&mut self, of: &Word, rest: &[Word]) -> Result<(), String> {
        let question = Question::Activity(self.id(of)?);
        if let [word] = rest
            && let Some(why) = word.unknown("bytes moved")?
        {
            return self.put(question, Err(why));
        }
        let mut activity = Activity { read: 0, written: 0 };
        for (key, value) in terms::pairs(rest)? {
            match key {
                "read" => activity.read = value.number()?,
                "written" => activity.written = value.number()?,
                other => return Err(format!("'{other}' is no activity")),
            }
        }
        self.put(question, Ok(Answer::Activity(activity)))
    }
}
