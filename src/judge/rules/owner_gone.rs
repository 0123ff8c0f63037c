//! Finds helpers and containers whose owner has died.
//!
//! # What it finds
//!
//! With `pid`: a helper that names its owner by process number, where that process is dead: absent, a zombie, or
//! another process under the number. It counts when reapd saw that very process alive above the helper, or together
//! with the whole of `stdin-abandoned`. With `spawner = "dies-with"`: a helper whose first living parent, as reapd saw
//! it, is dead (M8). Always: the helper was left behind, so its parent now is not one that may have started it.
//! A container that `reapd run` had made, where the holder in its labels is gone, and the client that bears its lease as
//! well.
//!
//! # Why it is not enough alone
//!
//! It is enough for a program that serves its owner alone. Others outlive whoever started them on purpose: shared
//! build daemons (B07, B48) and servers that hand over to a successor (B44). `dies-with` is for the policy to claim.
//!
//! # When it is wrong
//!
//! Each of these is kept. A number that was dead when reapd first looked: perhaps an errand, a shell that was gone in
//! a moment. A number of another pid namespace (B27, F10): it means somebody else, or nobody, here. A number that was
//! inherited from an ancestor and is alive. An owner of another user: a refused signal proves that it is there (B23).
//! A number that only a thread bears is no owner; one that another process took over does not hide the death. A helper
//! whose parent bears the number, or whose living parent may have started it (B04, B58). A parent outside our pid
//! namespace: unknown (B25). Identity is the raw start stamp, which no clock step moves (B21, B22).
//! A container whose lease has its file, which says whether it holds; one whose image gives the label to everybody
//! (S5); a holder of another boot or pid namespace; another process under its number that may have been there before
//! the container.
//!
//! # Settings
//!
//! `pid`: template of the captured process number, e.g. `{ owner-gone = "{owner}" }`; optional, no default.
//! `spawner`: `"dies-with"` claims that the program never outlives its first parent on purpose; optional, and left
//! out it claims nothing. One of the two must be given; with both, both must hold.

use bstr::ByteSlice as _;

use crate::judge::case::{Case, known};
use crate::judge::containers;
use crate::judge::containers::case::ContainerCase;
use crate::judge::rule::{Finding, Found, Holds, Rule, Settings};
use crate::model::id::{Pid, ProcessId};
use crate::model::known::{Reason, Unknown};
use crate::model::question::Owner;
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

use super::reparented::left_behind;
use super::stdin_abandoned;

/// Finds helpers whose owner has died.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "owner-gone",
        strength: Strength::Proof,
        summary: "the process that it served is dead, and it was left behind",
        doc: super::own_opening!("owner_gone.rs"),
        settings: &[
            SettingSpec {
                name: "pid",
                kind: SettingKind::Template,
                need: Need::Optional,
                doc: "the owner's process number, as captured; no default",
            },
            SettingSpec {
                name: "spawner",
                kind: SettingKind::Word(&["dies-with"]),
                need: Need::Optional,
                doc: "\"dies-with\": the program never outlives its first parent on purpose; left out, no such claim",
            },
        ],
        bare: Some("pid"),
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Both(&[]),
    },
    weigh: Some(weigh),
    weigh_container: Some(weigh_container),
};

fn weigh_container(case: &ContainerCase<'_>, _: Settings<'_>) -> Found<Finding> {
    containers::leased::holder_gone(case)
}

fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let owner = match settings.template("pid") {
        None => None,
        Some(template) => {
            let value = case.fill(template);
            let number = value.as_ref().and_then(|value| value.to_str().ok()?.parse().ok());
            Some(number.and_then(Pid::new).ok_or_else(|| {
                Unknown::new(Reason::NotAsked, format!("which process number '{}' is for it", template.text))
            })?)
        }
    };
    let spawner = settings.word("spawner").is_some();
    let memory = Memory {
        owner: owner.and_then(|pid| case.memory.owner(case.root.id, pid)),
        spawner: case.memory.spawner(case.root.id),
    };
    match (owner, spawner) {
        (None, false) => Ok(Finding::no("no owner was named")),
        (None, true) => spawner_gone(case, memory),
        (Some(pid), false) => owner_gone(case, pid, memory),
        (Some(pid), true) => {
            let owner = owner_gone(case, pid, memory)?;
            if owner.holds == Holds::No { Ok(owner) } else { spawner_gone(case, memory) }
        }
    }
}

/// What was seen at earlier looks.
#[derive(Debug, Clone, Copy, Default)]
struct Memory {
    /// Who bore the captured number above the helper.
    owner: Option<ProcessId>,
    /// Who was its first living parent.
    spawner: Option<ProcessId>,
}

