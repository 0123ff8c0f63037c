//! One call: one connection to one engine, with a deadline, a bound for what comes back, and its status.

use std::fmt;
use std::future::Future;
use std::io;
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU16, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bollard::errors::Error;
use bollard::{BollardRequest, ClientVersion, Docker};
use hyper::Response;
use hyper::body::Incoming;
use hyper::client::conn::http1::Builder;
use hyper::header::{CONNECTION, HOST, HeaderValue};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::UnixStream;

use super::fault::Fault;

/// Everything that may come back in one call: some thousands of containers with many labels take a few of these.
const ANSWER_MOST: usize = 32 * 1024 * 1024;
/// All headers of an answer together.
const HEAD_MOST: usize = 64 * 1024;
/// How long to wait before a socket whose queue is full is tried again.
const FULL: Duration = Duration::from_millis(10);

/// The newest version of the interface that we know.
pub(super) const NEWEST: Version = Version { major: 1, minor: 53 };

/// A version of the engine's interface.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Version {
    pub(super) major: usize,
    pub(super) minor: usize,
}

impl Version {
    /// Reads `1.41`.
    pub(super) fn read(text: &str) -> Option<Version> {
        let (major, minor) = text.split_once('.')?;
        Some(Version { major: major.parse().ok()?, minor: minor.parse().ok()? })
    }
}

/// What makes an answer fail that is longer than the bound.
#[derive(Debug, thiserror::Error)]
#[error("the answer has no end")]
pub(super) struct TooLong;

/// One call that is about to be made.
#[derive(Debug)]
pub(super) struct Call {
    pub(super) docker: Docker,
    socket: Arc<PathBuf>,
    version: Option<Version>,
    status: Arc<AtomicU16>,
    limit: Duration,
}

impl Call {
    /// Prepares one call. Without a version, the engine takes it for its own newest.
    pub(super) fn new(socket: &Path, version: Option<Version>, limit: Duration) -> Result<Call, Fault> {
        let status = Arc::new(AtomicU16::new(0));
        let heard = Arc::clone(&status);
        let socket: Arc<PathBuf> = Arc::new(socket.to_owned());
        let to = Arc::clone(&socket);
        let transport =
            move |request: BollardRequest| exchange(Arc::clone(&to), version, Arc::clone(&heard), request);
        let stated = version.unwrap_or(NEWEST);
        let stated = ClientVersion { major_version: stated.major, minor_version: stated.minor };
        // Its own deadline counts whole seconds, and not the body; ours ends before it.
        let seconds = limit.as_secs().saturating_add(60);
        let docker =
            Docker::connect_with_custom_transport(transport, Some("http://engine"), seconds, &stated)?;
        Ok(Call { docker, socket, version, status, limit })
    }

    /// Waits for what was asked by this call, no longer than its deadline.
    pub(super) async fn within<T>(&self, asked: impl Future<Output = Result<T, Error>>) -> Result<T, Fault> {
        match tokio::time::timeout(self.limit, asked).await {
            Ok(answer) => answer.map_err(Fault::from),
            Err(_) => Err(Fault::Hung),
        }
    }

    /// Sends a request as it is, and returns the answer whatever it is. The caller sees to the deadline of its body.
    pub(super) async fn send(&self, request: BollardRequest) -> Result<Response<Incoming>, Fault> {
        let (socket, status) = (Arc::clone(&self.socket), Arc::clone(&self.status));
        self.within(exchange(socket, self.version, status, request)).await
    }

    /// Returns the status of the answer, from HTTP; 0 where none came.
    pub(super) fn status(&self) -> u16 {
        self.status.load(Ordering::Relaxed)
    }
}

async fn exchange(
    socket: Arc<PathBuf>,
    version: Option<Version>,
    status: Arc<AtomicU16>,
    mut request: BollardRequest,
) -> Result<Response<Incoming>, Error> {
    let asked = request.uri().path_and_query().map_or("/", |path| path.as_str());
    let path = match version {
        Some(Version { major, minor }) => format!("/v{major}.{minor}{asked}"),
        None => asked.to_owned(),
    };
    *request.uri_mut() = path.parse()?;
    request.headers_mut().insert(HOST, HeaderValue::from_static("engine"));
    request.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    let bounded = Bounded { stream: connect(&socket).await?, left: ANSWER_MOST };
    let (mut sender, connection) = Builder::new().max_buf_size(HEAD_MOST).handshake(bounded).await?;
    // What goes wrong with it comes back from the request, and it ends with the body.
    tokio::spawn(async move { drop(connection.await) });
    let response = sender.send_request(request).await?;
    status.store(response.status().as_u16(), Ordering::Relaxed);
    Ok(response)
}

/// Connects, and waits where the queue of the socket is full: who never accepts is hung, not absent.
async fn connect(socket: &Path) -> io::Result<UnixStream> {
    loop {
        match UnixStream::connect(socket).await {
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => tokio::time::sleep(FULL).await,
            result => return result,
        }
    }
}

/// A connection that gives no more than so many bytes.
struct Bounded {
    stream: UnixStream,
    left: usize,
}

impl fmt::Debug for Bounded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes left", self.left)
    }
}

impl hyper::rt::Read for Bounded {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut to: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let mut room = [0; 8192];
        let length = room.len().min(to.remaining());
        let mut read = ReadBuf::new(&mut room[..length]);
        ready!(Pin::new(&mut self.stream).poll_read(cx, &mut read))?;
        let got = read.filled().len();
        let Some(left) = self.left.checked_sub(got) else {
            return Poll::Ready(Err(io::Error::other(TooLong)));
        };
        self.left = left;
        to.put_slice(read.filled());
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Bounded {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}
