//! What trees leave behind: real directories, sockets and records, removed by the real binary, or left.
#![expect(clippy::print_stderr, reason = "who reads the tests' output must know what was not tested")]

use std::fs::{self, File};
use std::io::Write as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown, symlink};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

use reapd::model::id::Pid;
use rustix::process::Signal;
use serde_json::Value;

use crate::desk::{Desk, text};
use crate::patience::patiently;
use crate::planted::wait_for;
use crate::support::look::names;
use crate::support::observing::is_root;
use crate::support::tree::send;
use crate::turn::turn;

/// A desk with a root in which directories `pv-????????` are left.
struct Leavings {
    desk: Desk,
}

impl Leavings {
    fn new(after: &str, more: &str) -> Leavings {
        let desk = Desk::new();
        for name in ["tmp", "throwaway", "records"] {
            fs::create_dir(desk.planted.path(name)).unwrap();
            // Whatever the umask: nothing is removed where others may write.
            fs::set_permissions(desk.planted.path(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let at = |name: &str| desk.planted.path(name).canonicalize().unwrap().display().to_string();
        let (root, records, away) = (at("tmp"), at("records"), at("throwaway"));
        desk.configure(&format!(
            r#"
[process.preview]
match = {{ program = "preview-server", args = ["..."] }}
reap-when = [{{ cwd-gone = {{ roots = ["{away}"] }} }}]
ladder = ["TERM 5s", "KILL 3s"]
capture = {{ socket = {{ flag = "--socket" }} }}
{more}
[process.preview.residue]
directory = "{{socket.dir}}"
only = ["server.sock", "server.pid", "server.log"]
stale = "pv-????????"
roots = ["{root}"]
records = {{ files = ["{records}/*/preview.json"], key = "/endpoint", strip = "unix:" }}
after = "{after}"
"#
        ));
        Leavings { desk }
    }

    fn root(&self) -> PathBuf {
        self.desk.planted.path("tmp").canonicalize().unwrap()
    }

    /// Where the directory of this tag is: other tests that run meanwhile, and other runs of this one, must not name it.
    fn at(&self, tag: &str) -> PathBuf {
        let seed = format!("{}{tag}", self.desk.planted.path("").display());
        let name = seed
            .bytes()
            .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
        self.root().join(format!("pv-{name:08x}"))
    }

    /// Leaves a directory as a server that was killed leaves it.
    fn leave(&self, name: &str) -> PathBuf {
        drop(self.serve(name));
        self.at(name)
    }

    /// The same, with whoever listens there.
    fn serve(&self, name: &str) -> UnixListener {
        let directory = self.at(name);
        fs::create_dir(&directory).unwrap();
        serve_in(&directory)
    }

    /// Writes a record that names a directory.
    fn record(&self, name: &str, directory: &str) -> PathBuf {
        let path = self.desk.planted.path("records").join(name);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        let endpoint = format!("unix:{}/server.sock", self.at(directory).display());
        let path = path.join("preview.json");
        write(&path, &serde_json::json!({ "endpoint": endpoint }).to_string());
        path
    }

    fn sweep(&self, arguments: &[&str]) -> Value {
        let mut all = vec!["sweep", "--json"];
        all.extend(arguments);
        let output = self.desk.reapd(&all);
        serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)))
    }

    fn swept(&self) -> Value {
        self.sweep(&["--yes"])
    }

    /// Sweeps, and returns why something of this name was kept.
    fn kept(&self, name: &str) -> String {
        let path = self.at(name);
        let json = self.swept();
        assert!(fs::symlink_metadata(&path).is_ok(), "{name}: {json:#}");
        let kept = json["residue"]["kept"].as_array().unwrap();
        let found = kept.iter().find(|one| one["path"].as_str() == path.to_str());
        found.map(|one| one["why"].as_str().unwrap().to_owned()).unwrap_or_default()
    }
}

fn write(path: &Path, text: &str) {
    fs::write(path, text).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
}

