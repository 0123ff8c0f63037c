//! What the teardown driver stands on: fresh looks, the re-check right before the first signal, and the journal.

use std::collections::BTreeSet;
use std::time::Duration;

use super::journal::entry::{By, Event as Entry};
use super::journal::{Durability, Journal};
use super::lease::turn::Turns;
use super::look::{Eyes, gather, protect_asked, take};
use super::memory::valid_marks;
use super::signals;
use super::teardown::{Admission, Again, Came, Event, Interrupt, Scene};
use super::trouble::chain;
use crate::act::cgroup::Group;
use crate::act::processes::Sight as Newcomer;
use crate::config::policy::Config;
use crate::judge::Ledger;
use crate::judge::protect::{by_facts, is_shared, protected};
use crate::judge::rule::Blank;
use crate::model::facts::Facts;
use crate::model::id::ProcessId;
use crate::model::keep::KeepMark;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::plan::{Joined, Member, Teardown};
use crate::model::question::{Answer, Question};
use crate::model::verdict::{Judgement, Verdict, Verdicts};
use crate::plan::successor;
use crate::plan::teardown::{Ground, Membership, Newborn, admit, adopters, membership, questions};

/// For so long the look of a re-check serves further trees. Those that are due together share one, and no first
/// signal rests on what was seen longer ago.
const SERVES: Duration = Duration::from_millis(250);

/// The latest look of a re-check, which may serve further trees.
#[derive(Debug)]
pub struct Checked {
    /// When it began.
    taken: Moment,
    /// The keep list that it was judged with.
    marks: Vec<KeepMark>,
}

impl Checked {
    fn serves(&self, now: Moment, marks: &[KeepMark]) -> bool {
        now.since(self.taken) <= SERVES && self.marks == marks
    }
}

/// The surroundings of one sweep's teardowns.
pub struct Stand<'a, 'j> {
    /// What looks.
    pub eyes: &'a mut dyn Eyes,
    /// The configuration.
    pub config: &'a Config,
    /// What was seen at the looks that confirmed.
    pub ledger: &'a Ledger,
    /// Where it is written down.
    pub journal: &'a mut Journal<'j>,
    /// At whose word.
    pub by: By,
    /// The latest look.
    pub look: Look,
    /// The latest verdicts: who is protected, and who has an owner.
    pub verdicts: Verdicts,
    /// Reads the keep list anew, before each tree: a person may have said "keep" a moment ago.
    pub fresh_marks: &'a dyn Fn() -> Option<Vec<KeepMark>>,
    /// The latest look of a re-check; nothing before the first.
    pub checked: Option<Checked>,
    /// The leases that nobody else finishes meanwhile.
    pub turns: Turns,
    /// Why something could not be written down, to be said in the end; nothing so far.
    pub unwritten: Option<String>,
}

impl Stand<'_, '_> {
    fn ground<'b>(&'b self, teardown: &'b Teardown, look: &'b Look, known: &'b [Member]) -> Ground<'b> {
        Ground {
            judgement: &teardown.judgement,
            verdicts: &self.verdicts,
            look,
            config: self.config,
            known,
            gone: &[],
        }
    }

    /// Re-checks a teardown that was cut short. Its root was seen gone by our hand, so there is none left to judge;
    /// its members are ended by recorded identities, unless somebody protects one of them by now (REDTEAM F12).
    fn nobody_protected(&mut self, teardown: &Teardown, marks: &[KeepMark]) -> Result<(), String> {
        let snapshot = self.eyes.processes().map_err(|trouble| trouble.to_string())?;
        let mut look = Look::new(snapshot);
        look.marks = valid_marks(marks, &look.snapshot.boot, look.snapshot.began.wall);
        let ids: Vec<ProcessId> = teardown.members.iter().map(|member| member.identity.id).collect();
        gather(self.eyes, &mut look, |_| ids.iter().map(|&id| Question::Facts(id)).collect());
        let protected = protected(&look, self.config, &ids);
        self.look = look;
        match protected.first() {
            Some((id, why)) => Err(format!("{id} is protected by now: {why}")),
            None => Ok(()),
        }
    }

