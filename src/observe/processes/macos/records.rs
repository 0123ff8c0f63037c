//! The records of libproc, read by offset: working directory, unique number, descriptors, pipes and sockets.
//!
//! Layouts are those of Apple's `<sys/proc_info.h>` (LP64), whose sizes libproc itself checks: a record of another
//! length is refused there. Nothing here names an Apple type, so all of it is tested wherever the project is.

use bstr::BString;

use super::bytes::{i32_at, text_at, u8_at, u16_at, u32_at, u64_at};
use crate::model::id::FileId;

/// `struct vinfo_stat`.
const VINFO_STAT: usize = 136;
/// `struct vnode_info`: a `vinfo_stat`, the type, padding, and the file system's number.
const VNODE_INFO: usize = VINFO_STAT + 16;
/// `struct vnode_info_path`: the above and `MAXPATHLEN` bytes of path.
const VNODE_INFO_PATH: usize = VNODE_INFO + PATH;
/// `MAXPATHLEN`.
const PATH: usize = 1024;
/// `struct proc_fileinfo`, which stands before every record of a descriptor.
const FILE: usize = 24;

/// Length of `struct proc_vnodepathinfo`: working directory and root directory.
pub(super) const DIRECTORIES: usize = 2 * VNODE_INFO_PATH;
/// Length of `struct proc_uniqidentifierinfo`.
pub(super) const UNIQUE: usize = 56;
/// Length of `struct proc_fdinfo`.
pub(super) const DESCRIPTOR: usize = 8;
/// Length of `struct vnode_fdinfowithpath`.
pub(super) const FILE_DESCRIPTOR: usize = FILE + VNODE_INFO_PATH;
/// Length of `struct pipe_fdinfo`.
pub(super) const PIPE_DESCRIPTOR: usize = FILE + VINFO_STAT + 24;
/// Length of `struct socket_fdinfo`.
pub(super) const SOCKET_DESCRIPTOR: usize = FILE + SOCKET_UNION + 528;
/// Where the part of `struct socket_info` begins that differs by family.
const SOCKET_UNION: usize = 240;

const _: () = assert!(DIRECTORIES == 2352 && FILE_DESCRIPTOR == 1200);
const _: () = assert!(PIPE_DESCRIPTOR == 184 && SOCKET_DESCRIPTOR == 792);

/// A file or directory that a process holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Held {
    /// Which one.
    pub(super) file: FileId,
    /// Its type and permissions (`st_mode`).
    pub(super) mode: u16,
    /// How many names it has.
    pub(super) links: u16,
    /// For a device: which one.
    pub(super) device: u32,
    /// The file system's number, as `getfsstat(2)` has it.
    pub(super) file_system: u64,
    /// Where the kernel says it is; empty where it found no path.
    pub(super) path: BString,
}

/// Returns the working directory out of a `proc_vnodepathinfo`.
pub(super) fn working_directory(record: &[u8]) -> Option<Held> {
    held(record)
}

/// Says whether a `proc_vnodepathinfo` names a root directory of the process's own (chroot(2)).
pub(super) fn has_own_root(record: &[u8]) -> Option<bool> {
    Some(!text_at(record, VNODE_INFO_PATH + VNODE_INFO, PATH)?.is_empty())
}

/// Returns the file behind a descriptor out of a `vnode_fdinfowithpath`.
pub(super) fn held_file(record: &[u8]) -> Option<Held> {
    held(record.get(FILE..)?)
}

fn held(record: &[u8]) -> Option<Held> {
    Some(Held {
        file: FileId { dev: u32_at(record, 0)?.into(), ino: u64_at(record, 8)? },
        mode: u16_at(record, 4)?,
        links: u16_at(record, 6)?,
        device: u32_at(record, 116)?,
        file_system: u64_at(record, VINFO_STAT + 8)?,
        path: text_at(record, VNODE_INFO, PATH)?.into(),
    })
}

/// Returns `p_uniqueid`, which the kernel never gives to another process within a boot.
pub(super) fn unique(record: &[u8]) -> Option<u64> {
    u64_at(record, 16).filter(|&unique| unique != 0)
}

/// Kinds of descriptor (`PROX_FDTYPE_*`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A file, directory or device.
    File,
    /// A socket.
    Socket,
    /// A pipe.
    Pipe,
    /// Something that has no far end: kqueue, shared memory and the like.
    Other(u32),
}

/// Returns the open descriptors out of a list of `proc_fdinfo`.
pub(super) fn descriptors(list: &[u8]) -> Vec<(u32, Kind)> {
    list.chunks_exact(DESCRIPTOR)
        .filter_map(|entry| {
            let number = u32::try_from(i32_at(entry, 0)?).ok()?;
            let kind = match u32_at(entry, 4)? {
                1 => Kind::File,
                2 => Kind::Socket,
                6 => Kind::Pipe,
                other => Kind::Other(other),
            };
            Some((number, kind))
        })
        .collect()
}