fn serve_in(directory: &Path) -> UnixListener {
    fs::set_permissions(directory, fs::Permissions::from_mode(0o700)).unwrap();
    write(&directory.join("server.pid"), "123\n");
    write(&directory.join("server.log"), &"x".repeat(5_000));
    UnixListener::bind(directory.join("server.sock")).unwrap()
}

fn list(count: usize, letter: char) -> Vec<String> {
    (0..count).map(|at| format!("pv-{letter}{at:07}")).collect()
}

#[test]
fn a_hundred_stale_directories_and_sixty_records_go_and_the_live_ones_stay_f16() {
    let leavings = Leavings::new("0s", "");
    let stale = list(100, 's');
    for name in &stale {
        leavings.leave(name);
    }
    let live = list(20, 'l');
    let listeners: Vec<UnixListener> = live.iter().map(|name| leavings.serve(name)).collect();
    let mut old = Vec::new();
    for (at, name) in stale.iter().take(40).chain(&list(20, 'g')).enumerate() {
        old.push(leavings.record(&format!("old-{at}"), name));
    }
    let current: Vec<PathBuf> =
        live.iter().map(|name| leavings.record(&format!("new-{name}"), name)).collect();

    let shown = leavings.sweep(&["--dry-run"]);
    assert_eq!(shown["residue"]["planned"].as_array().unwrap().len(), 160, "{shown:#}");
    assert!(shown["residue"]["planned"][0]["bytes"].as_u64().unwrap() > 5_000, "{shown:#}");
    assert_eq!(names(&leavings.root()).len(), 120, "a dry run touches nothing");
    assert!(!leavings.desk.planted.path("state").exists(), "and writes nothing");

    let json = leavings.swept();
    let mut kept: Vec<PathBuf> = live.iter().map(|name| leavings.at(name)).collect();
    kept.sort();
    let there: Vec<PathBuf> = names(&leavings.root()).iter().map(|name| leavings.root().join(name)).collect();
    assert_eq!(there, kept, "{json:#}");
    for record in &old {
        assert!(!record.exists(), "{}", record.display());
    }
    assert!(current.iter().all(|record| record.exists()));
    let cleared = json["residue"]["cleared"].as_array().unwrap();
    assert!(cleared.iter().all(|one| one["outcome"] == "removed"), "{json:#}");
    assert_eq!(cleared.len(), 160);
    assert!(json["freed"]["disk_bytes"].as_u64().unwrap() > 500_000, "{json:#}");
    for name in &live {
        let directory = leavings.at(name);
        assert_eq!(names(&directory), ["server.log", "server.pid", "server.sock"]);
        UnixStream::connect(directory.join("server.sock")).unwrap();
    }
    drop(listeners);

    let log = text(&leavings.desk.reapd(&["log", "-n", "500"]));
    assert_eq!(log.matches("   removed, ").count(), 160, "{log}");
}

#[test]
fn a_timer_removes_nothing_at_its_first_look() {
    let leavings = Leavings::new("0s", "");
    let left = leavings.leave("pv-00000000");
    leavings.sweep(&["--once", "--yes"]);
    assert!(left.exists());
    std::thread::sleep(std::time::Duration::from_millis(350));
    leavings.sweep(&["--once", "--yes"]);
    assert!(!left.exists());
}

#[test]
fn what_changed_between_two_looks_begins_anew() {
    let leavings = Leavings::new("0s", "");
    let left = leavings.leave("pv-00000000");
    leavings.sweep(&["--once", "--yes"]);
    std::thread::sleep(std::time::Duration::from_millis(350));
    write(&left.join("server.log"), "somebody is back");
    leavings.sweep(&["--once", "--yes"]);
    assert!(left.exists());
}

#[test]
fn what_was_changed_not_long_ago_stays() {
    let leavings = Leavings::new("1h", "");
    leavings.leave("pv-00000000");
    assert!(leavings.kept("pv-00000000").contains("not long ago"));
}

