//! Leases as scripts, hooks and gateways meet them: the command line, the files, and what ends when one is released.

use std::collections::BTreeSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, SystemTime};

use bstr::BStr;
use reapd::model::id::{FileId, Uid};
use reapd::model::lease::format::{MEMBERS, parse, print};
use reapd::model::lease::{Lease, LeaseFile, Release};
use serde_json::Value;

use crate::desk::{Desk, text};
use crate::planted::wait_for;
use crate::support::program;
use crate::turn::turn;

/// A desk with a lease directory of its own.
struct Office {
    desk: Desk,
    number: usize,
}

static OFFICES: AtomicUsize = AtomicUsize::new(0);

impl Office {
    fn new() -> Office {
        let desk = Desk::new();
        let base = desk.planted.path("leases");
        fs::create_dir(&base).unwrap();
        fs::set_permissions(&base, fs::Permissions::from_mode(0o700)).unwrap();
        desk.reconfigure(|text| format!("{text}\n[escalation]\nladder = [\"TERM 500ms\", \"KILL 3s\"]\n"));
        Office { desk, number: OFFICES.fetch_add(1, Ordering::Relaxed) }
    }

    /// An id that no other test uses: a cookie counts for all processes of its user, whatever the directory.
    fn id(&self, name: &str) -> String {
        format!("{name}-{}-{}", std::process::id(), self.number)
    }

    fn directory(&self) -> PathBuf {
        self.desk.planted.path("leases")
    }

    fn file(&self, id: &str) -> PathBuf {
        self.directory().join(format!("{id}.json"))
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = self.desk.command(arguments);
        command.env("REAPD_LEASES", self.directory()).stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    }

    fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    fn done(&self, arguments: &[&str]) -> String {
        let output = self.run(arguments);
        assert!(output.status.success(), "{arguments:?}: {}", text(&output));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, arguments: &[&str]) -> Value {
        let mut all = arguments.to_vec();
        all.push("--json");
        serde_json::from_slice(&self.run(&all).stdout).unwrap()
    }

    /// A sweep in a session of its own.
    fn sweep(&self, arguments: &[&str]) -> Output {
        let mut all = vec!["--wait", env!("CARGO_BIN_EXE_reapd"), "sweep"];
        all.extend(arguments);
        let bare = self.command(&[]);
        let mut command = Command::new("setsid");
        command.args(all).args(bare.get_args()).env_clear().stdin(Stdio::null());
        command.envs(bare.get_envs().filter_map(|(name, value)| Some((name, value?))));
        command.output().unwrap()
    }

    fn lease(&self, id: &str) -> Lease {
        let content = fs::read(self.file(id)).unwrap();
        read(id, &content).unwrap()
    }

    /// Starts a marked tree of three that carries a lease; returns the root.
    fn helper(&self, id: &str, line: &str) -> i32 {
        let name = format!("helper-{id}");
        let file = self.desk.planted.path(&format!("{name}.pid"));
        let line = format!("echo $$ >{0}.new; mv {0}.new {0}; {line}", file.display());
        // From its first moment on: what a shell exports later shows in its children only.
        let mut command = self.desk.planted.command("setsid");
        command.args(["--fork", "bash", "-c", &line]).env("REAPD_LEASE", id);
        assert!(command.status().unwrap().success());
        self.desk.planted.pid_in(&file)
    }

    fn tree(&self, root: i32) -> BTreeSet<i32> {
        self.desk.planted.below(root).into_iter().chain([root]).collect()
    }

    fn is_alive(&self, pid: i32) -> bool {
        self.desk.planted.is_alive(pid)
    }
}

fn read(id: &str, content: &[u8]) -> Result<Lease, String> {
    let file = LeaseFile { owner: Uid(0), file: FileId { dev: 0, ino: 0 }, modified: 0 };
    parse(BStr::new(id), content, file).map_err(|fault| fault.to_string())
}

fn own() -> String {
    std::process::id().to_string()
}

