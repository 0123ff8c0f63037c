//! Who is of a condemned tree. Numbers and marks recruit strangers unless they are held down, so each gate here says
//! whom it keeps out, and whoever is kept out is named in the report with the reason.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bstr::{BString, ByteSlice as _};

use crate::config::policy::{AdmitEnv, Config, Detached, Policy};
use crate::model::evidence::Says;
use crate::model::facts::Facts;
use crate::model::id::{Identity, Pid, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::{Look, Scope};
use crate::model::ownership::{Parentage, ancestors, descendants, parentage};
use crate::model::plan::{Joined, Member, Spared};
use crate::model::question::{Answer, Question, Sockets};
use crate::model::table::{Kernel, Row};
use crate::model::verdict::{Judgement, Lookalike, Verdict, Verdicts};

/// The variable by which anybody may ask to be left alone.
const KEEP: (&[u8], &[u8]) = (b"REAPD_KEEP", b"1");

/// The rule whose "no" names a living owner by its number, so that a judgement by it is a claim.
const OWNER_RULE: &str = "owner-gone";

/// What membership is worked out from.
#[derive(Debug, Clone, Copy)]
pub struct Ground<'a> {
    /// The judgement that condemned the tree.
    pub judgement: &'a Judgement,
    /// All judgements: who is protected, and who has an owner by another policy.
    pub verdicts: &'a Verdicts,
    /// A fresh look, with the facts that were asked so far.
    pub look: &'a Look,
    /// The configuration.
    pub config: &'a Config,
    /// Members that are held already; empty when the tree is planned. Only they are witnesses.
    pub known: &'a [Member],
}

/// Who is of a tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Membership {
    /// Those alive, the root first where it is, parents before children.
    pub members: Vec<Member>,
    /// Related ones that are left alone.
    pub spared: Vec<Spared>,
}

/// Somebody who was born into a tree while it was torn down.
#[derive(Debug, Clone, Copy)]
pub struct Newborn<'a> {
    /// Who.
    pub id: ProcessId,
    /// Its session.
    pub sid: i32,
    /// Its controlling terminal; 0 for none.
    pub tty: i32,
    /// Its command name.
    pub name: &'a [u8],
    /// Its facts, fresh.
    pub facts: &'a Known<Facts>,
    /// Its sockets; needed only of one that leads its own session.
    pub sockets: Option<&'a Known<Sockets>>,
}

/// Returns who is of the tree and who is left alone, as far as the look knows. What was not asked is unknown, and
/// unknown is spared: ask [`questions`] first.
pub fn membership(ground: &Ground<'_>) -> Membership {
    let walk = Walk::new(*ground, Missing::Spare).run();
    let table = &ground.look.snapshot.table;
    let known: BTreeMap<ProcessId, &Member> =
        ground.known.iter().map(|member| (member.identity.id, member)).collect();
    let mut found = Membership::default();
    for (id, joined) in walk.order {
        let Some(row) = table.get(id).filter(|row| !row.is_gone()) else { continue };
        if let Some(member) = known.get(&id) {
            found.members.push((*member).clone());
        } else if let Some(Ok(facts)) = ground.look.facts(id)
            && let Ok(identity) = facts.identity(&ground.look.snapshot.boot)
        {
            let name = row.name().to_str_lossy().into_owned();
            found.members.push(Member { identity, joined, name });
        }
    }
    found.spared = walk.spared.into_iter().map(|(id, why)| Spared { id, why }).collect();
    found
}

/// Returns what must be asked before [`membership`] can tell: the facts of all who would be members, and the sockets
/// of those among them that lead their own session.
pub fn questions(ground: &Ground<'_>) -> Vec<Question> {
    Walk::new(*ground, Missing::Ask).run().asks.into_iter().collect()
}

/// Lets one newborn child of a member join, or says why it is left alone.
pub fn admit(ground: &Ground<'_>, newborn: &Newborn<'_>, joined: Joined) -> Result<Member, String> {
    let gates = Gates::new(*ground);
    let facts = newborn.facts.as_ref().map_err(Clone::clone);
    gates.pass_by_name(newborn.id)?;
    gates.pass_by_facts(facts)?;
    if newborn.sid == newborn.id.pid.number() {
        gates.pass_alone(newborn.tty, newborn.sockets.map(|known| known.as_ref().map_err(Clone::clone)))?;
    }
    let identity = newborn
        .facts
        .as_ref()
        .map_err(Clone::clone)
        .and_then(|facts| facts.identity(&ground.look.snapshot.boot))
        .map_err(|unknown| unknown.to_string())?;
    Ok(Member { identity, joined, name: newborn.name.to_str_lossy().into_owned() })
}