#[test]
fn what_was_changed_in_the_future_stays() {
    let leavings = Leavings::new("0s", "");
    let left = leavings.leave("pv-00000000");
    let ahead = std::time::SystemTime::now() + std::time::Duration::from_hours(24);
    File::options().write(true).open(left.join("server.log")).unwrap().set_modified(ahead).unwrap();
    assert!(leavings.kept("pv-00000000").contains("in the future"));
}

#[test]
fn one_foreign_file_keeps_all_of_it() {
    let leavings = Leavings::new("0s", "");
    let left = leavings.leave("pv-00000000");
    write(&left.join("notes.txt"), "mine");
    assert!(leavings.kept("pv-00000000").contains("notes.txt"));
    assert_eq!(names(&left).len(), 4);
}

#[test]
fn links_and_directories_in_it_keep_all_of_it() {
    let leavings = Leavings::new("0s", "");
    let precious = leavings.desk.planted.path("precious");
    write(&precious, "mine");
    let linked = leavings.leave("pv-linked00");
    fs::remove_file(linked.join("server.log")).unwrap();
    symlink(&precious, linked.join("server.log")).unwrap();
    let nested = leavings.leave("pv-nested00");
    fs::remove_file(nested.join("server.log")).unwrap();
    fs::create_dir(nested.join("server.log")).unwrap();
    let twice = leavings.leave("pv-hardlink");
    fs::hard_link(twice.join("server.log"), leavings.desk.planted.path("elsewhere")).unwrap();
    for name in ["pv-linked00", "pv-nested00"] {
        assert!(leavings.kept(name).contains("neither a file nor a socket"), "{name}");
        assert_eq!(names(&leavings.at(name)).len(), 3);
    }
    assert!(leavings.kept("pv-hardlink").contains("another name"));
    assert!(precious.exists());
}

#[test]
fn a_link_in_the_place_of_a_directory_is_not_followed() {
    let leavings = Leavings::new("0s", "");
    let elsewhere = leavings.desk.planted.path("elsewhere");
    fs::rename(leavings.leave("pv-00000000"), &elsewhere).unwrap();
    symlink(&elsewhere, leavings.at("pv-00000000")).unwrap();
    leavings.kept("pv-00000000");
    assert_eq!(names(&elsewhere).len(), 3);
}

