//! What is remembered between looks, and what is asked again.

use crate::judge::Ledger;
use crate::judge::containers::support::{World, at, container, named, unknown};
use crate::model::container::ContainerState;
use crate::model::known::Reason;
use crate::model::look::Look;
use crate::model::question::{EngineQuestion, Question};

fn asked_for(look: &Look, number: u8) -> bool {
    look.answers.contains_key(&Question::Engine(EngineQuestion::Container(at(number))))
}

/// Looks, and returns the word for the verdict by `docker-run`.
fn word(world: &World, ledger: &mut Ledger) -> &'static str {
    world.judged_with(1, "docker-run", ledger).map_or("nothing", |judgement| named(&judgement.verdict))
}

#[test]
fn two_looks_far_enough_apart_confirm() {
    let mut ledger = Ledger::default();
    assert_eq!(word(&World::stray(), &mut ledger), "suspect");
    assert_eq!(word(&World::stray().now(10_005), &mut ledger), "suspect");
    assert_eq!(word(&World::stray().now(10_010), &mut ledger), "orphaned");
    // A look that does not agree breaks the row.
    assert_eq!(word(&World::stray().open(1).now(10_020), &mut ledger), "alive");
    assert_eq!(word(&World::stray().now(10_030), &mut ledger), "suspect");
}

#[test]
fn another_run_or_another_line_starts_anew() {
    let mut ledger = Ledger::default();
    word(&World::stray(), &mut ledger);
    let anew = World::stray().now(10_020).facts(1, |facts| facts.run.started = "anew".into());
    assert_eq!(word(&anew, &mut ledger), "suspect");
    assert_eq!(word(&anew.clone().now(10_040), &mut ledger), "orphaned");
    let other = "[container.docker-run]\nmatch = { stdin = \"attached\" }\n\
        reap-when = [{ client-gone = true, older-than = \"1h\" }]\n";
    assert_eq!(word(&anew.configured(other).now(10_060), &mut ledger), "suspect");
}

#[test]
fn a_suspend_arms_anew() {
    let mut ledger = Ledger::default();
    word(&World::stray(), &mut ledger);
    let mut slept = World::stray().now(10_030);
    slept.slept = 20;
    assert_eq!(word(&slept, &mut ledger), "suspect");
}

#[test]
fn a_container_that_is_known_and_lives_is_not_asked_for() {
    let mut ledger = Ledger::default();
    let mut world = World::new();
    for number in 1..=100 {
        world = world.made(number, 1_000).open(number);
    }
    let (_, first) = world.look_with(&mut ledger);
    assert!(asked_for(&first, 1) && asked_for(&first, 100));
    let (verdicts, second) = world.clone().now(10_020).look_with(&mut ledger);
    let calls = second.answers.keys().filter(|question| {
        matches!(
            question,
            Question::Engine(
                EngineQuestion::Container(_)
                    | EngineQuestion::ImageLabels { .. }
                    | EngineQuestion::Exec { .. }
            )
        )
    });
    assert_eq!(calls.count(), 0, "no call but the list");
    assert_eq!(verdicts.containers.len(), 100);
    // Written down and read again, it is as good.
    let text = serde_json::to_string(&ledger).unwrap();
    let mut read: Ledger = serde_json::from_str(&text).unwrap();
    let (_, third) = world.now(10_040).look_with(&mut read);
    assert!(!asked_for(&third, 1));
}

#[test]
fn nothing_ends_by_what_was_remembered() {
    let mut ledger = Ledger::default();
    World::stray().open(1).look_with(&mut ledger);
    // What it was remembered by would condemn it; what the engine says now does not.
    let policy = |facts: &mut crate::model::container::ContainerFacts| {
        facts.restart = crate::model::container::RestartPolicy::Kept("always".into());
    };
    let world = World::stray().facts(1, policy).now(10_020);
    let (verdicts, look) = world.look_with(&mut ledger);
    assert!(asked_for(&look, 1));
    assert_eq!(named(&verdicts.containers[0].verdict), "alive");
    // And without an answer it is not known.
    let mut ledger = Ledger::default();
    World::stray().open(1).look_with(&mut ledger);
    let mut silent = World::stray().now(10_020);
    silent.facts.insert(container(1), Err(unknown(Reason::Hung)));
    assert_eq!(word(&silent, &mut ledger), "unknown");
    silent.facts.insert(container(1), Err(unknown(Reason::Vanished)));
    assert_eq!(word(&silent, &mut ledger), "nothing");
    silent.facts.remove(&container(1));
    assert_eq!(word(&silent, &mut ledger), "unknown");
}

#[test]
fn what_changed_is_asked_for_again() {
    let known = || {
        let mut ledger = Ledger::default();
        World::stray().open(1).look_with(&mut ledger);
        ledger
    };
    let again = |world: World| asked_for(&world.open(1).now(10_020).look_with(&mut known()).1, 1);
    assert!(!again(World::stray()));
    assert!(!again(World::stray().list(1, |listed| listed.state = ContainerState::Paused)));
    assert!(again(World::stray().list(1, |listed| listed.state = ContainerState::Restarting)));
    assert!(again(World::stray().list(1, |listed| listed.image_id = "sha256:other".into())));
    let mut restarted = World::stray();
    restarted.rows.retain(|row| row.id.pid.number() != 1_001);
    assert!(again(restarted));
}

