//! Against a scripted server in this very process, which is therefore above every process that it starts.

use std::io::{self, Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

use super::*;
use crate::config::policy::{Expect, ExpectBody, Method, Server, Want};
use crate::model::id::Pid;
use crate::observe::processes::Scanner;

/// Longer than a busy machine takes.
const LIMIT: Duration = Duration::from_secs(10);
/// For servers that never answer.
const SHORT: Duration = Duration::from_millis(400);
const NOW: Moment = Moment(1_000_000_000_000);

/// What the server does once it has read a request.
enum Then {
    /// Sends these bytes, and listens for the next request.
    Send(Vec<u8>),
    /// Sends these bytes and closes.
    Close(Vec<u8>),
    /// Sends these bytes and then nothing, for as long as the client waits.
    Stall(Vec<u8>),
    /// Sends these bytes again and again, for as long as the client reads.
    Flood(Vec<u8>),
}

fn whole(status: &str, body: &str) -> Vec<u8> {
    format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len()).into_bytes()
}

fn chat(mut stream: impl Read + Write, script: &dyn Fn(&str) -> Then) -> io::Result<()> {
    loop {
        let mut request = Vec::new();
        let mut byte = [0];
        while !request.ends_with(b"\r\n\r\n") {
            if stream.read(&mut byte)? == 0 {
                return Ok(());
            }
            request.push(byte[0]);
        }
        let mut head = String::from_utf8_lossy(&request).into_owned();
        let length = head
            .to_lowercase()
            .split("content-length: ")
            .nth(1)
            .map_or(0, |rest| rest.split("\r\n").next().unwrap_or_default().parse().unwrap_or(0));
        let mut body = vec![0; length];
        stream.read_exact(&mut body)?;
        head.push_str(&String::from_utf8_lossy(&body));
        match script(&head) {
            Then::Send(bytes) => stream.write_all(&bytes)?,
            Then::Close(bytes) => return stream.write_all(&bytes),
            Then::Stall(bytes) => {
                stream.write_all(&bytes)?;
                return stream.read_exact(&mut byte);
            }
            Then::Flood(bytes) => loop {
                stream.write_all(&bytes)?;
            },
        }
    }
}

/// A server on loopback; its threads end with the test program.
fn serve(script: impl Fn(&str) -> Then + Send + Sync + 'static) -> (Server, TcpListener) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let accepting = listener.try_clone().unwrap();
    let script = Arc::new(script);
    std::thread::spawn(move || {
        for stream in accepting.incoming().map_while(Result::ok) {
            let script = Arc::clone(&script);
            std::thread::spawn(move || drop(chat(stream, &*script)));
        }
    });
    (Server::Tcp { host: "127.0.0.1".into(), port }, listener)
}

fn registry(server: &Server) -> HttpRegistry {
    let gone = ExpectBody { pointer: "/error".into(), want: Want::Equals("no such session".into()) };
    HttpRegistry {
        server: server.clone(),
        target: "/s/{key}".into(),
        method: Method::Get,
        headers: Vec::new(),
        body: None,
        every: Duration::ZERO,
        alive: vec![Expect { status: 200, body: None }],
        gone: vec![Expect { status: 404, body: Some(gone) }],
        listed: None,
        instance: Instance::Ancestor,
    }
}

/// A child of this very process.
struct Tool(Child);

impl Tool {
    fn start() -> Tool {
        Tool::with(Stdio::null())
    }

    fn with(stdin: Stdio) -> Tool {
        Tool(Command::new("sleep").arg("60").stdin(stdin).spawn().unwrap())
    }
}