#[test]
fn a_script_acquires_renews_and_releases() {
    let office = Office::new();
    let id = office.done(&["lease", "acquire", "--holder", &own(), "--note", "nightly", "--label", "a=b"]);
    let id = id.strip_suffix('\n').unwrap().to_owned();
    assert!(id.starts_with("n-") && id.len() == 10 && !id.contains(char::is_whitespace), "{id}");
    let lease = office.lease(&id);
    let holder = lease.holder.clone().unwrap();
    assert_eq!(holder.pid.to_string(), own());
    assert!(
        holder.start.is_some() && holder.boot.is_some() && holder.pidns.is_some() && holder.age.is_some()
    );
    assert_eq!((lease.covers.env.unwrap(), &*lease.labels["a"]), (id.as_str().into(), "b"));
    office.done(&["lease", "renew", &id]);
    let listed = office.json(&["lease", "list"]);
    assert_eq!(
        (&listed["leases"][0]["id"], &listed["leases"][0]["state"]),
        (&id.as_str().into(), &"held".into())
    );
    office.done(&["lease", "release", &id]);
    assert_eq!(office.lease(&id).release, Release::Released(None));
    assert_eq!(office.json(&["lease", "list"])["leases"][0]["state"], "over");
    let again = office.run(&["lease", "release", &id]);
    assert!(again.status.success() && text(&again).contains("before"), "{}", text(&again));
    for arguments in [["lease", "release", "none"], ["lease", "renew", "none"], ["lease", "renew", &id]] {
        assert_eq!(office.run(&arguments).status.code(), Some(3), "{arguments:?}");
    }
}

#[test]
fn a_lease_has_a_holder_who_is_there_or_a_time() {
    let office = Office::new();
    let refused = |arguments: &[&str], code: i32, why: &str| {
        let mut all = vec!["lease", "acquire"];
        all.extend(arguments);
        let said = office.run(&all);
        assert_eq!(said.status.code(), Some(code), "{arguments:?}: {}", text(&said));
        assert!(said.stdout.is_empty() && text(&said).contains(why), "{arguments:?}: {}", text(&said));
    };
    refused(&[], 2, "--holder");
    refused(&["--ttl", "0s"], 2, "whole seconds");
    refused(&["--ttl", "5s", "--id", "../x"], 2, "no name of a lease");
    refused(&["--ttl", "5s", "--label", "x"], 2, "KEY=VALUE");
    refused(&["--holder", "0"], 2, "no process number");
    let mut child = Command::new("true").spawn().unwrap();
    let number = child.id().to_string();
    wait_for("a zombie", || {
        fs::read_to_string(format!("/proc/{number}/stat")).is_ok_and(|stat| stat.contains(") Z "))
    });
    refused(&["--holder", &number], 3, "zombie");
    refused(&["--ttl", "5s", "--pid", &number], 3, "zombie");
    child.wait().unwrap();
    refused(&["--holder", &number], 3, "there is no process");
    assert_eq!(office.json(&["lease", "list"])["leases"].as_array().unwrap().len(), 0);
    // Who is young may be an errand.
    let mut young = Command::new("sleep").arg("60").spawn().unwrap();
    let said = office.run(&["lease", "acquire", "--holder", &young.id().to_string()]);
    young.kill().unwrap();
    young.wait().unwrap();
    assert!(said.status.success(), "{}", text(&said));
    assert!(String::from_utf8_lossy(&said.stderr).contains("errand"), "{}", text(&said));
    office.done(&["lease", "acquire", "--ttl", "5m", "--id", "x"]);
    refused(&["--ttl", "5s", "--id", "x"], 3, "already");
    // One that is over and covers nobody makes room.
    let id = office.id("again");
    office.done(&["lease", "acquire", "--ttl", "5m", "--id", &id]);
    office.done(&["lease", "release", &id]);
    let root = office.helper(&id, "sleep 600 & wait");
    refused(&["--ttl", "5s", "--id", &id], 3, "already");
    office.desk.planted.end(root);
    wait_for("nobody to be covered", || {
        let listed = office.json(&["lease", "list"]);
        let leases = listed["leases"].as_array().unwrap();
        leases
            .iter()
            .all(|lease| lease["covers"]["count"] == 0 && lease["covers"]["spared"] == serde_json::json!([]))
            || {
                office.desk.planted.all().into_iter().for_each(|pid| office.desk.planted.end(pid));
                false
            }
    });
    office.done(&["lease", "acquire", "--ttl", "5m", "--id", &id]);
    assert_eq!(office.lease(&id).release, Release::Open);
}

