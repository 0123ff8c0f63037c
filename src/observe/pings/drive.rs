//! Drives all requests of a look in one poll loop: nothing in it waits for one server alone.

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use bstr::BString;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags, recv, send, sockopt};

use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::{Pinged, Progress, Response};
use crate::observe::descriptors::why;
use crate::observe::processes;
use crate::observe::sockets::Dump;

use super::contact::{Connected, refusal};
use super::door::Door;
use super::{HEARD_MOST, Heard, Line, Pinging, heard, request};

/// So much of another answer is shown to a person.
const SHOWN_MOST: usize = 160;

/// Asks all of them and returns what came, in their order.
pub(super) fn ask(pings: &[Pinging]) -> Vec<Known<Pinged>> {
    let mut dump = Dump::new();
    let mut answers: Vec<Option<Known<Pinged>>> = Vec::new();
    let mut under_way = Vec::new();
    for (at, pinging) in pings.iter().enumerate() {
        match Exchange::begin(pinging, &mut dump) {
            Ok(exchange) => {
                under_way.push((at, exchange));
                answers.push(None);
            }
            Err(why) => answers.push(Some(Err(why))),
        }
    }
    while !under_way.is_empty() {
        if let Err(errno) = wait(&under_way) {
            let failed = why(errno, "waiting for servers");
            under_way.drain(..).for_each(|(at, _)| answers[at] = Some(Err(failed.clone())));
            break;
        }
        // One dump for all that came to their end together.
        let mut after = Dump::new();
        let mut left = Vec::new();
        for (at, mut exchange) in under_way {
            match exchange.go_on() {
                None => left.push((at, exchange)),
                Some(outcome) => answers[at] = Some(outcome.and_then(|came| exchange.end(came, &mut after))),
            }
        }
        under_way = left;
    }
    let unasked = || Err(Unknown::new(Reason::NotAsked, "a server"));
    answers.into_iter().map(|answer| answer.unwrap_or_else(unasked)).collect()
}

