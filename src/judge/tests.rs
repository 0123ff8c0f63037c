//! Tests of the whole of judge: what keeps a tree though a line holds, and what is remembered between looks.
//!
//! The policy of most of these is as greedy as the language allows, a mere sign without proof, so that it is the gate
//! under test that keeps the tree, and nothing else.

use std::collections::BTreeMap;
use std::time::Duration;

use bstr::{BString, ByteSlice as _};

use crate::config::policy::{AdmitEnv, Condition, Config, Detached, Glob, Line, ProofNeed, Setting};
use crate::model::evidence::Says;
use crate::model::facts::{Executable, Freezer};
use crate::model::id::{BootId, FileId, Uid};
use crate::model::keep::{KeepMark, Kept};
use crate::model::known::{Reason, Unknown};
use crate::model::look::{Look, Scope};
use crate::model::moment::Moment;
use crate::model::question::{Answer, ChannelKind, Connection, Family, FarEnd, Listener, Peer, Question};
use crate::model::rule::Strength;
use crate::model::table::{Kernel, Row, State};
use crate::model::verdict::{Judgement, LineList, Lookalike, Mode, Verdict};

mod interleaved;
mod servers;

use super::ledger::{Begun, Rearm};
use super::rules::support::{ROOT, Scene, config, connection, id, listener, pipe, plain};
use super::{Candidates, Ledger, candidates, judge, protect, questions};

/// One policy, one line, one sign: whoever was adopted.
pub(super) fn greedy() -> Config {
    let mut config = config(&[]);
    config.policies.truncate(1);
    config.policies[0].proof = ProofNeed::Waived;
    config.policies[0].reap_when = vec![sign("reparented")];
    config
}

fn sign(rule: &'static str) -> Line {
    let condition = Condition { rule, strength: Strength::Sign, settings: BTreeMap::new() };
    Line { conditions: vec![condition], by_knowledge: None }
}

fn seen(look: &Look, config: &Config, ledger: &mut Ledger) -> Option<Judgement> {
    ledger.begin(look, &config.confirm);
    let candidates = candidates(look, config);
    let look = &with_plain_ends(look, &candidates);
    assert_eq!(questions(look, config, &candidates, ledger), [], "the scene answers everything");
    let (verdicts, notes) = judge(look, config, &candidates, ledger);
    ledger.remember(look, &candidates, &verdicts, &notes);
    verdicts.judgements.into_iter().find(|judgement| judgement.root == id(ROOT))
}

/// Gives every member of a tree of several an open /dev/null for stdin and stdout, where the scene says nothing of it:
/// whom a policy matches within a tree is asked for that (see `inner`).
pub(super) fn with_plain_ends(look: &Look, candidates: &Candidates) -> Look {
    let mut look = look.clone();
    for candidate in candidates.list.iter().filter(|candidate| candidate.tree.len() > 1) {
        for (&of, fd) in candidate.tree.iter().flat_map(|of| [(of, 0), (of, 1)]) {
            let channel = Answer::Channel(plain(ChannelKind::Null));
            look.answers.entry(Question::Channel { of, fd }).or_insert(Ok(channel));
        }
    }
    look
}

fn one(scene: &Scene, config: &Config) -> Judgement {
    seen(&scene.look(), config, &mut Ledger::default()).unwrap()
}

fn is_suspect(judgement: &Judgement) -> bool {
    matches!(judgement.verdict, Verdict::Suspect { looks: 1, .. })
}

#[track_caller]
fn kept_by(veto: &str, says: Says, scene: &Scene) {
    assert!(is_suspect(&one(&Scene::orphan(), &greedy())), "the twin without the veto is suspected");
    let judgement = one(scene, &greedy());
    let last = judgement.vetoes.last().unwrap();
    assert_eq!((last.rule.as_str(), last.says), (veto, says), "{}", last.why);
    let expected = match says {
        Says::Unknown => Verdict::Unknown,
        Says::Yes if matches!(veto, "kept" | "foreign") => Verdict::Protected,
        Says::Yes | Says::No => Verdict::Alive,
    };
    assert_eq!(judgement.verdict, expected);
    assert_eq!(judgement.lookalike, Some(Lookalike::Vetoed(veto.to_owned())));
}

fn refused<T>() -> Result<T, Unknown> {
    Err(Unknown::new(Reason::Denied, "it"))
}

fn env(pairs: &[(&str, &str)]) -> BTreeMap<BString, BString> {
    pairs.iter().map(|&(name, value)| (name.into(), value.into())).collect()
}

#[test]
fn another_pid_namespace_keeps_b25_b27_b50() {
    let foreign = |scene: Scene| scene.facts(ROOT, |facts| facts.namespaces.as_mut().unwrap().pid = 2);
    kept_by("foreign", Says::Yes, &foreign(Scene::orphan()));
    kept_by("foreign", Says::Unknown, &Scene::orphan().facts(ROOT, |facts| facts.namespaces = refused()));
}

#[test]
fn a_keep_marker_in_the_environment_keeps() {
    let marked = |value| Scene::orphan().facts(ROOT, |facts| facts.env = Ok(env(&[("REAPD_KEEP", value)])));
    kept_by("kept", Says::Yes, &marked("1"));
    assert!(is_suspect(&one(&marked("0"), &greedy())));
    assert!(is_suspect(&one(&marked(""), &greedy())));
    kept_by("kept", Says::Unknown, &Scene::orphan().facts(ROOT, |facts| facts.env = refused()));
}

#[test]
fn stopped_keeps() {
    kept_by("stopped", Says::Yes, &Scene::orphan().row(ROOT, |row| row.state = State::Stopped));
    let member = Scene::orphan().process(60, ROOT).row(60, |row| row.state = State::Stopped);
    kept_by("stopped", Says::Yes, &member);
}

#[test]
fn traced_keeps() {
    kept_by("traced", Says::Yes, &Scene::orphan().facts(ROOT, |facts| facts.tracer = Ok(Some(id(70).pid))));
    kept_by("traced", Says::Unknown, &Scene::orphan().facts(ROOT, |facts| facts.tracer = refused()));
    let member = Scene::orphan().process(60, ROOT).facts(60, |facts| facts.tracer = Ok(Some(id(70).pid)));
    kept_by("traced", Says::Yes, &member);
}