#[test]
fn directories_that_others_may_write_in_stay() {
    let leavings = Leavings::new("0s", "");
    let left = leavings.leave("pv-00000000");
    fs::set_permissions(&left, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(leavings.kept("pv-00000000").contains("others may write"));
}

#[test]
fn whatever_somebody_names_stays() {
    let leavings = Leavings::new("0s", "");
    let argued = leavings.leave("pv-argument");
    let environ = leavings.leave("pv-environ0");
    let leased = leavings.leave("pv-leased00");
    leavings.leave("pv-keptdir0");
    let keep = leavings.desk.reapd(&["keep", leavings.at("pv-keptdir0").to_str().unwrap()]);
    assert!(keep.status.success(), "{}", text(&keep));
    leavings.desk.planted.marked(&format!("-a {}/server.sock sleep 600", argued.display()), "argued");
    leavings
        .desk
        .planted
        .marked(&format!("env PREVIEW=unix:{}/server.sock sleep 600", environ.display()), "environ");
    let leases = leavings.desk.leases();
    fs::create_dir(&leases).unwrap();
    fs::set_permissions(&leases, fs::Permissions::from_mode(0o700)).unwrap();
    let holder = std::process::id();
    let lease = serde_json::json!({
        "v": 1, "id": "l", "holder": { "pid": holder }, "covers": { "env": {} }, "note": format!("uses {}", leased.display()),
    });
    write(&leases.join("l.json"), &lease.to_string());
    wait_for("both to run", || leavings.desk.planted.all().len() >= 2);
    let json = leavings.swept();
    let why = |name: &str| {
        let kept = json["residue"]["kept"].as_array().unwrap();
        let path = leavings.at(name);
        assert!(path.exists(), "{name}: {json:#}");
        let found = kept.iter().find(|one| one["path"].as_str() == path.to_str());
        found.unwrap_or_else(|| panic!("{name}: {json:#}"))["why"].as_str().unwrap().to_owned()
    };
    assert!(why("pv-argument").contains("names it"), "{json:#}");
    assert!(why("pv-environ0").contains("names it"), "{json:#}");
    assert!(why("pv-leased00").contains("lease"), "{json:#}");
    assert!(why("pv-keptdir0").contains("kept"), "{json:#}");
}

#[test]
fn a_socket_that_was_renamed_after_it_was_bound_is_still_served_f16() {
    let leavings = Leavings::new("0s", "");
    let left = leavings.leave("pv-00000000");
    fs::remove_file(left.join("server.sock")).unwrap();
    let fresh = leavings.root().join("fresh.sock");
    let listener = UnixListener::bind(&fresh).unwrap();
    fs::rename(&fresh, left.join("server.sock")).unwrap();
    assert!(leavings.kept("pv-00000000").contains("a socket is bound"));
    UnixStream::connect(left.join("server.sock")).unwrap();
    drop(listener);
}

#[test]
fn a_connection_without_its_listener_keeps_the_directory() {
    let leavings = Leavings::new("0s", "");
    let listener = leavings.serve("pv-00000000");
    let _client = UnixStream::connect(leavings.at("pv-00000000").join("server.sock")).unwrap();
    let (_server, _) = listener.accept().unwrap();
    drop(listener);
    assert!(leavings.kept("pv-00000000").contains("a socket is bound"));
}

#[test]
fn records_that_say_nothing_plain_stay() {
    let leavings = Leavings::new("0s", "");
    let broken = leavings.record("broken", "pv-00000000");
    write(&broken, "{\"endpoint\": \"unix:");
    let outside = leavings.record("outside", "pv-00000000");
    write(&outside, r#"{"endpoint": "unix:/nowhere/pv-00000000/server.sock"}"#);
    let above = leavings.record("above", "pv-00000000");
    write(
        &above,
        &format!(
            r#"{{"endpoint": "unix:{}/../tmp/{}/server.sock"}}"#,
            leavings.root().display(),
            leavings.at("pv-00000000").file_name().unwrap().display()
        ),
    );
    let other = leavings.record("other", "pv-00000000");
    write(&other, &format!(r#"{{"endpoint": "unix:{}/precious/server.sock"}}"#, leavings.root().display()));
    let gone = leavings.record("gone", "pv-00000000");
    let json = leavings.swept();
    for path in [&broken, &outside, &above, &other] {
        assert!(path.exists(), "{}: {json:#}", path.display());
    }
    assert!(!gone.exists(), "the twin whose directory is gone: {json:#}");
}

#[test]
fn a_record_stays_for_as_long_as_its_directory_does() {
    let leavings = Leavings::new("0s", "");
    let left = leavings.leave("pv-00000000");
    write(&left.join("notes.txt"), "mine");
    let record = leavings.record("one", "pv-00000000");
    leavings.swept();
    assert!(record.exists());
}

#[test]
fn a_policy_that_only_reports_removes_nothing() {
    let leavings = Leavings::new("0s", "mode = \"report\"");
    let left = leavings.leave("pv-00000000");
    let json = leavings.swept();
    assert_eq!(json["residue"]["waiting"][0]["why"], "report-only", "{json:#}");
    assert!(left.exists());
}

#[test]
fn another_users_directory_stays() {
    if !is_root() {
        eprintln!("skipped: only root can give a directory to another user");
        return;
    }
    let leavings = Leavings::new("0s", "");
    let left = leavings.leave("pv-00000000");
    chown(&left, Some(65_534), Some(65_534)).unwrap();
    leavings.kept("pv-00000000");
    let partly = leavings.leave("pv-11111111");
    chown(partly.join("server.log"), Some(65_534), Some(65_534)).unwrap();
    assert!(leavings.kept("pv-11111111").contains("another user"));
}

#[test]
fn under_a_scope_the_temporary_directories_are_not_looked_into() {
    let leavings = Leavings::new("0s", "");
    let root = leavings.root();
    leavings
        .desk
        .reconfigure(|text| text.replace(&format!("roots = [\"{}\"]\nrecords", root.display()), "records"));
    // Root's own variable counts for nothing: it looks only into everybody's directory.
    let temporary = if is_root() { Path::new("/tmp") } else { &root };
    let left = tempfile::Builder::new().prefix("pv-").rand_bytes(8).tempdir_in(temporary).unwrap();
    drop(serve_in(left.path()));
    let shown = || {
        let mut dry = leavings.desk.command(&["sweep", "--dry-run", "--json"]);
        let output = dry.env("TMPDIR", &root).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)))
    };
    let json = shown();
    assert_eq!(json["residue"]["planned"], serde_json::json!([]), "{json:#}");
    // The twin, only shown: without a scope it would go.
    leavings.desk.reconfigure(|text| {
        let (scope, rest) = text.split_once("\n\n").unwrap();
        assert!(scope.starts_with("[scope]\nadmit-env = "), "{text}");
        rest.to_owned()
    });
    let json = shown();
    let planned = json["residue"]["planned"].as_array().unwrap();
    let would_go = planned.iter().any(|one| one["path"].as_str() == left.path().to_str());
    assert!(would_go, "{:#}", json["residue"]);
    assert_eq!(names(left.path()).len(), 3, "a dry run touches nothing");
}

/// Starts a server that stands in a directory that is then deleted; what it does at TERM is `at_end`.
fn orphan(leavings: &Leavings, name: &str, at_end: &str) -> i32 {
    let planted = &leavings.desk.planted;
    let work = planted.path(&format!("throwaway/{name}"));
    fs::create_dir(&work).unwrap();
    planted.detached(&format!("cd {}; {}", work.display(), server(leavings, name, at_end)));
    let pid = planted.pid_in(&leavings.at(name).join("server.pid"));
    fs::remove_dir_all(work).unwrap();
    pid
}

/// The shell line that becomes a server in a directory of this name.
fn server(leavings: &Leavings, name: &str, at_end: &str) -> String {
    let planted = &leavings.desk.planted;
    let directory = leavings.at(name);
    fs::create_dir(&directory).unwrap();
    fs::set_permissions(&directory, fs::Permissions::from_mode(0o700)).unwrap();
    let program = format!(
        "import os, signal, socket, sys, time\n\
         def end(*_):\n    {at_end}\n    os._exit(0)\n\
         signal.signal(signal.SIGTERM, end)\n\
         place = os.path.dirname(sys.argv[2])\n\
         open(place + '/server.log', 'w').write('up\\n')\n\
         s = socket.socket(socket.AF_UNIX)\n\
         s.bind(sys.argv[2])\n\
         s.listen()\n\
         open(place + '/server.pid', 'w').write(str(os.getpid()))\n\
         while True: time.sleep(60)\n"
    );
    let script_file = planted.path(&format!("{name}.py"));
    write(&script_file, &program);
    format!(
        "exec -a preview-server \"$PYTHON\" {} --socket {}/server.sock",
        script_file.display(),
        directory.display()
    )
}

#[test]
fn what_a_tree_leaves_goes_once_it_is_seen_gone_f16() {
    let leavings = Leavings::new("1h", "");
    let pid = orphan(&leavings, "pv-00000000", "pass");
    let tidy = orphan(
        &leavings,
        "pv-11111111",
        "os.unlink(sys.argv[2]); open(place + '/server.log', 'a').write('end\\n')",
    );
    let shown = leavings.sweep(&["--dry-run"]);
    assert_eq!(shown["residue"]["planned"].as_array().unwrap().len(), 2, "{shown:#}");
    let json = leavings.swept();
    assert!(!leavings.desk.planted.is_alive(pid) && !leavings.desk.planted.is_alive(tidy), "{json:#}");
    assert_eq!(names(&leavings.root()), [] as [String; 0], "{json:#}");
    assert!(json["freed"]["disk_bytes"].as_u64().unwrap() > 0);
}

#[test]
fn a_successor_at_the_same_path_keeps_its_socket_c33_f16() {
    let leavings = Leavings::new("1h", "");
    // Whoever ends hands its path to a successor: the socket is another one, and somebody serves there.
    let successor = "os.unlink(sys.argv[2]); t = socket.socket(socket.AF_UNIX); t.bind(sys.argv[2]); t.listen()\n    \
                     os.set_inheritable(t.fileno(), True)\n    \
                     os.spawnvpe(os.P_NOWAIT, 'setsid', ['setsid', '--fork', 'sleep', '600'], {'PATH': os.environ['PATH']})\n    \
                     time.sleep(0.5)";
    let pid = orphan(&leavings, "pv-00000000", successor);
    let json = leavings.swept();
    assert!(!leavings.desk.planted.is_alive(pid), "{json:#}");
    let socket = leavings.at("pv-00000000").join("server.sock");
    assert!(socket.exists(), "{json:#}");
    let served = UnixStream::connect(&socket).is_ok();
    let listening = crate::residue::listener_of(&socket);
    for pid in listening {
        send(Pid::new(pid).unwrap(), Signal::KILL);
    }
    assert!(served, "{json:#}");
    assert!(json["residue"]["cleared"][0]["outcome"] == "kept", "{json:#}");
}

/// Who holds a descriptor that was inherited by a `sleep` of ours, by the socket's name in the kernel's list.
fn listener_of(socket: &Path) -> Vec<i32> {
    let list = fs::read_to_string("/proc/net/unix").unwrap();
    let inodes: Vec<String> = list
        .lines()
        .filter(|line| line.ends_with(&format!(" {}", socket.display())))
        .map(|line| format!("socket:[{}]", line.split_whitespace().nth(6).unwrap()))
        .collect();
    let mut holders = Vec::new();
    for entry in fs::read_dir("/proc").unwrap().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else {
            continue;
        };
        let Ok(fds) = fs::read_dir(entry.path().join("fd")) else { continue };
        let holds = fds.flatten().any(|fd| {
            fs::read_link(fd.path()).is_ok_and(|link| inodes.iter().any(|inode| Path::new(inode) == link))
        });
        if holds {
            holders.push(pid);
        }
    }
    holders
}

