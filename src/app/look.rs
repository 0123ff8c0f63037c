//! One look: the table, then questions and answers in turns until nobody has any left, then the judgement.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bstr::BString;

use super::memory;
use super::trouble::Trouble;
use crate::config::policy::{AdmitEnv, Capture, Config, ContainerCapture, PlacePart, Source};
use crate::judge::ledger::Begun;
use crate::judge::protect::protected;
use crate::judge::{self, Candidates, Ledger, Notes};
use crate::model::id::ProcessId;
use crate::model::keep::KeepMark;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::{Look, Snapshot};
use crate::model::moment::Clocks;
use crate::model::plan::Plan;
use crate::model::question::{Answer, Question};
use crate::model::residue::{Ask, Told};
use crate::model::verdict::{Judgement, Verdict, Verdicts};
use crate::observe::{self, Observer};
use crate::plan::{self, Asked};

/// Rules ask in turns, each resting on the answers before: facts, then channels, then holders, then their facts.
/// Some turns more than the longest such chain; what is then still open counts as unknown.
const TURNS: usize = 12;

/// What looks at the machine. The observer does; tests look at a machine of their own.
pub trait Eyes {
    /// Scans the table.
    fn table(&mut self) -> Result<Snapshot, Trouble>;
    /// Scans the table and asks no engine: a list of containers costs each engine a call, and only a look needs it.
    fn processes(&mut self) -> Result<Snapshot, Trouble> {
        self.table()
    }
    /// Answers questions.
    fn answer(&mut self, snapshot: &Snapshot, questions: &[Question]) -> Vec<(Question, Known<Answer>)>;
    /// Reads the clocks.
    fn clocks(&mut self) -> Clocks;
    /// Holds exactly these processes from now on; whom it holds already it goes on holding by the same handle.
    fn pin(&mut self, ids: &[ProcessId]);
    /// Returns those of the held ones that do not surely run any more, whoever bears their numbers now.
    fn lost(&mut self) -> Vec<ProcessId>;
    /// Looks at what trees left behind, and at who still uses it; one reply for each.
    fn residue(&mut self, asked: Vec<Ask>) -> Vec<Known<Told>> {
        asked.iter().map(|_| Err(Unknown::new(Reason::NotAsked, "what trees left behind"))).collect()
    }
}

impl Eyes for Observer {
    fn table(&mut self) -> Result<Snapshot, Trouble> {
        Observer::table(self).map_err(|error| Trouble::because("cannot read the process table", &error))
    }

    fn processes(&mut self) -> Result<Snapshot, Trouble> {
        Observer::processes(self).map_err(|error| Trouble::because("cannot read the process table", &error))
    }

    fn answer(&mut self, snapshot: &Snapshot, questions: &[Question]) -> Vec<(Question, Known<Answer>)> {
        Observer::answer(self, snapshot, questions)
    }

    fn clocks(&mut self) -> Clocks {
        observe::clocks()
    }

    fn pin(&mut self, ids: &[ProcessId]) {
        Observer::pin(self, ids);
    }

    fn lost(&mut self) -> Vec<ProcessId> {
        Observer::lost(self)
    }

    fn residue(&mut self, asked: Vec<Ask>) -> Vec<Known<Told>> {
        Observer::residue(self, asked)
    }
}

/// A look with its judgement.
#[derive(Debug)]
pub struct Sight {
    /// What was seen.
    pub look: Look,
    /// Which policies apply to whom.
    pub candidates: Candidates,
    /// What was judged.
    pub verdicts: Verdicts,
    /// What the ledger is to remember of it.
    pub notes: Notes,
    /// What the ledger made of the time since the look before.
    pub begun: Begun,
    /// Roots whose handle did not lead to a living process any more: what was known of them was forgotten.
    pub lost: Vec<ProcessId>,
    /// How long it took.
    pub took: Duration,
}

impl Sight {
    /// Has the ledger remember this look.
    pub fn remember(&self, ledger: &mut Ledger) {
        ledger.remember(&self.look, &self.candidates, &self.verdicts, &self.notes);
    }
}

