//! Writes leases, cookies and what registries answered, as [`super::read`] reads them.

use std::fmt::Write as _;
use std::time::Duration;

use crate::model::id::ProcessId;
use crate::model::lease::{Bound, Covers, Holder, Lease, Leftovers, Release, Run, RunChannel};
use crate::model::look::Look;
use crate::model::question::Registered;

use super::super::print::{file, name};
use super::super::words::{known, quote, span, unknown};

/// Returns the lines of all leases and cookies of a look.
pub(in super::super) fn print(look: &Look) -> String {
    let leases = &look.snapshot.leases;
    let mut text = String::new();
    // Writing to a string cannot fail.
    for lease in &leases.list {
        let _ = writeln!(text, "  {}", line(look, lease));
    }
    for faulty in &leases.faulty {
        let owner = faulty.owner.map_or("none".to_owned(), |uid| uid.to_string());
        let _ =
            writeln!(text, "  faulty-lease {} owner={owner} {}", quote(&faulty.stem), unknown(&faulty.why));
    }
    for (id, cookie) in &leases.cookies {
        let _ = writeln!(text, "  cookie {} {}", name(look, *id), known(cookie, |value| quote(value)));
    }
    for (id, lease) in &leases.grouped {
        let _ = writeln!(text, "  grouped {} {lease}", name(look, *id));
    }
    text
}

/// Returns what a registry answered, in words.
pub(in super::super) fn registered(answer: &Registered) -> String {
    match answer {
        Registered::Listed { holder: None } => "listed".to_owned(),
        Registered::Listed { holder: Some(it) } => format!("listed{}", holder(it)),
        Registered::Over(why) => format!("over={}", quote(why.as_bytes())),
        Registered::NotListed { others } => format!("others={others}"),
    }
}

fn line(look: &Look, lease: &Lease) -> String {
    let Lease { id, file: at, bound, holder: by, covers, labels, note, release, run } = lease;
    let mut text = format!("lease {id}");
    let mut add = |key: &str, value: &str| {
        let _ = write!(text, " {key}={value}");
    };
    match bound {
        Bound::Holder => add("bound", "holder"),
        Bound::Ttl(ttl) => {
            add("bound", "ttl");
            add("ttl", &nanoseconds(*ttl));
        }
    }
    add("owner", &at.owner.to_string());
    add("file", &file(at.file));
    add("modified", &at.modified.to_string());
    let Covers { env, processes } = covers;
    if let Some(env) = env {
        add("env", &quote(env));
    }
    if !processes.is_empty() {
        add("covers", &names(look, processes));
    }
    for (key, value) in labels {
        let value = quote(value.as_bytes());
        if !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte)) {
            add(&format!("label.{key}"), &value);
        } else {
            add("label-name", &quote(key.as_bytes()));
            add("label-value", &value);
        }
    }
    if let Some(note) = note {
        add("note", &quote(note.as_bytes()));
    }
    if let Some(Run { watcher, command, leftovers, channel, cgroup }) = run {
        add("watcher", &name(look, *watcher));
        if let Some(command) = command {
            add("command", &name(look, *command));
        }
        if let Some(cgroup) = cgroup {
            add("cgroup", &quote(cgroup.path.as_bytes()));
            add("cgroup-file", &file(cgroup.file));
        }
        add(
            "leftovers",
            match leftovers {
                Leftovers::Reap => "reap",
                Leftovers::Report => "report",
            },
        );
        add(
            "channel",
            match channel {
                RunChannel::Stdio => "stdio",
                RunChannel::None => "none",
            },
        );
    }
    if let Some(by) = by {
        text.push_str(&holder(by));
    }
    match release {
        Release::Open => {}
        Release::Released(None) => text.push_str(" released"),
        Release::Released(Some(why)) => {
            let _ = write!(text, " released={}", quote(why.as_bytes()));
        }
    }
    text
}

fn holder(holder: &Holder) -> String {
    let Holder { pid, start, boot, pidns, timens, host, age } = holder;
    let mut text = format!(" holder={pid}");
    let mut add = |key: &str, value: Option<String>| {
        if let Some(value) = value {
            let _ = write!(text, " {key}={value}");
        }
    };
    add("start", start.map(|start| start.0.to_string()));
    add("boot", boot.as_ref().map(|boot| quote(boot.0.as_bytes())));
    add("pidns", pidns.map(|ns| ns.to_string()));
    add("timens", timens.map(|ns| ns.to_string()));
    add("host", host.as_ref().map(|host| quote(host.as_bytes())));
    add("age", age.map(nanoseconds));
    text
}

fn nanoseconds(duration: Duration) -> String {
    span(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX))
}

fn names(look: &Look, ids: &[ProcessId]) -> String {
    ids.iter().map(|id| name(look, *id)).collect::<Vec<_>>().join(",")
}
