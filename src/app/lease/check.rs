//! `reapd lease check`: says what is wrong with a lease file and where, or what the lease means.

use std::fs::File;
use std::io::Read as _;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::Path;

use bstr::BStr;
use serde_json::json;
use std::os::unix::ffi::OsStrExt as _;

use super::place;
use super::store::file_of;
use crate::app::exit::Exit;
use crate::app::legible;
use crate::app::report::json::SCHEMA;
use crate::app::session::Session;
use crate::app::trouble::Trouble;
use crate::app::words::{age, count};
use crate::config::duration;
use crate::model::known::Reason;
use crate::model::lease::format::{FormatFault, LARGEST, parse};
use crate::model::lease::{Bound, Holder, Lease, Release};
use crate::observe;

/// Runs it.
pub(super) fn check(session: &mut Session, file: &Path) -> Result<Exit, Trouble> {
    let shown = session.shown(file);
    let checked = examine(file).map_err(|error| Trouble::failed(format!("cannot read {shown}: {error}")))?;
    let (lease, text) = match checked {
        Ok(found) => found,
        Err(fault) => {
            let message = legible::text(&fault.message);
            if session.place.json {
                let fault = json!({ "line": fault.line, "column": fault.column, "message": message });
                session.json(&json!({ "schema": SCHEMA, "ok": false, "fault": fault }));
            } else {
                session.out.line(&format!("{shown}:{}:{}: {message}", fault.line, fault.column));
            }
            return Ok(Exit::Usage);
        }
    };
    let mut remarks = meaning(&lease);
    if let Some(stray) = stray(session, file, &lease) {
        remarks.push(stray);
    }
    let unknown = unknown_members(&text);
    if !unknown.is_empty() {
        remarks.push(format!("passed over, since this version does not know them: {}", unknown.join(", ")));
    }
    if session.place.json {
        session.json(&json!({ "schema": SCHEMA, "ok": true, "id": lease.id.as_str(), "means": remarks }));
    } else {
        session.out.line(&format!("{}: ok", lease.id));
        for remark in remarks {
            let remark = legible::text(&remark);
            session.out.line(&format!("  {remark}"));
        }
    }
    Ok(Exit::Done)
}

type Checked = Result<(Lease, Vec<u8>), FormatFault>;

fn examine(path: &Path) -> std::io::Result<Checked> {
    let whole = |message: &str| Ok(Err(FormatFault { line: 1, column: 1, message: message.to_owned() }));
    let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let file = match File::options().read(true).custom_flags(flags).open(path) {
        Ok(file) => file,
        Err(error) if error.raw_os_error() == Some(libc::ELOOP) => {
            return whole("it is a symbolic link, and a sweep follows none");
        }
        Err(error) => return Err(error),
    };
    let stat = file.metadata()?;
    if !stat.is_file() {
        return whole("it is no regular file");
    }
    if stat.mode() & 0o022 != 0 {
        return whole("others may write to it (chmod go-w)");
    }
    if stat.nlink() > 1 {
        return whole("it has more than one name (hard links)");
    }
    let stem = match path.extension() {
        Some(extension) if extension == "json" => path.file_stem().unwrap_or_default(),
        Some(_) | None => return whole("its name does not end in .json, so that no sweep reads it"),
    };
    let mut text = Vec::new();
    file.take(u64::try_from(LARGEST).unwrap_or(u64::MAX - 1) + 1).read_to_end(&mut text)?;
    Ok(parse(BStr::new(stem.as_bytes()), &text, file_of(&stat)).map(|lease| (lease, text)))
}

