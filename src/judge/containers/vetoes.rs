//! What keeps a container though a line holds. Always in force, and an unanswered veto is a veto.

use std::collections::BTreeMap;

use bstr::{BStr, ByteSlice as _};

use crate::config::policy::{Condition, Line};
use crate::config::program_name;
use crate::judge::protect::{at_or_below, is_current};
use crate::judge::rule::{Blank, Finding, Found};
use crate::judge::weigh;
use crate::model::container::{ContainerState, Listed, MountKind, RestartPolicy};
use crate::model::docker_command::DockerCommand;
use crate::model::evidence::Evidence;
use crate::model::keep::Kept;
use crate::model::known::{Reason, Unknown};
use crate::model::question::{Census, EngineQuestion, Question};

use super::LEASE;
use super::case::ContainerCase;
use super::clients::{Known, is_nobodys, is_of_lease, names, shown};
use super::leased::{Said, said};

/// A person's mark that keeps a container.
const KEEP: &str = "dev.reapd.keep";

/// Labels of the directory that a container was made for.
const FOLDERS: [&str; 2] = ["com.docker.compose.project.working_dir", "devcontainer.local_folder"];

/// The label of a compose project.
const PROJECT: &str = "com.docker.compose.project";

/// Labels of a testcontainers session.
const SESSIONS: [&str; 2] = ["org.testcontainers.sessionId", "org.testcontainers.session-id"];

/// By whose word the line holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Word {
    /// By that of whoever owns it: its lease with reapd. Who could not be seen from here on any system then is no reason to keep it.
    Owners,
    /// By what was seen, the word of somebody else's registry included.
    Seen,
}

impl Word {
    /// Returns by whose word a line holds.
    pub(super) fn of(line: &Line) -> Word {
        // Whoever keeps a registry need not be the owner, and its word is seen like anything else.
        let is_lease = |condition: &Condition| {
            condition.rule == "lease-expired" && !condition.settings.contains_key("in")
        };
        if line.conditions.iter().any(is_lease) { Word::Owners } else { Word::Seen }
    }
}

