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
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::moment::Moment;
use crate::model::question::Registered;
use crate::model::table::Table;

use client::{Batch, Line, Reply};
use instance::Before;
pub(in crate::observe) use request::Secrets;

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

/// An answer that came whole, and when.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Kept {
    /// On the boot clock, before it was asked.
    at: Moment,
    said: Known<Registered>,
    by: By,
}

/// Who gave an answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    /// It named itself.
    Named,
    /// One of these processes, or all of them.
    Processes(Vec<ProcessId>),
    /// It could not be seen.
    Unseen(Unknown),
}

/// The last answers of servers, to be kept between runs of one boot.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Answers(Vec<(Subject, Kept)>);

impl Answers {
    /// Says whether there is nothing to keep.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The servers, and what they said last.
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
    /// Takes up what an earlier run of this boot was told.
    pub(in crate::observe) fn restore(&mut self, answers: Answers) {
        self.kept = answers.0.into_iter().take(KEPT_MOST).collect();
    }

    /// Returns what is to be kept for a later run.
    pub(in crate::observe) fn answers(&self) -> Answers {
        Answers(self.kept.iter().map(|(subject, kept)| (subject.clone(), kept.clone())).collect())
    }

    /// Forgets every answer by which something would end, so that it is asked again before that. Whoever was alive
    /// stays so until its time is over: asking once more might be what keeps it.
    pub(in crate::observe) fn asked_anew(&mut self) {
        self.kept.retain(|_, kept| match kept.said {
            Ok(Registered::Listed { .. }) | Err(_) => true,
            Ok(Registered::Over(_) | Registered::NotListed { .. }) => false,
        });
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
        let mut said: BTreeMap<Subject, Kept> = BTreeMap::new();
        let mut unsaid: BTreeMap<Subject, Unknown> = BTreeMap::new();
        let mut jobs: Vec<Job<'_>> = Vec::new();
        let subjects: Vec<Subject> = asks.iter().map(Subject::of).collect();
        let mut of = BTreeSet::new();
        for (ask, subject) in asks.iter().zip(&subjects) {
            match self.kept.get(subject) {
                Some(kept) if kept.at <= now && now.since(kept.at) < ask.http.every => {
                    said.insert(subject.clone(), kept.clone());
                    continue;
                }
                Some(_) | None => {
                    of.insert(ask.of);
                }
            }
            if unsaid.contains_key(subject) || jobs.iter().any(|job| job.subjects.contains(subject)) {
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
                Err(unknown) => drop(unsaid.insert(subject.clone(), unknown)),
            }
        }
        for (subject, answer) in carry(jobs, &of, table, now, limit) {
            match answer {
                Ok(kept) => {
                    self.keep(subject.clone(), kept.clone());
                    said.insert(subject, kept);
                }
                Err(unknown) => drop(unsaid.insert(subject, unknown)),
            }
        }
        let answer = |(ask, subject): (&Ask<'_>, &Subject)| {
            let told = match said.get(subject) {
                Some(kept) => fits(kept, ask.of, table).and_then(|()| kept.said.clone()),
                None => Err(unsaid.get(subject).cloned().unwrap_or_else(lost)),
            };
            told.map_err(|Unknown { reason, what }| {
                Unknown::new(reason, format!("registry '{}': {what}", ask.name))
            })
        };
        asks.iter().zip(&subjects).map(answer).collect()
    }

    fn keep(&mut self, subject: Subject, kept: Kept) {
        self.kept.insert(subject, kept);
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

fn fits(kept: &Kept, of: ProcessId, table: &Table) -> Known<()> {
    match &kept.by {
        By::Named => Ok(()),
        By::Processes(all) => instance::is_below(of, all, table),
        By::Unseen(unknown) => Err(unknown.clone()),
    }
}

/// Sends requests off, and sees who answers while the connections stand.
fn carry(
    jobs: Vec<Job<'_>>,
    of: &BTreeSet<ProcessId>,
    table: &Table,
    now: Moment,
    limit: Duration,
) -> Vec<(Subject, Known<Kept>)> {
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
                let kept = |said| Ok(Kept { at: now, said, by: by.clone() });
                found.extend(subjects.into_iter().zip(all.into_iter().map(kept)));
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
    let by = |line: &Option<&Line>| match line {
        None => By::Named,
        Some(line) => match distinct.iter().zip(&seen).find(|(known, _)| *known == line) {
            Some((_, Ok(all))) => By::Processes(all.clone()),
            Some((_, Err(unknown))) => By::Unseen(unknown.clone()),
            None => By::Unseen(lost()),
        },
    };
    lines.iter().map(by).collect()
}

#[cfg(test)]
mod tests;