    /// Re-checks by the latest look that nobody took the name of a socket of the tree over meanwhile: he would lose it
    /// to a tree that is asked to end (C33). Members that are gone listen by no name.
    fn no_successor(&mut self, teardown: &Teardown) -> Result<(), String> {
        gather(self.eyes, &mut self.look, |look| successor::questions(&teardown.judgement, look));
        if successor::came_meanwhile(teardown, &self.look) {
            return Err("right before the signal: another socket has the name of one of its own".to_owned());
        }
        Ok(())
    }

    /// Says why a newborn process must not be touched: it is in no verdict, since nobody has looked at it before.
    fn kept(&self, newborn: &Newcomer, facts: &Known<Facts>) -> Option<String> {
        if is_shared(&newborn.name) {
            return Some(format!("{} serves more than one owner", newborn.name));
        }
        match by_facts(&self.look, self.config, facts.as_ref().ok()?) {
            Ok(reason) => reason,
            Err(Blank::Unknown(why)) => Some(format!("could not tell whether it is kept: {why}")),
            Err(Blank::Ask(_)) => Some("could not tell whether it is kept: not asked".to_owned()),
        }
    }

    fn ask(&mut self, question: &Question) -> Known<Answer> {
        let answers = self.eyes.answer(&self.look.snapshot, std::slice::from_ref(question));
        let answer = answers.into_iter().find(|(asked, _)| asked == question).map(|(_, answer)| answer);
        answer.unwrap_or_else(|| Err(Unknown::new(Reason::NotAsked, "an answer that did not come")))
    }
}

fn misfit() -> Unknown {
    Unknown::new(Reason::NotAsked, "an answer of another kind came back")
}

/// Says why a tree must not be signalled now, if its verdict or its identity is not what it was.
fn still_condemned(teardown: &Teardown, now: &[Judgement]) -> Result<(), String> {
    let before = &teardown.judgement;
    let same = |judgement: &&Judgement| judgement.root == before.root && judgement.policy == before.policy;
    let Some(judgement) = now.iter().find(same) else {
        return Err("right before the signal no policy looked at it any more".to_owned());
    };
    match judgement.verdict {
        Verdict::Orphaned { .. } => {}
        Verdict::Protected | Verdict::Alive | Verdict::Unknown | Verdict::Suspect { .. } => {
            return Err(format!("right before the signal: {}", judgement.because));
        }
    }
    match (&before.identity, &judgement.identity) {
        (Ok(before), Ok(now)) if before.is_surely(now) => Ok(()),
        (Ok(_), Ok(_)) => Err("its root is not surely the same process any more".to_owned()),
        (Err(unknown), _) | (_, Err(unknown)) => Err(format!("who it is could not be read: {unknown}")),
    }
}

/// Says why a tree must not be signalled now, if one of its members is protected that was not when it was planned: a
/// person may have said "keep" of it while the question stood on the screen.
fn still_unprotected(teardown: &Teardown, protected: &[(ProcessId, String)]) -> Result<(), String> {
    let is_member = |id| teardown.members.iter().any(|member| member.identity.id == id);
    match protected.iter().find(|(id, _)| is_member(*id)) {
        Some((id, why)) => Err(format!("right before the signal: its member {id} is kept, {why}")),
        None => Ok(()),
    }
}

impl Scene for Stand<'_, '_> {
    fn now(&mut self) -> Moment {
        self.eyes.clocks().boot
    }

