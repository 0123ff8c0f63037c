//! Unknown is keep, held to every scenario: whatever answer is taken away, nobody more is reaped.

use std::collections::BTreeSet;
use std::sync::OnceLock;

use proptest::prelude::*;

use reapd::config::policy::Config;
use reapd::judge::Ledger;
use reapd::model::id::ProcessId;
use reapd::model::known::{Known, Reason, Unknown};
use reapd::model::look::Look;
use reapd::model::ownership::ancestors;
use reapd::model::plan::Plan;
use reapd::model::question::{Answer, Census, Peer, Question};
use reapd::model::table::Table;
use reapd::model::verdict::{Verdict, Verdicts};
use reapd::model::world::{Manner, World, parse_world};
use reapd::plan::{Asked, Pace};

use super::scenarios::{configuration, name, scenarios, sweep_as};

/// One in so many parts of answers is forgotten when not all are asked for; a prime, so that it falls on every kind.
const SHARE: usize = 23;

/// A scenario with everything answered that is asked when nothing is forgotten.
struct Played {
    name: String,
    config: Config,
    manner: Manner,
    looks: Vec<Look>,
    /// Who is reaped at each look.
    reaped: Vec<BTreeSet<ProcessId>>,
}

/// No pace, no breaker, no limit on size: those hold trees back because of others, and a tree that drops out lets
/// another one through.
fn asked() -> Asked {
    Asked { pace: Pace::Unpaced, ..Asked::default() }
}

fn corpus() -> Vec<Played> {
    scenarios()
        .iter()
        .map(|path| {
            let read = |file: &str| std::fs::read_to_string(path.join(file)).ok();
            let World { manner, mut looks } = parse_world(&read("world.txt").unwrap()).unwrap();
            let home = looks[0].snapshot.own.home.clone();
            let mut config = configuration(read("config.toml").as_deref(), home.as_ref()).unwrap();
            config.limits.same_cause = usize::MAX;
            config.limits.processes_per_tree = usize::MAX;
            let reaped = reaped(&mut looks, &config, manner);
            Played { name: name(path), config, manner, looks, reaped }
        })
        .collect()
}

/// Judges and plans each look; what is planned and proven is checked on the way.
fn reaped(looks: &mut [Look], config: &Config, manner: Manner) -> Vec<BTreeSet<ProcessId>> {
    let mut ledger = Ledger::default();
    looks
        .iter_mut()
        .map(|look| {
            let (verdicts, plan) = sweep_as(look, config, &mut ledger, manner, &asked()).unwrap();
            is_sound(look, &verdicts, &plan);
            members(&plan)
        })
        .collect()
}

fn members(plan: &Plan) -> BTreeSet<ProcessId> {
    plan.teardowns.iter().flat_map(|teardown| &teardown.members).map(|member| member.identity.id).collect()
}

/// What holds of every plan, whatever was seen.
fn is_sound(look: &Look, verdicts: &Verdicts, plan: &Plan) {
    let own = &look.snapshot.own;
    let table = &look.snapshot.table;
    let above: BTreeSet<ProcessId> = ancestors(table, own.pid).into_iter().collect();
    for teardown in &plan.teardowns {
        let root = teardown.judgement.root;
        assert!(matches!(teardown.judgement.verdict, Verdict::Orphaned { .. }), "{root} is proven");
        assert!(verdicts.judgements.contains(&teardown.judgement), "{root} was judged so");
        assert_eq!(
            teardown.members.first().map(|member| member.identity.id),
            Some(root),
            "{root} goes first"
        );
        for member in &teardown.members {
            let id = member.identity.id;
            assert!(!verdicts.protected.iter().any(|(protected, _)| *protected == id), "{id} is protected");
            assert!(id.pid != own.pid && !above.contains(&id), "{id} is reapd, or above it");
            assert!(id.pid.number() != 1, "process 1");
            assert!(table.get(id).is_some_and(|row| !row.is_gone()), "{id} is there");
            assert!(own.sid == 0 || table.get(id).is_some_and(|row| row.sid != own.sid), "{id}: our session");
        }
    }
}

fn unknown<T>() -> Known<T> {
    Err(Unknown::new(Reason::Denied, "what was forgotten"))
}

