//! `lease-expired` by somebody else's registry.

use std::time::Duration;

use bstr::BString;

use crate::judge::Ledger;
use crate::judge::containers::support::{World, container, named, unknown};
use crate::judge::questions;
use crate::judge::rules::support::{id, pid};
use crate::model::container::{ContainerMount, ContainerState, MountAccess, MountKind, RestartPolicy};
use crate::model::evidence::Cause;
use crate::model::id::{BootId, ProcessId, Start};
use crate::model::known::{Known, Reason};
use crate::model::lease::Holder;
use crate::model::look::Gap;
use crate::model::moment::Moment;
use crate::model::question::{Answer, Census, Owner, Question, Registered};
use crate::model::table::plain_row;

const POLICY: &str = r#"
[container.gateway-tool]
match = { image = "image", labels = { "acme.role" = "tool" } }
reap-when = [{ lease-expired = { in = "gateway", key = "{session}" } }]
capture = { session = { label = "acme.session" } }
"#;

const SERVER: &str = r#"
[registry.gateway]
url = "http://127.0.0.1:8811/sessions/{key}"
alive = [{ status = 200 }]
gone = [{ status = 404, pointer = "/error", equals = "session not found" }]
instance = { pointer = "/server", equals = "gateway-1" }
"#;

const FILES: &str = r#"
[registry.gateway]
files = "/run/gateway/*.json"
key = "/session"
holder = { pid = "/pid", start = "/start", boot = "/boot" }
"#;

const PLACE: &str = "/run/gateway/*.json";

/// Asked for the sake of reapd itself, whatever is in the container.
fn question(place: &str, key: &str) -> Question {
    let of = ProcessId { pid: pid(9), start: Start(1) };
    Question::Registered { of, registry: "gateway".into(), place: place.into(), key: key.into() }
}

/// A tool of session `s-1`, of which nobody knows so far.
fn tool(registry: &str) -> World {
    let world = World::stray().configured(&format!("{registry}{POLICY}"));
    world.label(1, "acme.role", "tool").label(1, "acme.session", "s-1")
}

fn told(world: World, place: &str, said: Known<Registered>) -> World {
    world.answer(question(place, "s-1"), said.map(Answer::Registered))
}

/// A tool of a session that its gateway does not know any more.
fn over() -> World {
    told(tool(SERVER), "", Ok(Registered::Over("HTTP 404 with /error = session not found".into())))
}

fn filed(said: Registered) -> World {
    told(tool(FILES), PLACE, Ok(said))
}

#[track_caller]
fn check(world: &World, word: &str, why: &str) {
    world.is_by(1, "gateway-tool", word, why);
}

/// Looks once at what was, and then judges what became of it.
#[track_caller]
fn check_after(before: &World, world: &World, word: &str, why: &str) {
    let mut ledger = Ledger::default();
    before.look_with(&mut ledger);
    let judgement = world.clone().now(10_020).judged_with(1, "gateway-tool", &mut ledger).unwrap();
    assert_eq!(named(&judgement.verdict), word, "{}", judgement.because);
    assert!(judgement.because.contains(why), "{}", judgement.because);
}

/// Says whether a registry is asked at a look.
fn is_asked(world: &World) -> bool {
    let mut ledger = Ledger::default();
    let (look, candidates) = world.asked(&mut ledger);
    let open = questions(&look, &world.config, &candidates, &ledger);
    let is_it = |question: &Question| matches!(question, Question::Registered { .. });
    open.iter().any(is_it) || look.answers.keys().any(is_it)
}

#[test]
fn a_container_goes_at_the_second_look_that_does_not_find_its_session() {
    let mut ledger = Ledger::default();
    let first = over().judged_with(1, "gateway-tool", &mut ledger).unwrap();
    assert_eq!(named(&first.verdict), "suspect", "{}", first.because);
    assert!(first.because.contains("registry 'gateway' says that it is over: HTTP 404"), "{}", first.because);
    assert_eq!(first.causes, [Cause::Registry("gateway".into())]);
    let second = over().now(10_010).judged_with(1, "gateway-tool", &mut ledger).unwrap();
    assert_eq!(named(&second.verdict), "orphaned");
    check(&told(tool(SERVER), "", Ok(Registered::Listed { holder: None })), "alive", "lists it");
    let down = told(tool(SERVER), "", Err(unknown(Reason::Hung)));
    check(&down, "unknown", "no answer in time");
    assert_eq!(down.judged(1, "gateway-tool").unwrap().cure, None, "no client is the matter");
    check(&tool(SERVER), "unknown", "questions about it");
}

