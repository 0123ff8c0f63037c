//! Finds trees and containers that somebody is connected to.
//!
//! # What it finds
//!
//! A live process outside the tree that is connected to a socket of it, or waits there to be accepted. Any connection
//! that stands in the network of a container.
//!
//! # Why it is not enough alone
//!
//! It stands in `spare-when`, where it is enough: who has a client is in use. That a tree without clients is not
//! thereby ownerless is for `no-clients` to say.
//!
//! # When it is wrong
//!
//! Whatever cannot be told keeps the tree. A connection whose other end is gone is no client (M3), and neither is one
//! between two members (M3). Clients are found by the sockets that members hold and never by connecting, by the path
//! alone or by peer credentials (F7): a socket that was renamed after it was bound is found by the file it stands for.
//! A socket that no member listens on is unknown. Nobody can see who sends to a datagram socket (B46): unknown.
//!
//! # Settings
//!
//! `socket`: template of the one socket that counts, a path, `@name` or `address:port`, e.g.
//! `{ clients = "{socket}" }`; optional, and left out every socket of the tree counts.

use std::collections::BTreeSet;

use bstr::{BString, ByteSlice as _};

use crate::judge::case::{Case, Client, port};
use crate::judge::containers::case::ContainerCase;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::escape::escape;
use crate::model::known::{Reason, Unknown};
use crate::model::question::{Family, Listener, PathAnswer};
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

/// Finds trees that somebody is connected to.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "clients",
        strength: Strength::Sign,
        summary: "somebody outside is connected to it",
        doc: super::own_opening!("clients.rs"),
        settings: &[SettingSpec {
            name: "socket",
            kind: SettingKind::Template,
            need: Need::Optional,
            doc: "the one socket that counts: a path, @name or address:port; by default every socket of the tree",
        }],
        bare: Some("socket"),
        place: Place::SpareWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Both(&[]),
    },
    weigh: Some(weigh),
    weigh_container: Some(weigh_container),
};

/// Says of a client that it is connected, for a reason.
pub(super) fn connected(client: &Client) -> String {
    format!("a client is connected to {}: {}", escape(&client.name), client.peer)
}

fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let served = served(case, settings)?;
    if let Some(client) = served.clients.first() {
        return Ok(Finding::yes(connected(client)));
    }
    served.all_visible()?;
    Ok(Finding::no("no client is connected"))
}

fn weigh_container(case: &ContainerCase<'_>, _: Settings<'_>) -> Found<Finding> {
    Ok(match case.sockets()?.connections.first() {
        Some(connection) => {
            Finding::yes(format!("something is connected: {}", escape(connection.as_bytes())))
        }
        None => Finding::no("nothing is connected"),
    })
}

/// Where a tree serves, as far as the settings let it count, and whom.
pub(super) struct Served<'a> {
    /// Where it can be reached.
    pub(super) listeners: Vec<&'a Listener>,
    /// Who is connected there.
    pub(super) clients: Vec<Client>,
}

impl Served<'_> {
    /// Says that no client can be there unseen: a datagram comes without a connection (F7, B46).
    pub(super) fn all_visible(&self) -> Found<()> {
        let unseen = self
            .listeners
            .iter()
            .find(|listener| matches!(listener.family, Family::UnixDatagram | Family::Udp));
        match unseen {
            None => Ok(()),
            Some(listener) => {
                let what = format!("who sends datagrams to {}", escape(&listener.name));
                Err(Unknown::new(Reason::Unsupported, what).into())
            }
        }
    }
}

