//! Who carries a text, such as a socket's path, in its arguments or in a value of its environment.
//!
//! One pass over the processes of a user serves all texts that are asked for at once. It runs in the aside process, a
//! few processes at a time; where one of them hangs, the others are asked again without it.

use std::collections::{BTreeMap, BTreeSet};

use bstr::{BStr, BString, ByteSlice as _};
use serde::{Deserialize, Serialize};

use crate::model::id::{Pid, ProcessId, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::{Gap, Snapshot};
use crate::model::question::{Carriers, Question};
use crate::model::table::Kernel;

use super::aside::{Aside, Reply, Request};
use super::{misfit, processes};

/// Processes that are read in one request.
const TOGETHER: usize = 64;

/// Some processes, and the texts that are looked for in them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Naming {
    user: Uid,
    texts: Vec<BString>,
    ids: Vec<ProcessId>,
}

/// For each process, which of the texts it carries, by their places; in the aside process.
pub(super) type Carried = Vec<Known<Vec<usize>>>;

impl Naming {
    /// Reads what each of the processes was given, and looks for the texts. Another user's carries nothing.
    pub(super) fn read(&self) -> Carried {
        let of_one = |id: &ProcessId| {
            let Some(given) = processes::given(*id, self.user)? else { return Ok(Vec::new()) };
            let found = self.texts.iter().enumerate().filter(|(_, text)| names(&given, text.as_bstr()));
            Ok(found.map(|(at, _)| at).collect())
        };
        self.ids.iter().map(of_one).collect()
    }
}

/// Answers those of the questions that ask who carries a text, in their order.
/// `pinging` is another process of our own, which counts as little as the one that is asked here.
pub(super) fn answer(
    aside: &mut Aside,
    pinging: &Aside,
    snapshot: &Snapshot,
    questions: &[Question],
) -> Vec<Known<Carriers>> {
    let mut wanted: BTreeMap<Uid, BTreeSet<&BString>> = BTreeMap::new();
    for question in questions {
        let Question::Named { of, text } = question else { continue };
        if let Ok(user) = user(snapshot, *of, text) {
            wanted.entry(user).or_default().insert(text);
        }
    }
    let passes = wanted.into_iter().map(|(user, texts)| {
        let texts: Vec<BString> = texts.into_iter().cloned().collect();
        (user, Pass::over(aside, pinging, snapshot, user, texts))
    });
    let passes: BTreeMap<Uid, Pass> = passes.collect();
    let named = questions.iter().filter_map(|question| {
        let Question::Named { of, text } = question else { return None };
        let found = |user| passes.get(&user).and_then(|pass| pass.carriers(text)).ok_or_else(misfit);
        Some(user(snapshot, *of, text).and_then(found))
    });
    named.collect()
}

/// Returns whose process it is that a text is looked for.
fn user(snapshot: &Snapshot, of: ProcessId, text: &BString) -> Known<Uid> {
    if text.is_empty() || text.contains(&0) {
        return Err(Unknown::new(Reason::Unsupported, "who carries a text that nobody could carry"));
    }
    snapshot.arguments_of(of).map(|entry| entry.uid).ok_or_else(|| {
        Unknown::new(Reason::Vanished, format!("whose process {of} is, and who carries {text}"))
    })
}

/// What one pass over a user's processes found.
struct Pass {
    texts: Vec<BString>,
    /// By place of the text.
    seen: Vec<Vec<ProcessId>>,
    unread: Vec<ProcessId>,
    unseen: u32,
}

impl Pass {
    fn over(aside: &mut Aside, pinging: &Aside, snapshot: &Snapshot, user: Uid, texts: Vec<BString>) -> Pass {
        let is_other = |pid: Pid| pid != snapshot.own.pid && !aside.is_own(pid) && !pinging.is_own(pid);
        let rows = snapshot.table.rows().iter();
        let rows = rows.filter(|row| row.kernel == Kernel::No && !row.is_gone() && is_other(row.id.pid));
        let ids: Vec<ProcessId> = rows.map(|row| row.id).collect();
        let naming =
            |ids: &[ProcessId]| Request::Naming(Naming { user, texts: texts.clone(), ids: ids.to_vec() });
        let chunks: Vec<&[ProcessId]> = ids.chunks(TOGETHER).collect();
        let requests: Vec<Request> = chunks.iter().map(|ids| naming(ids)).collect();
        let mut pass = Pass {
            seen: vec![Vec::new(); texts.len()],
            unread: Vec::new(),
            unseen: unseen(snapshot),
            texts: Vec::new(),
        };
        let mut alone = Vec::new();
        for (ids, reply) in chunks.iter().zip(aside.ask(&requests)) {
            match reply.and_then(Reply::carried) {
                Ok(carried) if carried.len() == ids.len() => pass.take(ids, carried),
                Ok(_) | Err(_) => alone.extend(ids.iter().copied()),
            }
        }
        let requests: Vec<Request> = alone.iter().map(|id| naming(&[*id])).collect();
        for (id, reply) in alone.iter().zip(aside.ask(&requests)) {
            match reply.and_then(Reply::carried) {
                Ok(carried) if carried.len() == 1 => pass.take(&[*id], carried),
                Ok(_) | Err(_) => pass.unread.push(*id),
            }
        }
        pass.texts = texts;
        pass
    }