#[test]
fn a_file_is_checked_where_it_is_wrong_or_what_it_means_is_said() {
    let office = Office::new();
    let checked = |content: &str| {
        fs::write(office.file("a"), content).unwrap();
        let said = office.run(&["lease", "check", office.file("a").to_str().unwrap()]);
        (said.status.code().unwrap(), text(&said))
    };
    let (code, said) = checked("{ \"v\": 1,\n  \"id\": 7 }");
    assert!(code == 2 && said.contains("a.json:2:9"), "{said}");
    let (code, said) = checked("{\"v\":1,\"id\":\"b\",\"ttl\":3}");
    assert!(code == 2 && said.contains("named otherwise"), "{said}");
    let (code, said) =
        checked(&format!("{{\"v\":1,\"id\":\"a\",\"holder\":{{\"pid\":{}}},\"later\":1}}", own()));
    assert_eq!(code, 0, "{said}");
    for what in ["bare number", "covers nothing", "lives, since", "later"] {
        assert!(said.contains(what), "{what}: {said}");
    }
    let (_, said) = checked("{\"v\":1,\"id\":\"a\",\"ttl\":90,\"covers\":{\"env\":\"a\"},\"released\":true}");
    for what in ["1m 30s", "90s", "REAPD_LEASE=a", "released"].iter().skip(1) {
        assert!(said.contains(what), "{what}: {said}");
    }
    fs::remove_file(office.file("a")).unwrap();
    std::os::unix::fs::symlink("/etc/hostname", office.file("a")).unwrap();
    let said = office.run(&["lease", "check", office.file("a").to_str().unwrap()]);
    assert!(said.status.code() == Some(2) && text(&said).contains("symbolic link"), "{}", text(&said));
}

#[test]
fn many_writers_at_once_lose_nothing_and_no_reader_sees_half_a_file() {
    const WRITERS: usize = 6;
    const ROUNDS: usize = 5;
    let office = Office::new();
    office.done(&["lease", "acquire", "--ttl", "5m", "--id", "shared"]);
    let over = AtomicBool::new(false);
    let read_files = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            while !over.load(Ordering::Relaxed) {
                for entry in fs::read_dir(office.directory()).unwrap().flatten() {
                    let name = entry.file_name().into_string().unwrap();
                    let Some(id) = name.strip_suffix(".json").filter(|id| !id.starts_with('.')) else {
                        continue;
                    };
                    let mut content = Vec::new();
                    fs::File::open(entry.path()).unwrap().read_to_end(&mut content).unwrap();
                    read(id, &content).unwrap();
                    read_files.fetch_add(1, Ordering::Relaxed);
                }
            }
        });
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let office = &office;
                scope.spawn(move || {
                    for round in 0..ROUNDS {
                        let id = format!("w{writer}-{round}");
                        office.done(&["lease", "acquire", "--ttl", "5m", "--id", &id]);
                        office.run(&["lease", "renew", "shared"]);
                        // Only one of all can be the first.
                        office.run(&["lease", "acquire", "--ttl", "5m", "--id", &format!("one-{round}")]);
                        office.done(&["lease", "renew", &id]);
                        office.done(&["lease", "release", &id]);
                        office.done(&["lease", "release", "shared"]);
                    }
                })
            })
            .collect();
        for writer in writers {
            writer.join().unwrap();
        }
        over.store(true, Ordering::Relaxed);
        reader.join().unwrap();
    });
    assert!(read_files.load(Ordering::Relaxed) > 100, "the reader read");
    for writer in 0..WRITERS {
        for round in 0..ROUNDS {
            let lease = office.lease(&format!("w{writer}-{round}"));
            assert_eq!(lease.release, Release::Released(None), "{}", lease.id);
            assert_eq!(office.lease(&format!("one-{round}")).release, Release::Open);
        }
    }
    assert_eq!(office.lease("shared").release, Release::Released(None));
    let left: Vec<String> = fs::read_dir(office.directory())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with('.'))
        .collect();
    assert_eq!(left, [] as [&str; 0], "nothing half-written is left");
}

#[test]
fn a_touch_that_races_a_release_never_undoes_it() {
    let office = Office::new();
    for round in 0..10 {
        let id = format!("r{round}");
        office.done(&["lease", "acquire", "--ttl", "5m", "--id", &id]);
        let over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (path, over) = (office.file(&id), &over);
            scope.spawn(move || {
                while !over.load(Ordering::Relaxed) {
                    // As touch(1) does it: the file is not read.
                    let file = fs::File::options().append(true).open(&path).unwrap();
                    file.set_modified(SystemTime::now()).unwrap();
                }
            });
            office.done(&["lease", "release", &id]);
            std::thread::yield_now();
            over.store(true, Ordering::Relaxed);
        });
        assert_eq!(office.lease(&id).release, Release::Released(None));
    }
}

