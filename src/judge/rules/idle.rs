//! Finds trees that have done nothing for long.
//!
//! # What it finds
//!
//! A tree that has used no processor time and read and written no byte, all members together, at every look for this
//! long.
//!
//! # Why it is not enough alone
//!
//! Waiting is what servers do: a paused debuggee is idle for hours, an open session for as long as its person thinks
//! (A06), a roaming shell for weeks (B46). Nobody is missing because nothing moves.
//!
//! # When it is wrong
//!
//! Everything that waits looks so. A program with a timer never does, though nobody needs it. Work that was starved
//! by load (B16), stopped or frozen (B39) looks idle; a machine that slept did not look, so what is remembered starts
//! anew after a suspend (B17). Counters that could not be read are unknown. What happened since the last look shows at
//! the next one: two looks are the least.
//!
//! # Settings
//!
//! `for`: how long nothing may have moved, e.g. `{ idle = "30m" }`, beside a proof; required, no default.

use crate::judge::case::{Case, gather};
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::moment::Moment;
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

/// Finds trees that have done nothing for long.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "idle",
        strength: Strength::Sign,
        summary: "it has used no processor time and moved no bytes for this long",
        doc: super::own_opening!("idle.rs"),
        settings: &[SettingSpec {
            name: "for",
            kind: SettingKind::Duration,
            need: Need::Required,
            doc: "how long nothing may have moved, e.g. \"30m\"; no default",
        }],
        bare: Some("for"),
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Processes,
    },
    weigh: Some(weigh),
    weigh_container: None,
};

fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    weigh_since(case, settings, case.memory.quiet_since(case.root.id))
}

fn weigh_since(case: &Case<'_>, settings: Settings<'_>, since: Option<Moment>) -> Found<Finding> {
    let Some(least) = settings.duration("for") else {
        return Ok(Finding::no("no span was given"));
    };
    // Asked at every look, since what is read is what the next look compares with; an unreadable one is unknown.
    gather(case.tree.iter().map(|&id| case.activity(id)))?;
    let Some(since) = since else {
        return Ok(Finding::no("it has not been seen at rest yet"));
    };
    let rest = case.look.snapshot.began.boot.since(since);
    Ok(if rest >= least {
        Finding::yes(format!("it has done nothing for {}", super::span(rest)))
    } else {
        Finding::no(format!("it has done nothing for {} only", super::span(rest)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::policy::Setting;
    use crate::judge::rules::support::{ROOT, Says, Scene, id};
    use crate::model::known::Reason;
    use crate::model::question::Question;
    use std::collections::BTreeMap;
    use std::time::Duration;

    fn check(scene: &Scene, since: Option<Duration>, expected: &Says) {
        let settings = BTreeMap::from([("for", Setting::Duration(Duration::from_mins(30)))]);
        let since = since.map(|since| Moment(0).plus(since));
        scene.check_by(|case| weigh_since(case, Settings(&settings), since), expected);
    }

    #[test]
    fn a_tree_at_rest_for_long_enough_is_idle() {
        let scene = Scene::orphan().activity(ROOT).now(Moment(0).plus(Duration::from_hours(1)));
        check(&scene, Some(Duration::from_mins(30)), &Says::Yes("it has done nothing for 30m"));
        check(&scene, Some(Duration::from_mins(31)), &Says::No("29m only"));
        check(&scene, None, &Says::No("not been seen at rest"));
    }

    #[test]
    fn every_member_is_asked_and_an_unreadable_one_is_unknown() {
        let scene = Scene::orphan().process(51, ROOT).activity(ROOT);
        let question = Question::Activity(id(51));
        check(&scene, None, &Says::Asks(vec![question.clone()]));
        check(&scene.refused(question, Reason::Denied), Some(Duration::ZERO), &Says::Unknown("refused"));
    }
}
