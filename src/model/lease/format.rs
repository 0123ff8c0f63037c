//! The file of a lease, as `docs/lease.md` publishes it: one small JSON object, whose unknown members are passed over.

use std::collections::BTreeMap;
use std::time::Duration;

use bstr::{BStr, BString, ByteSlice as _};
use serde::{Deserialize, Serialize};

use crate::model::id::{BootId, Pid, ProcessId, Start};

use super::{Bound, Covers, Holder, Lease, LeaseFile, LeaseId, Release, Run};

/// The version that is read and written.
const VERSION: u32 = 1;

/// A lease file is read no further than this, bytes.
pub const LARGEST: usize = 64 * 1024;

/// The longest a lease may go without being renewed: a year.
pub const LONGEST: Duration = Duration::from_hours(366 * 24);

/// The members of the file that mean something in this version.
pub const MEMBERS: [&str; 11] =
    ["v", "id", "bound", "ttl", "holder", "covers", "labels", "note", "released", "reason", "run"];

/// The most members that a list or a map of a lease may have.
const MOST: usize = 1_000;

/// What is wrong with a lease file, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {line}, column {column}: {message}")]
pub struct FormatFault {
    /// The line, from 1; of a fault of the whole, the first.
    pub line: usize,
    /// The column, from 1.
    pub column: usize,
    /// What is wrong; a lowercase fragment.
    pub message: String,
}

