//! Engines for tests: containers, clients, and what each question about them comes back with.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::time::Duration;

use bstr::BString;

use crate::config::policy::Config;
use crate::config::{Context, Source, load};
use crate::judge::rules::ALL;
use crate::judge::rules::support::{id, namespaces, pid};
use crate::judge::{Candidates, Ledger, Notes, candidates, judge, questions};
use crate::model::container::judgement::ContainerJudgement;
use crate::model::container::{
    Attached, AutoRemoval, ContainerFacts, ContainerId, ContainerRef, ContainerRun, ContainerSockets,
    ContainerState, ContainerStdin, Engine, EngineClient, EngineClients, EngineId, EngineKind, Listed, Reach,
    RestartPolicy, Tty,
};
use crate::model::id::{BootId, Start, Uid};
use crate::model::keep::KeepMark;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::lease::Leases;
use crate::model::look::{Gap, Look, Own, Scope, Snapshot};
use crate::model::moment::{Clocks, Moment};
use crate::model::question::{
    Answer, Answers, Census, Channel, ChannelKind, EngineAnswer, EngineQuestion, FarEnd, Question,
};
use crate::model::rule::RuleSpec;
use crate::model::table::{Row, Table, plain_row};
use crate::model::verdict::{Verdict, Verdicts};

/// The number of reapd itself.
const OWN: i32 = 9;

/// An engine with what is known of it. Seconds count from the boot.
#[derive(Debug, Clone)]
pub(in crate::judge) struct World {
    pub(in crate::judge) config: Config,
    pub(in crate::judge) kind: Known<EngineKind>,
    /// Nothing where the engine did not answer.
    pub(in crate::judge) listed: Known<Vec<Listed>>,
    pub(in crate::judge) facts: BTreeMap<ContainerId, Known<ContainerFacts>>,
    pub(in crate::judge) stdins: BTreeMap<ContainerId, Known<Channel>>,
    pub(in crate::judge) sockets: BTreeMap<ContainerId, Known<ContainerSockets>>,
    pub(in crate::judge) clients: Known<EngineClients>,
    pub(in crate::judge) image_labels: Known<BTreeMap<String, String>>,
    pub(in crate::judge) leases: Leases,
    pub(in crate::judge) gaps: Vec<Gap>,
    pub(in crate::judge) marks: Vec<KeepMark>,
    pub(in crate::judge) rows: Vec<Row>,
    pub(in crate::judge) others: Answers,
    pub(in crate::judge) now: u64,
    /// How far the monotonic clock stands behind the boot clock.
    pub(in crate::judge) slept: u64,
    pub(in crate::judge) scope: Scope,
    /// Questions that are not answered.
    pub(in crate::judge) unasked: BTreeSet<Question>,
}

/// Returns what a configuration says. Reading the built-in policies takes longest of all, so each text is read once.
pub(in crate::judge) fn config(text: &str) -> Config {
    static READ: Mutex<BTreeMap<String, Config>> = Mutex::new(BTreeMap::new());
    if let Some(config) = READ.lock().unwrap().get(text) {
        return config.clone();
    }
    let config = load_text(text);
    READ.lock().unwrap().insert(text.to_owned(), config.clone());
    config
}

fn load_text(text: &str) -> Config {
    let rules: Vec<&RuleSpec> = ALL.iter().map(|rule| &rule.spec).collect();
    let context = Context { rules: &rules, home: None };
    load(Some(Source { name: "test", text }), &context).unwrap()
}

pub(in crate::judge) fn container(number: u8) -> ContainerId {
    ContainerId::new(&format!("{number:02x}").repeat(32)).unwrap()
}

pub(in crate::judge) fn engine() -> EngineId {
    EngineId("/run/docker.sock".into())
}

pub(in crate::judge) fn at(number: u8) -> ContainerRef {
    ContainerRef { engine: engine(), id: container(number) }
}

pub(in crate::judge) fn unknown(reason: Reason) -> Unknown {
    Unknown::new(reason, "it")
}

fn moment(seconds: u64) -> Moment {
    Moment(0).plus(Duration::from_secs(seconds))
}

/// Returns a name of the form that an engine gives: `calm_ab`, `calm_ac` and so on.
pub(in crate::judge) fn given(number: u8) -> String {
    let letter = |number: u8| char::from(b'a' + number);
    format!("calm_{}{}", letter(number / 26), letter(number % 26))
}

/// The wall clock at the boot, seconds.
const BOOTED: u64 = 1_700_000_000;

pub(in crate::judge) fn pipe(far: FarEnd) -> Channel {
    Channel { kind: ChannelKind::Pipe { inode: 7 }, far: Ok(far), unread: Ok(0) }
}

impl World {
    pub(in crate::judge) fn new() -> World {
        World {
            config: config(""),
            kind: Ok(EngineKind::Docker("28".into())),
            listed: Ok(Vec::new()),
            facts: BTreeMap::new(),
            stdins: BTreeMap::new(),
            sockets: BTreeMap::new(),
            clients: Ok(EngineClients {
                clients: Vec::new(),
                census: Census::Whole,
                reach: Ok(Reach::Local),
            }),
            image_labels: Ok(BTreeMap::new()),
            leases: Leases::default(),
            gaps: Vec::new(),
            marks: Vec::new(),
            rows: vec![plain_row(pid(1), 0, Start(1)), plain_row(pid(OWN), 1, Start(1))],
            others: Answers::new(),
            now: 10_000,
            slept: 0,
            scope: Scope::Host,
            unasked: BTreeSet::new(),
        }
    }

