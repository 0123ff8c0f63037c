//! Tests of the whole of judge about servers: whom a client keeps, whom nobody asks, and what is only offered.

use std::time::Duration;

use crate::config::policy::{Config, Line, Offer, Ping, ProofNeed, Setting, Talk};
use crate::judge::rules::support::{
    self, ROOT, Scene, condition, config, connection, id, listener, registry_server, text, verbatim,
};
use crate::judge::{Ledger, candidates, judge, questions};
use crate::model::evidence::Says;
use crate::model::facts::Freezer;
use crate::model::id::Pid;
use crate::model::known::Reason;
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::question::{Answer, Connection, Family, Peer, Pinged, Progress, Question, Response};
use crate::model::rule::Strength;
use crate::model::table::State;
use crate::model::verdict::{Judgement, Lookalike, Mode, Verdict, Verdicts};

const SOCKET: &str = "/tmp/s.sock";

/// One policy of one line that holds for every server which has neither children nor channels.
fn without_backend() -> Config {
    let mut config = config(&[]);
    config.policies.truncate(1);
    let backend = condition("backend-gone", Strength::Proof, &[("because", text("it starts one once"))]);
    config.policies[0].reap_when = vec![Line { conditions: vec![backend], by_knowledge: None }];
    config
}

/// One policy of one line: whoever listens without a client is asked.
fn asking() -> Config {
    let mut config = config(&[]);
    config.policies.truncate(1);
    let policy = &mut config.policies[0];
    policy.ping = Some(Ping { socket: verbatim(SOCKET), talk: Talk::Mcp });
    policy.proof = ProofNeed::Waived;
    policy.reap_when = vec![Line {
        conditions: vec![
            condition("reparented", Strength::Sign, &[]),
            condition("socket-unresponsive", Strength::Sign, &[("attempts", Setting::Number(2))]),
        ],
        by_knowledge: None,
    }];
    config
}

fn serving(connections: Vec<Connection>) -> Scene {
    Scene::orphan().sockets(ROOT, vec![listener(Family::Unix, SOCKET)], connections)
}

fn client() -> Connection {
    connection(Family::Unix, SOCKET, Peer::Inode(900))
}

fn asked(patience: u64) -> Question {
    support::asked(SOCKET, patience)
}

fn silent() -> Answer {
    let still = Ok(Progress { moved: 1, cpu: Duration::ZERO });
    Answer::Ping(Pinged { response: Response::Silent(2000), before: still.clone(), after: still })
}

fn open(look: &Look, config: &Config, ledger: &Ledger) -> Vec<Question> {
    questions(look, config, &candidates(look, config), ledger)
}

fn sweep(look: &Look, config: &Config, ledger: &mut Ledger) -> Verdicts {
    ledger.begin(look, &config.confirm);
    let candidates = candidates(look, config);
    assert_eq!(questions(look, config, &candidates, ledger), [], "the scene answers everything");
    let (verdicts, notes) = judge(look, config, &candidates, ledger);
    ledger.remember(look, &candidates, &verdicts, &notes);
    verdicts
}

fn one(scene: &Scene, config: &Config) -> Judgement {
    sweep(&scene.look(), config, &mut Ledger::default()).judgements.remove(0)
}

fn is_suspect(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Suspect { .. })
}

#[test]
fn a_client_keeps_no_server_that_can_serve_nobody() {
    let wedged = serving(vec![client()]);
    let judgement = one(&wedged, &without_backend());
    assert!(is_suspect(&judgement.verdict), "{judgement:?}");
    let veto = judgement.vetoes.iter().find(|veto| veto.rule == "clients").unwrap();
    assert_eq!((veto.says, veto.why.contains("cannot be served")), (Says::No, true));
    // Nor is who it is asked for, though it could not be told.
    let unknown = serving(vec![connection(Family::Unix, SOCKET, Peer::Unknown)]);
    assert!(is_suspect(&one(&unknown, &without_backend()).verdict));
    // The same client beside any other line keeps it.
    let mut adopted = without_backend();
    adopted.policies[0].proof = ProofNeed::Waived;
    adopted.policies[0].reap_when[0].conditions = vec![condition("reparented", Strength::Sign, &[])];
    let kept = one(&wedged, &adopted);
    assert_eq!((kept.verdict, kept.lookalike), (Verdict::Alive, Some(Lookalike::Vetoed("clients".into()))));
}