#[test]
fn what_a_tree_writes_beside_it_before_its_end_keeps_all_of_it() {
    let leavings = Leavings::new("1h", "");
    orphan(&leavings, "pv-00000000", "open(place + '/notes.txt', 'w').write('mine')");
    let json = leavings.swept();
    assert_eq!(names(&leavings.at("pv-00000000")).len(), 4, "{json:#}");
}

#[test]
fn a_directory_that_is_no_child_of_a_root_stays_s3() {
    let leavings = Leavings::new("1h", "");
    let root = leavings.root();
    leavings.desk.reconfigure(|text| {
        text.replace(
            &format!("roots = [\"{}\"]\nrecords", root.display()),
            "roots = \"/nonexistent-root\"\nrecords",
        )
    });
    let pid = orphan(&leavings, "pv-00000000", "pass");
    let json = leavings.swept();
    assert!(!leavings.desk.planted.is_alive(pid), "{json:#}");
    assert_eq!(names(&leavings.at("pv-00000000")).len(), 3, "{json:#}");
    let mut file = File::create(root.join("last")).unwrap();
    file.write_all(b"x").unwrap();
}

/// Says whether this machine lets us unshare that; where it does not, who reads the output is told.
fn may_unshare(what: &[&str]) -> bool {
    let output = std::process::Command::new("unshare").args(what).arg("true").output().unwrap();
    if !output.status.success() {
        eprintln!("skipped: {}", text(&output).trim_end());
    }
    output.status.success()
}

