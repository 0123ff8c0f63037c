//! Finds the socket that a process listens on, and connects to that very one.
//!
//! Captured text never leads anywhere by itself: it only picks one of the process's own listeners, from the kernel's
//! list of this moment. A Unix socket is reached by a reference to its file, whose device and inode are those that the
//! kernel told of the listener; so neither a long path nor a swapped directory leads elsewhere.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsRawFd as _, OwnedFd};

use bstr::{BStr, BString, ByteSlice as _};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, ipproto, socket_with};

use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::{Family, Listener};
use crate::observe::descriptors::why;
use crate::observe::processes::{self, Way};
use crate::observe::sockets::{self, Dump};

use super::guise::as_user;

/// One listener of a process, and the way to it.
#[derive(Debug)]
pub(super) struct Contact {
    of: ProcessId,
    listener: Listener,
    to: To,
}

#[derive(Debug)]
enum To {
    File(Way),
    Abstract(BString),
    Tcp(SocketAddr),
}

/// A socket of ours.
#[derive(Debug)]
pub(super) enum Connected {
    /// The kernel has put it into the listener's queue.
    Yes(OwnedFd),
    /// It is under way.
    Soon(OwnedFd),
}

impl Contact {
    /// Finds the listener by its name.
    pub(super) fn find(of: ProcessId, name: &BStr, dump: &mut Dump) -> Known<Contact> {
        let found = sockets::sockets(of, dump)?.listeners;
        let mut named = found.iter().filter(|listener| listener.name == name);
        let nobody =
            || Unknown::new(Reason::Vanished, format!("the server at {name}: it listens nowhere there"));
        let listener = named.next().ok_or_else(nobody)?.clone();
        if named.next().is_some() {
            return Err(Unknown::new(Reason::Unsound, format!("which of several sockets at {name} answers")));
        }
        let unasked = |what: &str| Unknown::new(Reason::Unsupported, format!("asking {name}, {what}"));
        let to = match listener.family {
            Family::Unix if name.starts_with(b"/") => To::File(processes::way(of)?),
            Family::Unix if name.starts_with(b"@") => To::Abstract(name[1..].into()),
            Family::Unix => return Err(unasked("which is no absolute path")),
            Family::Tcp => To::Tcp(only_ours(name, &found, dump)?),
            Family::UnixDatagram | Family::Udp => return Err(unasked("where nobody connects")),
        };
        Ok(Contact { of, listener, to })
    }

    /// Connects, without waiting.
    pub(super) fn connect(&self) -> Known<Connected> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let new = |family| {
            socket_with(family, SocketType::STREAM, flags, None)
                .map_err(|errno| why(errno, "a socket of ours"))
        };
        match &self.to {
            To::File(way) => as_user(way.user, way.group, || {
                let file = self.reference(way)?;
                let path = format!("/proc/self/fd/{}", file.as_raw_fd());
                let address =
                    SocketAddrUnix::new(path).map_err(|errno| why(errno, "the way to its socket"))?;
                let socket = new(AddressFamily::UNIX)?;
                made(connect(&socket, &address), socket)
            }),
            To::Abstract(name) => {
                let way = processes::way(self.of)?;
                as_user(way.user, way.group, || {
                    let address = SocketAddrUnix::new_abstract_name(name)
                        .map_err(|errno| why(errno, "the way to its socket"))?;
                    let socket = new(AddressFamily::UNIX)?;
                    made(connect(&socket, &address), socket)
                })
            }
            To::Tcp(address) => {
                let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
                let socket = socket_with(family, SocketType::STREAM, flags, Some(ipproto::TCP))
                    .map_err(|errno| why(errno, "a socket of ours"))?;
                made(connect(&socket, address), socket)
            }
        }
    }

    /// Says that nothing changed meanwhile: the process still listens with that socket, and its path leads there.
    pub(super) fn still(&self, dump: &mut Dump) -> Known<()> {
        let now = sockets::sockets(self.of, dump)?.listeners;
        let is_same = |other: &Listener| {
            (other.inode, &other.name, other.file)
                == (self.listener.inode, &self.listener.name, self.listener.file)
        };
        if !now.iter().any(is_same) {
            let what = format!("the server at {}: it stopped to listen there", self.listener.name);
            return Err(Unknown::new(Reason::Vanished, what));
        }
        match &self.to {
            To::File(way) => as_user(way.user, way.group, || self.reference(way).map(drop)),
            To::Abstract(_) => Ok(()),
            To::Tcp(_) => only_ours(self.listener.name.as_bstr(), &now, dump).map(drop),
        }
    }

    fn reference(&self, way: &Way) -> Known<OwnedFd> {
        let name = self.listener.name.as_bstr();
        let file = self.listener.file.ok_or_else(|| {
            Unknown::new(Reason::Untrusted, format!("whether the file at {name} is its socket's"))
        })?;
        way.to(name, file)
    }
}