#[test]
fn frozen_keeps_b39() {
    kept_by("frozen", Says::Yes, &Scene::orphan().facts(ROOT, |facts| facts.freezer = Ok(Freezer::Frozen)));
    kept_by("frozen", Says::Unknown, &Scene::orphan().facts(ROOT, |facts| facts.freezer = refused()));
}

#[test]
fn a_units_main_process_is_kept_b02_b44() {
    let unit = "/user.slice/user@1000.service/app.slice/work.service";
    let in_unit = |vars: &[(&str, &str)]| {
        let vars = env(vars);
        Scene::orphan().facts(ROOT, move |facts| {
            facts.cgroup = Ok(unit.into());
            facts.env = Ok(vars);
        })
    };
    // Started by systemd itself; started by nobody we know of; started by one that is gone (Type=forking).
    kept_by("unit", Says::Yes, &in_unit(&[("SYSTEMD_EXEC_PID", "50")]));
    kept_by("unit", Says::Yes, &in_unit(&[]));
    kept_by("unit", Says::Yes, &in_unit(&[("SYSTEMD_EXEC_PID", "77")]));
    kept_by("unit", Says::Unknown, &Scene::orphan().facts(ROOT, |facts| facts.cgroup = refused()));
    // A leftover of a unit whose main process lives beside it is not the unit: an editor that was started as one.
    let beside = in_unit(&[("SYSTEMD_EXEC_PID", "40")])
        .process(40, 1)
        .facts(40, |facts| facts.cgroup = Ok(unit.into()));
    assert!(is_suspect(&one(&beside, &greedy())));
    // The cgroup that `reapd run` makes inside of the unit's holds helpers only.
    let run = beside.clone().facts(ROOT, |facts| facts.cgroup = Ok(format!("{unit}/reapd-run-a").into()));
    assert!(is_suspect(&one(&run, &greedy())));
    let inner = beside.clone().facts(ROOT, |facts| facts.cgroup = Ok(format!("{unit}/inner").into()));
    kept_by("unit", Says::Yes, &inner);
    let elsewhere = in_unit(&[("SYSTEMD_EXEC_PID", "40")]).process(40, 1);
    kept_by("unit", Says::Yes, &elsewhere);
    // A corpse keeps nobody's place, and whoever is younger than the leftover only took over the number.
    kept_by("unit", Says::Yes, &beside.dead(40));
    let younger = in_unit(&[("SYSTEMD_EXEC_PID", "60")])
        .process(60, 1)
        .facts(60, |facts| facts.cgroup = Ok(unit.into()));
    kept_by("unit", Says::Yes, &younger);
    // A terminal's scope, and the user's manager itself, are no service.
    for scope in [
        "/user.slice/user@1000.service/app.slice/app-term.scope",
        "/user.slice/user@1000.service/session.slice",
        "/",
    ] {
        let scene = Scene::orphan().facts(ROOT, |facts| facts.cgroup = Ok(scope.into()));
        assert!(is_suspect(&one(&scene, &greedy())), "{scope}");
    }
    let job = Scene::orphan().facts(ROOT, |facts| {
        facts.env = Ok(env(&[("XPC_SERVICE_NAME", "org.example.agent")]));
    });
    kept_by("unit", Says::Yes, &job);
}

#[test]
fn a_terminal_that_others_work_in_keeps_b01_b11_b43() {
    let pane = |tty| Scene::orphan().serves(ROOT, &[34_817]).process(70, 1).row(70, move |row| row.tty = tty);
    kept_by("terminal-master", Says::Yes, &pane(34_817));
    assert!(is_suspect(&one(&pane(34_818), &greedy())), "another terminal is none of its business");
    // A member that stays behind works in it too, unless one that stays behind serves it.
    let member = |holder, named: &[u8]| {
        Scene::orphan()
            .process(60, ROOT)
            .process(61, 60)
            .row(60, |row| row.comm[..named.len()].copy_from_slice(named))
            .row(61, |row| row.tty = 34_817)
            .serves(holder, &[34_817])
    };
    assert!(is_suspect(&one(&member(ROOT, b"work"), &greedy())));
    kept_by("terminal-master", Says::Yes, &member(ROOT, b"screen"));
    assert!(is_suspect(&one(&member(60, b"screen"), &greedy())));
    let unknown = Scene::orphan().refused(Question::Terminals(id(ROOT)), Reason::Denied);
    kept_by("terminal-master", Says::Unknown, &unknown);
}

#[test]
fn a_connected_client_keeps_b03() {
    let served = |peer| {
        Scene::orphan().sockets(
            ROOT,
            vec![listener(Family::Unix, "/run/x.sock")],
            vec![connection(Family::Unix, "/run/x.sock", peer)],
        )
    };
    kept_by("clients", Says::Yes, &served(Peer::Inode(900)));
    kept_by("clients", Says::Unknown, &served(Peer::Unknown));
    assert!(is_suspect(&one(&served(Peer::Gone), &greedy())), "a client that is gone is none (M3)");
    assert!(is_suspect(&one(&served(Peer::Inode(71)), &greedy())), "nor is a member (M3)");
    // A server of one client closes its listener; who calls somebody else is no server.
    let alone = |family, name: &str, peer| {
        Scene::orphan().sockets(ROOT, Vec::new(), vec![connection(family, name, peer)])
    };
    kept_by("clients", Says::Yes, &alone(Family::Unix, "/run/x.sock", Peer::Inode(900)));
    let remote = || Peer::Remote("127.0.0.1:50000".into());
    kept_by("clients", Says::Yes, &alone(Family::Tcp, "127.0.0.1:9229", remote()));
    assert!(is_suspect(&one(&alone(Family::Unix, "", Peer::Inode(900)), &greedy())));
    assert!(is_suspect(&one(&alone(Family::Tcp, "10.0.0.2:41000", remote()), &greedy())));
    let mut waiting = listener(Family::Unix, "/run/x.sock");
    waiting.pending = 1;
    kept_by("clients", Says::Yes, &Scene::orphan().sockets(ROOT, vec![waiting], Vec::new()));
    let closed = Scene::orphan().refused(Question::Sockets(id(ROOT)), Reason::Denied);
    kept_by("clients", Says::Unknown, &closed);
}