fn owner_gone(case: &Case<'_>, pid: Pid, memory: Memory) -> Found<Finding> {
    if case.root.ppid == pid.number() {
        return Ok(Finding::no(format!("its owner, process {pid}, is still its parent")));
    }
    // Asked before anything else decides: that it is alive, and above the helper, is what gets remembered.
    let now = case.owner(pid)?;
    let seen = memory.owner.or(memory.spawner.filter(|spawner| spawner.pid == pid));
    let gone = match (now, seen) {
        (Owner::Absent | Owner::Zombie, _) => true,
        (Owner::Alive(now), Some(seen)) => now != seen,
        // Who started after the helper cannot be who the helper was told of.
        (Owner::Alive(now), None) => now.start > case.root.id.start,
    };
    if !gone {
        return Ok(Finding::no(format!("its owner, process {pid}, is alive")));
    }
    if let Err(why) = left_behind(case)? {
        return Ok(Finding::no(why));
    }
    let own = known(&case.look.snapshot.own.namespaces)?;
    let theirs = known(&case.facts(case.root.id)?.namespaces)?;
    if (own.pid, own.time) != (theirs.pid, theirs.time) {
        return Err(Unknown::new(Reason::Foreign, format!("whom it means by process {pid}")).into());
    }
    if seen.is_some() {
        return Ok(Finding::yes(format!("its owner, process {pid}, is gone")));
    }
    let stdin = stdin_abandoned::weigh(case, Settings(&std::collections::BTreeMap::new()))?;
    match stdin.holds {
        Holds::Yes => Ok(Finding::yes(format!("its owner, process {pid}, is gone, and {}", stdin.why))),
        Holds::No => {
            let what = format!("who process {pid} was while it lived ({})", stdin.why);
            Err(Unknown::new(Reason::NoRecord, what).into())
        }
    }
}

