//! Worlds read back as they were written, and say where they are wrong.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use bstr::{BString, ByteSlice as _};

use super::*;
use crate::model::facts::*;
use crate::model::id::*;
use crate::model::keep::*;
use crate::model::known::*;
use crate::model::look::*;
use crate::model::moment::*;
use crate::model::question::*;
use crate::model::table::*;

mod leases;
mod served;

fn same(a: &Look, b: &Look) -> Result<(), TestCaseError> {
    prop_assert_eq!(&a.snapshot.boot, &b.snapshot.boot);
    prop_assert_eq!(a.snapshot.began, b.snapshot.began);
    prop_assert_eq!(a.snapshot.table.rows(), b.snapshot.table.rows());
    prop_assert_eq!(&a.snapshot.arguments, &b.snapshot.arguments);
    prop_assert_eq!(&a.snapshot.own, &b.snapshot.own);
    prop_assert_eq!(&a.snapshot.configured, &b.snapshot.configured);
    prop_assert_eq!(&a.snapshot.gaps, &b.snapshot.gaps);
    prop_assert_eq!(&a.snapshot.leases, &b.snapshot.leases);
    prop_assert_eq!(&a.reapers, &b.reapers);
    prop_assert_eq!(&a.answers, &b.answers);
    prop_assert_eq!(&a.marks, &b.marks);
    Ok(())
}

/// Text as hostile as a process can make it: rows of ours, line ends, escapes, invalid UTF-8.
fn bytes() -> BoxedStrategy<BString> {
    prop_oneof![
        vec(any::<u8>(), 0..12).prop_map(BString::from),
        prop_oneof![
            Just("x\n  7 1 3d systemd"),
            Just("\" absent\n  owner 4242 883 absent"),
            Just("-"),
            Just("none"),
            Just("?denied"),
            Just("# remark"),
            Just("@3d"),
            Just("a b=c"),
            Just("\u{202e}größe"),
            Just("/usr/bin/node"),
        ]
        .prop_map(BString::from),
    ]
    .boxed()
}

fn text() -> BoxedStrategy<String> {
    prop_oneof![any::<String>(), bytes().prop_map(|bytes| bytes.to_string())].boxed()
}

fn reason() -> impl Strategy<Value = Reason> {
    prop_oneof![
        Just(Reason::Denied),
        Just(Reason::Hung),
        Just(Reason::Foreign),
        Just(Reason::NotAsked),
        Just(Reason::NoRecord),
        Just(Reason::Unsound),
        any::<i32>().prop_map(Reason::Failed),
    ]
}

fn known<T: Clone + std::fmt::Debug + 'static>(
    value: impl Strategy<Value = T> + 'static,
) -> BoxedStrategy<Known<T>> {
    let unknown = (reason(), text()).prop_map(|(reason, what)| Unknown::new(reason, what));
    prop_oneof![3 => value.prop_map(Ok), 1 => unknown.prop_map(Err)].boxed()
}

fn pid() -> impl Strategy<Value = Pid> {
    (1..9_i32).prop_map(|number| Pid::new(number).unwrap())
}

fn id() -> impl Strategy<Value = ProcessId> {
    (pid(), 0..3_u64).prop_map(|(pid, start)| ProcessId { pid, start: Start(start) })
}

fn file() -> impl Strategy<Value = FileId> {
    any::<(u64, u64)>().prop_map(|(dev, ino)| FileId { dev, ino })
}

fn namespaces() -> impl Strategy<Value = Namespaces> {
    any::<[u64; 5]>().prop_map(|[pid, mount, net, time, user]| Namespaces { pid, mount, net, time, user })
}

fn on() -> impl Strategy<Value = FileSystem> {
    prop_oneof![
        Just(FileSystem::Local),
        Just(FileSystem::Overlay),
        Just(FileSystem::Fuse),
        Just(FileSystem::Network)
    ]
}

