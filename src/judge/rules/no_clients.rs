//! Finds servers that nobody is connected to.
//!
//! # What it finds
//!
//! A tree that listens, where no live process outside it is connected or waits to be accepted. A container that
//! listens in its network, where no connection stands.
//!
//! # Why it is not enough alone
//!
//! An unused server is not an ownerless one: clients come per request (B03), after a pause (B26), or after an hour
//! (B54). It lets a line wait until nobody would be cut off.
//!
//! # When it is wrong
//!
//! Between two requests every server has no client: give it time with `for`. A server inside its reconnect grace
//! (B26) has none either. A tree that listens nowhere has no clients and proves nothing by it: the finding is no.
//! Who sends to a datagram socket cannot be seen (B46), and a named socket that no member listens on may have been
//! renamed (F7): unknown. A connection whose other end is gone, or between members, is no client (M3); one that waits
//! to be accepted is.
//!
//! # Settings
//!
//! `socket`: template of the one socket that counts, a path, `@name` or `address:port`, e.g.
//! `{ no-clients = "{socket}" }`; optional, and left out every socket of the tree counts.
//! `for`: how long it must have been so at every look, e.g. "30m"; optional, and left out one look is enough.

use crate::judge::case::Case;
use crate::judge::containers::case::ContainerCase;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::known::{Reason, Unknown};
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

use super::clients::{connected, served};

/// Finds servers that nobody is connected to.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "no-clients",
        strength: Strength::Sign,
        summary: "it listens, and nobody outside is connected to it",
        doc: super::own_opening!("no_clients.rs"),
        settings: &[
            SettingSpec {
                name: "socket",
                kind: SettingKind::Template,
                need: Need::Optional,
                doc: "the one socket that counts: a path, @name or address:port; by default every socket of the tree",
            },
            SettingSpec {
                name: "for",
                kind: SettingKind::Duration,
                need: Need::Optional,
                doc: "how long it must have been so at every look, e.g. \"30m\"; by default one look is enough",
            },
        ],
        bare: Some("socket"),
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Both(&["for"]),
    },
    weigh: Some(weigh),
    weigh_container: Some(weigh_container),
};

fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let served = served(case, settings)?;
    if let Some(client) = served.clients.first() {
        return Ok(Finding::no(connected(client)));
    }
    if served.listeners.is_empty() {
        return Ok(Finding::no("it listens nowhere, so that nobody is connected says nothing"));
    }
    served.all_visible()?;
    Ok(super::lasting(Finding::yes("no client is connected"), settings.duration("for")))
}

fn weigh_container(case: &ContainerCase<'_>, settings: Settings<'_>) -> Found<Finding> {
    let sockets = case.sockets()?;
    if let Some(connection) = sockets.connections.first() {
        let connection = crate::model::escape::escape(connection.as_bytes());
        return Ok(Finding::no(format!("something is connected: {connection}")));
    }
    if sockets.listeners.is_empty() {
        return Ok(Finding::no("it listens nowhere, so that nobody is connected says nothing"));
    }
    if let Some(listener) = sockets.listeners.iter().find(|listener| listener.starts_with("udp")) {
        let what = format!("who sends to {}", crate::model::escape::escape(listener.as_bytes()));
        return Err(Unknown::new(Reason::Unsupported, what).into());
    }
    Ok(super::lasting(Finding::yes("nothing is connected"), settings.duration("for")))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::rules::support::{ROOT, Says, Scene, captured, connection, id, lasts, listener};
    use crate::model::known::Reason;
    use crate::model::question::{Connection, Family, Peer, Question};

    const SOCKET: &str = "@bus";

    fn serving(connections: Vec<Connection>) -> Scene {
        Scene::orphan().capture("socket", SOCKET).sockets(
            ROOT,
            vec![listener(Family::Unix, SOCKET)],
            connections,
        )
    }

    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[("socket", captured("socket"))], expected);
    }

    #[test]
    fn a_server_without_a_client_is_unused() {
        check(&serving(vec![]), &Says::Yes("no client is connected"));
        serving(vec![]).check(&RULE, &[], &Says::Yes("no client is connected"));
        lasts(&serving(vec![]), &RULE);
    }

    #[test]
    fn a_client_on_the_socket_is_use_b03_m3() {
        let connected = |peer| serving(vec![connection(Family::Unix, SOCKET, peer)]);
        check(&connected(Peer::Inode(9)), &Says::No("a client is connected to @bus"));
        check(&connected(Peer::Gone), &Says::Yes("no client"));
        check(&connected(Peer::Unknown), &Says::Unknown("who is connected"));
    }

    #[test]
    fn what_listens_nowhere_says_nothing_f7() {
        Scene::orphan().check(&RULE, &[], &Says::No("it listens nowhere"));
        check(&Scene::orphan().capture("socket", SOCKET), &Says::Unknown("which no member listens on"));
    }

    #[test]
    fn what_cannot_be_seen_is_unknown_b46() {
        let datagrams = serving(vec![]).sockets(ROOT, vec![listener(Family::Udp, "0.0.0.0:60001")], vec![]);
        datagrams.check(&RULE, &[], &Says::Unknown("who sends datagrams"));
        let refused = serving(vec![]).refused(Question::Sockets(id(ROOT)), Reason::Denied);
        check(&refused, &Says::Unknown("refused"));
    }
}
