//! Tells from the journal what became of trees: for `reapd log`, and for `reapd why` of the dead.

use std::fmt::Write as _;

use serde_json::{Value, json};

use super::containers::ended;
use super::exit::Exit;
use super::journal::entry::{By, Entry, Event};
use super::journal::history::{self, History, Story, clearings, stories};
use super::journal::stopped::stops;
use super::legible;
use super::place::state_trouble;
use super::report::json::{SCHEMA, outcome as outcome_json};
use super::report::{behind, deciding, short_name};
use super::session::Session;
use super::trouble::Trouble;
use super::words::{count, date, homely};
use crate::config::policy::ArgumentsShown;
use crate::model::evidence::{Evidence, Says};
use crate::model::id::ProcessId;
use crate::model::moment::Moment;
use crate::model::outcome::{Closure, Outcome, Report};
use crate::model::plan::Signal;
use crate::model::rule::Strength;
use crate::observe;

/// Runs `reapd log`.
pub fn log(session: &mut Session, newest: usize) -> Result<Exit, Trouble> {
    let history = remembered(session)?;
    let stories = stories(&history);
    let shown = &stories[stories.len().saturating_sub(newest)..];
    let clearings = clearings(&history);
    let cleared = &clearings[clearings.len().saturating_sub(newest)..];
    let stops = stops(&history);
    let stopped = &stops[stops.len().saturating_sub(newest)..];
    if session.place.json {
        let teardowns: Vec<Value> = shown.iter().map(as_json).collect();
        let removed: Vec<Value> = cleared.iter().map(|one| behind::clearing_json(one)).collect();
        session.json(&json!({
            "schema": SCHEMA,
            "teardowns": teardowns,
            "residue": removed,
            "containers": stopped.iter().map(ended::as_json).collect::<Vec<_>>(),
            "skipped": history.skipped,
        }));
        return Ok(Exit::Done);
    }
    if shown.is_empty() && cleared.is_empty() && stopped.is_empty() {
        session.out.talk("Nothing was torn down.");
    }
    let mut lines: Vec<(u64, String)> = shown.iter().map(|story| (story.intent.at, line(story))).collect();
    lines.extend(stopped.iter().map(|story| (story.intent.at, ended::line(story))));
    lines.extend(cleared.iter().map(|one| (one.intent.at, behind::line(one))));
    // Each sort is in its order, and of one moment the tree comes first.
    lines.sort_by_key(|(at, _)| *at);
    for (_, line) in lines {
        session.out.line(&homely(&line, session.around.home_text()));
    }
    if history.skipped > 0 {
        let lines = count(history.skipped, "line", "lines");
        session.out.talk(&format!("{lines} of the journal could not be read and were skipped."));
    }
    Ok(Exit::Done)
}

/// Returns what the journal still has to tell, as long as the configuration wants it remembered.
pub fn remembered(session: &Session) -> Result<History, Trouble> {
    let keep = session.configuration()?.config.journal.keep;
    let since = observe::clocks().wall.saturating_sub(u64::try_from(keep.as_millis()).unwrap_or(u64::MAX));
    match session.around.existing_state(&session.place)? {
        None => Ok(History::default()),
        Some(state) => history::read(&state, since).map_err(|error| state_trouble(&error)),
    }
}

/// Returns one teardown as one line.
fn line(story: &Story<'_>) -> String {
    let judgement = &story.teardown.judgement;
    let signals: Vec<String> = rungs(story)
        .map(|(at, signal, _)| format!("{} {}", signal.name(), date(at).split(' ').next_back().unwrap_or("")))
        .collect();
    let signals = if signals.is_empty() { String::new() } else { format!("   {}", signals.join(", ")) };
    format!(
        "{}   {}   {} {}   {}{signals}   {}",
        date(story.intent.at),
        judgement.policy,
        judgement.root,
        short_name(&judgement.argv),
        fate(story),
        legible::text(&judgement.because),
    )
}

