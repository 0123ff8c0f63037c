//! What leases let into a tree and keep out of it.

use super::super::fixture::World;
use super::*;
use crate::model::id::{FileId, Start, Uid};
use crate::model::lease::{
    Bound, Covers, FaultyLease, Lease, LeaseFile, LeaseId, Leases, Leftovers, Release, Run, RunChannel,
};
use crate::model::moment::Moment;

/// A tree whose lease is over: 10 with 11 below it, both carriers.
fn world() -> World {
    let mut world = World::new();
    world.judge(10, |_| {}).own_lease(10, "a").carries(10, "a").carries(11, "a");
    world
}

/// A lease of user 1000 whose cookie is its name.
fn lease(id: &str) -> Lease {
    Lease {
        id: LeaseId::new(id).unwrap(),
        file: LeaseFile { owner: Uid(1000), file: FileId { dev: 1, ino: 1 }, modified: 0 },
        bound: Bound::Holder,
        holder: None,
        covers: Covers { env: Some(id.into()), processes: Vec::new() },
        labels: BTreeMap::new(),
        note: None,
        release: Release::Open,
        run: None,
    }
}

#[track_caller]
fn joins(world: &World, known: &[i32], members: &[i32], spared: &[(i32, &str)]) {
    let known: Vec<Member> = known.iter().map(|&pid| world.member(pid, Joined::Descendant)).collect();
    let (found, why) = world.membership(&known);
    assert_eq!(found, members);
    assert_eq!(
        why.keys().copied().collect::<Vec<_>>(),
        spared.iter().map(|(pid, _)| *pid).collect::<Vec<_>>()
    );
    for (pid, part) in spared {
        assert!(why[pid].contains(part), "{}", why[pid]);
    }
}

#[test]
fn a_member_with_another_lease_that_holds_stays_with_all_below_it_f4() {
    let mut world = world();
    world.add(12, 10, 12, 102).add(13, 12, 12, 103).carries(12, "b");
    joins(&world, &[], &[10, 11, 12, 13], &[]);
    world.claim("b", &[800]);
    joins(&world, &[], &[10, 11], &[(12, "it has another lease, b: it holds")]);
    // By identity, whatever it carries.
    world.carries(12, "a");
    joins(&world, &[], &[10, 11, 12, 13], &[]);
    let twelve = world.id(12);
    world.verdicts.leased.claims[0].processes.push(twelve);
    joins(&world, &[], &[10, 11], &[(12, "another lease, b")]);
    // Of another user it says nothing of ours.
    world.verdicts.leased.claims[0].owner = Some(Uid(1001));
    joins(&world, &[], &[10, 11, 12, 13], &[]);
    // One whose file cannot be understood is everybody's, by its name.
    world.verdicts.leased.claims[0].owner = None;
    world.verdicts.leased.claims[0].lease = None;
    joins(&world, &[], &[10, 11], &[(12, "cannot be told")]);
}

#[test]
fn a_cookie_whose_lease_may_be_unread_keeps_out_f11() {
    let mut world = world();
    world.add(12, 10, 12, 102).carries(12, "b");
    let leases = |owner: Option<u32>, stem: &str, known: &[&str]| {
        let why = Unknown::new(Reason::Hung, "reading it");
        let faulty = FaultyLease { owner: owner.map(Uid), stem: stem.into(), why };
        Leases {
            list: known.iter().map(|id| lease(id)).collect(),
            faulty: vec![faulty],
            grouped: BTreeMap::new(),
            cookies: BTreeMap::new(),
        }
    };
    // The whole directory, or a file of another name: the lease of this cookie may stand there.
    for (owner, stem) in [(None, ""), (Some(1000), ""), (Some(1000), "other")] {
        world.leases = leases(owner, stem, &["a"]);
        joins(&world, &[], &[10, 11], &[(12, "cannot be told: reading it")]);
    }
    // Another user's says nothing of ours, and neither does any where the cookie's own lease was read.
    for leases in [leases(Some(1001), "", &["a"]), leases(Some(1000), "other", &["a", "b"])] {
        world.leases = leases;
        joins(&world, &[], &[10, 11, 12], &[]);
    }
}

#[test]
fn a_lease_of_whoever_goes_with_the_tree_owns_nothing_outside_of_it() {
    let mut world = world();
    world.add(12, 11, 10, 102).carries(12, "b").claim("b", &[11]);
    joins(&world, &[], &[10, 11, 12], &[]);
    world.verdicts.leased.claims.clear();
    world.claim("b", &[11, 800]);
    joins(&world, &[], &[10, 11], &[(12, "another lease, b")]);
    world.verdicts.leased.claims.clear();
    world.claim("b", &[]);
    joins(&world, &[], &[10, 11], &[(12, "another lease, b")]);
}

#[test]
fn the_trees_own_lease_claims_nobody_of_it() {
    let mut world = world();
    // It is over for this root alone: one of `reapd run` that goes by its channel.
    world.claim("a", &[800]);
    joins(&world, &[], &[10, 11], &[]);
    world.verdicts.leased.trees.clear();
    joins(&world, &[], &[10], &[(11, "another lease, a")]);
}

