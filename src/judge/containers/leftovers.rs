//! Commands that were started inside a container later (`docker exec -i`) and whose client is gone, while the container
//! itself goes on (CASES A20). They are told, and nothing else: no plan meets them.
//!
//! The table says for nothing where to look: such a command is a child of whoever is the parent of the container's first
//! process, its shim. Only such a container is asked for, and its commands. One is left behind where its input ended for
//! good with nothing left to read, and no live client of the engine could be its own: every connection was traced, the
//! engine can be reached from this machine alone, and each client began later, is no `exec`, or runs another command or
//! in another container. Whatever is not known is not told.

use bstr::BString;

use crate::config::policy::{Config, Telling};
use crate::judge::Ledger;
use crate::judge::case::misfit;
use crate::judge::rule::{Blank, Found};
use crate::model::container::leftover::{ExecFate, ExecJudgement};
use crate::model::container::{
    Attached, ContainerFacts, ContainerRef, ContainerState, Engine, EngineClient, EngineClients, EngineKind,
    ExecFacts, Listed, Reach, Tty,
};
use crate::model::docker_command::{DockerCommand, Executed};
use crate::model::id::ProcessId;
use crate::model::known::{Reason, Unknown};
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::ownership::descendants;
use crate::model::question::{Answer, Census, Channel, EngineAnswer, EngineQuestion, FarEnd, Question};

use super::Admission;
use super::candidates::is_admitted;
use super::clients::{TICKS, command_of, created, runs_for_nobody, shown};

/// Returns what must still be known of commands inside containers.
pub(in crate::judge) fn questions(look: &Look, config: &Config, ledger: &Ledger) -> Vec<Question> {
    let grounds = grounds(look, config, ledger);
    grounds.filter_map(|ground| ground.execs().err()).flatten().collect()
}

/// Returns what is said of each command inside a container, sorted by container and id.
pub(in crate::judge) fn judge(look: &Look, config: &Config, ledger: &Ledger) -> Vec<ExecJudgement> {
    let mut found: Vec<ExecJudgement> = Vec::new();
    for ground in grounds(look, config, ledger) {
        // What was never answered is not told.
        found.extend(ground.execs().unwrap_or_default());
    }
    found.sort_by(|one, other| (&one.at, &one.exec).cmp(&(&other.at, &other.exec)));
    found
}

/// Returns every running container of an engine of Docker's. Podman starts a process of its own beside each command, and
/// never says how one was attached to.
fn grounds<'a>(look: &'a Look, config: &'a Config, ledger: &'a Ledger) -> impl Iterator<Item = Ground<'a>> {
    let engines = look.snapshot.engines.iter().filter(|engine| {
        config.execs.telling == Telling::Report && matches!(engine.kind, Ok(EngineKind::Docker(_)))
    });
    engines.flat_map(move |engine| {
        let listed = engine.containers.as_deref().unwrap_or_default().iter();
        listed.filter(|listed| listed.state == ContainerState::Running).map(move |listed| {
            let at = ContainerRef { engine: engine.id.clone(), id: listed.id.clone() };
            Ground { look, config, ledger, engine, listed, at }
        })
    })
}

/// One container that runs.
struct Ground<'a> {
    look: &'a Look,
    config: &'a Config,
    ledger: &'a Ledger,
    engine: &'a Engine,
    listed: &'a Listed,
    at: ContainerRef,
}

/// One command whose client is looked for.
struct Subject<'a> {
    exec: &'a ExecFacts,
    began: Moment,
}

/// What a live client of the engine is to a command.
enum Bond {
    /// It runs it.
    Own(String),
    /// It may; why nobody can tell.
    May(&'static str),
    /// It cannot.
    Not,
}

impl<'a> Ground<'a> {
    /// Returns what is said of each command inside of it, or what must be asked first.
    fn execs(&self) -> Result<Vec<ExecJudgement>, Vec<Question>> {
        let question = Question::Engine(EngineQuestion::Container(self.at.clone()));
        let facts = match self.look.answers.get(&question) {
            Some(Ok(Answer::Engine(EngineAnswer::Container(facts)))) => facts.as_ref(),
            // It went, or its engine did not say.
            Some(_) => return Ok(Vec::new()),
            None => {
                return match self.ledger.container(&self.at, self.listed, self.look, &self.config.scope) {
                    Some((_, Admission::Foreign)) => Ok(Vec::new()),
                    Some((facts, Admission::Admitted)) if !self.has_stray(&facts) => Ok(Vec::new()),
                    // What is said of a command rests on no memory.
                    Some(_) | None => Err(vec![question]),
                };
            }
        };
        let is_it = facts.run.at == self.at && facts.state == ContainerState::Running;
        if !is_it || !is_admitted(&self.config.scope, facts) || !self.has_stray(facts) {
            return Ok(Vec::new());
        }
        let mut open = Vec::new();
        let mut execs = Vec::new();
        for exec in &facts.execs {
            match self.exec(exec) {
                Ok(Some(judgement)) => execs.push(judgement),
                Ok(None) => {}
                Err(questions) => open.extend(questions),
            }
        }
        if open.is_empty() { Ok(execs) } else { Err(open) }
    }

