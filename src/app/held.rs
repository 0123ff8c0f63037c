//! `reapd held` and `reapd release`: what is proven and held back, and a person's word to let it go on.

use serde_json::json;

use super::containers::named::named;
use super::exit::Exit;
use super::glance::glance;
use super::memory::{self, Release};
use super::place::state_trouble;
use super::report::json::{SCHEMA, waiting_json};
use super::report::{containers, short_name, text};
use super::session::Session;
use super::trouble::Trouble;
use crate::config::policy::Config;
use crate::model::container::EngineId;
use crate::model::evidence::Cause;
use crate::model::id::Pid;
use crate::model::plan::{Wait, Waiting};
use crate::observe;
use crate::plan::{Asked, Pace};

/// Runs `reapd held`.
pub fn held(session: &mut Session) -> Result<Exit, Trouble> {
    let config = session.configuration()?.config;
    // As a timer's run would have it, since that is whom pace and breaker hold back.
    let asked = Asked { pace: Pace::Paced, ..Asked::default() };
    let (_, plan) = glance(session, &config, &asked)?;
    let held: Vec<&Waiting> = plan.waiting.iter().filter(|waiting| is_held(&waiting.why)).collect();
    let contained: Vec<_> = plan.containers.waiting.iter().filter(|(_, why)| is_held(why)).collect();
    if session.place.json {
        let held: Vec<_> = held.iter().map(|waiting| waiting_json(waiting)).collect();
        let contained: Vec<_> = contained.iter().map(|one| containers::waiting_json(one)).collect();
        session.json(&json!({ "schema": SCHEMA, "held": held, "containers": contained }));
        return Ok(Exit::Done);
    }
    for (judgement, why) in &contained {
        let release = match why {
            Wait::SameCause(_) => format!("   this one alone:   reapd release {}", judgement.at),
            Wait::TooLarge(_)
            | Wait::ReportOnly
            | Wait::Pace
            | Wait::Unidentified
            | Wait::Successor
            | Wait::PartOf(_) => String::new(),
        };
        let line = format!(
            "{}   {}   {}   {}{release}",
            judgement.at,
            judgement.policy,
            containers::name(&judgement.listed),
            text::wait(why),
        );
        session.out.line(&line);
    }
    if held.is_empty() && contained.is_empty() {
        session.out.talk("Nothing is held back.");
    }
    for waiting in held {
        let judgement = &waiting.judgement;
        let release = match &waiting.why {
            Wait::TooLarge(_) => format!("   reapd release {}", judgement.root),
            Wait::SameCause(_)
            | Wait::ReportOnly
            | Wait::Pace
            | Wait::Unidentified
            | Wait::Successor
            | Wait::PartOf(_) => String::new(),
        };
        let line = format!(
            "{}   {}   {}   {}{release}",
            judgement.root,
            judgement.policy,
            short_name(&judgement.argv),
            text::wait(&waiting.why),
        );
        session.out.line(&line);
    }
    Ok(Exit::Done)
}

fn is_held(why: &Wait) -> bool {
    match why {
        Wait::Pace | Wait::SameCause(_) | Wait::TooLarge(_) | Wait::Unidentified | Wait::Successor => true,
        // What only reports is not held, and what is part of another goes with it.
        Wait::ReportOnly | Wait::PartOf(_) => false,
    }
}

/// Runs `reapd release`.
pub fn release(session: &mut Session, what: &str) -> Result<Exit, Trouble> {
    let config = session.configuration()?.config;
    let mut eyes = session.observer(&config)?;
    let snapshot = eyes.table().map_err(|error| Trouble::because("cannot look at processes", &error))?;
    let process = what.parse::<i32>().ok().and_then(Pid::new).and_then(|pid| snapshot.table.at(pid));
    let release = match process {
        Some(row) => Release::Tree(row.id),
        None => match named(&snapshot.engines, what)? {
            Some((at, _)) => Release::Container(at),
            None if what.parse::<i32>().is_ok() => {
                return Err(Trouble::failed(format!("there is no process {what}, and no such container")));
            }
            None => Release::Cause(cause(what)?),
        },
    };
    let state = session.around.state(&session.place)?;
    memory::release(&state, &snapshot.boot, release).map_err(|error| state_trouble(&error))?;
    session.talk(&format!("released for the next sweep: {what}"));
    Ok(Exit::Done)
}

fn cause(text: &str) -> Result<Cause, Trouble> {
    if text == "clock" {
        return Ok(Cause::Clock);
    }
    if let Some(name) = text.strip_prefix("registry:") {
        return Ok(Cause::Registry(name.to_owned()));
    }
    if let Some(socket) = text.strip_prefix("engine:") {
        return Ok(Cause::Engine(EngineId(socket.to_owned())));
    }
    if text.starts_with('/') {
        return Ok(Cause::Mount(text.into()));
    }
    Err(Trouble::usage(format!("'{}' is no cause", crate::model::escape::escape(text.as_bytes()))).hint(
        "reapd held shows them: a mount point, registry:NAME, engine:SOCKET, clock, a process number, or a container",
    ))
}

/// Runs `reapd observe --save`.
pub fn save(session: &mut Session, path: &std::path::Path) -> Result<Exit, Trouble> {
    let config: Config = session.configuration()?.config;
    let (sight, _) = glance(session, &config, &Asked::default())?;
    let world = crate::model::world::print(&crate::model::world::anonymise(&sight.look));
    super::state::replace(path, world.as_bytes()).map_err(|error| state_trouble(&error))?;
    let shown = session.shown(path);
    session.out.talk(&format!(
        "Saved {} processes as seen at {} to {shown}, names and paths replaced.",
        sight.look.snapshot.table.rows().len(),
        super::words::date(observe::clocks().wall),
    ));
    Ok(Exit::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn causes_as_they_are_shown() {
        for shown in [
            Cause::Engine(EngineId("/run/docker.sock".into())),
            Cause::Clock,
            Cause::Registry("previews".into()),
            Cause::Mount("/mnt/nfs".into()),
        ] {
            assert_eq!(cause(&text::cause(&shown)).unwrap(), shown);
        }
        assert!(cause("relative").is_err());
    }
}
