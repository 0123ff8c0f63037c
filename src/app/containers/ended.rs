//! Tells from the journal what became of containers: for `reapd log`, and for `reapd why` of those that are gone.

use std::fmt::Write as _;

use serde_json::{Value, json};

use crate::app::journal::stopped::StopStory;
use crate::app::legible;
use crate::app::report::containers::{self, report_json};
use crate::app::report::rules_of;
use crate::app::story::{by, by_words, finding};
use crate::app::words::date;
use crate::config::policy::ArgumentsShown;
use crate::model::container::stop::StopStep;

/// Returns one stop as one line.
pub fn line(story: &StopStory<'_>) -> String {
    let judgement = &story.stop.judgement;
    let steps: Vec<String> = story
        .steps
        .iter()
        .map(|(entry, step)| {
            format!("{} {}", step_word(step), date(entry.at).split(' ').next_back().unwrap_or(""))
        })
        .collect();
    let steps = if steps.is_empty() { String::new() } else { format!("   {}", steps.join(", ")) };
    format!(
        "{}   {}   {} {}   {}{steps}   {}",
        date(story.intent.at),
        judgement.policy,
        judgement.at,
        containers::name(&judgement.listed),
        fate(story),
        legible::text(&judgement.because),
    )
}

/// Returns what became of it, in a few words.
fn fate(story: &StopStory<'_>) -> String {
    match story.report {
        Some(report) => containers::outcome_words(&report.outcome),
        None => "begun, and its end is not written down".to_owned(),
    }
}

/// Returns the word for a step.
pub fn step_word(step: &StopStep) -> String {
    match step {
        StopStep::Stop => "stop".to_owned(),
        StopStep::Kill => "kill".to_owned(),
        StopStep::Remove => "remove".to_owned(),
        StopStep::RemoveNetwork(name) => format!("remove network {}", legible::text(name)),
    }
}

/// Returns one stop in full: the evidence, and what happened when.
pub fn told(story: &StopStory<'_>) -> String {
    let judgement = &story.stop.judgement;
    let mut text = format!(
        "{}  {}  {}   {}\n\n{}   {} {}\n",
        judgement.at,
        containers::name(&judgement.listed),
        legible::text(&judgement.listed.image),
        fate(story),
        judgement.policy,
        date(story.intent.at),
        by_words(story.intent),
    );
    for evidence in judgement.lines.iter().flat_map(|line| &line.evidence).chain(&judgement.vetoes) {
        let _ = writeln!(text, "  {}", finding(evidence));
    }
    let said = story.report.map(|report| report.steps.as_slice()).unwrap_or_default();
    for (at, (entry, step)) in story.steps.iter().enumerate() {
        let words = said.get(at).filter(|(said, _)| said == *step).and_then(|(_, words)| words.as_deref());
        let words = words.map(|words| format!("   {}", legible::text(words))).unwrap_or_default();
        let _ = writeln!(text, "  {}   {}{words}", date(entry.at), step_word(step));
    }
    text
}

/// Returns one stop as a program reads it.
pub fn as_json(story: &StopStory<'_>) -> Value {
    let judgement = &story.stop.judgement;
    json!({
        "at": story.intent.at,
        "boot": story.intent.boot.0,
        "sweep": story.intent.sweep,
        "by": by(story.intent),
        "engine": legible::text(&judgement.at.engine.0),
        "id": judgement.at.id.as_str(),
        "name": containers::name(&judgement.listed),
        "image": legible::text(&judgement.listed.image),
        "policy": judgement.policy,
        "argv": legible::argv(&judgement.argv, ArgumentsShown::Redacted),
        "because": legible::text(&judgement.because),
        "rules": rules_of(&judgement.lines),
        "steps": story.steps.iter().map(|(entry, step)| json!({
            "at": entry.at,
            "step": step_word(step),
        })).collect::<Vec<_>>(),
        "outcome": story.report.map(report_json),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::containers::report;
    use crate::app::journal::entry::{By, Entry, Event, VERSION};
    use crate::app::journal::history::History;
    use crate::app::journal::stopped::stops;
    use crate::model::container::sample;
    use crate::model::container::stop::StopOutcome;
    use crate::model::id::BootId;
    use crate::model::moment::Moment;

    fn history(end: Option<StopOutcome>) -> History {
        let entry = |after, event| Entry {
            v: VERSION,
            at: 1_773_500_966_000_u64 + after,
            boot: BootId("b".into()),
            pid_namespace: None,
            sweep: 1,
            clock: Moment(0),
            event,
        };
        let stop = sample::stop(7, "docker-run");
        let steps = vec![(StopStep::Stop, Some("no answer in time".to_owned())), (StopStep::Kill, None)];
        let mut entries = vec![
            entry(0, Event::StopIntent { stop: Box::new(stop.clone()), by: By::Hand }),
            entry(10, Event::StopStep { at: sample::at(7), step: StopStep::Stop }),
            entry(10_000, Event::StopStep { at: sample::at(7), step: StopStep::Kill }),
        ];
        if let Some(end) = end {
            let report = report(&stop, steps, end, (Moment(0), Moment(1)));
            entries.push(entry(11_000, Event::StopOutcome { report: Box::new(report) }));
        }
        History { entries, skipped: 0 }
    }

    #[test]
    fn what_was_stopped_is_told_with_evidence_times_and_the_engines_words() {
        let history = history(Some(StopOutcome::Gone));
        insta::assert_snapshot!(told(&stops(&history)[0]), @r"
        000000000007  helper-7  mcp/sonarqube   gone

        docker-run   2026-03-14 15:09:26Z by hand
          client-gone        PROOF     no process holds the write end of its stdin
          2026-03-14 15:09:26Z   stop   no answer in time
          2026-03-14 15:09:36Z   kill
        ");
    }

    #[test]
    fn one_line_each_in_the_log() {
        let mut lines = Vec::new();
        for end in [None, Some(StopOutcome::Runs("it is still running".into()))] {
            lines.push(line(&stops(&history(end))[0]));
        }
        insta::assert_snapshot!(lines.join("\n"), @r"
        2026-03-14 15:09:26Z   docker-run   000000000007 helper-7   begun, and its end is not written down   stop 15:09:26Z, kill 15:09:36Z   no process holds the write end of its stdin
        2026-03-14 15:09:26Z   docker-run   000000000007 helper-7   runs on: it is still running   stop 15:09:26Z, kill 15:09:36Z   no process holds the write end of its stdin
        ");
    }
}
