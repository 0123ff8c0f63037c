//! Podman's compatible service: it never says how a container was attached to, and ends what it is asked to end.

use super::field::Fate::{Ended, Kept, Unseen};
use super::field::{Field, Role};
use super::leased;
use crate::support::engine::Stand;

#[test]
fn podman_is_listed_judged_and_obeyed() {
    let Some(stand) = Stand::podman() else { return };
    let field = Field::on(stand, Role::Ours);
    let stray = field.stray(&["--rm"], "notes", &["deaf"]);
    let mut live = field.run(&["-i", "--rm"], "notes", &["deaf"]);
    assert_eq!(live.client.ask("one"), "answer to one");
    // By `reapd run -- podman run`: the lease tells what the engine does not.
    let leased = leased::stray(&field, &["--rm"], "search", &["deaf"]);
    let stone = leased::stray(&field, &[], "search", &["stone"]);
    let paused = leased::stray(&field, &["--rm"], "search", &["deaf"]);
    field.docker(&["pause", &paused]);
    let mut held = leased::start(&field, &["-i", "--rm"], "search", &["deaf"]);
    assert_eq!(held.client.ask("one"), "answer to one");
    let label = field.label();
    let created = field.docker(&["create", "--network", "none", "--label", &label, "reapd-stand/search:1"]);
    let plain = field.detached(&["--rm"], "mail", &["deaf"]);

    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("a stray of podman's", &stray, Kept("")),
            ("live", &live.id, Kept("")),
            ("leased by the dead", &leased, Ended),
            ("the same, deaf to TERM and not --rm", &stone, Ended),
            ("paused", &paused, Kept("paused")),
            ("leased by the living", &held.id, Kept("")),
            ("never started", &created, Unseen),
            ("plain", &plain, Kept("")),
        ],
    );
    // It cannot be told, and that is said.
    assert_ne!(swept.by("stand", &stray)["verdict"], "orphaned", "{}", swept.said);
    assert_eq!(live.client.ask("two"), "answer to two");
    assert_eq!(held.client.ask("two"), "answer to two");
}
