//! Requests to real servers: what answers, what is silent, and all that is neither.
#![expect(clippy::print_stderr, reason = "who reads the tests' output must know what was not tested")]

use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bstr::BString;
use reapd::model::id::ProcessId;
use reapd::model::known::{Known, Reason, Unknown};
use reapd::model::question::{Answer, Call, Pinged, Question, Response};
use rustix::process::Signal;
use tempfile::TempDir;

use crate::channels::shape::{Shape, until};
use crate::support::observing::{ask_all, is_root, listeners, observer, observer_by, reapd_after};
use crate::support::tree::send;

/// Long enough for any answer on a busy machine.
pub(crate) const LONG: u64 = 20_000;
/// Long enough for a server that will never answer.
pub(crate) const SHORT: u64 = 400;

/// A server whose socket is `s` in a folder of tmpfs, where the kernel tells which file it is.
struct Server {
    folder: TempDir,
    shape: Shape,
}

impl Server {
    /// `serve` is what is done with each connection `c`, one line of Python; without it none is accepted.
    fn new(serve: &str) -> Server {
        Server::with_backlog(16, serve)
    }

    fn with_backlog(backlog: u32, serve: &str) -> Server {
        let folder = tempfile::tempdir_in("/dev/shm").unwrap();
        let path = folder.path().join("s");
        let program = program(&format!("socket.AF_UNIX,{:?}", path.to_str().unwrap()), backlog, serve);
        Server { shape: Shape::python(&program).0, folder }
    }

    fn path(&self) -> PathBuf {
        self.folder.path().join("s")
    }

    fn question(&self, call: Call, patience: u64) -> Question {
        question(self.shape.id, self.path().to_str().unwrap(), call, patience)
    }

    fn ping(&self, call: Call, patience: u64) -> Known<Pinged> {
        ping(self.question(call, patience))
    }
}

/// Returns a server's program. `at` is a family and an address.
pub(crate) fn program(at: &str, backlog: u32, serve: &str) -> String {
    let (family, address) = at.split_once(',').unwrap();
    let loops = if serve.is_empty() {
        "signal.pause()".to_owned()
    } else {
        format!("\nkept=[]\nwhile True:\n  c,_=l.accept(); kept.append(c); {serve}")
    };
    format!(
        "import os,signal,socket,struct,sys,time
l=socket.socket({family}); l.setsockopt(socket.SOL_SOCKET,socket.SO_REUSEPORT,1) if {family}!=socket.AF_UNIX else None
l.bind({address}); l.listen({backlog})
name=l.getsockname()
sys.stderr.write('ready '+(str(name[1]) if isinstance(name,tuple) else '')+'\\n'); sys.stderr.flush()
{loops}"
    )
}

fn question(of: ProcessId, socket: &str, call: Call, patience: u64) -> Question {
    let policy = "mine".to_owned();
    Question::Ping { of, policy, call, socket: BString::from(socket), tree: vec![of], patience }
}

fn ping(question: Question) -> Known<Pinged> {
    pinged(ask_all(&mut observer(), &[question]).remove(0))
}

fn pinged(answer: Known<Answer>) -> Known<Pinged> {
    answer.map(|answer| match answer {
        Answer::Ping(pinged) => pinged,
        other => panic!("{other:?}"),
    })
}

pub(crate) fn hello() -> Call {
    Call::Lines { send: "hello".into(), expect: "ok".into() }
}

fn response(pinged: Known<Pinged>) -> Response {
    pinged.unwrap().response
}

fn otherwise(pinged: Known<Pinged>) -> BString {
    match response(pinged) {
        Response::Otherwise(text) => text,
        other => panic!("{other:?}"),
    }
}

/// A server that sleeps when it is asked; one that was only just started may yet be at work.
pub(crate) fn settled(ask: impl Fn() -> Known<Pinged>) -> Known<Pinged> {
    until(ask, |came| !came.as_ref().is_err_and(|why| why.to_string().contains("runs")))
}

fn refused(ask: impl Fn() -> Known<Pinged>) -> Unknown {
    settled(ask).unwrap_err()
}

pub(crate) const ECHO: &str = "c.sendall(b'{\"ok\":'+c.recv(99).strip()+b'}\\n')";

