//! What is to be done about containers, and what became of it. "Stopped" is never reported as "gone".

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::judgement::ContainerJudgement;
use super::{AutoRemoval, ContainerRef, ContainerRun};
use crate::model::moment::Moment;
use crate::model::plan::Wait;

/// The part of a plan that is about containers.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Containers {
    /// What is to be stopped, oldest suspicion first.
    pub stops: Vec<Stop>,
    /// Proven, but not now.
    pub waiting: Vec<(ContainerJudgement, Wait)>,
}

/// One container that is to go, and how.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// The judgement that it rests on.
    pub judgement: ContainerJudgement,
    /// The run that is stopped, and no other.
    pub run: ContainerRun,
    /// How long it has between being asked to end and being killed; whole seconds count.
    pub grace: Duration,
    /// Who removes it once it has ended.
    pub removal: AutoRemoval,
    /// What happens to its anonymous volumes.
    pub volumes: Fate,
    /// What happens to the networks that it alone used.
    pub networks: Fate,
    /// Commands that had been started in it later, as the engine said when it was judged, by their ids.
    #[serde(default)]
    pub execs: Vec<String>,
}

/// What happens to what hangs on a container.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It stays.
    Keep,
    /// It goes with the container.
    Remove,
}

/// One call that changes something.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopStep {
    /// It is asked to end, and killed by the engine itself when the grace is over.
    Stop,
    /// It is killed.
    Kill,
    /// What is left of it is removed.
    Remove,
    /// This network, which it alone used, is removed.
    RemoveNetwork(String),
}

/// What became of one stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopReport {
    /// Which container.
    pub at: ContainerRef,
    /// Its name.
    pub name: String,
    /// The policy that condemned it.
    pub policy: String,
    /// Every step that was begun, with what the engine said; nothing where it took it.
    pub steps: Vec<(StopStep, Option<String>)>,
    /// What became of it, as seen by listing again.
    pub outcome: StopOutcome,
    /// What its processes had in memory, bytes.
    pub resident: u64,
    /// When it began and when it was over.
    pub span: (Moment, Moment),
}

/// What became of one container.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopOutcome {
    /// The engine does not list it any more.
    Gone,
    /// It ended, and what is left of it is still listed; the text says why.
    Left(String),
    /// It runs on; the text says why.
    Runs(String),
    /// Nothing was done; the text says why.
    Untouched(String),
    /// The engine did not say in time; the text is the last it said.
    NotProven(String),
}
