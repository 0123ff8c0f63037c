//! Who goes with a root, and how: whole trees through the whole program.

use std::fs;

use super::{Ended, Field, Swept};
use crate::planted::wait_for;

#[test]
fn trees_go_whole_and_take_nobody_with_them_b07_c01_c02_c03_c10_c20_c32() {
    let field = Field::plant("trees");
    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("c01-breeds", Ended),
            ("c02-double-fork", Ended),
            ("c03-own-session", Ended),
            ("c10-deaf", Ended),
            ("c32-workers", Ended),
            ("c20-watched", Ended),
        ],
    );
    let deaf = field.pids("c10-deaf")[0];
    assert_eq!(swept.signals(deaf, deaf), ["TERM", "KILL"], "it caught TERM and did nothing");
    let workers = field.pids("c32-workers");
    assert_eq!(workers.len(), 9);
    assert_eq!(swept.signals(workers[0], workers[0]), ["TERM"], "the root ended when it was asked");
    assert_eq!(swept.signals(workers[0], workers[8]), ["TERM", "KILL"], "and left its workers behind");

    let log = field.planted.path("c20.log");
    wait_for("the parent to hear of the end", || log.exists());
    assert_eq!(fs::read_to_string(log).unwrap(), "ended\n", "nobody is ever stopped first");

    // The daemon below the dead tree leads a session of its own and serves: it stays, and is named.
    let build = field.pids("b07-build-daemon");
    assert!(
        !field.planted.is_alive(build[0]) && field.planted.is_alive(build[2]),
        "{build:?} {:?}",
        swept.teardowns.get(&build[0])
    );
    let spared = swept.teardowns[&build[0]]["spared"].as_array().unwrap();
    let daemon = spared.iter().find(|one| one["pid"] == build[2]).expect("it is named");
    assert!(daemon["why"].as_str().unwrap().contains("leads its own session and listens"), "{daemon}");
    assert!(field.planted.is_alive(field.pids("b07-beside")[0]), "a mark makes nobody a member");

    // Newborns bear the mark, and nobody else here is named so.
    let newborn = field.planted.all().into_iter().filter(|pid| {
        fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| line.starts_with(b"newborn\0"))
    });
    assert_eq!(newborn.filter(|&pid| field.planted.is_alive(pid)).count(), 0, "{}", swept.said);
}

#[test]
fn a_sweep_from_within_a_dead_tree_spares_that_tree_c36() {
    let field = Field::prepare();
    let sweep = field.reapd(&["sweep", "--yes", "--json"]);
    let words: Vec<&str> = std::iter::once(sweep.get_program())
        .chain(sweep.get_args())
        .map(|word| word.to_str().unwrap())
        .collect();
    let (go, out) = (field.planted.path("go"), field.planted.path("within.json"));
    let line = format!(
        "until [ -e {go} ]; do sleep 0.02; done; export XDG_RUNTIME_DIR={run}; until {sweep} >{out}.new 2>/dev/null; do sleep 0.05; done; mv {out}.new {out}; sleep 600",
        go = go.display(),
        run = field.planted.path("run").display(),
        sweep = words.join(" "),
        out = out.display(),
    );
    fs::write(field.planted.path("within.sh"), line).unwrap();
    field.grow("within");
    let pids = field.pids("c36-sweeps-itself");
    field.pids("c36-another");
    fs::write(go, "").unwrap();
    wait_for("the sweep from within", || out.exists());
    let swept = Swept::read(&fs::read(out).unwrap());
    // It is an orphan to everybody but to the reaper below it, which says nothing of it; another reaper ends it.
    field.check(&swept, &[("c36-another", Ended)]);
    assert!(pids.iter().all(|&pid| field.planted.is_alive(pid)), "{}", swept.said);
    assert!(!swept.teardowns.contains_key(&pids[0]));
    let swept = field.sweep();
    field.check(&swept, &[("c36-sweeps-itself", Ended)]);
}
