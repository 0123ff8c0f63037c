//! Descriptors of real processes: what they are, who is at their far end, and that looking does nothing to anybody.
#![allow(clippy::disallowed_methods, reason = "these tests are about files and programs")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

pub(crate) mod shape;
mod sockets;

use std::io::{Read, Write};
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};

use reapd::model::id::ProcessId;
use reapd::model::known::{Known, Reason};
use reapd::model::question::{Census, Channel, ChannelKind, FarEnd, Holders, TerminalFate};
use reapd::model::table::Table;
use reapd::observe::sockets::Dump;
use reapd::observe::stdio;

use crate::support::program;

use self::shape::{Shape, id, readable_table, refuses, table, tty, until};

fn channel(of: ProcessId, fd: u32) -> Channel {
    stdio::channel(of, fd, &mut Dump::new()).unwrap()
}

fn holders(of: ProcessId, fd: u32, table: &Table) -> Known<Holders> {
    stdio::holders(of, fd, table, &mut Dump::new())
}

fn sleep() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Waits until the far end is gone: a killed holder's descriptors are closed a little after its death.
fn gone(of: ProcessId, fd: u32) -> Channel {
    until(|| channel(of, fd), |channel| channel.far == Ok(FarEnd::Gone))
}

#[test]
fn stdin_pipe_with_and_without_a_writer() {
    let mut server = Shape::start(sleep().stdin(Stdio::piped()));
    let seen = channel(server.id, 0);
    assert!(matches!(seen.kind, ChannelKind::Pipe { .. }), "{seen:?}");
    assert_eq!((seen.far, seen.unread), (Ok(FarEnd::Held), Ok(0)));

    let mut writer = server.child().stdin.take().unwrap();
    writer.write_all(b"abc").unwrap();
    let seen = channel(server.id, 0);
    assert_eq!((seen.far, seen.unread), (Ok(FarEnd::Held), Ok(3)));

    drop(writer);
    let seen = gone(server.id, 0);
    assert_eq!(seen.unread, Ok(3), "what was written is still to be read");
    let nobody = Holders { seen: Vec::new(), census: Census::Whole };
    assert_eq!(holders(server.id, 0, &Table::new(Vec::new())), Ok(nobody));
}

#[test]
fn process_substitution_on_stdin_b53() {
    let server = Shape::start(Command::new("bash").args(["-c", "exec sleep 1000 < <(printf abc)"]));
    until(
        || channel(server.id, 0),
        |seen| {
            matches!(seen.kind, ChannelKind::Pipe { .. })
                && seen.far == Ok(FarEnd::Gone)
                && seen.unread == Ok(3)
        },
    );
}

#[test]
fn stdout_pipe_with_and_without_a_reader() {
    let mut server = Shape::start(sleep().stdout(Stdio::piped()));
    let seen = channel(server.id, 1);
    assert!(matches!(seen.kind, ChannelKind::Pipe { .. }), "{seen:?}");
    assert_eq!((seen.far, seen.unread), (Ok(FarEnd::Held), Ok(0)));
    drop(server.child().stdout.take());
    gone(server.id, 1);
}

#[test]
fn probing_ends_nobodys_stream_s1() {
    let mut cat = Shape::start(Command::new("cat").stdin(Stdio::piped()).stdout(Stdio::piped()));
    let mut writer = cat.child().stdin.take().unwrap();
    let mut reader = cat.child().stdout.take().unwrap();
    for round in 0..100_u8 {
        assert_eq!(channel(cat.id, 0).far, Ok(FarEnd::Held));
        assert_eq!(channel(cat.id, 1).far, Ok(FarEnd::Held));
        // cat(1) ends at an end of file and dies of a broken pipe: either would end the echo.
        writer.write_all(&[round]).unwrap();
        assert_eq!(channel(cat.id, 1).far, Ok(FarEnd::Held));
        let mut echo = [0xff];
        reader.read_exact(&mut echo).unwrap();
        assert_eq!(echo, [round]);
    }
    drop(writer);
    assert_eq!(reader.read(&mut [0]).unwrap(), 0, "the end of file still comes, once the writer is gone");
}

#[test]
fn a_pipe_held_both_ways_is_its_own_far_end() {
    let program = "import os,sys,signal
r,w=os.pipe()
both=os.open(f'/proc/self/fd/{r}',os.O_RDWR)
os.dup2(both,0); os.close(r); os.close(w); os.close(both)
sys.stderr.write('ready\\n'); sys.stderr.flush(); signal.pause()";
    let (server, _) = Shape::python(program);
    assert_eq!(channel(server.id, 0).far, Ok(FarEnd::Held));
    assert_eq!(holders(server.id, 0, &table()).unwrap().seen, [server.id]);
}

