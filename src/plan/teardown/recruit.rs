//! Whom numbers and marks bring into a tree that is torn down: sessions with a witness, and the cookie of its lease.

use std::collections::BTreeSet;

use crate::model::id::{Pid, ProcessId};
use crate::model::look::Look;
use crate::model::ownership::{Parentage, parentage};
use crate::model::plan::Joined;
use crate::model::table::Row;
use crate::model::verdict::Verdict;

use super::Walk;

impl Walk<'_> {
    /// Joins adopted processes of a session that a member leads, while a member is seen in that session.
    ///
    /// Only sessions recruit, since they pass to nobody but descendants (setsid(2)). A process group may hold a
    /// stranger of the same job (`mcp-server | my-analysis`, REDTEAM F4), so groups only name possible escapes.
    pub(super) fn recruit_sessions(&mut self) {
        let look = self.ground.look;
        let table = &look.snapshot.table;
        let sessions = self.witnessed(|row| row.sid);
        let oldest = self.ground.judgement.root.start;
        for row in table.rows() {
            if !sessions.contains(&row.sid)
                || self.joined.contains_key(&row.id)
                || self.spared.contains_key(&row.id)
                || row.is_gone()
            {
                continue;
            }
            match adoption(look, row) {
                Parentage::Living(parent) => {
                    self.spare(row.id, format!("its parent {parent} is alive and not of this tree"));
                }
                Parentage::None => {
                    self.spare(
                        row.id,
                        "possibly escaped: in the tree's session, under a parent that cannot be seen",
                    );
                }
                Parentage::Adopted(_) if row.id.start < oldest => {
                    self.spare(row.id, "in the tree's session, but older than the tree");
                }
                Parentage::Adopted(_) => {
                    if self.passes(row, Joined::Session) {
                        self.join(row.id, Joined::Session);
                    }
                }
            }
        }
    }

    /// Joins those that were adopted while the tree was torn down and carry its lease's cookie, or are in its cgroup.
    ///
    /// An inherited cookie alone makes nobody a member: only who was born since the tree was suspected joins by it, so
    /// that whoever was there before is judged for its own sake, with its own clients.
    pub(super) fn recruit_carriers(&mut self) {
        let look = self.ground.look;
        let judgement = self.ground.judgement;
        let Verdict::Orphaned { since } = judgement.verdict else { return };
        if self.ground.known.is_empty() {
            return;
        }
        let table = &look.snapshot.table;
        let is_judged = |id| self.ground.verdicts.judgements.iter().any(|other| other.root == id);
        let leases = &look.snapshot.leases;
        let marked: BTreeSet<ProcessId> =
            leases.cookies.keys().chain(leases.grouped.keys()).copied().collect();
        let newborn: Vec<ProcessId> = marked
            .iter()
            .filter_map(|id| table.get(*id))
            .filter(|row| !row.is_gone() && row.began >= since && row.id.start >= judgement.root.start)
            .filter(|row| matches!(adoption(look, row), Parentage::Adopted(_)))
            .map(|row| row.id)
            .filter(|id| !self.joined.contains_key(id) && !self.spared.contains_key(id) && !is_judged(*id))
            .collect();
        for id in newborn {
            if let Some(row) = table.get(id)
                && let Some(joined) = self.mark_of_the_trees(id)
                && self.passes(row, joined)
            {
                self.join(id, joined);
            }
        }
    }

    /// Returns by what a process is of a lease that covers the root, as far as the look knows: its cgroup, which it
    /// cannot leave by itself, or its cookie.
    fn mark_of_the_trees(&self, id: ProcessId) -> Option<Joined> {
        let leases = &self.ground.look.snapshot.leases;
        if let Some(group) = leases.grouped.get(&id)
            && self.ground.own_leases().any(|lease| lease.cgroup.is_some() && lease.lease == *group)
        {
            return Some(Joined::Cgroup);
        }
        let cookie = leases.cookies.get(&id)?.as_ref().ok()?;
        self.ground.own_leases().any(|lease| lease.cookie.as_ref() == Some(cookie)).then_some(Joined::Cookie)
    }

    /// Names those that share a number with the tree and nothing that proves them of it.
    pub(super) fn name_escapes(&mut self) {
        let look = self.ground.look;
        let table = &look.snapshot.table;
        let groups = self.witnessed(|row| row.pgid);
        let root = self.ground.judgement.root;
        // The root's number means the root's session only until somebody else bears it; its own corpse does not.
        let is_free = table.at(root.pid).is_none_or(|row| row.id == root && row.is_gone());
        let unwitnessed = is_free.then_some(root.pid.number());
        for row in table.rows() {
            if self.joined.contains_key(&row.id) || self.spared.contains_key(&row.id) || row.is_gone() {
                continue;
            }
            let by_number = unwitnessed.is_some_and(|number| row.sid == number || row.pgid == number);
            if !groups.contains(&row.pgid) && !by_number {
                continue;
            }
            match parentage(table, &look.reapers, row) {
                Parentage::Living(parent) if self.joined.contains_key(&parent) => {}
                Parentage::Living(parent) => {
                    self.spare(
                        row.id,
                        format!("in the tree's process group, but its parent {parent} is alive and not of this tree"),
                    );
                }
                Parentage::Adopted(_) | Parentage::None if row.id.start >= root.start => {
                    self.spare(
                        row.id,
                        "possibly escaped: it shares a number with the tree, and nothing that proves it",
                    );
                }
                Parentage::Adopted(_) | Parentage::None => {}
            }
        }
    }

    /// Returns the sessions or groups that a member leads and a member is seen in.
    ///
    /// A member in it keeps the number from passing on, for as long as it is there; without one, the next process to
    /// call setsid(2) may bear it (REDTEAM F1, CASES C06). A leader that is somebody else says that it has passed on.
    fn witnessed(&self, number: impl Fn(&Row) -> i32) -> BTreeSet<i32> {
        let table = &self.ground.look.snapshot.table;
        let leaders: BTreeSet<i32> = self
            .joined
            .keys()
            .chain(self.ground.known.iter().map(|member| &member.identity.id))
            .chain([&self.ground.judgement.root])
            .map(|id| id.pid.number())
            .collect();
        let is_foreign = |number: i32| {
            Pid::new(number)
                .and_then(|pid| table.at(pid))
                .is_some_and(|leader| !self.joined.contains_key(&leader.id))
        };
        self.joined
            .keys()
            .filter_map(|id| table.get(*id))
            .map(number)
            .filter(|number| leaders.contains(number) && !is_foreign(*number))
            .collect()
    }
}

/// Returns how a process stands to its parent, the watcher of a `reapd run` among those that adopt: it is a subreaper
/// (prctl(2)), which the kernel does not show.
fn adoption(look: &Look, row: &Row) -> Parentage {
    match parentage(&look.snapshot.table, &look.reapers, row) {
        Parentage::Living(parent) if super::is_watcher(look, parent) => Parentage::Adopted(parent),
        before @ (Parentage::Living(_) | Parentage::Adopted(_) | Parentage::None) => before,
    }
}