/// Returns where to connect for a TCP listener: its own address, or loopback where it listens at any. Where another
/// socket may take the connection instead, it is unknown who would answer.
fn only_ours(name: &BStr, listeners: &[Listener], dump: &mut Dump) -> Known<SocketAddr> {
    let own = name.to_str().ok().and_then(|name| name.parse::<SocketAddr>().ok());
    let own =
        own.ok_or_else(|| Unknown::new(Reason::Unsupported, format!("asking {name}, which is no address")))?;
    let at = SocketAddr::new(loopback(own.ip()), own.port());
    let may_accept = dump.listening_tcp(at)?;
    let is_ours = |inode: &u64| listeners.iter().any(|listener| listener.inode == *inode);
    if may_accept.is_empty() || !may_accept.iter().all(is_ours) {
        return Err(Unknown::new(Reason::Unsound, format!("who answers at {at}, where others listen too")));
    }
    Ok(at)
}

fn loopback(ip: IpAddr) -> IpAddr {
    match ip {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        same @ (IpAddr::V4(_) | IpAddr::V6(_)) => same,
    }
}

pub(super) fn made(connecting: Result<(), Errno>, socket: OwnedFd) -> Known<Connected> {
    match connecting {
        Ok(()) => Ok(Connected::Yes(socket)),
        Err(Errno::INPROGRESS) => Ok(Connected::Soon(socket)),
        Err(errno) => Err(refusal(errno)),
    }
}

/// Returns why a connection was not made. None of this says anything about whether the server lives.
pub(super) fn refusal(errno: Errno) -> Unknown {
    let words = match errno {
        Errno::AGAIN => "connecting to it: its backlog is full, it is busy",
        Errno::CONNREFUSED => "connecting to it: nobody listens there now",
        Errno::NOENT => "connecting to it: its path is gone",
        Errno::PROTOTYPE => "connecting to it: it is no stream socket",
        Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH => {
            "connecting to it: its address is not reached"
        }
        _ => "connecting to it",
    };
    match errno {
        Errno::AGAIN => Unknown::new(Reason::Unsound, words),
        other => why(other, words),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_in_us_or_in_the_kernel_is_a_silence_b15() {
        for errno in [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS] {
            assert_eq!(refusal(errno).reason, Reason::Starved, "{errno}");
        }
        assert_eq!(refusal(Errno::ACCESS).reason, Reason::Denied);
        assert!(refusal(Errno::AGAIN).to_string().contains("busy"));
    }

    #[test]
    fn any_address_is_asked_at_loopback_and_no_other_is_changed() {
        let at = |ip: &str| loopback(ip.parse().unwrap()).to_string();
        assert_eq!((at("0.0.0.0").as_str(), at("::").as_str()), ("127.0.0.1", "::1"));
        assert_eq!((at("10.0.0.7").as_str(), at("fe80::1").as_str()), ("10.0.0.7", "fe80::1"));
    }
}
