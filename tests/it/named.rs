//! Who carries a text in its arguments or its environment, among real processes.
#![expect(clippy::print_stderr, reason = "who reads the tests' output must know what was not tested")]

use std::process::{Command, Stdio};

use bstr::BString;
use reapd::model::id::{Pid, ProcessId};
use reapd::model::known::{Known, Reason};
use reapd::model::question::{Answer, Carriers, Question};
use rustix::process::Signal;

use crate::channels::shape::{Shape, id, until};
use crate::support::observing::{as_nobody, ask_all, is_root, observer, observer_by, reapd_after};
use crate::support::tree::send;

/// Something that nobody else on this machine carries.
fn text(name: &str) -> String {
    format!("/tmp/reapd-named-{}-{name}/s", std::process::id())
}

fn sleeper() -> Command {
    let mut command = Command::new("sleep");
    command.arg("1000").stdin(Stdio::null()).stdout(Stdio::null());
    command
}

/// Starts a process that carries its arguments beside what it does.
fn carrier(argument: &str) -> Shape {
    let mut sh = Command::new("sh");
    Shape::ready(sh.args(["-c", "echo ready >&2; read x", "sh", argument]).stdin(Stdio::piped())).0
}

fn named(of: ProcessId, texts: &[&str]) -> Vec<Known<Carriers>> {
    let question = |text: &&str| Question::Named { of, text: BString::from(*text) };
    let questions: Vec<Question> = texts.iter().map(question).collect();
    let carriers = |answer: Known<Answer>| {
        answer.map(|answer| match answer {
            Answer::Named(carriers) => carriers,
            other => panic!("{other:?}"),
        })
    };
    ask_all(&mut observer(), &questions).into_iter().map(carriers).collect()
}

fn seen(of: ProcessId, text: &str) -> Vec<ProcessId> {
    named(of, &[text]).remove(0).unwrap().seen
}

#[test]
fn arguments_and_values_count_and_longer_paths_do_not() {
    let (own, other) = (text("own"), text("other"));
    let whole = carrier(&own);
    let prefixed = carrier(&format!("unix:{own}"));
    let in_json = carrier(&format!("{{\"endpoint\":\"{own}\"}}"));
    let longer = carrier(&format!("{own}2"));
    let below = carrier(&format!("{own}/x"));
    let value = Shape::start(sleeper().env("ENDPOINT", format!("unix:{own}")));
    let name = Shape::start(sleeper().env(&own, "1"));
    let mut expected = [whole.id, prefixed.id, in_json.id, value.id];
    expected.sort_unstable();
    // A process that was just started may still be in the midst of its exec.
    let found = until(
        || named(whole.id, &[&own, &other, &format!("{own}2")]),
        |found| found[0].as_ref().is_ok_and(|holders| holders.seen == expected),
    );
    assert_eq!(found[1].as_ref().unwrap().seen, [], "several texts in one pass, each by itself");
    assert_eq!(found[2].as_ref().unwrap().seen, [longer.id]);
    drop((below, name));
}

#[test]
fn who_ended_carries_nothing_and_a_zombie_neither() {
    let own = text("ended");
    let mut ends = carrier(&own);
    assert_eq!(seen(ends.id, &own), [ends.id], "the asked process counts where it does");
    let asker = Shape::start(&mut sleeper());
    send(ends.id.pid, Signal::KILL);
    until(|| seen(asker.id, &own), Vec::is_empty);
    ends.kill();
    assert_eq!(named(ends.id, &[&own])[0].as_ref().unwrap_err().reason, Reason::Vanished);
}

