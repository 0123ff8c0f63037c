//! One container before one policy: everything a rule may look at.

use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bstr::{BStr, BString};

use crate::config::policy::{Config, ContainerPolicy, Template};
use crate::judge::case::misfit;
use crate::judge::ledger::Ledger;
use crate::judge::rule::{Blank, Found};
use crate::judge::served;
use crate::model::container::{
    ContainerFacts, ContainerRef, ContainerSockets, Engine, EngineClients, Listed,
};
use crate::model::docker_command::DockerCommand;
use crate::model::id::ProcessId;
use crate::model::known::{Reason, Unknown};
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::question::{
    Answer, Call, Channel, EngineAnswer, EngineQuestion, PathAnswer, Pinged, Question,
};

use super::clients::{Known, command_of};

/// What is found out of all clients of one engine at one look: once, though every container needs it.
#[derive(Debug, Default)]
pub(in crate::judge) struct Crowd {
    /// What the command line of each client says, in their order.
    commands: OnceCell<Vec<DockerCommand>>,
    /// Those that containers other than the one in question need, see [`super::assignment`].
    pub(super) needed: OnceCell<Found<BTreeSet<ProcessId>>>,
}

/// One container before one policy.
#[derive(Debug, Clone, Copy)]
pub struct ContainerCase<'a> {
    /// What was seen at this look.
    pub look: &'a Look,
    /// What was seen at earlier looks.
    pub memory: &'a Ledger,
    /// The configuration.
    pub config: &'a Config,
    /// The policy.
    pub policy: &'a ContainerPolicy,
    /// Its engine.
    pub engine: &'a Engine,
    /// What the list says of it.
    pub listed: &'a Listed,
    /// What the engine says of it alone: at this look, or remembered from an earlier one of the same run.
    pub facts: &'a ContainerFacts,
    /// The policy's captures, as far as they could be filled.
    pub captures: &'a BTreeMap<String, BString>,
    /// What was found out of all clients of its engine at this look.
    pub(super) crowd: &'a Crowd,
}

impl<'a> ContainerCase<'a> {
    /// Returns which container it is.
    pub fn at(&self) -> ContainerRef {
        ContainerRef { engine: self.engine.id.clone(), id: self.listed.id.clone() }
    }

    /// Returns who is connected to its engine.
    pub fn clients(&self) -> Found<&'a EngineClients> {
        let question = EngineQuestion::Clients(self.engine.id.clone());
        let EngineAnswer::Clients(clients) = self.engine_says(question)? else { return Err(misfit()) };
        Ok(clients)
    }

    /// Returns the same, each with its command line read.
    pub(in crate::judge) fn known_clients(&self) -> Found<Vec<Known<'a>>> {
        let clients = &self.clients()?.clients;
        let commands = self.crowd.commands.get_or_init(|| clients.iter().map(command_of).collect());
        Ok(clients.iter().zip(commands).map(|(client, command)| Known { client, command }).collect())
    }

    /// Returns its standard input.
    pub fn stdin(&self) -> Found<&'a Channel> {
        let question = EngineQuestion::Stdin(self.facts.run.clone());
        let EngineAnswer::Stdin(channel) = self.engine_says(question)? else { return Err(misfit()) };
        Ok(channel)
    }

    /// Returns who uses it through its network.
    pub fn sockets(&self) -> Found<&'a ContainerSockets> {
        let question = EngineQuestion::Sockets(self.facts.run.clone());
        let EngineAnswer::Sockets(sockets) = self.engine_says(question)? else { return Err(misfit()) };
        Ok(sockets)
    }

    /// Returns when this run of it began.
    pub fn began(&self) -> Found<Moment> {
        self.facts.began.clone().map_err(Blank::Unknown)
    }

    /// Returns a label that it was given itself. One that its image gives to every container says nothing of this one
    /// (REDTEAM S5).
    pub fn own_label(&self, key: &str) -> Found<Option<&'a str>> {
        let Some(value) = self.facts.labels.get(key) else { return Ok(None) };
        let question = EngineQuestion::ImageLabels {
            engine: self.engine.id.clone(),
            image: self.facts.image_id.clone(),
        };
        let EngineAnswer::ImageLabels(images) = self.engine_says(question)? else { return Err(misfit()) };
        Ok((images.get(key) != Some(value)).then_some(value.as_str()))
    }

    /// Returns what is at an absolute path of the host, as reapd itself means it.
    pub fn path(&self, path: &BStr) -> Found<&'a PathAnswer> {
        if !path.starts_with(b"/") {
            return Err(Unknown::new(Reason::Unsupported, format!("'{path}' is not an absolute path")).into());
        }
        let of = own(self.look)?;
        let Answer::Path(path) = self.answer(Question::Path { of, path: path.to_owned() })? else {
            return Err(misfit());
        };
        Ok(path)
    }

    /// Returns a template filled in, or nothing where one of its captures is empty for this container.
    pub fn fill(&self, template: &Template) -> Option<BString> {
        template.fill(|name| self.captures.get(name).map(|value| value.as_slice()))
    }

    /// Returns what the policy's ping says, filled in.
    pub(in crate::judge) fn call(&self) -> Found<Call> {
        let Some(ping) = &self.policy.ping else {
            return Err(Unknown::new(Reason::NotAsked, "what to say to it: its policy has no ping").into());
        };
        served::call(&ping.talk, |template| {
            self.fill(template).ok_or_else(|| {
                Unknown::new(Reason::NotAsked, format!("what '{}' is for it", template.text)).into()
            })
        })
    }

    /// Returns what came of asking it for as long as `patience` at an address of this machine that leads to its port
    /// `inside`.
    pub(in crate::judge) fn pinged(
        &self,
        (address, inside): (&str, u16),
        tree: &[ProcessId],
        patience: Duration,
    ) -> Found<&'a Pinged> {
        let question = EngineQuestion::Ping {
            run: self.facts.run.clone(),
            policy: self.policy.name.clone(),
            call: self.call()?,
            address: address.to_owned(),
            inside,
            tree: tree.to_vec(),
            patience: u64::try_from(patience.as_millis()).unwrap_or(u64::MAX),
        };
        let EngineAnswer::Pinged(pinged) = self.engine_says(question)? else { return Err(misfit()) };
        Ok(pinged)
    }

    /// Returns what came back for a question to the engine, or about it.
    pub fn engine_says(&self, question: EngineQuestion) -> Found<&'a EngineAnswer> {
        let Answer::Engine(answer) = self.answer(Question::Engine(question))? else { return Err(misfit()) };
        Ok(answer)
    }

    pub(in crate::judge) fn answer(&self, question: Question) -> Found<&'a Answer> {
        match self.look.answers.get(&question) {
            None => Err(Blank::Ask(vec![question])),
            Some(Ok(answer)) => Ok(answer),
            Some(Err(unknown)) => Err(Blank::Unknown(unknown.clone())),
        }
    }
}

/// Returns the looking process itself: paths of the host are asked as it means them.
pub(in crate::judge) fn own(look: &Look) -> Found<ProcessId> {
    let row = look.snapshot.table.at(look.snapshot.own.pid);
    row.map(|row| row.id)
        .ok_or_else(|| Unknown::new(Reason::NoRecord, "which process reapd itself is").into())
}