#[test]
fn every_other_veto_keeps_a_server_without_its_backend() {
    let with = |change: fn(Scene) -> Scene| one(&change(serving(vec![client()])), &without_backend());
    let traced = with(|scene| scene.facts(ROOT, |facts| facts.tracer = Ok(Pid::new(7))));
    let frozen = with(|scene| scene.facts(ROOT, |facts| facts.freezer = Ok(Freezer::Frozen)));
    let stopped = with(|scene| scene.row(ROOT, |row| row.state = State::Stopped));
    let spared = with(|scene| {
        scene.facts(ROOT, |facts| {
            facts.env.as_mut().unwrap().insert("REAPD_KEEP".into(), "1".into());
        })
    });
    for (judgement, veto) in [(traced, "traced"), (frozen, "frozen"), (stopped, "stopped"), (spared, "kept")]
    {
        assert_eq!(judgement.lookalike, Some(Lookalike::Vetoed(veto.into())), "{judgement:?}");
    }
}

#[test]
fn a_server_is_asked_when_nothing_else_keeps_it() {
    let look = serving(vec![]).look();
    assert_eq!(open(&look, &asking(), &Ledger::default()), [asked(2000)]);
}

#[test]
fn what_was_not_asked_is_as_strong_as_if_it_had_been() {
    let used = serving(vec![client()]);
    for (by_knowledge, strength) in [(None, Strength::Sign), (Some("x".into()), Strength::Proof)] {
        let mut config = asking();
        config.policies[0].reap_when[0].by_knowledge = by_knowledge;
        let seen = one(&used, &config).lines.remove(0).evidence.pop().unwrap();
        assert!(seen.why.contains("not asked"), "{seen:?}");
        assert_eq!(seen.strength, strength, "{seen:?}");
    }
}

#[test]
fn nobody_connects_to_a_server_that_is_kept_anyway_b39() {
    let kept = |scene: Scene, config: &Config, verdict: &Verdict, why: &str| {
        let judgement = one(&scene, config);
        assert_eq!(judgement.verdict, *verdict, "{judgement:?}");
        assert!(judgement.because.contains("not asked") && judgement.because.contains(why), "{judgement:?}");
    };
    kept(serving(vec![client()]), &asking(), &Verdict::Alive, "a client is connected");
    kept(
        serving(vec![]).row(ROOT, |row| row.state = State::Stopped),
        &asking(),
        &Verdict::Alive,
        "is stopped",
    );
    let traced = serving(vec![]).facts(ROOT, |facts| facts.tracer = Ok(Pid::new(7)));
    kept(traced, &asking(), &Verdict::Alive, "is traced");
    let unread = serving(vec![]).refused(Question::Terminals(id(ROOT)), Reason::Denied);
    kept(unread, &asking(), &Verdict::Unknown, "refused");
    let newborn = serving(vec![]).row(ROOT, |row| row.began = Moment(0).plus(Duration::from_secs(7_190)));
    kept(newborn, &asking(), &Verdict::Alive, "younger");
    let mut spared = asking();
    spared.policies[0].spare_when =
        vec![Line { conditions: vec![condition("no-children", Strength::Sign, &[])], by_knowledge: None }];
    kept(serving(vec![]), &spared, &Verdict::Alive, "no child");
}

/// Off and told of, with a line that would end everybody who was adopted.
fn offered(line: Line) -> Config {
    let mut config = config(&[]);
    config.policies.truncate(1);
    let mut policy = config.policies.remove(0);
    policy.mode = Mode::Off;
    policy.offer = Offer::Told;
    policy.proof = ProofNeed::Waived;
    policy.reap_when = vec![line];
    config.offered = vec![policy];
    config
}

fn adopted() -> Line {
    Line { conditions: vec![condition("reparented", Strength::Sign, &[])], by_knowledge: None }
}

#[test]
fn what_is_only_offered_stands_in_no_list_that_anything_acts_by() {
    let config = offered(adopted());
    let scene = Scene::orphan().process(51, ROOT).fd(
        51,
        0,
        crate::judge::rules::support::pipe(crate::model::question::FarEnd::Held),
    );
    let mut ledger = Ledger::default();
    for second in [0, 20] {
        let look = scene.clone().now(Moment(0).plus(Duration::from_secs(7_200 + second))).look();
        let verdicts = sweep(&look, &config, &mut ledger);
        assert_eq!(verdicts.judgements, []);
        assert_eq!((&verdicts.protected, verdicts.leased.trees.len()), (&Vec::new(), 0));
        let told = verdicts.offered.iter().find(|judgement| judgement.root == id(ROOT)).unwrap();
        match second {
            0 => assert!(is_suspect(&told.verdict), "{told:?}"),
            _ => assert!(matches!(told.verdict, Verdict::Orphaned { .. }), "{told:?}"),
        }
    }
}