fn row() -> BoxedStrategy<Row> {
    let state = prop_oneof![
        Just(State::Running),
        Just(State::Sleeping),
        Just(State::Uninterruptible),
        Just(State::Stopped),
        Just(State::Zombie),
        Just(State::Dead),
        any::<u8>().prop_map(State::Other),
    ];
    let comm = vec(1..=255_u8, 0..16).prop_map(|name| {
        let mut comm = [0; 16];
        comm[..name.len()].copy_from_slice(&name);
        comm
    });
    let numbers =
        (any::<[i32; 4]>(), any::<u32>(), any::<u64>(), any::<u64>(), any::<u64>(), any::<[u64; 4]>());
    (id(), state, any::<bool>(), comm, numbers)
        .prop_map(
            |(id, state, thread, comm, ([ppid, pgid, sid, tty], threads, cpu, resident, began, exec))| Row {
                id,
                ppid,
                pgid,
                sid,
                state,
                kernel: if thread { Kernel::Thread } else { Kernel::No },
                tty,
                threads,
                cpu: Duration::from_nanos(cpu),
                resident,
                began: Moment(began),
                comm,
                exec: ExecSignature {
                    start_stack: exec[0],
                    arg_start: exec[1],
                    arg_end: exec[2],
                    env_start: exec[3],
                },
            },
        )
        .boxed()
}

fn facts(id: ProcessId) -> BoxedStrategy<Facts> {
    let exe = (bytes(), file()).prop_map(|(path, file)| Executable { path, file });
    let fate = prop_oneof![Just(Fate::Linked), Just(Fate::Deleted)];
    let cwd = (bytes(), file(), known(fate), on()).prop_map(|(path, file, fate, on)| Directory {
        path,
        file,
        fate,
        on,
    });
    // A variable's name ends at its first `=` (environ(7)).
    let name = bytes().prop_map(|name| BString::from(name.replace("=", "_")));
    let env = proptest::collection::btree_map(name, bytes(), 0..3);
    let hangup = prop_oneof![Just(Hangup::Ignored), Just(Hangup::Caught), Just(Hangup::Default)];
    let freezer = prop_oneof![Just(Freezer::Frozen), Just(Freezer::Thawed)];
    let texts = (known(vec(bytes(), 0..4)), known(exe), known(cwd), known(env), known(bytes()));
    let words =
        (known(any::<u32>()), known(namespaces()), known(option::of(pid())), known(hangup), known(freezer));
    (texts, words, option::of(any::<u64>()))
        .prop_map(
            move |((argv, exe, cwd, env, cgroup), (uid, namespaces, tracer, hangup, freezer), unique)| {
                Facts {
                    id,
                    uid: uid.map(Uid),
                    argv,
                    exe,
                    cwd,
                    env,
                    cgroup,
                    namespaces,
                    tracer,
                    hangup,
                    freezer,
                    unique,
                }
            },
        )
        .boxed()
}

fn parent() -> BoxedStrategy<Parent> {
    (bytes(), file(), bytes(), on())
        .prop_map(|(path, file, mount, on)| Parent { path, file, mount, on })
        .boxed()
}

fn path() -> BoxedStrategy<PathAnswer> {
    (0..3, file(), parent().prop_map(Box::new))
        .prop_map(|(which, file, parent)| match which {
            0 => PathAnswer::Present { file, parent },
            1 => PathAnswer::Absent { parent },
            _ => PathAnswer::ParentAbsent { nearest: parent },
        })
        .boxed()
}

fn channel() -> BoxedStrategy<Channel> {
    let kind = prop_oneof![
        any::<u64>().prop_map(|inode| ChannelKind::Pipe { inode }),
        any::<u64>().prop_map(|inode| ChannelKind::Stream { inode }),
        Just(ChannelKind::NamedFifo),
        Just(ChannelKind::Terminal(TerminalFate::Present)),
        Just(ChannelKind::Terminal(TerminalFate::Deleted)),
        Just(ChannelKind::Null),
        Just(ChannelKind::File),
        Just(ChannelKind::Listener),
        Just(ChannelKind::Unconnected),
        Just(ChannelKind::Closed),
        text().prop_map(ChannelKind::Other),
    ];
    let far = prop_oneof![Just(FarEnd::Gone), Just(FarEnd::Held)];
    (kind, known(far), known(any::<u64>()))
        .prop_map(|(kind, far, unread)| Channel { kind, far, unread })
        .boxed()
}

