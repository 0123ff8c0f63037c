//! Asking servers: HTTP/1.1 over TCP and Unix sockets, all servers at once and a few keys of each at a time.
//!
//! No redirects, no proxies, no cookies; a bounded body, and one deadline for each answer. Every server gets a few
//! connections, which stay open until the caller has seen who answered on them.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::Request;
use hyper::body::Body as _;
use hyper::client::conn::http1::{Builder, SendRequest};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpStream, UnixStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::answer::Whole;
use crate::config::policy::Server;
use crate::model::known::{Known, Reason, Unknown};

/// Requests to one server at a time.
const LANES: usize = 8;
/// A longer body is no answer to a question about one key.
const BODY_MOST: usize = 1024 * 1024;
/// All headers of an answer together.
const HEAD_MOST: usize = 64 * 1024;
/// However many keys there are: after so many deadlines the rest is left for another look.
const LOOK_DEADLINES: u32 = 4;
/// Addresses of one host name that are tried.
const ADDRESSES: usize = 4;

/// Where a connection leads.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Endpoint {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// A connection of ours, as the kernel knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) to: Endpoint,
    /// The inode of our own end; 0 where it could not be read, which is nobody's.
    pub(super) inode: u64,
}

/// A whole answer, and on which connection it came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) whole: Whole,
    pub(super) line: Line,
}

/// All requests to one server.
#[derive(Debug)]
pub(super) struct Batch {
    pub(super) server: Server,
    pub(super) requests: Vec<Request<String>>,
}

/// What came back. The connections are open until this is dropped.
pub(super) struct Answered {
    /// For each batch, for each of its requests.
    pub(super) replies: Vec<Vec<Known<Reply>>>,
    runtime: Option<Runtime>,
    open: Vec<Open>,
}

impl Drop for Answered {
    fn drop(&mut self) {
        self.open.clear();
        if let Some(runtime) = self.runtime.take() {
            // Never waits for a name that is still being looked up.
            runtime.shutdown_background();
        }
    }
}

/// Sends everything off and waits for all answers, each no longer than `limit`.
pub(super) fn ask(batches: Vec<Batch>, limit: Duration) -> Known<Answered> {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    let runtime = builder.enable_all().max_blocking_threads(1).build();
    let runtime =
        runtime.map_err(|error| Unknown::new(Reason::Starved, format!("asking servers ({error})")))?;
    let (replies, open) = runtime.block_on(ask_all(batches, limit));
    Ok(Answered { replies, runtime: Some(runtime), open })
}

async fn ask_all(batches: Vec<Batch>, limit: Duration) -> (Vec<Vec<Known<Reply>>>, Vec<Open>) {
    let until = Instant::now() + limit.saturating_mul(LOOK_DEADLINES);
    let mut replies: Vec<Vec<Known<Reply>>> = Vec::new();
    let mut lanes = JoinSet::new();
    for (at, batch) in batches.into_iter().enumerate() {
        replies.push(vec![Err(silent()); batch.requests.len()]);
        let is_silent = Arc::new(AtomicBool::new(false));
        let mut shares: Vec<Vec<(usize, Request<String>)>> = Vec::new();
        for (index, request) in batch.requests.into_iter().enumerate() {
            if shares.len() < LANES {
                shares.push(Vec::new());
            }
            shares[index % LANES].push((index, request));
        }
        for requests in shares {
            let lane = Lane { server: batch.server.clone(), is_silent: Arc::clone(&is_silent), limit, until };
            lanes.spawn(async move { (at, lane.run(requests).await) });
        }
    }
    let mut opened = Vec::new();
    while let Some(done) = lanes.join_next().await {
        let Ok((at, (said, open))) = done else { continue };
        for (index, reply) in said {
            replies[at][index] = reply;
        }
        opened.extend(open);
    }
    (replies, opened)
}

fn silent() -> Unknown {
    Unknown::new(Reason::Hung, "its server, which was asked no more at this look")
}

/// Some of the requests to one server, one after the other.
struct Lane {
    server: Server,
    /// Whether an answer of this server was late: then nobody waits for it again at this look.
    is_silent: Arc<AtomicBool>,
    limit: Duration,
    until: Instant,
}

impl Lane {
    async fn run(
        self,
        requests: Vec<(usize, Request<String>)>,
    ) -> (Vec<(usize, Known<Reply>)>, Option<Open>) {
        let mut said = Vec::with_capacity(requests.len());
        let mut open = None;
        for (index, request) in requests {
            if self.is_silent.load(Ordering::Relaxed) || Instant::now() >= self.until {
                said.push((index, Err(silent())));
                continue;
            }
            let reply = tokio::time::timeout(self.limit, exchange(&self.server, &mut open, request)).await;
            let reply = reply.unwrap_or_else(|_| {
                self.is_silent.store(true, Ordering::Relaxed);
                Err(Unknown::new(Reason::Hung, "its server"))
            });
            if reply.is_err() {
                open = None;
            }
            said.push((index, reply));
        }
        (said, open)
    }
}

