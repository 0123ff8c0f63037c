//! sock_diag(7): asks the kernel for all sockets of one family in our network namespace, and takes its reply apart.

use std::time::Duration;

use rustix::io::Errno;
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recvfrom, sendto, socket_with,
    sockopt::{Timeout, set_socket_timeout},
};

use crate::model::known::{Known, Reason, Unknown};
use crate::observe::descriptors::why;

/// `SOCK_DIAG_BY_FAMILY` of linux/sock_diag.h: both the request and each row of the reply.
const BY_FAMILY: u16 = 20;
/// `NLMSG_ERROR` and `NLMSG_DONE` of netlink(7).
const ERROR: u16 = 2;
const DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_DUMP` of netlink(7).
const DUMP: u16 = 0x301;
/// `NLM_F_DUMP_INTR`: the kernel's lists changed while they were read, and rows may be missing.
const INTERRUPTED: u16 = 0x10;
/// Length of `struct nlmsghdr`.
const HEADER: usize = 16;
/// The kernel fills at most 32 KiB of a reader's buffer at a time (af_netlink.c); twice that cannot be cut off.
const ROOM: usize = 64 * 1024;
/// How often an interrupted dump is asked for again.
const TRIES: u32 = 3;
/// A dump is answered within one call; a kernel that lets us wait is not going to answer.
const PATIENCE: Duration = Duration::from_secs(2);

/// Calls for every row of a dump, with its bytes behind the header. Rows are handed over only when the whole dump
/// came through.
pub(super) fn dump<R>(request: &[u8], row: impl Fn(&[u8]) -> Option<R>, what: &str) -> Known<Vec<R>> {
    for _ in 0..TRIES {
        match ask(request, &row, what)? {
            Dumped::Whole(rows) => return Ok(rows),
            Dumped::Interrupted => {}
        }
    }
    Err(Unknown::new(Reason::Failed(Errno::INTR.raw_os_error()), what))
}

enum Dumped<R> {
    Whole(Vec<R>),
    Interrupted,
}

fn ask<R>(request: &[u8], row: &impl Fn(&[u8]) -> Option<R>, what: &str) -> Known<Dumped<R>> {
    let failed = |errno: Errno| match errno {
        // A kernel without this family's module answers ENOENT, one without sock_diag EPROTONOSUPPORT.
        Errno::NOENT | Errno::PROTONOSUPPORT => Unknown::new(Reason::Unsupported, what),
        Errno::AGAIN => Unknown::new(Reason::Hung, what),
        other => why(other, what),
    };
    let kernel = netlink::SocketAddrNetlink::new(0, 0);
    let flags = SocketFlags::CLOEXEC;
    let family = AddressFamily::NETLINK;
    let socket = socket_with(family, SocketType::RAW, flags, Some(netlink::SOCK_DIAG)).map_err(failed)?;
    set_socket_timeout(&socket, Timeout::Recv, Some(PATIENCE)).map_err(failed)?;
    sendto(&socket, &message(request), SendFlags::empty(), &kernel).map_err(failed)?;

    let mut rows = Vec::new();
    let mut whole = true;
    let mut room = vec![0; ROOM];
    loop {
        let (_, length, from) = match recvfrom(&socket, &mut room[..], RecvFlags::TRUNC) {
            Err(Errno::INTR) => continue,
            received => received.map_err(failed)?,
        };
        // Privileged processes may write to our socket too; only the kernel has port 0.
        let from = from.and_then(|from| netlink::SocketAddrNetlink::try_from(from).ok());
        if from.is_none_or(|from| from.pid() != 0) {
            continue;
        }
        let Some(packet) = room.get(..length) else {
            return Err(Unknown::new(Reason::Truncated, what));
        };
        for message in Messages(packet) {
            let message = message.map_err(|Malformed| Unknown::new(Reason::Unsupported, what))?;
            whole &= message.flags & INTERRUPTED == 0;
            match message.kind {
                BY_FAMILY => rows.extend(row(message.payload)),
                DONE | ERROR => match word(message.payload, 0).map_or(0, u32::cast_signed) {
                    0 if whole => return Ok(Dumped::Whole(rows)),
                    0 => return Ok(Dumped::Interrupted),
                    errno => return Err(failed(Errno::from_raw_os_error(errno.saturating_neg()))),
                },
                _ => {}
            }
        }
    }
}

fn message(request: &[u8]) -> Vec<u8> {
    let length = u32::try_from(HEADER + request.len()).unwrap_or(u32::MAX);
    let mut bytes = Vec::with_capacity(HEADER + request.len());
    bytes.extend(length.to_ne_bytes());
    bytes.extend(BY_FAMILY.to_ne_bytes());
    bytes.extend(DUMP.to_ne_bytes());
    bytes.extend(1_u32.to_ne_bytes());
    bytes.extend(0_u32.to_ne_bytes());
    bytes.extend(request);
    bytes
}

/// A length that does not fit what it is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Malformed;

/// One message of a packet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Message<'a> {
    kind: u16,
    flags: u16,
    payload: &'a [u8],
}

/// The messages of a packet; the first malformed one ends them.
struct Messages<'a>(&'a [u8]);

impl<'a> Iterator for Messages<'a> {
    type Item = Result<Message<'a>, Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let read = || {
            let length = usize::try_from(word(self.0, 0)?).ok()?;
            let payload = self.0.get(HEADER..length)?;
            let message = Message { kind: half(self.0, 4)?, flags: half(self.0, 6)?, payload };
            Some((message, aligned(self.0, length)))
        };
        let Some((message, rest)) = read() else {
            self.0 = &[];
            return Some(Err(Malformed));
        };
        self.0 = rest;
        Some(Ok(message))
    }
}

/// The attributes behind a row's fixed part, by type; the first malformed one ends them.
pub(super) struct Attributes<'a>(pub(super) &'a [u8]);

impl<'a> Iterator for Attributes<'a> {
    type Item = (u16, &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        let length = usize::from(half(self.0, 0)?);
        let kind = half(self.0, 2)?;
        let payload = self.0.get(4..length)?;
        self.0 = aligned(self.0, length);
        Some((kind, payload))
    }
}

fn aligned(bytes: &[u8], length: usize) -> &[u8] {
    bytes.get(length.next_multiple_of(4)..).unwrap_or_default()
}

/// Returns the 32-bit number at a place, in the machine's order.
pub(super) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(bytes.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

fn half(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(bytes.get(at..at.checked_add(2)?)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn two_messages_and_their_padding() {
        let mut packet = message(b"abcde");
        packet.extend([0; 3]);
        packet.extend(message(b""));
        let read: Vec<_> = Messages(&packet).map(|message| message.unwrap().payload.to_vec()).collect();
        assert_eq!(read, [b"abcde".to_vec(), Vec::new()]);
    }

    #[test]
    fn a_length_beyond_the_packet_is_malformed() {
        let mut packet = message(b"abcd");
        packet[0] += 1;
        assert_eq!(Messages(&packet).collect::<Vec<_>>(), [Err(Malformed)]);
        assert_eq!(Messages(&[0; 16]).collect::<Vec<_>>(), [Err(Malformed)]);
    }

    #[test]
    fn attributes_of_one_row() {
        let mut bytes = Vec::new();
        for (kind, payload) in [(2_u16, &[7, 0, 0, 0][..]), (6, &[3]), (0, b"")] {
            bytes.extend(u16::try_from(4 + payload.len()).unwrap().to_ne_bytes());
            bytes.extend(kind.to_ne_bytes());
            bytes.extend(payload);
            bytes.resize(bytes.len().next_multiple_of(4), 0);
        }
        let read: Vec<_> = Attributes(&bytes).collect();
        assert_eq!(read, [(2, &[7, 0, 0, 0][..]), (6, &[3]), (0, b"")]);
    }

    proptest! {
        #[test]
        fn hostile_packets_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            prop_assert!(Messages(&bytes).count() <= bytes.len());
            prop_assert!(Attributes(&bytes).count() <= bytes.len());
        }
    }
}
