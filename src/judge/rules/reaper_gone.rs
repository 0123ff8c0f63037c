//! Finds containers of a testcontainers session whose reaper is not there.
//!
//! # What it finds
//!
//! A container that bears the id of a testcontainers session, where no container of its engine is ryuk, the reaper of
//! that session. A ryuk that says no session counts for every one.
//!
//! # Why it is not enough alone
//!
//! A session may have had no reaper from the start: `TESTCONTAINERS_RYUK_DISABLED` is common in pipelines, and there the
//! tests that use the container may run now.
//!
//! # When it is wrong
//!
//! A session without ryuk on purpose. A container that is meant to be reused by later sessions bears the id of the one
//! that made it (B38). A ryuk that was killed while its tests go on.
//!
//! # Settings
//!
//! `for`: how long it must have been so at every look, e.g. "10m"; optional, and left out one look is enough.

use crate::judge::containers::case::ContainerCase;
use crate::judge::containers::vetoes::{is_ryuk, ryuk_of, session};
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

/// Finds containers of a testcontainers session whose reaper is not there.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "reaper-gone",
        strength: Strength::Sign,
        summary: "its testcontainers session has no ryuk",
        doc: super::own_opening!("reaper_gone.rs"),
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
    let Some(session) = session(&case.listed.labels) else {
        return Ok(Finding::no("it is of no testcontainers session"));
    };
    if is_ryuk(case.listed) {
        return Ok(Finding::no("it is a ryuk itself"));
    }
    if ryuk_of(case, session).is_some() {
        return Ok(Finding::no("the ryuk of its testcontainers session runs"));
    }
    Ok(super::lasting(Finding::yes("its testcontainers session has no ryuk"), settings.duration("for")))
}
