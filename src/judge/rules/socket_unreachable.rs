//! Finds servers whose socket nobody can find any more.
//!
//! # What it finds
//!
//! A member listens on the named Unix socket, and nothing leads there any more: the file that it was bound to is gone
//! from its path, or something else took its place. Whoever calls that path gets an error, or somebody else. Always: no
//! living parent outside the tree, no controlling terminal, nobody connected and nobody waiting to be accepted.
//!
//! # Why it is not enough alone
//!
//! It is enough where that socket is the only way in, since a socket without a name cannot get one again. Whoever has
//! another way in (a port, its parent's pipe) is somebody's still; the policy names the socket that counts.
//!
//! # When it is wrong
//!
//! Each of these is kept. A file that was renamed after it was bound, or that the path leads to by a link (F7): found by
//! its device and inode, never by the path alone and never by peer credentials, which name a dead activator. One that
//! moved along with a directory above it, whatever stands at the old path by now (B33): it is looked for beside each of
//! them, and from where its server stands. One that was carried off to another place, without its server in it, is not
//! found; nobody who has the path reaches it then. Another
//! listener of the tree that is at the path now: a graceful upgrade (B44). A path of another mount namespace: it is
//! looked at as the member itself sees it. A socket whose file the kernel does not tell, a relative path, a link without
//! its end, a directory over the network: unknown. A server that does not listen there yet, or closed its listener:
//! unknown. A prober that was refused (B15): unknown. A full backlog is a queue of clients (B14). An owner that makes
//! its socket anew when it is told to (B12) has a terminal, a client or a parent; one that has none of them, and whose
//! socket a cleaner of temporary files took, goes: nobody could reach it until then. An unmount or such a cleaner takes
//! many at once: they hang on one mount.
//!
//! # Settings
//!
//! `socket`: template of the socket's path, absolute, e.g. `{ socket-unreachable = "{socket}" }`; must be given.

use bstr::{BStr, ByteSlice as _};

use crate::judge::case::Case;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::escape::escape;
use crate::model::evidence::Cause;
use crate::model::facts::FileSystem;
use crate::model::id::ProcessId;
use crate::model::known::{Reason, Unknown};
use crate::model::question::{Binding, Family, FileKind, Listener, Parent};
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

use super::clients::connected;

/// Finds servers whose socket nobody can find any more.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "socket-unreachable",
        strength: Strength::Proof,
        summary: "its socket has no name any more, and it has no living parent, terminal or client",
        doc: super::own_opening!("socket_unreachable.rs"),
        settings: &[SettingSpec {
            name: "socket",
            kind: SettingKind::Template,
            need: Need::Required,
            doc: "the path of the socket that is its only way in, as an absolute path",
        }],
        bare: Some("socket"),
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Processes,
    },
    weigh: Some(weigh),
    weigh_container: None,
};

fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let Some(template) = settings.template("socket") else {
        return Ok(Finding::no("no socket was named whose end would be its end"));
    };
    let socket = case.filled(template)?;
    let path = socket.as_bstr();
    if !path.starts_with(b"/") {
        return Err(Unknown::new(Reason::Unsupported, format!("'{}' is no whole path", escape(path))).into());
    }
    if let Some(parent) = case.outside_parent() {
        return Ok(Finding::no(format!("its parent {parent} is alive")));
    }
    case.parent_seen()?;
    if let Some(member) = case.terminal() {
        return Ok(Finding::no(format!("process {member} has a terminal")));
    }
    let mut lost: Option<(String, &Parent)> = None;
    for (member, listener) in case.listening(path)? {
        match file(case, member, listener, path)? {
            Binding::Here => return Ok(Finding::no(format!("{} leads to it", escape(path)))),
            Binding::Renamed(name) => {
                let why = format!("its socket was renamed to {}", escape(name));
                return Ok(Finding::no(why));
            }
            Binding::Replaced { by, parent } => {
                if let Some(other) = successor(case, path)? {
                    return Ok(Finding::no(format!("{} leads to {other} of the tree", escape(path))));
                }
                let why = format!("{} leads to {}", escape(path), kind(*by));
                lost.get_or_insert((why, &**parent));
            }
            Binding::Absent { parent } => {
                lost.get_or_insert((format!("{} is gone", escape(path)), &**parent));
            }
            Binding::DirectoryAbsent { nearest } => {
                let why = format!("{} is gone with its directory", escape(path));
                lost.get_or_insert((why, &**nearest));
            }
        }
    }
    let Some((why, parent)) = lost else {
        return Err(Unknown::new(Reason::NotAsked, format!("what became of {}", escape(path))).into());
    };
    if parent.on == FileSystem::Fuse || parent.on == FileSystem::Network {
        let what = format!("what became of {}: it is remote", escape(path));
        return Err(Unknown::new(Reason::Untrusted, what).into());
    }
    if let Some(client) = case.clients()?.first() {
        return Ok(Finding::no(connected(client)));
    }
    Ok(Finding::yes(format!("nobody can reach its socket: {why}"))
        .hanging_on(Cause::Mount(parent.mount.clone())))
}