impl Drop for Tool {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn table() -> Table {
    let mut table = Table::default();
    Scanner::open().unwrap().scan(&mut table).unwrap();
    table
}

fn id(table: &Table, pid: u32) -> ProcessId {
    table.at(Pid::new(i32::try_from(pid).unwrap()).unwrap()).unwrap().id
}

fn ask(
    servers: &mut Servers,
    http: &HttpRegistry,
    of: u32,
    keys: &[&str],
    now: Moment,
) -> Vec<Known<Registered>> {
    ask_within(LIMIT, servers, http, of, keys, now)
}

fn ask_within(
    limit: Duration,
    servers: &mut Servers,
    http: &HttpRegistry,
    of: u32,
    keys: &[&str],
    now: Moment,
) -> Vec<Known<Registered>> {
    let table = table();
    let of = id(&table, of);
    let asks: Vec<Ask<'_>> =
        keys.iter().map(|key| Ask { name: "gw", http, of, key: key.as_bytes().as_bstr() }).collect();
    servers.ask(&asks, &table, now, limit, &mut |_| Ok("secret".into()))
}

fn one(http: &HttpRegistry, of: u32) -> Known<Registered> {
    ask(&mut Servers::default(), http, of, &["a"], NOW).remove(0)
}

const ALIVE: Known<Registered> = Ok(Registered::Listed { holder: None });

#[expect(clippy::unnecessary_wraps, reason = "it is compared with what may be unknown")]
fn over() -> Known<Registered> {
    Ok(Registered::Over("HTTP 404 with /error = no such session".into()))
}

fn of_session(request: &str) -> Then {
    if request.starts_with("GET /s/alive ") {
        Then::Send(whole("200 OK", "{}"))
    } else if request.starts_with("GET /s/gone ") {
        Then::Send(whole("404 Not Found", r#"{"error":"no such session"}"#))
    } else {
        Then::Send(whole("503 Service Unavailable", r#"{"error":"no such session"}"#))
    }
}

#[test]
fn all_keys_of_a_look_are_answered_over_tcp_and_unix_sockets() {
    let helper = Tool::start();
    let base = tempfile::tempdir().unwrap();
    let path = base.path().join("s.sock");
    let listener = UnixListener::bind(&path).unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            std::thread::spawn(move || drop(chat(stream, &of_session)));
        }
    });
    let (tcp, _listener) = serve(of_session);
    for server in [tcp, Server::Unix { path: path.to_str().unwrap().into() }] {
        let keys = ["alive", "gone", "other", "a/b"];
        let said = ask(&mut Servers::default(), &registry(&server), helper.0.id(), &keys, NOW);
        assert_eq!(said[..2], [ALIVE, over()], "{server:?}");
        let why: Vec<String> = said[2..].iter().map(|said| said.as_ref().unwrap_err().to_string()).collect();
        assert!(why[0].contains("registry 'gw': HTTP 503, which neither alive nor gone names"), "{why:?}");
        assert!(why[1].contains("plain word"), "{why:?}");
    }
}

#[test]
fn keys_are_asked_together_and_eight_at_a_time() {
    let gate = Arc::new((Mutex::new(0), Condvar::new()));
    let inside = Arc::clone(&gate);
    // Nobody is answered before eight are waiting, and then everybody.
    let (server, _listener) = serve(move |_| {
        let (count, came) = &*inside;
        let mut count = count.lock().unwrap();
        *count += 1;
        came.notify_all();
        drop(came.wait_while(count, |count| *count < 8).unwrap());
        Then::Send(whole("200 OK", ""))
    });
    let helper = Tool::start();
    let keys: Vec<String> = (0..20).map(|number| format!("k{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let said = ask(&mut Servers::default(), &registry(&server), helper.0.id(), &keys, NOW);
    assert_eq!(said, vec![ALIVE; 20]);
}

#[test]
fn whatever_is_no_whole_answer_in_time_is_unknown_f11() {
    let helper = Tool::start();
    let huge = format!("HTTP/1.1 404 Not Found\r\ncontent-length: {}\r\n\r\n", 8 << 20).into_bytes();
    let head = b"HTTP/1.1 404 Not Found\r\ncontent-length: 31\r\n\r\n".to_vec();
    let half = [&head[..], br#"{"error":"no su"#].concat();
    let chunked =
        b"HTTP/1.1 404 Not Found\r\ntransfer-encoding: chunked\r\n\r\n1b\r\n{\"error\":\"no su".to_vec();
    let cases: Vec<(&str, &str, Then)> = vec![
        ("nothing at all", "no answer in time", Then::Stall(Vec::new())),
        ("half a head", "no answer in time", Then::Stall(b"HTTP/1.1 404 Not".to_vec())),
        ("a slow body", "no answer in time", Then::Stall(half.clone())),
        ("a slow chunk", "no answer in time", Then::Stall(chunked.clone())),
        ("half a body", "no whole answer", Then::Close(half)),
        ("half a chunk", "no whole answer", Then::Close(chunked)),
        ("closed at once", "no whole answer", Then::Close(Vec::new())),
        ("another protocol", "no whole answer", Then::Close(b"SSH-2.0-x\r\n".to_vec())),
        ("a huge body", "more than the bounds allow", Then::Flood(huge)),
        (
            "headers without end",
            "no whole answer",
            Then::Flood(b"HTTP/1.1 404 Not Found\r\nx: y\r\nx: ".to_vec()),
        ),
        ("no length and closed", "closed the connection", {
            Then::Close(b"HTTP/1.1 404 Not Found\r\n\r\n{\"error\":\"no such session\"}".to_vec())
        }),
        ("another word", "does not say", Then::Send(whole("404 Not Found", "<html>not found"))),
        ("unauthorized", "HTTP 401", Then::Send(whole("401 Unauthorized", ""))),
        ("forbidden", "HTTP 403", Then::Send(whole("403 Forbidden", "{}"))),
        ("another 404", "HTTP 404", Then::Send(whole("404 Not Found", r#"{"error":"no such route"}"#))),
        ("broken", "HTTP 500", Then::Send(whole("500 Internal Server Error", ""))),
        ("overloaded", "HTTP 503", Then::Send(whole("503 x", r#"{"error":"no such session"}"#))),
    ];
    for (name, why, then) in cases {
        let then = Mutex::new(Some(then));
        let (server, _listener) =
            serve(move |_| then.lock().unwrap().take().unwrap_or_else(|| Then::Close(Vec::new())));
        let limit = if why == "no answer in time" { SHORT } else { LIMIT };
        let http = registry(&server);
        let said = ask_within(limit, &mut Servers::default(), &http, helper.0.id(), &["a"], NOW).remove(0);
        let said = said.expect_err(name).to_string();
        assert!(said.contains(why), "{name}: {said}");
    }
}

#[test]
fn a_redirect_is_not_followed() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let (server, _listener) = serve(move |request| {
        count.fetch_add(1, Ordering::SeqCst);
        if request.starts_with("GET /s/a ") {
            Then::Send(b"HTTP/1.1 302 Found\r\nlocation: /s/gone\r\ncontent-length: 0\r\n\r\n".to_vec())
        } else {
            of_session(request)
        }
    });
    let helper = Tool::start();
    assert!(one(&registry(&server), helper.0.id()).unwrap_err().what.contains("HTTP 302"));
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn a_silent_server_is_waited_for_once_however_many_keys_there_are() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let (server, _listener) = serve(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Then::Stall(Vec::new())
    });
    let helper = Tool::start();
    let keys: Vec<String> = (0..100).map(|number| format!("k{number}")).collect();
    let keys: Vec<&str> = keys.iter().map(String::as_str).collect();
    let said = ask_within(SHORT, &mut Servers::default(), &registry(&server), helper.0.id(), &keys, NOW);
    assert!(said.iter().all(|said| said.as_ref().is_err_and(|why| why.reason == Reason::Hung)), "{said:?}");
    assert!(asked.load(Ordering::SeqCst) <= 16, "{asked:?}");
}

#[test]
fn where_nobody_listens_nothing_is_known() {
    let helper = Tool::start();
    let (server, listener) = serve(of_session);
    assert_eq!(one(&HttpRegistry { target: "/s/gone".into(), ..registry(&server) }, helper.0.id()), over());
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    for server in [
        Server::Tcp { host: "127.0.0.1".into(), port: free },
        Server::Unix { path: "/nonexistent/s.sock".into() },
        Server::Tcp { host: "no such host".into(), port: 1 },
    ] {
        assert!(one(&registry(&server), helper.0.id()).is_err(), "{server:?}");
    }
    drop(listener);
}

#[cfg(target_os = "linux")]
#[test]
fn only_a_server_that_stands_above_the_process_is_believed_f11() {
    let helper = Tool::start();
    let (server, listener) = serve(of_session);
    let http = HttpRegistry { target: "/s/gone".into(), ..registry(&server) };
    assert_eq!(one(&http, helper.0.id()), over(), "the twin below its server");
    let refused = |of: u32| one(&http, of).unwrap_err().to_string();
    assert!(refused(std::process::id()).contains("another server"), "it is not below itself");
    assert!(refused(std::os::unix::process::parent_id()).contains("another server"), "nor are those above");
    let sharing = Tool::with(Stdio::from(std::os::fd::OwnedFd::from(listener.try_clone().unwrap())));
    assert!(refused(helper.0.id()).contains("another server"), "a sibling may have accepted it");
    drop(sharing);
    assert_eq!(one(&http, helper.0.id()), over());
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_that_is_younger_or_another_one_by_now_is_not_believed_f11() {
    let helper = Tool::start();
    let table = table();
    let of = id(&table, helper.0.id());
    let us = id(&table, std::process::id());
    assert!(instance::is_below(of, &[us], &table).is_ok());
    assert!(instance::is_below(of, &[], &table).is_err());
    let mut rows = table.rows().to_vec();
    for row in rows.iter_mut().filter(|row| row.id == us) {
        row.id.start.0 = of.start.0;
    }
    let younger = Table::new(rows);
    assert!(instance::is_below(of, &[id(&younger, us.pid.number().unsigned_abs())], &younger).is_err());
}

#[cfg(target_os = "linux")]
#[test]
fn a_server_that_was_replaced_while_it_was_asked_is_not_believed_f11() {
    let slot: Arc<Mutex<Option<TcpListener>>> = Arc::default();
    let inside = Arc::clone(&slot);
    let (server, listener) = serve(move |_| {
        // A successor takes the port over, in the same process even.
        if let Some(listener) = inside.lock().unwrap().take() {
            let address = listener.local_addr().unwrap();
            // Wakes the thread that accepts, so that its copy of the listener goes too.
            rustix::net::shutdown(&listener, rustix::net::Shutdown::Both).unwrap();
            drop(listener);
            let until = std::time::Instant::now() + Duration::from_secs(10);
            let successor = loop {
                match TcpListener::bind(address) {
                    Ok(successor) => break successor,
                    Err(_) if std::time::Instant::now() < until => std::thread::yield_now(),
                    Err(error) => panic!("{error}"),
                }
            };
            std::mem::forget(successor);
        }
        Then::Send(whole("404 Not Found", r#"{"error":"no such session"}"#))
    });
    *slot.lock().unwrap() = Some(listener);
    let helper = Tool::start();
    let said = one(&registry(&server), helper.0.id()).unwrap_err().to_string();
    assert!(said.contains("changed while it was asked"), "{said}");
}

#[cfg(target_os = "linux")]
#[test]
fn a_sibling_that_was_handed_the_connection_is_not_believed_f11() {
    use std::io::IoSlice;
    use std::mem::MaybeUninit;
    use std::os::fd::{AsFd as _, OwnedFd};
    use std::os::unix::net::UnixStream;

    use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

    // As the workers of a cluster are, whose first process alone listens.
    let (mut ours, theirs) = UnixStream::pair().unwrap();
    let worker = "import socket, time\nline = socket.socket(fileno=0)\nline.send(b'r')\nwhile True:\n  kept = socket.recv_fds(line, 1, 1)\n  line.send(b'x')";
    let mut sibling = Command::new("python3");
    let sibling =
        Tool(sibling.args(["-c", worker]).stdin(Stdio::from(OwnedFd::from(theirs))).spawn().unwrap());
    ours.read_exact(&mut [0]).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let hands_on = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let inside = Arc::clone(&hands_on);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            if inside.load(Ordering::SeqCst) {
                let mut room = [MaybeUninit::uninit(); 64];
                let mut handed = SendAncillaryBuffer::new(&mut room);
                let connection = [stream.as_fd()];
                assert!(handed.push(SendAncillaryMessage::ScmRights(&connection)));
                sendmsg(&ours, &[IoSlice::new(b"x")], &mut handed, SendFlags::empty()).unwrap();
                ours.read_exact(&mut [0]).unwrap();
            }
            std::thread::spawn(move || drop(chat(stream, &of_session)));
        }
    });
    let server = Server::Tcp { host: "127.0.0.1".into(), port };
    let http = HttpRegistry { target: "/s/gone".into(), ..registry(&server) };
    let tool = Tool::start();
    assert_eq!(one(&http, tool.0.id()), over(), "the twin whose server keeps its connections to itself");
    hands_on.store(true, Ordering::SeqCst);
    let said = one(&http, tool.0.id()).unwrap_err().to_string();
    assert!(said.contains("another server answers there"), "{said}");
    drop(sibling);
}

#[test]
fn a_named_server_may_be_anywhere_and_must_say_its_name() {
    let (server, _listener) = serve(|request| {
        Then::Close(whole(
            "200 OK",
            if request.contains("/s/ours ") { r#"{"id":"17"}"# } else { r#"{"id":"18"}"# },
        ))
    });
    let instance = Instance::Named { pointer: "/id".into(), equals: "17".into() };
    let http = HttpRegistry { instance, ..registry(&server) };
    let said = ask(&mut Servers::default(), &http, std::process::id(), &["ours", "theirs"], NOW);
    assert_eq!(said[0], ALIVE);
    assert!(said[1].as_ref().unwrap_err().what.contains("another server"));
}

#[test]
fn the_living_are_asked_about_no_more_often_than_every_and_an_end_is_never_an_old_answer() {
    let asked: Arc<Mutex<Vec<String>>> = Arc::default();
    let inside = Arc::clone(&asked);
    let (server, _listener) = serve(move |request| {
        inside.lock().unwrap().push(request.split(' ').nth(1).unwrap_or_default().to_owned());
        of_session(request)
    });
    let every = Duration::from_mins(1);
    let http = HttpRegistry { every, ..registry(&server) };
    let helper = Tool::start();
    let mut servers = Servers::default();
    let count = |servers: &mut Servers, now: Moment| {
        let said = ask(servers, &http, helper.0.id(), &["alive", "gone", "other"], now);
        assert_eq!(said[..2], [ALIVE, over()]);
        assert!(said[2].as_ref().unwrap_err().what.contains("HTTP 503"));
        let mut asked = std::mem::take(&mut *asked.lock().unwrap());
        asked.sort();
        asked
    };
    let all = ["/s/alive", "/s/gone", "/s/other"];
    assert_eq!(count(&mut servers, NOW), all);
    assert_eq!(count(&mut servers, NOW.plus(every / 2)), ["/s/gone"]);
    // A later run of the same boot.
    let (boot, other_boot) = (BootId("this".into()), BootId("that".into()));
    let written = serde_json::to_vec(&servers.heard(&boot)).unwrap();
    assert!(!String::from_utf8_lossy(&written).contains("no such session"), "no end is written down");
    let mut servers = Servers::default();
    servers.remember(serde_json::from_slice(&written).unwrap(), &boot);
    assert_eq!(count(&mut servers, NOW.plus(every / 2)), ["/s/gone"]);
    let mut rebooted = Servers::default();
    rebooted.remember(serde_json::from_slice(&written).unwrap(), &other_boot);
    assert_eq!(count(&mut rebooted, NOW.plus(every / 2)), all);
    assert_eq!(count(&mut servers, NOW.plus(every)), all);
    assert_eq!(count(&mut servers, NOW), all, "an answer from the future is none");
    let other = HttpRegistry { every: every * 2, ..http.clone() };
    ask(&mut servers, &other, helper.0.id(), &["alive"], NOW);
    assert_eq!(*asked.lock().unwrap(), ["/s/alive"], "configured anew");
}

#[test]
fn one_list_answers_for_all_keys() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let (server, _listener) = serve(move |_| {
        count.fetch_add(1, Ordering::SeqCst);
        Then::Send(whole("200 OK", r#"{"sessions":["a","b"]}"#))
    });
    let listed = Some("/sessions/*".to_owned());
    let http = HttpRegistry {
        target: "/health".into(),
        listed,
        alive: Vec::new(),
        gone: Vec::new(),
        ..registry(&server)
    };
    let helper = Tool::start();
    let said = ask(&mut Servers::default(), &http, helper.0.id(), &["a", "c", "/tmp/x"], NOW);
    let absent = Ok(Registered::NotListed { others: 2 });
    assert_eq!(said, [ALIVE, absent.clone(), absent]);
    assert_eq!(asked.load(Ordering::SeqCst), 1);
}

#[test]
fn a_secret_that_cannot_be_read_asks_nobody() {
    let (server, _listener) = serve(|request| {
        assert!(request.contains("authorization: Bearer secret\r\n"), "{request}");
        Then::Send(whole("200 OK", ""))
    });
    let headers = vec![("Authorization".to_owned(), "Bearer {file:/t}".to_owned())];
    let http = HttpRegistry { headers, ..registry(&server) };
    let helper = Tool::start();
    assert_eq!(one(&http, helper.0.id()), ALIVE);
    let table = table();
    let of = id(&table, helper.0.id());
    let asks = [Ask { name: "gw", http: &http, of, key: "a".into() }];
    let said = Servers::default()
        .ask(&asks, &table, NOW, LIMIT, &mut |_| Err(Unknown::new(Reason::Denied, "secret /t")));
    assert_eq!(said[0].as_ref().unwrap_err().reason, Reason::Denied);
}
