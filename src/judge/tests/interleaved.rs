//! Interleavings of looks, replies and clients: whatever happens to a server between two looks, nobody is condemned
//! whom a client used at any look of the confirming pair, and none on evidence that says nothing.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use crate::config::policy::{Config, Line, Ping, ProofNeed, Setting, Talk};
use crate::judge::rules::support::{ROOT, Scene, condition, config, connection, id, listener, verbatim};
use crate::judge::{Ledger, candidates, judge, questions};
use crate::model::known::{Reason, Unknown};
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::question::{Answer, Call, Family, Listener, Peer, Pinged, Progress, Question, Response};
use crate::model::rule::Strength;
use crate::model::verdict::Verdict;

const SOCKET: &str = "/tmp/s.sock";
const EVERY: u64 = 30;

/// Who is connected at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Guest {
    None,
    Connected,
    Waiting,
    Gone,
    Untold,
}

/// What an attempt would come to at a look.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Reply {
    Silent,
    Answered,
    Otherwise,
    Untold,
    Uncounted,
}

/// One look: how long after the one before, in seconds, who is there, what would be said, and how much the tree moved
/// since the one before.
#[derive(Debug, Clone, Copy)]
struct Step {
    after: u64,
    guest: Guest,
    reply: Reply,
    moved: u64,
}

fn step() -> impl Strategy<Value = Step> {
    let guest = prop_oneof![
        8 => Just(Guest::None),
        1 => Just(Guest::Connected),
        1 => Just(Guest::Waiting),
        1 => Just(Guest::Gone),
        1 => Just(Guest::Untold),
    ];
    let reply = prop_oneof![
        12 => Just(Reply::Silent),
        1 => Just(Reply::Answered),
        1 => Just(Reply::Otherwise),
        1 => Just(Reply::Untold),
        1 => Just(Reply::Uncounted),
    ];
    let moved = prop_oneof![9 => Just(0_u64), 1 => 1_u64..5];
    let after = prop_oneof![Just(5_u64), Just(10), Just(29), Just(30), Just(31), Just(45)];
    (after, guest, reply, moved).prop_map(|(after, guest, reply, moved)| Step { after, guest, reply, moved })
}

