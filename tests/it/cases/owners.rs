//! What only an earlier look can tell: who started a process, and which directory was at a path.

use std::fs;

use super::{Ended, Field, Kept};
use crate::patience::patiently;
use crate::planted::wait_for;

#[test]
fn what_was_seen_before_proves_an_end_and_no_more_b33_b44_b48_m8() {
    let field = Field::plant("owners");
    let path = |name: &str| field.planted.path(name);
    let first = patiently(&mut field.reapd(&["sweep", "--once", "--json"]));
    assert!(first.status.success(), "{}", String::from_utf8_lossy(&first.stderr));

    let parent = |name: &str| {
        let stat = fs::read_to_string(format!("/proc/{}/stat", field.pids(name)[0])).unwrap();
        stat[stat.rfind(')').unwrap()..].split_whitespace().nth(2).unwrap().to_owned()
    };
    let starter = parent("b44-upgraded");
    fs::write(path("go"), "").unwrap();
    wait_for("the first master to be gone", || {
        parent("b44-upgraded") != starter && parent("b44-left-behind") != starter
    });
    fs::remove_dir(path("b33-recorded-deleted")).unwrap();
    fs::rename(path("b33-recorded-moved"), path("b33-moved-to")).unwrap();

    let swept = field.sweep();
    field.check(
        &swept,
        &[
            ("b44-upgraded", Kept("a client is connected")),
            ("b44-left-behind", Ended),
            ("b48-service-child", Kept("its parent")),
            ("b33-recorded-deleted", Ended),
            ("b33-recorded-moved", Kept("was moved to")),
        ],
    );
}
