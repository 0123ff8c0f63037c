//! Container engines: where they are, what they run, and what the kernel says of their containers and clients.
//!
//! An engine says what it made; who still uses it, the kernel says. So a look costs each engine one list, and most
//! questions are answered without a call.

mod asking;
#[cfg(target_os = "linux")]
mod census;
mod client;
#[cfg(target_os = "linux")]
mod daemon;
mod init;
#[cfg(target_os = "linux")]
mod inside;
mod kernel;
#[cfg(target_os = "linux")]
mod members;
mod places;
#[cfg(target_os = "linux")]
mod reach;
mod reader;
mod stdin;
mod within;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::time::Duration;

use bstr::BString;

use super::aside::{Aside, Reply, Request};
use super::channels::Channels;
use super::{Setup, misfit};
use crate::config::policy::Docker;
use crate::engine::{Client, ExecInspected, ExecState, Fault, Inspected};
use crate::model::container::{
    ContainerFacts, ContainerId, ContainerRef, ContainerRun, Engine, EngineId, ExecFacts,
};
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::{Gap, Snapshot};
use crate::model::question::{EngineAnswer, EngineQuestion, Question};

use asking::{Asked, Budgets, Said};

pub(super) use client::{Given, given};
#[cfg(target_os = "linux")]
pub(super) use inside::connections;
pub use places::EngineSurroundings;
pub(super) use places::{Found, Seek};
pub use reader::stdin_main;
pub(super) use within::{Accepted, Within};

/// What is needed to find engines.
#[derive(Debug, Clone)]
pub struct EngineSetup {
    /// `[docker]`.
    pub docker: Docker,
    /// What the surroundings say.
    pub around: EngineSurroundings,
}

/// Knows the engines, and what makes the next look cheap.
#[derive(Debug)]
pub(super) struct Engines {
    setup: Option<EngineSetup>,
    /// Our own program, for the container that reads what we may not.
    program: PathBuf,
    limit: Duration,
    /// The variables of a container that are read.
    env: BTreeSet<BString>,
    /// Who answered at this look.
    clients: BTreeMap<EngineId, Client>,
    /// What time each has left at this look.
    budgets: Budgets,
    /// First processes, for as long as they live.
    inits: BTreeMap<ContainerRun, ProcessId>,
}

impl Engines {
    /// Returns engines that nobody was asked about yet.
    pub(super) fn new(setup: &Setup, env: &[&str]) -> Engines {
        let env = env.iter().map(|&name| BString::from(name));
        Engines {
            setup: setup.engines.clone(),
            program: setup.aside.clone(),
            limit: setup.probe_timeout,
            env: setup.env_names.iter().cloned().chain(env).collect(),
            clients: BTreeMap::new(),
            budgets: Budgets::new(setup.probe_timeout),
            inits: BTreeMap::new(),
        }
    }

    /// Begins a look: finds the engines, and asks each what it runs.
    pub(super) fn look(&mut self, aside: &mut Aside) -> (Vec<Engine>, Vec<Gap>) {
        self.clients.clear();
        self.budgets = Budgets::new(self.limit);
        let Some(setup) = &self.setup else { return (Vec::new(), Vec::new()) };
        let Some(seek) = Seek::new(&setup.docker, &setup.around) else { return (Vec::new(), Vec::new()) };
        let found = aside.ask(&[Request::Engines(seek)]).pop().unwrap_or_else(|| Err(misfit()));
        let Found { places, mut gaps } = match found.and_then(Reply::engines) {
            Ok(found) => found,
            Err(why) => {
                let cure = Some("name the sockets in [docker] socket".into());
                return (Vec::new(), vec![Gap { source: "docker engines".into(), why, cure }]);
            }
        };
        let ids = places.iter().map(|place| place.id.clone()).collect();
        let mut heard: BTreeMap<EngineId, _> = match asking::list(ids, self.limit) {
            Ok(heard) => heard.into_iter().collect(),
            Err(fault) => {
                let why = Unknown::from(fault);
                gaps.push(Gap { source: "docker engines".into(), why, cure: None });
                return (Vec::new(), gaps);
            }
        };
        let mut engines = Vec::new();
        for place in places {
            let (kind, containers) = match heard.remove(&place.id).unwrap_or(Err(Fault::Hung)) {
                Ok((client, listed)) => {
                    let kind = client.kind().clone();
                    self.clients.insert(place.id.clone(), client);
                    (Ok(kind), listed.map_err(|fault| missing(&place.id, &fault, &mut gaps)))
                }
                Err(fault) => {
                    let why = missing(&place.id, &fault, &mut gaps);
                    (Err(why.clone()), Err(why))
                }
            };
            engines.push(Engine { id: place.id, from: place.from, kind, containers });
        }
        (engines, gaps)
    }