/// A small file system that is full but for what is in it; unmounted when dropped.
struct Small(PathBuf);

impl Small {
    fn mount(at: &Path) -> Option<Small> {
        let options = ["-t", "tmpfs", "-o", "size=64k,mode=0700", "none"];
        let mounted = Command::new("mount").args(options).arg(at).stderr(Stdio::null()).status();
        mounted.is_ok_and(|status| status.success()).then(|| Small(at.to_owned()))
    }

    fn fill(&self) {
        let mut file = fs::File::create(self.0.join("filler")).unwrap();
        while file.write_all(&[0; 4096]).is_ok() {}
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("--lazy").arg(&self.0).status();
    }
}

#[test]
fn on_a_full_disk_a_lease_stays_as_it_was_and_nobody_becomes_an_orphan() {
    let office = Office::new();
    let a = office.id("a");
    let a = a.as_str();
    let Some(small) = Small::mount(&office.directory()) else {
        // Skipped: only root may mount a small file system.
        return;
    };
    office.done(&["lease", "acquire", "--holder", &own(), "--id", a]);
    let root = office.helper(a, "sleep 600 & wait");
    small.fill();
    let said = office.run(&["lease", "release", a]);
    assert_eq!(said.status.code(), Some(3), "{}", text(&said));
    assert_eq!(office.run(&["lease", "acquire", "--ttl", "5m"]).status.code(), Some(3));
    assert_eq!(office.lease(a).release, Release::Open);
    let listed = office.json(&["lease", "list"]);
    assert_eq!(
        (&listed["leases"][0]["state"], &listed["faulty"]),
        (&"held".into(), &Value::Array(Vec::new()))
    );
    let _turn = turn();
    office.sweep(&["--yes"]);
    assert!(office.is_alive(root));
}

#[test]
fn a_directory_that_cannot_be_written_is_said() {
    if rustix::process::geteuid().is_root() {
        // Skipped: root writes to every directory.
        return;
    }
    let office = Office::new();
    fs::set_permissions(office.directory(), fs::Permissions::from_mode(0o500)).unwrap();
    let said = office.run(&["lease", "acquire", "--ttl", "5m"]);
    fs::set_permissions(office.directory(), fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!(said.status.code(), Some(3), "{}", text(&said));
    assert!(text(&said).contains("cannot write"), "{}", text(&said));
}

/// A stand-in for the agent: a shell of its name that runs its hooks by another shell, as the agent does.
struct Agent<'a> {
    office: &'a Office,
    pid: i32,
}

