//! Says who goes, in what order and how. Pure: it reads verdicts and a look, and signals nobody.

use std::collections::{BTreeMap, BTreeSet};

use crate::config::policy::{Config, Policy};
use crate::model::container::ContainerRef;
use crate::model::evidence::Cause;
use crate::model::id::ProcessId;
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::plan::{Plan, Teardown, Wait, Waiting};
use crate::model::question::Question;
use crate::model::verdict::{Judgement, Mode, Verdict, Verdicts};

use limits::{Pacer, Tripped, Whose};
use teardown::{Ground, membership};

mod containers;
pub mod escalation;
#[cfg(test)]
mod fixture;
mod gates;
mod limits;
pub mod residue;
mod step;
pub mod successor;
pub mod teardown;

/// How this sweep was asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Asked {
    /// Whether a person saw the plan and decided.
    pub pace: Pace,
    /// What a person released from the breaker or from the limit on size.
    pub released: Released,
    /// The only policy to plan for, where one was named.
    pub only: Option<String>,
}

/// Whether the number of trees at once is limited.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Pace {
    /// Nobody watches: a few at a time.
    #[default]
    Paced,
    /// A person saw the plan and decided.
    Unpaced,
}

/// What a person let go on in spite of a limit (`reapd release`).
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Released {
    /// Causes that many verdicts may hang on.
    pub causes: BTreeSet<Cause>,
    /// Roots of single trees, whatever their size and cause.
    pub roots: BTreeSet<ProcessId>,
    /// Single containers, whatever their cause.
    pub containers: BTreeSet<ContainerRef>,
}

/// Returns everything this sweep would do: proven trees that go now, oldest suspicion first, and those that wait.
pub fn plan(verdicts: &Verdicts, look: &Look, config: &Config, asked: &Asked) -> Plan {
    let mut plan = Plan::default();
    let mut pacer = Pacer::new(config.limits, asked);
    let tripped = limits::tripped(verdicts, config.limits, &asked.released);
    // Whoever goes with a tree that is planned already, by the root of that tree.
    let mut taken: BTreeMap<ProcessId, ProcessId> = BTreeMap::new();
    let mut ready: Vec<(Moment, Teardown)> = Vec::new();
    for (since, judgement) in proven(verdicts, asked) {
        let wait = |why| Waiting { judgement: judgement.clone(), why };
        if config.mode != Mode::Reap || judgement.mode != Mode::Reap {
            plan.waiting.push(wait(Wait::ReportOnly));
            continue;
        }
        let teardown = match prepare(judgement, verdicts, look, config) {
            Ok(teardown) => teardown,
            Err(why) => {
                plan.waiting.push(wait(why));
                continue;
            }
        };
        if let Some(cause) = tripped_by(judgement, &tripped, &asked.released) {
            plan.waiting.push(wait(Wait::SameCause(cause)));
            continue;
        }
        let size = teardown.members.len();
        if size > config.limits.processes_per_tree && !asked.released.roots.contains(&judgement.root) {
            plan.waiting.push(wait(Wait::TooLarge(size)));
            continue;
        }
        ready.push((since, teardown));
    }
    // A tree within another is known only when all memberships are: the inner root may be the older suspicion.
    for (_, teardown) in &ready {
        let root = teardown.judgement.root;
        for member in &teardown.members {
            if member.identity.id != root {
                taken.entry(member.identity.id).or_insert(root);
            }
        }
    }
    let mut planned: BTreeSet<ProcessId> = BTreeSet::new();
    for (_, teardown) in ready {
        let judgement = &teardown.judgement;
        let whole =
            taken.get(&judgement.root).copied().filter(|outer| !is_mutual(&taken, judgement.root, *outer));
        let why = match whole {
            Some(outer) => Some(Wait::PartOf(outer)),
            // The same root by another policy.
            None if planned.contains(&judgement.root) => Some(Wait::PartOf(judgement.root)),
            None => pacer.admit(Whose::User(judgement.uid), &judgement.policy).err(),
        };
        if let Some(why) = why {
            plan.waiting.push(Waiting { judgement: teardown.judgement, why });
        } else {
            planned.insert(judgement.root);
            plan.teardowns.push(teardown);
        }
    }
    plan.containers = containers::containers(verdicts, look, config, asked, &tripped);
    plan
}

