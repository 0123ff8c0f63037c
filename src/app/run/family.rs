//! Who is below us, and whether they do anything: what a command left behind, and the count behind `--idle`.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bstr::{BString, ByteSlice as _};

use super::caller::Hangup;
use crate::act::processes::{children_of, sight_of};
use crate::model::escape::escape;
use crate::model::id::{Pid, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::observe;

/// More are not named on one line.
const NAMED: usize = 12;

/// A process below us.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Kin {
    /// Who.
    pub(super) id: ProcessId,
    /// Its short name.
    pub(super) name: BString,
}

impl Kin {
    /// Says whether it is still there.
    pub(super) fn is_alive(&self) -> bool {
        sight_of(self.id.pid).is_ok_and(|sight| sight.id == self.id && !sight.is_gone())
    }
}

/// Returns who is alive below a process. Whoever stands alone there (see [`ignores_hangup`]) is left out with all that
/// is below it.
pub(super) fn below(root: ProcessId, spared: impl Fn(Pid) -> bool) -> Known<Vec<Kin>> {
    let mut found: Vec<Kin> = Vec::new();
    let mut parents = vec![root];
    while let Some(parent) = parents.pop() {
        let children = match children_of(parent) {
            Ok(children) => children,
            // Whoever ended meanwhile has handed its children to us.
            Err(_) if parent != root => continue,
            Err(unknown) => return Err(unknown),
        };
        for pid in children {
            let Ok(sight) = sight_of(pid) else { continue };
            if sight.is_gone() || found.iter().any(|kin| kin.id == sight.id) || spared(pid) {
                continue;
            }
            parents.push(sight.id);
            found.push(Kin { id: sight.id, name: sight.name.clone() });
        }
    }
    Ok(found)
}

/// Says whether a process ignores SIGHUP though we do not: nohup(1) means that it is to live on.
pub(super) fn ignores_hangup(pid: Pid, ours: Hangup) -> bool {
    match ours {
        Hangup::Ignored => false,
        Hangup::Ends => std::fs::read(format!("/proc/{pid}/status"))
            .is_ok_and(|status| ignored(&status).is_some_and(|mask| mask & 1 != 0)),
    }
}

/// Returns the signals that are ignored, the first in the lowest bit (proc_pid_status(5)).
fn ignored(status: &[u8]) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix(b"SigIgn:"))?;
    u64::from_str_radix(line.to_str().ok()?.trim(), 16).ok()
}

/// Returns names with their numbers: `gradle 881, chrome 902, 911`.
pub(super) fn named(kin: &[Kin]) -> String {
    let mut by_name: Vec<(&BString, Vec<String>)> = Vec::new();
    for one in kin.iter().take(NAMED) {
        match by_name.iter_mut().find(|(name, _)| **name == one.name) {
            Some((_, numbers)) => numbers.push(one.id.pid.to_string()),
            None => by_name.push((&one.name, vec![one.id.pid.to_string()])),
        }
    }
    let mut words: Vec<String> = by_name
        .into_iter()
        .map(|(name, numbers)| format!("{} {}", escape(name), numbers.join(", ")))
        .collect();
    if kin.len() > NAMED {
        words.push("…".to_owned());
    }
    words.join(", ")
}

/// What a tree had done by some moment.
type Done = BTreeMap<ProcessId, (u64, Duration)>;

/// Counts what a tree does, for `--idle`.
#[derive(Debug)]
pub(super) struct Idle {
    span: Duration,
    root: ProcessId,
    last: Option<(Instant, Done)>,
    /// Since when nothing happens.
    since: Instant,
}

impl Idle {
    /// Begins with a tree that has just done something.
    pub(super) fn new(span: Duration, root: ProcessId) -> Idle {
        Idle { span, root, last: None, since: Instant::now() }
    }

    /// How often is looked: often enough that the end comes within a quarter of the span.
    fn step(&self) -> Duration {
        (self.span / 4).clamp(Duration::from_millis(100), Duration::from_secs(30))
    }

    /// Returns when to look next.
    pub(super) fn due(&self) -> Instant {
        self.last.as_ref().map_or(self.since, |(at, _)| *at + self.step())
    }

    /// Looks, and says whether nothing has happened for the whole span. What cannot be read counts as something.
    pub(super) fn is_over(&mut self, now: Instant) -> bool {
        if now < self.due() {
            return false;
        }
        let done = done_below(self.root);
        let quiet = match (&self.last, &done) {
            (Some((then, before)), Ok(after)) => is_quiet(before, after, now.duration_since(*then)),
            (None, _) | (_, Err(_)) => false,
        };
        if !quiet {
            self.since = now;
        }
        self.last = Some((now, done.unwrap_or_default()));
        quiet && now.duration_since(self.since) >= self.span
    }
}

