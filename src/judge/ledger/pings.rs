//! What is remembered of asking servers whether they live.
//!
//! A row of silences is kept only while it is unbroken: an answer, an attempt that told nothing, another tree, and
//! whatever the tree did between two attempts begin it anew. What is kept never ends anybody by itself, since the last
//! silence must be a fresh one.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::time::Duration;

use bstr::{BStr, BString};
use serde::{Deserialize, Serialize};

use crate::config::policy::{Line, Setting};
use crate::judge::case::Case;
use crate::judge::containers::ContainerNotes;
use crate::judge::containers::case::ContainerCase;
use crate::judge::rules::socket_unresponsive::{self, EVERY};
use crate::model::container::{ContainerRef, ContainerRun};
use crate::model::id::ProcessId;
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::question::{
    Answer, Call, EngineAnswer, EngineQuestion, Pinged, Progress, Question, Response,
};

use super::{Ledger, fingerprint};

/// So many silences are kept of a row; the most attempts that can be asked for are fewer.
const MOST: usize = 64;

/// What is remembered of asking one server for one policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Asked {
    #[serde(flatten)]
    whom: Whom,
    /// What the policy asked for: with another ping or other lines the row begins anew.
    by: u64,
    /// When it was asked last.
    pub last: Moment,
    /// What came of it then.
    pub heard: Heard,
    /// Whether it ever said anything.
    #[serde(default)]
    pub ever: Ever,
    /// The tree whose counters were read.
    tree: Vec<ProcessId>,
    /// The unbroken row of silences, oldest first.
    silent: Vec<Moment>,
    /// The tree's counters at the end of the last attempt of the row.
    pub after: Option<Progress>,
}

/// Which server is asked for which policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Whom {
    /// The first of its tree.
    root: ProcessId,
    policy: String,
    /// The process that listens; of a container nobody knows, and the first one stands for it.
    of: ProcessId,
    /// The listener's name, or where on this machine the container can be reached.
    socket: BString,
    /// The run, where it is a container: another one is used by somebody else and starts anew.
    #[serde(default)]
    run: Option<ContainerRun>,
}

/// What came of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Heard {
    /// It answered, whatever it said.
    Life,
    /// Nothing, for as long as it was waited for.
    Nothing,
    /// It could not be told.
    Untold,
}

/// Whether a server ever said anything, asked in the very same way.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ever {
    /// Not that anybody knows.
    #[default]
    Unheard,
    /// It did.
    Heard,
}

/// What is remembered of asking servers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(super) struct Pings(Vec<Asked>);

/// How a policy asks: a part of an assessment's notes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::judge) struct Manner {
    by: u64,
    /// The least time between two attempts that any of its lines asks for.
    every: Duration,
}

/// Returns how a policy asks, if it does.
pub(in crate::judge) fn manner(ping: &impl Debug, reap_when: &[Line]) -> Option<Manner> {
    let name = socket_unresponsive::RULE.spec.name;
    let every = |settings: Option<&Setting>| match settings {
        Some(Setting::Duration(every)) => *every,
        _ => EVERY,
    };
    let conditions = reap_when.iter().flat_map(|line| &line.conditions);
    let every = conditions
        .filter(|condition| condition.rule == name)
        .map(|condition| every(condition.settings.get("every")))
        .min()?;
    Some(Manner { by: fingerprint(&(ping, reap_when)), every })
}

impl Manner {
    /// Returns a number for what was asked for by whom: the words that are said may have changed as well.
    fn with(self, call: &Call) -> u64 {
        fingerprint(&(self.by, call))
    }
}

impl Asked {
    /// Returns how many silences of the row lie at least `every` apart; none where the tree is another one now.
    pub fn silent_times(&self, tree: &[ProcessId], every: Duration) -> u64 {
        if self.tree == tree { spaced(self.silent.iter().copied(), every) } else { 0 }
    }

    /// Returns the same with one more, now.
    pub fn silent_times_with(&self, tree: &[ProcessId], every: Duration, now: Moment) -> u64 {
        if self.tree == tree { spaced(self.silent.iter().copied().chain([now]), every) } else { 1 }
    }

    /// Returns when the row began.
    pub fn since(&self) -> Moment {
        self.silent.first().copied().unwrap_or(self.last)
    }

    /// Takes in one more attempt.
    fn add(&mut self, now: Moment, every: Duration, tree: &[ProcessId], pinged: Result<&Pinged, ()>) {
        self.last = now;
        let silence = match pinged {
            Ok(Pinged { response: Response::Silent(_), before: Ok(before), after: Ok(after) }) => {
                Some((*before, *after))
            }
            Ok(_) | Err(()) => None,
        };
        self.heard = match pinged {
            Ok(Pinged { response: Response::Answered(_) | Response::Otherwise(_), .. }) => Heard::Life,
            Ok(_) if silence.is_some() => Heard::Nothing,
            Ok(_) | Err(()) => Heard::Untold,
        };
        if self.heard == Heard::Life {
            self.ever = Ever::Heard;
        }
        let goes_on = silence.is_some_and(|(before, _)| self.after == Some(before)) && self.tree == tree;
        if !goes_on {
            self.silent.clear();
        }
        tree.clone_into(&mut self.tree);
        self.after = silence.map(|(_, after)| after);
        // One that only confirms a whole row comes sooner, and makes it no longer.
        let is_due = self.silent.last().is_none_or(|last| now.since(*last) >= every);
        if silence.is_some() && is_due {
            if self.silent.len() == MOST {
                self.silent.remove(0);
            }
            self.silent.push(now);
        }
    }
}

