//! What a person can do about a container of which nobody can tell, and why a kept one may look leaked.
//!
//! From what is known anyway: nothing is asked for its sake.

use crate::config::policy::StdinReader;
use crate::model::container::judgement::{ContainerJudgement, ContainerLookalike};
use crate::model::container::{Engine, EngineClients, EngineKind};
use crate::model::id::Uid;
use crate::model::question::{Answer, Census, EngineAnswer, EngineQuestion, Question};
use crate::model::verdict::Verdict;

use super::case::ContainerCase;
use super::clients::{Input, Relation, Subject, relation, shown};
use super::is_attached;

/// What is put before a command line so that the next one can be told.
const WRAP: &str = "put `reapd run --` before `docker run`";

/// Returns what would let it be told, where this rule or veto could not tell: who its clients are, and what they do.
/// What is missing of others, nothing here brings.
pub(super) fn cure(case: &ContainerCase<'_>, rule: &str) -> Option<String> {
    ["client-gone", "owner-gone", "named", "exec", "clients", "no-clients"]
        .contains(&rule)
        .then(|| clients_told(case))
}

fn clients_told(case: &ContainerCase<'_>) -> String {
    if is_podman(case.engine) {
        return "put `reapd run --` before `podman run`".to_owned();
    }
    if case.facts.init.is_err() {
        return WRAP.to_owned();
    }
    let mut cures = Vec::new();
    let is_blind = clients(case).is_none_or(|clients| clients.census != Census::Whole);
    let stdin = case.look.answers.get(&Question::Engine(EngineQuestion::Stdin(case.facts.run.clone())));
    let is_unread = !matches!(stdin, Some(Ok(_)));
    if (is_blind || is_unread) && case.look.snapshot.own.uid != Uid::ROOT {
        cures.push("run reapd as root".to_owned());
    }
    if is_unread && case.config.docker.stdin != StdinReader::Helper {
        cures.push("say [docker] stdin = \"helper\"".to_owned());
    }
    if let Some(client) = other(case) {
        cures.push(format!("if process {client} runs containers for nobody, name it in [docker] watchers"));
    }
    cures.push(WRAP.to_owned());
    cures.join("; or ")
}

fn is_podman(engine: &Engine) -> bool {
    matches!(engine.kind, Ok(EngineKind::Podman(_)))
}

fn clients<'a>(case: &ContainerCase<'a>) -> Option<&'a EngineClients> {
    let question = Question::Engine(EngineQuestion::Clients(case.engine.id.clone()));
    match case.look.answers.get(&question) {
        Some(Ok(Answer::Engine(EngineAnswer::Clients(clients)))) => Some(clients),
        _ => None,
    }
}

/// Returns the first client of which nobody can tell what it does at the engine.
fn other(case: &ContainerCase<'_>) -> Option<String> {
    let began = *case.facts.began.as_ref().ok()?;
    let to = Subject { listed: case.listed, facts: case.facts, began };
    let known = case.known_clients().ok()?;
    let found =
        known.iter().find(|known| matches!(relation(case, known, to, Input::Unread), Relation::May(_)))?;
    Some(shown(found.client))
}

/// Returns why a kept container may look leaked.
pub(super) fn lookalike(
    case: &ContainerCase<'_>,
    judgement: &ContainerJudgement,
) -> Option<ContainerLookalike> {
    if !is_attached(case.facts) {
        return (judgement.verdict == Verdict::Unknown).then_some(ContainerLookalike::CannotTell);
    }
    let own = case.facts.began.as_ref().ok().and_then(|began| {
        let to = Subject { listed: case.listed, facts: case.facts, began: *began };
        let is_own = |wanted: fn(&Relation) -> bool| {
            let mut known = case.known_clients().ok()?.into_iter();
            known.find(|known| wanted(&relation(case, known, to, Input::Unread))).map(|known| known.client.id)
        };
        is_own(|relation| matches!(relation, Relation::Own(_)))
            .or_else(|| is_own(|relation| matches!(relation, Relation::MayHaveMade)))
    });
    match own {
        Some(client) => Some(ContainerLookalike::Client(client)),
        None => (judgement.verdict == Verdict::Unknown).then_some(ContainerLookalike::CannotTell),
    }
}
