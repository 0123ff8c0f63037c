//! `reapd finish`: a sweep that is narrowed to what one lease covers, for `reapd run` and `reapd lease release --wait`.
//!
//! It takes its two looks itself and remembers nothing, but every gate of a sweep holds: keep marks, vetoes, the scope,
//! the mode, the journal before the first signal and the look right before it. Whoever else looks at the same lease
//! waits for its turn ([`crate::app::lease::turn`]); a whole sweep need not be waited for.

use std::process::Command;
use std::time::Duration;

use serde_json::json;

use crate::act::processes::raise_descriptor_limit;
use crate::app::containers::carry::{Crew, Engines};
use crate::app::exit::Exit;
use crate::app::journal::Journal;
use crate::app::journal::entry::By;
use crate::app::lease::store::{LeaseLock, Store};
use crate::app::lease::turn::Turns;
use crate::app::lease::{id_of, place, store_trouble};
use crate::app::legible;
use crate::app::look::{Eyes, Sight, hold_suspects, plan as plan_from, take};
use crate::app::memory;
use crate::app::place::state_trouble;
use crate::app::report::json::{SCHEMA, outcome as outcome_json};
use crate::app::report::{containers, outcome, text};
use crate::app::scene::Stand;
use crate::app::session::Session;
use crate::app::signals::{self, Waited};
use crate::app::state::State;
use crate::app::teardown::carry_out;
use crate::app::trouble::Trouble;
use crate::config::Whole;
use crate::config::policy::{Config, Confirm, Telling};
use crate::judge::Ledger;
use crate::judge::leased::covered;
use crate::model::container::ContainerId;
use crate::model::container::stop::StopReport;
use crate::model::id::{ProcessId, Uid};
use crate::model::keep::KeepMark;
use crate::model::lease::LeaseId;
use crate::model::outcome::{Closure, Report};
use crate::model::plan::Plan;
use crate::model::verdict::Verdict;
use crate::plan::{Asked, Pace};

use leased::LeasedContainer;

mod leased;

/// The policy that looks at leases.
const POLICY: &str = "lease";

/// So far apart are the two looks: whoever says that a lease is over waits for what comes of it.
const APART: Duration = Duration::from_millis(500);

/// Looks at most: a suspend between two of them begins the row anew.
const LOOKS: usize = 4;

/// The lock that says that somebody finishes a lease, so that no sweep takes its teardown for one that a crash cut
/// short.
pub const FINISHING: &str = "finishing.lock";

/// Somebody else's turn is asked for this often.
const AGAIN: Duration = Duration::from_millis(50);

/// What became of what a lease covers.
#[derive(Debug, Default)]
struct Finished {
    /// Whoever was covered and was not set about, with the reason.
    kept: Vec<(ProcessId, String)>,
    /// What became of each tree that was.
    reports: Vec<Report>,
    /// Its containers that were not set about, with the reason.
    left: Vec<(ContainerId, String)>,
    /// What became of each container that was.
    stopped: Vec<StopReport>,
    /// What could not be written down.
    unwritten: Option<String>,
}

/// Runs it.
pub fn finish(session: &mut Session, id: &str) -> Result<Exit, Trouble> {
    let id = id_of(id)?;
    if let Some(exit) = leave_session()? {
        return Ok(exit);
    }
    let Some(finished) = end(session, &id)? else { return Ok(Exit::Interrupted) };
    if session.place.json {
        let kept: Vec<_> = finished
            .kept
            .iter()
            .map(
                |(id, why)| json!({ "pid": id.pid.number(), "start": id.start.0, "why": legible::text(why) }),
            )
            .collect();
        let teardowns: Vec<_> = finished.reports.iter().map(outcome_json).collect();
        let left: Vec<_> = finished
            .left
            .iter()
            .map(|(id, why)| json!({ "id": id.as_str(), "why": legible::text(why) }))
            .collect();
        let stopped: Vec<_> = finished.stopped.iter().map(containers::report_json).collect();
        session.json(&json!({
            "schema": SCHEMA,
            "id": id.as_str(),
            "kept": kept,
            "teardowns": teardowns,
            "containers_kept": left,
            "container_reports": stopped,
        }));
    } else {
        for (id, why) in &finished.left {
            let line = format!("  kept             container {id}: {}", legible::text(why));
            session.out.line(&line);
        }
        for (id, why) in &finished.kept {
            let line = format!("  kept             {id}: {}", legible::text(why));
            session.out.line(&line);
        }
        session.out.data(&containers::outcomes(&finished.stopped, session.out.colour));
        session.out.data(&outcome::outcomes(&finished.reports, session.out.colour));
    }
    if let Some(why) = finished.unwritten {
        session.talk(&format!("not everything that was done is in the journal: {why}"));
        return Ok(Exit::Failed);
    }
    Ok(outcome::exit(&finished.reports).max(containers::exit(&finished.stopped)))
}