/// Returns when each kind of signal first went out, with whom it went to until the next kind did. A rung has several
/// goes: the root first, the others after it, and whoever was born meanwhile.
fn rungs<'a>(story: &Story<'a>) -> impl Iterator<Item = (u64, Signal, Vec<ProcessId>)> + use<'a> {
    let mut rungs: Vec<(u64, Signal, Vec<ProcessId>)> = Vec::new();
    for entry in &story.events {
        let Event::Signalled { signal, to, .. } = &entry.event else { continue };
        match rungs.last_mut() {
            Some((_, last, whom)) if last == signal => whom.extend(to),
            Some(_) | None => rungs.push((entry.at, *signal, to.clone())),
        }
    }
    rungs.into_iter()
}

fn whom(ids: &[ProcessId]) -> String {
    if ids.len() > 4 {
        return count(ids.len(), "process", "processes");
    }
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
}

/// Returns what became of a tree, in a few words.
fn fate(story: &Story<'_>) -> String {
    match end(story) {
        End::Report(report) => outcome(report),
        End::Abandoned(why) => format!("cut short: {}", legible::text(why)),
        End::Open => "begun, and its end is not written down".to_owned(),
    }
}

enum End<'a> {
    Report(&'a Report),
    Abandoned(&'a str),
    Open,
}

fn end<'a>(story: &Story<'a>) -> End<'a> {
    story
        .events
        .iter()
        .rev()
        .find_map(|entry| match &entry.event {
            Event::Outcome { report } => Some(End::Report(report)),
            Event::Abandoned { why, .. } => Some(End::Abandoned(why)),
            Event::Intent { .. }
            | Event::Signalled { .. }
            | Event::GroupKilled { .. }
            | Event::ResidueIntent { .. }
            | Event::ResidueOutcome { .. }
            | Event::StopIntent { .. }
            | Event::StopStep { .. }
            | Event::StopOutcome { .. }
            | Event::SeenGone { .. } => None,
        })
        .unwrap_or(End::Open)
}

fn outcome(report: &Report) -> String {
    let all = report.members.len();
    let left = report
        .members
        .iter()
        .filter(|member| matches!(member.outcome, Outcome::Survived(_) | Outcome::Denied))
        .count();
    match report.closure {
        Closure::Gone => format!("gone, {} of {}", all - left, count(all, "process", "processes")),
        Closure::Survivors => format!("{left} of {} survived", count(all, "process", "processes")),
        Closure::NotProven => "not proven gone".to_owned(),
        Closure::Untouched => {
            format!(
                "left alone: {}",
                legible::text(report.stood_down.as_deref().unwrap_or("nothing was signalled"))
            )
        }
    }
}

/// Returns one teardown in full: the evidence, and what happened when.
pub fn told(story: &Story<'_>) -> String {
    let judgement = &story.teardown.judgement;
    let by = by_words(story.intent);
    let mut text = format!(
        "{}  {}   {}\n\n{}   {} {by}\n",
        judgement.root,
        legible::argv(&judgement.argv, ArgumentsShown::Redacted).join(" "),
        fate(story),
        judgement.policy,
        date(story.intent.at),
    );
    for evidence in judgement.lines.iter().flat_map(|line| &line.evidence).chain(&judgement.vetoes) {
        let _ = writeln!(text, "  {}", finding(evidence));
    }
    for (at, signal, ids) in rungs(story) {
        let _ = writeln!(text, "  {}   {} to {}", date(at), signal.name(), whom(&ids));
    }
    let end = end(story);
    if !matches!(end, End::Report(_)) {
        for entry in &story.events {
            if let Event::SeenGone { ids, .. } = &entry.event {
                let _ = writeln!(text, "  {}   seen gone: {}", date(entry.at), whom(ids));
            }
        }
    }
    if let End::Report(report) = end {
        for member in &report.members {
            let signals: Vec<&str> = member.signals.iter().map(|signal| signal.name()).collect();
            let signals = if signals.is_empty() { "no signal".to_owned() } else { signals.join(", ") };
            let end = match &member.outcome {
                Outcome::Exited(_) | Outcome::AlreadyGone => match member.gone {
                    Some(gone) => format!("seen gone {}", date(wall(story.intent, gone))),
                    None => "gone".to_owned(),
                },
                Outcome::IdentityChanged => "the number was somebody else's by then: left alone".to_owned(),
                Outcome::Denied => "the kernel refused the signal".to_owned(),
                Outcome::Survived(state) => format!("survived: {}", legible::text(state)),
            };
            let _ = writeln!(text, "  {} {}   {signals}   {end}", member.id, legible::text(&member.name));
        }
        for spared in &report.spared {
            let _ = writeln!(text, "  {} left alone   {}", spared.id, legible::text(&spared.why));
        }
    }
    text
}

