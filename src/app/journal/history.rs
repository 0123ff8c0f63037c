//! Reads the journal back: what was done to whom, and what a crash cut short.

use std::collections::{BTreeMap, BTreeSet};

use super::entry::{Entry, Event, VERSION};
use super::{CURRENT, OLDER};
use crate::app::state::{State, StateError};
use crate::model::id::{BootId, FileId, Pid, ProcessId};
use crate::model::plan::Teardown;
use crate::model::residue::{Cleared, Place, Removal};

/// What the journal tells.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct History {
    /// In the order they were written.
    pub entries: Vec<Entry>,
    /// Lines that are torn or of another version.
    pub skipped: usize,
}

/// One teardown, from its intent to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Story<'a> {
    /// The intent.
    pub intent: &'a Entry,
    /// What was intended.
    pub teardown: &'a Teardown,
    /// What followed, in order.
    pub events: Vec<&'a Entry>,
}

/// The latest teardown of each process, by the boot and the pid namespace in which it was written.
type Open<'a> = BTreeMap<(&'a BootId, Option<u64>, ProcessId), usize>;

/// Reads everything that was written at or after `since`, milliseconds of the wall clock.
pub fn read(state: &State, since: u64) -> Result<History, StateError> {
    let mut history = History::default();
    for name in [OLDER, CURRENT] {
        let Some(content) = state.read(name)? else { continue };
        for line in content.split(|&byte| byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice::<Entry>(line) {
                Ok(entry) if entry.v == VERSION => {
                    if entry.at >= since {
                        history.entries.push(entry);
                    }
                }
                Ok(_) | Err(_) => history.skipped += 1,
            }
        }
    }
    Ok(history)
}

/// Returns when the oldest line of the current journal was written.
pub fn first(state: &State) -> Result<Option<u64>, StateError> {
    let Some(content) = state.read(CURRENT)? else { return Ok(None) };
    let mut lines = content.split(|&byte| byte == b'\n');
    Ok(lines.find_map(|line| serde_json::from_slice::<Entry>(line).ok()).map(|entry| entry.at))
}

/// Returns every teardown, in the order of their intents.
pub fn stories(history: &History) -> Vec<Story<'_>> {
    let mut stories: Vec<Story<'_>> = Vec::new();
    // A later intent for the same process (it survived, and was condemned again) begins a story of its own.
    let mut open: Open<'_> = BTreeMap::new();
    for entry in &history.entries {
        let Some(root) = entry.event.root() else { continue };
        let key = (&entry.boot, entry.pid_namespace, root);
        if let Event::Intent { teardown, .. } = &entry.event {
            open.insert(key, stories.len());
            stories.push(Story { intent: entry, teardown, events: Vec::new() });
        } else if let Some(at) = open.get(&key).copied().or_else(|| left_behind(&open, entry)) {
            stories[at].events.push(entry);
        }
    }
    stories
}

/// One thing that a tree left behind, from the intent to remove it to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clearing<'a> {
    /// The intent.
    pub intent: &'a Entry,
    /// What was to be removed.
    pub removal: &'a Removal,
    /// What became of it; nothing where that was never written down.
    pub cleared: Option<&'a Cleared>,
}

/// Returns everything that was to be removed, in the order of the intents. An outcome belongs to the latest intent
/// about the same file at the same place that has none yet, of whatever boot: files outlive it.
pub fn clearings(history: &History) -> Vec<Clearing<'_>> {
    let mut clearings: Vec<Clearing<'_>> = Vec::new();
    let mut open: BTreeMap<(&Place, FileId), Vec<usize>> = BTreeMap::new();
    for entry in &history.entries {
        match &entry.event {
            Event::ResidueIntent { removal, .. } => {
                open.entry((&removal.place, removal.own.file)).or_default().push(clearings.len());
                clearings.push(Clearing { intent: entry, removal, cleared: None });
            }
            Event::ResidueOutcome { cleared } => {
                if let Some(at) = open.get_mut(&(&cleared.place, cleared.file)).and_then(Vec::pop) {
                    clearings[at].cleared = Some(cleared);
                }
            }
            Event::Intent { .. }
            | Event::Signalled { .. }
            | Event::GroupKilled { .. }
            | Event::SeenGone { .. }
            | Event::Outcome { .. }
            | Event::StopIntent { .. }
            | Event::StopStep { .. }
            | Event::StopOutcome { .. }
            | Event::Abandoned { .. } => {}
        }
    }
    clearings
}

