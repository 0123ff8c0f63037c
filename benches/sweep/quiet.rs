//! A whole quiet sweep beside the bare table scan: every built-in policy judges everybody, and nothing is found.

use std::collections::BTreeSet;
use std::time::Duration;

use reapd::config::policy::Config;
use reapd::config::{Context, load};
use reapd::judge::{Ledger, candidates, judge, questions, rules};
use reapd::model::look::{Look, Scope};
use reapd::model::table::Table;
use reapd::observe::{Observer, Setup};

use crate::measure::{Figure, median, own};
use crate::scan::with_aside;

/// Sweeps before the steady state is measured.
const WARM: u32 = 3;

/// Sweeps in one round.
const SWEEPS: u32 = 5;

/// Measures in turn, round by round.
pub(crate) fn figures(rounds: usize) -> Vec<Figure> {
    let specs: Vec<_> = rules::ALL.iter().map(|rule| &rule.spec).collect();
    let config = load(None, &Context { rules: &specs, home: None }).expect("the built-in policies load");
    let scope = if rustix::process::geteuid().is_root() { Scope::Host } else { Scope::User };
    let mut observer = Observer::open(Setup {
        scope,
        probe_timeout: Duration::from_secs(5),
        env_names: BTreeSet::new(),
        aside: env!("CARGO_BIN_EXE_reapd").into(),
        home: None,
        leases: Vec::new(),
        registries: Vec::new(),
        engines: None,
    })
    .expect("we can observe here");
    let mut ledger = Ledger::default();
    let mut table = Table::default();
    for _ in 0..WARM {
        sweep(&mut observer, &config, &mut ledger);
        observer.scan(&mut table).expect("the table can be read");
    }
    let mut whole = Vec::new();
    let mut ratios = Vec::new();
    for _ in 0..rounds {
        let swept =
            with_aside(&mut observer, SWEEPS, |observer| sweep(observer, &config, &mut ledger)).as_secs_f64();
        let scanned = own(SWEEPS, || {
            observer.scan(&mut table).expect("the table can be read");
        })
        .as_secs_f64();
        whole.push(swept * 1e3);
        ratios.push(swept / scanned);
    }
    println!("{:<26} {:>9.2} ms", "whole quiet sweep", median(whole));
    vec![Figure {
        what: "whole quiet sweep with all built-in policies / table scan".into(),
        measured: median(ratios),
        budget: Some(1.5),
    }]
}

fn sweep(observer: &mut Observer, config: &Config, ledger: &mut Ledger) {
    let mut look = Look::new(observer.table().expect("the table can be read"));
    ledger.begin(&look, &config.confirm);
    let candidates = candidates(&look, config);
    loop {
        let open = questions(&look, config, &candidates, ledger);
        if open.is_empty() {
            break;
        }
        let answers = observer.answer(&look.snapshot, &open);
        look.answers.extend(answers);
    }
    let (verdicts, notes) = judge(&look, config, &candidates, ledger);
    ledger.remember(&look, &candidates, &verdicts, &notes);
    observer.recycle(look.snapshot);
}
