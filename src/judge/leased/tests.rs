//! Each gate of leases, alone: the twin without it goes.

use std::time::Duration;

use super::*;
use crate::config::policy::{Condition, Config, Line, Match};
use crate::judge::ledger::{Begun, Rearm};
use crate::judge::rules::lease_expired::RULE;
use crate::judge::rules::support::{ROOT, Says, Scene, config, file, id, lease, listener, pid, pipe, plain};
use crate::judge::{Candidates, Notes};
use crate::model::id::{BootId, Start};
use crate::model::lease::{Bound, Holder, Leftovers, Release, Run};
use crate::model::look::Gap;
use crate::model::moment::Moment;
use crate::model::question::{ChannelKind, Family, FarEnd, Owner};
use crate::model::rule::Strength;
use crate::model::verdict::{Judgement, Mode};

const HOUR: u64 = 3_600_000_000_000;

/// The root carries the cookie of a lease, whose holder is process 40, which is gone.
fn orphan(change: impl FnOnce(&mut Lease)) -> Scene {
    let mut gw = lease("gw-1");
    change(&mut gw);
    Scene::orphan().cookie(ROOT, "gw-1").lease(gw)
}

/// The same, but process 40 is alive and the root's parent.
fn owned(change: impl FnOnce(&mut Lease)) -> Scene {
    orphan(change).process(40, 1).row(ROOT, |row| row.ppid = 40)
}

fn released(lease: &mut Lease) {
    lease.release = Release::Released(None);
}

fn held(change: impl FnOnce(&mut Holder)) -> impl FnOnce(&mut Lease) {
    |lease| change(lease.holder.as_mut().unwrap())
}

fn bare(holder: &mut Holder) {
    *holder =
        Holder { pid: holder.pid, start: None, boot: None, pidns: None, timens: None, host: None, age: None };
}

#[track_caller]
fn check(scene: &Scene, expected: &Says) {
    scene.check(&RULE, &[], expected);
}

fn hours(hours: u64) -> Moment {
    Moment(hours * HOUR)
}

/// What a ledger remembers after looks at these scenes, each at this moment.
fn looked(looks: &[(&Scene, Moment)]) -> Ledger {
    let mut ledger = Ledger::default();
    for (scene, at) in looks {
        let look = (*scene).clone().now(*at).look();
        ledger.begin(&look, &config(&[]).confirm);
        ledger.remember(&look, &Candidates::default(), &Verdicts::default(), &Notes::default());
    }
    ledger
}

#[test]
fn a_dead_holder_ends_its_lease_and_a_living_one_does_not() {
    check(&orphan(|_| {}), &Says::Yes("process 40, which held its lease gw-1, is gone"));
    check(&owned(|_| {}), &Says::No("process 40 holds its lease gw-1"));
    // Another program under the number: it executed one. Identity of an owner is number and start alone.
    let other = owned(|_| {}).facts(40, |facts| {
        facts.exe.as_mut().unwrap().file = file(1, 1);
    });
    check(&other.user(40, 0), &Says::No("process 40 holds its lease"));
    check(&orphan(|_| {}).process(40, 1).dead(40), &Says::Yes("is gone"));
    check(
        &orphan(|_| {}).process(40, 1).dead(40).row(40, |row| row.threads = 2),
        &Says::No("holds its lease"),
    );
}

#[test]
fn a_number_that_somebody_took_over_does_not_hide_the_holders_death() {
    let recycled = orphan(|_| {}).process(40, 1).row(40, |row| row.id.start = Start(9000));
    check(&recycled, &Says::Yes("process 40, which held its lease gw-1, is gone"));
}

#[test]
fn a_holder_that_nobody_saw_alive_for_long_was_perhaps_an_errand_f5() {
    let young = held(|holder| holder.age = Some(Duration::from_secs(59)));
    check(&orphan(young), &Says::Unknown("more than an errand"));
    check(&orphan(held(|holder| holder.age = None)), &Says::Unknown("more than an errand"));
    check(&orphan(held(|holder| holder.age = Some(Duration::from_mins(1)))), &Says::Yes("is gone"));
    // A look of ours saw it alive at that age.
    let gone = orphan(held(|holder| holder.age = None));
    let alive = owned(held(|holder| holder.age = None));
    let memory = looked(&[(&alive, hours(1))]);
    check(&gone.clone().remembering(&memory), &Says::Yes("is gone"));
    let memory = looked(&[(&alive.row(40, |row| row.began = Moment(HOUR - 1_000_000_000)), hours(1))]);
    check(&gone.remembering(&memory), &Says::Unknown("more than an errand"));
}

#[test]
fn a_holder_of_another_boot_host_or_namespace_is_unknown_f5() {
    check(
        &orphan(held(|holder| holder.boot = Some(BootId("other".into())))),
        &Says::Unknown("of another boot"),
    );
    let named = held(|holder| (holder.boot, holder.host) = (None, Some("elsewhere".into())));
    check(&orphan(named), &Says::Unknown("of a host by name"));
    check(&orphan(held(|holder| holder.pidns = Some(2))), &Says::Unknown("of another pid namespace"));
    check(&orphan(held(|holder| holder.timens = Some(2))), &Says::Unknown("of another time namespace"));
    // A stamp that does not say of which boot or namespace it is proves nothing.
    for change in [
        (|holder: &mut Holder| holder.boot = None) as fn(&mut Holder),
        |holder| holder.pidns = None,
        |holder| {
            holder.timens = None;
        },
    ] {
        check(&orphan(held(change)), &Says::Unknown("who process 40 was while it lived"));
    }
}

