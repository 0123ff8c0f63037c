//! Who is of a condemned tree. Numbers and marks recruit strangers unless they are held down, so each gate here says
//! whom it keeps out, and whoever is kept out is named in the report with the reason.

#[cfg(test)]
mod leases;
mod recruit;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use bstr::ByteSlice as _;

use crate::config::policy::Config;
use crate::model::evidence::Says;
use crate::model::facts::Facts;
use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::Look;
use crate::model::ownership::ancestors;
use crate::model::plan::{Joined, Member, Spared};
use crate::model::question::{Question, Sockets};
use crate::model::table::{Kernel, Row};
use crate::model::verdict::{Judgement, Lookalike, TreeLease, Verdict, Verdicts};

use super::gates::{Gates, sockets};

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
    /// Those of them that were seen gone. Whoever bears such a number and start tick now is somebody else, born within
    /// the same tick (CASES C07).
    pub gone: &'a [ProcessId],
}

impl<'a> Ground<'a> {
    /// Returns the leases that cover the root: all of them are over.
    pub(super) fn own_leases(&self) -> impl Iterator<Item = &'a TreeLease> + use<'a> {
        let root = self.judgement.root;
        self.verdicts.leased.trees.iter().filter(move |lease| lease.root == root)
    }
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
    gates.pass_by_facts(facts.clone())?;
    let is_member = |id| ground.known.iter().any(|member| member.identity.id == id);
    gates.pass_leases(newborn.id, facts, joined, is_member)?;
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
        .filter(|above| look.reapers.contains(&above.pid) || is_watcher(look, *above))
        .collect()
}

