//! Teardowns of real trees. Every process is marked, and only marked ones may join.

use std::cell::Cell;
use std::time::{Duration, Instant};

use reapd::act::processes::{Held, HoldError, Pinned, SignalError, children_of, raise_descriptor_limit};
use reapd::app::teardown::Interrupt;
use reapd::model::id::{Identity, Pid};
use reapd::model::outcome::{Closure, MemberOutcome, Outcome, Report};
use reapd::model::plan::Signal;

use crate::support::look;
use crate::support::stage::{Point, Stage, by_pid};
use crate::support::tree::{self, Tree, is_alive, until};

/// Whoever dies of KILL does so at once; the long rung only gives a busy machine time to see it.
const QUICK: [(Signal, u64); 2] = [(Signal::Term, 500), (Signal::Kill, 30_000)];

#[test]
fn a_tree_goes_whole_with_setsid_escapees_and_double_forks_c02_c03() {
    let tree = Tree::plant(
        "sleep 1000 & setsid sleep 1001 & (sh -c 'sleep 1002 & exec sleep 0') & (setsid sh -c 'sleep 1003 & sleep 1004' &) ; wait; sleep 1005",
    );
    for argument in ["1000", "1001", "1002"] {
        tree.find_by_argument(argument);
    }
    let mut stage = Stage::new(&tree.nonce, &[tree.root], &QUICK);
    let orphan = tree.find_by_argument("1002");
    until("the middle to go", || look::row(orphan).is_some_and(|row| row.ppid == tree::adopter().number()));
    let report = stage.run();
    assert_eq!(report.closure, Closure::Gone, "{report:#?}");
    let journal = stage.journal.unwrap();
    assert_eq!(journal.first(), Some(&format!("intent {}", tree.root)));
    assert_eq!(journal.get(1), Some(&format!("TERM {0} {0}", tree.root)), "the root has a head start");
    assert!(journal.iter().any(|line| line.starts_with(&format!("gone {0} {0}", tree.root))), "{journal:#?}");
    assert_eq!(journal.last(), Some(&format!("outcome {} Gone", tree.root)));
    // The one that left the session *and* its parent shares nothing any more that proves it of the tree.
    let escaped = [tree.find_by_argument("1003"), tree.find_by_argument("1004")];
    assert!(tree.alive().iter().all(|pid| escaped.contains(pid) || look::row(*pid).unwrap().name() == b"sh"));
}

#[test]
fn those_who_ignore_term_are_killed_c10_c32() {
    let tree = Tree::plant("for n in 1 2 3; do sh -c 'trap \"\" TERM; exec sleep 1000' & done; wait");
    tree.wait_for(4);
    until("all to sleep", || {
        tree.alive().iter().filter(|pid| look::row(**pid).is_some_and(|row| row.name() == b"sleep")).count()
            == 3
    });
    let mut stage = Stage::new(&tree.nonce, &[tree.root], &QUICK);
    let report = stage.run();
    assert_eq!(report.closure, Closure::Gone, "{report:#?}");
    for (pid, member) in by_pid(&report) {
        let last = if pid == tree.root { Signal::Term } else { Signal::Kill };
        assert_eq!(member.outcome, Outcome::Exited(last), "{report:#?}");
        assert!(member.gone.is_some());
        let asked = if pid == tree.root { vec![Signal::Term] } else { vec![Signal::Term, Signal::Kill] };
        assert_eq!(member.signals, asked, "nobody is asked twice (F15)");
    }
    assert!(tree.alive().is_empty());
}

#[test]
fn a_root_that_ends_its_own_children_is_given_the_time() {
    let tree = Tree::plant("sleep 1000 & child=$!; trap 'kill -HUP $child; exit 0' TERM; wait");
    tree.wait_for(2);
    let child = tree.find("sleep");
    let report = Stage::new(&tree.nonce, &[tree.root], &[(Signal::Term, 2000), (Signal::Kill, 30_000)]).run();
    assert_eq!(report.closure, Closure::Gone);
    assert_eq!(by_pid(&report)[&child].outcome, Outcome::AlreadyGone, "its own parent ended it: {report:#?}");
}

