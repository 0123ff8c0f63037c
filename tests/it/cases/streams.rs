//! Servers that nobody can speak to any more, and those that only look like it.

use super::{Ended, Field, Kept};

#[test]
fn abandoned_servers_are_ended_and_those_in_use_are_kept_a02_a10_a16_a25_b03_b05_b53_f3_c22_c23_c24() {
    let field = Field::plant("streams");
    let swept = field.sweep();
    field.check(
        &swept,
        &[
            // Equal arguments say nothing: only those go whose own client is gone.
            ("a02-one-run", Ended),
            ("a02-another-run", Ended),
            ("a02-running", Kept("somebody holds the other end of its stdin")),
            ("a10-closed-and-reads-on", Kept("its stdin ended, but its output is still read")),
            ("a10-closed-both", Ended),
            ("a16-spins", Ended),
            ("a25-login-shell", Ended),
            ("b03-reachable", Kept("can be reached at")),
            ("b03-client", Kept("a client is connected")),
            ("b03-nobody", Ended),
            ("b05-http", Kept("its output goes to /dev/null")),
            ("b53-log", Kept("its output goes to a file")),
            ("f03-named-fifo", Kept("a named pipe")),
            ("f03-listener", Kept("a listening socket")),
            ("f03-never-connected", Kept("never had another end")),
            ("f03-socket-pair", Ended),
            ("f03-unread", Kept("bytes still wait in its stdin")),
            // Who reads it need not be known: that somebody does is enough.
            ("f03-sibling-reads", Kept("its output")),
            ("f03-terminal", Kept("has a terminal")),
            ("c22-zombie-owner", Ended),
            ("c22-living-owner", Kept("is alive")),
            ("c24-owner-without-its-leader", Kept("is alive")),
            ("c24-without-its-leader", Kept("its first thread has ended")),
            ("c23-serves-with-zombies", Kept("somebody holds the other end of its stdin")),
            ("c23-abandoned-with-zombies", Ended),
        ],
    );
    let spins = field.pids("a16-spins")[0];
    assert_eq!(swept.signals(spins, spins), ["TERM", "KILL"]);
}
