//! The sockets inside a container's own network namespace. Everybody may read their list.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

use bstr::{BStr, ByteSlice as _};

use super::census::inode;
use super::members::{Networks, network};
use crate::model::container::{ContainerId, ContainerSockets};
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::observe::processes;
use crate::observe::sockets::{UnixState, named};

/// Where Docker itself answers for names in networks that somebody made; every container has it.
const RESOLVER: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 11));

/// States of the kernel's tcp_states.h, as the lists have them; UDP borrows them.
const ESTABLISHED: u8 = 1;
const UNCONNECTED: u8 = 7;
const LISTENING: u8 = 10;

/// Returns what can be reached in a container's network, and who is connected. A network that it has not to itself
/// tells nothing of it.
pub(super) fn sockets(init: ProcessId, of: &ContainerId, networks: &Networks) -> Known<ContainerSockets> {
    let own = network(init.pid)?;
    if inode(Path::new("/proc/self/net/unix")).is_ok_and(|ours| ours == own) {
        return Err(Unknown::new(Reason::Unsupported, "its sockets, since it uses the network of the host"));
    }
    if let Some(other) = networks.beside(own, of) {
        let what = format!("its sockets, since it shares its network with process {}", other.pid);
        return Err(Unknown::new(Reason::Unsupported, what));
    }
    let mut tables = Vec::new();
    for (name, protocol) in [("tcp", "tcp"), ("tcp6", "tcp"), ("udp", "udp"), ("udp6", "udp")] {
        tables.push((protocol, rows(&read(init, name)?)?));
    }
    let unix = read(init, "unix")?;
    still(init)?;
    Ok(found(&tables, &unix))
}

/// Returns how many connections stand to a TCP port in the network of a container's first process.
pub(in crate::observe) fn connections(init: ProcessId, port: u16) -> Known<usize> {
    let mut count = 0;
    for name in ["tcp", "tcp6"] {
        let stands = |row: &&Row| row.0 == ESTABLISHED && row.1.port() == port;
        count += rows(&read(init, name)?)?.iter().filter(stands).count();
    }
    still(init)?;
    Ok(count)
}

/// Returns one of the lists of the network that a process is in.
fn read(init: ProcessId, name: &str) -> Known<Vec<u8>> {
    let path = format!("/proc/{}/net/{name}", init.pid);
    match std::fs::read(&path) {
        Ok(text) => Ok(text),
        // Without IPv6 there are no such lists.
        Err(error) if error.kind() == std::io::ErrorKind::NotFound && name.ends_with('6') => Ok(Vec::new()),
        Err(error) => {
            let errno = rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO);
            Err(processes::unknown(errno, "the sockets in its network"))
        }
    }
}

/// Says that a process is there: what was read was its network only if it is.
fn still(init: ProcessId) -> Known<()> {
    let row = processes::bearer(init.pid)?;
    if row.is_none_or(|row| row.id != init || row.is_gone()) {
        return Err(Unknown::new(Reason::Vanished, "its first process"));
    }
    Ok(())
}

/// A row of a list: state, and both ends.
type Row = (u8, SocketAddr, SocketAddr);

fn found(tables: &[(&str, Vec<Row>)], unix: &[u8]) -> ContainerSockets {
    let mut sockets = ContainerSockets::default();
    let ends: BTreeSet<(SocketAddr, SocketAddr)> =
        tables.iter().flat_map(|(_, rows)| rows).map(|&(_, local, remote)| (local, remote)).collect();
    for (protocol, rows) in tables {
        for &(state, local, remote) in rows {
            let is_open = state == LISTENING || *protocol == "udp" && state == UNCONNECTED;
            if is_open && local.ip() != RESOLVER {
                sockets.listeners.push(format!("{protocol} {local}"));
            } else if state == ESTABLISHED && !ends.contains(&(remote, local)) {
                sockets.connections.push(format!("{protocol} {local} {remote}"));
            }
        }
    }
    let listens = named(unix).filter(|row| row.state == UnixState::Listening);
    sockets.listeners.extend(listens.map(|row| format!("unix {}", BStr::new(row.name))));
    sockets.listeners.sort();
    sockets.listeners.dedup();
    sockets.connections.sort();
    sockets.connections.dedup();
    sockets
}

