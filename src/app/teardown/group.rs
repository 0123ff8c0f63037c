//! Kills everybody in the cgroup that `reapd run` made for a tree, at once: nothing else overtakes every chain of forks.
//!
//! The kernel asks nobody in it, so that this is done only where each one in it is a member that is killed now anyway.
//! Whoever is somebody else's there (a shared daemon, a stranger that was moved in) leaves the tree to the way by
//! single processes, which follows in any case.

use crate::act::cgroup::Group;
use crate::model::id::{Pid, ProcessId};
use crate::model::plan::Signal;
use crate::plan::escalation::Search;

use super::climb::Climb;
use super::walk::first;
use super::{Came, Event, Scene};

/// How often the list is read anew after newborn ones joined. A chain of forks lets a reading stand sooner or later.
const READINGS: usize = 64;

impl Climb<'_> {
    /// Kills the tree's cgroup, where everybody in it goes.
    pub(super) fn kill_group<S: Scene>(&mut self, scene: &mut S) {
        let Some((path, group)) = scene.group(self.teardown) else { return };
        for _ in 0..READINGS {
            let Ok(numbers) = group.members() else { return };
            if numbers.is_empty() {
                return;
            }
            match self.members_of(&numbers) {
                Ok(_) => return self.kill_all(&path, &group, scene),
                Err(strangers) => {
                    for pid in strangers {
                        if self.consider_grouped(pid, &numbers, scene) == Grouped::Stranger {
                            return;
                        }
                    }
                }
            }
        }
    }

    /// Returns who bears these numbers, where all of them are members that are to go and surely still themselves; else
    /// the numbers of the others.
    fn members_of(&self, numbers: &[Pid]) -> Result<Vec<ProcessId>, Vec<Pid>> {
        let mut members = Vec::new();
        let mut strangers = Vec::new();
        for &pid in numbers {
            let held = self.held.range(first(pid)..).next().filter(|(id, _)| id.pid == pid);
            let is_going = |id: &ProcessId| self.machine.live().any(|live| live == *id);
            match held {
                Some((id, held)) if is_going(id) && held.check().is_ok() => members.push(*id),
                Some(_) | None => strangers.push(pid),
            }
        }
        if strangers.is_empty() { Ok(members) } else { Err(strangers) }
    }

    /// Lets somebody join who was born in the cgroup meanwhile.
    fn consider_grouped<S: Scene>(&mut self, pid: Pid, listed: &[Pid], scene: &mut S) -> Grouped {
        let is_known = self.members.range(first(pid)..).next().is_some_and(|(id, _)| id.pid == pid);
        let Some(pinned) = self.pin_newborn(pid) else {
            // Gone again, or somebody who was spared or refused: the next reading tells which.
            let is_there = crate::act::processes::sight_of(pid).is_ok_and(|sight| !sight.is_gone());
            return if is_there || is_known { Grouped::Stranger } else { Grouped::Gone };
        };
        let sight = pinned.sight();
        // Its turn comes after its parent's.
        let waits = listed.iter().any(|one| one.number() == sight.ppid);
        let is_born_here = sight.id.start >= self.teardown.judgement.root.start;
        let is_below = self.held.iter().any(|(id, held)| id.pid.number() == sight.ppid && !held.is_gone());
        let is_adopted = self.reapers.iter().any(|reaper| reaper.pid.number() == sight.ppid);
        if !is_born_here || !(is_below || is_adopted) {
            // Its parent may have gone within the look; one that lives and is no member keeps it out at each reading.
            return if crate::act::processes::sight_of(pid).is_ok_and(|now| now.ppid == sight.ppid)
                && !(is_born_here && waits)
            {
                Grouped::Stranger
            } else {
                Grouped::Gone
            };
        }
        let id = sight.id;
        match self.admit(pinned, Came::Group, scene) {
            Search::Newborn if self.members.contains_key(&id) => Grouped::Joined,
            Search::Newborn
                if crate::act::processes::sight_of(pid).is_ok_and(|now| !now.is_gone() && now.id == id) =>
            {
                // Asked about again at the next reading: within execve(2) a process has no readable program.
                Grouped::Joined
            }
            Search::Newborn => Grouped::Gone,
            Search::Empty => Grouped::Stranger,
        }
    }

    fn kill_all<S: Scene>(&mut self, path: &str, group: &Group, scene: &mut S) {
        if !group.is_leaf().is_ok_and(|leaf| leaf) {
            return;
        }
        // Fresh once more: whoever came since the first reading was weighed by nobody.
        let now = group.members().ok().and_then(|numbers| self.members_of(&numbers).ok());
        let Some(now) = now.filter(|now| !now.is_empty()) else { return };
        if group.kill().is_err() {
            return;
        }
        self.grouped.extend(&now);
        for id in &now {
            if let Some(outcome) = self.outcomes.get_mut(id)
                && outcome.signals.last() != Some(&Signal::Kill)
            {
                outcome.signals.push(Signal::Kill);
            }
        }
        let root = self.teardown.judgement.root;
        self.write(&Event::GroupKilled { root, cgroup: path, members: &now }, scene);
    }
}

/// What became of somebody in the cgroup who is no member so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Grouped {
    Joined,
    /// It went meanwhile.
    Gone,
    /// It is to stay.
    Stranger,
}
