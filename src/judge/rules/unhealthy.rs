//! Finds containers whose own health check fails.
//!
//! # What it finds
//!
//! A container that has a health check, and whose engine says that it failed as often in a row as was asked.
//!
//! # Why it is not enough alone
//!
//! A health check is about a service, not about whether somebody needs it: a busy one fails it as a dead one does, and
//! whoever is in the middle of mending it needs it most.
//!
//! # When it is wrong
//!
//! A check that asks for something else that is down. A machine under load, or one that was just woken. A paused
//! container fails by design (B39), and is kept in any case. One without a health check is never unhealthy.
//!
//! # Settings
//!
//! `for`: how long it must have been so at every look, e.g. "10m"; optional, and left out one look is enough.

use crate::judge::containers::case::ContainerCase;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::container::Health;
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

/// Finds containers whose own health check fails.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "unhealthy",
        strength: Strength::Sign,
        summary: "its own health check fails",
        doc: super::own_opening!("unhealthy.rs"),
        settings: &[SettingSpec {
            name: "for",
            kind: SettingKind::Duration,
            need: Need::Optional,
            doc: "how long it must have been so at every look, e.g. \"10m\"; by default one look is enough",
        }],
        bare: Some("for"),
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Containers,
    },
    weigh: None,
    weigh_container: Some(weigh),
};

#[expect(clippy::unnecessary_wraps, reason = "all rules have one signature")]
fn weigh(case: &ContainerCase<'_>, settings: Settings<'_>) -> Found<Finding> {
    Ok(match &case.facts.health {
        None => Finding::no("it has no health check"),
        Some(Health::Starting) => Finding::no("its first health checks are still to come"),
        Some(Health::Healthy) => Finding::no("its health check says that all is well"),
        Some(Health::Unhealthy { failing }) => super::lasting(
            Finding::yes(format!("its health check failed {failing} times in a row")),
            settings.duration("for"),
        ),
    })
}
