//! Wires the stages: reads the command line and the clock, loops, prints, remembers. Edge.
#![allow(clippy::disallowed_methods, reason = "an edge floor: clocks, files and sockets are its work")]

pub mod cli;
pub mod containers;
pub mod exit;
pub mod flock;
pub mod glance;
pub mod held;
pub mod journal;
pub mod keep;
pub mod lease;
pub mod legible;
pub mod lock;
pub mod look;
pub mod memory;
pub mod mismatch;
pub mod out;
pub mod place;
pub mod policies;
pub mod question;
pub mod redact;
pub mod report;
pub mod residue;
pub mod resume;
pub mod rules;
pub mod run;
pub mod scene;
pub mod session;
pub mod signals;
pub mod state;
pub mod story;
pub mod sweep;
pub mod takeup;
pub mod teardown;
pub mod trouble;
pub mod why;
pub mod words;

#[cfg(test)]
mod machine;
#[cfg(test)]
mod sample;

use std::process::ExitCode;

use clap::Parser as _;

use cli::{Cli, Command};
use exit::Exit;
use out::Out;
use place::Surroundings;
use session::Session;
use trouble::Trouble;

/// Runs the command line and returns how it ended.
pub fn main() -> ExitCode {
    // Stands in front of other commands, so that it must cost nothing: no clap, no configuration.
    if let Some(exit) = run::main() {
        return exit;
    }
    let Cli { place, command } = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => {
            // A reader that went away is no failure.
            let _ = error.print();
            return match error.use_stderr() {
                // Help and version are no errors: clap prints them on stdout.
                false => Exit::Done.into(),
                true if run::is_asked() => ExitCode::from(run::USAGE),
                true => Exit::Usage.into(),
            };
        }
    };
    if let Command::Aside = command {
        return crate::observe::aside_main();
    }
    if let Command::Stdin { asked } = command {
        return crate::observe::stdin_main(&asked);
    }
    if let Command::Run(args) = command {
        return run::begin(place, args);
    }
    signals::listen();
    let mut session = Session { around: Surroundings::read(), place, out: Out::standard() };
    let exit = match run(&mut session, command) {
        Ok(exit) => exit,
        Err(trouble) => {
            report(&mut session, &trouble);
            trouble.exit
        }
    };
    match session.out.missing() {
        Some(why) => {
            let said = format!("reapd: not everything could be printed: {why}");
            session.out.talk(&said);
            exit.max(Exit::Failed).into()
        }
        None => exit.into(),
    }
}

fn run(session: &mut Session, command: Command) -> Result<Exit, Trouble> {
    match command {
        Command::Sweep(args) => sweep::run(session, &args),
        Command::Why { what } => why::run(session, &what),
        Command::Log { count } => story::log(session, count),
        Command::Keep(args) => keep::run(session, &args),
        Command::Policies { name, set } => policies::run(session, name.as_deref(), set.as_deref()),
        Command::Rules { name } => rules::rules(session, name.as_deref()),
        Command::Check { file } => rules::check(session, file),
        Command::Held => held::held(session),
        Command::Release { what } => held::release(session, &what),
        Command::Observe { save } => held::save(session, &save),
        Command::Lease { command } => lease::run(session, command),
        Command::Finish { id } => run::finish(session, &id),
        // Both went their own way before there was a session.
        Command::Run(_) | Command::Aside | Command::Stdin { .. } => Ok(Exit::Done),
    }
}

/// Says once what went wrong, with its hint; as JSON where JSON was asked for.
fn report(session: &mut Session, trouble: &Trouble) {
    if session.place.json {
        let json = report::json::error(trouble);
        session.json(&json);
        return;
    }
    session.out.talk(&format!("reapd: {trouble}"));
    if let Some(hint) = &trouble.hint {
        session.out.talk(&format!("  = {hint}"));
    }
}