    fn recheck(&mut self, teardown: &Teardown) -> Result<(), String> {
        let Some(marks) = (self.fresh_marks)() else {
            return Err("the keep list could not be read right before the signal".to_owned());
        };
        if self.by == By::Resumed {
            self.nobody_protected(teardown, &marks)?;
            return self.no_successor(teardown);
        }
        let now = self.now();
        if !self.checked.as_ref().is_some_and(|checked| checked.serves(now, &marks)) {
            // A copy: this look is no further look for the ledger, but a suspend since the last one must show.
            let mut ledger = self.ledger.clone();
            let sight =
                take(self.eyes, self.config, &mut ledger, &marks).map_err(|trouble| trouble.to_string())?;
            self.checked = Some(Checked { taken: sight.look.snapshot.began.boot, marks });
            self.look = sight.look;
            self.verdicts = sight.verdicts;
        }
        still_condemned(teardown, &self.verdicts.judgements)?;
        still_unprotected(teardown, &self.verdicts.protected)?;
        self.no_successor(teardown)?;
        let root = teardown.judgement.root;
        let mut leases = self.verdicts.leased.trees.iter().filter(|lease| lease.root == root);
        leases.try_for_each(|lease| self.turns.take(lease.owner, &lease.lease))
    }

    fn adopters(&mut self, teardown: &Teardown) -> Vec<ProcessId> {
        adopters(&self.look, teardown.judgement.root)
    }

    fn group(&mut self, teardown: &Teardown) -> Option<(String, Group)> {
        if self.by == By::Resumed {
            return None;
        }
        let root = teardown.judgement.root;
        let mut own = self.verdicts.leased.trees.iter().filter(|lease| lease.root == root);
        // A tree of two leases is in two minds about whose cgroup it is.
        let (Some(lease), None) = (own.next(), own.next()) else { return None };
        let cgroup = lease.cgroup.as_ref()?;
        Some((cgroup.path.clone(), Group::open(cgroup, &lease.lease, lease.owner).ok()?))
    }

