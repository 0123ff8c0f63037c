//! Looks at real processes in the states that fool a reader of `/proc`.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::panic,
    clippy::disallowed_methods,
    reason = "tests start real processes"
)]

use std::collections::BTreeSet;
use std::fs;
use std::io::{BufRead as _, BufReader};
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bstr::BString;
use reapd::config::policy::{FileRegistry, Origin, Registry, Source};
use reapd::model::facts::{Facts, Fate};
use reapd::model::id::{Pid, ProcessId};
use reapd::model::known::{Known, Reason};
use reapd::model::look::{Scope, Snapshot};
use reapd::model::question::{Answer, Owner, PathAnswer, Question, Registered};
use reapd::model::table::{Kernel, State};
use reapd::observe::{Life, Observer, Setup};

use crate::support::observing::{NOBODY, as_nobody, is_root};
use crate::support::program;

const NONCE: &str = "REAPD_TEST_NONCE";

/// A process of ours, ended when the test ends, whatever it ends with.
struct Started(Child);

impl Started {
    fn new(command: &mut Command) -> Started {
        let child = command
            .env(NONCE, std::process::id().to_string())
            .stdin(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Started(child)
    }

    /// Starts a shell script that says "ready" and then waits.
    fn script(text: &str, within: &Path) -> Started {
        let mut started = Started::new(
            Command::new("sh")
                .arg("-c")
                .arg(format!("{text}\necho ready\nexec sleep 300"))
                .current_dir(within)
                .stdout(Stdio::piped()),
        );
        started.ready();
        started
    }

    fn ready(&mut self) {
        let mut lines = BufReader::new(self.0.stdout.as_mut().unwrap()).lines();
        assert!(lines.any(|line| line.unwrap() == "ready"), "it ended before it was ready");
    }

    fn pid(&self) -> Pid {
        Pid::new(i32::try_from(self.0.id()).unwrap()).unwrap()
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn setup(aside: &str) -> Setup {
    Setup {
        scope: if is_root() { Scope::Host } else { Scope::User },
        probe_timeout: Duration::from_secs(5),
        env_names: BTreeSet::from([BString::from(NONCE)]),
        aside: PathBuf::from(aside),
        home: None,
        leases: Vec::new(),
        registries: Vec::new(),
        engines: None,
    }
}

fn observer() -> Observer {
    Observer::open(setup(env!("CARGO_BIN_EXE_reapd"))).unwrap()
}

fn id(snapshot: &Snapshot, pid: Pid) -> ProcessId {
    snapshot.table.at(pid).expect("it is in the table").id
}

fn ask(observer: &mut Observer, snapshot: &Snapshot, question: Question) -> Known<Answer> {
    let mut answers = observer.answer(snapshot, std::slice::from_ref(&question));
    let (asked, answer) = answers.pop().unwrap();
    assert_eq!((asked, answers.len()), (question, 0));
    answer
}

fn facts(started: &Started) -> Facts {
    let mut observer = observer();
    let snapshot = observer.table().unwrap();
    let question = Question::Facts(id(&snapshot, started.pid()));
    match ask(&mut observer, &snapshot, question) {
        Ok(Answer::Facts(facts)) => *facts,
        other => panic!("{other:?}"),
    }
}

fn path(observer: &mut Observer, started: &Started, path: &Path) -> Known<PathAnswer> {
    let snapshot = observer.table().unwrap();
    let of = id(&snapshot, started.pid());
    let question = Question::Path { of, path: path.as_os_str().as_bytes().into() };
    ask(observer, &snapshot, question).map(|answer| match answer {
        Answer::Path(answer) => answer,
        other @ (Answer::Facts(_)
        | Answer::Channel(_)
        | Answer::Holders(_)
        | Answer::Sockets(_)
        | Answer::Owner(_)
        | Answer::Activity(_)
        | Answer::Terminals(_)
        | Answer::Bound(_)
        | Answer::Named(_)
        | Answer::Ping(_)
        | Answer::Engine(_)
        | Answer::Registered(_)) => panic!("{other:?}"),
    })
}

fn text(path: &Path) -> BString {
    path.to_str().unwrap().into()
}

fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < Duration::from_secs(20), "never: {what}");
        rustix::thread::sched_yield();
    }
}

