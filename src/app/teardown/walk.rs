//! Looks for newborn members by lists of children: beside thousands of processes whole scans are too slow to overtake
//! a tree that forks.

use std::collections::BTreeMap;

use crate::act::processes::{self, HoldError, Pinned, Sight};
use crate::model::id::{Pid, ProcessId};
use crate::model::known::Reason;
use crate::plan::escalation::Search;

use super::climb::{Climb, Eyes};
use super::{Admission, Came, Scene};

/// How often a newborn process may run another program while it is looked at: fork(2), a shell, and its command.
const EXECS: usize = 4;

/// How often a newborn process that is not let in is asked about again before it is left alone: within execve(2) and
/// on its way out a process has no readable program, and both take longer than a walk.
const PATIENCE: u32 = 64;

/// No process is in a session of this number.
const NO_SESSION: i32 = 0;

/// The children of reapers, as seen so far by all trees together: each is looked at once.
#[derive(Debug, Default)]
pub(super) struct Adopters {
    /// For each reaper the session of each child; a session once left for one's own is never entered again.
    sessions: BTreeMap<ProcessId, BTreeMap<Pid, i32>>,
}

impl Adopters {
    /// Returns the children of a reaper that are in one of these sessions, and whose number no member bears or bore.
    fn in_sessions(
        &mut self,
        reaper: ProcessId,
        wanted: &[i32],
        is_known: impl Fn(Pid) -> bool,
    ) -> Result<Vec<Pid>, Reason> {
        let children = processes::children_of(reaper).map_err(|unknown| unknown.reason)?;
        let before = self.sessions.remove(&reaper).unwrap_or_default();
        let mut after = BTreeMap::new();
        let mut found = Vec::new();
        for pid in children {
            let sid = match before.get(&pid) {
                Some(sid) => *sid,
                None if is_known(pid) => continue,
                None => match processes::sight_of(pid) {
                    // A corpse keeps its number as long as it is listed.
                    Ok(sight) if sight.is_gone() => NO_SESSION,
                    Ok(sight) => sight.sid,
                    Err(_) => continue,
                },
            };
            after.insert(pid, sid);
            if wanted.contains(&sid) {
                found.push(pid);
            }
        }
        self.sessions.insert(reaper, after);
        Ok(found)
    }

    /// Forgets the session of a child that is known already, for as long as the reaper lists it.
    fn dismiss(&mut self, reaper: ProcessId, pid: Pid) {
        if let Some(sid) = self.sessions.get_mut(&reaper).and_then(|children| children.get_mut(&pid)) {
            *sid = NO_SESSION;
        }
    }
}

