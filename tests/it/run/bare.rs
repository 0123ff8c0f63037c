//! As if it were not there: the same ends, streams, signals and descriptors as the bare command.

use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::Stdio;

use rustix::process::Signal;

use super::{Field, Held, piped, wait_for};

#[test]
fn exit_codes_and_signals_are_those_of_the_bare_command() {
    let field = Field::new();
    let lines = ["true", "exit 1", "exit 77", "exit 255", "exit 125"];
    let signals = ["TERM", "KILL", "INT", "HUP", "QUIT", "USR1", "PIPE", "ALRM", "ABRT", "SEGV"];
    let deaths = signals.map(|signal| format!("ulimit -c 0; kill -{signal} $$"));
    for line in lines.iter().map(|line| (*line).to_owned()).chain(deaths) {
        let bare = field.command(&["sh", "-c", &line].map(str::to_owned)).status().unwrap();
        let ours = field.run(&[], &line).stderr(Stdio::piped()).output().unwrap();
        assert_eq!((ours.status.code(), ours.status.signal()), (bare.code(), bare.signal()), "{line}");
        assert!(ours.stderr.is_empty(), "{line}: {}", String::from_utf8_lossy(&ours.stderr));
    }
    assert_eq!(field.leases(), [] as [String; 0], "a clean end leaves no lease");
}

#[test]
fn own_faults_have_the_codes_of_env() {
    let field = Field::new();
    fs::write(field.path("plain"), "text").unwrap();
    let plain = field.path("plain").display().to_string();
    for (program, code) in [("/nonexistent/x", 127), ("nowhere-to-be-found", 127), (&plain, 126), ("/", 126)]
    {
        let mut words = field.prefix(&[]);
        words.push(program.to_owned());
        let done = piped(&mut field.command(&words)).output().unwrap();
        assert_eq!(done.status.code(), Some(code), "{program}");
        assert!(done.stdout.is_empty() && !done.stderr.is_empty(), "{program}");
    }
    for wrong in [&["--bogus"][..], &["--leftovers", "x"], &["--idle", "5"], &["--holder", "0"]] {
        let done = piped(&mut field.run(wrong, "true")).output().unwrap();
        assert_eq!(done.status.code(), Some(125), "{wrong:?}");
        assert!(done.stdout.is_empty() && !done.stderr.is_empty(), "{wrong:?}");
    }
    assert_eq!(field.leases(), [] as [String; 0]);
}

#[test]
fn each_signal_comes_once() {
    let field = Field::new();
    for signal in
        [Signal::TERM, Signal::INT, Signal::HUP, Signal::QUIT, Signal::USR1, Signal::USR2, Signal::WINCH]
    {
        let number = signal.as_raw();
        let line = format!(
            "trap 'echo got >>got{number}; exit 42' {number}; echo ready >ready{number}; while :; do sleep 0.05; done"
        );
        let mut words = field.prefix(&[]);
        words.extend(["bash", "-c", &line].map(str::to_owned));
        let mut run = Held::start(&mut field.command(&words));
        field.wait_for_file(&format!("ready{number}"), "ready");
        run.send(signal);
        assert_eq!(run.ends().code(), Some(42), "{signal:?}");
        assert_eq!(field.read(&format!("got{number}")), "got\n", "{signal:?}");
    }
}

#[test]
fn a_stopped_watcher_goes_on_and_tstp_reaches_the_command() {
    let field = Field::new();
    let mut run = Held::start(&mut field.run(&[], "echo $$ >pid; while :; do sleep 0.05; done"));
    let command = field.planted.pid_in(&field.path("pid"));
    let state = |pid: i32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(") ").next().and_then(|rest| rest.chars().next())
    };
    run.send(Signal::TSTP);
    wait_for("the stop", || state(command) == Some('T'));
    assert_ne!(state(run.pid()), Some('T'), "without a terminal nobody would continue us");
    run.send(Signal::CONT);
    wait_for("it to go on", || state(command) != Some('T'));
    run.send(Signal::TERM);
    assert_eq!(run.ends().signal(), Some(15));
}

