//! What rules for containers need to know, and what came back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Call, Channel, Pinged};
use crate::model::container::{
    ContainerFacts, ContainerRef, ContainerRun, ContainerSockets, EngineClients, EngineId, ExecFacts,
};
use crate::model::id::ProcessId;

/// One thing to look up about a container or its engine. None of them changes anything, but [`EngineQuestion::Ping`] acts:
/// it is asked last, and rarely.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineQuestion {
    /// What an engine says of one container: one call.
    Container(ContainerRef),
    /// The labels that an image gives to its containers: one call.
    ImageLabels {
        /// The engine.
        engine: EngineId,
        /// The image's id.
        image: String,
    },
    /// Who is connected to an engine's socket. No call: the kernel says.
    Clients(EngineId),
    /// What a container's standard input is and whether anybody can ever write to it again. No call, but where the
    /// configuration says that a helper container reads it.
    Stdin(ContainerRun),
    /// Who uses a container through its network. No call.
    Sockets(ContainerRun),
    /// What an engine says of a command that was started inside a container: one call.
    Exec {
        /// The container.
        at: ContainerRef,
        /// The engine's id for it.
        exec: String,
    },
    /// Whether what a container publishes answers a request. No call: the port of this machine is connected to.
    Ping {
        /// The container.
        run: ContainerRun,
        /// The policy that asks: how often it asks depends on it.
        policy: String,
        /// What is said.
        call: Call,
        /// Where it can be reached on this machine: `127.0.0.1:5432`, `[::1]:5432`.
        address: String,
        /// The port inside of its network that this leads to.
        inside: u16,
        /// Its processes, the first one in front: progress of theirs is life.
        tree: Vec<ProcessId>,
        /// How long an answer is waited for, in milliseconds.
        patience: u64,
    },
}

/// What came back for one of them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum EngineAnswer {
    /// To [`EngineQuestion::Container`].
    Container(Box<ContainerFacts>),
    /// To [`EngineQuestion::ImageLabels`].
    ImageLabels(BTreeMap<String, String>),
    /// To [`EngineQuestion::Clients`].
    Clients(EngineClients),
    /// To [`EngineQuestion::Stdin`].
    Stdin(Channel),
    /// To [`EngineQuestion::Sockets`].
    Sockets(ContainerSockets),
    /// To [`EngineQuestion::Exec`].
    Exec(ExecFacts),
    /// To [`EngineQuestion::Ping`].
    Pinged(Pinged),
}
