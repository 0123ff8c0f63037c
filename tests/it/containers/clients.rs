//! Who has a client, and who has none any more: each case with a real client, and a real death where there is one.

use rustix::process::Signal;

use super::field::Fate::{Ended, Kept};
use super::field::{Client, Field};
use crate::planted::wait_for;
use crate::support::engine::other_client;

#[test]
fn a_killed_client_leaves_a_stray_unless_its_server_obeys_a17_c35() {
    let Some(field) = Field::new() else { return };
    let obeys = field.stray(&["--rm"], "notes", &["eof"]);
    let deaf = field.stray(&["--rm"], "notes", &["deaf"]);
    let stone = field.stray(&["--rm"], "notes", &["stone"]);
    // Without --rm somebody must remove it.
    let stays = field.stray(&[], "search", &["deaf"]);
    let init = field.stray(&["--rm", "--init"], "search", &["deaf"]);
    let name = format!("named-{}", field.planted.nonce());
    let named = field.stray(&["--rm", "--name", &name], "mail", &["deaf"]);
    let wrapped =
        field.stray(&["--rm", "--entrypoint", "/bin/sh"], "mail", &["-c", "/bin/server deaf; true"]);
    let mut live = field.run(&["-i", "--rm"], "maps", &["deaf"]);
    assert_eq!(live.client.ask("one"), "answer to one");
    wait_for("the one that obeys to be gone", || field.state(&obeys) == "gone");

    let dry = field.swept(&["--dry-run"]);
    for (what, id) in [("deaf", &deaf), ("stone", &stone), ("not --rm", &stays), ("--init", &init)] {
        assert_eq!(field.state(id), "running", "a dry run ends nothing: {what}");
    }
    assert!(dry.stops.is_empty(), "{}", dry.said);

    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("deaf", &deaf, Ended),
            ("deaf to TERM as well", &stone, Ended),
            ("not --rm", &stays, Ended),
            ("--init", &init, Ended),
            ("--name", &named, Ended),
            ("a shell around it", &wrapped, Ended),
            ("live", &live.id, Kept("client")),
        ],
    );
    assert!(!swept.stops.contains_key(&obeys), "it went by itself");
    assert_eq!(live.client.ask("two"), "answer to two");
}

#[test]
fn whoever_may_have_a_client_is_kept_f9() {
    let Some(field) = Field::new() else { return };
    // Alive and idle; its twin, of the same image and the same words, is dead.
    let mut idle = field.run(&["-i", "--rm"], "notes", &["deaf"]);
    let twin = field.stray(&["--rm"], "notes", &["deaf"]);
    let stopped = field.run(&["-i", "--rm"], "search", &["deaf"]);
    stopped.client.send(Signal::STOP);
    // Its own input is at its end, and it goes on reading what the server says.
    let mut ended = field.run(&["-i", "--rm"], "mail", &["deaf"]);
    ended.client.close();
    // A second client, after the first was killed: no request can reach the server, and somebody listens all the same.
    let name = format!("shared-{}", field.planted.nonce());
    let mut first = field.run(&["-i", "--rm", "--name", &name], "maps", &["deaf"]);
    // The engine writes whole seconds, and who names a container is known to mean this one only if it came later.
    let made = std::time::Instant::now();
    wait_for("the second to be over", || made.elapsed() > std::time::Duration::from_millis(1_100));
    let second = field.client(&["attach", &name]);
    wait_for("the second client to hear what the first asked for", || {
        assert_eq!(first.client.ask("both"), "answer to both");
        second.has_line()
    });
    first.client.kill();
    // Somebody watches what it writes.
    let read = field.stray(&["--rm"], "notes", &["deaf"]);
    let reader = field.client(&["logs", "-f", &read]);
    assert_eq!(reader.line(), "answer to first");

    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("alive and idle", &idle.id, Kept("client")),
            ("the dead twin", &twin, Ended),
            ("stopped", &stopped.id, Kept("client")),
            ("its input at an end", &ended.id, Kept("client")),
            ("a second client", &first.id, Kept("client")),
            ("its log is read", &read, Kept("client")),
        ],
    );
    stopped.client.send(Signal::CONT);
    assert_eq!(idle.client.ask("after"), "answer to after");
    drop((second, reader));
}

