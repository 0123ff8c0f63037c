//! `reapd lease list`: who holds what, what it covers, and whether it still holds.

use std::time::Duration;

use serde_json::{Value, json};

use super::place;
use crate::app::exit::Exit;
use crate::app::legible::{legible, text};
use crate::app::look::{Eyes, gather};
use crate::app::memory::{self, Remembered};
use crate::app::place::state_trouble;
use crate::app::report::json::SCHEMA;
use crate::app::session::Session;
use crate::app::trouble::Trouble;
use crate::app::words::{age, count};
use crate::config::policy::{ArgumentsShown, Config};
use crate::judge::Ledger;
use crate::judge::leased::{self, Covered, State, covered, state};
use crate::model::escape::escape;
use crate::model::id::ProcessId;
use crate::model::lease::{Bound, Holder, Lease};
use crate::model::look::Look;

/// Runs it.
pub(super) fn list(session: &mut Session) -> Result<Exit, Trouble> {
    let config = session.configuration()?.config;
    let (look, ledger) = look(session, &config)?;
    let seen = Seen { look: &look, ledger: &ledger, config: &config };
    let lines: Vec<Line<'_>> = look.snapshot.leases.list.iter().map(|lease| seen.line(lease)).collect();
    if session.place.json {
        let leases: Vec<Value> = lines.iter().map(|line| seen.json(line)).collect();
        let faulty: Vec<Value> = look
            .snapshot
            .leases
            .faulty
            .iter()
            .map(|faulty| {
                let why = text(&faulty.why.to_string());
                json!({ "id": escape(&faulty.stem), "user": faulty.owner.map(|owner| owner.0), "why": why })
            })
            .collect();
        let directory = place::own(&session.around).path;
        let directory = escape(std::os::unix::ffi::OsStrExt::as_bytes(directory.as_os_str()));
        session.json(&json!({
            "schema": SCHEMA, "directory": directory, "leases": leases, "faulty": faulty,
        }));
        return Ok(Exit::Done);
    }
    if lines.is_empty() && look.snapshot.leases.faulty.is_empty() {
        session.out.talk("There are no leases.");
        return Ok(Exit::Done);
    }
    let mut rows = vec![["ID", "HOLDER", "COVERS", "AGE", "STATE"].map(str::to_owned)];
    rows.extend(lines.iter().map(|line| seen.row(line)));
    rows.extend(look.snapshot.leases.faulty.iter().map(|faulty| {
        let why = format!("could not tell: {}", text(&faulty.why.to_string()));
        [escape(&faulty.stem), String::new(), String::new(), String::new(), why]
    }));
    session.out.data(&columns(&rows));
    Ok(Exit::Done)
}

/// Looks once, with what earlier looks remembered, and remembers nothing.
pub(super) fn look(session: &Session, config: &Config) -> Result<(Look, Ledger), Trouble> {
    let mut ledger = match session.around.existing_state(&session.place)? {
        None => Ledger::default(),
        Some(state) => match memory::ledger(&state).map_err(|error| state_trouble(&error))? {
            Remembered::Ledger(ledger) => *ledger,
            Remembered::Nothing | Remembered::Bad(_) => Ledger::default(),
        },
    };
    let mut eyes = session.observer(config)?;
    let mut look = Look::new(Eyes::table(&mut eyes)?);
    let _ = ledger.begin(&look, &config.confirm);
    gather(&mut eyes, &mut look, questions);
    Ok((look, ledger))
}

/// Returns what must be asked to tell what every lease covers and whether it holds.
pub(super) fn questions(look: &Look) -> Vec<crate::model::question::Question> {
    look.snapshot.leases.list.iter().flat_map(|lease| leased::questions(lease, look)).collect()
}

struct Seen<'a> {
    look: &'a Look,
    ledger: &'a Ledger,
    config: &'a Config,
}

struct Line<'a> {
    lease: &'a Lease,
    covered: Covered,
    state: State,
}

