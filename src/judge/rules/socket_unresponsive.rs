//! Finds servers that take a connection and answer nothing, time after time.
//!
//! # What it finds
//!
//! A server that was asked by the policy's `ping`, several times, some time apart and with growing patience, and never
//! said a word, while its tree moved no byte and used no processor time from one time to the next. It is asked last of
//! its line, only when everything else of the line holds and nothing else would keep the tree. A container is asked at a
//! TCP port that its engine publishes on this machine, and only where its processes are ours to see.
//!
//! # Why it is not enough alone
//!
//! A server may have a reason to be silent, and a request of the wrong kind is answered by nobody. It is a sign; with it
//! goes a proof, or signs of other kinds and `without-proof = true`.
//!
//! # When it is wrong
//!
//! Slow is not dead (B13): any answer, to the point or not, and a hang-up as well, is life, and so is whatever moved
//! between two attempts (B16). What says more of the asking than of the asked is unknown, and begins the row anew: a
//! full backlog (B14), a refusal, no descriptors left (B15), a server that is stopped, traced, running or waiting for a
//! disk (B39). A server that is known to be busy with one client for long must not be asked in a way that waits for its
//! turn. With `as = "connect"` nothing is said to it, so that one which waits to be asked would never answer: only who
//! was seen to greet or hang up before can fall silent. Connecting resets idle timers, so it is asked no more often than `every` until the answer decides; an answer
//! that keeps is good for as long, and one that ends is never an old one. A suspend or a late look begins the row anew.
//! What is published is led on by a proxy or by the kernel, and nobody knows which process of a container listens: so
//! there a hang-up is unknown as well as a refusal, and a silence counts only where the one connection arrived in the
//! container's own network and every process of it slept meanwhile.
//!
//! # Settings
//!
//! `attempts`: how many times it must have been silent, the look that decides included, at least 2; optional, 3.
//! `every`: how long to wait between two of them, at least "1s"; optional, "30s".
//! What is asked, and where, is the policy's `ping`: a `socket`, or a container's `port`. It is waited for as long as `probe-timeout`, twice as long each
//! time, and at most half a minute.

use std::time::Duration;

use bstr::ByteSlice as _;

use crate::config::policy::Talk;
use crate::judge::case::{Case, known};
use crate::judge::containers::case::ContainerCase;
use crate::judge::ledger::{Asked, Ever, Heard};
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::escape::escape;
use crate::model::id::ProcessId;
use crate::model::known::{Reason, Unknown};
use crate::model::look::Look;
use crate::model::ownership::descendants;
use crate::model::question::{Pinged, Response};
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

use super::span;

/// How often and how far apart it is asked, where a line does not say.
const ATTEMPTS: u64 = 3;
/// As above.
pub(in crate::judge) const EVERY: Duration = Duration::from_secs(30);

/// Nobody is waited for longer than this, unless the first wait is longer already.
const LONGEST: Duration = Duration::from_secs(30);

/// Finds servers that take a connection and answer nothing, time after time.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "socket-unresponsive",
        strength: Strength::Sign,
        summary: "it was asked several times, and never said a word nor got on meanwhile",
        doc: super::own_opening!("socket_unresponsive.rs"),
        settings: &[
            SettingSpec {
                name: "attempts",
                kind: SettingKind::Times(2),
                need: Need::Optional,
                doc: "how many times it must have been silent; 3 by default",
            },
            SettingSpec {
                name: "every",
                kind: SettingKind::Pause,
                need: Need::Optional,
                doc: "how long to wait between two attempts; \"30s\" by default",
            },
        ],
        bare: None,
        place: Place::ReapWhen,
        asks: Asks::ByPing,
        clients: Clients::Served,
        serves: Serves::Both(&["attempts", "every"]),
    },
    weigh: Some(weigh),
    weigh_container: Some(weigh_container),
};

fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let Some(ping) = &case.policy.ping else {
        return Err(Unknown::new(Reason::NotAsked, "whether it answers: its policy has no ping").into());
    };
    let socket = case.filled(&ping.socket)?;
    let there = case.listening(socket.as_bstr())?;
    let Some((of, listener)) = there.first() else {
        let what = format!("who takes connections at {}", escape(&socket));
        return Err(Unknown::new(Reason::NotAsked, what).into());
    };
    let row = Row {
        look: case.look,
        asked: case.memory.asked(case, *of, listener.name.as_bstr()),
        tree: case.tree,
        talk: &ping.talk,
        first: case.config.confirm.probe_timeout,
    };
    row.weigh(settings, |patience| case.pinged(*of, listener.name.as_bstr(), patience))
}

/// The same for what a container publishes. Who connects there meets a proxy of the engine, or the kernel.
fn weigh_container(case: &ContainerCase<'_>, settings: Settings<'_>) -> Found<Finding> {
    let Some(ping) = &case.policy.ping else {
        return Err(Unknown::new(Reason::NotAsked, "whether it answers: its policy has no ping").into());
    };
    let init = *known(&case.facts.init)?;
    let port = ping.port;
    let Some(address) = published(case, port) else {
        let what = format!("where its port {port}/tcp can be reached: it is not published on this machine");
        return Err(Unknown::new(Reason::NotAsked, what).into());
    };
    // Whoever shares its network with others, or has the host's, is told by nothing that arrives there.
    let end = format!(":{port}");
    let listens = |name: &String| name.starts_with("tcp ") && name.ends_with(&end);
    if !case.sockets()?.listeners.iter().any(listens) {
        let what = format!("what became of {port}/tcp: nobody listens there inside of it");
        return Err(Unknown::new(Reason::NotAsked, what).into());
    }
    let tree = descendants(&case.look.snapshot.table, init);
    let row = Row {
        look: case.look,
        asked: case.memory.asked_container(case, init, &address),
        tree: &tree,
        talk: &ping.talk,
        first: case.config.confirm.probe_timeout,
    };
    row.weigh(settings, |patience| case.pinged((&address, port), &tree, patience))
}

/// Returns where on this machine a TCP port of a container can be reached: at loopback where it is published at any
/// address. Whether another address is one of this machine is seen by whoever connects.
fn published(case: &ContainerCase<'_>, port: u16) -> Option<String> {
    let inside = format!("{port}/tcp");
    let leading = case.facts.published.iter().filter(|one| one.inside == inside && one.port != 0);
    let at = |address: &str, port: u16| match address {
        // Podman leaves out the address that means all.
        "" | "0.0.0.0" => format!("127.0.0.1:{port}"),
        "::" => format!("[::1]:{port}"),
        ip if ip.contains(':') => format!("[{ip}]:{port}"),
        ip => format!("{ip}:{port}"),
    };
    leading.map(|one| at(&one.address, one.port)).min()
}

/// A row of attempts at one server, and what the next one would be.
struct Row<'a> {
    look: &'a Look,
    asked: Option<&'a Asked>,
    tree: &'a [ProcessId],
    talk: &'a Talk,
    /// How long the first attempt waits.
    first: Duration,
}