#[test]
fn without_a_kill_rung_the_rest_survives_and_is_reported() {
    let tree = Tree::plant("trap '' TERM; exec sleep 1000");
    tree.find("sleep");
    let report = Stage::new(&tree.nonce, &[tree.root], &[(Signal::Term, 100)]).run();
    assert_eq!(report.closure, Closure::Survivors);
    assert_eq!(report.members[0].outcome, Outcome::Survived("sleeping".to_owned()));
    assert!(is_alive(tree.root));
}

#[test]
fn a_recheck_that_fails_or_a_journal_that_cannot_be_written_stops_every_signal_s8() {
    let tree = Tree::plant("exec sleep 1000");
    tree.find("sleep");
    let mut stage = Stage::new(&tree.nonce, &[tree.root], &QUICK);
    stage.refusal = Some("a client came".to_owned());
    let report = stage.run();
    assert_eq!((report.closure, report.stood_down.as_deref()), (Closure::Untouched, Some("a client came")));
    stage.refusal = None;
    stage.journal = Err("no space left".to_owned());
    let report = stage.run();
    assert_eq!(report.closure, Closure::Untouched);
    assert!(report.stood_down.unwrap().contains("no space left"));
    assert!(report.members.iter().all(|member| member.signals.is_empty()));
    assert!(is_alive(tree.root));
}

#[test]
fn a_disk_that_fills_up_in_the_middle_ends_what_was_begun_and_begins_nothing_s8() {
    let first = Tree::plant("sleep 1000 & exec sleep 1001");
    let second = tree::start(&first.nonce, "exec sleep 1002", &[]);
    for argument in ["1000", "1001", "1002"] {
        first.find_by_argument(argument);
    }
    let mut stage = Stage::new(&first.nonce, &[first.root, second], &QUICK);
    stage.room = 1;
    let plan = stage.plan();
    let reports = stage.carry_out(&plan);
    assert_eq!(reports[0].closure, Closure::Gone, "{reports:#?}");
    assert_eq!(reports[1].closure, Closure::Untouched, "{reports:#?}");
    assert!(reports[1].stood_down.as_ref().unwrap().contains("no space left"));
    assert_eq!(first.alive(), [second].into());
}

#[test]
fn twenty_stubborn_trees_take_one_ladder() {
    let nonce = tree::nonce();
    let guard = Tree { root: Pid::INIT, nonce: nonce.clone() };
    let roots: Vec<Pid> = (0..20)
        .map(|_| tree::start(&nonce, "trap '' TERM; sh -c 'exec sleep 1000' & exec sleep 1000", &[]))
        .collect();
    until("all to sleep", || {
        guard.alive().iter().filter(|pid| look::row(**pid).is_some_and(|row| row.name() == b"sleep")).count()
            == 40
    });
    let grace = 2000;
    let mut stage = Stage::new(&nonce, &roots, &[(Signal::Term, grace), (Signal::Kill, 30_000)]);
    let plan = stage.plan();
    assert_eq!(plan.teardowns.len(), 20);
    let began = Instant::now();
    let reports = stage.carry_out(&plan);
    let took = began.elapsed();
    assert!(reports.iter().all(|report| report.closure == Closure::Gone), "{reports:#?}");
    assert!(
        reports
            .iter()
            .flat_map(|report| &report.members)
            .all(|member| member.signals.last() == Some(&Signal::Kill))
    );
    assert!(guard.alive().is_empty());
    assert!(took >= Duration::from_millis(grace), "{took:?}: KILL before the grace had passed");
    // One after another they would take forty seconds; the benchmark tells how near to one grace it comes.
    assert!(took <= Duration::from_millis(15 * grace), "{took:?}");
}

/// Returns those that are neither on record as gone nor as ended.
fn refused(report: &Report) -> Vec<&MemberOutcome> {
    report.members.iter().filter(|member| member.gone.is_none()).collect()
}

