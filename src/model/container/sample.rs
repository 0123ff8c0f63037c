//! Containers for the tests of every floor.

use std::collections::BTreeMap;

use super::judgement::ContainerJudgement;
use super::leftover::{ExecFate, ExecJudgement};
use super::stop::{Fate, Stop};
use super::{
    Attached, AutoRemoval, ContainerFacts, ContainerId, ContainerRef, ContainerRun, ContainerState,
    ContainerStdin, EngineId, Listed, RestartPolicy, Tty,
};
use crate::model::evidence::{Evidence, Says};
use crate::model::id::ProcessId;
use crate::model::known::{Reason, Unknown};
use crate::model::moment::Moment;
use crate::model::rule::Strength;
use crate::model::verdict::{LineFinding, LineList, Mode, Verdict};

/// When every sample was started.
pub const STARTED: &str = "2026-03-10T10:00:00.000000001Z";

/// Returns the id that begins with this number.
pub fn id(number: u32) -> ContainerId {
    ContainerId::new(&format!("{number:012x}{}", "ab".repeat(26))).unwrap()
}

/// Returns the container with this number on the samples' engine.
pub fn at(number: u32) -> ContainerRef {
    ContainerRef { engine: EngineId("/run/docker.sock".into()), id: id(number) }
}

/// Returns what the list says of a running one.
pub fn listed(number: u32) -> Listed {
    Listed {
        id: id(number),
        names: vec![format!("helper-{number}")],
        image: "mcp/sonarqube".into(),
        image_id: "sha256:1".into(),
        state: ContainerState::Running,
        created: 1_773_136_800,
        labels: BTreeMap::from([("image".into(), "label".into())]),
    }
}

/// Returns what its engine says of it alone.
pub fn facts(number: u32) -> ContainerFacts {
    let listed = listed(number);
    let unknown = || Unknown::new(Reason::NotAsked, "its first process");
    ContainerFacts {
        run: ContainerRun { at: at(number), started: STARTED.into() },
        name: format!("helper-{number}"),
        image: listed.image,
        image_id: listed.image_id,
        argv: vec!["server".into(), "--stdio".into()],
        command: vec!["--stdio".into()],
        state: ContainerState::Running,
        init: Err(unknown()),
        began: Err(unknown()),
        stdin: ContainerStdin { open: Attached::Yes, once: Attached::Yes, attached: Attached::Yes },
        foreground: Ok(Attached::Yes),
        tty: Tty::No,
        removal: AutoRemoval::Yes,
        restart: RestartPolicy::No,
        health: None,
        published: Vec::new(),
        network: "none".into(),
        mounts: Vec::new(),
        labels: listed.labels,
        env: BTreeMap::new(),
        execs: Vec::new(),
    }
}

/// Returns a judgement that it is proven by `client-gone`, and confirmed.
pub fn judgement(number: u32, policy: &str) -> ContainerJudgement {
    let why = "no process holds the write end of its stdin";
    ContainerJudgement {
        at: at(number),
        run: Ok(facts(number).run),
        listed: listed(number),
        policy: policy.to_owned(),
        mode: Mode::Reap,
        argv: facts(number).argv,
        captures: Vec::new(),
        verdict: Verdict::Orphaned { since: Moment(1) },
        because: why.into(),
        lines: vec![LineFinding {
            line: 0,
            list: LineList::ReapWhen,
            says: Says::Yes,
            evidence: vec![Evidence {
                rule: "client-gone".into(),
                strength: Strength::Proof,
                says: Says::Yes,
                why: why.into(),
                cause: None,
            }],
        }],
        vetoes: Vec::new(),
        tree: Ok(Vec::new()),
        resident: 82_000_000,
        began: Ok(Moment(0)),
        causes: Vec::new(),
        lookalike: None,
        cure: None,
    }
}

/// Returns the stop of it, by an engine that removes it itself.
pub fn stop(number: u32, policy: &str) -> Stop {
    Stop {
        judgement: judgement(number, policy),
        run: facts(number).run,
        grace: std::time::Duration::from_secs(10),
        removal: AutoRemoval::Yes,
        volumes: Fate::Keep,
        networks: Fate::Keep,
        execs: Vec::new(),
    }
}

/// Returns a command inside of it that was left behind.
pub fn exec(number: u32, init: ProcessId) -> ExecJudgement {
    ExecJudgement {
        at: at(number),
        listed: listed(number),
        exec: "e1".into(),
        argv: vec!["tool".into(), "--token=hush".into()],
        init: Ok(init),
        tree: vec![init],
        resident: 18_000_000,
        began: Ok(Moment(0)),
        fate: ExecFate::LeftBehind,
        because: "its input ended for good, and none of the 2 clients of its engine runs it".into(),
    }
}