#[test]
fn a_named_fifo_is_not_opened_s1() {
    let folder = tempfile::tempdir().unwrap();
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().unwrap().success());
    let fifo = fifo.to_str().unwrap();
    // The server holds the writing end and nobody reads, so that a stranger who wants to write waits in open(2).
    let program = format!(
        "import os,sys,signal
r=os.open('{fifo}',os.O_RDONLY|os.O_NONBLOCK); w=os.open('{fifo}',os.O_WRONLY); os.dup2(w,1)
os.close(r); os.close(w)
sys.stderr.write('ready\\n'); sys.stderr.flush(); signal.pause()"
    );
    let (server, _) = Shape::python(&program);
    let opened = folder.path().join("opened");
    let script = format!(": > '{fifo}'; : > '{}'; exec sleep 1000", opened.display());
    let stranger = Shape::start(Command::new("sh").arg("-c").arg(script).stdin(Stdio::null()));
    let call = format!("/proc/{}/wchan", stranger.id.pid);
    let waits = |call: &String| call.contains("wait_for_partner");
    until(|| std::fs::read_to_string(&call).unwrap(), waits);

    for _ in 0..50 {
        assert_eq!(channel(server.id, 1).kind, ChannelKind::NamedFifo);
        assert!(waits(&std::fs::read_to_string(&call).unwrap()), "the stranger was released");
    }
    assert!(!opened.exists());
    drop(std::fs::File::open(fifo).unwrap());
    until(|| opened.exists(), |opened| *opened);
}

/// A session leader who opens a terminal that is nobody's gets it for its own (tty_ioctl(4)): this test runs itself
/// again as one.
#[test]
fn a_session_leader_takes_no_terminal_s1() {
    const TARGET: &str = "REAPD_TEST_TARGET";
    let myself = rustix::process::getpid();
    if let Ok(target) = std::env::var(TARGET) {
        let target = id(reapd::model::id::Pid::new(target.parse().unwrap()).unwrap()).unwrap();
        assert_eq!(rustix::process::getsid(None).unwrap(), myself, "not a session leader");
        assert_eq!(channel(target, 0).kind, ChannelKind::Terminal(TerminalFate::Present));
        assert_eq!(tty(id_of(myself).pid), 0, "took the terminal");
        return;
    }
    let (_master, words) = Shape::python(
        "import os,pty,subprocess,sys,signal
m,s=pty.openpty()
c=subprocess.Popen(['sleep','1000'],stdin=s,stdout=-3,stderr=-3)
os.close(s)
sys.stderr.write(f'ready {c.pid}\\n'); sys.stderr.flush(); signal.pause()",
    );
    let target = Shape::adopt(&words[0]);
    let output = Command::new("setsid")
        .arg("--wait")
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "channels::a_session_leader_takes_no_terminal_s1", "--test-threads=1"])
        .env(TARGET, target.id.pid.to_string())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{said}");
}

fn id_of(pid: rustix::process::Pid) -> ProcessId {
    id(reapd::model::id::Pid::new(pid.as_raw_nonzero().get()).unwrap()).unwrap()
}

#[test]
fn a_terminal_without_a_master_is_deleted_a26() {
    let (mut master, words) = Shape::python(
        "import os,pty,subprocess,sys,signal
m,s=pty.openpty()
c=subprocess.Popen(['sleep','1000'],stdin=s,stdout=-3,stderr=-3)
os.close(s)
sys.stderr.write(f'ready {c.pid}\\n'); sys.stderr.flush(); signal.pause()",
    );
    let shell = Shape::adopt(&words[0]);
    assert_eq!(channel(shell.id, 0).kind, ChannelKind::Terminal(TerminalFate::Present));
    master.kill();
    until(|| channel(shell.id, 0).kind, |kind| *kind == ChannelKind::Terminal(TerminalFate::Deleted));
}

#[test]
fn what_has_no_far_end() {
    let file = tempfile::tempfile().unwrap();
    let server = Shape::start(sleep().stdout(file));
    assert_eq!(channel(server.id, 0).kind, ChannelKind::Null);
    assert_eq!(channel(server.id, 1).kind, ChannelKind::File);
    assert_eq!(channel(server.id, 99).kind, ChannelKind::Closed);
    for fd in [0, 1, 99] {
        assert_eq!(channel(server.id, fd).far.unwrap_err().reason, Reason::Unsupported);
        assert_eq!(holders(server.id, fd, &table()).unwrap_err().reason, Reason::Unsupported);
    }
}

#[test]
fn a_successor_of_the_number_is_not_read_c02() {
    let mut server = Shape::start(sleep().stdin(Stdio::piped()));
    let mut other = server.id;
    other.start.0 += 1;
    let mut dump = Dump::new();
    assert_eq!(stdio::channel(other, 0, &mut dump).unwrap_err().reason, Reason::Vanished);
    // A zombie's table is gone: nothing is closed, only unknown.
    let raw = rustix::process::Pid::from_child(server.child());
    rustix::process::kill_process(raw, rustix::process::Signal::KILL).unwrap();
    until(
        || stdio::channel(server.id, 0, &mut dump).map_err(|unknown| unknown.reason),
        |seen| *seen == Err(Reason::Vanished),
    )
    .unwrap_err();
}

