//! Finds helpers whose companion process is not there any more.
//!
//! # What it finds
//!
//! A helper that carries a key, where no tree that another policy matches carries the same key now: a debug adapter
//! whose worker is gone (M5). The key ties one to the other, e.g. a session's number on both command lines.
//!
//! # Why it is not enough alone
//!
//! It is enough only by knowledge of the program: that the one never lives on without the other, and never comes
//! first. Two looks bridge the moments between the start of the one and of the other, and the policy's age floor the
//! rest.
//!
//! # When it is wrong
//!
//! Each of these is kept. A companion that could not be read, or whose key could not: any process whose arguments are
//! unknown may be the one (B24). A companion that is protected, or lies in the same tree: it is there. A policy that
//! is off, or that nobody wrote: nobody looked. A helper without the key. A helper whose parent is one of the
//! companions, whatever their keys: who is being started may not carry its key yet. A helper whose parent is alive at
//! all: it may be a companion of another version, which no policy knows. A companion of another user is
//! not seen by a user's own reapd: name only programs that run as one user.
//!
//! # Settings
//!
//! `policy`: name of the policy that matches companions; required. Report-only policies serve as well.
//! `key`: name of the capture that both policies have and whose values must be the same; required.
//! Example: `{ companion-gone = { policy = "debug-worker", key = "session" } }`.

use crate::judge::case::Case;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::escape::escape;
use crate::model::known::{Reason, Unknown};
use crate::model::ownership::Parentage;
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};
use crate::model::table::Kernel;

/// Finds helpers whose companion process is not there any more.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "companion-gone",
        strength: Strength::Proof,
        summary: "the process that a key ties it to is not there",
        doc: super::own_opening!("companion_gone.rs"),
        settings: &[
            SettingSpec {
                name: "policy",
                kind: SettingKind::Text,
                need: Need::Required,
                doc: "name of the policy that matches companions; no default",
            },
            SettingSpec {
                name: "key",
                kind: SettingKind::Text,
                need: Need::Required,
                doc: "name of the capture whose value ties the two together; no default",
            },
        ],
        bare: None,
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Processes,
    },
    weigh: Some(weigh),
    weigh_container: None,
};

fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let (Some(policy), Some(key)) = (settings.text("policy"), settings.text("key")) else {
        return Ok(Finding::no("no companion was named"));
    };
    let Some(value) = case.captures.get(key) else {
        return Err(Unknown::new(Reason::NotAsked, format!("what '{{{key}}}' is for it")).into());
    };
    if !case.config.policies.iter().any(|known| known.name == policy) {
        return Err(Unknown::new(Reason::NotAsked, format!("who is there by the policy '{policy}'")).into());
    }
    let table = &case.look.snapshot.table;
    let alive = |id| table.get(id).is_some_and(|row| !row.is_gone());
    let others = || {
        case.others
            .iter()
            .filter(|other| other.policy == policy && other.root != case.root.id && alive(other.root))
    };
    if let Some(other) = others().find(|other| other.captures.get(key) == Some(value)) {
        return Ok(Finding::no(format!("its companion, process {}, is there", other.root)));
    }
    if let Parentage::Living(parent) = case.parentage()
        && others().any(|other| other.tree.contains(&parent))
    {
        return Ok(Finding::no(format!("its parent {parent} belongs to a companion")));
    }
    case.parent_seen()?;
    if let Some(parent) = case.outside_parent() {
        return Ok(Finding::no(format!("its parent {parent} is alive")));
    }
    if let Some(other) = others().find(|other| !other.captures.contains_key(key)) {
        let what = format!("what '{{{key}}}' is for process {}", other.root);
        return Err(Unknown::new(Reason::NotAsked, what).into());
    }
    // Somebody whose arguments are unknown may be the one.
    let unread = case.look.snapshot.arguments.iter().find_map(|entry| {
        let why = entry.argv.as_ref().err()?;
        let row = table.get(entry.id)?;
        (!row.is_gone() && row.kernel == Kernel::No && entry.id != case.root.id).then_some((entry.id, why))
    });
    if let Some((id, why)) = unread {
        let what = format!("whether process {id} is its companion");
        return Err(Unknown::new(why.reason, what).into());
    }
    Ok(Finding::yes(format!("its companion is gone: no '{policy}' has the {key} {}", escape(value))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::policy::Setting;
    use crate::judge::case::Standing;
    use crate::judge::rules::support::{ROOT, Says, Scene, text};

    fn settings() -> [(&'static str, Setting); 2] {
        [("policy", text("worker")), ("key", text("session"))]
    }

    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &settings(), expected);
    }

    fn adapter() -> Scene {
        Scene::orphan().capture("session", "s1").process(60, 1)
    }

    #[test]
    fn no_companion_with_the_key_is_proof_m5() {
        check(&adapter(), &Says::Yes("its companion is gone"));
        check(&adapter().other("worker", 60, &[60], Some(("session", "s2"))), &Says::Yes("gone"));
        check(&adapter().other("server", 60, &[60], Some(("session", "s1"))), &Says::Yes("gone"));
        check(&adapter().other("worker", 60, &[60], Some(("session", "s1"))).dead(60), &Says::Yes("gone"));
        check(&adapter().other("worker", ROOT, &[ROOT], Some(("session", "s1"))), &Says::Yes("gone"));
    }

    #[test]
    fn a_companion_that_is_there_keeps_it_m5() {
        let key = Some(("session", "s1"));
        check(&adapter().other("worker", 60, &[60], key), &Says::No("its companion, process 60, is there"));
        let protected = adapter().other_as("worker", 60, &[60], key, Standing::Protected);
        check(&protected, &Says::No("its companion, process 60, is there"));
        let within = adapter().process(51, ROOT).other("worker", 51, &[51], key);
        check(&within, &Says::No("its companion, process 51, is there"));
    }

    #[test]
    fn a_parent_that_is_a_companion_keeps_it_m5() {
        let child = adapter().process(40, 1).row(ROOT, |row| row.ppid = 40);
        check(&child, &Says::No("its parent 40 is alive"));
        check(&child.clone().without(40), &Says::Unknown("who its parent 40 is"));
        let child = child.other("worker", 40, &[40, ROOT], Some(("session", "s2")));
        check(&child, &Says::No("its parent 40 belongs to a companion"));
    }

    #[test]
    fn who_may_be_the_companion_is_unknown_b24_m5() {
        check(&adapter().unread(60), &Says::Unknown("whether process 60 is its companion"));
        check(&adapter().unread(60).dead(60), &Says::Yes("gone"));
        check(&adapter().unread(60).row(60, |row| row.kernel = Kernel::Thread), &Says::Yes("gone"));
        check(&adapter().other("worker", 60, &[60], None), &Says::Unknown("for process 60"));
    }

    #[test]
    fn without_a_key_or_a_policy_it_is_unknown_m5() {
        check(&Scene::orphan(), &Says::Unknown("'{session}'"));
        let off = [("policy", text("off")), ("key", text("session"))];
        adapter().check(&RULE, &off, &Says::Unknown("the policy 'off'"));
        adapter().check(&RULE, &[], &Says::No("no companion was named"));
    }
}
