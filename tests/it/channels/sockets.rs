//! Sockets of real processes: who listens where, who is connected to whom, and what a peer of 0 means.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::fd::OwnedFd;
use std::os::linux::fs::MetadataExt;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::process::{Command, Stdio};
use std::time::Instant;

use reapd::model::id::{FileId, ProcessId};
use reapd::model::known::Reason;
use reapd::model::question::{ChannelKind, Family, FarEnd, Peer, Sockets};
use reapd::observe::sockets::{self, Dump};
use reapd::observe::stdio;

use super::shape::{Shape, table, until};
use super::{channel, gone, id_of, sleep};

fn sockets(of: ProcessId) -> Sockets {
    sockets::sockets(of, &mut Dump::new()).unwrap()
}

/// A server that holds a listener at descriptor 0 and nothing else.
fn inetd(listener: impl Into<OwnedFd>) -> Shape {
    Shape::start(sleep().stdin(listener.into()))
}

/// What node does: the child's standard input is one end of a stream pair.
#[test]
fn stdin_stream_pair_with_and_without_its_parent() {
    let (mut parent, words) = Shape::python(
        "import socket,subprocess,sys,signal
a,b=socket.socketpair()
c=subprocess.Popen(['sleep','1000'],stdin=b,stdout=-3,stderr=-3)
b.close(); a.send(b'hello')
sys.stderr.write(f'ready {c.pid}\\n'); sys.stderr.flush(); signal.pause()",
    );
    let server = Shape::adopt(&words[0]);
    let seen = channel(server.id, 0);
    assert!(matches!(seen.kind, ChannelKind::Stream { .. }), "{seen:?}");
    assert_eq!((seen.far, seen.unread), (Ok(FarEnd::Held), Ok(5)));
    assert_eq!(stdio::holders(server.id, 0, &table(), &mut Dump::new()).unwrap().seen, [parent.id]);

    parent.kill();
    assert_eq!(gone(server.id, 0).unread, Ok(5), "what was sent is still to be read");
    let connections = sockets(server.id).connections;
    assert_eq!(connections.len(), 1);
    assert_eq!(connections[0].peer, Peer::Gone);
}

/// Its peer attribute is 0 just like an orphan's, but it may be accepted at any time.
#[test]
fn a_client_that_is_not_yet_accepted_has_not_lost_its_peer_f3() {
    let folder = tempfile::tempdir().unwrap();
    let listener = UnixListener::bind(folder.path().join("s")).unwrap();
    let client = UnixStream::connect(folder.path().join("s")).unwrap();
    let client = Shape::start(sleep().stdin(OwnedFd::from(client)));
    assert!(channel(client.id, 0).far.is_err());
    assert_eq!(sockets(client.id).connections[0].peer, Peer::Unknown);
    let accepted = listener.accept().unwrap();
    assert_eq!(channel(client.id, 0).far, Ok(FarEnd::Held));
    drop(accepted);
    gone(client.id, 0);
}

#[test]
fn a_listener_on_stdin_has_no_far_end_f3() {
    let folder = tempfile::tempdir().unwrap();
    let unix = inetd(UnixListener::bind(folder.path().join("s")).unwrap());
    let tcp = inetd(TcpListener::bind("127.0.0.1:0").unwrap());
    for server in [&unix, &tcp] {
        let seen = channel(server.id, 0);
        assert_eq!(seen.kind, ChannelKind::Listener);
        assert_eq!(seen.far.unwrap_err().reason, Reason::Unsupported);
        assert_eq!(sockets(server.id).listeners.len(), 1);
    }
}

#[test]
fn a_socket_that_never_had_a_peer_is_unconnected_f3() {
    let (server, _) = Shape::python(
        "import os,socket,sys,signal
u=socket.socket(socket.AF_UNIX); os.dup2(u.fileno(),0); u.close()
t=socket.socket(socket.AF_INET); os.dup2(t.fileno(),1); t.close()
n=socket.socket(socket.AF_NETLINK,socket.SOCK_RAW,0); os.dup2(n.fileno(),3)
sys.stderr.write('ready\\n'); sys.stderr.flush(); signal.pause()",
    );
    for fd in [0, 1] {
        let seen = channel(server.id, fd);
        assert_eq!(seen.kind, ChannelKind::Unconnected, "{fd}");
        assert!(seen.far.is_err());
    }
    assert!(matches!(channel(server.id, 3).kind, ChannelKind::Other(_)));
    assert_eq!(sockets(server.id), Sockets::default());
}

