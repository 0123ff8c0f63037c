//! One container on its way: asked to end, killed, removed; after each step its engine's list says what is so.

use std::time::Duration;

use super::calls::Calls;
use super::lister::{Again, Lister};
use super::{Begin, Pauses, Told, report};
use crate::engine::{Fault, NetworkOrigin, NetworkUse, Said};
use crate::model::container::stop::{Fate, Stop, StopOutcome, StopReport, StopStep};
use crate::model::container::{
    AutoRemoval, ContainerFacts, ContainerId, ContainerState, Listed, RestartPolicy,
};

/// One container on its way.
pub(super) struct Ending<'a, 'w, C> {
    stop: &'a Stop,
    lister: &'a Lister<'a, C>,
    pauses: Pauses,
    witness: &'a Told<'w>,
    steps: Vec<(StopStep, Option<String>)>,
    hand: Hand,
    /// The networks that it alone uses; read while it is there.
    networks: Vec<NetworkUse>,
}

/// By whose hand it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Hand {
    /// The engine took a step of ours, or took it and did not answer any more.
    Ours,
    /// Nothing says that it was ours.
    Unknown,
}

/// What a list says of it.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Seen {
    /// It is not listed.
    Gone,
    /// It has ended, and is listed.
    Ended,
    /// It is being removed.
    Removing,
    /// It is not known to have ended; the text is what it is doing.
    Runs(String),
    /// There is no list.
    Silent(String),
}

/// What is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Until {
    Ended,
    Gone,
}

impl<'a, 'w, C: Calls> Ending<'a, 'w, C> {
    pub(super) fn new(
        stop: &'a Stop,
        lister: &'a Lister<'a, C>,
        pauses: Pauses,
        witness: &'a Told<'w>,
    ) -> Ending<'a, 'w, C> {
        Ending { stop, lister, pauses, witness, steps: Vec::new(), hand: Hand::Unknown, networks: Vec::new() }
    }

    /// Ends it, and returns what became of it.
    pub(super) async fn run(mut self, begin: Begin) -> StopReport {
        let began = self.witness.borrow_mut().now();
        let outcome = match begin {
            Begin::Running => self.end().await,
            Begin::Ended => {
                // The journal says so, and the look that planned this.
                self.hand = Hand::Ours;
                match self.remove().await {
                    StopOutcome::Left(why) if self.steps.is_empty() => StopOutcome::Untouched(why),
                    outcome @ (StopOutcome::Gone
                    | StopOutcome::Left(_)
                    | StopOutcome::Runs(_)
                    | StopOutcome::Untouched(_)
                    | StopOutcome::NotProven(_)) => outcome,
                }
            }
        };
        // Whoever ended it otherwise may mean to use its networks again.
        if outcome == StopOutcome::Gone && self.hand == Hand::Ours {
            self.remove_networks().await;
        }
        let mut witness = self.witness.borrow_mut();
        let over = witness.now();
        let report = report(self.stop, self.steps, outcome, (began, over));
        witness.ended(&report);
        report
    }

    async fn end(&mut self) -> StopOutcome {
        // Where the engine removes it, it is too late afterwards.
        if self.stop.removal == AutoRemoval::Yes {
            self.read_networks().await;
        }
        if let Err(why) = self.still_meant().await {
            return StopOutcome::Untouched(format!("right before the first call: {why}"));
        }
        if let Err(why) = self.note(StopStep::Stop) {
            return StopOutcome::Untouched(why);
        }
        let said = self.lister.calls.stop(self.id(), self.stop.grace).await;
        self.heard(said);
        let mut seen = self.watch(Until::Ended).await;
        if let Seen::Runs(_) = seen {
            // Somebody may have started it anew, or paused it, in the meantime.
            if let Err(why) = self.still_meant().await {
                return StopOutcome::Runs(format!("it was asked to end, and {why}"));
            }
            if let Err(why) = self.note(StopStep::Kill) {
                return StopOutcome::Runs(why);
            }
            let said = self.lister.calls.kill(self.id()).await;
            self.heard(said);
            seen = self.watch(Until::Ended).await;
        }
        match seen {
            Seen::Gone => StopOutcome::Gone,
            Seen::Runs(doing) => StopOutcome::Runs(self.in_its_words(&doing)),
            Seen::Silent(why) => StopOutcome::NotProven(why),
            Seen::Ended | Seen::Removing => self.remove().await,
        }
    }

