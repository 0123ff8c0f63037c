//! At the start of a sweep: takes up the teardowns that a crash cut short, as [`super::resume`] says.

use super::containers::carry::Engines;
use super::containers::takeup as containers;
use super::exit::Exit;
use super::journal::entry::{By, Event};
use super::journal::history::History;
use super::journal::{Durability, Journal, history};
use super::lease::turn::Turns;
use super::look::Eyes;
use super::memory;
use super::place::state_trouble;
use super::report::{self, outcome};
use super::residue;
use super::resume::{Course, courses};
use super::run::FINISHING;
use super::scene::Stand;
use super::session::Session;
use super::state::State;
use super::teardown::carry_out;
use super::trouble::Trouble;
use crate::config::policy::Config;
use crate::judge::Ledger;
use crate::model::container::ContainerRef;
use crate::model::look::{Look, Snapshot};
use crate::model::outcome::Report;
use crate::model::plan::{Plan, Teardown};
use crate::model::verdict::Verdicts;

/// Takes up what is unfinished, and returns how that ended.
pub fn take_up(
    session: &mut Session,
    eyes: &mut dyn Eyes,
    config: &Config,
    state: &State,
    journal: &mut Journal<'_>,
    ledger: &mut Ledger,
) -> Result<Exit, Trouble> {
    // Whoever finishes a lease has not been cut short, and its lines are in the same journal.
    let Some(_alone) = state.alone(FINISHING).map_err(|error| state_trouble(&error))? else {
        return Ok(Exit::Done);
    };
    let history = history::read(state, 0).map_err(|error| state_trouble(&error))?;
    residue::take_up(session, eyes, &history, journal)?;
    let snapshot = eyes.processes()?;
    let mut unfinished = Unfinished { session, eyes, config, state, journal, ledger, history, snapshot };
    let ended = unfinished.containers()?;
    let reports = unfinished.trees()?;
    Ok(ended.max(outcome::exit(&reports)))
}

/// What a crash may have cut short, and what taking it up stands on.
struct Unfinished<'a, 'j> {
    session: &'a mut Session,
    eyes: &'a mut dyn Eyes,
    config: &'a Config,
    state: &'a State,
    journal: &'a mut Journal<'j>,
    ledger: &'a mut Ledger,
    history: History,
    snapshot: Snapshot,
}

impl Unfinished<'_, '_> {
    /// Takes up the containers, and says what became of them.
    fn containers(&mut self) -> Result<Exit, Trouble> {
        let marks = memory::marks(self.state).map_err(|error| state_trouble(&error))?;
        let (config, patience) = (self.config, self.config.confirm.probe_timeout);
        let ground = containers::Ground {
            eyes: &mut *self.eyes,
            config,
            ledger: self.ledger,
            journal: &mut *self.journal,
            marks: &marks,
            hands: &mut Engines,
        };
        let mut ask = |at: &ContainerRef| containers::ask(at, config, patience);
        let reports = containers::take_up(self.session, &self.history, &self.snapshot, &mut ask, ground)?;
        if !self.session.place.json {
            self.session.out.data(&report::containers::outcomes(&reports, self.session.out.colour));
        }
        Ok(report::containers::exit(&reports))
    }

    /// Takes up the trees, and returns what became of them.
    fn trees(self) -> Result<Vec<Report>, Trouble> {
        let Unfinished { session, eyes, config, state, journal, ledger, history, snapshot } = self;
        let mut plan = Plan::default();
        for course in courses(&history, &snapshot, config) {
            match course {
                Course::Abandon { root, why } => {
                    ledger.forget(root);
                    let event = Event::Abandoned { root, why: why.to_owned() };
                    note(journal, event, eyes)?;
                    session.talk(&format!("a teardown of {root} was cut short: {why}"));
                }
                Course::Continue(teardown) => {
                    let root = teardown.judgement.root;
                    session.talk(&format!(
                        "a teardown of {root} was cut short after its root went: ending its other {} members",
                        teardown.members.len()
                    ));
                    let why = "its root was seen gone; its recorded members are ended".to_owned();
                    note(journal, Event::Abandoned { root, why }, eyes)?;
                    plan.teardowns.extend(led_by_a_member(*teardown));
                }
            }
        }
        if plan.teardowns.is_empty() {
            return Ok(Vec::new());
        }
        let mut stand = Stand {
            eyes,
            config,
            ledger,
            journal,
            by: By::Resumed,
            look: Look::new(snapshot),
            verdicts: Verdicts::default(),
            fresh_marks: &|| memory::marks(state).ok(),
            checked: None,
            unwritten: None,
            turns: Turns::none(&session.around),
        };
        let reports = carry_out(&plan, &mut stand);
        let unwritten = stand.unwritten;
        if !session.place.json {
            session.out.data(&outcome::outcomes(&reports, session.out.colour));
        }
        match unwritten {
            None => Ok(reports),
            Some(why) => Err(Trouble::failed(format!("nothing more is done without a journal: {why}"))),
        }
    }
}

fn note(journal: &mut Journal<'_>, event: Event, eyes: &mut dyn Eyes) -> Result<(), Trouble> {
    journal
        .note(event, eyes.clocks(), Durability::Synced)
        .map_err(|error| Trouble::because("nothing is done without a journal", &error))
}

/// Returns the teardown with its first member in the place of the root, which is gone.
fn led_by_a_member(mut teardown: Teardown) -> Option<Teardown> {
    let first = teardown.members.first_mut()?;
    first.joined = crate::model::plan::Joined::Root;
    teardown.judgement.root = first.identity.id;
    teardown.judgement.identity = Ok(first.identity.clone());
    Some(teardown)
}
