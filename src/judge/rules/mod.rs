//! Every rule: one file each, and one line here.

use std::time::Duration;

use super::rule::{Finding, Rule};

pub mod backend_gone;
pub mod channel_abandoned;
pub mod client_gone;
pub mod clients;
pub mod companion_gone;
pub mod cwd_gone;
pub mod idle;
pub mod lease_expired;
pub mod no_children;
pub mod no_clients;
pub mod older_than;
pub mod owner_gone;
pub mod reaper_gone;
pub mod reparented;
pub mod shares_files;
pub mod socket_unreachable;
pub mod socket_unresponsive;
pub mod stdin_abandoned;
pub mod stdin_ended;
pub mod terminal_gone;
pub mod unhealthy;
pub mod unnamed;

#[cfg(test)]
pub(in crate::judge) mod support;

/// All rules, in the order `reapd rules` shows them: proofs first, then signs.
pub static ALL: &[&Rule] = &[
    &cwd_gone::RULE,
    &owner_gone::RULE,
    &lease_expired::RULE,
    &stdin_abandoned::RULE,
    &channel_abandoned::RULE,
    &socket_unreachable::RULE,
    &backend_gone::RULE,
    &companion_gone::RULE,
    &terminal_gone::RULE,
    &client_gone::RULE,
    &stdin_ended::RULE,
    &no_clients::RULE,
    &unnamed::RULE,
    &socket_unresponsive::RULE,
    &no_children::RULE,
    &idle::RULE,
    &unhealthy::RULE,
    &reaper_gone::RULE,
    &reparented::RULE,
    &older_than::RULE,
    &clients::RULE,
    &shares_files::RULE,
];

/// Returns the rule of this name.
pub(super) fn named(name: &str) -> Option<&'static Rule> {
    ALL.iter().copied().find(|rule| rule.spec.name == name)
}

/// Is the opening comment of a rule's file as text: what the rule says of itself stands once, where its author
/// reads it.
macro_rules! own_opening {
    ($file:literal) => {{
        const SOURCE: &str = include_str!($file);
        const LENGTH: usize = $crate::judge::rules::opening(SOURCE, &mut []);
        const BYTES: [u8; LENGTH] = {
            let mut bytes = [0; LENGTH];
            $crate::judge::rules::opening(SOURCE, &mut bytes);
            bytes
        };
        match std::str::from_utf8(&BYTES) {
            Ok(text) => text,
            Err(_) => "",
        }
    }};
}
use own_opening;

/// Copies the leading `//!` lines of `source`, without their marks, as far as there is room. Returns how long the
/// whole text is.
const fn opening(source: &str, into: &mut [u8]) -> usize {
    let source = source.as_bytes();
    let mut at = 0;
    let mut written = 0;
    while at + 2 < source.len() && source[at] == b'/' && source[at + 1] == b'/' && source[at + 2] == b'!' {
        at += 3;
        if at < source.len() && source[at] == b' ' {
            at += 1;
        }
        let mut ended = false;
        while at < source.len() && !ended {
            if written < into.len() {
                into[written] = source[at];
            }
            ended = source[at] == b'\n';
            written += 1;
            at += 1;
        }
    }
    written
}

/// Returns the same finding, counting only when it has lasted for the span that was set, if one was.
fn lasting(finding: Finding, span: Option<Duration>) -> Finding {
    match span {
        Some(span) => finding.lasting(span),
        None => finding,
    }
}

/// Returns a span for a person, in its two largest units.
pub(in crate::judge) fn span(span: Duration) -> String {
    let seconds = span.as_secs();
    let parts =
        [(seconds / 86400, "d"), (seconds / 3600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let from = parts.iter().position(|(count, _)| *count > 0).unwrap_or(parts.len() - 1);
    let words: Vec<String> = parts[from..]
        .iter()
        .take(2)
        .enumerate()
        .filter(|(at, (count, _))| *at == 0 || *count > 0)
        .map(|(_, (count, unit))| format!("{count}{unit}"))
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::rule::Strength;

    #[test]
    fn every_rule_opens_with_the_whole_template() {
        for rule in ALL {
            let spec = &rule.spec;
            let places: Vec<Option<usize>> = [
                "\n# What it finds\n",
                "\n# Why it is not enough alone\n",
                "\n# When it is wrong\n",
                "\n# Settings\n",
            ]
            .iter()
            .map(|heading| spec.doc.find(heading))
            .collect();
            assert!(places.iter().all(Option::is_some) && places.is_sorted(), "{}: {places:?}", spec.name);
            assert!(!spec.doc.contains("//!"), "{}", spec.name);
            for setting in spec.settings {
                assert!(spec.doc.contains(&format!("`{}`", setting.name)), "{}: {}", spec.name, setting.name);
            }
            if let Some(bare) = spec.bare {
                assert!(spec.settings.iter().any(|setting| setting.name == bare), "{}", spec.name);
            }
        }
    }

    #[test]
    fn spans_show_two_units() {
        for (seconds, text) in
            [(0, "0s"), (59, "59s"), (60, "1m"), (3661, "1h 1m"), (7203, "2h"), (90000, "1d 1h")]
        {
            assert_eq!(span(Duration::from_secs(seconds)), text);
        }
    }

    #[test]
    fn names_are_unique_and_proofs_come_first() {
        let mut names: Vec<&str> = ALL.iter().map(|rule| rule.spec.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), ALL.len());
        assert!(ALL.is_sorted_by_key(|rule| match rule.spec.strength {
            Strength::Proof => 0,
            Strength::Sign => 1,
        }));
    }
}
