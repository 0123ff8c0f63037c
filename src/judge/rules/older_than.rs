//! Finds trees and containers that have run for long.
//!
//! # What it finds
//!
//! A root, or a container's first process, that began at least so long ago, by the boot clock, which counts suspends
//! and is never set.
//!
//! # Why it is not enough alone
//!
//! Age proves nothing: the oldest server of a host may be the one that all sessions share (B03), and a long job runs
//! for as long as it takes (B53). It only spares the young.
//!
//! # When it is wrong
//!
//! A sleeping machine ages its processes: hours of suspend count as hours (B17, B19), so an age says little of use.
//! The age is the root's alone: its children may be much younger. It never comes from a wall clock (B21, B22).
//!
//! # Settings
//!
//! `age`: the least age, e.g. `{ older-than = "2h" }`, beside a proof; required, no default.

use std::time::Duration;

use crate::judge::case::Case;
use crate::judge::containers::case::ContainerCase;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

/// Finds trees and containers that have run for long.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "older-than",
        strength: Strength::Sign,
        summary: "it began at least so long ago",
        doc: super::own_opening!("older_than.rs"),
        settings: &[SettingSpec {
            name: "age",
            kind: SettingKind::Duration,
            need: Need::Required,
            doc: "the least age of the root, e.g. \"2h\", suspends included; no default",
        }],
        bare: Some("age"),
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Both(&["age"]),
    },
    weigh: Some(weigh),
    weigh_container: Some(weigh_container),
};

#[expect(clippy::unnecessary_wraps, reason = "all rules have one signature")]
fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let Some(least) = settings.duration("age") else {
        return Ok(Finding::no("no age was given"));
    };
    Ok(compared(case.look.snapshot.began.boot.since(case.root.began), least))
}

fn weigh_container(case: &ContainerCase<'_>, settings: Settings<'_>) -> Found<Finding> {
    let Some(least) = settings.duration("age") else {
        return Ok(Finding::no("no age was given"));
    };
    Ok(compared(case.look.snapshot.began.boot.since(case.began()?), least))
}

fn compared(age: Duration, least: Duration) -> Finding {
    if age >= least {
        Finding::yes(format!("it has run for {}", super::span(age)))
    } else {
        Finding::no(format!("it has run for {} only", super::span(age)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::policy::Setting;
    use crate::judge::rules::support::{ROOT, Says, Scene};
    use crate::model::moment::Moment;

    #[test]
    fn age_is_from_the_boot_clock_b21_b22() {
        let began = Moment(0).plus(Duration::from_hours(1));
        let settings = [("age", Setting::Duration(Duration::from_hours(2)))];
        let at = |now: Duration| Scene::orphan().row(ROOT, |row| row.began = began).now(Moment(0).plus(now));
        at(Duration::from_hours(3)).check(&RULE, &settings, &Says::Yes("it has run for 2h"));
        at(Duration::from_mins(179)).check(&RULE, &settings, &Says::No("it has run for 1h 59m only"));
        // A start after the look is no age at all.
        at(Duration::ZERO).check(&RULE, &settings, &Says::No("it has run for 0s only"));
        at(Duration::from_hours(3)).check(&RULE, &[], &Says::No("no age was given"));
    }
}
