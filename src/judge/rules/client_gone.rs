//! Finds containers whose client is gone.
//!
//! # What it finds
//!
//! A container that was made as `docker run -i` does: one client was connected from the start, and its input ends for
//! good with that client (OpenStdin, AttachStdin and StdinOnce, no terminal). No port of the host leads into it and
//! nothing listens in its network. Its input ended and nothing of it is left to read. And no live client of its engine
//! could be its own: every connection to the engine's socket was traced to a process, the engine can be reached from
//! this machine alone, and each of those processes cannot have made it (it began later, or its own command line has
//! another image, label or arguments), never stays with a container (`docker ps`, `events`, `build`), or is needed by
//! another container whose input is open.
//!
//! # Why it is not enough alone
//!
//! It is enough: nobody can ever give it input again, and nobody is there who could be waiting for what it says.
//!
//! # When it is wrong
//!
//! Each of these is kept. `printf x | docker run -i image job`, and one with its input from `/dev/null`: the input has
//! ended and the client waits for the result, so a client that may be its own keeps it (F9). A database that was
//! started with `-i -p` and is used through its port. Two clients of one image, one of them dead: which is whose is
//! told only where their inputs can be read (A18), and being started right after a client proves nothing, since a slow
//! pull makes a later container its own. A client of a library, of which nobody can tell what it is attached to;
//! `docker system dial-stdio`, which speaks for somebody elsewhere; an engine that listens to the network. A container
//! of `docker create -i`, or of a library, that was started without anybody attached, for commands that are run in it:
//! its input is open, and where that cannot be read nothing tells it from a stray, so that it is unknown whoever is
//! connected. Podman, which never says how a
//! container was attached to. All of these that cannot be told are unknown, and say what would tell. A container with
//! more input than it read, whose client was killed, looks as if its input were open (an engine that cannot write does
//! not notice): it stays.
//!
//! This is wrong, and not kept: a program that comes after the client is gone and waits for the container by the engine's
//! interface, without naming it in its arguments (a library's `wait()` or `logs()`), loses what it waits for.
//!
//! # Settings
//!
//! None: `{ client-gone = true }`.

use std::collections::BTreeSet;

use crate::judge::containers::assignment::are_needed_elsewhere;
use crate::judge::containers::case::ContainerCase;
use crate::judge::containers::clients::{Input, Known, Relation, Subject, relation, shown};
use crate::judge::containers::is_attached;
use crate::judge::rule::{Blank, Finding, Found, Rule, Settings};
use crate::model::container::{Attached, EngineClient, EngineKind, Reach, Tty};
use crate::model::id::ProcessId;
use crate::model::known::{Reason, Unknown};
use crate::model::question::{Census, FarEnd};
use crate::model::rule::{Asks, Clients, Place, RuleSpec, Serves, Strength};

/// Finds containers whose client is gone.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "client-gone",
        strength: Strength::Proof,
        summary: "its input ended for good with its client, and no live client could be its own",
        doc: super::own_opening!("client_gone.rs"),
        settings: &[],
        bare: None,
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Containers,
    },
    weigh: None,
    weigh_container: Some(weigh),
};