#[test]
fn each_protocol_has_its_reply() {
    let http = |body: &str| format!("c.recv(999); c.sendall(b'HTTP/1.1 200 OK\\r\\n{body}')");
    let get = |expect: Option<&str>| Call::Http {
        path: "/health".into(),
        status: Some(200),
        expect: expect.map(BString::from),
    };
    let framed = "n=b'{\"method\":\"log\"}'; r=b'{\"id\":1,\"ok\":1}'; c.recv(99); \
        [c.sendall(b'Content-Length: %d\\r\\n\\r\\n'%len(m)+m) for m in (n,r)]";
    let cases = [
        (ECHO.to_owned(), hello()),
        (
            "c.recv(9); c.sendall(b'log\\n'); time.sleep(.1); c.sendall(b'o'); c.sendall(b'k\\n')".to_owned(),
            hello(),
        ),
        (framed.to_owned(), Call::ContentLength { send: "{}".into(), expect: "\"ok\"".into() }),
        ("c.sendall(c.recv(99).replace(b'\"method\":\"ping\"',b'\"result\":{}'))".to_owned(), Call::Mcp),
        (http("Content-Length: 99\\r\\n\\r\\n"), get(None)),
        (http("Transfer-Encoding: chunked\\r\\n\\r\\n1\\r\\no\\r\\n1\\r\\nk\\r\\n"), get(Some("ok"))),
        (http("\\r\\nall is ok'); c.close(); (b'"), get(Some("is ok"))),
        ("c.sendall(b'220 ready')".to_owned(), Call::Greeting),
        ("c.close()".to_owned(), Call::Greeting),
    ];
    for (serve, call) in cases {
        let server = Server::new(&serve);
        let came = settled(|| server.ping(call.clone(), LONG));
        match came {
            Ok(Pinged { response: Response::Answered(1..LONG), before: Ok(_), after: Ok(_) }) => {}
            other => panic!("{serve}: {other:?}"),
        }
    }
}

#[test]
fn another_answer_and_a_hang_up_are_of_a_loop_that_runs() {
    let server = Server::new("c.sendall(b'busy\\n')");
    assert_eq!(otherwise(settled(|| server.ping(hello(), SHORT))), "busy\n");
    let server = Server::new("c.close()");
    assert_eq!(otherwise(settled(|| server.ping(hello(), LONG))), "hung up");
    let get = Call::Http { path: "/".into(), status: Some(200), expect: None };
    let server = Server::new("c.recv(999); c.sendall(b'HTTP/1.1 404 No\\r\\n\\r\\n')");
    assert!(otherwise(settled(|| server.ping(get.clone(), LONG))).starts_with(b"HTTP/1.1 404"));
    let server = Server::new("c.sendall(b'SSH-2.0\\n')");
    assert_eq!(otherwise(settled(|| server.ping(get.clone(), LONG))), "SSH-2.0\n");
}

#[test]
fn an_endless_answer_ends_at_its_bound() {
    let begun = Instant::now();
    let get = Call::Http { path: "/".into(), status: None, expect: Some("never".into()) };
    let flood = Server::new(
        "c.sendall(b'HTTP/1.1 200 OK\\r\\n\\r\\n')\n  try:\n    while True: c.sendall(b'x'*4096)\n  except OSError: pass",
    );
    assert_eq!(otherwise(settled(|| flood.ping(get.clone(), LONG))).len(), 160, "shortened for a person");
    assert!(begun.elapsed() < Duration::from_millis(LONG), "it was not waited for");
}

#[test]
fn a_server_that_accepts_and_says_nothing_is_silent() {
    let server = Server::new("c.recv(1)");
    for call in [hello(), Call::Mcp, Call::Greeting] {
        match settled(|| server.ping(call.clone(), SHORT)) {
            Ok(Pinged { response: Response::Silent(SHORT..), before: Ok(_), after: Ok(_) }) => {}
            other => panic!("{call:?}: {other:?}"),
        }
    }
}

#[test]
fn a_server_that_never_accepts_is_silent_and_our_requests_are_no_clients_f7() {
    let server = Server::new("");
    for _ in 0..2 {
        let Pinged { response, before, after } = settled(|| server.ping(hello(), SHORT)).unwrap();
        assert!(matches!(response, Response::Silent(_)), "{response:?}");
        assert_eq!(before, after, "it did nothing at all meanwhile");
        assert_eq!(listeners(server.shape.id)[0].pending, 0, "we left again");
    }
    let _client = UnixStream::connect(server.path()).unwrap();
    assert_eq!(listeners(server.shape.id)[0].pending, 1, "a client that stays is one");
}

