//! The report as a program reads it: `"schema": 1`, described in docs/json.md. Fields are added, never changed.

use serde_json::{Value, json};

use super::{Done, Seen, Stage};
use crate::app::legible::{argv, capture, legible, text};
use crate::app::trouble::Trouble;
use crate::config::mode_word;
use crate::config::policy::ArgumentsShown;
use crate::model::escape::escape;
use crate::model::evidence::Evidence;
use crate::model::id::{Identity, ProcessId};
use crate::model::known::Known;
use crate::model::look::{Gap, Scope};
use crate::model::outcome::{Outcome, Report};
use crate::model::plan::{Teardown, Wait, Waiting};
use crate::model::verdict::{Judgement, LineFinding, LineList, Verdict};

/// The version of everything that `--json` prints.
pub const SCHEMA: u32 = 1;

/// Returns the report of a sweep, with what was done.
pub fn sweep(seen: &Seen<'_>, done: &Done<'_>) -> Value {
    let snapshot = &seen.look.snapshot;
    let trees: Vec<Value> = seen
        .verdicts
        .judgements
        .iter()
        .filter(|judgement| seen.wants(&judgement.policy))
        .map(|judgement| tree(seen, judgement))
        .collect();
    let waiting: Vec<Value> = seen
        .plan
        .waiting
        .iter()
        .filter(|waiting| seen.wants(&waiting.judgement.policy))
        .map(waiting_json)
        .collect();
    let mut json = json!({
        "schema": SCHEMA,
        "version": env!("CARGO_PKG_VERSION"),
        "stage": match seen.stage {
            Stage::DryRun => "dry-run",
            Stage::FirstLook => "first-look",
            Stage::Confirmed => "confirmed",
        },
        "at": snapshot.began.wall,
        "boot": snapshot.boot.0,
        "scope": match snapshot.own.scope {
            Scope::User => "user",
            Scope::Host => "host",
        },
        "user": snapshot.own.uid.0,
        "mode": mode_word(seen.config.mode),
        "processes": seen.processes(),
        "took_ms": u64::try_from(seen.took.as_millis()).unwrap_or(u64::MAX),
        "without_proof": seen.without_proof(),
        "trees": trees,
        "planned": seen.plan.teardowns.iter().filter(|teardown| seen.wants(&teardown.judgement.policy))
            .map(planned).collect::<Vec<_>>(),
        "waiting": waiting,
        "would_add": seen.offers().iter().map(|offer| json!({
            "policy": offer.policy,
            "trees": offer.trees,
            "processes": offer.processes,
            "resident_bytes": offer.resident,
            "because": text(offer.because),
        })).collect::<Vec<_>>(),
        "teardowns": done.reports.iter().map(outcome).collect::<Vec<_>>(),
        "residue": super::behind::as_json(&seen.plan.residue, done.cleared),
        "freed": super::behind::freed_json(done, seen.look),
        "gaps": snapshot.gaps.iter().map(gap).collect::<Vec<_>>(),
    });
    super::containers::as_json(&mut json, seen, done);
    json
}

/// Returns an error for `--json`.
pub fn error(trouble: &Trouble) -> Value {
    json!({
        "schema": SCHEMA,
        "error": { "message": trouble.what, "hint": trouble.hint, "exit": trouble.exit.number() },
    })
}

/// Returns one judged tree.
pub fn tree(seen: &Seen<'_>, judgement: &Judgement) -> Value {
    let age = seen.look.snapshot.began.boot.since(judgement.began);
    let captures: serde_json::Map<String, Value> = judgement
        .captures
        .iter()
        .map(|(name, value)| (name.clone(), capture(name, value, ArgumentsShown::Redacted).into()))
        .collect();
    json!({
        "root": root(judgement.root, &judgement.identity),
        "user": judgement.uid.0,
        "policy": judgement.policy,
        "mode": mode_word(judgement.mode),
        "argv": argv(&judgement.argv, ArgumentsShown::Redacted),
        "captures": captures,
        "verdict": verdict(&judgement.verdict),
        "because": text(&judgement.because),
        "evidence": findings(&judgement.lines, &judgement.vetoes),
        "members": judgement.tree.iter().map(|id| id.pid.number()).collect::<Vec<_>>(),
        "resident_bytes": judgement.resident,
        "age_seconds": age.as_secs(),
        "lookalike": judgement.lookalike.as_ref().and_then(|why| legible(why, ArgumentsShown::Redacted).ok()),
    })
}

