//! The cgroup of its own that a command is started in, where we may make one: as root here, or where it is delegated.

use std::fs;
use std::path::PathBuf;
use std::process::Stdio;

use rustix::process::Signal;

use super::{Field, Held, piped, wait_for};

/// Says whether commands get a cgroup of their own here. Elsewhere (no unified hierarchy, or none that is delegated
/// to this user) there is nothing to see, and `reapd run` runs all the same, which every other test shows.
fn is_possible(field: &Field) -> bool {
    let done = piped(&mut field.run(&[], "cat /proc/self/cgroup")).output().unwrap();
    String::from_utf8_lossy(&done.stdout).contains("/reapd-run-")
}

/// Returns the directory of the only lease's cgroup.
fn directory(field: &Field) -> PathBuf {
    let mut found = None;
    wait_for("the lease to name its command", || {
        let leases = field.leases();
        let lease: Option<serde_json::Value> =
            leases.first().and_then(|text| serde_json::from_str(text).ok());
        let run = lease.map(|lease| lease["run"].clone()).unwrap_or_default();
        found = run["cgroup"]["path"].as_str().map(str::to_owned);
        run["command"].is_object()
    });
    let path = found.expect("the lease names a cgroup");
    let places = reapd::model::lease::Cgroup::MOUNTS.map(|mount| PathBuf::from(format!("{mount}{path}")));
    places.into_iter().find(|place| place.join("cgroup.procs").exists()).expect("it is there")
}

fn numbers(directory: &std::path::Path) -> Vec<i32> {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    text.lines().filter_map(|line| line.parse().ok()).collect()
}

/// A shell word that starts a command with nothing but the nonce in its environment.
fn cleared() -> String {
    format!("env -i {0}=\"${0}\" PATH=\"$PATH\"", crate::planted::MARK)
}

#[test]
fn a_command_is_in_a_cgroup_of_its_own_which_goes_with_it() {
    let field = Field::new();
    if !is_possible(&field) {
        return;
    }
    let mut run = Held::start(piped(&mut field.run(&[], "sleep 600 & echo $! >child; echo $$ >pid; cat")));
    let command = field.planted.pid_in(&field.path("pid"));
    let child = field.planted.pid_in(&field.path("child"));
    let directory = directory(&field);
    let inside = numbers(&directory);
    assert!(inside.contains(&command) && inside.contains(&child), "{inside:?}");
    assert!(!inside.contains(&run.pid()), "the watcher stays where it was");
    drop((run.0.stdin.take(), run.0.stdout.take()));
    run.ends();
    field.wait_until_gone(&[]);
    assert!(!directory.exists());
    // What cannot be run is told as ever, and leaves none.
    for (program, code) in [("/nowhere/at/all", 127), ("/etc/passwd", 126), ("no-such-program-anywhere", 127)]
    {
        let mut words = field.prefix(&[]);
        words.push(program.to_owned());
        let done = piped(&mut field.command(&words)).output().unwrap();
        assert_eq!(done.status.code(), Some(code), "{program}");
    }
    assert!(field.leases().is_empty());
}

#[test]
fn who_cleared_its_environment_is_found_by_its_cgroup_after_the_watchers_death() {
    let field = Field::new();
    if !is_possible(&field) {
        return;
    }
    let line = format!(
        "{} setsid --fork setsid --fork sh -c 'echo $$ >escaped; exec sleep 600' >/dev/null 2>&1; \
         echo $$ >pid; cat",
        cleared()
    );
    let mut run = Held::start(piped(&mut field.run(&[], &line)));
    let command = field.planted.pid_in(&field.path("pid"));
    let escaped = field.planted.pid_in(&field.path("escaped"));
    let directory = directory(&field);
    assert!(numbers(&directory).contains(&escaped));
    run.send(Signal::KILL);
    run.ends();
    field.sweep();
    assert!(field.planted.is_alive(escaped), "its client is still there: {}", field.journal());
    drop((run.0.stdin.take(), run.0.stdout.take()));
    wait_for("the command's end", || !field.planted.is_alive(command));
    wait_for("a sweep to finish", || {
        field.sweep();
        !field.planted.is_alive(escaped)
    });
    field.wait_until_gone(&[]);
    // Ours by its name, empty, and of a watcher that cannot remove it any more.
    let _ = fs::remove_dir(&directory);
}