#[test]
fn members_that_fork_leave_no_survivors_beside_two_thousand_idle_ones_c01() {
    let _alone = crate::turn::heavy();
    let idle = Tree::plant("i=0; while [ $i -lt 2000 ]; do sleep 1000 & i=$((i+1)); done; wait");
    until("the idle ones", || look::row(idle.root).is_some_and(|_| children(idle.root) >= 2000));
    let breed = "while :; do sleep 300 & sleep 0.001; done";
    let tree = Tree::plant_with("for n in 1 2 3 4; do sh -c \"$1\" & done; sh -c \"$1\"", &[breed]);
    tree.wait_for(30);
    raise_descriptor_limit();
    let mut stage = Stage::new(&tree.nonce, &[tree.root], &[(Signal::Term, 100), (Signal::Kill, 30_000)]);
    let plan = stage.plan();
    let began = Instant::now();
    let report = stage.carry_out(&plan).remove(0);
    let took = began.elapsed();
    assert_eq!(tree.alive(), [].into(), "after {took:?}: {report:#?}");
    assert_eq!(report.closure, Closure::Gone, "{:?} {:#?}", report.spared, refused(&report));
    assert!(took <= Duration::from_secs(25), "{took:?}");
    assert_eq!(children(idle.root), 2000, "nobody else was touched");
}

#[test]
fn a_member_of_another_user_is_spared_with_its_subtree() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let tree =
        Tree::plant("setpriv --reuid=65534 --clear-groups sh -c 'sleep 1001 & sleep 1002' & sleep 1003");
    let (inner, outer) = (tree.find_by_argument("1001"), tree.find_by_argument("1003"));
    let shell = Pid::new(look::row(inner).unwrap().ppid).unwrap();
    let report = Stage::new(&tree.nonce, &[tree.root], &QUICK).run();
    assert!(is_alive(inner) && is_alive(shell) && !is_alive(outer));
    let why = &report.spared.iter().find(|spared| spared.id.pid == shell).expect("it is named").why;
    assert_eq!(why, "it belongs to user 65534");
    assert_eq!(report.closure, Closure::Gone);
}

#[test]
fn a_stopped_member_goes_and_a_zombie_is_nobody_to_wait_for_c22() {
    let tree = Tree::plant("sleep 1000 & sleep 0 & exec sleep 1001");
    let (stopped, parent) = (tree.find_by_argument("1000"), tree.find_by_argument("1001"));
    tree::send(stopped, rustix::process::Signal::STOP);
    until("the stop", || {
        look::row(stopped).is_some_and(|row| row.state == reapd::model::table::State::Stopped)
    });
    until("the zombie", || zombies_below(parent) == 1);
    let began = Instant::now();
    let report = Stage::new(&tree.nonce, &[tree.root], &QUICK).run();
    assert_eq!(report.closure, Closure::Gone);
    assert!(tree.alive().is_empty());
    assert_eq!(report.members.len(), 2, "the zombie is no member");
    assert_eq!(by_pid(&report)[&stopped].outcome, Outcome::Exited(Signal::Kill));
    assert!(began.elapsed() < Duration::from_secs(20), "nobody waits for a corpse");
}

#[test]
fn a_frozen_member_survives_and_is_not_waited_for_beyond_the_ladder() {
    let tree = Tree::plant("sleep 1000 & exec sleep 1001");
    // Dropped before the tree is: what is frozen cannot be killed.
    let Some(freezer) = Freezer::new() else { return };
    let (frozen, free) = (tree.find_by_argument("1000"), tree.find_by_argument("1001"));
    freezer.freeze(frozen);
    let began = Instant::now();
    let report = Stage::new(&tree.nonce, &[tree.root], &[(Signal::Term, 200), (Signal::Kill, 300)]).run();
    let took = began.elapsed();
    assert_eq!(report.closure, Closure::Survivors);
    assert!(!is_alive(free) && is_alive(frozen));
    let outcome = &by_pid(&report)[&frozen];
    assert_eq!(outcome.signals, [Signal::Term, Signal::Kill]);
    assert_eq!(outcome.outcome, Outcome::Survived("uninterruptible, or in a frozen cgroup".to_owned()));
    assert!(took < Duration::from_secs(10), "{took:?}");
}