/// One veto: its name, and a pure function that says *yes* where the container must be kept.
struct Veto {
    name: &'static str,
    weigh: fn(&ContainerCase<'_>, Word) -> Found<Finding>,
}

/// Every veto, cheapest first. Each has a test that goes red when its line is removed.
const ALL: [Veto; 11] = [
    Veto { name: "state", weigh: state },
    Veto { name: "restart-policy", weigh: restart_policy },
    Veto { name: "kubernetes", weigh: kubernetes },
    Veto { name: "new", weigh: new },
    Veto { name: "kept", weigh: kept },
    Veto { name: "labelled", weigh: labelled },
    Veto { name: "leased", weigh: leased },
    Veto { name: "ryuk", weigh: ryuk },
    Veto { name: "named", weigh: named },
    Veto { name: "exec", weigh: exec },
    Veto { name: "clients", weigh: clients },
];

/// Returns what every veto says of a container, up to the first that stands; or the questions that must be asked first.
pub(super) fn vetoes(case: &ContainerCase<'_>, word: Word) -> Result<Vec<Evidence>, Vec<Question>> {
    weigh::vetoed(ALL.iter().map(|veto| (veto.name, (veto.weigh)(case, word))))
}

/// Whatever does not plainly run is somebody's business already: paused ones go on (CASES B39), restarting ones come
/// back (C15), and those that are being removed go without us (C16).
#[expect(clippy::unnecessary_wraps, reason = "all vetoes have one signature")]
fn state(case: &ContainerCase<'_>, _: Word) -> Found<Finding> {
    let paused = [&case.listed.state, &case.facts.state].contains(&&ContainerState::Paused);
    let runs = case.listed.state == ContainerState::Running && case.facts.state == ContainerState::Running;
    Ok(if paused {
        Finding::yes("it is paused: somebody means to go on with it")
    } else if runs {
        Finding::no("it runs")
    } else {
        Finding::yes("it does not run")
    })
}

/// Whoever gave it a restart policy means it to run, and the engine would start it anew (CASES C15).
#[expect(clippy::unnecessary_wraps, reason = "all vetoes have one signature")]
fn restart_policy(case: &ContainerCase<'_>, _: Word) -> Found<Finding> {
    Ok(match &case.facts.restart {
        RestartPolicy::No => Finding::no("it has no restart policy"),
        RestartPolicy::Kept(policy) => Finding::yes(format!("its restart policy is '{policy}'")),
    })
}

/// A node's agent keeps it, and makes another one.
#[expect(clippy::unnecessary_wraps, reason = "all vetoes have one signature")]
fn kubernetes(case: &ContainerCase<'_>, _: Word) -> Found<Finding> {
    let is_of_a_cluster = |key: &&String| {
        key.starts_with("io.kubernetes.")
            || key.starts_with("io.x-k8s.")
            || *key == "app.kubernetes.io/managed-by"
    };
    Ok(match case.listed.labels.keys().find(is_of_a_cluster) {
        Some(key) => Finding::yes(format!("a cluster keeps it, by its label {key}")),
        None => Finding::no("no cluster keeps it"),
    })
}

/// What was made or started after the look began was not seen whole by it.
#[expect(clippy::unnecessary_wraps, reason = "all vetoes have one signature")]
fn new(case: &ContainerCase<'_>, _: Word) -> Found<Finding> {
    let look = case.look.snapshot.began;
    let made = i128::from(case.listed.created) * 1_000 > i128::from(look.wall);
    let started = case.facts.began.as_ref().is_ok_and(|began| *began > look.boot);
    Ok(if made || started {
        Finding::yes("it was started after this look began")
    } else {
        Finding::no("it was there when this look began")
    })
}

/// `[keep]`, `reapd keep` and `REAPD_KEEP=1`.
#[expect(clippy::unnecessary_wraps, reason = "all vetoes have one signature")]
fn kept(case: &ContainerCase<'_>, _: Word) -> Found<Finding> {
    let look = case.look;
    let marks = || look.marks.iter().filter(|mark| is_current(mark.until, look));
    if marks().any(|mark| matches!(&mark.what, Kept::Container { at, .. } if at.id == case.listed.id)) {
        return Ok(Finding::yes("it was marked with `reapd keep`"));
    }
    if let Some(value) = case.facts.env.get(b"REAPD_KEEP".as_bstr())
        && !value.is_empty()
        && value != "0"
    {
        return Ok(Finding::yes("REAPD_KEEP is set in its environment"));
    }
    let image = case.facts.image.rsplit('/').next().and_then(|last| last.split([':', '@']).next());
    let program = case.facts.argv.first().map(|first| program_name(first.as_bstr()));
    for glob in &case.config.keep.programs {
        if program.is_some_and(|name| glob.fits(name)) || image.is_some_and(|name| glob.fits(BStr::new(name)))
        {
            return Ok(Finding::yes(format!("'{}' stands under [keep] programs", glob.text)));
        }
    }
    let marked = marks().filter_map(|mark| match &mark.what {
        Kept::Directory { path } => Some(path.as_bstr()),
        Kept::Process { .. } | Kept::Container { .. } => None,
    });
    let directories: Vec<&BStr> =
        case.config.keep.directories.iter().map(|path| path.as_bstr()).chain(marked).collect();
    let binds = case.facts.mounts.iter().filter(|mount| mount.kind == MountKind::Bind);
    let folders = FOLDERS.iter().filter_map(|label| case.facts.labels.get(*label));
    let uses = binds.map(|mount| mount.source.as_bstr()).chain(folders.map(BStr::new));
    for path in uses {
        // What holds a kept directory can change it as well as what stands in it.
        let is_in = |kept: &&&BStr| at_or_below(path, kept) || at_or_below(kept, path);
        if let Some(kept) = directories.iter().find(is_in) {
            return Ok(Finding::yes(format!("it uses {kept}, which is kept")));
        }
    }
    Ok(Finding::no("nobody marked it to be kept"))
}

/// The label of its own that keeps it; one that its image gives to every container does not (REDTEAM S5).
fn labelled(case: &ContainerCase<'_>, _: Word) -> Found<Finding> {
    let is_set = |value: &str| !value.is_empty() && value != "0";
    if !case.facts.labels.get(KEEP).is_some_and(|value| is_set(value)) {
        return Ok(Finding::no("no label keeps it"));
    }
    Ok(match case.own_label(KEEP)? {
        Some(_) => Finding::yes(format!("its label {KEEP} keeps it")),
        None => Finding::no(format!("its image gives the label {KEEP} to everybody")),
    })
}

/// A lease that holds keeps, whatever else is so.
fn leased(case: &ContainerCase<'_>, _: Word) -> Found<Finding> {
    let Some(id) = case.facts.labels.get(LEASE) else { return Ok(Finding::no("no lease covers it")) };
    Ok(match said(case, id)? {
        Said::Held(why) => Finding::yes(why),
        Said::Over(why, _) => Finding::no(why),
        Said::Nothing => Finding::no(format!("its lease {id} is not there any more")),
    })
}

/// Says whether a container is the reaper of a testcontainers session.
pub(in crate::judge) fn is_ryuk(listed: &Listed) -> bool {
    listed.labels.contains_key("org.testcontainers.ryuk")
        || listed.image.contains("ryuk")
        || listed.names.iter().any(|name| name.contains("ryuk"))
}

/// Returns the testcontainers session of a container.
pub(in crate::judge) fn session(labels: &BTreeMap<String, String>) -> Option<&str> {
    SESSIONS.iter().find_map(|key| labels.get(*key)).map(String::as_str)
}

/// Returns the live reaper of a session. One that says no session may be anybody's.
pub(in crate::judge) fn ryuk_of<'a>(case: &ContainerCase<'a>, wanted: &str) -> Option<&'a Listed> {
    let listed = case.engine.containers.as_deref().unwrap_or_default();
    listed
        .iter()
        .filter(|other| is_ryuk(other))
        .find(|other| session(&other.labels).is_none_or(|session| session == wanted))
}