    /// Answers those of the questions that are about containers and engines, in their order.
    pub(super) fn answer(
        &mut self,
        aside: &mut Aside,
        channels: &mut Channels,
        snapshot: &Snapshot,
        questions: &[Question],
    ) -> Vec<Known<EngineAnswer>> {
        let asked: Vec<&EngineQuestion> = questions
            .iter()
            .filter_map(|question| if let Question::Engine(asked) = question { Some(asked) } else { None })
            // Whoever asks servers asks what is published, too: see `pings`.
            .filter(|asked| !matches!(asked, EngineQuestion::Ping { .. }))
            .collect();
        if asked.is_empty() {
            return Vec::new();
        }
        let mut said = self.calls(&asked).into_iter();
        let inits = self.first_processes(&asked, snapshot);
        let mut stdin = self.stdin(&asked, &inits, snapshot, aside).into_iter();
        let mut kernel = kernel::Kernel::new(snapshot, channels, aside);
        let mut answers = Vec::with_capacity(asked.len());
        for question in asked {
            answers.push(match question {
                EngineQuestion::Container(_)
                | EngineQuestion::ImageLabels { .. }
                | EngineQuestion::Exec { .. } => said.next().unwrap_or_else(|| Err(misfit())),
                EngineQuestion::Stdin(_) => {
                    stdin.next().unwrap_or_else(|| Err(misfit())).map(EngineAnswer::Stdin)
                }
                EngineQuestion::Ping { .. } => Err(misfit()),
                EngineQuestion::Clients(engine) => match self.clients.get(engine) {
                    Some(client) => kernel.clients(engine, client.kind()).map(EngineAnswer::Clients),
                    None => Err(not_heard(engine)),
                },
                EngineQuestion::Sockets(run) => {
                    let init = inits.get(run).cloned().unwrap_or_else(|| Err(misfit()));
                    init.and_then(|init| kernel.sockets(init, &run.at.id)).map(EngineAnswer::Sockets)
                }
            });
        }
        answers
    }

    /// Makes the calls that questions need, and returns their answers in order.
    fn calls(&mut self, questions: &[&EngineQuestion]) -> Vec<Known<EngineAnswer>> {
        let mut calls = Vec::new();
        let mut places = Vec::new();
        for question in questions {
            let (engine, asked) = match question {
                EngineQuestion::Container(at) => (&at.engine, Asked::Container(at.id.clone())),
                EngineQuestion::ImageLabels { engine, image } => (engine, Asked::Image(image.clone())),
                EngineQuestion::Exec { at, exec } => (&at.engine, Asked::Exec(exec.clone())),
                EngineQuestion::Stdin(_)
                | EngineQuestion::Clients(_)
                | EngineQuestion::Sockets(_)
                | EngineQuestion::Ping { .. } => continue,
            };
            places.push(self.clients.get(engine).map_or_else(
                || Err(not_heard(engine)),
                |client| {
                    calls.push((client.clone(), asked));
                    Ok(*question)
                },
            ));
        }
        let mut said = match asking::ask(calls, &self.env, &mut self.budgets) {
            Ok(said) => said.into_iter(),
            Err(fault) => {
                let why = Unknown::from(fault);
                return places.into_iter().map(|place| place.and(Err(why.clone()))).collect();
            }
        };
        let mut answers = Vec::with_capacity(places.len());
        for place in places {
            answers.push(place.and_then(|question| {
                let said = said.next().unwrap_or(Err(Fault::Hung)).map_err(Unknown::from)?;
                match (question, said) {
                    (EngineQuestion::Container(_), Said::Container(said)) => {
                        let facts = self.facts(*said.ok_or_else(gone)?);
                        Ok(EngineAnswer::Container(Box::new(facts)))
                    }
                    (EngineQuestion::ImageLabels { .. }, Said::Image(labels)) => {
                        Ok(EngineAnswer::ImageLabels(labels))
                    }
                    (EngineQuestion::Exec { at, .. }, Said::Exec(said)) => {
                        exec(said.ok_or_else(gone)?, at).map(EngineAnswer::Exec)
                    }
                    (_, _) => Err(misfit()),
                }
            }));
        }
        answers
    }

