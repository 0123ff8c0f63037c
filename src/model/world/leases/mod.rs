//! Reads what a world says of leases, of the cookies that processes carry, and of what registries answered.

mod anonymise;
mod draft;
mod print;

use std::collections::BTreeMap;
use std::time::Duration;

use crate::model::id::{BootId, Pid, ProcessId, Start, Uid};
use crate::model::known::Known;
use crate::model::lease::{COOKIE, FaultyLease, Holder, LeaseId};
use crate::model::look::Look;
use crate::model::question::{Answer, Question, Registered};

use super::Manner;
use super::rows::{Person, named, named_text};
use super::terms::pairs;
use super::words::{Word, read_span};

use draft::Draft;

pub(super) use print::{print, registered};

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
    match (first.keyword().unwrap_or_default(), rest) {
        ("lease", [id, rest @ ..]) => reader.lease(id, rest),
        ("faulty-lease", [stem, rest @ ..]) => reader.faulty(stem, rest),
        ("no-lease", [stem, rest @ ..]) => reader.no_lease(stem, rest),
        ("cookie", [of, value]) => reader.cookie(of, value),
        ("grouped", [of, lease]) => {
            let id = named(reader.people, of)?;
            let lease = LeaseId::new(&lease.string()?)
                .ok_or_else(|| format!("'{}' is no lease's name", lease.text))?;
            reader.look.snapshot.leases.grouped.insert(id, lease);
            Ok(())
        }
        ("no-cookie", [of]) => {
            let id = named(reader.people, of)?;
            reader.look.snapshot.leases.cookies.remove(&id);
            reader.put_into_environment(id, None);
            Ok(())
        }
        ("registered", [of, registry, place, key, rest @ ..]) => {
            let place = if place.keyword() == Some("-") { "".into() } else { place.text.clone() };
            let of = named(reader.people, of)?;
            let (registry, key) = (registry.string()?, key.text.clone());
            let answer = reader.registered(rest)?.map(Answer::Registered);
            reader.look.answers.insert(Question::Registered { of, registry, place, key }, answer);
            Ok(())
        }
        _ => Err(format!("'{}' is no statement of this form", first.text)),
    }
}