#[test]
fn what_is_not_listed_any_more_is_forgotten_and_silence_is_no_list() {
    let known = || {
        let mut ledger = Ledger::default();
        word(&World::stray(), &mut ledger);
        ledger
    };
    let empty = Ledger::default();
    let text = |ledger: &Ledger| serde_json::to_string(ledger).unwrap();
    assert!(text(&known()).contains(container(1).as_str()) && !text(&empty).contains(container(1).as_str()));
    let mut ledger = known();
    World::new().now(10_005).look_with(&mut ledger);
    assert!(!text(&ledger).contains(container(1).as_str()));
    // A hung engine says nothing: nothing is forgotten, and nothing is confirmed by it.
    let mut ledger = known();
    let mut hung = World::new().now(10_005);
    hung.listed = Err(unknown(Reason::Hung));
    let (verdicts, _) = hung.look_with(&mut ledger);
    assert!(verdicts.containers.is_empty());
    assert!(text(&ledger).contains(container(1).as_str()));
    assert_eq!(word(&World::stray().now(10_020), &mut ledger), "suspect");
    let mut ledger = known();
    ledger.forget_container(&at(1));
    assert_eq!(word(&World::stray().now(10_020), &mut ledger), "suspect");
}

#[test]
fn no_environment_is_written_down() {
    let mut ledger = Ledger::default();
    let secret = |facts: &mut crate::model::container::ContainerFacts| {
        facts.env.insert("TOKEN".into(), "hunter2".into());
    };
    let world = World::stray().facts(1, secret);
    world.look_with(&mut ledger);
    assert!(!serde_json::to_string(&ledger).unwrap().contains("hunter2"));
}

#[test]
fn of_labels_and_arguments_no_more_is_written_down_than_is_needed() {
    let mut ledger = Ledger::default();
    let words = |facts: &mut crate::model::container::ContainerFacts| {
        facts.argv = vec!["/bin/server".into(), "--token=hunter2".into()];
    };
    World::stray().facts(1, words).label(1, "token", "hunter2").look_with(&mut ledger);
    let text = serde_json::to_string(&ledger).unwrap();
    assert!(text.contains(container(1).as_str()) && !text.contains("hunter2"), "{text}");
    // Bytes are written as numbers.
    let bytes = |text: &str| serde_json::to_string(&bstr::BString::from(text)).unwrap();
    assert!(text.contains(&bytes("/bin/server")) && !text.contains(&bytes("--token=hunter2")), "{text}");
}

#[test]
fn only_what_is_admitted_is_looked_at() {
    let text = "[scope]\nadmit-env = \"NONCE=7\"\n";
    let world = || World::stray().configured(text);
    assert!(world().judged(1, "docker-run").is_none());
    let by_env = |value: &str| world().facts(1, |facts| drop(facts.env.insert("NONCE".into(), value.into())));
    by_env("7").is("suspect", "");
    assert!(by_env("8").judged(1, "docker-run").is_none());
    world().label(1, "NONCE", "7").is("suspect", "");
    assert!(world().label(1, "NONCE", "8").judged(1, "docker-run").is_none());
    // Of whom nobody can tell whether it carries the mark is not ours to look at.
    let mut refused = world();
    refused.facts.insert(container(1), Err(unknown(Reason::Hung)));
    assert!(refused.judged(1, "docker-run").is_none());
    refused.facts.remove(&container(1));
    assert!(refused.judged(1, "docker-run").is_none());
    // And it is remembered: neither is asked for again, while it lives.
    for (world, judged) in [(world(), 0), (by_env("7"), 1)] {
        let mut ledger = Ledger::default();
        world.clone().open(1).look_with(&mut ledger);
        let (verdicts, look) = world.open(1).now(10_020).look_with(&mut ledger);
        assert_eq!((verdicts.containers.len(), asked_for(&look, 1)), (judged, false));
    }
}

#[test]
fn a_variable_that_is_captured_is_asked_for_each_time() {
    let text = "[container.x]\nmatch = { name = \"calm_ab\" }\nreap-when = [{ client-gone = true }]\n\
        capture = { job = { env = \"JOB\" }, work = { bind = \"/w/\" } }\n";
    let mut world = World::stray().configured(text).open(1).facts(1, |facts| {
        facts.env.insert("JOB".into(), "j-1".into());
        facts.mounts.push(crate::model::container::ContainerMount {
            kind: crate::model::container::MountKind::Bind,
            source: "/srv/job".into(),
            inside: "/w".into(),
            access: crate::model::container::MountAccess::Writable,
        });
    });
    let mut ledger = Ledger::default();
    world.look_with(&mut ledger);
    world.now = 10_020;
    let judgement = world.judged_with(1, "x", &mut ledger).unwrap();
    let captures = [("job".to_owned(), "j-1".into()), ("work".to_owned(), "/srv/job".into())];
    assert_eq!(judgement.captures, captures);
}