/// An open connection.
struct Open {
    sender: SendRequest<String>,
    line: Line,
}

async fn exchange(server: &Server, open: &mut Option<Open>, request: Request<String>) -> Known<Reply> {
    let ready = match open.as_mut() {
        Some(open) => std::future::poll_fn(|cx| open.sender.poll_ready(cx)).await.is_ok(),
        None => false,
    };
    if !ready {
        *open = Some(connect(server).await?);
    }
    let Some(Open { sender, line }) = open.as_mut() else { return Err(silent()) };
    let response = sender.send_request(request).await.map_err(|error| failed(&error))?;
    let status = response.status().as_u16();
    let mut incoming = response.into_body();
    let mut body = Vec::new();
    while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut incoming).poll_frame(cx)).await {
        let frame = frame.map_err(|error| failed(&error))?;
        let Some(data) = frame.data_ref() else { continue };
        if body.len() + data.len() > BODY_MOST {
            return Err(Unknown::new(Reason::Truncated, "the answer's body"));
        }
        body.extend_from_slice(data);
    }
    Ok(Reply { whole: Whole { status, body }, line: line.clone() })
}

fn failed(error: &hyper::Error) -> Unknown {
    let cause = std::error::Error::source(error).and_then(|cause| cause.downcast_ref::<io::Error>());
    if let Some(errno) = cause.and_then(io::Error::raw_os_error) {
        return Unknown::new(Reason::Failed(errno), "its server");
    }
    Unknown::new(Reason::Unsound, format!("what its server sent is no whole answer ({error})"))
}

fn unreachable(error: &io::Error) -> Unknown {
    let reason = if error.kind() == io::ErrorKind::PermissionDenied {
        Reason::Denied
    } else {
        Reason::Failed(error.raw_os_error().unwrap_or(0))
    };
    Unknown::new(reason, "connecting to its server")
}

/// Returns where a server can be reached without asking anybody; nothing for a name that has to be looked up.
/// `localhost` is this machine, whatever a resolver says.
pub(super) fn endpoints(server: &Server) -> Option<Vec<Endpoint>> {
    match server {
        Server::Unix { path } => Some(vec![Endpoint::Unix(path.into())]),
        Server::Tcp { host, port } => {
            let tcp = |ip: IpAddr| Endpoint::Tcp(SocketAddr::new(ip, *port));
            if host.eq_ignore_ascii_case("localhost") {
                return Some(vec![tcp(Ipv4Addr::LOCALHOST.into()), tcp(Ipv6Addr::LOCALHOST.into())]);
            }
            let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
            bare.parse().ok().map(|ip| vec![tcp(ip)])
        }
    }
}

async fn connect(server: &Server) -> Known<Open> {
    let found = match (endpoints(server), server) {
        (Some(found), _) => found,
        (None, Server::Unix { .. }) => Vec::new(),
        (None, Server::Tcp { host, port }) => {
            let found = tokio::net::lookup_host((host.as_str(), *port)).await;
            found.map_err(|error| unreachable(&error))?.take(ADDRESSES).map(Endpoint::Tcp).collect()
        }
    };
    let mut why = Unknown::new(Reason::Unsound, "a server without an address");
    for to in found {
        match connect_to(&to).await {
            Ok(open) => return Ok(open),
            Err(unknown) => why = unknown,
        }
    }
    Err(why)
}

async fn connect_to(to: &Endpoint) -> Known<Open> {
    match to {
        Endpoint::Tcp(address) => {
            let stream = TcpStream::connect(address).await.map_err(|error| unreachable(&error))?;
            speak(stream, to).await
        }
        Endpoint::Unix(path) => {
            let stream = UnixStream::connect(path).await.map_err(|error| unreachable(&error))?;
            speak(stream, to).await
        }
    }
}

async fn speak<S>(stream: S, to: &Endpoint) -> Known<Open>
where
    S: AsyncRead + AsyncWrite + AsFd + Unpin + Send + 'static,
{
    let inode = rustix::fs::fstat(&stream).map_or(0, |stat| stat.st_ino);
    let handshake = Builder::new().max_buf_size(HEAD_MOST).handshake(Plain(stream)).await;
    let (sender, connection) = handshake.map_err(|error| failed(&error))?;
    // What goes wrong with it comes back from the request.
    tokio::spawn(async move { drop(connection.await) });
    Ok(Open { sender, line: Line { to: to.clone(), inode } })
}

/// What tokio reads and writes, as hyper wants it.
struct Plain<S>(S);

impl<S: AsyncRead + Unpin> hyper::rt::Read for Plain<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut to: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut room = [0; 8192];
        let length = room.len().min(to.remaining());
        let mut read = ReadBuf::new(&mut room[..length]);
        ready!(Pin::new(&mut self.0).poll_read(cx, &mut read))?;
        to.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> hyper::rt::Write for Plain<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(cx)
    }
}
