//! The sockets of a process: its descriptor table joined with the kernel's list of all sockets.
//!
//! Passive altogether: nothing is connected to, and nobody is asked who they are. `SO_PEERCRED` is not used either,
//! since it names whoever called listen(2), alive or not. Netlink, packet, raw and vsock sockets and the like are
//! left out; no rule knows what they are reached by.

mod accepted;
mod inet;
mod netlink;
mod unix;

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd};

use bstr::BStr;
use rustix::fs;
use rustix::io::Errno;

use super::descriptors::{Descriptors, Text, why};
use super::stdio::holders::Ends;
use crate::model::id::{FileId, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::{Connection, Family, Listener, Peer, Sockets};
use crate::model::residue::Served;

pub(super) use self::accepted::named;
pub(super) use self::inet::{Protocol, Socket as InetSocket, State as InetState};
pub(super) use self::unix::{Kind as UnixKind, Socket as UnixSocket, State as UnixState};

/// What the kernel told of all sockets of our network namespace, and of all pipes' and sockets' holders, in one look.
///
/// Each part is read when it is first needed, and kept: one look, one dump, so that answers about several processes
/// fit together. A new look, and the re-check before a signal, begin with a new one.
#[derive(Debug, Default)]
pub struct Dump {
    unix: Option<Known<BTreeMap<u64, UnixSocket>>>,
    inet: Option<Known<BTreeMap<u64, InetSocket>>>,
    /// Inodes that a second dump did not show either.
    missing: BTreeSet<u64>,
    pub(super) ends: Option<Known<Ends>>,
}

/// One socket of the dump.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Socket {
    Unix(UnixSocket),
    Inet(InetSocket),
    /// TCP or UDP without a name or a peer: nobody can reach it, and the kernel does not list it.
    Unbound,
    /// A family that is left out.
    LeftOut,
}

impl Dump {
    /// Returns a dump that has read nothing so far.
    pub fn new() -> Dump {
        Dump::default()
    }

    /// Returns the socket behind a descriptor.
    ///
    /// One that the dump lacks may be newer than the dump, or was skipped because the kernel's lists moved under it:
    /// then all are read once more. What is still missing and ought to be there lives in another network namespace.
    pub(super) fn socket(&mut self, of: &Descriptors, fd: u32, inode: u64) -> Known<Socket> {
        if let Some(socket) = self.find(inode)? {
            return Ok(socket);
        }
        let name = protocol(&of.reference(fd)?)?;
        let kind = Listing::of(&name);
        if kind == Listing::Never {
            return Ok(Socket::LeftOut);
        }
        if kind == Listing::Elsewhere {
            return Err(Unknown::new(
                Reason::Unsupported,
                format!("{} socket", String::from_utf8_lossy(&name)),
            ));
        }
        if self.missing.insert(inode) {
            (self.unix, self.inet) = (None, None);
            if let Some(socket) = self.find(inode)? {
                self.missing.remove(&inode);
                return Ok(socket);
            }
        }
        // A process of our own namespace may yet hold a nameless TCP or UDP socket, for which there is no row.
        if kind == Listing::WhenBound && of.network()? == ours()? {
            return Ok(Socket::Unbound);
        }
        let what = format!("{} socket of another network namespace", String::from_utf8_lossy(&name));
        Err(Unknown::new(Reason::Foreign, what))
    }

    /// Returns the far end's socket of a TCP connection within this host.
    pub(super) fn twin(&mut self, of: &InetSocket) -> Known<Option<u64>> {
        let rows = self.inet()?;
        let is_twin = |row: &&InetSocket| {
            row.protocol == of.protocol && row.local == of.remote && row.remote == of.local
        };
        Ok(rows.values().find(is_twin).map(|row| row.inode))
    }

    /// Returns the far end's socket of a connection within this host, once somebody accepted it.
    pub(super) fn far(&mut self, inode: u64) -> Known<Option<u64>> {
        Ok(match self.find(inode)? {
            Some(Socket::Unix(socket)) => match socket.peer() {
                Peer::Inode(peer) => Some(peer),
                Peer::Gone | Peer::Remote(_) | Peer::Unknown => None,
            },
            Some(Socket::Inet(socket)) => self.twin(&socket)?,
            Some(Socket::Unbound | Socket::LeftOut) | None => None,
        })
    }

