//! `reapd lease release --wait`: returns only when everything that the lease covered was seen gone, or names who is left.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use bstr::ByteSlice as _;
use serde_json::{Value, json};

use super::store::Store;
use super::{own_store, place, store_trouble};
use crate::app::containers::LEASE;
use crate::app::containers::named::listed;
use crate::app::exit::Exit;
use crate::app::legible::text;
use crate::app::look::gather;
use crate::app::report::containers::name;
use crate::app::report::json::SCHEMA;
use crate::app::session::Session;
use crate::app::signals::{self, Waited};
use crate::app::trouble::Trouble;
use crate::judge::leased::{covered, questions};
use crate::model::escape::escape;
use crate::model::id::{ProcessId, Uid};
use crate::model::lease::{COOKIE, LeaseId};
use crate::model::look::Look;
use crate::model::ownership::descendants;
use crate::observe::Observer;

/// Whether somebody else's finish is over is asked this often.
const TICK: Duration = Duration::from_millis(50);

/// Who was kept at the end of a finish may go by itself, or be let go: asked again after this, and then more seldom.
const AGAIN: Duration = Duration::from_millis(500);
const SELDOM: Duration = Duration::from_secs(5);

/// Releases a lease and waits until what it covered is gone.
pub(super) fn release_and_wait(
    session: &mut Session,
    id: &LeaseId,
    patience: Duration,
) -> Result<Exit, Trouble> {
    drop_cookie(id)?;
    let end = Instant::now() + patience;
    let store = own_store(session)?;
    // The look comes first: who drops off when the root goes is covered now. What keeps us from looking keeps nobody
    // from being released.
    let watched = Watch::begin(session, &store, id);
    store.release(id, None).map_err(|error| store_trouble(&error))?;
    let mut watch = watched?;
    match watch.until(session, end)? {
        Left::Nobody => {
            say(session, id, &[], &watch);
            Ok(Exit::Done)
        }
        Left::Some(left) => {
            say(session, id, &left, &watch);
            Ok(Exit::Failed)
        }
        Left::Interrupted => Ok(Exit::Interrupted),
    }
}

/// Lets go of the cookie, where the caller handed it to us: to other callers we would look like one more process that
/// the lease covers.
fn drop_cookie(id: &LeaseId) -> Result<(), Trouble> {
    use std::os::unix::ffi::OsStrExt as _;
    let carried = std::env::var_os(COOKIE);
    if carried.is_none_or(|cookie| cookie.as_bytes() != id.as_str().as_bytes()) {
        return Ok(());
    }
    let trouble = |error: std::io::Error| Trouble::because("cannot run again without the lease", &error);
    let program = std::env::current_exe().map_err(trouble)?;
    let error = Command::new(program).args(std::env::args_os().skip(1)).env_remove(COOKIE).exec();
    Err(trouble(error))
}

fn say(session: &mut Session, id: &LeaseId, left: &[(ProcessId, String, String)], watch: &Watch<'_>) {
    let (spared, open) = (&watch.spared, watch.contained.open());
    if session.place.json {
        let left_json: Vec<Value> = left
            .iter()
            .map(|(id, name, why)| {
                json!({ "pid": id.pid.number(), "start": id.start.0, "name": name, "why": text(why) })
            })
            .collect();
        let spared: Vec<Value> = spared
            .iter()
            .map(|(id, why)| json!({ "pid": id.pid.number(), "start": id.start.0, "why": text(why) }))
            .collect();
        let contained: Vec<Value> = open
            .iter()
            .map(|(id, name, why)| json!({ "id": id, "name": text(name), "why": text(why) }))
            .collect();
        session.json(&json!({
            "schema": SCHEMA,
            "id": id.as_str(),
            "gone": left.is_empty() && open.is_empty(),
            "left": left_json,
            "containers_left": contained,
            "spared": spared,
        }));
        return;
    }
    for (id, name, why) in &open {
        let line = format!("container {}   {}   {}", &id[..id.len().min(12)], text(name), text(why));
        session.out.line(&line);
    }
    for (id, name, why) in left {
        let line = format!("{id}   {name}   {}", text(why));
        session.out.line(&line);
    }
    for (id, why) in &watch.contained.kept {
        session.talk(&format!("container {} bears the lease and stays: {why}", &id[..id.len().min(12)]));
    }
    for (id, why) in spared {
        session.talk(&format!("process {id} carries the lease and is not covered by it: {why}"));
    }
}