    fn fresh(&mut self, trees: &[Again<'_>]) -> Vec<Known<Membership>> {
        let snapshot = match self.eyes.processes() {
            Ok(snapshot) => snapshot,
            Err(trouble) => {
                let unknown = Unknown::new(Reason::Starved, trouble.to_string());
                return trees.iter().map(|_| Err(unknown.clone())).collect();
            }
        };
        let mut look = Look::new(snapshot);
        look.marks.clone_from(&self.look.marks);
        let wanted = |look: &Look| {
            let grounds = trees.iter().map(|tree| Ground {
                judgement: &tree.teardown.judgement,
                verdicts: &self.verdicts,
                look,
                config: self.config,
                known: &tree.known,
                gone: &tree.gone,
            });
            let asks: BTreeSet<Question> = grounds.flat_map(|ground| questions(&ground)).collect();
            asks.into_iter().collect()
        };
        gather(self.eyes, &mut look, wanted);
        protect_asked(&look, self.config, &mut self.verdicts);
        let found = trees.iter().map(|tree| {
            let ground = self.ground(tree.teardown, &look, &tree.known);
            let mut found = membership(&Ground { gone: &tree.gone, ..ground });
            if self.by == By::Resumed {
                let recorded: BTreeSet<ProcessId> =
                    tree.teardown.members.iter().map(|member| member.identity.id).collect();
                found.members.retain(|member| recorded.contains(&member.identity.id));
            }
            Ok(found)
        });
        let found = found.collect();
        self.look = look;
        found
    }

    fn admit(&mut self, teardown: &Teardown, newborn: &Newcomer, came: Came) -> Admission {
        if self.by == By::Resumed {
            return Admission::Spare("taken up after a crash: recorded members only".to_owned());
        }
        if came == Came::Group && self.look.snapshot.table.get(newborn.id).is_some() {
            return Admission::Spare("in the tree's cgroup, and judged for its own sake".to_owned());
        }
        let facts = self.ask(&Question::Facts(newborn.id)).and_then(|answer| {
            let Answer::Facts(facts) = answer else { return Err(misfit()) };
            Ok(*facts)
        });
        if let Some(why) = self.kept(newborn, &facts) {
            return Admission::Spare(why);
        }
        let leads = newborn.sid == newborn.id.pid.number();
        let sockets = leads.then(|| {
            self.ask(&Question::Sockets(newborn.id)).and_then(|answer| {
                let Answer::Sockets(sockets) = answer else { return Err(misfit()) };
                Ok(sockets)
            })
        });
        let joined = match came {
            Came::Group => Joined::Cgroup,
            Came::Below(_) => Joined::Descendant,
            Came::Session(_) => Joined::Session,
        };
        let candidate = Newborn {
            id: newborn.id,
            sid: newborn.sid,
            tty: newborn.tty,
            name: &newborn.name,
            facts: &facts,
            sockets: sockets.as_ref(),
        };
        match admit(&self.ground(teardown, &self.look, &teardown.members), &candidate, joined) {
            Ok(member) => Admission::Join(member),
            Err(why) => Admission::Spare(why),
        }
    }

    fn record(&mut self, event: &Event<'_>) -> Result<(), String> {
        // Only what must outlive the machine is waited for: what was signalled and seen gone means nothing after a
        // reboot, and a crash of reapd alone does not lose it.
        let (entry, durability) = match *event {
            Event::Intent(teardown) => {
                (Entry::Intent { teardown: Box::new(teardown.clone()), by: self.by }, Durability::Synced)
            }
            Event::Signalled { root, signal, to } => {
                (Entry::Signalled { root, signal, to: to.to_vec() }, Durability::Handed)
            }
            Event::GroupKilled { root, cgroup, members } => {
                let (cgroup, members) = (cgroup.to_owned(), members.to_vec());
                (Entry::GroupKilled { root, cgroup, members }, Durability::Handed)
            }
            Event::SeenGone { root, ids } => {
                (Entry::SeenGone { root, ids: ids.to_vec() }, Durability::Handed)
            }
            Event::Outcome(report) => {
                (Entry::Outcome { report: Box::new(report.clone()) }, Durability::Synced)
            }
        };
        let now = self.eyes.clocks();
        let written = self.journal.note(entry, now, durability).map_err(|error| chain(&error));
        if let Err(why) = &written {
            self.unwritten.get_or_insert_with(|| why.clone());
        }
        written
    }

    fn interrupt(&mut self) -> Interrupt {
        if signals::asked() { Interrupt::Finish } else { Interrupt::GoOn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    use crate::app::journal::USUAL;
    use crate::app::machine::{Machine, Shared};
    use crate::app::sample;
    use crate::app::state::State;
    use crate::config::{self, Context};
    use crate::judge::rules;
    use crate::model::id::{Pid, Uid};
    use crate::model::keep::Kept;

    /// Two servers whose standard streams lead there.
    fn servers(stdin: &str) -> String {
        format!(
            "  5100 1 2d gopls\n  5200 1 2d gopls\n  stdin 5100 pipe gone\n  stdout 5100 pipe gone\n  \
             stdin 5200 {stdin}\n  stdout 5200 {stdin}\n"
        )
    }

    #[test]
    fn a_recheck_serves_the_trees_of_its_moment_and_none_later() {
        let specs: Vec<_> = rules::ALL.iter().map(|rule| &rule.spec).collect();
        let config = config::load(None, &Context { rules: &specs, home: None }).unwrap();
        let base = tempfile::tempdir().unwrap();
        let state = State::open(&base.path().join("s")).unwrap();
        let mut machine = Machine::new(&servers("pipe gone"));
        let mut ledger = Ledger::default();
        for _ in 0..2 {
            take(&mut machine, &config, &mut ledger, &[]).unwrap().remember(&mut ledger);
            machine.ahead += Duration::from_secs(10);
        }
        let sight = take(&mut machine, &config, &mut ledger, &[]).unwrap();
        let condemned = |pid| {
            let of = |judgement: &&Judgement| judgement.root.pid == Pid::new(pid).unwrap();
            let judgement = sight.verdicts.judgements.iter().find(of).unwrap().clone();
            assert!(matches!(judgement.verdict, Verdict::Orphaned { .. }), "{judgement:?}");
            Teardown { judgement, ..sample::teardown(pid, "language-server") }
        };
        let (one, other) = (condemned(5100), condemned(5200));
        let mut journal = Journal::open(&state, USUAL, &sight.look.snapshot, machine.clocks()).unwrap();
        let marks = RefCell::new(Vec::new());
        // The machine is asked and changed in turns, and the stand has it for as long as it stands.
        let machine = &RefCell::new(machine);
        let mut eyes = Shared(machine);
        let mut stand = Stand {
            eyes: &mut eyes,
            config: &config,
            ledger: &ledger,
            journal: &mut journal,
            by: By::Hand,
            look: sight.look.clone(),
            verdicts: sight.verdicts.clone(),
            fresh_marks: &|| Some(marks.borrow().clone()),
            checked: None,
            unwritten: None,
            turns: Turns::default(),
        };
        let looks = || machine.borrow().scans.len();
        let later = |millis| machine.borrow_mut().ahead += Duration::from_millis(millis);
        let before = looks();
        assert_eq!(stand.recheck(&one), Ok(()));
        later(250);
        assert_eq!(stand.recheck(&other), Ok(()));
        assert_eq!(looks() - before, 1, "two trees of one moment share a look");
        machine.borrow_mut().is(&servers("pipe held by=6000"));
        later(1);
        let why = stand.recheck(&other).unwrap_err();
        assert!(why.contains("6000 holds the other end"), "{why}");
        assert_eq!(looks() - before, 2, "a look is never older than that");
        assert_eq!(stand.recheck(&one), Ok(()));
        assert_eq!(looks() - before, 2);
        // What a person said a moment ago counts at once.
        let what = Kept::Process {
            boot: sight.look.snapshot.boot.clone(),
            id: one.judgement.root,
            name: String::new(),
        };
        marks.borrow_mut().push(KeepMark { what, until: None, set: 0, note: None });
        assert!(stand.recheck(&one).is_err());
        assert_eq!(looks() - before, 3);
    }

    /// Where a stand is put up.
    struct Ground<'a> {
        /// The machine from the first look on.
        first: &'a str,
        /// What it is after the plan was made.
        then: &'a str,
        /// How many looks the ledger has seen, far enough apart.
        looks: usize,
        by: By,
        /// The keep list as it is at the re-check, each by the number of a process.
        kept: Option<&'a [i32]>,
    }

    const TREE: &str =
        "  5100 1 2d gopls\n  5101 5100 2d gopls\n  stdin 5100 pipe gone\n  stdout 5100 pipe gone\n";

    impl Ground<'_> {
        fn usual() -> Ground<'static> {
            Ground { first: TREE, then: TREE, looks: 2, by: By::Hand, kept: Some(&[]) }
        }

        /// Plans as if all looks had agreed, and stands by the only teardown of the plan.
        fn stand<T>(&self, act: impl FnOnce(&mut Stand<'_, '_>, &Teardown) -> T) -> T {
            let specs: Vec<_> = rules::ALL.iter().map(|rule| &rule.spec).collect();
            let config = config::load(None, &Context { rules: &specs, home: None }).unwrap();
            let base = tempfile::tempdir().unwrap();
            let state = State::open(&base.path().join("s")).unwrap();
            let mut machine = Machine::new(self.first);
            let mut ledger = Ledger::default();
            let mut sight = take(&mut machine, &config, &mut ledger, &[]).unwrap();
            sight.remember(&mut ledger);
            for _ in 1..self.looks {
                machine.ahead += config.confirm.apart;
                sight = take(&mut machine, &config, &mut ledger, &[]).unwrap();
                sight.remember(&mut ledger);
            }
            let verdicts = crate::app::look::foreseen(&sight.verdicts);
            let asked = crate::plan::Asked::default();
            let plan = crate::app::look::plan(&mut machine, &mut sight.look, &verdicts, &config, &asked);
            let [teardown] = &plan.teardowns[..] else { panic!("{plan:?}") };
            machine.is(self.then);
            let kept = |pids: &[i32]| pids.iter().map(|&pid| kept(&sight.look, pid)).collect();
            let mut journal = Journal::open(&state, USUAL, &sight.look.snapshot, machine.clocks()).unwrap();
            let mut stand = Stand {
                eyes: &mut machine,
                config: &config,
                ledger: &ledger,
                journal: &mut journal,
                by: self.by,
                look: sight.look.clone(),
                verdicts,
                fresh_marks: &|| self.kept.map(kept),
                checked: None,
                unwritten: None,
                turns: Turns::default(),
            };
            act(&mut stand, teardown)
        }
    }