#[test]
fn nothing_that_acts_is_asked_for_the_sake_of_an_offer() {
    let ours = asking().policies.remove(0);
    let mut config = offered(ours.reap_when[0].clone());
    config.offered[0].ping = ours.ping;
    let look = serving(vec![]).look();
    assert_eq!(open(&look, &config, &Ledger::default()), []);
    let told = sweep(&look, &config, &mut Ledger::default()).offered.remove(0);
    assert_eq!(told.verdict, Verdict::Unknown);
    assert!(told.because.contains("its policy is off"), "{told:?}");
}

#[test]
fn somebody_elses_server_is_not_asked_for_an_offer_either() {
    let settings = [("in", text("r")), ("key", Setting::Template(verbatim("k")))];
    let line =
        Line { conditions: vec![condition("lease-expired", Strength::Proof, &settings)], by_knowledge: None };
    let registry = registry_server(Duration::ZERO);
    let mut ours = offered(line.clone());
    ours.registries = vec![registry.clone()];
    assert_eq!(open(&serving(vec![]).look(), &ours, &Ledger::default()), []);
    let mut on = asking();
    (on.policies[0].reap_when, on.registries) = (vec![line], vec![registry]);
    let asked = open(&serving(vec![]).look(), &on, &Ledger::default());
    assert!(matches!(asked.as_slice(), [Question::Registered { .. }]), "{asked:?}");
}

#[test]
fn a_period_of_an_offer_runs_though_another_line_of_it_would_ask() {
    let ours = asking().policies.remove(0);
    let unused = |minutes| {
        condition("no-clients", Strength::Sign, &[("for", Setting::Duration(Duration::from_mins(minutes)))])
    };
    let mut asks = ours.reap_when[0].clone();
    asks.conditions.insert(0, unused(1));
    let mut config = offered(Line { conditions: vec![unused(30)], by_knowledge: None });
    config.offered[0].reap_when.push(asks);
    config.offered[0].ping = ours.ping;
    let mut ledger = Ledger::default();
    let mut said = Vec::new();
    for minute in (0..=30).step_by(5) {
        let look = serving(vec![]).now(Moment(0).plus(Duration::from_mins(120 + minute))).look();
        said.push(sweep(&look, &config, &mut ledger).offered.remove(0).verdict);
    }
    assert!(is_suspect(said.last().unwrap()), "{said:?}");
    assert!(!said[..6].iter().any(is_suspect), "{said:?}");
}

#[test]
fn nobody_is_joined_with_what_is_only_offered() {
    let config = offered(adopted());
    let look = Scene::orphan().look();
    assert!(candidates(&look, &config).others.is_empty());
    assert_eq!(candidates(&look, &config).list.len(), 1);
}

#[test]
fn a_wedged_server_is_confirmed_by_a_fresh_silence_at_each_look() {
    let config = asking();
    let mut ledger = Ledger::default();
    let at = |second: u64, patience: Option<u64>| {
        let scene = serving(vec![]).now(Moment(0).plus(Duration::from_secs(7_200 + second)));
        match patience {
            Some(patience) => scene.answer(asked(patience), silent()).look(),
            None => scene.look(),
        }
    };
    assert_eq!(sweep(&at(0, Some(2000)), &config, &mut ledger).judgements[0].verdict, Verdict::Alive);
    // Too soon: not asked, and so not silent.
    assert_eq!(sweep(&at(10, None), &config, &mut ledger).judgements[0].verdict, Verdict::Alive);
    assert!(is_suspect(&sweep(&at(30, Some(4000)), &config, &mut ledger).judgements[0].verdict));
    // The row is whole, and the second look still needs a silence of its own.
    let second = at(40, None);
    ledger.begin(&second, &config.confirm);
    assert_eq!(open(&second, &config, &ledger), [asked(4000)]);
    let confirmed = sweep(&at(40, Some(4000)), &config, &mut ledger).judgements.remove(0);
    assert!(matches!(confirmed.verdict, Verdict::Orphaned { .. }), "{confirmed:?}");
}