#[test]
fn a_job_in_the_group_of_the_root_whose_shell_lives_is_spared_f4() {
    // The root leads a group within the session of a living shell, as under job control; the analysis is in it.
    let tree = Tree::plant(
        "exec bash -c \"set -m; sh -c 'sleep 1000; :' | sh -c 'sleep 1001; :' & wait; sleep 1002\"",
    );
    let server = Pid::new(look::row(tree.find_by_argument("1000")).unwrap().ppid).unwrap();
    let analysis = tree.find_by_argument("1001");
    until("the group", || look::row(analysis).is_some_and(|row| row.pgid == server.number()));
    let mut stage = Stage::new(&tree.nonce, &[server], &QUICK);
    let report = stage.run();
    assert!(!is_alive(server) && is_alive(analysis), "{report:#?}");
    assert!(
        report.spared.iter().any(|spared| spared.why.contains("in the tree's process group, but its parent"))
    );
}

#[test]
fn a_daemon_that_leads_its_session_and_listens_is_spared_f4() {
    let own = std::env::current_exe().unwrap();
    let tree = Tree::plant_with(
        "REAPD_TEST_ROLE=listen setsid \"$1\" --exact teardown::role --nocapture & sleep 1000",
        &[own.to_str().unwrap()],
    );
    tree.find_by_argument("1000");
    let daemon = tree.find_by_argument("teardown::role");
    until("a listener", || look::sockets(daemon).is_ok_and(|sockets| !sockets.listeners.is_empty()));
    let report = Stage::new(&tree.nonce, &[tree.root], &QUICK).run();
    assert!(is_alive(daemon));
    assert_eq!(tree.alive(), [daemon].into());
    let why = &report.spared.iter().find(|spared| spared.id.pid == daemon).expect("it is named").why;
    assert!(why.starts_with("it leads its own session and listens on"), "{why}");
}

#[test]
fn a_member_that_runs_another_program_meanwhile_is_not_signalled_c08() {
    let directory = tempfile::tempdir().unwrap();
    let flag = directory.path().join("go");
    let script = "sh -c 'trap \"\" TERM; while ! [ -e \"$0\" ]; do sleep 0.01; done; exec sleep 1001' \"$1\" & exec sleep 1000";
    let tree = Tree::plant_with(script, &[flag.to_str().unwrap()]);
    tree.find_by_argument("1000");
    let changing = *tree
        .alive()
        .iter()
        .find(|pid| look::row(**pid).is_some_and(|row| row.ppid == tree.root.number()))
        .expect("the one that changes");
    let mut stage = Stage::new(&tree.nonce, &[tree.root], &QUICK).with_hook(|point| {
        if *point == Point::Recheck {
            std::fs::write(&flag, "").unwrap();
            until("exec", || look::row(changing).is_some_and(|row| row.name() == b"sleep"));
        }
    });
    let report = stage.run();
    assert!(is_alive(changing), "{report:#?}");
    let outcome = &by_pid(&report)[&changing];
    assert_eq!((&outcome.outcome, outcome.signals.len()), (&Outcome::IdentityChanged, 0));
    assert_eq!(report.closure, Closure::Survivors);
}

#[test]
fn a_handle_never_names_a_successor_and_signals_nobody_that_is_gone() {
    let tree = Tree::plant("exec sleep 1000");
    tree.find("sleep");
    let id = look::row(tree.root).unwrap().id;
    let facts = look::facts(id).unwrap();
    let identity = facts.identity(&look::look_of(Vec::new()).snapshot.boot).unwrap();
    let held = Held::hold(&identity).unwrap();
    assert!(!held.is_gone());
    held.signal(Signal::Kill).unwrap();
    until("the end", || held.is_gone());
    assert!(matches!(held.signal(Signal::Kill), Err(SignalError::Gone)));
}

#[test]
fn a_list_of_children_longer_than_a_page_is_read_whole() {
    let tree = Tree::plant("i=0; while [ $i -lt 1500 ]; do sleep 1000 & i=$((i+1)); done; wait");
    until("all children", || children(tree.root) == 1500);
    let listed = reapd::act::processes::children_of(look::row(tree.root).unwrap().id).unwrap();
    assert_eq!(listed.len(), 1500);
}