#[test]
fn a_number_that_may_be_hidden_is_asked_for_f5() {
    let question = Question::Owner { of: id(ROOT), pid: pid(40) };
    for source in [Gap::HIDDEN, Gap::UNREAD] {
        let hidden = orphan(|_| {}).gap(source);
        check(&hidden, &Says::Asks(vec![question.clone()]));
        check(&hidden.clone().owner(40, Owner::Absent), &Says::Yes("is gone"));
        check(&hidden.clone().owner(40, Owner::Alive(id(40))), &Says::No("holds its lease"));
        check(&hidden.clone().refused(question.clone(), Reason::Denied), &Says::Unknown("refused"));
        let memory = Ledger::default();
        let gw = lease("gw-1");
        let state = state(&gw, &hidden.look(), &memory, &config(&[]).confirm);
        assert!(matches!(state, State::Unknown(_)), "nobody was asked: {state:?}");
    }
}

#[test]
fn a_bare_number_means_whom_a_look_saw_alive_and_nobody_else() {
    let gone = orphan(held(bare));
    check(&gone, &Says::Unknown("who process 40 was while it lived"));
    let alive = owned(held(bare));
    check(&alive, &Says::No("process 40 holds its lease"));
    let memory = looked(&[(&alive, hours(1))]);
    check(&gone.clone().remembering(&memory), &Says::Yes("process 40, which held its lease gw-1, is gone"));
    // The number passed on: whom the look saw is gone.
    let recycled = gone.clone().process(40, 1).row(40, |row| row.id.start = Start(9000));
    check(&recycled.remembering(&memory), &Says::Yes("is gone"));
    // One that began after the file is not whom it means.
    let late = |scene: Scene| scene.row(40, |row| row.began = Moment(HOUR + 3_000_000_000));
    check(&late(alive.clone()), &Says::Unknown("began after the lease was written"));
    let memory = looked(&[(&late(alive.clone()), hours(2))]);
    check(&gone.clone().remembering(&memory), &Says::Unknown("who process 40 was"));
    // Within two seconds the two clocks may differ.
    let memory =
        looked(&[(&alive.clone().row(40, |row| row.began = Moment(HOUR + 1_000_000_000)), hours(2))]);
    check(&gone.clone().remembering(&memory), &Says::Yes("is gone"));
    // Somebody else's process is not whom it means either.
    let memory = looked(&[(&alive.user(40, 0), hours(2))]);
    check(&gone.remembering(&memory), &Says::Unknown("who process 40 was"));
}

#[test]
fn a_file_that_was_replaced_names_its_holder_anew() {
    let other = |start| move |row: &mut Row| row.id.start = Start(start);
    let alive = owned(held(bare));
    let gone = orphan(|lease| {
        held(bare)(lease);
        lease.file.file = file(8, 901);
    });
    let memory = looked(&[(&alive, hours(1))]);
    check(&gone.clone().remembering(&memory), &Says::Unknown("who process 40 was"));
    let again = gone.clone().process(40, 1).row(40, other(7));
    let memory = looked(&[(&alive, hours(1)), (&again, hours(1).plus(Duration::from_secs(30)))]);
    check(&again.remembering(&memory), &Says::No("process 40 holds its lease"));
    // The same file, and another process behind the number: who was seen first is meant.
    let taken = alive.clone().row(40, other(7)).row(ROOT, |row| row.ppid = 1);
    let memory = looked(&[(&alive, hours(1)), (&taken, hours(1).plus(Duration::from_secs(30)))]);
    check(&taken.remembering(&memory), &Says::Yes("is gone"));
}

#[test]
fn a_bare_number_that_was_written_anew_in_place_means_whoever_bears_it_since() {
    let alive = owned(held(bare));
    let memory = looked(&[(&alive, hours(1))]);
    let again = |modified: i64| {
        let touched = move |lease: &mut Lease| {
            held(bare)(lease);
            lease.file.modified += modified;
        };
        owned(touched).row(40, |row| row.id.start = Start(9000))
    };
    // In a container a gateway that was started anew has its old number, and may write into its old file.
    check(&again(1).remembering(&memory), &Says::Unknown("or wrote it since"));
    let memory = looked(&[(&alive, hours(1)), (&again(1), hours(1).plus(MINUTE))]);
    check(&again(1).remembering(&memory), &Says::No("process 40 holds its lease"));
    // Nobody wrote since: whom the look saw is gone.
    let memory = looked(&[(&alive, hours(1)), (&again(0), hours(1).plus(MINUTE))]);
    check(&again(0).remembering(&memory), &Says::Yes("is gone"));
    // And whoever began after the last writing is not meant.
    let late = again(1).row(40, |row| row.began = Moment(HOUR + 3_000_000_000));
    let memory = looked(&[(&alive, hours(1)), (&late, hours(1).plus(MINUTE))]);
    check(&late.remembering(&memory), &Says::Yes("is gone"));
}

#[test]
fn a_release_ends_a_lease_at_once() {
    check(&owned(released), &Says::Yes("its lease gw-1 was released"));
    let why = owned(|lease| lease.release = Release::Released(Some("session over".into())));
    check(&why, &Says::Yes("was released: session over"));
}

fn timed(lease: &mut Lease) {
    lease.bound = Bound::Ttl(Duration::from_mins(5));
}