/// Three workers that a dead parent left behind, each holding all three writing ends: no hang-up anywhere.
#[test]
fn a_closed_set_is_seen_whole_a32() {
    let (mut parent, words) = Shape::python(
        "import os,subprocess,sys,signal
p=[os.pipe() for _ in range(3)]
w=[x[1] for x in p]
c=[subprocess.Popen(['sleep','1000'],stdin=x[0],stdout=-3,stderr=-3,pass_fds=w) for x in p]
for x in p: os.close(x[0]); os.close(x[1])
sys.stderr.write('ready '+' '.join(str(x.pid) for x in c)+'\\n'); sys.stderr.flush(); signal.pause()",
    );
    let workers: Vec<_> = words.iter().map(|pid| Shape::adopt(pid)).collect();
    parent.kill();
    let mut ids: Vec<_> = workers.iter().map(|worker| worker.id).collect();
    ids.sort_unstable();
    // Whoever of another test hides itself between a table and the answer makes that census a partial one.
    let look = || {
        let (everybody, readable) = (table(), readable_table());
        let somebody_refuses = everybody.rows().iter().any(|row| refuses(row.id.pid));
        let (mut dump, mut readable_dump) = (Dump::new(), Dump::new());
        let of_one = |worker: &Shape| {
            let far = channel(worker.id, 0).far;
            let all = stdio::holders(worker.id, 0, &everybody, &mut dump).unwrap();
            // Whoever is in this table was readable, to an ordinary user too; only another namespace could hide
            // somebody.
            let known = stdio::holders(worker.id, 0, &readable, &mut readable_dump).unwrap();
            let as_expected = [
                (all.census == Census::Whole) == (sees_all() && !somebody_refuses),
                (known.census == Census::Whole) == in_first_namespace(),
            ];
            (far, all.seen, known.seen, as_expected)
        };
        workers.iter().map(of_one).collect::<Vec<_>>()
    };
    let expected = (Ok(FarEnd::Held), ids.clone(), ids, [true; 2]);
    until(look, |seen| seen.iter().all(|one| *one == expected));
}

/// Says whether this run is root in the first pid namespace: nobody is hidden from it.
fn sees_all() -> bool {
    rustix::process::geteuid().is_root() && in_first_namespace()
}

fn in_first_namespace() -> bool {
    std::fs::read_link("/proc/self/ns/pid").unwrap().as_os_str() == "pid:[4026531836]"
}

/// Root runs this test again as an ordinary user, who cannot read everybody's descriptors.
#[test]
fn an_ordinary_user_takes_no_whole_census() {
    if rustix::process::geteuid().is_root() {
        let folder = tempfile::tempdir().unwrap();
        let everybody = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), everybody).unwrap();
        let copy = folder.path().join("it");
        program::copy(std::env::current_exe().unwrap(), &copy);
        let output = Command::new(&copy)
            .args(["--exact", "channels::an_ordinary_user_takes_no_whole_census", "--test-threads=1"])
            .uid(65534)
            .gid(65534)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && said.contains("1 passed"), "{said}");
        return;
    }
    let server = Shape::start(sleep().stdin(Stdio::piped()));
    let seen = holders(server.id, 0, &table()).unwrap();
    assert_eq!(seen.seen, [id_of(rustix::process::getpid())]);
    assert!(matches!(seen.census, Census::Partial(_)), "{:?}", seen.census);
    // Somebody else's descriptors are refused to us, which is not "closed".
    let init = id(reapd::model::id::Pid::INIT).unwrap();
    let refused = stdio::channel(init, 0, &mut Dump::new()).unwrap_err();
    assert_eq!(refused.reason, Reason::Denied);
}

/// A held end that nobody is seen to hold is held by somebody unseen; and a table without process 1 is not everybody.
#[test]
fn nobody_seen_is_not_nobody() {
    let server = Shape::start(sleep().stdin(Stdio::piped()));
    let ourselves = id_of(rustix::process::getpid());
    let only = |pids: &[reapd::model::id::Pid]| {
        let rows = readable_table().rows().to_vec();
        Table::new(rows.into_iter().filter(|row| pids.contains(&row.id.pid)).collect())
    };
    let init = reapd::model::id::Pid::INIT;
    for (pids, holders_seen) in [(vec![init], vec![]), (vec![ourselves.pid], vec![ourselves])] {
        let seen = holders(server.id, 0, &only(&pids)).unwrap();
        assert_eq!(seen.seen, holders_seen);
        assert!(matches!(seen.census, Census::Partial(_)), "{:?}", seen.census);
    }
}
