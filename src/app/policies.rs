//! `reapd policies`: what is looked for, as a list or as TOML, and what built-in ones may do.

use serde_json::json;

use super::exit::Exit;
use super::place::state_trouble;
use super::report::json::SCHEMA;
use super::session::Session;
use super::state::replace;
use super::trouble::Trouble;
use super::words::count;
use crate::config::policy::{ExecReport, Origin, ProofNeed, Telling};
use crate::config::{self, Whole, builtin_text, mode_word, render, set_builtin_mode};
use crate::model::escape::escape;
use crate::model::verdict::Mode;

/// Runs it.
pub fn run(session: &mut Session, name: Option<&str>, set: Option<&str>) -> Result<Exit, Trouble> {
    match (name, set) {
        (_, Some(set)) => set_mode(session, set),
        (Some(name), None) => show(session, name),
        (None, None) => list(session),
    }
}

/// Returns the name when it is one of these, or says which there are.
pub fn one_of<'a>(
    name: Option<&str>,
    known: impl Iterator<Item = &'a str>,
) -> Result<Option<String>, Trouble> {
    let Some(name) = name else { return Ok(None) };
    let known: Vec<&str> = known.collect();
    if known.contains(&name) {
        return Ok(Some(name.to_owned()));
    }
    Err(Trouble::usage(format!("there is no policy '{}'", escape(name.as_bytes())))
        .hint(format!("there are: {}", known.join(", "))))
}

fn list(session: &mut Session) -> Result<Exit, Trouble> {
    let whole = session.configuration()?;
    let all = entries(&whole);
    let mode = whole.config.mode;
    if session.place.json {
        let policies: Vec<_> = all.iter().map(Entry::as_json).collect();
        let json = json!({ "schema": SCHEMA, "mode": mode_word(mode), "policies": policies });
        session.json(&json);
        return Ok(Exit::Done);
    }
    let width = all.iter().map(|policy| policy.name.len()).max().unwrap_or(0);
    for policy in all {
        let lines = count(policy.lines, "line", "lines");
        let from = match &policy.origin {
            Origin::Builtin => "built-in".to_owned(),
            Origin::File(file) => escape(file.as_bytes()),
        };
        let waived = if policy.proof == ProofNeed::Waived { "   without proof" } else { "" };
        let line = format!(
            "{:<width$}   {:<6}   {:<10}   {lines:<7}   {}   ({from}){waived}",
            policy.name,
            mode_word(policy.mode),
            policy.looks_at(),
            escape(policy.about.as_bytes()),
        );
        session.out.line(&line);
    }
    if mode == Mode::Report {
        session.out.talk("mode = \"report\": nothing is reaped, by hand neither.");
    }
    Ok(Exit::Done)
}

/// One policy, or the part of one that looks at one kind of thing, as the list shows it.
struct Entry<'a> {
    name: &'a str,
    /// The section that it stands in.
    section: &'static str,
    mode: Mode,
    about: &'a str,
    lines: usize,
    origin: &'a Origin,
    proof: ProofNeed,
}

impl Entry<'_> {
    fn looks_at(&self) -> &'static str {
        match self.section {
            "container" => "containers",
            "exec" => "commands",
            _ => "processes",
        }
    }

    fn as_json(&self) -> serde_json::Value {
        json!({
            "name": self.name,
            "looks_at": self.looks_at(),
            "mode": mode_word(self.mode),
            "about": escape(self.about.as_bytes()),
            "lines": self.lines,
            "builtin": *self.origin == Origin::Builtin,
            "without_proof": self.proof == ProofNeed::Waived,
        })
    }
}

/// Returns everything that is looked for, also what is off, sorted by name and then by what it looks at.
fn entries(whole: &Whole) -> Vec<Entry<'_>> {
    let processes = whole.config.policies.iter().chain(&whole.off).map(|policy| Entry {
        name: &policy.name,
        section: "process",
        mode: policy.mode,
        about: &policy.about,
        lines: policy.reap_when.len(),
        origin: &policy.origin,
        proof: policy.proof,
    });
    let containers = whole.config.containers.iter().chain(&whole.off_containers).map(|policy| Entry {
        name: &policy.name,
        section: "container",
        mode: policy.mode,
        about: &policy.about,
        lines: policy.reap_when.len(),
        origin: &policy.origin,
        proof: policy.proof,
    });
    let execs = Entry {
        name: ExecReport::NAME,
        section: "exec",
        mode: match whole.config.execs.telling {
            Telling::Report => Mode::Report,
            Telling::Off => Mode::Off,
        },
        about: &whole.config.execs.about,
        lines: 0,
        origin: &Origin::Builtin,
        proof: ProofNeed::Required,
    };
    let mut all: Vec<Entry<'_>> = processes.chain(containers).chain([execs]).collect();
    all.sort_by_key(|entry| (entry.name, std::cmp::Reverse(entry.section)));
    all
}

fn show(session: &mut Session, name: &str) -> Result<Exit, Trouble> {
    let whole = session.configuration()?;
    let mut all = entries(&whole);
    one_of(Some(name), all.iter().map(|entry| entry.name))?;
    all.retain(|entry| entry.name == name);
    for entry in &all {
        if let Origin::File(file) = entry.origin {
            let file = escape(file.as_bytes());
            session.out.talk(&format!("{name} is your own: [{}.{name}] in {file}", entry.section));
        }
    }
    if all.iter().all(|entry| *entry.origin != Origin::Builtin) {
        return Ok(Exit::Done);
    }
    // One file of ours may hold several policies that belong together.
    let holds = |text: &&str| all.iter().any(|entry| text.contains(&format!("[{}.{name}]", entry.section)));
    let text = builtin_text(name)
        .or_else(|| config::builtin_names().iter().filter_map(|other| builtin_text(other)).find(holds));
    session.out.data(text.ok_or_else(|| Trouble::failed(format!("{name} is nowhere written down")))?);
    Ok(Exit::Done)
}

fn set_mode(session: &mut Session, set: &str) -> Result<Exit, Trouble> {
    let usage = || Trouble::usage("--set takes NAME=MODE").hint("modes are reap, report and off");
    let (name, mode) = set.split_once('=').ok_or_else(usage)?;
    let mode = [Mode::Reap, Mode::Report, Mode::Off]
        .into_iter()
        .find(|known| mode_word(*known) == mode)
        .ok_or_else(usage)?;
    let written = session.written()?;
    let refused = |faults: Vec<String>| {
        Trouble::usage(format!("{} was not changed\n\n{}", session.shown(&written.path), faults.join("\n")))
    };
    // Lines and columns of such faults are those of the user's file.
    let text = set_builtin_mode(&written.text, name, mode)
        .map_err(|faults| refused(faults.iter().map(|fault| render(fault, &written.text)).collect()))?;
    // What would not load is not written: the next timer run would find it.
    let edited = super::session::Written { path: written.path.clone(), text };
    session.checked(&edited).map_err(refused)?;
    replace(&edited.path, edited.text.as_bytes()).map_err(|error| state_trouble(&error))?;
    let path = session.shown(&edited.path);
    session.out.talk(&format!("{name} is now \"{}\" in {path}", mode_word(mode)));
    Ok(Exit::Done)
}
