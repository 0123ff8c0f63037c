//! The way to a port that an engine publishes for a container.
//!
//! Who listens there on this machine is a proxy of the engine or the kernel itself, and either takes a connection that
//! never gets anywhere. So what is asked is whether it got into the container's own network: there was no connection to
//! the port before, and one is there now.

use std::net::SocketAddr;

use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, ipproto, socket_with};

use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::observe::descriptors::why;
use crate::observe::engines;

use super::contact::{Connected, made};

/// Where Linux says whether a socket may be bound to an address that is none of ours (ip-sysctl).
const NONLOCAL: [&str; 2] = ["/proc/sys/net/ipv4/ip_nonlocal_bind", "/proc/sys/net/ipv6/ip_nonlocal_bind"];

/// A port of this machine that leads into a container.
#[derive(Debug)]
pub(super) struct Published {
    address: SocketAddr,
    init: ProcessId,
    inside: u16,
}

impl Published {
    /// Says that there is such a way, and that nobody else is on it.
    pub(super) fn find(address: &str, inside: u16, tree: &[ProcessId]) -> Known<Published> {
        let address = address.parse().map_err(|_| {
            Unknown::new(Reason::Unsupported, format!("asking {address}, which is no address"))
        })?;
        let init = *tree
            .first()
            .ok_or_else(|| Unknown::new(Reason::Vanished, "the first process of a container"))?;
        let published = Published { address, init, inside };
        match engines::connections(init, inside)? {
            0 => Ok(published),
            _ => Err(Unknown::new(Reason::Unsound, "asking a container that somebody is connected to")),
        }
    }

    /// Connects, without waiting. Only to an address of this machine: a socket can be bound to no other.
    pub(super) fn connect(&self) -> Known<Connected> {
        let family = if self.address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
            .map_err(|errno| why(errno, "a socket of ours"))?;
        if !self.address.ip().is_loopback() {
            is_ours_alone()?;
            bind(&socket, &SocketAddr::new(self.address.ip(), 0))
                .map_err(|errno| why(errno, "whether its address is one of this machine"))?;
        }
        made(connect(&socket, &self.address), socket)
    }

    /// Says that our connection waits inside of the container, and nobody else's.
    pub(super) fn has_arrived(&self) -> Known<()> {
        match engines::connections(self.init, self.inside)? {
            1 => Ok(()),
            0 => Err(Unknown::new(Reason::Unsound, "its silence, since nothing arrived in the container")),
            _ => Err(Unknown::new(Reason::Unsound, "its silence while somebody else is connected to it")),
        }
    }
}

/// Says that a socket can be bound to addresses of this machine alone.
fn is_ours_alone() -> Known<()> {
    for path in NONLOCAL {
        let is_strict = match std::fs::read(path) {
            Ok(text) => text.trim_ascii() == b"0",
            // Without IPv6 nothing is bound there.
            Err(error) => error.kind() == std::io::ErrorKind::NotFound,
        };
        if !is_strict {
            return Err(Unknown::new(Reason::Unsound, "whether its address is one of this machine"));
        }
    }
    Ok(())
}