impl<'a> Agent<'a> {
    fn start(office: &'a Office, name: &str) -> Agent<'a> {
        let planted = &office.desk.planted;
        let program = planted.path(&format!("{name}/claude"));
        fs::create_dir(planted.path(name)).unwrap();
        program::copy(fs::canonicalize("/bin/bash").unwrap(), &program);
        let pid_file = planted.path(&format!("{name}/pid"));
        // One hook for each numbered file that appears.
        let script = "echo $$ >$D/pid.new; mv $D/pid.new $D/pid; n=1
            while :; do
              if [ -e $D/$n.json ]; then
                sh -c '\"$REAPD\" lease hook claude-code --export <$D/'$n'.json >$D/out 2>&1; echo $? >$D/code.new'
                mv $D/code.new $D/$n.code; n=$((n+1))
              fi
              read -t 0.02 <>$D/never
            done";
        assert!(
            Command::new("mkfifo").arg(planted.path(&format!("{name}/never"))).status().unwrap().success()
        );
        let mut command = planted.command("setsid");
        command.arg("--fork").arg(&program).args(["-c", script]);
        command
            .env("D", planted.path(name))
            .env("REAPD", env!("CARGO_BIN_EXE_reapd"))
            .env("REAPD_LEASES", office.directory())
            .env("CLAUDE_ENV_FILE", planted.path(&format!("{name}/env")));
        assert!(command.status().unwrap().success());
        let pid = planted.pid_in(&pid_file);
        Agent { office, pid }
    }

    fn hook(&self, name: &str, number: usize, json: &str) {
        let path = |file: &str| self.office.desk.planted.path(&format!("{name}/{file}"));
        fs::write(path("new"), json).unwrap();
        fs::rename(path("new"), path(&format!("{number}.json"))).unwrap();
        let code = path(&format!("{number}.code"));
        wait_for("the hook", || code.exists());
        assert_eq!(fs::read_to_string(code).unwrap(), "0\n");
        assert_eq!(
            fs::read_to_string(path("out")).unwrap(),
            "",
            "a hook's output goes into the model's context"
        );
    }
}

fn event(name: &str, session: &str, more: &str) -> String {
    format!(
        "{{\"session_id\":\"{session}\",\"transcript_path\":\"/x\",\"cwd\":\"/x\",\"hook_event_name\":\"{name}\",{more}}}"
    )
}

#[test]
fn a_hook_records_the_agent_and_never_the_shell_that_runs_it_f5() {
    let office = Office::new();
    let agent = Agent::start(&office, "one");
    let session = "3f0a2c1e-0000-4000-8000-1234567890ab";
    let id = format!("claude-{session}");
    agent.hook("one", 1, &event("SessionStart", session, "\"source\":\"startup\""));
    assert_eq!(office.lease(&id).holder.unwrap().pid.number(), agent.pid);
    let env = || fs::read_to_string(office.desk.planted.path("one/env")).unwrap();
    assert_eq!(env(), format!("export REAPD_LEASE={id}\n"));
    // The process goes on after these.
    agent.hook("one", 2, &event("SessionEnd", session, "\"reason\":\"clear\""));
    agent.hook("one", 3, &event("SessionEnd", session, "\"reason\":\"resume\""));
    agent.hook("one", 4, &event("SessionEnd", session, "\"reason\":\"whatever comes\""));
    agent.hook("one", 5, &event("SessionStart", session, "\"source\":\"compact\""));
    assert_eq!(office.lease(&id).release, Release::Open);
    assert_eq!(env().lines().count(), 1, "it is exported once");
    // Another process resumes the same session: the first one's lease stays its own.
    let other = Agent::start(&office, "two");
    other.hook("two", 1, &event("SessionStart", session, "\"source\":\"resume\""));
    assert_eq!(office.lease(&id).holder.unwrap().pid.number(), agent.pid);
    let second = format!("{id}.{}", other.pid);
    assert_eq!(office.lease(&second).holder.unwrap().pid.number(), other.pid);
    other.hook("two", 2, &event("SessionEnd", session, "\"reason\":\"logout\""));
    assert_eq!(office.lease(&id).release, Release::Open, "it is not theirs to release");
    assert!(matches!(office.lease(&second).release, Release::Released(Some(_))));
    agent.hook("one", 6, &event("SessionEnd", session, "\"reason\":\"prompt_input_exit\""));
    let Release::Released(Some(why)) = office.lease(&id).release else { panic!("it is released") };
    assert!(why.contains("prompt_input_exit"), "{why}");
    // Whatever it is handed, it says nothing and fails never.
    for (number, json) in ["", "{", "[]", &event("SessionStart", "../x", "\"x\":1")].iter().enumerate() {
        agent.hook("one", 7 + number, json);
    }
}

#[test]
fn a_hook_without_an_agent_records_nothing() {
    let office = Office::new();
    let mut child = office.command(&["lease", "hook", "claude-code"]).stdin(Stdio::piped()).spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(event("SessionStart", "s", "\"source\":\"startup\"").as_bytes())
        .unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), text(&output)), (Some(0), String::new()));
    assert_eq!(fs::read_dir(office.directory()).unwrap().count(), 0);
}