/// Who is left when waiting is over.
enum Left {
    Nobody,
    /// These, each with its name and why it is still there.
    Some(Vec<(ProcessId, String, String)>),
    Interrupted,
}

/// What one lease covered, followed by identity until it is gone.
struct Watch<'a> {
    store: &'a Store,
    id: &'a LeaseId,
    owner: Uid,
    eyes: Observer,
    /// Everybody who was seen covered, and everybody below them, gone ones included.
    covered: BTreeSet<ProcessId>,
    /// Whom the lease concerns and does not cover, at the last look.
    spared: BTreeMap<ProcessId, String>,
    /// Why who is left was left, as the last finish says.
    reasons: BTreeMap<i64, String>,
    contained: Contained,
}

/// The containers that bear the lease in their labels, by their whole ids.
#[derive(Debug, Default)]
struct Contained {
    /// Those that an engine lists, with their names.
    listed: BTreeMap<String, String>,
    /// Those that the last finish found to be nobody's business, with the reason.
    kept: BTreeMap<String, String>,
    /// What the last finish says of those that it set about.
    said: BTreeMap<String, String>,
}

impl Contained {
    /// Returns those that are still to go, each with its name and why it is there.
    fn open(&self) -> Vec<(String, String, String)> {
        let listed = self.listed.iter().filter(|(id, _)| !self.kept.contains_key(*id));
        listed
            .map(|(id, name)| {
                let why = self.said.get(id).map_or("it is still there", String::as_str);
                (id.clone(), name.clone(), why.to_owned())
            })
            .collect()
    }

    fn look(&mut self, look: &Look, lease: &LeaseId) {
        let listed = listed(&look.snapshot.engines)
            .filter(|(_, listed)| listed.labels.get(LEASE).is_some_and(|label| label == lease.as_str()));
        self.listed = listed.map(|(at, listed)| (at.id.as_str().to_owned(), name(listed))).collect();
    }

    /// Takes in what a finish says of them.
    fn hear(&mut self, json: &Value) {
        let pairs = |list: &Value, key: &str| -> BTreeMap<String, String> {
            let entries = list.as_array().into_iter().flatten();
            let pair =
                |entry: &Value| Some((entry["id"].as_str()?.to_owned(), entry[key].as_str()?.to_owned()));
            entries.filter_map(pair).collect()
        };
        self.kept = pairs(&json["containers_kept"], "why");
        self.said = pairs(&json["container_reports"], "detail");
    }
}

