//! Which clients are needed elsewhere: each container whose input is open has one of its own.
//!
//! A `docker run` owns one container. Where every way to give each of the others its client uses one up, that one is not
//! this container's.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bstr::ByteSlice as _;

use crate::judge::rule::{Blank, Found};
use crate::model::container::{ContainerRef, Listed};
use crate::model::docker_command::DockerCommand;
use crate::model::id::ProcessId;
use crate::model::question::{ChannelKind, EngineAnswer, EngineQuestion, FarEnd, Question};

use super::case::ContainerCase;
use super::clients::{Input, Known, Relation, Subject, created, is_made_by_run, may_be_image, relation};
use super::is_attached;

/// `docker run` makes its container at once, but for the time that it pulls. What was made later than this after every
/// client that could have made it has none for sure.
const NEAR: Duration = Duration::from_secs(30);

/// Says whether all of these `docker run`s are needed by other containers: each has its own, and none is left for this
/// one, whose input is not open. Containers that are not known, or whose input cannot be read, need nobody.
///
/// Nothing of this rests on what was remembered: each container that counts is asked for at this look.
pub(in crate::judge) fn are_needed_elsewhere(
    case: &ContainerCase<'_>,
    makers: &BTreeSet<ProcessId>,
) -> Found<bool> {
    let known = case.known_clients()?;
    let needed = case.crowd.needed.get_or_init(|| needed_ones(case, &known));
    Ok(makers.is_subset(needed.as_ref().map_err(Clone::clone)?))
}

/// Returns the `docker run`s that are used up in every way to give each container whose input is open one of its own.
fn needed_ones(case: &ContainerCase<'_>, known: &[Known<'_>]) -> Found<BTreeSet<ProcessId>> {
    let runs: Vec<&Known<'_>> = known.iter().filter(|known| is_run(known)).collect();
    let mut needing: Vec<BTreeSet<ProcessId>> = Vec::new();
    let mut asked: Vec<Question> = Vec::new();
    for listed in case.engine.containers.as_deref().unwrap_or_default() {
        match needed(case, known, &runs, listed) {
            Ok(Some(makers)) => needing.push(makers),
            Ok(None) | Err(Blank::Unknown(_)) => {}
            Err(Blank::Ask(questions)) => asked.extend(questions),
        }
    }
    if !asked.is_empty() {
        return Err(Blank::Ask(asked));
    }
    Ok(used_up(&needing))
}

fn is_run(known: &Known<'_>) -> bool {
    matches!(known.command, DockerCommand::Run(_))
}

/// Returns which `docker run`s may be the one that another container needs; nothing where it need not have one.
fn needed(
    case: &ContainerCase<'_>,
    clients: &[Known<'_>],
    runs: &[&Known<'_>],
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
    let made = created(case.look, other.created);
    let mut is_near = false;
    for known in clients {
        match relation(case, known, to, Input::Unread) {
            Relation::Not => {}
            relation @ (Relation::Own(_) | Relation::MayHaveMade) if is_run(known) => {
                makers.insert(known.client.id);
                is_near |= matches!(relation, Relation::Own(_))
                    || made.is_some_and(|made| made <= known.client.began.plus(NEAR));
            }
            // Whatever else may be attached to it may be what keeps its input open.
            Relation::Own(_) | Relation::MayHaveMade | Relation::May(_) => return Ok(None),
        }
    }
    // One that nobody could have made is kept open by something else: an engine that was killed and came back.
    // And one that was made long after each of them was made by `create`, perhaps, and started with nobody attached.
    Ok(is_near.then_some(makers))
}

/// Says whether a `docker run` may have made a container, by what the list alone shows.
fn may_be_listed(known: &Known<'_>, listed: &Listed) -> bool {
    let DockerCommand::Run(options) = &known.command else { return true };
    may_be_image(options.image.as_bstr(), &listed.image, &listed.image_id)
        && options.labels.iter().all(|(key, value)| {
            let seen = key.to_str().ok().and_then(|key| listed.labels.get(key));
            seen.is_some_and(|seen| value.to_str().map_or(true, |value| seen == value))
        })
}

/// Returns the clients that every way to give each of these one to itself uses; none where there is no such way.
fn used_up(needing: &[BTreeSet<ProcessId>]) -> BTreeSet<ProcessId> {
    let mut taken: BTreeMap<ProcessId, usize> = BTreeMap::new();
    for who in 0..needing.len() {
        if !augment(who, needing, &mut taken, &mut BTreeSet::new()) {
            // What is seen contradicts itself: nothing follows from it.
            return BTreeSet::new();
        }
    }
    // One that is free may stand in for another one, which is free then.
    let all: BTreeSet<ProcessId> = needing.iter().flatten().copied().collect();
    let mut free: BTreeSet<ProcessId> = all.iter().copied().filter(|id| !taken.contains_key(id)).collect();
    let mut open: Vec<ProcessId> = free.iter().copied().collect();
    let mine: BTreeMap<usize, ProcessId> = taken.iter().map(|(client, who)| (*who, *client)).collect();
    while let Some(client) = open.pop() {
        for (who, makers) in needing.iter().enumerate() {
            if let Some(&other) = mine.get(&who).filter(|_| makers.contains(&client))
                && free.insert(other)
            {
                open.push(other);
            }
        }
    }
    all.difference(&free).copied().collect()
}

fn augment(
    who: usize,
    needing: &[BTreeSet<ProcessId>],
    taken: &mut BTreeMap<ProcessId, usize>,
    seen: &mut BTreeSet<ProcessId>,
) -> bool {
    for &client in &needing[who] {
        if !seen.insert(client) {
            continue;
        }
        let is_free = match taken.get(&client).copied() {
            None => true,
            Some(other) => augment(other, needing, taken, seen),
        };
        if is_free {
            taken.insert(client, who);
            return true;
        }
    }
    false
}
