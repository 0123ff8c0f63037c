//! What keeps a container whose client is gone, each alone.

use crate::judge::containers::support::{World, at, container, unknown};
use crate::judge::rules::support::lease;
use crate::model::container::judgement::ContainerLookalike;
use crate::model::container::{
    Attached, ContainerMount, ContainerState, ExecFacts, MountAccess, MountKind, RestartPolicy, Tty,
};
use crate::model::keep::{KeepMark, Kept};
use crate::model::known::{Known, Reason};
use crate::model::question::{Answer, Census, EngineAnswer, EngineQuestion, Question};

/// A policy that knows nothing of clients: what keeps its containers are the vetoes alone.
const OLD: &str = "[container.old]\nmatch = { name = \"calm_*\" }\nwithout-proof = true\n\
    reap-when = [{ older-than = \"1h\" }]\n";

fn old() -> World {
    World::stray().configured(OLD)
}

#[track_caller]
fn kept(world: &World, word: &str, why: &str, veto: &str) {
    let judgement = world.is_by(1, "old", word, why);
    assert_eq!(judgement.lookalike, Some(ContainerLookalike::Vetoed(veto.into())));
}

#[test]
fn nothing_keeps_a_plain_one() {
    old().is_by(1, "old", "suspect", "it has run for");
}

#[test]
fn what_does_not_plainly_run_is_kept_b39_c15_c16() {
    let state = |state: ContainerState| old().list(1, |listed| listed.state = state);
    kept(&state(ContainerState::Paused), "alive", "paused", "state");
    for other in [
        ContainerState::Restarting,
        ContainerState::Removing,
        ContainerState::Dead,
        ContainerState::Other("new".into()),
    ] {
        kept(&state(other), "alive", "does not run", "state");
    }
    // Paused between the list and the answer.
    kept(&old().facts(1, |facts| facts.state = ContainerState::Paused), "alive", "paused", "state");
}

#[test]
fn a_restart_policy_is_never_fought_c15() {
    let world = old().facts(1, |facts| facts.restart = RestartPolicy::Kept("always".into()));
    kept(&world, "alive", "'always'", "restart-policy");
}

#[test]
fn a_cluster_keeps_its_own() {
    kept(&old().label(1, "io.kubernetes.pod.name", "x"), "protected", "a cluster", "kubernetes");
    kept(&old().label(1, "io.x-k8s.kind.cluster", "kind"), "protected", "a cluster", "kubernetes");
}

#[test]
fn what_came_after_the_look_began_was_not_seen_by_it() {
    kept(&old().list(1, |listed| listed.created += 20_000), "alive", "after this look", "new");
    let policy = OLD.replace("older-than = \"1h\"", "unhealthy = true");
    let late = World::new().made(1, 10_001).configured(&policy).facts(1, |facts| {
        facts.health = Some(crate::model::container::Health::Unhealthy { failing: 3 });
    });
    kept(&late.list(1, |listed| listed.created = 0), "alive", "after this look", "new");
}

#[test]
fn a_label_of_its_own_keeps_and_its_images_does_not_s5() {
    let labelled = |value: &str| old().label(1, "dev.reapd.keep", value);
    kept(&labelled("1"), "protected", "dev.reapd.keep", "labelled");
    labelled("0").is_by(1, "old", "suspect", "");
    labelled("").is_by(1, "old", "suspect", "");
    let mut images = labelled("1");
    images.image_labels = Ok([("dev.reapd.keep".to_owned(), "1".to_owned())].into());
    images.is_by(1, "old", "suspect", "");
    let mut other = labelled("2");
    other.image_labels = Ok([("dev.reapd.keep".to_owned(), "1".to_owned())].into());
    kept(&other, "protected", "dev.reapd.keep", "labelled");
    let mut untold = labelled("1");
    untold.image_labels = Err(unknown(Reason::Hung));
    kept(&untold, "unknown", "no answer", "labelled");
}

fn mark(what: Kept, until: Option<u64>) -> KeepMark {
    KeepMark { what, until, set: 0, note: None }
}

fn bind(source: &str) -> ContainerMount {
    ContainerMount {
        kind: MountKind::Bind,
        source: source.into(),
        inside: "/w".into(),
        access: MountAccess::Writable,
    }
}

#[test]
fn a_person_keeps_it_by_mark_and_by_environment() {
    let marked = |number, until| {
        let mut world = old();
        world.marks = vec![mark(Kept::Container { at: at(number), name: "x".into() }, until)];
        world
    };
    kept(&marked(1, None), "protected", "reapd keep", "kept");
    marked(2, None).is_by(1, "old", "suspect", "");
    marked(1, Some(5)).is_by(1, "old", "suspect", "");
    let env = |value: &str| old().facts(1, |facts| drop(facts.env.insert("REAPD_KEEP".into(), value.into())));
    kept(&env("1"), "protected", "REAPD_KEEP", "kept");
    env("0").is_by(1, "old", "suspect", "");
}

