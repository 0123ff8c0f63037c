//! Which containers a policy looks at, and what it captures of them.

use std::collections::BTreeMap;

use bstr::{BStr, BString, ByteSlice as _};

use crate::config::capture::is_fit;
use crate::config::policy::{
    AdmitEnv, ContainerCapture, ContainerMatch, ContainerPolicy, Glob, LeaseLabel, StdinMatch,
};
use crate::model::container::{Attached, ContainerFacts, Engine, EngineKind, Listed, MountKind, Tty};

/// The label of a lease of ours.
pub const LEASE: &str = "dev.reapd.lease";

/// Says whether a policy may look at a container, as far as the list tells.
pub(super) fn may_fit(policy: &ContainerPolicy, listed: &Listed) -> bool {
    policy.matches.iter().any(|form| fits_listed(form, listed))
}

/// Says whether a policy looks at a container, with what the engine says of it alone.
pub(super) fn fits(
    policy: &ContainerPolicy,
    engine: &Engine,
    listed: &Listed,
    facts: &ContainerFacts,
) -> bool {
    policy.matches.iter().any(|form| {
        fits_listed(form, listed)
            && match form.stdin {
                StdinMatch::Any => true,
                StdinMatch::Attached => may_be_attached(engine, facts),
            }
    })
}

fn fits_listed(form: &ContainerMatch, listed: &Listed) -> bool {
    let any = |globs: &[Glob], text: &str| globs.iter().any(|glob| glob.fits(BStr::new(text)));
    (form.images.is_empty() || any(&form.images, &listed.image))
        && (form.names.is_empty() || listed.names.iter().any(|name| any(&form.names, name)))
        && form.labels.iter().all(|(key, glob)| {
            listed
                .labels
                .get(key)
                .is_some_and(|value| glob.as_ref().is_none_or(|glob| glob.fits(BStr::new(value))))
        })
        && match form.lease {
            LeaseLabel::Any => true,
            LeaseLabel::Given => listed.labels.contains_key(LEASE),
        }
}

/// Says whether a client was attached to its input when it was made, or may have been: Podman never tells.
fn may_be_attached(engine: &Engine, facts: &ContainerFacts) -> bool {
    is_attached(facts)
        || matches!(engine.kind, Ok(EngineKind::Podman(_)))
            && facts.stdin.open == Attached::Yes
            && facts.tty == Tty::No
}

/// Says whether it was made as `docker run -i` does, without `-t` and `-d`: its input ends for good with its first
/// client.
pub(in crate::judge) fn is_attached(facts: &ContainerFacts) -> bool {
    let stdin = facts.stdin;
    [stdin.open, stdin.once, stdin.attached].iter().all(|set| *set == Attached::Yes) && facts.tty == Tty::No
}

/// Returns what can be captured of a container. What is missing, empty, over-long or holds control characters is left
/// out, so that a template that needs it cannot be filled.
pub(super) fn captures(policy: &ContainerPolicy, facts: &ContainerFacts) -> BTreeMap<String, BString> {
    policy
        .captures
        .iter()
        .filter_map(|(name, capture)| {
            let (value, strip): (&[u8], _) = match capture {
                ContainerCapture::Label { label, strip } => {
                    (facts.labels.get(label)?.as_bytes(), strip.as_ref())
                }
                ContainerCapture::Bind { bind } => (bound(facts, bind)?, None),
                ContainerCapture::Env { name, strip } => {
                    (facts.env.get(name.as_bytes().as_bstr())?.as_slice(), strip.as_ref())
                }
            };
            let value = match strip {
                Some(strip) => value.strip_prefix(strip.as_bytes())?,
                None => value,
            };
            is_fit(value).then(|| (name.clone(), value.into()))
        })
        .collect()
}

/// Returns the host's side of a bind mount; nothing where two are at the same place, or none.
fn bound<'a>(facts: &'a ContainerFacts, inside: &str) -> Option<&'a [u8]> {
    let bare = |path: &[u8]| path.trim_end_with(|letter| letter == '/').len();
    let fits = |path: &BString| path[..bare(path)] == inside.as_bytes()[..bare(inside.as_bytes())];
    let mut found = facts.mounts.iter().filter(|mount| mount.kind == MountKind::Bind && fits(&mount.inside));
    let mount = found.next()?;
    found.next().is_none().then_some(mount.source.as_slice())
}

/// Says whether a policy goes by what is never remembered: something of the environment, or what a health check says now.
pub(super) fn needs_asking(policy: &ContainerPolicy, remembered: &ContainerFacts) -> bool {
    let is_of_health = policy
        .reap_when
        .iter()
        .chain(&policy.spare_when)
        .any(|line| line.conditions.iter().any(|condition| condition.rule == "unhealthy"));
    policy.captures.values().any(|capture| matches!(capture, ContainerCapture::Env { .. }))
        // Whether there is such a check is fixed.
        || remembered.health.is_some() && is_of_health
}

/// Says whether the labels alone admit a container.
pub(super) fn is_admitted_by_label(scope: &AdmitEnv, labels: &BTreeMap<String, String>) -> bool {
    match scope {
        AdmitEnv::Everybody => true,
        AdmitEnv::Marked { name, value } => name
            .to_str()
            .is_ok_and(|name| labels.get(name).is_some_and(|seen| seen.as_bytes() == value.as_slice())),
    }
}

/// Says whether a container carries what `[scope] admit-env` asks for.
pub fn is_admitted(scope: &AdmitEnv, facts: &ContainerFacts) -> bool {
    is_admitted_by_label(scope, &facts.labels)
        || match scope {
            AdmitEnv::Everybody => true,
            AdmitEnv::Marked { name, value } => facts.env.get(name) == Some(value),
        }
}