/// Takes one look and judges it. The ledger is only made ready; what is to be remembered is for the caller to say.
///
/// Whoever was held and does not surely run any more begins anew: number and start tick may be a successor's (CASES
/// C07). Handles are asked after all reads, so that a living one vouches for the whole look.
pub fn take(
    eyes: &mut dyn Eyes,
    config: &Config,
    ledger: &mut Ledger,
    marks: &[KeepMark],
) -> Result<Sight, Trouble> {
    let started = Instant::now();
    let mut look = Look::new(eyes.table()?);
    look.marks = memory::valid_marks(marks, &look.snapshot.boot, look.snapshot.began.wall);
    let begun = ledger.begin(&look, &config.confirm);
    let candidates = judge::candidates(&look, config);
    gather(eyes, &mut look, |look| judge::questions(look, config, &candidates, ledger));
    let lost = eyes.lost();
    if !lost.is_empty() {
        for &root in &lost {
            ledger.forget(root);
        }
        gather(eyes, &mut look, |look| judge::questions(look, config, &candidates, ledger));
    }
    let (verdicts, notes) = judge::judge(&look, config, &candidates, ledger);
    Ok(Sight { look, candidates, verdicts, notes, begun, lost, took: started.elapsed() })
}

/// Holds the root of every suspected tree from the first look that suspects it: a suspicion grows only while this handle
/// leads to a living process.
pub fn hold_suspects(eyes: &mut dyn Eyes, sight: &Sight) {
    let suspected = |judgement: &&Judgement| {
        matches!(judgement.verdict, Verdict::Suspect { .. } | Verdict::Orphaned { .. })
    };
    let suspects: BTreeSet<ProcessId> =
        sight.verdicts.judgements.iter().filter(suspected).map(|judgement| judgement.root).collect();
    // Whoever was lost at this look is suspected for the first time, so its old handle is let go before a new one is
    // opened. Who dies between this look and here keeps the old one, and is lost at the next.
    let held: Vec<ProcessId> = suspects.iter().copied().filter(|id| !sight.lost.contains(id)).collect();
    eyes.pin(&held);
    if held.len() < suspects.len() {
        eyes.pin(&suspects.into_iter().collect::<Vec<_>>());
    }
}

/// Returns verdicts as they would be after enough further looks that agree: every suspect confirmed.
pub fn foreseen(verdicts: &Verdicts) -> Verdicts {
    let mut foreseen = verdicts.clone();
    for judgement in &mut foreseen.judgements {
        if let Verdict::Suspect { since, .. } = judgement.verdict {
            judgement.verdict = Verdict::Orphaned { since };
        }
    }
    for judgement in &mut foreseen.containers {
        if let Verdict::Suspect { since, .. } = judgement.verdict {
            judgement.verdict = Verdict::Orphaned { since };
        }
    }
    foreseen
}

/// Plans, asking first what the plan needs to know.
pub fn plan(
    eyes: &mut dyn Eyes,
    look: &mut Look,
    verdicts: &Verdicts,
    config: &Config,
    asked: &Asked,
) -> Plan {
    gather(eyes, look, |look| plan::questions(verdicts, look, config, asked));
    let mut verdicts = verdicts.clone();
    protect_asked(look, config, &mut verdicts);
    plan::plan(&verdicts, look, config, asked)
}

/// Adds whoever must never be touched among those whose facts were asked: whom plan would take in, judge need not have
/// looked at.
pub fn protect_asked(look: &Look, config: &Config, verdicts: &mut Verdicts) {
    let asked: Vec<ProcessId> = look
        .answers
        .keys()
        .filter_map(|question| if let Question::Facts(id) = question { Some(*id) } else { None })
        .collect();
    for (id, why) in protected(look, config, &asked) {
        if !verdicts.protected.iter().any(|(known, _)| *known == id) {
            verdicts.protected.push((id, why));
        }
    }
}

/// Asks what `next` wants to know until it wants nothing more, or for as many turns as there may be.
pub fn gather(eyes: &mut dyn Eyes, look: &mut Look, mut next: impl FnMut(&Look) -> Vec<Question>) {
    for _ in 0..TURNS {
        let wanted: BTreeSet<Question> =
            next(look).into_iter().filter(|question| !look.answers.contains_key(question)).collect();
        if wanted.is_empty() {
            return;
        }
        let wanted: Vec<Question> = wanted.into_iter().collect();
        look.answers.extend(eyes.answer(&look.snapshot, &wanted));
        for question in wanted {
            // Asked and passed over is unknown; without this it would be asked for ever.
            look.answers
                .entry(question)
                .or_insert_with(|| Err(Unknown::new(Reason::NotAsked, "an answer that did not come")));
        }
    }
}