fn sockets() -> BoxedStrategy<Sockets> {
    fn family() -> impl Strategy<Value = Family> {
        prop_oneof![Just(Family::Unix), Just(Family::UnixDatagram), Just(Family::Tcp), Just(Family::Udp)]
    }
    let listener = (family(), bytes(), any::<u64>(), option::of(file()), any::<u32>())
        .prop_map(|(family, name, inode, file, pending)| Listener { family, name, inode, file, pending });
    let peer = prop_oneof![
        Just(Peer::Gone),
        Just(Peer::Unknown),
        any::<u64>().prop_map(Peer::Inode),
        text().prop_map(Peer::Remote)
    ];
    let connection = (family(), bytes(), any::<u64>(), peer)
        .prop_map(|(family, name, inode, peer)| Connection { family, name, inode, peer });
    (vec(listener, 0..3), vec(connection, 0..3))
        .prop_map(|(listeners, connections)| Sockets { listeners, connections })
        .boxed()
}

fn fit<A: Clone + std::fmt::Debug + 'static>(
    question: impl Strategy<Value = Question>,
    answer: impl Strategy<Value = A> + 'static,
    wrap: impl Fn(A) -> Answer + Copy,
) -> impl Strategy<Value = (Question, Known<Answer>)> {
    (question, known(answer)).prop_map(move |(question, answer)| (question, answer.map(wrap)))
}

fn registry_question() -> impl Strategy<Value = Question> {
    (id(), text(), bytes(), bytes()).prop_map(|(of, registry, place, key)| Question::Registered {
        of,
        registry,
        place,
        key,
    })
}

fn holders() -> BoxedStrategy<Holders> {
    let census = prop_oneof![Just(Census::Whole), any::<u32>().prop_map(Census::Partial)];
    (vec(id(), 0..3), census).prop_map(|(seen, census)| Holders { seen, census }).boxed()
}

fn answered() -> BoxedStrategy<(Question, Known<Answer>)> {
    let owner = prop_oneof![Just(Owner::Absent), Just(Owner::Zombie), id().prop_map(Owner::Alive)];
    let activity = any::<(u64, u64)>().prop_map(|(read, written)| Activity { read, written });
    prop_oneof![
        id().prop_flat_map(|id| fit(Just(Question::Facts(id)), facts(id), |facts| Answer::Facts(Box::new(
            facts
        )))),
        fit((id(), bytes()).prop_map(|(of, path)| Question::Path { of, path }), path(), Answer::Path),
        fit((id(), 0..9_u32).prop_map(|(of, fd)| Question::Channel { of, fd }), channel(), Answer::Channel),
        fit((id(), 0..9_u32).prop_map(|(of, fd)| Question::Holders { of, fd }), holders(), Answer::Holders),
        fit(id().prop_map(Question::Sockets), sockets(), Answer::Sockets),
        fit((id(), pid()).prop_map(|(of, pid)| Question::Owner { of, pid }), owner, Answer::Owner),
        fit(id().prop_map(Question::Activity), activity, Answer::Activity),
        fit(id().prop_map(Question::Terminals), vec(any::<i32>(), 0..3), Answer::Terminals),
        fit(registry_question(), leases::registered(), Answer::Registered),
        served::answered(),
    ]
    .boxed()
}

fn mark() -> BoxedStrategy<KeepMark> {
    let what = prop_oneof![
        (text(), id(), text()).prop_map(|(boot, id, name)| Kept::Process { boot: BootId(boot), id, name }),
        bytes().prop_map(|path| Kept::Directory { path }),
    ];
    (what, option::of(any::<u64>()), any::<u64>(), option::of(text()))
        .prop_map(|(what, until, set, note)| KeepMark { what, until, set, note })
        .boxed()
}

