//! Weighs the lines of one policy for one tree.

use crate::config::policy::{Condition, Line, ProofNeed};
use crate::model::evidence::{Evidence, Says};
use crate::model::question::Question;
use crate::model::rule::Strength;
use crate::model::verdict::{LineFinding, LineList};

use super::case::Case;
use super::ledger::{LastingKey, fingerprint};
use super::rule::{Blank, Finding, Holds, Settings};
use super::rules;

/// What came of one line: its finding, and the conditions that hold now but count only when they last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Weighed {
    /// The finding.
    pub(super) finding: LineFinding,
    /// Conditions that hold at this look and whose period the ledger must keep.
    pub(super) lasting: Vec<LastingKey>,
}

/// Returns what a line says of a tree, or the questions that must be asked first.
///
/// A line is cut short at the first condition that does not hold, so that live trees cost little; and at the first
/// unknown, since nothing behind it could make the line hold.
pub(super) fn line(
    case: &Case<'_>,
    list: LineList,
    index: usize,
    line: &Line,
) -> Result<Weighed, Vec<Question>> {
    let mut evidence = Vec::new();
    let mut lasting = Vec::new();
    let mut says = Says::Yes;
    for (at, condition) in line.conditions.iter().enumerate() {
        let (seen, lasts) = weigh(case, condition, line, (list, index, at))?;
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
    case: &Case<'_>,
    condition: &Condition,
    line: &Line,
    (list, index, at): (LineList, usize, usize),
) -> Result<(Evidence, Option<LastingKey>), Vec<Question>> {
    let strength = match &line.by_knowledge {
        Some(_) => Strength::Proof,
        None => condition.strength,
    };
    let evidence =
        |says, why, cause| Evidence { rule: condition.rule.to_owned(), strength, says, why, cause };
    let Some(rule) = rules::ALL.iter().find(|rule| rule.spec.name == condition.rule) else {
        return Ok((evidence(Says::Unknown, "this version has no such rule".into(), None), None));
    };
    match (rule.weigh)(case, Settings(&condition.settings)) {
        Ok(Finding { holds: Holds::No, why, .. }) => Ok((evidence(Says::No, why, None), None)),
        Ok(Finding { holds: Holds::Yes, why, cause, lasting: None }) => {
            Ok((evidence(Says::Yes, why, cause), None))
        }
        Ok(Finding { holds: Holds::Yes, why, cause, lasting: Some(span) }) => {
            let now = case.look.snapshot.began.boot;
            let key = LastingKey { list, line: index, condition: at, asked: fingerprint(condition) };
            let since = case.memory.lasting_since(case.root.id, &case.policy.name, key).unwrap_or(now);
            let held = now.since(since);
            let seen = if held >= span {
                evidence(Says::Yes, why, cause)
            } else {
                let why = format!("{why}, for {}s of {}s", held.as_secs(), span.as_secs());
                evidence(Says::No, why, None)
            };
            Ok((seen, Some(key)))
        }
        Err(Blank::Unknown(unknown)) => Ok((evidence(Says::Unknown, unknown.to_string(), None), None)),
        Err(Blank::Ask(questions)) => Err(questions),
    }
}
