//! What rules for containers need to know, and what came back.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Channel;
use crate::model::container::{
    ContainerFacts, ContainerRef, ContainerRun, ContainerSockets, EngineClients, EngineId, ExecFacts,
};

/// One thing to look up about a container or its engine. None of them changes anything.
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
}
