//! What ends a tree, and who is spared.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;
use std::time::{Duration, Instant};

use rustix::process::Signal;

use super::{Field, Held, piped, wait_for};

/// A server with a grandchild that is deaf to TERM, as most trees have one.
const TREE: &str = "(trap '' TERM; sleep 601 & echo $! >deaf; wait) & echo $! >child; cat; sleep 600";

#[test]
fn a_killed_client_takes_the_tree_with_it() {
    let field = Field::new();
    let mut words = field.prefix(&[]);
    words.extend(["sh", "-c", TREE].map(str::to_owned));
    // The client holds both far ends.
    let line = "import subprocess, sys, time\n\
                p = subprocess.Popen(sys.argv[1:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n\
                open('watcher', 'w').write(str(p.pid))\ntime.sleep(600)";
    let mut client = vec!["python3".to_owned(), "-c".to_owned(), line.to_owned()];
    client.extend(words);
    let mut client = Held::start(&mut field.command(&client));
    field.planted.pid_in(&field.path("deaf"));
    let watcher = field.planted.pid_in(&field.path("watcher"));
    wait_for("the whole tree", || field.planted.below(watcher).len() >= 4);
    client.send(Signal::KILL);
    client.ends();
    let begun = Instant::now();
    field.wait_until_gone(&[]);
    assert!(
        begun.elapsed() > Duration::from_secs(4),
        "the far ends may be handed over: {:?}",
        begun.elapsed()
    );
    assert!(field.journal().contains("\"closure\":\"gone\""), "{}", field.journal());
    wait_for("the lease to be gone", || field.leases().is_empty());
}

#[test]
fn a_named_holders_death_ends_the_tree() {
    let field = Field::new();
    let mut holder = Held::start(field.planted.command("sleep").arg("600"));
    let number = holder.pid().to_string();
    let mut run = Held::start(&mut field.run(&["--holder", &number], "sleep 600 & wait"));
    wait_for("the tree", || field.planted.below(run.pid()).len() == 2);
    holder.send(Signal::KILL);
    holder.ends();
    assert_eq!(run.ends().signal(), Some(15), "as the command ended");
    field.wait_until_gone(&[]);
    assert!(field.leases().is_empty());
}

