//! What a container was made as decides, whatever became of its client; and marks that somebody put on it.

use super::field::Fate::{Ended, Kept, Unseen};
use super::field::{Client, Field};
use crate::planted::wait_for;

#[test]
fn what_can_be_served_without_its_first_client_is_kept() {
    let Some(field) = Field::new() else { return };
    let twin = field.stray(&["--rm"], "notes", &["deaf"]);
    let detached = field.detached(&["--rm"], "notes", &["deaf"]);
    let open = field.detached(&["--rm", "-i"], "notes", &["deaf"]);
    let mut foreground = field.run(&["--rm"], "notes", &["deaf"]);
    foreground.client.kill();
    let terminal = at_a_terminal(&field);

    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("the twin", &twin, Ended),
            ("-d", &detached, Kept("")),
            ("-d -i", &open, Kept("")),
            ("without -i", &foreground.id, Kept("")),
            ("-i -t", &terminal, Kept("")),
        ],
    );
}

/// Starts `docker run -it` at a terminal, and kills the client.
fn at_a_terminal(field: &Field) -> String {
    let line = format!(
        "exec {} run -i -t --rm --network none --label {} reapd-stand/notes:1 deaf",
        field.stand.client.display(),
        field.label()
    );
    let mut command = field.command("script".as_ref());
    command.args(["-qfec", &line, "/dev/null"]);
    let started = field.start_by(command);
    let client = field.planted.below(started.client.pid());
    assert_eq!(client.len(), 1, "script(1) has one child, the client");
    field.planted.end(client[0]);
    wait_for("the client's end", || !field.planted.is_alive(client[0]));
    started.id
}

#[test]
fn an_engine_that_cannot_write_any_more_does_not_know_its_client() {
    let Some(field) = Field::new() else { return };
    // The server closed its own input: nothing tells whether anybody could write to it, and nobody is there to do so.
    let closed = field.run(&["-i", "--rm"], "notes", &["closed"]);
    // More than a pipe holds was written, and nobody reads: the engine is stuck writing and never closes it (recipes).
    let mut full = field.run(&["-i", "--rm"], "search", &["full"]);
    full.client.pour(&vec![b'x'; 300_000]);
    let clients: Vec<Client> = [closed, full]
        .into_iter()
        .zip(["closed", "full"])
        .map(|(mut started, name)| {
            started.client.kill();
            std::fs::write(field.planted.path(name), &started.id).unwrap();
            started.client
        })
        .collect();
    drop(clients);
    let id = |name: &str| std::fs::read_to_string(field.planted.path(name)).unwrap();
    let swept = field.sweep();
    field.check(&swept, &[("closed", &id("closed"), Kept("input")), ("full", &id("full"), Kept(""))]);
}

#[test]
fn whoever_is_meant_to_stay_stays_b39_c15_s5() {
    let Some(field) = Field::new() else { return };
    let paused = field.stray(&["--rm"], "notes", &["deaf"]);
    field.docker(&["pause", &paused]);
    let always = field.stray(&["--restart", "always"], "notes", &["deaf"]);
    let on_failure = field.stray(&["--restart", "on-failure:3"], "notes", &["deaf"]);
    let label = field.stray(&["--rm", "--label", "dev.reapd.keep=1"], "notes", &["deaf"]);
    let marked = field.stray(&["--rm", "--env", "REAPD_KEEP=1"], "notes", &["deaf"]);
    let told = field.stray(&["--rm"], "notes", &["deaf"]);
    let said = field.ask(&["keep", &told[..12]]);
    assert!(said.status.success(), "{said:?}");
    // What an image says of itself is not said by whoever started it.
    let image = field.stray(&["--rm"], "marked", &["deaf"]);
    let not = field.stray(&["--rm", "--label", "dev.reapd.keep=0"], "notes", &["deaf"]);

    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("paused", &paused, Kept("paused")),
            ("--restart always", &always, Kept("restart")),
            ("--restart on-failure", &on_failure, Kept("restart")),
            ("label", &label, Kept("dev.reapd.keep")),
            ("environment", &marked, Kept("REAPD_KEEP")),
            ("reapd keep", &told, Kept("keep")),
            ("the image's own label", &image, Ended),
            ("a label that says no", &not, Ended),
        ],
    );
    assert_eq!(field.state(&paused), "paused", "nobody let it go on");
}

#[test]
fn nothing_that_is_not_this_tests_own_is_touched() {
    let Some(field) = Field::new() else { return };
    let other = Field::new().expect("there is an engine");
    let other_label = other.label();
    // Of another test, in every state; the last one bears our nonce as the value of another label.
    let foreign = other.stray(&["--rm"], "notes", &["deaf"]);
    let exited = other.run(&["-i"], "notes", &["eof"]);
    let mut exited_client = exited.client;
    exited_client.close();
    assert!(exited_client.ends().success());
    let created = other.docker(&[
        "create",
        "-i",
        "--network",
        "none",
        "--label",
        &other_label,
        "reapd-stand/notes:1",
        "deaf",
    ]);
    let paused = other.stray(&["--rm"], "notes", &["deaf"]);
    other.docker(&["pause", &paused]);
    let value = format!("SOMETHING={}", field.planted.nonce());
    let alike = other.stray(&["--rm", "--label", &value, "--env", &value], "notes", &["deaf"]);
    // Ours: one that is taken, and those that a sweep has no business with.
    let twin = field.stray(&["--rm"], "notes", &["deaf"]);
    let by_env = {
        let mark = field.label();
        let started = other.run(&["-i", "--rm", "--env", &mark], "notes", &["deaf"]);
        let mut client = started.client;
        assert_eq!(client.ask("first"), "answer to first");
        client.kill();
        started.id
    };
    let label = field.label();
    let ours_created = field.docker(&[
        "create",
        "-i",
        "--network",
        "none",
        "--label",
        &label,
        "reapd-stand/notes:1",
        "deaf",
    ]);
    let mut ended = field.run(&["-i"], "notes", &["eof"]);
    ended.client.close();
    assert!(ended.client.ends().success());

    // As greedy as a policy can be: whatever has a label at all, without a proof.
    field.configure(&format!(
        "\n[container.greedy]\nmatch = {{ labels = {{ \"{}\" = true }} }}\nwithout-proof = true\n\
         reap-when = [{{ older-than = \"1ms\" }}]\n",
        crate::planted::MARK
    ));
    let before = other.ids();
    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("ours", &twin, Ended),
            ("ours by its environment", &by_env, Ended),
            ("another's", &foreign, Unseen),
            ("another's, paused", &paused, Unseen),
            ("another's, ended", &exited.id, Unseen),
            ("another's, never started", &created, Unseen),
            ("another's with our nonce elsewhere", &alike, Unseen),
            ("ours, never started", &ours_created, Unseen),
            ("ours, ended", &ended.id, Unseen),
        ],
    );
    assert_eq!(other.state(&paused), "paused");
    assert_eq!(other.state(&exited.id), "exited");
    assert_eq!(other.state(&created), "created");
    let mut after = other.ids();
    after.insert(by_env);
    assert_eq!(after, before, "whatever another test made is there");
}
