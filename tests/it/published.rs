//! Requests to ports that lead into containers: only what surely arrived there and was not answered is a silence.

use std::net::{SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::process::{Command, Stdio};

use reapd::model::container::{ContainerId, ContainerRef, ContainerRun, EngineId};
use reapd::model::id::ProcessId;
use reapd::model::known::{Known, Unknown};
use reapd::model::question::{Answer, Call, EngineAnswer, EngineQuestion, Pinged, Question, Response};
use rustix::process::Signal;

use crate::channels::shape::{Shape, until};
use crate::pings::{ECHO, LONG, SHORT, hello, program, settled};
use crate::support::observing::{ask_all, observer};
use crate::support::tree::send;

/// A server in the place of a container: its network is ours, and its port leads to itself.
struct Server {
    shape: Shape,
    port: u16,
}

impl Server {
    fn new(serve: &str) -> Server {
        Server::at("socket.AF_INET,('127.0.0.1',0)", serve)
    }

    fn at(at: &str, serve: &str) -> Server {
        let (shape, words) = Shape::python(&program(at, 16, serve));
        Server { shape, port: words[0].parse().unwrap() }
    }

    fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    fn ping(&self, call: Call, patience: u64) -> Known<Pinged> {
        ping(&self.address(), self.port, vec![self.shape.id], call, patience)
    }

    fn refused(&self, call: &Call) -> Unknown {
        settled(|| self.ping(call.clone(), SHORT)).unwrap_err()
    }
}

fn ping(address: &str, inside: u16, tree: Vec<ProcessId>, call: Call, patience: u64) -> Known<Pinged> {
    let id = ContainerId::new(&"ab".repeat(32)).unwrap();
    let at = ContainerRef { engine: EngineId("/run/docker.sock".into()), id };
    let run = ContainerRun { at, started: "once".into() };
    let (policy, address) = ("mine".to_owned(), address.to_string());
    let question = EngineQuestion::Ping { run, policy, call, address, inside, tree, patience };
    match ask_all(&mut observer(), &[Question::Engine(question)]).remove(0)? {
        Answer::Engine(EngineAnswer::Pinged(pinged)) => Ok(pinged),
        other => panic!("{other:?}"),
    }
}

fn is_silent(pinged: &Known<Pinged>) -> bool {
    matches!(pinged, Ok(Pinged { response: Response::Silent(SHORT..), before: Ok(_), after: Ok(_) }))
}

#[test]
fn one_that_answers_lives_and_one_that_takes_it_and_says_nothing_is_silent() {
    let server = Server::new(ECHO);
    let came = settled(|| server.ping(hello(), LONG)).unwrap();
    assert!(matches!(came.response, Response::Answered(_)), "{came:?}");
    let server = Server::new("c.sendall(b'busy\\n')");
    let came = settled(|| server.ping(hello(), SHORT)).unwrap();
    assert_eq!(came.response, Response::Otherwise("busy\n".into()));
    let server = Server::new("c.recv(1)");
    for call in [hello(), Call::Greeting] {
        let came = settled(|| server.ping(call.clone(), SHORT));
        assert!(is_silent(&came), "{call:?}: {came:?}");
    }
    // One that never accepts is silent, too, and who left again is nobody's client.
    let server = Server::new("");
    for _ in 0..2 {
        let came = settled(|| server.ping(hello(), SHORT)).unwrap();
        assert_eq!(came.before, came.after);
    }
}

#[test]
fn a_hang_up_may_be_of_whoever_leads_there_and_is_unknown() {
    let reset = "c.setsockopt(socket.SOL_SOCKET,socket.SO_LINGER,struct.pack('ii',1,0)); c.close()";
    for serve in ["c.close()", reset] {
        let server = Server::new(serve);
        for call in [hello(), Call::Greeting] {
            let why = server.refused(&call);
            // A reset may come before the connection is seen to stand.
            let words = ["did not reach it", "connecting to it"];
            assert!(words.iter().any(|words| why.to_string().contains(words)), "{serve}: {why}");
        }
    }
    // What it said before it went is its own word.
    let server = Server::new("c.sendall(b'ok\\n'); c.close()");
    let came = settled(|| server.ping(hello(), LONG)).unwrap();
    assert!(matches!(came.response, Response::Answered(_)), "{came:?}");
}

#[test]
fn a_refusal_is_unknown() {
    let server = Server::new("c.recv(1)");
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string();
    let why = until(
        || ping(&address, server.port, vec![server.shape.id], hello(), SHORT),
        |came| came.as_ref().is_err_and(|why| why.to_string().contains("nobody listens there now")),
    );
    assert!(why.is_err());
}

#[test]
fn a_silence_of_what_never_arrived_is_the_proxys() {
    // The port leads to one that is silent, and the container has nobody at its own.
    let (proxy, behind) = (Server::new("c.recv(1)"), Server::new("c.recv(1)"));
    let tree = || vec![behind.shape.id];
    let why = settled(|| ping(&proxy.address(), behind.port, tree(), hello(), SHORT)).unwrap_err();
    assert!(why.to_string().contains("nothing arrived"), "{why}");
}

#[test]
fn who_serves_somebody_else_is_not_asked_and_not_silent() {
    let server = Server::new("c.recv(1)");
    let client = TcpStream::connect(server.address()).unwrap();
    let why = server.refused(&hello());
    assert!(why.to_string().contains("somebody is connected"), "{why}");
    drop(client);
    // Somebody comes while it is asked.
    let server = Server::new("kept.append(socket.create_connection(name)) if len(kept)<2 else None");
    let why = server.refused(&hello());
    assert!(why.to_string().contains("somebody else is connected"), "{why}");
}

#[test]
fn any_process_of_it_that_does_not_sleep_makes_a_silence_unknown_b07() {
    let server = Server::new("c.recv(1)");
    let member = Shape::start(Command::new("sleep").arg("1000").stdin(Stdio::null()));
    let asked = || {
        let tree = vec![server.shape.id, member.id];
        ping(&server.address(), server.port, tree, hello(), SHORT)
    };
    assert!(is_silent(&until(asked, is_silent)));
    send(member.id.pid, Signal::STOP);
    let is_stopped =
        |came: &Known<Pinged>| came.as_ref().is_err_and(|why| why.to_string().contains("stopped"));
    assert!(is_stopped(&until(asked, is_stopped)));
    send(member.id.pid, Signal::CONT);
    let stops = Server::new("c.recv(1); os.kill(os.getpid(),signal.SIGSTOP)");
    let why = settled(|| stops.ping(hello(), SHORT)).unwrap_err();
    assert!(why.to_string().contains("stopped"), "{why}");
}

#[test]
fn only_addresses_of_this_machine_are_connected_to() {
    let server = Server::at("socket.AF_INET,('0.0.0.0',0)", ECHO);
    let asked = |ip: std::net::IpAddr| {
        let address = SocketAddr::new(ip, server.port).to_string();
        settled(|| ping(&address, server.port, vec![server.shape.id], hello(), LONG))
    };
    let nowhere = || ping("somewhere:80", server.port, vec![server.shape.id], hello(), SHORT);
    assert!(settled(nowhere).unwrap_err().to_string().contains("which is no address"));
    let why = asked([192, 0, 2, 1].into()).unwrap_err();
    assert!(why.to_string().contains("one of this machine"), "{why}");
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    if socket.connect("192.0.2.1:9").is_ok() {
        let own = socket.local_addr().unwrap().ip();
        assert!(matches!(asked(own).unwrap().response, Response::Answered(_)), "{own}");
    }
}

#[test]
fn a_container_that_is_not_there_is_not_asked() {
    let server = Server::new(ECHO);
    let stranger = ProcessId { start: reapd::model::id::Start(1), ..server.shape.id };
    for tree in [vec![], vec![stranger]] {
        assert!(settled(|| ping(&server.address(), server.port, tree.clone(), hello(), SHORT)).is_err());
    }
}