    /// Removes what is left of it, or waits for its engine to.
    async fn remove(&mut self) -> StopOutcome {
        if self.stop.removal == AutoRemoval::Yes {
            return match self.watch(Until::Gone).await {
                Seen::Gone => StopOutcome::Gone,
                Seen::Ended | Seen::Removing => {
                    StopOutcome::Left("its engine removes it by itself, and has not yet".to_owned())
                }
                Seen::Runs(doing) => StopOutcome::Runs(format!("it had ended, and is {doing} again")),
                Seen::Silent(why) => StopOutcome::NotProven(why),
            };
        }
        if self.hand == Hand::Unknown {
            let why = "it ended, and not surely by our hand: what is left of it stays";
            return StopOutcome::Left(why.to_owned());
        }
        match self.has_ended().await {
            Ok(Some(())) => {}
            Ok(None) => return StopOutcome::Gone,
            Err(outcome) => return outcome,
        }
        self.read_networks().await;
        let mut last = String::new();
        for _ in self.pauses.0 {
            if let Err(why) = self.note(StopStep::Remove) {
                return StopOutcome::Left(why);
            }
            let said = self.lister.calls.remove(self.id(), self.stop.volumes).await;
            self.heard(said);
            match self.watch(Until::Gone).await {
                Seen::Gone => return StopOutcome::Gone,
                Seen::Ended => last = self.in_its_words("ended"),
                Seen::Removing => last = self.in_its_words("being removed"),
                Seen::Runs(doing) => {
                    return StopOutcome::Runs(format!("it had ended, and is {doing} again"));
                }
                Seen::Silent(why) => return StopOutcome::NotProven(why),
            }
        }
        StopOutcome::Left(last)
    }

    /// Says whether the very run that was judged is still there to be ended, and nobody has anything else in mind with
    /// it by now. The error says why not.
    async fn still_meant(&self) -> Result<(), String> {
        let facts = self.lister.calls.inspect(self.id()).await.map_err(|fault| fault.to_string())?;
        let facts = facts.ok_or("it is not there any more")?;
        self.same_run(&facts)?;
        match &facts.state {
            ContainerState::Running => {}
            ContainerState::Paused => return Err("somebody paused it".to_owned()),
            state @ (ContainerState::Restarting
            | ContainerState::Removing
            | ContainerState::Created
            | ContainerState::Exited
            | ContainerState::Dead
            | ContainerState::Other(_)) => {
                return Err(format!("it is not running but {}", word(state)));
            }
        }
        if let RestartPolicy::Kept(policy) = &facts.restart {
            return Err(format!("its restart policy is '{policy}' now: its engine would start it anew"));
        }
        if facts.removal != self.stop.removal || facts.labels != self.stop.judgement.listed.labels {
            return Err("its labels, or who removes it, are not what they were".to_owned());
        }
        // Those that were there have been weighed. One that was not may be anybody's.
        if facts.execs.iter().any(|exec| !self.stop.execs.contains(exec)) {
            return Err("a command was started in it meanwhile".to_owned());
        }
        Ok(())
    }

    /// Says whether the very run that was stopped has ended; nothing where it is gone.
    async fn has_ended(&self) -> Result<Option<()>, StopOutcome> {
        let facts = match self.lister.calls.inspect(self.id()).await {
            Ok(Some(facts)) => facts,
            Ok(None) => return Ok(None),
            Err(fault) => return Err(StopOutcome::NotProven(fault.to_string())),
        };
        if let Err(why) = self.same_run(&facts) {
            return Err(StopOutcome::Left(why));
        }
        match &facts.state {
            ContainerState::Exited | ContainerState::Dead | ContainerState::Removing => Ok(Some(())),
            state @ (ContainerState::Running
            | ContainerState::Paused
            | ContainerState::Restarting
            | ContainerState::Created
            | ContainerState::Other(_)) => {
                Err(StopOutcome::Runs(format!("it had ended, and is {} again", word(state))))
            }
        }
    }

    fn same_run(&self, facts: &ContainerFacts) -> Result<(), String> {
        if facts.run == self.stop.run {
            return Ok(());
        }
        Err("it was started anew meanwhile, so somebody uses it".to_owned())
    }