/// Returns how many of these moments lie at least `every` after the one before that was counted.
fn spaced(moments: impl Iterator<Item = Moment>, every: Duration) -> u64 {
    let mut count = 0;
    let mut last: Option<Moment> = None;
    for moment in moments {
        if last.is_none_or(|last| moment.since(last) >= every) {
            last = Some(moment);
            count += 1;
        }
    }
    count
}

impl Pings {
    pub(super) fn rearm(&mut self) {
        self.0.clear();
    }

    /// Forgets whom `is_here` does not know.
    pub(super) fn retain(&mut self, is_here: impl Fn(ProcessId) -> bool) {
        self.0.retain(|asked| is_here(asked.whom.root) && is_here(asked.whom.of));
    }

    pub(super) fn forget(&mut self, root: ProcessId) {
        self.0.retain(|asked| asked.whom.root != root);
    }

    pub(super) fn forget_container(&mut self, at: &ContainerRef) {
        self.0.retain(|asked| asked.whom.run.as_ref().is_none_or(|run| run.at != *at));
    }

    /// Remembers what was asked at a look. Whoever was not judged by that policy any more is forgotten.
    pub(super) fn remember(
        &mut self,
        look: &Look,
        judged: &BTreeSet<(ProcessId, &str)>,
        containers: &ContainerNotes,
        manner: impl Fn((ProcessId, &str)) -> Option<Manner>,
    ) {
        self.0.retain(|Asked { whom, .. }| match &whom.run {
            None => judged.contains(&(whom.root, whom.policy.as_str())),
            Some(run) => containers.get(&run.at, &whom.policy).is_some(),
        });
        let now = look.snapshot.began.boot;
        for (question, answer) in &look.answers {
            let Some((whom, call, tree)) = asking(question) else { continue };
            let manner = match &whom.run {
                None => manner((whom.root, &whom.policy)),
                Some(run) => containers.get(&run.at, &whom.policy).and_then(|note| note.manner),
            };
            let Some(manner) = manner else { continue };
            let by = manner.with(call);
            let at = self.0.iter().position(|asked| asked.whom == whom).unwrap_or_else(|| {
                self.0.push(Asked {
                    whom,
                    by,
                    last: now,
                    heard: Heard::Untold,
                    ever: Ever::Unheard,
                    tree: Vec::new(),
                    silent: Vec::new(),
                    after: None,
                });
                self.0.len() - 1
            });
            let asked = &mut self.0[at];
            if asked.by != by {
                asked.by = by;
                asked.silent.clear();
                asked.after = None;
                asked.ever = Ever::Unheard;
            }
            let pinged = match answer {
                Ok(Answer::Ping(pinged) | Answer::Engine(EngineAnswer::Pinged(pinged))) => Ok(pinged),
                Ok(_) | Err(_) => Err(()),
            };
            asked.add(now, manner.every, tree, pinged);
        }
    }
}

/// Returns who is asked by a question, what is said, and whose progress counts; nothing where nobody is.
fn asking(question: &Question) -> Option<(Whom, &Call, &[ProcessId])> {
    if let Question::Ping { of, policy, call, socket, tree, patience: _ } = question {
        let root = *tree.first()?;
        let (policy, socket) = (policy.clone(), socket.clone());
        Some((Whom { root, policy, of: *of, socket, run: None }, call, tree))
    } else if let Question::Engine(EngineQuestion::Ping { run, policy, call, address, tree, .. }) = question {
        Some((published(run, policy, *tree.first()?, address), call, tree))
    } else {
        None
    }
}

/// Returns a container as it is reached at this address.
fn published(run: &ContainerRun, policy: &str, init: ProcessId, address: &str) -> Whom {
    Whom { root: init, policy: policy.to_owned(), of: init, socket: address.into(), run: Some(run.clone()) }
}

impl Ledger {
    /// Returns what is remembered of asking a server of a case's tree for its policy, as the policy is now.
    pub fn asked(&self, case: &Case<'_>, of: ProcessId, socket: &BStr) -> Option<&Asked> {
        let by = manner(&case.policy.ping, &case.policy.reap_when)?.with(&case.call().ok()?);
        let whom = Whom {
            root: case.root.id,
            policy: case.policy.name.clone(),
            of,
            socket: socket.to_owned(),
            run: None,
        };
        self.pings.0.iter().find(|asked| asked.whom == whom && asked.by == by)
    }

    /// Returns what is remembered of asking this very run of a container for its policy, as the policy is now.
    pub(in crate::judge) fn asked_container(
        &self,
        case: &ContainerCase<'_>,
        init: ProcessId,
        address: &str,
    ) -> Option<&Asked> {
        let by = manner(&case.policy.ping, &case.policy.reap_when)?.with(&case.call().ok()?);
        let whom = published(&case.facts.run, &case.policy.name, init, address);
        self.pings.0.iter().find(|asked| asked.whom == whom && asked.by == by)
    }
}
