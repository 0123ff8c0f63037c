//! Whole engines whose truth is known: who made which container, and who lives.

use std::collections::BTreeSet;

use proptest::prelude::*;

use crate::judge::containers::support::{World, at, container, given, pipe, unknown};
use crate::judge::{Ledger, judge};
use crate::model::container::{Attached, AutoRemoval, ContainerRef, ContainerState, RestartPolicy, Tty};
use crate::model::known::{Known, Reason};
use crate::model::look::Look;
use crate::model::question::{Answer, Census, Channel, EngineAnswer, FarEnd, Question};
use crate::model::verdict::{Verdict, Verdicts};

/// How a container was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Maker {
    /// By a `docker run` that lives and gives it input.
    Live,
    /// By a `docker run` that lives, whose own input is at its end: it waits for the result.
    Batch,
    /// By a `docker run` that is dead.
    Dead,
    /// By one that is dead, and the engine could not write to it since.
    Stuck,
    /// By a program that lives.
    Library,
    /// By `create` and `start`, with nobody attached.
    Created,
}

/// What else is so of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Trait {
    Plain,
    Keep,
    Restart,
    Paused,
    Terminal,
    Detached,
    Foreign,
    Port,
    Listener,
}

#[derive(Debug, Clone)]
#[expect(clippy::struct_excessive_bools, reason = "each is drawn alone")]
struct Made {
    maker: Maker,
    what: Trait,
    began: u64,
    /// How long before it its client began: long for a slow pull.
    pull: u64,
    image: usize,
    arguments: usize,
    remove: bool,
    named: bool,
    filed: bool,
    labelled: bool,
    /// Whether its input can be read.
    readable: bool,
}

/// A client that owns none of the containers: it pulls, or its container ended.
#[derive(Debug, Clone)]
struct Idle {
    began: u64,
    line: usize,
    image: usize,
}

const IMAGES: [&str; 2] = ["image", "other"];
const ARGUMENTS: [&[&str]; 3] = [&[], &["job"], &["job", "--fast"]];

fn made() -> impl Strategy<Value = Made> {
    let maker = prop_oneof![
        4 => Just(Maker::Live),
        4 => Just(Maker::Batch),
        6 => Just(Maker::Dead),
        1 => Just(Maker::Stuck),
        1 => Just(Maker::Library),
        1 => Just(Maker::Created),
    ];
    let what = prop_oneof![
        20 => Just(Trait::Plain),
        1 => Just(Trait::Keep),
        1 => Just(Trait::Restart),
        1 => Just(Trait::Paused),
        1 => Just(Trait::Terminal),
        1 => Just(Trait::Detached),
        1 => Just(Trait::Foreign),
        1 => Just(Trait::Port),
        1 => Just(Trait::Listener),
    ];
    let flags =
        (any::<bool>(), prop::bool::weighted(0.2), prop::bool::weighted(0.2), prop::bool::weighted(0.2));
    (
        maker,
        what,
        1_000..9_000_u64,
        prop_oneof![Just(1_u64), 1..900_u64],
        0..2_usize,
        0..3_usize,
        flags,
        prop::bool::weighted(0.7),
    )
        .prop_map(
            |(maker, what, began, pull, image, arguments, (remove, named, filed, labelled), readable)| Made {
                maker,
                what,
                began,
                pull,
                image,
                arguments,
                remove: remove || maker == Maker::Dead,
                named,
                filed,
                labelled,
                readable,
            },
        )
}

fn idle() -> impl Strategy<Value = Idle> {
    (100..9_900_u64, 0..5_usize, 0..2_usize).prop_map(|(began, line, image)| Idle { began, line, image })
}

/// Builds what an engine with these would show.
fn world(all: &[Made], idle: &[Idle]) -> World {
    let mut world = World::new().configured("[scope]\nadmit-env = \"NONCE=1\"\n");
    for (number, made) in (1..).zip(all) {
        world = built(world, number, made);
    }
    for (number, idle) in (500..).zip(idle) {
        let line = match idle.line {
            0 => format!("docker run -i --rm {}", IMAGES[idle.image]),
            1 => format!("docker run -i {} job", IMAGES[idle.image]),
            2 => "docker ps".to_owned(),
            3 => "docker events".to_owned(),
            _ => "docker run -d other".to_owned(),
        };
        world = world.client(number, idle.began, &line);
    }
    world
}

