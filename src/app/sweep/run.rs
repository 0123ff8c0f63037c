//! A sweep that may act: under the lock, with a journal, it looks, shows, asks, looks again and tears down.

use super::{Consent, Found, Manner, looks, seen};
use crate::act::processes::raise_descriptor_limit;
use crate::app::containers::carry::{Crew, Engines, Hands};
use crate::app::exit::Exit;
use crate::app::glance::released_for;
use crate::app::journal::Journal;
use crate::app::journal::entry::By;
use crate::app::lease::tidy::tidy;
use crate::app::lease::turn::Turns;
use crate::app::lock::{self, LockError};
use crate::app::look::{Eyes, Sight, foreseen, plan as plan_from};
use crate::app::memory::{self, Remembered};
use crate::app::place::state_trouble;
use crate::app::question::{Reply, ask};
use crate::app::report::{Detail, Done, Stage, containers, json, outcome, text};
use crate::app::residue::{self, Clearance, Seek};
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
use crate::model::known::Reason;
use crate::model::look::Gap;
use crate::model::plan::Plan;
use crate::model::residue::Removal;
use crate::model::verdict::Verdicts;
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

/// What the last look confirmed.
struct Confirmed {
    sight: Sight,
    plan: Plan,
    verdicts: Verdicts,
}

