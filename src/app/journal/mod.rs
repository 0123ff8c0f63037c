//! What was intended and what became of it, as JSON lines: written before the first signal, and after.
//!
//! No writable journal, no signal (REDTEAM S8): whoever cannot say afterwards what was done must not do it.

pub mod entry;
pub mod history;
pub mod stopped;

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom, Write as _};
use std::time::Duration;

use super::legible::legible;
use super::state::{State, StateError};
use crate::config::policy::{ArgumentsShown, JournalSettings};
use crate::model::id::BootId;
use crate::model::look::Snapshot;
use crate::model::moment::Clocks;
use entry::{Entry, Event, VERSION};

/// The journal in use.
pub const CURRENT: &str = "journal.jsonl";
/// The one before it.
pub const OLDER: &str = "journal.1.jsonl";

/// Two files of this size at most: some ten thousand teardowns.
const LARGEST: u64 = 16 * 1024 * 1024;

/// The journal, open for writing.
#[derive(Debug)]
pub struct Journal<'a> {
    state: &'a State,
    file: File,
    settings: JournalSettings,
    boot: BootId,
    pid_namespace: Option<u64>,
    sweep: u64,
    end: End,
}

/// How the file ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// With a whole line.
    Whole,
    /// With part of one, since a write failed (a full disk).
    Torn,
}

/// Whether a line must have reached the disk before we go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Durability {
    /// It must: a signal follows.
    Synced,
    /// A crash of the machine may lose it; a crash of ours may not.
    Handed,
}

