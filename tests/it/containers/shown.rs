//! The main job with containers, as a user meets it: strays of four images beside live ones and a compose project.

use super::field::{Field, Started, many};
use crate::planted::wait_for;

const IMAGES: [&str; 4] = ["notes", "search", "mail", "maps"];

#[test]
fn strays_go_in_one_grace_and_nothing_else() {
    let Some(field) = Field::new() else { return };
    // With the built-in policies as they are.
    let (socket, reader) = (field.stand.socket.display(), field.reader());
    field.write(&format!("\n[docker]\nsocket = \"{socket}\"\nstdin = \"{reader}\"\n"));
    let live = |image| {
        let mut started = field.run(&["-i", "--rm"], image, &["deaf"]);
        assert_eq!(started.client.ask("first"), "answer to first");
        started
    };
    // Some older than the strays, some younger; two of the same images as theirs are each other's twins.
    let mut lives: Vec<Started> = vec![live("notes"), live("notes"), live("search")];
    let strays: Vec<String> =
        (0..many(8, 35)).map(|at| field.stray(&["--rm"], IMAGES[at % IMAGES.len()], &["deaf"])).collect();
    lives.extend([live("mail"), live("maps")]);
    let directory =
        format!("com.docker.compose.project.working_dir={}", field.planted.path("home").display());
    let project: Vec<String> = ["web", "db"]
        .iter()
        .map(|service| {
            let service = format!("com.docker.compose.service={service}");
            let labels =
                ["--label", "com.docker.compose.project=shop", "--label", &directory, "--label", &service];
            field.detached(&labels, "notes", &["deaf"])
        })
        .collect();

    let dry = field.ask(&["sweep", "--dry-run", "--all"]);
    let said = String::from_utf8_lossy(&dry.stdout).into_owned();
    assert!(dry.status.success(), "{said}{}", String::from_utf8_lossy(&dry.stderr));
    assert!(said.contains(&format!("{} containers", strays.len())), "{said}");
    for id in &strays {
        assert!(said.contains(&id[..12]), "{id:.12} is not listed:\n{said}");
        assert_eq!(field.state(id), "running", "a dry run ends nothing");
    }
    let dry = field.swept(&["--dry-run"]);
    for id in &strays {
        let one = dry.by("docker-run", id);
        assert!(["suspect", "orphaned"].contains(&one["verdict"].as_str().unwrap()), "{one}");
        assert!(one["resident_bytes"].as_u64().is_some_and(|bytes| bytes > 0), "its memory: {one}");
        assert!(one["because"].as_str().is_some_and(|why| !why.is_empty()), "its evidence: {one}");
    }

    let began = std::time::Instant::now();
    let swept = field.sweep();
    let took = began.elapsed();
    assert_eq!(swept.stops.len(), strays.len(), "{}", swept.said);
    for id in &strays {
        assert_eq!(field.state(id), "gone", "{}", swept.because(id));
        assert_eq!(swept.stops[id]["outcome"], "gone", "{}", swept.stops[id]);
    }
    for started in &mut lives {
        assert_eq!(started.client.ask("afterwards"), "answer to afterwards");
    }
    for id in &project {
        assert_eq!(field.state(id), "running");
    }
    // Each may take ten seconds until it is killed, and none waits for another.
    assert!(took < std::time::Duration::from_mins(1), "{} strays went in {took:?}", strays.len());

    for id in &strays {
        let why = field.why(&id[..12]);
        assert!(why.contains("gone"), "why {id:.12}:\n{why}");
    }
    for id in lives.iter().map(|started| &started.id).chain(&project) {
        let why = field.why(id);
        assert!(why.contains("KEEP"), "why {id:.12}:\n{why}");
    }
    let again = field.swept(&["--yes", "--exit-code"]);
    assert!(again.stops.is_empty(), "a second sweep finds nothing: {}", again.said);
    wait_for("every client to live", || lives.iter_mut().all(|started| started.client.is_alive()));
}