    fn kept(look: &Look, pid: i32) -> KeepMark {
        let id = look.snapshot.table.at(Pid::new(pid).unwrap()).unwrap().id;
        let what = Kept::Process { boot: look.snapshot.boot.clone(), id, name: String::new() };
        KeepMark { what, until: None, set: 0, note: None }
    }

    fn numbers(found: &Membership) -> Vec<i32> {
        found.members.iter().map(|member| member.identity.id.pid.number()).collect()
    }

    #[test]
    fn a_plan_made_from_one_look_is_stood_down() {
        let said = |looks| Ground { looks, ..Ground::usual() }.stand(|stand, tree| stand.recheck(tree));
        assert_eq!(said(2), Ok(()), "the twin of two looks");
        assert!(said(1).unwrap_err().starts_with("right before the signal"));
    }

    #[test]
    fn what_changed_since_the_plan_stands_it_down() {
        let said = |then| Ground { then, ..Ground::usual() }.stand(|stand, tree| stand.recheck(tree));
        let used = TREE.replace("pipe gone", "pipe held by=6000");
        assert!(said(&used).unwrap_err().contains("6000 holds the other end"));
        // Another process behind the number, and nobody.
        let another = TREE.replace("5100 1 2d", "5100 1 1d");
        assert!(said(&another).is_err());
        assert!(said("").is_err());
    }

