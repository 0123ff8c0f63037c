//! Our side of registries: which ones there are, and what they said at this look.

use std::collections::BTreeMap;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use bstr::{BStr, BString, ByteSlice as _};

use crate::config::policy::{FileRegistry, Registry, Source};
use crate::model::id::{BootId, FileId, ProcessId, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::Snapshot;
use crate::model::question::{Answer, PathAnswer, Question, Registered};
use crate::observe::aside::{Aside, Reply, Request};

use super::files::{Reading, split};
use super::http::{Ask, Heard, Servers};
use super::record::Records;

/// A name that is looked up in a registry's directory only to learn which directory that is.
const PROBE: &str = ".reapd";

/// The configured registries, and what was read of them for one look.
#[derive(Debug)]
pub(in crate::observe) struct Registries {
    configured: Vec<Registry>,
    read: BTreeMap<Reading, Known<Records>>,
    servers: Servers,
}

impl Registries {
    /// Returns registries of which nothing was read yet.
    pub(in crate::observe) fn new(configured: Vec<Registry>) -> Registries {
        Registries { configured, read: BTreeMap::new(), servers: Servers::default() }
    }

    /// Returns what servers said, as far as it may be served again.
    pub(in crate::observe) fn heard(&self, boot: &BootId) -> Heard {
        self.servers.heard(boot)
    }

    /// Takes up what servers said to an earlier run; what was heard in another boot is nothing.
    pub(in crate::observe) fn remember(&mut self, heard: Heard, boot: &BootId) {
        self.servers.remember(heard, boot);
    }

    /// Begins a look: what was read for the last one is dropped.
    pub(in crate::observe) fn begin(&mut self) {
        self.read.clear();
    }

    /// Answers those of the questions that are about registries, in their order. Servers are asked all at once.
    pub(in crate::observe) fn answer(
        &mut self,
        aside: &mut Aside,
        snapshot: &Snapshot,
        questions: &[Question],
        limit: Duration,
    ) -> Vec<Known<Registered>> {
        let configured = std::mem::take(&mut self.configured);
        let mut answers = Vec::new();
        let (mut asks, mut places) = (Vec::new(), Vec::new());
        for question in questions {
            let Question::Registered { of, registry, place, key } = question else { continue };
            let found = configured.iter().find(|known| known.name == *registry);
            answers.push(match found.map(|found| &found.source) {
                Some(Source::Files(files)) => {
                    self.in_files(aside, snapshot, files, (*of, place.as_bstr(), key.as_bstr()))
                }
                Some(Source::Http(http)) => {
                    asks.push(Ask { name: registry, http, of: *of, key: key.as_bstr() });
                    places.push(answers.len());
                    Err(Unknown::new(Reason::NotAsked, "its server"))
                }
                None => Err(Unknown::new(Reason::NotAsked, format!("what registry '{registry}' says"))),
            });
        }
        if !asks.is_empty() {
            let now = snapshot.began.boot;
            let told = self.servers.ask(&asks, &snapshot.table, now, limit, &mut |path| secret(aside, path));
            for (at, told) in places.into_iter().zip(told) {
                answers[at] = told;
            }
        }
        self.configured = configured;
        answers
    }

    fn in_files(
        &mut self,
        aside: &mut Aside,
        snapshot: &Snapshot,
        files: &FileRegistry,
        (of, place, key): (ProcessId, &BStr, &BStr),
    ) -> Known<Registered> {
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
}

fn secret(aside: &mut Aside, path: &Path) -> Known<BString> {
    let reply = aside.ask(&[Request::Secret(BString::from(path.as_os_str().as_bytes()))]).pop();
    let silent = || Err(Unknown::new(Reason::NotAsked, format!("secret {}", path.display())));
    reply.unwrap_or_else(silent).and_then(Reply::secret)
}

fn user(snapshot: &Snapshot, of: ProcessId) -> Option<Uid> {
    snapshot.arguments_of(of).map(|entry| entry.uid)
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
    let silent = || Err(Unknown::new(Reason::NotAsked, format!("the registry at '{}'", reading.place)));
    aside.ask(&[Request::Registry(reading.clone())]).pop().unwrap_or_else(silent).and_then(Reply::records)
}

/// Returns the directory that a place's root is to the process itself. On a file system that cannot be trusted with
/// absences this is unknown.
fn meant(aside: &mut Aside, of: ProcessId, place: &BStr) -> Known<FileId> {
    let (root, _) = split(place);
    let path = [root.trim_end_with(|letter| letter == '/'), b"/", PROBE.as_bytes()].concat().into();
    let question = Question::Path { of, path };
    let silent = || Err(Unknown::new(Reason::NotAsked, format!("what '{root}' is to the process itself")));
    match aside.ask(&[Request::Ask(question)]).pop().unwrap_or_else(silent).and_then(Reply::answer)? {
        Answer::Path(PathAnswer::Present { parent, .. } | PathAnswer::Absent { parent }) => Ok(parent.file),
        Answer::Path(PathAnswer::ParentAbsent { .. })
        | Answer::Facts(_)
        | Answer::Channel(_)
        | Answer::Holders(_)
        | Answer::Sockets(_)
        | Answer::Owner(_)
        | Answer::Activity(_)
        | Answer::Terminals(_)
        | Answer::Bound(_)
        | Answer::Named(_)
        | Answer::Ping(_)
        | Answer::Engine(_)
        | Answer::Registered(_) => {
            Err(Unknown::new(Reason::Vanished, format!("'{root}', as the process itself sees it")))
        }
    }
}