/// Says whether a process is the watcher of a `reapd run`, which adopts what its command leaves behind.
fn is_watcher(look: &Look, id: ProcessId) -> bool {
    look.snapshot.leases.list.iter().any(|lease| lease.run.as_ref().is_some_and(|run| run.watcher == id))
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
            if table.get(member.identity.id).is_some() && !self.ground.gone.contains(&member.identity.id) {
                self.join(member.identity.id, member.joined);
            }
        }
        let root = self.ground.judgement.root;
        if let Some(row) = table.get(root)
            && !self.joined.contains_key(&root)
            && !(row.is_gone() && self.ground.gone.contains(&root))
            && self.passes(row, Joined::Root)
        {
            self.join(root, Joined::Root);
        }
        self.descend(0);
        loop {
            let before = self.order.len();
            self.recruit_sessions();
            self.recruit_carriers();
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
        if self.ground.gone.contains(&id) {
            return Err("its number and start tick are those of a member that is gone".to_owned());
        }
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
            Some(facts) => {
                self.gates.pass_by_facts(facts.clone())?;
                if joined != Joined::Root {
                    self.gates.pass_leases(id, facts, joined, |keeper| self.joined.contains_key(&keeper))?;
                }
            }
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
        match &other.lookalike {
            Some(Lookalike::HeldBy(holder)) if !self.joined.contains_key(holder) => return true,
            // It was left behind by who started it and is held, read or reached all the same: by whom, nobody asked.
            // What only hung on this tree is proven by itself at a later sweep.
            Some(Lookalike::Adopted | Lookalike::StdinEnded | Lookalike::Vetoed(_)) => return true,
            Some(Lookalike::HeldBy(_) | Lookalike::ReportOnly) | None => {}
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

#[cfg(test)]
mod tests {
    use super::super::fixture::{World, joining_policy, usual};
    use super::*;
    use crate::config::policy::AdmitEnv;
    use crate::model::evidence::{Evidence, Says};
    use crate::model::id::Uid;
    use crate::model::look::Scope;
    use crate::model::rule::Strength;
    use crate::model::table::State;
    use crate::model::verdict::{LineFinding, LineList};
    use bstr::BString;

    fn world() -> World {
        let mut world = World::new();
        world.judge(10, |_| {});
        world
    }

    /// Says who joined, and that each of these was spared for a reason with this text.
    fn joins(world: &World, members: &[i32], spared: &[(i32, &str)]) {
        let (joined, left) = world.membership(&[]);
        assert_eq!(joined, members, "{left:?}");
        for (pid, text) in spared {
            let why = left.get(pid).unwrap_or_else(|| panic!("{pid} is named: {left:?}"));
            assert!(why.contains(text), "{pid}: {why}");
        }
        assert_eq!(left.len(), spared.len(), "{left:?}");
    }

    #[test]
    fn descendants_join_in_whatever_session_c03() {
        let mut world = world();
        world.add(12, 11, 12, 102).add(13, 12, 12, 103).add(14, 1, 14, 104);
        joins(&world, &[10, 11, 12, 13], &[]);
    }

    #[test]
    fn adopted_ones_join_by_a_witnessed_session_with_all_below_c02() {
        let mut world = world();
        world.add(12, 1, 10, 102).add(13, 12, 13, 103);
        joins(&world, &[10, 11, 12, 13], &[]);
    }

    #[test]
    fn a_session_led_by_a_member_recruits_too() {
        let mut world = world();
        world.add(12, 11, 12, 102).add(13, 1, 12, 103).add(14, 13, 14, 104).add(15, 1, 14, 105);
        joins(&world, &[10, 11, 12, 13, 14, 15], &[]);
    }

    #[test]
    fn a_session_that_no_member_leads_names_nobody_b41() {
        let mut world = world();
        // The root is in its user's terminal session, with other orphans of it.
        world.row(10, |row| row.sid = 700).row(11, |row| row.sid = 700).add(12, 1, 700, 110);
        joins(&world, &[10, 11], &[]);
    }

    #[test]
    fn without_a_witness_the_number_names_nobody_f1_c06() {
        let mut world = world();
        let known = [world.member(10, Joined::Root), world.member(11, Joined::Descendant)];
        // Both are gone; somebody is in a session of the root's number.
        world.remove(10).remove(11).add(12, 1, 10, 300);
        let (joined, spared) = world.membership(&known);
        assert_eq!(joined, [] as [i32; 0]);
        assert!(spared[&12].contains("possibly escaped"));
    }

    #[test]
    fn a_root_that_nobody_has_reaped_yet_is_nobodys_survivor_and_hides_nobody_c01() {
        let mut world = world();
        let known = [world.member(10, Joined::Root), world.member(11, Joined::Descendant)];
        world.remove(11).row(10, |row| row.state = State::Zombie).add(12, 1, 10, 300);
        let gone = known.each_ref().map(|member| member.identity.id);
        let (joined, spared) = world.membership_after(&known, &gone);
        assert_eq!(joined, [] as [i32; 0]);
        assert!(spared[&12].contains("possibly escaped"));
        assert_eq!(spared.len(), 1, "{spared:?}");
    }

    #[test]
    fn a_number_that_passed_on_names_strangers_only_f1() {
        let mut world = world();
        let known = [world.member(10, Joined::Root), world.member(11, Joined::Descendant)];
        world.remove(10).remove(11);
        // The stranger leads a session and group of the number; its orphan and its child are in them.
        world.add(10, 1, 10, 300).add(12, 1, 10, 301).add(13, 10, 10, 302);
        let (joined, spared) = world.membership(&known);
        assert_eq!((joined, spared.len()), (vec![], 0));
        // Nor when a member seems to be in it still, by a row that was read before the number passed on.
        world.add(11, 1, 10, 101);
        let (joined, _) = world.membership(&known);
        assert_eq!(joined, [11]);
    }

    #[test]
    fn whoever_bears_number_and_tick_of_a_member_that_is_gone_is_a_stranger_c07() {
        let mut world = world();
        let known = [world.member(10, Joined::Root), world.member(11, Joined::Descendant)];
        let gone = [world.id(10), world.id(11)];
        // The very rows of before; below the first one a child, and in its session an orphan.
        world.add(12, 10, 10, 300).add(13, 1, 10, 301);
        assert_eq!(world.membership(&known).0, [10, 11, 12, 13], "the twin: nobody is gone");
        assert_eq!(world.membership_after(&known, &gone).0, [] as [i32; 0]);
    }

    #[test]
    fn with_a_witness_the_session_of_a_root_that_is_gone_still_counts() {
        let mut world = world();
        let known = [world.member(10, Joined::Root), world.member(11, Joined::Descendant)];
        world.remove(10).row(11, |row| row.ppid = 1).add(12, 1, 10, 300);
        assert_eq!(world.membership(&known).0, [11, 12]);
    }

    #[test]
    fn a_live_parent_that_is_no_member_keeps_its_child_out_by_any_mark_f4() {
        let mut world = world();
        world.add(20, 1, 20, 40).add(12, 20, 10, 102).add(13, 20, 20, 103).row(13, |row| row.pgid = 10);
        joins(&world, &[10, 11], &[(12, "its parent 20 is alive"), (13, "its parent 20 is alive")]);
    }

    #[test]
    fn a_group_alone_recruits_nobody_f4() {
        let mut world = world();
        // As under job control: the root leads a group in the shell's session, and the shell is dead by now.
        world.row(10, |row| row.sid = 700).row(11, |row| row.sid = 700);
        world.add(12, 1, 700, 102).row(12, |row| row.pgid = 10);
        joins(&world, &[10, 11], &[(12, "possibly escaped")]);
    }

    #[test]
    fn an_adopted_one_older_than_the_root_stays_out_f2() {
        let mut world = world();
        world.add(12, 1, 10, 99);
        joins(&world, &[10, 11], &[(12, "older than the tree")]);
    }

    #[test]
    fn newcomers_of_the_reaper_without_a_mark_are_nobody_f2() {
        let mut world = world();
        world.add(12, 1, 12, 400);
        joins(&world, &[10, 11], &[]);
    }

    #[test]
    fn a_child_older_than_its_parent_is_somebody_elses() {
        let mut world = world();
        world.add(12, 11, 10, 90);
        joins(&world, &[10, 11], &[(12, "older than its parent")]);
    }

    #[test]
    fn protected_ones_are_pruned_with_their_subtree_f4() {
        let mut world = world();
        world.add(12, 11, 12, 102).add(13, 12, 10, 103);
        let mux = world.id(12);
        world.verdicts.protected.push((mux, "tmux serves other sessions".to_owned()));
        joins(&world, &[10, 11], &[(12, "tmux"), (13, "its parent 12 is alive")]);
    }

    #[test]
    fn kept_ones_are_pruned_with_their_subtree() {
        let mut world = world();
        world.add(12, 11, 12, 102).add(13, 12, 13, 103).fact(12, |facts| {
            facts.env = Ok(BTreeMap::from([(BString::from("REAPD_KEEP"), BString::from("1"))]));
        });
        joins(&world, &[10, 11], &[(12, "REAPD_KEEP=1")]);
        world.fact(12, |facts| facts.env = Ok(BTreeMap::from([("REAPD_KEEP".into(), "yes".into())])));
        joins(&world, &[10, 11], &[(12, "REAPD_KEEP=yes")]);
        world.fact(12, |facts| facts.env = Ok(BTreeMap::from([("REAPD_KEEP".into(), "0".into())])));
        joins(&world, &[10, 11, 12, 13], &[]);
    }

    #[test]
    fn an_environment_that_cannot_be_read_may_say_keep() {
        let mut world = world();
        world.fact(11, |facts| facts.env = Err(Unknown::new(Reason::Denied, "environ")));
        joins(&world, &[10], &[(11, "environ")]);
    }

    #[test]
    fn other_users_are_pruned_in_user_scope_and_join_in_host_scope() {
        let mut world = world();
        world.add(12, 11, 10, 102).fact(11, |facts| facts.uid = Ok(Uid(0)));
        joins(&world, &[10], &[(11, "user 0"), (12, "its parent 11 is alive")]);
        world.scope = Scope::Host;
        joins(&world, &[10, 11, 12], &[]);
    }

    #[test]
    fn who_cannot_be_identified_is_pruned() {
        let mut world = world();
        world.no_facts(11);
        joins(&world, &[10], &[(11, "the kernel refused")]);
        world.fact(11, |facts| facts.exe = Err(Unknown::new(Reason::Denied, "exe")));
        joins(&world, &[10], &[(11, "its program could not be read")]);
        world.unasked(11);
        joins(&world, &[10], &[(11, "not asked")]);
    }

    #[test]
    fn who_left_the_marker_of_the_scope_behind_is_named_and_not_taken() {
        let mut world = world();
        world.config.scope = AdmitEnv::Marked { name: BString::from("T"), value: BString::from("1") };
        let marked = |facts: &mut Facts| {
            facts.env = Ok(BTreeMap::from([(BString::from("T"), BString::from("1"))]));
        };
        world.fact(10, marked).fact(11, marked).add(12, 11, 10, 102);
        joins(&world, &[10, 11], &[(12, "marker")]);
    }

    #[test]
    fn who_leads_a_session_and_listens_or_has_a_terminal_joins_only_by_policy_f4() {
        let mut world = world();
        world.add(12, 11, 12, 102).listens(12).add(13, 12, 12, 103);
        world.add(14, 11, 14, 104).row(14, |row| row.tty = 34_816).add(15, 11, 15, 105).no_sockets(15);
        // One that listens in the tree's own session stands on the tree.
        world.add(16, 11, 10, 106).listens(16);
        joins(
            &world,
            &[10, 11, 16],
            &[(12, "listens on /tmp/mux"), (14, "has a terminal"), (15, "can be reached is unknown")],
        );
        world.config.policies.push(joining_policy());
        joins(&world, &[10, 11, 12, 14, 15, 16, 13], &[]);
    }

    #[test]
    fn reapd_its_ancestors_its_children_and_its_session_never_go_c36() {
        let mut world = world();
        world.add(13, 11, 800, 301);
        joins(&world, &[10, 11], &[(13, "reapd's own session")]);
        // The killer is inside the tree it kills.
        world.row(800, |row| row.ppid = 10);
        assert_eq!(world.membership(&[]).0, [] as [i32; 0]);
        let mut world = World::new();
        world.judge(super::super::fixture::OWN, |_| {});
        assert_eq!(world.membership(&[]).0, [] as [i32; 0]);
    }

    #[test]
    fn kernel_threads_and_corpses_are_nobody_c22() {
        let mut world = world();
        world.add(12, 11, 10, 102).row(12, |row| row.kernel = Kernel::Thread);
        world.add(13, 11, 10, 103).row(13, |row| row.state = State::Zombie);
        world.add(14, 11, 10, 104).row(14, |row| (row.state, row.threads) = (State::Zombie, 2));
        joins(&world, &[10, 11, 14], &[(12, "kernel")]);
    }

    fn veto(says: Says) -> Evidence {
        Evidence {
            rule: "clients".to_owned(),
            strength: Strength::Sign,
            says,
            why: String::new(),
            cause: None,
        }
    }

    #[test]
    fn a_root_with_a_living_owner_by_another_policy_is_pruned_with_its_subtree() {
        for change in [
            |judgement: &mut Judgement| judgement.verdict = Verdict::Unknown,
            |judgement: &mut Judgement| judgement.verdict = Verdict::Protected,
            |judgement: &mut Judgement| judgement.vetoes = vec![veto(Says::Yes)],
            |judgement: &mut Judgement| judgement.vetoes = vec![veto(Says::Unknown)],
            |judgement: &mut Judgement| {
                judgement.lookalike = Some(Lookalike::HeldBy(World::new().id(800)));
            },
            |judgement: &mut Judgement| {
                let evidence = vec![Evidence { rule: OWNER_RULE.to_owned(), ..veto(Says::No) }];
                judgement.lines =
                    vec![LineFinding { line: 0, list: LineList::ReapWhen, says: Says::No, evidence }];
            },
        ] {
            let mut world = world();
            world.add(12, 11, 12, 102).add(13, 12, 10, 103).judge(12, |judgement| {
                judgement.policy = "other".to_owned();
                judgement.verdict = Verdict::Alive;
                change(judgement);
            });
            joins(&world, &[10, 11], &[(12, "living owner by policy other"), (13, "its parent 12 is alive")]);
            world.verdicts.judgements[1].policy = "planted".to_owned();
            joins(&world, &[10, 11, 12, 13], &[]);
        }
    }

    #[test]
    fn an_adopted_helper_that_somebody_uses_is_no_member() {
        for lookalike in [Lookalike::Adopted, Lookalike::StdinEnded] {
            let mut world = world();
            world.add(12, 1, 10, 102).judge(12, |judgement| {
                judgement.policy = "other".to_owned();
                judgement.verdict = Verdict::Alive;
                judgement.lookalike = Some(lookalike);
            });
            joins(&world, &[10, 11], &[(12, "living owner by policy other")]);
        }
    }

    #[test]
    fn a_helper_whose_only_owner_is_condemned_goes_with_it() {
        let mut world = world();
        let owner = world.id(11);
        world.add(12, 11, 12, 102).judge(12, |judgement| {
            judgement.policy = "other".to_owned();
            judgement.verdict = Verdict::Alive;
            judgement.vetoes = vec![veto(Says::No)];
            judgement.lookalike = Some(Lookalike::HeldBy(owner));
        });
        joins(&world, &[10, 11, 12], &[]);
    }

    #[test]
    fn what_is_missing_is_asked_for_everybody_at_once() {
        let mut world = world();
        world.add(12, 11, 12, 102).unasked(10).unasked(11).unasked(12);
        let look = world.look();
        let ground = Ground {
            judgement: &world.verdicts.judgements[0],
            verdicts: &world.verdicts,
            look: &look,
            config: &world.config,
            known: &[],
            gone: &[],
        };
        let (ten, eleven, twelve) = (world.id(10), world.id(11), world.id(12));
        assert_eq!(
            questions(&ground),
            [
                Question::Facts(ten),
                Question::Facts(eleven),
                Question::Facts(twelve),
                Question::Sockets(twelve)
            ]
        );
        assert_eq!(membership(&ground).members, []);
        assert_eq!(adopters(&look, ten), [world.id(1)]);
    }

    #[test]
    fn newborn_ones_pass_the_same_gates() {
        let mut world = world();
        world.add(12, 11, 12, 102).unasked(12);
        let look = world.look();
        let id = world.id(12);
        let ground = Ground {
            judgement: &world.verdicts.judgements[0],
            verdicts: &world.verdicts,
            look: &look,
            config: &world.config,
            known: &[],
            gone: &[],
        };
        let (facts, sockets) = (Ok(usual(id)), Ok(Sockets::default()));
        let newborn = Newborn { id, sid: 10, tty: 0, name: b"x", facts: &facts, sockets: None };
        assert_eq!(admit(&ground, &newborn, Joined::Descendant).unwrap().identity.id, id);
        let alone = Newborn { sid: 12, ..newborn };
        assert!(admit(&ground, &alone, Joined::Descendant).unwrap_err().contains("not asked"));
        assert!(admit(&ground, &Newborn { sockets: Some(&sockets), ..alone }, Joined::Descendant).is_ok());
        let strange = Ok(Facts { uid: Ok(Uid(0)), ..usual(id) });
        assert!(admit(&ground, &Newborn { facts: &strange, ..newborn }, Joined::Descendant).is_err());
        let own = Newborn { id: world.id(901), ..newborn };
        assert!(admit(&ground, &own, Joined::Descendant).unwrap_err().contains("reapd's own"));
    }

    #[test]
    fn who_joins_by_a_session_passes_every_gate() {
        let mut world = world();
        world.add(12, 1, 10, 102).fact(12, |facts| {
            facts.env = Ok(BTreeMap::from([(BString::from("REAPD_KEEP"), BString::from("1"))]));
        });
        // Its parent is outside of our pid namespace: who started it cannot be told.
        world.add(13, 0, 10, 103);
        joins(&world, &[10, 11], &[(12, "REAPD_KEEP=1"), (13, "a parent that cannot be seen")]);
    }

    #[test]
    fn a_member_that_is_gone_is_not_listed_again() {
        let mut world = world();
        let known = [world.member(10, Joined::Root), world.member(11, Joined::Descendant)];
        world.row(11, |row| row.state = State::Zombie);
        assert_eq!(world.membership(&known).0, [10]);
    }

    #[test]
    fn only_reapers_adopt() {
        let mut world = world();
        world.add(20, 1, 20, 40).row(10, |row| row.ppid = 20);
        assert_eq!(
            adopters(&world.look(), world.id(10)),
            [world.id(1)],
            "its starter is alive and adopts nobody"
        );
    }

    #[test]
    fn process_1_and_reapd_itself_are_named_as_such_whatever_the_table_shows() {
        let mut world = world();
        let (first, own) = (world.id(1), world.id(super::super::fixture::OWN));
        // A table that does not even show reapd: a process file system with `hidepid`, or a torn scan.
        world.remove(own.pid.number());
        let look = world.look();
        let ground = Ground {
            judgement: &world.verdicts.judgements[0],
            verdicts: &world.verdicts,
            look: &look,
            config: &world.config,
            known: &[],
            gone: &[],
        };
        let refusal = |id: ProcessId| {
            let facts = Ok(usual(id));
            let newborn = Newborn { id, sid: 10, tty: 0, name: b"x", facts: &facts, sockets: None };
            admit(&ground, &newborn, Joined::Descendant).unwrap_err()
        };
        assert_eq!(refusal(first), "process 1 is never touched");
        assert_eq!(refusal(own), "it is reapd itself");
    }
}