/// Runs the recycled-number test within a namespace of its own, where numbers can be forced.
#[test]
fn a_recycled_number_that_leads_a_session_and_group_is_never_signalled_f1_c06_c07_c08() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let own = std::env::current_exe().unwrap();
    let script = "\"$0\" --exact teardown::role --nocapture; exit $?";
    let output = std::process::Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script])
        .arg(own)
        .env("REAPD_TEST_ROLE", "recycle")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("the stranger lives"), "{text}");
}

/// Not a test by itself: the parts that the tests above play in processes of their own.
#[test]
fn role() {
    match std::env::var("REAPD_TEST_ROLE").as_deref() {
        Ok("listen") => {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            let _ = listener.accept();
        }
        Ok("recycle") => recycle(),
        _ => {}
    }
}

/// The root goes on TERM; its number passes at once to a stranger that leads a session and a group by it. With a
/// stubborn member in a session of its own all rungs are still to come then.
fn recycle() {
    for child in ["", "setsid sh -c 'trap \"\" TERM; exec sleep 1001' &"] {
        recycled(child, Point::Tick);
    }
    recycled("", Point::Recheck);
    std::fs::write("/proc/self/fd/1", "the stranger lives\n").unwrap();
}

/// Lets the root's number pass on: at the first tick that finds it gone, or, with the root ended by somebody else,
/// between the last check and the first signal.
fn recycled(child: &str, when: Point) {
    let tree = Tree::plant(&format!("{child} exec sleep 1000"));
    tree.find_by_argument("1000");
    if !child.is_empty() {
        tree.find_by_argument("1001");
    }
    let stranger = Cell::new(None);
    let mut stage = Stage::new(&tree.nonce, &[tree.root], &QUICK).with_hook(|point| {
        if *point == Point::Recheck && when == Point::Recheck {
            tree::send(tree.root, rustix::process::Signal::KILL);
            until("the root to end", || look::row(tree.root).is_none_or(|row| row.is_gone()));
        }
        let is_gone = look::row(tree.root).is_none_or(|row| row.is_gone());
        if *point == when && is_gone && stranger.get().is_none() {
            until("the corpse to be reaped", || look::row(tree.root).is_none());
            stranger.set(Some(take_number(tree.root, &tree.nonce)));
        }
    });
    let report = stage.run();
    drop(stage);
    assert_eq!(stranger.get(), Some(tree.root), "the number was recycled");
    let row = look::row(tree.root).expect("the stranger lives");
    assert_eq!((row.sid, row.pgid), (tree.root.number(), tree.root.number()));
    // An environment reads empty for an instant within exec, so whoever was just started is waited for. Who was ended
    // does not come back.
    until(&format!("the stranger, its child, and its orphan: {report:#?}"), || tree.alive().len() == 3);
    assert_eq!(report.members.len(), if child.is_empty() { 1 } else { 2 });
    if when == Point::Tick {
        assert_eq!(report.closure, Closure::Gone);
    }
}

/// Starts processes until one gets this number, with the same mark: a session leader with one child.
fn take_number(number: Pid, nonce: &str) -> Pid {
    let mut taken = None;
    until("the number to be free", || {
        // Two processes are started for each orphan: the shell between, and the orphan.
        std::fs::write("/proc/sys/kernel/ns_last_pid", (number.number() - 2).to_string()).unwrap();
        let root = tree::start(nonce, "(sleep 2000 &) ; sleep 2001 & exec sleep 2002", &[]);
        if root == number {
            until("the stranger's own", || tree::in_session(root) == 3);
            taken = Some(root);
        }
        taken.is_some()
    });
    taken.unwrap()
}

fn children(pid: Pid) -> usize {
    std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"))
        .map_or(0, |text| text.split_ascii_whitespace().count())
}

fn zombies_below(parent: Pid) -> usize {
    look::pids()
        .into_iter()
        .filter_map(look::row)
        .filter(|row| row.ppid == parent.number() && row.is_gone())
        .count()
}

/// A cgroup v1 freezer of this test's own.
struct Freezer(std::path::PathBuf);

impl Freezer {
    fn new() -> Option<Freezer> {
        let path =
            std::path::PathBuf::from(format!("/sys/fs/cgroup/freezer/reapd-test-{}", std::process::id()));
        std::fs::create_dir(&path).ok()?;
        Some(Freezer(path))
    }