/// A server's row stays connected after its client's death, when it does not read.
#[test]
fn a_dead_client_is_no_client_m3() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("broker.sock");
    let path = path.to_str().unwrap();
    let (server, _) = Shape::ready(
        Command::new("python3")
            .arg("-c")
            .arg(format!(
                "import socket,sys,signal
l=socket.socket(socket.AF_UNIX); l.bind('{path}'); l.listen(9)
sys.stderr.write('ready\\n'); sys.stderr.flush()
c,_=l.accept(); signal.pause()"
            ))
            .stdin(Stdio::null()),
    );
    assert_eq!(sockets(server.id).connections, []);
    let client = format!(
        "import socket,sys,signal
c=socket.socket(socket.AF_UNIX); c.connect('{path}')
sys.stderr.write('ready\\n'); sys.stderr.flush(); signal.pause()"
    );
    let (mut first, _) = Shape::python(&client);
    let seen = until(|| sockets(server.id), |seen| seen.connections.len() == 1);
    assert_eq!(seen.connections[0].name, path, "an accepted connection bears its listener's name");
    let theirs = sockets(first.id).connections;
    assert_eq!(seen.connections[0].peer, Peer::Inode(theirs[0].inode));
    assert_eq!(theirs[0].peer, Peer::Inode(seen.connections[0].inode));
    assert_eq!(seen.listeners.len(), 1);
    assert_eq!((seen.listeners[0].pending, seen.listeners[0].family), (0, Family::Unix));

    let (_second, _) = Shape::python(&client);
    assert_eq!(sockets(server.id).listeners[0].pending, 1);

    first.kill();
    until(|| sockets(server.id).connections[0].peer.clone(), |peer| *peer == Peer::Gone);
}

#[test]
fn a_bound_file_is_known_after_a_rename_f7() {
    // tmpfs on every Linux, so that the kernel's short inode and device are stat(2)'s.
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    let (old, new) = (folder.path().join("old"), folder.path().join("new"));
    let server = inetd(UnixListener::bind(&old).unwrap());
    std::fs::rename(&old, &new).unwrap();
    let listeners = sockets(server.id).listeners;
    let stat = std::fs::metadata(&new).unwrap();
    assert_eq!(listeners[0].file, Some(FileId { dev: stat.st_dev(), ino: stat.st_ino() }));
    assert_eq!(listeners[0].name, old.to_str().unwrap(), "the name is the one it was bound to");
}

#[test]
fn abstract_and_datagram_sockets_are_reachable() {
    let name = format!("reapd-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name).unwrap();
    let server = inetd(UnixListener::bind_addr(&address).unwrap());
    let listeners = sockets(server.id).listeners;
    assert_eq!(listeners[0].name, format!("@{name}").as_str());
    assert_eq!(listeners[0].file, None);

    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("log");
    let server = inetd(UnixDatagram::bind(&path).unwrap());
    let listeners = sockets(server.id).listeners;
    assert_eq!((listeners[0].family, listeners[0].pending), (Family::UnixDatagram, 0));
    assert_eq!(listeners[0].name, path.to_str().unwrap());
    assert!(matches!(channel(server.id, 0).kind, ChannelKind::Other(_)));

    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    let server = inetd(socket);
    let listeners = sockets(server.id).listeners;
    assert_eq!((listeners[0].family, &listeners[0].name), (Family::Udp, &address.into()));
}

#[test]
fn both_ends_of_a_tcp_connection_are_written_alike() {
    for bind in ["127.0.0.1:0", "[::1]:0", "[::]:0"] {
        let listener = TcpListener::bind(bind).unwrap();
        let port = listener.local_addr().unwrap().port();
        // A client by IPv4 of a server for both families: the kernel maps the address on one side only.
        let host = if bind.starts_with("[::1]") { "::1" } else { "127.0.0.1" };
        let near = TcpStream::connect((host, port)).unwrap();
        let pending = until(|| waiting(&listener), |pending| *pending == 1);
        assert_eq!(pending, 1);
        let (far, _) = listener.accept().unwrap();
        let client = Shape::start(sleep().stdin(OwnedFd::from(near)));
        let server = Shape::start(sleep().stdin(OwnedFd::from(far)));
        let (ours, theirs) = (sockets(server.id), sockets(client.id));
        let (ours, theirs) = (&ours.connections[0], &theirs.connections[0]);
        assert_eq!(ours.peer, Peer::Remote(theirs.name.to_string()));
        assert_eq!(theirs.peer, Peer::Remote(ours.name.to_string()));
        assert!(ours.name.ends_with(format!(":{port}").as_bytes()));
        assert_eq!((ours.family, theirs.family), (Family::Tcp, Family::Tcp));
        assert_eq!(channel(server.id, 0).far, Ok(FarEnd::Held));
        assert_eq!(stdio::holders(server.id, 0, &table(), &mut Dump::new()).unwrap().seen, [client.id]);
    }
}

/// Returns how many clients wait at a listener of our own.
fn waiting(listener: &TcpListener) -> u32 {
    let name = listener.local_addr().unwrap().to_string();
    let ours = sockets(id_of(rustix::process::getpid())).listeners;
    ours.iter().find(|listener| listener.name == name.as_str()).unwrap().pending
}

/// TCP cannot tell a client that is gone from one that waits for the rest of its reply.
#[test]
fn a_closed_tcp_client_on_stdin_is_unknown() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (mut far, _) = listener.accept().unwrap();
    near.write_all(b"ab").unwrap();
    far.read_exact(&mut [0]).unwrap();
    let server = Shape::start(sleep().stdin(OwnedFd::from(far)));
    assert_eq!(channel(server.id, 0).far, Ok(FarEnd::Held));
    drop(near);
    let seen = until(|| channel(server.id, 0), |seen| seen.far.is_err());
    assert!(matches!(seen.kind, ChannelKind::Stream { .. }), "{seen:?}");
}

