//! A small world for the tests of this floor.

use std::collections::BTreeMap;
use std::time::Duration;

use bstr::BString;

use super::teardown::Ground;
use crate::config::policy::{
    AdmitEnv, ArgumentsShown, Config, Confirm, Detached, JournalSettings, Keep, Limits, Offer, Origin,
    Policy, ProofNeed,
};
use crate::model::facts::{Executable, Facts};
use crate::model::id::{BootId, FileId, Identity, Pid, ProcessId, Start, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::lease::{COOKIE, Cgroup, LeaseId, Leases};
use crate::model::look::{Look, Own, Scope, Snapshot};
use crate::model::moment::{Clocks, Moment};
use crate::model::plan::{Ladder, Member, Rung, Signal};
use crate::model::question::{Answer, Family, Listener, Question, Sockets};
use crate::model::table::{Row, Table, plain_row};
use crate::model::verdict::{Claim, Judgement, Mode, TreeLease, Verdict, Verdicts};

pub(super) const OWN: i32 = 900;

/// Rows, and the facts and sockets that differ from the usual.
pub(super) struct World {
    rows: Vec<Row>,
    facts: BTreeMap<i32, Known<Facts>>,
    sockets: BTreeMap<i32, Known<Sockets>>,
    unasked: Vec<i32>,
    pub(super) verdicts: Verdicts,
    pub(super) config: Config,
    pub(super) scope: Scope,
    pub(super) leases: Leases,
}

impl World {
    /// Init, reapd with its shell, and a root 10 that leads its session with a child 11 in it.
    pub(super) fn new() -> World {
        let mut world = World {
            rows: Vec::new(),
            facts: BTreeMap::new(),
            sockets: BTreeMap::new(),
            unasked: Vec::new(),
            verdicts: Verdicts::default(),
            config: config(),
            scope: Scope::User,
            leases: Leases::default(),
        };
        world.add(1, 0, 1, 1).add(800, 1, 800, 50).add(OWN, 800, 800, 51).add(901, OWN, 901, 52);
        world.add(10, 1, 10, 100).add(11, 10, 10, 101);
        world
    }

    /// Adds a process: its number, parent, session and start; its group is its session's.
    pub(super) fn add(&mut self, pid: i32, ppid: i32, sid: i32, start: u64) -> &mut World {
        let mut row = plain_row(number(pid), ppid, Start(start));
        (row.sid, row.pgid) = (sid, sid);
        self.rows.push(row);
        self
    }

    /// Changes the row that was added last under this number.
    pub(super) fn row(&mut self, pid: i32, change: impl FnOnce(&mut Row)) -> &mut World {
        change(self.rows.iter_mut().rfind(|row| row.id.pid.number() == pid).unwrap());
        self
    }

    pub(super) fn remove(&mut self, pid: i32) -> &mut World {
        self.rows.retain(|row| row.id.pid.number() != pid);
        self
    }

    /// Changes the facts of a process.
    pub(super) fn fact(&mut self, pid: i32, change: impl FnOnce(&mut Facts)) -> &mut World {
        let mut facts = usual(self.id(pid));
        change(&mut facts);
        self.facts.insert(pid, Ok(facts));
        self
    }

    /// A process carries the cookie of a lease.
    pub(super) fn carries(&mut self, pid: i32, cookie: &str) -> &mut World {
        let id = self.id(pid);
        self.leases.cookies.insert(id, Ok(cookie.into()));
        self.fact(pid, |facts| facts.env = Ok(BTreeMap::from([(COOKIE.into(), cookie.into())])))
    }

    /// A process is in the cgroup of a lease, and carries no cookie.
    pub(super) fn grouped(&mut self, pid: i32, lease: &str) -> &mut World {
        let id = self.id(pid);
        self.leases.grouped.insert(id, LeaseId::new(lease).unwrap());
        self.fact(pid, |facts| facts.cgroup = Ok(format!("/reapd-run-{lease}").into()))
    }

    /// A lease that holds claims whoever carries its name, as long as these keep it.
    pub(super) fn claim(&mut self, lease: &str, keepers: &[i32]) -> &mut World {
        let claim = Claim {
            lease: LeaseId::new(lease),
            owner: Some(Uid(1000)),
            cookie: Some(lease.into()),
            processes: Vec::new(),
            keepers: keepers.iter().map(|&pid| self.id(pid)).collect(),
            why: "it holds".into(),
        };
        self.verdicts.leased.claims.push(claim);
        self
    }

    /// A lease that is over covers a root.
    pub(super) fn own_lease(&mut self, root: i32, lease: &str) -> &mut World {
        let lease = TreeLease {
            root: self.id(root),
            owner: Uid(1000),
            lease: LeaseId::new(lease).unwrap(),
            cookie: Some(lease.into()),
            cgroup: Some(Cgroup {
                path: format!("/reapd-run-{lease}"),
                file: crate::model::id::FileId { dev: 1, ino: 2 },
            }),
        };
        self.verdicts.leased.trees.push(lease);
        self
    }

    pub(super) fn no_facts(&mut self, pid: i32) -> &mut World {
        self.facts.insert(pid, Err(Unknown::new(Reason::Denied, "facts")));
        self
    }

    pub(super) fn unasked(&mut self, pid: i32) -> &mut World {
        self.unasked.push(pid);
        self
    }

    pub(super) fn listens(&mut self, pid: i32) -> &mut World {
        let listener = Listener {
            family: Family::Unix,
            name: BString::from("/tmp/mux"),
            inode: 7,
            file: None,
            pending: 0,
        };
        self.sockets.insert(pid, Ok(Sockets { listeners: vec![listener], connections: Vec::new() }));
        self
    }

    /// It listens by a name, on a socket that was bound to this file.
    pub(super) fn listens_at(&mut self, pid: i32, file: FileId) -> &mut World {
        self.listens(pid);
        if let Some(Ok(sockets)) = self.sockets.get_mut(&pid) {
            sockets.listeners[0].file = Some(file);
        }
        self
    }

    pub(super) fn no_sockets(&mut self, pid: i32) -> &mut World {
        self.sockets.insert(pid, Err(Unknown::new(Reason::Denied, "sockets")));
        self
    }

    /// Judges the tree of a root; the change is made to a proven verdict by the policy "planted".
    pub(super) fn judge(&mut self, pid: i32, change: impl FnOnce(&mut Judgement)) -> &mut World {
        let id = self.id(pid);
        let mut judgement = Judgement {
            root: id,
            identity: usual(id).identity(&boot()),
            uid: Uid(1000),
            policy: "planted".to_owned(),
            mode: Mode::Reap,
            argv: Vec::new(),
            captures: Vec::new(),
            verdict: Verdict::Orphaned { since: Moment(id.start.0) },
            because: "somebody uses it".to_owned(),
            lines: Vec::new(),
            vetoes: Vec::new(),
            tree: vec![id],
            resident: 0,
            began: Moment(0),
            causes: Vec::new(),
            lookalike: None,
        };
        change(&mut judgement);
        self.verdicts.judgements.push(judgement);
        self
    }

    pub(super) fn id(&self, pid: i32) -> ProcessId {
        self.rows.iter().rfind(|row| row.id.pid.number() == pid).unwrap().id
    }

    pub(super) fn member(&self, pid: i32, joined: crate::model::plan::Joined) -> Member {
        let identity = usual(self.id(pid)).identity(&boot()).unwrap();
        Member { identity, joined, name: String::new() }
    }

    /// Returns the look, with everything answered that is not to be left out.
    pub(super) fn look(&self) -> Look {
        let mut look = Look::new(Snapshot {
            boot: boot(),
            began: Clocks { boot: Moment(0), monotonic: 0, wall: 0 },
            table: Table::new(self.rows.clone()),
            arguments: Vec::new(),
            own: Own {
                pid: number(OWN),
                uid: Uid(1000),
                sid: 800,
                namespaces: Err(Unknown::new(Reason::NotAsked, "")),
                home: None,
                scope: self.scope,
            },
            configured: Vec::new(),
            leases: self.leases.clone(),
            engines: Vec::new(),
            gaps: Vec::new(),
        });
        for row in &self.rows {
            let pid = row.id.pid.number();
            if self.unasked.contains(&pid) {
                continue;
            }
            let facts = self.facts.get(&pid).cloned().unwrap_or_else(|| Ok(usual(row.id)));
            look.answers.insert(Question::Facts(row.id), facts.map(|facts| Answer::Facts(Box::new(facts))));
            let sockets = self.sockets.get(&pid).cloned().unwrap_or_else(|| Ok(Sockets::default()));
            look.answers.insert(Question::Sockets(row.id), sockets.map(Answer::Sockets));
        }
        look
    }

    /// Returns who joins the tree of the first judgement, and who is spared, by number.
    pub(super) fn membership(&self, known: &[Member]) -> (Vec<i32>, BTreeMap<i32, String>) {
        self.membership_after(known, &[])
    }

    /// The same, once these were seen gone.
    pub(super) fn membership_after(
        &self,
        known: &[Member],
        gone: &[ProcessId],
    ) -> (Vec<i32>, BTreeMap<i32, String>) {
        let look = self.look();
        let found = super::teardown::membership(&Ground {
            judgement: &self.verdicts.judgements[0],
            verdicts: &self.verdicts,
            look: &look,
            config: &self.config,
            known,
            gone,
        });
        (
            found.members.iter().map(|member| member.identity.id.pid.number()).collect(),
            found.spared.into_iter().map(|spared| (spared.id.pid.number(), spared.why)).collect(),
        )
    }
}

pub(super) fn usual(id: ProcessId) -> Facts {
    let unknown = || Unknown::new(Reason::NotAsked, "");
    Facts {
        id,
        uid: Ok(Uid(1000)),
        argv: Err(unknown()),
        exe: Ok(Executable { path: BString::from("/bin/x"), file: FileId { dev: 1, ino: 2 } }),
        cwd: Err(unknown()),
        env: Ok(BTreeMap::new()),
        cgroup: Err(unknown()),
        namespaces: Err(unknown()),
        tracer: Err(unknown()),
        hangup: Err(unknown()),
        freezer: Err(unknown()),
        unique: None,
    }
}

/// A policy by which self-standing members join.
pub(super) fn joining_policy() -> Policy {
    Policy {
        name: "planted".to_owned(),
        origin: Origin::Builtin,
        about: String::new(),
        mode: Mode::Reap,
        matches: Vec::new(),
        captures: BTreeMap::new(),
        reap_when: Vec::new(),
        spare_when: Vec::new(),
        proof: ProofNeed::Required,
        ladder: Ladder(vec![Rung { signal: Signal::Int, grace: Duration::from_secs(1) }]),
        private_listeners: Vec::new(),
        detached: Detached::Join,
        ping: None,
        residue: None,
        offer: Offer::No,
    }
}

fn config() -> Config {
    let seconds = Duration::from_secs;
    Config {
        mode: Mode::Reap,
        confirm: Confirm {
            looks: 2,
            apart: seconds(10),
            min_age: seconds(60),
            errand: seconds(60),
            probe_timeout: seconds(2),
        },
        limits: Limits { trees_per_sweep: 2, processes_per_tree: 4, same_cause: 2 },
        ladder: Ladder(vec![Rung { signal: Signal::Kill, grace: seconds(3) }]),
        keep: Keep::default(),
        scope: AdmitEnv::Everybody,
        journal: JournalSettings { keep: seconds(0), arguments: ArgumentsShown::Redacted },
        offered: Vec::new(),
        docker: crate::config::policy::Docker::default(),
        containers: Vec::new(),
        execs: crate::config::policy::ExecReport {
            about: String::new(),
            telling: crate::config::policy::Telling::Off,
        },
        registries: Vec::new(),
        policies: Vec::new(),
    }
}

fn boot() -> BootId {
    BootId("boot".to_owned())
}

pub(super) fn identity(id: ProcessId) -> Identity {
    usual(id).identity(&boot()).unwrap()
}

fn number(pid: i32) -> Pid {
    Pid::new(pid).unwrap()
}
