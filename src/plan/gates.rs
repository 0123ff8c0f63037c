//! The gates that need nothing but the process itself: each says whom it keeps out of every tree.

use std::collections::BTreeMap;

use bstr::{BString, ByteSlice as _};

use crate::config::policy::{AdmitEnv, Detached, Policy};
use crate::model::escape::escape;
use crate::model::facts::Facts;
use crate::model::id::{Pid, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::lease::{COOKIE, Cgroup};
use crate::model::look::{Look, Scope};
use crate::model::ownership::{ancestors, descendants};
use crate::model::plan::Joined;
use crate::model::question::{Answer, Question, Sockets};

use super::teardown::Ground;

/// The variable by which anybody may ask to be left alone: set to anything but nothing and 0.
const KEEP: &[u8] = b"REAPD_KEEP";

/// The gates that need nothing but the process itself.
pub(super) struct Gates<'a> {
    ground: Ground<'a>,
    policy: Option<&'a Policy>,
    never: BTreeMap<Pid, &'static str>,
}

impl<'a> Gates<'a> {
    pub(super) fn new(ground: Ground<'a>) -> Gates<'a> {
        let own = &ground.look.snapshot.own;
        let table = &ground.look.snapshot.table;
        let mut never = BTreeMap::from([(Pid::INIT, "process 1 is never touched")]);
        for above in ancestors(table, own.pid) {
            never.entry(above.pid).or_insert("reapd runs below it");
        }
        if let Some(row) = table.at(own.pid) {
            for below in descendants(table, row.id) {
                never.insert(below.pid, "it is reapd's own");
            }
        }
        for row in table.rows() {
            if own.sid > 0 && row.sid == own.sid {
                never.entry(row.id.pid).or_insert("it is in reapd's own session");
            }
        }
        never.insert(own.pid, "it is reapd itself");
        Gates { ground, policy: super::policy(ground.config, &ground.judgement.policy), never }
    }

    pub(super) fn pass_by_name(&self, id: ProcessId) -> Result<(), String> {
        if let Some(why) = self.never.get(&id.pid) {
            return Err((*why).to_owned());
        }
        match self.ground.verdicts.protected.iter().find(|(protected, _)| *protected == id) {
            Some((_, why)) => Err(why.clone()),
            None => Ok(()),
        }
    }

    pub(super) fn pass_by_facts(&self, facts: Known<&Facts>) -> Result<(), String> {
        let facts = facts.map_err(|unknown| unknown.to_string())?;
        let own = &self.ground.look.snapshot.own;
        let identity =
            facts.identity(&self.ground.look.snapshot.boot).map_err(|unknown| unknown.to_string())?;
        if own.scope == Scope::User && identity.uid != own.uid {
            return Err(format!("it belongs to user {}", identity.uid));
        }
        if identity.exe.is_none() {
            return Err("its program could not be read, so nobody can be sure who it is".to_owned());
        }
        let env = facts.env.as_ref().map_err(|unknown| format!("whether it is to be kept: {unknown}"))?;
        if let Some(kept) = env.get(KEEP.as_bstr())
            && !kept.is_empty()
            && kept != "0"
        {
            return Err(format!("its environment says REAPD_KEEP={}", escape(kept)));
        }
        match &self.ground.config.scope {
            AdmitEnv::Everybody => Ok(()),
            AdmitEnv::Marked { name, value } if env.get(name) == Some(value) => Ok(()),
            AdmitEnv::Marked { .. } => Err("it does not carry the marker of the configured scope".to_owned()),
        }
    }

    /// Keeps out whom another lease than the tree's own names, or may name: its cookie, or itself. A lease whose holder and watcher
    /// all go with the tree owns nothing outside of it. One that comes by the tree's cookie must carry it still, and
    /// by its cgroup be in it still.
    pub(super) fn pass_leases(
        &self,
        id: ProcessId,
        facts: Known<&Facts>,
        joined: Joined,
        is_member: impl Fn(ProcessId) -> bool,
    ) -> Result<(), String> {
        let facts = facts.map_err(|unknown| unknown.to_string())?;
        let env = facts.env.as_ref().map_err(|unknown| format!("which lease it carries: {unknown}"))?;
        let cookie = env.get(COOKIE.as_bytes().as_bstr());
        if joined == Joined::Cookie
            && !self.ground.own_leases().any(|lease| {
                cookie.is_some() && lease.cookie.as_ref() == cookie && facts.uid == Ok(lease.owner)
            })
        {
            return Err("it does not carry the cookie of the tree's lease any more".to_owned());
        }
        if joined == Joined::Cgroup
            && !self.ground.own_leases().any(|lease| {
                let is_there = |own: &Cgroup| {
                    own.is_of(&lease.lease)
                        && facts.cgroup.as_ref().is_ok_and(|now| *now == own.path.as_str())
                };
                lease.cgroup.as_ref().is_some_and(is_there) && facts.uid == Ok(lease.owner)
            })
        {
            return Err("it is not in the cgroup of the tree's lease any more".to_owned());
        }
        // Its lease may stand in a directory or a file that could not be read.
        if let Some(cookie) = cookie
            && let Some(faulty) =
                self.ground.look.snapshot.leases.unread(cookie.as_bstr(), facts.uid.as_ref().ok().copied())
        {
            return Err(format!("whether its lease holds cannot be told: {}", faulty.why));
        }
        for claim in &self.ground.verdicts.leased.claims {
            let is_theirs = match (claim.owner, &facts.uid) {
                (Some(owner), Ok(uid)) => owner == *uid,
                (None, _) | (_, Err(_)) => true,
            };
            let names = claim.processes.contains(&id) || cookie.is_some() && claim.cookie.as_ref() == cookie;
            let is_own = self
                .ground
                .own_leases()
                .any(|own| Some(&own.lease) == claim.lease.as_ref() && Some(own.owner) == claim.owner);
            let mut others = claim.keepers.iter().filter(|keeper| **keeper != id);
            let goes_too = !claim.keepers.is_empty() && others.all(|keeper| is_member(*keeper));
            if is_theirs && names && !is_own && !goes_too {
                return Err(match &claim.lease {
                    Some(lease) => format!("it has another lease, {lease}: {}", claim.why),
                    None => format!("whether its lease holds cannot be told: {}", claim.why),
                });
            }
        }
        Ok(())
    }

    /// Keeps out a process that stands on its own: it leads its session, and has a terminal or can be reached.
    pub(super) fn pass_alone(&self, tty: i32, sockets: Option<Known<&Sockets>>) -> Result<(), String> {
        if self.policy.is_some_and(|policy| policy.detached == Detached::Join) {
            return Ok(());
        }
        if tty != 0 {
            return Err("it leads its own session and has a terminal".to_owned());
        }
        let sockets = sockets.unwrap_or_else(|| Err(Unknown::new(Reason::NotAsked, "its sockets"))).map_err(
            |unknown| {
                format!("it leads its own session, and whether it can be reached is unknown: {unknown}")
            },
        )?;
        let is_private = |name: &BString| {
            self.policy
                .is_some_and(|policy| policy.private_listeners.iter().any(|glob| glob.fits(name.as_bstr())))
        };
        match sockets.listeners.iter().find(|listener| !is_private(&listener.name)) {
            Some(listener) => Err(format!("it leads its own session and listens on {}", listener.name)),
            None => Ok(()),
        }
    }
}

/// Returns the sockets of a process, where they were asked.
pub(super) fn sockets(look: &Look, id: ProcessId) -> Option<Known<&Sockets>> {
    match look.answers.get(&Question::Sockets(id))? {
        Ok(Answer::Sockets(sockets)) => Some(Ok(sockets)),
        Ok(_) => None,
        Err(unknown) => Some(Err(unknown.clone())),
    }
}
