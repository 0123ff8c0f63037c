//! A scene for a rule's tests: a few rows and hand-made answers, and one function that checks the finding.
//!
//! Process 50 is the root. Every process started at ten times its number, so that a lower number is older.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bstr::BString;

use crate::config::policy::{
    AdmitEnv, ArgumentsShown, Condition, Config, Confirm, Detached, Glob, GlobPart, HttpRegistry, Instance,
    JournalSettings, Keep, Limits, Line, Match, Method, Offer, Origin, Ping, Policy, ProofNeed, Registry,
    Server, Setting, Source, Template, TemplatePart,
};
use crate::judge::case::{Case, Other, Standing};
use crate::judge::ledger::Ledger;
use crate::judge::rule::{Blank, Finding, Found, Holds, Rule, Settings};
use crate::judge::{Candidates, Notes, candidates, judge};
use crate::model::facts::{Directory, Executable, Facts, Fate, FileSystem, Freezer, Hangup, Namespaces};
use crate::model::id::{BootId, FileId, Pid, ProcessId, Start, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::lease::{
    Bound, COOKIE, Covers, FaultyLease, Holder, Lease, LeaseFile, LeaseId, Leases, Release,
};
use crate::model::look::{Arguments, Gap, Look, McpServer, Own, Scope, Snapshot};
use crate::model::moment::{Clocks, Moment};
use crate::model::ownership::descendants;
use crate::model::plan::Ladder;
use crate::model::question::{
    Activity, Answer, Answers, Call, Census, Channel, ChannelKind, Connection, Family, FarEnd, Holders,
    Listener, Owner, Parent, PathAnswer, Peer, Question, Sockets,
};
use crate::model::rule::Strength;
use crate::model::table::{Row, State, Table, plain_row};
use crate::model::verdict::Mode;
use crate::model::verdict::Verdicts;

/// The root's number.
pub(in crate::judge) const ROOT: i32 = 50;

/// What a check expects; the text must be part of the reason.
#[derive(Debug)]
pub(in crate::judge) enum Says {
    Yes(&'static str),
    No(&'static str),
    Unknown(&'static str),
    /// It asks this, and nothing else.
    Asks(Vec<Question>),
}

/// A few processes and what is known of them.
#[derive(Debug, Clone)]
pub(in crate::judge) struct Scene {
    rows: Vec<Row>,
    answers: Answers,
    captures: BTreeMap<String, BString>,
    others: Vec<Other>,
    unread: BTreeSet<i32>,
    private: Vec<Glob>,
    now: Moment,
    leases: Leases,
    gaps: Vec<Gap>,
    users: BTreeMap<i32, u32>,
    memory: Ledger,
    own: i32,
    pinging: Option<(Ping, Condition)>,
}

pub(in crate::judge) fn pid(number: i32) -> Pid {
    Pid::new(number).unwrap()
}

pub(in crate::judge) fn id(number: i32) -> ProcessId {
    ProcessId { pid: pid(number), start: Start(u64::try_from(number).unwrap() * 10) }
}

impl Scene {
    /// The root was adopted by process 1; its facts are plain, it has no sockets, and nothing else was asked.
    pub(in crate::judge) fn orphan() -> Scene {
        let scene = Scene {
            rows: Vec::new(),
            answers: Answers::new(),
            captures: BTreeMap::new(),
            others: Vec::new(),
            unread: BTreeSet::new(),
            private: Vec::new(),
            now: Moment(0).plus(Duration::from_hours(2)),
            leases: Leases::default(),
            gaps: Vec::new(),
            users: BTreeMap::new(),
            memory: Ledger::default(),
            own: 99,
            pinging: None,
        };
        scene.process(1, 0).process(ROOT, 1)
    }

    /// The same, but process 40 is its living parent.
    pub(in crate::judge) fn owned() -> Scene {
        Scene::orphan().process(40, 1).row(ROOT, |row| row.ppid = 40)
    }

    /// Adds a process with plain facts and no sockets.
    pub(in crate::judge) fn process(mut self, number: i32, ppid: i32) -> Scene {
        self.rows.push(plain_row(pid(number), ppid, id(number).start));
        self.answer(Question::Facts(id(number)), Answer::Facts(Box::new(plain_facts(number))))
            .answer(Question::Sockets(id(number)), Answer::Sockets(Sockets::default()))
            .answer(Question::Terminals(id(number)), Answer::Terminals(Vec::new()))
    }

    /// Changes a row.
    pub(in crate::judge) fn row(mut self, number: i32, change: impl FnOnce(&mut Row)) -> Scene {
        change(self.rows.iter_mut().find(|row| row.id.pid.number() == number).unwrap());
        self
    }

    /// Makes a process a zombie without threads.
    pub(in crate::judge) fn dead(self, number: i32) -> Scene {
        self.row(number, |row| row.state = State::Zombie)
    }

    /// Takes a process out of the table.
    pub(in crate::judge) fn without(mut self, number: i32) -> Scene {
        self.rows.retain(|row| row.id.pid.number() != number);
        self
    }

    /// Changes the facts of a process.
    pub(in crate::judge) fn facts(mut self, number: i32, change: impl FnOnce(&mut Facts)) -> Scene {
        let answer = self.answers.get_mut(&Question::Facts(id(number)));
        let Some(Ok(Answer::Facts(facts))) = answer else { panic!("no facts of {number}") };
        change(facts);
        self
    }

    /// The root stands in `path`, which is inode 700 of device 8.
    pub(in crate::judge) fn stands_in(self, path: &str, fate: Known<Fate>) -> Scene {
        self.facts(ROOT, |facts| facts.cwd = Ok(Directory { fate, ..directory(path) }))
    }

    /// Answers a question.
    pub(in crate::judge) fn answer(mut self, question: Question, answer: Answer) -> Scene {
        self.answers.insert(question, Ok(answer));
        self
    }

    /// Answers that it could not be told.
    pub(in crate::judge) fn refused(mut self, question: Question, reason: Reason) -> Scene {
        self.answers.insert(question, Err(Unknown::new(reason, "it")));
        self
    }

    /// Who works in the terminals that a process serves, by device number.
    pub(in crate::judge) fn serves(self, number: i32, terminals: &[i32]) -> Scene {
        self.answer(Question::Terminals(id(number)), Answer::Terminals(terminals.to_vec()))
    }

    /// Takes an answer back.
    pub(in crate::judge) fn unasked(mut self, question: &Question) -> Scene {
        self.answers.remove(question);
        self
    }

    /// A descriptor of any process.
    pub(in crate::judge) fn fd(self, number: i32, fd: u32, channel: Channel) -> Scene {
        self.answer(Question::Channel { of: id(number), fd }, Answer::Channel(channel))
    }

    /// Who holds the far end of a descriptor; everybody was readable.
    pub(in crate::judge) fn held_by(self, number: i32, fd: u32, holders: &[i32]) -> Scene {
        self.census(number, fd, holders, Census::Whole)
    }

    /// Who holds the far end of a descriptor, as far as the search reached.
    pub(in crate::judge) fn census(self, number: i32, fd: u32, holders: &[i32], census: Census) -> Scene {
        let seen = holders.iter().copied().map(id).collect();
        self.answer(Question::Holders { of: id(number), fd }, Answer::Holders(Holders { seen, census }))
    }

    /// What is at a path.
    pub(in crate::judge) fn path(self, path: &str, answer: PathAnswer) -> Scene {
        self.answer(Question::Path { of: id(ROOT), path: path.into() }, Answer::Path(answer))
    }

    /// Who bears a number that the root names.
    pub(in crate::judge) fn owner(self, number: i32, owner: Owner) -> Scene {
        self.answer(Question::Owner { of: id(ROOT), pid: pid(number) }, Answer::Owner(owner))
    }

    /// Bytes that a process moved.
    pub(in crate::judge) fn activity(self, number: i32) -> Scene {
        self.answer(Question::Activity(id(number)), Answer::Activity(Activity { read: 1, written: 1 }))
    }

    /// The sockets of a process.
    pub(in crate::judge) fn sockets(
        self,
        number: i32,
        listeners: Vec<Listener>,
        connections: Vec<Connection>,
    ) -> Scene {
        self.answer(Question::Sockets(id(number)), Answer::Sockets(Sockets { listeners, connections }))
    }

    /// A value of the policy's captures.
    pub(in crate::judge) fn capture(mut self, name: &str, value: &str) -> Scene {
        self.captures.insert(name.into(), value.into());
        self
    }

    /// Another tree that policy `policy` matches, with one capture.
    pub(in crate::judge) fn other(
        self,
        policy: &str,
        root: i32,
        tree: &[i32],
        capture: Option<(&str, &str)>,
    ) -> Scene {
        self.other_as(policy, root, tree, capture, Standing::Judged)
    }

    /// The same, with its standing.
    pub(in crate::judge) fn other_as(
        mut self,
        policy: &str,
        root: i32,
        tree: &[i32],
        capture: Option<(&str, &str)>,
        standing: Standing,
    ) -> Scene {
        self.others.push(Other {
            policy: policy.into(),
            root: id(root),
            captures: capture.into_iter().map(|(name, value)| (name.into(), value.into())).collect(),
            tree: tree.iter().copied().map(id).collect(),
            standing,
        });
        self
    }

    /// The argument vector of this process could not be read.
    pub(in crate::judge) fn unread(mut self, number: i32) -> Scene {
        self.unread.insert(number);
        self
    }

    /// The moment of the look.
    pub(in crate::judge) fn now(mut self, now: Moment) -> Scene {
        self.now = now;
        self
    }

    /// A lease.
    pub(in crate::judge) fn lease(mut self, lease: Lease) -> Scene {
        self.leases.list.push(lease);
        self.leases.list.sort_by(|a, b| (a.file.owner, &a.id).cmp(&(b.file.owner, &b.id)));
        self
    }

    /// A lease file of this name that says nothing that counts.
    pub(in crate::judge) fn faulty(mut self, stem: &str) -> Scene {
        let why = Unknown::new(Reason::Unsupported, "its lease file is no JSON");
        self.leases.faulty.push(FaultyLease { owner: None, stem: stem.into(), why });
        self
    }

    /// The last such file stands in the directory of this user.
    pub(in crate::judge) fn in_directory_of(mut self, owner: Uid) -> Scene {
        if let Some(faulty) = self.leases.faulty.last_mut() {
            faulty.owner = Some(owner);
        }
        self
    }

    /// A process carries this cookie.
    pub(in crate::judge) fn cookie(mut self, number: i32, cookie: &str) -> Scene {
        self.leases.cookies.insert(id(number), Ok(cookie.into()));
        self.facts(number, |facts| {
            facts.env.as_mut().unwrap().insert(COOKIE.into(), cookie.into());
        })
    }

    /// A process is in the cgroup that a `reapd run` made for this lease, and carries no cookie.
    pub(in crate::judge) fn grouped(mut self, number: i32, lease: &str) -> Scene {
        self.leases.grouped.insert(id(number), crate::model::lease::LeaseId::new(lease).unwrap());
        self.facts(number, |facts| facts.cgroup = Ok(format!("/reapd-run-{lease}").into()))
    }

    /// What a process carries could not be read.
    pub(in crate::judge) fn unread_cookie(mut self, number: i32) -> Scene {
        let unknown = || Unknown::new(Reason::Denied, "its environment");
        self.leases.cookies.insert(id(number), Err(unknown()));
        self.facts(number, |facts| facts.env = Err(unknown()))
    }

    /// Something could not be seen.
    pub(in crate::judge) fn gap(mut self, source: &str) -> Scene {
        let why = Unknown::new(Reason::Denied, "it");
        self.gaps.push(Gap { source: source.into(), why, cure: None });
        self
    }

    /// A process is of this user.
    pub(in crate::judge) fn user(mut self, number: i32, uid: u32) -> Scene {
        self.users.insert(number, uid);
        self.facts(number, |facts| facts.uid = Ok(Uid(uid)))
    }

    /// What earlier looks left.
    pub(in crate::judge) fn remembering(mut self, memory: &Ledger) -> Scene {
        self.memory = memory.clone();
        self
    }

    /// The looking process is this one.
    pub(in crate::judge) fn own(mut self, number: i32) -> Scene {
        self.own = number;
        self
    }

    /// The policy asks in this way, in a line of this one rule.
    pub(in crate::judge) fn pinging(
        mut self,
        rule: &Rule,
        settings: &[(&'static str, Setting)],
        ping: Ping,
    ) -> Scene {
        self.pinging = Some((ping, condition(rule.spec.name, rule.spec.strength, settings)));
        self
    }

    /// Has the ledger begin a look.
    pub(in crate::judge) fn begin_with(&self, ledger: &mut Ledger, look: &Look) {
        ledger.begin(look, &self.config().confirm);
    }

    /// Has the ledger take a look at which the root was judged, and remember it.
    pub(in crate::judge) fn remember(&self, ledger: &mut Ledger) {
        self.remember_as(ledger, |verdicts| verdicts.judgements.iter().any(|one| one.root == id(ROOT)));
    }

    /// Has the ledger take a look at which nobody was judged.
    pub(in crate::judge) fn remember_nothing(&self, ledger: &mut Ledger) {
        let look = self.look();
        self.begin_with(ledger, &look);
        ledger.remember(&look, &Candidates::default(), &Verdicts::default(), &Notes::default());
    }

    fn remember_as(&self, ledger: &mut Ledger, fits: impl Fn(&Verdicts) -> bool) {
        let look = self.look();
        let config = self.config();
        ledger.begin(&look, &config.confirm);
        let candidates = candidates(&look, &config);
        let (verdicts, notes) = judge(&look, &config, &candidates, ledger);
        assert!(fits(&verdicts), "{verdicts:?}");
        ledger.remember(&look, &candidates, &verdicts, &notes);
    }

    fn config(&self) -> Config {
        let mut config = config(&self.private);
        if let Some((ping, condition)) = &self.pinging {
            config.policies.truncate(1);
            let policy = &mut config.policies[0];
            policy.ping = Some(ping.clone());
            policy.proof = ProofNeed::Waived;
            policy.reap_when = vec![Line { conditions: vec![condition.clone()], by_knowledge: None }];
        }
        config
    }

    /// Only the owner connects to this socket, as every policy says.
    pub(in crate::judge) fn private(mut self, name: &str) -> Scene {
        self.private.push(literal(name));
        self
    }

    /// Weighs by `weigh` and checks what comes of it.
    #[track_caller]
    pub(in crate::judge) fn check_by(
        &self,
        weigh: impl FnOnce(&Case<'_>) -> Found<Finding>,
        expected: &Says,
    ) {
        let found = self.case(weigh);
        let fits = match (expected, &found) {
            (Says::Yes(part), Ok(Finding { holds: Holds::Yes, why, .. }))
            | (Says::No(part), Ok(Finding { holds: Holds::No, why, .. })) => why.contains(part),
            (Says::Unknown(part), Err(Blank::Unknown(why))) => why.to_string().contains(part),
            (Says::Asks(questions), Err(Blank::Ask(asked))) => questions == asked,
            _ => false,
        };
        assert!(fits, "expected {expected:?}, found {found:?}");
    }

    /// Weighs by a rule with these settings and checks what comes of it.
    #[track_caller]
    pub(in crate::judge) fn check(&self, rule: &Rule, settings: &[(&'static str, Setting)], expected: &Says) {
        let settings: BTreeMap<&'static str, Setting> = settings.iter().cloned().collect();
        for name in settings.keys() {
            assert!(rule.spec.settings.iter().any(|spec| spec.name == *name), "no setting {name}");
        }
        self.check_by(|case| (rule.weigh.unwrap())(case, Settings(&settings)), expected);
    }

    /// Returns what is seen of the scene.
    pub(in crate::judge) fn look(&self) -> Look {
        let table = Table::new(self.rows.clone());
        let arguments = table
            .rows()
            .iter()
            .map(|row| Arguments {
                id: row.id,
                uid: Uid(self.users.get(&row.id.pid.number()).copied().unwrap_or(1000)),
                argv: if self.unread.contains(&row.id.pid.number()) {
                    Err(Unknown::new(Reason::Denied, "its arguments"))
                } else {
                    // What is older than the root is what may have started it, and no server.
                    let name = if row.id.pid.number() < ROOT { "shell" } else { "server" };
                    Ok(vec![BString::from(name)].into())
                },
            })
            .collect();
        let mut look = Look::new(Snapshot {
            boot: BootId("boot".into()),
            began: Clocks { boot: self.now, monotonic: self.now.0, wall: self.now.0 / 1_000_000 },
            table,
            arguments,
            own: Own {
                pid: pid(self.own),
                uid: Uid(1000),
                sid: 99,
                namespaces: Ok(namespaces()),
                home: None,
                scope: Scope::User,
            },
            configured: vec![McpServer {
                name: "server".into(),
                file: "servers.json".into(),
                command: "server".into(),
                args: Vec::new(),
            }],
            leases: self.leases.clone(),
            engines: Vec::new(),
            gaps: self.gaps.clone(),
        });
        look.answers = self.answers.clone();
        look
    }

    /// Hands out the case of the root.
    pub(in crate::judge) fn case<T>(&self, look_at: impl FnOnce(&Case<'_>) -> T) -> T {
        let look = self.look();
        let tree = descendants(&look.snapshot.table, id(ROOT));
        let config = self.config();
        look_at(&Case {
            look: &look,
            memory: &self.memory,
            config: &config,
            policy: &config.policies[0],
            root: look.snapshot.table.at(pid(ROOT)).unwrap(),
            captures: &self.captures,
            tree: &tree,
            others: &self.others,
        })
    }
}

/// A lease that process 40 holds and that covers whoever carries its name. Process 40 was seen alive for ten minutes.
pub(in crate::judge) fn lease(name: &str) -> Lease {
    Lease {
        id: LeaseId::new(name).unwrap(),
        file: LeaseFile { owner: Uid(1000), file: file(8, 900), modified: 3_600_000_000_000 },
        bound: Bound::Holder,
        holder: Some(Holder {
            pid: pid(40),
            start: Some(id(40).start),
            boot: Some(BootId("boot".into())),
            pidns: Some(1),
            timens: Some(1),
            host: None,
            age: Some(Duration::from_mins(10)),
        }),
        covers: Covers { env: Some(name.into()), processes: Vec::new() },
        labels: BTreeMap::new(),
        note: None,
        release: Release::Open,
        run: None,
    }
}

pub(in crate::judge) fn namespaces() -> Namespaces {
    Namespaces { pid: 1, mount: 1, net: 1, time: 1, user: 1 }
}

pub(in crate::judge) fn file(dev: u64, ino: u64) -> FileId {
    FileId { dev, ino }
}

fn directory(path: &str) -> Directory {
    Directory { path: path.into(), file: file(8, 700), fate: Ok(Fate::Linked), on: FileSystem::Local }
}

fn plain_facts(number: i32) -> Facts {
    Facts {
        id: id(number),
        uid: Ok(Uid(1000)),
        argv: Ok(vec!["server".into()]),
        exe: Ok(Executable { path: "/usr/bin/server".into(), file: file(8, 9) }),
        cwd: Ok(directory("/")),
        env: Ok(BTreeMap::new()),
        cgroup: Ok("/".into()),
        namespaces: Ok(namespaces()),
        tracer: Ok(None),
        hangup: Ok(Hangup::Default),
        freezer: Ok(Freezer::Thawed),
        unique: None,
    }
}

/// The directory of inode 600 of device 8, on a local file system that is mounted at `/`.
pub(in crate::judge) fn parent(path: &str) -> Parent {
    Parent { path: path.into(), file: file(8, 600), mount: "/".into(), on: FileSystem::Local }
}

pub(in crate::judge) fn pipe(far: FarEnd) -> Channel {
    Channel { kind: ChannelKind::Pipe { inode: 5 }, far: Ok(far), unread: Ok(0) }
}

pub(in crate::judge) fn stream(far: FarEnd) -> Channel {
    Channel { kind: ChannelKind::Stream { inode: 6 }, ..pipe(far) }
}

/// A descriptor that has no far end.
pub(in crate::judge) fn plain(kind: ChannelKind) -> Channel {
    let none = || Unknown::new(Reason::Unsupported, "its far end");
    Channel { kind, far: Err(none()), unread: Err(none()) }
}

pub(in crate::judge) fn listener(family: Family, name: &str) -> Listener {
    Listener { family, name: name.into(), inode: 70, file: None, pending: 0 }
}

pub(in crate::judge) fn connection(family: Family, name: &str, peer: Peer) -> Connection {
    Connection { family, name: name.into(), inode: 71, peer }
}

pub(in crate::judge) fn text(text: &str) -> Setting {
    Setting::Text(text.into())
}

/// A template without captures.
pub(in crate::judge) fn verbatim(text: &str) -> Template {
    Template { text: text.into(), parts: vec![TemplatePart::Literal(text.into())] }
}

/// A template of one capture.
pub(in crate::judge) fn captured(name: &str) -> Setting {
    Setting::Template(Template {
        text: format!("{{{name}}}"),
        parts: vec![TemplatePart::Capture(name.into())],
    })
}

/// A glob of one literal.
pub(in crate::judge) fn literal(text: &str) -> Glob {
    Glob { text: text.into(), parts: vec![GlobPart::Literal(text.into())] }
}

pub(in crate::judge) fn condition(
    rule: &'static str,
    strength: Strength,
    settings: &[(&'static str, Setting)],
) -> Condition {
    Condition { rule, strength, settings: settings.iter().cloned().collect() }
}

/// What is asked of the root's socket by policy `server`, in the words of MCP.
pub(in crate::judge) fn asked(socket: &str, patience: u64) -> Question {
    Question::Ping {
        of: id(ROOT),
        policy: "server".into(),
        call: Call::Mcp,
        socket: socket.into(),
        tree: vec![id(ROOT)],
        patience,
    }
}

/// A registry that is a server, called `r`.
pub(in crate::judge) fn registry_server(every: Duration) -> Registry {
    Registry {
        name: "r".into(),
        origin: Origin::Builtin,
        source: Source::Http(HttpRegistry {
            server: Server::Tcp { host: "127.0.0.1".into(), port: 1 },
            target: "/{key}".into(),
            method: Method::Get,
            headers: Vec::new(),
            body: None,
            every,
            alive: Vec::new(),
            gone: Vec::new(),
            listed: None,
            instance: Instance::Ancestor,
        }),
    }
}

pub(in crate::judge) fn config(private: &[Glob]) -> Config {
    let by_stdin =
        || Condition { rule: "stdin-abandoned", strength: Strength::Proof, settings: BTreeMap::new() };
    let policy = |name: &str, conditions: Vec<Condition>| Policy {
        name: name.into(),
        origin: Origin::Builtin,
        about: "servers".into(),
        mode: Mode::Reap,
        matches: vec![Match::McpConfigured],
        captures: BTreeMap::new(),
        reap_when: vec![Line { conditions, by_knowledge: None }],
        spare_when: Vec::new(),
        proof: ProofNeed::Required,
        ladder: Ladder(Vec::new()),
        private_listeners: private.to_vec(),
        detached: Detached::Spare,
        ping: None,
        residue: None,
        offer: Offer::No,
    };
    Config {
        mode: Mode::Reap,
        confirm: Confirm {
            looks: 2,
            apart: Duration::from_secs(10),
            min_age: Duration::from_mins(1),
            errand: Duration::from_mins(1),
            probe_timeout: Duration::from_secs(2),
        },
        limits: Limits { trees_per_sweep: 20, processes_per_tree: 500, same_cause: 5 },
        ladder: Ladder(Vec::new()),
        keep: Keep::default(),
        scope: AdmitEnv::Everybody,
        journal: JournalSettings { keep: Duration::from_hours(24), arguments: ArgumentsShown::Redacted },
        offered: Vec::new(),
        docker: crate::config::policy::Docker::default(),
        containers: Vec::new(),
        execs: crate::config::policy::ExecReport {
            about: String::new(),
            telling: crate::config::policy::Telling::Off,
        },
        registries: Vec::new(),
        policies: vec![
            policy("server", vec![by_stdin()]),
            policy("worker", vec![by_stdin()]),
            policy("picky", vec![by_stdin(), by_stdin()]),
        ],
    }
}

/// Checks that the finding counts at once without `for`, and only after the span with it.
#[track_caller]
pub(in crate::judge) fn lasts(scene: &Scene, rule: &Rule) {
    let span = Duration::from_mins(5);
    for (settings, lasting) in
        [(BTreeMap::new(), None), (BTreeMap::from([("for", Setting::Duration(span))]), Some(span))]
    {
        let found = scene.case(|case| (rule.weigh.unwrap())(case, Settings(&settings)));
        assert_eq!(found.map(|finding| (finding.holds, finding.lasting)), Ok((Holds::Yes, lasting)));
    }
}
