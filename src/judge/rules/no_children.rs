//! Finds programs that have no children.
//!
//! # What it finds
//!
//! A root without a single live child: what it usually runs below itself is gone.
//!
//! # Why it is not enough alone
//!
//! Most programs have no children at most times. It means something only of a program that is known to keep a child
//! for as long as it is of use, and never to start it again; a built-in policy may say so and why (M5).
//!
//! # When it is wrong
//!
//! A program that starts its child only when it is asked to, or between two of them, has none just now: give it time
//! with `for`. Zombies are no children (C22); a zombie whose threads live on is one (C24). A child that left for
//! a session of its own and was adopted elsewhere is not seen.
//!
//! # Settings
//!
//! `for`: how long it must have been so at every look, e.g. "5m"; optional, and left out one look is enough.
//! Example: `{ no-children = { for = "5m" } }`, beside a proof.

use crate::judge::case::Case;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

/// Finds programs that have no children.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "no-children",
        strength: Strength::Sign,
        summary: "it has no live children",
        doc: super::own_opening!("no_children.rs"),
        settings: &[SettingSpec {
            name: "for",
            kind: SettingKind::Duration,
            need: Need::Optional,
            doc: "how long it must have been so at every look, e.g. \"5m\"; by default one look is enough",
        }],
        bare: None,
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Processes,
    },
    weigh: Some(weigh),
    weigh_container: None,
};

#[expect(clippy::unnecessary_wraps, reason = "all rules have one signature")]
fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let mut children = case.look.snapshot.table.children(case.root.id.pid);
    Ok(match children.find(|child| !child.is_gone()) {
        Some(child) => Finding::no(format!("its child {} is alive", child.id)),
        None => super::lasting(Finding::yes("it has no children"), settings.duration("for")),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::rules::support::{ROOT, Says, Scene, lasts};

    #[test]
    fn a_live_child_counts_and_a_zombie_does_not_c22_c24() {
        let child = Scene::orphan().process(51, ROOT);
        Scene::orphan().check(&RULE, &[], &Says::Yes("it has no children"));
        child.check(&RULE, &[], &Says::No("its child 51 is alive"));
        let zombie = child.dead(51);
        zombie.check(&RULE, &[], &Says::Yes("it has no children"));
        zombie.row(51, |row| row.threads = 2).check(&RULE, &[], &Says::No("its child 51 is alive"));
        lasts(&Scene::orphan(), &RULE);
    }
}