/// Why a line could not be written.
#[derive(Debug, thiserror::Error)]
pub enum JournalError {
    /// The file cannot be had.
    #[error("journal")]
    State(#[from] StateError),
    /// It cannot be written to.
    #[error("cannot write to the journal")]
    Write(#[source] std::io::Error),
    /// The event cannot be written down.
    #[error("cannot write an event as JSON")]
    Encode(#[from] serde_json::Error),
}

impl<'a> Journal<'a> {
    /// Opens the journal for one sweep, ending a line that a crash tore.
    pub fn open(
        state: &'a State,
        settings: JournalSettings,
        seen: &Snapshot,
        now: Clocks,
    ) -> Result<Journal<'a>, JournalError> {
        let file = whole_lines(state.append(CURRENT)?).map_err(JournalError::Write)?;
        Ok(Journal {
            state,
            file,
            settings,
            boot: seen.boot.clone(),
            pid_namespace: pid_namespace(seen),
            sweep: now.wall,
            end: End::Whole,
        })
    }

    /// Writes one event.
    pub fn note(&mut self, event: Event, now: Clocks, durability: Durability) -> Result<(), JournalError> {
        let entry = Entry {
            v: VERSION,
            at: now.wall,
            boot: self.boot.clone(),
            pid_namespace: self.pid_namespace,
            sweep: self.sweep,
            clock: now.boot,
            event,
        };
        let mut line = legible(&entry, self.settings.arguments)?.to_string();
        line.push('\n');
        if self.end == End::Torn {
            // Or the torn line would take this one with it.
            line.insert(0, '\n');
        }
        self.end = End::Torn;
        // One write, so that lines of two processes never mix (O_APPEND) and a crash tears the last line at most.
        self.file.write_all(line.as_bytes()).map_err(JournalError::Write)?;
        self.end = End::Whole;
        match durability {
            Durability::Synced => self.file.sync_data().map_err(JournalError::Write),
            Durability::Handed => Ok(()),
        }
    }

    /// Sets the journal aside when it has grown large or old, and forgets what was set aside before.
    /// Call it when nothing is unfinished: an unfinished intent must stay where it is looked for.
    pub fn rotate(&mut self, now: Clocks) -> Result<(), JournalError> {
        let length = self.file.metadata().map_err(JournalError::Write)?.len();
        let keep = u64::try_from(self.settings.keep.as_millis()).unwrap_or(u64::MAX);
        let oldest = history::first(self.state)?.unwrap_or(now.wall);
        if length == 0 || (length < LARGEST && now.wall.saturating_sub(oldest) < keep) {
            return Ok(());
        }
        self.state.rename(CURRENT, OLDER)?;
        self.file = self.state.append(CURRENT)?;
        Ok(())
    }
}

/// Returns the pid namespace that a look was taken in, where it is known.
pub fn pid_namespace(seen: &Snapshot) -> Option<u64> {
    seen.own.namespaces.as_ref().ok().map(|own| own.pid)
}

/// Returns the file with its last line ended.
fn whole_lines(mut file: File) -> std::io::Result<File> {
    let length = file.seek(SeekFrom::End(0))?;
    if length > 0 {
        file.seek(SeekFrom::Start(length - 1))?;
        let mut last = [0];
        file.read_exact(&mut last)?;
        if last != *b"\n" {
            file.write_all(b"\n")?;
        }
    }
    Ok(file)
}

/// Settings for reading and for tests: everything of the last 90 days, secrets starred out.
pub const USUAL: JournalSettings =
    JournalSettings { keep: Duration::from_hours(90 * 24), arguments: ArgumentsShown::Redacted };

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::sample;
    use crate::model::moment::Moment;
    use entry::By;

    fn clocks(wall: u64) -> Clocks {
        Clocks { boot: Moment(7), monotonic: 7, wall }
    }

    fn intent(pid: i32) -> Event {
        Event::Intent { teardown: Box::new(sample::teardown(pid, "p")), by: By::Hand }
    }

    fn state() -> (tempfile::TempDir, State) {
        let base = tempfile::tempdir().unwrap();
        let state = State::open(&base.path().join("s")).unwrap();
        (base, state)
    }

    #[test]
    fn a_torn_last_line_is_skipped_and_costs_nothing_else_f12() {
        let (_base, state) = state();
        let seen = sample::snapshot(&[]);
        Journal::open(&state, USUAL, &seen, clocks(1))
            .unwrap()
            .note(intent(10), clocks(1), Durability::Synced)
            .unwrap();
        state.append(CURRENT).unwrap().write_all(b"{\"v\":1,\"at\":2,\"boo").unwrap();
        Journal::open(&state, USUAL, &seen, clocks(3))
            .unwrap()
            .note(intent(20), clocks(3), Durability::Synced)
            .unwrap();
        let history = history::read(&state, 0).unwrap();
        assert_eq!(history.entries.len(), 2);
        assert_eq!(history.skipped, 1);
        assert_eq!(history.entries[0].event, intent(10));
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_write_that_fails_takes_no_later_line_with_it_s8() {
        let (_base, state) = state();
        let mut journal = Journal::open(&state, USUAL, &sample::snapshot(&[]), clocks(1)).unwrap();
        let file = journal.file.try_clone().unwrap();
        journal.file = File::options().write(true).open("/dev/full").unwrap();
        assert!(journal.note(intent(10), clocks(1), Durability::Handed).is_err());
        state.append(CURRENT).unwrap().write_all(b"{\"v\":1,\"at\":2,\"boo").unwrap();
        journal.file = file;
        journal.note(intent(20), clocks(3), Durability::Handed).unwrap();
        let history = history::read(&state, 0).unwrap();
        assert_eq!((history.entries.len(), history.skipped), (1, 1));
    }

    #[test]
    fn set_aside_when_old_and_still_read() {
        let (_base, state) = state();
        let seen = sample::snapshot(&[]);
        let settings = JournalSettings { keep: Duration::from_secs(1), ..USUAL };
        let mut journal = Journal::open(&state, settings, &seen, clocks(1)).unwrap();
        journal.note(intent(10), clocks(1), Durability::Handed).unwrap();
        journal.rotate(clocks(500)).unwrap();
        assert!(state.read(OLDER).unwrap().is_none());
        journal.rotate(clocks(1_001)).unwrap();
        assert!(state.read(OLDER).unwrap().is_some());
        journal.note(intent(20), clocks(1_002), Durability::Handed).unwrap();
        assert_eq!(history::read(&state, 0).unwrap().entries.len(), 2);
        assert_eq!(history::read(&state, 2).unwrap().entries.len(), 1, "older than asked for is not told");
    }

    #[test]
    fn arguments_are_starred_out_on_the_disk() {
        let (base, state) = state();
        let mut teardown = sample::teardown(10, "p");
        teardown.judgement.argv = vec!["x".into(), "--token=t0p".into()];
        let event = Event::Intent { teardown: Box::new(teardown), by: By::Hand };
        let mut journal = Journal::open(&state, USUAL, &sample::snapshot(&[]), clocks(1)).unwrap();
        journal.note(event, clocks(1), Durability::Synced).unwrap();
        let written = std::fs::read_to_string(base.path().join("s").join(CURRENT)).unwrap();
        assert!(written.contains("--token=***") && !written.contains("t0p"), "{written}");
    }

    #[test]
    fn lines_say_in_which_pid_namespace_and_older_ones_are_read_without() {
        let (_base, state) = state();
        let mut seen = sample::snapshot(&[]);
        Journal::open(&state, USUAL, &seen, clocks(1))
            .unwrap()
            .note(intent(10), clocks(1), Durability::Handed)
            .unwrap();
        let first = state.read(CURRENT).unwrap().unwrap();
        assert!(!String::from_utf8(first).unwrap().contains("pid_namespace"), "as older lines are");
        seen.own.namespaces =
            Ok(crate::model::facts::Namespaces { pid: 7, mount: 1, net: 1, time: 1, user: 1 });
        Journal::open(&state, USUAL, &seen, clocks(2))
            .unwrap()
            .note(intent(20), clocks(2), Durability::Handed)
            .unwrap();
        let history = history::read(&state, 0).unwrap();
        let namespaces: Vec<_> = history.entries.iter().map(|entry| entry.pid_namespace).collect();
        assert_eq!(namespaces, [None, Some(7)]);
    }

    #[test]
    fn what_a_tree_left_is_written_down_before_and_after_and_older_lines_are_read() {
        let (_base, state) = state();
        let seen = sample::snapshot(&[]);
        let mut journal = Journal::open(&state, USUAL, &seen, clocks(1)).unwrap();
        let removal = sample::removal("left");
        journal.note(intent(10), clocks(1), Durability::Handed).unwrap();
        for name in ["left", "open"] {
            let removal = Box::new(sample::removal(name));
            journal
                .note(Event::ResidueIntent { removal, by: By::Hand }, clocks(2), Durability::Handed)
                .unwrap();
        }
        let cleared = Box::new(removal.ended(crate::model::residue::Fate::Removed));
        journal.note(Event::ResidueOutcome { cleared }, clocks(3), Durability::Handed).unwrap();
        // A line as it was written before anything was known of residue.
        let older = r#"{"v":1,"at":4,"boot":"b","sweep":1,"clock":7,"event":{"seen-gone":{"root":{"pid":10,"start":100},"ids":[]}}}"#;
        state.append(CURRENT).unwrap().write_all(format!("{older}\n").as_bytes()).unwrap();
        let history = history::read(&state, 0).unwrap();
        assert_eq!((history.entries.len(), history.skipped), (5, 0));
        assert_eq!(history::stories(&history).len(), 1);
        let clearings = history::clearings(&history);
        let ended: Vec<_> =
            clearings.iter().map(|one| (&one.removal.place.name[..], one.cleared.is_some())).collect();
        assert_eq!(ended, [(&b"left"[..], true), (&b"open"[..], false)]);
    }
}
