//! Finds servers whose backend is gone for good.
//!
//! # What it finds
//!
//! A server that listens, though the program behind it is gone: its root has no living descendant, nobody else lives in
//! the session that it leads, and it holds no nameless connected stream, which a channel to its backend would be.
//!
//! # Why it is not enough alone
//!
//! Many servers have no children, and some start theirs when they are asked. It is enough only for a program of which it
//! is known that it listens only once its backend runs, and that it never starts another: whoever calls it waits for
//! ever. So the reason must be written down, and reports repeat it. Whoever is connected waits as well, and cannot be
//! served: clients do not keep a tree from a line that holds by this rule; every other veto does.
//!
//! # When it is wrong
//!
//! A policy that names a program which does start another backend ends it between two of them: two looks, and the age of
//! the tree, make that rare and not impossible. Each of these is kept. A server that does not listen yet: its backend is
//! still to come. A root that leads no session: its backend may be anywhere. A child that lives, in whatever group, and
//! a process that was left in the session. A channel to somebody who took a session of its own: held streams and those
//! of which the kernel does not name the other end. One that calls somebody over TCP, who may be its backend. A table
//! that does not show everybody: a backend may be among the others. A zombie child is gone; one whose main thread alone
//! ended is not (C24). Whoever is stopped, traced or frozen.
//!
//! Two backends are not seen, and the rule is for programs that have none such: one at the far end of a pipe or a FIFO,
//! out of the tree and the session, and one that took a session of its own and connects to the server's own socket,
//! since it looks like a client.
//!
//! # Settings
//!
//! `because`: why this program never gets another backend, in words, e.g.
//! `{ backend-gone = "it starts its backend once, before it listens" }`; must be given.
//! `socket`: template of the socket that it must be listening on, e.g. "{socket}"; optional, and left out any counts.

use bstr::ByteSlice as _;

use crate::judge::case::{Case, port};
use crate::judge::leased::is_whole;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::escape::escape;
use crate::model::id::ProcessId;
use crate::model::known::{Reason, Unknown};
use crate::model::question::{Connection, Family, Peer, Sockets};
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};
use crate::model::table::Row;

/// Finds servers whose backend is gone for good.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "backend-gone",
        strength: Strength::Proof,
        summary: "it listens, the program behind it is gone, and it never starts another",
        doc: super::own_opening!("backend_gone.rs"),
        settings: &[
            SettingSpec {
                name: "because",
                kind: SettingKind::Text,
                need: Need::Required,
                doc: "why this program never gets another backend, in words",
            },
            SettingSpec {
                name: "socket",
                kind: SettingKind::Template,
                need: Need::Optional,
                doc: "the socket that it must be listening on; by default any",
            },
        ],
        bare: Some("because"),
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::CannotBeServed,
        serves: Serves::Processes,
    },
    weigh: Some(weigh),
    weigh_container: None,
};

fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let Some(because) = settings.text("because").filter(|text| !text.trim().is_empty()) else {
        return Ok(Finding::no("nobody wrote down why it never gets another backend"));
    };
    let root = case.root.id;
    let table = &case.look.snapshot.table;
    let is_alive = |id: &ProcessId| *id != root && table.get(*id).is_some_and(|row| !row.is_gone());
    if let Some(other) = case.tree.iter().copied().find(is_alive) {
        return Ok(Finding::no(format!("process {other} below it is alive")));
    }
    if case.root.sid != root.pid.number() {
        return Err(
            Unknown::new(Reason::Unsupported, "where its backend would be: it leads no session").into()
        );
    }
    let is_other = |row: &&Row| row.id != root && row.sid == case.root.sid && !row.is_gone();
    if let Some(other) = table.rows().iter().find(is_other) {
        return Ok(Finding::no(format!("process {} in its session is alive", other.id)));
    }
    if !is_whole(case.look) {
        let what = "whether its backend is among those that cannot be seen";
        return Err(Unknown::new(Reason::Denied, what).into());
    }
    if let Some(template) = settings.template("socket") {
        let socket = case.filled(template)?;
        if !case.listening(socket.as_bstr())?.iter().any(|(member, _)| *member == root) {
            return Ok(Finding::no(format!("it does not listen on {}", escape(&socket))));
        }
    } else {
        let takes = |family| matches!(family, Family::Unix | Family::Tcp);
        if !case.sockets_of(root)?.listeners.iter().any(|listener| takes(listener.family)) {
            return Ok(Finding::no("it listens nowhere, and its backend may be still to come"));
        }
    }
    let streams = case
        .sockets_of(root)?
        .connections
        .iter()
        .filter(|connection| connection.family == Family::Unix && connection.name.is_empty());
    for stream in streams {
        match &stream.peer {
            Peer::Gone => {}
            Peer::Inode(inode) => {
                return Ok(Finding::no(format!(
                    "it holds a channel, and its backend may be at socket {inode}"
                )));
            }
            Peer::Remote(_) | Peer::Unknown => {
                return Err(
                    Unknown::new(Reason::Denied, "who is at the other end of a channel of its").into()
                );
            }
        }
    }
    if let Some(peer) = called(case.sockets_of(root)?) {
        return Ok(Finding::no(format!("it is connected to {peer}, and its backend may be there")));
    }
    Ok(Finding::yes(format!("its backend is gone, and {}", because.trim())))
}