#[test]
fn a_batch_job_waits_for_its_result_f3_f9() {
    let Some(field) = Field::new() else { return };
    let mut jobs = Vec::new();
    // `printf x | docker run -i …`, and `docker run -i … </dev/null`.
    for (name, words) in [("with", "x"), ("without", "")] {
        let mut job = field.run(&["-i", "--rm"], "job", &[name]);
        job.client.pour(words.as_bytes());
        job.client.close();
        jobs.push(job);
    }
    // One whose client was killed while it worked: nobody waits for it any more.
    let mut abandoned = field.run(&["-i", "--rm"], "job", &["abandoned"]);
    abandoned.client.close();
    abandoned.client.kill();
    // One of the very same words as one that is waited for: whose client that is, nobody can tell.
    let mut alike = field.run(&["-i", "--rm"], "job", &["with"]);
    alike.client.close();
    alike.client.kill();

    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("with input", &jobs[0].id, Kept("is its client")),
            ("abandoned, alike", &alike.id, Kept("is its client")),
            ("without input", &jobs[1].id, Kept("client")),
            ("abandoned", &abandoned.id, Ended),
        ],
    );
    for job in &mut jobs {
        field.docker(&["exec", &job.id, "touch", "/go"]);
        assert_eq!(job.client.line(), "RESULT");
        assert!(job.client.ends().success());
    }
}

#[test]
fn signals_to_a_client_are_not_its_end_c35() {
    let Some(field) = Field::new() else { return };
    // TERM goes on to the server, which ignores it: client and container stay. A third one ends newer clients.
    let mut asked = field.run(&["-i", "--rm"], "notes", &["stone"]);
    assert_eq!(asked.client.ask("one"), "answer to one");
    asked.client.send(Signal::TERM);
    let swept = field.sweep();
    field.check(&swept, &[("asked once", &asked.id, Kept("client"))]);
    assert_eq!(asked.client.ask("two"), "answer to two");

    let clients: Vec<_> = [Some(field.stand.client.clone()), other_client()].into_iter().flatten().collect();
    for program in clients {
        let label = field.label();
        let mut command = field.command(&program);
        command.args([
            "run",
            "-i",
            "--rm",
            "--network",
            "none",
            "--label",
            &label,
            "reapd-stand/search:1",
            "stone",
        ]);
        let mut thrice = field.start_by(command);
        assert_eq!(thrice.client.ask("one"), "answer to one");
        for _ in 0..3 {
            thrice.client.send(Signal::TERM);
        }
        let ended = ended_soon(&mut thrice.client);
        let swept = field.sweep();
        let fate = if ended { Ended } else { Kept("client") };
        field.check(&swept, &[("asked thrice", &thrice.id, fate)]);
    }
}

/// Whether a client that was asked thrice ended, as newer ones do. Their answer takes no time that counts.
fn ended_soon(client: &mut Client) -> bool {
    let end = std::time::Instant::now() + std::time::Duration::from_secs(2);
    while client.is_alive() {
        if std::time::Instant::now() > end {
            return false;
        }
        std::thread::yield_now();
    }
    true
}

#[test]
fn a_container_made_first_and_started_later_has_the_starter_as_its_client() {
    let Some(field) = Field::new() else { return };
    let label = field.label();
    let make = |image: &str| {
        let image = format!("reapd-stand/{image}:1");
        field.docker(&["create", "-i", "--rm", "--network", "none", "--label", &label, &image, "deaf"])
    };
    let (live, stray) = (make("notes"), make("notes"));
    let mut clients = Vec::new();
    for id in [&live, &stray] {
        let mut client = field.client(&["start", "-a", "-i", id]);
        assert_eq!(client.ask("one"), "answer to one");
        clients.push(client);
    }
    clients[1].kill();
    let swept = field.sweep();
    field.check(&swept, &[("live", &live, Kept("client")), ("stray", &stray, Ended)]);
    assert_eq!(clients[0].ask("two"), "answer to two");
}
