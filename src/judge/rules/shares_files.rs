//! Finds containers that can write where it stays.
//!
//! # What it finds
//!
//! A container that may write to a directory of the host, to a volume that somebody gave a name, or to a mount of a kind
//! that is not known: what it does there is still there when it is gone. And one without `--rm`, whose log and files
//! stay when it ends, until somebody removes it.
//!
//! # Why it is not enough alone
//!
//! It says nothing about whether anybody needs the container. It only spares: a job whose client died by accident goes on
//! and writes its results, and somebody comes for them later; a server that only answered its client does nothing more
//! that anybody could see.
//!
//! # When it is wrong
//!
//! A server with a directory mounted for reading that nobody made read-only is spared though it never writes: a leak that
//! stays. A job that sends its results over the network is not seen. A volume that
//! the engine made for this container alone goes with it and does not count, even where another container uses it too.
//!
//! # Settings
//!
//! None: `{ shares-files = true }`.

use crate::judge::containers::case::ContainerCase;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::container::{AutoRemoval, ContainerMount, MountAccess, MountKind};
use crate::model::escape::escape;
use crate::model::rule::{Asks, Clients, Place, RuleSpec, Serves, Strength};

/// Finds containers that can write where it stays.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "shares-files",
        strength: Strength::Sign,
        summary: "it may write to files that stay when it is gone",
        doc: super::own_opening!("shares_files.rs"),
        settings: &[],
        bare: None,
        place: Place::SpareWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Containers,
    },
    weigh: None,
    weigh_container: Some(weigh),
};

#[expect(clippy::unnecessary_wraps, reason = "all rules have one signature")]
fn weigh(case: &ContainerCase<'_>, _: Settings<'_>) -> Found<Finding> {
    let stays = |mount: &&ContainerMount| {
        mount.access == MountAccess::Writable
            && match mount.kind {
                MountKind::Bind | MountKind::Volume | MountKind::Other(_) => true,
                MountKind::AnonymousVolume | MountKind::Memory => false,
            }
    };
    if case.facts.removal == AutoRemoval::No {
        // Its log, too, and whatever it wrote into its own files: `docker logs` and `docker cp` read them for as long as
        // nobody removes it.
        return Ok(Finding::yes(
            "it was started without --rm, so what it wrote stays until somebody removes it",
        ));
    }
    Ok(match case.facts.mounts.iter().find(stays) {
        Some(mount) => Finding::yes(format!("it may write to {}, which stays", escape(&mount.source))),
        None => Finding::no("it can write to nothing that stays"),
    })
}
