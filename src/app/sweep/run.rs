//! A sweep that may act: under the lock, with a journal, it looks, shows, asks, looks again and tears down.

use super::{Consent, Found, Manner, looks, seen};
use crate::act::processes::raise_descriptor_limit;
use crate::app::exit::Exit;
use crate::app::glance::released_for;
use crate::app::journal::Journal;
use crate::app::journal::entry::By;
use crate::app::lock::{self, LockError};
use crate::app::look::{Eyes, Sight, foreseen, plan as plan_from};
use crate::app::memory::{self, Remembered};
use crate::app::place::state_trouble;
use crate::app::question::{Reply, ask};
use crate::app::report::{Detail, Stage, json, outcome, text};
use crate::app::scene::Stand;
use crate::app::session::Session;
use crate::app::signals;
use crate::app::state::State;
use crate::app::takeup;
use crate::app::teardown::carry_out;
use crate::app::trouble::Trouble;
use crate::app::words;
use crate::config::policy::Config;
use crate::judge::Ledger;
use crate::model::keep::KeepMark;
use crate::model::outcome::Report;
use crate::model::plan::Plan;
use crate::plan::Asked;

/// A sweep that may act.
pub(super) struct Run<'a> {
    pub(super) session: &'a mut Session,
    pub(super) config: &'a Config,
    pub(super) asked: Asked,
    pub(super) detail: Detail,
    pub(super) manner: Manner,
    pub(super) consent: Consent,
}

impl Run<'_> {
    /// Runs it, from the lock to the last word.
    pub(super) fn run(mut self) -> Result<(Exit, Found), Trouble> {
        let state = self.session.around.state(&self.session.place)?;
        let mut observer = self.session.observer(self.config)?;
        let eyes: &mut dyn Eyes = &mut observer;
        // Every suspect costs a handle, and every member of a tree that goes one more.
        raise_descriptor_limit();
        // From before the ledger is read until the end: two sweeps must not count each other's looks.
        let _lock = lock::take(&self.session.around, eyes.clocks().wall).map_err(|error| locked(&error))?;
        let mut ledger = self.ledger(&state)?;
        let seen = eyes.table()?;
        // No writable journal, no signal: found out before anything is shown.
        let mut journal = Journal::open(&state, self.config.journal, &seen, eyes.clocks())
            .map_err(|error| Trouble::because("nothing is done without a journal", &error))?;
        let taken_up = takeup::take_up(self.session, eyes, self.config, &state, &mut journal, &mut ledger)?;
        journal
            .rotate(eyes.clocks())
            .map_err(|error| Trouble::because("cannot rotate the journal", &error))?;

        let marks = memory::marks(&state).map_err(|error| state_trouble(&error))?;
        let releases = memory::releases(&state).map_err(|error| state_trouble(&error))?.of(&seen.boot);
        self.asked.released = released_for(&releases);
        let ended = self.look_and_act(eyes, &state, &mut journal, &mut ledger, &marks);
        memory::save_ledger(&state, &ledger).map_err(|error| state_trouble(&error))?;
        let (exit, found) = ended?;
        if exit != Exit::Interrupted {
            memory::use_up(&state, &seen.boot, &releases).map_err(|error| state_trouble(&error))?;
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
        let mut plan = plan_from(eyes, &mut sight.look, &confirmed, self.config, &self.asked);
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
                Reply::No => {
                    self.finish(&sight, &plan, stage, &[]);
                    return Ok((Exit::Done, found));
                }
                Reply::Stopped => return Ok((self.stopped(), found)),
            }
        }
        if matches!(self.manner, Manner::ByHand(_)) {
            let Some(last) = self.look_again(eyes, ledger, marks, &sight, &plan)? else {
                return Ok((self.stopped(), found));
            };
            sight = last;
            confirmed = sight.verdicts.clone();
            let shown = looks::trees(&plan);
            plan = plan_from(eyes, &mut sight.look, &confirmed, self.config, &self.asked);
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

fn question(plan: &Plan) -> String {
    let all: Vec<_> = plan.teardowns.iter().collect();
    format!("Reap {}?", text::totals(&all).join(", "))
}

fn locked(error: &LockError) -> Trouble {
    match error {
        LockError::Interrupted => Trouble { exit: Exit::Interrupted, ..Trouble::failed(error.to_string()) },
        LockError::Held { .. } | LockError::Directory { .. } | LockError::Io { .. } => {
            Trouble::because("one reapd at a time", error)
        }
    }
}
