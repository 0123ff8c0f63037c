//! Judgements and teardowns for the tests of this floor.

use std::time::Duration;

use crate::config::policy::{
    AdmitEnv, Config, Confirm, Detached, ExecReport, Keep, Limits, Offer, Origin, Policy, ProofNeed, Telling,
};
use crate::model::evidence::{Evidence, Says};
use crate::model::id::{BootId, FileId, Identity, Pid, ProcessId, Start, Uid};
use crate::model::known::{Reason, Unknown};
use crate::model::look::{Own, Scope, Snapshot};
use crate::model::moment::{Clocks, Moment};
use crate::model::plan::{Joined, Ladder, Member, Rung, Signal, Teardown};
use crate::model::rule::Strength;
use crate::model::table::{Table, plain_row};
use crate::model::verdict::{Judgement, LineFinding, LineList, Mode, Verdict};

/// Returns the process with this number.
pub(super) fn process(pid: i32) -> ProcessId {
    ProcessId { pid: Pid::new(pid).unwrap(), start: Start(u64::from(pid.unsigned_abs()) * 10) }
}

/// Returns its whole identity in the boot "b".
pub(super) fn identity(pid: i32) -> Identity {
    Identity {
        boot: BootId("b".into()),
        id: process(pid),
        uid: Uid(1000),
        exe: Some(FileId { dev: 1, ino: 2 }),
        unique: None,
    }
}

/// Returns a tree of two processes that is proven once by `cwd-gone`.
pub(super) fn judgement(pid: i32, policy: &str) -> Judgement {
    Judgement {
        root: process(pid),
        identity: Ok(identity(pid)),
        uid: Uid(1000),
        policy: policy.to_owned(),
        mode: Mode::Reap,
        argv: ["node", "broker.mjs", "serve", "--cwd", "/home/ana/w"].map(Into::into).to_vec(),
        captures: vec![("workspace".into(), "/home/ana/w".into())],
        verdict: Verdict::Suspect { since: Moment(1), looks: 1 },
        because: "its workspace was deleted".into(),
        lines: vec![LineFinding {
            line: 0,
            list: LineList::ReapWhen,
            says: Says::Yes,
            evidence: vec![Evidence {
                rule: "cwd-gone".into(),
                strength: Strength::Proof,
                says: Says::Yes,
                why: "/home/ana/w: deleted (held directory has 0 links)".into(),
                cause: None,
            }],
        }],
        vetoes: vec![Evidence {
            rule: "clients".into(),
            strength: Strength::Sign,
            says: Says::No,
            why: "none on /tmp/broker.sock".into(),
            cause: None,
        }],
        tree: vec![process(pid), process(pid + 1)],
        resident: 812_000_000,
        began: Moment(0),
        causes: Vec::new(),
        lookalike: None,
    }
}

/// Returns the teardown of that tree.
pub(super) fn teardown(pid: i32, policy: &str) -> Teardown {
    let member = |pid, joined| Member { identity: identity(pid), joined, name: "node".into() };
    Teardown {
        judgement: Judgement { verdict: Verdict::Orphaned { since: Moment(1) }, ..judgement(pid, policy) },
        members: vec![member(pid, Joined::Root), member(pid + 1, Joined::Descendant)],
        spared: Vec::new(),
        ladder: Ladder(vec![
            Rung { signal: Signal::Term, grace: Duration::from_secs(5) },
            Rung { signal: Signal::Kill, grace: Duration::from_secs(3) },
        ]),
    }
}

/// Returns a machine of the boot "b" on which only these live, four days after the boot.
pub(super) fn snapshot(alive: &[ProcessId]) -> Snapshot {
    let now = Duration::from_hours(96);
    Snapshot {
        boot: BootId("b".into()),
        began: Clocks {
            boot: Moment(0).plus(now),
            monotonic: Moment(0).plus(now).0,
            wall: 1_773_500_966_000,
        },
        table: Table::new(alive.iter().map(|id| plain_row(id.pid, 1, id.start)).collect()),
        arguments: Vec::new(),
        own: Own {
            pid: Pid::INIT,
            uid: Uid(1000),
            sid: 0,
            namespaces: Err(Unknown::new(Reason::NotAsked, "namespaces")),
            home: None,
            scope: Scope::User,
        },
        configured: Vec::new(),
        leases: crate::model::lease::Leases::default(),
        engines: Vec::new(),
        gaps: Vec::new(),
    }
}

/// Returns the configuration that is in force without a file, with no policy.
pub(super) fn config() -> Config {
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
        journal: super::journal::USUAL,
        offered: Vec::new(),
        docker: crate::config::policy::Docker::default(),
        containers: Vec::new(),
        execs: ExecReport { about: "commands of the samples".into(), telling: Telling::Report },
        registries: Vec::new(),
        policies: Vec::new(),
    }
}

/// Returns a policy that matches nobody.
pub(super) fn policy(name: &str) -> Policy {
    Policy {
        name: name.to_owned(),
        origin: Origin::Builtin,
        about: "servers of the samples".into(),
        mode: Mode::Reap,
        matches: Vec::new(),
        captures: std::collections::BTreeMap::new(),
        reap_when: Vec::new(),
        spare_when: Vec::new(),
        proof: ProofNeed::Required,
        ladder: Ladder(Vec::new()),
        private_listeners: Vec::new(),
        detached: Detached::Spare,
        ping: None,
        residue: None,
        offer: Offer::No,
    }
}

/// A directory that a tree left.
pub(super) fn removal(name: &str) -> crate::model::residue::Removal {
    use crate::model::id::FileId;
    use crate::model::residue::{Kind, Piece, Place, Removal};
    Removal {
        policy: "p".into(),
        place: Place { directory: "/tmp".into(), holder: FileId { dev: 1, ino: 2 }, name: name.into() },
        own: Piece::sample(name, Kind::Directory, 10, 1),
        entries: vec![Piece::sample("server.sock", Kind::Socket, 11, 1)],
        of: None,
    }
}