    fn take(&mut self, ids: &[ProcessId], carried: Carried) {
        for (id, carried) in ids.iter().zip(carried) {
            match carried {
                Ok(places) => {
                    for at in places {
                        if let Some(seen) = self.seen.get_mut(at) {
                            seen.push(*id);
                        }
                    }
                }
                // Who ended meanwhile carries nothing any more.
                Err(Unknown { reason: Reason::Vanished, .. }) => {}
                Err(_) => self.unread.push(*id),
            }
        }
    }

    fn carriers(&self, text: &BString) -> Option<Carriers> {
        let at = self.texts.iter().position(|known| known == text)?;
        let seen = self.seen.get(at)?.clone();
        Some(Carriers { seen, unread: self.unread.clone(), unseen: self.unseen })
    }
}

/// Returns how many there are at least whom the table cannot show.
fn unseen(snapshot: &Snapshot) -> u32 {
    let is_gap = snapshot.gaps.iter().any(|gap| gap.source == Gap::UNREAD);
    let is_blind = processes::is_blind(&snapshot.table) != Ok(false);
    u32::from(is_gap) + u32::from(is_blind)
}

/// Says whether the text stands among these strings, each ended by a NUL, at a place where no path goes on.
fn names(given: &[u8], text: &BStr) -> bool {
    given.find_iter(text).any(|at| {
        // A separator or a dot alone leads to the same file: `/tmp/s/`, or a path at the end of a sentence.
        let rest = given[at + text.len()..].trim_start_with(|letter| matches!(letter, '/' | '.'));
        !rest.first().is_some_and(|&byte| goes_on(byte))
    })
}

/// A file name may hold any byte; these are what makes another name of one in practice. Every other byte ends it, so
/// that a quote, a bracket or a comma behind a name hides nobody.
fn goes_on(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || !byte.is_ascii()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn named(given: &str) -> bool {
        names(given.as_bytes(), "/tmp/s".into())
    }

    #[test]
    fn a_text_counts_wherever_no_path_goes_on() {
        for whole in [
            "/tmp/s",
            "unix:/tmp/s",
            "--socket=/tmp/s\0--x",
            "{\"endpoint\":\"/tmp/s\"}",
            "/tmp/s,/tmp/t",
            "/tmp/s/",
            "it is at /tmp/s.",
            "/tmp/s2:/tmp/s",
            "/private/tmp/s",
        ] {
            assert!(named(whole), "{whole}");
        }
        for longer in ["/tmp/s2", "/tmp/s-old", "/tmp/s.lock", "/tmp/s/x", "/tmp/s_", "/tmp/sé", "/tmp/", ""]
        {
            assert!(!named(longer), "{longer}");
        }
    }

    #[test]
    fn whom_the_table_cannot_show_may_carry_it_b24() {
        let told = |rows: &str| {
            let text = format!("reapd world 1\nlook at 10d\n  pid ppid began command\n{rows}");
            crate::model::world::parse(&text).unwrap().remove(0).snapshot
        };
        let mut shown = told("  1 0 10d init\n  51 1 1d server\n");
        let before = unseen(&shown);
        shown.gaps.push(Gap {
            source: Gap::UNREAD.into(),
            why: Unknown::new(Reason::Starved, "x"),
            cure: None,
        });
        assert_eq!(unseen(&shown), before + 1);
        assert_eq!(unseen(&told("  51 1 1d server\n")), 1, "without process 1 others are hidden, too");
    }

    proptest! {
        #[test]
        fn hostile_bytes_never_panic(given in proptest::collection::vec(any::<u8>(), 0..80),
            text in proptest::collection::vec(1_u8.., 1..3)) {
            let _ = names(&given, text.as_bstr());
        }

        #[test]
        fn an_argument_of_its_own_is_found(before in "[^\0]{0,9}", text in "[^\0]{1,9}", after in "[^\0]{0,9}") {
            let given = format!("{before}\0{text}\0{after}");
            prop_assert!(names(given.as_bytes(), text.as_bytes().as_bstr()));
        }
    }
}