/// Returns what must still be asked before [`plan`] can tell who would go.
pub fn questions(verdicts: &Verdicts, look: &Look, config: &Config, asked: &Asked) -> Vec<Question> {
    let mut questions: BTreeSet<Question> = BTreeSet::new();
    for (_, judgement) in proven(verdicts, asked) {
        questions.extend(teardown::questions(&Ground {
            judgement,
            verdicts,
            look,
            config,
            known: &[],
            gone: &[],
        }));
        questions.extend(successor::questions(judgement, look));
    }
    questions.extend(containers::questions(verdicts, config, asked));
    questions.into_iter().collect()
}

/// Returns the proven ones, oldest suspicion first.
fn proven<'a>(verdicts: &'a Verdicts, asked: &Asked) -> Vec<(Moment, &'a Judgement)> {
    let wanted = |judgement: &&Judgement| asked.only.as_ref().is_none_or(|only| *only == judgement.policy);
    let mut found: Vec<(Moment, &Judgement)> = verdicts
        .judgements
        .iter()
        .filter(wanted)
        .filter_map(|judgement| match judgement.verdict {
            Verdict::Orphaned { since } => Some((since, judgement)),
            Verdict::Protected | Verdict::Alive | Verdict::Unknown | Verdict::Suspect { .. } => None,
        })
        .collect();
    found.sort_by(|(a_since, a), (b_since, b)| {
        (a_since, a.began, a.root, &a.policy).cmp(&(b_since, b.began, b.root, &b.policy))
    });
    found
}

/// Returns the teardown of one proven tree, or why nobody of it may be signalled.
fn prepare(
    judgement: &Judgement,
    verdicts: &Verdicts,
    look: &Look,
    config: &Config,
) -> Result<Teardown, Wait> {
    let identity = judgement.identity.as_ref().map_err(|_| Wait::Unidentified)?;
    let ground = Ground { judgement, verdicts, look, config, known: &[], gone: &[] };
    let found = membership(&ground);
    let root = found.members.first().ok_or(Wait::Unidentified)?;
    // The judged identity and the one just read must be one and the same, its executable known; so where the root
    // itself was kept out, whoever is first instead is not it.
    if !identity.is_surely(&root.identity) {
        return Err(Wait::Unidentified);
    }
    let ladder = policy(config, &judgement.policy).map_or(&config.ladder, |policy| &policy.ladder);
    let ladder = successor::ladder(ladder, judgement, look).ok_or(Wait::Successor)?;
    Ok(Teardown { judgement: judgement.clone(), members: found.members, spared: found.spared, ladder })
}

/// Returns a policy by its name.
fn policy<'a>(config: &'a Config, name: &str) -> Option<&'a Policy> {
    config.policies.iter().find(|policy| policy.name == name)
}

fn tripped_by(judgement: &Judgement, tripped: &Tripped<'_>, released: &Released) -> Option<Cause> {
    if released.roots.contains(&judgement.root) {
        return None;
    }
    tripped.tree(judgement.uid, &judgement.causes)
}

/// Says whether two roots are each in the other's tree; then neither may wait for the other for ever.
fn is_mutual(taken: &BTreeMap<ProcessId, ProcessId>, inner: ProcessId, outer: ProcessId) -> bool {
    taken.get(&outer) == Some(&inner) && inner < outer
}

#[cfg(test)]
mod tests {
    use super::fixture::World;
    use super::*;
    use crate::model::id::{FileId, Uid};
    use crate::model::plan::Signal;
    use bstr::BString;

    fn plan_of(world: &World, asked: &Asked) -> (Vec<i32>, BTreeMap<i32, Wait>) {
        let plan = plan(&world.verdicts, &world.look(), &world.config, asked);
        (
            plan.teardowns.iter().map(|teardown| teardown.judgement.root.pid.number()).collect(),
            plan.waiting
                .into_iter()
                .map(|waiting| (waiting.judgement.root.pid.number(), waiting.why))
                .collect(),
        )
    }

