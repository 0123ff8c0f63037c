//! Finds stdio servers that nobody can speak to any more.
//!
//! # What it finds
//!
//! A process whose standard input is an anonymous pipe or a connected socket pair, where the kernel says that nobody
//! holds the other end and nothing waits to be read; whose output ends in a pipe or socket pair that nobody reads;
//! which no socket of the tree can reach; and which has no controlling terminal. Such a far end can never come back.
//! It also finds closed sets: trees that were left behind and hold each other's ends. From all matched trees whoever
//! has a living or unknown holder outside is dropped, until nobody more is; what remains can only speak to itself.
//!
//! # Why it is not enough alone
//!
//! It is enough for a program that is a stdio server: its input is how it is used. It says nothing of a program that
//! works by itself, so it stands only in policies that name such servers.
//!
//! # When it is wrong
//!
//! Each of these is kept. A batch whose answer is still awaited, `printf req | server | jq`: its output is read (F3).
//! A client that closed the pipe and lives on (A10): its output is still read; see `stdin-ended`. A server that was
//! started with `echo y |` and is reached by its socket (B03, B05). An inetd-style listener as standard input, a
//! socket that never had a peer, a FIFO with a name: somebody may still come (F3). `server < <(cat init) > log`: the
//! file is wanted (B53). Requests that wait unread. A sibling that inherited the end, and a descriptor that travels
//! in a message and belongs to nobody at the moment: held is held, and a holder that cannot be seen is unknown.
//! A closed set (A32, M4) is none when a member of it can be reached, is vetoed or protected, or belongs to a policy
//! that asks for more than these ends: what works by itself may use what it holds.
//! A controlling terminal keeps a tree: one whose agent was killed leaks until its terminal is closed.
//!
//! # Settings
//!
//! None: `{ stdin-abandoned = true }`. A policy's private listeners do not count as a way to reach the tree.

use std::collections::BTreeSet;

use crate::config::policy::Policy;
use crate::judge::candidates::still_fits;
use crate::judge::case::{Case, Other, Standing, known};
use crate::judge::rule::{Blank, Finding, Found, Rule, Settings};
use crate::judge::vetoes::vetoes;
use crate::model::escape::escape;
use crate::model::evidence::Says;
use crate::model::id::ProcessId;
use crate::model::known::{Reason, Unknown};
use crate::model::ownership::Parentage;
use crate::model::question::{Census, Channel, ChannelKind, FarEnd};
use crate::model::rule::{Asks, Clients, Place, RuleSpec, Serves, Strength};
use crate::model::table::Row;

/// Finds stdio servers that nobody can speak to any more.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "stdin-abandoned",
        strength: Strength::Proof,
        summary: "nobody holds the other end of its stdin or reads its output, and nothing else reaches it",
        doc: super::own_opening!("stdin_abandoned.rs"),
        settings: &[],
        bare: None,
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Processes,
    },
    weigh: Some(weigh),
    weigh_container: None,
};

pub(in crate::judge) fn weigh(case: &Case<'_>, _: Settings<'_>) -> Found<Finding> {
    abandoned(case, Ends { read: 0, write: 1 })
}

/// The descriptors by which a program is spoken to.
#[derive(Debug, Clone, Copy)]
pub(super) struct Ends {
    /// What it reads.
    pub(super) read: u32,
    /// What it writes.
    pub(super) write: u32,
}

impl Ends {
    fn reading(self) -> String {
        if self.read == 0 { "its stdin".into() } else { format!("its descriptor {}", self.read) }
    }

    fn writing(self) -> String {
        if self.write == 1 { "its output".into() } else { format!("its descriptor {}", self.write) }
    }
}

/// Says whether nobody can speak to the root by these descriptors, nor reach the tree in another way.
pub(super) fn abandoned(case: &Case<'_>, ends: Ends) -> Found<Finding> {
    match grip(case, ends)? {
        Grip::InUse(why) => Ok(Finding::no(why)),
        Grip::Nobody => Ok(Finding::yes(if ends.write == 1 {
            format!("nobody holds the other end of {} or reads its output", ends.reading())
        } else {
            format!("nobody holds the other ends of {} and {}", ends.reading(), ends.writing())
        })),
        Grip::Only(holders) => closed_set(case, ends, &holders),
    }
}