    /// Returns every socket that may accept what connects to this address: those that listen at the very address, and
    /// those that listen at all.
    pub(super) fn listening_tcp(&mut self, at: SocketAddr) -> Known<BTreeSet<u64>> {
        let may_accept = |row: &&InetSocket| {
            let (ip, wanted) = (row.local.ip(), at.ip().to_canonical());
            // A socket at `::` takes IPv4 as well, unless it was told not to (ipv6(7)); nobody shows that.
            let is_any = ip.is_unspecified() && (ip.is_ipv6() || wanted.is_ipv4());
            row.protocol == Protocol::Tcp
                && row.state == InetState::Listening
                && row.local.port() == at.port()
                && (ip == wanted || is_any)
        };
        Ok(self.inet()?.values().filter(may_accept).map(|row| row.inode).collect())
    }

    /// Returns every socket that listens at this path, by the name it was bound to.
    pub(super) fn listening_unix(&mut self, at: &BStr) -> Known<BTreeSet<u64>> {
        let listens = |row: &&UnixSocket| {
            row.state == UnixState::Listening && row.name.as_ref().is_some_and(|name| name == at)
        };
        Ok(self.unix()?.values().filter(listens).map(|row| row.inode).collect())
    }

    /// Returns every name that a Unix socket was bound to, and every file.
    pub(super) fn bound(&mut self) -> Known<Served> {
        let rows = self.unix()?;
        Ok(Served {
            names: rows.values().filter_map(|row| row.name.clone()).collect(),
            files: rows.values().filter_map(|row| row.file).collect(),
        })
    }

    fn find(&mut self, inode: u64) -> Known<Option<Socket>> {
        if let Some(socket) = self.unix()?.get(&inode) {
            return Ok(Some(Socket::Unix(socket.clone())));
        }
        Ok(self.inet()?.get(&inode).cloned().map(Socket::Inet))
    }

    fn unix(&mut self) -> Known<&BTreeMap<u64, UnixSocket>> {
        let read = || {
            let rows = netlink::dump(&unix::request(), unix::row, "list of Unix sockets")?;
            Ok(rows.into_iter().map(|row| (row.inode, row)).collect())
        };
        self.unix.get_or_insert_with(read).as_ref().map_err(Clone::clone)
    }

    fn inet(&mut self) -> Known<&BTreeMap<u64, InetSocket>> {
        let read = || {
            let mut all = BTreeMap::new();
            for (family, protocol) in inet::TABLES {
                let row = |bytes: &[u8]| inet::row(protocol, bytes);
                let rows =
                    netlink::dump(&inet::request((family, protocol)), row, "list of TCP and UDP sockets")?;
                all.extend(rows.into_iter().map(|row| (row.inode, row)));
            }
            Ok(all)
        };
        self.inet.get_or_insert_with(read).as_ref().map_err(Clone::clone)
    }
}

/// When the dump shows sockets of a protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Listing {
    /// From their making on.
    Always,
    /// Once they have a name or a peer.
    WhenBound,
    /// Not at all, and nobody is served by them as by a server.
    Never,
    /// In tables that are not read, though they may well serve: MPTCP (the default of Go's listeners since 1.24),
    /// SCTP and what is yet to come.
    Elsewhere,
}

impl Listing {
    fn of(name: &[u8]) -> Listing {
        match name {
            b"UNIX" | b"UNIX-STREAM" => Listing::Always,
            b"TCP" | b"TCPv6" | b"UDP" | b"UDPv6" => Listing::WhenBound,
            b"NETLINK" | b"PACKET" | b"RAW" | b"RAWv6" | b"PING" | b"PINGv6" | b"ALG" | b"AF_VSOCK"
            | b"KEY" | b"XDP" => Listing::Never,
            _ => Listing::Elsewhere,
        }
    }
}

/// Returns the protocol of a socket by the extended attribute that sockfs has for it; nothing is opened.
fn protocol(reference: &OwnedFd) -> Known<Vec<u8>> {
    let mut name = [0; 64];
    let path = format!("/proc/self/fd/{}", reference.as_raw_fd());
    let length = fs::getxattr(path, "system.sockprotoname", &mut name[..]).map_err(|errno| match errno {
        Errno::OPNOTSUPP | Errno::NODATA => Unknown::new(Reason::Unsupported, "protocol of a socket"),
        other => why(other, "protocol of a socket"),
    })?;
    Ok(name[..length].split(|&byte| byte == 0).next().unwrap_or_default().to_vec())
}

fn ours() -> Known<Vec<u8>> {
    fs::readlink("/proc/self/ns/net", Vec::new())
        .map(std::ffi::CString::into_bytes)
        .map_err(|errno| why(errno, "our own network namespace"))
}