#[test]
fn a_member_that_stays_behind_is_a_client_like_any_other() {
    // The root serves 60 that it started, and 61 below that.
    let scene = |peers: &[u64], named: &[u8]| {
        let served = |&peer: &u64| connection(Family::Unix, "/run/x.sock", Peer::Inode(peer));
        let calls = |inode| Connection { inode, ..connection(Family::Unix, "", Peer::Inode(71)) };
        Scene::orphan()
            .process(60, ROOT)
            .process(61, 60)
            .row(60, |row| row.comm[..named.len()].copy_from_slice(named))
            .row(60, |row| row.sid = ROOT)
            .row(61, |row| row.sid = ROOT)
            .sockets(ROOT, vec![listener(Family::Unix, "/run/x.sock")], peers.iter().map(served).collect())
            .sockets(60, Vec::new(), vec![calls(900)])
            .sockets(61, Vec::new(), vec![calls(901)])
    };
    assert!(is_suspect(&one(&scene(&[900, 901], b"work"), &greedy())), "both would go with it (M3)");
    assert!(is_suspect(&one(&scene(&[], b"ssh-agent"), &greedy())), "it stays behind, and is not connected");
    kept_by("clients", Says::Yes, &scene(&[900], b"ssh-agent"));
    kept_by("clients", Says::Yes, &scene(&[901], b"ssh-agent"));
    // So is whom a person keeps, and of whom it cannot be told.
    let marked = scene(&[900], b"work").facts(60, |facts| facts.env = Ok(env(&[("REAPD_KEEP", "1")])));
    kept_by("clients", Says::Yes, &marked);
    let inner = scene(&[900], b"work").facts(61, |facts| facts.env = Ok(env(&[("REAPD_KEEP", "1")])));
    assert!(is_suspect(&one(&inner, &greedy())), "60 goes, whoever below it stays");
    // Who is connected to whom among those that stay is not this tree's matter.
    let among = scene(&[], b"ssh-agent").sockets(
        60,
        vec![listener(Family::Unix, "/run/agent.sock")],
        vec![connection(Family::Unix, "/run/agent.sock", Peer::Inode(901))],
    );
    assert!(is_suspect(&one(&among, &greedy())));
}

#[test]
fn a_member_that_stands_on_its_own_is_a_client_too() {
    // 60 leads a session of its own.
    let scene = |change: fn(&mut Row), listeners: Vec<Listener>| {
        Scene::orphan()
            .process(60, ROOT)
            .row(60, |row| row.sid = 60)
            .row(60, change)
            .sockets(
                ROOT,
                vec![listener(Family::Unix, "/run/x.sock")],
                vec![connection(Family::Unix, "/run/x.sock", Peer::Inode(900))],
            )
            .sockets(
                60,
                listeners,
                vec![Connection { inode: 900, ..connection(Family::Unix, "", Peer::Inode(71)) }],
            )
    };
    let reached = || vec![listener(Family::Unix, "/run/y.sock")];
    kept_by("clients", Says::Yes, &scene(|_| {}, reached()));
    kept_by("clients", Says::Yes, &scene(|row| row.tty = 34_817, Vec::new()));
    assert!(is_suspect(&one(&scene(|_| {}, Vec::new()), &greedy())));
    assert!(is_suspect(&one(&scene(|row| row.sid = ROOT, reached()), &greedy())));
    let mut joining = greedy();
    joining.policies[0].detached = Detached::Join;
    assert!(is_suspect(&one(&scene(|_| {}, reached()), &joining)), "this policy takes it along");
}

#[test]
fn a_loopback_client_that_stays_behind_keeps() {
    let scene = |named: &[u8]| {
        let tcp = |here: &str, there: &str| connection(Family::Tcp, here, Peer::Remote(there.into()));
        Scene::orphan()
            .process(60, ROOT)
            .row(60, |row| row.comm[..named.len()].copy_from_slice(named))
            .sockets(
                ROOT,
                vec![listener(Family::Tcp, "127.0.0.1:9229")],
                vec![tcp("127.0.0.1:9229", "127.0.0.1:50000")],
            )
            .sockets(60, Vec::new(), vec![tcp("127.0.0.1:50000", "127.0.0.1:9229")])
    };
    assert!(is_suspect(&one(&scene(b"work"), &greedy())), "both ends would go (M3)");
    kept_by("clients", Says::Yes, &scene(b"tmux: server"));
}

#[test]
fn who_is_in_the_session_of_one_that_stays_behind_stays_too() {
    // 60 leads a session below the root, and 70 of that session was adopted.
    let scene = |named: &[u8]| {
        Scene::orphan()
            .process(60, ROOT)
            .process(70, 1)
            .row(60, |row| row.comm[..named.len()].copy_from_slice(named))
            .row(60, |row| row.sid = 60)
            .row(70, |row| row.sid = 60)
            .sockets(
                ROOT,
                vec![listener(Family::Unix, "/run/x.sock")],
                vec![connection(Family::Unix, "/run/x.sock", Peer::Inode(900))],
            )
            .sockets(
                70,
                Vec::new(),
                vec![Connection { inode: 900, ..connection(Family::Unix, "", Peer::Inode(71)) }],
            )
    };
    assert!(is_suspect(&one(&scene(b"work"), &greedy())));
    kept_by("clients", Says::Yes, &scene(b"tmux: server"));
}

#[test]
fn a_spare_line_keeps_and_so_does_not_knowing() {
    let mut config = greedy();
    config.policies[0].spare_when = vec![sign("no-children")];
    let judgement = one(&Scene::orphan(), &config);
    assert_eq!(judgement.verdict, Verdict::Alive);
    assert!(judgement.lines.iter().any(|line| line.list == LineList::SpareWhen && line.says == Says::Yes));
    // Nobody can tell since when it is quiet.
    config.policies[0].spare_when = vec![sign("no-such-rule")];
    assert_eq!(one(&Scene::orphan(), &config).verdict, Verdict::Unknown);
}

