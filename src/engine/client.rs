//! The calls that are made, each checked against what was asked.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use bollard::models::ContainerSummary;
use bollard::query_parameters::{
    InspectContainerOptions, InspectNetworkOptions, KillContainerOptions, ListContainersOptionsBuilder,
    RemoveContainerOptionsBuilder, StopContainerOptionsBuilder,
};
use bstr::BString;
use hyper::Request;
use hyper::body::Bytes;

use super::fault::Fault;
use super::networks;
use super::read::{self, ExecInspected, Inspected};
use super::wire::{Call, NEWEST, Version};
use crate::model::container::stop::Fate;
use crate::model::container::{ContainerId, ContainerState, EngineId, EngineKind, Listed};

/// Networks that an engine makes itself and never removes.
const PREDEFINED: [&str; 6] = ["bridge", "host", "none", "podman", "docker_gwbridge", "ingress"];

/// Which containers are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Which {
    /// Those that run, are paused or are being started anew.
    Live,
    /// Every one.
    All,
}

/// What an engine said to a call that changes something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// It did it.
    Done,
    /// There was nothing to do, or it is being done: gone, ended already, or on its way. What holds, a listing says.
    Already(String),
}

/// A network that a container is in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NetworkUse {
    /// Its name.
    pub name: String,
    /// The engine's id for it.
    pub id: String,
    /// Who made it.
    pub origin: NetworkOrigin,
    /// Which other containers are in it, stopped ones among them, sorted.
    pub others: Vec<ContainerId>,
}

/// Who made a network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NetworkOrigin {
    /// The engine itself, or it is shared with other machines: never to be removed.
    Predefined,
    /// Somebody who used the engine.
    Made,
}

/// One engine.
#[derive(Debug, Clone)]
pub struct Client {
    id: EngineId,
    kind: EngineKind,
    version: Version,
    patience: Duration,
}

impl Client {
    /// Finds out what answers at a socket, and agrees on a version. `patience` is the deadline of this call and of
    /// each later one.
    pub async fn connect(engine: &EngineId, patience: Duration) -> Result<Client, Fault> {
        let call = Call::new(Path::new(&engine.0), None, patience)?;
        // Podman asks programs of its own before it says what it is, which takes a second and more; that it is Podman it
        // says at once.
        let request = Request::get("/_ping").body(bollard::body_full(Bytes::new()));
        let request = request.map_err(|error| Fault::malformed(error.to_string()))?;
        if let Some((version, theirs)) = read::podman(call.send(request).await?.headers()) {
            let kind = EngineKind::Podman(version);
            return Ok(Client { id: engine.clone(), kind, version: theirs.min(NEWEST), patience });
        }
        let call = Call::new(Path::new(&engine.0), None, patience)?;
        let said = call.within(call.docker.version()).await?;
        let theirs = said.api_version.as_deref().and_then(Version::read);
        let theirs =
            theirs.ok_or_else(|| Fault::malformed("the engine names no version of its interface"))?;
        let kind = read::kind(said)?;
        Ok(Client { id: engine.clone(), kind, version: theirs.min(NEWEST), patience })
    }

    /// Returns which engine it is.
    pub fn id(&self) -> &EngineId {
        &self.id
    }

    /// Returns what it is.
    pub fn kind(&self) -> &EngineKind {
        &self.kind
    }

    /// Lists containers, sorted by id. The list is whole, or this fails.
    pub async fn list(&self, which: Which) -> Result<Vec<Listed>, Fault> {
        let mut listed =
            self.rows(which).await?.into_iter().map(read::listed).collect::<Result<Vec<_>, _>>()?;
        if which == Which::Live {
            listed.retain(|row| is_live(&row.state));
        }
        listed.sort_by(|one, other| one.id.cmp(&other.id));
        if listed.windows(2).any(|pair| pair[0].id == pair[1].id) {
            return Err(Fault::malformed("the engine lists a container twice"));
        }
        Ok(listed)
    }

    async fn rows(&self, which: Which) -> Result<Vec<ContainerSummary>, Fault> {
        let mut options = ListContainersOptionsBuilder::new().all(which == Which::All);
        if which == Which::Live {
            options = options.filters(&live(&self.kind));
        }
        let call = self.call(self.patience)?;
        call.within(call.docker.list_containers(Some(options.build()))).await
    }

    /// Returns what the engine says of one container, with those variables of its environment that are named; nothing
    /// where it knows none of that id.
    pub async fn inspect(
        &self,
        id: &ContainerId,
        env: &BTreeSet<BString>,
    ) -> Result<Option<Inspected>, Fault> {
        let call = self.call(self.patience)?;
        let asked = call.docker.inspect_container(id.as_str(), None::<InspectContainerOptions>);
        let Some(said) = there(call.within(asked).await)? else { return Ok(None) };
        read::inspected(said, id, &self.id, &self.kind, env).map(Some)
    }

    /// Returns the labels that an image gives to its containers; the image by its id.
    pub async fn image_labels(&self, image: &str) -> Result<BTreeMap<String, String>, Fault> {
        let digits = image.strip_prefix("sha256:").unwrap_or(image);
        if !is_hex(digits) {
            return Err(Fault::malformed("no id of an image"));
        }
        let call = self.call(self.patience)?;
        let said = call.within(call.docker.inspect_image(image)).await?;
        read::image_labels(said, digits)
    }

    /// Returns what the engine says of a command that was started inside a container; nothing where it knows none.
    pub async fn exec(&self, id: &str) -> Result<Option<ExecInspected>, Fault> {
        if !is_hex(id) {
            return Err(Fault::malformed("no id of a command in a container"));
        }
        let call = self.call(self.patience)?;
        let Some(said) = there(call.within(call.docker.inspect_exec(id)).await)? else { return Ok(None) };
        read::exec(said, id).map(Some)
    }

