//! `reapd keep`: what a person wants never to be touched.

use std::path::Path;

use bstr::BString;
use serde_json::json;
use std::os::unix::ffi::OsStrExt as _;

use super::cli;
use super::containers::named::named;
use super::exit::Exit;
use super::memory;
use super::place::state_trouble;
use super::report::containers::name as container_name;
use super::session::Session;
use super::trouble::Trouble;
use super::{legible, words};
use crate::model::escape::escape;
use crate::model::id::{BootId, Pid};
use crate::model::keep::{KeepMark, Kept};
use crate::observe;

/// Runs it.
pub fn run(session: &mut Session, args: &cli::Keep) -> Result<Exit, Trouble> {
    match (&args.what, args.remove) {
        (Some(what), _) => keep(session, args, what),
        (None, Some(number)) => remove(session, number),
        (None, None) => list(session),
    }
}

fn keep(session: &mut Session, args: &cli::Keep, what: &str) -> Result<Exit, Trouble> {
    let wall = observe::clocks().wall;
    let until = match &args.span {
        None => None,
        Some(text) => {
            let span = words::parse_span(text).ok_or_else(|| {
                Trouble::usage(format!("'{}' is no span of time", escape(text.as_bytes())))
                    .hint("write 90s, 30m, 12h or 2d")
            })?;
            Some(wall.saturating_add(u64::try_from(span.as_millis()).unwrap_or(u64::MAX)))
        }
    };
    let what = meant(session, what)?;
    let mark = KeepMark { what, until, set: wall, note: args.note.clone() };
    let state = session.around.state(&session.place)?;
    memory::change_marks(&state, |marks| {
        // Said again is said anew: another time, another note.
        marks.retain(|old| !same(&old.what, &mark.what));
        marks.push(mark.clone());
    })
    .map_err(|error| state_trouble(&error))?;
    let shown = describe(session, &mark);
    session.out.talk(&format!("Kept: {shown}"));
    Ok(Exit::Done)
}

/// Returns what is meant: a process by its number, a directory by its path, or a container by its name or id.
fn meant(session: &Session, what: &str) -> Result<Kept, Trouble> {
    let path = Path::new(what);
    let is_path = what.contains('/') || matches!(what, "." | "..");
    if is_path {
        return Ok(Kept::Directory { path: directory(path)? });
    }
    let config = session.configuration()?.config;
    let mut eyes = session.observer(&config)?;
    let snapshot = eyes.table().map_err(|error| Trouble::because("cannot look at processes", &error))?;
    if let Some(pid) = what.parse::<i32>().ok().and_then(Pid::new)
        && let Some(row) = snapshot.table.at(pid).filter(|row| !row.is_gone())
    {
        let name = escape(row.name());
        return Ok(Kept::Process { boot: snapshot.boot.clone(), id: row.id, name });
    }
    let container = named(&snapshot.engines, what)?;
    match (container, path.is_dir()) {
        (Some((at, _)), true) => {
            let what = escape(what.as_bytes());
            Err(Trouble::usage(format!("'{what}' is a directory here, and a container"))
                .hint(format!("reapd keep ./{what}, or reapd keep {at}")))
        }
        (Some((at, listed)), false) => Ok(Kept::Container { at, name: container_name(listed) }),
        (None, true) => Ok(Kept::Directory { path: directory(path)? }),
        (None, false) => {
            let blind = snapshot.engines.iter().any(|engine| engine.containers.is_err());
            let blind = if blind { "; an engine did not answer" } else { "" };
            Err(Trouble::failed(format!(
                "there is no process, no directory and no running container '{}'{blind}",
                escape(what.as_bytes())
            ))
            .hint("name a process number, a directory that is there, or a container by its name or id"))
        }
    }
}

fn directory(path: &Path) -> Result<BString, Trouble> {
    // What stands in it is compared by its real path, which is what the kernel shows.
    let path = std::fs::canonicalize(path).map_err(|error| {
        Trouble::failed(format!("cannot keep {}: {error}", escape(path.as_os_str().as_bytes())))
            .hint("name a process number, or a directory that is there")
    })?;
    Ok(path.as_os_str().as_bytes().into())
}

