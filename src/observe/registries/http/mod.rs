//! Registries that are asked over HTTP: all keys of a look at once, each at most as often as its server bears.

mod answer;
mod client;
#[cfg(not(target_os = "linux"))]
#[path = "elsewhere.rs"]
mod instance;
#[cfg(target_os = "linux")]
mod instance;
mod request;

use std::collections::{BTreeMap, BTreeSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::time::Duration;

use bstr::{BStr, BString, ByteSlice as _};
use hyper::Request;
use serde::{Deserialize, Serialize};

use crate::config::policy::{HttpRegistry, Instance};
use crate::model::id::{BootId, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::moment::Moment;
use crate::model::question::Registered;
use crate::model::table::Table;

use client::{Batch, Line, Reply};
use instance::Before;
use request::Secrets;

/// So many keys are remembered at most; what is forgotten is only asked again.
const KEPT_MOST: usize = 4096;

/// One question.
#[derive(Debug, Clone, Copy)]
pub(in crate::observe) struct Ask<'a> {
    /// The registry's name.
    pub(in crate::observe) name: &'a str,
    /// What it is.
    pub(in crate::observe) http: &'a HttpRegistry,
    /// For whose sake.
    pub(in crate::observe) of: ProcessId,
    /// The key.
    pub(in crate::observe) key: &'a BStr,
}

/// What an answer is about. A registry that is configured anew begins anew.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Subject {
    registry: String,
    /// A digest of its configuration.
    definition: u64,
    key: BString,
}

impl Subject {
    fn of(ask: &Ask<'_>) -> Subject {
        let mut hasher = DefaultHasher::new();
        format!("{:?}", ask.http).hash(&mut hasher);
        Subject { registry: ask.name.to_owned(), definition: hasher.finish(), key: ask.key.to_owned() }
    }
}

/// An answer that is served again for a while: it ends nobody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// On the boot clock, before it was asked.
    at: Moment,
    said: Spared,
}

/// An answer by which nobody ends.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Spared {
    /// It is alive.
    Alive,
    /// Something came back, and it settles nothing.
    Unknown(Unknown),
}

/// A whole answer to one question.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Told {
    said: Known<Registered>,
    by: By,
}

/// Who gave an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
enum By {
    /// It named itself.
    Named,
    /// One of these processes, or all of them.
    Processes(Vec<ProcessId>),
    /// It could not be seen.
    Unseen(Unknown),
}

impl Told {
    /// Returns the answer for the sake of one process.
    fn to(&self, of: ProcessId, table: &Table) -> Known<Registered> {
        match &self.by {
            By::Named => Ok(()),
            By::Processes(all) => instance::is_below(of, all, table),
            By::Unseen(unknown) => Err(unknown.clone()),
        }
        .and_then(|()| self.said.clone())
    }
}

/// What servers said of the living, to be kept between the runs of one boot. Nothing in it ends anybody.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Heard {
    boot: BootId,
    answers: Vec<(Subject, Kept)>,
}

impl Heard {
    /// Says whether there is nothing to be kept.
    pub fn is_empty(&self) -> bool {
        self.answers.is_empty()
    }
}

/// The servers, and what they said last of whoever goes on living.
///
/// Some servers count a question as use, and would never let a session go that is asked about at every look. So an
/// answer that it is alive, or that settles nothing, is served again for as long as the registry's `every`. An answer
/// that it is over never is: it is asked anew at every look, and right before a signal. Nobody can be kept alive by
/// being asked about once it is gone.
#[derive(Debug, Default)]
pub(in crate::observe) struct Servers {
    kept: BTreeMap<Subject, Kept>,
}

/// The questions that one request answers.
#[derive(Debug)]
struct Job<'a> {
    http: &'a HttpRegistry,
    subjects: Vec<Subject>,
    request: Request<String>,
}