/// Waits until one of them has something, or comes to its deadline.
fn wait(under_way: &[(usize, Exchange<'_>)]) -> Result<(), Errno> {
    let now = Instant::now();
    let left = under_way.iter().map(|(_, exchange)| exchange.until.saturating_duration_since(now)).min();
    let left = left.unwrap_or_default();
    let timeout = Timespec {
        tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: left.subsec_nanos().into(),
    };
    let mut ends: Vec<PollFd<'_>> =
        under_way.iter().map(|(_, exchange)| PollFd::new(&exchange.socket, exchange.wants())).collect();
    match poll(&mut ends, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(errno) => Err(errno),
    }
}

/// One request under way.
#[derive(Debug)]
struct Exchange<'a> {
    pinging: &'a Pinging,
    door: Door,
    socket: OwnedFd,
    is_connected: bool,
    request: Vec<u8>,
    sent: usize,
    bytes: Vec<u8>,
    began: Instant,
    until: Instant,
    before: Known<Progress>,
}

impl<'a> Exchange<'a> {
    fn begin(pinging: &'a Pinging, dump: &mut Dump) -> Known<Exchange<'a>> {
        let request = request(&pinging.call)?;
        let door = Door::find(pinging, dump)?;
        let before = processes::progress(&pinging.tree);
        let began = Instant::now();
        let (socket, is_connected) = match door.connect()? {
            Connected::Yes(socket) => (socket, true),
            Connected::Soon(socket) => (socket, false),
        };
        let until = began + pinging.patience();
        Ok(Exchange {
            pinging,
            door,
            socket,
            is_connected,
            request,
            sent: 0,
            bytes: Vec::new(),
            began,
            until,
            before,
        })
    }

    fn wants(&self) -> PollFlags {
        if self.is_connected && self.sent >= self.request.len() {
            PollFlags::IN
        } else if self.is_connected {
            PollFlags::IN | PollFlags::OUT
        } else {
            PollFlags::OUT
        }
    }

    /// Does what can be done now; nothing where that was not the end.
    fn go_on(&mut self) -> Option<Known<Response>> {
        if !self.is_connected {
            match self.connected() {
                Ok(true) => self.is_connected = true,
                Ok(false) if Instant::now() < self.until => return None,
                Ok(false) => {
                    let what = "connecting to it: its backlog is full or its address is not reached";
                    return Some(Err(Unknown::new(Reason::Hung, what)));
                }
                Err(why) => return Some(Err(why)),
            }
        }
        if let Err(errno) = self.send() {
            return Some(Err(why(errno, "sending the request")));
        }
        match self.receive().map(|line| (line, self.door.is_its_end(&self.bytes, line))) {
            Ok((_, Err(why))) => return Some(Err(why)),
            Ok((line, Ok(()))) => match heard(&self.pinging.call, &self.bytes, line) {
                Heard::Reply => return Some(Ok(Response::Answered(self.elapsed()))),
                Heard::Other => return Some(Ok(Response::Otherwise(self.shown(line)))),
                Heard::More if self.bytes.len() >= HEARD_MOST => {
                    return Some(Ok(Response::Otherwise(self.shown(line))));
                }
                Heard::More => {}
            },
            Err(errno) => return Some(Err(why(errno, "reading the reply"))),
        }
        (Instant::now() >= self.until).then(|| self.silence())
    }

    fn connected(&self) -> Known<bool> {
        let mut ends = [PollFd::new(&self.socket, PollFlags::OUT)];
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        match poll(&mut ends, Some(&now)) {
            Ok(0) | Err(Errno::INTR) => return Ok(false),
            Ok(_) => {}
            Err(errno) => return Err(why(errno, "connecting to it")),
        }
        match sockopt::socket_error(&self.socket) {
            Ok(Ok(())) => Ok(true),
            Ok(Err(errno)) => Err(refusal(errno)),
            Err(errno) => Err(why(errno, "connecting to it")),
        }
    }

    fn send(&mut self) -> Result<(), Errno> {
        while self.sent < self.request.len() {
            match send(&self.socket, &self.request[self.sent..], SendFlags::NOSIGNAL | SendFlags::DONTWAIT) {
                Ok(length) => self.sent += length,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(()),
                // It hung up; what it said before that is still to be read.
                Err(Errno::PIPE | Errno::CONNRESET) => self.sent = self.request.len(),
                Err(errno) => return Err(errno),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Line, Errno> {
        let mut chunk = [0; 16 * 1024];
        while self.bytes.len() < HEARD_MOST {
            match recv(&self.socket, &mut chunk, RecvFlags::DONTWAIT) {
                Ok((0, _)) | Err(Errno::CONNRESET | Errno::PIPE) => return Ok(Line::Closed),
                Ok((length, _)) => self.bytes.extend_from_slice(&chunk[..length]),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Ok(Line::Open),
                Err(errno) => return Err(errno),
            }
        }
        Ok(Line::Open)
    }

    fn silence(&self) -> Known<Response> {
        if self.sent < self.request.len() {
            return Err(Unknown::new(Reason::Hung, "sending the request"));
        }
        if self.bytes.is_empty() {
            Ok(Response::Silent(self.elapsed()))
        } else {
            Ok(Response::Otherwise(self.shown(Line::Open)))
        }
    }

    fn shown(&self, line: Line) -> BString {
        match (self.bytes.as_slice(), line) {
            ([], Line::Closed) => "hung up".into(),
            (bytes, Line::Open | Line::Closed) => bytes[..bytes.len().min(SHOWN_MOST)].into(),
        }
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.began.elapsed().max(Duration::from_millis(1)).as_millis()).unwrap_or(u64::MAX)
    }

    /// Looks again at everything that the response rests on.
    fn end(self, response: Response, dump: &mut Dump) -> Known<Pinged> {
        self.door.still(self.pinging, &response, dump)?;
        let after = processes::progress(&self.pinging.tree);
        Ok(Pinged { response, before: self.before, after })
    }
}
