//! A stage for teardowns: one marked tree, judged an orphan, with the real clock and the real table.

use std::collections::BTreeMap;
use std::time::Duration;

use bstr::BString;
use reapd::act::processes::Sight;
use reapd::app::teardown::{Admission, Again, Came, Event, Interrupt, Scene, carry_out};
use reapd::config::policy::{
    AdmitEnv, ArgumentsShown, Config, Confirm, ExecReport, JournalSettings, Keep, Limits, Telling,
};
use reapd::model::id::{Pid, ProcessId};
use reapd::model::known::Known;
use reapd::model::look::Look;
use reapd::model::moment::Moment;
use reapd::model::outcome::Report;
use reapd::model::plan::{Joined, Ladder, Member, Plan, Rung, Signal, Teardown};
use reapd::model::question::Question;
use reapd::model::verdict::{Judgement, Mode, Verdict, Verdicts};
use reapd::plan::teardown::{Ground, Membership, Newborn, admit, adopters, membership, questions};
use reapd::plan::{Asked, Pace};

use super::look::{self, answer};
use super::tree::MARK;

/// What a test can do between two steps of the driver.
pub(crate) type Hook<'a> = Box<dyn FnMut(&Point) + 'a>;

/// The points at which a test may act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Point {
    /// Right before the first signal.
    Recheck,
    /// The clock was read.
    Tick,
}

/// One or more marked trees, judged orphans.
pub(crate) struct Stage<'a> {
    pub(crate) verdicts: Verdicts,
    pub(crate) config: Config,
    pub(crate) refusal: Option<String>,
    pub(crate) interrupt: Interrupt,
    pub(crate) journal: Result<Vec<String>, String>,
    /// How many lines the disk has room for.
    pub(crate) room: usize,
    adopters: Vec<ProcessId>,
    hook: Hook<'a>,
}

impl<'a> Stage<'a> {
    /// Returns a stage with these roots condemned; only processes that bear the mark may join.
    pub(crate) fn new(nonce: &str, roots: &[Pid], ladder: &[(Signal, u64)]) -> Stage<'a> {
        let mut config = config(ladder);
        config.scope = AdmitEnv::Marked { name: BString::from(MARK), value: BString::from(nonce) };
        let mut look = look::look();
        let ids: Vec<ProcessId> =
            roots.iter().map(|pid| look.snapshot.table.at(*pid).expect("the root is there").id).collect();
        answer(&mut look, ids.iter().map(|id| Question::Facts(*id)).collect());
        let judgements = ids.iter().map(|id| judgement(&look, *id)).collect();
        Stage {
            verdicts: Verdicts { judgements, ..Verdicts::default() },
            config,
            refusal: None,
            interrupt: Interrupt::GoOn,
            journal: Ok(Vec::new()),
            room: usize::MAX,
            adopters: ids.first().map(|id| adopters(&look, *id)).unwrap_or_default(),
            hook: Box::new(|_| {}),
        }
    }

    /// Runs `hook` at each point.
    pub(crate) fn with_hook(mut self, hook: impl FnMut(&Point) + 'a) -> Stage<'a> {
        self.hook = Box::new(hook);
        self
    }

    /// Plans from a fresh look.
    pub(crate) fn plan(&self) -> Plan {
        let asked = Asked { pace: Pace::Unpaced, ..Asked::default() };
        let mut look = look::look();
        loop {
            let questions = reapd::plan::questions(&self.verdicts, &look, &self.config, &asked);
            if questions.is_empty() {
                return reapd::plan::plan(&self.verdicts, &look, &self.config, &asked);
            }
            answer(&mut look, questions);
        }
    }

    /// Carries a plan out.
    pub(crate) fn carry_out(&mut self, plan: &Plan) -> Vec<Report> {
        carry_out(plan, self)
    }

    /// Plans and carries out; the only tree's report.
    pub(crate) fn run(&mut self) -> Report {
        let plan = self.plan();
        assert_eq!(plan.waiting, [], "nothing waits");
        self.carry_out(&plan).remove(0)
    }

    /// Returns what membership is worked out from.
    pub(crate) fn ground<'g>(
        &'g self,
        teardown: &'g Teardown,
        look: &'g Look,
        known: &'g [Member],
    ) -> Ground<'g> {
        Ground {
            judgement: &teardown.judgement,
            verdicts: &self.verdicts,
            look,
            config: &self.config,
            known,
            gone: &[],
        }
    }
}