fn built(world: World, number: u8, made: &Made) -> World {
    let name = format!("name-{number}");
    let mut world = world.made(number, made.began).label(number, "NONCE", "1");
    if made.what == Trait::Foreign {
        world = world.label(number, "NONCE", "2");
    }
    if made.labelled {
        world = world.label(number, "job", &number.to_string());
    }
    let line = line(number, made);
    let image = IMAGES[made.image];
    world = world.list(number, |listed| {
        image.clone_into(&mut listed.image);
        listed.names = vec![if made.named { name.clone() } else { given(number) }];
        // What libraries make with all the marks bears a name, and what people make starts later.
        if made.maker == Maker::Created && made.remove && !made.named {
            listed.created -= 300;
        }
        if made.what == Trait::Paused {
            listed.state = ContainerState::Paused;
        }
    });
    world = world.facts(number, |facts| {
        image.clone_into(&mut facts.image);
        facts.command = ARGUMENTS[made.arguments].iter().map(|word| (*word).into()).collect();
        facts.removal = if made.remove { AutoRemoval::Yes } else { AutoRemoval::No };
        match made.what {
            Trait::Restart => facts.restart = RestartPolicy::Kept("always".into()),
            Trait::Terminal => facts.tty = Tty::Yes,
            Trait::Detached => facts.stdin.attached = Attached::No,
            Trait::Port => {
                let address = "0.0.0.0".to_owned();
                let inside = "80/tcp".to_owned();
                facts.published = vec![crate::model::container::Published { address, port: 80, inside }];
            }
            Trait::Plain | Trait::Keep | Trait::Paused | Trait::Foreign | Trait::Listener => {}
        }
    });
    match made.what {
        Trait::Keep => world = world.label(number, "dev.reapd.keep", "1"),
        Trait::Listener => world = world.socket(number, &["tcp 0.0.0.0:80"], &[]),
        Trait::Plain
        | Trait::Restart
        | Trait::Paused
        | Trait::Terminal
        | Trait::Detached
        | Trait::Foreign
        | Trait::Port => {}
    }
    let client = i32::from(number) + 100;
    if matches!(made.maker, Maker::Live | Maker::Batch) {
        world = world.client(client, made.began - made.pull, &line);
        if made.filed {
            world.census(|clients| {
                if let Some(last) = clients.clients.last_mut() {
                    last.cidfile = Some(Ok(container(number)));
                }
            });
        }
    }
    if made.maker == Maker::Library {
        world = world.client(client, made.began - made.pull, "python3 runner.py");
    }
    let channel = match made.maker {
        Maker::Live | Maker::Library | Maker::Created => pipe(FarEnd::Held),
        Maker::Batch | Maker::Dead => pipe(FarEnd::Gone),
        Maker::Stuck => Channel { unread: Ok(65_536), ..pipe(FarEnd::Held) },
    };
    let seen = if made.readable { Ok(channel) } else { Err(unknown(Reason::Denied)) };
    world.stdins.insert(container(number), seen);
    world
}

/// Returns the command line of a container's own client.
fn line(number: u8, made: &Made) -> String {
    let given = [
        (made.remove, "--rm".to_owned()),
        (made.named, format!("--name name-{number}")),
        (made.filed, "--cidfile /c".to_owned()),
        (made.labelled, format!("--label job={number}")),
    ];
    let mut words = vec!["docker run -i".to_owned()];
    words.extend(given.into_iter().filter(|(is_given, _)| *is_given).map(|(_, word)| word));
    words.push(IMAGES[made.image].to_owned());
    words.extend(ARGUMENTS[made.arguments].iter().map(|word| (*word).to_owned()));
    words.join(" ")
}

fn condemned(verdicts: &Verdicts) -> BTreeSet<ContainerRef> {
    let is_condemned =
        |verdict: &Verdict| matches!(verdict, Verdict::Suspect { .. } | Verdict::Orphaned { .. });
    let of = verdicts.containers.iter().filter(|judgement| is_condemned(&judgement.verdict));
    of.map(|judgement| judgement.at.clone()).collect()
}

fn judged(world: &World, look: &Look) -> BTreeSet<ContainerRef> {
    let candidates = crate::judge::candidates(look, &world.config);
    let mut ledger = Ledger::default();
    ledger.begin(look, &world.config.confirm);
    condemned(&judge(look, &world.config, &candidates, &ledger).0)
}