/// One end of a pipe. The kernel hides addresses behind numbers that stay equal for as long as it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pipe {
    /// This end.
    pub(super) handle: u64,
    /// The far end; 0 once nobody holds it.
    pub(super) peer: u64,
    /// Bytes that wait in this end.
    pub(super) unread: u64,
}

/// Returns the pipe out of a `pipe_fdinfo`.
pub(super) fn pipe(record: &[u8]) -> Option<Pipe> {
    let pipe = record.get(FILE..)?;
    let handle = u64_at(pipe, VINFO_STAT)?;
    // An end without a number of its own was not filled in, and says nothing of a peer.
    (handle != 0).then_some(())?;
    Some(Pipe { handle, peer: u64_at(pipe, VINFO_STAT + 8)?, unread: u64_at(pipe, 88)? })
}

/// A socket of a process.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Socket {
    /// This socket.
    pub(super) handle: u64,
    /// `SOCK_STREAM` (1), `SOCK_DGRAM` (2) or another.
    pub(super) kind: i32,
    /// Whether it waits for clients (`SO_ACCEPTCONN`).
    pub(super) listens: bool,
    /// `soi_state`, the bits of `SOI_S_*`.
    pub(super) state: u16,
    /// Clients that wait to be accepted.
    pub(super) pending: u32,
    /// Bytes that wait to be read.
    pub(super) unread: u32,
    /// What differs by family.
    pub(super) family: Family,
}

/// What differs by family.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Family {
    /// Unix.
    Unix {
        /// The socket at the other end; 0 for none.
        peer: u64,
        /// The path it is bound to; empty for none.
        path: BString,
    },
    /// TCP over IPv4 or IPv6.
    Tcp {
        /// Our end.
        local: Address,
        /// The other end; port 0 for none.
        remote: Address,
        /// `TSI_S_*`.
        state: i32,
    },
    /// UDP and other IP sockets.
    Ip {
        /// Our end.
        local: Address,
        /// The other end; port 0 for none.
        remote: Address,
    },
    /// Anything else.
    Other(i32),
}

/// An IP address and port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Address {
    /// The address.
    pub(super) ip: std::net::IpAddr,
    /// The port.
    pub(super) port: u16,
}

impl Socket {
    /// `SOI_S_CANTRCVMORE`.
    pub(super) const ENDED: u16 = 0x0020;
    /// `SOI_S_ISDISCONNECTED`: it had a peer, and has none.
    pub(super) const DISCONNECTED: u16 = 0x2000;
}

/// Returns the socket out of a `socket_fdinfo`.
pub(super) fn socket(record: &[u8]) -> Option<Socket> {
    /// `SO_ACCEPTCONN` of `<sys/socket.h>`.
    const ACCEPTS: u16 = 0x0002;
    let socket = record.get(FILE..)?;
    let handle = u64_at(socket, 136)?;
    (handle != 0).then_some(())?;
    let differs = socket.get(SOCKET_UNION..)?;
    Some(Socket {
        handle,
        kind: i32_at(socket, 152)?,
        listens: u16_at(socket, 164)? & ACCEPTS != 0,
        state: u16_at(socket, 168)?,
        pending: u32::from(u16_at(socket, 170)?) + u32::from(u16_at(socket, 172)?),
        unread: u32_at(socket, 184)?,
        family: match i32_at(socket, 232)? {
            1 => Family::Ip { local: address(differs, 48, 4)?, remote: address(differs, 32, 0)? },
            2 => Family::Tcp {
                local: address(differs, 48, 4)?,
                remote: address(differs, 32, 0)?,
                state: i32_at(differs, 80)?,
            },
            3 => Family::Unix { peer: u64_at(differs, 0)?, path: bound_path(differs)? },
            other => Family::Other(other),
        },
    })
}

/// `sockaddr_un` has a length and a family byte before the path.
fn bound_path(differs: &[u8]) -> Option<BString> {
    const ADDRESS: usize = 16;
    let length = usize::from(u8_at(differs, ADDRESS)?);
    Some(text_at(differs, ADDRESS + 2, length.saturating_sub(2).min(253))?.into())
}