/// Returns at whose word something was begun, in words.
pub fn by_words(intent: &Entry) -> &'static str {
    match by(intent) {
        Some(By::Hand) => "by hand",
        Some(By::Once) => "by a run with --once",
        Some(By::Finish) => "at the end of its lease",
        Some(By::Resumed) => "taken up after a crash",
        None => "",
    }
}

/// Returns what one rule saw, as one line.
pub fn finding(evidence: &Evidence) -> String {
    let says = match (evidence.says, evidence.strength) {
        (Says::Yes, Strength::Proof) => "PROOF  ",
        (Says::Yes, Strength::Sign) => "yes    ",
        (Says::No, _) => "no     ",
        (Says::Unknown, _) => "unknown",
    };
    format!("{:<18} {says}   {}", evidence.rule, legible::text(&evidence.why))
}

/// Returns at whose word something was begun.
pub fn by(intent: &Entry) -> Option<By> {
    match &intent.event {
        Event::Intent { by, .. } | Event::StopIntent { by, .. } => Some(*by),
        Event::Signalled { .. }
        | Event::GroupKilled { .. }
        | Event::SeenGone { .. }
        | Event::Outcome { .. }
        | Event::ResidueIntent { .. }
        | Event::ResidueOutcome { .. }
        | Event::StopStep { .. }
        | Event::StopOutcome { .. }
        | Event::Abandoned { .. } => None,
    }
}

/// Returns a moment of the boot clock as wall time, by the pair of clocks in the intent.
fn wall(intent: &Entry, moment: Moment) -> u64 {
    let after = u64::try_from(moment.since(intent.clock).as_millis()).unwrap_or(0);
    intent.at.saturating_add(after)
}

