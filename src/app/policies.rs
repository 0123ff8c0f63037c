//! `reapd policies`: what is looked for, as a list or as TOML, and what built-in ones may do.

use serde_json::json;

use super::exit::Exit;
use super::place::state_trouble;
use super::report::json::SCHEMA;
use super::session::Session;
use super::state::replace;
use super::trouble::Trouble;
use super::words::count;
use crate::config::policy::{Origin, Policy, ProofNeed};
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
    let Whole { config, off } = session.configuration()?;
    let mut all: Vec<&Policy> = config.policies.iter().chain(&off).collect();
    all.sort_by_key(|policy| &policy.name);
    if session.place.json {
        let policies: Vec<_> = all.iter().map(|policy| as_json(policy)).collect();
        let json = json!({ "schema": SCHEMA, "mode": mode_word(config.mode), "policies": policies });
        session.json(&json);
        return Ok(Exit::Done);
    }
    let width = all.iter().map(|policy| policy.name.len()).max().unwrap_or(0);
    for policy in all {
        let lines = count(policy.reap_when.len(), "line", "lines");
        let from = match &policy.origin {
            Origin::Builtin => "built-in".to_owned(),
            Origin::File(file) => escape(file.as_bytes()),
        };
        let waived = if policy.proof == ProofNeed::Waived { "   without proof" } else { "" };
        let line = format!(
            "{:<width$}   {:<6}   {lines:<7}   {}   ({from}){waived}",
            policy.name,
            mode_word(policy.mode),
            escape(policy.about.as_bytes()),
        );
        session.out.line(&line);
    }
    if config.mode == Mode::Report {
        session.out.talk("mode = \"report\": nothing is reaped, by hand neither.");
    }
    Ok(Exit::Done)
}

fn as_json(policy: &Policy) -> serde_json::Value {
    json!({
        "name": policy.name,
        "mode": mode_word(policy.mode),
        "about": escape(policy.about.as_bytes()),
        "lines": policy.reap_when.len(),
        "builtin": policy.origin == Origin::Builtin,
        "without_proof": policy.proof == ProofNeed::Waived,
    })
}

fn show(session: &mut Session, name: &str) -> Result<Exit, Trouble> {
    let Whole { config, off } = session.configuration()?;
    let all = || config.policies.iter().chain(&off);
    one_of(Some(name), all().map(|policy| policy.name.as_str()))?;
    let origin = all().find(|policy| policy.name == name).map(|policy| &policy.origin);
    match (origin, builtin_text(name)) {
        (Some(Origin::File(file)), _) => {
            let file = escape(file.as_bytes());
            session.out.talk(&format!("{name} is your own: [process.{name}] in {file}"));
            Ok(Exit::Done)
        }
        (_, Some(text)) => {
            session.out.data(text);
            Ok(Exit::Done)
        }
        (_, None) => {
            // One file of ours may hold several policies that belong together.
            let holder = config::builtin_names().iter().filter_map(|other| builtin_text(other));
            let text = holder.into_iter().find(|text| text.contains(&format!("[process.{name}]")));
            session.out.data(text.ok_or_else(|| Trouble::failed(format!("{name} is nowhere written down")))?);
            Ok(Exit::Done)
        }
    }
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