    /// Asks a container to end; the engine kills it after `grace`. It counts whole seconds, and a part of one counts
    /// as a whole: nobody is given less than was promised.
    pub async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<Said, Fault> {
        let seconds = grace.as_secs().saturating_add(u64::from(grace.subsec_nanos() > 0));
        let options =
            StopContainerOptionsBuilder::new().t(i32::try_from(seconds).unwrap_or(i32::MAX)).build();
        let call = self.call(Duration::from_secs(seconds).saturating_add(self.patience))?;
        let answer = call.within(call.docker.stop_container(id.as_str(), Some(options))).await;
        said(&call, answer)
    }

    /// Kills a container.
    pub async fn kill(&self, id: &ContainerId) -> Result<Said, Fault> {
        let call = self.call(self.patience)?;
        let answer = call.within(call.docker.kill_container(id.as_str(), None::<KillContainerOptions>)).await;
        said(&call, answer)
    }

    /// Removes what is left of a container that has ended; one that runs is refused.
    pub async fn remove(&self, id: &ContainerId, volumes: Fate) -> Result<Said, Fault> {
        let options =
            RemoveContainerOptionsBuilder::new().v(volumes == Fate::Remove).force(false).link(false);
        let call = self.call(self.patience)?;
        let answer = call.within(call.docker.remove_container(id.as_str(), Some(options.build()))).await;
        said(&call, answer)
    }

    /// Returns the networks that a container is in, sorted by name; none where the engine does not know it.
    pub async fn networks(&self, id: &ContainerId) -> Result<Vec<NetworkUse>, Fault> {
        let call = self.call(self.patience)?;
        let asked = call.docker.inspect_container(id.as_str(), None::<InspectContainerOptions>);
        let Some(container) = there(call.within(asked).await)? else { return Ok(Vec::new()) };
        let within = networks::networks(container, id)?;
        let rows = self.rows(Which::All).await?;
        let mut uses = Vec::new();
        for (name, network) in within {
            uses.push(self.used(&rows, &name, &network, id).await?);
        }
        Ok(uses)
    }

    /// Returns a network as it is now, and who is in it besides one container, which may be gone; nothing where the
    /// engine knows none of that id.
    pub async fn network(
        &self,
        name: &str,
        id: &str,
        besides: &ContainerId,
    ) -> Result<Option<NetworkUse>, Fault> {
        if !networks::is_network_id(id) {
            return Err(Fault::malformed("no id of a network"));
        }
        let rows = self.rows(Which::All).await?;
        there(self.used(&rows, name, id, besides).await)
    }

    async fn used(
        &self,
        rows: &[ContainerSummary],
        name: &str,
        id: &str,
        besides: &ContainerId,
    ) -> Result<NetworkUse, Fault> {
        let call = self.call(self.patience)?;
        let asked = call.docker.inspect_network(id, None::<InspectNetworkOptions>);
        let said = call.within(asked).await?;
        let others = networks::others(rows, &said, besides, (name, id))?;
        let shared = said.ingress == Some(true) || said.scope.as_deref() != Some("local");
        let origin = if PREDEFINED.contains(&name) || shared {
            NetworkOrigin::Predefined
        } else {
            NetworkOrigin::Made
        };
        Ok(NetworkUse { name: name.to_owned(), id: id.to_owned(), origin, others })
    }

    /// Removes a network, by its id; one that is in use is refused.
    pub async fn remove_network(&self, id: &str) -> Result<Said, Fault> {
        if !networks::is_network_id(id) {
            return Err(Fault::malformed("no id of a network"));
        }
        let call = self.call(self.patience)?;
        let answer = call.within(call.docker.remove_network(id)).await;
        said(&call, answer)
    }

    /// Returns the deadline of a call.
    pub(super) fn patience(&self) -> Duration {
        self.patience
    }

    pub(super) fn call(&self, limit: Duration) -> Result<Call, Fault> {
        Call::new(Path::new(&self.id.0), Some(self.version), limit)
    }
}

#[expect(clippy::disallowed_types, reason = "the crate wants one, and no order comes of it")]
fn live(kind: &EngineKind) -> std::collections::HashMap<&'static str, Vec<&'static str>> {
    let states = match kind {
        EngineKind::Docker(_) => vec!["running", "paused", "restarting"],
        // It has no such state, and refuses words that it does not know.
        EngineKind::Podman(_) => vec!["running", "paused"],
    };
    std::iter::once(("status", states)).collect()
}

/// Says whether a container is one that may be doing something; a state that we do not know may be.
fn is_live(state: &ContainerState) -> bool {
    !matches!(state, ContainerState::Created | ContainerState::Exited | ContainerState::Dead)
}

fn is_hex(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// Turns "no such" into nothing.
fn there<T>(answer: Result<T, Fault>) -> Result<Option<T>, Fault> {
    match answer {
        Ok(value) => Ok(Some(value)),
        Err(Fault::Refused { status: 404, .. }) => Ok(None),
        Err(fault) => Err(fault),
    }
}

fn said(call: &Call, answer: Result<(), Fault>) -> Result<Said, Fault> {
    match answer {
        Ok(()) if call.status() == 304 => Ok(Said::Already("it had ended".to_owned())),
        Ok(()) => Ok(Said::Done),
        Err(Fault::Refused { status: 404 | 409, message }) => Ok(Said::Already(message)),
        Err(fault) => Err(fault),
    }
}

#[cfg(test)]
mod tests;