/// Whoever listens without a client and is silent three times, half a minute apart.
fn asking() -> Config {
    let mut config = config(&[]);
    config.policies.truncate(1);
    let policy = &mut config.policies[0];
    policy.ping = Some(Ping { socket: verbatim(SOCKET), talk: Talk::Mcp });
    policy.proof = ProofNeed::Waived;
    let sign = |rule, settings: &[(&'static str, Setting)]| condition(rule, Strength::Sign, settings);
    let every = Setting::Duration(Duration::from_secs(EVERY));
    policy.reap_when = vec![Line {
        conditions: vec![
            sign("no-clients", &[]),
            sign("socket-unresponsive", &[("attempts", Setting::Number(3)), ("every", every)]),
        ],
        by_knowledge: None,
    }];
    config
}

fn scene(step: Step, at: u64) -> Look {
    let own = |pending| Listener { pending, ..listener(Family::Unix, SOCKET) };
    let to = |peer| vec![connection(Family::Unix, SOCKET, peer)];
    let (pending, connections) = match step.guest {
        Guest::None => (0, vec![]),
        Guest::Waiting => (1, vec![]),
        Guest::Connected => (0, to(Peer::Inode(900))),
        Guest::Gone => (0, to(Peer::Gone)),
        Guest::Untold => (0, to(Peer::Unknown)),
    };
    Scene::orphan()
        .sockets(ROOT, vec![own(pending)], connections)
        .now(Moment(0).plus(Duration::from_secs(7_200 + at)))
        .look()
}

fn reply(step: Step, moved: u64) -> Result<Answer, Unknown> {
    let progress = || Ok(Progress { moved, cpu: Duration::ZERO });
    let said = |response| Ok(Answer::Ping(Pinged { response, before: progress(), after: progress() }));
    match step.reply {
        Reply::Silent => said(Response::Silent(1)),
        Reply::Answered => said(Response::Answered(1)),
        Reply::Otherwise => said(Response::Otherwise("x".into())),
        Reply::Untold => Err(Unknown::new(Reason::Hung, "whether it answers")),
        Reply::Uncounted => {
            let unread = || Err(Unknown::new(Reason::Denied, "its counters"));
            Ok(Answer::Ping(Pinged { response: Response::Silent(1), before: unread(), after: unread() }))
        }
    }
}

/// What was seen at one look: the step, whether the server was asked, and the verdict.
#[derive(Debug)]
struct Sighting {
    step: Step,
    at: u64,
    moved: u64,
    asked: bool,
    verdict: Verdict,
}

fn play(steps: &[Step]) -> Vec<Sighting> {
    let config = asking();
    let mut ledger = Ledger::default();
    let (mut at, mut moved) = (0, 0);
    let mut seen = Vec::new();
    for &step in steps {
        at += step.after;
        moved += step.moved;
        let mut look = scene(step, at);
        ledger.begin(&look, &config.confirm);
        let candidates = candidates(&look, &config);
        let mut asked = false;
        loop {
            let open = questions(&look, &config, &candidates, &ledger);
            if open.is_empty() {
                break;
            }
            for question in open {
                let Question::Ping { of, call: Call::Mcp, .. } = &question else {
                    panic!("the scene answers everything but pings: {question:?}");
                };
                assert_eq!(*of, id(ROOT));
                asked = true;
                look.answers.insert(question, reply(step, moved));
            }
        }
        let (verdicts, notes) = judge(&look, &config, &candidates, &ledger);
        ledger.remember(&look, &candidates, &verdicts, &notes);
        let verdict = verdicts.judgements[0].verdict.clone();
        seen.push(Sighting { step, at, moved, asked, verdict });
    }
    seen
}

fn condemns(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Suspect { .. } | Verdict::Orphaned { .. })
}

/// Holds what must be so of everything that was seen.
fn check(seen: &[Sighting]) {
    for (now, sighting) in seen.iter().enumerate() {
        // Nobody is asked whom a client uses, or of whom that cannot be told.
        assert!(!sighting.asked || matches!(sighting.step.guest, Guest::None | Guest::Gone), "{seen:#?}");
        if !condemns(&sighting.verdict) {
            continue;
        }
        // A fresh silence at this very look.
        assert!(sighting.asked && sighting.step.reply == Reply::Silent, "{seen:#?}");
        // Before it, back to the third silence that counts, nothing but silences and nothing that moved.
        let (mut row, mut last) = (1, sighting.at);
        for earlier in seen[..now].iter().rev() {
            if row >= 3 {
                break;
            }
            assert_eq!(earlier.moved, sighting.moved, "it got on: {seen:#?}");
            if earlier.asked {
                assert_eq!(earlier.step.reply, Reply::Silent, "{seen:#?}");
                if last - earlier.at >= EVERY {
                    (row, last) = (row + 1, earlier.at);
                }
            }
        }
        if let Verdict::Orphaned { since } = &sighting.verdict {
            // Both looks of the pair, and each between them, were without a client.
            let first = Moment(0).plus(Duration::from_hours(2));
            let pair = seen[..=now].iter().filter(|one| first.plus(Duration::from_secs(one.at)) >= *since);
            assert!(pair.clone().count() >= 2, "{seen:#?}");
            for one in pair {
                assert!(condemns(&one.verdict) && one.asked, "{seen:#?}");
                assert!(matches!(one.step.guest, Guest::None | Guest::Gone), "{seen:#?}");
            }
        }
    }
}

#[test]
fn silence_alone_is_condemned_in_the_end() {
    let quiet = Step { after: 30, guest: Guest::None, reply: Reply::Silent, moved: 0 };
    let seen = play(&[quiet; 4]);
    let verdicts: Vec<bool> = seen.iter().map(|sighting| condemns(&sighting.verdict)).collect();
    assert_eq!(verdicts, [false, false, true, true]);
    assert!(matches!(seen[3].verdict, Verdict::Orphaned { .. }));
    check(&seen);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn nobody_is_condemned_while_a_client_was_there_or_on_evidence_that_says_nothing(
        steps in vec(step(), 1..24),
    ) {
        check(&play(&steps));
    }
}
