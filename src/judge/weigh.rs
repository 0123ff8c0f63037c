//! Weighs the lines of one policy for one tree.

use crate::config::policy::{Condition, Line, Offer, ProofNeed};
use crate::model::evidence::{Evidence, Says};
use crate::model::moment::Moment;
use crate::model::question::Question;
use crate::model::rule::{Clients, Strength};
use crate::model::verdict::{LineFinding, LineList};

use super::case::Case;
use super::ledger::{LastingKey, fingerprint};
use super::rule::{Blank, Finding, Found, Holds, Settings};
use super::rules;
use super::served::acts;

/// What came of one line: its finding, and the conditions that hold now but count only when they last.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Weighed {
    /// The finding.
    pub(super) finding: LineFinding,
    /// Conditions that hold at this look and whose period the ledger must keep.
    pub(super) lasting: Vec<LastingKey>,
}

/// Why a line could not be weighed to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Halt {
    /// These must be asked first.
    Ask(Vec<Question>),
    /// Everything before it holds, and what is left acts: see [`acts`].
    Act {
        /// What would have to be asked.
        questions: Vec<Question>,
        /// What came of the line so far.
        so_far: Weighed,
        /// The rule that asks.
        rule: &'static str,
        /// How strong what it says would be.
        strength: Strength,
    },
}

impl Halt {
    /// Returns what would have to be asked.
    pub(super) fn questions(self) -> Vec<Question> {
        match self {
            Halt::Ask(questions) | Halt::Act { questions, .. } => questions,
        }
    }
}

impl Weighed {
    /// Returns the line with one more finding, which cuts it short.
    pub(super) fn cut(mut self, rule: &str, strength: Strength, says: Says, why: String) -> Weighed {
        self.finding.says = says;
        self.finding.evidence.push(Evidence { rule: rule.to_owned(), strength, says, why, cause: None });
        self
    }
}

/// Says what a line means for whoever is connected, where it holds.
pub(super) fn clients(line: &Line) -> Clients {
    let means = |condition: &Condition| {
        rules::named(condition.rule).map_or(Clients::Served, |rule| rule.spec.clients)
    };
    if line.conditions.iter().any(|condition| means(condition) == Clients::CannotBeServed) {
        Clients::CannotBeServed
    } else {
        Clients::Served
    }
}

/// Returns what a line says of a tree, or the questions that must be asked first.
pub(super) fn line(case: &Case<'_>, list: LineList, index: usize, line: &Line) -> Result<Weighed, Halt> {
    let weigh = |condition: &Condition, key| weigh(case, condition, line, key);
    conditions((list, index), line, case.policy.proof, weigh, |questions| halts(case, questions))
}

/// Weighs the conditions of a line in their order, each by `weigh`; `halts` says which questions are not asked without
/// another thought.
///
/// A line is cut short at the first condition that does not hold, so that live trees cost little; and at the first
/// unknown, since nothing behind it could make the line hold.
pub(super) fn conditions(
    (list, index): (LineList, usize),
    line: &Line,
    proof: ProofNeed,
    mut weigh: impl FnMut(&Condition, LastingKey) -> Result<Seen, Vec<Question>>,
    halts: impl Fn(&[Question]) -> bool,
) -> Result<Weighed, Halt> {
    let mut evidence = Vec::new();
    let mut lasting = Vec::new();
    let mut says = Says::Yes;
    for (at, condition) in line.conditions.iter().enumerate() {
        let key = LastingKey { list, line: index, condition: at, asked: fingerprint(condition) };
        let (seen, lasts) = match weigh(condition, key) {
            Ok(weighed) => weighed,
            Err(questions) if halts(&questions) => {
                let finding = LineFinding { line: index, list, says: Says::Unknown, evidence };
                let so_far = Weighed { finding, lasting };
                let strength = strength(line, condition);
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
    if list == LineList::ReapWhen && says == Says::Yes && !proven && proof == ProofNeed::Required {
        says = Says::No;
    }
    Ok(Weighed { finding: LineFinding { line: index, list, says, evidence }, lasting })
}

/// Says whether these questions are not asked without another thought: one that connects to the server itself, and for
/// what is only offered whatever acts.
fn halts(case: &Case<'_>, questions: &[Question]) -> bool {
    questions.iter().any(|question| match case.policy.offer {
        Offer::Told => acts(question),
        Offer::No => matches!(question, Question::Ping { .. }),
    })
}

/// Returns how strong what a condition says is in its line: where a person wrote down what the line proves, all of it.
fn strength(line: &Line, condition: &Condition) -> Strength {
    match &line.by_knowledge {
        Some(_) => Strength::Proof,
        None => condition.strength,
    }
}

/// What one condition came to, and its key where it holds now and counts only when it lasts.
pub(super) type Seen = (Evidence, Option<LastingKey>);

fn weigh(
    case: &Case<'_>,
    condition: &Condition,
    line: &Line,
    key: LastingKey,
) -> Result<Seen, Vec<Question>> {
    let strength = strength(line, condition);
    let Some(rule) = rules::named(condition.rule).and_then(|rule| rule.weigh) else {
        return Ok((missing(condition, strength, "this version has no such rule"), None));
    };
    let since = || case.memory.lasting_since(case.root.id, &case.policy.name, key);
    seen(
        condition,
        strength,
        rule(case, Settings(&condition.settings)),
        (key, case.look.snapshot.began.boot),
        since,
    )
}

/// Returns what is said of a condition whose rule is not there.
pub(super) fn missing(condition: &Condition, strength: Strength, why: &str) -> Evidence {
    Evidence {
        rule: condition.rule.to_owned(),
        strength,
        says: Says::Unknown,
        why: why.to_owned(),
        cause: None,
    }
}

/// Returns what a finding comes to. `since` says since when it has held at every look.
pub(super) fn seen(
    condition: &Condition,
    strength: Strength,
    found: Found<Finding>,
    (key, now): (LastingKey, Moment),
    since: impl FnOnce() -> Option<Moment>,
) -> Result<Seen, Vec<Question>> {
    let evidence =
        |says, why, cause| Evidence { rule: condition.rule.to_owned(), strength, says, why, cause };
    match found {
        Ok(Finding { holds: Holds::No, why, .. }) => Ok((evidence(Says::No, why, None), None)),
        Ok(Finding { holds: Holds::Yes, why, cause, lasting: None }) => {
            Ok((evidence(Says::Yes, why, cause), None))
        }
        Ok(Finding { holds: Holds::Yes, why, cause, lasting: Some(span) }) => {
            let held = now.since(since().unwrap_or(now));
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

/// Returns what these vetoes say, up to the first that stands; or the questions that must be asked first.
pub(super) fn vetoed(
    all: impl Iterator<Item = (&'static str, Found<Finding>)>,
) -> Result<Vec<Evidence>, Vec<Question>> {
    let mut seen = Vec::new();
    for (name, found) in all {
        let (says, why) = match found {
            Ok(Finding { holds: Holds::Yes, why, .. }) => (Says::Yes, why),
            Ok(Finding { holds: Holds::No, why, .. }) => (Says::No, why),
            Err(Blank::Unknown(unknown)) => (Says::Unknown, unknown.to_string()),
            Err(Blank::Ask(questions)) => return Err(questions),
        };
        seen.push(Evidence { rule: name.into(), strength: Strength::Sign, says, why, cause: None });
        if says != Says::No {
            break;
        }
    }
    Ok(seen)
}