/// Ryuk removes what its session leaves; it is there, and knows better (CASES B38).
#[expect(clippy::unnecessary_wraps, reason = "all vetoes have one signature")]
fn ryuk(case: &ContainerCase<'_>, _: Word) -> Found<Finding> {
    let Some(session) = session(&case.listed.labels) else {
        return Ok(Finding::no("it is of no testcontainers session"));
    };
    Ok(match ryuk_of(case, session) {
        Some(_) => Finding::yes("the ryuk of its testcontainers session runs"),
        None => Finding::no("its testcontainers session has no ryuk"),
    })
}

/// A live client names it: by its name, the beginning of its id, or the file with its id. The one that `reapd run`
/// started for it does not count here: it goes with its lease.
fn named(case: &ContainerCase<'_>, word: Word) -> Found<Finding> {
    let clients = match case.clients() {
        Ok(clients) => clients,
        Err(Blank::Unknown(unknown)) if is_blind(word, &unknown) => {
            return Ok(Finding::no(format!("no client can be seen here ({unknown}), and its lease is over")));
        }
        Err(blank) => return Err(blank),
    };
    for Known { client, command } in case.known_clients()? {
        if is_nobodys(case, client) || is_of_lease(client, case.listed) {
            continue;
        }
        let by_file = matches!(&client.cidfile, Some(Ok(id)) if *id == case.listed.id);
        let by_words = client.argv.as_ref().is_ok_and(|argv| names(argv, command, case.listed).is_some());
        if by_file || by_words {
            return Ok(Finding::yes(format!("process {}, a client of the engine, names it", shown(client))));
        }
        if matches!(command, DockerCommand::Compose) && case.facts.labels.contains_key(PROJECT) {
            let what = format!("whether process {} shows what it says", shown(client));
            return Err(Unknown::new(Reason::NoRecord, what).into());
        }
    }
    match (clients.census, word) {
        (Census::Partial(untold), Word::Seen) => {
            let what = format!("who {untold} of the connections to its engine belong to");
            Err(Unknown::new(Reason::Denied, what).into())
        }
        (Census::Whole, _) => Ok(Finding::no("no client of the engine names it")),
        (Census::Partial(untold), Word::Owners) => Ok(Finding::no(format!(
            "no client that was seen names it, {untold} were not, and its lease is over"
        ))),
    }
}

/// Says whether something cannot be seen from here on any system, and the owner's word is enough.
fn is_blind(word: Word, unknown: &Unknown) -> bool {
    word == Word::Owners && matches!(unknown.reason, Reason::Unsupported | Reason::Foreign)
}

/// Somebody runs a command in it. Who has gone may have left it behind (CASES A20), and nobody can tell from outside.
fn exec(case: &ContainerCase<'_>, _: Word) -> Found<Finding> {
    let mut open = Vec::new();
    let mut unknown = None;
    for exec in &case.facts.execs {
        match case.engine_says(EngineQuestion::Exec { at: case.at(), exec: exec.clone() }) {
            Ok(_) => return Ok(Finding::yes("a command that was started in it later runs")),
            // It ended; an engine lists it for some minutes more.
            Err(Blank::Unknown(Unknown { reason: Reason::Vanished, .. })) => {}
            Err(Blank::Unknown(why)) => unknown = Some(why),
            Err(Blank::Ask(questions)) => open.extend(questions),
        }
    }
    match (open.is_empty(), unknown) {
        (false, _) => Err(Blank::Ask(open)),
        (true, Some(why)) => Err(why.into()),
        (true, None) => Ok(Finding::no("no command was started in it later")),
    }
}

/// It can be reached, and something is connected. Which end called is not told apart: where it only calls others
/// itself it listens nowhere as a rule.
fn clients(case: &ContainerCase<'_>, word: Word) -> Found<Finding> {
    let sockets = match case.sockets() {
        Ok(sockets) => sockets,
        Err(Blank::Unknown(unknown)) if is_blind(word, &unknown) => {
            return Ok(Finding::no(format!("nobody can be seen here ({unknown}), and its lease is over")));
        }
        Err(blank) => return Err(blank),
    };
    Ok(match (sockets.listeners.first(), sockets.connections.first()) {
        (Some(listener), Some(connection)) => Finding::yes(format!(
            "it can be reached at {}, and something is connected: {}",
            crate::model::escape::escape(listener.as_bytes()),
            crate::model::escape::escape(connection.as_bytes())
        )),
        (Some(_), None) => Finding::no("nobody is connected to it"),
        (None, Some(_) | None) => Finding::no("it listens nowhere"),
    })
}