    fn freeze(&self, pid: Pid) {
        std::fs::write(self.0.join("cgroup.procs"), pid.to_string()).unwrap();
        std::fs::write(self.0.join("freezer.state"), "FROZEN").unwrap();
        until("the frost", || {
            std::fs::read_to_string(self.0.join("freezer.state")).unwrap().trim() == "FROZEN"
        });
    }
}

impl Drop for Freezer {
    fn drop(&mut self) {
        let _ = std::fs::write(self.0.join("freezer.state"), "THAWED");
        let end = Instant::now() + Duration::from_secs(5);
        while std::fs::remove_dir(&self.0).is_err() && Instant::now() < end {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
}

#[test]
fn nobody_is_held_or_signalled_by_an_identity_that_is_not_wholly_its_own_c07_c08() {
    let tree = Tree::plant("exec sleep 1000");
    tree.find("sleep");
    let id = look::row(tree.root).unwrap().id;
    let boot = look::look_of(Vec::new()).snapshot.boot;
    let identity = look::facts(id).unwrap().identity(&boot).unwrap();
    assert!(Held::hold(&identity).is_ok());
    let changes: [fn(&mut Identity); 6] = [
        |wrong| wrong.boot.0.push('x'),
        |wrong| wrong.id.start.0 += 1,
        |wrong| wrong.uid.0 += 1,
        |wrong| wrong.exe = None,
        |wrong| wrong.exe.as_mut().unwrap().ino += 1,
        |wrong| wrong.exe.as_mut().unwrap().dev += 1,
    ];
    for change in changes {
        let mut wrong = identity.clone();
        change(&mut wrong);
        assert!(matches!(Held::hold(&wrong), Err(HoldError::IdentityChanged)), "{wrong:?}");
    }
    let mut older = id;
    older.start.0 += 1;
    assert!(matches!(Pinned::pin(older), Err(HoldError::IdentityChanged)), "a number alone is nobody");
    assert!(children_of(older).is_err(), "nor are its children somebody's");
    assert!(is_alive(tree.root));
}

#[test]
fn a_root_that_goes_before_the_first_signal_leaves_its_tree_alone() {
    let tree = Tree::plant("setsid sleep 1000 & sleep 1001");
    let (child, root) = (tree.find_by_argument("1000"), tree.root);
    let mut stage = Stage::new(&tree.nonce, &[root], &QUICK);
    let plan = stage.plan();
    assert_eq!(plan.teardowns[0].members.len(), 3);
    tree::send(root, rustix::process::Signal::KILL);
    until("the root's end", || !is_alive(root));
    let report = stage.carry_out(&plan).remove(0);
    assert_eq!(report.closure, Closure::Untouched, "{report:#?}");
    assert!(report.members.iter().all(|member| member.signals.is_empty()));
    assert!(is_alive(child), "nothing is proven of what it left");
}

#[test]
fn who_only_seems_to_be_below_a_member_is_let_go() {
    let tree = Tree::plant("sh -c 'sleep 1000; :' & sleep 1001");
    let below = tree.find_by_argument("1000");
    let middle = Pid::new(look::row(below).unwrap().ppid).unwrap();
    let mut stage = Stage::new(&tree.nonce, &[tree.root], &QUICK);
    let mut plan = stage.plan();
    // As if the scan had seen another process under the middle's number, one that is gone by now.
    let members = &mut plan.teardowns[0].members;
    members.iter_mut().find(|member| member.identity.id.pid == middle).unwrap().identity.id.start.0 -= 1;
    let report = stage.carry_out(&plan).remove(0);
    let outcome = &by_pid(&report)[&below];
    assert_eq!((&outcome.outcome, outcome.signals.len()), (&Outcome::IdentityChanged, 0), "{report:#?}");
    assert!(is_alive(below));
}

#[test]
fn who_was_asked_to_end_begins_no_tree() {
    let tree = Tree::plant("exec sleep 1000");
    tree.find("sleep");
    let mut stage = Stage::new(&tree.nonce, &[tree.root], &QUICK);
    stage.interrupt = Interrupt::Finish;
    let report = stage.run();
    assert_eq!(report.closure, Closure::Untouched);
    assert!(is_alive(tree.root));
}