#[test]
fn without_a_key_nobody_is_asked() {
    for empty in [
        over().label(1, "acme.session", ""),
        over().label(1, "acme.session", "a\nb"),
        over().facts(1, |facts| drop(facts.labels.remove("acme.session"))),
    ] {
        check(&empty, "unknown", "what '{session}' is for it");
        assert!(!is_asked(&empty));
    }
}

#[test]
fn what_an_image_gives_to_everybody_is_no_key_s5() {
    let image = |value: &str| {
        let mut world = over();
        world.image_labels = Ok([("acme.session".to_owned(), value.to_owned())].into());
        world
    };
    check(&image("s-1"), "unknown", "its image gives the label acme.session to everybody");
    assert!(!is_asked(&image("s-1")));
    check(&image("s-0"), "suspect", "is over");
    let mut untold = over();
    untold.image_labels = Err(unknown(Reason::Hung));
    check(&untold, "unknown", "no answer");
    // One part of a key that is everybody's makes none of it one's own.
    let joined = POLICY.replace("\"{session}\"", "\"{role}-{session}\"");
    let joined = joined.replace("capture = {", "capture = { role = { label = \"acme.role\" },");
    let mut both = over().configured(&format!("{SERVER}{joined}"));
    both = both.answer(question("", "tool-s-1"), Ok(Answer::Registered(Registered::Over("x".into()))));
    check(&both, "suspect", "is over");
    both.image_labels = Ok([("acme.role".to_owned(), "tool".to_owned())].into());
    check(&both, "unknown", "its image gives the label acme.role");
}

#[test]
fn a_variable_is_no_key_and_a_directory_of_the_host_is_one() {
    let by = |capture: &str| {
        let world =
            over().configured(&format!("{SERVER}{}", POLICY.replace("label = \"acme.session\"", capture)));
        world.facts(1, |facts| {
            facts.env.insert("SESSION".into(), "s-1".into());
            facts.mounts.push(ContainerMount {
                kind: MountKind::Bind,
                source: "/run/s-1".into(),
                inside: "/session".into(),
                access: MountAccess::Writable,
            });
        })
    };
    check(&by("env = \"SESSION\""), "unknown", "variable SESSION");
    let said = Ok(Answer::Registered(Registered::Over("x".into())));
    let bound = by("bind = \"/session\"").answer(question("", "/run/s-1"), said);
    check(&bound, "suspect", "is over");
}

#[test]
fn a_server_that_nothing_names_is_not_believed_f11() {
    let unnamed = SERVER.replace("instance", "# instance");
    let world = over().configured(&format!("{unnamed}{POLICY}"));
    check(&world, "unknown", "none stands above a container");
    assert!(!is_asked(&world));
    let cure = world.judged(1, "gateway-tool").unwrap().cure.unwrap();
    assert_eq!(cure, "give [registry.gateway] an `instance` that its answers name");
}

#[test]
fn a_registrys_word_makes_nobody_blind() {
    let mut blind = over();
    blind.clients = Err(unknown(Reason::Unsupported));
    check(&blind, "unknown", "not to be had");
    let mut unseen = over();
    unseen.sockets.insert(container(1), Err(unknown(Reason::Foreign)));
    check(&unseen, "unknown", "another namespace");
    check(
        &over().clients(|clients| clients.census = Census::Partial(3)),
        "unknown",
        "who 3 of the connections",
    );
}

/// Whoever is kept anyway is not asked about.
#[test]
fn every_veto_stands_against_a_registry() {
    check(&over().label(1, "dev.reapd.keep", "1"), "alive", "dev.reapd.keep");
    check(&over().list(1, |listed| listed.state = ContainerState::Paused), "alive", "paused");
    let kept = RestartPolicy::Kept("always".into());
    check(&over().facts(1, |facts| facts.restart = kept), "alive", "restart policy");
    check(&over().client(50, 2_000, "docker logs -f calm_ab"), "alive", "names it");
    check(&over().socket(1, &["tcp 0.0.0.0:80"], &["tcp a b"]), "alive", "something is connected");
    check(&over().now(1_059), "alive", "younger than 60s");
    check(&over().now(1_061), "suspect", "is over");
}

#[test]
fn a_registry_is_asked_last_of_its_line_and_for_no_policy_that_is_off() {
    let line = POLICY.replace("key = \"{session}\" }", "key = \"{session}\" }, client-gone = true");
    let world = || over().configured(&format!("{SERVER}{line}"));
    assert!(is_asked(&world()));
    assert!(!is_asked(&world().open(1)));
    check(&world().open(1), "alive", "");
    let off = over().configured(&format!("{SERVER}{POLICY}mode = \"off\"\n"));
    assert!(!is_asked(&off) && off.judged(1, "gateway-tool").is_none());
}