#[test]
fn another_network_namespace_is_foreign_f7() {
    if !rustix::process::geteuid().is_root() {
        return;
    }
    for family in ["AF_UNIX", "AF_INET"] {
        let program = format!(
            "import os,socket,sys,signal
l=socket.socket(socket.{family})
if l.family==socket.AF_INET: l.bind(('0.0.0.0',0))
else: l.bind('\\0x')
l.listen(1); os.dup2(l.fileno(),0); l.close()
sys.stderr.write('ready\\n'); sys.stderr.flush(); signal.pause()"
        );
        let mut unshare = Command::new("unshare");
        let (server, _) = Shape::ready(unshare.args(["-n", "python3", "-c", &program]).stdin(Stdio::null()));
        let mut dump = Dump::new();
        assert_eq!(sockets::sockets(server.id, &mut dump).unwrap_err().reason, Reason::Foreign);
        assert_eq!(stdio::channel(server.id, 0, &mut dump).unwrap_err().reason, Reason::Foreign);
    }
}

/// Go's listeners are multipath ones by default. The tables that are read may show them or not, but a server with
/// a client never looks like one without.
#[test]
fn multipath_sockets_are_listed_or_unknown() {
    let program = "import socket,sys,signal
new=lambda: socket.socket(socket.AF_INET,socket.SOCK_STREAM,262)
try: l=new()
except OSError: sys.stderr.write('ready without\\n'); sys.stderr.flush(); signal.pause()
l.bind(('127.0.0.1',0)); l.listen(9)
if sys.argv[1]=='connected':
  c=new(); c.connect(l.getsockname()); a,_=l.accept()
sys.stderr.write('ready\\n'); sys.stderr.flush(); signal.pause()";
    for (shape, connections) in [("listening", 0), ("connected", 2)] {
        let mut python = Command::new("python3");
        let (server, words) = Shape::ready(python.args(["-c", program, shape]).stdin(Stdio::null()));
        match sockets::sockets(server.id, &mut Dump::new()) {
            Ok(seen) if words.is_empty() => {
                assert_eq!((seen.listeners.len(), seen.connections.len()), (1, connections));
            }
            Ok(seen) => assert_eq!(seen, Sockets::default()),
            Err(unknown) => assert_eq!(unknown.reason, Reason::Unsupported),
        }
    }
}

/// A socket made after the dump was taken is found by a second one.
#[test]
fn a_socket_newer_than_the_dump_is_found() {
    let mut dump = Dump::new();
    let folder = tempfile::tempdir().unwrap();
    let first = inetd(UnixListener::bind(folder.path().join("a")).unwrap());
    assert_eq!(sockets::sockets(first.id, &mut dump).unwrap().listeners.len(), 1);
    let second = inetd(UnixListener::bind(folder.path().join("b")).unwrap());
    assert_eq!(sockets::sockets(second.id, &mut dump).unwrap().listeners.len(), 1);
    let third = inetd(TcpListener::bind("127.0.0.1:0").unwrap());
    assert_eq!(sockets::sockets(third.id, &mut dump).unwrap().listeners.len(), 1);
}

/// Several packets of the kernel's reply; the time each part takes is said, not judged.
#[test]
#[expect(clippy::print_stdout, reason = "a measurement for whoever asks with --nocapture")]
fn five_thousand_sockets_in_one_dump() {
    let (server, _) = Shape::python(
        "import resource,socket,sys,signal
resource.setrlimit(resource.RLIMIT_NOFILE,(6000,resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
p=[socket.socketpair() for _ in range(2500)]
sys.stderr.write('ready\\n'); sys.stderr.flush(); signal.pause()",
    );
    let sleeper = Shape::start(sleep().stdin(OwnedFd::from(UnixDatagram::unbound().unwrap())));
    let piped = Shape::start(sleep().stdin(Stdio::piped()));
    let table = table();
    let mut dump = Dump::new();

    let begun = Instant::now();
    sockets::sockets(sleeper.id, &mut dump).unwrap();
    println!("the dump: {:?}", begun.elapsed());
    let begun = Instant::now();
    let seen = sockets::sockets(server.id, &mut dump).unwrap();
    println!("5,000 descriptors joined with it: {:?}", begun.elapsed());
    let begun = Instant::now();
    stdio::holders(piped.id, 0, &table, &mut dump).unwrap();
    println!("a census of {} processes: {:?}", table.rows().len(), begun.elapsed());
    let begun = Instant::now();
    stdio::channel(piped.id, 0, &mut dump).unwrap();
    println!("one pipe: {:?}", begun.elapsed());

    assert_eq!(seen.connections.len(), 5000);
    assert!(seen.connections.iter().all(|connection| matches!(connection.peer, Peer::Inode(_))));
}
