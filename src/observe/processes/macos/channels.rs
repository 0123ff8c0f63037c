//! Far ends of descriptors and the sockets of a process, through libproc: nothing is ever opened.

use bstr::BString;

use crate::model::id::{Pid, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::{
    Census, Channel, ChannelKind, Connection, FarEnd, Holders, Listener, Peer, Sockets, TerminalFate,
};

use super::records::{
    FILE_DESCRIPTOR, Family, Held, Kind, PIPE_DESCRIPTOR, Pipe, SOCKET_DESCRIPTOR, Socket, held_file, pipe,
    socket,
};

/// `S_IFMT` and the types of `<sys/stat.h>`.
const TYPE: u16 = 0o170_000;
const FIFO: u16 = 0o010_000;
const DEVICE: u16 = 0o020_000;
const REGULAR: u16 = 0o100_000;
/// `SOCK_STREAM`.
const STREAM: i32 = 1;
/// `TSI_S_CLOSED` and `TSI_S_LISTEN`.
const CLOSED: i32 = 0;
const LISTEN: i32 = 1;

/// Reads the descriptors of processes; the kernel behind it, or what a test says.
pub(super) trait Source {
    /// Returns the open descriptors.
    fn descriptors(&self, pid: Pid) -> Known<Vec<(u32, Kind)>>;
    /// Returns the bytes of one descriptor's record, which is `length` long.
    fn record(&self, pid: Pid, fd: u32, kind: Kind, length: usize) -> Known<Vec<u8>>;
    /// Returns every process that might hold something.
    fn everybody(&self) -> Known<Vec<ProcessId>>;
}

/// Returns what a descriptor is, and whether anybody is at its far end.
pub(super) fn channel(source: &impl Source, of: Pid, fd: u32) -> Known<Channel> {
    let Some(kind) = find(source, of, fd)? else {
        return Ok(Channel { kind: ChannelKind::Closed, far: none(), unread: none() });
    };
    match kind {
        Kind::Pipe => {
            let pipe = read_pipe(source, of, fd)?;
            let far = if pipe.peer == 0 { FarEnd::Gone } else { FarEnd::Held };
            Ok(Channel {
                kind: ChannelKind::Pipe { inode: pipe.handle },
                far: Ok(far),
                unread: Ok(pipe.unread),
            })
        }
        Kind::Socket => Ok(of_socket(&read_socket(source, of, fd)?)),
        Kind::File => {
            let held = held_file(&source.record(of, fd, kind, FILE_DESCRIPTOR)?).ok_or_else(misread)?;
            Ok(Channel { kind: of_file(&held), far: none(), unread: none() })
        }
        Kind::Other(number) => Ok(Channel {
            kind: ChannelKind::Other(format!("descriptor of kind {number}")),
            far: none(),
            unread: none(),
        }),
    }
}

fn of_socket(socket: &Socket) -> Channel {
    let mut far = none();
    let kind = match socket.family {
        _ if socket.listens => ChannelKind::Listener,
        Family::Unix { peer, .. } if socket.kind == STREAM => {
            if peer != 0 {
                far = Ok(FarEnd::Held);
                ChannelKind::Stream { inode: socket.handle }
            } else if socket.state & Socket::DISCONNECTED != 0 && socket.state & Socket::ENDED != 0 {
                // It says itself that it had a peer and lost it. Without both, it may never have had one.
                far = Ok(FarEnd::Gone);
                ChannelKind::Stream { inode: socket.handle }
            } else {
                ChannelKind::Unconnected
            }
        }
        Family::Unix { .. } => ChannelKind::Other("datagram socket".to_owned()),
        Family::Tcp { .. } | Family::Ip { .. } => ChannelKind::Other("network socket".to_owned()),
        Family::Other(kind) => ChannelKind::Other(format!("socket of kind {kind}")),
    };
    Channel { kind, far, unread: Ok(socket.unread.into()) }
}

fn of_file(held: &Held) -> ChannelKind {
    match held.mode & TYPE {
        FIFO => ChannelKind::NamedFifo,
        REGULAR => ChannelKind::File,
        _ if held.path == "/dev/null" => ChannelKind::Null,
        // A terminal that is gone is revoked: its record is refused before we come here, which is unknown.
        _ if held.path.starts_with(b"/dev/tty") => ChannelKind::Terminal(TerminalFate::Present),
        _ => ChannelKind::Other(crate::model::escape::escape(&held.path)),
    }
}

/// Returns who holds the far end of a descriptor.
pub(super) fn holders(source: &impl Source, of: Pid, fd: u32) -> Known<Holders> {
    let kind = find(source, of, fd)?;
    let far = match kind {
        Some(Kind::Pipe) => read_pipe(source, of, fd)?.peer,
        Some(Kind::Socket) => match read_socket(source, of, fd)?.family {
            Family::Unix { peer, .. } => peer,
            Family::Tcp { .. } | Family::Ip { .. } | Family::Other(_) => 0,
        },
        Some(Kind::File | Kind::Other(_)) | None => 0,
    };
    let mut holders = Holders { seen: Vec::new(), census: Census::Whole };
    if far == 0 {
        return Ok(holders);
    }
    let mut unread = 0_u32;
    for id in source.everybody()? {
        match holds(source, id.pid, far) {
            Ok(true) => holders.seen.push(id),
            // Who is gone meanwhile holds nothing.
            Ok(false) | Err(Unknown { reason: Reason::Vanished, .. }) => {}
            Err(_) => unread += 1,
        }
    }
    if unread > 0 {
        holders.census = Census::Partial(unread);
    }
    Ok(holders)
}

fn holds(source: &impl Source, pid: Pid, far: u64) -> Known<bool> {
    for (fd, kind) in source.descriptors(pid)? {
        let handle = match kind {
            Kind::Pipe => read_pipe(source, pid, fd).map(|pipe| pipe.handle),
            Kind::Socket => read_socket(source, pid, fd).map(|socket| socket.handle),
            Kind::File | Kind::Other(_) => continue,
        };
        match handle {
            Ok(handle) if handle == far => return Ok(true),
            // Another one, or closed since it was listed.
            Ok(_) | Err(Unknown { reason: Reason::Failed(EBADF), .. }) => {}
            Err(unknown) => return Err(unknown),
        }
    }
    Ok(false)
}

/// `EBADF`, 9 on every Unix.
const EBADF: i32 = 9;

/// Returns the listening and connected sockets of a process. One that cannot be read leaves all of them unknown: it
/// might be the one that a client uses.
pub(super) fn sockets(source: &impl Source, of: Pid) -> Known<Sockets> {
    let mut all = Sockets::default();
    for (fd, kind) in source.descriptors(of)? {
        if kind != Kind::Socket {
            continue;
        }
        match read_socket(source, of, fd) {
            Ok(socket) => sort_in(socket, &mut all),
            Err(Unknown { reason: Reason::Failed(EBADF), .. }) => {}
            Err(unknown) => return Err(unknown),
        }
    }
    Ok(all)
}

/// Returns the terminals whose master side a process holds: none, or unknown.
///
/// A master is a clone of `/dev/ptmx`, and the headers do not say how its number and its terminal's belong together.
/// So whoever holds one may serve anybody's terminal.
pub(super) fn terminals(source: &impl Source, of: Pid) -> Known<Vec<i32>> {
    for (fd, kind) in source.descriptors(of)? {
        if kind != Kind::File {
            continue;
        }
        let held = match source.record(of, fd, kind, FILE_DESCRIPTOR) {
            Ok(record) => held_file(&record).ok_or_else(misread)?,
            Err(Unknown { reason: Reason::Failed(EBADF), .. }) => continue,
            Err(unknown) => return Err(unknown),
        };
        let device = held.mode & TYPE == DEVICE;
        if device && (held.path.is_empty() || held.path.starts_with(b"/dev/pt")) {
            return Err(Unknown::new(Reason::Unsupported, "which terminal it serves"));
        }
    }
    Ok(Vec::new())
}

fn sort_in(socket: Socket, all: &mut Sockets) {
    use crate::model::question::Family as As;
    let inode = socket.handle;
    let mut listen = |family, name: BString| {
        all.listeners.push(Listener { family, name, inode, file: None, pending: socket.pending });
    };
    match socket.family {
        Family::Unix { path, .. } if socket.listens => listen(As::Unix, path),
        Family::Unix { path, .. } if socket.kind != STREAM && !path.is_empty() => {
            listen(As::UnixDatagram, path);
        }
        Family::Unix { peer, path } => {
            let peer = if peer == 0 { Peer::Gone } else { Peer::Inode(peer) };
            all.connections.push(Connection { family: As::Unix, name: path, inode, peer });
        }
        Family::Tcp { local, state, .. } if state == LISTEN || socket.listens => {
            listen(As::Tcp, local.name());
        }
        Family::Tcp { state: CLOSED, .. } => {}
        Family::Tcp { local, remote, .. } => {
            let peer = Peer::Remote(remote.name().to_string());
            all.connections.push(Connection { family: As::Tcp, name: local.name(), inode, peer });
        }
        Family::Ip { local, .. } if local.port != 0 => listen(As::Udp, local.name()),
        Family::Ip { .. } | Family::Other(_) => {}
    }
}

impl super::records::Address {
    fn name(self) -> BString {
        std::net::SocketAddr::new(self.ip, self.port).to_string().into()
    }
}

fn find(source: &impl Source, of: Pid, fd: u32) -> Known<Option<Kind>> {
    Ok(source.descriptors(of)?.into_iter().find(|&(number, _)| number == fd).map(|(_, kind)| kind))
}

fn read_pipe(source: &impl Source, of: Pid, fd: u32) -> Known<Pipe> {
    pipe(&source.record(of, fd, Kind::Pipe, PIPE_DESCRIPTOR)?).ok_or_else(misread)
}

fn read_socket(source: &impl Source, of: Pid, fd: u32) -> Known<Socket> {
    socket(&source.record(of, fd, Kind::Socket, SOCKET_DESCRIPTOR)?).ok_or_else(misread)
}

fn none<T>() -> Known<T> {
    Err(Unknown::new(Reason::Unsupported, "a far end, which this kind of descriptor has not"))
}

fn misread() -> Unknown {
    Unknown::new(Reason::Unsupported, "a record that is not as its header has it")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::Start;
    use std::collections::BTreeMap;

    /// Descriptors as a test says; those of a pid that is not listed are refused.
    #[derive(Default)]
    struct Said(BTreeMap<i32, Table>);

    type Table = Vec<(u32, Kind, Vec<u8>)>;

    impl Source for Said {
        fn descriptors(&self, pid: Pid) -> Known<Vec<(u32, Kind)>> {
            let refused = Unknown::new(Reason::Denied, "descriptors");
            let list = self.0.get(&pid.number()).ok_or(refused)?;
            Ok(list.iter().map(|(fd, kind, _)| (*fd, *kind)).collect())
        }

        fn record(&self, pid: Pid, fd: u32, _: Kind, length: usize) -> Known<Vec<u8>> {
            let (_, _, record) = self.0[&pid.number()].iter().find(|entry| entry.0 == fd).unwrap();
            assert_eq!(record.len(), length);
            Ok(record.clone())
        }

        fn everybody(&self) -> Known<Vec<ProcessId>> {
            let mut all: Vec<i32> = self.0.keys().copied().collect();
            all.push(99);
            Ok(all.into_iter().map(|pid| ProcessId { pid: self::pid(pid), start: Start(1) }).collect())
        }
    }

    fn pid(number: i32) -> Pid {
        Pid::new(number).unwrap()
    }

    fn pipe_end(handle: u64, peer: u64) -> Vec<u8> {
        let mut record = vec![0; PIPE_DESCRIPTOR];
        record[160..168].copy_from_slice(&handle.to_le_bytes());
        record[168..176].copy_from_slice(&peer.to_le_bytes());
        record
    }

    fn unix(handle: u64, peer: u64, state: u16) -> Vec<u8> {
        let mut record = vec![0; SOCKET_DESCRIPTOR];
        record[160..168].copy_from_slice(&handle.to_le_bytes());
        record[176] = 1; // SOCK_STREAM
        record[192..194].copy_from_slice(&state.to_le_bytes());
        record[256] = 3; // SOCKINFO_UN
        record[264..272].copy_from_slice(&peer.to_le_bytes());
        record
    }

    fn said(entries: Vec<(i32, Table)>) -> Said {
        Said(entries.into_iter().collect())
    }

    #[test]
    fn only_a_peer_of_zero_is_gone() {
        let said = said(vec![(5, vec![(0, Kind::Pipe, pipe_end(1, 0)), (1, Kind::Pipe, pipe_end(3, 4))])]);
        assert_eq!(channel(&said, pid(5), 0).unwrap().far, Ok(FarEnd::Gone));
        assert_eq!(channel(&said, pid(5), 1).unwrap().far, Ok(FarEnd::Held));
        assert_eq!(channel(&said, pid(5), 2).unwrap().kind, ChannelKind::Closed);
        assert!(channel(&said, pid(99), 0).is_err(), "a refusal is unknown, never closed");
    }

    #[test]
    fn a_socket_that_never_had_a_peer_has_not_lost_one() {
        let lost = Socket::DISCONNECTED | Socket::ENDED;
        let said = said(vec![(
            5,
            vec![
                (0, Kind::Socket, unix(1, 0, lost)),
                (1, Kind::Socket, unix(2, 0, 0)),
                (2, Kind::Socket, unix(3, 9, 2)),
            ],
        )]);
        assert_eq!(channel(&said, pid(5), 0).unwrap().far, Ok(FarEnd::Gone));
        assert_eq!(channel(&said, pid(5), 1).unwrap().kind, ChannelKind::Unconnected);
        assert!(channel(&said, pid(5), 1).unwrap().far.is_err());
        assert_eq!(channel(&said, pid(5), 2).unwrap().far, Ok(FarEnd::Held));
    }

    #[test]
    fn holders_say_how_far_the_search_reached() {
        let said = said(vec![
            (5, vec![(0, Kind::Pipe, pipe_end(1, 2))]),
            (6, vec![(7, Kind::Pipe, pipe_end(2, 1))]),
        ]);
        let holders = holders(&said, pid(5), 0).unwrap();
        assert_eq!(holders.seen.iter().map(|id| id.pid.number()).collect::<Vec<_>>(), [6]);
        assert_eq!(holders.census, Census::Partial(1), "99 could not be read");
    }

    fn file(mode: u16, path: &[u8]) -> Vec<u8> {
        let mut record = vec![0; FILE_DESCRIPTOR];
        record[28..30].copy_from_slice(&mode.to_le_bytes());
        record[176..176 + path.len()].copy_from_slice(path);
        record
    }

    #[test]
    fn who_holds_a_master_may_serve_anybody_b01() {
        let holding = |path: &[u8]| said(vec![(5, vec![(3, Kind::File, file(DEVICE | 0o666, path))])]);
        assert_eq!(terminals(&holding(b"/dev/null"), pid(5)), Ok(Vec::new()));
        assert_eq!(terminals(&holding(b"/dev/ttys003"), pid(5)), Ok(Vec::new()));
        assert!(terminals(&holding(b"/dev/ptmx"), pid(5)).is_err());
        assert!(terminals(&holding(b""), pid(5)).is_err(), "a device without a name may be one");
        assert!(terminals(&holding(b"/dev/null"), pid(99)).is_err());
        assert_eq!(channel(&holding(b"/dev/null"), pid(5), 3).unwrap().kind, ChannelKind::Null);
    }

    #[test]
    fn accepted_connections_know_their_peer() {
        let mut listener = unix(4, 0, 0);
        listener[188] = 2; // SO_ACCEPTCONN
        listener[280] = 8;
        listener[282..288].copy_from_slice(b"/tmp/s");
        let said = said(vec![(
            5,
            vec![
                (3, Kind::Socket, listener),
                (4, Kind::Socket, unix(5, 8, 2)),
                (5, Kind::Socket, unix(6, 0, 2)),
            ],
        )]);
        let sockets = sockets(&said, pid(5)).unwrap();
        assert_eq!(sockets.listeners.len(), 1);
        assert_eq!(sockets.listeners[0].name, "/tmp/s");
        let peers: Vec<&Peer> = sockets.connections.iter().map(|connection| &connection.peer).collect();
        assert_eq!(peers, [&Peer::Inode(8), &Peer::Gone]);
        assert!(super::sockets(&said, pid(99)).is_err());
    }
}