/// Returns the processes that adopt what the members of a tree leave behind: the reapers above its root.
///
/// The kernel hands an orphan to its nearest living subreaper, else to the namespace's init (prctl(2)).
pub fn adopters(look: &Look, root: ProcessId) -> Vec<ProcessId> {
    ancestors(&look.snapshot.table, root.pid)
        .into_iter()
        .filter(|above| look.reapers.contains(&above.pid))
        .collect()
}

/// What is done about a fact that nobody has asked for yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    /// It is asked, and the walk goes on as if the answer would let the process join.
    Ask,
    /// It is unknown, and unknown is spared.
    Spare,
}

struct Walk<'a> {
    ground: Ground<'a>,
    gates: Gates<'a>,
    missing: Missing,
    joined: BTreeMap<ProcessId, Joined>,
    order: Vec<(ProcessId, Joined)>,
    spared: BTreeMap<ProcessId, String>,
    asks: BTreeSet<Question>,
}

impl<'a> Walk<'a> {
    fn new(ground: Ground<'a>, missing: Missing) -> Walk<'a> {
        Walk {
            ground,
            gates: Gates::new(ground),
            missing,
            joined: BTreeMap::new(),
            order: Vec::new(),
            spared: BTreeMap::new(),
            asks: BTreeSet::new(),
        }
    }

    fn run(mut self) -> Walk<'a> {
        let table = &self.ground.look.snapshot.table;
        for member in self.ground.known {
            if table.get(member.identity.id).is_some() {
                self.join(member.identity.id, member.joined);
            }
        }
        let root = self.ground.judgement.root;
        if let Some(row) = table.get(root)
            && !self.joined.contains_key(&root)
            && self.passes(row, Joined::Root)
        {
            self.join(root, Joined::Root);
        }
        self.descend(0);
        loop {
            let before = self.order.len();
            self.recruit_sessions();
            self.descend(before);
            if self.order.len() == before {
                break;
            }
        }
        self.name_escapes();
        self
    }

    fn join(&mut self, id: ProcessId, joined: Joined) {
        if self.joined.insert(id, joined).is_none() {
            self.order.push((id, joined));
        }
    }

    fn spare(&mut self, id: ProcessId, why: impl Into<String>) {
        self.spared.entry(id).or_insert_with(|| why.into());
    }

    /// Joins everybody below the members from `at` on; whoever is kept out keeps its whole subtree out.
    fn descend(&mut self, at: usize) {
        let table = &self.ground.look.snapshot.table;
        let mut queue: VecDeque<ProcessId> = self.order[at..].iter().map(|(id, _)| *id).collect();
        while let Some(parent) = queue.pop_front() {
            for row in table.children(parent.pid) {
                if self.joined.contains_key(&row.id) || self.spared.contains_key(&row.id) || row.is_gone() {
                    continue;
                }
                if row.id.start < parent.start {
                    // Nobody is older than the one that made it: the parent's number passed on within the scan.
                    self.spare(
                        row.id,
                        "it is older than its parent, so the parent's number means somebody else",
                    );
                } else if self.passes(row, Joined::Descendant) {
                    self.join(row.id, Joined::Descendant);
                    queue.push_back(row.id);
                }
            }
        }
    }

