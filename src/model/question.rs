//! What a rule needs to know, and what came back.
//!
//! Rules are sans-IO: they look into [`Answers`], and where an answer is missing they name the [`Question`].
//! The edge answers it, and the rule is weighed again.

mod engine;
mod served;

use std::collections::BTreeMap;

use bstr::BString;
use serde::{Deserialize, Serialize};

use super::facts::{Facts, FileSystem};
use super::id::{FileId, Pid, ProcessId};
use super::known::Known;
use super::lease::Holder;

pub use engine::{EngineAnswer, EngineQuestion};
pub use served::{Binding, Call, Carriers, FileKind, Pinged, Progress, Response};

/// One thing to look up. Looking must not act, so every one of these is passive, but for [`Question::Ping`] and
/// [`EngineQuestion::Ping`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Question {
    /// The dear facts of a process.
    Facts(ProcessId),
    /// What an absolute path means to a process, in its own mount namespace.
    Path {
        /// Whose meaning counts.
        of: ProcessId,
        /// The absolute path.
        path: BString,
    },
    /// What a descriptor is, and whether its far end is there.
    Channel {
        /// Whose descriptor.
        of: ProcessId,
        /// Its number; 0 is standard input.
        fd: u32,
    },
    /// Which processes hold the far end of a descriptor. Dear: reads descriptor tables.
    Holders {
        /// Whose descriptor.
        of: ProcessId,
        /// Its number.
        fd: u32,
    },
    /// The listening and connected sockets of a process.
    Sockets(ProcessId),
    /// Whether a bare process number, as `of` knows it, is anybody. Asked in the pid namespace of reapd.
    Owner {
        /// Who named the number.
        of: ProcessId,
        /// The number.
        pid: Pid,
    },
    /// Bytes that a process moved so far, by `/proc/PID/io`.
    Activity(ProcessId),
    /// The terminals whose master side a process holds.
    Terminals(ProcessId),
    /// Where the file that a listening Unix socket was bound to is now, seen from a path that clients use.
    Bound {
        /// Whose meaning of the path counts: the process that listens.
        of: ProcessId,
        /// The absolute path.
        path: BString,
        /// The file that the socket was bound to; see [`Listener::file`].
        file: FileId,
    },
    /// Who carries a text in its arguments or in a value of its environment. Dear: reads both of every process of the
    /// user.
    Named {
        /// For whose sake; whoever is of the same user counts.
        of: ProcessId,
        /// The text, e.g. a socket's path. It counts wherever no path goes on: `unix:/tmp/s` names `/tmp/s`, `/tmp/s2`
        /// does not.
        text: BString,
    },
    /// Whether a server answers a request: the one question that acts. Asked last, and rarely.
    Ping {
        /// Who listens.
        of: ProcessId,
        /// The policy whose `ping` it is, for a person.
        policy: String,
        /// What is sent and expected: the policy's `ping`, filled in from the process.
        call: Call,
        /// Where: a name of a [`Listener`] of that process.
        socket: BString,
        /// Whose progress counts meanwhile: the tree.
        tree: Vec<ProcessId>,
        /// How long to wait, milliseconds.
        patience: u64,
    },
    /// What somebody else's registry says of a key. The last question of a line: some servers count it as use.
    Registered {
        /// For whose sake.
        of: ProcessId,
        /// The registry's name in the configuration.
        registry: String,
        /// Files: the absolute pattern, filled in from the process's own environment. Empty for a server.
        place: BString,
        /// The key.
        key: BString,
    },
    /// About a container or its engine.
    Engine(EngineQuestion),
}

/// What came back for one question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Answer {
    /// To [`Question::Facts`].
    Facts(Box<Facts>),
    /// To [`Question::Path`].
    Path(PathAnswer),
    /// To [`Question::Channel`].
    Channel(Channel),
    /// To [`Question::Holders`].
    Holders(Holders),
    /// To [`Question::Sockets`].
    Sockets(Sockets),
    /// To [`Question::Owner`].
    Owner(Owner),
    /// To [`Question::Activity`].
    Activity(Activity),
    /// To [`Question::Terminals`]: device numbers of the slaves, as [`super::table::Row::tty`] shows them. Linux:
    /// `tty-index` of `/proc/PID/fdinfo/FD` (4.14+), major 136.
    Terminals(Vec<i32>),
    /// To [`Question::Registered`].
    Registered(Registered),
    /// To [`Question::Bound`].
    Bound(Binding),
    /// To [`Question::Named`].
    Named(Carriers),
    /// To [`Question::Ping`].
    Ping(Pinged),
    /// To [`Question::Engine`].
    Engine(EngineAnswer),
}

/// What a registry says of a key, read completely. Everything else is unknown.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Registered {
    /// It lists the key, or its server says that it is alive.
    Listed {
        /// Who holds it, where the record says so.
        holder: Option<Box<Holder>>,
    },
    /// Its server says that it is over; the text is the entry of `gone` that fitted, for a person.
    Over(String),
    /// It does not list the key.
    NotListed {
        /// How many others it lists at this moment.
        others: u64,
    },
}