impl Run<'_> {
    /// Runs it on this machine.
    pub(super) fn run(self) -> Result<(Exit, Found), Trouble> {
        let state = self.session.around.state(&self.session.place)?;
        let mut observer = self.session.observer(self.config)?;
        if let Some(heard) = memory::heard(&state) {
            observer.remember(heard);
        }
        let ended = self.run_with(&state, &mut observer, &mut Engines);
        // However it ended: what was asked was asked.
        memory::save_heard(&state, &observer.heard()).map_err(|error| state_trouble(&error))?;
        ended
    }

    /// Runs it, from the lock to the last word.
    fn run_with(
        mut self,
        state: &State,
        eyes: &mut dyn Eyes,
        hands: &mut dyn Hands,
    ) -> Result<(Exit, Found), Trouble> {
        // Every suspect costs a handle, and every member of a tree that goes one more.
        raise_descriptor_limit();
        // From before the ledger is read until the end: two sweeps must not count each other's looks.
        let _lock = lock::take(&self.session.around, eyes.clocks().wall).map_err(|error| locked(&error))?;
        let mut ledger = self.ledger(state)?;
        let seen = eyes.processes()?;
        // No writable journal, no signal: found out before anything is shown.
        let mut journal = Journal::open(state, self.config.journal, &seen, eyes.clocks())
            .map_err(|error| Trouble::because("nothing is done without a journal", &error))?;
        let taken_up = takeup::take_up(self.session, eyes, self.config, state, &mut journal, &mut ledger)?;
        journal
            .rotate(eyes.clocks())
            .map_err(|error| Trouble::because("cannot rotate the journal", &error))?;

        let marks = memory::marks(state).map_err(|error| state_trouble(&error))?;
        let releases = memory::releases(state).map_err(|error| state_trouble(&error))?.of(&seen.boot);
        self.asked.released = released_for(&releases);
        let ended = self.look_and_act(eyes, hands, state, &mut journal, &mut ledger, &marks);
        memory::save_ledger(state, &ledger).map_err(|error| state_trouble(&error))?;
        let (exit, found) = ended?;
        if exit != Exit::Interrupted {
            memory::use_up(state, &seen.boot, &releases).map_err(|error| state_trouble(&error))?;
            // A directory that could not be read within time would be waited for in there.
            let is_hung = |gap: &Gap| gap.source.contains(Gap::LEASES) && gap.why.reason == Reason::Hung;
            if !seen.gaps.iter().any(is_hung) {
                tidy(&self.session.around, eyes, self.config, &ledger);
            }
        }
        Ok((exit.max(taken_up), found))
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
        hands: &mut dyn Hands,
        state: &State,
        journal: &mut Journal<'_>,
        ledger: &mut Ledger,
        marks: &[KeepMark],
    ) -> Result<(Exit, Found), Trouble> {
        let temporary = self.session.around.temporary();
        let only = self.asked.only.clone();
        let seek = Seek { config: self.config, temporary: &temporary, only: only.as_deref() };
        let mut sight = self.look(eyes, ledger, marks)?;
        let mut found = left_behind(eyes, seek, &mut sight, ledger);
        let mut confirmed = match self.manner {
            Manner::DryRun | Manner::ByHand(_) => foreseen(&sight.verdicts),
            Manner::Once(_) => sight.verdicts.clone(),
        };
        let mut plan = plan_from(eyes, &mut sight.look, &confirmed, self.config, &self.asked);
        if matches!(self.manner, Manner::ByHand(_)) {
            found = found.foreseen();
        }
        plan.residue = residue::plan(eyes, seek, &sight.look, &plan, &found);
        let stage = match self.manner {
            Manner::Once(_) => Stage::Confirmed,
            Manner::DryRun | Manner::ByHand(_) => Stage::FirstLook,
        };
        let orphans = Found::of(&plan);
        self.show(&sight, &plan, stage);
        if plan.teardowns.is_empty() && plan.residue.removals.is_empty() && plan.containers.stops.is_empty() {
            self.finish(&sight, &plan, stage, &Done::default());
            return Ok((Exit::Done, orphans));
        }
        if self.consent == Consent::Ask {
            match ask(&mut self.session.out, &looks::question(&plan)) {
                Reply::Yes => {}
                Reply::No => {
                    self.finish(&sight, &plan, stage, &Done::default());
                    return Ok((Exit::Done, orphans));
                }
                Reply::Stopped => return Ok((self.stopped(), orphans)),
            }
        }
        if matches!(self.manner, Manner::ByHand(_)) {
            let Some(last) = self.look_again(eyes, ledger, marks, &sight, &plan)? else {
                return Ok((self.stopped(), orphans));
            };
            sight = last;
            found = left_behind(eyes, seek, &mut sight, ledger);
            confirmed = sight.verdicts.clone();
            let (shown, shown_containers) = (looks::trees(&plan), looks::containers(&plan));
            let residue = std::mem::take(&mut plan.residue);
            plan = plan_from(eyes, &mut sight.look, &confirmed, self.config, &self.asked);
            // The person said yes to what was on the screen, and to nothing else.
            plan.teardowns.retain(|teardown| {
                shown.contains(&(teardown.judgement.root, teardown.judgement.policy.clone()))
            });
            plan.containers.stops.retain(|stop| {
                shown_containers.contains(&(stop.run.at.clone(), stop.judgement.policy.clone()))
            });
            plan.residue = residue::plan(eyes, seek, &sight.look, &plan, &found);
            let was_shown = |removal: &Removal| {
                residue
                    .removals
                    .iter()
                    .any(|one| one.place == removal.place && one.own.file == removal.own.file)
            };
            plan.residue.removals.retain(was_shown);
            // Where nothing that runs was shown, the yes was to what trees left behind.
            let confirmed = if shown.is_empty() && shown_containers.is_empty() {
                plan.residue.removals.len()
            } else {
                plan.teardowns.len() + plan.containers.stops.len()
            };
            self.session.out.talk(&format!("{} confirmed.", words::number(confirmed)));
        }
        if signals::asked() {
            return Ok((self.stopped(), orphans));
        }
        let exit =
            self.act(eyes, hands, state, journal, ledger, Confirmed { sight, plan, verdicts: confirmed })?;
        Ok((exit, orphans))
    }

    /// Carries the plan out, and says what became of everything.
    fn act(
        &mut self,
        eyes: &mut dyn Eyes,
        hands: &mut dyn Hands,
        state: &State,
        journal: &mut Journal<'_>,
        ledger: &Ledger,
        confirmed: Confirmed,
    ) -> Result<Exit, Trouble> {
        let Confirmed { sight, plan, verdicts } = confirmed;
        memory::save_ledger(state, ledger).map_err(|error| state_trouble(&error))?;
        let by = if matches!(self.manner, Manner::Once(_)) { By::Once } else { By::Hand };
        // First, since ending the client of a container is not ending the container (C35).
        let mut crew = Crew {
            eyes: &mut *eyes,
            config: self.config,
            ledger,
            journal: &mut *journal,
            by,
            fresh_marks: &|| memory::marks(state).ok(),
            hands,
            unwritten: None,
        };
        let stopped = crew.carry_out(&plan.containers.stops);
        let unwritten = crew.unwritten.take();
        let mut stand = Stand {
            eyes,
            config: self.config,
            ledger,
            journal,
            by,
            look: sight.look.clone(),
            verdicts,
            fresh_marks: &|| memory::marks(state).ok(),
            checked: None,
            unwritten,
            turns: Turns::none(&self.session.around),
        };
        let reports = carry_out(&plan, &mut stand);
        let mut unwritten = stand.unwritten.take();
        let mut cleared = Vec::new();
        // What trees left is worth nothing against a journal that is not written any more.
        if unwritten.is_none() && !signals::asked() {
            let temporary = self.session.around.temporary();
            let only = self.asked.only.as_deref();
            let seek = Seek { config: self.config, temporary: &temporary, only };
            let fresh_marks = &|| memory::marks(state).ok();
            let clearance = Clearance { eyes, seek, ledger, journal, by, fresh_marks };
            unwritten = residue::carry_out(&plan.residue, &reports, clearance, &mut cleared).err();
        }
        let done = Done { reports: &reports, cleared: &cleared, stopped: &stopped };
        self.finish(&sight, &plan, Stage::Confirmed, &done);
        let mut exit =
            outcome::exit(&reports).max(outcome::residue_exit(&cleared)).max(containers::exit(&stopped));
        if let Some(why) = unwritten {
            self.session.talk(&format!("not everything that was done is in the journal: {why}"));
            exit = exit.max(Exit::Failed);
        }
        Ok(exit)
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

    fn finish(&mut self, sight: &Sight, plan: &Plan, stage: Stage, done: &Done<'_>) {
        if self.session.place.json {
            let seen = seen(self.session, self.config, &self.asked, sight, plan, (stage, self.detail));
            let json = json::sweep(&seen, done);
            self.session.json(&json);
        } else {
            let lines = outcome::all(done, &sight.look, self.session.out.colour);
            self.session.out.data(&lines);
        }
    }
}