#[test]
fn what_a_person_keeps_is_kept() {
    let look = |what| {
        let mut look = Scene::orphan().process(60, ROOT).look();
        look.marks = vec![KeepMark { what, until: None, set: 0, note: None }];
        look
    };
    let of = |look: &Look, config: &Config| seen(look, config, &mut Ledger::default()).unwrap().verdict;
    let boot = || BootId("boot".into());
    let process = |boot, number| Kept::Process { boot, id: id(number), name: "x".into() };
    assert_eq!(of(&look(process(boot(), ROOT)), &greedy()), Verdict::Protected);
    assert!(matches!(of(&look(process(boot(), 77)), &greedy()), Verdict::Suspect { .. }));
    assert!(
        matches!(of(&look(process(BootId("other".into()), ROOT)), &greedy()), Verdict::Suspect { .. }),
        "a mark of another boot names somebody else"
    );
    assert_eq!(of(&look(Kept::Directory { path: "/".into() }), &greedy()), Verdict::Protected);
    assert!(matches!(of(&look(Kept::Directory { path: "/srv".into() }), &greedy()), Verdict::Suspect { .. }));
    let mut past = look(process(boot(), ROOT));
    past.marks[0].until = Some(1);
    assert!(matches!(of(&past, &greedy()), Verdict::Suspect { .. }), "a mark that has run out");

    let mut config = greedy();
    config.keep.programs = vec![Glob::parse("serv*").unwrap()];
    assert_eq!(one(&Scene::orphan(), &config).verdict, Verdict::Protected);
    let mut config = greedy();
    config.keep.directories = vec!["/home".into()];
    assert!(is_suspect(&one(&Scene::orphan(), &config)));
    let unreadable = Scene::orphan().facts(ROOT, |facts| facts.cwd = refused());
    assert_eq!(one(&unreadable, &config).verdict, Verdict::Unknown, "B24: where it stands cannot be told");
}

#[test]
fn kept_directories_end_at_element_borders_b31() {
    let below = |path: &str, directory: &str| protect::at_or_below(path.into(), directory.into());
    assert!(below("/srv/a", "/srv/a"));
    assert!(below("/srv/a/b", "/srv/a/"));
    assert!(!below("/srv/a-b", "/srv/a"));
    assert!(below("/x", "/"));
}

#[test]
fn never_touched_whatever_the_policy_says() {
    let gone = |scene: Scene| seen(&scene.look(), &greedy(), &mut Ledger::default()).is_none();
    assert!(gone(Scene::orphan().row(ROOT, |row| row.sid = 99)), "our own session");
    assert!(gone(Scene::orphan().process(99, ROOT)), "an ancestor of ours (B56, C36)");
    assert!(gone(Scene::orphan().row(ROOT, |row| row.kernel = Kernel::Thread)));
    assert!(gone(Scene::orphan().dead(ROOT)), "a corpse is nobody");
    let mut own = Scene::orphan().look();
    (own.snapshot.own.pid, own.snapshot.own.sid) = (id(ROOT).pid, 0);
    assert!(seen(&own, &greedy(), &mut Ledger::default()).is_none(), "reapd itself, whatever its session");
    let look = Scene::orphan().look();
    let first = protect::Fixed::new(&look).protects(&look, look.snapshot.table.at(id(1).pid).unwrap());
    assert_eq!(first.as_deref(), Some("it is the first process"));
    for name in ["tmux: server", "sshd", "containerd-shim", "containerd-shim-runc-v2", "systemd", "gpg-agent"]
    {
        let named = Scene::orphan().row(ROOT, |row| {
            let length = name.len().min(15);
            row.comm = [0; 16];
            row.comm[..length].copy_from_slice(&name.as_bytes()[..length]);
        });
        assert!(gone(named), "{name} (B49, C13)");
    }
    let mut others = Scene::orphan().look();
    others.snapshot.arguments.iter_mut().for_each(|arguments| arguments.uid = Uid(1001));
    assert!(seen(&others, &greedy(), &mut Ledger::default()).is_none(), "another user's");
    others.snapshot.own.scope = Scope::Host;
    assert!(seen(&others, &greedy(), &mut Ledger::default()).is_some());
}

#[test]
fn a_shared_daemon_by_its_executable_is_kept_b49() {
    let agent = Scene::orphan().facts(ROOT, |facts| {
        facts.exe = Ok(Executable { path: "/usr/bin/gpg-agent".into(), file: FileId { dev: 8, ino: 4 } });
    });
    kept_by("kept", Says::Yes, &agent);
}

#[test]
fn only_what_carries_the_mark_is_looked_at() {
    let mut config = greedy();
    config.scope = AdmitEnv::Marked { name: "NONCE".into(), value: "7".into() };
    let with = |vars: &[(&str, &str)]| {
        let vars = env(vars);
        Scene::orphan().facts(ROOT, move |facts| facts.env = Ok(vars))
    };
    let looked_at = |scene: Scene| seen(&scene.look(), &config, &mut Ledger::default()).is_some();
    assert!(looked_at(with(&[("NONCE", "7")])));
    assert!(!looked_at(with(&[("NONCE", "77")])));
    assert!(!looked_at(with(&[])));
    assert!(!looked_at(Scene::orphan().facts(ROOT, |facts| facts.env = refused())));
    assert!(!looked_at(Scene::orphan().refused(Question::Facts(id(ROOT)), Reason::Denied)));
}

#[test]
fn a_line_of_signs_alone_never_holds_unless_waived() {
    let mut config = greedy();
    config.policies[0].proof = ProofNeed::Required;
    assert_eq!(one(&Scene::orphan(), &config).verdict, Verdict::Alive);
}

#[test]
fn younger_than_the_age_floor_is_kept() {
    let age = |span: Duration| {
        let began = Moment(0).plus(Duration::from_hours(2)).minus(span);
        one(&Scene::orphan().row(ROOT, |row| row.began = began), &greedy())
    };
    assert_eq!(age(Duration::from_secs(59)).verdict, Verdict::Alive);
    assert!(is_suspect(&age(Duration::from_mins(1))));
}