impl Servers {
    /// Takes up what an earlier run heard, if that was in this boot: moments of another one mean nothing.
    pub(in crate::observe) fn remember(&mut self, heard: Heard, boot: &BootId) {
        if heard.boot == *boot {
            self.kept = heard.answers.into_iter().take(KEPT_MOST).collect();
        }
    }

    /// Returns what a later run of this boot may be served.
    pub(in crate::observe) fn heard(&self, boot: &BootId) -> Heard {
        let answers = self.kept.iter().map(|(subject, kept)| (subject.clone(), kept.clone())).collect();
        Heard { boot: boot.clone(), answers }
    }

    /// Answers questions, in their order.
    pub(in crate::observe) fn ask(
        &mut self,
        asks: &[Ask<'_>],
        table: &Table,
        now: Moment,
        limit: Duration,
        secrets: &mut Secrets<'_>,
    ) -> Vec<Known<Registered>> {
        let mut told: BTreeMap<Subject, Known<Told>> = BTreeMap::new();
        let mut jobs: Vec<Job<'_>> = Vec::new();
        let subjects: Vec<Subject> = asks.iter().map(Subject::of).collect();
        let mut of = BTreeSet::new();
        for (ask, subject) in asks.iter().zip(&subjects) {
            if let Some(kept) = self.served(subject, ask.http, now) {
                told.insert(subject.clone(), kept);
                continue;
            }
            of.insert(ask.of);
            if told.contains_key(subject) || jobs.iter().any(|job| job.subjects.contains(subject)) {
                continue;
            }
            // One list answers for all keys.
            let same = |job: &&mut Job<'_>| {
                !request::is_told(ask.http)
                    && job.subjects.iter().any(|other| {
                        (&other.registry, other.definition) == (&subject.registry, subject.definition)
                    })
            };
            if let Some(job) = jobs.iter_mut().find(same) {
                job.subjects.push(subject.clone());
                continue;
            }
            match request::prepare(ask.http, ask.key, secrets) {
                Ok(request) => jobs.push(Job { http: ask.http, subjects: vec![subject.clone()], request }),
                Err(unknown) => drop(told.insert(subject.clone(), Err(unknown))),
            }
        }
        for (subject, answer) in carry(jobs, &of, table, limit) {
            let every = asks.iter().zip(&subjects).find(|(_, known)| **known == subject);
            if let (Ok(answer), Some((ask, _))) = (&answer, every)
                && !ask.http.every.is_zero()
            {
                self.keep(&subject, answer, now);
            }
            told.insert(subject, answer);
        }
        let answer = |(ask, subject): (&Ask<'_>, &Subject)| {
            let told = told.get(subject).cloned().unwrap_or_else(|| Err(lost()));
            told.and_then(|told| told.to(ask.of, table)).map_err(|Unknown { reason, what }| {
                Unknown::new(reason, format!("registry '{}': {what}", ask.name))
            })
        };
        asks.iter().zip(&subjects).map(answer).collect()
    }

    fn served(&self, subject: &Subject, http: &HttpRegistry, now: Moment) -> Option<Known<Told>> {
        let kept = self.kept.get(subject)?;
        let is_served = kept.at <= now && now.since(kept.at) < http.every;
        is_served.then(|| match &kept.said {
            Spared::Alive => Ok(Told { said: Ok(Registered::Listed { holder: None }), by: By::Named }),
            Spared::Unknown(unknown) => Err(unknown.clone()),
        })
    }

    fn keep(&mut self, subject: &Subject, told: &Told, now: Moment) {
        let said = match (&told.said, &told.by) {
            (_, By::Unseen(unknown)) | (Err(unknown), _) => Spared::Unknown(unknown.clone()),
            (Ok(Registered::Listed { .. }), By::Named | By::Processes(_)) => Spared::Alive,
            (Ok(Registered::Over(_) | Registered::NotListed { .. }), By::Named | By::Processes(_)) => {
                self.kept.remove(subject);
                return;
            }
        };
        self.kept.insert(subject.clone(), Kept { at: now, said });
        while self.kept.len() > KEPT_MOST {
            let oldest = self.kept.iter().min_by_key(|(_, kept)| kept.at).map(|(subject, _)| subject.clone());
            let Some(oldest) = oldest else { return };
            self.kept.remove(&oldest);
        }
    }
}