/// Returns the rows of `/proc/PID/net/tcp` and its like (proc_pid_net(5)).
fn rows(text: &[u8]) -> Known<Vec<Row>> {
    let row = |line: &[u8]| {
        let mut fields = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty()).skip(1);
        let (local, remote) = (address(fields.next()?)?, address(fields.next()?)?);
        let state = u8::from_str_radix(fields.next()?.to_str().ok()?, 16).ok()?;
        Some((state, local, remote))
    };
    let rows: Option<Vec<Row>> = text.lines().skip(1).map(row).collect();
    rows.ok_or_else(|| Unknown::new(Reason::Unsupported, "a list of sockets is not as the manual has it"))
}

/// Reads `0100007F:1F90`: words of 32 bits as this machine has them in memory, and the port as people write it. A mapped
/// address is the IPv4 address it stands for.
fn address(field: &[u8]) -> Option<SocketAddr> {
    let (ip, port) = field.to_str().ok()?.split_once(':')?;
    let word = |at: usize| u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok().map(u32::to_ne_bytes);
    let ip = match ip.len() {
        8 => IpAddr::from(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, chunk) in bytes.chunks_exact_mut(4).enumerate() {
                chunk.copy_from_slice(&word(at)?);
            }
            IpAddr::from(Ipv6Addr::from(bytes)).to_canonical()
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, u16::from_str_radix(port, 16).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_as_people_write_them() {
        let of = |text: &str| address(text.as_bytes()).map(|address| address.to_string());
        // As a machine has them that keeps the low byte first.
        if cfg!(target_endian = "little") {
            assert_eq!(of("0100007F:1F90"), Some("127.0.0.1:8080".into()));
            assert_eq!(of("00000000000000000000000001000000:0050"), Some("[::1]:80".into()));
            assert_eq!(of("0000000000000000FFFF00000100007F:0050"), Some("127.0.0.1:80".into()));
        }
        for text in ["", "0100007F", "01:1", "0100007G:0001", "0100007F:10000"] {
            assert_eq!(of(text), None, "{text}");
        }
    }

    #[test]
    fn listeners_and_connections_and_not_what_docker_has_there() {
        let at = |text: &str| text.parse().unwrap();
        let none = at("0.0.0.0:0");
        let tcp = vec![
            (LISTENING, at("0.0.0.0:5432"), none),
            (LISTENING, at("127.0.0.11:33333"), none),
            (ESTABLISHED, at("172.17.0.2:5432"), at("172.17.0.1:4000")),
            // Both ends are in here.
            (ESTABLISHED, at("127.0.0.1:1"), at("127.0.0.1:2")),
            (ESTABLISHED, at("127.0.0.1:2"), at("127.0.0.1:1")),
            (6, at("172.17.0.2:5432"), at("172.17.0.1:4001")),
        ];
        let udp = vec![(UNCONNECTED, at("0.0.0.0:53"), none), (UNCONNECTED, at("127.0.0.11:44444"), none)];
        let unix = b"Num RefCount
0: 00000002 00000000 00010000 0001 01 20742 /run/x
";
        let found = found(&[("tcp", tcp), ("udp", udp)], unix);
        assert_eq!(found.listeners, ["tcp 0.0.0.0:5432", "udp 0.0.0.0:53", "unix /run/x"]);
        assert_eq!(found.connections, ["tcp 172.17.0.2:5432 172.17.0.1:4000"]);
    }

    #[test]
    fn lists_of_the_kernel() {
        let text = b"  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
               0: 00000000:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100 0
";
        let rows = rows(text).unwrap();
        assert_eq!(rows, [(LISTENING, "0.0.0.0:5432".parse().unwrap(), "0.0.0.0:0".parse().unwrap())]);
        assert!(
            super::rows(
                b"head
 rubbish
"
            )
            .is_err()
        );
    }
}