#[test]
fn an_unreadable_root_is_unknown_and_a_vanished_one_is_nobody() {
    let scene = |reason| Scene::orphan().refused(Question::Facts(id(ROOT)), reason);
    assert_eq!(one(&scene(Reason::Denied), &greedy()).verdict, Verdict::Unknown);
    assert!(seen(&scene(Reason::Vanished).look(), &greedy(), &mut Ledger::default()).is_none());
    let argv = Scene::orphan().facts(ROOT, |facts| facts.argv = refused());
    assert_eq!(one(&argv, &greedy()).verdict, Verdict::Unknown);
    let other = Scene::orphan().facts(ROOT, |facts| facts.argv = Ok(vec!["editor".into()]));
    assert!(seen(&other.look(), &greedy(), &mut Ledger::default()).is_none(), "it fits no more");
}

#[test]
fn unanswered_questions_leave_a_tree_unknown() {
    let scene = Scene::orphan().unasked(&Question::Sockets(id(ROOT)));
    let (look, config) = (scene.look(), greedy());
    let candidates = candidates(&look, &config);
    let ledger = Ledger::default();
    assert_eq!(questions(&look, &config, &candidates, &ledger), [Question::Sockets(id(ROOT))]);
    let (verdicts, _) = judge(&look, &config, &candidates, &ledger);
    assert_eq!(verdicts.judgements[0].verdict, Verdict::Unknown);
}

#[test]
fn a_live_tree_costs_two_questions() {
    let scene = Scene::owned()
        .unasked(&Question::Sockets(id(ROOT)))
        .unasked(&Question::Terminals(id(ROOT)))
        .fd(ROOT, 0, pipe(FarEnd::Held));
    let (look, config) = (scene.look(), config(&[]));
    let found = questions(&look, &config, &candidates(&look, &config), &Ledger::default());
    assert_eq!(found, [], "facts and its stdin are all that was needed");
}

/// Judges the same scene at these seconds, with one ledger, and returns the last verdict.
fn at(seconds: &[u64], scene: &Scene) -> Verdict {
    let mut ledger = Ledger::default();
    let mut verdict = Verdict::Alive;
    for &second in seconds {
        let now = Moment(0).plus(Duration::from_hours(2)).plus(Duration::from_secs(second));
        verdict = seen(&scene.clone().now(now).look(), &greedy(), &mut ledger).unwrap().verdict;
    }
    verdict
}

fn is_orphaned(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Orphaned { .. })
}

#[test]
fn two_looks_far_enough_apart_confirm() {
    let scene = Scene::orphan();
    assert!(!is_orphaned(&at(&[0], &scene)));
    assert!(is_orphaned(&at(&[0, 10], &scene)));
    assert!(!is_orphaned(&at(&[0, 9], &scene)), "too close together");
    assert!(!is_orphaned(&at(&[0, 4, 9], &scene)), "close ones count once");
    assert!(is_orphaned(&at(&[0, 4, 10], &scene)));
    assert!(is_orphaned(&at(&[0, 10, 11], &scene)), "the re-check right before the signal");
}

#[test]
fn who_cannot_be_told_from_a_successor_is_unknown_and_never_suspect_c07() {
    let scene = Scene::orphan().facts(ROOT, |facts| facts.exe = refused());
    let judgement = one(&scene, &greedy());
    assert_eq!((&judgement.verdict, &judgement.lookalike), (&Verdict::Unknown, &None));
    assert!(
        judgement.because.ends_with("but who it is cannot be told (it: the kernel refused)"),
        "{}",
        judgement.because
    );
    assert_eq!(at(&[0, 10, 20], &scene), Verdict::Unknown);
    assert!(is_orphaned(&at(&[0, 10, 20], &Scene::orphan())), "the twin with an executable is confirmed");
}

#[test]
fn a_look_in_between_that_disagrees_starts_anew() {
    let mut ledger = Ledger::default();
    let mut look = |second: u64, scene: Scene| {
        let now = Moment(0).plus(Duration::from_hours(2)).plus(Duration::from_secs(second));
        seen(&scene.now(now).look(), &greedy(), &mut ledger).unwrap().verdict
    };
    look(0, Scene::orphan());
    look(10, Scene::orphan().row(ROOT, |row| row.state = State::Stopped));
    assert!(!is_orphaned(&look(20, Scene::orphan())));
    assert!(is_orphaned(&look(30, Scene::orphan())));
}

#[test]
fn another_process_behind_the_same_number_and_tick_starts_anew_c07() {
    for change in [
        (|facts: &mut crate::model::facts::Facts| facts.unique = Some(2)) as fn(&mut _),
        |facts| facts.exe = Ok(Executable { path: "/x".into(), file: FileId { dev: 8, ino: 99 } }),
        |facts| facts.uid = Ok(Uid(0)),
        |facts| facts.exe = refused(),
    ] {
        let mut ledger = Ledger::default();
        let base = Scene::orphan().facts(ROOT, |facts| facts.unique = Some(1));
        seen(&base.look(), &greedy(), &mut ledger);
        let later = Moment(0).plus(Duration::from_hours(2)).plus(Duration::from_secs(10));
        let verdict = seen(&base.facts(ROOT, change).now(later).look(), &greedy(), &mut ledger).unwrap();
        assert!(!is_orphaned(&verdict.verdict));
    }
}

#[test]
fn the_same_line_must_hold_at_each_look() {
    let mut config = greedy();
    config.policies[0].reap_when = vec![sign("no-children"), sign("reparented")];
    let mut ledger = Ledger::default();
    let later = Moment(0).plus(Duration::from_hours(2)).plus(Duration::from_secs(10));
    seen(&Scene::orphan().look(), &config, &mut ledger);
    let other = Scene::orphan().process(60, ROOT).now(later).look();
    assert!(!is_orphaned(&seen(&other, &config, &mut ledger).unwrap().verdict));
}