#[test]
fn a_stopped_server_is_not_silent_and_not_even_asked_b07() {
    let server = Server::new(ECHO);
    settled(|| server.ping(hello(), LONG)).unwrap();
    send(server.shape.id.pid, Signal::STOP);
    let why = until(
        || server.ping(hello(), SHORT),
        |came| came.as_ref().is_err_and(|why| why.to_string().contains("stopped")),
    );
    assert!(why.is_err());
    assert_eq!(listeners(server.shape.id)[0].pending, 0, "nobody was left at its door");
    send(server.shape.id.pid, Signal::CONT);
    assert!(matches!(response(settled(|| server.ping(hello(), LONG))), Response::Answered(_)));
}

#[test]
fn a_server_that_stops_when_it_is_asked_is_not_silent_b07() {
    let server = Server::new("c.recv(1); os.kill(os.getpid(),signal.SIGSTOP)");
    let why = settled_before(&server, SHORT).unwrap_err();
    assert!(why.to_string().contains("stopped"), "{why}");
}

#[test]
fn a_traced_server_is_not_silent() {
    let server = Server::new("c.recv(1)");
    let traced = Command::new("strace")
        .args(["-o", "/dev/null", "-p", &server.shape.id.pid.to_string()])
        .stdin(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let Ok(mut tracer) = traced else {
        eprintln!("skipped: there is no strace here");
        return;
    };
    let came = until(
        || (server.ping(hello(), SHORT), tracer.try_wait().unwrap()),
        |(came, ended)| ended.is_some() || came.as_ref().is_err_and(|why| why.to_string().contains("traces")),
    );
    let _ = tracer.kill();
    let _ = tracer.wait();
    if came.1.is_some() {
        eprintln!("skipped: strace may not trace here");
    }
}

#[test]
fn a_full_backlog_is_busy() {
    let server = Server::with_backlog(1, "");
    let mut clients = Vec::new();
    while let Ok(client) = nonblocking(&server.path()) {
        clients.push(client);
        assert!(clients.len() < 100, "its backlog has no end");
    }
    let why = refused(|| server.ping(hello(), SHORT));
    assert!(why.to_string().contains("backlog is full"), "{why}");
}

fn nonblocking(path: &Path) -> Result<rustix::fd::OwnedFd, rustix::io::Errno> {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, connect, socket_with};
    let socket = socket_with(AddressFamily::UNIX, SocketType::STREAM, SocketFlags::NONBLOCK, None)?;
    connect(&socket, &SocketAddrUnix::new(path)?)?;
    Ok(socket)
}

#[test]
fn a_path_that_leads_elsewhere_is_not_followed_c33() {
    let server = Server::new(ECHO);
    std::fs::remove_file(server.path()).unwrap();
    assert_eq!(refused(|| server.ping(hello(), LONG)).reason, Reason::Vanished);
    let heard = server.folder.path().join("heard");
    let record = format!("open({:?},'w')", heard.to_str().unwrap());
    let at = format!("socket.AF_UNIX,{:?}", server.path().to_str().unwrap());
    let (successor, _) = Shape::python(&program(&at, 5, &record));
    assert_eq!(refused(|| server.ping(hello(), LONG)).reason, Reason::Unsound);
    assert!(!heard.exists(), "whoever is there now was not disturbed");
    let own = question(successor.id, server.path().to_str().unwrap(), Call::Greeting, SHORT);
    settled(|| ping(own.clone())).unwrap();
    until(|| heard.exists(), |heard| *heard);
}

#[test]
fn only_what_the_process_itself_listens_on_is_asked() {
    let (asked, other) = (Server::new(ECHO), Server::new(ECHO));
    let path = other.path();
    let stranger = question(asked.shape.id, path.to_str().unwrap(), hello(), LONG);
    assert_eq!(refused(|| ping(stranger.clone())).reason, Reason::Vanished);
    for nowhere in ["", "@", "127.0.0.1:1", "example.org:80", "s"] {
        assert!(ping(question(asked.shape.id, nowhere, hello(), LONG)).is_err(), "{nowhere}");
    }
}

#[test]
fn a_path_that_swaps_meanwhile_is_unknown_c33() {
    let server = Server::new("os.rename(l.getsockname(),l.getsockname()+'2'); c.sendall(b'ok\\n')");
    assert!(refused(|| server.ping(hello(), LONG)).reason != Reason::Hung);
}