#[test]
fn what_uses_a_kept_directory_is_kept() {
    let text = format!("{OLD}[keep]\ndirectories = [\"/srv/prod\"]\nprograms = [\"postgres\"]\n");
    let world = || World::stray().configured(&text);
    let mounts = |source: &str| world().facts(1, |facts| facts.mounts = vec![bind(source)]);
    kept(&mounts("/srv/prod/data"), "protected", "/srv/prod", "kept");
    kept(&mounts("/srv"), "protected", "/srv/prod", "kept");
    mounts("/srv/production").is_by(1, "old", "suspect", "");
    let volume = ContainerMount { kind: MountKind::Volume, ..bind("/srv/prod/data") };
    world().facts(1, |facts| facts.mounts = vec![volume]).is_by(1, "old", "suspect", "");
    for label in ["com.docker.compose.project.working_dir", "devcontainer.local_folder"] {
        kept(&world().label(1, label, "/srv/prod/app"), "protected", "/srv/prod", "kept");
    }
    let mut marked = old().facts(1, |facts| facts.mounts = vec![bind("/home/x/a")]);
    marked.marks = vec![mark(Kept::Directory { path: "/home/x".into() }, None)];
    kept(&marked, "protected", "/home/x", "kept");
    kept(&world().facts(1, |facts| facts.image = "reg/postgres:16".into()), "protected", "postgres", "kept");
    let program = world().facts(1, |facts| facts.argv = vec!["/usr/bin/postgres".into()]);
    kept(&program, "protected", "postgres", "kept");
}

#[test]
fn a_lease_that_holds_keeps_and_one_that_cannot_be_told_too() {
    let mut world = old().label(1, "dev.reapd.lease", "lease-1");
    world.is_by(1, "old", "suspect", "");
    world.leases.list = vec![lease("lease-1")];
    world.rows.push(crate::model::table::plain_row(
        crate::judge::rules::support::pid(40),
        1,
        crate::judge::rules::support::id(40).start,
    ));
    kept(&world, "alive", "holds its lease lease-1", "leased");
    world.leases.list = vec![lease("lease-2")];
    world.is_by(1, "old", "suspect", "");
}

#[test]
fn a_running_ryuk_of_its_session_knows_better_b38() {
    let key = "org.testcontainers.sessionId";
    let session = || old().label(1, key, "s-1").made(2, 500);
    session().is_by(1, "old", "suspect", "");
    let ryuk = |session: World| session.list(2, |listed| listed.image = "testcontainers/ryuk:0.9".into());
    kept(&ryuk(session()), "alive", "ryuk", "ryuk");
    kept(&ryuk(session().label(2, key, "s-1")), "alive", "ryuk", "ryuk");
    ryuk(session().label(2, key, "s-2")).is_by(1, "old", "suspect", "");
}

#[test]
fn a_live_client_that_names_it_keeps() {
    kept(&old().client(50, 2_000, "docker logs -f calm_ab"), "alive", "names it", "named");
    let mut by_file = old().client(50, 900, "docker run --cidfile /c -i x");
    by_file.census(|clients| clients.clients[0].cidfile = Some(Ok(container(1))));
    kept(&by_file, "alive", "names it", "named");
    let partial = old().clients(|clients| clients.census = Census::Partial(1));
    kept(&partial, "unknown", "who 1 of the connections", "named");
    let mut refused = old();
    refused.clients = Err(unknown(Reason::Denied));
    kept(&refused, "unknown", "refused", "named");
    refused.clients = Err(unknown(Reason::Unsupported));
    kept(&refused, "unknown", "not to be had", "named");
}

#[test]
fn a_command_that_runs_in_it_keeps_a20() {
    let question = Question::Engine(EngineQuestion::Exec { at: at(1), exec: "e1".into() });
    let world = |answer: Known<EngineAnswer>| {
        let world = old().facts(1, |facts| facts.execs = vec!["e1".into()]);
        world.answer(question.clone(), answer.map(Answer::Engine))
    };
    let runs = ExecFacts {
        init: Err(unknown(Reason::Foreign)),
        argv: vec!["sh".into()],
        stdin: Attached::No,
        tty: Tty::No,
    };
    kept(&world(Ok(EngineAnswer::Exec(runs))), "alive", "started in it later", "exec");
    world(Err(unknown(Reason::Vanished))).is_by(1, "old", "suspect", "");
    kept(&world(Err(unknown(Reason::Hung))), "unknown", "no answer", "exec");
}

#[test]
fn whoever_is_connected_keeps() {
    let world = old().socket(1, &["tcp 0.0.0.0:80"], &["tcp 172.17.0.2:80 172.17.0.1:4000"]);
    kept(&world, "alive", "something is connected", "clients");
    old().socket(1, &["tcp 0.0.0.0:80"], &[]).is_by(1, "old", "suspect", "");
    old().socket(1, &[], &["tcp 172.17.0.2:4000 10.0.0.1:443"]).is_by(1, "old", "suspect", "");
    let mut untold = old();
    untold.sockets.insert(container(1), Err(unknown(Reason::Foreign)));
    kept(&untold, "unknown", "another namespace", "clients");
}

#[test]
fn the_young_are_left_alone() {
    let policy = OLD.replace("1h", "1s");
    let world = |now| World::stray().configured(&policy).now(now);
    world(1_059).is_by(1, "old", "alive", "younger than 60s");
    world(1_061).is_by(1, "old", "suspect", "");
}

#[test]
fn a_line_of_spare_when_keeps_and_so_does_what_cannot_be_told() {
    let text = format!("{OLD}spare-when = [{{ clients = true }}]\n");
    let world = || World::stray().configured(&text);
    let connected = world().socket(1, &[], &["tcp 172.17.0.2:4000 10.0.0.1:443"]);
    kept(&connected, "alive", "something is connected", "clients");
    world().is_by(1, "old", "suspect", "");
}

#[test]
fn a_line_of_signs_alone_holds_only_where_the_policy_says_so() {
    let mut world = old();
    let policy = world.config.containers.iter_mut().find(|policy| policy.name == "old").unwrap();
    policy.proof = crate::config::policy::ProofNeed::Required;
    world.is_by(1, "old", "alive", "it has run for");
}