/// Returns where a process can be reached, and what it is connected to.
///
/// Both lists are sorted by inode, and a socket that the process holds twice is there once.
pub fn sockets(of: ProcessId, dump: &mut Dump) -> Known<Sockets> {
    let descriptors = Descriptors::open(of)?;
    let mut held = BTreeMap::new();
    descriptors.each_channel(|fd, text, _| {
        if let Text::Socket(inode) = text {
            held.insert(inode, fd);
        }
    })?;
    let mut sockets = Sockets::default();
    let mut mounts = None;
    for (inode, fd) in held {
        let socket = match dump.socket(&descriptors, fd, inode) {
            Err(_) if is_closed(&descriptors, fd, inode)? => continue,
            found => found?,
        };
        match socket {
            Socket::Unix(socket) => {
                let file = socket.file.and_then(|file| {
                    let mounts = mounts.get_or_insert_with(|| descriptors.mounts());
                    mounts.as_ref().ok().and_then(|mounts| unix::trusted(file, mounts))
                });
                sockets.add_unix(&socket, file);
            }
            Socket::Inet(socket) => sockets.add_inet(&socket),
            Socket::Unbound | Socket::LeftOut => {}
        }
    }
    descriptors.check()?;
    Ok(sockets)
}

/// Says whether a descriptor stopped being this socket since the table was read: then it is nothing to fail for.
fn is_closed(descriptors: &Descriptors, fd: u32, inode: u64) -> Known<bool> {
    Ok(descriptors.link(fd)?.is_none_or(|text| Text::of(&text) != Text::Socket(inode)))
}

impl Sockets {
    fn add_unix(&mut self, socket: &UnixSocket, file: Option<FileId>) {
        let family = match socket.kind {
            UnixKind::Stream => Family::Unix,
            UnixKind::Datagram => Family::UnixDatagram,
        };
        let name = socket.name.clone().unwrap_or_default();
        let is_listening = match socket.kind {
            UnixKind::Stream => socket.state == UnixState::Listening,
            // Datagrams reach whatever has a name, connected or not.
            UnixKind::Datagram => socket.name.is_some(),
        };
        let is_connected = match socket.kind {
            UnixKind::Stream => socket.state == UnixState::Connected,
            UnixKind::Datagram => socket.peer.is_some(),
        };
        let inode = socket.inode;
        if is_listening {
            // Only a stream's queue holds clients; a datagram socket's holds bytes.
            let pending = if family == Family::Unix { socket.queue.unwrap_or(0) } else { 0 };
            self.listeners.push(Listener { family, name: name.clone(), inode, file, pending });
        }
        if is_connected {
            self.connections.push(Connection { family, name, inode, peer: socket.peer() });
        }
    }

    fn add_inet(&mut self, socket: &InetSocket) {
        let name = socket.local.to_string().into();
        let inode = socket.inode;
        let family = match socket.protocol {
            Protocol::Tcp => Family::Tcp,
            Protocol::Udp => Family::Udp,
        };
        match (socket.protocol, socket.state) {
            (Protocol::Tcp, InetState::Listening) => {
                self.listeners.push(Listener { family, name, inode, file: None, pending: socket.queue });
            }
            (Protocol::Udp, InetState::Closed) => {
                self.listeners.push(Listener { family, name, inode, file: None, pending: 0 });
            }
            (Protocol::Tcp, InetState::Closed) => {}
            // A client that shut its own way (close-wait here) may still wait for its reply, so it stays connected.
            (_, InetState::Established | InetState::Passing) | (Protocol::Udp, InetState::Listening) => {
                let peer = Peer::Remote(socket.remote.to_string());
                self.connections.push(Connection { family, name, inode, peer });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_do_not_know_may_serve_somebody() {
        for name in [&b"MPTCP"[..], b"MPTCPv6", b"SCTP", b"SMC", b"UNIX-NEW", b""] {
            assert_eq!(Listing::of(name), Listing::Elsewhere, "{}", String::from_utf8_lossy(name));
        }
        assert_eq!(Listing::of(b"UNIX-STREAM"), Listing::Always);
        assert_eq!(Listing::of(b"UDPv6"), Listing::WhenBound);
        assert_eq!(Listing::of(b"NETLINK"), Listing::Never);
    }

    #[test]
    fn a_datagram_socket_with_a_name_is_reachable_though_connected() {
        let mut sockets = Sockets::default();
        let mut bytes = vec![1, 2, 1, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        for attribute in [&[7_u8, 0, 0, 0, b'/', b'x', 0, 0][..], &[8, 0, 2, 0, 4, 0, 0, 0]] {
            bytes.extend(attribute);
        }
        sockets.add_unix(&unix::row(&bytes).unwrap(), None);
        assert_eq!((sockets.listeners.len(), sockets.connections.len()), (1, 1));
        assert_eq!((sockets.listeners[0].family, sockets.listeners[0].pending), (Family::UnixDatagram, 0));
    }
}
