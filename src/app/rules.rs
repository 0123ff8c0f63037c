//! `reapd rules` and `reapd check`: what the configuration language can say, and whether a file says it right.

use std::path::PathBuf;

use serde_json::json;

use super::exit::Exit;
use super::place::Presence;
use super::report::json::SCHEMA;
use super::session::{Session, read};
use super::trouble::Trouble;
use super::words::count;
use crate::judge::rules;
use crate::model::escape::escape;
use crate::model::rule::{Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

/// Runs `reapd rules`.
pub fn rules(session: &mut Session, name: Option<&str>) -> Result<Exit, Trouble> {
    let specs = || rules::ALL.iter().map(|rule| &rule.spec);
    if let Some(name) = name {
        let spec = specs().find(|spec| spec.name == name).ok_or_else(|| {
            let names: Vec<&str> = specs().map(|spec| spec.name).collect();
            Trouble::usage(format!("there is no rule '{}'", escape(name.as_bytes())))
                .hint(format!("there are: {}", names.join(", ")))
        })?;
        if session.place.json {
            session.json(&json!({ "schema": SCHEMA, "rule": as_json(spec) }));
        } else {
            session.out.data(&explained(spec));
        }
        return Ok(Exit::Done);
    }
    if session.place.json {
        let rules: Vec<_> = specs().map(as_json).collect();
        session.json(&json!({ "schema": SCHEMA, "rules": rules }));
        return Ok(Exit::Done);
    }
    let width = specs().map(|spec| spec.name.len()).max().unwrap_or(0);
    for spec in specs() {
        let line = format!(
            "{:<width$}   {}   {:<10}   {}",
            spec.name,
            strength(spec.strength),
            serves(spec.serves),
            spec.summary
        );
        session.out.line(&line);
    }
    Ok(Exit::Done)
}

fn strength(strength: Strength) -> &'static str {
    match strength {
        Strength::Proof => "proof",
        Strength::Sign => "sign ",
    }
}

fn serves(serves: Serves) -> &'static str {
    match serves {
        Serves::Processes => "processes",
        Serves::Containers => "containers",
        Serves::Both(_) => "both",
    }
}

/// Returns what a setting is for, where its rule judges more than that.
fn only_for(spec: &RuleSpec, setting: &SettingSpec) -> &'static str {
    match spec.serves {
        Serves::Both(settings) if !settings.contains(&setting.name) => ", for processes only",
        Serves::Both(_) | Serves::Processes | Serves::Containers => "",
    }
}

fn explained(spec: &RuleSpec) -> String {
    use std::fmt::Write as _;
    let place = match spec.place {
        Place::ReapWhen => "in reap-when",
        Place::SpareWhen => "in spare-when",
        Place::Anywhere => "in reap-when and spare-when",
    };
    let judged = match spec.serves {
        Serves::Processes => "process trees",
        Serves::Containers => "containers",
        Serves::Both(_) => "process trees and containers",
    };
    let strength = strength(spec.strength).trim();
    let mut text = format!("{}: a {strength}, {place}; for {judged}\n\n{}\n", spec.name, spec.doc.trim());
    if !spec.settings.is_empty() {
        text.push('\n');
    }
    for setting in spec.settings {
        let need = match setting.need {
            Need::Required => "must be given".to_owned(),
            Need::Optional => "may be left out".to_owned(),
            Need::With(other) => format!("goes together with `{other}`"),
        };
        let only = only_for(spec, setting);
        let _ = writeln!(text, "  {}   {}, {need}{only}: {}", setting.name, kind(setting.kind), setting.doc);
    }
    text
}

fn kind(kind: SettingKind) -> String {
    match kind {
        SettingKind::Template => "text with {captures}".to_owned(),
        SettingKind::Patterns => "path patterns".to_owned(),
        SettingKind::Duration => "a duration".to_owned(),
        SettingKind::Number => "a number".to_owned(),
        SettingKind::Times(least) => format!("a number, at least {least}"),
        SettingKind::Pause => "a duration of at least a second".to_owned(),
        SettingKind::Word(words) => format!("one of {}", words.join(", ")),
        SettingKind::Text => "text".to_owned(),
        SettingKind::Registry => "a registry's name".to_owned(),
    }
}

fn as_json(spec: &RuleSpec) -> serde_json::Value {
    json!({
        "name": spec.name,
        "strength": spec.strength,
        "serves": serves(spec.serves),
        "summary": spec.summary,
        "doc": spec.doc.trim(),
        "settings": spec.settings.iter().map(|setting| json!({
            "name": setting.name,
            "kind": kind(setting.kind),
            "required": setting.need == Need::Required,
            "doc": setting.doc,
        })).collect::<Vec<_>>(),
    })
}

/// Runs `reapd check`.
pub fn check(session: &mut Session, file: Option<PathBuf>) -> Result<Exit, Trouble> {
    let written = match file {
        // Reading is all that is done with it, so root may look at anybody's.
        Some(path) => read(&path, Presence::Required)?,
        None => session.written()?,
    };
    match session.checked(&written) {
        Ok(whole) => {
            let policies = whole.config.policies.len() + whole.config.containers.len();
            if session.place.json {
                session.json(&json!({ "schema": SCHEMA, "ok": true, "policies": policies, "faults": [] }));
            } else {
                session.out.line(&format!("ok: {}", count(policies, "policy", "policies")));
            }
            Ok(Exit::Done)
        }
        Err(faults) => {
            if session.place.json {
                session.json(&json!({ "schema": SCHEMA, "ok": false, "faults": faults }));
            } else {
                // These are what was asked for, hence data.
                session.out.data(&faults.join("\n"));
            }
            Ok(Exit::Usage)
        }
    }
}
