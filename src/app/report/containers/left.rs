//! Commands that were left behind inside containers, as a screen and as a document: they are told, and never go.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::super::text::{padded, widths};
use super::super::{Detail, Seen, few};
use super::name;
use super::text::heading;
use crate::app::legible::{argv, text as legible_text};
use crate::app::out::{Colour, Paint};
use crate::app::words::{age, count, number, size};
use crate::config::policy::{ArgumentsShown, ExecReport};
use crate::model::container::leftover::{ExecFate, ExecJudgement};
use crate::model::moment::Moment;

impl<'a> Seen<'a> {
    /// Returns the commands that were left behind, where they were asked for.
    pub(super) fn left(&self) -> Vec<&'a ExecJudgement> {
        let wanted = self.wants(ExecReport::NAME);
        let is_left = |exec: &&ExecJudgement| wanted && exec.fate == ExecFate::LeftBehind;
        self.verdicts.execs.iter().filter(is_left).collect()
    }
}

/// Returns the commands that were left behind, as a screen; nothing where there are none.
pub fn left(seen: &Seen<'_>, colour: Colour) -> String {
    let all = seen.left();
    let mut text = String::new();
    if all.is_empty() {
        return text;
    }
    let containers = all.iter().map(|exec| &exec.at).collect::<BTreeSet<_>>().len();
    let resident: u64 = all.iter().map(|exec| exec.resident).sum();
    let rest = format!(
        "{} left behind in {}   {}   nothing ends these",
        count(all.len(), "command", "commands"),
        count(containers, "container", "containers"),
        size(resident)
    );
    heading(&mut text, colour, Paint::Keep, "ONLY TOLD", &rest);
    let _ =
        writeln!(text, "  {}   the client of `docker exec` is gone, and its input ended", ExecReport::NAME);
    let shown = if seen.detail == Detail::All { all.len() } else { few(seen.detail, all.len()) };
    let now = seen.look.snapshot.began.boot;
    let rows: Vec<Vec<String>> = all[..shown].iter().map(|exec| row(exec, now)).collect();
    let widths = widths(&rows);
    for (row, exec) in rows.iter().zip(&all) {
        let _ = writeln!(text, "    {}   {}", padded(row, &widths), command(exec));
    }
    if all.len() > shown {
        let _ = writeln!(text, "    … {} more (--all)", number(all.len() - shown));
    }
    text
}

fn row(exec: &ExecJudgement, now: Moment) -> Vec<String> {
    vec![
        exec.at.to_string(),
        name(&exec.listed),
        exec.init.as_ref().map_or_else(|_| "?".to_owned(), |init| init.pid.to_string()),
        exec.began.as_ref().map_or_else(|_| "?".to_owned(), |began| age(now.since(*began))),
        count(exec.tree.len(), "process", "processes"),
        size(exec.resident),
    ]
}

/// Returns what a command runs, in one line.
fn command(exec: &ExecJudgement) -> String {
    argv(&exec.argv, ArgumentsShown::Redacted).join(" ")
}

/// Returns what was seen of each command inside a container, for `reapd why`; nothing where none was looked at.
pub fn seen_of(execs: &[&ExecJudgement], about: &str) -> String {
    let mut text = String::new();
    if execs.is_empty() {
        return text;
    }
    let _ = writeln!(text, "\n{}   {}", ExecReport::NAME, legible_text(about));
    for exec in execs {
        let fate = match exec.fate {
            ExecFate::LeftBehind => "left behind",
            ExecFate::Used => "used",
            ExecFate::CannotTell => "could not tell",
        };
        let who = exec.init.as_ref().map_or_else(|_| String::new(), |init| format!("process {init}   "));
        let _ = writeln!(text, "  {who}{}", command(exec));
        let _ = writeln!(text, "    {fate}: {}", legible_text(&exec.because));
    }
    text
}

/// Returns one command inside a container.
pub fn exec_json(exec: &ExecJudgement, now: Moment) -> Value {
    json!({
        "engine": legible_text(&exec.at.engine.0),
        "id": exec.at.id.as_str(),
        "name": name(&exec.listed),
        "image": legible_text(&exec.listed.image),
        "exec": legible_text(&exec.exec),
        "argv": argv(&exec.argv, ArgumentsShown::Redacted),
        "pid": exec.init.as_ref().ok().map(|init| init.pid.number()),
        "start": exec.init.as_ref().ok().map(|init| init.start.0),
        "processes": exec.tree.iter().map(|id| id.pid.number()).collect::<Vec<_>>(),
        "resident_bytes": exec.resident,
        "age_seconds": exec.began.as_ref().ok().map(|began| now.since(*began).as_secs()),
        "fate": exec.fate,
        "because": legible_text(&exec.because),
    })
}
