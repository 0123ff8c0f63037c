//! An engine for tests: a thread that answers HTTP at a Unix socket as it is told, right or wrong.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread;

use crate::model::container::EngineId;

/// What is said to one request.
#[derive(Debug, Clone)]
pub(crate) enum Reply {
    /// A status and a whole body.
    Whole(u16, String),
    /// A body that ends before it is over.
    Cut(String),
    /// A body without an end, as fast as it is taken.
    Endless,
    /// Nothing, and the connection stays open.
    Silence,
}

impl Reply {
    /// Returns an answer that is as it should be.
    pub(crate) fn good(body: impl Into<String>) -> Reply {
        Reply::Whole(200, body.into())
    }
}

/// An engine for tests.
#[derive(Debug)]
pub(crate) struct Fake {
    directory: tempfile::TempDir,
    heard: Arc<Mutex<Vec<String>>>,
}

/// What Docker 20.10 says of itself.
pub(crate) const DOCKER: &str = r#"{"Platform":{"Name":""},"Components":[{"Name":"Engine","Version":"20.10.24",
    "Details":{}}],"Version":"20.10.24","ApiVersion":"1.41","MinAPIVersion":"1.12"}"#;
/// What Podman 4.3 says of itself.
pub(crate) const PODMAN: &str = r#"{"Components":[{"Name":"Podman Engine","Version":"4.3.1","Details":{}},
    {"Name":"Conmon","Version":"2.1.6"}],"Version":"4.3.1","ApiVersion":"1.41"}"#;

impl Fake {
    /// Starts an engine that says these things to requests such as `GET /v1.41/containers/json`, by what they begin
    /// with, the longest first; 404 to everything else.
    pub(crate) fn new<'a>(replies: impl IntoIterator<Item = (&'a str, Reply)>) -> Fake {
        let directory = tempfile::tempdir().unwrap();
        let listener = UnixListener::bind(directory.path().join("docker.sock")).unwrap();
        let replies: Vec<(String, Reply)> = {
            let sorted: BTreeMap<_, _> = replies.into_iter().collect();
            let mut sorted: Vec<_> = sorted.into_iter().map(|(key, reply)| (key.to_owned(), reply)).collect();
            sorted.sort_by_key(|(key, _)| std::cmp::Reverse(key.len()));
            sorted
        };
        let heard = Arc::new(Mutex::new(Vec::new()));
        let record = Arc::clone(&heard);
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (Ok(stream), replies, record) = (stream, replies.clone(), Arc::clone(&record)) else {
                    return;
                };
                thread::spawn(move || serve(stream, &replies, &record));
            }
        });
        Fake { directory, heard }
    }

    /// Starts a Docker engine that says these things besides its version.
    pub(crate) fn docker<'a>(replies: impl IntoIterator<Item = (&'a str, Reply)>) -> Fake {
        Fake::new(replies.into_iter().chain([("GET /version", Reply::good(DOCKER))]))
    }

    /// Returns its name.
    pub(crate) fn id(&self) -> EngineId {
        EngineId(self.path().to_str().unwrap().to_owned())
    }

    /// Returns where it listens.
    pub(crate) fn path(&self) -> PathBuf {
        self.directory.path().join("docker.sock")
    }

    /// Returns each request so far, as method and path.
    pub(crate) fn heard(&self) -> Vec<String> {
        self.heard.lock().unwrap().clone()
    }
}

fn serve(mut stream: UnixStream, replies: &[(String, Reply)], heard: &Mutex<Vec<String>>) {
    let mut head = Vec::new();
    let mut byte = [0];
    while !head.ends_with(b"\r\n\r\n") {
        if stream.read(&mut byte).unwrap_or(0) == 0 {
            return;
        }
        head.push(byte[0]);
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let asked = head.split(" HTTP").next().unwrap_or_default().to_owned();
    heard.lock().unwrap().push(asked.clone());
    let found = replies.iter().find(|(key, _)| asked.starts_with(key.as_str()));
    let reply =
        found.map_or(Reply::Whole(404, r#"{"message":"no such thing"}"#.into()), |(_, reply)| reply.clone());
    match reply {
        Reply::Whole(status, body) => {
            let head = format!("HTTP/1.1 {status} Said\r\nContent-Type: application/json\r\n");
            // A body may come with neither: RFC 9110, 15.3.5 and 15.4.5.
            let length = if matches!(status, 204 | 304) {
                String::new()
            } else {
                format!("Content-Length: {}\r\n", body.len())
            };
            drop(stream.write_all(format!("{head}{length}\r\n{body}").as_bytes()));
        }
        Reply::Cut(body) => {
            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len() + 100);
            drop(stream.write_all(head.as_bytes()));
        }
        Reply::Endless => {
            drop(stream.write_all(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"));
            let chunk = format!("10000\r\n{}\r\n", " ".repeat(0x10000));
            while stream.write_all(chunk.as_bytes()).is_ok() {}
        }
        Reply::Silence => drop(stream.read(&mut byte)),
    }
}