/// Tells this test binary, started again, what to be.
const ROLE: &str = "REAPD_TEST_ROLE";

/// No test of its own: what this binary does when it is started again as somebody else.
#[test]
fn role() {
    match std::env::var(ROLE).as_deref() {
        // What ssh-agent and others do to themselves.
        Ok("undumpable") => {
            rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable).unwrap();
            ready_and_wait();
        }
        Ok("leaderless") => {
            end_the_leader();
            ready_and_wait();
        }
        Ok("hanging-aside") => hanging_aside(),
        Ok(_) | Err(_) => {}
    }
}

/// Returns a command that starts this test binary in a role.
fn in_role(binary: &Path, role: &str) -> String {
    format!("{ROLE}={role} exec {} --exact observe::role --nocapture", binary.display())
}

fn ready_and_wait() {
    // The harness has begun a line already.
    println!("\nready");
    until("somebody ends it", || {
        let _ = rustix::thread::nanosleep(&rustix::time::Timespec { tv_sec: 300, tv_nsec: 0 });
        false
    });
}

/// Ends the main thread alone: a signal that only it gets makes it leave. The others live on.
#[expect(unsafe_code, reason = "no safe call ends another thread alone")]
fn end_the_leader() {
    extern "C" fn leave(_signal: libc::c_int) {
        // SAFETY: the thread ends here, and no other one uses its stack.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    let leave: extern "C" fn(libc::c_int) = leave;
    // SAFETY: the handler makes one system call, which is allowed at any time.
    unsafe { libc::signal(libc::SIGUSR1, leave as libc::sighandler_t) };
    let own = std::process::id();
    // SAFETY: it sends a signal to ourselves.
    unsafe { libc::syscall(libc::SYS_tgkill, own, own, libc::SIGUSR1) };
}

/// Passes requests on to a real aside process until one speaks of a certain path: then it answers no more, as one
/// does that reads from a dead mount. Standard output belongs to the test harness; descriptor 3 is the way out.
fn hanging_aside() {
    use std::io::{Read as _, Write as _};
    let out = fs::File::options().write(true).open("/dev/fd/3").unwrap();
    let mut real = Command::new(env!("CARGO_BIN_EXE_reapd"))
        .arg("aside")
        .stdin(Stdio::piped())
        .stdout(out)
        .spawn()
        .unwrap();
    let mut chunk = vec![0; 65536];
    let hangs = loop {
        let length = std::io::stdin().read(&mut chunk).unwrap();
        let text = &chunk[..length];
        let hangs = text.windows(HANGS.len()).any(|window| window == HANGS.as_bytes());
        if length == 0 || hangs {
            break hangs;
        }
        real.stdin.as_mut().unwrap().write_all(text).unwrap();
    };
    drop(real.stdin.take());
    real.wait().unwrap();
    if hangs {
        ready_and_wait();
    }
}

/// The path at which the stand-in hangs.
const HANGS: &str = "HANGS-HERE";

#[test]
fn a_deleted_working_directory_is_deleted_a21() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("work");
    fs::create_dir(&directory).unwrap();
    let started = Started::script("", &directory);
    assert_eq!(facts(&started).cwd.unwrap().fate, Ok(Fate::Linked));
    fs::remove_dir(&directory).unwrap();
    let cwd = facts(&started).cwd.unwrap();
    assert_eq!(cwd.fate, Ok(Fate::Deleted));
    assert_eq!(cwd.path, text(&directory), "without the kernel's mark");
}