impl<'a> Seen<'a> {
    fn line(&self, lease: &'a Lease) -> Line<'a> {
        let state = state(lease, self.look, self.ledger, &self.config.confirm);
        Line { lease, covered: covered(lease, self.look), state }
    }

    fn row(&self, line: &Line<'_>) -> [String; 5] {
        let covers = match line.covered.all.len() {
            0 => "nothing".to_owned(),
            number => count(number, "process", "processes"),
        };
        [
            line.lease.id.to_string(),
            line.lease.holder.as_ref().map_or_else(|| "-".to_owned(), |holder| self.holder(holder)),
            covers,
            self.age(line.lease).map_or_else(String::new, age),
            text(&said(&line.state)),
        ]
    }

    fn holder(&self, holder: &Holder) -> String {
        match self.name(holder) {
            Some(name) => format!("{} {name}", holder.pid),
            None => format!("{} (gone)", holder.pid),
        }
    }

    /// Returns the name of whoever bears the holder's number and may be it.
    fn name(&self, holder: &Holder) -> Option<String> {
        let row = self.look.snapshot.table.at(holder.pid).filter(|row| !row.is_gone())?;
        let is_other = holder.start.is_some_and(|start| start != row.id.start);
        (!is_other).then(|| escape(row.name()))
    }

    /// Returns how long ago the file was written or touched, by the wall clock, for a person.
    fn age(&self, lease: &Lease) -> Option<Duration> {
        let now = i64::try_from(self.look.snapshot.began.wall).ok()?;
        let millis = now.saturating_sub(lease.file.modified / 1_000_000);
        u64::try_from(millis).ok().map(Duration::from_millis)
    }

    fn json(&self, line: &Line<'_>) -> Value {
        let lease = line.lease;
        let (word, why) = match &line.state {
            State::Held { why } => ("held", why.clone()),
            State::Over { why, .. } => ("over", why.clone()),
            State::Unknown(unknown) => ("unknown", unknown.to_string()),
        };
        let (bound, ttl) = match lease.bound {
            Bound::Holder => ("holder", None),
            Bound::Ttl(span) => ("ttl", Some(span.as_secs())),
        };
        let who = |id: &ProcessId| json!({ "pid": id.pid.number(), "start": id.start.0 });
        let holder = lease.holder.as_ref().map(|holder| {
            json!({ "pid": holder.pid.number(), "start": holder.start.map(|start| start.0), "name": self.name(holder) })
        });
        json!({
            "id": lease.id.as_str(),
            "user": lease.file.owner.0,
            "bound": bound,
            "ttl": ttl,
            "holder": holder,
            "covers": {
                "count": line.covered.all.len(),
                "roots": line.covered.roots.iter().map(who).collect::<Vec<_>>(),
                "processes": line.covered.all.iter().map(who).collect::<Vec<_>>(),
                "spared": line.covered.spared.iter().map(|(id, why)| json!({
                    "pid": id.pid.number(), "start": id.start.0, "why": text(why),
                })).collect::<Vec<_>>(),
            },
            "labels": legible(&lease.labels, ArgumentsShown::Redacted).unwrap_or(Value::Null),
            "note": lease.note.as_deref().map(text),
            "age_seconds": self.age(lease).map(|age| age.as_secs()),
            "state": word,
            "why": text(&why),
        })
    }
}

fn said(state: &State) -> String {
    match state {
        State::Held { .. } => "held".to_owned(),
        State::Over { why, .. } => format!("over: {why}"),
        State::Unknown(unknown) => format!("could not tell: {unknown}"),
    }
}

/// Returns rows as columns, each as wide as its widest cell; the last one as it stands.
fn columns(rows: &[[String; 5]]) -> String {
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..4).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cells = row.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}   "));
        text.extend(cells);
        text.push_str(&row[4]);
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_they_must_be() {
        let row = |id: &str, state: &str| [id, "1 a", "nothing", "3s", state].map(str::to_owned);
        assert_eq!(
            columns(&[row("a", "held"), row("long", "over: x")]),
            "a      1 a   nothing   3s   held\nlong   1 a   nothing   3s   over: x\n"
        );
    }
}