#[derive(Serialize, Deserialize)]
struct Written {
    v: u32,
    id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    bound: Option<WrittenBound>,
    #[serde(skip_serializing_if = "Option::is_none")]
    ttl: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    holder: Option<WrittenHolder>,
    #[serde(default, skip_serializing_if = "WrittenCovers::is_empty")]
    covers: WrittenCovers,
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<String>,
    #[serde(default, skip_serializing_if = "is_false")]
    released: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    reason: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    run: Option<Run>,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum WrittenBound {
    Holder,
    Ttl,
}

#[derive(Serialize, Deserialize)]
struct WrittenHolder {
    pid: Pid,
    #[serde(skip_serializing_if = "Option::is_none")]
    start: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    boot: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pidns: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    timens: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    host: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    age: Option<u64>,
}

#[derive(Default, Serialize, Deserialize)]
struct WrittenCovers {
    #[serde(skip_serializing_if = "Option::is_none")]
    env: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    processes: Vec<ProcessId>,
}

impl WrittenCovers {
    fn is_empty(&self) -> bool {
        self.env.is_none() && self.processes.is_empty()
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it so")]
fn is_false(truth: &bool) -> bool {
    !truth
}

/// Reads a lease file. `stem` is its name without `.json`, which must be its id.
pub fn parse(stem: &BStr, text: &[u8], file: LeaseFile) -> Result<Lease, FormatFault> {
    let whole = |message: String| FormatFault { line: 1, column: 1, message };
    if text.len() > LARGEST {
        return Err(whole(format!("it is larger than {LARGEST} bytes")));
    }
    let written: Written = serde_json::from_slice(text).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default().to_owned();
        FormatFault { line: error.line().max(1), column: error.column().max(1), message }
    })?;
    check(stem, written, file).map_err(whole)
}

fn check(stem: &BStr, written: Written, file: LeaseFile) -> Result<Lease, String> {
    if written.v != VERSION {
        return Err(format!("it is of version {}, and {VERSION} is known", written.v));
    }
    let id = LeaseId::new(&written.id).ok_or_else(|| {
        "`id` is up to 64 letters, digits, dots, dashes and underscores, the first a letter or a digit"
            .to_owned()
    })?;
    if stem != id.as_str() {
        return Err(format!("its id is `{id}`, and its file is named otherwise"));
    }
    let bound = match (written.bound, written.ttl, &written.holder) {
        (Some(WrittenBound::Ttl) | None, Some(seconds), _) => {
            if !(1..=LONGEST.as_secs()).contains(&seconds) {
                return Err(format!("`ttl` is whole seconds, from 1 to {}", LONGEST.as_secs()));
            }
            Bound::Ttl(Duration::from_secs(seconds))
        }
        (Some(WrittenBound::Holder), Some(_), _) => {
            return Err("`ttl` has no meaning with `\"bound\": \"holder\"`".to_owned());
        }
        (Some(WrittenBound::Ttl), None, _) => return Err("`\"bound\": \"ttl\"` needs `ttl`".to_owned()),
        (Some(WrittenBound::Holder) | None, None, Some(_)) => Bound::Holder,
        (Some(WrittenBound::Holder) | None, None, None) => {
            return Err("it names neither a `holder` nor a `ttl`, so it could never end".to_owned());
        }
    };
    if written.labels.len() > MOST || written.covers.processes.len() > MOST {
        return Err(format!("more than {MOST} labels or processes"));
    }
    let covers = Covers {
        env: written.covers.env.filter(|env| !env.is_empty()).map(BString::from),
        processes: written.covers.processes,
    };
    let release = if written.released { Release::Released(written.reason) } else { Release::Open };
    let holder = written.holder.map(|holder| Holder {
        pid: holder.pid,
        start: holder.start.map(Start),
        boot: holder.boot.map(BootId),
        pidns: holder.pidns,
        timens: holder.timens,
        host: holder.host,
        age: holder.age.map(Duration::from_secs),
    });
    Ok(Lease {
        id,
        file,
        bound,
        holder,
        covers,
        labels: written.labels,
        note: written.note,
        release,
        run: written.run,
    })
}

/// Writes a lease as its file holds it, with a line feed at the end.
pub fn print(lease: &Lease) -> String {
    let (bound, ttl) = match lease.bound {
        Bound::Holder => (WrittenBound::Holder, None),
        Bound::Ttl(span) => (WrittenBound::Ttl, Some(span.as_secs().max(1))),
    };
    let (released, reason) = match &lease.release {
        Release::Open => (false, None),
        Release::Released(reason) => (true, reason.clone()),
    };
    let written = Written {
        v: VERSION,
        id: lease.id.as_str().to_owned(),
        bound: Some(bound),
        ttl,
        holder: lease.holder.as_ref().map(|holder| WrittenHolder {
            pid: holder.pid,
            start: holder.start.map(|start| start.0),
            boot: holder.boot.as_ref().map(|boot| boot.0.clone()),
            pidns: holder.pidns,
            timens: holder.timens,
            host: holder.host.clone(),
            age: holder.age.map(|age| age.as_secs()),
        }),
        covers: WrittenCovers {
            env: lease.covers.env.as_ref().map(|env| env.to_str_lossy().into_owned()),
            processes: lease.covers.processes.clone(),
        },
        labels: lease.labels.clone(),
        note: lease.note.clone(),
        released,
        reason,
        run: lease.run.clone(),
    };
    // Nothing in there can fail to be written: texts, numbers, and maps with text for keys.
    let mut text = serde_json::to_string(&written).unwrap_or_default();
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::{FileId, Uid};
    use crate::model::lease::{Leftovers, RunChannel};

    fn file() -> LeaseFile {
        LeaseFile { owner: Uid(1000), file: FileId { dev: 1, ino: 2 }, modified: 3 }
    }

    fn read(text: &str) -> Result<Lease, FormatFault> {
        parse(BStr::new("gw-1"), text.as_bytes(), file())
    }

    #[test]
    fn five_lines_of_any_program_are_a_lease() {
        let lease = read(
            r#"{ "v": 1, "id": "gw-1", "holder": { "pid": 4410 }, "covers": { "env": "gw-1" }, "note": "s", "new": [] }"#,
        )
        .unwrap();
        assert_eq!(lease.bound, Bound::Holder);
        assert_eq!(lease.holder.unwrap().pid.number(), 4410);
        assert_eq!(lease.covers.env.unwrap(), "gw-1");
        assert_eq!(lease.release, Release::Open);
        let released = read(r#"{"v":1,"id":"gw-1","ttl":30,"released":true,"reason":"over"}"#).unwrap();
        assert_eq!(released.bound, Bound::Ttl(Duration::from_secs(30)));
        assert_eq!(released.release, Release::Released(Some("over".into())));
    }

    #[test]
    fn what_is_written_is_read_back() {
        let id = |pid: i32| ProcessId { pid: Pid::new(pid).unwrap(), start: Start(7) };
        let lease = Lease {
            id: LeaseId::new("gw-1").unwrap(),
            file: file(),
            bound: Bound::Ttl(Duration::from_secs(5)),
            holder: Some(Holder {
                pid: Pid::new(5).unwrap(),
                start: Some(Start(9)),
                boot: Some(BootId("b".into())),
                pidns: Some(1),
                timens: Some(2),
                host: Some("h".into()),
                age: Some(Duration::from_secs(61)),
            }),
            covers: Covers { env: Some("gw-1".into()), processes: vec![id(8)] },
            labels: BTreeMap::from([("session".to_owned(), "x".to_owned())]),
            note: Some("n".into()),
            release: Release::Released(None),
            run: Some(Run {
                watcher: id(3),
                command: Some(id(4)),
                leftovers: Leftovers::Reap,
                channel: RunChannel::Stdio,
                cgroup: Some(crate::model::lease::Cgroup {
                    path: "/reapd-run-gw-1".to_owned(),
                    file: FileId { dev: 1, ino: 2 },
                }),
            }),
        };
        assert_eq!(read(&print(&lease)), Ok(lease));
    }

    #[test]
    fn what_is_wrong_is_said_with_its_place() {
        let fault = |text: &str| read(text).unwrap_err();
        assert_eq!(fault("{\n  \"v\": 1,\n  \"id\": 5 }").line, 3);
        assert!(fault(r#"{"v":2,"id":"gw-1","ttl":3}"#).message.contains("version 2"));
        assert!(fault(r#"{"v":1,"id":"gw-2","ttl":3}"#).message.contains("named otherwise"));
        assert!(fault(r#"{"v":1,"id":"gw-1"}"#).message.contains("never end"));
        assert!(fault(r#"{"v":1,"id":"gw-1","bound":"holder"}"#).message.contains("never end"));
        assert!(fault(r#"{"v":1,"id":"gw-1","bound":"ttl","holder":{"pid":4}}"#).message.contains("ttl"));
        assert!(
            fault(r#"{"v":1,"id":"gw-1","bound":"holder","ttl":4,"holder":{"pid":4}}"#)
                .message
                .contains("no meaning")
        );
        assert!(fault(r#"{"v":1,"id":"gw-1","ttl":0}"#).message.contains("seconds"));
        assert!(fault(r#"{"v":1,"id":"gw-1","holder":{"pid":0}}"#).message.contains("process number"));
        assert!(fault(r#"{"v":1,"id":"gw-1","ttl":3,"rel"#).message.contains("EOF"));
    }
}