impl Reader<'_> {
    fn lease(&mut self, id: &Word, rest: &[Word]) -> Result<(), String> {
        let id = LeaseId::new(&id.string()?).ok_or_else(|| format!("'{}' is no lease's name", id.text))?;
        let mut draft = Draft::default();
        for word in rest {
            match word.split() {
                Some((key, value)) => draft.setting(self.people, key, &value)?,
                None => draft.word(word)?,
            }
        }
        let lease = draft.finish(id, self.look.snapshot.own.uid, self.manner)?;
        let owner = lease.file.owner;
        if self.manner == Manner::Boring {
            self.forget(Some(owner), lease.id.as_str().as_bytes());
        }
        let list = &mut self.look.snapshot.leases.list;
        // A saved world may hold one name twice: of two directories of one user.
        let at = list.partition_point(|one| (one.file.owner, &one.id) <= (owner, &lease.id));
        list.insert(at, lease);
        Ok(())
    }

    fn faulty(&mut self, stem: &Word, rest: &[Word]) -> Result<(), String> {
        let usage = "a faulty lease says why: faulty-lease NAME [owner=UID] ?reason";
        let (why, rest) = rest.split_last().ok_or(usage)?;
        let why = why.unknown("reading it")?.ok_or(usage)?;
        let owner = self.owner(rest)?;
        let stem = stem.text.clone();
        if self.manner == Manner::Boring {
            self.forget(owner, &stem);
        }
        self.look.snapshot.leases.faulty.push(FaultyLease { owner, stem, why });
        Ok(())
    }

    fn no_lease(&mut self, stem: &Word, rest: &[Word]) -> Result<(), String> {
        let owner = self.owner(rest)?;
        if self.forget(owner, &stem.text) == 0 {
            return Err(format!("there is no lease '{}' of this user to take away", stem.text));
        }
        Ok(())
    }

    /// Reads `owner=UID` or `owner=none`; without it, whoever looks.
    fn owner(&self, rest: &[Word]) -> Result<Option<Uid>, String> {
        let mut owner = Some(self.look.snapshot.own.uid);
        for (key, value) in pairs(rest)? {
            match key {
                "owner" if value.keyword() == Some("none") => owner = None,
                "owner" => owner = Some(Uid(value.number()?)),
                other => return Err(format!("'{other}' is nothing such a lease can say")),
            }
        }
        Ok(owner)
    }

    /// Takes away what is called so, sound or faulty, and returns how many there were.
    fn forget(&mut self, owner: Option<Uid>, stem: &[u8]) -> usize {
        let leases = &mut self.look.snapshot.leases;
        let before = leases.list.len() + leases.faulty.len();
        leases.list.retain(|one| Some(one.file.owner) != owner || one.id.as_str().as_bytes() != stem);
        leases.faulty.retain(|one| one.owner != owner || one.stem != stem);
        before - leases.list.len() - leases.faulty.len()
    }

    fn cookie(&mut self, of: &Word, value: &Word) -> Result<(), String> {
        let id = named(self.people, of)?;
        let cookie = value.unknown("its lease cookie")?.map_or_else(|| Ok(value.text.clone()), Err);
        if let (Ok(cookie), Manner::Boring) = (&cookie, self.manner) {
            self.put_into_environment(id, Some(cookie.clone()));
        }
        self.look.snapshot.leases.cookies.insert(id, cookie);
        Ok(())
    }

    /// A cookie is a variable: in a world written by hand it need not be said twice.
    fn put_into_environment(&mut self, id: ProcessId, cookie: Option<bstr::BString>) {
        let Some(Ok(Answer::Facts(facts))) = self.look.answers.get_mut(&Question::Facts(id)) else { return };
        let Ok(env) = &mut facts.env else { return };
        match cookie {
            Some(cookie) => env.insert(COOKIE.into(), cookie),
            None => env.remove(bstr::BStr::new(COOKIE)),
        };
    }

    fn registered(&self, rest: &[Word]) -> Result<Known<Registered>, String> {
        let usage = "a registry's answer is 'listed', over=\"why\", others=NUMBER or '?reason'";
        let (word, rest) = rest.split_first().ok_or(usage)?;
        if let Some(why) = word.unknown("what the registry says")? {
            return Ok(Err(why));
        }
        if word.keyword() == Some("listed") {
            let mut holder = None;
            for (key, value) in pairs(rest)? {
                holder_term(&mut holder, self.people, key, &value)?;
            }
            return Ok(Ok(Registered::Listed { holder: holder.map(Box::new) }));
        }
        match (word.split(), rest) {
            (Some(("over", why)), []) => Ok(Ok(Registered::Over(why.string()?))),
            (Some(("others", count)), []) => Ok(Ok(Registered::NotListed { others: count.number()? })),
            _ => Err(usage.to_owned()),
        }
    }
}

/// Reads one setting of a holder, which begins with its number: `holder=4410 start=… boot=…`.
fn holder_term(
    holder: &mut Option<Holder>,
    people: &BTreeMap<Pid, Person>,
    key: &str,
    value: &Word,
) -> Result<(), String> {
    if key == "holder" {
        let number = value.number()?;
        let pid = Pid::new(number).ok_or_else(|| format!("{number} is no process number"))?;
        *holder =
            Some(Holder { pid, start: None, boot: None, pidns: None, timens: None, host: None, age: None });
        return Ok(());
    }
    let holder = holder.as_mut().ok_or_else(|| format!("'{key}' is nothing this can say before holder="))?;
    match key {
        // Whoever bears the number at this look.
        "start" if value.keyword() == Some("here") => {
            holder.start = Some(named_text(people, &holder.pid.to_string())?.start);
        }
        "start" => holder.start = Some(Start(value.number()?)),
        "boot" => holder.boot = Some(BootId(value.string()?)),
        "pidns" => holder.pidns = Some(value.number()?),
        "timens" => holder.timens = Some(value.number()?),
        "host" => holder.host = Some(value.string()?),
        "age" => holder.age = Some(span_of(value)?),
        other => return Err(format!("'{other}' is nothing a holder can say")),
    }
    Ok(())
}

fn span_of(value: &Word) -> Result<Duration, String> {
    let text = value.string()?;
    read_span(&text).map(Duration::from_nanos).ok_or_else(|| format!("'{text}' is no span such as 30s"))
}
