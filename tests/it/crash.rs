//! reapd is killed in the middle of a teardown, and the next sweep takes it up, or judges anew.

use rustix::process::Signal;

use crate::desk::{Desk, text};
use crate::planted::wait_for;
use crate::turn::turn;

const LADDER: &str = "[\"TERM 1500ms\", \"KILL 20s\"]";

/// Runs a sweep until the journal holds `text`, and kills it.
fn crash_at(desk: &Desk, text: &str) {
    let sweep = desk.start(&["sweep", "--yes"]);
    desk.wait_for_journal(text);
    sweep.send(Signal::KILL);
    let ended = sweep.end();
    assert!(!ended.status.success());
    assert!(!desk.journal().contains("\"outcome\""), "it was killed in the middle: {}", desk.journal());
}

#[test]
fn with_its_root_seen_gone_the_recorded_members_are_ended_f12() {
    let desk = Desk::with_stubborn(LADDER);
    let planted = &desk.planted;
    let root =
        desk.stubborn("one", "trap 'exit 0' TERM\n(trap '' TERM; exec sleep 600) &\nsleep 601 &\nwait\n", 2);
    let members = planted.below(root);
    let _turn = turn();
    crash_at(&desk, "\"seen-gone\"");
    assert!(!planted.is_alive(root));
    assert!(members.iter().any(|&pid| planted.is_alive(pid)), "somebody is left to be ended");

    let again = desk.reapd_in_turn(&["sweep", "--once"]);
    assert!(again.status.success(), "{}", text(&again));
    assert!(text(&again).contains("cut short after its root went"), "{}", text(&again));
    for pid in members {
        assert!(!planted.is_alive(pid), "{pid} is left:\n{}", text(&again));
    }
    assert!(desk.journal().contains("\"by\":\"resumed\""));
    let why = text(&desk.reapd_in_turn(&["why", &root.to_string()]));
    assert!(why.contains(&format!("TERM to {root}")), "the time of each signal is on record:\n{why}");
    assert!(why.contains("seen gone: "), "{why}");
    assert!(text(&desk.reapd_in_turn(&["log"])).contains("TERM "));
}

#[test]
fn a_member_that_a_person_keeps_by_now_stands_the_rest_down_f12() {
    let desk = Desk::with_stubborn(LADDER);
    let planted = &desk.planted;
    let root = desk.stubborn("one", "trap 'exit 0' TERM\n(trap '' TERM; exec sleep 600) &\nwait\n", 1);
    let members = planted.below(root);
    let _turn = turn();
    crash_at(&desk, "\"seen-gone\"");
    assert!(!planted.is_alive(root) && planted.is_alive(members[0]));

    let kept = desk.reapd_in_turn(&["keep", &members[0].to_string()]);
    assert!(kept.status.success(), "{}", text(&kept));
    let again = desk.reapd_in_turn(&["sweep", "--once"]);
    assert!(text(&again).contains("cut short after its root went"), "{}", text(&again));
    assert!(planted.is_alive(members[0]), "{}", text(&again));
    assert!(!desk.journal().contains("\"by\":\"resumed\""), "{}", desk.journal());
}

#[test]
fn with_its_root_alive_it_is_judged_from_the_first_look_f12() {
    let desk = Desk::with_stubborn(LADDER);
    let planted = &desk.planted;
    let root = desk.stubborn("one", "trap '' TERM\nsleep 600 &\nwait\n", 1);
    let _turn = turn();
    crash_at(&desk, "\"signalled\"");
    assert!(planted.is_alive(root));

    let again = desk.reapd_in_turn(&["sweep", "--once"]);
    assert!(again.status.success(), "{}", text(&again));
    assert!(text(&again).contains("judged anew"), "{}", text(&again));
    assert!(planted.is_alive(root), "one look condemns nobody:\n{}", text(&again));
    assert!(!desk.journal().contains("resumed"));
    let mut last = again;
    wait_for("the looks that confirm", || {
        last = desk.reapd_in_turn(&["sweep", "--once"]);
        !planted.is_alive(root)
    });
    assert!(planted.below(root).is_empty(), "{}", text(&last));
}