fn look() -> BoxedStrategy<Look> {
    let clocks = any::<(u64, u64, u64)>().prop_map(|(boot, monotonic, wall)| Clocks {
        boot: Moment(boot),
        monotonic,
        wall,
    });
    let own = (pid(), any::<u32>(), any::<i32>(), known(namespaces()), option::of(bytes()), any::<bool>())
        .prop_map(|(pid, uid, sid, namespaces, home, host)| Own {
            pid,
            uid: Uid(uid),
            sid,
            namespaces,
            home,
            scope: if host { Scope::Host } else { Scope::User },
        });
    let argv = known(vec(bytes(), 0..4)).prop_map(|argv| argv.map(std::sync::Arc::from));
    let arguments = proptest::collection::btree_map(id(), (any::<u32>(), argv), 0..5);
    let server = (text(), text(), bytes(), vec(bytes(), 0..3))
        .prop_map(|(name, file, command, args)| McpServer { name, file, command, args });
    let gap = (text(), reason(), text(), option::of(text())).prop_map(|(source, reason, what, cure)| Gap {
        source,
        why: Unknown::new(reason, what),
        cure,
    });
    let more = (vec(server, 0..2), leases::leases(), vec(gap, 0..2));
    let snapshot = (text(), clocks, vec(row(), 0..6), arguments, own, more).prop_map(
        |(boot, began, rows, arguments, own, (configured, leases, gaps))| {
            let arguments =
                arguments.into_iter().map(|(id, (uid, argv))| Arguments { id, uid: Uid(uid), argv });
            Snapshot {
                boot: BootId(boot),
                began,
                table: Table::new(rows),
                arguments: arguments.collect(),
                own,
                configured,
                leases,
                engines: Vec::new(),
                gaps,
            }
        },
    );
    (snapshot, vec(answered(), 0..6), vec(mark(), 0..2), proptest::collection::btree_set(pid(), 0..3))
        .prop_map(|(snapshot, answers, marks, reapers)| {
            let mut look = Look::new(snapshot);
            look.answers = answers.into_iter().collect();
            look.marks = marks;
            look.reapers = reapers;
            look
        })
        .boxed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_look_reads_back_as_it_was_written_s4(look in look()) {
        let text = print(&look);
        let back = parse(&text).map_err(|error| TestCaseError::fail(format!("{error}\n{text}")))?;
        prop_assert_eq!(back.len(), 1);
        same(&look, &back[0])?;
        prop_assert_eq!(print(&back[0]), text);
    }

    #[test]
    fn any_text_is_read_or_refused_but_never_a_panic(text in any::<String>()) {
        let _ = parse(&text);
        let _ = parse(&format!("reapd world 1\nlook at 1d\n{text}"));
    }
}

const TWO: &str = r#"
reapd world 1
look at 10d uid=1000 home=/home/ana
  pid  ppid began tty   command
  1    0    10d   -     init
  900  1    9d    -     systemd --user
  880  900  9d    pts/3 -zsh
  883  880  4d    -     claude
  4242 900  3d    -     node /opt/app-server-broker.mjs serve --cwd "/home/ana/a b"
  4243 4242 3d    -     codex app-server
  facts 4242 cwd="/home/ana/a b" fate=deleted
  path 4242 "/home/ana/a b" absent
  stdin 4243 pipe held by=4242
  facts 4243 ?denied
look after 10s as before
  gone 4243
  pid  began command
  4242 -     node rewritten
  883  5s    claude
"#;

fn of(look: &Look, number: i32) -> Row {
    *look.snapshot.table.at(Pid::new(number).unwrap()).unwrap()
}

#[test]
fn what_a_hand_leaves_out_is_boring() {
    let looks = parse(TWO).unwrap();
    let look = &looks[0];
    let row = of(look, 883);
    assert_eq!((row.pgid, row.sid, row.tty), (880, 880, 136 << 8 | 3), "inherited from the shell");
    assert_eq!(of(look, 4242).sid, 4242, "a child of a reaper shares nothing with it");
    assert_eq!(of(look, 4243).sid, 4242);
    assert_eq!(of(look, 880).name(), b"zsh");
    let broker = of(look, 4242).id;
    let facts = look.facts(broker).unwrap().unwrap();
    assert_eq!(facts.exe.as_ref().unwrap().path, "/usr/bin/node");
    let cwd = facts.cwd.as_ref().unwrap();
    assert_eq!((&cwd.path[..], &cwd.fate), (&b"/home/ana/a b"[..], &Ok(Fate::Deleted)));
    assert_eq!(look.reapers, BTreeSet::from([Pid::INIT, Pid::new(900).unwrap()]));
    assert!(look.arguments(of(look, 1).id).is_none(), "init belongs to root");
    let holders = &look.answers[&Question::Holders { of: of(look, 4243).id, fd: 0 }];
    assert_eq!(holders, &Ok(Answer::Holders(Holders { seen: vec![broker], census: Census::Whole })));
    assert!(look.facts(of(look, 4243).id).unwrap().is_err());
}