/// Runs a sweep of reapd below unshare(1).
fn swept_below(leavings: &Leavings, before: &[&str]) -> Value {
    let _turn = turn();
    let sweep = leavings.desk.command(&["sweep", "--yes", "--json"]);
    let mut below = std::process::Command::new("unshare");
    below.args(before).arg(sweep.get_program()).args(sweep.get_args()).env_clear();
    below.envs(sweep.get_envs().filter_map(|(name, value)| Some((name, value?))));
    let output = patiently(below.stdin(std::process::Stdio::null()));
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output)))
}

#[test]
fn a_mount_in_the_place_of_a_directory_stays() {
    if !may_unshare(&["-m"]) {
        return;
    }
    let leavings = Leavings::new("0s", "");
    let (left, twin) = (leavings.leave("mounted"), leavings.leave("twin"));
    let other = leavings.desk.planted.path("other");
    fs::create_dir(&other).unwrap();
    fs::set_permissions(&other, fs::Permissions::from_mode(0o700)).unwrap();
    write(&other.join("server.log"), "mine");
    let mount = format!("mount --bind {} {} && exec \"$@\"", other.display(), left.display());
    let json = swept_below(&leavings, &["-m", "sh", "-c", &mount, "sh"]);
    assert!(!twin.exists(), "{json:#}");
    assert_eq!(names(&other), ["server.log"], "{json:#}");
    assert_eq!(names(&left).len(), 3, "{json:#}");
}