fn same(one: &Kept, other: &Kept) -> bool {
    match (one, other) {
        (Kept::Process { boot, id, .. }, Kept::Process { boot: other_boot, id: other_id, .. }) => {
            (boot, id) == (other_boot, other_id)
        }
        (Kept::Directory { path }, Kept::Directory { path: other }) => path == other,
        (Kept::Container { at, .. }, Kept::Container { at: other, .. }) => at == other,
        (Kept::Process { .. } | Kept::Directory { .. } | Kept::Container { .. }, _) => false,
    }
}

fn marks(session: &Session) -> Result<Vec<KeepMark>, Trouble> {
    match session.around.existing_state(&session.place)? {
        None => Ok(Vec::new()),
        Some(state) => memory::marks(&state).map_err(|error| state_trouble(&error)),
    }
}

fn list(session: &mut Session) -> Result<Exit, Trouble> {
    let marks = marks(session)?;
    let wall = observe::clocks().wall;
    if session.place.json {
        let marks: Vec<_> = marks.iter().zip(1..).map(|(mark, number)| as_json(mark, number, wall)).collect();
        session.json(&json!({ "schema": super::report::json::SCHEMA, "keep": marks }));
        return Ok(Exit::Done);
    }
    if marks.is_empty() {
        session.out.talk("Nothing is kept.   Keep something:   reapd keep PID, or a container");
    }
    for (number, mark) in (1..).zip(&marks) {
        let over = if mark.until.is_some_and(|until| until <= wall) { "   (over)" } else { "" };
        let line = format!("{number}   {}{over}", describe(session, mark));
        session.out.line(&line);
    }
    Ok(Exit::Done)
}

fn remove(session: &mut Session, number: usize) -> Result<Exit, Trouble> {
    let missing = || Trouble::failed(format!("there is no mark {number}")).hint("reapd keep lists them");
    let state = session.around.existing_state(&session.place)?.ok_or_else(missing)?;
    let mut removed = None;
    memory::change_marks(&state, |marks| {
        if let Some(at) = number.checked_sub(1).filter(|at| *at < marks.len()) {
            removed = Some(marks.remove(at));
        }
    })
    .map_err(|error| state_trouble(&error))?;
    let mark = removed.ok_or_else(missing)?;
    let shown = describe(session, &mark);
    session.out.talk(&format!("Not kept any more: {shown}"));
    Ok(Exit::Done)
}

fn describe(session: &Session, mark: &KeepMark) -> String {
    let what = match &mark.what {
        Kept::Process { id, name, .. } => format!("{id} {} and what is below it", escape(name.as_bytes())),
        Kept::Directory { path } => words::path(path.as_ref(), session.home()),
        Kept::Container { at, name } => format!("container {at} {}", legible::text(name)),
    };
    let until = mark.until.map(|until| format!(" until {}", words::date(until))).unwrap_or_default();
    let note = mark.note.as_deref().map(|note| format!(" ({})", legible::text(note))).unwrap_or_default();
    format!("{what}{until}{note}")
}

fn as_json(mark: &KeepMark, number: usize, wall: u64) -> serde_json::Value {
    let (kind, pid, path) = match &mark.what {
        Kept::Process { id, .. } => ("process", Some(id.pid.number()), None),
        Kept::Directory { path } => ("directory", None, Some(escape(path))),
        Kept::Container { .. } => ("container", None, None),
    };
    let boot: Option<&BootId> = match &mark.what {
        Kept::Process { boot, .. } => Some(boot),
        Kept::Directory { .. } | Kept::Container { .. } => None,
    };
    let container = match &mark.what {
        Kept::Container { at, .. } => Some(at.id.as_str()),
        Kept::Process { .. } | Kept::Directory { .. } => None,
    };
    json!({
        "number": number,
        "kind": kind,
        "pid": pid,
        "boot": boot,
        "path": path,
        "container": container,
        "until": mark.until,
        "set": mark.set,
        "note": mark.note.as_deref().map(legible::text),
        "over": mark.until.is_some_and(|until| until <= wall),
    })
}