    /// Trees of one process each.
    fn trees(count: i32) -> World {
        let mut world = World::new();
        for n in 0..count {
            world.add(100 + n, 1, 100 + n, 1000 - u64::try_from(n).unwrap());
            world.judge(100 + n, |_| {});
        }
        world
    }

    fn mount() -> Cause {
        Cause::Mount(BString::from("/mnt"))
    }

    /// A policy that is off is told of, and nothing else comes of it.
    #[test]
    fn what_is_only_offered_is_never_planned() {
        let mut world = trees(2);
        let offered = world.verdicts.judgements.remove(0);
        world.verdicts.offered.push(offered);
        let (go, wait) = plan_of(&world, &Asked::default());
        assert_eq!((go, wait), (vec![101], BTreeMap::new()));
        assert!(
            questions(&world.verdicts, &world.look(), &world.config, &Asked::default())
                .iter()
                .all(|question| !matches!(question, Question::Facts(id) if id.pid.number() == 100))
        );
    }

    #[test]
    fn only_proven_trees_go_and_only_where_reaping_is_wanted() {
        let mut world = trees(4);
        world.verdicts.judgements[0].verdict = Verdict::Suspect { since: Moment(0), looks: 1 };
        world.verdicts.judgements[1].verdict = Verdict::Alive;
        world.verdicts.judgements[2].mode = Mode::Report;
        let (go, wait) = plan_of(&world, &Asked::default());
        assert_eq!((go, wait), (vec![103], BTreeMap::from([(102, Wait::ReportOnly)])));
        world.config.mode = Mode::Report;
        assert_eq!(plan_of(&world, &Asked::default()).0, [] as [i32; 0]);
    }

    #[test]
    fn the_oldest_suspicion_goes_first_and_pace_holds_the_rest() {
        let world = trees(4);
        let (go, wait) = plan_of(&world, &Asked::default());
        assert_eq!(go, [103, 102]);
        assert_eq!(wait, BTreeMap::from([(100, Wait::Pace), (101, Wait::Pace)]));
        let decided = Asked { pace: Pace::Unpaced, ..Asked::default() };
        assert_eq!(plan_of(&world, &decided).0, [103, 102, 101, 100]);
    }

    #[test]
    fn nobody_can_flood_the_reaper_off_for_others_s7() {
        let mut world = trees(5);
        for judgement in &mut world.verdicts.judgements[1..] {
            judgement.uid = Uid(1001);
            judgement.causes = vec![mount()];
        }
        world.verdicts.judgements[0].causes = vec![mount()];
        let (go, wait) = plan_of(&world, &Asked::default());
        assert_eq!(go, [100]);
        assert!(wait.values().all(|why| *why == Wait::SameCause(mount())));
        for judgement in &mut world.verdicts.judgements {
            judgement.causes.clear();
            judgement.uid = Uid(1000);
        }
        world.verdicts.judgements[0].policy = "other".to_owned();
        assert_eq!(plan_of(&world, &Asked::default()).0, [104, 103, 100], "each policy has its own pace");
    }

    #[test]
    fn many_verdicts_on_one_cause_wait_until_released() {
        let mut world = trees(4);
        for judgement in &mut world.verdicts.judgements[..3] {
            judgement.causes = vec![mount()];
        }
        world.verdicts.judgements[0].verdict = Verdict::Suspect { since: Moment(0), looks: 1 };
        let (go, wait) = plan_of(&world, &Asked::default());
        assert_eq!(go, [103], "what hangs on nothing goes");
        assert_eq!(
            wait,
            BTreeMap::from([(101, Wait::SameCause(mount())), (102, Wait::SameCause(mount()))]),
            "suspects count too"
        );
        let mut asked = Asked { pace: Pace::Unpaced, ..Asked::default() };
        assert_eq!(plan_of(&world, &asked).0, [103], "a person at the terminal does not release it");
        asked.released.roots.insert(world.id(101));
        assert_eq!(plan_of(&world, &asked).0, [103, 101]);
        asked.released.causes.insert(mount());
        assert_eq!(plan_of(&world, &asked).0, [103, 102, 101]);
        world.verdicts.judgements[0].causes.clear();
        assert_eq!(plan_of(&world, &Asked::default()).1.len(), 1, "two are not too many: only pace holds");
    }