#[test]
fn nothing_goes_where_the_hosts_own_processes_cannot_be_seen_b25() {
    let within = ["--pid", "--fork", "--mount-proc"];
    if !may_unshare(&within) {
        return;
    }
    let leavings = Leavings::new("0s", "");
    let left = leavings.leave("pv-00000000");
    let json = swept_below(&leavings, &within);
    assert_eq!(names(&left).len(), 3, "{json:#}");
    leavings.swept();
    assert!(!left.exists(), "from outside everybody is to be seen");
}

#[test]
fn what_a_tree_in_another_mount_namespace_leaves_stays() {
    if !may_unshare(&["-m"]) {
        return;
    }
    let leavings = Leavings::new("1h", "private-listeners = [\"**/server.sock\"]");
    leavings.desk.reconfigure(|text| {
        let lines = text.lines().map(|line| match line.split_once(" = ") {
            Some(("reap-when", _)) => "reap-when = [{ stdin-abandoned = true }]\n".to_owned(),
            _ => format!("{line}\n"),
        });
        lines.collect()
    });
    let abandoned = |name: &str, before: &[&str]| {
        let mut command = leavings.desk.planted.command("setsid");
        command.arg("--fork").args(before).args(["bash", "-c", &server(&leavings, name, "pass")]);
        let piped = std::process::Stdio::piped;
        let mut child = command.stdin(piped()).stdout(piped()).spawn().unwrap();
        let pid = leavings.desk.planted.pid_in(&leavings.at(name).join("server.pid"));
        assert!(child.wait().unwrap().success());
        pid
    };
    let (near, far) = (abandoned("near", &[]), abandoned("far", &["unshare", "-m"]));
    let json = leavings.swept();
    assert!(!leavings.desk.planted.is_alive(near) && !leavings.desk.planted.is_alive(far), "{json:#}");
    assert!(!leavings.at("near").exists(), "{json:#}");
    assert_eq!(names(&leavings.at("far")).len(), 3, "{json:#}");
}

