//! Workspaces that were deleted, and those that only seem to be gone.

use super::{Ended, Field, Kept, is_root};

#[test]
fn deleted_workspaces_end_their_trees_and_moved_ones_do_not_a21_b11_b32_b33_b34_b35_b46_b49() {
    let field = Field::plant("directories");
    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("a21-busy-loop", Ended),
            ("a21-there", Kept("is there")),
            ("b32-living-parent", Kept("its parent")),
            ("b33-moved", Kept("nothing was recorded of it")),
            ("b33-made-again", Kept("is there")),
            ("b33-renamed", Kept("is there")),
            ("b33-deleted", Ended),
            ("b33-no-root", Kept("is not below a root of throw-away workspaces")),
            ("b34-made-again", Kept("was deleted, and is there again")),
            ("b34-terminal", Kept("has a terminal")),
            ("b34-client", Kept("a client is connected")),
            ("b46-mosh-server", Kept("serves more than one owner")),
            ("b46-another-server", Ended),
            ("b49-ssh-agent", Kept("serves more than one owner")),
            ("b11-multiplexer", Kept("serves more than one owner")),
        ],
    );
    let pane = field.pids("b11-multiplexer")[1];
    assert!(field.planted.is_alive(pane), "the pane of the multiplexer");
    if is_root() {
        field.check(
            &swept,
            &[
                ("b35-unmounted", Kept("nothing was recorded of it")),
                ("b35-below-roots", Kept("is not below a root of throw-away workspaces")),
                ("b35-deleted", Ended),
            ],
        );
    }
}
