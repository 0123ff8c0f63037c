//! What the standard inputs of containers are: descriptor 0 of their first processes.

use std::collections::{BTreeMap, BTreeSet};

use super::{Engines, reader};
use crate::config::policy::StdinReader;
use crate::model::container::{ContainerRun, EngineId};
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::Snapshot;
use crate::model::question::{Answer, Channel, EngineQuestion, Question};
use crate::observe::aside::{Aside, Reply, Request};
use crate::observe::misfit;

impl Engines {
    /// Returns what the standard input of containers is, for each such question.
    pub(super) fn stdin(
        &self,
        questions: &[&EngineQuestion],
        inits: &BTreeMap<ContainerRun, Known<ProcessId>>,
        snapshot: &Snapshot,
        aside: &mut Aside,
    ) -> Vec<Known<Channel>> {
        let reader = self.setup.as_ref().map_or(StdinReader::Off, |setup| setup.docker.stdin);
        let runs: Vec<&ContainerRun> = questions
            .iter()
            .filter_map(|question| if let EngineQuestion::Stdin(run) = question { Some(run) } else { None })
            .collect();
        if reader == StdinReader::Off {
            let why = Unknown::new(Reason::NotAsked, "its standard input, by [docker] stdin");
            return runs.iter().map(|_| Err(why.clone())).collect();
        }
        let found: Vec<(&ContainerRun, Known<ProcessId>)> =
            runs.iter().map(|&run| (run, inits.get(run).cloned().unwrap_or_else(|| Err(misfit())))).collect();
        let known = found.iter().filter_map(|(_, init)| init.as_ref().ok());
        let requests: Vec<Request> = known.map(|&of| Request::Ask(Question::Channel { of, fd: 0 })).collect();
        let mut replies = aside.ask(&requests).into_iter();
        let mut answers = Vec::with_capacity(found.len());
        let mut refused: BTreeMap<&EngineId, BTreeSet<ProcessId>> = BTreeMap::new();
        for (run, init) in &found {
            let answer = init.clone().and_then(|of| {
                let reply = replies.next().unwrap_or_else(|| Err(misfit()));
                let answer = reply.and_then(Reply::answer);
                if matches!(answer, Err(Unknown { reason: Reason::Denied, .. })) {
                    refused.entry(&run.at.engine).or_default().insert(of);
                }
                let Answer::Channel(channel) = answer? else { return Err(misfit()) };
                Ok(channel)
            });
            answers.push(answer);
        }
        if reader == StdinReader::Helper {
            for (engine, asked) in refused {
                let Some(mut said) = self.read_by_container(engine, &asked, snapshot) else { continue };
                for ((run, init), answer) in found.iter().zip(&mut answers) {
                    let is_its = &run.at.engine == engine && answer.is_err();
                    if let Some(channel) =
                        init.as_ref().ok().filter(|_| is_its).and_then(|of| said.remove(of))
                    {
                        *answer = channel;
                    }
                }
            }
        }
        answers
    }

    /// Asks for standard inputs in a container of an image that is there for sure: one of those that run.
    fn read_by_container(
        &self,
        engine: &EngineId,
        asked: &BTreeSet<ProcessId>,
        snapshot: &Snapshot,
    ) -> Option<BTreeMap<ProcessId, Known<Channel>>> {
        let client = self.clients.get(engine)?;
        let engine = snapshot.engines.iter().find(|other| &other.id == engine)?;
        let image = engine.containers.as_ref().ok()?.first()?.image_id.clone();
        Some(reader::read(client, &image, &self.program, asked))
    }
}
