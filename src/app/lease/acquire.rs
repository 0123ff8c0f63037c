//! `reapd lease acquire`: makes a lease and prints its id, for `id=$(reapd lease acquire …)`.

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::io::Errno;
use serde_json::json;

use super::identity::{self, NobodyError, YOUNG};
use super::store::{self, Store, StoreError};
use super::{id_of, own_store, store_trouble};
use crate::app::cli::Acquire;
use crate::app::exit::Exit;
use crate::app::report::json::SCHEMA;
use crate::app::session::Session;
use crate::app::trouble::{Trouble, chain};
use crate::app::words;
use crate::judge::leased;
use crate::model::escape::escape;
use crate::model::id::{Pid, ProcessId};
use crate::model::lease::{Bound, Holder, Lease, Release};

/// Runs it.
pub(super) fn acquire(session: &mut Session, args: &Acquire) -> Result<Exit, Trouble> {
    let holder = args.holder.map(holder).transpose()?;
    let bound = match &args.ttl {
        None => Bound::Holder,
        Some(text) => Bound::Ttl(ttl(text)?),
    };
    let id = match &args.id {
        Some(text) => id_of(text)?,
        None => store::fresh_id("n")
            .map_err(|error| Trouble::because("cannot make up an id", &std::io::Error::from(error)))?,
    };
    let mut lease = store::draft(id, bound);
    lease.covers.env = Some(lease.id.as_str().into());
    lease.covers.processes = args.pids.iter().map(|&pid| covered(pid)).collect::<Result<_, _>>()?;
    lease.labels = labels(&args.labels)?;
    lease.note.clone_from(&args.note);
    lease.holder = holder;
    let store = own_store(session)?;
    write(session, &store, &lease)?;
    warn(session, &lease);
    if session.place.json {
        let path = store.path_of(&lease.id);
        session.json(&json!({ "schema": SCHEMA, "id": lease.id.as_str(), "file": path.to_string_lossy() }));
    } else {
        session.out.line(lease.id.as_str());
    }
    Ok(Exit::Done)
}

/// Writes the lease: a new one, or in the place of one that is released and covers nobody any more. Whoever it still
/// covers would be held by the new one.
fn write(session: &Session, store: &Store, lease: &Lease) -> Result<(), Trouble> {
    let trouble = |error: StoreError| store_trouble(&error);
    let Err(error) = store.add(lease) else { return Ok(()) };
    if matches!(error, StoreError::Exists(_))
        && let Some(old) = store.read(&lease.id).map_err(trouble)?
        && matches!(old.release, Release::Released(_))
        && is_done(session, &old)?
    {
        return store.succeed(lease, &old.file).map_err(trouble);
    }
    Err(store_trouble(&error))
}

fn is_done(session: &Session, lease: &Lease) -> Result<bool, Trouble> {
    let config = session.configuration()?.config;
    let (look, _) = super::list::look(session, &config)?;
    let seen = look.snapshot.leases.get(lease.file.owner, &lease.id);
    Ok(seen.filter(|seen| seen.file == lease.file).is_some_and(|seen| {
        let covered = leased::covered(seen, &look);
        covered.all.is_empty() && covered.spared.is_empty()
    }))
}

/// Says that a young holder may be an errand: its lease would end with it (REDTEAM F5).
fn warn(session: &mut Session, lease: &Lease) {
    let Some(Holder { pid, age: Some(age), .. }) = lease.holder else { return };
    if age < YOUNG {
        session.talk(&format!(
            "process {pid} began {} ago: if it only runs an errand, such as a hook's shell, name whoever started it",
            words::span(age)
        ));
    }
}

fn holder(number: i32) -> Result<Holder, Trouble> {
    identity::of(number_of(number)?).map_err(|error| nobody(&error))
}

fn covered(number: i32) -> Result<ProcessId, Trouble> {
    let pid = number_of(number)?;
    let there = rustix::process::Pid::from_raw(pid.number()).map(rustix::process::test_kill_process);
    if there == Some(Err(Errno::PERM)) {
        return Err(Trouble::failed(format!("process {pid} is not yours"))
            .hint("a lease counts only for processes of whoever owns its file"));
    }
    identity::process(pid).map_err(|error| nobody(&error))
}

fn number_of(number: i32) -> Result<Pid, Trouble> {
    Pid::new(number).ok_or_else(|| Trouble::usage(format!("{number} is no process number")))
}

fn nobody(error: &NobodyError) -> Trouble {
    Trouble::failed(chain(error))
}

fn ttl(text: &str) -> Result<Duration, Trouble> {
    let wrong = |why: &str| {
        Trouble::usage(format!("'{}' is no time to live: {why}", escape(text.as_bytes())))
            .hint("write 30s, 5m, 12h or 2d")
    };
    let span = words::parse_span(text).ok_or_else(|| wrong("it is no span of time"))?;
    // The file has whole seconds.
    if span.subsec_nanos() != 0 || span.is_zero() {
        return Err(wrong("it is whole seconds, and one at least"));
    }
    if span > crate::model::lease::format::LONGEST {
        return Err(wrong("it is a year at most"));
    }
    Ok(span)
}

fn labels(texts: &[String]) -> Result<BTreeMap<String, String>, Trouble> {
    let mut labels = BTreeMap::new();
    for text in texts {
        let (key, value) = text.split_once('=').filter(|(key, _)| !key.is_empty()).ok_or_else(|| {
            Trouble::usage(format!("'{}' is no label", escape(text.as_bytes()))).hint("write KEY=VALUE")
        })?;
        if labels.insert(key.to_owned(), value.to_owned()).is_some() {
            return Err(Trouble::usage(format!("label {} is given twice", escape(key.as_bytes()))));
        }
    }
    Ok(labels)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_to_live_is_whole_seconds_up_to_a_year() {
        assert_eq!(ttl("30s").unwrap(), Duration::from_secs(30));
        for bad in ["0s", "1500ms", "x", "400d", ""] {
            assert!(ttl(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn a_label_has_a_key_and_one_value() {
        let of = |texts: &[&str]| labels(&texts.iter().map(|&text| text.to_owned()).collect::<Vec<_>>());
        assert_eq!(of(&["a=b=c", "d="]).unwrap()["a"], "b=c");
        for bad in [&["a"][..], &["=b"], &["a=1", "a=2"]] {
            assert!(of(bad).is_err(), "{bad:?}");
        }
    }
}
