//! The calls that reapd makes, against real engines: what each says, and what it says when there is nothing left to do.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use bstr::BString;
use reapd::engine::{Client, ExecState, Fault, NetworkOrigin, Said, Which, run};
use reapd::model::container::stop::Fate;
use reapd::model::container::{Attached, AutoRemoval, ContainerId, ContainerState, EngineId, EngineKind};
use reapd::model::id::Pid;

use super::field::{Field, Role};
use crate::planted::{MARK, wait_for};
use crate::support::engine::Stand;

const PATIENCE: Duration = Duration::from_secs(20);

fn connected(socket: &Path) -> Client {
    // It is no client that waits for a container, so nobody may sweep meanwhile: see `Played`.
    let id = EngineId(socket.canonicalize().unwrap().to_str().unwrap().to_owned());
    run(Client::connect(&id, PATIENCE)).unwrap().unwrap()
}

fn now<T>(call: impl Future<Output = Result<T, Fault>>) -> T {
    run(call).unwrap().unwrap()
}

fn listed(client: &Client, which: Which, id: &ContainerId) -> Option<ContainerState> {
    now(client.list(which)).into_iter().find(|row| row.id == *id).map(|row| row.state)
}

fn calls(field: &Field) {
    let client = connected(&field.stand.socket);
    let own = |id: &str| ContainerId::new(id).unwrap();
    let deaf = own(&field.detached(&["--rm", "--env", "SECRET=1", "--env", "PUBLIC=2"], "notes", &["deaf"]));
    let stone = own(&field.detached(&[], "search", &["stone"]));
    let label = field.label();
    let never =
        own(&field.docker(&["create", "--network", "none", "--label", &label, "reapd-stand/notes:1"]));

    assert_eq!(listed(&client, Which::Live, &deaf), Some(ContainerState::Running));
    assert_eq!(listed(&client, Which::Live, &never), None);
    assert_eq!(listed(&client, Which::All, &never), Some(ContainerState::Created));
    let rows = now(client.list(Which::Live));
    assert!(rows.is_sorted_by(|one, other| one.id < other.id));
    let row = rows.iter().find(|row| row.id == deaf).unwrap();
    assert_eq!(row.labels.get(MARK).map(String::as_str), Some(field.planted.nonce()));
    assert!(row.image.ends_with("reapd-stand/notes:1"), "{}", row.image);

    let names: BTreeSet<BString> = ["PUBLIC", "ABSENT"].map(BString::from).into();
    let said = now(client.inspect(&deaf, &names)).unwrap();
    assert_eq!(said.facts.argv, ["/bin/server", "deaf"].map(BString::from));
    assert_eq!(said.facts.command, ["deaf"].map(BString::from));
    assert_eq!(said.facts.removal, AutoRemoval::Yes);
    assert_eq!(said.facts.state, ContainerState::Running);
    assert_eq!(said.facts.network, "none");
    assert_eq!(said.facts.env.into_iter().collect::<Vec<_>>(), [("PUBLIC".into(), "2".into())], "no secret");
    assert_eq!(said.pid.map(Pid::number), Some(field.init(deaf.as_str())));
    assert_eq!(said.facts.image_id.trim_start_matches("sha256:"), row.image_id.trim_start_matches("sha256:"));
    let labels = now(client.image_labels(&said.facts.image_id));
    assert_eq!(labels.get("title").map(String::as_str), Some("notes"));

    // A command inside, while its client lives and when it is over.
    let mut inside = field.client(&["exec", "-i", deaf.as_str(), "/bin/server", "eof"]);
    assert_eq!(inside.ask("one"), "answer to one");
    let execs = now(client.inspect(&deaf, &names)).unwrap().facts.execs;
    assert_eq!(execs.len(), 1, "{execs:?}");
    let exec = now(client.exec(&execs[0])).unwrap();
    assert_eq!((exec.state, &exec.container, exec.stdin), (ExecState::Runs, &deaf, Attached::Yes));
    assert_eq!(exec.argv, ["/bin/server", "eof"].map(BString::from));
    inside.close();
    assert!(inside.ends().success());
    wait_for("the command inside to rest", || {
        now(client.exec(&execs[0])).is_none_or(|exec| exec.state == ExecState::Rests && exec.pid.is_none())
    });

    // One that runs is never removed by force.
    let refused = run(client.remove(&stone, Fate::Keep)).unwrap();
    assert!(!matches!(refused, Ok(Said::Done)), "{refused:?}");
    assert_eq!(listed(&client, Which::Live, &stone), Some(ContainerState::Running));

    assert_eq!(now(client.stop(&deaf, Duration::from_secs(10))), Said::Done);
    wait_for("the one with --rm to be gone", || listed(&client, Which::All, &deaf).is_none());
    for said in [
        now(client.stop(&deaf, Duration::ZERO)),
        now(client.kill(&deaf)),
        now(client.remove(&deaf, Fate::Keep)),
    ] {
        assert!(matches!(said, Said::Already(_)), "{said:?}");
    }
    assert_eq!(now(client.inspect(&deaf, &names)), None);

    let began = Instant::now();
    assert_eq!(now(client.stop(&stone, Duration::from_secs(1))), Said::Done);
    assert!(began.elapsed() >= Duration::from_millis(900), "it had its grace: {:?}", began.elapsed());
    assert_eq!(listed(&client, Which::All, &stone), Some(ContainerState::Exited));
    assert!(matches!(now(client.stop(&stone, Duration::ZERO)), Said::Already(_)));
    assert!(!matches!(run(client.kill(&stone)).unwrap(), Ok(Said::Done)));
    assert_eq!(now(client.remove(&stone, Fate::Remove)), Said::Done);
    assert_eq!(listed(&client, Which::All, &stone), None);
}

