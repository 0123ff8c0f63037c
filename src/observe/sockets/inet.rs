//! TCP and UDP sockets as inet_diag shows them: the request and a row.

use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::netlink::word;

/// What is asked for: family (`AF_INET`, `AF_INET6`) and protocol (`IPPROTO_TCP`, `IPPROTO_UDP`).
pub(super) const TABLES: [(u8, u8); 4] = [(2, TCP), (10, TCP), (2, UDP), (10, UDP)];
const TCP: u8 = 6;
const UDP: u8 = 17;
/// Length of `struct inet_diag_sockid`.
const NAMES: usize = 48;
/// Offsets in `struct inet_diag_msg` of linux/inet_diag.h.
const QUEUE: usize = 56;
const INODE: usize = 68;

/// A TCP or UDP socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::observe) struct Socket {
    pub(in crate::observe) inode: u64,
    pub(in crate::observe) protocol: Protocol,
    pub(in crate::observe) state: State,
    pub(in crate::observe) local: SocketAddr,
    pub(in crate::observe) remote: SocketAddr,
    /// Bytes to be read; of a listener, clients to be accepted.
    pub(in crate::observe) queue: u32,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::observe) enum Protocol {
    Tcp,
    Udp,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::observe) enum State {
    Established,
    Listening,
    /// `TCP_CLOSE`: UDP without a peer.
    Closed,
    /// On its way up or down.
    Passing,
}

/// Returns the request for all sockets of one table, in every state.
pub(super) fn request((family, protocol): (u8, u8)) -> Vec<u8> {
    let mut bytes = vec![family, protocol, 0, 0];
    bytes.extend(u32::MAX.to_ne_bytes());
    bytes.resize(bytes.len() + NAMES, 0);
    bytes
}

/// Returns one row of a table; nothing where it is too short, or is no process's socket (time-wait and
/// half-open rows have inode 0).
pub(super) fn row(protocol: u8, bytes: &[u8]) -> Option<Socket> {
    let inode = u64::from(word(bytes, INODE)?);
    let family = *bytes.first()?;
    let state = match *bytes.get(1)? {
        1 => State::Established,
        7 => State::Closed,
        10 => State::Listening,
        _ => State::Passing,
    };
    let socket = Socket {
        inode,
        protocol: if protocol == TCP { Protocol::Tcp } else { Protocol::Udp },
        state,
        local: address(family, bytes, 8, 4)?,
        remote: address(family, bytes, 24, 6)?,
        queue: word(bytes, QUEUE)?,
    };
    (inode != 0).then_some(socket)
}

/// A mapped address is the IPv4 address it stands for, so that both ends of a connection are written alike
/// whichever family their sockets are of.
fn address(family: u8, bytes: &[u8], address: usize, port: usize) -> Option<SocketAddr> {
    let ip = if family == 2 {
        IpAddr::from(<[u8; 4]>::try_from(bytes.get(address..address + 4)?).ok()?)
    } else {
        Ipv6Addr::from(<[u8; 16]>::try_from(bytes.get(address..address + 16)?).ok()?).to_canonical()
    };
    let port = u16::from_be_bytes(bytes.get(port..port + 2)?.try_into().ok()?);
    Some(SocketAddr::new(ip, port))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn bytes(family: u8, local: &[u8], port: u16) -> Vec<u8> {
        let mut bytes = vec![0; 72];
        bytes[0] = family;
        bytes[1] = 10;
        bytes[4..6].copy_from_slice(&port.to_be_bytes());
        bytes[8..8 + local.len()].copy_from_slice(local);
        bytes[INODE..].copy_from_slice(&77_u32.to_ne_bytes());
        bytes
    }

    #[test]
    fn addresses_as_people_write_them() {
        let local = |family, local: &[u8]| row(TCP, &bytes(family, local, 8080)).unwrap().local.to_string();
        assert_eq!(local(2, &[127, 0, 0, 1]), "127.0.0.1:8080");
        assert_eq!(local(10, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]), "[::1]:8080");
        assert_eq!(local(10, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 255, 127, 0, 0, 1]), "127.0.0.1:8080");
    }

    #[test]
    fn a_row_without_an_inode_is_nobodys() {
        let mut bytes = bytes(2, &[127, 0, 0, 1], 1);
        bytes[INODE..].fill(0);
        assert_eq!(row(TCP, &bytes), None);
    }

    proptest! {
        #[test]
        fn hostile_rows_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..96)) {
            prop_assert!(row(TCP, &bytes).is_none() || bytes.len() >= 72);
        }
    }
}
