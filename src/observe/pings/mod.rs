//! Requests to servers: the one thing here that acts. All requests of a look go out together, from a process of their
//! own, and each has one deadline.
//!
//! Only where the asked process listens by the kernel's own list is anything connected to; and where an engine says that
//! it publishes a port of a container on this machine. Whatever is neither an answer nor a silence of a server that slept
//! all the while is unknown.

mod content_length;
mod greeting;
mod http;
mod lines;
mod mcp;

#[cfg(target_os = "linux")]
mod contact;
#[cfg(target_os = "linux")]
mod door;
#[cfg(target_os = "linux")]
mod drive;
#[cfg(target_os = "linux")]
mod guise;
#[cfg(target_os = "linux")]
mod published;

use std::time::Duration;

use bstr::{BStr, BString};
use serde::{Deserialize, Serialize};

use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::{Call, EngineQuestion, Pinged, Question};

use super::aside::{Aside, Reply, Request};
use super::misfit;

/// Requests that go out in one look; more would be a storm of our own making.
const MOST: usize = 256;
/// Longest wait for one server, whatever is asked for.
const PATIENCE_MOST: Duration = Duration::from_mins(1);
/// What the process that asks may take beyond the longest wait, before it counts as hung.
const MARGIN: Duration = Duration::from_secs(10);
/// More than this is read of no server.
const HEARD_MOST: usize = 64 * 1024;

/// One request to one server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Pinging {
    to: Asked,
    call: Call,
    tree: Vec<ProcessId>,
    patience: u64,
}

/// Who is asked.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
enum Asked {
    /// A process, at one of its own listeners.
    Process {
        /// Which.
        of: ProcessId,
        /// The listener's name.
        socket: BString,
    },
    /// A container, at a port that its engine publishes.
    Container {
        /// Where on this machine.
        address: String,
        /// The port inside of its network.
        inside: u16,
    },
}

/// What was made of the bytes that came so far.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Heard {
    /// It may yet become the reply.
    More,
    /// The expected reply.
    Reply,
    /// It cannot become the reply any more.
    Other,
}

/// Whether more may come.
#[cfg_attr(all(not(target_os = "linux"), not(test)), expect(dead_code, reason = "nobody is asked there"))]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Line {
    /// It may.
    Open,
    /// The server closed its end.
    Closed,
}

/// Answers those of the questions that ask servers, in their order.
pub(super) fn answer(aside: &mut Aside, questions: &[Question]) -> Vec<Known<Pinged>> {
    let asked = questions.iter().filter_map(|question| {
        let (to, call, tree, patience) =
            if let Question::Ping { of, policy: _, call, socket, tree, patience } = question {
                (Asked::Process { of: *of, socket: socket.clone() }, call, tree, patience)
            } else if let Question::Engine(EngineQuestion::Ping {
                call,
                address,
                inside,
                tree,
                patience,
                ..
            }) = question
            {
                (Asked::Container { address: address.clone(), inside: *inside }, call, tree, patience)
            } else {
                return None;
            };
        Some(Pinging { to, call: call.clone(), tree: tree.clone(), patience: *patience })
    });
    let mut asked: Vec<Pinging> = asked.collect();
    let late = asked.split_off(asked.len().min(MOST));
    let mut answers = Vec::new();
    if !asked.is_empty() {
        let count = asked.len();
        let longest = asked.iter().map(Pinging::patience).max().unwrap_or_default();
        let reply = aside.ask_once(Request::Pings(asked), longest + MARGIN);
        answers = match reply.and_then(Reply::pings) {
            Ok(pinged) if pinged.len() == count => pinged,
            Ok(_) => vec![Err(misfit()); count],
            Err(why) => vec![Err(why); count],
        };
    }
    answers
        .extend(late.iter().map(|_| Err(Unknown::new(Reason::NotAsked, "one of too many servers at once"))));
    answers
}

/// Asks all servers, in the aside process.
#[cfg(target_os = "linux")]
pub(super) fn ask(pings: &[Pinging]) -> Vec<Known<Pinged>> {
    drive::ask(pings)
}

/// A Mac shows neither what the threads of another process do nor how many bytes it moved, so no silence could be told
/// from work; nobody is disturbed for that.
#[cfg(not(target_os = "linux"))]
pub(super) fn ask(pings: &[Pinging]) -> Vec<Known<Pinged>> {
    let unsupported = || Err(Unknown::new(Reason::Unsupported, "whether a silent server is at work"));
    pings.iter().map(|_| unsupported()).collect()
}

impl Pinging {
    fn patience(&self) -> Duration {
        Duration::from_millis(self.patience).min(PATIENCE_MOST)
    }
}

/// Returns the bytes that are sent.
#[cfg_attr(not(target_os = "linux"), expect(dead_code, reason = "nobody is asked there"))]
fn request(call: &Call) -> Known<Vec<u8>> {
    match call {
        Call::Lines { send, expect: _ } => lines::request(send.as_ref()),
        Call::ContentLength { send, expect: _ } => Ok(content_length::request(send.as_ref())),
        Call::Mcp => Ok(mcp::REQUEST.to_vec()),
        Call::Http { path, status: _, expect: _ } => http::request(path.as_ref()),
        Call::Greeting => Ok(Vec::new()),
    }
}

/// Says what the bytes that came so far are.
#[cfg_attr(all(not(target_os = "linux"), not(test)), expect(dead_code, reason = "nobody is asked there"))]
fn heard(call: &Call, bytes: &[u8], line: Line) -> Heard {
    match call {
        Call::Lines { send: _, expect } => lines::heard(bytes, line, |text| has(text, expect.as_ref())),
        Call::ContentLength { send: _, expect } => content_length::heard(bytes, line, expect.as_ref()),
        Call::Mcp => lines::heard(bytes, line, mcp::is_reply),
        Call::Http { path: _, status, expect } => {
            http::heard(bytes, line, *status, expect.as_ref().map(AsRef::as_ref))
        }
        Call::Greeting => greeting::heard(bytes, line),
    }
}

fn has(text: &[u8], expect: &BStr) -> bool {
    bstr::ByteSlice::contains_str(text, expect)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn calls() -> [Call; 6] {
        let expect = || BString::from("ok");
        [
            Call::Lines { send: "x".into(), expect: expect() },
            Call::ContentLength { send: "x".into(), expect: expect() },
            Call::Mcp,
            Call::Http { path: "/".into(), status: Some(200), expect: Some(expect()) },
            Call::Http { path: "/".into(), status: None, expect: None },
            Call::Greeting,
        ]
    }

    proptest! {
        #[test]
        fn hostile_bytes_are_something_and_what_was_decided_stays_decided(
            bytes in proptest::collection::vec(prop_oneof![any::<u8>(), Just(b'\n'), Just(b'\r'), Just(b'1')], 0..120),
            more in proptest::collection::vec(any::<u8>(), 0..20),
        ) {
            for call in calls() {
                let first = heard(&call, &bytes, Line::Open);
                prop_assert_ne!(heard(&call, &bytes, Line::Closed), Heard::More);
                let longer = [&bytes[..], &more[..]].concat();
                if first != Heard::More {
                    prop_assert_eq!(heard(&call, &longer, Line::Open), first);
                }
            }
        }
    }

    #[test]
    fn nothing_at_all_is_a_reply_to_nothing_but_a_greeting() {
        for call in calls() {
            assert_eq!(heard(&call, b"", Line::Open), Heard::More);
            let closed = if call == Call::Greeting { Heard::Reply } else { Heard::Other };
            assert_eq!(heard(&call, b"", Line::Closed), closed);
        }
    }
}
