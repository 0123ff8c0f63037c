//! `ping` of a policy: what to ask a server, and by what reply it is known to live.

use super::Template;

/// One request, and the reply that a live server gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ping {
    /// The socket: a path, `@name` or `address:port`. Only one that a member listens on is ever connected to.
    pub socket: Template,
    /// What is spoken there.
    pub talk: Talk,
}

/// One request to what a container publishes, and the reply that a live server gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PublishedPing {
    /// The TCP port inside of the container. Only where it is published on this machine is anything connected to.
    pub port: u16,
    /// What is spoken there.
    pub talk: Talk,
}

/// What is spoken on a socket.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Talk {
    /// `as = "lines"`: one line is sent, and any line that comes back and contains the text is the reply. Serves
    /// newline-delimited JSON-RPC and plain text.
    Lines {
        /// The line, without its end.
        send: Template,
        /// What the reply contains.
        expect: Template,
    },
    /// `as = "content-length"`: one message behind a `Content-Length` header, as language servers and debug adapters
    /// speak. Any message that contains the text is the reply.
    ContentLength {
        /// The message.
        send: Template,
        /// What the reply contains.
        expect: Template,
    },
    /// `as = "mcp"`: MCP's own `ping`, one line of JSON-RPC; any result or error with its id is the reply.
    Mcp,
    /// `as = "http"`: one GET with `Connection: close`.
    Http {
        /// The path with its query, beginning with `/`.
        path: Template,
        /// The status of a live server; any status where it is left out.
        status: Option<u16>,
        /// What the body contains; anything where it is left out.
        expect: Option<Template>,
    },
    /// `as = "connect"`: nothing is sent; a connection that the server closes or greets is the reply. A server that
    /// says nothing until it is asked must not be asked this way; only one that was seen to greet can fall silent.
    Greeting,
}