/// Begins a session of our own, since nothing in reapd's own session is ever touched. A process that leads its group
/// cannot (setsid(2)); its child can, and then this returns how that one ended.
fn leave_session() -> Result<Option<Exit>, Trouble> {
    if rustix::process::setsid().is_ok() || is_leader() {
        return Ok(None);
    }
    let trouble = |error: std::io::Error| Trouble::because("cannot begin a session of its own", &error);
    let program = std::env::current_exe().map_err(trouble)?;
    let status = Command::new(program).args(std::env::args_os().skip(1)).status().map_err(trouble)?;
    Ok(Some(match status.code() {
        Some(0) => Exit::Done,
        Some(2) => Exit::Usage,
        Some(130) => Exit::Interrupted,
        Some(_) | None => Exit::Failed,
    }))
}

fn is_leader() -> bool {
    rustix::process::getsid(None).is_ok_and(|session| session == rustix::process::getpid())
}

/// Ends what a lease covers, where it is over and no gate keeps it. Nothing when somebody asked us to stop before the
/// first signal.
fn end(session: &mut Session, id: &LeaseId) -> Result<Option<Finished>, Trouble> {
    // A configuration that cannot be read may hold a keep list: nothing is ended.
    let Whole { mut config, off: _, off_containers: _ } = session.configuration()?;
    let of_trees = config.policies.iter().map(|policy| &policy.name);
    let mut all = of_trees.chain(config.containers.iter().map(|policy| &policy.name));
    if !all.any(|name| name == POLICY) {
        session.talk(&format!("policy {POLICY} is off: nothing is ended"));
        return Ok(Some(Finished::default()));
    }
    config.offered.clear();
    config.execs.telling = Telling::Off;
    config.confirm = Confirm { looks: 2, apart: APART, min_age: Duration::ZERO, ..config.confirm };
    let at = place::own(&session.around);
    let store = Store::existing(&at).map_err(|error| store_trouble(&error))?;
    let Some(store) = store else { return Err(Trouble::failed(format!("there is no lease {id}"))) };
    let Some(lock) = turn(&store, id)? else { return Ok(None) };
    raise_descriptor_limit();
    let state = session.around.state(&session.place)?;
    let mut eyes = session.observer(&config)?;
    let _finishing = state.shared(FINISHING).map_err(|error| state_trouble(&error))?;
    let mut narrow = Narrow { config: &config, id, owner: Uid(at.owner), eyes: &mut eyes, state: &state };
    narrow.end(Turns::of(store, id.clone(), lock))
}

fn turn(store: &Store, id: &LeaseId) -> Result<Option<LeaseLock>, Trouble> {
    loop {
        if let Some(lock) = store.try_lock(id).map_err(|error| store_trouble(&error))? {
            return Ok(Some(lock));
        }
        if signals::wait(AGAIN) == Waited::Stopped {
            return Ok(None);
        }
    }
}

/// A sweep that is narrowed to one lease.
struct Narrow<'a> {
    config: &'a Config,
    id: &'a LeaseId,
    owner: Uid,
    eyes: &'a mut dyn Eyes,
    state: &'a State,
}

