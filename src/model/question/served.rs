//! What is asked of servers, and what came back: where a socket's file is, and whether anybody answers.

use std::time::Duration;

use bstr::BString;
use serde::{Deserialize, Serialize};

use crate::model::id::ProcessId;
use crate::model::known::Known;

use super::Parent;

/// What is said to a server, all templates filled in.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Call {
    /// One line is sent; a line that contains the text is the reply.
    Lines {
        /// The line, without its end.
        send: BString,
        /// What the reply contains.
        expect: BString,
    },
    /// One message is sent behind a `Content-Length` header; a message that contains the text is the reply.
    ContentLength {
        /// The message.
        send: BString,
        /// What the reply contains.
        expect: BString,
    },
    /// MCP's own `ping`; any result or error with its id is the reply.
    Mcp,
    /// One GET with `Connection: close`.
    Http {
        /// The path with its query, beginning with `/`.
        path: BString,
        /// The status of a live server; any status where it is left out.
        status: Option<u16>,
        /// What the body contains; anything where it is left out.
        expect: Option<BString>,
    },
    /// Nothing is sent; a greeting or a hang-up is the reply.
    Greeting,
}

/// Who carries a text in its arguments or in a value of its environment.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carriers {
    /// Those that were seen to carry it, the asked process included where it does.
    pub seen: Vec<ProcessId>,
    /// Those that could not be read; any of them may carry it.
    pub unread: Vec<ProcessId>,
    /// How many there are at least that the table does not show.
    pub unseen: u32,
}

/// Where the file of a listening Unix socket is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Binding {
    /// The path leads to that very file, by whatever links.
    Here,
    /// The path leads to something else. The directory's file system is the one that the file was bound on.
    Replaced {
        /// What is there.
        by: FileKind,
        /// The directory it stands in.
        parent: Box<Parent>,
    },
    /// Nothing is at the path. The directory is there, on the file system that the file was bound on, and has the
    /// file under no other name.
    Absent {
        /// The directory it would stand in.
        parent: Box<Parent>,
    },
    /// The directory is itself gone. Its nearest ancestor is on the file system that the file was bound on.
    DirectoryAbsent {
        /// The nearest ancestor that is there.
        nearest: Box<Parent>,
    },
    /// Its directory has the file under this other name: it was renamed, and whoever knows that name may come.
    Renamed(BString),
}

/// Kinds of file, as far as rules tell them apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileKind {
    /// A Unix socket.
    Socket,
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A device or a FIFO.
    Other,
}

/// What came of one request to a server, and how the tree got on meanwhile.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pinged {
    /// What came.
    pub response: Response,
    /// Counters right before the connection was made.
    pub before: Known<Progress>,
    /// Counters when the answer was there, or the time was over.
    pub after: Known<Progress>,
}

/// What came of one request. Alive, silent and indeterminate are three things: whatever fits neither of the first two
/// is unknown, and that is said by the answer being an error.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Response {
    /// The expected reply came, in this many milliseconds.
    Answered(u64),
    /// It took the connection and said something else, or hung up: its loop runs. The text is what came, for a
    /// person, shortened.
    Otherwise(BString),
    /// The connection was made, the request was sent, and nothing came in this many milliseconds. The server slept all
    /// the while: it was neither stopped nor traced, ran nowhere, waited for no processor and for no disk.
    Silent(u64),
}

/// How far a tree got: grows with every byte that it moves and every moment that it computes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Progress {
    /// Bytes read and written so far, by proc_pid_io(5), summed over the tree.
    pub moved: u64,
    /// Processor time so far, user and system, summed over the tree.
    pub cpu: Duration,
}