#[test]
fn what_a_command_leaves_behind_is_ended_and_named() {
    let field = Field::new();
    let line = "sleep 600 >/dev/null 2>&1 & sleep 601 >/dev/null 2>&1 & exit 9";
    let done = piped(&mut field.run(&[], line)).output().unwrap();
    assert_eq!(done.status.code(), Some(9));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(said.starts_with("reapd: ended 2 processes that sh left behind (sleep "), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(done.stdout.is_empty());
    field.wait_until_gone(&[]);
    assert!(field.leases().is_empty());
    // What ends by itself is not waited for and not spoken of.
    let done = piped(&mut field.run(&[], "sleep 0.02 & exit 9")).output().unwrap();
    assert_eq!((done.status.code(), &done.stderr[..]), (Some(9), &b""[..]));
}

#[test]
fn whoever_ends_a_tree_can_be_told_from_it() {
    let field = Field::new();
    let line = "trap '' TERM; (sleep 600 </dev/null >/dev/null 2>&1) & exec true";
    let mut run = Held::start(&mut field.run(&[], line));
    let is_finish = |pid: &i32| {
        let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        words.split(|byte| *byte == 0).nth(1) == Some(&b"finish"[..])
    };
    wait_for("reapd finish", || field.alive().iter().any(is_finish));
    assert_eq!(run.ends().code(), Some(0));
}

#[test]
fn leftovers_report_names_and_leaves() {
    let field = Field::new();
    let line = "sleep 600 >/dev/null 2>&1 & echo $! >left; exit 0";
    let done = piped(&mut field.run(&["--leftovers", "report"], line)).output().unwrap();
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let left = field.planted.pid_in(&field.path("left"));
    assert_eq!(said, format!("reapd: sh left 1 process behind (sleep {left})\n"));
    assert!(field.planted.is_alive(left) && field.leases().is_empty());
}

#[test]
fn who_stands_alone_is_spared_f4() {
    let field = Field::new();
    let shape = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes/listening-daemon.py");
    let line = format!(
        "nohup sleep 600 >/dev/null 2>&1 & echo $! >nohup; \
         REAPD_KEEP=1 sleep 601 >/dev/null 2>&1 & echo $! >kept; \
         setsid --fork \"$PYTHON\" {} daemon sock >/dev/null 2>&1; \
         while [ ! -e daemon ]; do sleep 0.05; done; \
         sleep 602 >/dev/null 2>&1 & echo $! >left; exit 0",
        shape.display()
    );
    let done = piped(&mut field.run(&[], &line)).output().unwrap();
    assert_eq!(done.status.code(), Some(0));
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    let pid = |name: &str| field.planted.pid_in(&field.path(name));
    assert!(!field.planted.is_alive(pid("left")), "{said}");
    for spared in ["nohup", "kept", "daemon"] {
        assert!(field.planted.is_alive(pid(spared)), "{spared} is gone: {said}");
    }
    assert_eq!(said, format!("reapd: ended 1 process that sh left behind (sleep {})\n", pid("left")));
}

#[test]
fn idle_ends_only_what_moves_nothing() {
    let field = Field::new();
    let busy = "while :; do echo x; sleep 0.2; done >/dev/null";
    let mut busy = Held::start(&mut field.run(&["--idle", "1s"], busy));
    let mut idle = Held::start(&mut field.run(&["--idle", "1s"], "sleep 600"));
    assert_eq!(idle.ends().signal(), Some(15));
    assert!(busy.0.try_wait().unwrap().is_none(), "it writes all the time");
    busy.send(Signal::TERM);
    busy.ends();
}

#[test]
fn a_listener_is_not_ended_for_a_lost_channel_f3() {
    let field = Field::new();
    let shape = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/shapes/listening-daemon.py");
    let mut run = Held::start(piped(
        &mut field.run(&["-v"], &format!("exec \"$PYTHON\" {} daemon sock", shape.display())),
    ));
    let daemon = field.planted.pid_in(&field.path("daemon"));
    drop((run.0.stdin.take(), run.0.stdout.take()));
    let mut said = String::new();
    let stderr = run.0.stderr.take().unwrap();
    let mut lines = std::io::BufRead::lines(std::io::BufReader::new(stderr));
    while !said.contains("stays for now") {
        said.push_str(&lines.next().unwrap().unwrap());
    }
    assert!(field.planted.is_alive(daemon), "{said}");
    assert!(!field.journal().contains("\"signalled\""));
    assert!(!field.leases()[0].contains("released"), "{:?}", field.leases());
}

#[test]
fn unread_input_is_work_to_do() {
    let field = Field::new();
    let mut run = Held::start(piped(&mut field.run(&[], "sleep 7; cat >taken; echo $? >done; sleep 600")));
    std::io::Write::write_all(run.0.stdin.as_mut().unwrap(), b"late").unwrap();
    drop((run.0.stdin.take(), run.0.stdout.take()));
    field.wait_for_file("done", "0");
    assert_eq!(field.read("taken"), "late");
    run.ends();
    field.wait_until_gone(&[]);
}

#[test]
fn a_killed_watcher_lets_the_command_serve_on_and_a_sweep_finishes() {
    let field = Field::new();
    let mut run = Held::start(piped(&mut field.run(&[], "echo $$ >pid; cat; sleep 600")));
    let command = field.planted.pid_in(&field.path("pid"));
    wait_for("the lease to name its command", || {
        field.leases().iter().any(|lease| lease.contains("\"command\":{"))
    });
    run.send(Signal::KILL);
    run.ends();
    // The client is still there.
    for _ in 0..3 {
        field.sweep();
    }
    assert!(field.planted.is_alive(command), "{}", field.journal());
    drop((run.0.stdin.take(), run.0.stdout.take()));
    wait_for("a sweep to finish", || {
        field.sweep();
        !field.planted.is_alive(command)
    });
    field.wait_until_gone(&[]);
    assert!(field.journal().contains("\"closure\":\"gone\""));
}

#[test]
fn a_watcher_that_is_told_to_go_leaves_what_it_does_to_the_other() {
    let field = Field::new();
    let line = "(trap '' TERM; sleep 600) >/dev/null 2>&1 & exit 0";
    let mut run = Held::start(field.run(&[], line).stdout(Stdio::null()));
    wait_for("the release", || field.leases().iter().any(|lease| lease.contains("\"released\":true")));
    run.send(Signal::TERM);
    run.ends();
    field.wait_until_gone(&[]);
    assert!(field.journal().contains("\"closure\":\"gone\""), "{}", field.journal());
    fs::metadata(field.path("state")).unwrap();
}
