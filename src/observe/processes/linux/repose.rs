//! Whether a process merely sleeps, and how far a tree got: without both, the silence of a server says nothing.

use bstr::ByteSlice as _;
use rustix::fs::{Dir, Mode, OFlags, openat};
use rustix::io::Errno;

use crate::model::facts::Freezer;
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::Progress;

use super::facts::{TEXT_MOST, moved};
use super::pinned::{Fault, Pinned, bounded, unknown};
use super::{cgroup, status};

/// Threads of one process that are looked at; of more it is unknown whether all sleep.
const THREADS_MOST: usize = 4096;

/// Says that nobody holds a process up: each of its threads sleeps and waits for something to come, none is traced,
/// and its cgroup is not frozen. Whatever else is the case is the error, in words.
pub(in crate::observe) fn at_rest(id: ProcessId) -> Known<()> {
    let pinned = Pinned::open(id)?;
    let status = status::parse(&pinned.read(c"status", TEXT_MOST)?);
    match status.tracer {
        Some(0) => {}
        Some(_) => return Err(restless("somebody traces it")),
        None => return Err(Unknown::new(Reason::Unsupported, "whether somebody traces it")),
    }
    if cgroup::freezer(&pinned.read(c"cgroup", TEXT_MOST)?)? == Freezer::Frozen {
        return Err(restless("its cgroup is frozen"));
    }
    let what = "what its threads do";
    let tasks =
        pinned.file(c"task", OFlags::RDONLY | OFlags::DIRECTORY).map_err(|errno| unknown(errno, what))?;
    let mut count = 0;
    for entry in Dir::read_from(&tasks).map_err(|errno| unknown(errno, what))? {
        let entry = entry.map_err(|errno| unknown(errno, what))?;
        let name = entry.file_name().to_bytes();
        if !name.iter().all(u8::is_ascii_digit) {
            continue;
        }
        count += 1;
        if count > THREADS_MOST {
            return Err(Unknown::new(Reason::Truncated, what));
        }
        let path = [name, b"/stat"].concat();
        // A thread that came or went meanwhile ran.
        let went = |errno| match errno {
            Errno::NOENT | Errno::SRCH => restless("a thread of it came or went"),
            other => unknown(other, what),
        };
        let file =
            openat(&tasks, path.as_slice(), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).map_err(went)?;
        let text = bounded(file, TEXT_MOST).map_err(|fault| match fault {
            Fault::More => Unknown::new(Reason::Truncated, what),
            Fault::Errno(errno) => went(errno),
        })?;
        if let Some(why) = restlessness(&text) {
            return Err(restless(why));
        }
    }
    if count == 0 {
        return Err(Unknown::new(Reason::Vanished, what));
    }
    pinned.row().map(drop)
}

/// Returns how far the processes got so far, all together. One that cannot be read leaves it unknown.
pub(in crate::observe) fn progress(tree: &[ProcessId]) -> Known<Progress> {
    let mut all = Progress { moved: 0, cpu: std::time::Duration::ZERO };
    for id in tree {
        let pinned = Pinned::open(*id)?;
        let activity = moved(&pinned)?;
        all.moved = all.moved.saturating_add(activity.read).saturating_add(activity.written);
        all.cpu = all.cpu.saturating_add(pinned.row()?.cpu);
    }
    Ok(all)
}

fn restless(why: &str) -> Unknown {
    Unknown::new(Reason::Unsound, format!("its silence while {why}"))
}

/// Returns what a thread does other than sleeping, by its state in `stat` (proc_pid_stat(5)).
fn restlessness(stat: &[u8]) -> Option<&'static str> {
    let state = stat.rfind_byte(b')').and_then(|end| stat.get(end + 2));
    match state {
        Some(b'S') => None,
        Some(b'R') => Some("it runs, or waits for a processor"),
        Some(b'D') => Some("it waits for a disk"),
        Some(b'T') => Some("it is stopped"),
        Some(b't') => Some("somebody traces it"),
        Some(b'Z' | b'X' | b'x') => Some("a thread of it is dead"),
        Some(_) | None => Some("it does something unheard of"),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_sleep_is_sleep_b07() {
        let line = |state: &str| format!("7 (a) S) {state} 1 2 3");
        assert_eq!(restlessness(line("S").as_bytes()), None);
        for state in ["R", "D", "T", "t", "Z", "X", "I", "P", ""] {
            assert!(restlessness(line(state).as_bytes()).is_some(), "{state}");
        }
    }

    #[test]
    fn we_ourselves_are_not_at_rest() {
        let own = super::super::owner::bearer(
            crate::model::id::Pid::new(i32::try_from(std::process::id()).unwrap()).unwrap(),
        );
        let own = own.unwrap().unwrap().id;
        let why = at_rest(own).unwrap_err();
        // This thread runs; another one that is looked at first may wait for a disk.
        let whys = ["it runs, or waits for a processor", "it waits for a disk"];
        assert!(whys.iter().any(|one| why.to_string().contains(one)), "{why}");
        assert!(progress(&[own]).unwrap().moved > 0);
        let stranger = ProcessId { start: crate::model::id::Start(own.start.0 + 1), ..own };
        assert!(progress(&[own, stranger]).is_err());
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(text in proptest::collection::vec(any::<u8>(), 0..60)) {
            let _ = restlessness(&text);
        }
    }
}