#[test]
fn twenty_wait_for_one_release_in_any_order_and_return_when_all_are_gone() {
    let office = Office::new();
    let gw = office.id("gw");
    let gw = gw.as_str();
    let twin = office.id("twin");
    let twin = twin.as_str();
    office.done(&["lease", "acquire", "--holder", &own(), "--id", gw]);
    office.done(&["lease", "acquire", "--holder", &own(), "--id", twin]);
    let line = "trap '' TERM; sleep 600 & env -i REAPD_TEST_NONCE=$REAPD_TEST_NONCE sleep 601 & while :; do wait; done";
    let root = office.helper(gw, line);
    let twin = office.helper(twin, "sleep 600 & env -i REAPD_TEST_NONCE=$REAPD_TEST_NONCE sleep 601 & wait");
    let mut tree = BTreeSet::new();
    wait_for("the whole tree", || {
        tree = all_below(root);
        tree.len() == 3
    });
    let _turn = turn();
    let mut waiting = Vec::new();
    for caller in 0..20 {
        if caller == 10 {
            // The others come after the release.
            wait_for("the release", || office.lease(gw).release != Release::Open);
        }
        waiting.push(office.command(&["lease", "release", gw, "--wait", "60s"]).spawn().unwrap());
    }
    for child in waiting {
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{}", text(&output));
        let left: Vec<i32> = tree.iter().copied().filter(|&pid| is_there(pid)).collect();
        assert_eq!(left, [] as [i32; 0], "whoever returns saw all of them gone");
    }
    assert_eq!(office.json(&["lease", "release", gw, "--wait", "5s"])["gone"], true);
    assert!(office.is_alive(twin), "its twin has a lease that holds");
    let journal = office.desk.journal();
    assert_eq!(journal.matches("\"intent\"").count(), 1, "nobody is asked to go twice: {journal}");
}

#[test]
fn who_is_kept_is_named_when_the_wait_is_over() {
    let office = Office::new();
    let gw = office.id("gw");
    let gw = gw.as_str();
    office.done(&["lease", "acquire", "--holder", &own(), "--id", gw]);
    let root = office.helper(gw, "export REAPD_KEEP=1; exec sleep 600");
    wait_for("the helper", || {
        fs::read_to_string(format!("/proc/{root}/comm")).is_ok_and(|comm| comm == "sleep\n")
    });
    let _turn = turn();
    let said = office.run(&["lease", "release", gw, "--wait", "3s", "--json"]);
    assert_eq!(said.status.code(), Some(3), "{}", text(&said));
    let json: Value = serde_json::from_slice(&said.stdout).unwrap();
    assert_eq!((&json["gone"], &json["left"][0]["pid"]), (&false.into(), &root.into()), "{json}");
    assert!(json["left"][0]["why"].as_str().unwrap().contains("kept"), "{json}");
    assert!(office.is_alive(root));
}

#[test]
fn without_a_configuration_that_can_be_read_nothing_is_ended_and_the_release_stands() {
    let office = Office::new();
    let gw = office.id("gw");
    let gw = gw.as_str();
    office.done(&["lease", "acquire", "--holder", &own(), "--id", gw]);
    let root = office.helper(gw, "sleep 600 & wait");
    office.desk.reconfigure(|text| format!("{text}\n[kep]\n"));
    let said = office.run(&["lease", "release", gw, "--wait", "2s"]);
    assert_eq!(said.status.code(), Some(2), "{}", text(&said));
    assert_eq!(office.run(&["finish", gw]).status.code(), Some(2));
    assert_eq!(office.lease(gw).release, Release::Released(None));
    assert!(office.is_alive(root));
}

#[test]
fn finish_ends_what_its_own_lease_covers_and_only_when_that_is_over() {
    let office = Office::new();
    let one = office.id("one");
    let one = one.as_str();
    let two = office.id("two");
    let two = two.as_str();
    for id in [one, two] {
        office.done(&["lease", "acquire", "--holder", &own(), "--id", id]);
    }
    let [first, second] = [one, two].map(|id| office.helper(id, "sleep 600 & wait"));
    wait_for("both", || office.tree(first).len() == 2 && office.tree(second).len() == 2);
    let _turn = turn();
    let held = office.json(&["finish", one]);
    assert_eq!(held["teardowns"], Value::Array(Vec::new()), "{held}");
    assert!(held["kept"][0]["why"].as_str().unwrap().contains("holds its lease"), "{held}");
    for id in [one, two] {
        office.done(&["lease", "release", id]);
    }
    let ended = office.json(&["finish", one]);
    assert_eq!(ended["teardowns"][0]["closure"], "gone", "{ended}");
    assert!(
        !office.is_alive(first) && office.is_alive(second),
        "the other is over too, and is somebody else's to finish"
    );
}