    #[test]
    fn a_tree_too_large_waits_for_a_person() {
        let mut world = trees(1);
        for n in 0..4 {
            world.add(200 + n, 100, 100, 2000);
        }
        let mut asked = Asked { pace: Pace::Unpaced, ..Asked::default() };
        assert_eq!(plan_of(&world, &asked).1, BTreeMap::from([(100, Wait::TooLarge(5))]));
        asked.released.roots.insert(world.id(100));
        assert_eq!(plan_of(&world, &asked).0, [100]);
    }

    #[test]
    fn who_is_not_surely_known_waits() {
        let other = |world: &mut World, change: fn(&mut crate::model::id::Identity)| {
            let mut identity = super::fixture::identity(world.id(100));
            change(&mut identity);
            world.verdicts.judgements[0].identity = Ok(identity);
        };
        let mut world = trees(1);
        assert_eq!(plan_of(&world, &Asked::default()).0, [100]);
        other(&mut world, |identity| identity.exe = None);
        assert_eq!(plan_of(&world, &Asked::default()).1, BTreeMap::from([(100, Wait::Unidentified)]));
        // It ran another program since it was judged.
        other(&mut world, |identity| identity.exe = Some(FileId { dev: 9, ino: 9 }));
        assert_eq!(plan_of(&world, &Asked::default()).1, BTreeMap::from([(100, Wait::Unidentified)]));
        world.verdicts.judgements[0].identity =
            Err(crate::model::known::Unknown::new(crate::model::known::Reason::Denied, "exe"));
        assert_eq!(plan_of(&world, &Asked::default()).1, BTreeMap::from([(100, Wait::Unidentified)]));
    }

    #[test]
    fn a_tree_within_a_tree_goes_with_it_though_it_was_suspected_first() {
        let mut world = World::new();
        world.judge(10, |_| {}).judge(11, |inner| inner.verdict = Verdict::Orphaned { since: Moment(0) });
        let outer = world.id(10);
        let (go, wait) = plan_of(&world, &Asked::default());
        assert_eq!((go, wait), (vec![10], BTreeMap::from([(11, Wait::PartOf(outer))])));
    }

    #[test]
    fn one_root_is_torn_down_once_whatever_policies_condemn_it() {
        let mut world = trees(1);
        world.judge(100, |again| again.policy = "zweite".to_owned());
        let (go, wait) = plan_of(&world, &Asked::default());
        assert_eq!((go.len(), wait.len()), (1, 1));
    }

    #[test]
    fn a_named_policy_is_the_only_one_and_its_ladder_counts() {
        let mut world = trees(2);
        world.verdicts.judgements[1].policy = "other".to_owned();
        world.config.policies.push(super::fixture::joining_policy());
        let asked = Asked { only: Some("planted".to_owned()), ..Asked::default() };
        let plan = plan(&world.verdicts, &world.look(), &world.config, &asked);
        assert_eq!((plan.teardowns.len(), plan.waiting.len()), (1, 0));
        assert_eq!(plan.teardowns[0].ladder.0[0].signal, Signal::Int);
    }

    #[test]
    fn two_roots_in_each_others_tree_do_not_wait_for_ever() {
        let mut world = World::new();
        // A scan that was torn apart by a change of numbers: each is the other's parent.
        world.add(20, 21, 20, 300).add(21, 20, 21, 300).judge(20, |_| {}).judge(21, |_| {});
        let outer = world.id(20);
        let (go, wait) = plan_of(&world, &Asked::default());
        assert_eq!((go, wait), (vec![20], BTreeMap::from([(21, Wait::PartOf(outer))])));
    }
}