#[test]
fn ignored_signals_stay_ignored_for_the_command() {
    let field = Field::new();
    let show = "grep SigIgn /proc/self/status";
    for trap in ["", "trap '' PIPE;", "trap '' HUP INT;", "trap '' CHLD;"] {
        let bare = field.shell(&format!("{trap} {show}")).stdout(Stdio::piped()).output().unwrap();
        let ours = field.shell(&format!("{trap} $REAPD {show}")).stdout(Stdio::piped()).output().unwrap();
        // Those above 31 are the C library's own; its posix_spawn(3) ignores them.
        let mask = |said: &[u8]| {
            let text = String::from_utf8_lossy(said).replace("SigIgn:", "");
            u64::from_str_radix(text.trim(), 16).unwrap() & 0x7fff_ffff
        };
        assert_eq!(mask(&ours.stdout), mask(&bare.stdout), "{trap}");
    }
}

#[test]
fn blocked_signals_stay_blocked_for_the_command_and_no_end_is_missed() {
    let field = Field::new();
    let block = "import os, signal, sys; \
                 signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGCHLD, signal.SIGTERM}); \
                 os.execvp(sys.argv[1], sys.argv[1:])";
    let begin = |ours: &[String], words: &[&str]| {
        let mut all = ["python3", "-c", block].map(str::to_owned).to_vec();
        all.extend_from_slice(ours);
        all.extend(words.iter().map(|word| (*word).to_owned()));
        Held::start(field.command(&all).stdin(Stdio::null()).stdout(Stdio::piped()))
    };
    let said = |ours: &[String]| {
        let mut run = begin(ours, &["grep", "SigBlk", "/proc/self/status"]);
        assert_eq!(run.ends().code(), Some(0));
        let mut said = String::new();
        run.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
        said
    };
    assert_eq!(said(&field.prefix(&[])), said(&[]));
    // What the command lets through comes to it, and it dies of it as it would alone.
    let unblock = "import signal, time; signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGTERM}); \
                   open('ready', 'w').write('ready'); time.sleep(600)";
    let mut run = begin(&field.prefix(&[]), &["python3", "-c", unblock]);
    field.wait_for_file("ready", "ready");
    run.send(Signal::TERM);
    assert_eq!(run.ends().signal(), Some(15));
}

#[test]
fn a_big_stream_passes_byte_for_byte_and_through_no_hand_of_ours() {
    let field = Field::new();
    let mut words = field.prefix(&[]);
    words.push("cat".to_owned());
    let mut run = Held::start(piped(&mut field.command(&words)));
    let sent: Vec<u8> =
        (0..16_000_000_u32).flat_map(|number| number.wrapping_mul(2_654_435_761).to_le_bytes()).collect();
    let mut stdin = run.0.stdin.take().unwrap();
    let mut stdout = run.0.stdout.take().unwrap();
    let copy = sent.clone();
    let writer = std::thread::spawn(move || stdin.write_all(&copy).map(|()| stdin));
    let mut came = vec![0; sent.len()];
    stdout.read_exact(&mut came).unwrap();
    assert!(came == sent, "bytes differ");
    let io = fs::read_to_string(format!("/proc/{}/io", run.pid())).unwrap();
    let moved: u64 = io
        .lines()
        .filter_map(|line| line.strip_prefix("rchar: ").or(line.strip_prefix("wchar: ")))
        .map(|number| number.parse::<u64>().unwrap())
        .sum();
    assert!(moved < 100_000, "the watcher moved {moved} bytes itself");
    drop(writer.join().unwrap().unwrap());
    assert_eq!(run.ends().code(), Some(0));
}

#[test]
fn the_ends_of_streams_come_with_the_commands_end() {
    let field = Field::new();
    // What it leaves behind takes a while to end, and holds neither stream.
    let line = "trap '' TERM; (sleep 60 </dev/null >/dev/null 2>&1) & echo done; exec true";
    let mut run = Held::start(piped(&mut field.run(&[], line)));
    let mut said = String::new();
    run.0.stdout.take().unwrap().read_to_string(&mut said).unwrap();
    assert_eq!(said, "done\n");
    assert!(run.0.try_wait().unwrap().is_none(), "it still sees to what was left");
    assert_eq!(run.ends().code(), Some(0));
}