/// Returns where the file of a member's listener is, seen from the path.
fn file<'a>(case: &Case<'a>, member: ProcessId, listener: &Listener, path: &BStr) -> Found<&'a Binding> {
    let Some(file) = listener.file else {
        let what = format!("which file the socket {} of {member} stands for", escape(&listener.name));
        return Err(Unknown::new(Reason::Untrusted, what).into());
    };
    case.bound(member, path, file)
}

/// Returns the member whose listener, by whatever name it was bound, took the path over.
fn successor(case: &Case<'_>, path: &BStr) -> Found<Option<ProcessId>> {
    for (member, sockets) in case.sockets()? {
        let others = sockets.listeners.iter().filter(|listener| {
            listener.family == Family::Unix && listener.name != path && !listener.name.starts_with(b"@")
        });
        for listener in others {
            if *file(case, member, listener, path)? == Binding::Here {
                return Ok(Some(member));
            }
        }
    }
    Ok(None)
}

fn kind(kind: FileKind) -> &'static str {
    match kind {
        FileKind::Socket => "another socket now",
        FileKind::File => "a file now",
        FileKind::Directory => "a directory now",
        FileKind::Link => "a link without its end now",
        FileKind::Other => "something else now",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::rules::support::{ROOT, Says, Scene, captured, connection, file, id, listener, parent};
    use crate::model::question::{Answer, PathAnswer, Peer, Question};

    const SOCKET: &str = "/tmp/b/b.sock";

    fn at(name: &str, ino: u64) -> Listener {
        Listener { file: Some(file(8, ino)), ..listener(Family::Unix, name) }
    }

    fn asked(of: i32, ino: u64) -> Question {
        Question::Bound { of: id(of), path: SOCKET.into(), file: file(8, ino) }
    }

    fn absent() -> Binding {
        Binding::Absent { parent: parent("/tmp/b").into() }
    }

    fn replaced() -> Binding {
        Binding::Replaced { by: FileKind::Socket, parent: parent("/tmp/b").into() }
    }

    /// The root listens on a socket whose file, inode 33, is so.
    fn serving(binding: Binding) -> Scene {
        Scene::orphan()
            .capture("socket", SOCKET)
            .sockets(ROOT, vec![at(SOCKET, 33)], vec![])
            .answer(asked(ROOT, 33), Answer::Bound(binding))
    }

    #[track_caller]
    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[("socket", captured("socket"))], expected);
    }

    #[test]
    fn a_socket_that_nothing_leads_to_is_the_end_of_its_server_f7() {
        check(&serving(absent()), &Says::Yes("nobody can reach its socket: /tmp/b/b.sock is gone"));
        check(&serving(replaced()), &Says::Yes("leads to another socket now"));
        let gone = Binding::DirectoryAbsent { nearest: parent("/tmp").into() };
        check(&serving(gone), &Says::Yes("gone with its directory"));
    }

    #[test]
    fn one_that_is_there_or_was_renamed_is_reachable_f7() {
        check(&serving(Binding::Here), &Says::No("leads to it"));
        check(&serving(Binding::Renamed("live.sock".into())), &Says::No("renamed to live.sock"));
    }

    #[test]
    fn it_is_looked_at_and_never_connected_to_f7() {
        let scene = Scene::orphan().capture("socket", SOCKET).sockets(ROOT, vec![at(SOCKET, 33)], vec![]);
        check(&scene, &Says::Asks(vec![asked(ROOT, 33)]));
    }

    #[test]
    fn a_socket_that_was_bound_by_another_name_is_found_by_its_file_f7() {
        let present = PathAnswer::Present { file: file(8, 33), parent: parent("/tmp/b").into() };
        let scene = Scene::orphan()
            .capture("socket", SOCKET)
            .sockets(ROOT, vec![at("b.sock.new", 33)], vec![])
            .path(SOCKET, present)
            .answer(asked(ROOT, 33), Answer::Bound(Binding::Here));
        check(&scene, &Says::No("leads to it"));
    }

    #[test]
    fn every_listener_of_the_tree_must_be_lost_b44() {
        let two = |second| {
            serving(absent())
                .process(51, ROOT)
                .sockets(51, vec![at(SOCKET, 34)], vec![])
                .answer(asked(51, 34), Answer::Bound(second))
        };
        check(&two(absent()), &Says::Yes("is gone"));
        check(&two(Binding::Here), &Says::No("leads to it"));
    }

    #[test]
    fn a_successor_of_the_tree_by_whatever_name_took_the_path_over_b44() {
        let with = |other: Listener| serving(replaced()).process(51, ROOT).sockets(51, vec![other], vec![]);
        let next = with(at("/tmp/b/next.sock", 34));
        let here = next.clone().answer(asked(51, 34), Answer::Bound(Binding::Here));
        check(&here, &Says::No("leads to 51 of the tree"));
        let elsewhere = next.answer(asked(51, 34), Answer::Bound(Binding::Renamed("next.sock".into())));
        check(&elsewhere, &Says::Yes("leads to another socket now"));
        check(&with(listener(Family::Unix, "next.sock")), &Says::Unknown("which file"));
        check(&with(listener(Family::Unix, "@next")), &Says::Yes("leads to another socket now"));
    }

    #[test]
    fn a_server_that_listens_nowhere_yet_is_unknown_b15() {
        let gone = PathAnswer::Absent { parent: parent("/tmp/b").into() };
        let none = Scene::orphan().capture("socket", SOCKET).path(SOCKET, gone);
        check(&none, &Says::Unknown("no member listens there"));
        let datagrams = none.clone().sockets(ROOT, vec![listener(Family::UnixDatagram, SOCKET)], vec![]);
        check(&datagrams, &Says::Unknown("no member listens there"));
    }

    #[test]
    fn what_cannot_be_told_keeps_b15_f7() {
        check(&Scene::orphan(), &Says::Unknown("'{socket}'"));
        for address in ["b.sock", "@b", "127.0.0.1:80", ""] {
            check(&serving(absent()).capture("socket", address), &Says::Unknown("no whole path"));
        }
        let unnamed = Listener { file: None, ..at(SOCKET, 33) };
        check(&serving(absent()).sockets(ROOT, vec![unnamed], vec![]), &Says::Unknown("which file"));
        check(&serving(absent()).refused(asked(ROOT, 33), Reason::Denied), &Says::Unknown("refused"));
        let sockets = Question::Sockets(id(ROOT));
        check(&serving(absent()).refused(sockets, Reason::Foreign), &Says::Unknown("namespace"));
        for on in [FileSystem::Fuse, FileSystem::Network] {
            let binding = Binding::Absent { parent: Parent { on, ..parent("/tmp/b") }.into() };
            check(&serving(binding), &Says::Unknown("it is remote"));
        }
    }

    #[test]
    fn a_parent_a_terminal_or_a_client_keeps_it_b12_b14_c33() {
        let owned = serving(absent()).process(40, 1).row(ROOT, |row| row.ppid = 40);
        check(&owned, &Says::No("its parent 40 is alive"));
        check(&serving(absent()).row(ROOT, |row| row.ppid = 0), &Says::Unknown("its parent"));
        check(&serving(absent()).row(ROOT, |row| row.tty = 5), &Says::No("has a terminal"));
        let client = connection(Family::Unix, SOCKET, Peer::Inode(900));
        let connected = serving(absent()).sockets(ROOT, vec![at(SOCKET, 33)], vec![client]);
        check(&connected, &Says::No("a client is connected"));
        let waiting = Listener { pending: 1, ..at(SOCKET, 33) };
        check(&serving(absent()).sockets(ROOT, vec![waiting], vec![]), &Says::No("1 waiting"));
        let dead = connection(Family::Unix, SOCKET, Peer::Gone);
        check(&serving(absent()).sockets(ROOT, vec![at(SOCKET, 33)], vec![dead]), &Says::Yes("is gone"));
    }

    #[test]
    fn every_end_hangs_on_the_mount_of_its_directory() {
        let mount = Parent { mount: "/tmp".into(), ..parent("/tmp/b") };
        let bindings = [
            Binding::Absent { parent: mount.clone().into() },
            Binding::Replaced { by: FileKind::File, parent: mount.clone().into() },
            Binding::DirectoryAbsent { nearest: mount.into() },
        ];
        for binding in bindings {
            let settings = [("socket", captured("socket"))].into_iter().collect();
            let found = serving(binding).case(|case| weigh(case, Settings(&settings))).unwrap();
            assert_eq!(found.cause, Some(Cause::Mount("/tmp".into())));
        }
    }
}
