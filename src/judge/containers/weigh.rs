//! Weighs the lines of one policy for one container.

use crate::config::policy::{Condition, Line, ProofNeed};
use crate::judge::ledger::{LastingKey, fingerprint};
use crate::judge::rule::{Blank, Finding, Holds, Settings};
use crate::judge::rules;
use crate::judge::served::acts;
use crate::judge::weigh::{Halt, Weighed};
use crate::model::evidence::{Evidence, Says};
use crate::model::question::Question;
use crate::model::rule::Strength;
use crate::model::verdict::{LineFinding, LineList};

use super::case::ContainerCase;

/// Returns what a line says of a container, or the questions that must be asked first.
///
/// It is cut short at the first condition that does not hold, and at the first unknown, since nothing behind it could
/// make the line hold.
pub(super) fn line(
    case: &ContainerCase<'_>,
    list: LineList,
    index: usize,
    line: &Line,
) -> Result<Weighed, Halt> {
    let mut evidence: Vec<Evidence> = Vec::new();
    let mut lasting = Vec::new();
    let mut says = Says::Yes;
    for (at, condition) in line.conditions.iter().enumerate() {
        let key = LastingKey { list, line: index, condition: at, asked: fingerprint(condition) };
        let (seen, lasts) = match weigh(case, condition, key) {
            Ok(weighed) => weighed,
            Err(questions) if questions.iter().any(acts) => {
                let finding = LineFinding { line: index, list, says: Says::Unknown, evidence };
                let so_far = Weighed { finding, lasting };
                let strength = condition.strength;
                return Err(Halt::Act { questions, so_far, rule: condition.rule, strength });
            }
            Err(questions) => return Err(Halt::Ask(questions)),
        };
        lasting.extend(lasts);
        says = seen.says;
        evidence.push(seen);
        if says != Says::Yes {
            break;
        }
    }
    // Configuration refuses such a line; this stands here so that no other way in can make one hold.
    let proven = evidence.iter().any(|seen| seen.strength == Strength::Proof);
    if list == LineList::ReapWhen && says == Says::Yes && !proven && case.policy.proof == ProofNeed::Required
    {
        says = Says::No;
    }
    Ok(Weighed { finding: LineFinding { line: index, list, says, evidence }, lasting })
}

fn weigh(
    case: &ContainerCase<'_>,
    condition: &Condition,
    key: LastingKey,
) -> Result<(Evidence, Option<LastingKey>), Vec<Question>> {
    let evidence = |says, why, cause| Evidence {
        rule: condition.rule.to_owned(),
        strength: condition.strength,
        says,
        why,
        cause,
    };
    let Some(rule) = rules::named(condition.rule).and_then(|rule| rule.weigh_container) else {
        return Ok((
            evidence(Says::Unknown, "this version has no such rule for containers".into(), None),
            None,
        ));
    };
    match rule(case, Settings(&condition.settings)) {
        Ok(Finding { holds: Holds::No, why, .. }) => Ok((evidence(Says::No, why, None), None)),
        Ok(Finding { holds: Holds::Yes, why, cause, lasting: None }) => {
            Ok((evidence(Says::Yes, why, cause), None))
        }
        Ok(Finding { holds: Holds::Yes, why, cause, lasting: Some(span) }) => {
            let now = case.look.snapshot.began.boot;
            let since =
                case.memory.container_lasting_since(&case.facts.run, &case.policy.name, key).unwrap_or(now);
            let held = now.since(since);
            let seen = if held >= span {
                evidence(Says::Yes, format!("{why}, for {}", rules::span(span)), cause)
            } else {
                let why = format!("{why}, for {} of {}", rules::span(held), rules::span(span));
                evidence(Says::No, why, None)
            };
            Ok((seen, Some(key)))
        }
        Err(Blank::Unknown(unknown)) => Ok((evidence(Says::Unknown, unknown.to_string(), None), None)),
        Err(Blank::Ask(questions)) => Err(questions),
    }
}
