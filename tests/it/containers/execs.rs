//! Commands that were started inside a container later: each keeps it, and what a dead client left inside a healthy
//! container is told and left alone.

use super::field::Fate::{Ended, Kept};
use super::field::Field;
use crate::support::observing::is_root;

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

    let left = || -> serde_json::Value {
        let told = field.ask(&["sweep", "--dry-run", "--json"]);
        serde_json::from_slice::<serde_json::Value>(&told.stdout).unwrap()["commands_left"].clone()
    };
    // Only root may read the input of what a container runs.
    if is_root() {
        let told = left();
        assert_eq!(told.as_array().unwrap().len(), 1, "{told}");
        assert_eq!(told[0]["id"], healthy.as_str(), "{told}");
        assert_eq!(told[0]["argv"], serde_json::json!(["/bin/server", "stone"]), "{told}");
        let why = field.why(&healthy);
        assert!(why.contains("left behind: its input ended for good"), "{why}");
    }
    // One with its client is used, and the other is still told.
    let mut used = field.client(&["exec", "-i", &healthy, "/bin/server", "deaf"]);
    assert_eq!(used.ask("one"), "answer to one");
    if is_root() {
        assert_eq!(left().as_array().unwrap().len(), 1);
        assert!(field.why(&healthy).contains("used: its input is open"));
    }

    let swept = field.sweep();
    assert_eq!(field.state(&healthy), "running");
    assert!(swept.stops.is_empty(), "{}", swept.said);
    assert_eq!(field.docker(&["inspect", "--format", execs, &healthy]), "2");
    assert_eq!(used.ask("two"), "answer to two");
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