/// Who has a tree in their grip.
enum Grip {
    /// It can still be used, for this reason.
    InUse(String),
    /// Nobody at all: the kernel says so.
    Nobody,
    /// Only members, and these outside.
    Only(Vec<ProcessId>),
}

// The order is that of cost: a live server costs one question, and who holds an end is asked last.
fn grip(case: &Case<'_>, ends: Ends) -> Found<Grip> {
    let channel = case.channel(ends.read)?;
    let read = match far_end(channel) {
        Ok(far) => far?,
        Err(what) => return Ok(Grip::InUse(format!("{} is {what}", ends.reading()))),
    };
    if read == FarEnd::Held
        && let Some(why) = kept_by_parent(case)?
    {
        return Ok(Grip::InUse(format!("somebody holds the other end of {}, and {why}", ends.reading())));
    }
    if let Some(member) = case.terminal() {
        return Ok(Grip::InUse(format!("process {member} has a terminal")));
    }
    let unread = *known(&channel.unread)?;
    if unread > 0 {
        return Ok(Grip::InUse(format!("{unread} bytes still wait in {}", ends.reading())));
    }
    let write = match far_end(case.channel(ends.write)?) {
        Ok(far) => far?,
        Err(what) => {
            let begins = if read == FarEnd::Gone { "ended" } else { "is held" };
            return Ok(Grip::InUse(format!(
                "{} {begins}, but {} goes to {what}",
                ends.reading(),
                ends.writing()
            )));
        }
    };
    if write == FarEnd::Held
        && let Some(why) = kept_by_parent(case)?
    {
        return Ok(Grip::InUse(format!("{} is still read, and {why}", still_read(ends, read))));
    }
    if let Some((member, listener)) = case.listeners()?.first() {
        return Ok(Grip::InUse(format!("process {member} can be reached at {}", escape(&listener.name))));
    }
    if (read, write) == (FarEnd::Gone, FarEnd::Gone) {
        return Ok(Grip::Nobody);
    }
    let inside = case.inside();
    let mut outside = Vec::new();
    for (far, fd, name) in [(read, ends.read, ends.reading()), (write, ends.write, ends.writing())] {
        if far == FarEnd::Held {
            outside.extend(holders(case, fd, &name)?.into_iter().filter(|id| !inside.contains(id)));
        }
    }
    Ok(Grip::Only(outside))
}

fn still_read(ends: Ends, read: FarEnd) -> String {
    match read {
        FarEnd::Gone => format!("{} ended, but {}", ends.reading(), ends.writing()),
        FarEnd::Held => ends.writing(),
    }
}

/// Returns why a held end is not worth a search: the parent is alive, and may be the one who holds it.
fn kept_by_parent(case: &Case<'_>) -> Found<Option<String>> {
    case.parent_seen()?;
    match case.parentage() {
        Parentage::Living(parent) => Ok(Some(format!("its parent {parent} is alive"))),
        Parentage::Adopted(_) | Parentage::None => Ok(None),
    }
}

/// Returns what is at the far end, or what the descriptor is where it has none.
fn far_end(channel: &Channel) -> Result<Found<FarEnd>, String> {
    Err(match &channel.kind {
        ChannelKind::Pipe { .. } | ChannelKind::Stream { .. } => return Ok(known(&channel.far).copied()),
        ChannelKind::NamedFifo => "a named pipe: anybody may still open it".into(),
        ChannelKind::Terminal(_) => "a terminal".into(),
        ChannelKind::Null => "/dev/null".into(),
        ChannelKind::File => "a file".into(),
        ChannelKind::Listener => "a listening socket: anybody may still connect".into(),
        ChannelKind::Unconnected => "a socket that never had another end".into(),
        ChannelKind::Closed => "nowhere: it is closed".into(),
        ChannelKind::Other(what) => escape(what.as_bytes()),
    })
}