/// Looks for what trees left behind, and has it remembered.
fn left_behind<'a>(
    eyes: &mut dyn Eyes,
    seek: Seek<'a>,
    sight: &mut Sight,
    ledger: &mut Ledger,
) -> residue::Found<'a> {
    let mut found = residue::look(eyes, seek, &sight.look, ledger);
    found.remember(ledger, &sight.look);
    sight.look.snapshot.gaps.append(&mut found.gaps);
    found
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
    use std::cell::RefCell;
    use std::collections::BTreeSet;
    use std::io::Write;
    use std::os::unix::fs::DirBuilderExt as _;
    use std::path::PathBuf;
    use std::rc::Rc;
    use std::time::Duration;

    use rustix::fs::FlockOperation;
    use serde_json::Value;

    use crate::act::containers::{Begin, Witness, report};
    use crate::app::cli::Place;
    use crate::app::journal::entry::Event;
    use crate::app::journal::{Durability, USUAL};
    use crate::app::look::take;
    use crate::app::machine::{Machine, When};
    use crate::app::out::Out;
    use crate::app::place::Surroundings;
    use crate::app::sample;
    use crate::app::signals::Alone;
    use crate::config::{self, Context};
    use crate::judge::rules;
    use crate::model::container::stop::{Stop, StopOutcome, StopReport, StopStep};
    use crate::model::container::{ContainerFacts, ContainerState, Health, sample as container};
    use crate::model::id::Pid;
    use crate::model::keep::Kept;
    use crate::model::plan::Teardown;
    use crate::model::verdict::Mode;

    /// Longer than what a test does between two looks that it does not want to count both.
    const APART: Duration = Duration::from_mins(5);
    /// What is waited for in earnest.
    const SHORTLY: Duration = Duration::from_millis(20);

    const ONE: &str = "  5100 1 2d gopls\n  stdin 5100 pipe gone\n  stdout 5100 pipe gone\n";
    const OTHER: &str = "  5200 1 2d gopls\n  stdin 5200 pipe gone\n  stdout 5200 pipe gone\n";

    /// The scans of one sweep: whose boot it is, what a crash left, and then the looks.
    const FIRST_LOOK: usize = 3;

    /// A desk of its own to sweep from.
    struct Desk {
        base: tempfile::TempDir,
        config: Config,
        _alone: Alone,
    }

    /// Ends containers in thought.
    #[derive(Default)]
    struct Hand(Vec<String>);

    impl Hands for Hand {
        fn end(
            &mut self,
            stops: &[Stop],
            _: Begin,
            _: Duration,
            witness: &mut dyn Witness,
        ) -> Vec<StopReport> {
            let end = |stop: &Stop| {
                self.0.push(stop.judgement.listed.names[0].clone());
                let now = witness.now();
                let report = report(stop, vec![(StopStep::Stop, None)], StopOutcome::Gone, (now, now));
                witness.ended(&report);
                report
            };
            stops.iter().map(end).collect()
        }
    }

    /// What became of a sweep.
    #[derive(Debug)]
    struct Swept {
        exit: Exit,
        json: Value,
        talk: String,
    }

    impl Swept {
        /// Whom it set about to tear down. Nobody is there to be signalled, so that all are reported as gone before.
        fn set_about(&self) -> Vec<i64> {
            let Some(all) = self.json["teardowns"].as_array() else { return Vec::new() };
            all.iter().map(|teardown| teardown["root"].as_i64().unwrap()).collect()
        }
    }

    #[derive(Clone, Default)]
    struct Screen(Rc<RefCell<Vec<u8>>>);

    impl Write for Screen {
        fn write(&mut self, text: &[u8]) -> std::io::Result<usize> {
            self.0.borrow_mut().write(text)
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    impl Screen {
        fn text(&self) -> String {
            String::from_utf8(self.0.borrow().clone()).unwrap()
        }
    }

    impl Desk {
        fn new(apart: Duration) -> Desk {
            let specs: Vec<_> = rules::ALL.iter().map(|rule| &rule.spec).collect();
            let mut config = config::load(None, &Context { rules: &specs, home: None }).unwrap();
            config.confirm.apart = apart;
            assert_eq!((config.confirm.looks, config.mode), (2, Mode::Reap));
            let base = tempfile::tempdir().unwrap();
            // Whatever the umask: a lock is taken in no directory that others may write.
            std::fs::DirBuilder::new().mode(0o700).create(base.path().join("run")).unwrap();
            Desk { base, config, _alone: Alone::new() }
        }

        fn state(&self) -> State {
            State::open(&self.base.path().join("state")).unwrap()
        }

        fn lock(&self) -> PathBuf {
            self.base.path().join("run/reapd.lock")
        }

        fn sweep(&self, machine: &mut Machine<'_>, manner: Manner) -> Swept {
            self.sweep_by(machine, &mut Hand::default(), manner)
        }

        fn sweep_by(&self, machine: &mut Machine<'_>, hand: &mut Hand, manner: Manner) -> Swept {
            // A user of nobody, so that the lock is in no directory that others share.
            let run = self.base.path().join("run");
            let around = Surroundings::of(&[("XDG_RUNTIME_DIR", run.to_str().unwrap())], u32::MAX - 7);
            let (data, talk) = (Screen::default(), Screen::default());
            let mut session = Session {
                around,
                place: Place { json: true, ..Place::default() },
                out: Out::to(Box::new(data.clone()), Box::new(talk.clone())),
            };
            let run = Run {
                session: &mut session,
                config: &self.config,
                asked: Asked { pace: super::super::pace(manner), ..Asked::default() },
                detail: Detail::Some,
                manner,
                consent: Consent::Given,
            };
            let (exit, _) = run.run_with(&self.state(), machine, hand).unwrap();
            let json = serde_json::from_str(&data.text()).unwrap_or(Value::Null);
            Swept { exit, json, talk: talk.text() }
        }

        fn once(&self, machine: &mut Machine<'_>) -> Swept {
            machine.scans.clear();
            self.sweep(machine, Manner::Once(Consent::Given))
        }

        fn by_hand(&self, machine: &mut Machine<'_>) -> Swept {
            machine.scans.clear();
            machine.run();
            self.sweep(machine, Manner::ByHand(Consent::Given))
        }

        /// A look as another sweep took it a while ago, and what it would remember.
        fn earlier_look(&self, machine: &mut Machine<'_>) -> (Ledger, Sight) {
            let mut ledger = Ledger::default();
            let sight = take(machine, &self.config, &mut ledger, &[]).unwrap();
            sight.remember(&mut ledger);
            machine.ahead += APART;
            machine.scans.clear();
            (ledger, sight)
        }
    }

    #[test]
    fn a_timer_never_acts_on_one_look() {
        let desk = Desk::new(APART);
        let mut machine = Machine::new(ONE);
        let first = desk.once(&mut machine);
        assert_eq!(first.set_about(), [] as [i64; 0], "{first:?}");
        assert_eq!(first.json["trees"][0]["verdict"], "suspect", "{first:?}");
        machine.ahead += APART.saturating_sub(Duration::from_millis(1));
        assert_eq!(desk.once(&mut machine).set_about(), [] as [i64; 0], "looks too close together are one");
        machine.ahead += Duration::from_millis(1);
        assert_eq!(desk.once(&mut machine).set_about(), [5100], "the twin of two looks");

        // What was seen before is remembered nowhere else.
        std::fs::remove_file(desk.base.path().join("state/ledger.json")).unwrap();
        machine.ahead += APART;
        assert_eq!(desk.once(&mut machine).set_about(), [] as [i64; 0]);
    }

    #[test]
    fn a_timer_counts_no_look_of_a_bad_ledger() {
        let desk = Desk::new(APART);
        let mut machine = Machine::new(ONE);
        let (ledger, _) = desk.earlier_look(&mut machine);
        memory::save_ledger(&desk.state(), &ledger).unwrap();
        let path = desk.base.path().join("state/ledger.json");
        let text = std::fs::read_to_string(&path).unwrap();
        std::fs::write(&path, text.replacen("\"v\":1", "\"v\":2", 1)).unwrap();
        let swept = desk.once(&mut machine);
        assert_eq!(swept.set_about(), [] as [i64; 0]);
        assert!(swept.talk.contains("of another version"), "{swept:?}");
        std::fs::write(&path, text).unwrap();
        assert_eq!(desk.once(&mut machine).set_about(), [5100], "the twin of this version");
    }

    #[test]
    fn by_hand_a_second_look_is_waited_for_and_decides() {
        let desk = Desk::new(SHORTLY);
        let mut machine = Machine::new(ONE);
        let swept = desk.by_hand(&mut machine);
        assert_eq!(swept.set_about(), [5100], "{swept:?}");
        let [first, second] = machine.scans[FIRST_LOOK - 1..] else { panic!("{:?}", machine.scans) };
        assert!(second.since(first) >= SHORTLY, "{:?}", second.since(first));

        let mut machine = Machine::new(ONE);
        // Somebody came meanwhile.
        machine.at(When::Scan(FIRST_LOOK + 1), |machine| machine.is(&ONE.replace("gone", "held by=6000")));
        let swept = desk.by_hand(&mut machine);
        assert_eq!(machine.scans.len(), FIRST_LOOK + 1);
        assert_eq!(swept.set_about(), [] as [i64; 0], "{swept:?}");
    }

    #[test]
    fn by_hand_an_earlier_look_of_a_timer_saves_no_second_one() {
        let desk = Desk::new(SHORTLY);
        let mut machine = Machine::new(ONE);
        let (ledger, _) = desk.earlier_look(&mut machine);
        memory::save_ledger(&desk.state(), &ledger).unwrap();
        assert_eq!(desk.by_hand(&mut machine).set_about(), [5100]);
        assert_eq!(
            machine.scans.len(),
            FIRST_LOOK + 1,
            "the person saw the first, and time has passed since"
        );
    }

    #[test]
    fn by_hand_nobody_is_reaped_who_is_not_confirmed_in_the_end_f13() {
        let desk = Desk::new(SHORTLY);
        let mut machine = Machine::new(ONE);
        for further in 1..=8 {
            let sleeps = |machine: &mut Machine<'_>| machine.asleep += Duration::from_secs(10);
            machine.at(When::Scan(FIRST_LOOK + further), sleeps);
        }
        let swept = desk.by_hand(&mut machine);
        assert_eq!(swept.json["trees"][0]["verdict"], "suspect", "{swept:?}");
        assert_eq!(swept.set_about(), [] as [i64; 0], "{swept:?}");
        assert!(machine.scans.len() > FIRST_LOOK + 1, "looks that were slept through are taken anew");
    }

    #[test]
    fn by_hand_only_what_was_on_the_screen_is_reaped() {
        let mut desk = Desk::new(SHORTLY);
        // On the screen the other waits for a person's release: it is too large.
        desk.config.limits.processes_per_tree = 1;
        let large = format!("{ONE}{OTHER}").replace("  stdin 5100", "  5201 5200 2d gopls\n  stdin 5100");
        let small = format!("{ONE}{OTHER}");
        let mut machine = Machine::new(&large);
        machine.at(When::Scan(FIRST_LOOK + 1), move |machine| machine.is(&small));
        let swept = desk.by_hand(&mut machine);
        let condemned: BTreeSet<i64> = swept.json["trees"]
            .as_array()
            .unwrap()
            .iter()
            .filter(|tree| tree["verdict"] == "orphaned")
            .map(|tree| tree["root"]["pid"].as_i64().unwrap())
            .collect();
        assert_eq!(condemned, [5100, 5200].into(), "{swept:?}");
        assert_eq!(swept.set_about(), [5100], "{swept:?}");
    }

    #[test]
    fn whoever_asks_to_stop_between_the_looks_sees_no_further_look() {
        let desk = Desk::new(SHORTLY);
        let mut machine = Machine::new(ONE);
        machine.at(When::Scan(FIRST_LOOK), |_| Alone::ask_to_stop());
        let swept = desk.by_hand(&mut machine);
        assert_eq!((swept.exit, machine.scans.len()), (Exit::Interrupted, FIRST_LOOK), "{swept:?}");
        assert!(swept.talk.contains("nothing was signalled"), "{swept:?}");
        assert_eq!(swept.json, Value::Null);
    }

    #[test]
    fn whoever_asks_to_stop_at_the_last_look_has_nothing_set_about() {
        let desk = Desk::new(SHORTLY);
        let mut machine = Machine::new(ONE);
        machine.at(When::Scan(FIRST_LOOK + 1), |_| Alone::ask_to_stop());
        let swept = desk.by_hand(&mut machine);
        assert_eq!((swept.exit, swept.set_about()), (Exit::Interrupted, Vec::new()), "{swept:?}");
        assert!(swept.talk.contains("1 confirmed"), "it was the last look: {swept:?}");
    }

    #[test]
    fn a_whole_sweep_is_under_one_lock_from_before_the_ledger_is_read_f15() {
        let desk = Desk::new(APART);
        let mut machine = Machine::new(ONE);
        let (ledger, _) = desk.earlier_look(&mut machine);
        let open = || std::fs::OpenOptions::new().create(true).append(true).open(desk.lock()).unwrap();
        let try_lock =
            |file: &std::fs::File| rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive);
        let other = open();
        try_lock(&other).unwrap();
        // The other one ends, and leaves its look behind, while this one waits for the lock.
        let state = desk.state();
        machine.at(When::Clocks, move |_| {
            memory::save_ledger(&state, &ledger).unwrap();
            drop(other);
        });
        for scan in 1..=FIRST_LOOK {
            machine.at(When::Scan(scan), move |_| {
                assert!(try_lock(&open()).is_err(), "at scan {scan} another one may begin");
            });
        }
        let swept = desk.once(&mut machine);
        assert_eq!(swept.set_about(), [5100], "its look was counted: {swept:?}");
        assert_eq!(machine.scans.len(), FIRST_LOOK);
    }

    #[test]
    fn what_is_kept_is_not_planned() {
        let desk = Desk::new(APART);
        let mut machine = Machine::new(&format!("{ONE}{OTHER}"));
        let (ledger, sight) = desk.earlier_look(&mut machine);
        memory::save_ledger(&desk.state(), &ledger).unwrap();
        let id = sight.verdicts.judgements[0].root;
        assert_eq!(id.pid.number(), 5100);
        let what = Kept::Process { boot: sight.look.snapshot.boot, id, name: String::new() };
        let mark = KeepMark { what, until: None, set: 0, note: None };
        memory::change_marks(&desk.state(), |marks| marks.push(mark)).unwrap();
        assert_eq!(desk.once(&mut machine).set_about(), [5200]);
    }

    #[test]
    fn what_a_crash_cut_short_is_judged_from_the_first_look_where_its_root_lives_f12() {
        let desk = Desk::new(APART);
        let mut machine = Machine::new(&format!("{ONE}{OTHER}"));
        let (ledger, sight) = desk.earlier_look(&mut machine);
        let state = desk.state();
        memory::save_ledger(&state, &ledger).unwrap();
        let judgement = sight.verdicts.judgements[0].clone();
        let teardown = Box::new(Teardown { judgement, ..sample::teardown(5100, "language-server") });
        let mut journal = Journal::open(&state, USUAL, &sight.look.snapshot, machine.clocks()).unwrap();
        let intent = Event::Intent { teardown, by: By::Hand };
        journal.note(intent, machine.clocks(), Durability::Handed).unwrap();
        let swept = desk.once(&mut machine);
        assert!(swept.talk.contains("judged anew"), "{swept:?}");
        assert_eq!(swept.set_about(), [5200], "the other was seen before: {swept:?}");
        machine.ahead += APART;
        assert!(desk.once(&mut machine).set_about().contains(&5100));
    }

    /// Who has been unhealthy for as long as anybody looks, by a policy that is content with that.
    fn with_containers(desk: &mut Desk, numbers: &[u32]) -> Machine<'static> {
        let specs: Vec<_> = rules::ALL.iter().map(|rule| &rule.spec).collect();
        let text = "[container.sick]\nmatch = { image = \"mcp/**\" }\nwithout-proof = true\n\
                    reap-when = [{ unhealthy = true }]\n";
        let source = config::Source { name: "sick.toml", text };
        let config = config::load(Some(source), &Context { rules: &specs, home: None }).unwrap();
        desk.config.containers =
            config.containers.into_iter().filter(|policy| policy.name == "sick").collect();
        let rows: Vec<String> =
            numbers.iter().map(|number| format!("  {} 1 2d server\n", 7000 + number)).collect();
        let mut machine = Machine::new(&rows.concat());
        let seen = machine.table().unwrap();
        machine.scans.clear();
        let facts = |number: &u32| {
            let row = seen.table.at(Pid::new(7000 + i32::try_from(*number).unwrap()).unwrap()).unwrap();
            let (init, began) = (Ok(row.id), Ok(row.began));
            let health = Some(Health::Unhealthy { failing: 9 });
            ContainerFacts { init, began, health, ..container::facts(*number) }
        };
        machine.containers = Some(numbers.iter().map(facts).collect());
        machine
    }

    fn once_by(desk: &Desk, machine: &mut Machine<'_>) -> (Vec<String>, Swept) {
        machine.scans.clear();
        let mut hand = Hand::default();
        let swept = desk.sweep_by(machine, &mut hand, Manner::Once(Consent::Given));
        (hand.0, swept)
    }

    fn by_hand_by(desk: &Desk, machine: &mut Machine<'_>) -> (Vec<String>, Swept) {
        machine.scans.clear();
        machine.run();
        let mut hand = Hand::default();
        let swept = desk.sweep_by(machine, &mut hand, Manner::ByHand(Consent::Given));
        (hand.0, swept)
    }

    #[test]
    fn a_container_goes_at_the_second_look_of_a_timer_and_never_at_the_first() {
        let mut desk = Desk::new(APART);
        let mut machine = with_containers(&mut desk, &[1, 2]);
        let (ended, swept) = once_by(&desk, &mut machine);
        assert_eq!(
            (ended.len(), &swept.json["containers"][0]["verdict"]),
            (0, &"suspect".into()),
            "{swept:?}"
        );
        machine.ahead += APART;
        // Both in one batch, on a fresh look besides the one that confirmed.
        let (ended, swept) = once_by(&desk, &mut machine);
        assert_eq!(
            (ended, machine.scans.len()),
            (vec!["helper-1".into(), "helper-2".into()], FIRST_LOOK + 1)
        );
        assert_eq!(swept.json["container_reports"][1]["outcome"], "gone", "{swept:?}");
        let history = crate::app::journal::history::read(&desk.state(), 0).unwrap();
        assert_eq!(crate::app::journal::stopped::stops(&history).len(), 2);
    }

    #[test]
    fn what_changed_between_the_last_look_and_the_first_call_stands_a_container_down() {
        let changes: [fn(&mut ContainerFacts); 3] = [
            |facts| facts.health = Some(Health::Healthy),
            |facts| facts.run.started = "2027-01-01T00:00:00Z".into(),
            |facts| facts.state = ContainerState::Paused,
        ];
        for change in changes {
            let mut desk = Desk::new(SHORTLY);
            let mut machine = with_containers(&mut desk, &[1, 2]);
            machine.at(When::Scan(FIRST_LOOK + 2), move |machine| {
                change(&mut machine.containers.as_mut().unwrap()[0]);
            });
            let (ended, swept) = by_hand_by(&desk, &mut machine);
            assert_eq!(ended, ["helper-2"], "{swept:?}");
            assert_eq!(swept.json["container_reports"][0]["outcome"], "untouched", "{swept:?}");
        }
    }

    #[test]
    fn a_container_that_is_kept_while_the_question_stands_is_spared() {
        let mut desk = Desk::new(SHORTLY);
        let mut machine = with_containers(&mut desk, &[1, 2]);
        let state = desk.state();
        let what = Kept::Container { at: container::at(1), name: String::new() };
        machine.at(When::Scan(FIRST_LOOK + 1), move |_| {
            let mark = KeepMark { what, until: None, set: 0, note: None };
            memory::change_marks(&state, |marks| marks.push(mark)).unwrap();
        });
        let (ended, swept) = by_hand_by(&desk, &mut machine);
        assert_eq!(ended, ["helper-2"], "{swept:?}");
    }

    #[test]
    fn by_hand_only_containers_that_were_on_the_screen_are_stopped() {
        let mut desk = Desk::new(SHORTLY);
        let mut machine = with_containers(&mut desk, &[1, 2]);
        // The second is paused on the screen; a sleep then has both looked at twice more.
        let of = |state: ContainerState| {
            move |machine: &mut Machine<'_>| machine.containers.as_mut().unwrap()[1].state = state
        };
        of(ContainerState::Paused)(&mut machine);
        machine.at(When::Scan(FIRST_LOOK + 1), |machine| machine.asleep += Duration::from_secs(10));
        machine.at(When::Scan(FIRST_LOOK + 1), of(ContainerState::Running));
        let (ended, swept) = by_hand_by(&desk, &mut machine);
        let condemned = |at: usize| swept.json["containers"][at]["verdict"] == "orphaned";
        assert!(condemned(0) && condemned(1), "{swept:?}");
        assert_eq!(ended, ["helper-1"], "{swept:?}");
    }
}
