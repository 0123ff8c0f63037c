//! What the kernel alone says of engines and containers, read once for all questions that are asked together.

use crate::model::container::{ContainerId, ContainerSockets, EngineClients, EngineId, EngineKind};
use crate::model::id::ProcessId;
use crate::model::known::Known;
use crate::model::look::Snapshot;
use crate::observe::aside::Aside;
use crate::observe::channels::Channels;

/// What is read at most once.
pub(super) struct Kernel<'a> {
    snapshot: &'a Snapshot,
    channels: &'a mut Channels,
    aside: &'a mut Aside,
    #[cfg(target_os = "linux")]
    networks: Option<super::members::Networks>,
}

impl<'a> Kernel<'a> {
    /// Returns one that has read nothing yet.
    pub(super) fn new(
        snapshot: &'a Snapshot,
        channels: &'a mut Channels,
        aside: &'a mut Aside,
    ) -> Kernel<'a> {
        Kernel {
            snapshot,
            channels,
            aside,
            #[cfg(target_os = "linux")]
            networks: None,
        }
    }
}

#[cfg(target_os = "linux")]
impl Kernel<'_> {
    /// Returns who is connected to an engine.
    pub(super) fn clients(&mut self, engine: &EngineId, kind: &EngineKind) -> Known<EngineClients> {
        let Kernel { snapshot, channels, aside, networks: _ } = self;
        super::census::clients(engine, kind, &snapshot.table, snapshot.own.pid, channels.dump(), aside)
    }

    /// Returns who uses a container through its network.
    pub(super) fn sockets(&mut self, init: ProcessId, of: &ContainerId) -> Known<ContainerSockets> {
        let table = &self.snapshot.table;
        let read = || super::members::Networks::of(&super::members::Members::of(table));
        super::inside::sockets(init, of, self.networks.get_or_insert_with(read))
    }
}

#[cfg(not(target_os = "linux"))]
impl Kernel<'_> {
    /// Returns who is connected to an engine, which this system does not tell.
    pub(super) fn clients(&mut self, _: &EngineId, _: &EngineKind) -> Known<EngineClients> {
        use crate::model::known::{Reason, Unknown};

        let Kernel { snapshot: _, channels: _, aside: _ } = self;
        Err(Unknown::new(Reason::Unsupported, "who is connected to an engine"))
    }

    /// Returns who uses a container through its network, which is inside of a virtual machine here.
    pub(super) fn sockets(&mut self, _: ProcessId, _: &ContainerId) -> Known<ContainerSockets> {
        use crate::model::known::{Reason, Unknown};

        Err(Unknown::new(Reason::Foreign, "the sockets of a container"))
    }
}
