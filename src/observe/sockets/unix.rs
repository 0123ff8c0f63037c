//! Unix sockets as unix_diag shows them: the request, a row, and what its peer attribute means.

use bstr::BString;

use super::netlink::{Attributes, word};
use crate::model::id::FileId;
use crate::model::question::Peer;

/// Attributes of linux/unix_diag.h.
const NAME: u16 = 0;
const VFS: u16 = 1;
const PEER: u16 = 2;
const ICONS: u16 = 3;
const RQLEN: u16 = 4;
const SHUTDOWN: u16 = 6;
/// `UDIAG_SHOW_NAME | UDIAG_SHOW_VFS | UDIAG_SHOW_PEER | UDIAG_SHOW_ICONS | UDIAG_SHOW_RQLEN`.
const SHOW: u32 = 0x01 | 0x02 | 0x04 | 0x08 | 0x10;
/// `AF_UNIX`.
const FAMILY: u8 = 1;
/// Length of `struct unix_diag_msg`.
const FIXED: usize = 16;
/// `RCV_SHUTDOWN | SEND_SHUTDOWN` of the kernel's sock.h.
const BOTH_WAYS: u8 = 3;

/// A Unix socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::observe) struct Socket {
    pub(in crate::observe) inode: u64,
    pub(in crate::observe) kind: Kind,
    pub(in crate::observe) state: State,
    /// The name it was bound to, as written then; an accepted socket bears its listener's.
    pub(super) name: Option<BString>,
    /// Device and inode of the file it was bound to, the inode's lower 32 bits only.
    pub(super) file: Option<FileId>,
    /// The peer attribute as it came: absent, 0, or an inode.
    pub(super) peer: Option<u64>,
    /// Which ways are shut.
    pub(super) shut: Option<u8>,
    /// Bytes to be read; of a listener, clients to be accepted, without those that left again: whoever waits in a
    /// queue and is closed has no inode any more, like an accepted one. Our own earlier requests stay in the queue of a
    /// server that accepts no longer, and would else look like clients for ever.
    pub(in crate::observe) queue: Option<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::observe) enum Kind {
    /// `SOCK_STREAM` and `SOCK_SEQPACKET`: those connect, and know when their peer is gone.
    Stream,
    Datagram,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::observe) enum State {
    Connected,
    Listening,
    Neither,
}

impl Socket {
    /// Returns who is at the other end, if it ever had one.
    ///
    /// A stream whose peer was closed keeps pointing at the peer's remains, and those have no inode: the attribute is
    /// there and 0. That alone proves nothing: a client whom nobody accepted *yet* shows 0 too, for its peer has
    /// no descriptor so far (measured on 6.18). Only the closing of the peer shuts both ways of this end
    /// (`unix_release_sock`), so that both together are the proof.
    pub(in crate::observe) fn peer(&self) -> Peer {
        match (self.peer, self.kind, self.shut) {
            (Some(0), Kind::Datagram, _) | (Some(0), Kind::Stream, Some(BOTH_WAYS)) => Peer::Gone,
            (Some(0), Kind::Stream, _) | (None, _, _) => Peer::Unknown,
            (Some(inode), _, _) => Peer::Inode(inode),
        }
    }
}

/// Returns the request for all Unix sockets of our network namespace, in every state.
pub(super) fn request() -> Vec<u8> {
    let mut bytes = vec![FAMILY, 0, 0, 0];
    for number in [u32::MAX, 0, SHOW, 0, 0] {
        bytes.extend(number.to_ne_bytes());
    }
    bytes
}

/// Returns one row; nothing where it is too short to be one.
pub(super) fn row(bytes: &[u8]) -> Option<Socket> {
    let (kind, state) = (*bytes.get(1)?, *bytes.get(2)?);
    let mut socket = Socket {
        inode: u64::from(word(bytes, 4)?),
        // SOCK_DGRAM is 2.
        kind: if kind == 2 { Kind::Datagram } else { Kind::Stream },
        // TCP_ESTABLISHED and TCP_LISTEN of the kernel's tcp_states.h, which unix(7) sockets borrow.
        state: match state {
            1 => State::Connected,
            10 => State::Listening,
            _ => State::Neither,
        },
        name: None,
        file: None,
        peer: None,
        shut: None,
        queue: None,
    };
    let mut waiting = None;
    for (attribute, payload) in Attributes(bytes.get(FIXED..)?) {
        match attribute {
            NAME => socket.name = name(payload),
            VFS => socket.file = file(payload),
            PEER => socket.peer = word(payload, 0).map(u64::from),
            ICONS => waiting = Some(payload.chunks_exact(4).filter(|inode| inode != &[0; 4]).count()),
            SHUTDOWN => socket.shut = payload.first().copied(),
            RQLEN => socket.queue = word(payload, 0),
            _ => {}
        }
    }
    if socket.state == State::Listening
        && let Some(waiting) = waiting
    {
        socket.queue = u32::try_from(waiting).ok();
    }
    Some(socket)
}