fn holders(case: &Case<'_>, fd: u32, name: &str) -> Found<Vec<ProcessId>> {
    let holders = case.holders_of(case.root.id, fd)?;
    if let Census::Partial(count) = holders.census {
        let what = format!("who holds the other end of {name}, for {count} processes");
        return Err(Unknown::new(Reason::Denied, what).into());
    }
    if holders.seen.is_empty() {
        // Held, and by nobody: it is on its way in a message (unix(7), SCM_RIGHTS), or where we cannot look.
        return Err(Unknown::new(Reason::Foreign, format!("who holds the other end of {name}")).into());
    }
    Ok(holders.seen.clone())
}

/// A tree of the set, with those outside it who hold its ends.
struct Node {
    root: ProcessId,
    inside: BTreeSet<ProcessId>,
    outside: Vec<ProcessId>,
}

impl Node {
    fn new(case: &Case<'_>, root: &Row, tree: &[ProcessId], outside: Vec<ProcessId>) -> Node {
        Node { root: root.id, inside: Case { root, tree, ..*case }.inside(), outside }
    }
}

/// Finds the greatest set of matched trees that hold only each other, and says whether this one is of it (M4).
///
/// Only trees that this one hangs on are looked at. Who cannot be read is not in the set.
fn closed_set(case: &Case<'_>, ends: Ends, holders: &[ProcessId]) -> Found<Finding> {
    let mut queue = holders.to_owned();
    let mut seen: BTreeSet<(ProcessId, &str)> = BTreeSet::new();
    let mut nodes = vec![Node::new(case, case.root, case.tree, holders.to_owned())];
    let mut asked = Vec::new();
    let mut unknown = None;
    while let Some(holder) = queue.pop() {
        for other in case.others.iter().filter(|other| other.tree.contains(&holder)) {
            if other.root == case.root.id || !seen.insert((other.root, &other.policy)) {
                continue;
            }
            let Some(root) = case.look.snapshot.table.get(other.root) else { continue };
            match grip_of(case, other, ends) {
                Ok(Grip::InUse(_)) => {}
                Ok(Grip::Nobody) => nodes.push(Node::new(case, root, &other.tree, Vec::new())),
                Ok(Grip::Only(outside)) => {
                    queue.extend(&outside);
                    nodes.push(Node::new(case, root, &other.tree, outside));
                }
                Err(Blank::Ask(questions)) => asked.extend(questions),
                Err(Blank::Unknown(why)) => unknown = unknown.or(Some(why)),
            }
        }
    }
    if !asked.is_empty() {
        return Err(Blank::Ask(asked));
    }
    let inside = loop {
        let inside: BTreeSet<ProcessId> = nodes.iter().flat_map(|node| &node.inside).copied().collect();
        let before = nodes.len();
        nodes.retain(|node| node.outside.iter().all(|holder| inside.contains(holder)));
        if nodes.len() == before {
            break inside;
        }
    };
    if nodes.iter().any(|node| node.root == case.root.id) {
        return Ok(Finding::yes(if holders.is_empty() {
            format!("nobody but itself holds the other end of {} or {}", ends.reading(), ends.writing())
        } else {
            format!("{} is held only by other abandoned servers", ends.reading())
        }));
    }
    match (unknown, holders.iter().find(|holder| !inside.contains(holder))) {
        (Some(why), _) => Err(Blank::Unknown(why)),
        (None, Some(holder)) => Ok(Finding::no(format!(
            "process {holder} holds the other end of {} or {}",
            ends.reading(),
            ends.writing()
        ))),
        (None, None) => Ok(Finding::no(format!("{} is held", ends.reading()))),
    }
}

/// Weighs another tree as this one is weighed. It is in the set only if its own policy takes these ends alone for a
/// proof, since a program that works by itself uses what it holds; and if no veto keeps it.
fn grip_of(case: &Case<'_>, other: &Other, ends: Ends) -> Found<Grip> {
    let in_use = |why: &str| Ok(Grip::InUse(why.into()));
    let policy = case.config.policies.iter().find(|policy| policy.name == other.policy);
    let row = case.look.snapshot.table.get(other.root);
    let (Some(policy), Some(root), Standing::Judged) = (policy, row, other.standing) else {
        return in_use("it is not judged");
    };
    if !takes_for_proof(policy, ends) {
        return in_use("it may work by itself");
    }
    let there = Case { policy, root, captures: &other.captures, tree: &other.tree, ..*case };
    let grip = match grip(&there, ends)? {
        Grip::InUse(why) => return Ok(Grip::InUse(why)),
        grip @ (Grip::Nobody | Grip::Only(_)) => grip,
    };
    // Others are matched by text that may be stale.
    if !still_fits(policy, case.look, root, there.facts(root.id)?) {
        return in_use("it is another program now");
    }
    for veto in vetoes(&there, Clients::Served).map_err(Blank::Ask)? {
        match veto.says {
            Says::No => {}
            Says::Yes => return Ok(Grip::InUse(veto.why)),
            Says::Unknown => {
                let what = format!("whether process {} is kept ({})", other.root, veto.why);
                return Err(Unknown::new(Reason::NotAsked, what).into());
            }
        }
    }
    Ok(grip)
}