fn weigh(case: &ContainerCase<'_>, _: Settings<'_>) -> Found<Finding> {
    if let Some(found) = by_making(case) {
        return found;
    }
    let to = Subject { listed: case.listed, facts: case.facts, began: case.began()? };
    let clients = case.clients()?;
    let known = case.known_clients()?;
    let met = Met::of(case, &known, to, Input::Unread);
    if let Some((client, why)) = met.own {
        return Ok(Finding::no(format!("its client, process {}, is alive: {why}", shown(client))));
    }
    // Input that ended says more of those that came later, so it is looked at before anybody is named.
    let input = input(case)?;
    if let Read::Open(why) = &input {
        return Ok(Finding::no(why.clone()));
    }
    match clients.reach.as_ref().map_err(Clone::clone)? {
        Reach::Local => {}
        Reach::Network(place) => {
            let what = format!("who uses its engine from elsewhere: it can be reached at {place}");
            return Err(Unknown::new(Reason::Foreign, what).into());
        }
    }
    if let Census::Partial(untold) = clients.census {
        let what = format!("who {untold} of the connections to its engine belong to");
        return Err(Unknown::new(Reason::Denied, what).into());
    }
    let (ended, unread) = match input {
        Read::Ended => (Input::Ended, None),
        Read::Unread(unknown) => (Input::Unread, Some(unknown)),
        Read::Open(_) => (Input::Unread, None),
    };
    let met = Met::of(case, &known, to, ended);
    if let Some((client, why)) = met.may {
        let what = format!("whether process {} is its client: {why}", shown(client));
        return Err(Unknown::new(Reason::NoRecord, what).into());
    }
    if !met.makers.is_empty() && !are_needed_elsewhere(case, &met.makers)? {
        let client = clients.clients.iter().find(|client| met.makers.contains(&client.id));
        let what = format!("whether process {} is its client", client.map(shown).unwrap_or_default());
        return Err(Unknown::new(Reason::NoRecord, what).into());
    }
    // That nobody is connected is not enough: who made it may never have been attached, and uses it by commands that are
    // run in it now and then.
    if let Some(unknown) = unread {
        return Err(unknown.into());
    }
    if let Some(listener) = case.sockets()?.listeners.first() {
        let listener = crate::model::escape::escape(listener.as_bytes());
        return Ok(Finding::no(format!("it can be reached at {listener}")));
    }
    let count = clients.clients.len();
    Ok(Finding::yes(format!(
        "its input ended for good, and none of the {count} clients of its engine can be its own"
    )))
}

/// Returns the finding where how it was made decides already.
fn by_making(case: &ContainerCase<'_>) -> Option<Found<Finding>> {
    if let Ok(EngineKind::Podman(_)) = &case.engine.kind
        && case.facts.stdin.open == Attached::Yes
        && case.facts.tty == Tty::No
    {
        let what = "how it was attached to, which Podman never says";
        return Some(Err(Unknown::new(Reason::Unsupported, what).into()));
    }
    if let Err(unknown) = &case.engine.kind {
        return Some(Err(unknown.clone().into()));
    }
    if !is_attached(case.facts) {
        return Some(Ok(Finding::no("no client was attached to its input when it was made")));
    }
    if let Some(port) = case.facts.published.first() {
        let at = format!("{}:{}", port.address, port.port);
        let at = crate::model::escape::escape(at.as_bytes());
        return Some(Ok(Finding::no(format!("it can be reached at {at} of the host"))));
    }
    None
}

/// What is known of its input.
enum Read {
    /// It ended for good, and nothing of it is left to read.
    Ended,
    /// Somebody can write to it, or something of it is left.
    Open(String),
    /// It could not be read.
    Unread(Unknown),
}

fn input(case: &ContainerCase<'_>) -> Found<Read> {
    let channel = match case.stdin() {
        Ok(channel) => channel,
        Err(Blank::Unknown(unknown)) => return Ok(unread(&unknown)),
        Err(blank) => return Err(blank),
    };
    if !channel.kind.has_far_end() {
        let what = "whether its input ended, which it closed itself";
        return Ok(Read::Unread(Unknown::new(Reason::NoRecord, what)));
    }
    Ok(match (&channel.far, &channel.unread) {
        (Ok(FarEnd::Held), _) => Read::Open("its input is open, so its client is there".to_owned()),
        (Ok(FarEnd::Gone), Ok(0)) => Read::Ended,
        (Ok(FarEnd::Gone), Ok(left)) => Read::Open(format!("{left} bytes of its input are still to be read")),
        (Err(unknown), _) | (_, Err(unknown)) => unread(unknown),
    })
}

/// Without the process: what is so of many is told once.
fn unread(why: &Unknown) -> Read {
    Read::Unread(Unknown::new(why.reason, "whether its input ended"))
}

/// What the clients of an engine are to a container.
struct Met<'a> {
    own: Option<(&'a EngineClient, String)>,
    may: Option<(&'a EngineClient, String)>,
    makers: BTreeSet<ProcessId>,
}

impl<'a> Met<'a> {
    fn of(case: &ContainerCase<'_>, clients: &[Known<'a>], to: Subject<'_>, input: Input) -> Met<'a> {
        let mut met = Met { own: None, may: None, makers: BTreeSet::new() };
        for known in clients {
            let client = known.client;
            match relation(case, known, to, input) {
                Relation::Own(why) => met.own = met.own.or(Some((client, why))),
                Relation::May(why) => met.may = met.may.or(Some((client, why))),
                Relation::MayHaveMade => {
                    met.makers.insert(client.id);
                }
                Relation::Not => {}
            }
        }
        met
    }
}