impl Climb<'_> {
    /// Walks the children of every held member, and where that brings nobody, those of the reapers.
    pub(super) fn walk<S: Scene>(&mut self, scene: &mut S, adopters: &mut Adopters) -> Search {
        // Whoever was sent KILL makes no more children, and those it had were listed then.
        let parents: Vec<ProcessId> = self.held.keys().copied().filter(|id| !self.was_killed(*id)).collect();
        let mut found = Search::Empty;
        for parent in parents {
            let Some(held) = self.held.get(&parent) else { continue };
            match held.children() {
                Ok(children) => found = either(found, self.consider_children(parent, &children, scene)),
                Err(unknown) => self.doubt(unknown.reason),
            }
        }
        match found {
            Search::Newborn => Search::Newborn,
            Search::Empty => self.walk_adopters(scene, adopters),
        }
    }

    /// Takes in those children of a held member that are new.
    ///
    /// The member may be gone by now, when a signal was on its way while its children were listed. Then a child has
    /// been adopted, and is still in the session that its parent was in.
    pub(super) fn consider_children<S: Scene>(
        &mut self,
        parent: ProcessId,
        children: &[Pid],
        scene: &mut S,
    ) -> Search {
        let mut found = Search::Empty;
        if children.is_empty() {
            return found;
        }
        let sid = self.held.get(&parent).map(|held| held.first_sight().sid);
        for &pid in children {
            found = either(found, self.consider_child(parent, sid, pid, scene));
        }
        found
    }

    /// Takes in one child, if it is new. One that runs another program between two reads is looked at again as what
    /// it is then.
    fn consider_child<S: Scene>(
        &mut self,
        parent: ProcessId,
        sid: Option<i32>,
        pid: Pid,
        scene: &mut S,
    ) -> Search {
        let mut found = Search::Empty;
        for _ in 0..EXECS {
            let Some(pinned) = self.pin_newborn(pid) else { break };
            let sight = pinned.sight();
            let is_child = sight.ppid == parent.pid.number()
                && self.held.get(&parent).is_some_and(|parent| !parent.is_gone());
            let is_adopted = self.reapers.iter().any(|reaper| reaper.pid.number() == sight.ppid);
            let is_orphan = is_adopted && sid == Some(sight.sid);
            let is_older = sight.id.start < parent.start;
            if is_older || !(is_child || is_orphan) {
                break;
            }
            found = either(found, self.admit(pinned, Came::Below(parent), scene));
        }
        found
    }

    /// Takes in adopted processes of a session that a member leads, with a held member in it before and after.
    fn walk_adopters<S: Scene>(&mut self, scene: &mut S, adopters: &mut Adopters) -> Search {
        let mut found = Search::Empty;
        let sessions = self.led_sessions();
        if sessions.is_empty() {
            return found;
        }
        for reaper in self.reapers.clone() {
            let candidates = match adopters.in_sessions(reaper, &sessions, |pid| self.bears(pid)) {
                Ok(candidates) => candidates,
                Err(reason) => {
                    self.doubt(reason);
                    continue;
                }
            };
            for pid in candidates {
                let Some(pinned) = self.pin_newborn(pid) else {
                    adopters.dismiss(reaper, pid);
                    continue;
                };
                let sight = pinned.sight();
                let sid = sight.sid;
                let fits = sight.ppid == reaper.pid.number()
                    && sid != pid.number()
                    && sight.id.start >= self.teardown.judgement.root.start;
                // It is pinned in that session already; a witness that is in it now keeps the number the tree's.
                if let Some(witness) = self.witness(sid).filter(|_| fits && sessions.contains(&sid)) {
                    found = either(found, self.admit(pinned, Came::Session(witness), scene));
                }
            }
        }
        found
    }

    /// Returns the sessions that are named by a member's number and had a held member in them.
    pub(super) fn led_sessions(&self) -> Vec<i32> {
        let mut sessions: Vec<i32> = self.held.values().map(|held| held.first_sight().sid).collect();
        sessions.sort_unstable();
        sessions.dedup();
        sessions.retain(|sid| Pid::new(*sid).is_some_and(|pid| self.bears(pid)));
        sessions
    }

    /// Says whether a member bears this number, or bore it while it lived.
    fn bears(&self, pid: Pid) -> bool {
        self.members.range(first(pid)..).next().is_some_and(|(id, _)| id.pid == pid)
    }

    /// Returns a held member that is in this session now.
    fn witness(&self, sid: i32) -> Option<ProcessId> {
        self.held
            .iter()
            .filter(|(_, held)| held.first_sight().sid == sid)
            .find(|(_, held)| held.sight().is_ok_and(|now| now.sid == sid))
            .map(|(id, _)| *id)
    }

    /// Pins whoever bears a number, unless it is known already or gone.
    pub(super) fn pin_newborn(&self, pid: Pid) -> Option<Pinned> {
        // A held process keeps its number.
        let is_held = self.held.range(first(pid)..).next().is_some_and(|(id, _)| id.pid == pid);
        if is_held {
            return None;
        }
        let sight: Sight = processes::sight_of(pid).ok().filter(|sight| !sight.is_gone())?;
        if self.members.contains_key(&sight.id) || self.spared.contains_key(&sight.id) {
            return None;
        }
        Pinned::pin(sight.id).ok()
    }

    pub(super) fn admit<S: Scene>(&mut self, pinned: Pinned, came: Came, scene: &mut S) -> Search {
        let id = pinned.sight().id;
        match scene.admit(self.teardown, pinned.sight(), came) {
            Admission::Join(member) => match pinned.hold(&member.identity) {
                Ok(held) => {
                    self.take(&member, held);
                    Search::Newborn
                }
                // It went by itself, or ran another program between two reads: the walk was not empty all the same,
                // and the next one sees what is there then.
                Err(HoldError::Gone | HoldError::IdentityChanged) => Search::Newborn,
                Err(error) => {
                    self.lose(&member, &error, scene.now());
                    Search::Newborn
                }
            },
            Admission::Spare(why) => {
                let tries = self.tries.entry(id).or_default();
                *tries += 1;
                if *tries < PATIENCE {
                    return Search::Newborn;
                }
                self.spared.insert(id, why);
                Search::Empty
            }
        }
    }

    fn doubt(&mut self, reason: Reason) {
        if reason != Reason::Vanished {
            self.sight = Eyes::Blind;
        }
    }
}

pub(super) fn first(pid: Pid) -> ProcessId {
    ProcessId { pid, start: crate::model::id::Start(0) }
}

fn either(a: Search, b: Search) -> Search {
    if a == Search::Newborn { a } else { b }
}
