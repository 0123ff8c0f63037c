//! Agents whose terminal was closed for good, and those whose terminal is there.

use super::{Ended, Field, Kept};

#[test]
fn agents_without_their_terminal_are_ended_and_those_in_a_pane_are_kept_a37_b01() {
    let field = Field::plant("terminals");
    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("a37-closed", Ended),
            ("a37-nohup", Kept("it ignores SIGHUP")),
            ("a37-into-a-file", Kept("its output goes to a file")),
            ("a37-work-below", Kept("is alive")),
            ("b01-in-a-pane", Kept("has a terminal")),
            ("b01-for-a-moment", Kept("its terminal is there")),
            ("b01-multiplexer", Kept("works in a terminal that the tree serves")),
            ("b01-without-panes", Ended),
        ],
    );
}