/// Returns one teardown as a program reads it.
pub fn as_json(story: &Story<'_>) -> Value {
    let judgement = &story.teardown.judgement;
    let (outcome, abandoned) = match end(story) {
        End::Report(report) => (Some(outcome_json(report)), None),
        End::Abandoned(why) => (None, Some(legible::text(why))),
        End::Open => (None, None),
    };
    json!({
        "at": story.intent.at,
        "boot": story.intent.boot.0,
        "sweep": story.intent.sweep,
        "by": by(story.intent),
        "root": { "pid": judgement.root.pid.number(), "start": judgement.root.start.0 },
        "policy": judgement.policy,
        "argv": legible::argv(&judgement.argv, ArgumentsShown::Redacted),
        "because": legible::text(&judgement.because),
        "rules": deciding(judgement),
        "members": story.teardown.members.iter().map(|member| member.identity.id.pid.number()).collect::<Vec<_>>(),
        "signals": rungs(story).map(|(at, signal, ids)| json!({
            "at": at,
            "signal": signal.name(),
            "to": ids.iter().map(|id| id.pid.number()).collect::<Vec<_>>(),
        })).collect::<Vec<_>>(),
        "outcome": outcome,
        "abandoned": abandoned,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::journal::entry::VERSION;
    use crate::app::sample;
    use crate::model::id::BootId;
    use crate::model::outcome::MemberOutcome;

    fn entry(at: u64, event: Event) -> Entry {
        Entry {
            v: VERSION,
            at,
            boot: BootId("b".into()),
            pid_namespace: None,
            sweep: 1,
            clock: Moment(1_000_000_000),
            event,
        }
    }

    fn history() -> History {
        let member = |pid, signals: &[Signal], gone| MemberOutcome {
            id: sample::process(pid),
            name: "node".into(),
            signals: signals.to_vec(),
            outcome: Outcome::Exited(Signal::Kill),
            gone: Some(Moment(gone)),
        };
        let report = Report {
            root: sample::process(10),
            policy: "codex-broker".into(),
            stood_down: None,
            members: vec![
                member(10, &[Signal::Term], 3_000_000_000),
                member(11, &[Signal::Term, Signal::Kill], 7_000_000_000),
            ],
            spared: Vec::new(),
            closure: Closure::Gone,
            span: (Moment(0), Moment(1)),
        };
        let intent =
            |pid| Event::Intent { teardown: Box::new(sample::teardown(pid, "codex-broker")), by: By::Hand };
        let at = 1_773_500_966_000;
        let signalled = |at, signal, to: &[i32]| {
            let to = to.iter().map(|&pid| sample::process(pid)).collect();
            entry(at, Event::Signalled { root: sample::process(10), signal, to })
        };
        History {
            entries: vec![
                entry(at, intent(10)),
                signalled(at + 10, Signal::Term, &[10]),
                signalled(at + 1_000, Signal::Term, &[11]),
                signalled(at + 5_000, Signal::Kill, &[11]),
                entry(at + 6_000, Event::Outcome { report: Box::new(report) }),
                entry(at + 7_000, intent(30)),
            ],
            skipped: 0,
        }
    }

    #[test]
    fn the_dead_are_told_of_with_evidence_and_times() {
        let history = history();
        insta::assert_snapshot!(told(&stories(&history)[0]), @r"
        10  node broker.mjs serve --cwd /home/ana/w   gone, 2 of 2 processes

        codex-broker   2026-03-14 15:09:26Z by hand
          cwd-gone           PROOF     /home/ana/w: deleted (held directory has 0 links)
          clients            no        none on /tmp/broker.sock
          2026-03-14 15:09:26Z   TERM to 10, 11
          2026-03-14 15:09:31Z   KILL to 11
          10 node   TERM   seen gone 2026-03-14 15:09:28Z
          11 node   TERM, KILL   seen gone 2026-03-14 15:09:32Z
        ");
    }

    #[test]
    fn of_one_that_was_cut_short_is_told_what_was_done() {
        let mut history = history();
        history.entries.drain(4..);
        let ids = vec![sample::process(10)];
        let gone = Event::SeenGone { root: sample::process(10), ids };
        history.entries.push(entry(1_773_500_967_000, gone));
        let told = told(&stories(&history)[0]);
        assert!(told.contains("2026-03-14 15:09:31Z   KILL to 11"), "{told}");
        assert!(told.contains("2026-03-14 15:09:27Z   seen gone: 10"), "{told}");
        assert_eq!(as_json(&stories(&history)[0])["signals"][1]["to"], json!([11]));
    }

    #[test]
    fn one_line_each_in_the_log() {
        let history = history();
        let lines: Vec<String> = stories(&history).iter().map(line).collect();
        insta::assert_snapshot!(lines.join("\n"), @r"
        2026-03-14 15:09:26Z   codex-broker   10 node broker.mjs   gone, 2 of 2 processes   TERM 15:09:26Z, KILL 15:09:31Z   its workspace was deleted
        2026-03-14 15:09:33Z   codex-broker   30 node broker.mjs   begun, and its end is not written down   its workspace was deleted
        ");
    }
}