const MINUTE: Duration = Duration::from_mins(1);

#[test]
fn time_ends_a_lease_only_where_looks_saw_it_unrenewed_for_all_of_it_m1() {
    let scene = owned(timed);
    check(&scene, &Says::No("may be renewed within 5m"));
    let memory = looked(&[(&scene, hours(1))]);
    let at = |minutes: u32| scene.clone().remembering(&memory).now(hours(1).plus(MINUTE * minutes));
    check(&at(4), &Says::No("was not renewed for 4m of its 5m"));
    check(&at(5), &Says::Yes("ran out: nobody renewed it for 5m"));
    let cause = at(5).case(weigh).unwrap().cause;
    assert_eq!(cause, Some(Cause::Registry("leases".into())), "many may lapse at once");
    // Touched, or written anew: the watch is of another one.
    let touched = owned(|lease| {
        timed(lease);
        lease.file.modified += 1;
    });
    check(&touched.remembering(&memory).now(hours(2)), &Says::No("may be renewed"));
    let replaced = owned(|lease| {
        timed(lease);
        lease.file.file = file(8, 901);
    });
    check(&replaced.remembering(&memory).now(hours(2)), &Says::No("may be renewed"));
}

#[test]
fn a_phantom_that_renews_does_not_keep_a_dead_holders_lease() {
    let scene = orphan(timed);
    check(&scene, &Says::Yes("process 40, which held its lease gw-1, is gone"));
}

/// What happens to a look between two of them.
type Disturb = Box<dyn Fn(&mut Look)>;

#[test]
fn a_suspend_a_step_and_oversleeping_begin_the_time_of_every_lease_anew_b17_b19_f13() {
    let scene = owned(timed);
    let step = |millis: i64| {
        move |look: &mut Look| {
            look.snapshot.began.wall = look.snapshot.began.wall.saturating_add_signed(millis);
        }
    };
    let disturbances: [(&str, Duration, Disturb, Rearm); 4] = [
        ("forward", MINUTE, Box::new(step(3_600_000)), Rearm::ClockStep),
        ("back", MINUTE, Box::new(step(-1_800_000)), Rearm::ClockStep),
        (
            "suspend",
            MINUTE,
            Box::new(|look: &mut Look| look.snapshot.began.monotonic -= 30_000_000_000),
            Rearm::Suspend,
        ),
        ("overslept", MINUTE * 30, Box::new(|_: &mut Look| {}), Rearm::Overslept),
    ];
    let confirm = config(&[]).confirm;
    for (what, gap, disturb, rearm) in disturbances {
        let start = hours(1);
        let mut ledger = looked(&[(&scene, start), (&scene, start.plus(MINUTE))]);
        let mut look = scene.clone().now(start.plus(MINUTE + gap)).look();
        disturb(&mut look);
        assert_eq!(ledger.begin(&look, &confirm), Begun::Rearmed(rearm), "{what}");
        let gw = &look.snapshot.leases.list[0];
        assert_eq!(ledger.unrenewed_since(gw), None, "{what}");
        let state = state(gw, &look, &ledger, &confirm);
        assert!(matches!(state, State::Held { .. }), "{what}: {state:?}");
        assert!(ledger.pin(gw).is_some(), "{what}: who was seen alive was seen");
        ledger.remember(&look, &Candidates::default(), &Verdicts::default(), &Notes::default());
        assert_eq!(ledger.unrenewed_since(gw), Some(look.snapshot.began.boot), "{what}");
    }
}

#[test]
fn another_boot_forgets_and_a_missing_directory_does_not() {
    let scene = owned(timed);
    let mut ledger = looked(&[(&scene, hours(1))]);
    let gw = lease("gw-1");
    let look_at = |scene: Scene, ledger: &mut Ledger| {
        let look = scene.now(hours(1).plus(MINUTE)).look();
        ledger.begin(&look, &config(&[]).confirm);
        ledger.remember(&look, &Candidates::default(), &Verdicts::default(), &Notes::default());
    };
    look_at(Scene::orphan().gap("leases of user 1000"), &mut ledger);
    assert!(ledger.pin(&gw).is_some(), "the directory could not be read");
    look_at(Scene::orphan(), &mut ledger);
    assert_eq!(ledger.pin(&gw), None, "the lease is gone");
}

#[test]
fn whose_file_it_is_not_it_does_not_cover() {
    let foreign = |lease: &mut Lease| {
        released(lease);
        lease.file.owner = crate::model::id::Uid(1001);
        lease.covers.processes = vec![id(ROOT)];
    };
    check(&orphan(foreign), &Says::No("no lease covers it"));
    assert_eq!(
        covered(&orphan(foreign).look().snapshot.leases.list[0], &orphan(foreign).look()),
        Covered::default()
    );
}

#[test]
fn whoever_has_two_leases_goes_only_when_both_are_over() {
    let named = |change: fn(&mut Lease)| {
        let mut second = lease("gw-2");
        (second.covers.env, second.covers.processes) = (None, vec![id(ROOT)]);
        second.file.file = file(8, 902);
        change(&mut second);
        owned(released).lease(second)
    };
    check(&named(|_| {}), &Says::No("process 40 holds its lease gw-2"));
    check(&named(released), &Says::Yes("gw-1 was released, and its lease gw-2 was released"));
    check(&named(|lease| held(|holder| holder.pidns = Some(2))(lease)), &Says::Unknown("namespace"));
    // The second covers somebody above it.
    let mut above = lease("gw-2");
    (above.covers.env, above.covers.processes) = (None, vec![id(45)]);
    let scene = owned(released).process(45, 40).row(ROOT, |row| row.ppid = 45).lease(above);
    check(&scene, &Says::No("process 40 holds its lease gw-2"));
}

