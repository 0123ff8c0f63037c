//! Finds helpers and containers whose lease is over, or whom a registry does not list any more.
//!
//! # What it finds
//!
//! A helper that a lease covers, where every such lease was released, ran out without being renewed, or lost its
//! holder. A container that `reapd run` had made, where the lease in its labels is over. With `in` and `key`: a helper or
//! container that a registry of somebody else's says is over, does not list any more, or lists with a holder that is dead.
//!
//! # Why it is not enough alone
//!
//! It is enough: a lease is the word of whoever owns the helper. A registry counts only where it was read completely,
//! has listed this key or another one in this boot, and is the one that the helper itself would use; for a container,
//! the one that reapd itself would, by a place without variables, or a server whose answers name it.
//!
//! # When it is wrong
//!
//! Each of these is kept. A holder in another boot, host, pid or time namespace. A holder that nobody ever saw alive
//! for long: perhaps an errand, a hook's shell. A holder that only runs another program now. A clock that was set, a
//! suspend or an overslept look: the time of every lease begins anew. A lease file that cannot be read, is malformed,
//! a link or somebody else's. A helper with two leases, of which one holds. A registry that cannot be read to its end,
//! whose directory is missing, that lists nobody at all, or whose server is not the one that was recorded. A container
//! whose image gives that label to everybody (S5), that was started with `-d` to outlive its command, or whose lease has
//! no file any more. A container whose key is empty, a variable, or a label that its image gives to everybody; and one
//! whose registry's server is told by standing above the asked one, since none stands above a container.
//!
//! # Settings
//!
//! `in`: name of a registry of the configuration; without it, the leases of `reapd lease` and `reapd run`.
//! `key`: the text to look for in that registry.
//! Examples: `{ lease-expired = true }`, `{ lease-expired = { in = "previews", key = "{socket}" } }`.

use bstr::ByteSlice as _;

use crate::judge::case::Case;
use crate::judge::containers::case::ContainerCase;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::judge::{containers, leased, registered};
use crate::model::known::{Reason, Unknown};
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

/// Finds helpers whose lease is over, or whom a registry does not list any more.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "lease-expired",
        strength: Strength::Proof,
        summary: "its lease is over, or its registry says that it is",
        doc: super::own_opening!("lease_expired.rs"),
        settings: &[
            SettingSpec {
                name: "in",
                kind: SettingKind::Registry,
                need: Need::With("key"),
                doc: "name of a registry of the configuration; default: the leases of reapd itself",
            },
            SettingSpec {
                name: "key",
                kind: SettingKind::Template,
                need: Need::With("in"),
                doc: "the text to look for in that registry; no default",
            },
        ],
        bare: None,
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Both(&["in", "key"]),
    },
    weigh: Some(weigh),
    weigh_container: Some(weigh_container),
};

fn weigh_container(case: &ContainerCase<'_>, settings: Settings<'_>) -> Found<Finding> {
    match (settings.text("in"), settings.template("key")) {
        (Some(name), Some(key)) => containers::registered::weigh(case, name, key),
        (Some(_) | None, Some(_) | None) => containers::leased::expired(case),
    }
}

fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let (Some(name), Some(key)) = (settings.text("in"), settings.template("key")) else {
        return leased::weigh(case);
    };
    let registry = registered::named(case.config, name)?;
    match case.fill(key) {
        Some(key) => registered::weigh(case, registry, key.as_bstr()),
        None => Err(Unknown::new(Reason::NotAsked, format!("what '{}' is for it", key.text)).into()),
    }
}