/// Paths come with their terminating NUL, abstract names with a leading one (unix(7)).
fn name(bytes: &[u8]) -> Option<BString> {
    match bytes {
        [] => None,
        [0, name @ ..] => Some([b"@", name].concat().into()),
        path => Some(path.strip_suffix(&[0]).unwrap_or(path).into()),
    }
}

/// The kernel sends its own device number, 12 bits major over 20 bits minor, which stat(2) never shows.
fn file(bytes: &[u8]) -> Option<FileId> {
    let (ino, dev) = (word(bytes, 0)?, word(bytes, 4)?);
    let dev = rustix::fs::makedev(dev >> 20, dev & 0xf_ffff);
    (ino != 0).then_some(FileId { dev, ino: u64::from(ino) })
}

/// Returns the identity of a bound file where the kernel's answer can be trusted to equal stat(2)'s, by the mounts
/// of the process.
///
/// unix_diag sends the lower half of the inode and the superblock's device. On btrfs and overlayfs stat(2) shows
/// another device, and xfs or zfs have inodes beyond 32 bits: a difference there would look like a socket that
/// nobody can reach. So only file systems count whose inodes are small and whose device is the superblock's; by their
/// numbers they stand in `residue/directories`.
pub(super) fn trusted(file: FileId, mounts: &[u8]) -> Option<FileId> {
    let device = format!("{}:{}", rustix::fs::major(file.dev), rustix::fs::minor(file.dev));
    let kind = mounts.split(|&byte| byte == b'\n').find_map(|line| {
        let mut fields = line.split(|&byte| byte == b' ');
        (fields.nth(2)? == device.as_bytes()).then(|| fields.skip_while(|&field| field != b"-").nth(1))?
    })?;
    let kinds: [&[u8]; 6] = [b"ext2", b"ext3", b"ext4", b"tmpfs", b"ramfs", b"devtmpfs"];
    kinds.contains(&kind).then_some(file)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn stream(peer: Option<u64>, shut: Option<u8>) -> Socket {
        Socket {
            inode: 9,
            kind: Kind::Stream,
            state: State::Connected,
            name: None,
            file: None,
            peer,
            shut,
            queue: None,
        }
    }

    #[test]
    fn peer_absent_is_unknown_and_zero_is_gone_only_when_shut_f3() {
        assert_eq!(stream(None, Some(3)).peer(), Peer::Unknown);
        assert_eq!(stream(Some(0), Some(3)).peer(), Peer::Gone);
        assert_eq!(stream(Some(0), Some(0)).peer(), Peer::Unknown);
        assert_eq!(stream(Some(0), Some(1)).peer(), Peer::Unknown);
        assert_eq!(stream(Some(0), None).peer(), Peer::Unknown);
        assert_eq!(stream(Some(7), Some(3)).peer(), Peer::Inode(7));
    }

    #[test]
    fn who_left_the_queue_waits_no_more_m3() {
        let queue = |state: u8, icons: &[u32]| {
            let mut bytes = vec![1, 1, state, 0, 9, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
            bytes.extend([8, 0, 4, 0, 3, 0, 0, 0]);
            let length = u16::try_from(4 + 4 * icons.len()).unwrap();
            bytes.extend(length.to_ne_bytes().iter().chain(&ICONS.to_ne_bytes()));
            bytes.extend(icons.iter().flat_map(|inode| inode.to_ne_bytes()));
            row(&bytes).unwrap().queue
        };
        assert_eq!(queue(10, &[7, 0, 8]), Some(2));
        assert_eq!(queue(10, &[0, 0, 0]), Some(0));
        assert_eq!(queue(1, &[0]), Some(3), "of a connection the queue holds bytes");
    }

    #[test]
    fn names_as_people_write_them() {
        assert_eq!(name(b"/run/x.sock\0"), Some("/run/x.sock".into()));
        assert_eq!(name(b"\0abc\0d"), Some(BString::from(&b"@abc\0d"[..])));
        assert_eq!(name(b""), None);
    }

    #[test]
    fn device_of_the_kernel_becomes_the_device_of_stat() {
        let mut bytes = 12_u32.to_ne_bytes().to_vec();
        bytes.extend(((254_u32 << 20) | 0x12c).to_ne_bytes());
        assert_eq!(file(&bytes), Some(FileId { dev: rustix::fs::makedev(254, 300), ino: 12 }));
    }

    #[test]
    fn identity_only_where_stat_agrees_f7() {
        let mounts =
            b"22 1 254:0 / / rw shared:1 - ext4 /dev/a rw\n31 22 0:40 /v /data rw - btrfs /dev/b rw\n";
        let at = |major, minor| FileId { dev: rustix::fs::makedev(major, minor), ino: 5 };
        assert_eq!(trusted(at(254, 0), mounts), Some(at(254, 0)));
        assert_eq!(trusted(at(0, 40), mounts), None);
        assert_eq!(trusted(at(0, 41), mounts), None);
    }

    proptest! {
        #[test]
        fn hostile_rows_end_without_a_panic(bytes in proptest::collection::vec(any::<u8>(), 0..128)) {
            prop_assert_eq!(row(&bytes).is_none(), bytes.len() < FIXED);
        }
    }
}