/// All answers of one look, by question. A missing one was not asked.
pub type Answers = BTreeMap<Question, Known<Answer>>;

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum PathAnswer {
    /// Something is there (links not followed for the last element).
    Present {
        /// What it is.
        file: FileId,
        /// The directory it stands in, and that directory's mount.
        parent: Box<Parent>,
    },
    /// `ENOENT` for the last element, while its parent directory is there and was looked into.
    /// Any other error is unknown.
    Absent {
        /// The directory it would stand in.
        parent: Box<Parent>,
    },
    /// A directory on the way is itself absent, so nothing is known of the parent's identity.
    ParentAbsent {
        /// The nearest ancestor that is there.
        nearest: Box<Parent>,
    },
}

/// A directory above a path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Parent {
    /// Its path.
    pub path: BString,
    /// Its identity.
    pub file: FileId,
    /// Where its file system is mounted: verdicts under one mount can fail as one.
    pub mount: BString,
    /// The kind of file system.
    pub on: FileSystem,
}

/// A descriptor of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Channel {
    /// What it is.
    pub kind: ChannelKind,
    /// Whether anybody is at the far end; only pipes and connected stream pairs have one.
    pub far: Known<FarEnd>,
    /// Bytes that wait to be read by the process; 0 for what it only writes to.
    pub unread: Known<u64>,
}

/// Kinds of descriptor, as far as rules tell them apart.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ChannelKind {
    /// An anonymous pipe, by its inode on pipefs.
    Pipe {
        /// Its inode.
        inode: u64,
    },
    /// A connected stream socket, by its inode.
    Stream {
        /// Its inode.
        inode: u64,
    },
    /// A FIFO with a name: any later writer may come.
    NamedFifo,
    /// A terminal.
    Terminal(TerminalFate),
    /// `/dev/null`.
    Null,
    /// A regular file: an output somebody wants to read later.
    File,
    /// A listening socket (inetd style).
    Listener,
    /// A socket that never had a peer: the kernel shows no peer at all, which is not "peer 0".
    Unconnected,
    /// Not open.
    Closed,
    /// Anything else, as the link text has it.
    Other(String),
}

impl ChannelKind {
    /// Says whether it has another end that can go for good: an anonymous pipe or a connected stream.
    pub fn has_far_end(&self) -> bool {
        match self {
            ChannelKind::Pipe { .. } | ChannelKind::Stream { .. } => true,
            ChannelKind::NamedFifo
            | ChannelKind::Terminal(_)
            | ChannelKind::Null
            | ChannelKind::File
            | ChannelKind::Listener
            | ChannelKind::Unconnected
            | ChannelKind::Closed
            | ChannelKind::Other(_) => false,
        }
    }
}

/// Whether the terminal behind a descriptor is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum TerminalFate {
    /// It is there.
    Present,
    /// Its master was closed: the link reads `/dev/pts/N (deleted)`, for good.
    Deleted,
}

/// Whether a channel's far end is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FarEnd {
    /// The kernel says that nobody holds it. It can never come back.
    Gone,
    /// Somebody holds it; who, is another question.
    Held,
}

/// Who holds a channel's far end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holders {
    /// Those that were seen to hold it, the asked process itself included where it does.
    pub seen: Vec<ProcessId>,
    /// Whether everybody who could hold it was readable.
    pub census: Census,
}

/// How far a search through other processes' descriptors reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Census {
    /// Everybody was readable.
    Whole,
    /// This many could not be read; any of them may hold it.
    Partial(u32),
}

/// The sockets of one process.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Sockets {
    /// Where it can be reached.
    pub listeners: Vec<Listener>,
    /// What it is connected to.
    pub connections: Vec<Connection>,
}

/// A socket that somebody may reach. Bound datagram sockets count: they are reached without a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Listener {
    /// Its family.
    pub family: Family,
    /// Where: a path, `@abstract`, or `address:port`.
    pub name: BString,
    /// The socket's inode.
    pub inode: u64,
    /// Unix sockets with a path: (dev, ino) of the file they were bound to, whatever its name is now.
    pub file: Option<FileId>,
    /// Clients that wait to be accepted.
    pub pending: u32,
}

/// Families of sockets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Family {
    /// unix(7), stream or seqpacket.
    Unix,
    /// unix(7), datagram.
    UnixDatagram,
    /// tcp(7).
    Tcp,
    /// udp(7).
    Udp,
}

/// A connected socket.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Connection {
    /// Its family.
    pub family: Family,
    /// The local name: an accepted connection bears its listener's.
    pub name: BString,
    /// The socket's inode.
    pub inode: u64,
    /// Who is at the other end.
    pub peer: Peer,
}

/// The other end of a connection.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Peer {
    /// The kernel says that there is none any more: no client.
    Gone,
    /// A Unix socket, by its inode; whether it belongs to the tree is for the rule to say.
    Inode(u64),
    /// A TCP address.
    Remote(String),
    /// The kernel did not say.
    Unknown,
}

/// Who a bare process number is, in the pid namespace of reapd.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Owner {
    /// No such process (`ESRCH`), or only a thread bears the number.
    Absent,
    /// A zombie without live threads.
    Zombie,
    /// A live process; whether it is the one that was meant is for the rule to say.
    Alive(ProcessId),
}

/// Bytes moved so far (`rchar` and `wchar` of proc_pid_io(5)): they grow with every read and write.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Activity {
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}
