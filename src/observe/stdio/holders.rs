//! Who holds the far end of a descriptor: one census of everybody's pipes and sockets per look.
//!
//! What a census cannot see: ends that are under way in a message (unix(7), `SCM_RIGHTS`) or registered with
//! io_uring(7), and tables that a thread has to itself. So nobody seen at an end that the kernel calls held is a
//! partial census, and never "nobody".

use super::channel;
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::{Census, ChannelKind, FarEnd, Holders, Peer};
use crate::model::table::{Kernel, Table};
use crate::observe::descriptors::{Access, Descriptors, Text};
use crate::observe::processes;
use crate::observe::sockets::{Dump, Socket};

/// Everybody's pipes and sockets.
#[derive(Debug)]
pub(in crate::observe) struct Ends {
    // Invariant: sorted.
    ends: Vec<(End, ProcessId)>,
    /// Processes whose table could not be read.
    unread: u32,
}

/// An end of a pipe or a socket, as somebody holds it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Pipe(u64, Access),
    Socket(u64),
}

/// Returns who holds the far end of a descriptor, the process itself included where it does.
///
/// The census is taken once per [`Dump`], from the table of the first call, whatever table later calls bring. It is
/// taken even where the parent holds the end: whether that parent is itself an orphan, the caller alone can say, and
/// a closed set (CASES A32) is only seen as one when nobody is left out.
pub fn holders(of: ProcessId, fd: u32, table: &Table, dump: &mut Dump) -> Known<Holders> {
    let asked = channel(of, fd, dump)?;
    if asked.far == Ok(FarEnd::Gone) {
        return Ok(Holders { seen: Vec::new(), census: Census::Whole });
    }
    let descriptors = Descriptors::open(of)?;
    let far = match asked.kind {
        ChannelKind::Pipe { inode } => Far::Pipe(inode, descriptors.access(fd)?),
        ChannelKind::Stream { inode } => Far::Socket(peer(&descriptors, fd, inode, dump)?),
        ChannelKind::NamedFifo
        | ChannelKind::Terminal(_)
        | ChannelKind::Null
        | ChannelKind::File
        | ChannelKind::Listener
        | ChannelKind::Unconnected
        | ChannelKind::Closed
        | ChannelKind::Other(_) => {
            return Err(Unknown::new(Reason::Unsupported, "far end of what has none"));
        }
    };
    let ends = dump.ends.get_or_insert_with(|| Ends::of_all(table)).as_ref().map_err(Clone::clone)?;
    let mut seen: Vec<ProcessId> =
        ends.ends.iter().filter(|(end, _)| far.is_held_by(*end)).map(|&(_, holder)| holder).collect();
    seen.sort_unstable();
    seen.dedup();
    let unseen = ends.unread.saturating_add(u32::from(seen.is_empty()));
    let census = if unseen == 0 { Census::Whole } else { Census::Partial(unseen) };
    Ok(Holders { seen, census })
}

/// Returns everybody who was seen to hold a socket. The census is the one of [`holders`].
pub(in crate::observe) fn holding(socket: u64, table: &Table, dump: &mut Dump) -> Known<Vec<ProcessId>> {
    let ends = dump.ends.get_or_insert_with(|| Ends::of_all(table)).as_ref().map_err(Clone::clone)?;
    let held = ends.ends.iter().filter(|(end, _)| *end == End::Socket(socket));
    let mut seen: Vec<ProcessId> = held.map(|&(_, holder)| holder).collect();
    seen.dedup();
    Ok(seen)
}

/// The far end that is looked for.
#[derive(Debug, Clone, Copy)]
enum Far {
    /// Of a pipe that is held in this way.
    Pipe(u64, Access),
    Socket(u64),
}

impl Far {
    fn is_held_by(self, end: End) -> bool {
        match (self, end) {
            (Far::Pipe(pipe, near), End::Pipe(inode, access)) => {
                pipe == inode
                    && (near.is_reading() && access.is_writing() || near.is_writing() && access.is_reading())
            }
            (Far::Socket(peer), End::Socket(inode)) => peer == inode,
            (Far::Pipe(..), End::Socket(_)) | (Far::Socket(_), End::Pipe(..)) => false,
        }
    }
}

fn peer(descriptors: &Descriptors, fd: u32, inode: u64, dump: &mut Dump) -> Known<u64> {
    let peer = match dump.socket(descriptors, fd, inode)? {
        Socket::Unix(socket) => match socket.peer() {
            Peer::Inode(peer) => Some(peer),
            Peer::Gone | Peer::Remote(_) | Peer::Unknown => None,
        },
        Socket::Inet(socket) => dump.twin(&socket)?,
        Socket::Unbound | Socket::LeftOut => None,
    };
    peer.ok_or_else(|| Unknown::new(Reason::Foreign, "peer of a socket"))
}

impl Ends {
    /// Reads the descriptor tables of all processes, but for the kernel's own threads, which have none.
    fn of_all(table: &Table) -> Known<Ends> {
        let mut ends = Vec::new();
        let mut unread = 0;
        for row in table.rows().iter().filter(|row| row.kernel == Kernel::No && !row.is_gone()) {
            match of_one(row.id, &mut ends) {
                Ok(()) => {}
                // Its descriptors were closed with it; but a dead leader's threads may hold theirs on (CASES C24).
                Err(Unknown { reason: Reason::Vanished, .. }) if row.threads <= 1 => {}
                Err(Unknown { reason: Reason::Starved, what }) => {
                    return Err(Unknown::new(Reason::Starved, what));
                }
                Err(_) => unread += 1,
            }
        }
        if processes::is_blind(table)? {
            unread += 1;
        }
        ends.sort_unstable();
        Ok(Ends { ends, unread })
    }
}

fn of_one(id: ProcessId, ends: &mut Vec<(End, ProcessId)>) -> Known<()> {
    Descriptors::open(id)?.each_channel(|_, text, access| match text {
        Text::Pipe(inode) => ends.push((End::Pipe(inode, access), id)),
        Text::Socket(inode) => ends.push((End::Socket(inode), id)),
        Text::Other => {}
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opposite_ends_only() {
        let reader = Far::Pipe(5, Access::Read);
        assert!(reader.is_held_by(End::Pipe(5, Access::Write)));
        assert!(reader.is_held_by(End::Pipe(5, Access::Both)));
        assert!(!reader.is_held_by(End::Pipe(5, Access::Read)));
        assert!(!reader.is_held_by(End::Pipe(5, Access::None)));
        assert!(!reader.is_held_by(End::Pipe(6, Access::Write)));
        assert!(!reader.is_held_by(End::Socket(5)));
        assert!(Far::Pipe(5, Access::Write).is_held_by(End::Pipe(5, Access::Read)));
        assert!(Far::Pipe(5, Access::Both).is_held_by(End::Pipe(5, Access::Read)));
    }
}