    #[test]
    fn a_successor_that_came_after_the_plan_stands_it_down_c33() {
        const PLUGIN: &str = "/h/.claude/plugins/cache/o/codex/1/scripts/app-server-broker.mjs";
        let broker = |bound: &str| {
            format!(
                "  5100 1 2d node {PLUGIN} serve --endpoint unix:/tmp/cxc-a/broker.sock --cwd /w --pid-file /p\n  \
                 facts 5100 cwd=/w fate=deleted\n  path 5100 /w absent\n  \
                 listens 5100 unix /tmp/cxc-a/broker.sock file=1:5100\n  \
                 bound 5100 /tmp/cxc-a/broker.sock 1:5100 {bound}\n"
            )
        };
        let said = |by, first: &str, then: &str| {
            let (first, then) = (broker(first), broker(then));
            Ground { first: &first, then: &then, by, ..Ground::usual() }
                .stand(|stand, tree| stand.recheck(tree))
        };
        for by in [By::Hand, By::Resumed] {
            assert_eq!(said(by, "here", "here"), Ok(()), "{by:?}: the twin without one");
            let why = said(by, "here", "replaced=socket").unwrap_err();
            assert!(why.contains("another socket has the name"), "{by:?}: {why}");
            let killed = said(by, "replaced=socket", "replaced=socket");
            assert_eq!(killed, Ok(()), "{by:?}: it is killed, as it was planned");
        }
    }

    #[test]
    fn the_keep_list_is_read_anew_at_the_recheck() {
        let said = |by, kept| Ground { by, kept, ..Ground::usual() }.stand(|stand, tree| stand.recheck(tree));
        for by in [By::Hand, By::Once, By::Resumed] {
            assert_eq!(said(by, Some(&[])), Ok(()), "the twin that nobody keeps");
            assert!(said(by, Some(&[5100])).is_err(), "{by:?}");
            assert!(said(by, Some(&[5101])).is_err(), "{by:?}: a member");
            assert!(said(by, None).unwrap_err().contains("could not be read"), "{by:?}");
        }
    }