#[test]
fn a_carrier_with_a_living_parent_outside_is_nobody_b07_b43_f4() {
    // The worker of a build daemon that was started elsewhere.
    let stranger = orphan(released).process(45, 1).row(ROOT, |row| row.ppid = 45);
    check(&stranger, &Says::No("its parent 45 is alive, and neither the lease's holder nor below it"));
    let spared = covered(&stranger.look().snapshot.leases.list[0], &stranger.look());
    assert_eq!((spared.roots, spared.spared.len()), (vec![], 1));
    // Below the holder it is an ordinary descendant, but not by way of a shared daemon.
    let below = owned(released).process(45, 40).row(ROOT, |row| row.ppid = 45);
    check(&below, &Says::Yes("was released"));
    let daemon = below.clone().row(45, |row| row.comm[..5].copy_from_slice(b"adb\0\0"));
    check(&daemon, &Says::No("its parent 45 is alive"));
    let other_start = held(|holder| holder.start = Some(Start(1)));
    let scene = owned(|lease| {
        released(lease);
        other_start(lease);
    });
    check(&scene, &Says::No("its parent 40 is alive"));
    let hidden = orphan(released).row(ROOT, |row| row.ppid = 44);
    check(&hidden, &Says::No("its parent 44 cannot be seen"));
}

#[test]
fn panes_and_daemons_that_carry_the_cookie_are_nobody_b43_f4() {
    let pane = orphan(released).row(ROOT, |row| row.tty = 5);
    check(&pane, &Says::No("has a terminal"));
    let daemon = orphan(released).sockets(ROOT, vec![listener(Family::Unix, "/run/x")], vec![]);
    check(&daemon, &Says::No("listens on /run/x"));
    let question = Question::Sockets(id(ROOT));
    check(&orphan(released).unasked(&question), &Says::Asks(vec![question.clone()]));
    check(&orphan(released).refused(question, Reason::Denied), &Says::No("is unknown"));
    // In somebody else's session it is no pane and no daemon.
    let inner = orphan(released).row(ROOT, |row| (row.sid, row.tty) = (40, 5));
    check(&inner, &Says::Yes("was released"));
    // A multiplexer's server, and what is below it.
    let server = |scene: Scene| scene.row(ROOT, |row| row.comm[..12].copy_from_slice(b"tmux: server"));
    check(&server(orphan(released)), &Says::No("serves more than one owner"));
    let pane = orphan(released).process(45, 1).cookie(45, "gw-1");
    let pane = pane.row(ROOT, |row| row.ppid = 45).row(45, |row| row.comm[..4].copy_from_slice(b"tmux"));
    check(&pane, &Says::No("no lease covers it"));
    // Named by identity it is meant.
    let named = |scene: Scene| {
        let mut gw = lease("gw-2");
        released(&mut gw);
        gw.covers.processes = vec![id(ROOT)];
        scene.lease(gw)
    };
    check(
        &named(Scene::orphan().sockets(ROOT, vec![listener(Family::Unix, "/run/x")], vec![])),
        &Says::Yes("gw-2"),
    );
}

#[test]
fn a_number_and_stamp_of_an_earlier_boot_are_not_meant() {
    let named = |change: fn(&mut Lease)| {
        Scene::orphan().lease({
            let mut gw = lease("gw-1");
            released(&mut gw);
            gw.covers.processes = vec![id(ROOT)];
            change(&mut gw);
            gw
        })
    };
    check(&named(|_| {}), &Says::Yes("was released"));
    check(
        &named(|lease| held(|holder| holder.boot = Some(BootId("x".into())))(lease)),
        &Says::No("of another boot"),
    );
    check(&named(|lease| lease.holder = None), &Says::Yes("was released"));
    let old = |lease: &mut Lease| (lease.holder, lease.file.modified) = (None, -1);
    check(&named(old), &Says::No("of another boot"));
}

#[test]
fn facts_that_changed_since_the_scan_cover_nobody() {
    let look = |scene: &Scene| {
        let look = scene.look();
        let row = *look.snapshot.table.at(pid(ROOT)).unwrap();
        let facts = look.facts(id(ROOT)).unwrap().unwrap().clone();
        may_be_root(&look, &row, &facts)
    };
    let scene = orphan(released);
    assert!(look(&scene));
    let mut gw = lease("gw-1");
    gw.covers.processes = vec![id(ROOT)];
    let named = Scene::orphan().lease(gw);
    for (change, why) in [
        (
            (|facts: &mut Facts| {
                facts.env.as_mut().unwrap().insert(COOKIE.into(), "gw-2".into());
            }) as fn(&mut Facts),
            "it carries another",
        ),
        (|facts| facts.env = Err(Unknown::new(Reason::Denied, "env")), "it cannot be read"),
    ] {
        assert!(!look(&scene.clone().facts(ROOT, change)), "{why}");
        assert!(look(&named.clone().facts(ROOT, change)), "named by identity: {why}");
    }
    for scene in [scene, named] {
        assert!(!look(&scene.facts(ROOT, |facts| facts.uid = Ok(crate::model::id::Uid(0)))));
    }
    let unread = Scene::orphan().lease(lease("gw-1")).unread_cookie(ROOT);
    assert!(!look(&unread));
}