#[test]
fn an_unread_environment_keeps_out_since_it_may_carry_another_lease() {
    let mut world = world();
    world.add(12, 10, 10, 102).fact(12, |facts| facts.env = Err(Unknown::new(Reason::Denied, "env")));
    joins(&world, &[], &[10, 11], &[(12, "refused")]);
}

/// 14 was born since the tree was suspected, at 100, and adopted by init.
fn newborn() -> World {
    let mut world = world();
    world.add(14, 1, 14, 110).row(14, |row| row.began = Moment(100)).carries(14, "a");
    world
}

#[test]
fn who_was_born_and_adopted_meanwhile_joins_by_the_trees_cookie() {
    joins(&newborn(), &[10, 11], &[10, 11, 14], &[]);
    let (found, _) = newborn().membership(&[newborn().member(11, Joined::Descendant)]);
    assert_eq!(found, [11, 10, 14]);
    // While the tree is planned, whoever is there is judged for its own sake.
    joins(&newborn(), &[], &[10, 11], &[]);
}

#[test]
fn a_cookie_alone_recruits_nobody_f2_f4_b43() {
    let change = |change: &dyn Fn(&mut World)| {
        let mut world = newborn();
        change(&mut world);
        world
    };
    let stays = |world: &World| joins(world, &[10, 11], &[10, 11], &[]);
    stays(&change(&|world| _ = world.row(14, |row| row.began = Moment(99))));
    stays(&change(&|world| _ = world.row(14, |row| row.id.start = Start(99)).carries(14, "a")));
    stays(&change(&|world| _ = world.carries(14, "b")));
    stays(&change(&|world| _ = world.row(14, |row| row.ppid = 800)));
    stays(&change(&|world| _ = world.judge(14, |other| other.verdict = Verdict::Alive)));
    stays(&change(&|world| world.verdicts.leased.trees.clear()));
    let spared = |world: &World, why| joins(world, &[10, 11], &[10, 11], &[(14, why)]);
    spared(&change(&|world| _ = world.listens(14)), "listens");
    spared(&change(&|world| _ = world.row(14, |row| row.tty = 5)), "terminal");
    spared(&change(&|world| _ = world.fact(14, |_| {})), "does not carry the cookie");
    spared(
        &change(&|world| {
            let env = BTreeMap::from([(crate::model::lease::COOKIE.into(), "a".into())]);
            world.fact(14, |facts| (facts.env, facts.uid) = (Ok(env), Ok(Uid(1))));
        }),
        "",
    );
    spared(
        &change(&|world| {
            let id = world.id(14);
            world.verdicts.protected.push((id, "it is kept".into()));
        }),
        "it is kept",
    );
}

/// 14 cleared its environment, and is in the cgroup of the tree's run.
fn grouped() -> World {
    let mut world = world();
    world.add(14, 1, 14, 110).row(14, |row| row.began = Moment(100)).grouped(14, "a");
    world
}

#[test]
fn who_cleared_its_environment_joins_by_the_trees_cgroup() {
    joins(&grouped(), &[10, 11], &[10, 11, 14], &[]);
    joins(&grouped(), &[], &[10, 11], &[]);
}

#[test]
fn a_cgroup_alone_recruits_nobody_f4() {
    let change = |change: &dyn Fn(&mut World)| {
        let mut world = grouped();
        change(&mut world);
        world
    };
    let stays = |world: &World| joins(world, &[10, 11], &[10, 11], &[]);
    stays(&change(&|world| _ = world.row(14, |row| row.began = Moment(99))));
    stays(&change(&|world| _ = world.row(14, |row| row.id.start = Start(99)).grouped(14, "a")));
    stays(&change(&|world| _ = world.grouped(14, "b")));
    stays(&change(&|world| _ = world.row(14, |row| row.ppid = 800)));
    stays(&change(&|world| world.verdicts.leased.trees[0].cgroup = None));
    let spared = |world: &World, why| joins(world, &[10, 11], &[10, 11], &[(14, why)]);
    spared(&change(&|world| _ = world.listens(14)), "listens");
    spared(&change(&|world| _ = world.row(14, |row| row.tty = 5)), "terminal");
    spared(&change(&|world| _ = world.fact(14, |_| {})), "not in the cgroup");
    let elsewhere = |world: &mut World| {
        world.fact(14, |facts| facts.cgroup = Ok("/reapd-run-a/inner".into()));
    };
    spared(&change(&elsewhere), "not in the cgroup");
    spared(
        &change(&|world| world.verdicts.leased.trees[0].cgroup.as_mut().unwrap().path = "/b".into()),
        "not in",
    );
}

#[test]
fn the_watcher_of_a_run_adopts_for_its_tree() {
    let mut world = newborn();
    world.add(9, 1, 9, 90).row(10, |row| row.ppid = 9).row(14, |row| row.ppid = 9);
    joins(&world, &[10, 11], &[10, 11], &[]);
    let run = Run {
        watcher: world.id(9),
        command: None,
        leftovers: Leftovers::Reap,
        channel: RunChannel::None,
        cgroup: None,
    };
    world.leases.list.push(Lease { run: Some(run), ..lease("a") });
    joins(&world, &[10, 11], &[10, 11, 14], &[]);
    let adopters: Vec<i32> = adopters(&world.look(), world.id(10)).iter().map(|id| id.pid.number()).collect();
    assert_eq!(adopters, [9, 1]);
}
