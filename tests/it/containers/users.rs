//! An ordinary user who may use the engine's socket: the containers' streams are root's, and a container reads them.
#![expect(clippy::print_stderr, reason = "who reads the tests' output must know what was not tested")]

use super::field::Fate::{Ended, Kept};
use super::field::{Client, Field, Role};
use crate::support::observing::is_root;

/// A place as an ordinary user. As root, an engine that nobody else is a client of: root's clients could not be read.
fn as_user() -> Option<Field> {
    if is_root() { Field::alone(Role::Nobody) } else { Field::new() }
}

#[test]
fn an_ordinary_user_is_told_nothing_by_the_clients_alone_m2() {
    let Some(field) = as_user() else { return };
    let mut live = field.run(&["-i", "--rm"], "notes", &["deaf"]);
    let dead = field.stray(&["--rm"], "search", &["deaf"]);
    // Two by the same words, and one client: whose it is cannot be told.
    let mut one = field.run(&["-i", "--rm"], "mail", &["deaf"]);
    let other = field.stray(&["--rm"], "mail", &["deaf"]);
    // Of the same image, and the words tell them apart.
    let mut eof = field.run(&["-i", "--rm"], "maps", &["deaf", "1"]);
    let apart = field.stray(&["--rm"], "maps", &["deaf", "2"]);
    let mut job = field.run(&["-i", "--rm"], "job", &[]);
    job.client.close();

    // Nobody is connected who could be its client, and that is not enough: an input that cannot be read may be open.
    let text = std::fs::read_to_string(field.config()).unwrap();
    field.without_helper();
    let swept = field.sweep();
    for id in [&live.id, &dead, &one.id, &other, &eof.id, &apart, &job.id] {
        assert_eq!(field.state(id), "running", "{}", swept.said);
    }
    // What could not be told says so, and what would tell.
    for id in [&dead, &other] {
        let doubtful = swept.by("stand", id);
        assert_eq!(doubtful["verdict"], "unknown", "{}", swept.said);
        let cure = doubtful["cure"].as_str().unwrap_or_default();
        assert!(cure.contains("helper") && cure.contains("reapd run"), "{}", swept.said);
    }

    std::fs::write(field.config(), text).unwrap();
    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("live", &live.id, Kept("")),
            ("dead", &dead, Ended),
            ("live among two", &one.id, Kept("")),
            ("dead among two", &other, Ended),
            ("live, other words", &eof.id, Kept("")),
            ("dead, other words", &apart, Ended),
            ("waits for its result", &job.id, Kept("client")),
        ],
    );
    for started in [&mut live, &mut one, &mut eof] {
        assert_eq!(started.client.ask("after"), "answer to after");
    }
    field.docker(&["exec", &job.id, "touch", "/go"]);
    assert_eq!(job.client.line(), "RESULT");
}

#[test]
fn a_client_that_cannot_be_read_may_be_anybodys_m2() {
    if !is_root() {
        eprintln!("skipped: only root can be two users");
        return;
    }
    let Some(field) = as_user() else { return };
    let stray = field.stray(&["--rm"], "notes", &["deaf"]);
    // A client of root's, which an ordinary user cannot look into.
    let mut command = field.planted.command(field.stand.client.to_str().unwrap());
    let label = field.label();
    command.env("DOCKER_HOST", format!("unix://{}", field.stand.socket.display())).args([
        "run",
        "-i",
        "--rm",
        "--network",
        "none",
        "--label",
        &label,
        "reapd-stand/notes:1",
        "deaf",
    ]);
    let mut roots = field.start_by(command);
    assert_eq!(roots.client.ask("one"), "answer to one");
    let swept = field.sweep();
    field.check(&swept, &[("stray", &stray, Kept("")), ("root's", &roots.id, Kept(""))]);
    assert_eq!(swept.by("stand", &stray)["verdict"], "unknown", "{}", swept.said);
    roots.client.kill();
    let swept = field.sweep();
    field.check(&swept, &[("stray", &stray, Ended), ("root's, stray by now", &roots.id, Ended)]);
}

#[test]
fn a_helper_container_reads_what_a_user_cannot() {
    let Some(field) = as_user() else { return };
    let mut live = field.run(&["-i", "--rm"], "mail", &["deaf"]);
    let dead = field.stray(&["--rm"], "mail", &["deaf"]);
    let all = field.docker(&["ps", "-aq", "--no-trunc"]);
    let swept = field.sweep();
    field.check(&swept, &[("live", &live.id, Kept("")), ("dead", &dead, Ended)]);
    assert_eq!(live.client.ask("after"), "answer to after");
    let left = field.docker(&["ps", "-aq", "--no-trunc"]);
    let fresh: Vec<&str> = left.lines().filter(|id| !all.contains(id)).collect();
    if is_root() {
        assert_eq!(fresh, [] as [&str; 0], "the helper is gone");
    }
    drop::<Client>(live.client);
}