fn run(channel: RunChannel, leftovers: Leftovers) -> impl FnOnce(&mut Lease) {
    move |lease| {
        lease.run = Some(Run { watcher: id(45), command: Some(id(ROOT)), leftovers, channel, cgroup: None });
    }
}

#[test]
fn a_living_watcher_ends_its_tree_itself() {
    // Its holder is gone, which would be enough without the watcher.
    let watched = orphan(run(RunChannel::None, Leftovers::Reap));
    let watched = watched.process(45, 1).row(ROOT, |row| row.ppid = 45);
    check(&watched, &Says::No("its reapd run 45 watches over it"));
    // What the watcher itself started is its own hand.
    check(&watched.clone().process(98, 45).own(98), &Says::Yes("is gone"));
    check(&watched.clone().dead(45), &Says::Yes("is gone"));
    check(&watched.row(45, |row| row.id.start = Start(1)), &Says::Yes("is gone"));
    // Released it is over for everybody: one reaper at a time has its turn.
    let released = orphan(|lease| {
        run(RunChannel::None, Leftovers::Reap)(lease);
        released(lease);
    });
    check(&released.process(45, 1).row(ROOT, |row| row.ppid = 45), &Says::Yes("was released"));
}

#[test]
fn a_living_watchers_own_streams_say_whether_anybody_can_speak_to_its_command() {
    let on = |read, write| {
        let scene = orphan(run(RunChannel::Stdio, Leftovers::Reap)).process(45, 1).process(98, 45).own(98);
        let scene = scene.row(ROOT, |row| row.ppid = 45).fd(ROOT, 0, plain(ChannelKind::Null));
        scene.fd(45, 0, pipe(read)).fd(45, 1, pipe(write))
    };
    let gone = on(FarEnd::Gone, FarEnd::Gone);
    check(&gone, &Says::Yes("nobody holds the other ends"));
    check(&on(FarEnd::Held, FarEnd::Gone), &Says::No("holds the other end of stdin"));
    check(&on(FarEnd::Gone, FarEnd::Held), &Says::No("holds the other end of stdout"));
    let unread = crate::model::question::Channel { unread: Ok(1), ..pipe(FarEnd::Gone) };
    check(&gone.clone().fd(45, 0, unread), &Says::No("something to read"));
    check(&gone.clone().fd(45, 1, plain(ChannelKind::File)), &Says::No("is no channel"));
    check(&gone.clone().row(ROOT, |row| row.tty = 34_816), &Says::No("has a terminal"));
    let listens = gone.clone().sockets(ROOT, vec![listener(Family::Tcp, "127.0.0.1:80")], vec![]);
    check(&listens, &Says::No("can be reached"));
    let hidden = crate::model::question::Channel {
        far: Err(Unknown::new(Reason::Denied, "who holds it")),
        ..pipe(FarEnd::Gone)
    };
    check(&gone.fd(45, 0, hidden), &Says::Unknown("who holds it"));
}

#[test]
fn who_ignores_a_hangup_though_its_watcher_does_not_is_to_live_on_f4() {
    // The command 46 has ended, and the root is what it left behind.
    let left = |hangup| {
        let scene = orphan(|lease| {
            let command = Some(id(46));
            let (leftovers, channel) = (Leftovers::Reap, RunChannel::None);
            lease.run = Some(Run { watcher: id(45), command, leftovers, channel, cgroup: None });
            released(lease);
        });
        let scene = scene.process(45, 1).process(98, 45).own(98).row(ROOT, |row| row.ppid = 45);
        scene.facts(ROOT, move |facts| facts.hangup = hangup)
    };
    check(&left(Ok(Hangup::Default)), &Says::Yes("was released"));
    check(
        &left(Ok(Hangup::Ignored)).facts(45, |facts| facts.hangup = Ok(Hangup::Caught)),
        &Says::No("nohup"),
    );
    let all = left(Ok(Hangup::Ignored)).facts(45, |facts| facts.hangup = Ok(Hangup::Ignored));
    check(&all, &Says::Yes("was released"));
    check(&left(Ok(Hangup::Ignored)).dead(45), &Says::No("nohup"));
    let unread = || Err(Unknown::new(Reason::Denied, "its signals"));
    check(&left(unread()), &Says::Unknown("its signals"));
    check(
        &left(Ok(Hangup::Ignored)).facts(45, move |facts| facts.hangup = unread()),
        &Says::Unknown("its signals"),
    );
    // The command itself is what the lease is for, however it takes a hangup.
    let command = orphan(|lease| {
        run(RunChannel::None, Leftovers::Reap)(lease);
        released(lease);
    });
    check(&command.facts(ROOT, |facts| facts.hangup = Ok(Hangup::Ignored)), &Says::Yes("was released"));
}

#[test]
fn what_a_living_watcher_adopted_is_covered_without_a_cookie() {
    let scene = Scene::orphan().process(45, 1).process(60, 45).process(98, 45).own(98).lease({
        let mut gw = lease("gw-1");
        run(RunChannel::None, Leftovers::Reap)(&mut gw);
        gw
    });
    let scene = scene.row(ROOT, |row| row.ppid = 45);
    let found = covered(&scene.look().snapshot.leases.list[0], &scene.look());
    assert_eq!(found.all, [id(ROOT), id(60)]);
    assert_eq!(found.spared, [(id(98), "it is reapd's own".to_owned())]);
    let dead = scene.dead(45);
    assert_eq!(covered(&dead.look().snapshot.leases.list[0], &dead.look()).all, [id(ROOT)]);
}