/// Makes one answer say less.
fn weaker(answer: &Known<Answer>, how: usize) -> Option<Known<Answer>> {
    match how {
        0 => None,
        1 => Some(Err(unknown(Reason::Denied))),
        2 => Some(Err(unknown(Reason::Hung))),
        _ => {
            let mut answer = answer.clone();
            match &mut answer {
                Ok(Answer::Engine(EngineAnswer::Clients(clients))) if how == 3 => {
                    clients.census = Census::Partial(1);
                }
                Ok(Answer::Engine(EngineAnswer::Clients(clients))) => {
                    for client in &mut clients.clients {
                        client.argv = Err(unknown(Reason::Denied));
                        client.cidfile = None;
                    }
                }
                Ok(Answer::Engine(EngineAnswer::Stdin(channel))) if how == 3 => {
                    channel.unread = Err(unknown(Reason::Denied));
                }
                Ok(Answer::Engine(EngineAnswer::Stdin(channel))) => {
                    channel.far = Err(unknown(Reason::Denied));
                }
                Ok(Answer::Engine(EngineAnswer::Container(facts))) => {
                    facts.began = Err(unknown(Reason::Foreign));
                }
                _ => {}
            }
            Some(answer)
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, failure_persistence: None, ..ProptestConfig::default() })]

    /// Whoever has a live client of its own is kept, whatever cannot be read; so is what no client ever was attached to.
    #[test]
    fn a_live_client_is_never_taken_for_gone_a18_f9(
        all in prop::collection::vec(made(), 1..6),
        idle in prop::collection::vec(idle(), 0..4),
        dark in prop::collection::vec(any::<bool>(), 6),
        unread_argv in prop::collection::vec(prop::bool::weighted(0.1), 12),
        partial in prop::bool::weighted(0.1),
    ) {
        let mut world = world(&all, &idle);
        for (number, _) in (1..).zip(&all).zip(&dark).filter(|(_, dark)| **dark).map(|(pair, _)| pair) {
            world.stdins.insert(container(number), Err(unknown(Reason::Denied)));
        }
        world.census(|clients| {
            for (client, _) in clients.clients.iter_mut().zip(&unread_argv).filter(|(_, unread)| **unread) {
                client.argv = Err(unknown(Reason::Denied));
            }
            if partial {
                clients.census = Census::Partial(1);
            }
        });
        let (verdicts, _) = world.look_with(&mut Ledger::default());
        let condemned = condemned(&verdicts);
        for (number, made) in (1..).zip(&all) {
            let is_dead = made.maker == Maker::Dead || made.maker == Maker::Stuck;
            prop_assert!(is_dead || !condemned.contains(&at(number)), "{number}: {made:?}");
        }
    }

    /// Whatever is outside the match or the scope, or has a veto, is never touched.
    #[test]
    fn no_foreign_container_is_ever_condemned(
        all in prop::collection::vec(made(), 1..6),
        idle in prop::collection::vec(idle(), 0..3),
    ) {
        let world = world(&all, &idle);
        let (verdicts, _) = world.look_with(&mut Ledger::default());
        let condemned = condemned(&verdicts);
        for (number, made) in (1..).zip(&all) {
            prop_assert!(made.what == Trait::Plain || !condemned.contains(&at(number)), "{number}: {made:?}");
        }
    }

    /// Taking any answer away, or making it say less, condemns nobody more, but where another way to the same proof is
    /// left: input that cannot be read leaves the census.
    #[test]
    fn less_is_never_more(
        all in prop::collection::vec(made(), 1..5),
        idle in prop::collection::vec(idle(), 0..3),
    ) {
        let world = world(&all, &idle);
        let (look, _) = world.asked(&mut Ledger::default());
        let before = judged(&world, &look);
        let dead: BTreeSet<ContainerRef> = (1..)
            .zip(&all)
            .filter(|(_, made)| matches!(made.maker, Maker::Dead | Maker::Stuck) && made.what == Trait::Plain)
            .map(|(number, _)| at(number))
            .collect();
        for (question, answer) in &look.answers {
            for how in 0..5 {
                let mut less = look.clone();
                match weaker(answer, how) {
                    Some(answer) => drop(less.answers.insert(question.clone(), answer)),
                    None => drop(less.answers.remove(question)),
                }
                let after = judged(&world, &less);
                let is_input = matches!(
                    question,
                    Question::Engine(crate::model::question::EngineQuestion::Stdin(_))
                );
                let more: Vec<_> = after.difference(&before).collect();
                prop_assert!(more.is_empty() || is_input && after.is_subset(&dead), "{question:?} {how}: {more:?}");
            }
        }
    }
}