    /// One container of `docker run -i --rm image` that began at 1000, whose client is dead.
    pub(in crate::judge) fn stray() -> World {
        World::new().made(1, 1_000)
    }

    pub(in crate::judge) fn configured(mut self, text: &str) -> World {
        self.config = config(text);
        self
    }

    /// A container of `docker run -i --rm image`, its input at an end.
    pub(in crate::judge) fn made(mut self, number: u8, began: u64) -> World {
        let id = container(number);
        let name = given(number);
        let image_id = format!("sha256:{}", "ab".repeat(32));
        let init = i32::from(number) + 1_000;
        let labels = BTreeMap::from([("maker".to_owned(), "someone".to_owned())]);
        let mut row = plain_row(pid(init), 1, Start(5));
        row.began = moment(began);
        row.resident = 1_000;
        self.rows.push(row);
        if let Ok(listed) = &mut self.listed {
            listed.push(Listed {
                id: id.clone(),
                names: vec![name.clone()],
                image: "image".into(),
                image_id: image_id.clone(),
                state: ContainerState::Running,
                created: i64::try_from(BOOTED + began).unwrap() - 1,
                labels: labels.clone(),
            });
        }
        let facts = ContainerFacts {
            run: ContainerRun { at: at(number), started: format!("started-{number}") },
            name,
            image: "image".into(),
            image_id,
            argv: vec!["/server".into()],
            command: Vec::new(),
            state: ContainerState::Running,
            init: Ok(row.id),
            began: Ok(moment(began)),
            stdin: ContainerStdin { open: Attached::Yes, once: Attached::Yes, attached: Attached::Yes },
            foreground: Ok(Attached::Yes),
            tty: Tty::No,
            removal: AutoRemoval::Yes,
            restart: RestartPolicy::No,
            health: None,
            published: Vec::new(),
            network: "none".into(),
            mounts: Vec::new(),
            labels,
            env: BTreeMap::new(),
            execs: Vec::new(),
        };
        self.facts.insert(id.clone(), Ok(facts));
        self.stdins.insert(id.clone(), Ok(pipe(FarEnd::Gone)));
        self.sockets.insert(id, Ok(ContainerSockets::default()));
        self
    }

    /// A live client of the engine.
    pub(in crate::judge) fn client(mut self, number: i32, began: u64, line: &str) -> World {
        let argv: Vec<BString> = line.split_whitespace().map(BString::from).collect();
        let client = EngineClient {
            id: id(number),
            began: moment(began),
            argv: Ok(argv),
            cwd: Err(unknown(Reason::Denied)),
            cidfile: None,
        };
        self.census(|clients| clients.clients.push(client));
        self
    }

    pub(in crate::judge) fn census(&mut self, change: impl FnOnce(&mut EngineClients)) {
        if let Ok(clients) = &mut self.clients {
            change(clients);
        }
    }

    pub(in crate::judge) fn clients(mut self, change: impl FnOnce(&mut EngineClients)) -> World {
        self.census(change);
        self
    }

    pub(in crate::judge) fn facts(mut self, number: u8, change: impl FnOnce(&mut ContainerFacts)) -> World {
        if let Some(Ok(facts)) = self.facts.get_mut(&container(number)) {
            change(facts);
        }
        self
    }

    pub(in crate::judge) fn list(mut self, number: u8, change: impl FnOnce(&mut Listed)) -> World {
        if let Ok(listed) = &mut self.listed
            && let Some(listed) = listed.iter_mut().find(|listed| listed.id == container(number))
        {
            change(listed);
        }
        self
    }

    /// A label of its own, in the list and in what the engine says of it alone.
    pub(in crate::judge) fn label(self, number: u8, key: &str, value: &str) -> World {
        let entry = || (key.to_owned(), value.to_owned());
        self.list(number, |listed| listed.labels.extend([entry()]))
            .facts(number, |facts| facts.labels.extend([entry()]))
    }

    pub(in crate::judge) fn stdin(mut self, number: u8, channel: Channel) -> World {
        self.stdins.insert(container(number), Ok(channel));
        self
    }

    pub(in crate::judge) fn open(self, number: u8) -> World {
        self.stdin(number, pipe(FarEnd::Held))
    }

    /// No input can be read, as for an ordinary user.
    pub(in crate::judge) fn unread(mut self) -> World {
        for stdin in self.stdins.values_mut() {
            *stdin = Err(unknown(Reason::Denied));
        }
        self.scope = Scope::User;
        self
    }

    pub(in crate::judge) fn socket(mut self, number: u8, listener: &[&str], connection: &[&str]) -> World {
        let list = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        let sockets = ContainerSockets { listeners: list(listener), connections: list(connection) };
        self.sockets.insert(container(number), Ok(sockets));
        self
    }