fn begun_after(change: impl FnOnce(&mut Look)) -> Begun {
    let mut ledger = Ledger::default();
    let config = greedy();
    seen(&Scene::orphan().look(), &config, &mut ledger);
    let later = Moment(0).plus(Duration::from_hours(2)).plus(Duration::from_secs(30));
    let mut look = Scene::orphan().now(later).look();
    change(&mut look);
    let begun = ledger.begin(&look, &config.confirm);
    let candidates = candidates(&look, &config);
    let (verdicts, _) = judge(&look, &config, &candidates, &ledger);
    let confirmed = is_orphaned(&verdicts.judgements[0].verdict);
    assert_eq!(confirmed, begun == Begun::Continued, "{begun:?}");
    begun
}

#[test]
fn a_suspend_a_clock_step_oversleeping_and_a_reboot_re_arm_b17_b19_b22_f13() {
    assert_eq!(begun_after(|_| {}), Begun::Continued);
    let hour = 3_600_000_000_000;
    assert_eq!(
        begun_after(|look| {
            // An hour in which only the boot clock and the wall clock went on.
            look.snapshot.began.boot.0 += hour;
            look.snapshot.began.wall += 3_600_000;
        }),
        Begun::Rearmed(Rearm::Suspend)
    );
    assert_eq!(begun_after(|look| look.snapshot.began.wall += 3_600_000), Begun::Rearmed(Rearm::ClockStep));
    assert_eq!(begun_after(|look| look.snapshot.began.wall -= 10_000), Begun::Rearmed(Rearm::ClockStep));
    assert_eq!(
        begun_after(|look| {
            look.snapshot.began.boot.0 += hour;
            look.snapshot.began.monotonic += hour;
            look.snapshot.began.wall += 3_600_000;
        }),
        Begun::Rearmed(Rearm::Overslept)
    );
    assert_eq!(begun_after(|look| look.snapshot.boot = BootId("next".into())), Begun::Fresh);
    // Clocks that run backwards within one boot were not read from it.
    let minute = 60_000_000_000;
    let step = Begun::Rearmed(Rearm::ClockStep);
    assert_eq!(begun_after(|look| look.snapshot.began.boot.0 -= minute), step);
    assert_eq!(begun_after(|look| look.snapshot.began.monotonic -= minute), step);
}

#[test]
fn oversleeping_is_measured_by_the_rhythm_of_looks_f13() {
    let scene = Scene::orphan();
    assert!(is_orphaned(&at(&[0, 300, 600], &scene)));
    assert!(!is_orphaned(&at(&[0, 300, 2000], &scene)), "a gap far longer than the one before");
    assert!(is_orphaned(&at(&[0, 300, 2000, 3000], &scene)));
}

#[test]
fn what_is_gone_is_forgotten() {
    let mut ledger = Ledger::default();
    let config = greedy();
    seen(&Scene::orphan().look(), &config, &mut ledger);
    let identity = Scene::orphan().look().facts(id(ROOT)).unwrap().unwrap().identity(&BootId("boot".into()));
    assert!(ledger.suspicion(identity.as_ref().unwrap(), "server").is_some());
    let later = Moment(0).plus(Duration::from_hours(2)).plus(Duration::from_secs(10));
    let mut corpse = ledger.clone();
    corpse.begin(&Scene::orphan().dead(ROOT).now(later).look(), &config.confirm);
    assert!(corpse.suspicion(identity.as_ref().unwrap(), "server").is_none());
    let mut told = ledger.clone();
    told.forget(id(60));
    assert!(told.suspicion(identity.as_ref().unwrap(), "server").is_some(), "somebody else");
    told.forget(id(ROOT));
    assert!(told.suspicion(identity.as_ref().unwrap(), "server").is_none(), "F12: judged anew");
    ledger.begin(&Scene::orphan().without(ROOT).now(later).look(), &config.confirm);
    assert!(ledger.suspicion(identity.as_ref().unwrap(), "server").is_none());
}

#[test]
fn a_spawner_is_the_first_living_parent_and_of_this_very_process_m8() {
    let owned = |number: i32, second: u64| {
        let now = Moment(0).plus(Duration::from_hours(2)).plus(Duration::from_secs(second));
        let scene = Scene::orphan().process(number, 1).row(ROOT, |row| row.ppid = number);
        scene.fd(ROOT, 0, pipe(FarEnd::Held)).facts(ROOT, |facts| facts.unique = Some(1)).now(now)
    };
    let mut ledger = Ledger::default();
    seen(&owned(40, 0).look(), &config(&[]), &mut ledger);
    // A subreaper that we do not know by name looks like a parent that may have started it.
    seen(&owned(41, 10).look(), &config(&[]), &mut ledger);
    assert_eq!(ledger.spawner(id(ROOT)), Some(id(40)));
    let other = owned(41, 20).facts(ROOT, |facts| facts.unique = Some(2));
    seen(&other.look(), &config(&[]), &mut ledger);
    assert_eq!(ledger.spawner(id(ROOT)), Some(id(41)), "C07: what was seen of another process is forgotten");
}

#[test]
fn quiet_lasts_as_long_as_the_counters_stand_still() {
    let start = Moment(0).plus(Duration::from_hours(2));
    let at = |second: u64| start.plus(Duration::from_secs(second));
    let look = |second: u64, cpu: u64| {
        Scene::orphan()
            .activity(ROOT)
            .row(ROOT, |row| row.cpu = Duration::from_secs(cpu))
            .now(at(second))
            .look()
    };
    let mut ledger = Ledger::default();
    seen(&look(0, 1), &greedy(), &mut ledger);
    seen(&look(10, 1), &greedy(), &mut ledger);
    assert_eq!(ledger.quiet_since(id(ROOT)), Some(at(0)));
    seen(&look(20, 2), &greedy(), &mut ledger);
    assert_eq!(ledger.quiet_since(id(ROOT)), Some(at(20)), "it worked meanwhile");
}