#[test]
fn other_descriptors_are_the_commands_alone() {
    let field = Field::new();
    let line =
        "($REAPD bash -c 'exec 3>&-; echo $$ >pid; exec sleep 600' 3>&1 >/dev/null) | (cat; echo eof >eof)";
    let _run = Held::start(&mut field.shell(line));
    let command = field.planted.pid_in(&field.path("pid"));
    field.wait_for_file("eof", "eof");
    assert!(field.planted.is_alive(command));
}

#[test]
fn a_command_that_closes_its_output_and_lives_on_is_seen_to() {
    let field = Field::new();
    let line = "$REAPD bash -c 'exec >&-; echo $$ >pid; exec sleep 600' </dev/null | (cat; echo eof >eof)";
    let _run = Held::start(&mut field.shell(line));
    let command = field.planted.pid_in(&field.path("pid"));
    field.wait_for_file("eof", "eof");
    assert!(field.planted.is_alive(command));
}

#[test]
fn without_a_lease_directory_the_command_runs() {
    let field = Field::new();
    let leases = field.path("leases");
    let runs = |why: &str| {
        let done = piped(&mut field.run(&[], "echo here; exit 3")).output().unwrap();
        assert_eq!(done.status.code(), Some(3), "{why}");
        assert_eq!((&done.stdout[..], &done.stderr[..]), (&b"here\n"[..], &b""[..]), "{why}");
    };
    fs::set_permissions(&leases, fs::Permissions::from_mode(0o777)).unwrap();
    runs("others may write to it");
    fs::set_permissions(&leases, fs::Permissions::from_mode(0o500)).unwrap();
    runs("it cannot be written");
    fs::remove_dir_all(&leases).unwrap();
    fs::write(&leases, "").unwrap();
    runs("it is a file");
    fs::remove_file(&leases).unwrap();
    std::os::unix::fs::symlink("/nonexistent/place", &leases).unwrap();
    runs("it is a link to nowhere");
}

#[test]
fn with_a_broken_configuration_the_command_runs_and_nothing_is_ended() {
    let field = Field::new();
    fs::write(field.config(), "nonsense = [").unwrap();
    let done =
        piped(&mut field.run(&[], "sleep 600 >/dev/null 2>&1 & echo $! >left; exit 4")).output().unwrap();
    assert_eq!(done.status.code(), Some(4));
    assert!(done.stderr.is_empty(), "{}", String::from_utf8_lossy(&done.stderr));
    let left = field.planted.pid_in(&field.path("left"));
    assert!(field.planted.is_alive(left), "a keep list may stand in it");
}

#[test]
fn a_full_disk_stops_nobody() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    let field = Field::new();
    let line = "mount -t tmpfs -o size=4k,mode=700 none leases && { head -c 100000 /dev/zero >leases/fill; \
                $REAPD sh -c 'echo here; exit 3'; }";
    let mut command = field.shell("unshare -m --propagation private bash -c \"$LINE\"");
    let done =
        command.env("LINE", line.replace("$REAPD", &field.shell_prefix(&[]))).stdout(Stdio::piped()).output();
    let done = done.unwrap();
    assert_eq!((done.status.code(), &done.stdout[..]), (Some(3), &b"here\n"[..]));
}