#[test]
fn a_run_without_its_watcher_goes_by_its_ends() {
    let of = |channel, leftovers| orphan(run(channel, leftovers));
    // Its holder died, and it was not started on channels.
    check(&of(RunChannel::None, Leftovers::Reap), &Says::Yes("for which its reapd run was started, is gone"));
    let alive = of(RunChannel::None, Leftovers::Reap).process(40, 1);
    check(&alive, &Says::No("process 40, for which its reapd run was started, is alive"));
    // Its channel: the proof of stdin-abandoned, and nothing less.
    let on =
        |read, write| of(RunChannel::Stdio, Leftovers::Reap).fd(ROOT, 0, pipe(read)).fd(ROOT, 1, pipe(write));
    check(&on(FarEnd::Gone, FarEnd::Gone), &Says::Yes("its reapd run is gone, and nobody holds"));
    let held = on(FarEnd::Held, FarEnd::Gone).process(44, 1).held_by(ROOT, 0, &[44]);
    check(&held, &Says::No("44 holds"));
    let to_a_file = on(FarEnd::Gone, FarEnd::Gone).fd(ROOT, 1, plain(ChannelKind::File));
    check(&to_a_file, &Says::No("its reapd run is gone, but"));
    // Its command ended: what is left goes where that was wanted.
    let left = |leftovers| {
        orphan(|lease| {
            run(RunChannel::Stdio, leftovers)(lease);
            lease.run.as_mut().unwrap().command = Some(id(46));
        })
    };
    check(&left(Leftovers::Reap), &Says::Yes("the command of its reapd run, process 46, has ended"));
    check(&left(Leftovers::Report), &Says::No("leftovers are only reported"));
    let runs = left(Leftovers::Reap).process(46, 1).fd(ROOT, 0, pipe(FarEnd::Held));
    check(
        &runs.held_by(ROOT, 0, &[46]).fd(ROOT, 1, plain(ChannelKind::File)),
        &Says::No("its reapd run is gone, but"),
    );
    // Of another boot or namespace nobody is gone.
    for change in [
        (|holder: &mut Holder| holder.boot = Some(BootId("x".into()))) as fn(&mut Holder),
        |holder| holder.pidns = Some(7),
        |holder| holder.timens = None,
    ] {
        let scene = orphan(|lease| {
            run(RunChannel::None, Leftovers::Reap)(lease);
            lease.run.as_mut().unwrap().command = Some(id(46));
            change(lease.holder.as_mut().unwrap());
        });
        check(&scene, &Says::Unknown(""));
    }
    let hidden = left(Leftovers::Reap).gap(Gap::HIDDEN);
    let owner = |pid: i32| Question::Owner { of: id(ROOT), pid: crate::model::id::Pid::new(pid).unwrap() };
    check(&hidden, &Says::Asks(vec![owner(40), owner(45), owner(46)]));
}

/// The built-in policy, and one that takes whoever was adopted.
fn policies() -> Config {
    let mut config = crate::judge::tests::greedy();
    let mut lease = config.policies[0].clone();
    lease.name = "lease".into();
    lease.matches = vec![Match::Leased];
    let condition = Condition { rule: "lease-expired", strength: Strength::Proof, settings: BTreeMap::new() };
    lease.reap_when = vec![Line { conditions: vec![condition], by_knowledge: None }];
    config.policies.insert(0, lease);
    config
}

fn judged(scene: &Scene, config: &Config) -> (Vec<Judgement>, Leased) {
    let look = scene.look();
    let candidates = crate::judge::candidates(&look, config);
    let look = crate::judge::tests::with_plain_ends(&look, &candidates);
    let asks = crate::judge::questions(&look, config, &candidates, &Ledger::default());
    assert_eq!(asks, [], "the scene answers everything");
    let (verdicts, _) = crate::judge::judge(&look, config, &candidates, &Ledger::default());
    (verdicts.judgements, verdicts.leased)
}

fn suspected(scene: &Scene) -> Vec<(i32, String)> {
    let is_suspect = |judgement: &Judgement| matches!(judgement.verdict, Verdict::Suspect { .. });
    let (judgements, _) = judged(scene, &policies());
    let suspects = judgements.into_iter().filter(is_suspect).filter(|judgement| judgement.root == id(ROOT));
    suspects.map(|judgement| (judgement.root.pid.number(), judgement.policy)).collect()
}