/// Returns the teardown of an earlier boot that this entry gives up: it is written in the boot that came after.
fn left_behind(open: &Open<'_>, entry: &Entry) -> Option<usize> {
    let Event::Abandoned { root, .. } = &entry.event else { return None };
    let is_meant = |(boot, namespace, of): &(&BootId, Option<u64>, ProcessId)| {
        *boot != &entry.boot && *namespace == entry.pid_namespace && of == root
    };
    open.iter().filter(|(key, _)| is_meant(key)).map(|(_, at)| *at).max()
}

impl Story<'_> {
    /// Says whether its end was written down.
    pub fn is_finished(&self) -> bool {
        self.events.iter().any(|entry| matches!(entry.event, Event::Outcome { .. } | Event::Abandoned { .. }))
    }

    /// Returns everybody who was seen gone.
    pub fn seen_gone(&self) -> BTreeSet<ProcessId> {
        let mut gone = BTreeSet::new();
        for entry in &self.events {
            match &entry.event {
                Event::SeenGone { ids, .. } => gone.extend(ids),
                Event::Outcome { report } => {
                    gone.extend(
                        report.members.iter().filter(|member| member.gone.is_some()).map(|member| member.id),
                    );
                }
                Event::Intent { .. }
                | Event::Signalled { .. }
                | Event::GroupKilled { .. }
                | Event::ResidueIntent { .. }
                | Event::ResidueOutcome { .. }
                | Event::StopIntent { .. }
                | Event::StopStep { .. }
                | Event::StopOutcome { .. }
                | Event::Abandoned { .. } => {}
            }
        }
        gone
    }

    /// Says whether a process was in it, as the root or as a member, newborn ones included.
    pub fn names(&self, pid: Pid) -> bool {
        self.teardown.judgement.root.pid == pid
            || self.teardown.members.iter().any(|member| member.identity.id.pid == pid)
            || self.events.iter().any(|entry| match &entry.event {
                Event::Outcome { report } => report.members.iter().any(|member| member.id.pid == pid),
                Event::Signalled { to, .. } | Event::GroupKilled { members: to, .. } => {
                    to.iter().any(|id| id.pid == pid)
                }
                Event::Intent { .. }
                | Event::SeenGone { .. }
                | Event::ResidueIntent { .. }
                | Event::ResidueOutcome { .. }
                | Event::StopIntent { .. }
                | Event::StopStep { .. }
                | Event::StopOutcome { .. }
                | Event::Abandoned { .. } => false,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::journal::entry::By;
    use crate::app::sample;
    use crate::model::moment::Moment;
    use crate::model::residue::Fate;

    fn history(events: Vec<Event>) -> History {
        let entry = |(at, event)| Entry {
            v: VERSION,
            at,
            boot: BootId("b".into()),
            pid_namespace: None,
            sweep: 1,
            clock: Moment(at),
            event,
        };
        History { entries: (1..).zip(events).map(entry).collect(), skipped: 0 }
    }

    #[test]
    fn one_outcome_closes_one_intent_and_what_names_nothing_closes_none_f12() {
        let intent = |name| Event::ResidueIntent { removal: Box::new(sample::removal(name)), by: By::Once };
        let outcome = |name| Event::ResidueOutcome {
            cleared: Box::new(sample::removal(name).ended(Fate::CutShort("x".into()))),
        };
        let closed = |events| -> Vec<bool> {
            clearings(&history(events)).iter().map(|clearing| clearing.cleared.is_some()).collect()
        };
        let twice = || vec![intent("pv-1"), intent("pv-1")];
        assert_eq!(closed(twice()), [false, false]);
        assert_eq!(closed([twice(), vec![outcome("pv-1")]].concat()), [false, true]);
        assert_eq!(closed([twice(), vec![outcome("pv-1"), outcome("pv-1")]].concat()), [true, true]);
        assert_eq!(closed([twice(), vec![outcome("pv-2")]].concat()), [false, false]);
    }
}
