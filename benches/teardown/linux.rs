//! The benchmark itself: it needs real trees and `/proc`.

#[path = "../../tests/it/support/mod.rs"]
mod support;

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use reapd::act::processes::{Sight, raise_descriptor_limit};
use reapd::app::teardown::{Admission, Again, Came, Event, Scene, carry_out};
use reapd::model::id::{Pid, ProcessId};
use reapd::model::known::Known;
use reapd::model::look::{Look, Scope};
use reapd::model::moment::Moment;
use reapd::model::outcome::{Closure, Report};
use reapd::model::plan::{Plan, Signal, Teardown};
use reapd::observe::{Observer, Setup};
use reapd::plan::teardown::{Ground, Membership, membership, questions};

use support::look;
use support::stage::Stage;
use support::tree::{Tree, until};

const ROUNDS: usize = 7;
const SIZE: usize = 1000;
const TRIALS: usize = 20;
const KILL: [(Signal, u64); 1] = [(Signal::Kill, 5000)];

pub(super) fn run() {
    raise_descriptor_limit();
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS * 2 {
        let tree = wide_tree(SIZE);
        if round % 2 == 0 {
            ours.push(torn_down(&tree));
        } else {
            plain.push(killed(&tree));
        }
    }
    let (ours, plain) = (median(ours), median(plain));
    let ratio = ours.as_secs_f64() / plain.as_secs_f64();
    println!("tree of {}: gone and verified {ours:.1?}, plain kill loop {plain:.1?}", SIZE + 1);
    println!("ratio {ratio:.2} (budget 1.5), median of {ROUNDS} each, in turn");

    let nonce = support::tree::nonce();
    let stubborn = Tree { root: Pid::INIT, nonce: nonce.clone() };
    let script = "trap '' TERM; sh -c 'exec sleep 1000' & exec sleep 1000";
    let roots: Vec<Pid> = (0..20).map(|_| support::tree::start(&nonce, script, &[])).collect();
    stubborn.wait_for(40);
    let stage = Stage::new(&nonce, &roots, &[(Signal::Term, 2000), (Signal::Kill, 3000)]);
    let plan = stage.plan();
    let began = Instant::now();
    let reports = Quick::of(stage).carry_out(&plan);
    let beyond = began.elapsed().saturating_sub(Duration::from_secs(2));
    assert!(reports.iter().all(|report| report.closure == Closure::Gone));
    println!("20 stubborn trees: one grace and {beyond:.1?} (budget 1 s)");

    let idle: usize =
        std::env::var("REAPD_BENCH_PROCESSES").ok().and_then(|text| text.parse().ok()).unwrap_or(5000);
    let _idle = wide_tree(idle);
    let (mut took, mut left, mut open) = (Vec::new(), 0, 0);
    for _ in 0..TRIALS {
        let breed = "while :; do sleep 300 & sleep 0.001; done";
        let tree = Tree::plant_with("for n in 1 2 3 4; do sh -c \"$1\" & done; sh -c \"$1\"", &[breed]);
        tree.wait_for(50);
        let stage = Stage::new(&tree.nonce, &[tree.root], &KILL);
        let plan = stage.plan();
        let mut quick = Quick::of(stage);
        let began = Instant::now();
        let reports = quick.carry_out(&plan);
        took.push(began.elapsed());
        let alive = tree.alive().len();
        left += alive;
        open += usize::from(reports[0].closure != Closure::Gone);
        if alive > 0 {
            println!("left {alive}: {:?} {:?}", reports[0].closure, reports[0].spared);
        }
    }
    took.sort();
    println!(
        "tree that forks while killed, beside {idle}: {left} survivors and {open} not proven gone in {TRIALS} trials, median {:.1?}, worst {:.1?} (budget 1 s)",
        took[TRIALS / 2],
        took[TRIALS - 1]
    );
}