#[test]
fn a_sweep_leaves_alone_what_somebody_finishes_f15() {
    let office = Office::new();
    let gw = office.id("gw");
    let gw = gw.as_str();
    office.done(&["lease", "acquire", "--holder", &own(), "--id", gw]);
    let root = office.helper(gw, "sleep 600 & wait");
    office.done(&["lease", "release", gw]);
    let lock = fs::File::options()
        .create(true)
        .append(true)
        .mode(0o600)
        .open(office.directory().join(format!(".{gw}.lock")))
        .unwrap();
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::LockExclusive).unwrap();
    let _turn = turn();
    let said = office.sweep(&["--yes"]);
    assert!(office.is_alive(root) && text(&said).contains("another reapd is at work"), "{}", text(&said));
    // By name: what another test is just starting has a copy of the open file.
    rustix::fs::flock(&lock, rustix::fs::FlockOperation::Unlock).unwrap();
    let said = office.sweep(&["--yes"]);
    assert!(!office.is_alive(root), "{}", text(&said));
}

#[test]
fn sweeps_remove_what_is_long_over_and_nothing_else() {
    let office = Office::new();
    let covers = office.id("covers");
    let covers = covers.as_str();
    for (id, bound) in [("old", "--ttl"), ("young", "--ttl"), (covers, "--ttl")] {
        office.done(&["lease", "acquire", bound, "5m", "--id", id]);
        office.done(&["lease", "release", id]);
    }
    office.done(&["lease", "acquire", "--holder", &own(), "--id", "held"]);
    let kept = office.helper(covers, "export REAPD_KEEP=1; exec sleep 600");
    wait_for("the helper", || {
        fs::read_to_string(format!("/proc/{kept}/comm")).is_ok_and(|comm| comm == "sleep\n")
    });
    for (name, content) in [("bad.json", "{"), (".x.1.tmp", "{"), (".none.lock", ""), (".held.lock", "")] {
        fs::write(office.directory().join(name), content).unwrap();
        fs::set_permissions(office.directory().join(name), fs::Permissions::from_mode(0o600)).unwrap();
    }
    // What killed runs leave behind: one that nobody can come under any more, one of another boot, and one that runs.
    let held = fs::read_to_string(office.directory().join("held.json")).unwrap();
    let held: serde_json::Value = serde_json::from_str(&held).unwrap();
    let run = |id: &str, start: u64, boot: Option<&str>| {
        let mut lease = held.clone();
        lease["id"] = id.into();
        lease["covers"] = serde_json::json!({});
        lease["run"] = serde_json::json!({
            "watcher": { "pid": std::process::id(), "start": start },
            "command": null, "leftovers": "reap", "channel": "stdio",
        });
        if let Some(boot) = boot {
            lease["holder"]["boot"] = boot.into();
        }
        fs::write(office.directory().join(format!("{id}.json")), lease.to_string()).unwrap();
    };
    run("run-killed", 1, None);
    run("run-elsewhere", 1, Some("another"));
    run("run-on", held["holder"]["start"].as_u64().unwrap(), None);
    let long_ago = SystemTime::now() - Duration::from_hours(2);
    for name in [
        "run-killed.json",
        "run-elsewhere.json",
        "run-on.json",
        "old.json",
        &format!("{covers}.json"),
        "held.json",
        "bad.json",
        ".x.1.tmp",
        ".none.lock",
        ".held.lock",
    ] {
        let file = fs::File::options().append(true).open(office.directory().join(name)).unwrap();
        file.set_modified(long_ago).unwrap();
    }
    let names = || -> BTreeSet<String> {
        let entries = fs::read_dir(office.directory()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    };
    let before = names();
    let _turn = turn();
    assert!(office.sweep(&["--dry-run"]).status.success());
    assert_eq!(names(), before, "a dry run writes nothing");
    let said = office.sweep(&["--once", "--yes"]);
    let gone: Vec<String> = before.difference(&names()).cloned().collect();
    assert_eq!(gone, [".none.lock", ".x.1.tmp", "old.json", "run-killed.json"], "{}", text(&said));
}

fn all_below(root: i32) -> BTreeSet<i32> {
    let mut found = BTreeSet::from([root]);
    loop {
        let more: Vec<i32> = found
            .iter()
            .filter_map(|pid| fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).ok())
            .flat_map(|text| text.split_whitespace().map(|word| word.parse().unwrap()).collect::<Vec<_>>())
            .collect();
        let before = found.len();
        found.extend(more);
        if found.len() == before {
            return found;
        }
    }
}

