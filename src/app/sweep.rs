//! `reapd sweep`: look, show, ask, look again, tear down, and say what became of it.

use super::cli::Sweep;
use super::exit::Exit;
use super::glance::whole_glance;
use super::look::Sight;
use super::out::Reader;
use super::report::{Detail, Done, Seen, Stage, json, text};
use super::session::Session;
use super::trouble::Trouble;
use crate::config::Whole;
use crate::config::policy::{Config, ExecReport, Telling};
use crate::model::plan::Plan;
use crate::plan::{Asked, Pace, Released};

use run::Run;

mod looks;
mod run;

/// How a sweep is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Manner {
    /// One look; touches and writes nothing.
    DryRun,
    /// A person decides; all looks are taken here.
    ByHand(Consent),
    /// One look that counts on earlier runs.
    Once(Consent),
}

/// Whether the plan is to be put to a person.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Consent {
    /// `--yes`, or nobody is there to ask.
    Given,
    /// Ask at the terminal.
    Ask,
}

/// Runs it.
pub fn run(session: &mut Session, args: &Sweep) -> Result<Exit, Trouble> {
    let manner = manner(args, super::question::terminal())?;
    let Whole { mut config, off, off_containers } = session.configuration()?;
    if let Some(stdin) = args.docker_stdin {
        config.docker.stdin = stdin.into();
    }
    let on = config.policies.iter().map(|policy| policy.name.as_str());
    let on = on.chain(config.containers.iter().map(|policy| policy.name.as_str()));
    let (execs_on, execs_off) = match config.execs.telling {
        Telling::Report => (Some(ExecReport::NAME), None),
        Telling::Off => (None, Some(ExecReport::NAME)),
    };
    let on: Vec<&str> = on.chain(execs_on).collect();
    let off = off.iter().map(|policy| policy.name.as_str());
    let off = off.chain(off_containers.iter().map(|policy| policy.name.as_str())).chain(execs_off);
    let only = super::policies::one_of(args.policy.as_deref(), on.iter().copied().chain(off))?;
    // One name may mean a policy for trees and one for containers: either may be on.
    if let Some(name) = only.as_deref().filter(|name| !on.contains(name)) {
        return Err(Trouble::usage(format!("policy {name} is off"))
            .hint(format!("reapd policies --set {name}=report")));
    }
    let asked = Asked { pace: pace(manner), released: Released::default(), only };
    let detail = if args.all { Detail::All } else { Detail::Some };
    let exit = match manner {
        Manner::DryRun => dry_run(session, &config, &asked, detail),
        Manner::ByHand(consent) | Manner::Once(consent) => {
            Run { session, config: &config, asked, detail, manner, consent }.run()
        }
    }?;
    Ok(match exit {
        (Exit::Done, Found::Some) if args.exit_code => Exit::Found,
        (exit, _) => exit,
    })
}

/// Whether orphans were found, whatever became of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Found {
    Some,
    None,
}

impl Found {
    fn of(plan: &Plan) -> Found {
        let containers = &plan.containers;
        let none = plan.teardowns.is_empty()
            && plan.waiting.is_empty()
            && containers.stops.is_empty()
            && containers.waiting.is_empty();
        if none { Found::None } else { Found::Some }
    }
}

fn manner(args: &Sweep, terminal: Reader) -> Result<Manner, Trouble> {
    let consent = match (args.yes, terminal) {
        (true, _) => Consent::Given,
        (false, Reader::Terminal) => Consent::Ask,
        (false, Reader::Program) if args.dry_run || args.once => Consent::Given,
        (false, Reader::Program) => {
            return Err(Trouble::usage("there is no terminal to ask at, so nothing is done")
                .hint("--dry-run only shows, --yes does not ask, --once --yes is for timers"));
        }
    };
    Ok(match (args.dry_run, args.once) {
        (true, _) => Manner::DryRun,
        (false, true) => Manner::Once(consent),
        (false, false) => Manner::ByHand(consent),
    })
}

fn pace(manner: Manner) -> Pace {
    match manner {
        Manner::DryRun | Manner::ByHand(_) => Pace::Unpaced,
        Manner::Once(_) => Pace::Paced,
    }
}

fn dry_run(
    session: &mut Session,
    config: &Config,
    asked: &Asked,
    detail: Detail,
) -> Result<(Exit, Found), Trouble> {
    let (sight, plan) = whole_glance(session, config, asked)?;
    let seen = seen(session, config, asked, &sight, &plan, (Stage::DryRun, detail));
    if session.place.json {
        let json = json::sweep(&seen, &Done::default());
        session.json(&json);
    } else {
        let screen = text::report(&seen, session.out.colour);
        session.out.data(&screen);
    }
    Ok((Exit::Done, Found::of(&plan)))
}

fn seen<'a>(
    session: &'a Session,
    config: &'a Config,
    asked: &'a Asked,
    sight: &'a Sight,
    plan: &'a Plan,
    (stage, detail): (Stage, Detail),
) -> Seen<'a> {
    Seen {
        look: &sight.look,
        verdicts: &sight.verdicts,
        plan,
        config,
        home: session.home(),
        took: sight.took,
        only: asked.only.as_deref(),
        stage,
        detail,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn args(dry_run: bool, once: bool, yes: bool) -> Sweep {
        Sweep { dry_run, once, yes, ..Sweep::default() }
    }

    #[test]
    fn without_a_terminal_nothing_is_done_unasked() {
        let refused = manner(&args(false, false, false), Reader::Program).unwrap_err();
        assert_eq!(refused.exit, Exit::Usage);
        assert!(refused.hint.unwrap().contains("--dry-run"));
        let of = |args: Sweep, terminal| manner(&args, terminal).unwrap();
        assert_eq!(of(args(true, false, false), Reader::Program), Manner::DryRun);
        assert_eq!(of(args(false, true, false), Reader::Program), Manner::Once(Consent::Given));
        assert_eq!(of(args(false, false, true), Reader::Program), Manner::ByHand(Consent::Given));
        assert_eq!(of(args(false, false, false), Reader::Terminal), Manner::ByHand(Consent::Ask));
        assert_eq!(of(args(false, true, false), Reader::Terminal), Manner::Once(Consent::Ask));
    }

    #[test]
    fn only_what_nobody_watches_is_paced() {
        assert_eq!(pace(Manner::Once(Consent::Given)), Pace::Paced);
        assert_eq!(pace(Manner::ByHand(Consent::Given)), Pace::Unpaced);
    }
}