#[test]
fn a_lease_that_holds_keeps_its_root_from_every_policy() {
    let by = |names: &[&str]| names.iter().map(|name| (ROOT, (*name).to_owned())).collect::<Vec<_>>();
    assert_eq!(suspected(&orphan(released)), by(&["lease", "server"]));
    assert_eq!(suspected(&orphan(|_| {}).process(40, 1)), [], "it holds");
    assert_eq!(suspected(&orphan(held(|holder| holder.age = None))), [], "unknown holds");
    assert_eq!(
        suspected(&Scene::orphan().cookie(ROOT, "gw-1").faulty("gw-1")),
        [],
        "its file cannot be read"
    );
    assert_eq!(suspected(&Scene::orphan().cookie(ROOT, "gw-1").faulty("gw-2")), [], "it may be the one");
    assert_eq!(suspected(&orphan(released).faulty("gw-2")), by(&["lease", "server"]));
    assert_eq!(
        suspected(&orphan(released).faulty("gw-1")),
        [],
        "a second file of the name says nothing that counts"
    );
    let unread =
        Scene::orphan().cookie(ROOT, "gw-1").faulty("gw-1").in_directory_of(crate::model::id::Uid(4_000_000));
    assert_eq!(suspected(&unread), by(&["server"]), "another user's file says nothing of ours");
    // A carrier that the lease does not cover is somebody's all the same.
    let daemon = orphan(|_| {}).process(40, 1).sockets(ROOT, vec![listener(Family::Unix, "/x")], vec![]);
    assert_eq!(suspected(&daemon), []);
    // A holder within the tree owns nothing outside of it.
    let inside = orphan(held(|holder| (holder.pid, holder.start) = (pid(60), Some(id(60).start))));
    assert_eq!(suspected(&inside.clone().process(60, 1)), []);
    assert_eq!(suspected(&inside.process(60, ROOT)), by(&["server"]));
}

#[test]
fn members_with_another_lease_are_claimed() {
    let mut other = lease("gw-2");
    other.file.file = file(8, 902);
    let scene = orphan(released).process(40, 1).process(60, ROOT).cookie(60, "gw-2").lease(other);
    let (_, leased) = judged(&scene, &policies());
    let names: Vec<_> = leased.claims.iter().map(|claim| claim.lease.as_ref().unwrap().as_str()).collect();
    assert_eq!(names, ["gw-2"], "what is over claims nobody");
    assert_eq!(leased.claims[0].keepers, [id(40)]);
    assert!(leased.trees.iter().all(|tree| (tree.root, tree.lease.as_str()) == (id(ROOT), "gw-1")));
    assert!(!leased.trees.is_empty());
    scene.case(|case| assert_eq!(claimed(case), BTreeSet::from([id(60)])));
    // Nobody asks where nothing is condemned.
    let (_, leased) = judged(&orphan(|_| {}).process(40, 1), &policies());
    assert_eq!(leased, Leased::default());
}

#[test]
fn labels_come_from_the_one_lease_that_says_them() {
    let mut config = policies();
    let label = Capture::Lease { label: "session".into() };
    config.policies[0].captures.insert("session".into(), label);
    let labelled = |value: &'static str| {
        move |lease: &mut Lease| {
            lease.labels.insert("session".into(), value.into());
        }
    };
    let of = |scene: &Scene| labels(&config.policies[0], &scene.look(), id(ROOT)).get("session").cloned();
    let one = orphan(labelled("s-1"));
    assert_eq!(of(&one), Some("s-1".into()));
    assert_eq!(of(&orphan(|_| {})), None);
    assert_eq!(of(&orphan(labelled("a\nb"))), None, "a control character");
    for (value, expected) in [("s-1", Some("s-1".into())), ("s-2", None)] {
        let mut second = lease("gw-2");
        (second.covers.env, second.covers.processes) = (None, vec![id(ROOT)]);
        labelled(value)(&mut second);
        assert_eq!(of(&one.clone().lease(second)), expected);
    }
    assert_eq!(config.policies[0].mode, Mode::Reap);
}

#[test]
fn without_leases_nothing_is_asked() {
    let look = Scene::orphan().look();
    let roots = Roots::new(&look);
    assert!(look.snapshot.table.rows().iter().all(|row| !roots.may_hold(&look, row)));
    Scene::orphan().unasked(&Question::Sockets(id(ROOT))).case(|case| {
        assert_eq!(veto(case).map(|finding| finding.holds), Ok(Holds::No));
    });
}

#[test]
fn a_watcher_or_a_command_that_may_be_hidden_is_not_gone() {
    let owner = |number: i32| Question::Owner { of: id(ROOT), pid: pid(number) };
    let scene = orphan(|lease| {
        run(RunChannel::None, Leftovers::Reap)(lease);
        lease.run.as_mut().unwrap().command = Some(id(46));
    });
    let scene = scene.gap(Gap::HIDDEN).owner(40, Owner::Absent);
    let absent = scene.clone().owner(45, Owner::Absent).owner(46, Owner::Absent);
    check(&absent, &Says::Yes("process 46, has ended"));
    let refused = |number| absent.clone().refused(owner(number), Reason::Denied);
    check(&refused(45), &Says::Unknown("refused"));
    check(&refused(46), &Says::Unknown("refused"));
    check(&absent.clone().owner(46, Owner::Alive(id(46))), &Says::Unknown("what became of process 46"));
    check(&absent.owner(45, Owner::Alive(id(45))), &Says::Unknown("what became of process 45"));
}

#[test]
fn below_a_shared_daemon_nobody_is_covered_by_what_is_above_it_f4() {
    let scene = |name: &[u8]| {
        let mut gw = lease("gw-1");
        released(&mut gw);
        gw.covers.processes = vec![id(45)];
        let scene = Scene::orphan().process(45, 1).process(46, 45).row(ROOT, |row| row.ppid = 46).lease(gw);
        scene.row(46, |row| row.comm[..name.len()].copy_from_slice(name))
    };
    check(&scene(b"sh"), &Says::Yes("was released"));
    check(&scene(b"adb"), &Says::No("no lease covers it"));
    let all = |scene: &Scene| covered(&scene.look().snapshot.leases.list[0], &scene.look()).all;
    assert_eq!(all(&scene(b"sh")), [id(45), id(46), id(ROOT)]);
    assert_eq!(all(&scene(b"adb")), [id(45)]);
}