    fn again(stand: &mut Stand<'_, '_>, teardown: &Teardown, known: &[Member]) -> Membership {
        let tree = Again { teardown, known: known.to_vec(), gone: Vec::new() };
        // Whoever waits beside it gets what is theirs, from the same table.
        let mut found = stand.fresh(&[tree.clone(), tree]);
        assert_eq!(found.pop().unwrap().unwrap().members, found[0].as_ref().unwrap().members);
        found.remove(0).unwrap()
    }

    #[test]
    fn whoever_is_kept_does_not_join_at_a_fresh_look() {
        let members = |marks: &[i32]| {
            Ground::usual().stand(|stand, tree| {
                stand.look.marks = marks.iter().map(|&pid| kept(&stand.look, pid)).collect();
                // Only the root is held so far, so that its child is somebody new.
                numbers(&again(stand, tree, &tree.members[..1]))
            })
        };
        assert_eq!(members(&[]), [5100, 5101]);
        assert_eq!(members(&[5101]), [5100]);
    }

    #[test]
    fn of_what_a_crash_cut_short_only_recorded_members_go_f12() {
        let then = TREE.replace("  stdin", "  5102 5101 1h gopls\n  stdin");
        let came = |by| {
            Ground { then: &then, by, ..Ground::usual() }.stand(|stand, tree| {
                let members = numbers(&again(stand, tree, &tree.members));
                let newborn = stand.look.snapshot.table.at(Pid::new(5102).unwrap()).unwrap().id;
                let above = Came::Below(tree.members[1].identity.id);
                let joined = stand.admit(tree, &newcomer(newborn, 5101, "gopls"), above);
                (members, matches!(joined, Admission::Join(_)))
            })
        };
        assert_eq!(came(By::Hand), (vec![5100, 5101, 5102], true), "the twin that no crash cut short");
        assert_eq!(came(By::Resumed), (vec![5100, 5101], false));
    }

    #[test]
    fn being_asked_to_stop_begins_no_further_tree() {
        let _alone = signals::Alone::new();
        let said = || Ground::usual().stand(|stand, _| stand.interrupt());
        assert_eq!(said(), Interrupt::GoOn);
        signals::Alone::ask_to_stop();
        assert_eq!(said(), Interrupt::Finish);
    }

    fn now(change: impl FnOnce(&mut Judgement)) -> Result<(), String> {
        let teardown = sample::teardown(10, "p");
        let mut judgement = teardown.judgement.clone();
        change(&mut judgement);
        still_condemned(&teardown, &[judgement])
    }

    #[test]
    fn only_the_same_verdict_on_the_same_process_lets_a_signal_go() {
        assert_eq!(now(|_| ()), Ok(()));
        for verdict in [
            Verdict::Alive,
            Verdict::Unknown,
            Verdict::Protected,
            Verdict::Suspect { since: Moment(1), looks: 1 },
        ] {
            assert!(now(|judgement| judgement.verdict = verdict.clone()).is_err(), "{verdict:?}");
        }
        assert!(now(|judgement| judgement.policy = "other".into()).is_err());
        assert!(now(|judgement| judgement.root.start.0 += 1).is_err());
        assert!(now(|judgement| judgement.identity.as_mut().unwrap().uid = Uid(0)).is_err());
        assert!(now(|judgement| judgement.identity = Err(Unknown::new(Reason::Denied, "exe"))).is_err());
    }

    #[test]
    fn a_member_that_is_kept_by_now_stops_the_first_signal() {
        let teardown = sample::teardown(10, "p");
        let kept = |pid| [(sample::process(pid), "it was marked with `reapd keep`".to_owned())];
        assert_eq!(still_unprotected(&teardown, &kept(12)), Ok(()), "somebody else");
        assert!(still_unprotected(&teardown, &kept(11)).unwrap_err().contains("member 11 is kept"));
    }

