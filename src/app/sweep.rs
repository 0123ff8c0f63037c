//! `reapd sweep`: look, show, ask, look again, tear down, and say what became of it.

use std::collections::BTreeSet;
use std::time::Duration;

use super::cli::Sweep;
use super::exit::Exit;
use super::glance::{glance, released_for};
use super::journal::Journal;
use super::journal::entry::By;
use super::lock::{self, LockError};
use super::look::{Eyes, Sight, foreseen, hold_suspects, plan, take};
use super::memory::{self, Remembered};
use super::out::Reader;
use super::place::state_trouble;
use super::question::{Reply, ask};
use super::report::{self, Detail, Seen, Stage, json, outcome, text};
use super::scene::Stand;
use super::session::Session;
use super::signals::{self, Waited};
use super::state::State;
use super::takeup;
use super::teardown::carry_out;
use super::trouble::Trouble;
use super::words;
use crate::config::Whole;
use crate::config::policy::Config;
use crate::judge::Ledger;
use crate::judge::ledger::{Begun, Rearm};
use crate::model::id::ProcessId;
use crate::model::keep::KeepMark;
use crate::model::outcome::Report;
use crate::model::plan::Plan;
use crate::model::verdict::Verdict;
use crate::plan::{Asked, Pace, Released};

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
    let Whole { config, off } = session.configuration()?;
    let known = config.policies.iter().chain(&off).map(|policy| policy.name.as_str());
    let only = super::policies::one_of(args.policy.as_deref(), known)?;
    if let Some(name) = only.as_deref().filter(|name| off.iter().any(|policy| policy.name == *name)) {
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
        if plan.teardowns.is_empty() && plan.waiting.is_empty() { Found::None } else { Found::Some }
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
    let (sight, plan) = glance(session, config, asked)?;
    let seen = seen(session, config, asked, &sight, &plan, (Stage::DryRun, detail));
    if session.place.json {
        let json = json::sweep(&seen, &[]);
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

/// A sweep that may act.
struct Run<'a> {
    session: &'a mut Session,
    config: &'a Config,
    asked: Asked,
    detail: Detail,
    manner: Manner,
    consent: Consent,
}

impl Run<'_> {
    fn run(mut self) -> Result<(Exit, Found), Trouble> {
        let state = self.session.around.state(&self.session.place)?;
        let mut observer = self.session.observer(self.config)?;
        let eyes: &mut dyn Eyes = &mut observer;
        // From before the ledger is read until the end: two sweeps must not count each other's looks.
        let _lock = lock::take(&self.session.around, eyes.clocks().wall).map_err(|error| locked(&error))?;
        let mut ledger = self.ledger(&state)?;
        let boot = eyes.table()?.boot;
        // No writable journal, no signal: found out before anything is shown.
        let mut journal = Journal::open(&state, self.config.journal, &boot, eyes.clocks())
            .map_err(|error| Trouble::because("nothing is done without a journal", &error))?;
        let taken_up = takeup::take_up(self.session, eyes, self.config, &state, &mut journal, &mut ledger)?;
        journal
            .rotate(eyes.clocks())
            .map_err(|error| Trouble::because("cannot rotate the journal", &error))?;

        let marks = memory::marks(&state).map_err(|error| state_trouble(&error))?;
        let releases = memory::releases(&state).map_err(|error| state_trouble(&error))?.of(&boot);
        self.asked.released = released_for(&releases);
        let ended = self.look_and_act(eyes, &state, &mut journal, &mut ledger, &marks);
        memory::save_ledger(&state, &ledger).map_err(|error| state_trouble(&error))?;
        let (exit, found) = ended?;
        if exit != Exit::Interrupted {
            memory::use_up(&state, &boot, &releases).map_err(|error| state_trouble(&error))?;
        }
        Ok((exit.max(outcome::exit(&taken_up)), found))
    }

    fn ledger(&mut self, state: &State) -> Result<Ledger, Trouble> {
        let trouble = |error| state_trouble(&error);
        Ok(match memory::ledger(state).map_err(trouble)? {
            Remembered::Nothing => Ledger::default(),
            Remembered::Ledger(ledger) => *ledger,
            Remembered::Bad(why) => {
                let aside = memory::set_ledger_aside(state).map_err(trouble)?;
                self.session.talk(&format!("the ledger {why}; starting anew, the old one is {aside}"));
                Ledger::default()
            }
        })
    }

    fn look_and_act(
        &mut self,
        eyes: &mut dyn Eyes,
        state: &State,
        journal: &mut Journal<'_>,
        ledger: &mut Ledger,
        marks: &[KeepMark],
    ) -> Result<(Exit, Found), Trouble> {
        let mut sight = self.look(eyes, ledger, marks)?;
        let mut confirmed = match self.manner {
            Manner::DryRun | Manner::ByHand(_) => foreseen(&sight.verdicts),
            Manner::Once(_) => sight.verdicts.clone(),
        };
        let mut plan = plan(eyes, &mut sight.look, &confirmed, self.config, &self.asked);
        let stage = match self.manner {
            Manner::Once(_) => Stage::Confirmed,
            Manner::DryRun | Manner::ByHand(_) => Stage::FirstLook,
        };
        let found = Found::of(&plan);
        self.show(&sight, &plan, stage);
        if plan.teardowns.is_empty() {
            self.finish(&sight, &plan, stage, &[]);
            return Ok((Exit::Done, found));
        }
        if self.consent == Consent::Ask {
            match ask(&mut self.session.out, &question(&plan)) {
                Reply::Yes => {}
                Reply::No => return Ok((Exit::Done, found)),
                Reply::Stopped => return Ok((self.stopped(), found)),
            }
        }
        if matches!(self.manner, Manner::ByHand(_)) {
            let Some(last) = self.look_again(eyes, ledger, marks, &sight, &plan)? else {
                return Ok((self.stopped(), found));
            };
            sight = last;
            confirmed = sight.verdicts.clone();
            let shown = trees(&plan);
            plan = super::look::plan(eyes, &mut sight.look, &confirmed, self.config, &self.asked);
            // The person said yes to what was on the screen, and to nothing else.
            plan.teardowns.retain(|teardown| {
                shown.contains(&(teardown.judgement.root, teardown.judgement.policy.clone()))
            });
            self.session.out.talk(&format!("{} confirmed.", words::number(plan.teardowns.len())));
        }
        if signals::asked() {
            return Ok((self.stopped(), found));
        }
        memory::save_ledger(state, ledger).map_err(|error| state_trouble(&error))?;
        let by = if matches!(self.manner, Manner::Once(_)) { By::Once } else { By::Hand };
        let mut stand = Stand {
            eyes,
            config: self.config,
            ledger,
            journal,
            by,
            look: sight.look.clone(),
            verdicts: confirmed,
            fresh_marks: &|| memory::marks(state).ok(),
            checked: None,
            unwritten: None,
        };
        let reports = carry_out(&plan, &mut stand);
        let unwritten = stand.unwritten;
        self.finish(&sight, &plan, Stage::Confirmed, &reports);
        let mut exit = outcome::exit(&reports);
        if let Some(why) = unwritten {
            self.session.talk(&format!("not everything that was done is in the journal: {why}"));
            exit = exit.max(Exit::Failed);
        }
        Ok((exit, found))
    }

    /// Takes a look, has it remembered, and holds whom it suspects.
    fn look(
        &mut self,
        eyes: &mut dyn Eyes,
        ledger: &mut Ledger,
        marks: &[KeepMark],
    ) -> Result<Sight, Trouble> {
        let sight = take(eyes, self.config, ledger, marks)?;
        hold_suspects(eyes, &sight.verdicts);
        sight.remember(ledger);
        if let Begun::Rearmed(why) = sight.begun {
            self.session.talk(&format!("{}: everything is seen for the first time", rearmed(why)));
        }
        Ok(sight)
    }

    /// Takes the further looks; nothing when somebody asked us to stop.
    fn look_again(
        &mut self,
        eyes: &mut dyn Eyes,
        ledger: &mut Ledger,
        marks: &[KeepMark],
        first: &Sight,
        plan: &Plan,
    ) -> Result<Option<Sight>, Trouble> {
        let confirm = self.config.confirm;
        let wanted = trees(plan);
        let mut left = confirm.looks.saturating_sub(1).max(1);
        let mut last = first.look.snapshot.began.boot;
        // A suspend meanwhile starts the row anew, but not for ever.
        let mut anew = 2;
        loop {
            // A breath more than `apart`, since looks that are closer together count once.
            let due = last.plus(confirm.apart).plus(Duration::from_millis(20));
            let wait = due.since(eyes.clocks().boot);
            if self.session.out.listener == Reader::Terminal {
                self.session.out.murmur(&format!("Looking again in {} … ", words::span(wait)));
            }
            if signals::wait(wait) == Waited::Stopped {
                return Ok(None);
            }
            let sight = self.look(eyes, ledger, marks)?;
            last = sight.look.snapshot.began.boot;
            left -= 1;
            if matches!(sight.begun, Begun::Rearmed(_)) && anew > 0 {
                anew -= 1;
                left = confirm.looks.saturating_sub(1);
            }
            let open = sight.verdicts.judgements.iter().any(|judgement| {
                matches!(judgement.verdict, Verdict::Suspect { .. })
                    && wanted.contains(&(judgement.root, judgement.policy.clone()))
            });
            if left == 0 || !open {
                return Ok(Some(sight));
            }
        }
    }

    fn stopped(&mut self) -> Exit {
        self.session.out.talk("");
        self.session.talk("interrupted; nothing was signalled");
        Exit::Interrupted
    }

    fn show(&mut self, sight: &Sight, plan: &Plan, stage: Stage) {
        if self.session.place.json {
            return;
        }
        let seen = seen(self.session, self.config, &self.asked, sight, plan, (stage, self.detail));
        let screen = text::report(&seen, self.session.out.colour);
        self.session.out.data(&screen);
    }

    fn finish(&mut self, sight: &Sight, plan: &Plan, stage: Stage, reports: &[Report]) {
        if self.session.place.json {
            let seen = seen(self.session, self.config, &self.asked, sight, plan, (stage, self.detail));
            let json = json::sweep(&seen, reports);
            self.session.json(&json);
        } else {
            let lines = outcome::outcomes(reports, self.session.out.colour);
            self.session.out.data(&lines);
        }
    }
}

fn trees(plan: &Plan) -> BTreeSet<(ProcessId, String)> {
    let name = |judgement: &crate::model::verdict::Judgement| (judgement.root, judgement.policy.clone());
    plan.teardowns.iter().map(|teardown| name(&teardown.judgement)).collect()
}

fn question(plan: &Plan) -> String {
    let all: Vec<_> = plan.teardowns.iter().collect();
    format!("Reap {}?", report::text::totals(&all).join(", "))
}

fn rearmed(why: Rearm) -> &'static str {
    match why {
        Rearm::Suspend => "the machine slept since the last look",
        Rearm::ClockStep => "the clock was set since the last look",
        Rearm::Overslept => "the last look is longer ago than usual",
    }
}

fn locked(error: &LockError) -> Trouble {
    match error {
        LockError::Interrupted => Trouble { exit: Exit::Interrupted, ..Trouble::failed(error.to_string()) },
        LockError::Held { .. } | LockError::Directory { .. } | LockError::Io { .. } => {
            Trouble::because("one reapd at a time", error)
        }
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