    /// Waits, within bounds, until a list says what is waited for, and returns what the last one said.
    async fn watch(&self, until: Until) -> Seen {
        let mut seen = Seen::Silent(String::new());
        for pause in [Duration::ZERO].into_iter().chain(self.pauses.0) {
            tokio::time::sleep(pause).await;
            seen = match self.lister.list().await {
                Ok(all) => self.listed(&all),
                Err(silence) if silence.again == Again::Never => return Seen::Silent(silence.why),
                Err(silence) => Seen::Silent(silence.why),
            };
            let is_over = match (&seen, until) {
                (Seen::Gone, _) | (Seen::Ended | Seen::Removing, Until::Ended) => true,
                (Seen::Ended | Seen::Removing | Seen::Runs(_) | Seen::Silent(_), _) => false,
            };
            if is_over {
                break;
            }
        }
        seen
    }

    fn listed(&self, all: &[Listed]) -> Seen {
        let Some(listed) = all.iter().find(|listed| listed.id == *self.id()) else { return Seen::Gone };
        match &listed.state {
            ContainerState::Exited | ContainerState::Dead => Seen::Ended,
            ContainerState::Removing => Seen::Removing,
            state @ (ContainerState::Running
            | ContainerState::Paused
            | ContainerState::Restarting
            | ContainerState::Created
            | ContainerState::Other(_)) => Seen::Runs(word(state).to_owned()),
        }
    }

    async fn read_networks(&mut self) {
        if self.stop.networks == Fate::Keep {
            return;
        }
        // Where they cannot be read, they stay.
        let all = self.lister.calls.networks(self.id()).await.unwrap_or_default();
        self.networks = all.into_iter().filter(is_unshared).collect();
    }

    /// Removes the networks that it alone used. Each is looked at again right before: somebody may have joined it.
    async fn remove_networks(&mut self) {
        for network in std::mem::take(&mut self.networks) {
            match self.lister.calls.network(&network, self.id()).await {
                Ok(Some(now)) if is_unshared(&now) => {}
                Ok(_) | Err(_) => continue,
            }
            if self.note(StopStep::RemoveNetwork(network.name)).is_err() {
                return;
            }
            let said = self.lister.calls.remove_network(&network.id).await;
            let words = match said {
                Ok(Said::Done) => None,
                Ok(Said::Already(words)) => Some(words),
                Err(fault) => Some(fault.to_string()),
            };
            self.said(words);
        }
    }

    /// Has a step written down that is about to be made.
    fn note(&mut self, step: StopStep) -> Result<(), String> {
        self.witness
            .borrow_mut()
            .step(&self.stop.run.at, &step)
            .map_err(|why| format!("the next step could not be written down: {why}"))?;
        self.steps.push((step, None));
        Ok(())
    }

    /// Notes what the engine said to the step that was made last.
    fn heard(&mut self, said: Result<Said, Fault>) {
        let (words, hand) = match said {
            Ok(Said::Done) => (None, Hand::Ours),
            // It had ended before, or somebody else is at it.
            Ok(Said::Already(words)) => (Some(words), Hand::Unknown),
            // It took the request, and failed at it or went on without a word (C12).
            Err(fault @ (Fault::Hung | Fault::Refused { status: 500.., .. })) => {
                (Some(fault.to_string()), Hand::Ours)
            }
            Err(fault) => (Some(fault.to_string()), Hand::Unknown),
        };
        if hand == Hand::Ours {
            self.hand = Hand::Ours;
        }
        self.said(words);
    }

    fn said(&mut self, words: Option<String>) {
        if let Some((_, last)) = self.steps.last_mut() {
            *last = words;
        }
    }

    /// Returns what it is doing, with the engine's last words.
    fn in_its_words(&self, doing: &str) -> String {
        match self.steps.iter().rev().find_map(|(_, words)| words.as_deref()) {
            Some(words) => format!("it is still {doing}: {words}"),
            None => format!("it is still {doing}"),
        }
    }

    fn id(&self) -> &'a ContainerId {
        &self.stop.run.at.id
    }
}

/// Says whether nobody else uses a network, and somebody made it.
fn is_unshared(network: &NetworkUse) -> bool {
    network.origin == NetworkOrigin::Made && network.others.is_empty()
}

fn word(state: &ContainerState) -> &str {
    match state {
        ContainerState::Running => "running",
        ContainerState::Paused => "paused",
        ContainerState::Restarting => "restarting",
        ContainerState::Removing => "being removed",
        ContainerState::Created => "created",
        ContainerState::Exited => "ended",
        ContainerState::Dead => "dead",
        ContainerState::Other(word) => word,
    }
}