#[test]
fn a_lease_without_a_holder_has_nobody_who_could_go_with_a_tree() {
    let nobody = orphan(|lease| {
        timed(lease);
        lease.holder = None;
    });
    assert_eq!(suspected(&nobody), []);
}

#[test]
fn the_way_to_the_holder_does_not_lead_over_what_a_person_keeps() {
    let scene = owned(released).process(45, 40).row(ROOT, |row| row.ppid = 45);
    let mut look = scene.look();
    let stands = |look: &Look| {
        standing(look, &look.snapshot.leases.list[0], look.snapshot.table.at(pid(ROOT)).unwrap())
    };
    assert_eq!(stands(&look), Standing::Root);
    look.marks.push(crate::model::keep::KeepMark {
        what: crate::model::keep::Kept::Process {
            boot: look.snapshot.boot.clone(),
            id: id(45),
            name: String::new(),
        },
        until: None,
        set: 0,
        note: None,
    });
    assert!(matches!(stands(&look), Standing::Spared(_)));
}

#[test]
fn a_registry_has_listed_once_it_listed_anybody_in_this_boot_f11() {
    use crate::model::question::{Answer, Registered};
    let has_listed = |registered| {
        let question = Question::Registered {
            of: id(ROOT),
            registry: "nodes".into(),
            place: "/run/nodes/*".into(),
            key: "1".into(),
        };
        let scene = Scene::orphan().answer(question, Answer::Registered(registered));
        let ledger = looked(&[(&scene, hours(1))]);
        let has = |registry, place: &str| ledger.has_listed(registry, place.into());
        assert!(!has("nodes", "/run/elsewhere/*") && !has("others", "/run/nodes/*"));
        has("nodes", "/run/nodes/*")
    };
    assert!(has_listed(Registered::Listed { holder: None }));
    assert!(has_listed(Registered::NotListed { others: 1 }));
    assert!(!has_listed(Registered::NotListed { others: 0 }));
    assert!(!has_listed(Registered::Over("over".into())));
}

#[test]
fn what_an_older_version_wrote_is_read_and_what_is_written_is_read_back() {
    let ledger = looked(&[(&owned(timed), hours(1))]);
    let text = serde_json::to_string(&ledger).unwrap();
    assert_eq!(serde_json::from_str::<Ledger>(&text).unwrap(), ledger);
    let mut older: serde_json::Value = serde_json::from_str(&text).unwrap();
    older.as_object_mut().unwrap().remove("leases");
    assert!(serde_json::from_value::<Ledger>(older).unwrap().pin(&lease("gw-1")).is_none());
}

/// A tree of a run whose watcher is gone; the root cleared its environment and is in the run's cgroup.
fn in_cgroup(change: impl FnOnce(&mut Lease)) -> Scene {
    let mut gw = lease("gw-1");
    gw.release = Release::Released(None);
    run(RunChannel::None, Leftovers::Reap)(&mut gw);
    let made = gw.run.as_mut().unwrap();
    (made.watcher.start, made.command) = (Start(0), None);
    let file = crate::model::id::FileId { dev: 1, ino: 2 };
    made.cgroup = Some(crate::model::lease::Cgroup { path: "/reapd-run-gw-1".to_owned(), file });
    change(&mut gw);
    Scene::orphan().grouped(ROOT, "gw-1").lease(gw)
}

#[test]
fn who_cleared_its_environment_is_covered_by_the_cgroup_of_its_run() {
    check(&in_cgroup(|_| {}), &Says::Yes("was released"));
    let none = Says::No("no lease covers it");
    check(&in_cgroup(|lease| lease.run.as_mut().unwrap().cgroup = None), &none);
    // Whoever is older than the run was not born in it.
    check(&in_cgroup(|lease| lease.run.as_mut().unwrap().watcher.start = Start(u64::MAX)), &none);
    let renamed = |lease: &mut Lease| {
        lease.run.as_mut().unwrap().cgroup.as_mut().unwrap().path = "/somebody-elses".to_owned();
    };
    check(&in_cgroup(renamed), &none);
    check(&in_cgroup(|lease| lease.file.owner = crate::model::id::Uid(0)), &none);
    check(&in_cgroup(|lease| lease.holder = None).grouped(ROOT, "gw-2"), &none);
    let older = |lease: &mut Lease| (lease.holder, lease.file.modified) = (None, -1);
    check(&in_cgroup(older), &none);
}

#[test]
fn a_cgroup_alone_makes_nobody_a_member_f4() {
    let with_parent = in_cgroup(|_| {}).process(41, 1).row(ROOT, |row| row.ppid = 41);
    check(&with_parent, &Says::No("its parent"));
    let fresh = |scene: &Scene| {
        let look = scene.look();
        let row = *look.snapshot.table.at(pid(ROOT)).unwrap();
        let facts = look.facts(id(ROOT)).unwrap().unwrap().clone();
        may_be_root(&look, &row, &facts)
    };
    assert!(fresh(&in_cgroup(|_| {})));
    assert!(!fresh(&in_cgroup(|_| {}).facts(ROOT, |facts| facts.cgroup = Ok("/elsewhere".into()))));
    let unknown = |facts: &mut Facts| facts.cgroup = Err(Unknown::new(Reason::Denied, "cgroup"));
    assert!(!fresh(&in_cgroup(|_| {}).facts(ROOT, unknown)));
}