#[test]
fn periods_and_quiet_start_anew_after_a_suspend_f13() {
    let mut config = greedy();
    config.policies[0].reap_when[0].conditions[0] = Condition {
        rule: "no-children",
        strength: Strength::Sign,
        settings: BTreeMap::from([("for", Setting::Duration(Duration::from_mins(1)))]),
    };
    let start = Moment(0).plus(Duration::from_hours(2));
    let mut ledger = Ledger::default();
    seen(&Scene::orphan().activity(ROOT).now(start).look(), &config, &mut ledger);
    let mut look = Scene::orphan().activity(ROOT).now(start.plus(Duration::from_mins(5))).look();
    // Only ten of the seconds since were awake ones.
    look.snapshot.began.monotonic = start.plus(Duration::from_secs(10)).0;
    let verdict = seen(&look, &config, &mut ledger).unwrap().verdict;
    assert_eq!(verdict, Verdict::Alive, "five minutes asleep are no minute of watching");
    assert_eq!(ledger.quiet_since(id(ROOT)), Some(start.plus(Duration::from_mins(5))));
}

#[test]
fn a_ledger_survives_its_file() {
    let mut ledger = Ledger::default();
    seen(&Scene::orphan().look(), &greedy(), &mut ledger);
    let text = serde_json::to_string(&ledger).unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), ledger);
}

#[test]
fn a_period_counts_only_unbroken() {
    let mut config = greedy();
    config.policies[0].reap_when[0].conditions[0] = Condition {
        rule: "no-children",
        strength: Strength::Sign,
        settings: BTreeMap::from([("for", Setting::Duration(Duration::from_mins(1)))]),
    };
    let mut ledger = Ledger::default();
    let mut look = |second: u64, scene: Scene| {
        let now = Moment(0).plus(Duration::from_hours(2)).plus(Duration::from_secs(second));
        seen(&scene.now(now).look(), &config, &mut ledger).unwrap().verdict
    };
    assert_eq!(look(0, Scene::orphan()), Verdict::Alive);
    assert_eq!(look(40, Scene::orphan()), Verdict::Alive);
    assert!(matches!(look(70, Scene::orphan()), Verdict::Suspect { .. }));
    assert_eq!(look(80, Scene::orphan().process(60, ROOT)), Verdict::Alive);
    assert_eq!(look(100, Scene::orphan()), Verdict::Alive, "broken, and so begun anew");
}

#[test]
fn spawners_are_remembered_while_they_live_m8() {
    let mut ledger = Ledger::default();
    seen(&Scene::owned().fd(ROOT, 0, pipe(FarEnd::Held)).look(), &config(&[]), &mut ledger);
    assert_eq!(ledger.spawner(id(ROOT)), Some(id(40)));
}

#[test]
fn the_users_own_work_in_a_group_that_the_server_leads_is_not_inside_f4() {
    let scene = Scene::orphan().process(40, 1).process(60, 40).row(60, |row| row.pgid = ROOT);
    let judgement = one(&scene, &greedy());
    assert_eq!(judgement.tree, [id(ROOT)], "the shell that started it is alive");
    let adopted = Scene::orphan().process(60, 1);
    let by_group = adopted.clone().row(60, |row| row.pgid = ROOT);
    assert_eq!(one(&by_group, &greedy()).tree, [id(ROOT)], "nor when that shell is gone");
    let by_session = adopted.row(60, |row| row.sid = ROOT);
    assert_eq!(one(&by_session, &greedy()).tree, [id(ROOT), id(60)]);
}

#[test]
fn who_is_inside_a_tree() {
    let tree = |scene: &Scene| one(scene, &greedy()).tree;
    let led = |number, ppid| Scene::orphan().process(number, ppid).row(number, |row| row.sid = ROOT);
    assert_eq!(tree(&led(60, 1)), [id(ROOT), id(60)], "an orphan of the root's own session");
    assert_eq!(tree(&led(30, 1)), [id(ROOT)], "older than the root: the number meant somebody else then");
    let below = led(60, 1).process(61, 60).process(62, 61).row(62, |row| row.pgid = ROOT);
    assert_eq!(tree(&below), [id(ROOT), id(60), id(61), id(62)], "with all below, each once");
    assert_eq!(tree(&Scene::orphan().process(60, ROOT).dead(60)), [id(ROOT)], "corpses are nobody");
    let strangers =
        Scene::orphan().process(60, 1).process(40, 1).process(61, 40).row(61, |row| row.sid = ROOT);
    assert_eq!(tree(&strangers), [id(ROOT)], "whoever has a living parent outside is outside");
}

#[test]
fn of_nested_matches_the_outermost_is_judged_once_per_policy() {
    let roots = |scene: &Scene, config: &Config| {
        let found = candidates(&scene.look(), config);
        found.list.iter().map(|found| (found.root.pid.number(), found.policy)).collect::<Vec<_>>()
    };
    let nested = Scene::orphan().process(60, ROOT).process(61, 60);
    assert_eq!(roots(&nested, &greedy()), [(ROOT, 0)]);
    // Another policy has a tree of its own: its outermost is judged by it.
    let mut two = greedy();
    two.policies.push(two.policies[0].clone());
    two.policies[1].name = "other".into();
    assert_eq!(roots(&nested, &two), [(ROOT, 0), (ROOT, 1)]);
    // Below a protected match the next one is outermost: nobody else would ever judge it.
    let mux = nested.row(ROOT, |row| row.comm[..4].copy_from_slice(b"tmux"));
    assert_eq!(roots(&mux, &greedy()), [(60, 0)]);
}

#[test]
fn an_inner_match_belongs_to_the_outer_tree() {
    let look = Scene::orphan().process(60, ROOT).look();
    let list = candidates(&look, &greedy()).list;
    assert_eq!(list.iter().map(|candidate| candidate.root).collect::<Vec<_>>(), [id(ROOT)]);
    assert_eq!(list[0].tree, [id(ROOT), id(60)]);
}

#[test]
fn a_companion_in_our_own_session_still_counts() {
    let look = Scene::orphan().row(ROOT, |row| row.sid = 99).look();
    let found = candidates(&look, &greedy());
    assert_eq!(found.list, []);
    assert_eq!(found.others.len(), 1);
}

#[test]
fn report_policies_judge_and_say_so() {
    let mut config = greedy();
    config.policies[0].mode = Mode::Report;
    let judgement = one(&Scene::orphan(), &config);
    assert!(is_suspect(&judgement));
    assert_eq!(judgement.mode, Mode::Report);
}

