//! Commands that were started inside a container later: each keeps it, and what a dead client left inside a healthy
//! container is left alone.

use super::field::Fate::{Ended, Kept};
use super::field::Field;

#[test]
fn what_an_exec_left_inside_is_left_alone_a20_m10() {
    let Some(field) = Field::new() else { return };
    let healthy = field.detached(&["--rm"], "notes", &["deaf"]);
    let mut exec = field.client(&["exec", "-i", &healthy, "/bin/server", "stone"]);
    assert_eq!(exec.ask("one"), "answer to one");
    let execs = "{{len .ExecIDs}}";
    exec.kill();
    assert_eq!(
        field.docker(&["inspect", "--format", execs, &healthy]),
        "1",
        "it runs on, with nobody to talk to"
    );

    let swept = field.sweep();
    assert_eq!(field.state(&healthy), "running");
    assert!(swept.stops.is_empty(), "{}", swept.said);
    assert_eq!(field.docker(&["inspect", "--format", execs, &healthy]), "1");
}

#[test]
fn a_command_inside_keeps_a_container_a20() {
    let Some(field) = Field::new() else { return };
    let used = field.stray(&["--rm"], "notes", &["deaf"]);
    let mut exec = field.client(&["exec", "-i", &used, "/bin/server", "deaf"]);
    assert_eq!(exec.ask("one"), "answer to one");
    // Nobody can tell from outside what a command is for that somebody left in it.
    let unused = field.stray(&["--rm"], "notes", &["deaf"]);
    let mut dead = field.client(&["exec", "-i", &unused, "/bin/server", "stone"]);
    assert_eq!(dead.ask("one"), "answer to one");
    dead.kill();
    let twin = field.stray(&["--rm"], "notes", &["deaf"]);
    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("an exec with a client", &used, Kept("")),
            ("an exec without one", &unused, Kept("command")),
            ("a twin without any", &twin, Ended),
        ],
    );
    assert_eq!(exec.ask("two"), "answer to two");
}