#[test]
fn nobody_at_the_terminal_loses_nothing_f6() {
    let field = Field::new();
    // As cron and systemd start it: no terminal, a session of its own, stdin null, adopted at once.
    field.planted.detached(&format!(
        "REAPD_LEASES={} {} sh -c 'sleep 2; echo done >cron' </dev/null >/dev/null 2>&1 &",
        field.path("leases").display(),
        field.shell_prefix(&[])
    ));
    // A launcher that starts it and goes.
    field.planted.detached(&format!(
        "REAPD_LEASES={} {} sh -c 'sleep 2; echo done >launched' </dev/null & sleep 0.5; exit 0",
        field.path("leases").display(),
        field.shell_prefix(&[])
    ));
    let many = field.shell("seq 6 | xargs -P 3 -I{} $REAPD sh -c 'sleep 0.2; echo {}'");
    let done = { many }.stdout(Stdio::piped()).output().unwrap();
    let mut lines: Vec<&str> = std::str::from_utf8(&done.stdout).unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!((done.status.code(), &lines[..]), (Some(0), &["1", "2", "3", "4", "5", "6"][..]));
    field.wait_for_file("cron", "done");
    field.wait_for_file("launched", "done");
    wait_for("the leases to be gone", || field.leases().is_empty());
    assert_eq!(field.journal(), "", "nobody was to be ended");
}

#[test]
fn an_errand_is_no_holder_any_more_f5() {
    let field = Field::new();
    field.planted.detached(&format!(
        "REAPD_LEASES={} {} sleep 600 </dev/null & while [ ! -e seen ]; do sleep 0.05; done",
        field.path("leases").display(),
        field.shell_prefix(&[])
    ));
    wait_for("the lease to name its command", || {
        field.leases().iter().any(|lease| lease.contains("\"command\":{"))
    });
    assert!(!field.leases()[0].contains("\"holder\":{\"pid\":1,"), "{:?}", field.leases());
    fs::write(field.path("seen"), "").unwrap();
    wait_for("the lease to be disowned", || field.leases()[0].contains("\"holder\":{\"pid\":1,"));
    assert_eq!(field.alive().len(), 2, "the watcher and its command: {:?}", field.alive());
}

#[test]
fn half_closed_streams_and_answers_that_take_long_lose_nothing_f3() {
    let field = Field::new();
    let server = "cat >/dev/null; sleep 7; echo RESULT";
    // The far end of stdin is gone at once, and somebody waits for the answer.
    let batch = field.shell(&format!("echo x | $REAPD sh -c '{server}' | cat >piped"));
    // The same into a file.
    let log = field.shell(&format!("echo x | $REAPD sh -c '{server}' >logged"));
    let mut all: Vec<Held> = [batch, log].into_iter().map(|mut command| Held::start(&mut command)).collect();
    // A client that shuts one way of a pair.
    let (near, far) = std::os::unix::net::UnixStream::pair().unwrap();
    let (mut answer, out) = std::os::unix::net::UnixStream::pair().unwrap();
    let mut command = field.run(&[], server);
    command.stdin(std::os::fd::OwnedFd::from(far)).stdout(std::os::fd::OwnedFd::from(out));
    all.push(Held::start(&mut command));
    drop(command);
    near.shutdown(std::net::Shutdown::Write).unwrap();
    let mut said = String::new();
    answer.read_to_string(&mut said).unwrap();
    assert_eq!(said, "RESULT\n");
    for mut one in all {
        assert_eq!(one.ends().code(), Some(0));
    }
    assert_eq!((field.read("piped"), field.read("logged")), ("RESULT\n".to_owned(), "RESULT\n".to_owned()));
    assert_eq!(field.journal(), "", "nobody was to be ended");
}

#[test]
fn exec_becomes_the_command_and_leaves_a_lease() {
    let field = Field::new();
    let line = "echo $$ >pid; echo $REAPD_LEASE >lease; exec sleep 600";
    let run = Held::start(&mut field.run(&["--exec", "--label", "session=x"], line));
    assert_eq!(field.planted.pid_in(&field.path("pid")), run.pid(), "nobody stands between");
    field.wait_for_file("lease", "run-");
    let leases = field.leases();
    assert_eq!(leases.len(), 1);
    let lease: serde_json::Value = serde_json::from_str(&leases[0]).unwrap();
    assert_eq!(lease["covers"]["processes"][0]["pid"], run.pid());
    assert_eq!(lease["holder"]["pid"], std::process::id());
    assert_eq!(lease["labels"]["session"], "x");
    assert_eq!(lease["id"].as_str().unwrap(), field.read("lease").trim());
}