impl Scene for Stage<'_> {
    fn now(&mut self) -> Moment {
        (self.hook)(&Point::Tick);
        look::now()
    }

    fn recheck(&mut self, _teardown: &Teardown) -> Result<(), String> {
        (self.hook)(&Point::Recheck);
        self.refusal.clone().map_or(Ok(()), Err)
    }

    fn adopters(&mut self, _teardown: &Teardown) -> Vec<ProcessId> {
        self.adopters.clone()
    }

    fn fresh(&mut self, trees: &[Again<'_>]) -> Vec<Known<Membership>> {
        let mut look = look::look();
        let mut work_out = |tree: &Again<'_>| loop {
            let ground = |look| Ground { gone: &tree.gone, ..self.ground(tree.teardown, look, &tree.known) };
            let asks = questions(&ground(&look));
            if asks.is_empty() {
                return Ok(membership(&ground(&look)));
            }
            answer(&mut look, asks);
        };
        trees.iter().map(&mut work_out).collect()
    }

    fn admit(&mut self, teardown: &Teardown, newborn: &Sight, came: Came) -> Admission {
        let look = look::look_of(Vec::new());
        let facts = look::facts(newborn.id);
        let leads = newborn.sid == newborn.id.pid.number();
        let sockets = leads.then(|| look::sockets(newborn.id.pid));
        let joined = match came {
            Came::Group => Joined::Cgroup,
            Came::Below(_) => Joined::Descendant,
            Came::Session(_) => Joined::Session,
        };
        let newborn = Newborn {
            id: newborn.id,
            sid: newborn.sid,
            tty: newborn.tty,
            name: &newborn.name,
            facts: &facts,
            sockets: sockets.as_ref(),
        };
        match admit(&self.ground(teardown, &look, &teardown.members), &newborn, joined) {
            Ok(member) => Admission::Join(member),
            Err(why) => Admission::Spare(why),
        }
    }

    fn interrupt(&mut self) -> Interrupt {
        self.interrupt
    }

    fn record(&mut self, event: &Event<'_>) -> Result<(), String> {
        let journal = self.journal.as_mut().map_err(|why| why.clone())?;
        if journal.len() >= self.room {
            return Err("no space left".to_owned());
        }
        journal.push(match event {
            Event::Intent(teardown) => format!("intent {}", teardown.judgement.root),
            Event::Signalled { root, signal, to } => {
                format!("{} {root} {}", signal.name(), numbers(to))
            }
            Event::SeenGone { root, ids } => format!("gone {root} {}", numbers(ids)),
            Event::GroupKilled { root, .. } => format!("group-killed {root}"),
            Event::Outcome(report) => format!("outcome {} {:?}", report.root, report.closure),
        });
        Ok(())
    }
}

fn numbers(ids: &[ProcessId]) -> String {
    ids.iter().map(ToString::to_string).collect::<Vec<_>>().join(" ")
}

/// Returns a tree judged an orphan.
pub(crate) fn judgement(look: &Look, root: ProcessId) -> Judgement {
    let identity =
        look.facts(root).expect("asked").cloned().and_then(|facts| facts.identity(&look.snapshot.boot));
    Judgement {
        root,
        identity,
        uid: look.snapshot.own.uid,
        policy: "planted".to_owned(),
        mode: Mode::Reap,
        argv: Vec::new(),
        captures: Vec::new(),
        verdict: Verdict::Orphaned { since: Moment(0) },
        because: "a test says so".to_owned(),
        lines: Vec::new(),
        vetoes: Vec::new(),
        tree: vec![root],
        resident: 0,
        began: Moment(0),
        causes: Vec::new(),
        lookalike: None,
    }
}

fn config(ladder: &[(Signal, u64)]) -> Config {
    Config {
        mode: Mode::Reap,
        confirm: Confirm {
            looks: 2,
            apart: Duration::from_secs(10),
            min_age: Duration::ZERO,
            errand: Duration::ZERO,
            probe_timeout: Duration::from_secs(2),
        },
        limits: Limits { trees_per_sweep: 20, processes_per_tree: 100_000, same_cause: 5 },
        ladder: Ladder(
            ladder
                .iter()
                .map(|&(signal, millis)| Rung { signal, grace: Duration::from_millis(millis) })
                .collect(),
        ),
        keep: Keep::default(),
        scope: AdmitEnv::Everybody,
        journal: JournalSettings { keep: Duration::ZERO, arguments: ArgumentsShown::Redacted },
        offered: Vec::new(),
        docker: reapd::config::policy::Docker::default(),
        containers: Vec::new(),
        execs: ExecReport { about: String::new(), telling: Telling::Off },
        registries: Vec::new(),
        policies: Vec::new(),
    }
}

/// The outcome of each member, by number.
pub(crate) fn by_pid(report: &Report) -> BTreeMap<Pid, &reapd::model::outcome::MemberOutcome> {
    report.members.iter().map(|member| (member.id.pid, member)).collect()
}