fn root(id: ProcessId, identity: &Known<Identity>) -> Value {
    let known = identity.as_ref().ok();
    json!({
        "pid": id.pid.number(),
        "start": id.start.0,
        "boot": known.map(|identity| identity.boot.0.as_str()),
        "uid": known.map(|identity| identity.uid.0),
        "exe": known.and_then(|identity| identity.exe).map(|exe| json!({ "dev": exe.dev, "ino": exe.ino })),
        "unique": known.and_then(|identity| identity.unique),
        "unknown": identity.as_ref().err().map(|unknown| text(&unknown.to_string())),
    })
}

/// Returns the word for a verdict.
pub fn verdict(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Protected => "protected",
        Verdict::Alive => "alive",
        Verdict::Unknown => "unknown",
        Verdict::Suspect { .. } => "suspect",
        Verdict::Orphaned { .. } => "orphaned",
    }
}

/// Returns what each rule and each veto saw.
pub(super) fn findings(lines: &[LineFinding], vetoes: &[Evidence]) -> Vec<Value> {
    let lines = lines.iter().flat_map(|line| {
        let list = match line.list {
            LineList::ReapWhen => "reap-when",
            LineList::SpareWhen => "spare-when",
        };
        line.evidence.iter().map(move |evidence| finding(evidence, list, Some(line.line)))
    });
    lines.chain(vetoes.iter().map(|evidence| finding(evidence, "veto", None))).collect()
}

fn finding(evidence: &Evidence, list: &str, line: Option<usize>) -> Value {
    json!({
        "list": list,
        "line": line,
        "rule": evidence.rule,
        "strength": evidence.strength,
        "says": evidence.says,
        "why": text(&evidence.why),
    })
}

fn planned(teardown: &Teardown) -> Value {
    json!({
        "root": teardown.judgement.root.pid.number(),
        "policy": teardown.judgement.policy,
        "members": teardown.members.iter().map(|member| json!({
            "pid": member.identity.id.pid.number(),
            "start": member.identity.id.start.0,
            "name": text(&member.name),
            "joined": member.joined,
        })).collect::<Vec<_>>(),
        "spared": teardown.spared.iter().map(|spared| json!({
            "pid": spared.id.pid.number(),
            "why": text(&spared.why),
        })).collect::<Vec<_>>(),
        "ladder": teardown.ladder.0.iter().map(|rung| json!({
            "signal": rung.signal.name(),
            "grace_ms": u64::try_from(rung.grace.as_millis()).unwrap_or(u64::MAX),
        })).collect::<Vec<_>>(),
    })
}

/// Returns the word for why something proven waits.
pub(super) fn wait_word(why: &Wait) -> &'static str {
    match why {
        Wait::ReportOnly => "report-only",
        Wait::Pace => "pace",
        Wait::SameCause(_) => "same-cause",
        Wait::TooLarge(_) => "too-large",
        Wait::Unidentified => "unidentified",
        Wait::Successor => "successor",
        Wait::PartOf(_) => "part-of",
    }
}

/// Returns a proven tree that waits.
pub fn waiting_json(waiting: &Waiting) -> Value {
    let cause = match &waiting.why {
        Wait::SameCause(cause) => Some(super::text::cause(cause)),
        Wait::ReportOnly
        | Wait::Pace
        | Wait::TooLarge(_)
        | Wait::Unidentified
        | Wait::Successor
        | Wait::PartOf(_) => None,
    };
    let part_of = match waiting.why {
        Wait::PartOf(root) => Some(root.pid.number()),
        Wait::ReportOnly
        | Wait::Pace
        | Wait::SameCause(_)
        | Wait::TooLarge(_)
        | Wait::Unidentified
        | Wait::Successor => None,
    };
    json!({
        "root": waiting.judgement.root.pid.number(),
        "policy": waiting.judgement.policy,
        "why": wait_word(&waiting.why),
        "cause": cause,
        "part_of": part_of,
    })
}