#[test]
fn a_later_look_says_what_changed() {
    let looks = parse(TWO).unwrap();
    let [first, second] = looks.as_slice() else { panic!("two looks") };
    assert_eq!(second.snapshot.began.boot.since(first.snapshot.began.boot), Duration::from_secs(10));
    assert!(second.snapshot.table.at(Pid::new(4243).unwrap()).is_none());
    assert!(
        !second
            .answers
            .keys()
            .any(|question| matches!(question, Question::Channel { of, .. } if of.pid.number() == 4243))
    );
    assert_eq!(of(first, 4242).id, of(second, 4242).id);
    assert_eq!(of(first, 4242).began, of(second, 4242).began);
    let facts = second.facts(of(second, 4242).id).unwrap().unwrap();
    assert_eq!(facts.argv.as_ref().unwrap().len(), 2);
    assert_eq!(facts.cwd.as_ref().unwrap().fate, Ok(Fate::Deleted));
    assert_ne!(of(first, 883).id, of(second, 883).id, "another beginning is another process");
}

#[test]
fn nothing_that_would_prove_a_loss_is_a_default() {
    let looks = parse(TWO).unwrap();
    let look = &looks[0];
    let shell = of(look, 883).id;
    for question in [
        Question::Path { of: shell, path: "/home/ana".into() },
        Question::Holders { of: shell, fd: 0 },
        Question::Activity(shell),
    ] {
        assert!(!look.answers.contains_key(&question));
        assert_eq!(answer(look, &question), None);
    }
    let owner = |number| {
        let pid = Pid::new(number).unwrap();
        answer(look, &Question::Owner { of: shell, pid })
    };
    assert_eq!(owner(883), Some(Ok(Answer::Owner(Owner::Alive(shell)))));
    assert_eq!(owner(77), Some(Ok(Answer::Owner(Owner::Absent))));
}

#[test]
fn a_suspend_shows_in_the_clocks_b17() {
    let text = "reapd world 1\nlook at 1d\n pid began command\n 7 1h x\nlook after 5h as before awake=10s\n";
    let looks = parse(text).unwrap();
    let (a, b) = (looks[0].snapshot.began, looks[1].snapshot.began);
    assert_eq!(b.boot.since(a.boot), Duration::from_hours(5));
    assert_eq!(b.monotonic - a.monotonic, 10_000_000_000);
}

#[test]
fn faults_name_their_line() {
    let fault = |body: &str| {
        parse(&format!("reapd world 1\nlook at 1d\n pid began command\n 7 1h node x\n{body}")).unwrap_err()
    };
    for (body, says) in [
        (" 7 1h y", "twice"),
        (" facts 8 cwd=/", "no process 8"),
        (" facts 7 cwdd=/", "'cwdd' is no fact"),
        (" stdin 7 pipes", "no kind of channel"),
        (" nonsense 7", "no statement"),
        (" 9 2d x", "not up yet"),
        (" path 7 \"/x", "not closed"),
        (" owner 7 0 absent", "no process number"),
    ] {
        let error = fault(body);
        assert_eq!(error.line, 5, "{error}");
        assert!(error.message.contains(says), "{error}");
    }
    assert!(parse("").is_err());
    assert!(parse("look at 1d").unwrap_err().message.contains("reapd world 1"));
    let strict = parse("reapd world 1 strict\nlook at 1d\n pid began command\n 7 1h x\n").unwrap_err();
    assert!(strict.message.contains("leaves nothing out"), "{strict}");
}