/// Returns where the tree serves and whom, by `socket` or at all.
pub(super) fn served<'a>(case: &Case<'a>, settings: Settings<'_>) -> Found<Served<'a>> {
    let socket = settings.template("socket").map(|template| case.filled(template)).transpose()?;
    let all: Vec<&Listener> =
        case.sockets()?.into_iter().flat_map(|(_, sockets)| sockets.listeners.iter()).collect();
    let Some(socket) = socket else {
        return Ok(Served { listeners: all, clients: case.clients()? });
    };
    let mut listeners: Vec<&Listener> =
        all.iter().copied().filter(|listener| listener.name == socket).collect();
    if listeners.is_empty() && socket.starts_with(b"/") {
        // Bound by another name: rename(2) after bind(2), a relative path, a link on the way.
        if let PathAnswer::Present { file, .. } = case.path(socket.as_bstr())? {
            listeners.extend(all.iter().filter(|listener| listener.file == Some(*file)));
        }
    }
    if listeners.is_empty() {
        let what = format!("who is connected to {}, which no member listens on", escape(&socket));
        return Err(Unknown::new(Reason::NotAsked, what).into());
    }
    let names: BTreeSet<&BString> = listeners.iter().map(|listener| &listener.name).collect();
    let ports: BTreeSet<&[u8]> = listeners
        .iter()
        .filter(|listener| listener.family == Family::Tcp)
        .filter_map(|listener| port(&listener.name))
        .collect();
    // A wildcard listener's name is not its connections' name: the port is what they share.
    let there = |client: &Client| {
        names.contains(&client.name) || port(&client.name).is_some_and(|port| ports.contains(port))
    };
    let clients = case.clients()?.into_iter().filter(there).collect();
    Ok(Served { listeners, clients })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::rules::support::{ROOT, Says, Scene, captured, connection, file, id, listener, parent};
    use crate::model::question::{Connection, Peer, Question};

    const SOCKET: &str = "/tmp/b.sock";

    fn serving(connections: Vec<Connection>) -> Scene {
        Scene::orphan().capture("socket", SOCKET).sockets(
            ROOT,
            vec![listener(Family::Unix, SOCKET)],
            connections,
        )
    }

    fn client(name: &str) -> Connection {
        connection(Family::Unix, name, Peer::Inode(900))
    }

    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[("socket", captured("socket"))], expected);
    }

    fn check_all(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[], expected);
    }

    #[test]
    fn who_is_connected_or_waits_is_a_client_f7() {
        check(&serving(vec![client(SOCKET)]), &Says::Yes("a client is connected to /tmp/b.sock"));
        check_all(&serving(vec![client(SOCKET)]), &Says::Yes("a client is connected"));
        check(&serving(vec![]), &Says::No("no client"));
        let waiting = Listener { pending: 2, ..listener(Family::Unix, SOCKET) };
        check(&serving(vec![]).sockets(ROOT, vec![waiting], vec![]), &Says::Yes("2 waiting"));
    }

    #[test]
    fn a_peer_that_is_gone_or_a_member_is_no_client_m3() {
        check(&serving(vec![connection(Family::Unix, SOCKET, Peer::Gone)]), &Says::No("no client"));
        let member = Connection { inode: 900, ..connection(Family::Unix, "", Peer::Inode(71)) };
        let scene = serving(vec![client(SOCKET)]).process(51, ROOT).sockets(51, vec![], vec![member]);
        check(&scene, &Says::No("no client"));
        let unknown = serving(vec![connection(Family::Unix, SOCKET, Peer::Unknown)]);
        check(&unknown, &Says::Unknown("who is connected"));
    }

    #[test]
    fn only_the_named_socket_counts() {
        let other = || vec![listener(Family::Unix, SOCKET), listener(Family::Unix, "/tmp/other")];
        let scene = serving(vec![]).sockets(ROOT, other(), vec![client("/tmp/other")]);
        check(&scene, &Says::No("no client"));
        check_all(&scene, &Says::Yes("/tmp/other"));
    }

    #[test]
    fn a_socket_that_was_renamed_is_found_by_its_file_f7() {
        let present = |ino| PathAnswer::Present { file: file(8, ino), parent: parent("/tmp").into() };
        let bound = Listener { file: Some(file(8, 33)), ..listener(Family::Unix, "/tmp/b.sock.tmp") };
        let scene = serving(vec![]).sockets(ROOT, vec![bound], vec![client("/tmp/b.sock.tmp")]);
        check(&scene.clone().path(SOCKET, present(33)), &Says::Yes("/tmp/b.sock.tmp"));
        check(&scene.clone().path(SOCKET, present(34)), &Says::Unknown("which no member listens on"));
        check(&scene, &Says::Asks(vec![Question::Path { of: id(ROOT), path: SOCKET.into() }]));
    }

    #[test]
    fn a_wildcard_listener_is_joined_by_its_port() {
        let tcp = connection(Family::Tcp, "127.0.0.1:80", Peer::Remote("127.0.0.1:999".into()));
        let scene = serving(vec![]).capture("socket", "0.0.0.0:80");
        let scene = scene.sockets(ROOT, vec![listener(Family::Tcp, "0.0.0.0:80")], vec![tcp]);
        check(&scene, &Says::Yes("127.0.0.1:999"));
    }

    #[test]
    fn what_cannot_be_told_keeps_b15_b46_f7() {
        check(&Scene::orphan(), &Says::Unknown("'{socket}'"));
        let gone = PathAnswer::Absent { parent: parent("/tmp").into() };
        let none = Scene::orphan().capture("socket", SOCKET).path(SOCKET, gone);
        check(&none, &Says::Unknown("which no member listens on"));
        check_all(&Scene::orphan(), &Says::No("no client"));
        let refused = serving(vec![]).refused(Question::Sockets(id(ROOT)), Reason::Denied);
        check(&refused, &Says::Unknown("refused"));
        for family in [Family::Udp, Family::UnixDatagram] {
            let scene = serving(vec![]).sockets(ROOT, vec![listener(family, SOCKET)], vec![]);
            check(&scene, &Says::Unknown("who sends datagrams"));
            check_all(&scene, &Says::Unknown("who sends datagrams"));
        }
    }
}