    /// Everybody has the same facts, but for the environment.
    struct Marked {
        env: Known<std::collections::BTreeMap<bstr::BString, bstr::BString>>,
    }

    impl Eyes for Marked {
        fn table(&mut self) -> Result<crate::model::look::Snapshot, crate::app::trouble::Trouble> {
            Ok(sample::snapshot(&[]))
        }

        fn answer(
            &mut self,
            _: &crate::model::look::Snapshot,
            questions: &[Question],
        ) -> Vec<(Question, Known<Answer>)> {
            let unknown = || Unknown::new(Reason::NotAsked, "");
            let facts = |id| Facts {
                id,
                uid: Ok(Uid(1000)),
                argv: Ok(vec!["/usr/bin/work".into()]),
                exe: Ok(crate::model::facts::Executable {
                    path: "/usr/bin/work".into(),
                    file: crate::model::id::FileId { dev: 1, ino: 2 },
                }),
                cwd: Err(unknown()),
                env: self.env.clone(),
                cgroup: Err(unknown()),
                namespaces: Err(unknown()),
                tracer: Err(unknown()),
                hangup: Err(unknown()),
                freezer: Err(unknown()),
                unique: None,
            };
            let answer = |question: &Question| {
                let Question::Facts(id) = question else { return Err(unknown()) };
                Ok(Answer::Facts(Box::new(facts(*id))))
            };
            questions.iter().map(|question| (question.clone(), answer(question))).collect()
        }

        fn clocks(&mut self) -> crate::model::moment::Clocks {
            sample::snapshot(&[]).began
        }

        fn pin(&mut self, _: &[ProcessId]) {}

        fn lost(&mut self) -> Vec<ProcessId> {
            Vec::new()
        }
    }

    fn newcomer(id: ProcessId, above: i32, name: &str) -> Newcomer {
        Newcomer {
            id,
            ppid: above,
            pgid: above,
            sid: above,
            tty: 0,
            state: crate::model::table::State::Sleeping,
            threads: 1,
            name: name.into(),
        }
    }

    /// Lets a newborn of this name come to the gates.
    fn admitted(name: &str, env: &[(&str, &str)], config: &Config) -> Admission {
        let env = env.iter().map(|&(name, value)| (name.into(), value.into())).collect();
        let mut eyes = Marked { env: Ok(env) };
        let base = tempfile::tempdir().unwrap();
        let state = crate::app::state::State::open(&base.path().join("state")).unwrap();
        let clocks = sample::snapshot(&[]).began;
        let seen = sample::snapshot(&[]);
        let mut journal = Journal::open(&state, config.journal, &seen, clocks).unwrap();
        let mut stand = Stand {
            eyes: &mut eyes,
            config,
            ledger: &Ledger::default(),
            journal: &mut journal,
            by: By::Hand,
            look: Look::new(sample::snapshot(&[])),
            verdicts: Verdicts::default(),
            fresh_marks: &|| Some(Vec::new()),
            checked: None,
            unwritten: None,
            turns: Turns::default(),
        };
        let newborn = newcomer(sample::process(12), 10, name);
        stand.admit(&sample::teardown(10, "p"), &newborn, Came::Below(sample::process(10)))
    }

    #[test]
    fn newborn_ones_that_are_kept_or_shared_never_join() {
        let config = sample::config();
        let is_spared = |admission| matches!(admission, Admission::Spare(_));
        assert!(!is_spared(admitted("work", &[], &config)));
        assert!(is_spared(admitted("tmux: server", &[], &config)), "a multiplexer serves others");
        assert!(is_spared(admitted("work", &[("REAPD_KEEP", "yes")], &config)));
        let keeping = Config {
            keep: crate::config::policy::Keep {
                programs: vec![crate::config::policy::Glob {
                    text: "work".into(),
                    parts: vec![crate::config::policy::GlobPart::Literal("work".into())],
                }],
                ..crate::config::policy::Keep::default()
            },
            ..config
        };
        assert!(is_spared(admitted("work", &[], &keeping)), "[keep] programs");
    }
}
