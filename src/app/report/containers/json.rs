//! Containers as a program reads them; described in docs/json.md.

use serde_json::{Value, json};

use super::super::json::{findings, verdict, wait_word};
use super::super::{Done, Seen, text};
use super::{exec_json, name};
use crate::app::legible::{argv, capture, legible, text as legible_text};
use crate::config::mode_word;
use crate::config::policy::ArgumentsShown;
use crate::model::container::judgement::ContainerJudgement;
use crate::model::container::stop::{Stop, StopOutcome, StopReport, StopStep};
use crate::model::container::{Engine, EngineKind};
use crate::model::moment::Moment;
use crate::model::plan::Wait;

/// Adds everything that a report says of containers to its document.
pub fn as_json(json: &mut Value, seen: &Seen<'_>, done: &Done<'_>) {
    let now = seen.look.snapshot.began.boot;
    json["engines"] = seen.look.snapshot.engines.iter().map(engine).collect();
    json["containers"] = seen.container_judgements().map(|one| judgement(one, now)).collect();
    json["container_stops"] = seen.stops().map(planned).collect();
    json["containers_waiting"] = seen
        .plan
        .containers
        .waiting
        .iter()
        .filter(|(judgement, _)| seen.wants(&judgement.policy))
        .map(waiting_json)
        .collect();
    json["commands_left"] = seen.left().into_iter().map(|exec| exec_json(exec, now)).collect();
    json["container_reports"] = done.stopped.iter().map(report_json).collect();
}

fn engine(engine: &Engine) -> Value {
    let (kind, version) = match &engine.kind {
        Ok(EngineKind::Docker(version)) => (Some("docker"), Some(version)),
        Ok(EngineKind::Podman(version)) => (Some("podman"), Some(version)),
        Err(_) => (None, None),
    };
    json!({
        "socket": legible_text(&engine.id.0),
        "from": legible_text(&engine.from),
        "kind": kind,
        "version": version.map(|version| legible_text(version)),
        "containers": engine.containers.as_ref().ok().map(Vec::len),
        "unknown": engine.containers.as_ref().err().map(|unknown| legible_text(&unknown.to_string())),
    })
}

/// Returns one judged container.
pub fn judgement(judgement: &ContainerJudgement, now: Moment) -> Value {
    let captures: serde_json::Map<String, Value> = judgement
        .captures
        .iter()
        .map(|(name, value)| (name.clone(), capture(name, value, ArgumentsShown::Redacted).into()))
        .collect();
    let age = judgement.began.as_ref().ok().map(|began| now.since(*began).as_secs());
    let unknown = judgement.run.as_ref().err().map(|unknown| legible_text(&unknown.to_string()));
    json!({
        "engine": legible_text(&judgement.at.engine.0),
        "id": judgement.at.id.as_str(),
        "name": name(&judgement.listed),
        "image": legible_text(&judgement.listed.image),
        "started": judgement.run.as_ref().ok().map(|run| legible_text(&run.started)),
        "unknown": unknown,
        "policy": judgement.policy,
        "mode": mode_word(judgement.mode),
        "argv": argv(&judgement.argv, ArgumentsShown::Redacted),
        "captures": captures,
        "verdict": verdict(&judgement.verdict),
        "because": legible_text(&judgement.because),
        "evidence": findings(&judgement.lines, &judgement.vetoes),
        "processes": judgement.tree.as_ref().ok()
            .map(|tree| tree.iter().map(|id| id.pid.number()).collect::<Vec<_>>()),
        "resident_bytes": judgement.resident,
        "age_seconds": age,
        "lookalike": judgement.lookalike.as_ref().and_then(|why| legible(why, ArgumentsShown::Redacted).ok()),
        "cure": judgement.cure.as_deref().map(legible_text),
    })
}

fn planned(stop: &Stop) -> Value {
    json!({
        "engine": legible_text(&stop.run.at.engine.0),
        "id": stop.run.at.id.as_str(),
        "started": legible_text(&stop.run.started),
        "policy": stop.judgement.policy,
        "grace_ms": u64::try_from(stop.grace.as_millis()).unwrap_or(u64::MAX),
        "removal": stop.removal,
        "volumes": stop.volumes,
        "networks": stop.networks,
    })
}

/// Returns a proven container that waits.
pub fn waiting_json((judgement, why): &(ContainerJudgement, Wait)) -> Value {
    let cause = if let Wait::SameCause(cause) = why { Some(text::cause(cause)) } else { None };
    json!({
        "engine": legible_text(&judgement.at.engine.0),
        "id": judgement.at.id.as_str(),
        "name": name(&judgement.listed),
        "policy": judgement.policy,
        "why": wait_word(why),
        "cause": cause,
    })
}

/// Returns what became of one.
pub fn report_json(report: &StopReport) -> Value {
    let (outcome, detail) = match &report.outcome {
        StopOutcome::Gone => ("gone", None),
        StopOutcome::Left(why) => ("left", Some(why)),
        StopOutcome::Runs(why) => ("runs", Some(why)),
        StopOutcome::Untouched(why) => ("untouched", Some(why)),
        StopOutcome::NotProven(why) => ("not-proven", Some(why)),
    };
    json!({
        "engine": legible_text(&report.at.engine.0),
        "id": report.at.id.as_str(),
        "name": legible_text(&report.name),
        "policy": report.policy,
        "steps": report.steps.iter().map(|(step, words)| json!({
            "step": match step {
                StopStep::Stop => "stop",
                StopStep::Kill => "kill",
                StopStep::Remove => "remove",
                StopStep::RemoveNetwork(_) => "remove-network",
            },
            "network": if let StopStep::RemoveNetwork(name) = step { Some(legible_text(name)) } else { None },
            "said": words.as_deref().map(legible_text),
        })).collect::<Vec<_>>(),
        "outcome": outcome,
        "detail": detail.map(|why| legible_text(why)),
        "resident_bytes": report.resident,
        "took_ms": u64::try_from(report.span.1.since(report.span.0).as_millis()).unwrap_or(u64::MAX),
    })
}