/// Says what a lease means, one sentence each.
fn meaning(lease: &Lease) -> Vec<String> {
    let mut says = Vec::new();
    match &lease.release {
        Release::Open => {}
        Release::Released(None) => says.push("it is released: the next sweeps end what it covers".to_owned()),
        Release::Released(Some(reason)) => {
            says.push(format!("it is released ({reason}): the next sweeps end what it covers"));
        }
    }
    match lease.bound {
        Bound::Holder => says.push("it ends with its holder, and never by time".to_owned()),
        Bound::Ttl(span) => says.push(format!(
            "it ends when nobody touches its file for {}, watched by sweeps",
            duration::format(span)
        )),
    }
    if let Some(held) = &lease.holder {
        says.push(holder(held, lease.file.modified));
        if held.start.is_none() {
            says.push(
                "its holder is a bare number: the first sweep that sees the file takes whoever bears it then and \
                 began before the file was written"
                    .to_owned(),
            );
        }
    }
    says.push(covers(lease));
    if let Some(run) = &lease.run {
        says.push(format!("reapd run {} watches over it for as long as it is there", run.watcher));
    }
    says
}

fn covers(lease: &Lease) -> String {
    let numbers = lease.covers.processes.len();
    let numbers = (numbers > 0).then(|| count(numbers, "process by number", "processes by number"));
    let cookie = lease.covers.env.as_ref().map(|env| format!("whoever carries REAPD_LEASE={env}"));
    let all: Vec<String> = cookie.into_iter().chain(numbers).collect();
    if all.is_empty() {
        return "it covers nothing: it names no cookie (`covers.env`) and no process (`covers.processes`)"
            .to_owned();
    }
    format!("it covers {}, of the user who owns the file, with everything below", all.join(" and "))
}

/// Says whether its holder is there, as far as one look tells.
fn holder(held: &Holder, written: i64) -> String {
    let pid = held.pid;
    let foreign =
        |what: &str| format!("its holder {pid} is in another {what}: whether it lives cannot be told here");
    if held.boot.as_ref().is_some_and(|boot| observe::boot().is_ok_and(|ours| *boot != ours)) {
        return foreign("boot");
    }
    if let Ok(ours) = observe::namespaces() {
        if held.pidns.is_some_and(|pidns| pidns != ours.pid) {
            return foreign("pid namespace");
        }
        if held.timens.is_some_and(|timens| timens != ours.time) {
            return foreign("time namespace");
        }
    }
    let row = match observe::bearer(pid) {
        Err(why) if why.reason == Reason::Foreign => return foreign("pid namespace"),
        Err(why) => return format!("its holder {pid} is there, and who it is cannot be told ({why})"),
        Ok(row) => row.filter(|row| !row.is_gone()),
    };
    let Some(row) = row else { return format!("its holder {pid} is gone") };
    if held.start.is_some_and(|start| start != row.id.start) {
        return format!("its holder {pid} is gone; somebody else bears the number now");
    }
    let clocks = observe::clocks();
    let lived = clocks.boot.since(row.began);
    let file_age = i64::try_from(clocks.wall).unwrap_or(i64::MAX).saturating_sub(written / 1_000_000);
    // The two seconds that a sweep allows too.
    if held.start.is_none()
        && i128::try_from(lived.as_millis()).is_ok_and(|lived| lived + 2_000 < file_age.into())
    {
        return format!("process {pid} began after the file was written, so it is not the holder");
    }
    let name = crate::model::escape::escape(row.name());
    format!("its holder {pid} ({name}) lives, since {}", age(lived))
}

/// Says that no sweep reads a file where it is.
fn stray(session: &Session, file: &Path, lease: &Lease) -> Option<String> {
    let home = place::own(&session.around);
    let above = std::fs::canonicalize(file).ok()?.parent()?.to_owned();
    if std::fs::canonicalize(&home.path).is_ok_and(|path| path == above) {
        let stranger = lease.file.owner.0 != home.owner;
        return stranger.then(|| "it belongs to another user, so that it does not count here".to_owned());
    }
    Some(format!("it is not in your lease directory, {}", session.shown(&home.path)))
}

/// Returns the names of members at the top that mean nothing to this version.
fn unknown_members(text: &[u8]) -> Vec<String> {
    let members: std::collections::BTreeMap<String, serde_json::Value> =
        serde_json::from_slice(text).unwrap_or_default();
    members
        .into_keys()
        .filter(|name| !crate::model::lease::format::MEMBERS.contains(&name.as_str()))
        .collect()
}
