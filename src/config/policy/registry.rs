//! Registries of others, checked: where they write down who is alive.

use std::time::Duration;

use super::Origin;

/// Where others write down who is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Registry {
    /// Its name.
    pub name: String,
    /// Where it was written.
    pub origin: Origin,
    /// What kind of thing it is.
    pub source: Source,
}

/// Kinds of registry.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// Files, one record each.
    Files(FileRegistry),
    /// A server that is asked over HTTP.
    Http(HttpRegistry),
}

/// A registry of files.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileRegistry {
    /// Patterns of absolute paths; the first whose variables the process itself has set is the one that counts for it.
    pub files: Vec<PlacePattern>,
    /// JSON pointer (RFC 6901) to the key; numbers compare as their decimal text.
    pub key: String,
    /// Pointers to the holder, where the records have one.
    pub holder: Option<HolderPointers>,
    /// A process may be this much older than its record.
    pub settle: Duration,
}

/// A pattern of paths, with variables of the process's own environment: `{env.TMPDIR}/previews/*.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacePattern {
    /// As written, `~` already expanded.
    pub text: String,
    /// In order.
    pub parts: Vec<PlacePart>,
}

/// One part of a pattern of paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PlacePart {
    /// As it stands; `*` and `?` are patterns within one element.
    Pattern(String),
    /// The value of a variable of the process's own environment: an absolute path, taken as it is.
    Variable(String),
}

/// JSON pointers to a record's holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HolderPointers {
    /// To its number.
    pub pid: String,
    /// To its raw start stamp.
    pub start: Option<String>,
    /// To the boot it lives in.
    pub boot: Option<String>,
}

/// A registry that is asked over HTTP.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HttpRegistry {
    /// Where the server listens; it never comes from a process.
    pub server: Server,
    /// The path and query, beginning with `/`; `{key}` is the key, percent-encoded as one element.
    pub target: String,
    /// The method.
    pub method: Method,
    /// Headers; `{key}` and `{file:PATH}` may stand in their values.
    pub headers: Vec<(String, String)>,
    /// The body; `{key}` is the key as it stands between the quotes of a JSON string.
    pub body: Option<String>,
    /// Asked at most this often for one key. Zero: at every look.
    pub every: Duration,
    /// Answers that mean alive; any is enough.
    pub alive: Vec<Expect>,
    /// Answers that mean over; any is enough. What fits neither, or both, is unknown.
    pub gone: Vec<Expect>,
    /// The answer lists all keys, at this pointer, whose `*` stands for every element.
    pub listed: Option<String>,
    /// How the answering server is told from another one at the same address.
    pub instance: Instance,
}

/// Where a server listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Server {
    /// `http://host:port`.
    Tcp {
        /// A host name or address.
        host: String,
        /// The port.
        port: u16,
    },
    /// `http+unix:///path/of.sock:/target`.
    Unix {
        /// The absolute path of the socket.
        path: String,
    },
}

/// HTTP methods that a registry may be asked by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    /// GET.
    Get,
    /// POST.
    Post,
}

/// An answer as a map names it. All that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    /// The status.
    pub status: u16,
    /// What stands in the body.
    pub body: Option<ExpectBody>,
}

/// What a map wants of a body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExpectBody {
    /// JSON pointer into it.
    pub pointer: String,
    /// What must be there.
    pub want: Want,
}

/// What must be at a pointer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Want {
    /// This text; numbers and truths compare as their JSON text.
    Equals(String),
    /// Anything.
    Present,
    /// Nothing, in a body that is whole and JSON.
    Missing,
}

/// How the answering server is told from another one at the same address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Instance {
    /// An ancestor of the process that is asked about holds the listening socket, and is older than it. Only on this
    /// machine.
    Ancestor,
    /// Its answers say who it is: this text at this pointer.
    Named {
        /// JSON pointer into every answer.
        pointer: String,
        /// What must stand there.
        equals: String,
    },
}