    /// Says whether the parent of its first process has another child: a command that was started in it later.
    fn has_stray(&self, facts: &ContainerFacts) -> bool {
        let table = &self.look.snapshot.table;
        let Some(init) = facts.init.as_ref().ok().and_then(|init| table.get(*init)) else { return false };
        // Whose shim died is adopted, and has siblings that are nobody's business here.
        init.ppid > 1
            && table.rows().iter().any(|row| row.ppid == init.ppid && row.id != init.id && !row.is_gone())
    }

    /// Returns what is said of one command; nothing where it has ended.
    fn exec(&self, exec: &str) -> Result<Option<ExecJudgement>, Vec<Question>> {
        let facts = match self.facts(exec) {
            Ok(facts) => Ok(facts),
            Err(Blank::Ask(questions)) => return Err(questions),
            Err(Blank::Unknown(Unknown { reason: Reason::Vanished, .. })) => return Ok(None),
            Err(Blank::Unknown(unknown)) => Err(unknown),
        };
        let table = &self.look.snapshot.table;
        let init = facts.as_ref().map_err(Clone::clone).and_then(|facts| facts.init.clone());
        let row = init.as_ref().ok().and_then(|init| table.get(*init));
        let (fate, because) = match facts.as_ref().map_err(Clone::clone).map(|facts| self.weigh(facts)) {
            Ok(Ok(said)) => said,
            Ok(Err(Blank::Ask(questions))) => return Err(questions),
            Ok(Err(Blank::Unknown(unknown))) | Err(unknown) => (ExecFate::CannotTell, unknown.to_string()),
        };
        let tree = row.map(|row| descendants(table, row.id)).unwrap_or_default();
        let began = match (row, &init) {
            (Some(row), _) => Ok(row.began),
            (None, Err(unknown)) => Err(unknown.clone()),
            (None, Ok(_)) => Err(late()),
        };
        Ok(Some(ExecJudgement {
            at: self.at.clone(),
            listed: self.listed.clone(),
            exec: exec.to_owned(),
            argv: facts.map(|facts| facts.argv.clone()).unwrap_or_default(),
            init,
            resident: tree.iter().filter_map(|id| table.get(*id)).map(|row| row.resident).sum(),
            tree,
            began,
            fate,
            because,
        }))
    }

    /// Weighs one command, cheapest first.
    fn weigh(&self, exec: &ExecFacts) -> Found<(ExecFate, String)> {
        let used = |why: String| Ok((ExecFate::Used, why));
        let blind = |why: &str| Ok((ExecFate::CannotTell, why.to_owned()));
        if exec.tty == Tty::Yes {
            return blind("it has a terminal, whose input stays open whoever goes");
        }
        // `docker exec -d` is meant to stay; one with its output alone (no -i) looks the same from outside.
        if exec.stdin == Attached::No {
            return blind("it was given no input, so nothing tells whether somebody waits for it");
        }
        let init = exec.init.clone()?;
        let row = self.look.snapshot.table.get(init).ok_or_else(late)?;
        if self.look.snapshot.began.boot.since(row.began) < self.config.confirm.min_age {
            return used(format!("it is younger than {}s", self.config.confirm.min_age.as_secs()));
        }
        let input = self.input(init)?;
        if !input.kind.has_far_end() {
            return blind("its input is not the one that it was started with");
        }
        match (input.far.clone()?, input.unread.clone()?) {
            (FarEnd::Held, _) => return used("its input is open, so its client is there".to_owned()),
            (FarEnd::Gone, 0) => {}
            (FarEnd::Gone, left) => return used(format!("{left} bytes of its input are still to be read")),
        }
        let clients = self.clients()?;
        let subject = Subject { exec, began: row.began };
        let mut may = None;
        for client in &clients.clients {
            match self.bond(client, &subject) {
                Bond::Own(why) => {
                    return used(format!("its client, process {}, is alive: {why}", shown(client)));
                }
                Bond::May(why) => may = may.or(Some((client, why))),
                Bond::Not => {}
            }
        }
        if let Reach::Network(place) = clients.reach.as_ref().map_err(Clone::clone)? {
            let what = format!("who uses its engine from elsewhere: it can be reached at {place}");
            return Err(Unknown::new(Reason::Foreign, what).into());
        }
        if let Census::Partial(untold) = clients.census {
            let what = format!("who {untold} of the connections to its engine belong to");
            return Err(Unknown::new(Reason::Denied, what).into());
        }
        if let Some((client, why)) = may {
            let what = format!("whether process {} is its client: {why}", shown(client));
            return Err(Unknown::new(Reason::NoRecord, what).into());
        }
        let count = clients.clients.len();
        let why = format!("its input ended for good, and none of the {count} clients of its engine runs it");
        Ok((ExecFate::LeftBehind, why))
    }