#[test]
fn a_listener_of_another_network_namespace_keeps_its_directory_f7() {
    if !may_unshare(&["-n"]) {
        return;
    }
    let leavings = Leavings::new("0s", "");
    let (left, twin) = (leavings.leave("elsewhere"), leavings.leave("twin"));
    // Its arguments do not name the place: only the list of sockets of its own namespace does.
    let socket = left.join("server.sock");
    fs::remove_file(&socket).unwrap();
    let script = leavings.desk.planted.path("listen.py");
    write(
        &script,
        "import os, socket, sys, time\n\
         s = socket.socket(socket.AF_UNIX)\n\
         s.bind(open(sys.argv[1]).read())\n\
         s.listen()\n\
         open(sys.argv[2], 'w').write(str(os.getpid()))\n\
         time.sleep(600)\n",
    );
    let (place, pid) = (leavings.desk.planted.path("place"), leavings.desk.planted.path("listen.pid"));
    write(&place, socket.to_str().unwrap());
    leavings.desk.planted.detached(&format!(
        "exec unshare -n \"$PYTHON\" {} {} {}",
        script.display(),
        place.display(),
        pid.display()
    ));
    leavings.desk.planted.pid_in(&pid);
    let json = leavings.swept();
    assert!(!twin.exists(), "{json:#}");
    assert!(socket.exists(), "{json:#}");
}

#[test]
fn what_a_tree_leaves_stays_where_the_tree_was_not_seen_gone() {
    let leavings = Leavings::new("1h", "");
    leavings.desk.reconfigure(|text| text.replace("[\"TERM 5s\", \"KILL 3s\"]", "[\"TERM 300ms\"]"));
    let pid = orphan(&leavings, "stubborn", "return");
    let json = leavings.swept();
    assert!(leavings.desk.planted.is_alive(pid), "{json:#}");
    assert_eq!(names(&leavings.at("stubborn")).len(), 3, "{json:#}");
    assert_eq!(json["residue"]["cleared"][0]["outcome"], "kept", "{json:#}");
    leavings.desk.planted.end(pid);
}

#[test]
fn a_removal_that_a_crash_cut_short_gives_the_name_back_once_f12() {
    let leavings = Leavings::new("0s", "");
    let desk = &leavings.desk;
    let left = leavings.leave("pv-00000000");
    leavings.swept();
    assert!(!left.exists());
    let journal = desk.journal();
    let line = journal.lines().find(|line| line.contains("\"residue-intent\"")).unwrap();
    // The same is left once more, and its removal was cut short once its socket was taken.
    let left = leavings.leave("pv-00000000");
    let mut entry: Value = serde_json::from_str(line).unwrap();
    let removal = &mut entry["event"]["residue-intent"]["removal"];
    let which = |path: &Path| {
        let stat = fs::symlink_metadata(path).unwrap();
        serde_json::json!({ "dev": stat.dev(), "ino": stat.ino() })
    };
    removal["own"]["file"] = which(&left);
    for piece in removal["entries"].as_array_mut().unwrap() {
        let name: Vec<u8> = serde_json::from_value(piece["name"].clone()).unwrap();
        piece["file"] = which(&left.join(String::from_utf8(name).unwrap()));
    }
    let mut file = File::options().append(true).open(desk.planted.path("state/journal.jsonl")).unwrap();
    file.write_all(format!("{entry}\n").as_bytes()).unwrap();
    fs::rename(left.join("server.sock"), left.join(".reapd.server.sock")).unwrap();
    desk.reconfigure(|text| text.replace("after = \"0s\"", "after = \"1h\""));

    let again = text(&desk.reapd(&["sweep", "--once"]));
    let said = format!("the removal of {} was cut short: put back: 'server.sock'", left.display());
    assert!(again.contains(&said), "{again}");
    assert_eq!(names(&left), ["server.log", "server.pid", "server.sock"], "{again}");
    let journal = desk.journal();
    assert_eq!(journal.matches("\"cut-short\"").count(), 1, "{journal}");
    let last = text(&desk.reapd(&["sweep", "--once"]));
    assert!(!last.contains("cut short"), "{last}");
    assert_eq!(desk.journal().matches("\"cut-short\"").count(), 1);
    assert_eq!(names(&left).len(), 3, "{last}");
}