/// Returns an answer with one part of it taken away, in every way there is; the whole answer first.
fn weaker(answer: &Answer) -> Vec<Known<Answer>> {
    let mut all = vec![unknown()];
    match answer {
        Answer::Facts(facts) => {
            let mut with = |change: &dyn Fn(&mut reapd::model::facts::Facts)| {
                let mut facts = facts.clone();
                change(&mut facts);
                all.push(Ok(Answer::Facts(facts)));
            };
            with(&|facts| facts.uid = unknown());
            with(&|facts| facts.argv = unknown());
            with(&|facts| facts.exe = unknown());
            with(&|facts| facts.cwd = unknown());
            with(&|facts| {
                if let Ok(cwd) = &mut facts.cwd {
                    cwd.fate = unknown();
                }
            });
            with(&|facts| facts.env = unknown());
            with(&|facts| facts.cgroup = unknown());
            with(&|facts| facts.namespaces = unknown());
            with(&|facts| facts.tracer = unknown());
            with(&|facts| facts.hangup = unknown());
            with(&|facts| facts.freezer = unknown());
        }
        Answer::Channel(channel) => {
            all.push(Ok(Answer::Channel(reapd::model::question::Channel {
                far: unknown(),
                ..channel.clone()
            })));
            all.push(Ok(Answer::Channel(reapd::model::question::Channel {
                unread: unknown(),
                ..channel.clone()
            })));
        }
        Answer::Holders(holders) => {
            let census = Census::Partial(1);
            all.push(Ok(Answer::Holders(reapd::model::question::Holders { census, ..holders.clone() })));
        }
        Answer::Named(carriers) => {
            let unseen = 1;
            all.push(Ok(Answer::Named(reapd::model::question::Carriers { unseen, ..carriers.clone() })));
        }
        Answer::Ping(pinged) => {
            for (before, after) in [(unknown(), pinged.after.clone()), (pinged.before.clone(), unknown())] {
                let response = pinged.response.clone();
                all.push(Ok(Answer::Ping(reapd::model::question::Pinged { response, before, after })));
            }
        }
        Answer::Sockets(sockets) => {
            for at in 0..sockets.connections.len() {
                let mut sockets = sockets.clone();
                sockets.connections[at].peer = Peer::Unknown;
                all.push(Ok(Answer::Sockets(sockets)));
            }
        }
        Answer::Path(_)
        | Answer::Owner(_)
        | Answer::Activity(_)
        | Answer::Terminals(_)
        | Answer::Engine(_)
        | Answer::Bound(_)
        | Answer::Registered(_) => {}
    }
    all
}

/// One thing to forget: an answer, at some looks.
#[derive(Debug, Clone)]
struct Loss {
    question: Question,
    /// Which of the weaker answers takes its place.
    form: usize,
}

/// Takes the answer away at the looks that `at` names, and returns who is reaped then.
fn without(played: &Played, loss: &Loss, at: impl Fn(usize) -> bool) -> Vec<BTreeSet<ProcessId>> {
    let mut looks = played.looks.clone();
    for (number, look) in looks.iter_mut().enumerate().filter(|(number, _)| at(*number)) {
        let Some(Ok(answer)) = played.looks[number].answers.get(&loss.question) else { continue };
        if let Some(weaker) = weaker(answer).into_iter().nth(loss.form) {
            look.answers.insert(loss.question.clone(), weaker);
        }
    }
    reaped(&mut looks, &played.config, played.manner)
}

/// Returns everything that can be forgotten of a scenario.
fn losses(played: &Played) -> Vec<Loss> {
    let mut all = Vec::new();
    let mut seen = BTreeSet::new();
    for look in &played.looks {
        for (question, answer) in &look.answers {
            let Ok(answer) = answer else { continue };
            for form in 0..weaker(answer).len() {
                if seen.insert((question.clone(), form)) {
                    all.push(Loss { question: question.clone(), form });
                }
            }
        }
    }
    all
}

fn never_more(played: &Played, loss: &Loss, seen: &[BTreeSet<ProcessId>]) {
    for (at, (seen, before)) in seen.iter().zip(&played.reaped).enumerate() {
        let more: Vec<_> = seen.difference(before).collect();
        assert!(more.is_empty(), "{}, look {}: without {loss:?} {more:?} go too", played.name, at + 1);
    }
}

/// A share of all answers and parts of answers is forgotten, each at all looks; with `REAPD_FORGET=all` every one,
/// which takes a minute.
#[test]
fn forgetting_any_answer_reaps_nobody_more() {
    let share = if std::env::var("REAPD_FORGET").is_ok_and(|what| what == "all") { 1 } else { SHARE };
    let mut fewer = 0;
    for (turn, (played, loss)) in corpus()
        .iter()
        .flat_map(|played| losses(played).into_iter().map(move |loss| (played, loss)))
        .enumerate()
    {
        if turn % share != 0 {
            continue;
        }
        let seen = without(played, &loss, |_| true);
        never_more(played, &loss, &seen);
        fewer += usize::from(seen != played.reaped);
    }
    assert!(fewer > 0, "nothing that was forgotten mattered to anybody");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// Forgotten at one look alone, the others know it: an unknown between two looks must not help either.
    #[test]
    fn forgetting_at_one_look_reaps_nobody_more(scenario in any::<prop::sample::Index>(),
                                                loss in any::<prop::sample::Index>(),
                                                look in any::<prop::sample::Index>()) {
        static CORPUS: OnceLock<Vec<Played>> = OnceLock::new();
        let played = scenario.get(CORPUS.get_or_init(corpus));
        let losses = losses(played);
        if !losses.is_empty() {
            let (loss, look) = (loss.get(&losses), look.index(played.looks.len()));
            never_more(played, loss, &without(played, loss, |at| at == look));
        }
    }
}