impl Narrow<'_> {
    fn end(&mut self, turns: Turns) -> Result<Option<Finished>, Trouble> {
        let seen = self.eyes.processes()?;
        // No writable journal, no signal (REDTEAM S8).
        let mut journal = Journal::open(self.state, self.config.journal, &seen, self.eyes.clocks())
            .map_err(|error| Trouble::because("nothing is done without a journal", &error))?;
        let marks = memory::marks(self.state).map_err(|error| state_trouble(&error))?;
        let mut ledger = Ledger::default();
        let Some(mut sight) = self.looks(&mut ledger, &marks)? else { return Ok(None) };
        let asked = Asked { pace: Pace::Unpaced, only: Some(POLICY.to_owned()), ..Asked::default() };
        let mut plan = plan_from(self.eyes, &mut sight.look, &sight.verdicts, self.config, &asked);
        plan.teardowns.retain(|teardown| self.is_ours(&sight, teardown.judgement.root));
        let lease = LeasedContainer::of(&sight.look, self.owner, self.id);
        plan.containers.stops.retain(|stop| lease.is(&stop.judgement.listed));
        let kept = self.kept(&sight, &plan);
        let mut finished = Finished { kept, left: lease.left(&sight, &plan), ..Finished::default() };
        if plan.teardowns.is_empty() && plan.containers.stops.is_empty() {
            return Ok(Some(finished));
        }
        if signals::asked() {
            return Ok(None);
        }
        let state = self.state;
        // The container first: ending its client would not end it (C35). Whatever becomes of it, the rest goes on.
        let mut crew = Crew {
            eyes: &mut *self.eyes,
            config: self.config,
            ledger: &ledger,
            journal: &mut journal,
            by: By::Finish,
            fresh_marks: &|| memory::marks(state).ok(),
            hands: &mut Engines,
            unwritten: None,
        };
        finished.stopped = crew.carry_out(&plan.containers.stops);
        let unwritten = crew.unwritten.take();
        let mut stand = Stand {
            eyes: &mut *self.eyes,
            config: self.config,
            ledger: &ledger,
            journal: &mut journal,
            by: By::Finish,
            look: sight.look,
            verdicts: sight.verdicts,
            fresh_marks: &|| memory::marks(state).ok(),
            checked: None,
            unwritten,
            turns,
        };
        finished.reports = carry_out(&plan, &mut stand);
        finished.unwritten = stand.unwritten.take();
        let now = self.eyes.processes()?;
        // A client that went with its container was not kept by anybody.
        let is_there = |root| now.table.get(root).is_some_and(|row| !row.is_gone());
        finished.reports.retain(|report| report.closure != Closure::Untouched || is_there(report.root));
        let stood = finished.reports.iter().filter(|report| report.closure == Closure::Untouched);
        finished.kept.extend(stood.map(|report| {
            (report.root, report.stood_down.clone().unwrap_or_else(|| "nothing was signalled".to_owned()))
        }));
        Ok(Some(finished))
    }

    /// Takes as many looks as it needs until nobody of this lease is only suspected.
    fn looks(&mut self, ledger: &mut Ledger, marks: &[KeepMark]) -> Result<Option<Sight>, Trouble> {
        let mut sight = self.look(ledger, marks)?;
        for _ in 1..LOOKS {
            let is_open = sight.verdicts.judgements.iter().any(|judgement| {
                judgement.policy == POLICY
                    && matches!(judgement.verdict, Verdict::Suspect { .. })
                    && self.is_ours(&sight, judgement.root)
            });
            let lease = LeasedContainer::of(&sight.look, self.owner, self.id);
            let is_contained_open = sight.verdicts.containers.iter().any(|judgement| {
                judgement.policy == POLICY
                    && matches!(judgement.verdict, Verdict::Suspect { .. })
                    && lease.is(&judgement.listed)
            });
            if !is_open && !is_contained_open {
                break;
            }
            // A breath more than the time apart, since looks that are closer together count once.
            let due = sight.look.snapshot.began.boot.plus(APART).plus(Duration::from_millis(20));
            if signals::wait(due.since(self.eyes.clocks().boot)) == Waited::Stopped {
                return Ok(None);
            }
            sight = self.look(ledger, marks)?;
        }
        Ok(Some(sight))
    }

    fn look(&mut self, ledger: &mut Ledger, marks: &[KeepMark]) -> Result<Sight, Trouble> {
        let sight = take(self.eyes, self.config, ledger, marks)?;
        hold_suspects(self.eyes, &sight);
        sight.remember(ledger);
        Ok(sight)
    }

    /// Says whether this lease covers the root of a condemned tree.
    fn is_ours(&self, sight: &Sight, root: ProcessId) -> bool {
        sight
            .verdicts
            .leased
            .trees
            .iter()
            .any(|lease| lease.root == root && lease.owner == self.owner && lease.lease == *self.id)
    }

    /// Returns the covered roots that stay, with the reason.
    fn kept(&self, sight: &Sight, plan: &Plan) -> Vec<(ProcessId, String)> {
        let Some(lease) = sight.look.snapshot.leases.get(self.owner, self.id) else { return Vec::new() };
        let goes = |root| plan.teardowns.iter().any(|teardown| teardown.judgement.root == root);
        covered(lease, &sight.look)
            .roots
            .into_iter()
            .filter(|root| !goes(*root))
            .map(|root| {
                let waits = plan.waiting.iter().find(|waiting| waiting.judgement.root == root);
                let judged = || {
                    let of = |judgement: &&_| is_of(judgement, root);
                    sight.verdicts.judgements.iter().find(of).map(|judgement| judgement.because.clone())
                };
                let protected = || {
                    sight.verdicts.protected.iter().find(|(id, _)| *id == root).map(|(_, why)| why.clone())
                };
                let why = waits.map(|waiting| text::wait(&waiting.why)).or_else(judged).or_else(protected);
                (root, why.unwrap_or_else(|| "no policy looks at it".to_owned()))
            })
            .collect()
    }
}

fn is_of(judgement: &crate::model::verdict::Judgement, root: ProcessId) -> bool {
    judgement.root == root && judgement.policy == POLICY
}