    /// Joins adopted processes of a session that a member leads, while a member is seen in that session.
    ///
    /// Only sessions recruit, since they pass to nobody but descendants (setsid(2)). A process group may hold a
    /// stranger of the same job (`mcp-server | my-analysis`, REDTEAM F4), so groups only name possible escapes.
    fn recruit_sessions(&mut self) {
        let look = self.ground.look;
        let table = &look.snapshot.table;
        let sessions = self.witnessed(|row| row.sid);
        let Some(oldest) = self.oldest() else { return };
        for row in table.rows() {
            if !sessions.contains(&row.sid)
                || self.joined.contains_key(&row.id)
                || self.spared.contains_key(&row.id)
                || row.is_gone()
            {
                continue;
            }
            match parentage(table, &look.reapers, row) {
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

    /// Names those that share a number with the tree and nothing that proves them of it.
    fn name_escapes(&mut self) {
        let look = self.ground.look;
        let table = &look.snapshot.table;
        let groups = self.witnessed(|row| row.pgid);
        let root = self.ground.judgement.root;
        // The root's number means the root's session only until somebody else bears it.
        let unwitnessed = table.at(root.pid).is_none().then_some(root.pid.number());
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

    /// Returns the start of the oldest of the tree.
    fn oldest(&self) -> Option<crate::model::id::Start> {
        Some(self.ground.judgement.root.start)
    }

    /// Says whether a process may join; where not, it is noted with the reason.
    fn passes(&mut self, row: &Row, joined: Joined) -> bool {
        match self.try_pass(row, joined) {
            Ok(()) => true,
            Err(why) => {
                self.spare(row.id, why);
                false
            }
        }
    }

    fn try_pass(&mut self, row: &Row, joined: Joined) -> Result<(), String> {
        let id = row.id;
        if row.kernel == Kernel::Thread {
            return Err("a thread of the kernel".to_owned());
        }
        self.gates.pass_by_name(id)?;
        if joined != Joined::Root {
            self.pass_claims(id)?;
        }
        match self.ground.look.facts(id) {
            None if self.missing == Missing::Ask => {
                self.asks.insert(Question::Facts(id));
            }
            None => return Err(Unknown::new(Reason::NotAsked, "its facts").to_string()),
            Some(facts) => self.gates.pass_by_facts(facts)?,
        }
        if joined != Joined::Root && row.sid == id.pid.number() {
            let sockets = sockets(self.ground.look, id);
            if sockets.is_none() && self.missing == Missing::Ask && row.tty == 0 {
                self.asks.insert(Question::Sockets(id));
            } else {
                self.gates.pass_alone(row.tty, sockets)?;
            }
        }
        Ok(())
    }

    /// Keeps out the root of another policy's tree that has an owner outside of this one.
    ///
    /// A helper whose only known owner is a condemned member (it holds the helper's stdin) has none that lives on.
    fn pass_claims(&self, id: ProcessId) -> Result<(), String> {
        for other in &self.ground.verdicts.judgements {
            if other.root != id || other.policy == self.ground.judgement.policy {
                continue;
            }
            let claimed = match other.verdict {
                Verdict::Unknown | Verdict::Protected => true,
                Verdict::Alive => self.has_outside_owner(other),
                Verdict::Suspect { .. } | Verdict::Orphaned { .. } => false,
            };
            if claimed {
                return Err(format!(
                    "it may have a living owner by policy {}: {}",
                    other.policy, other.because
                ));
            }
        }
        Ok(())
    }

    fn has_outside_owner(&self, other: &Judgement) -> bool {
        if let Some(Lookalike::HeldBy(holder)) = &other.lookalike
            && !self.joined.contains_key(holder)
        {
            return true;
        }
        let vetoed = other.vetoes.iter().any(|veto| veto.says != Says::No);
        let owned = other
            .lines
            .iter()
            .flat_map(|line| &line.evidence)
            .any(|evidence| evidence.rule == OWNER_RULE && evidence.says != Says::Yes);
        vetoed || owned
    }
}

/// The gates that need nothing but the process itself.
struct Gates<'a> {
    ground: Ground<'a>,
    policy: Option<&'a Policy>,
    never: BTreeMap<Pid, &'static str>,
}

impl<'a> Gates<'a> {
    fn new(ground: Ground<'a>) -> Gates<'a> {
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

    fn pass_by_name(&self, id: ProcessId) -> Result<(), String> {
        if let Some(why) = self.never.get(&id.pid) {
            return Err((*why).to_owned());
        }
        match self.ground.verdicts.protected.iter().find(|(protected, _)| *protected == id) {
            Some((_, why)) => Err(why.clone()),
            None => Ok(()),
        }
    }

    fn pass_by_facts(&self, facts: Known<&Facts>) -> Result<(), String> {
        let facts = facts.map_err(|unknown| unknown.to_string())?;
        let own = &self.ground.look.snapshot.own;
        let identity: Identity =
            facts.identity(&self.ground.look.snapshot.boot).map_err(|unknown| unknown.to_string())?;
        if own.scope == Scope::User && identity.uid != own.uid {
            return Err(format!("it belongs to user {}", identity.uid));
        }
        if identity.exe.is_none() {
            return Err("its program could not be read, so nobody can be sure who it is".to_owned());
        }
        let env = facts.env.as_ref().map_err(|unknown| format!("whether it is to be kept: {unknown}"))?;
        let (name, value) = KEEP;
        if env.get(name.as_bstr()).is_some_and(|kept| kept == value) {
            return Err("its environment says REAPD_KEEP=1".to_owned());
        }
        match &self.ground.config.scope {
            AdmitEnv::Everybody => Ok(()),
            AdmitEnv::Marked { name, value } if env.get(name) == Some(value) => Ok(()),
            AdmitEnv::Marked { .. } => Err("it does not carry the marker of the configured scope".to_owned()),
        }
    }

    /// Keeps out a process that stands on its own: it leads its session, and has a terminal or can be reached.
    fn pass_alone(&self, tty: i32, sockets: Option<Known<&Sockets>>) -> Result<(), String> {
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

fn sockets(look: &Look, id: ProcessId) -> Option<Known<&Sockets>> {
    match look.answers.get(&Question::Sockets(id))? {
        Ok(Answer::Sockets(sockets)) => Some(Ok(sockets)),
        Ok(_) => None,
        Err(unknown) => Some(Err(unknown.clone())),
    }
}

#[cfg(test)]
mod tests;
