//! The other rules, where they judge containers.

use crate::judge::Ledger;
use crate::judge::containers::support::{World, named, unknown};
use crate::judge::rules::support::{file, parent};
use crate::model::container::{Health, Tty};
use crate::model::evidence::Cause;
use crate::model::id::{ProcessId, Start};
use crate::model::known::{Known, Reason};
use crate::model::question::{Answer, Parent, PathAnswer, Question};

const FOLDER: &str = "com.docker.compose.project.working_dir";

fn path_is(world: World, answer: Known<PathAnswer>) -> World {
    let of = ProcessId { pid: crate::judge::rules::support::pid(9), start: Start(1) };
    world.answer(Question::Path { of, path: "/wt/a".into() }, answer.map(Answer::Path))
}

fn present() -> PathAnswer {
    PathAnswer::Present { file: file(8, 701), parent: parent("/wt").into() }
}

fn absent(change: impl FnOnce(&mut Parent)) -> PathAnswer {
    let mut parent = parent("/wt");
    change(&mut parent);
    PathAnswer::Absent { parent: parent.into() }
}

/// A container of a compose project in `/wt/a`, by the built-in policy.
fn compose() -> World {
    World::stray().label(1, FOLDER, "/wt/a/")
}

/// Looks once while the directory is there, and then judges the world as it became.
#[track_caller]
fn after(world: &World, word: &str, why: &str) -> crate::model::container::judgement::ContainerJudgement {
    let mut ledger = Ledger::default();
    let before = path_is(compose(), Ok(present())).judged_with(1, "compose", &mut ledger).unwrap();
    assert_eq!(named(&before.verdict), "alive");
    let judgement = world.clone().now(10_020).judged_with(1, "compose", &mut ledger).unwrap();
    assert_eq!(named(&judgement.verdict), word, "{}", judgement.because);
    assert!(judgement.because.contains(why), "{}", judgement.because);
    judgement
}

#[test]
fn a_deleted_project_directory_is_told_of_a34() {
    let judgement = after(&path_is(compose(), Ok(absent(|_| ()))), "suspect", "made for was deleted");
    assert_eq!(judgement.causes, [Cause::Mount("/".into())]);
    assert_eq!(judgement.mode, crate::model::verdict::Mode::Report);
}

#[test]
fn a_directory_that_was_never_seen_there_proves_nothing_f8() {
    let first = path_is(compose(), Ok(absent(|_| ())));
    first.is_by(1, "compose", "unknown", "nothing was recorded");
    after(&path_is(compose(), Ok(present())), "alive", "/wt/a is there");
    after(&path_is(compose(), Err(unknown(Reason::Denied))), "unknown", "refused");
    after(&path_is(compose(), Ok(absent(|parent| parent.file = file(8, 1)))), "unknown", "another one now");
    let remote = |parent: &mut Parent| parent.on = crate::model::facts::FileSystem::Network;
    after(&path_is(compose(), Ok(absent(remote))), "unknown", "remote");
    let above = PathAnswer::ParentAbsent { nearest: parent("/").into() };
    after(&path_is(compose(), Ok(above)), "unknown", "all above it");
    let gone = || path_is(compose(), Ok(absent(|_| ())));
    after(&gone().facts(1, |facts| facts.tty = Tty::Yes), "alive", "terminal");
    after(&gone().socket(1, &[], &["tcp a b"]), "alive", "something is connected");
    // Another run of it is used by somebody.
    after(&gone().facts(1, |facts| facts.run.started = "anew".into()), "unknown", "nothing was recorded");
    World::stray().label(1, FOLDER, "").is_by(1, "compose", "unknown", "not asked");
    World::stray().label(1, FOLDER, "C:\\work").is_by(1, "compose", "unknown", "not an absolute path");
}

fn by(rule: &str) -> World {
    World::stray().configured(&format!(
        "[container.x]\nmatch = {{ name = \"calm_ab\" }}\nwithout-proof = true\nreap-when = [{{ {rule} = true }}]\n"
    ))
}

#[test]
fn a_health_check_that_fails_is_a_sign_b39() {
    let health = |health| by("unhealthy").facts(1, |facts| facts.health = health);
    health(None).is_by(1, "x", "alive", "no health check");
    health(Some(Health::Starting)).is_by(1, "x", "alive", "still to come");
    health(Some(Health::Healthy)).is_by(1, "x", "alive", "all is well");
    let sick = || health(Some(Health::Unhealthy { failing: 3 }));
    sick().is_by(1, "x", "suspect", "3 times in a row");
    // What it said earlier is not what it says.
    let mut ledger = Ledger::default();
    let mut is = |world: World, word: &str| {
        let judgement = world.judged_with(1, "x", &mut ledger).unwrap();
        assert_eq!(named(&judgement.verdict), word, "{}", judgement.because);
    };
    is(health(Some(Health::Healthy)), "alive");
    is(sick().now(10_020), "suspect");
    is(health(Some(Health::Healthy)).now(10_040), "alive");
}

#[test]
fn a_session_without_its_ryuk_is_told_of_b38() {
    for key in ["org.testcontainers.sessionId", "org.testcontainers.session-id"] {
        let session = || World::stray().label(1, key, "s-1").made(2, 500);
        let mut ledger = Ledger::default();
        session().is_by(1, "testcontainers", "alive", "for 0s of 10m");
        session().judged_with(1, "testcontainers", &mut ledger);
        let later = session().now(10_000 + 601).judged_with(1, "testcontainers", &mut ledger).unwrap();
        assert_eq!(named(&later.verdict), "suspect", "{}", later.because);
        let ryuk = session().list(2, |listed| listed.names = vec!["testcontainers-ryuk-x".into()]);
        ryuk.is_by(1, "testcontainers", "alive", "ryuk of its testcontainers session runs");
        let itself = session().label(1, "org.testcontainers.ryuk", "true");
        itself.is_by(1, "testcontainers", "alive", "a ryuk itself");
    }
}

#[test]
fn nobody_connected_says_something_only_of_who_listens() {
    let quiet = || by("no-clients");
    quiet().is_by(1, "x", "alive", "listens nowhere");
    quiet().socket(1, &["tcp 0.0.0.0:80"], &[]).is_by(1, "x", "suspect", "nothing is connected");
    quiet().socket(1, &["tcp 0.0.0.0:80"], &["tcp a b"]).is_by(1, "x", "alive", "something is connected");
    quiet().socket(1, &["udp 0.0.0.0:53"], &[]).is_by(1, "x", "unknown", "who sends to udp");
}

#[test]
fn an_age_that_nobody_knows_is_unknown() {
    let old = World::stray().configured(
        "[container.x]\nmatch = { name = \"calm_ab\" }\nwithout-proof = true\nreap-when = [{ older-than = \"1h\" }]\n",
    );
    old.is_by(1, "x", "suspect", "it has run for 2h 30m");
    let unseen = old.facts(1, |facts| facts.began = Err(unknown(Reason::Foreign)));
    unseen.is_by(1, "x", "unknown", "another namespace");
}