#[test]
fn reapd_itself_and_what_reads_for_it_do_not_count() {
    let path = std::env::var("PATH").unwrap();
    let carrier = Shape::start(&mut sleeper());
    let found = until(|| seen(carrier.id, &path), |seen| seen.contains(&carrier.id));
    let own = id(Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap()).unwrap();
    assert!(!found.contains(&own), "it carries the very same variable");
    // Other tests of this binary have asides of their own, which do count for this one.
    let folder = tempfile::tempdir().unwrap();
    let started = folder.path().join("started");
    let before = format!("echo $$ >>{}; exec", started.display());
    let mut observer = observer_by(&reapd_after(folder.path(), &before));
    let question = Question::Named { of: carrier.id, text: path.into() };
    ask_all(&mut observer, std::slice::from_ref(&question));
    let lines = std::fs::read_to_string(&started).unwrap();
    let aside: Vec<Pid> = lines.lines().map(|line| Pid::new(line.parse().unwrap()).unwrap()).collect();
    assert!(!aside.is_empty(), "somebody read for it");
    let Ok(Answer::Named(holders)) = ask_all(&mut observer, &[question]).remove(0) else { panic!() };
    assert!(!holders.seen.iter().any(|id| aside.contains(&id.pid)), "{holders:?} {aside:?}");
}

#[test]
fn a_text_that_nobody_could_carry_is_unknown() {
    let carrier = carrier("x");
    for odd in ["", "a\0b"] {
        assert_eq!(named(carrier.id, &[odd])[0].as_ref().unwrap_err().reason, Reason::Unsupported);
    }
}

#[test]
fn everybody_who_cannot_be_read_may_carry_it_b15() {
    if !is_root() {
        eprintln!("skipped: only root can be refused what root carries");
        return;
    }
    let own = text("refused");
    let carrier = carrier(&own);
    let folder = tempfile::tempdir().unwrap();
    let nobody = as_nobody(folder.path());
    let question = Question::Named { of: carrier.id, text: own.into() };
    match ask_all(&mut observer_by(&nobody), &[question]).remove(0) {
        Ok(Answer::Named(holders)) => {
            assert_eq!(holders.seen, []);
            assert!(holders.unread.contains(&carrier.id), "{holders:?}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_the_users_own_processes_count() {
    if !is_root() {
        eprintln!("skipped: only root can start processes of another user");
        return;
    }
    let own = text("user");
    let mut other = Command::new("setpriv");
    other
        .args(["--reuid", "65534", "--regid", "65534", "--clear-groups", "sleep", "1000"])
        .env("ENDPOINT", &own);
    let theirs = Shape::start(other.stdin(Stdio::null()));
    let ours = carrier(&own);
    until(|| seen(theirs.id, &own), |seen| *seen == [theirs.id]);
    assert_eq!(seen(ours.id, &own), [ours.id]);
}

#[test]
fn a_census_is_whole_but_for_those_who_refuse() {
    let everybody =
        std::fs::read_link("/proc/self/ns/pid").unwrap() == std::path::Path::new("pid:[4026531836]");
    if !is_root() || !everybody {
        eprintln!("skipped: only root, outside of any container, sees everybody");
        return;
    }
    let own = text("whole");
    let carrier = carrier(&own);
    // Processes of other tests may hide themselves, or be in the midst of an exec.
    let sleeper = Shape::start(Command::new("sleep").arg("1000").stdin(Stdio::null()));
    let ours = [carrier.id, sleeper.id];
    let unread = || {
        let carriers = named(carrier.id, &[&own]).remove(0).unwrap();
        let is_unread = |pid: Pid| carriers.unread.iter().any(|id| id.pid == pid);
        let refusing = crate::support::look::pids().into_iter().filter(|pid| refuses(*pid));
        let missed: Vec<Pid> = refusing.filter(|pid| !is_unread(*pid)).collect();
        (carriers.unseen, ours.map(|id| is_unread(id.pid)), missed)
    };
    until(unread, |(unseen, ours, missed)| *unseen == 0 && *ours == [false; 2] && missed.is_empty());
}

/// Says whether a process refuses even root, as process 1 does on some machines.
fn refuses(pid: Pid) -> bool {
    let environment = std::fs::File::open(format!("/proc/{pid}/environ"));
    environment.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied)
}