#[test]
fn a_chain_of_forks_is_ended_with_its_cgroup() {
    let field = Field::new();
    if !is_possible(&field) {
        return;
    }
    // Each link leaves session and parent behind. It ends by itself at last, whatever becomes of this test.
    let chain = "import os, signal, time\n\
        signal.signal(signal.SIGTERM, signal.SIG_IGN)\n\
        open('chained', 'w').close()\n\
        for _ in range(2000):\n\
        \x20   if os.fork(): os._exit(0)\n\
        \x20   os.setsid()\n\
        \x20   time.sleep(0.02)\n";
    fs::write(field.path("chain.py"), chain).unwrap();
    let line = "(trap '' TERM; exec sleep 600) >/dev/null 2>&1 & \
                python3 chain.py >/dev/null 2>&1 & \
                while [ ! -e chained ]; do sleep 0.05; done; exit 0";
    let done = piped(&mut field.run(&[], line)).output().unwrap();
    assert_eq!(done.status.code(), Some(0));
    field.wait_until_gone(&[]);
    let journal = field.journal();
    assert!(journal.contains("\"group-killed\""), "{journal}");
    assert!(!journal.contains("\"survivors\"") && journal.contains("\"closure\":\"gone\""), "{journal}");
}

/// Leaves behind who is spared, and one that is deaf to TERM: that one goes by itself.
fn spares(who: &str) {
    let field = Field::new();
    if !is_possible(&field) {
        return;
    }
    let line = format!(
        "{who} >/dev/null 2>&1 & echo $! >spared; \
         (trap '' TERM; exec sleep 600) >/dev/null 2>&1 & echo $! >left; exit 0"
    );
    let done = piped(&mut field.run(&[], &line)).output().unwrap();
    assert_eq!(done.status.code(), Some(0));
    let pid = |name: &str| field.planted.pid_in(&field.path(name));
    wait_for("what was left to be gone", || !field.planted.is_alive(pid("left")));
    assert!(field.planted.is_alive(pid("spared")), "{}", field.journal());
    assert!(!field.journal().contains("\"group-killed\""), "{}", field.journal());
}

#[test]
fn a_shared_daemon_in_the_cgroup_is_spared_and_nothing_is_killed_as_a_whole_f4() {
    spares("cp \"$(command -v sleep)\" gpg-agent; ./gpg-agent 600");
}

#[test]
fn who_is_to_live_on_in_the_cgroup_is_judged_for_its_own_sake() {
    spares("nohup sleep 601");
}

/// Starts a run whose command leaves somebody who is deaf to TERM. Returns it with his number and their cgroup.
fn leaving_one(field: &Field) -> (Held, i32, PathBuf) {
    let line = "(trap '' TERM; exec sleep 600) >/dev/null 2>&1 & echo $! >left; cat";
    let run = Held::start(piped(&mut field.run(&[], line)));
    (run, field.planted.pid_in(&field.path("left")), directory(field))
}

#[test]
fn a_cgroup_with_another_inside_is_not_killed_as_a_whole() {
    let field = Field::new();
    if !is_possible(&field) {
        return;
    }
    let (mut run, left, directory) = leaving_one(&field);
    fs::create_dir(directory.join("inner")).unwrap();
    drop((run.0.stdin.take(), run.0.stdout.take()));
    run.ends();
    wait_for("what was left to be gone", || !field.planted.is_alive(left));
    assert!(!field.journal().contains("\"group-killed\""), "{}", field.journal());
    fs::remove_dir(directory.join("inner")).unwrap();
    wait_for("the cgroup to be empty", || fs::remove_dir(&directory).is_ok());
}

#[test]
fn who_was_moved_into_the_cgroup_is_never_touched() {
    let field = Field::new();
    if !is_possible(&field) {
        return;
    }
    let (mut run, left, directory) = leaving_one(&field);
    // Younger than the run, and a child of the run's holder, which this test is.
    let mut stranger = Held::start(field.planted.command("sleep").arg("600").stdin(Stdio::null()));
    // The kernel lets root and the owner of a delegated cgroup do that.
    fs::write(directory.join("cgroup.procs"), stranger.pid().to_string()).unwrap();
    assert!(numbers(&directory).contains(&stranger.pid()));
    drop((run.0.stdin.take(), run.0.stdout.take()));
    run.ends();
    wait_for("what was left to be gone", || !field.planted.is_alive(left));
    assert!(stranger.0.try_wait().unwrap().is_none(), "{}", field.journal());
    assert!(!field.journal().contains("\"group-killed\""), "{}", field.journal());
    stranger.send(Signal::KILL);
    stranger.ends();
    wait_for("the cgroup to be empty", || fs::remove_dir(&directory).is_ok() || !directory.exists());
}
