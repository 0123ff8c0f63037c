//! What a descriptor of a process is, and whether anybody is at its far end.
//!
//! Looking must not act. A descriptor's link text and an `O_PATH` reference tell nearly everything; only an
//! anonymous pipe is ever opened, since opening anything else may take a terminal, release a stranger who waits at a
//! FIFO, or arm a device. Not a byte is read from it.

pub(super) mod holders;
mod terminals;

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{self, FileType, Mode, OFlags};

pub use self::holders::holders;
pub use self::terminals::terminals;
use super::descriptors::{Access, Descriptors, Text, examine, why};
use super::sockets::{Dump, InetSocket, InetState, Protocol, Socket, UnixKind, UnixSocket, UnixState};
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::{Channel, ChannelKind, FarEnd, Peer, TerminalFate};

/// Magic numbers of linux/magic.h.
const PIPEFS: u64 = 0x5049_5045;
const DEVPTS: u64 = 0x1cd1;
/// What the kernel writes behind the path of a file without a name.
const DELETED: &[u8] = b" (deleted)";

/// Returns what a descriptor is, whether its far end is there, and how much is unread.
pub fn channel(of: ProcessId, fd: u32, dump: &mut Dump) -> Known<Channel> {
    let descriptors = Descriptors::open(of)?;
    let text = descriptors.link(fd)?;
    let channel = match &text {
        None => endless(ChannelKind::Closed),
        Some(text) => match Text::of(text) {
            Text::Pipe(inode) => pipe(&descriptors, fd, text, inode)?,
            Text::Socket(inode) => socket(dump.socket(&descriptors, fd, inode)?, text),
            Text::Other => endless(named(&descriptors, fd, text)?),
        },
    };
    // The table may have changed under us: an answer that mixes two files is none. Nor is one about a pipe that
    // everybody closed before we opened it, for then it was a new and empty one to us.
    if descriptors.link(fd)? != text {
        return Err(Unknown::new(Reason::Vanished, format!("descriptor {fd} of process {of}")));
    }
    descriptors.check()?;
    Ok(channel)
}

/// Returns the answer for what has no far end.
fn endless(kind: ChannelKind) -> Channel {
    let none = || Unknown::new(Reason::Unsupported, "far end of what has none");
    Channel { kind, far: Err(none()), unread: Err(none()) }
}

fn other(text: &[u8]) -> ChannelKind {
    ChannelKind::Other(String::from_utf8_lossy(text).into_owned())
}

/// Tells files with a path apart, by a reference that opens none of them.
fn named(descriptors: &Descriptors, fd: u32, text: &[u8]) -> Known<ChannelKind> {
    let reference = descriptors.reference(fd)?;
    let facts = examine(&reference, "kind of a descriptor")?;
    Ok(match FileType::from_raw_mode(facts.stx_mode.into()) {
        FileType::Fifo => ChannelKind::NamedFifo,
        FileType::RegularFile => ChannelKind::File,
        // Numbers of devices: the kernel's admin-guide/devices.txt. 1:3 is null; 4 and 5 are consoles, serial lines
        // and what stands for them; 136 to 143 are pseudo-terminals.
        FileType::CharacterDevice => match (facts.stx_rdev_major, facts.stx_rdev_minor) {
            (1, 3) => ChannelKind::Null,
            (4 | 5, _) => ChannelKind::Terminal(TerminalFate::Present),
            (136..=143, _) => ChannelKind::Terminal(fate(&reference, text)?),
            _ => other(text),
        },
        FileType::Directory
        | FileType::Symlink
        | FileType::BlockDevice
        | FileType::Socket
        | FileType::Unknown => other(text),
    })
}

/// When a master is closed, devpts drops the slave's name for good. Elsewhere a missing name is just a removed
/// device node. devpts is the kernel's own, so that asking for its kind cannot hang.
fn fate(reference: &OwnedFd, text: &[u8]) -> Known<TerminalFate> {
    let is_deleted = text.ends_with(DELETED) && magic(reference)? == DEVPTS;
    Ok(if is_deleted { TerminalFate::Deleted } else { TerminalFate::Present })
}

fn magic(reference: &OwnedFd) -> Known<u64> {
    let facts = fs::fstatfs(reference).map_err(|errno| why(errno, "file system of a descriptor"))?;
    Ok(facts.f_type.cast_unsigned())
}

fn pipe(descriptors: &Descriptors, fd: u32, text: &[u8], inode: u64) -> Known<Channel> {
    let access = descriptors.access(fd)?;
    let reference = descriptors.reference(fd)?;
    let facts = examine(&reference, "kind of a descriptor")?;
    if FileType::from_raw_mode(facts.stx_mode.into()) != FileType::Fifo || magic(&reference)? != PIPEFS {
        return Ok(endless(other(text)));
    }
    if facts.stx_ino != inode {
        return Err(Unknown::new(Reason::Vanished, "pipe of a descriptor"));
    }
    let kind = ChannelKind::Pipe { inode };
    Ok(match access {
        Access::None => endless(kind),
        Access::Read => {
            let (far, unread) = reading_end(&reference);
            Channel { kind, far, unread }
        }
        Access::Write => Channel { kind, far: writing_end(&reference), unread: Ok(0) },
        // It is its own far end.
        Access::Both => {
            let (_, unread) = reading_end(&reference);
            Channel { kind, far: Ok(FarEnd::Held), unread }
        }
    })
}