/// Returns what became of one teardown.
pub fn outcome(report: &Report) -> Value {
    json!({
        "root": report.root.pid.number(),
        "policy": report.policy,
        "closure": report.closure,
        "stood_down": report.stood_down.as_deref().map(text),
        "members": report.members.iter().map(|member| {
            let (outcome, detail) = match &member.outcome {
                Outcome::Exited(signal) => ("exited", Some(signal.name().to_owned())),
                Outcome::AlreadyGone => ("already-gone", None),
                Outcome::IdentityChanged => ("identity-changed", None),
                Outcome::Denied => ("denied", None),
                Outcome::Survived(state) => ("survived", Some(text(state))),
            };
            json!({
                "pid": member.id.pid.number(),
                "start": member.id.start.0,
                "name": text(&member.name),
                "signals": member.signals.iter().map(|signal| signal.name()).collect::<Vec<_>>(),
                "outcome": outcome,
                "detail": detail,
            })
        }).collect::<Vec<_>>(),
        "spared": report.spared.iter().map(|spared| json!({
            "pid": spared.id.pid.number(),
            "why": text(&spared.why),
        })).collect::<Vec<_>>(),
        "took_ms": u64::try_from(report.span.1.since(report.span.0).as_millis()).unwrap_or(u64::MAX),
    })
}

fn gap(gap: &Gap) -> Value {
    json!({
        "source": escape(gap.source.as_bytes()),
        "why": text(&gap.why.to_string()),
        "cure": gap.cure.as_deref().map(text),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::Detail;
    use super::*;
    use crate::app::sample;
    use crate::model::look::Look;
    use crate::model::plan::Plan;
    use crate::model::verdict::Verdicts;

    #[test]
    #[expect(clippy::too_many_lines, reason = "the document is written out whole")]
    fn one_tree_as_a_program_reads_it() {
        let look = Look::new(sample::snapshot(&[]));
        let verdicts = Verdicts { judgements: vec![sample::judgement(10, "p")], ..Verdicts::default() };
        let plan = Plan { teardowns: vec![sample::teardown(10, "p")], ..Plan::default() };
        let seen = Seen {
            look: &look,
            verdicts: &verdicts,
            plan: &plan,
            config: &sample::config(),
            home: None,
            took: Duration::from_millis(41),
            only: None,
            stage: Stage::DryRun,
            detail: Detail::Some,
        };
        let mut json = sweep(&seen, &Done::default());
        json["version"] = "0".into();
        insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap(), @r#"
        {
          "at": 1773500966000,
          "boot": "b",
          "commands_left": [],
          "container_reports": [],
          "container_stops": [],
          "containers": [],
          "containers_waiting": [],
          "engines": [],
          "freed": {
            "disk_bytes": 0,
            "memory_bytes": 0
          },
          "gaps": [],
          "mode": "reap",
          "planned": [
            {
              "ladder": [
                {
                  "grace_ms": 5000,
                  "signal": "TERM"
                },
                {
                  "grace_ms": 3000,
                  "signal": "KILL"
                }
              ],
              "members": [
                {
                  "joined": "root",
                  "name": "node",
                  "pid": 10,
                  "start": 100
                },
                {
                  "joined": "descendant",
                  "name": "node",
                  "pid": 11,
                  "start": 110
                }
              ],
              "policy": "p",
              "root": 10,
              "spared": []
            }
          ],
          "processes": 0,
          "residue": {
            "cleared": [],
            "kept": [],
            "planned": [],
            "waiting": []
          },
          "schema": 1,
          "scope": "user",
          "stage": "dry-run",
          "teardowns": [],
          "took_ms": 41,
          "trees": [
            {
              "age_seconds": 345600,
              "argv": [
                "node",
                "broker.mjs",
                "serve",
                "--cwd",
                "/home/ana/w"
              ],
              "because": "its workspace was deleted",
              "captures": {
                "workspace": "/home/ana/w"
              },
              "evidence": [
                {
                  "line": 0,
                  "list": "reap-when",
                  "rule": "cwd-gone",
                  "says": "yes",
                  "strength": "proof",
                  "why": "/home/ana/w: deleted (held directory has 0 links)"
                },
                {
                  "line": null,
                  "list": "veto",
                  "rule": "clients",
                  "says": "no",
                  "strength": "sign",
                  "why": "none on /tmp/broker.sock"
                }
              ],
              "lookalike": null,
              "members": [
                10,
                11
              ],
              "mode": "reap",
              "policy": "p",
              "resident_bytes": 812000000,
              "root": {
                "boot": "b",
                "exe": {
                  "dev": 1,
                  "ino": 2
                },
                "pid": 10,
                "start": 100,
                "uid": 1000,
                "unique": null,
                "unknown": null
              },
              "user": 1000,
              "verdict": "suspect"
            }
          ],
          "user": 1000,
          "version": "0",
          "waiting": [],
          "without_proof": [],
          "would_add": []
        }
        "#);
    }
}
