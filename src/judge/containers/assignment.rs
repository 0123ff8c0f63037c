//! Which clients are needed elsewhere: each container whose input is open has one of its own.
//!
//! A `docker run` owns one container. Where every way to give each of the others its client uses one up, that one is not
//! this container's.

use std::collections::{BTreeMap, BTreeSet};

use bstr::ByteSlice as _;

use crate::judge::rule::{Blank, Found};
use crate::model::container::{ContainerRef, EngineClient, Listed};
use crate::model::docker_command::DockerCommand;
use crate::model::id::ProcessId;
use crate::model::question::{ChannelKind, EngineAnswer, EngineQuestion, FarEnd, Question};

use super::case::ContainerCase;
use super::clients::{Input, Relation, Subject, is_made_by_run, may_be_image, relation};
use super::is_attached;

/// Says whether all of these `docker run`s are needed by other containers: each has its own, and none is left for this
/// one. Containers that are not known, or whose input cannot be read, need nobody.
///
/// Nothing of this rests on what was remembered: each container that counts is asked for at this look.
pub(in crate::judge) fn are_needed_elsewhere(
    case: &ContainerCase<'_>,
    clients: &[EngineClient],
    makers: &BTreeSet<ProcessId>,
) -> Found<bool> {
    let runs: Vec<&EngineClient> = clients.iter().filter(|client| is_run(client)).collect();
    let mut needing: Vec<BTreeSet<ProcessId>> = Vec::new();
    let mut asked: Vec<Question> = Vec::new();
    for other in case.engine.containers.as_deref().unwrap_or_default() {
        if other.id == case.listed.id {
            continue;
        }
        match needed(case, clients, &runs, other) {
            Ok(Some(makers)) => needing.push(makers),
            Ok(None) | Err(Blank::Unknown(_)) => {}
            Err(Blank::Ask(questions)) => asked.extend(questions),
        }
    }
    if !asked.is_empty() {
        return Err(Blank::Ask(asked));
    }
    let all: BTreeSet<ProcessId> = runs.iter().map(|client| client.id).collect();
    if needing.is_empty() || !saturates(&needing, &all) {
        return Ok(false);
    }
    Ok(makers.iter().all(|maker| {
        let mut without = all.clone();
        without.remove(maker);
        !saturates(&needing, &without)
    }))
}

fn is_run(client: &EngineClient) -> bool {
    client.argv.as_ref().is_ok_and(|argv| matches!(DockerCommand::of(argv), DockerCommand::Run(_)))
}

/// Returns which `docker run`s may be the one that another container needs; nothing where it need not have one.
fn needed(
    case: &ContainerCase<'_>,
    clients: &[EngineClient],
    runs: &[&EngineClient],
    other: &Listed,
) -> Found<Option<BTreeSet<ProcessId>>> {
    let at = ContainerRef { engine: case.engine.id.clone(), id: other.id.clone() };
    // What the list shows, and what was fixed when it was made, tell of most that nobody here needs to ask for them.
    let is_remembered_otherwise = || {
        let known = case.memory.container(&at, other, case.look, &case.config.scope);
        known.is_some_and(|(facts, _)| !is_attached(&facts))
    };
    if !runs.iter().any(|run| may_be_listed(run, other)) || is_remembered_otherwise() {
        return Ok(None);
    }
    let question = EngineQuestion::Container(at);
    let EngineAnswer::Container(facts) = case.engine_says(question)? else { return Ok(None) };
    if facts.run.at.id != other.id {
        return Ok(None);
    }
    let to = Subject { listed: other, facts, began: facts.began.clone()? };
    if !is_made_by_run(case, to) {
        return Ok(None);
    }
    let EngineAnswer::Stdin(channel) = case.engine_says(EngineQuestion::Stdin(facts.run.clone()))? else {
        return Ok(None);
    };
    let is_open = matches!(channel.kind, ChannelKind::Pipe { .. } | ChannelKind::Stream { .. })
        && channel.far == Ok(FarEnd::Held)
        // An engine that cannot write any more does not notice that the client is gone.
        && channel.unread == Ok(0);
    if !is_open {
        return Ok(None);
    }
    let mut makers = BTreeSet::new();
    for client in clients {
        match relation(case, client, to, Input::Unread) {
            Relation::Not => {}
            Relation::Own(_) | Relation::MayHaveMade if is_run(client) => {
                makers.insert(client.id);
            }
            // Whatever else may be attached to it may be what keeps its input open.
            Relation::Own(_) | Relation::MayHaveMade | Relation::May(_) => return Ok(None),
        }
    }
    // One that nobody could have made is kept open by something else: an engine that was killed and came back.
    Ok((!makers.is_empty()).then_some(makers))
}

/// Says whether a `docker run` may have made a container, by what the list alone shows.
fn may_be_listed(client: &EngineClient, listed: &Listed) -> bool {
    let Ok(argv) = &client.argv else { return true };
    let DockerCommand::Run(options) = DockerCommand::of(argv) else { return true };
    if let Some(Ok(id)) = &client.cidfile
        && options.cidfile.is_some()
    {
        return *id == listed.id;
    }
    may_be_image(options.image.as_bstr(), &listed.image, &listed.image_id)
        && options.labels.iter().all(|(key, value)| {
            let seen = key.to_str().ok().and_then(|key| listed.labels.get(key));
            seen.is_some_and(|seen| value.to_str().map_or(true, |value| seen == value))
        })
}

/// Says whether each of these can have one of the clients to itself (augmenting paths).
fn saturates(needing: &[BTreeSet<ProcessId>], clients: &BTreeSet<ProcessId>) -> bool {
    let mut taken: BTreeMap<ProcessId, usize> = BTreeMap::new();
    (0..needing.len()).all(|who| {
        let mut seen = BTreeSet::new();
        augment(who, needing, clients, &mut taken, &mut seen)
    })
}

fn augment(
    who: usize,
    needing: &[BTreeSet<ProcessId>],
    clients: &BTreeSet<ProcessId>,
    taken: &mut BTreeMap<ProcessId, usize>,
    seen: &mut BTreeSet<ProcessId>,
) -> bool {
    for &client in needing[who].intersection(clients) {
        if !seen.insert(client) {
            continue;
        }
        let is_free = match taken.get(&client).copied() {
            None => true,
            Some(other) => augment(other, needing, clients, taken, seen),
        };
        if is_free {
            taken.insert(client, who);
            return true;
        }
    }
    false
}
