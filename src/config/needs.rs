//! What a rule needs to be told, and what it takes.

use std::ops::Range;
use std::time::Duration;

use crate::model::rule::{Need, RuleSpec, SettingSpec};

use super::read::{Node, Reader};

/// More times of anything would never be over.
pub(super) const MOST_TIMES: u64 = 20;

/// Reads how long to wait between two of something: with less than a second they would be one.
pub(super) fn pause(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<Duration> {
    let span = reader.duration(node)?;
    if span < Duration::from_secs(1) {
        reader.fault(node.span(), "at least a second belongs here").hint("for example \"30s\"");
        return None;
    }
    Some(span)
}

pub(super) fn bare_truth(
    reader: &mut Reader<'_>,
    rule: &RuleSpec,
    node: &Node<'_>,
    truth: bool,
) -> Option<()> {
    if !truth {
        reader
            .fault(node.span(), format!("`{} = false` says nothing", rule.name))
            .hint("leave the condition out; a rule cannot be turned round");
        return None;
    }
    require(reader, rule, node.span(), |_| false)
}

/// Faults the first setting that must be given and is not, alone or beside one that is.
pub(super) fn require(
    reader: &mut Reader<'_>,
    rule: &RuleSpec,
    span: Range<usize>,
    given: impl Fn(&str) -> bool,
) -> Option<()> {
    let wanted = |spec: &&SettingSpec| match spec.need {
        Need::Required => true,
        Need::Optional => false,
        Need::With(other) => given(other),
    };
    let missing = rule.settings.iter().filter(wanted).find(|spec| !given(spec.name));
    let Some(missing) = missing else { return Some(()) };
    let who = match missing.need {
        Need::Required | Need::Optional => rule.name,
        Need::With(other) => other,
    };
    reader
        .fault(span, format!("`{who}` needs `{}`", missing.name))
        .hint(format!("{}: {}", missing.name, missing.doc));
    None
}

pub(super) fn known_settings<'r>(rule: &str, settings: impl Iterator<Item = &'r SettingSpec>) -> String {
    let names: Vec<_> = settings.map(|spec| spec.name).collect();
    if names.is_empty() {
        return format!("write `{rule} = true`");
    }
    format!("settings of `{rule}`: {}", names.join(", "))
}