    /// Finds the first process of a container, and remembers it.
    fn facts(&mut self, said: Inspected) -> ContainerFacts {
        let Inspected { mut facts, pid } = said;
        let found = init::of_number(pid, &facts.run.at.id);
        if let Ok((id, _)) = found {
            self.inits.insert(facts.run.clone(), id);
        }
        facts.init = found.clone().map(|(id, _)| id);
        facts.began = found.map(|(_, began)| began);
        facts
    }

    /// Returns the first process of each container that is asked about by its run: from memory, else by the cgroups of
    /// everybody, and only where these do not tell by asking the engine.
    fn first_processes(
        &mut self,
        questions: &[&EngineQuestion],
        snapshot: &Snapshot,
    ) -> BTreeMap<ContainerRun, Known<ProcessId>> {
        let lives =
            |id: &ProcessId| snapshot.table.at(id.pid).is_some_and(|row| row.id == *id && !row.is_gone());
        self.inits.retain(|_, id| lives(id));
        let runs: BTreeSet<&ContainerRun> = questions
            .iter()
            .filter_map(|question| match question {
                EngineQuestion::Stdin(run) | EngineQuestion::Sockets(run) => Some(run),
                EngineQuestion::Container(_)
                | EngineQuestion::ImageLabels { .. }
                | EngineQuestion::Clients(_)
                | EngineQuestion::Exec { .. }
                | EngineQuestion::Ping { .. } => None,
            })
            .collect();
        let mut unknown = Vec::new();
        for &run in &runs {
            if self.inits.contains_key(run) {
                continue;
            }
            unknown.push(run);
        }
        if !unknown.is_empty() {
            let ids: Vec<&ContainerId> = unknown.iter().map(|run| &run.at.id).collect();
            let mut firsts = kernel::firsts(&snapshot.table, &ids).into_iter();
            unknown.retain(|run| match firsts.next().flatten() {
                Some(id) => {
                    self.inits.insert((*run).clone(), id);
                    false
                }
                None => true,
            });
        }
        let asked: Vec<EngineQuestion> =
            unknown.iter().map(|run| EngineQuestion::Container(run.at.clone())).collect();
        let said = self.calls(&asked.iter().collect::<Vec<_>>());
        let mut inits: BTreeMap<ContainerRun, Known<ProcessId>> = BTreeMap::new();
        for (run, said) in unknown.into_iter().zip(said) {
            let another = || Unknown::new(Reason::Vanished, "that run of the container");
            let init = said.and_then(|said| {
                let EngineAnswer::Container(facts) = said else { return Err(misfit()) };
                if facts.run == *run { facts.init } else { Err(another()) }
            });
            inits.insert(run.clone(), init);
        }
        for run in runs {
            if let Some(&id) = self.inits.get(run) {
                inits.insert(run.clone(), Ok(id));
            }
        }
        inits
    }
}

/// Adds the gap of an engine that did not answer whole, and returns why.
fn missing(engine: &EngineId, fault: &Fault, gaps: &mut Vec<Gap>) -> Unknown {
    let why = Unknown::from(fault);
    let cure = match fault {
        Fault::Absent => "start the engine, or leave its socket out in [docker] socket",
        Fault::Denied => "join the group that may use the engine (docker), or run reapd as root",
        Fault::Hung => "see whether 'docker ps' answers; it is asked again at the next look",
        Fault::Refused { .. }
        | Fault::Malformed(_)
        | Fault::TooLong
        | Fault::Broken(_)
        | Fault::Starved(_) => "it is asked again at the next look",
    };
    gaps.push(Gap { source: format!("docker at {engine}"), why: why.clone(), cure: Some(cure.into()) });
    why
}

fn not_heard(engine: &EngineId) -> Unknown {
    Unknown::new(Reason::NotAsked, format!("what docker at {engine} says, which did not answer at this look"))
}

fn gone() -> Unknown {
    Unknown::new(Reason::Vanished, "what the engine was asked for")
}

/// Finds the first process of a command in a container.
fn exec(said: ExecInspected, at: &ContainerRef) -> Known<ExecFacts> {
    if said.container != at.id {
        return Err(Unknown::new(Reason::Unsound, "the engine answers for another container"));
    }
    if said.state == ExecState::Rests {
        return Err(Unknown::new(Reason::Vanished, "a command in a container, which does not run"));
    }
    let init = init::of_number(said.pid, &at.id).map(|(id, _)| id);
    Ok(ExecFacts { init, argv: said.argv, stdin: said.stdin, tty: said.tty })
}