/// Returns the variables that the configuration names: no other is ever read of anybody's environment.
pub fn variables(config: &Config) -> BTreeSet<BString> {
    let mut names = BTreeSet::new();
    if let AdmitEnv::Marked { name, .. } = &config.scope {
        names.insert(name.clone());
    }
    for capture in config.judged().flat_map(|policy| policy.captures.values()) {
        if let Capture::Env { name, .. } = capture {
            names.insert(name.as_str().into());
        }
    }
    for capture in config.containers.iter().flat_map(|policy| policy.captures.values()) {
        if let ContainerCapture::Env { name, .. } = capture {
            names.insert(name.as_str().into());
        }
    }
    for registry in &config.registries {
        let Source::Files(files) = &registry.source else { continue };
        for part in files.files.iter().flat_map(|place| &place.parts) {
            if let PlacePart::Variable(name) = part {
                names.insert(name.as_str().into());
            }
        }
    }
    names
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::app::machine::Machine;
    use crate::app::sample;
    use crate::config::{self, Context};
    use crate::judge::rules;
    use crate::model::id::BootId;
    use crate::model::keep::Kept;
    use crate::model::moment::Moment;
    use crate::model::world;

    struct Scripted {
        asked: Vec<Vec<Question>>,
        silent: bool,
    }

    impl Eyes for Scripted {
        fn table(&mut self) -> Result<Snapshot, Trouble> {
            Ok(sample::snapshot(&[]))
        }

        fn answer(&mut self, _: &Snapshot, questions: &[Question]) -> Vec<(Question, Known<Answer>)> {
            self.asked.push(questions.to_vec());
            if self.silent {
                return Vec::new();
            }
            let denied = || Err(Unknown::new(Reason::Denied, "x"));
            questions.iter().map(|question| (question.clone(), denied())).collect()
        }

        fn clocks(&mut self) -> Clocks {
            sample::snapshot(&[]).began
        }

        fn pin(&mut self, _: &[ProcessId]) {}

        fn lost(&mut self) -> Vec<ProcessId> {
            Vec::new()
        }
    }

    fn facts(pid: i32) -> Question {
        Question::Facts(sample::process(pid))
    }

    #[test]
    fn asks_in_turns_and_nothing_twice() {
        let mut eyes = Scripted { asked: Vec::new(), silent: false };
        let mut look = Look::new(sample::snapshot(&[]));
        gather(&mut eyes, &mut look, |look| match look.answers.len() {
            0 => vec![facts(1), facts(1)],
            1 => vec![facts(1), facts(2)],
            _ => Vec::new(),
        });
        assert_eq!(eyes.asked, [vec![facts(1)], vec![facts(2)]]);
    }

    #[test]
    fn a_silent_observer_leaves_unknowns_and_no_endless_loop() {
        let mut eyes = Scripted { asked: Vec::new(), silent: true };
        let mut look = Look::new(sample::snapshot(&[]));
        gather(&mut eyes, &mut look, |_| vec![facts(1)]);
        assert_eq!(eyes.asked.len(), 1);
        assert!(look.answers[&facts(1)].is_err());
        let mut count = 0;
        gather(&mut eyes, &mut look, |_| {
            count += 1;
            vec![facts(100 + count)]
        });
        assert_eq!(eyes.asked.len(), 1 + TURNS);
    }

    #[test]
    fn what_a_person_keeps_reaches_the_look_while_it_holds() {
        let specs: Vec<_> = rules::ALL.iter().map(|rule| &rule.spec).collect();
        let config = config::load(None, &Context { rules: &specs, home: None }).unwrap();
        let mut machine =
            Machine::new("  5100 1 2d gopls\n  stdin 5100 pipe gone\n  stdout 5100 pipe gone\n");
        let mut judged = |marks: &[KeepMark]| {
            let sight = take(&mut machine, &config, &mut Ledger::default(), marks).unwrap();
            (sight.verdicts.judgements[0].clone(), sight.look.snapshot)
        };
        let (before, snapshot) = judged(&[]);
        assert!(matches!(before.verdict, Verdict::Suspect { .. }), "the twin that nobody keeps: {before:?}");
        let mark = |boot: &BootId, until| KeepMark {
            what: Kept::Process { boot: boot.clone(), id: before.root, name: String::new() },
            until,
            set: 0,
            note: None,
        };
        let later = Some(snapshot.began.wall + 1);
        for holds in [mark(&snapshot.boot, None), mark(&snapshot.boot, later)] {
            assert_eq!(judged(&[holds]).0.verdict, Verdict::Protected);
        }
        for ended in [mark(&BootId("another".into()), None), mark(&snapshot.boot, Some(snapshot.began.wall))]
        {
            assert_eq!(judged(&[ended]).0.verdict, before.verdict);
        }
    }
    /// A machine with one abandoned server, whose number and start tick may pass on between two looks.
    struct Reused {
        look: Look,
        after: Duration,
        bearer: u32,
        held: BTreeMap<ProcessId, u32>,
    }

    impl Eyes for Reused {
        fn table(&mut self) -> Result<Snapshot, Trouble> {
            Ok(Snapshot { began: self.clocks(), ..self.look.snapshot.clone() })
        }

        fn answer(&mut self, _: &Snapshot, questions: &[Question]) -> Vec<(Question, Known<Answer>)> {
            let answer = |question| {
                let said = self.look.answers.get(question).cloned();
                said.or_else(|| world::answer(&self.look, question)).unwrap()
            };
            questions.iter().map(|question| (question.clone(), answer(question))).collect()
        }

        fn clocks(&mut self) -> Clocks {
            let began = self.look.snapshot.began;
            Clocks {
                boot: began.boot.plus(self.after),
                monotonic: Moment(began.monotonic).plus(self.after).0,
                wall: began.wall + u64::try_from(self.after.as_millis()).unwrap(),
            }
        }

        fn pin(&mut self, ids: &[ProcessId]) {
            self.held.retain(|id, _| ids.contains(id));
            for id in ids {
                self.held.entry(*id).or_insert(self.bearer);
            }
        }

        fn lost(&mut self) -> Vec<ProcessId> {
            self.held.iter().filter(|(_, held)| **held != self.bearer).map(|(id, _)| *id).collect()
        }
    }

    impl Reused {
        /// Takes a look ten seconds after the last, as a sweep does, and returns the looks that agree so far; nothing
        /// where that is enough.
        fn agreed(&mut self, config: &Config, ledger: &mut Ledger) -> Option<u32> {
            self.after += Duration::from_secs(10);
            let sight = take(self, config, ledger, &[]).unwrap();
            hold_suspects(self, &sight);
            sight.remember(ledger);
            agreed(&sight)
        }
    }

    fn agreed(sight: &Sight) -> Option<u32> {
        let [judgement] = &sight.verdicts.judgements[..] else { panic!("{:?}", sight.verdicts) };
        match judgement.verdict {
            Verdict::Suspect { looks, .. } => Some(looks),
            Verdict::Orphaned { .. } => None,
            Verdict::Protected | Verdict::Alive | Verdict::Unknown => panic!("{judgement:?}"),
        }
    }

    #[test]
    fn whoever_took_over_number_and_tick_begins_anew_c07() {
        let specs: Vec<_> = rules::ALL.iter().map(|rule| &rule.spec).collect();
        let config = config::load(None, &Context { rules: &specs, home: None }).unwrap();
        let text = "reapd world 1\nlook at 10d\n  pid  ppid began command\n  1 0 10d init\n  \
                    5100 1 2d gopls\n  stdin 5100 pipe gone\n  stdout 5100 pipe gone\n";
        let machine = || Reused {
            look: world::parse(text).unwrap().remove(0),
            after: Duration::ZERO,
            bearer: 1,
            held: BTreeMap::new(),
        };
        let (mut same, mut ledger) = (machine(), Ledger::default());
        assert_eq!(same.agreed(&config, &mut ledger), Some(1));
        assert_eq!(same.agreed(&config, &mut ledger), None, "one process at both looks");

        // Between the last look and the signal: every re-check sees it, since none lets go of the handle.
        same.bearer = 2;
        for _ in 0..2 {
            let sight = take(&mut same, &config, &mut ledger.clone(), &[]).unwrap();
            assert_eq!(agreed(&sight), Some(1));
        }

        let (mut taken, mut ledger) = (machine(), Ledger::default());
        assert_eq!(taken.agreed(&config, &mut ledger), Some(1));
        taken.bearer = 2;
        assert_eq!(taken.agreed(&config, &mut ledger), Some(1), "another one, seen once");
        taken.bearer = 3;
        assert_eq!(taken.agreed(&config, &mut ledger), Some(1), "and held from that look on");
        assert_eq!(taken.agreed(&config, &mut ledger), None, "this one stayed");
    }
}
