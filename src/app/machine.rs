//! A machine in a text, for the tests of this floor: it is what the test says until the test, or an event that the
//! test has set, changes it. Nobody on it has a number of a process that is really there and the same boot.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::look::Eyes;
use super::trouble::Trouble;
use crate::model::container::{
    ContainerFacts, ContainerSockets, Engine, EngineClients, EngineKind, Listed, Reach, sample as container,
};
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::{Look, Snapshot};
use crate::model::moment::{Clocks, Moment};
use crate::model::question::{Answer, Census, EngineAnswer, EngineQuestion, Question};
use crate::model::world;

/// A machine in a text.
pub(super) struct Machine<'a> {
    look: Look,
    /// How far the test has put its clock forward.
    pub(super) ahead: Duration,
    /// How long it has slept, as the boot clock and the wall clock tell and the monotonic one does not.
    pub(super) asleep: Duration,
    /// Since when the clock runs by itself; it stands where this is nothing.
    running: Option<Instant>,
    /// When each table was scanned.
    pub(super) scans: Vec<Moment>,
    /// What its container engine says of each container; there is none where there is no engine.
    pub(super) containers: Option<Vec<ContainerFacts>>,
    events: Vec<(When, Event<'a>)>,
}

/// What happens to a machine.
type Event<'a> = Box<dyn FnOnce(&mut Machine<'a>) + 'a>;

/// When something happens to a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum When {
    /// Right before its clocks are read for the next time.
    Clocks,
    /// Right before so manieth a scan of its table, counted from 1.
    Scan(usize),
}

impl<'a> Machine<'a> {
    /// Returns a machine with these rows and lines below init and an editor.
    pub(super) fn new(lines: &str) -> Machine<'a> {
        Machine {
            look: parsed(lines),
            ahead: Duration::ZERO,
            asleep: Duration::ZERO,
            running: None,
            scans: Vec::new(),
            containers: None,
            events: Vec::new(),
        }
    }

    /// Makes it a machine with these rows and lines.
    pub(super) fn is(&mut self, lines: &str) {
        self.look = parsed(lines);
    }

    /// Lets its clock run.
    pub(super) fn run(&mut self) {
        self.running = Some(Instant::now());
    }

    /// Has something happen to it.
    pub(super) fn at(&mut self, when: When, event: impl FnOnce(&mut Machine<'a>) + 'a) {
        self.events.push((when, Box::new(event)));
    }

    fn happens(&mut self, now: When) {
        while let Some(at) = self.events.iter().position(|(when, _)| *when == now) {
            let (_, event) = self.events.remove(at);
            event(self);
        }
    }

    /// Answers for an engine that nobody is connected to.
    fn of_engine(&self, question: &EngineQuestion) -> Known<Answer> {
        let unknown = || Unknown::new(Reason::Vanished, "the container");
        let answer = match question {
            EngineQuestion::Container(at) => {
                let mut all = self.containers.iter().flatten();
                let facts = all.find(|facts| facts.run.at == *at).ok_or_else(unknown)?;
                EngineAnswer::Container(Box::new(facts.clone()))
            }
            EngineQuestion::ImageLabels { .. } => EngineAnswer::ImageLabels(BTreeMap::new()),
            EngineQuestion::Clients(_) => EngineAnswer::Clients(EngineClients {
                clients: Vec::new(),
                census: Census::Whole,
                reach: Ok(Reach::Local),
            }),
            EngineQuestion::Sockets(_) => EngineAnswer::Sockets(ContainerSockets::default()),
            EngineQuestion::Stdin(_) | EngineQuestion::Exec { .. } | EngineQuestion::Ping { .. } => {
                return Err(unknown());
            }
        };
        Ok(Answer::Engine(answer))
    }

    fn moment(&self) -> Clocks {
        let after = self.ahead + self.running.map_or(Duration::ZERO, |since| since.elapsed());
        let began = self.look.snapshot.began;
        Clocks {
            boot: began.boot.plus(after + self.asleep),
            monotonic: Moment(began.monotonic).plus(after).0,
            wall: began.wall + u64::try_from((after + self.asleep).as_millis()).unwrap(),
        }
    }
}

fn engine(all: &[ContainerFacts]) -> Engine {
    let listed = |facts: &ContainerFacts| Listed {
        id: facts.run.at.id.clone(),
        names: vec![facts.name.clone()],
        image: facts.image.clone(),
        image_id: facts.image_id.clone(),
        state: facts.state.clone(),
        created: 0,
        labels: facts.labels.clone(),
    };
    Engine {
        id: container::at(0).engine,
        from: "a usual place".into(),
        kind: Ok(EngineKind::Docker("28.2.2".into())),
        containers: Ok(all.iter().map(listed).collect()),
    }
}

fn parsed(lines: &str) -> Look {
    let head = "reapd world 1\nlook at 10d\n  pid  ppid began command\n  1 0 10d init\n  6000 1 3d editor\n";
    world::parse(&format!("{head}{lines}")).unwrap().remove(0)
}

impl Eyes for Machine<'_> {
    fn table(&mut self) -> Result<Snapshot, Trouble> {
        self.happens(When::Scan(self.scans.len() + 1));
        let began = self.moment();
        self.scans.push(began.boot);
        let engines = self.containers.iter().map(|all| engine(all)).collect();
        Ok(Snapshot { began, engines, ..self.look.snapshot.clone() })
    }

    fn answer(&mut self, _: &Snapshot, questions: &[Question]) -> Vec<(Question, Known<Answer>)> {
        let answer = |question: &Question| {
            if let Question::Engine(question) = question {
                return self.of_engine(question);
            }
            let said = self.look.answers.get(question).cloned();
            said.or_else(|| world::answer(&self.look, question)).unwrap()
        };
        questions.iter().map(|question| (question.clone(), answer(question))).collect()
    }

    fn clocks(&mut self) -> Clocks {
        self.happens(When::Clocks);
        self.moment()
    }

    fn pin(&mut self, _: &[ProcessId]) {}

    fn lost(&mut self) -> Vec<ProcessId> {
        Vec::new()
    }
}

/// Eyes on a machine that the test changes meanwhile.
pub(super) struct Shared<'a, 'm>(pub(super) &'a RefCell<Machine<'m>>);

impl Eyes for Shared<'_, '_> {
    fn table(&mut self) -> Result<Snapshot, Trouble> {
        self.0.borrow_mut().table()
    }

    fn answer(&mut self, snapshot: &Snapshot, questions: &[Question]) -> Vec<(Question, Known<Answer>)> {
        self.0.borrow_mut().answer(snapshot, questions)
    }

    fn clocks(&mut self) -> Clocks {
        self.0.borrow_mut().clocks()
    }

    fn pin(&mut self, _: &[ProcessId]) {}

    fn lost(&mut self) -> Vec<ProcessId> {
        Vec::new()
    }
}
