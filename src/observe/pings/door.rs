//! The two ways to a server: a listener of its own, and a port that an engine leads into its container.

use bstr::ByteSlice as _;

use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::Response;
use crate::observe::processes;
use crate::observe::sockets::Dump;

use super::contact::{Connected, Contact};
use super::published::Published;
use super::{Asked, Line, Pinging};

/// Where a server is asked.
#[derive(Debug)]
pub(super) enum Door {
    Own(Contact),
    Published(Published),
}

impl Door {
    /// Finds the way, and says that nobody holds up those who would answer.
    pub(super) fn find(pinging: &Pinging, dump: &mut Dump) -> Known<Door> {
        let door = match &pinging.to {
            Asked::Process { of, socket } => Door::Own(Contact::find(*of, socket.as_bstr(), dump)?),
            Asked::Container { address, inside } => {
                // Whoever may not read how far they get asks for nothing.
                processes::progress(&pinging.tree)?;
                Door::Published(Published::find(address, *inside, &pinging.tree)?)
            }
        };
        // Nothing is left behind at the door of one that cannot open it.
        at_rest(pinging)?;
        Ok(door)
    }

    /// Connects, without waiting.
    pub(super) fn connect(&self) -> Known<Connected> {
        match self {
            Door::Own(contact) => contact.connect(),
            Door::Published(published) => published.connect(),
        }
    }

    /// Says that an end without a word is the server's. Of a port that is published it may be that of whoever leads to
    /// it and did not reach it.
    pub(super) fn is_its_end(&self, bytes: &[u8], line: Line) -> Known<()> {
        match (self, bytes, line) {
            (Door::Published(_), [], Line::Closed) => Err(Unknown::new(
                Reason::Unsound,
                "whether the container hung up, or whoever leads to it did not reach it",
            )),
            (Door::Own(_) | Door::Published(_), _, Line::Open | Line::Closed) => Ok(()),
        }
    }

    /// Looks again at everything that a response rests on.
    pub(super) fn still(&self, pinging: &Pinging, response: &Response, dump: &mut Dump) -> Known<()> {
        if let Door::Own(contact) = self {
            contact.still(dump)?;
        }
        // Who answered lives, whatever it does now; who is silent must have slept.
        if let Response::Silent(_) = response {
            if let Door::Published(published) = self {
                published.has_arrived()?;
            }
            at_rest(pinging)?;
        }
        Ok(())
    }
}

/// Says that nobody holds up those who would answer: in a container that is anybody, since nothing tells who listens.
fn at_rest(pinging: &Pinging) -> Known<()> {
    let asked: &[ProcessId] = match &pinging.to {
        Asked::Process { of, socket: _ } => &[*of],
        Asked::Container { .. } => &pinging.tree,
    };
    asked.iter().try_for_each(|id| processes::at_rest(*id))
}