#[test]
fn a_renamed_working_directory_is_linked_under_its_new_name_b33() {
    let root = tempfile::tempdir().unwrap();
    let (old, new) = (root.path().join("old"), root.path().join("new"));
    fs::create_dir(&old).unwrap();
    let started = Started::script("", &old);
    fs::rename(&old, &new).unwrap();
    let cwd = facts(&started).cwd.unwrap();
    assert_eq!((cwd.fate, cwd.path), (Ok(Fate::Linked), text(&new)));
    let mut observer = observer();
    assert!(matches!(path(&mut observer, &started, &old), Ok(PathAnswer::Absent { .. })));
}

#[test]
fn a_directory_really_named_deleted_is_linked() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("x (deleted)");
    fs::create_dir(&directory).unwrap();
    let started = Started::script("", &directory);
    let cwd = facts(&started).cwd.unwrap();
    assert_eq!((cwd.fate, cwd.path), (Ok(Fate::Linked), text(&directory)));
}

#[test]
fn a_program_really_named_deleted_keeps_its_name() {
    let root = tempfile::tempdir().unwrap();
    let program = root.path().join("x (deleted)");
    program::copy(Path::new("/bin/sleep"), &program);
    let mut child =
        Command::new(&program).arg("60").env(NONCE, std::process::id().to_string()).spawn().unwrap();
    let pid = Pid::new(i32::try_from(child.id()).unwrap()).unwrap();
    let named = || {
        let mut observer = observer();
        let snapshot = observer.table().unwrap();
        let question = Question::Facts(id(&snapshot, pid));
        match ask(&mut observer, &snapshot, question).unwrap() {
            Answer::Facts(facts) => facts.exe.unwrap().path,
            other => panic!("{other:?}"),
        }
    };
    let there = named();
    fs::remove_file(&program).unwrap();
    let gone = named();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(there, text(&program));
    assert_eq!(gone, text(&program), "and the kernel's own mark is no part of it");
}

#[test]
fn a_path_that_is_not_whole_is_unknown() {
    let root = tempfile::tempdir().unwrap();
    let started = Started::script("", root.path());
    let mut observer = observer();
    for odd in ["relative/x", "", "/tmp/..", "/tmp/."] {
        let seen = path(&mut observer, &started, Path::new(odd));
        assert!(seen.is_err(), "{odd}: {seen:?}");
    }
    assert!(path(&mut observer, &started, root.path()).is_ok(), "the twin that is");
}