fn lost() -> Unknown {
    Unknown::new(Reason::NotAsked, "an answer that did not come")
}

/// Sends requests off, and sees who answers while the connections stand.
fn carry(
    jobs: Vec<Job<'_>>,
    of: &BTreeSet<ProcessId>,
    table: &Table,
    limit: Duration,
) -> Vec<(Subject, Known<Told>)> {
    if jobs.is_empty() {
        return Vec::new();
    }
    let local = |job: &&Job<'_>| job.http.instance == Instance::Ancestor;
    let places = jobs.iter().filter(local).filter_map(|job| client::endpoints(&job.http.server)).flatten();
    let before = Before::look(&places.collect(), of, table);
    let mut batches: Vec<Batch> = Vec::new();
    let mut sent: Vec<Vec<(&HttpRegistry, Vec<Subject>)>> = Vec::new();
    for job in jobs {
        let at = batches.iter().position(|batch| batch.server == job.http.server).unwrap_or(batches.len());
        if at == batches.len() {
            batches.push(Batch { server: job.http.server.clone(), requests: Vec::new() });
            sent.push(Vec::new());
        }
        batches[at].requests.push(job.request);
        sent[at].push((job.http, job.subjects));
    }
    let mut answered = match client::ask(batches, limit) {
        Ok(answered) => answered,
        Err(unknown) => {
            let all = sent.into_iter().flatten().flat_map(|(_, subjects)| subjects);
            return all.map(|subject| (subject, Err(unknown.clone()))).collect();
        }
    };
    let replies: Vec<Known<Reply>> = std::mem::take(&mut answered.replies).into_iter().flatten().collect();
    let sent: Vec<(&HttpRegistry, Vec<Subject>)> = sent.into_iter().flatten().collect();
    let seen = who_answered(&before, &sent, &replies, table);
    drop(answered);
    let mut found = Vec::new();
    for (((http, subjects), reply), by) in sent.into_iter().zip(replies).zip(seen) {
        match reply {
            Ok(reply) => {
                let keys: Vec<&BStr> = subjects.iter().map(|subject| subject.key.as_bstr()).collect();
                let all = answer::read(http, &reply.whole, &keys);
                let told = |said| Ok(Told { said, by: by.clone() });
                found.extend(subjects.into_iter().zip(all.into_iter().map(told)));
            }
            Err(unknown) => {
                found.extend(subjects.into_iter().map(|subject| (subject, Err(unknown.clone()))));
            }
        }
    }
    found
}

fn who_answered(
    before: &Before,
    sent: &[(&HttpRegistry, Vec<Subject>)],
    replies: &[Known<Reply>],
    table: &Table,
) -> Vec<By> {
    let lines: Vec<Option<&Line>> = sent
        .iter()
        .zip(replies)
        .map(|((http, _), reply)| {
            let is_local = http.instance == Instance::Ancestor;
            reply.as_ref().ok().filter(|_| is_local).map(|reply| &reply.line)
        })
        .collect();
    // Many answers came on few connections.
    let mut distinct: Vec<&Line> = Vec::new();
    for line in lines.iter().flatten() {
        if !distinct.contains(line) {
            distinct.push(line);
        }
    }
    let seen = before.who_answered(&distinct, table);
    let by = |line: Option<&Line>| match line {
        None => By::Named,
        Some(line) => match distinct.iter().zip(&seen).find(|(known, _)| **known == line) {
            Some((_, Ok(all))) => By::Processes(all.clone()),
            Some((_, Err(unknown))) => By::Unseen(unknown.clone()),
            None => By::Unseen(lost()),
        },
    };
    lines.iter().copied().map(by).collect()
}

#[cfg(test)]
mod tests;