    /// Returns what a live client is to a command.
    fn bond(&self, client: &EngineClient, to: &Subject<'_>) -> Bond {
        // Whoever runs a command is there before it, and nobody can be attached to one that runs.
        if client.began > to.began.plus(TICKS) || runs_for_nobody(self.look, self.config, client) {
            return Bond::Not;
        }
        let Ok(argv) = &client.argv else { return Bond::May("its arguments cannot be read") };
        match command_of(client) {
            // Builders run commands in containers of their own kind.
            DockerCommand::Elsewhere if is_builder(argv) => Bond::May("it builds, which may run commands"),
            DockerCommand::Run(_) | DockerCommand::Attached(_) | DockerCommand::Elsewhere => Bond::Not,
            DockerCommand::Compose if !self.listed.labels.contains_key("com.docker.compose.project") => {
                Bond::Not
            }
            DockerCommand::Compose => Bond::May("it may run it in its compose project"),
            DockerCommand::Anything => Bond::May("what it does at the engine cannot be told"),
            DockerCommand::About(_) => self.executed(client, argv, to),
        }
    }

    /// Returns what a client is to a command that may be a `docker exec`.
    fn executed(&self, client: &EngineClient, argv: &[BString], to: &Subject<'_>) -> Bond {
        let (container, command) = match Executed::of(argv) {
            Executed::Nothing => return Bond::Not,
            Executed::Unclear => return Bond::May("its command line was not understood"),
            Executed::In { container, argv } => (container, argv),
        };
        // What is no text reaches the engine as another one.
        let is_text = command.iter().all(|word| std::str::from_utf8(word).is_ok());
        if is_text && command != to.exec.argv {
            return Bond::Not;
        }
        let is_named = |listed: &Listed| listed.names.iter().any(|name| container == name.as_bytes());
        if is_named(self.listed) || self.listed.id.as_str().as_bytes().starts_with(&container) {
            return Bond::Own(format!("it names '{container}'"));
        }
        let others = self.engine.containers.as_deref().unwrap_or_default();
        // A name that passed on since it was said means another container now.
        let is_anothers = |other: &Listed| {
            other.id.as_str().as_bytes().starts_with(&container) && container.len() >= 12
                || is_named(other)
                    && created(self.look, other.created).is_some_and(|created| created <= client.began)
        };
        if others.iter().any(is_anothers) {
            return Bond::Not;
        }
        Bond::May("the container that it names is not there under that name")
    }

    fn facts(&self, exec: &str) -> Found<&'a ExecFacts> {
        let question = EngineQuestion::Exec { at: self.at.clone(), exec: exec.to_owned() };
        let Answer::Engine(EngineAnswer::Exec(facts)) = self.answer(&Question::Engine(question))? else {
            return Err(misfit());
        };
        Ok(facts)
    }

    fn input(&self, of: ProcessId) -> Found<&'a Channel> {
        let Answer::Channel(channel) = self.answer(&Question::Channel { of, fd: 0 })? else {
            return Err(misfit());
        };
        Ok(channel)
    }

    fn clients(&self) -> Found<&'a EngineClients> {
        let question = Question::Engine(EngineQuestion::Clients(self.engine.id.clone()));
        let Answer::Engine(EngineAnswer::Clients(clients)) = self.answer(&question)? else {
            return Err(misfit());
        };
        Ok(clients)
    }

    fn answer(&self, question: &Question) -> Found<&'a Answer> {
        match self.look.answers.get(question) {
            None => Err(Blank::Ask(vec![question.clone()])),
            Some(Ok(answer)) => Ok(answer),
            Some(Err(unknown)) => Err(Blank::Unknown(unknown.clone())),
        }
    }
}

/// Says whether a client of docker's builds images: `docker build`, `docker buildx`, `docker builder`, or the plug-in.
fn is_builder(argv: &[BString]) -> bool {
    let is_it = |word: &BString| ["build", "buildx", "builder"].iter().any(|verb| word == verb);
    argv.iter().skip(1).any(is_it) || argv.first().is_some_and(|first| first.ends_with(b"docker-buildx"))
}

fn late() -> Unknown {
    Unknown::new(Reason::NoRecord, "its first process, which is not in the table of this look")
}