fn wide_tree(size: usize) -> Tree {
    let tree = Tree::plant_with(
        "i=0; while [ $i -lt $1 ]; do sleep 1000 & i=$((i+1)); done; exec sleep 1001",
        &[&size.to_string()],
    );
    until("the whole tree", || {
        let path = format!("/proc/{0}/task/{0}/children", tree.root);
        std::fs::read_to_string(path).is_ok_and(|text| text.split_ascii_whitespace().count() == size)
    });
    until("the last exec", || look::row(tree.root).is_some_and(|row| row.name() == b"sleep"));
    let last = || tree.alive().iter().all(|pid| look::row(*pid).is_some_and(|row| row.name() == b"sleep"));
    until("every exec", last);
    tree
}

fn torn_down(tree: &Tree) -> Duration {
    let stage = Stage::new(&tree.nonce, &[tree.root], &KILL);
    let plan = stage.plan();
    let mut quick = Quick::of(stage);
    let began = Instant::now();
    let report = quick.carry_out(&plan).remove(0);
    let took = began.elapsed();
    assert_eq!((report.closure, report.members.len()), (Closure::Gone, SIZE + 1));
    took
}

/// A stage whose fresh tables come from the product's own observer, as a sweep's do.
struct Quick<'a> {
    stage: Stage<'a>,
    observer: Observer,
}

impl<'a> Quick<'a> {
    fn of(stage: Stage<'a>) -> Quick<'a> {
        let mut observer = Observer::open(Setup {
            scope: Scope::User,
            probe_timeout: Duration::from_secs(5),
            env_names: BTreeSet::from([support::tree::MARK.into()]),
            aside: env!("CARGO_BIN_EXE_reapd").into(),
            home: None,
            leases: Vec::new(),
            registries: Vec::new(),
            engines: None,
        })
        .expect("we can observe here");
        // A sweep has looked at least twice before it tears anything down.
        let snapshot = observer.table().expect("the table can be read");
        observer.recycle(snapshot);
        Quick { stage, observer }
    }

    fn carry_out(&mut self, plan: &Plan) -> Vec<Report> {
        carry_out(plan, self)
    }
}

impl Scene for Quick<'_> {
    fn now(&mut self) -> Moment {
        self.stage.now()
    }

    fn recheck(&mut self, teardown: &Teardown) -> Result<(), String> {
        self.stage.recheck(teardown)
    }

    fn adopters(&mut self, teardown: &Teardown) -> Vec<ProcessId> {
        self.stage.adopters(teardown)
    }

    fn fresh(&mut self, trees: &[Again<'_>]) -> Vec<Known<Membership>> {
        let snapshot = self.observer.table().expect("the table can be read");
        let mut look = Look::new(snapshot);
        let mut work_out = |tree: &Again<'_>| loop {
            let ground =
                |look| Ground { gone: &tree.gone, ..self.stage.ground(tree.teardown, look, &tree.known) };
            let asks = questions(&ground(&look));
            if asks.is_empty() {
                return Ok(membership(&ground(&look)));
            }
            let answers = self.observer.answer(&look.snapshot, &asks);
            look.answers.extend(answers);
        };
        trees.iter().map(&mut work_out).collect()
    }

    fn admit(&mut self, teardown: &Teardown, newborn: &Sight, came: Came) -> Admission {
        self.stage.admit(teardown, newborn, came)
    }

    fn record(&mut self, event: &Event<'_>) -> Result<(), String> {
        self.stage.record(event)
    }
}

/// What a script does: kill(2) by number, then look until nobody is left.
fn killed(tree: &Tree) -> Duration {
    let pids: Vec<Pid> = tree.alive().into_iter().collect();
    assert_eq!(pids.len(), SIZE + 1);
    let began = Instant::now();
    for pid in &pids {
        let raw = rustix::process::Pid::from_raw(pid.number()).unwrap();
        rustix::process::kill_process(raw, rustix::process::Signal::KILL).unwrap();
    }
    for pid in &pids {
        while look::row(*pid).is_some_and(|row| !row.is_gone()) {
            std::thread::yield_now();
        }
    }
    began.elapsed()
}

fn median(mut took: Vec<Duration>) -> Duration {
    took.sort();
    took[took.len() / 2]
}