#[test]
fn docker_says_what_it_does_and_what_was_done_already() {
    let Some(field) = Field::new() else { return };
    let _turn = crate::turn::turn();
    assert!(matches!(connected(&field.stand.socket).kind(), EngineKind::Docker(_)));
    calls(&field);
}

#[test]
fn podman_says_what_it_does_and_what_was_done_already() {
    let Some(stand) = Stand::podman() else { return };
    let field = Field::on(stand, Role::Ours);
    let _turn = crate::turn::turn();
    assert!(matches!(connected(&field.stand.socket).kind(), EngineKind::Podman(_)));
    calls(&field);
}

#[test]
fn a_network_is_told_with_who_else_is_in_it() {
    let Some(field) = Field::new() else { return };
    let _turn = crate::turn::turn();
    let client = connected(&field.stand.socket);
    let network = super::ports::Network::new(&field);
    let own = |id: String| ContainerId::new(&id).unwrap();
    let alone = own(field.detached(&["--rm"], "notes", &["deaf"]));
    assert!(now(client.networks(&alone)).iter().all(|one| one.origin == NetworkOrigin::Predefined));
    let one = own(field.detached(&["--rm", "--network", network.name()], "notes", &["deaf"]));
    let uses = now(client.networks(&one));
    assert_eq!(uses.len(), 1);
    assert_eq!((uses[0].name.as_str(), uses[0].origin), (network.name(), NetworkOrigin::Made));
    assert!(uses[0].others.is_empty());
    let other = own(field.detached(&["--network", network.name()], "notes", &["deaf"]));
    assert_eq!(now(client.networks(&one))[0].others, std::slice::from_ref(&other));
    // One that ended is in it all the same: it may be started again.
    assert_eq!(now(client.stop(&other, Duration::from_secs(5))), Said::Done);
    assert_eq!(now(client.networks(&one))[0].others, std::slice::from_ref(&other));
    let refused = run(client.remove_network(&uses[0].id)).unwrap();
    assert!(!matches!(refused, Ok(Said::Done)), "{refused:?}");
}