fn spawner_gone(case: &Case<'_>, memory: Memory) -> Found<Finding> {
    if let Err(why) = left_behind(case)? {
        return Ok(Finding::no(why));
    }
    let Some(spawner) = memory.spawner else {
        let what = "who started it, before it was left to a reaper";
        return Err(Unknown::new(Reason::NoRecord, what).into());
    };
    // Another start under the same number is another process: the table looks it up by both.
    match case.look.snapshot.table.get(spawner) {
        Some(row) if !row.is_gone() => {
            Ok(Finding::no(format!("process {spawner}, which started it, is alive")))
        }
        Some(_) | None => Ok(Finding::yes(format!("process {spawner}, which started it, is gone"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::policy::Setting;
    use crate::judge::rules::support::{ROOT, Says, Scene, captured, id, pid, pipe};
    use crate::model::facts::{Facts, Namespaces};
    use crate::model::id::Start;
    use crate::model::question::{FarEnd, Question};

    const UNSEEN: Memory = Memory { owner: None, spawner: None };

    /// The root was told of process 30, which is gone.
    fn orphan() -> Scene {
        Scene::orphan().capture("owner", "30").owner(30, Owner::Absent)
    }

    fn seen(number: i32) -> Memory {
        Memory { owner: Some(id(number)), spawner: None }
    }

    fn check(scene: &Scene, memory: Memory, expected: &Says) {
        scene.check_by(|case| owner_gone(case, pid(30), memory), expected);
    }

    fn stdin_gone(scene: Scene) -> Scene {
        scene.fd(ROOT, 0, pipe(FarEnd::Gone)).fd(ROOT, 1, pipe(FarEnd::Gone))
    }

    #[test]
    fn an_owner_that_was_seen_alive_and_is_gone_is_proof() {
        check(&orphan(), seen(30), &Says::Yes("its owner, process 30, is gone"));
        check(&orphan().owner(30, Owner::Zombie), seen(30), &Says::Yes("is gone"));
        let spawner = Memory { owner: None, spawner: Some(id(30)) };
        check(&orphan(), spawner, &Says::Yes("its owner, process 30, is gone"));
    }

    #[test]
    fn a_number_that_somebody_took_over_does_not_hide_the_death_c07() {
        let stranger = Owner::Alive(ProcessId { pid: pid(30), start: Start(9000) });
        check(&orphan().owner(30, stranger), seen(30), &Says::Yes("is gone"));
        check(&stdin_gone(orphan().owner(30, stranger)), UNSEEN, &Says::Yes("nobody holds"));
    }

    #[test]
    fn a_live_owner_keeps_it_b04_b23() {
        let alive = orphan().owner(30, Owner::Alive(id(30)));
        check(&alive, seen(30), &Says::No("its owner, process 30, is alive"));
        check(&stdin_gone(alive), UNSEEN, &Says::No("its owner, process 30, is alive"));
        // EPERM and its like: a refused look is never a death.
        let question = Question::Owner { of: id(ROOT), pid: pid(30) };
        check(&orphan().refused(question, Reason::Denied), seen(30), &Says::Unknown("refused"));
    }

    #[test]
    fn a_live_owner_costs_one_question() {
        let question = Question::Owner { of: id(ROOT), pid: pid(30) };
        check(&orphan().unasked(&question), UNSEEN, &Says::Asks(vec![question]));
    }

    #[test]
    fn a_bare_number_that_was_never_seen_alive_is_unknown_f10() {
        let held = orphan().fd(ROOT, 0, pipe(FarEnd::Held)).fd(ROOT, 1, pipe(FarEnd::Held));
        let held = held.held_by(ROOT, 0, &[60]).held_by(ROOT, 1, &[60]).process(60, 1);
        check(&held, UNSEEN, &Says::Unknown("while it lived"));
        check(&stdin_gone(orphan()), UNSEEN, &Says::Yes("its owner, process 30, is gone, and nobody holds"));
        // A spawner with another number says nothing of this one.
        let other = Memory { owner: None, spawner: Some(id(31)) };
        check(&held, other, &Says::Unknown("while it lived"));
        let question = Question::Channel { of: id(ROOT), fd: 0 };
        check(&orphan().refused(question, Reason::Denied), UNSEEN, &Says::Unknown("refused"));
    }

    #[test]
    fn a_number_of_another_pid_namespace_is_unknown_b27_f10() {
        for change in [(|own| Namespaces { pid: 2, ..own }) as fn(Namespaces) -> Namespaces, |own| {
            Namespaces { time: 2, ..own }
        }] {
            let foreign = |facts: &mut Facts| facts.namespaces = facts.namespaces.clone().map(change);
            check(&orphan().facts(ROOT, foreign), seen(30), &Says::Unknown("whom it means"));
            check(&stdin_gone(orphan()).facts(ROOT, foreign), UNSEEN, &Says::Unknown("whom it means"));
        }
        let unread = |facts: &mut Facts| facts.namespaces = Err(Unknown::new(Reason::Denied, "namespaces"));
        check(&orphan().facts(ROOT, unread), seen(30), &Says::Unknown("namespaces"));
    }

    #[test]
    fn who_was_not_left_behind_is_kept_f10_b58() {
        let owned = orphan().process(40, 1).row(ROOT, |row| row.ppid = 40);
        check(&owned, seen(30), &Says::No("its parent 40 is alive"));
        check(&stdin_gone(owned), UNSEEN, &Says::No("its parent 40 is alive"));
        check(&orphan().row(ROOT, |row| row.ppid = 30), seen(30), &Says::No("is still its parent"));
        check(&orphan().row(ROOT, |row| row.ppid = 0), seen(30), &Says::Unknown("its parent"));
    }

    #[test]
    fn what_is_no_number_is_unknown_c05() {
        for value in ["", "-1", "0", "x", "30 ", "99999999999"] {
            let scene = orphan().capture("owner", value);
            scene.check(&RULE, &[("pid", captured("owner"))], &Says::Unknown("which process number"));
        }
        Scene::orphan().check(&RULE, &[("pid", captured("owner"))], &Says::Unknown("which process number"));
        orphan().check(&RULE, &[], &Says::No("no owner was named"));
    }

    #[test]
    fn a_spawner_that_is_gone_is_proof_where_the_policy_says_so_m8_a23_a28() {
        let check = |scene: &Scene, memory, expected: &Says| {
            scene.check_by(|case| spawner_gone(case, memory), expected);
        };
        let memory = Memory { owner: None, spawner: Some(id(30)) };
        check(&Scene::orphan(), memory, &Says::Yes("process 30, which started it, is gone"));
        check(&Scene::orphan().process(30, 1).dead(30), memory, &Says::Yes("is gone"));
        let reused = Scene::orphan().process(30, 1).row(30, |row| row.id.start = Start(9000));
        check(&reused, memory, &Says::Yes("is gone"));
        check(&Scene::orphan().process(30, 1), memory, &Says::No("which started it, is alive"));
        check(&Scene::owned(), memory, &Says::No("its parent 40 is alive"));
        check(&Scene::orphan(), UNSEEN, &Says::Unknown("who started it"));
    }

    #[test]
    fn a_spawner_is_nothing_without_the_claim_b44_b48() {
        let settings = [("spawner", Setting::Word("dies-with"))];
        Scene::orphan().check(&RULE, &settings, &Says::Unknown("who started it"));
        Scene::orphan().check(&RULE, &[], &Says::No("no owner was named"));
    }

    #[test]
    fn with_both_settings_both_must_hold() {
        let settings = [("pid", captured("owner")), ("spawner", Setting::Word("dies-with"))];
        stdin_gone(orphan()).check(&RULE, &settings, &Says::Unknown("who started it"));
        let alive = orphan().owner(30, Owner::Alive(id(30)));
        alive.check(&RULE, &settings, &Says::No("is alive"));
    }
}