#[test]
fn protected_members_are_named_for_plan() {
    let scene = Scene::orphan()
        .process(60, ROOT)
        .facts(60, |facts| facts.env = Ok(env(&[("REAPD_KEEP", "1")])))
        .process(61, ROOT)
        .facts(61, |facts| facts.env = refused())
        .process(62, ROOT);
    let look = scene.look();
    let named = protect::protected(&look, &greedy(), &[id(60), id(61), id(62)]);
    assert_eq!(named.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [id(60), id(61)]);
    assert!(named[1].1.as_bytes().contains_str("could not tell"));
    // What a person keeps is kept though nobody has read a thing of it.
    let mut marked = scene.unasked(&Question::Facts(id(62))).look();
    let what = Kept::Process { boot: BootId("boot".into()), id: id(62), name: "x".into() };
    marked.marks = vec![KeepMark { what, until: None, set: 0, note: None }];
    assert_eq!(protect::protected(&marked, &greedy(), &[id(62)]).len(), 1);
}

#[test]
fn a_reader_in_the_servers_group_is_outside_though_their_shell_is_gone_f4() {
    // `server < <(cat requests) | my-analysis`, and the shell that joined the two has exited.
    let scene = |group: i32| {
        Scene::orphan()
            .process(60, 1)
            .row(60, |row| (row.pgid, row.sid) = (group, 40))
            .row(ROOT, |row| row.sid = 40)
            .fd(ROOT, 0, pipe(FarEnd::Gone))
            .fd(ROOT, 1, pipe(FarEnd::Held))
            .held_by(ROOT, 1, &[60])
            .fd(60, 0, plain(ChannelKind::Null))
    };
    for group in [ROOT, 60] {
        let judgement = one(&scene(group), &config(&[]));
        assert_eq!(judgement.tree, [id(ROOT)]);
        assert_eq!(judgement.verdict, Verdict::Alive, "{}", judgement.because);
    }
    let unread = scene(ROOT).fd(ROOT, 1, pipe(FarEnd::Gone));
    assert!(is_suspect(&one(&unread, &config(&[]))), "the twin that nobody reads is suspected");
}

#[test]
fn adopted_ones_in_a_session_that_any_member_leads_are_inside_c02() {
    // 60 leads a session below the root; 70 is in it and was adopted, and plan would recruit it.
    let scene = Scene::orphan()
        .process(60, ROOT)
        .process(70, 1)
        .row(70, |row| row.sid = 60)
        .facts(70, |facts| facts.tracer = Ok(Some(id(90).pid)));
    kept_by("traced", Says::Yes, &scene);
    let kept = Scene::orphan()
        .process(60, ROOT)
        .process(70, 1)
        .row(70, |row| row.sid = 60)
        .facts(70, |facts| facts.env = Ok(env(&[("REAPD_KEEP", "yes")])));
    let look = kept.look();
    let config = greedy();
    let candidates = candidates(&look, &config);
    let (verdicts, _) = judge(&look, &config, &candidates, &Ledger::default());
    assert!(verdicts.protected.iter().any(|(protected, _)| *protected == id(70)));
}

#[test]
fn behind_hidepid_a_service_is_still_a_service_and_a_hidden_parent_still_a_parent() {
    let unit = "/system.slice/work.service";
    let service = Scene::orphan().without(1).facts(ROOT, |facts| {
        facts.cgroup = Ok(unit.into());
        facts.env = Ok(env(&[("SYSTEMD_EXEC_PID", "50")]));
    });
    kept_by("unit", Says::Yes, &service);
    // `sudo -u somebody server`: the sudo is root's, and hidden.
    let owned = one(&Scene::owned().without(40), &greedy());
    assert_eq!(owned.verdict, Verdict::Unknown, "{}", owned.because);
}

/// Looks twice, ten seconds apart, with something changed in between.
fn second_look(
    between: impl FnOnce(&mut Ledger),
    change: impl FnOnce(&mut Look),
    configs: [&Config; 2],
) -> Verdict {
    let mut ledger = Ledger::default();
    seen(&Scene::orphan().look(), configs[0], &mut ledger);
    between(&mut ledger);
    let later = Moment(0).plus(Duration::from_hours(2)).plus(Duration::from_secs(10));
    let mut look = Scene::orphan().now(later).look();
    change(&mut look);
    seen(&look, configs[1], &mut ledger).unwrap().verdict
}

#[test]
fn a_look_from_another_namespace_starts_anew_f5() {
    let config = greedy();
    assert!(is_orphaned(&second_look(|_| (), |_| (), [&config, &config])), "the twin from the same one");
    let from = |pid, time| {
        move |look: &mut Look| {
            let own = look.snapshot.own.namespaces.as_mut().unwrap();
            (own.pid, own.time) = (pid, time);
            for answer in look.answers.values_mut() {
                if let Ok(crate::model::question::Answer::Facts(facts)) = answer {
                    facts.namespaces.as_mut().unwrap().pid = pid;
                }
            }
        }
    };
    assert!(!is_orphaned(&second_look(|_| (), from(2, 1), [&config, &config])));
    assert!(!is_orphaned(&second_look(|_| (), from(1, 2), [&config, &config])));
}

#[test]
fn a_line_that_was_rewritten_between_two_looks_starts_anew() {
    let before = greedy();
    let mut after = greedy();
    after.policies[0].reap_when[0].conditions.push(Condition {
        rule: "older-than",
        strength: Strength::Sign,
        settings: BTreeMap::from([("age", Setting::Duration(Duration::from_secs(1)))]),
    });
    assert!(is_orphaned(&second_look(|_| (), |_| (), [&after, &after])), "the twin that was not rewritten");
    assert!(!is_orphaned(&second_look(|_| (), |_| (), [&before, &after])));
}

#[test]
fn a_look_that_says_nothing_of_a_tree_breaks_its_row() {
    let config = greedy();
    let mut nobody = greedy();
    nobody.policies.clear();
    let between = |ledger: &mut Ledger| {
        let second = Moment(0).plus(Duration::from_hours(2)).plus(Duration::from_secs(5));
        assert_eq!(seen(&Scene::orphan().now(second).look(), &nobody, ledger), None);
    };
    assert!(!is_orphaned(&second_look(between, |_| (), [&config, &config])));
}