fn takes_for_proof(policy: &Policy, ends: Ends) -> bool {
    policy.reap_when.iter().any(|line| {
        let [only] = line.conditions.as_slice() else { return false };
        let settings = Settings(&only.settings);
        match only.rule {
            "stdin-abandoned" => (ends.read, ends.write) == (0, 1),
            "channel-abandoned" => {
                settings.number("read") == Some(ends.read.into())
                    && settings.number("write") == Some(ends.write.into())
            }
            _ => false,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::rules::support::{ROOT, Says, Scene, connection, id, listener, pipe, plain, stream};
    use crate::model::question::{Family, Peer, Question, TerminalFate};
    use crate::model::table::State;

    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[], expected);
    }

    /// Both far ends are gone.
    fn abandoned() -> Scene {
        Scene::orphan().fd(ROOT, 0, pipe(FarEnd::Gone)).fd(ROOT, 1, stream(FarEnd::Gone))
    }

    #[test]
    fn both_ends_gone_is_proof_a01_a02_a13() {
        check(&abandoned(), &Says::Yes("nobody holds the other end of its stdin"));
        check(&abandoned().fd(ROOT, 0, stream(FarEnd::Gone)), &Says::Yes("nobody holds"));
    }

    #[test]
    fn a_live_server_costs_one_question_a03_a05_a07() {
        let unasked = Scene::owned();
        check(&unasked, &Says::Asks(vec![Question::Channel { of: id(ROOT), fd: 0 }]));
        check(&unasked.fd(ROOT, 0, pipe(FarEnd::Held)), &Says::No("its parent 40 is alive"));
    }

    #[test]
    fn output_that_is_still_read_keeps_it_f3_a10() {
        for scene in [abandoned(), abandoned().process(40, 1).row(ROOT, |row| row.ppid = 40)] {
            let scene = scene.fd(ROOT, 1, pipe(FarEnd::Held)).held_by(ROOT, 1, &[60]).process(60, 1);
            let found = if scene.case(|case| case.root.ppid) == 1 {
                Says::No("process 60 holds the other end")
            } else {
                Says::No("its stdin ended, but its output is still read")
            };
            check(&scene, &found);
        }
    }

    #[test]
    fn output_that_somebody_may_read_later_keeps_it_b53_f3() {
        for (kind, why) in [
            (ChannelKind::File, "its output goes to a file"),
            (ChannelKind::Terminal(TerminalFate::Present), "its output goes to a terminal"),
            (ChannelKind::Null, "its output goes to /dev/null"),
            (ChannelKind::NamedFifo, "a named pipe"),
            (ChannelKind::Closed, "nowhere"),
        ] {
            check(&abandoned().fd(ROOT, 1, plain(kind)), &Says::No(why));
        }
    }

    #[test]
    fn an_input_that_somebody_may_still_open_keeps_it_f3() {
        for (kind, why) in [
            (ChannelKind::NamedFifo, "its stdin is a named pipe"),
            (ChannelKind::Listener, "its stdin is a listening socket"),
            (ChannelKind::Unconnected, "never had another end"),
            (ChannelKind::Null, "its stdin is /dev/null"),
            (ChannelKind::File, "its stdin is a file"),
            (ChannelKind::Closed, "closed"),
            (ChannelKind::Terminal(TerminalFate::Deleted), "its stdin is a terminal"),
            (ChannelKind::Other("anon_inode:[eventfd]".into()), "eventfd"),
        ] {
            check(&abandoned().fd(ROOT, 0, plain(kind)), &Says::No(why));
        }
    }

    #[test]
    fn an_end_that_only_members_hold_is_nobodys_unless_they_stay_behind() {
        let scene = |named: &[u8]| {
            abandoned()
                .fd(ROOT, 0, pipe(FarEnd::Held))
                .process(51, ROOT)
                .row(51, |row| row.comm[..named.len()].copy_from_slice(named))
                .held_by(ROOT, 0, &[51])
        };
        check(&scene(b"work"), &Says::Yes("nobody but itself holds"));
        check(&scene(b"ssh-agent"), &Says::No("process 51 holds the other end"));
        // As a member of another abandoned tree it stays behind just so.
        let other = |named: &[u8]| {
            scene(named)
                .row(51, |row| row.ppid = 61)
                .process(61, 1)
                .fd(61, 0, pipe(FarEnd::Gone))
                .fd(61, 1, pipe(FarEnd::Gone))
                .other("server", 61, &[61, 51], None)
        };
        check(&other(b"work"), &Says::Yes("held only by other abandoned servers"));
        check(&other(b"ssh-agent"), &Says::No("process 51 holds the other end"));
    }

    #[test]
    fn a_tree_that_can_be_reached_is_kept_b03_b05() {
        let child = abandoned().process(51, ROOT);
        for number in [ROOT, 51] {
            for family in [Family::Tcp, Family::Udp, Family::Unix, Family::UnixDatagram] {
                let scene = child.clone().sockets(number, vec![listener(family, "127.0.0.1:9222")], vec![]);
                check(&scene, &Says::No("can be reached at 127.0.0.1:9222"));
            }
        }
    }

    #[test]
    fn a_terminal_of_any_member_keeps_it_b34() {
        let scene = abandoned().process(51, ROOT).row(51, |row| row.tty = 34816);
        check(&scene, &Says::No("process 51 has a terminal"));
    }

    #[test]
    fn what_waits_unread_keeps_it_f3() {
        let mut channel = pipe(FarEnd::Gone);
        channel.unread = Ok(7);
        check(&abandoned().fd(ROOT, 0, channel.clone()), &Says::No("7 bytes still wait"));
        channel.unread = Err(Unknown::new(Reason::Denied, "how much waits"));
        check(&abandoned().fd(ROOT, 0, channel), &Says::Unknown("how much waits"));
    }

    #[test]
    fn what_could_not_be_read_is_never_proof_b18_b24() {
        let mut silent = pipe(FarEnd::Gone);
        silent.far = Err(Unknown::new(Reason::Unsupported, "the peer"));
        for fd in [0, 1] {
            check(&abandoned().fd(ROOT, fd, silent.clone()), &Says::Unknown("the peer"));
            let question = Question::Channel { of: id(ROOT), fd };
            check(&abandoned().refused(question, Reason::Denied), &Says::Unknown("refused"));
        }
        let sockets = Question::Sockets(id(ROOT));
        check(&abandoned().refused(sockets, Reason::Denied), &Says::Unknown("refused"));
    }

    #[test]
    fn a_private_listener_is_no_way_in_but_its_client_breaks_a_set_m4() {
        let name = "/run/own.sock";
        let serving = |scene: Scene, number, peer| {
            let connections = vec![connection(Family::Unix, name, peer)];
            scene.private(name).sockets(number, vec![listener(Family::Unix, name)], connections)
        };
        check(&serving(abandoned(), ROOT, Peer::Gone), &Says::Yes("nobody holds"));
        check(&serving(ring(), 60, Peer::Gone), &Says::Yes("held only by"));
        check(&serving(ring(), 60, Peer::Inode(4)), &Says::No("process 60 holds"));
    }

    /// Two orphans, 50 and 60; each of them holds both pipes of the other.
    fn ring() -> Scene {
        [ROOT, 60].into_iter().fold(Scene::orphan().process(60, 1), |scene, number| {
            scene
                .fd(number, 0, pipe(FarEnd::Held))
                .fd(number, 1, pipe(FarEnd::Gone))
                .held_by(number, 0, &[ROOT, 60])
                .other("server", number, &[number], None)
        })
    }

    #[test]
    fn a_closed_set_is_found_a32_m4() {
        check(&ring(), &Says::Yes("held only by other abandoned servers"));
        let alone = Scene::orphan().fd(ROOT, 0, pipe(FarEnd::Held)).fd(ROOT, 1, pipe(FarEnd::Gone));
        check(&alone.held_by(ROOT, 0, &[ROOT]), &Says::Yes("nobody but itself"));
    }

    #[test]
    fn who_is_alive_breaks_the_set_m4() {
        check(&ring().held_by(60, 0, &[ROOT, 60, 70]).process(70, 1), &Says::No("process 60 holds"));
        check(&ring().held_by(ROOT, 0, &[70]).process(70, 1), &Says::No("process 70 holds"));
        let owned = ring().process(40, 1).row(60, |row| row.ppid = 40);
        check(&owned, &Says::No("process 60 holds"));
        check(&ring().row(60, |row| row.tty = 1), &Says::No("process 60 holds"));
        let reached = ring().sockets(60, vec![listener(Family::Tcp, "[::]:80")], vec![]);
        check(&reached, &Says::No("process 60 holds"));
        check(&ring().fd(60, 1, plain(ChannelKind::File)), &Says::No("process 60 holds"));
    }

    #[test]
    fn who_is_unknown_breaks_the_set_m4() {
        check(&ring().census(ROOT, 0, &[60], Census::Partial(3)), &Says::Unknown("for 3 processes"));
        check(&ring().census(60, 0, &[ROOT], Census::Partial(3)), &Says::Unknown("for 3 processes"));
        check(&ring().held_by(ROOT, 0, &[]), &Says::Unknown("who holds the other end"));
        let refused = Question::Channel { of: id(60), fd: 0 };
        check(&ring().refused(refused, Reason::Denied), &Says::Unknown("refused"));
        check(&ring().row(ROOT, |row| row.ppid = 0), &Says::Unknown("its parent"));
    }

    #[test]
    fn who_is_protected_or_matched_by_no_policy_breaks_the_set_m4() {
        let scene = |standing, policy| {
            Scene::orphan()
                .process(60, 1)
                .fd(ROOT, 0, pipe(FarEnd::Held))
                .fd(ROOT, 1, pipe(FarEnd::Gone))
                .held_by(ROOT, 0, &[60])
                .fd(60, 0, pipe(FarEnd::Gone))
                .fd(60, 1, pipe(FarEnd::Gone))
                .other_as(policy, 60, &[60], None, standing)
        };
        check(&scene(Standing::Judged, "server"), &Says::Yes("held only by"));
        check(&scene(Standing::Protected, "server"), &Says::No("process 60 holds"));
        check(&scene(Standing::Judged, "off"), &Says::No("process 60 holds"));
        // A policy that asks for more knows that the program may go on by itself.
        check(&scene(Standing::Judged, "picky"), &Says::No("process 60 holds"));
    }

    #[test]
    fn who_is_kept_stopped_or_another_program_by_now_breaks_the_set_m4() {
        let marked = ring().facts(60, |facts| {
            facts.env = Ok([("REAPD_KEEP".into(), "1".into())].into());
        });
        check(&marked, &Says::No("process 60 holds"));
        check(&ring().row(60, |row| row.state = State::Stopped), &Says::No("process 60 holds"));
        let other = ring().facts(60, |facts| facts.argv = Ok(vec!["analysis".into()]));
        check(&other, &Says::No("process 60 holds"));
        let unread =
            ring().facts(60, |facts| facts.env = Err(Unknown::new(Reason::Denied, "its environment")));
        check(&unread, &Says::Unknown("whether process 60 is kept"));
    }

    #[test]
    fn a_set_asks_only_for_those_it_hangs_on_m4() {
        let scene = ring().unasked(&Question::Channel { of: id(60), fd: 0 }).process(80, 1);
        let scene = scene.other("server", 80, &[80], None);
        check(&scene, &Says::Asks(vec![Question::Channel { of: id(60), fd: 0 }]));
        let owned = ring().process(40, 1).row(ROOT, |row| row.ppid = 40);
        check(&owned.unasked(&Question::Holders { of: id(ROOT), fd: 0 }), &Says::No("its parent 40"));
    }
}