fn done_below(root: ProcessId) -> Known<Done> {
    let unread = || Unknown::new(Reason::Denied, "what a process has read and written");
    below(root, |_| false)?
        .into_iter()
        .map(|kin| {
            let text = std::fs::read(format!("/proc/{}/io", kin.id.pid)).map_err(|_| unread())?;
            let moved = moved(&text).ok_or_else(unread)?;
            let row = observe::bearer(kin.id.pid)?.ok_or_else(unread)?;
            Ok((kin.id, (moved, row.cpu)))
        })
        .collect()
}

/// Returns the bytes that read(2), write(2) and their like have moved (proc_pid_io(5)).
fn moved(io: &[u8]) -> Option<u64> {
    let field = |name: &[u8]| {
        let line = io.lines().find_map(|line| line.strip_prefix(name))?;
        line.to_str().ok()?.trim().parse::<u64>().ok()
    };
    Some(field(b"rchar:")?.wrapping_add(field(b"wchar:")?))
}

/// Says whether the same processes moved no byte and used no more than a hundredth of a processor together.
fn is_quiet(before: &Done, after: &Done, between: Duration) -> bool {
    let same = before.len() == after.len()
        && before.iter().zip(after).all(|((id, (moved, _)), (now, (moves, _)))| id == now && moved == moves);
    let cpu = |done: &Done| done.values().map(|(_, cpu)| *cpu).sum::<Duration>();
    same && cpu(after).saturating_sub(cpu(before)) <= between / 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::Start;

    fn id(pid: i32) -> ProcessId {
        ProcessId { pid: Pid::new(pid).unwrap(), start: Start(1) }
    }

    #[test]
    fn one_name_stands_once_and_nothing_moves_a_cursor_s4() {
        let kin = |pid, name: &str| Kin { id: id(pid), name: name.into() };
        let all = [kin(881, "gradle"), kin(902, "chrome"), kin(911, "chrome"), kin(5, "a\x1b[2J")];
        assert_eq!(named(&all[..3]), "gradle 881, chrome 902, 911");
        assert_eq!(named(&all[3..]), "a\\u{1b}[2J 5");
        let many: Vec<Kin> = (1..=20).map(|pid| kin(pid, "x")).collect();
        assert!(named(&many).ends_with("12, …"), "{}", named(&many));
    }

    #[test]
    fn any_byte_any_newcomer_and_more_than_a_hundredth_of_a_processor_is_progress() {
        let done = |moved, millis| Done::from([(id(7), (moved, Duration::from_millis(millis)))]);
        let second = Duration::from_secs(1);
        assert!(is_quiet(&done(5, 100), &done(5, 100), second));
        assert!(is_quiet(&done(5, 100), &done(5, 110), second));
        assert!(!is_quiet(&done(5, 100), &done(5, 120), second));
        assert!(!is_quiet(&done(5, 100), &done(6, 100), second));
        assert!(!is_quiet(&done(5, 100), &Done::new(), second));
        let more = Done::from([(id(7), (5, Duration::ZERO)), (id(8), (0, Duration::ZERO))]);
        assert!(!is_quiet(&done(5, 0), &more, second));
    }

    #[test]
    fn the_lines_of_proc() {
        assert_eq!(moved(b"rchar: 10\nwchar: 5\nsyscr: 1\n"), Some(15));
        assert_eq!(moved(b"rchar: 10\n"), None);
        assert_eq!(ignored(b"Name:\tx\nSigIgn:\t0000000000000001\n"), Some(1));
        assert_eq!(ignored(b"Name:\tx\n"), None);
    }

    #[test]
    fn whoever_is_below_us_is_found() {
        let mut child = std::process::Command::new("sh").args(["-c", "sleep 60 & wait"]).spawn().unwrap();
        let pid = Pid::new(i32::try_from(child.id()).unwrap()).unwrap();
        let root = sight_of(pid).unwrap().id;
        let begun = Instant::now();
        let sleeping = loop {
            let found = below(root, |_| false).unwrap();
            if let [kin] = &found[..]
                && kin.name == "sleep"
            {
                break kin.clone();
            }
            assert!(begun.elapsed() < Duration::from_secs(20), "it never slept: {found:?}");
            std::thread::yield_now();
        };
        assert!(sleeping.is_alive());
        assert_eq!(below(root, |_| true).unwrap(), []);
        assert!(
            !ignores_hangup(sleeping.id.pid, Hangup::Ends)
                || super::super::signals::hangup() == Hangup::Ignored
        );
        let raw = rustix::process::Pid::from_raw(sleeping.id.pid.number()).unwrap();
        rustix::process::kill_process(raw, rustix::process::Signal::KILL).unwrap();
        child.wait().unwrap();
        assert!(!sleeping.is_alive());
    }
}