impl Row<'_> {
    /// Weighs the row with one more attempt, where it is time for that.
    fn weigh<'p>(
        &self,
        settings: Settings<'_>,
        pinged: impl FnOnce(Duration) -> Found<&'p Pinged>,
    ) -> Found<Finding> {
        let Row { look, asked, tree, talk, first } = *self;
        let attempts = settings.number("attempts").unwrap_or(ATTEMPTS).max(2);
        let every = settings.duration("every").unwrap_or(EVERY);
        let now = look.snapshot.began.boot;
        let earlier = asked.map_or(0, |asked| asked.silent_times(tree, every));
        if let Some(asked) = asked
            && earlier < attempts
            && now.since(asked.last) < every
        {
            let ago = span(now.since(asked.last));
            return match &asked.heard {
                Heard::Life => Ok(Finding::no(format!("it answered {ago} ago"))),
                Heard::Nothing => Ok(Finding::no(format!(
                    "it did not answer {ago} ago; {earlier} of {attempts} times so far"
                ))),
                Heard::Untold => {
                    let what = format!("whether it answers ({ago} ago it could not be told)");
                    Err(Unknown::new(Reason::NotAsked, what).into())
                }
            };
        }
        let doublings = u32::try_from(earlier.min(attempts - 1)).unwrap_or(0);
        let patience = first.saturating_mul(1 << doublings.min(16)).min(LONGEST.max(first));
        let pinged = pinged(patience)?;
        match &pinged.response {
            Response::Answered(millis) => return Ok(Finding::no(format!("it answered in {millis} ms"))),
            Response::Otherwise(said) => {
                return Ok(Finding::no(format!(
                    "it said something, though not what was asked: {}",
                    escape(said)
                )));
            }
            Response::Silent(_) => {}
        }
        // To wait for a greeting of one that waits to be asked would make every such server a dead one.
        if *talk == Talk::Greeting && asked.is_none_or(|asked| asked.ever == Ever::Unheard) {
            let what = "whether it answers: nobody ever saw it say anything unasked, and";
            return Err(Unknown::new(Reason::NotAsked, what).into());
        }
        let before = *known(&pinged.before)?;
        known(&pinged.after)?;
        let Some(asked) = asked.filter(|_| earlier > 0) else {
            return Ok(Finding::no(format!("it did not answer, 1 of {attempts} times")));
        };
        if asked.after != Some(before) {
            return Ok(Finding::no("it does not answer, but it got on since it was asked before"));
        }
        let times = asked.silent_times_with(tree, every, now);
        if times < attempts {
            return Ok(Finding::no(format!("it did not answer, {times} of {attempts} times")));
        }
        let over = span(now.since(asked.since()));
        Ok(Finding::yes(format!(
            "it did not answer, {times} times over {over}, and did nothing else meanwhile"
        )))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::policy::{Ping, Setting, Talk};
    use crate::judge::Ledger;
    use crate::judge::rules::support::{self, ROOT, Says, Scene, id, listener, parent, verbatim};
    use crate::model::moment::Moment;
    use crate::model::question::{Answer, Call, Family, Listener, PathAnswer, Pinged, Progress, Question};

    const SOCKET: &str = "/tmp/s.sock";

    /// Something that an attempt may come to, with the tree's counters around it.
    fn pinged(response: Response, before: u64, after: u64) -> Pinged {
        let progress = |moved| Ok(Progress { moved, cpu: Duration::from_secs(1) });
        Pinged { response, before: progress(before), after: progress(after) }
    }

    fn silent() -> Pinged {
        pinged(Response::Silent(2000), 5, 5)
    }

    fn asked(patience: u64) -> Question {
        support::asked(SOCKET, patience)
    }

    fn ping() -> Ping {
        Ping { socket: verbatim(SOCKET), talk: Talk::Mcp }
    }

    /// The root listens, so many seconds after the first attempt.
    fn at(seconds: u64) -> Scene {
        Scene::orphan()
            .sockets(ROOT, vec![listener(Family::Unix, SOCKET)], vec![])
            .pinging(&RULE, &SETTINGS, ping())
            .now(Moment(0).plus(Duration::from_hours(2) + Duration::from_secs(seconds)))
    }

    const SETTINGS: [(&str, Setting); 0] = [];

    /// What is remembered after these attempts, each at its second.
    fn after(attempts: &[(u64, Result<Pinged, Reason>)]) -> Ledger {
        let mut ledger = Ledger::default();
        for (second, what) in attempts {
            let mut scene = at(*second);
            for patience in [2000, 4000, 8000] {
                scene = match what {
                    Ok(pinged) => scene.answer(asked(patience), Answer::Ping(pinged.clone())),
                    Err(reason) => scene.refused(asked(patience), *reason),
                };
            }
            scene.remember(&mut ledger);
        }
        ledger
    }

    fn silences(seconds: &[u64]) -> Ledger {
        after(&seconds.iter().map(|second| (*second, Ok(silent()))).collect::<Vec<_>>())
    }

    #[track_caller]
    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[], expected);
    }

    #[track_caller]
    fn asks(scene: &Scene, patience: u64) {
        check(scene, &Says::Asks(vec![asked(patience)]));
    }

    #[test]
    fn three_silences_with_growing_patience_half_a_minute_apart() {
        asks(&at(0), 2000);
        let first = at(0).answer(asked(2000), Answer::Ping(silent()));
        check(&first, &Says::No("it did not answer, 1 of 3 times"));
        let second = at(30).remembering(&silences(&[0]));
        asks(&second, 4000);
        check(&second.answer(asked(4000), Answer::Ping(silent())), &Says::No("2 of 3 times"));
        let third = at(60).remembering(&silences(&[0, 30]));
        asks(&third, 8000);
        let silent = third.answer(asked(8000), Answer::Ping(silent()));
        check(&silent, &Says::Yes("it did not answer, 3 times over 1m"));
    }

    #[test]
    fn nobody_is_asked_again_too_soon_unless_it_decides() {
        check(&at(29).remembering(&silences(&[0])), &Says::No("1 of 3 times so far"));
        check(&at(59).remembering(&silences(&[0, 30])), &Says::No("2 of 3 times so far"));
        // A whole row is confirmed by a fresh silence at each look, and never by memory alone.
        let whole = at(61).remembering(&silences(&[0, 30, 60]));
        asks(&whole, 8000);
        check(&whole.answer(asked(8000), Answer::Ping(silent())), &Says::Yes("3 times"));
        // What only confirmed does not make the row longer.
        let four = [("attempts", Setting::Number(4))];
        let confirmed = at(62).remembering(&silences(&[0, 30, 60, 61]));
        confirmed.check(&RULE, &four, &Says::No("3 of 4 times so far"));
    }

    #[test]
    fn an_answer_that_keeps_is_good_for_a_while_b13() {
        let answered = || Ok(pinged(Response::Answered(1900), 5, 9));
        let live = at(0).answer(asked(2000), Answer::Ping(answered().unwrap()));
        check(&live, &Says::No("it answered in 1900 ms"));
        check(&at(29).remembering(&after(&[(0, answered())])), &Says::No("it answered 29s ago"));
        asks(&at(30).remembering(&after(&[(0, answered())])), 2000);
        let between = after(&[(0, Ok(silent())), (30, answered()), (60, Ok(silent()))]);
        let fourth = at(90).remembering(&between).answer(asked(4000), Answer::Ping(silent()));
        check(&fourth, &Says::No("2 of 3 times"));
    }

    #[test]
    fn another_answer_and_a_hang_up_are_life() {
        let other = || pinged(Response::Otherwise("go\x1b away".into()), 5, 5);
        check(&at(0).answer(asked(2000), Answer::Ping(other())), &Says::No("it said something"));
        let between = after(&[(0, Ok(silent())), (30, Ok(silent())), (60, Ok(other()))]);
        asks(&at(90).remembering(&between), 2000);
    }

    #[test]
    fn what_tells_nothing_begins_the_row_anew_b14_b15_b39() {
        for reason in [Reason::Denied, Reason::Starved, Reason::Hung, Reason::Unsupported, Reason::Failed(11)]
        {
            check(&at(0).refused(asked(2000), reason), &Says::Unknown("it"));
            let between = after(&[(0, Ok(silent())), (30, Err(reason)), (60, Ok(silent()))]);
            let fourth = at(90).remembering(&between).answer(asked(4000), Answer::Ping(silent()));
            check(&fourth, &Says::No("2 of 3 times"));
            let soon = at(31).remembering(&after(&[(0, Ok(silent())), (30, Err(reason))]));
            check(&soon, &Says::Unknown("whether it answers"));
        }
    }

    #[test]
    fn whoever_gets_on_between_two_attempts_lives_b16() {
        let third = at(60).remembering(&silences(&[0, 30]));
        let moved = pinged(Response::Silent(8000), 6, 6);
        check(&third.clone().answer(asked(8000), Answer::Ping(moved)), &Says::No("it got on"));
        let mut computed = silent();
        computed.before = Ok(Progress { moved: 5, cpu: Duration::from_millis(1001) });
        check(&third.answer(asked(8000), Answer::Ping(computed)), &Says::No("it got on"));
        // And so it does when only the ledger was there to see it.
        let between = [(0, Ok(silent())), (30, Ok(pinged(Response::Silent(1), 6, 6)))];
        let fourth = at(60).remembering(&after(&between));
        let silent = fourth.answer(asked(4000), Answer::Ping(pinged(Response::Silent(1), 6, 6)));
        check(&silent, &Says::No("2 of 3 times"));
    }

    #[test]
    fn progress_that_cannot_be_read_is_unknown() {
        let unread = || Err(Unknown::new(Reason::Denied, "its counters"));
        for (before, after) in [(unread(), silent().after), (silent().before, unread())] {
            let pinged = Pinged { response: Response::Silent(1), before, after };
            let third = at(60).remembering(&silences(&[0, 30]));
            check(&third.answer(asked(8000), Answer::Ping(pinged)), &Says::Unknown("its counters"));
        }
    }

    #[test]
    fn another_tree_another_socket_or_another_ping_begins_anew() {
        let memory = silences(&[0, 30]);
        let mut tree = asked(2000);
        if let Question::Ping { tree, .. } = &mut tree {
            tree.push(id(51));
        }
        check(&at(60).process(51, ROOT).remembering(&memory), &Says::Asks(vec![tree]));
        let other = Ping { talk: Talk::Greeting, ..ping() };
        let mut greeting = asked(2000);
        if let Question::Ping { call, .. } = &mut greeting {
            *call = Call::Greeting;
        }
        let scene = at(60).pinging(&RULE, &SETTINGS, other).remembering(&memory);
        check(&scene, &Says::Asks(vec![greeting]));
        let longer = [("every", Setting::Duration(Duration::from_secs(40)))];
        asks(&at(60).pinging(&RULE, &longer, ping()).remembering(&memory), 2000);
    }

    #[test]
    fn a_row_goes_on_neither_over_another_tree_nor_over_another_ping() {
        // A member came after the first silence, and the counters are the same by chance.
        let larger = |mut question: Question| {
            if let Question::Ping { tree, .. } = &mut question {
                tree.push(id(51));
            }
            question
        };
        let with_member = |second| at(second).process(51, ROOT);
        let mut ledger = silences(&[0]);
        with_member(30).answer(larger(asked(2000)), Answer::Ping(silent())).remember(&mut ledger);
        let third = with_member(60).answer(larger(asked(4000)), Answer::Ping(silent())).remembering(&ledger);
        check(&third, &Says::No("2 of 3 times"));
        // The words were changed after it.
        let lines = || Call::Lines { send: "x".into(), expect: "y".into() };
        let other = || Ping { talk: Talk::Lines { send: verbatim("x"), expect: verbatim("y") }, ..ping() };
        let spoken = |mut question: Question| {
            if let Question::Ping { call, .. } = &mut question {
                *call = lines();
            }
            question
        };
        let mut ledger = silences(&[0]);
        let second = at(30).pinging(&RULE, &SETTINGS, other());
        second.answer(spoken(asked(2000)), Answer::Ping(silent())).remember(&mut ledger);
        let third = at(60).pinging(&RULE, &SETTINGS, other()).remembering(&ledger);
        check(&third.answer(spoken(asked(4000)), Answer::Ping(silent())), &Says::No("2 of 3 times"));
    }

    #[test]
    fn the_row_begins_anew_after_a_suspend_and_is_forgotten_with_its_process_f13() {
        let mut slept = silences(&[0, 30]);
        let scene = at(60);
        let mut look = scene.look();
        look.snapshot.began.monotonic -= 10_000_000_000;
        scene.begin_with(&mut slept, &look);
        asks(&at(60).remembering(&slept), 2000);
        let mut gone = silences(&[0, 30]);
        let scene = at(40).dead(ROOT);
        scene.begin_with(&mut gone, &scene.look());
        asks(&at(60).remembering(&gone), 2000);
        let mut forgotten = silences(&[0, 30]);
        forgotten.forget(id(ROOT));
        asks(&at(60).remembering(&forgotten), 2000);
        // A look that had nothing to say of the tree breaks the row too.
        let mut unjudged = silences(&[0, 30]);
        at(40).remember_nothing(&mut unjudged);
        asks(&at(60).remembering(&unjudged), 2000);
    }

    #[test]
    fn waiting_has_an_end() {
        let many = silences(&[0, 30, 60, 90, 120, 150]);
        let scene = at(180).remembering(&many);
        let mut ten = asked(30_000);
        scene.check(&RULE, &[("attempts", Setting::Number(10))], &Says::Asks(vec![ten.clone()]));
        if let Question::Ping { patience, .. } = &mut ten {
            *patience = 8000;
        }
        check(&scene, &Says::Asks(vec![ten]));
    }

    #[test]
    fn only_who_greeted_once_can_fall_silent_b13() {
        let greeting = || Ping { talk: Talk::Greeting, ..ping() };
        let question = |patience| {
            let mut question = asked(patience);
            if let Question::Ping { call, .. } = &mut question {
                *call = Call::Greeting;
            }
            question
        };
        let scene = |second| at(second).pinging(&RULE, &SETTINGS, greeting());
        let silent_at = |second, patience| scene(second).answer(question(patience), Answer::Ping(silent()));
        let fourth = |first: Pinged| {
            let mut ledger = Ledger::default();
            scene(0).answer(question(2000), Answer::Ping(first)).remember(&mut ledger);
            for (second, patience) in [(30, 2000), (60, 4000)] {
                // The patience of a server that was silent before is the next one.
                let longer =
                    silent_at(second, patience).answer(question(2 * patience), Answer::Ping(silent()));
                longer.remembering(&ledger.clone()).remember(&mut ledger);
            }
            silent_at(90, 8000).remembering(&ledger)
        };
        check(&fourth(silent()), &Says::Unknown("nobody ever saw it say anything unasked"));
        let greeted = pinged(Response::Answered(1), 5, 5);
        check(&fourth(greeted), &Says::Yes("it did not answer, 3 times"));
        check(&silent_at(0, 2000), &Says::Unknown("nobody ever saw it say anything unasked"));
    }

    #[test]
    fn nobody_is_asked_who_does_not_listen_there_f7() {
        let gone = PathAnswer::Absent { parent: parent("/tmp").into() };
        let elsewhere = at(0).sockets(ROOT, vec![], vec![]).path(SOCKET, gone);
        check(&elsewhere, &Says::Unknown("no member listens there"));
        let datagrams = elsewhere.sockets(
            ROOT,
            vec![Listener { pending: 0, ..listener(Family::UnixDatagram, SOCKET) }],
            vec![],
        );
        check(&datagrams, &Says::Unknown("no member listens there"));
        let refused = at(0).refused(Question::Sockets(id(ROOT)), Reason::Denied);
        check(&refused, &Says::Unknown("refused"));
        check(&Scene::orphan(), &Says::Unknown("its policy has no ping"));
    }
}