#[test]
fn out_of_descriptors_is_our_own_trouble_b15() {
    let server = Server::new(ECHO);
    settled(|| server.ping(hello(), LONG)).unwrap();
    let mut starved = 0;
    for limit in [4, 5, 6, 7, 8, 9] {
        let folder = tempfile::tempdir().unwrap();
        let short = reapd_after(folder.path(), &format!("ulimit -n {limit}; exec"));
        let questions = [server.question(hello(), LONG)];
        match pinged(ask_all(&mut observer_by(&short), &questions).remove(0)) {
            Ok(Pinged { response: Response::Answered(_), .. }) => {}
            Err(why) if why.reason == Reason::Starved => starved += 1,
            Err(why) if why.to_string().contains("runs") => {}
            other => panic!("with {limit} descriptors: {other:?}"),
        }
    }
    assert!(starved > 0, "it was never short");
}

#[test]
fn a_server_at_work_is_never_plainly_silent() {
    // It computes when it is asked, and never answers.
    let works = "c.recv(1); t=time.monotonic()+1.5\n  while time.monotonic()<t: pass";
    let server = Server::new(works);
    for patience in [SHORT, 3_000] {
        match settled_before(&server, patience) {
            Err(why) => assert!(why.to_string().contains("runs"), "{why}"),
            Ok(Pinged { response: Response::Silent(_), before: Ok(before), after: Ok(after) }) => {
                assert!(after.cpu > before.cpu, "{before:?} {after:?}");
            }
            Ok(other) => panic!("{other:?}"),
        }
    }
}

/// Asks once the server sleeps.
fn settled_before(server: &Server, patience: u64) -> Known<Pinged> {
    let stat = format!("/proc/{}/stat", server.shape.id.pid);
    until(|| std::fs::read_to_string(&stat).unwrap(), |stat| stat.contains(") S "));
    server.ping(hello(), patience)
}

#[test]
fn many_silent_ones_take_one_deadline() {
    const PATIENCE: u64 = 2_000;
    let servers: Vec<Server> = (0..20).map(|_| Server::new("")).collect();
    let answering = Server::new(ECHO);
    let mut questions: Vec<Question> = servers.iter().map(|one| one.question(hello(), PATIENCE)).collect();
    questions.push(answering.question(hello(), PATIENCE));
    let mut observer = observer();
    let begun = Instant::now();
    let mut answers = ask_all(&mut observer, &questions);
    let took = begun.elapsed();
    let fast = pinged(answers.pop().unwrap());
    for answer in answers {
        match pinged(answer) {
            Ok(Pinged { response: Response::Silent(PATIENCE..), .. }) => {}
            other => panic!("{other:?}"),
        }
    }
    assert!(matches!(fast, Ok(Pinged { response: Response::Answered(_), .. })), "{fast:?}");
    assert!(took < Duration::from_millis(5 * PATIENCE), "{took:?}");
}

#[test]
fn addresses_of_every_kind() {
    for (at, name) in [
        ("socket.AF_INET,('127.0.0.1',0)", "127.0.0.1:"),
        ("socket.AF_INET,('0.0.0.0',0)", "0.0.0.0:"),
        ("socket.AF_INET6,('::1',0)", "[::1]:"),
        ("socket.AF_INET6,('::',0)", "[::]:"),
    ] {
        let (server, words) = Shape::python(&program(at, 5, ECHO));
        let name = format!("{name}{}", words[0]);
        let asked = question(server.id, &name, hello(), LONG);
        let came = settled(|| ping(asked.clone()));
        assert!(matches!(response(came), Response::Answered(_)), "{name}");
        let silent = question(server.id, &name, Call::Greeting, SHORT);
        assert!(matches!(response(settled(|| ping(silent.clone()))), Response::Silent(_)), "{name}");
    }
    let name = format!("reapd-ping-{}", std::process::id());
    let (server, _) = Shape::python(&program(&format!("socket.AF_UNIX,'\\0{name}'"), 5, ECHO));
    let asked = question(server.id, &format!("@{name}"), hello(), LONG);
    assert!(matches!(response(settled(|| ping(asked.clone()))), Response::Answered(_)));
    UnixStream::connect_addr(&SocketAddr::from_abstract_name(&name).unwrap()).unwrap();
}

#[test]
fn where_others_listen_too_it_is_unknown_who_answers() {
    let (first, words) = Shape::python(&program("socket.AF_INET,('127.0.0.1',0)", 5, ECHO));
    let name = format!("127.0.0.1:{}", words[0]);
    let asked = question(first.id, &name, hello(), LONG);
    assert!(matches!(response(settled(|| ping(asked.clone()))), Response::Answered(_)));
    let at = format!("socket.AF_INET,('127.0.0.1',{})", words[0]);
    let (_second, _) = Shape::python(&program(&at, 5, ECHO));
    assert_eq!(refused(|| ping(asked.clone())).reason, Reason::Unsound);
}