/// What a finished plan leaves has nothing more to plan: the same verdicts on the world without those who went.
#[test]
fn a_world_that_was_swept_has_nothing_left_to_plan() {
    for Played { name, config, manner, mut looks, .. } in corpus() {
        let mut ledger = Ledger::default();
        for look in &mut looks {
            let (verdicts, plan) = sweep_as(look, &config, &mut ledger, manner, &asked()).unwrap();
            let gone = members(&plan);
            let rows = look.snapshot.table.rows().iter().filter(|row| !gone.contains(&row.id));
            let mut left = look.clone();
            left.snapshot.table = Table::new(rows.copied().collect());
            let again = reapd::plan::plan(&verdicts, &left, &config, &asked());
            assert_eq!(members(&again), BTreeSet::new(), "{name}");
        }
    }
}

/// The order in which a scan found the processes says nothing.
#[test]
fn the_order_of_rows_does_not_matter() {
    for Played { name, config, manner, mut looks, reaped: before } in corpus() {
        for look in &mut looks {
            let mut rows = look.snapshot.table.rows().to_vec();
            rows.reverse();
            let half = rows.len() / 2;
            rows.rotate_left(half);
            look.snapshot.table = Table::new(rows);
        }
        assert_eq!(reaped(&mut looks, &config, manner), before, "{name}");
    }
}

/// Takes knowledge of leases away from a look, one piece at a time; each piece by its number.
fn forget_of_leases(look: &mut Look, piece: usize) -> Option<String> {
    type Change = fn(&mut reapd::model::lease::Holder);
    const CHANGES: [Change; 5] = [
        |holder| holder.start = None,
        |holder| holder.boot = None,
        |holder| holder.pidns = None,
        |holder| holder.timens = None,
        |holder| holder.age = None,
    ];
    let leases = &mut look.snapshot.leases;
    let (count, cookies) = (leases.list.len(), leases.cookies.len());
    let wide = CHANGES.len() + 1;
    if piece < count * wide {
        let (lease, what) = (piece / wide, piece % wide);
        let id = leases.list[lease].id.clone();
        match CHANGES.get(what) {
            Some(change) => leases.list[lease].holder.iter_mut().for_each(change),
            // A file of its cookie's name that says nothing any more.
            None if leases.list[lease].covers.env == Some(id.as_str().into()) => {
                let lease = leases.list.remove(lease);
                let why = Unknown::new(Reason::Unsupported, "its file");
                let (owner, stem) = (Some(lease.file.owner), id.as_str().into());
                leases.faulty.push(reapd::model::lease::FaultyLease { owner, stem, why });
            }
            None => {}
        }
        return Some(format!("part {what} of lease {id}"));
    }
    let piece = piece - count * wide;
    if piece < cookies {
        let (id, cookie) = leases.cookies.iter_mut().nth(piece)?;
        *cookie = unknown();
        return Some(format!("the cookie of {id}"));
    }
    match piece - cookies {
        0 => look.snapshot.own.namespaces = unknown(),
        1 => {
            let source = reapd::model::look::Gap::HIDDEN.to_owned();
            let why = Unknown::new(Reason::Denied, "them");
            look.snapshot.gaps.push(reapd::model::look::Gap { source, why, cure: None });
        }
        _ => return None,
    }
    Some(format!("number {} of the look", piece - cookies))
}

/// Whatever is not known of a lease, its holder, its cookies or those who look keeps; it never ends anybody more.
#[test]
fn forgetting_any_part_of_a_lease_reaps_nobody_more() {
    let mut fewer = 0;
    for played in corpus().iter().filter(|played| !played.looks[0].snapshot.leases.list.is_empty()) {
        for piece in 0.. {
            let mut looks = played.looks.clone();
            let forgotten: Vec<_> = looks.iter_mut().map(|look| forget_of_leases(look, piece)).collect();
            let Some(Some(what)) = forgotten.into_iter().next() else { break };
            let seen = reaped(&mut looks, &played.config, played.manner);
            for (at, (seen, before)) in seen.iter().zip(&played.reaped).enumerate() {
                let more: Vec<_> = seen.difference(before).collect();
                assert!(more.is_empty(), "{}, look {}: without {what} {more:?} go too", played.name, at + 1);
            }
            fewer += usize::from(seen != played.reaped);
        }
    }
    assert!(fewer > 0, "nothing that was forgotten mattered to anybody");
}
