//! The calls of an engine that ending a container needs. A client makes them; tests script them.

use std::collections::BTreeSet;
use std::future::Future;
use std::time::Duration;

use crate::engine::{Client, Fault, NetworkUse, Said, Which};
use crate::model::container::stop::Fate;
use crate::model::container::{ContainerFacts, ContainerId, Listed};

/// The calls of one engine. Each has a deadline of its own.
pub(super) trait Calls {
    /// Lists every container, whatever its state.
    fn list(&self) -> impl Future<Output = Result<Vec<Listed>, Fault>>;
    /// Returns what the engine says of one container; nothing where it knows none.
    fn inspect(&self, id: &ContainerId) -> impl Future<Output = Result<Option<ContainerFacts>, Fault>>;
    /// Asks a container to end.
    fn stop(&self, id: &ContainerId, grace: Duration) -> impl Future<Output = Result<Said, Fault>>;
    /// Kills a container.
    fn kill(&self, id: &ContainerId) -> impl Future<Output = Result<Said, Fault>>;
    /// Removes what is left of a container that has ended.
    fn remove(&self, id: &ContainerId, volumes: Fate) -> impl Future<Output = Result<Said, Fault>>;
    /// Returns the networks that a container is in.
    fn networks(&self, id: &ContainerId) -> impl Future<Output = Result<Vec<NetworkUse>, Fault>>;
    /// Returns a network as it is now, and who is in it besides this container; nothing where the engine knows none.
    fn network(
        &self,
        network: &NetworkUse,
        besides: &ContainerId,
    ) -> impl Future<Output = Result<Option<NetworkUse>, Fault>>;
    /// Removes a network.
    fn remove_network(&self, id: &str) -> impl Future<Output = Result<Said, Fault>>;
}

impl Calls for Client {
    async fn list(&self) -> Result<Vec<Listed>, Fault> {
        Client::list(self, Which::All).await
    }

    async fn inspect(&self, id: &ContainerId) -> Result<Option<ContainerFacts>, Fault> {
        let inspected = Client::inspect(self, id, &BTreeSet::new()).await?;
        Ok(inspected.map(|inspected| inspected.facts))
    }

    async fn stop(&self, id: &ContainerId, grace: Duration) -> Result<Said, Fault> {
        Client::stop(self, id, grace).await
    }

    async fn kill(&self, id: &ContainerId) -> Result<Said, Fault> {
        Client::kill(self, id).await
    }

    async fn remove(&self, id: &ContainerId, volumes: Fate) -> Result<Said, Fault> {
        Client::remove(self, id, volumes).await
    }

    async fn networks(&self, id: &ContainerId) -> Result<Vec<NetworkUse>, Fault> {
        Client::networks(self, id).await
    }

    async fn network(
        &self,
        network: &NetworkUse,
        besides: &ContainerId,
    ) -> Result<Option<NetworkUse>, Fault> {
        Client::network(self, &network.name, &network.id, besides).await
    }

    async fn remove_network(&self, id: &str) -> Result<Said, Fault> {
        Client::remove_network(self, id).await
    }
}