impl<'a> Watch<'a> {
    fn begin(session: &Session, store: &'a Store, id: &'a LeaseId) -> Result<Watch<'a>, Trouble> {
        let config = session.configuration()?.config;
        let eyes = session.observer(&config)?;
        let owner = Uid(place::own(&session.around).owner);
        // Other callers may have seen whom nothing but their number shows any more.
        let covered = store.seen(id);
        let (spared, reasons, contained) = (BTreeMap::new(), BTreeMap::new(), Contained::default());
        let mut watch = Watch { store, id, owner, eyes, covered, spared, reasons, contained };
        watch.look()?;
        watch.store.remember_seen(id, &watch.covered);
        Ok(watch)
    }

    /// Looks, and returns who is left of all that was ever covered, each with its name.
    fn look(&mut self) -> Result<Vec<(ProcessId, String)>, Trouble> {
        let snapshot =
            self.eyes.table().map_err(|error| Trouble::because("cannot read the process table", &error))?;
        let mut look = Look::new(snapshot);
        let (owner, id) = (self.owner, self.id);
        gather(&mut self.eyes, &mut look, |look| {
            look.snapshot.leases.get(owner, id).map(|lease| questions(lease, look)).unwrap_or_default()
        });
        if let Some(lease) = look.snapshot.leases.get(owner, id) {
            let found = covered(lease, &look);
            self.covered.extend(found.all);
            self.spared = found.spared.into_iter().collect();
        }
        self.contained.look(&look, id);
        let table = &look.snapshot.table;
        let alive = |id: ProcessId| table.get(id).is_some_and(|row| !row.is_gone());
        let known: Vec<ProcessId> = self.covered.iter().copied().filter(|id| alive(*id)).collect();
        // What was born meanwhile below one of them is covered as it is.
        self.covered.extend(known.iter().flat_map(|id| descendants(table, *id)));
        let own = look.snapshot.own.pid;
        let left = self.covered.iter().filter(|id| id.pid != own && alive(**id));
        let left = left.filter_map(|id| Some((*id, escape(table.get(*id)?.name())))).collect();
        self.eyes.recycle(look.snapshot);
        Ok(left)
    }

    fn until(&mut self, session: &Session, end: Instant) -> Result<Left, Trouble> {
        let mut pause = AGAIN;
        let mut due = Instant::now();
        loop {
            let mut left = self.look()?;
            let is_free = self.store.try_lock(self.id).map_err(|error| store_trouble(&error))?.is_some();
            if is_free && left.is_empty() && self.contained.open().is_empty() {
                // Whoever had the turn until now may have left somebody to be seen.
                left = self.look()?;
                if left.is_empty() && self.contained.open().is_empty() {
                    return Ok(Left::Nobody);
                }
            }
            if Instant::now() >= end {
                self.store.remember_seen(self.id, &self.covered);
                return Ok(Left::Some(self.named(left)));
            }
            if is_free && Instant::now() >= due {
                if self.finish(session, end)? == Waited::Stopped {
                    return Ok(Left::Interrupted);
                }
                due = Instant::now() + pause;
                pause = (pause * 2).min(SELDOM);
            } else if signals::wait(TICK.min(end.saturating_duration_since(Instant::now())))
                == Waited::Stopped
            {
                return Ok(Left::Interrupted);
            }
        }
    }

    fn named(&self, left: Vec<(ProcessId, String)>) -> Vec<(ProcessId, String, String)> {
        // What is said of number 0 is said of everybody.
        let of = |number: i64| self.reasons.get(&number).cloned();
        let why = |id: ProcessId| of(id.pid.number().into()).or_else(|| of(0));
        left.into_iter()
            .map(|(id, name)| (id, name, why(id).unwrap_or_else(|| "it is still there".to_owned())))
            .collect()
    }

    /// Has a process of a session of its own end what it may, and waits for it; when the time is over it goes on alone.
    fn finish(&mut self, session: &Session, end: Instant) -> Result<Waited, Trouble> {
        let trouble = |error: std::io::Error| Trouble::because("cannot start reapd finish", &error);
        let mut command = Command::new(std::env::current_exe().map_err(trouble)?);
        command.args(["finish", self.id.as_str(), "--json"]);
        for (flag, path) in [("--config", &session.place.config), ("--state-dir", &session.place.state_dir)] {
            if let Some(path) = path {
                command.arg(flag).arg(path);
            }
        }
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut child = command.spawn().map_err(trouble)?;
        // Apart, so that a long answer does not wait for us while we wait for its end.
        let reader = child.stdout.take().map(|mut out| {
            std::thread::spawn(move || {
                let mut text = Vec::new();
                let _ = out.read_to_end(&mut text);
                text
            })
        });
        let waited = wait_for(&mut child, end);
        if waited == Waited::Ready
            && let Some(text) = reader.and_then(|reader| reader.join().ok())
        {
            // A later one need not see any more whom an earlier one spared.
            self.reasons.extend(reasons(&text));
            if let Ok(json) = serde_json::from_slice::<Value>(&text) {
                self.contained.hear(&json);
            }
        }
        Ok(waited)
    }
}