/// `in_sockinfo` keeps ports in network order, and IPv4 addresses in the last quarter of the field.
fn address(differs: &[u8], ip: usize, port: usize) -> Option<Address> {
    /// `INI_IPV6`.
    const IPV6: u8 = 2;
    let port = u16::from_be_bytes([u8_at(differs, port)?, u8_at(differs, port + 1)?]);
    let bytes: [u8; 16] = *differs.get(ip..)?.first_chunk()?;
    let ip = if u8_at(differs, 24)? & IPV6 != 0 {
        std::net::Ipv6Addr::from(bytes).into()
    } else {
        std::net::Ipv4Addr::new(bytes[12], bytes[13], bytes[14], bytes[15]).into()
    };
    Some(Address { ip, port })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // The records here were constructed by offset from Apple's headers, not recorded on a Mac.

    fn set(record: &mut [u8], offset: usize, value: &[u8]) {
        record[offset..offset + value.len()].copy_from_slice(value);
    }

    #[test]
    fn a_working_directory() {
        let mut record = vec![0; 2352];
        set(&mut record, 0, &0x0100_0011_u32.to_le_bytes());
        set(&mut record, 4, &0o40755_u16.to_le_bytes());
        set(&mut record, 6, &3_u16.to_le_bytes());
        set(&mut record, 8, &77_u64.to_le_bytes());
        set(&mut record, 144, &9_u64.to_le_bytes());
        set(&mut record, 152, b"/Users/ana/src\0rest");
        let held = working_directory(&record).unwrap();
        assert_eq!(held.file, FileId { dev: 0x0100_0011, ino: 77 });
        assert_eq!((held.links, held.mode, held.file_system), (3, 0o40755, 9));
        assert_eq!(held.path, "/Users/ana/src");
        assert_eq!(working_directory(&record[..200]), None, "cut short");
        assert_eq!(has_own_root(&record), Some(false));
        set(&mut record, 1176 + 152, b"/jail");
        assert_eq!(has_own_root(&record), Some(true));
    }

    #[test]
    fn a_pipe_whose_far_end_is_gone() {
        let mut record = vec![0; 184];
        set(&mut record, 24 + 88, &5_u64.to_le_bytes());
        set(&mut record, 24 + 136, &0xabc_u64.to_le_bytes());
        assert_eq!(pipe(&record), Some(Pipe { handle: 0xabc, peer: 0, unread: 5 }));
        assert_eq!(pipe(&[0; 184]), None, "a record nobody filled in is no proof");
        assert_eq!(pipe(&record[..170]), None);
    }

    #[test]
    fn sockets_by_family() {
        let mut record = vec![0; 792];
        set(&mut record, 24 + 136, &7_u64.to_le_bytes());
        set(&mut record, 24 + 152, &1_i32.to_le_bytes());
        set(&mut record, 24 + 164, &2_u16.to_le_bytes());
        set(&mut record, 24 + 170, &2_u16.to_le_bytes());
        set(&mut record, 24 + 232, &3_i32.to_le_bytes());
        set(&mut record, 24 + 240 + 16, &[17, 1]);
        set(&mut record, 24 + 240 + 18, b"/tmp/x/a.sock\0\0\0");
        let unix = socket(&record).unwrap();
        assert!(unix.listens);
        assert_eq!(unix.pending, 2);
        assert_eq!(unix.family, Family::Unix { peer: 0, path: "/tmp/x/a.sock".into() });

        set(&mut record, 24 + 232, &2_i32.to_le_bytes());
        set(&mut record, 24 + 240, &[0; 128]);
        set(&mut record, 24 + 240 + 4, &[0x1f, 0x90]);
        set(&mut record, 24 + 240 + 24, &[1]);
        set(&mut record, 24 + 240 + 60, &[127, 0, 0, 1]);
        set(&mut record, 24 + 240 + 80, &1_i32.to_le_bytes());
        let Family::Tcp { local, remote, state } = socket(&record).unwrap().family else { panic!("tcp") };
        assert_eq!((local.ip.to_string().as_str(), local.port), ("127.0.0.1", 8080));
        assert_eq!((remote.port, state), (0, 1));
        assert_eq!(socket(&[0; 792]), None);
    }

    #[test]
    fn descriptors_by_kind() {
        let mut list = Vec::new();
        for (fd, kind) in [(0, 6), (1, 2), (3, 1), (4, 5), (-1, 1)] {
            list.extend_from_slice(&i32::to_le_bytes(fd));
            list.extend_from_slice(&u32::to_le_bytes(kind));
        }
        list.push(9);
        assert_eq!(
            descriptors(&list),
            [(0, Kind::Pipe), (1, Kind::Socket), (3, Kind::File), (4, Kind::Other(5))]
        );
    }

    #[test]
    fn a_unique_number_of_zero_is_none() {
        let mut record = vec![0; UNIQUE];
        assert_eq!(unique(&record), None);
        set(&mut record, 16, &8_u64.to_le_bytes());
        assert_eq!(unique(&record), Some(8));
    }

    proptest! {
        #[test]
        fn hostile_records_never_panic(record in proptest::collection::vec(any::<u8>(), 0..2400)) {
            let _ = (working_directory(&record), held_file(&record), pipe(&record), socket(&record));
            let _ = (unique(&record), descriptors(&record));
        }
    }
}
