//! Finds trees that were left behind by whoever started them.
//!
//! # What it finds
//!
//! A root whose parent is not one that may have started it: it was adopted by init, a service manager or another
//! reaper of orphans, or by a process that began only after it.
//!
//! # Why it is not enough alone
//!
//! Every daemon is adopted, on purpose and for good (B02, B11, B46): nine of nine live brokers are. It says how a
//! process came to stand where it stands, and nothing of who still uses it.
//!
//! # When it is wrong
//!
//! A service under its manager is adopted by design (B02), and so is a server that handed over to a successor (B44).
//! In a container the first process is a real parent (B25): a parent outside our pid namespace is unknown. A reaper
//! that is not known by name counts as a living parent, which keeps.
//!
//! # Settings
//!
//! None: `{ reparented = true }`, beside a proof.

use crate::judge::case::Case;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::ownership::Parentage;
use crate::model::rule::{Asks, Clients, Place, RuleSpec, Serves, Strength};

/// Finds trees that were left behind by whoever started them.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "reparented",
        strength: Strength::Sign,
        summary: "whoever started it is no longer its parent",
        doc: super::own_opening!("reparented.rs"),
        settings: &[],
        bare: None,
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Processes,
    },
    weigh: Some(weigh),
    weigh_container: None,
};

fn weigh(case: &Case<'_>, _: Settings<'_>) -> Found<Finding> {
    Ok(match left_behind(case)? {
        Ok(why) => Finding::yes(why),
        Err(why) => Finding::no(why),
    })
}

/// Says whether the root was left behind, with the reason for either.
pub(super) fn left_behind(case: &Case<'_>) -> Found<Result<String, String>> {
    case.parent_seen()?;
    match case.parentage() {
        Parentage::Living(parent) => Ok(Err(format!("its parent {parent} is alive"))),
        Parentage::Adopted(by) => Ok(Ok(format!("it was adopted by process {by}"))),
        Parentage::None => Ok(Ok("its parent is gone".into())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::rules::support::{ROOT, Says, Scene};
    use crate::model::id::Start;

    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[], expected);
    }

    #[test]
    fn who_was_adopted_was_left_behind() {
        check(&Scene::orphan(), &Says::Yes("it was adopted by process 1"));
        check(&Scene::owned().dead(40), &Says::Yes("its parent is gone"));
        // The kernel gives an orphan its new parent before the old one is gone: who is not to be seen is hidden.
        check(&Scene::owned().without(40), &Says::Unknown("who its parent 40 is"));
        check(&Scene::orphan().without(1), &Says::Yes("it was adopted by process 1"));
        let young = Scene::owned().row(40, |row| row.id.start = Start(9000));
        check(&young, &Says::Yes("it was adopted by process 40"));
    }

    #[test]
    fn a_living_parent_is_no_reaper_b04() {
        check(&Scene::owned(), &Says::No("its parent 40 is alive"));
    }

    #[test]
    fn a_zombie_parent_with_live_threads_is_alive_c24() {
        check(&Scene::owned().dead(40).row(40, |row| row.threads = 2), &Says::No("its parent 40 is alive"));
    }

    #[test]
    fn a_parent_outside_our_pid_namespace_is_unknown_b25() {
        check(&Scene::orphan().row(ROOT, |row| row.ppid = 0), &Says::Unknown("another namespace"));
    }
}