fn wait_for(child: &mut Child, end: Instant) -> Waited {
    loop {
        if !matches!(child.try_wait(), Ok(None)) {
            return Waited::Ready;
        }
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Waited::Over;
        }
        if signals::wait(left.min(Duration::from_millis(20))) == Waited::Stopped {
            return Waited::Stopped;
        }
    }
}

/// Returns why who is left was left, by number.
fn reasons(text: &[u8]) -> BTreeMap<i64, String> {
    let mut found = BTreeMap::new();
    let Ok(json) = serde_json::from_slice::<Value>(text) else { return found };
    let all = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut add = |entry: &Value, why: Option<String>| {
        if let (Some(pid), Some(why)) = (entry["pid"].as_i64(), why) {
            found.insert(pid, why);
        }
    };
    let said = |value: &Value| value.as_str().map(str::to_owned);
    if let Some(message) = json["error"]["message"].as_str() {
        // Of everybody, since nobody was looked at.
        let first = message.as_bytes().lines().next().unwrap_or_default().to_str_lossy().into_owned();
        found.insert(0, first);
        return found;
    }
    for teardown in all(&json["teardowns"]) {
        for spared in all(&teardown["spared"]) {
            add(&spared, said(&spared["why"]));
        }
        for member in all(&teardown["members"]) {
            let outcome = member["outcome"].as_str().unwrap_or_default();
            if !matches!(outcome, "exited" | "already-gone") {
                let detail =
                    member["detail"].as_str().map(|detail| format!(": {detail}")).unwrap_or_default();
                add(&member, Some(format!("{outcome}{detail}")));
            }
        }
    }
    for kept in all(&json["kept"]) {
        add(&kept, said(&kept["why"]).map(|why| format!("kept: {why}")));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::sample;
    use crate::model::container::{Engine, sample as container};
    use crate::model::known::{Reason, Unknown};

    #[test]
    fn a_container_that_bears_the_lease_is_waited_for_until_a_finish_lets_it_be() {
        let lease = LeaseId::new("run-1").unwrap();
        let labelled = |number: u32, label: &str| {
            let mut listed = container::listed(number);
            listed.labels.insert(LEASE.to_owned(), label.to_owned());
            listed
        };
        let mut look = Look::new(sample::snapshot(&[]));
        look.snapshot.engines = vec![Engine {
            id: container::at(0).engine,
            from: String::new(),
            kind: Err(Unknown::new(Reason::NotAsked, "kind")),
            containers: Ok(vec![labelled(1, "run-1"), labelled(2, "run-2"), container::listed(3)]),
        }];
        let mut contained = Contained::default();
        contained.look(&look, &lease);
        let id = container::id(1);
        let open = |contained: &Contained| -> Vec<String> {
            contained.open().into_iter().map(|(id, _, why)| format!("{} {why}", &id[..12])).collect()
        };
        assert_eq!(open(&contained), ["000000000001 it is still there"]);
        contained.hear(&json!({ "container_reports": [{ "id": id.as_str(), "detail": "no exit event" }] }));
        assert_eq!(open(&contained), ["000000000001 no exit event"]);
        contained.hear(&json!({ "containers_kept": [{ "id": id.as_str(), "why": "you keep it" }] }));
        assert_eq!(open(&contained), [] as [&str; 0]);
        look.snapshot.engines[0].containers = Ok(Vec::new());
        contained.hear(&json!({}));
        contained.look(&look, &lease);
        assert_eq!(open(&contained), [] as [&str; 0], "it is gone");
    }
}