#[test]
fn nobody_listed_at_all_proves_nothing_before_somebody_was_f11() {
    check(&filed(Registered::NotListed { others: 3 }), "suspect", "lists 3 others");
    let nobody = filed(Registered::NotListed { others: 0 });
    check(&nobody, "unknown", "lists nobody");
    check_after(&nobody, &nobody, "unknown", "lists nobody");
    check_after(&filed(Registered::Listed { holder: None }), &nobody, "suspect", "nor anybody else");
    let elsewhere = filed(Registered::Listed { holder: None });
    let elsewhere = elsewhere.configured(&format!("{}{POLICY}", FILES.replace("/run/gateway", "/run/other")));
    let listed = told(elsewhere, "/run/other/*.json", Ok(Registered::NotListed { others: 2 }));
    check_after(&listed, &nobody, "unknown", "lists nobody");
}

#[test]
fn a_container_that_is_younger_than_settle_may_be_listed_yet() {
    let text = format!("{FILES}settle = \"10m\"\n{POLICY}");
    let at = |age: u64| filed(Registered::NotListed { others: 3 }).configured(&text).now(1_000 + age);
    check(&at(599), "alive", "may list it later");
    check(&at(600), "suspect", "does not list it");
    // When it was made says nothing of when it was started last.
    let unseen = at(9_000).facts(1, |facts| facts.began = Err(unknown(Reason::Foreign)));
    check(&unseen, "unknown", "another namespace");
}

#[test]
fn only_a_place_without_variables_is_known_for_a_container() {
    let placed = |files: &str| {
        let text = format!("{}{POLICY}", FILES.replace("\"/run/gateway/*.json\"", files));
        let world = filed(Registered::NotListed { others: 3 }).configured(&text);
        // What it is inside the container is no directory of the host.
        world.facts(1, |facts| drop(facts.env.insert("STATE".into(), BString::from("/run/gateway"))))
    };
    check(&placed("[\"{env.STATE}/*.json\", \"/run/gateway/*.json\"]"), "unknown", "whose STATE counts");
    check(&placed("[\"/run/gateway/*.json\", \"{env.STATE}/*.json\"]"), "suspect", "does not list it");
}

/// A record that names process 20, which is there.
fn held(start: u64, boot: Option<&str>) -> World {
    let holder = Holder {
        pid: pid(20),
        start: Some(Start(start)),
        boot: boot.map(|boot| BootId(boot.into())),
        pidns: None,
        timens: None,
        host: None,
        age: None,
    };
    let mut world = filed(Registered::Listed { holder: Some(Box::new(holder)) });
    let mut row = plain_row(pid(20), 1, id(20).start);
    row.began = Moment(0).plus(Duration::from_secs(100));
    world.rows.push(row);
    world
}

fn dead(mut world: World) -> World {
    world.rows.retain(|row| row.id.pid != pid(20));
    world
}

#[test]
fn a_holder_in_a_record_is_dead_only_if_it_was_seen_alive() {
    let start = id(20).start.0;
    let alive = held(start, Some("boot"));
    check(&alive, "alive", "its holder 20");
    check_after(
        &alive,
        &dead(alive.clone()),
        "suspect",
        "process 20, which held it in registry 'gateway', is gone",
    );
    check(&dead(alive.clone()), "unknown", "while it lived");
    check_after(&alive, &dead(held(start, Some("another"))), "unknown", "another boot");
    let stranger = held(start + 1, None);
    check_after(&stranger, &stranger, "unknown", "while it lived");
    // One that was seen for less than an errand takes.
    let young = alive.clone().now(159);
    check_after(&young, &dead(alive), "unknown", "errand");
}

#[test]
fn a_hidden_holder_in_a_record_is_asked_for() {
    let alive = held(id(20).start.0, None);
    let mut hidden = dead(alive.clone());
    hidden.gaps = vec![Gap { source: Gap::HIDDEN.into(), why: unknown(Reason::Denied), cure: None }];
    check_after(&alive, &hidden, "unknown", "questions about it");
    let owner = Question::Owner { of: ProcessId { pid: pid(9), start: Start(1) }, pid: pid(20) };
    let told = |owner_is| hidden.clone().answer(owner.clone(), Ok(Answer::Owner(owner_is)));
    check_after(&alive, &told(Owner::Absent), "suspect", "is gone");
    check_after(&alive, &told(Owner::Alive(id(20))), "alive", "its holder 20");
}
