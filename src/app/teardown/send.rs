//! Sends one member its signal, and chooses who is killed last.

use std::collections::{BTreeMap, BTreeSet};

use crate::act::processes::{Held, Pinned, SignalError};
use crate::model::id::ProcessId;
use crate::model::outcome::Outcome;
use crate::model::plan::Signal;
use crate::plan::escalation::Refusal;

use super::climb::{Climb, Sent};
use super::{Admission, Came, Scene};

impl Climb<'_> {
    /// Sends a signal, if the member is surely still who it was, and says whether it went out.
    pub(super) fn signal<S: Scene>(&mut self, id: ProcessId, signal: Signal, scene: &mut S) -> Sent {
        let Some(mut held) = self.held.get(&id) else {
            self.machine.refused(id, Refusal::Denied);
            return Sent::No;
        };
        let mut sent = held.signal(signal);
        if matches!(sent, Err(SignalError::IdentityChanged)) && self.was_about_to_exec(id) {
            let Some(again) = self.held_anew(id, scene) else {
                self.refuse(id, Outcome::IdentityChanged, Refusal::IdentityChanged);
                return Sent::No;
            };
            held = self.held.entry(id).insert_entry(again).into_mut();
            sent = held.signal(signal);
        }
        // Nobody forks any more once KILL is pending (copy_process() refuses), and ending takes longer than this
        // read: the list is whole now, and a moment later a reaper has the children.
        let children = match signal {
            Signal::Kill if sent.is_ok() => held.children().unwrap_or_default(),
            Signal::Hup
            | Signal::Int
            | Signal::Quit
            | Signal::Usr1
            | Signal::Usr2
            | Signal::Term
            | Signal::Kill => Vec::new(),
        };
        let was_sent = if sent.is_ok() { Sent::Yes } else { Sent::No };
        match sent {
            Ok(()) => {
                if let Some(outcome) = self.outcomes.get_mut(&id) {
                    outcome.signals.push(signal);
                }
            }
            Err(SignalError::Gone) => self.gone(id, scene.now()),
            Err(SignalError::Denied) => self.refuse(id, Outcome::Denied, Refusal::Denied),
            Err(SignalError::IdentityChanged) => {
                self.refuse(id, Outcome::IdentityChanged, Refusal::IdentityChanged);
            }
            Err(SignalError::Failed(error)) => {
                self.refuse(
                    id,
                    Outcome::Survived(format!("the signal could not be sent: {error}")),
                    Refusal::Denied,
                );
            }
        }
        self.consider_children(id, &children, scene);
        was_sent
    }

    /// Says whether a member was surely or likely seen between fork(2) and execve(2) (CASES C26): it was born during
    /// the teardown, or ran its parent's own program when it was planned. Its membership comes from its parent, and
    /// not from the program. The root's proof is of the program it ran, so it is never one of these.
    fn was_about_to_exec(&self, id: ProcessId) -> bool {
        if id == self.teardown.judgement.root {
            return false;
        }
        let exe = |id: &ProcessId| self.members.get(id).and_then(|member| member.identity.exe);
        let is_planned = self.teardown.members.iter().any(|member| member.identity.id == id);
        let parent = self
            .held
            .get(&id)
            .and_then(|held| self.members.keys().find(|above| above.pid.number() == held.first_sight().ppid));
        !is_planned || parent.is_some_and(|parent| exe(parent) == exe(&id))
    }

    /// Lets a member that ran another program pass all gates once more, as what it is now.
    fn held_anew<S: Scene>(&self, id: ProcessId, scene: &mut S) -> Option<Held> {
        let old = self.held.get(&id)?;
        let pinned = Pinned::pin(id).ok()?;
        // While the old handle's process lives, the number and start are its own.
        if old.is_gone() {
            return None;
        }
        match scene.admit(self.teardown, pinned.sight(), Came::Below(self.teardown.judgement.root)) {
            Admission::Join(member) => pinned.hold(&member.identity).ok(),
            Admission::Spare(_) => None,
        }
    }

    /// Returns the newest live member of each session that a member leads: it is the least likely to have children.
    pub(super) fn newest_of_each_session(&self) -> BTreeSet<ProcessId> {
        let led = self.led_sessions();
        let mut newest: BTreeMap<i32, ProcessId> = BTreeMap::new();
        for id in self.machine.live() {
            let Some(sid) = self.held.get(&id).map(|held| held.first_sight().sid) else { continue };
            if led.binary_search(&sid).is_err() {
                continue;
            }
            let entry = newest.entry(sid).or_insert(id);
            if (entry.start, entry.pid) < (id.start, id.pid) {
                *entry = id;
            }
        }
        newest.into_values().collect()
    }
}