#[test]
fn a_rebuilt_directory_is_another_one_b34() {
    let root = tempfile::tempdir().unwrap();
    let directory = root.path().join("build");
    fs::create_dir(&directory).unwrap();
    let started = Started::script("", &directory);
    fs::remove_dir(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    let cwd = facts(&started).cwd.unwrap();
    assert_eq!(cwd.fate, Ok(Fate::Deleted), "what it holds is gone");
    let mut observer = observer();
    match path(&mut observer, &started, &directory) {
        Ok(PathAnswer::Present { file, .. }) => {
            assert_ne!(file, cwd.file, "and yet there is one of that name");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_lazily_unmounted_directory_is_linked_b35() {
    if !is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let mut started = Started::new(
        Command::new("unshare")
            .args(["-m", "sh", "-c"])
            .arg(
                "mount --make-rprivate / && mount -t tmpfs none \"$0\" && mkdir \"$0/a\" && cd \"$0/a\" \
                 && umount -l \"$0\" && echo ready && exec sleep 300",
            )
            .arg(root.path())
            .stdout(Stdio::piped()),
    );
    started.ready();
    assert_eq!(facts(&started).cwd.unwrap().fate, Ok(Fate::Linked));
    let mut observer = observer();
    let answer = path(&mut observer, &started, &root.path().join("a"));
    match answer {
        Ok(PathAnswer::Absent { parent }) => assert_eq!(parent.path, text(root.path())),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_path_means_what_its_process_means_f7() {
    if !is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let mut started = Started::new(
        Command::new("unshare")
            .args(["-m", "sh", "-c"])
            .arg(
                "mount --make-rprivate / && mount -t tmpfs none \"$0\" && touch \"$0/broker.sock\" \
                 && ln -s \"$0/broker.sock\" \"$0/link\" && mkdir \"$0/d\" && ln -s \"$0/d\" \"$0/e\" \
                 && touch \"$0/d/f\" && cd \"$0/d\" && echo ready && exec sleep 300",
            )
            .arg(root.path())
            .stdout(Stdio::piped()),
    );
    started.ready();
    let socket = root.path().join("broker.sock");
    assert!(!socket.exists(), "it is not there for us");
    let mut observer = observer();
    match path(&mut observer, &started, &socket) {
        Ok(PathAnswer::Present { parent, .. }) => assert_eq!(parent.mount, text(root.path())),
        other => panic!("{other:?}"),
    }
    let through_a_link = path(&mut observer, &started, &root.path().join("e/f"));
    assert!(matches!(through_a_link, Ok(PathAnswer::Present { .. })), "{through_a_link:?}");
    let cwd = facts(&started).cwd.unwrap();
    assert_eq!(cwd.fate, Ok(Fate::Linked));
}

#[test]
fn absent_parents_tell_the_nearest_that_is_there() {
    let root = tempfile::tempdir().unwrap();
    let started = Started::script("", root.path());
    let mut observer = observer();
    match path(&mut observer, &started, &root.path().join("a/b/c")) {
        Ok(PathAnswer::ParentAbsent { nearest }) => assert_eq!(nearest.path, text(root.path())),
        other => panic!("{other:?}"),
    }
    match path(&mut observer, &started, &root.path().join("a")) {
        Ok(PathAnswer::Absent { parent }) => assert_eq!(parent.path, text(root.path())),
        other => panic!("{other:?}"),
    }
    fs::write(root.path().join("file"), "").unwrap();
    let below_a_file = path(&mut observer, &started, &root.path().join("file/x"));
    assert!(below_a_file.is_err(), "ENOTDIR is not an absence");
    let other_readers = path(&mut observer, &started, Path::new("/proc/self/nothing"));
    assert_eq!(other_readers.unwrap_err().reason, Reason::Foreign);
}

#[test]
fn what_we_may_not_read_is_denied_b24() {
    if !is_root() {
        return;
    }
    // An ordinary user's process asks, by way of `aside`, for one of root's.
    let started = Started::script("", Path::new("/"));
    let root = tempfile::tempdir().unwrap();
    let mut observer = Observer::open(setup(as_nobody(root.path()).to_str().unwrap())).unwrap();
    let snapshot = observer.table().unwrap();
    let of = id(&snapshot, started.pid());
    let Ok(Answer::Facts(facts)) = ask(&mut observer, &snapshot, Question::Facts(of)) else { panic!() };
    assert_eq!(facts.cwd.unwrap_err().reason, Reason::Denied);
    assert_eq!(facts.env.unwrap_err().reason, Reason::Denied);
    assert_eq!(facts.exe.unwrap_err().reason, Reason::Denied);
    assert!(facts.namespaces.is_err());
    assert!(facts.argv.is_ok(), "arguments are for everybody");
    let path = ask(&mut observer, &snapshot, Question::Path { of, path: "/nothing-here".into() });
    assert_eq!(path.unwrap_err().reason, Reason::Denied, "a refusal is not an absence");
    let owner = ask(&mut observer, &snapshot, Question::Owner { of, pid: Pid::INIT });
    assert!(owner.is_err(), "its pid namespace is not to be seen");
}

#[test]
fn an_undumpable_process_of_the_same_user_is_denied_b24() {
    if !is_root() {
        return;
    }
    let root = tempfile::tempdir().unwrap();
    let aside = as_nobody(root.path());
    let own = root.path().join("tests");
    program::copy(std::env::current_exe().unwrap(), &own);
    let mut started = Started::new(
        Command::new("sh")
            .arg("-c")
            .arg(format!("{NOBODY} sh -c {:?}", in_role(&own, "undumpable")))
            .stdout(Stdio::piped()),
    );
    started.ready();
    let mut observer = Observer::open(setup(aside.to_str().unwrap())).unwrap();
    let snapshot = observer.table().unwrap();
    let of = id(&snapshot, started.pid());
    let Ok(Answer::Facts(facts)) = ask(&mut observer, &snapshot, Question::Facts(of)) else { panic!() };
    assert_eq!(facts.cwd.unwrap_err().reason, Reason::Denied);
    assert_eq!(facts.env.unwrap_err().reason, Reason::Denied);
    assert_eq!(facts.uid.unwrap().0, 65534, "and yet it is the same user's");
}

#[test]
fn a_dead_leader_with_live_threads_is_alive_c24() {
    let own = std::env::current_exe().unwrap();
    let mut started =
        Started::new(Command::new("sh").arg("-c").arg(in_role(&own, "leaderless")).stdout(Stdio::piped()));
    started.ready();
    let mut observer = observer();
    let pid = started.pid();
    let mut table = reapd::model::table::Table::default();
    until("its leader is a zombie", || {
        observer.scan(&mut table).unwrap();
        table.at(pid).unwrap().state == State::Zombie
    });
    assert!(!table.at(pid).unwrap().is_gone());
    let facts = facts(&started);
    assert!(facts.cwd.is_err() && facts.argv.is_err(), "{facts:?}");
    let snapshot = observer.table().unwrap();
    let own = id(&snapshot, Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap());
    let owner = ask(&mut observer, &snapshot, Question::Owner { of: own, pid });
    assert_eq!(owner, Ok(Answer::Owner(Owner::Alive(id(&snapshot, pid)))));
}

/// As it is for containers: nobody but the looking process means the host's paths.
#[test]
fn a_registry_of_files_is_asked_for_the_looking_process_itself() {
    let root = tempfile::tempdir().unwrap();
    let place = root.path().join("seats");
    let files = FileRegistry { files: Vec::new(), key: "/seat".into(), holder: None, settle: Duration::ZERO };
    let source = Source::Files(files);
    let registries = vec![Registry { name: "seats".into(), origin: Origin::Builtin, source }];
    let setup = Setup { registries, ..setup(env!("CARGO_BIN_EXE_reapd")) };
    let mut observer = Observer::open(setup).unwrap();
    let mut told = |key: &str| {
        let snapshot = observer.table().unwrap();
        let of = id(&snapshot, snapshot.own.pid);
        let place = BString::from(place.join("*.json").as_os_str().as_bytes());
        let question = Question::Registered { of, registry: "seats".into(), place, key: key.into() };
        ask(&mut observer, &snapshot, question)
    };
    assert!(told("a").is_err(), "its directory is missing");
    fs::create_dir(&place).unwrap();
    assert_eq!(told("a"), Ok(Answer::Registered(Registered::NotListed { others: 0 })));
    fs::write(place.join("a.json"), r#"{"seat": "a"}"#).unwrap();
    assert_eq!(told("a"), Ok(Answer::Registered(Registered::Listed { holder: None })));
    assert_eq!(told("b"), Ok(Answer::Registered(Registered::NotListed { others: 1 })));
    fs::write(place.join("half.json"), r#"{"seat": "#).unwrap();
    assert_eq!(told("a"), Ok(Answer::Registered(Registered::Listed { holder: None })));
    assert!(told("b").is_err(), "one record is half-written");
}

#[test]
fn owners_absent_zombie_and_alive() {
    let mut observer = observer();
    let mut started = Started::script("", Path::new("/"));
    let snapshot = observer.table().unwrap();
    let own = id(&snapshot, Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap());
    let asked = Question::Owner { of: own, pid: started.pid() };
    let alive = ask(&mut observer, &snapshot, asked.clone());
    assert_eq!(alive, Ok(Answer::Owner(Owner::Alive(id(&snapshot, started.pid())))));
    started.0.kill().unwrap();
    until("it is a zombie", || {
        ask(&mut observer, &snapshot, asked.clone()) == Ok(Answer::Owner(Owner::Zombie))
    });
    started.0.wait().unwrap();
    assert_eq!(ask(&mut observer, &snapshot, asked), Ok(Answer::Owner(Owner::Absent)));
}

#[test]
fn a_number_in_another_pid_namespace_is_foreign_b27() {
    if !is_root() {
        return;
    }
    let mut outer = Started::new(
        Command::new("unshare")
            .args([
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-c",
                "echo ready; exec sleep 300",
            ])
            .stdout(Stdio::piped()),
    );
    outer.ready();
    let mut observer = observer();
    let snapshot = observer.table().unwrap();
    let inner = snapshot.table.children(outer.pid()).next().unwrap().id;
    let answer = ask(&mut observer, &snapshot, Question::Owner { of: inner, pid: Pid::INIT });
    assert_eq!(answer.unwrap_err().reason, Reason::Foreign);
}

#[test]
fn marks_vectors_and_groups_come_through() {
    let mut started = Started::new(
        Command::new("sh")
            .args(["-c", "echo ready; trap '' HUP; exec sleep 300"])
            .arg0("odd name\n)")
            .stdout(Stdio::piped())
            .process_group(0),
    );
    started.ready();
    until("it ignores SIGHUP", || facts(&started).hangup == Ok(reapd::model::facts::Hangup::Ignored));
    until("it became sleep", || facts(&started).argv == Ok(vec!["sleep".into(), "300".into()]));
    let facts = facts(&started);
    assert_eq!(facts.env.unwrap()[&BString::from(NONCE)], std::process::id().to_string());
    assert_eq!(facts.tracer, Ok(None));
    assert!(facts.exe.unwrap().path.ends_with(b"sleep") || cfg!(not(target_env = "gnu")));
    assert!(facts.freezer.is_ok(), "{:?}", facts.freezer);
    let mut observer = observer();
    let snapshot = observer.table().unwrap();
    let row = snapshot.table.at(started.pid()).unwrap();
    assert_eq!(row.pgid, row.id.pid.number());
    let activity = ask(&mut observer, &snapshot, Question::Activity(row.id));
    assert!(matches!(activity, Ok(Answer::Activity(activity)) if activity.read > 0), "{activity:?}");
}

#[test]
fn empty_arguments_survive_the_way() {
    let mut started = Started::new(
        Command::new("sh").args(["-c", "echo ready; kill -STOP $$", "", "a b", ""]).stdout(Stdio::piped()),
    );
    started.ready();
    let mut observer = observer();
    until("it is there with all its arguments", || {
        let snapshot = observer.table().unwrap();
        let id = id(&snapshot, started.pid());
        let entry = snapshot.arguments.iter().find(|entry| entry.id == id);
        let found = entry.is_some_and(|entry| {
            entry.argv.as_ref().is_ok_and(|argv| argv.len() == 6 && argv[3].is_empty() && argv[5].is_empty())
        });
        observer.recycle(snapshot);
        found
    });
}

#[test]
fn a_pinned_process_is_not_its_successor_c07() {
    let mut observer = observer();
    let mut started = Started::script("", Path::new("/"));
    let snapshot = observer.table().unwrap();
    let id = id(&snapshot, started.pid());
    assert_eq!(observer.is_pinned_alive(id), None);
    observer.pin(&[id]);
    assert_eq!(observer.is_pinned_alive(id), Some(Life::Alive));
    assert_eq!(observer.lost(), []);
    started.0.kill().unwrap();
    started.0.wait().unwrap();
    assert_eq!(observer.is_pinned_alive(id), Some(Life::Gone));
    observer.pin(&[id]);
    assert_eq!(observer.lost(), [id], "who is held is not looked up anew");
    observer.pin(&[]);
    assert_eq!(observer.is_pinned_alive(id), None);
    observer.pin(&[id]);
    assert_eq!(observer.is_pinned_alive(id), Some(Life::Unknown), "no handle could be had");
    assert_eq!(observer.lost(), [id]);
}

#[test]
fn a_forced_reuse_within_one_tick_is_lost_c07() {
    if !is_root() {
        return;
    }
    let script = "\"$0\" --exact observe::reuse --nocapture; exit $?";
    let output = Command::new("unshare")
        .args(["--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c", script])
        .arg(std::env::current_exe().unwrap())
        .env("REAPD_TEST_ROLE", "reuse")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(text.contains("one id, two processes"), "{text}");
}

/// Not a test by itself: the part that the test above plays in a pid namespace of its own.
#[test]
fn reuse() {
    if std::env::var_os("REAPD_TEST_ROLE").is_none_or(|role| role != "reuse") {
        return;
    }
    let mut observer = observer();
    // Far above the numbers of the test's own threads, one that is given out next when its predecessor is asked for.
    let start = |number: u32| {
        fs::write("/proc/sys/kernel/ns_last_pid", (number - 1).to_string()).unwrap();
        Started::new(Command::new("sleep").arg("300"))
    };
    for number in (2_000..2_200).step_by(10) {
        let mut first = start(number);
        let snapshot = observer.table().unwrap();
        let held = id(&snapshot, first.pid());
        observer.recycle(snapshot);
        observer.pin(&[held]);
        assert_eq!(observer.lost(), []);
        first.0.kill().unwrap();
        first.0.wait().unwrap();
        let second = start(number);
        let snapshot = observer.table().unwrap();
        let row = snapshot.table.get(held).copied();
        observer.recycle(snapshot);
        assert_eq!(observer.lost(), [held], "whoever bears the number now");
        if row.is_some_and(|row| !row.is_gone()) && second.pid() == held.pid {
            println!("one id, two processes");
            return;
        }
    }
    panic!("the number never passed on within one tick");
}

/// Writes a stand-in for `reapd aside`: a script in its place.
fn stand_in(directory: &Path, text: &str) -> String {
    let script = directory.join("aside");
    program::script(&format!("#!/bin/sh\n{text}\n"), &script);
    script.to_str().unwrap().to_owned()
}

#[test]
fn one_that_never_answers_leaves_the_tick_alive_c17() {
    let root = tempfile::tempdir().unwrap();
    let aside = stand_in(root.path(), "exec sleep 300");
    let timeout = Duration::from_millis(200);
    let mut observer = Observer::open(Setup { probe_timeout: timeout, ..setup(&aside) }).unwrap();
    let begun = Instant::now();
    let snapshot = observer.table().unwrap();
    assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    let own = Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap();
    assert!(snapshot.table.at(own).is_some(), "the table itself needs nobody else");
    let hung = |argv: &Known<_>| matches!(argv, Err(unknown) if unknown.reason == Reason::Hung);
    assert!(snapshot.arguments.iter().any(|entry| hung(&entry.argv)));
    assert!(snapshot.arguments.iter().all(|entry| entry.argv.is_err()));
    assert!(snapshot.gaps.iter().any(|gap| gap.why.reason == Reason::Hung), "{:?}", snapshot.gaps);
    let question = Question::Facts(id(&snapshot, own));
    assert!(ask(&mut observer, &snapshot, question).is_err(), "given up for this look");
}

#[test]
fn one_hung_read_is_unknown_and_the_rest_goes_on_c17() {
    let root = tempfile::tempdir().unwrap();
    let marker = root.path().join(HANGS);
    let own = std::env::current_exe().unwrap();
    let aside = stand_in(root.path(), &format!("exec 3>&1 >/dev/null\n{}", in_role(&own, "hanging-aside")));
    let timeout = Duration::from_millis(1500);
    let mut observer = Observer::open(Setup { probe_timeout: timeout, ..setup(&aside) }).unwrap();
    let started = Started::script("", root.path());
    let snapshot = observer.table().unwrap();
    let of = id(&snapshot, started.pid());
    assert!(snapshot.arguments.iter().any(|entry| entry.argv.is_ok()));
    let hanging = Question::Path { of, path: marker.as_os_str().as_bytes().into() };
    let begun = Instant::now();
    let answer = ask(&mut observer, &snapshot, hanging);
    assert_eq!(answer.unwrap_err().reason, Reason::Hung);
    assert!(begun.elapsed() < Duration::from_secs(20));
    let after = ask(&mut observer, &snapshot, Question::Facts(of));
    assert!(matches!(after, Ok(Answer::Facts(_))), "{after:?}");
}

#[test]
fn one_that_cannot_be_started_is_said() {
    let mut observer = Observer::open(setup("/nonexistent/reapd")).unwrap();
    let snapshot = observer.table().unwrap();
    assert!(!snapshot.table.rows().is_empty());
    assert!(snapshot.arguments.iter().all(|entry| entry.argv.is_err()));
    assert!(snapshot.gaps.iter().any(|gap| gap.source.starts_with("arguments")), "{:?}", snapshot.gaps);
}

#[test]
fn one_that_ends_at_once_is_unknown() {
    let root = tempfile::tempdir().unwrap();
    let mut observer = Observer::open(setup(&stand_in(root.path(), "exit 0"))).unwrap();
    let snapshot = observer.table().unwrap();
    assert!(snapshot.arguments.iter().all(|entry| entry.argv.is_err()));
}

#[test]
fn our_parser_and_sysinfo_agree() {
    let _started = Started::script("", Path::new("/tmp"));
    let mut observer = observer();
    let snapshot = observer.table().unwrap();
    let kind = sysinfo::ProcessRefreshKind::nothing()
        .with_cmd(sysinfo::UpdateKind::Always)
        .with_cwd(sysinfo::UpdateKind::Always)
        .with_exe(sysinfo::UpdateKind::Always)
        .without_tasks();
    let mut system = sysinfo::System::new().unwrap();
    system.refresh_processes_specifics(sysinfo::ProcessesToUpdate::All, true, kind);
    let questions: Vec<Question> = snapshot.arguments.iter().map(|entry| Question::Facts(entry.id)).collect();
    let answers = observer.answer(&snapshot, &questions);
    let again = observer.table().unwrap();
    let mut compared = 0;
    for (_, answer) in answers {
        let Ok(Answer::Facts(facts)) = answer else { continue };
        // Only who was there, unchanged, before and after.
        let (Some(row), Some(later)) = (snapshot.table.get(facts.id), again.table.get(facts.id)) else {
            continue;
        };
        let number = u32::try_from(row.id.pid.number()).unwrap();
        let Some(theirs) = system.process(sysinfo::Pid::from_u32(number)) else { continue };
        if row.exec != later.exec || row.ppid != later.ppid || row.kernel == Kernel::Thread {
            continue;
        }
        assert_eq!(theirs.parent().map_or(0, sysinfo::Pid::as_u32), u32::try_from(row.ppid).unwrap());
        let seconds = theirs.start_time() - sysinfo::System::boot_time().unwrap();
        let ours = row.began.0 / 1_000_000_000;
        assert!(seconds.abs_diff(ours) <= 1, "{row:?}: {seconds} and {ours}");
        if let (Ok(argv), false) = (&facts.argv, theirs.cmd().is_empty()) {
            let filled: Vec<&[u8]> = argv
                .iter()
                .map(|argument| argument.as_slice())
                .filter(|argument| !argument.is_empty())
                .collect();
            let cmd: Vec<&[u8]> = theirs.cmd().iter().map(|argument| argument.as_bytes()).collect();
            assert_eq!(filled, cmd);
        }
        if let (Ok(cwd), Some(theirs)) = (&facts.cwd, theirs.cwd()) {
            assert!(theirs.as_os_str().as_bytes().starts_with(&cwd.path), "{cwd:?} and {theirs:?}");
        }
        if let (Ok(exe), Some(theirs)) = (&facts.exe, theirs.exe()) {
            assert_eq!(exe.path, theirs.as_os_str().as_bytes());
        }
        compared += 1;
    }
    assert!(compared >= 2, "at least ourselves and the one we started");
}
