//! Our side of registries: which ones there are, and what they said at this look.

use std::collections::BTreeMap;

use bstr::{BStr, BString, ByteSlice as _};

use crate::config::policy::{FileRegistry, HttpRegistry, Registry, Source};
use crate::model::id::{FileId, ProcessId, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::Snapshot;
use crate::model::question::{Answer, PathAnswer, Question, Registered};
use crate::observe::aside::{Aside, Reply, Request};

use super::files::{Reading, split};
use super::record::Records;

/// A name that is looked up in a registry's directory only to learn which directory that is.
const PROBE: &str = ".reapd";

/// The configured registries, and what was read of them for one look.
#[derive(Debug)]
pub(in crate::observe) struct Registries {
    configured: Vec<Registry>,
    read: BTreeMap<Reading, Known<Records>>,
}

impl Registries {
    /// Returns registries of which nothing was read yet.
    pub(in crate::observe) fn new(configured: Vec<Registry>) -> Registries {
        Registries { configured, read: BTreeMap::new() }
    }

    /// Begins a look: what was read for the last one is dropped.
    pub(in crate::observe) fn begin(&mut self) {
        self.read.clear();
    }

    /// Answers what a registry says of a key.
    pub(in crate::observe) fn answer(
        &mut self,
        aside: &mut Aside,
        snapshot: &Snapshot,
        of: ProcessId,
        (registry, place, key): (&str, &BStr, &BStr),
    ) -> Known<Registered> {
        let Some(found) = self.configured.iter().find(|known| known.name == registry) else {
            return Err(Unknown::new(Reason::NotAsked, format!("what registry '{registry}' says")));
        };
        match &found.source {
            Source::Files(files) => {
                let Some(user) = user(snapshot, of) else {
                    return Err(Unknown::new(Reason::Vanished, "whose process asks a registry"));
                };
                let reading = reading(files, place, user);
                let records = self.read.entry(reading).or_insert_with_key(|reading| ask(aside, reading));
                let records = records.as_ref().map_err(Clone::clone)?;
                // Another mount namespace or root directory may have another directory there.
                if meant(aside, of, place)? != records.root {
                    let what = format!("the registry at '{place}' is another one to the process itself");
                    return Err(Unknown::new(Reason::Foreign, what));
                }
                records.answer(key)
            }
            Source::Http(server) => http(registry, server),
        }
    }
}

fn http(name: &str, _registry: &HttpRegistry) -> Known<Registered> {
    Err(Unknown::new(Reason::NotAsked, format!("what registry '{name}' says")))
}

fn user(snapshot: &Snapshot, of: ProcessId) -> Option<Uid> {
    snapshot.arguments.iter().find(|entry| entry.id == of).map(|entry| entry.uid)
}

fn reading(files: &FileRegistry, place: &BStr, user: Uid) -> Reading {
    let holder = files.holder.as_ref();
    Reading {
        place: BString::from(place),
        user,
        key: files.key.clone(),
        pid: holder.map(|holder| holder.pid.clone()),
        start: holder.and_then(|holder| holder.start.clone()),
        boot: holder.and_then(|holder| holder.boot.clone()),
    }
}

fn ask(aside: &mut Aside, reading: &Reading) -> Known<Records> {
    match aside.ask(&[Request::Registry(reading.clone())]).pop() {
        Some(Ok(Reply::Records(records))) => *records,
        Some(Err(unknown)) => Err(unknown),
        Some(Ok(Reply::Answer(_) | Reply::Arguments(_) | Reply::Configured(_))) | None => {
            Err(Unknown::new(Reason::NotAsked, format!("the registry at '{}'", reading.place)))
        }
    }
}

/// Returns the directory that a place's root is to the process itself. On a file system that cannot be trusted with
/// absences this is unknown.
fn meant(aside: &mut Aside, of: ProcessId, place: &BStr) -> Known<FileId> {
    let (root, _) = split(place);
    let path = [root.trim_end_with(|letter| letter == '/'), b"/", PROBE.as_bytes()].concat().into();
    let question = Question::Path { of, path };
    let answer = match aside.ask(&[Request::Ask(question)]).pop() {
        Some(Ok(Reply::Answer(answer))) => (*answer)?,
        Some(Err(unknown)) => return Err(unknown),
        Some(Ok(Reply::Records(_) | Reply::Arguments(_) | Reply::Configured(_))) | None => {
            return Err(Unknown::new(Reason::NotAsked, format!("what '{root}' is to the process itself")));
        }
    };
    match answer {
        Answer::Path(PathAnswer::Present { parent, .. } | PathAnswer::Absent { parent }) => Ok(parent.file),
        Answer::Path(PathAnswer::ParentAbsent { .. })
        | Answer::Facts(_)
        | Answer::Channel(_)
        | Answer::Holders(_)
        | Answer::Sockets(_)
        | Answer::Owner(_)
        | Answer::Activity(_)
        | Answer::Terminals(_)
        | Answer::Registered(_) => {
            Err(Unknown::new(Reason::Vanished, format!("'{root}', as the process itself sees it")))
        }
    }
}