#[test]
fn a_request_that_is_not_taken_was_never_sent() {
    let server = Server::new("pass");
    let send = BString::from(vec![b'x'; 4 << 20]);
    let call = Call::Lines { send, expect: "ok".into() };
    let why = refused(|| server.ping(call.clone(), SHORT));
    assert_eq!((why.reason, why.what.as_str()), (Reason::Hung, "sending the request"));
}

#[test]
fn a_tree_that_cannot_be_read_leaves_its_progress_unknown() {
    let server = Server::new(ECHO);
    let mut member = Shape::start(Command::new("sleep").arg("1000").stdin(Stdio::null()));
    let asked = |tree: Vec<ProcessId>| match server.question(hello(), LONG) {
        Question::Ping { of, policy, call, socket, tree: _, patience } => {
            Question::Ping { of, policy, call, socket, tree, patience }
        }
        other => panic!("{other:?}"),
    };
    let tree = vec![server.shape.id, member.id];
    let whole = settled(|| ping(asked(tree.clone()))).unwrap();
    assert!(whole.before.is_ok() && whole.after.is_ok());
    assert!(whole.after.unwrap().moved >= whole.before.unwrap().moved);
    member.kill();
    let holed = settled(|| ping(asked(tree.clone()))).unwrap();
    assert!(holed.before.is_err() && holed.after.is_err());
}

#[test]
fn root_goes_with_the_ids_of_the_servers_user() {
    if !is_root() {
        eprintln!("skipped: only root can start processes of another user");
        return;
    }
    let folder = tempfile::tempdir_in("/dev/shm").unwrap();
    std::os::unix::fs::chown(folder.path(), Some(65534), Some(65534)).unwrap();
    let path = folder.path().join("s");
    let tell = "c.recv(9); c.sendall(('ok %d %d %d\\n'%struct.unpack('3i',c.getsockopt(socket.SOL_SOCKET,socket.SO_PEERCRED,12))).encode())";
    let program = program(&format!("socket.AF_UNIX,{:?}", path.to_str().unwrap()), 5, tell);
    let mut nobody = Command::new("setpriv");
    nobody.args([
        "--reuid",
        "65534",
        "--regid",
        "65534",
        "--clear-groups",
        "/usr/bin/python3",
        "-c",
        &program,
    ]);
    nobody.env_remove("PYTHONHOME").stdin(Stdio::null());
    let (server, _) = Shape::ready(&mut nobody);
    let call = Call::Lines { send: "who".into(), expect: " 65534 65534".into() };
    let asked = question(server.id, path.to_str().unwrap(), call, LONG);
    let came = settled(|| ping(asked.clone()));
    assert!(matches!(came, Ok(Pinged { response: Response::Answered(_), .. })), "{came:?}");
    // What its user may not reach is not reached for him.
    std::os::unix::fs::chown(&path, Some(0), Some(0)).unwrap();
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    assert_eq!(refused(|| ping(asked.clone())).reason, Reason::Denied);
    std::os::unix::fs::chown(folder.path(), Some(0), Some(0)).unwrap();
    assert_eq!(refused(|| ping(asked.clone())).reason, Reason::Denied);
}

/// The first process that is started reads, the second one takes a request and never comes back.
#[test]
fn a_request_that_hangs_is_not_made_twice() {
    let server = Server::new(ECHO);
    let folder = tempfile::tempdir().unwrap();
    let count = folder.path().join("count");
    let count = count.to_str().unwrap();
    let hangs = format!("echo x >> {count}; [ $(wc -l < {count}) = 1 ] || exec sleep 60; exec");
    let program = reapd_after(folder.path(), &hangs);
    let questions = [server.question(hello(), SHORT)];
    let why = pinged(ask_all(&mut observer_by(&program), &questions).remove(0)).unwrap_err();
    assert_eq!(why.reason, Reason::Hung);
    assert_eq!(std::fs::read_to_string(count).unwrap().lines().count(), 2, "nobody was started to ask again");
}

#[test]
fn a_server_that_is_gone_is_unknown() {
    let server = Server::new("");
    let gone = server.question(hello(), SHORT);
    drop(server);
    assert_eq!(ping(gone).unwrap_err().reason, Reason::Vanished);
}