fn is_there(pid: i32) -> bool {
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

fn blocks(kind: &str) -> Vec<String> {
    let document = fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("docs/lease.md")).unwrap();
    let opening = format!("```{kind}\n");
    document.split(&opening).skip(1).map(|rest| rest.split("```").next().unwrap().to_owned()).collect()
}

#[test]
fn the_published_examples_are_leases_and_the_schema_has_what_is_written() {
    let examples = blocks("json");
    assert_eq!(examples.len(), 3);
    for example in &examples {
        let json: Value = serde_json::from_str(example).unwrap();
        read(json["id"].as_str().unwrap(), example.as_bytes()).unwrap();
    }
    let schema: Value = serde_json::from_str(&blocks("json schema")[0]).unwrap();
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<BTreeSet<_>>();
    let process = r#"{"pid":3,"start":1}"#;
    let whole = format!(
        r#"{{"v":1,"id":"a","bound":"ttl","ttl":3,"holder":{{"pid":1,"start":1,"boot":"b","pidns":1,"timens":1,
        "host":"h","age":1}},"covers":{{"env":"a","processes":[{process}]}},"labels":{{"a":"b"}},"note":"n",
        "released":true,"reason":"r","run":{{"watcher":{process},"command":{process},"leftovers":"reap",
        "channel":"stdio"}}}}"#
    );
    let written: Value = serde_json::from_str(&print(&read("a", whole.as_bytes()).unwrap())).unwrap();
    assert_eq!(names(&schema["properties"]), names(&written));
    assert_eq!(names(&written), MEMBERS.iter().map(|&name| name.to_owned()).collect());
    for inner in ["holder", "covers", "run"] {
        assert_eq!(names(&schema["properties"][inner]["properties"]), names(&written[inner]), "{inner}");
    }
    assert_eq!(names(&schema["$defs"]["process"]["properties"]), names(&written["run"]["watcher"]));
}

/// Runs a program that acquires, renews and releases `gw-1`, in the order that lines on its input say.
fn speaks(office: &Office, command: &mut Command) {
    let mut child = command
        .env("REAPD_LEASES", office.directory())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let (mut to, mut from) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut step = || {
        to.write_all(b"\n").unwrap();
        from.read_exact(&mut [0]).unwrap();
    };
    step();
    let lease = office.lease("gw-1");
    assert_eq!(lease.holder.unwrap().pid.number().unsigned_abs(), child.id());
    let listed = office.json(&["lease", "list"]);
    assert_eq!(listed["leases"][0]["state"], "held", "{listed}");
    let file = fs::File::options().append(true).open(office.file("gw-1")).unwrap();
    file.set_modified(SystemTime::UNIX_EPOCH).unwrap();
    step();
    let touched = fs::metadata(office.file("gw-1")).unwrap().modified().unwrap();
    assert!(touched > SystemTime::UNIX_EPOCH + Duration::from_hours(1));
    step();
    assert_eq!(office.lease("gw-1").release, Release::Released(None));
    drop(to);
    assert!(child.wait().unwrap().success());
}

#[test]
fn the_published_python_writes_leases() {
    let office = Office::new();
    let script = office.desk.planted.path("lease.py");
    let steps = "import sys\nfor step in (acquire, renew, release):\n    sys.stdin.readline()\n    step('gw-1')\n    print('.', end='', flush=True)\n";
    fs::write(&script, format!("{}\n{steps}", blocks("python")[0])).unwrap();
    speaks(&office, Command::new("python3").arg(script));
}

#[test]
fn the_published_typescript_writes_leases() {
    if !Command::new("node").arg("--version").output().is_ok_and(|output| output.status.success()) {
        // Skipped: there is no node.
        return;
    }
    let office = Office::new();
    let script = office.desk.planted.path("lease.mjs");
    // Its types are taken off by hand: not every node does it.
    let plain =
        blocks("typescript")[0].replace(": any", "").replace(": string", "").replace("getuid!", "getuid");
    let steps = "const steps = [acquire, renew, release];\nprocess.stdin.on('data', () => { steps.shift()('gw-1'); process.stdout.write('.'); });\n";
    fs::write(&script, format!("{plain}\n{steps}")).unwrap();
    speaks(&office, Command::new("node").arg(script));
}