/// Opens the pipe behind a reference once more, which is ours to do without a trace:
///
/// * an anonymous pipe's open never waits for a partner (fifo(7) says it of named ones; `fifo_open` exempts pipefs)
///   and `O_NONBLOCK` says so twice;
/// * the target holds this very end, so that for the instant of our look the end is held by two instead of one:
///   its partner can see neither an end of file nor a broken pipe that would not have been there, nor miss one for
///   longer than that instant, since our closing wakes whoever waits;
/// * no byte is read or written.
fn reopen(reference: &OwnedFd, mode: OFlags) -> Known<OwnedFd> {
    let flags = mode | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let path = format!("/proc/self/fd/{}", reference.as_raw_fd());
    fs::open(path, flags, Mode::empty()).map_err(|errno| why(errno, "pipe of a descriptor"))
}

/// Without any writer a pipe's reading end hangs up (poll(2)), also while there is something to read.
fn reading_end(reference: &OwnedFd) -> (Known<FarEnd>, Known<u64>) {
    let end = match reopen(reference, OFlags::RDONLY) {
        Ok(end) => end,
        Err(unknown) => return (Err(unknown.clone()), Err(unknown)),
    };
    let far = far_end(&end, PollFlags::HUP);
    let unread = rustix::io::ioctl_fionread(&end).map_err(|errno| why(errno, "unread bytes of a pipe"));
    (far, unread)
}

/// Without any reader a pipe's writing end is in error (poll(2)). An open with `O_NONBLOCK` would not tell: only a
/// FIFO with a name fails with `ENXIO`, an anonymous pipe opens all the same (measured on 6.18).
fn writing_end(reference: &OwnedFd) -> Known<FarEnd> {
    let end = reopen(reference, OFlags::WRONLY)?;
    far_end(&end, PollFlags::ERR)
}

fn far_end(end: &OwnedFd, mark: PollFlags) -> Known<FarEnd> {
    let mut asked = [PollFd::new(end, PollFlags::empty())];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    poll(&mut asked, Some(&now)).map_err(|errno| why(errno, "far end of a pipe"))?;
    let seen = asked[0].revents();
    if seen.contains(PollFlags::NVAL) {
        return Err(Unknown::new(Reason::Unsupported, "far end of a pipe"));
    }
    Ok(if seen.contains(mark) { FarEnd::Gone } else { FarEnd::Held })
}

fn socket(socket: Socket, text: &[u8]) -> Channel {
    match socket {
        Socket::Unix(socket) => unix(&socket, text),
        Socket::Inet(socket) => inet(&socket, text),
        Socket::Unbound => endless(ChannelKind::Unconnected),
        Socket::LeftOut => endless(other(text)),
    }
}

fn unix(socket: &UnixSocket, text: &[u8]) -> Channel {
    match (socket.kind, socket.state) {
        (UnixKind::Datagram, _) => endless(other(text)),
        (UnixKind::Stream, UnixState::Listening) => endless(ChannelKind::Listener),
        (UnixKind::Stream, UnixState::Neither) => endless(ChannelKind::Unconnected),
        (UnixKind::Stream, UnixState::Connected) => Channel {
            kind: ChannelKind::Stream { inode: socket.inode },
            far: match socket.peer() {
                Peer::Gone => Ok(FarEnd::Gone),
                Peer::Inode(_) => Ok(FarEnd::Held),
                Peer::Unknown | Peer::Remote(_) => {
                    Err(Unknown::new(Reason::Unsupported, "peer of a socket that nobody accepted"))
                }
            },
            unread: socket
                .queue
                .map(u64::from)
                .ok_or_else(|| Unknown::new(Reason::Unsupported, "unread bytes of a socket")),
        },
    }
}

/// TCP cannot tell a peer that is gone from one that said all it had to say: a closed connection's far end is
/// unknown.
fn inet(socket: &InetSocket, text: &[u8]) -> Channel {
    let stream = |far| Channel {
        kind: ChannelKind::Stream { inode: socket.inode },
        far,
        unread: Ok(u64::from(socket.queue)),
    };
    match (socket.protocol, socket.state) {
        (Protocol::Udp, _) => endless(other(text)),
        (Protocol::Tcp, InetState::Listening) => endless(ChannelKind::Listener),
        (Protocol::Tcp, InetState::Closed) => endless(ChannelKind::Unconnected),
        (Protocol::Tcp, InetState::Established) => stream(Ok(FarEnd::Held)),
        (Protocol::Tcp, InetState::Passing) => {
            stream(Err(Unknown::new(Reason::Unsupported, "far end of a TCP connection that is being closed")))
        }
    }
}
