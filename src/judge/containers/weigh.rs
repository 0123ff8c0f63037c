//! Weighs the lines of one policy for one container.

use crate::config::policy::{Condition, Line};
use crate::judge::ledger::LastingKey;
use crate::judge::rule::Settings;
use crate::judge::rules;
use crate::judge::served::acts;
use crate::judge::weigh::{Halt, Seen, Weighed, conditions, missing, seen};
use crate::model::question::Question;
use crate::model::verdict::LineList;

use super::case::ContainerCase;

/// Returns what a line says of a container, or the questions that must be asked first.
pub(super) fn line(
    case: &ContainerCase<'_>,
    list: LineList,
    index: usize,
    line: &Line,
) -> Result<Weighed, Halt> {
    let weigh = |condition: &Condition, key| weigh(case, condition, key);
    conditions((list, index), line, case.policy.proof, weigh, |questions| questions.iter().any(acts))
}

fn weigh(case: &ContainerCase<'_>, condition: &Condition, key: LastingKey) -> Result<Seen, Vec<Question>> {
    let strength = condition.strength;
    let Some(rule) = rules::named(condition.rule).and_then(|rule| rule.weigh_container) else {
        return Ok((missing(condition, strength, "this version has no such rule for containers"), None));
    };
    let since = || case.memory.container_lasting_since(&case.facts.run, &case.policy.name, key);
    let found = rule(case, Settings(&condition.settings));
    seen(condition, strength, found, (key, case.look.snapshot.began.boot), since)
}