    pub(in crate::judge) fn answer(mut self, question: Question, answer: Known<Answer>) -> World {
        self.others.insert(question, answer);
        self
    }

    pub(in crate::judge) fn now(mut self, now: u64) -> World {
        self.now = now;
        self
    }

    pub(in crate::judge) fn look(&self) -> Look {
        let engines = vec![Engine {
            id: engine(),
            from: "a usual place".into(),
            kind: self.kind.clone(),
            containers: self.listed.clone(),
        }];
        let mut look = Look::new(Snapshot {
            boot: BootId("boot".into()),
            began: Clocks {
                boot: moment(self.now),
                monotonic: moment(self.now - self.slept).0,
                wall: (BOOTED + self.now) * 1_000,
            },
            table: Table::new(self.rows.clone()),
            arguments: Vec::new(),
            own: Own {
                pid: pid(OWN),
                uid: match self.scope {
                    Scope::Host => Uid::ROOT,
                    Scope::User => Uid(1000),
                },
                sid: 99,
                namespaces: Ok(namespaces()),
                home: None,
                scope: self.scope,
            },
            configured: Vec::new(),
            leases: self.leases.clone(),
            engines,
            gaps: self.gaps.clone(),
        });
        look.marks.clone_from(&self.marks);
        look
    }

    /// Returns what comes back for a question.
    fn answered(&self, question: &Question) -> Option<Known<Answer>> {
        if self.unasked.contains(question) {
            return None;
        }
        if let Some(answer) = self.others.get(question) {
            return Some(answer.clone());
        }
        let Question::Engine(engine) = question else { return None };
        let answer = match engine {
            EngineQuestion::Container(at) => {
                self.facts.get(&at.id)?.clone().map(|facts| EngineAnswer::Container(Box::new(facts)))
            }
            EngineQuestion::ImageLabels { .. } => self.image_labels.clone().map(EngineAnswer::ImageLabels),
            EngineQuestion::Clients(_) => self.clients.clone().map(EngineAnswer::Clients),
            EngineQuestion::Stdin(run) => self.stdins.get(&run.at.id)?.clone().map(EngineAnswer::Stdin),
            EngineQuestion::Sockets(run) => self.sockets.get(&run.at.id)?.clone().map(EngineAnswer::Sockets),
            EngineQuestion::Exec { .. } | EngineQuestion::Ping { .. } => return None,
        };
        Some(answer.map(Answer::Engine))
    }

    /// Asks what is asked for, as `app` does, and returns the look with all that came back.
    pub(in crate::judge) fn asked(&self, ledger: &mut Ledger) -> (Look, Candidates) {
        let mut look = self.look();
        ledger.begin(&look, &self.config.confirm);
        let candidates = candidates(&look, &self.config);
        loop {
            let open = questions(&look, &self.config, &candidates, ledger);
            let mut is_told = false;
            for question in open {
                if let Some(answer) = self.answered(&question) {
                    look.answers.insert(question, answer);
                    is_told = true;
                }
            }
            if !is_told {
                return (look, candidates);
            }
        }
    }

    /// Looks once, and has the ledger remember.
    pub(in crate::judge) fn look_with(&self, ledger: &mut Ledger) -> (Verdicts, Look) {
        let (look, candidates) = self.asked(ledger);
        let (verdicts, notes): (Verdicts, Notes) = judge(&look, &self.config, &candidates, ledger);
        ledger.remember(&look, &candidates, &verdicts, &notes);
        (verdicts, look)
    }

    /// Returns the judgement on a container by a policy at a first look.
    pub(in crate::judge) fn judged(&self, number: u8, policy: &str) -> Option<ContainerJudgement> {
        self.judged_with(number, policy, &mut Ledger::default())
    }

    pub(in crate::judge) fn judged_with(
        &self,
        number: u8,
        policy: &str,
        ledger: &mut Ledger,
    ) -> Option<ContainerJudgement> {
        let (verdicts, _) = self.look_with(ledger);
        let is_it = |judgement: &ContainerJudgement| judgement.at == at(number) && judgement.policy == policy;
        verdicts.containers.into_iter().find(is_it)
    }

    /// Checks the verdict on container 1 by `docker-run`, and a part of its reason.
    #[track_caller]
    pub(in crate::judge) fn is(&self, word: &str, why: &str) -> ContainerJudgement {
        self.is_by(1, "docker-run", word, why)
    }

    #[track_caller]
    pub(in crate::judge) fn is_by(
        &self,
        number: u8,
        policy: &str,
        word: &str,
        why: &str,
    ) -> ContainerJudgement {
        let judgement = self.judged(number, policy).expect("no policy looks at it");
        assert_eq!(named(&judgement.verdict), word, "{}", judgement.because);
        assert!(judgement.because.contains(why), "{}", judgement.because);
        judgement
    }
}

/// Returns the word for a verdict.
pub(in crate::judge) fn named(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Protected => "protected",
        Verdict::Alive => "alive",
        Verdict::Unknown => "unknown",
        Verdict::Suspect { .. } => "suspect",
        Verdict::Orphaned { .. } => "orphaned",
    }
}