/// Returns whom a process called over TCP: what comes to one of its own ports is a client.
fn called(sockets: &Sockets) -> Option<String> {
    let of_listener = |connection: &Connection| {
        sockets
            .listeners
            .iter()
            .any(|listener| listener.family == Family::Tcp && port(&listener.name) == port(&connection.name))
    };
    let calls = sockets.connections.iter().filter(|connection| connection.family == Family::Tcp);
    calls.filter(|connection| !of_listener(connection)).find_map(|connection| match &connection.peer {
        Peer::Gone => None,
        Peer::Remote(address) => Some(address.clone()),
        Peer::Inode(inode) => Some(format!("socket {inode}")),
        Peer::Unknown => Some("somebody who cannot be told".to_owned()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::rules::support::{ROOT, Says, Scene, captured, connection, id, listener, text};
    use crate::model::look::Gap;
    use crate::model::question::Question;
    use crate::model::table::State;

    const SOCKET: &str = "/tmp/b.sock";

    fn wedged() -> Scene {
        with(vec![])
    }

    fn with(connections: Vec<Connection>) -> Scene {
        Scene::orphan().capture("socket", SOCKET).sockets(
            ROOT,
            vec![listener(Family::Unix, SOCKET)],
            connections,
        )
    }

    #[track_caller]
    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[("because", text("it starts one once"))], expected);
    }

    #[test]
    fn who_listens_without_anything_behind_it_is_over() {
        check(&wedged(), &Says::Yes("its backend is gone, and it starts one once"));
        let settings = [("because", text("it starts one once")), ("socket", captured("socket"))];
        wedged().check(&RULE, &settings, &Says::Yes("its backend is gone"));
    }

    #[test]
    fn a_reason_must_be_written_down() {
        wedged().check(&RULE, &[("because", text(" "))], &Says::No("nobody wrote down why"));
        wedged().check(&RULE, &[], &Says::No("nobody wrote down why"));
    }

    #[test]
    fn a_client_does_not_keep_it() {
        check(&with(vec![connection(Family::Unix, SOCKET, Peer::Inode(900))]), &Says::Yes("is gone"));
        assert_eq!(RULE.spec.clients, Clients::CannotBeServed);
    }

    #[test]
    fn a_live_child_counts_and_a_zombie_does_not_in_a_backend_c24() {
        let child = wedged().process(51, ROOT);
        check(&child, &Says::No("process 51 below it is alive"));
        check(&child.clone().dead(51), &Says::Yes("is gone"));
        let threads = child.row(51, |row| (row.state, row.threads) = (State::Zombie, 2));
        check(&threads, &Says::No("process 51 below it is alive"));
    }

    #[test]
    fn whoever_was_left_in_its_session_may_be_its_backend() {
        let left = wedged().process(45, 1).row(45, |row| row.sid = ROOT);
        check(&left, &Says::No("process 45 in its session is alive"));
        check(&left.dead(45), &Says::Yes("is gone"));
        check(&wedged().row(ROOT, |row| row.sid = 40), &Says::Unknown("it leads no session"));
        check(&wedged().row(ROOT, |row| row.sid = 0), &Says::Unknown("it leads no session"));
    }

    #[test]
    fn a_server_that_does_not_listen_yet_has_its_backend_to_come() {
        check(&Scene::orphan(), &Says::No("it listens nowhere"));
        let datagrams = wedged().sockets(ROOT, vec![listener(Family::UnixDatagram, SOCKET)], vec![]);
        check(&datagrams, &Says::No("it listens nowhere"));
        let settings = [("because", text("it starts one once")), ("socket", captured("socket"))];
        let elsewhere = wedged().capture("socket", "@other");
        elsewhere.check(&RULE, &settings, &Says::Unknown("no member listens there"));
        Scene::orphan().check(&RULE, &settings, &Says::Unknown("'{socket}'"));
    }

    #[test]
    fn a_channel_that_somebody_holds_may_lead_to_its_backend() {
        check(&with(vec![connection(Family::Unix, "", Peer::Inode(900))]), &Says::No("it holds a channel"));
        check(&with(vec![connection(Family::Unix, "", Peer::Unknown)]), &Says::Unknown("other end"));
        check(&with(vec![connection(Family::Unix, "", Peer::Gone)]), &Says::Yes("is gone"));
    }

    #[test]
    fn whom_it_calls_over_tcp_may_be_its_backend() {
        let tcp = |name: &str, peer| connection(Family::Tcp, name, peer);
        let remote = || Peer::Remote("127.0.0.1:9000".into());
        let calls = |peer| with(vec![tcp("127.0.0.1:40000", peer)]);
        check(&calls(remote()), &Says::No("connected to 127.0.0.1:9000, and its backend may be there"));
        check(&calls(Peer::Unknown), &Says::No("its backend may be there"));
        check(&calls(Peer::Gone), &Says::Yes("is gone"));
        let served = wedged().sockets(
            ROOT,
            vec![listener(Family::Unix, SOCKET), listener(Family::Tcp, "0.0.0.0:40000")],
            vec![tcp("127.0.0.1:40000", remote())],
        );
        check(&served, &Says::Yes("is gone"));
    }

    #[test]
    fn a_table_that_does_not_show_everybody_may_hide_its_backend_b24() {
        for source in [Gap::HIDDEN, Gap::UNREAD] {
            check(&wedged().gap(source), &Says::Unknown("among those that cannot be seen"));
        }
        check(&wedged().gap("something else"), &Says::Yes("is gone"));
    }

    #[test]
    fn what_cannot_be_seen_is_unknown_in_a_backend() {
        check(&wedged().refused(Question::Sockets(id(ROOT)), Reason::Denied), &Says::Unknown("refused"));
    }
}
