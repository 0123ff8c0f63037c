//! The whole family at once: fifty brokers and what earlier ones left behind, one sweep.

use std::fs;
use std::os::unix::net::UnixListener;
use std::path::PathBuf;

use serde_json::json;

use crate::broker::stand::{Broker, Companion, Host, built_in, session_name};
use crate::broker::states::wedge;
use crate::support::look::names;
use crate::turn;

/// Leaves a directory behind as a broker does that was killed long ago.
fn stale(host: &Host) -> PathBuf {
    let directory = host.desk.planted.path(&format!("tmp/{}", session_name()));
    fs::create_dir(&directory).unwrap();
    drop(UnixListener::bind(directory.join("broker.sock")).unwrap());
    // The number is somebody else's by now: this test's.
    fs::write(directory.join("broker.pid"), format!("{}\n", std::process::id())).unwrap();
    fs::write(directory.join("broker.log"), "it said something\n".repeat(500)).unwrap();
    directory
}

/// The built-in policy, for whatever was left in this test's own directories, however lately.
fn family(host: &Host) -> String {
    let planted = |name: &str| host.desk.planted.path(name).canonicalize().unwrap().display().to_string();
    let stale = "stale = \"cxc-??????\"\n";
    let here = format!("{stale}roots = [\"{}\"]\nafter = \"0s\"\n", planted("tmp"));
    let records = format!("{}/data/state/*/broker.json", planted(""));
    let changes =
        [(stale, here.as_str()), ("~/.claude/plugins/data/*/state/*/broker.json", records.as_str())];
    format!("\n{}", built_in("codex-broker", &changes))
}

#[test]
fn fifty_brokers_and_what_was_left_long_ago_in_one_sweep() {
    let _turn = turn::heavy();
    let host = Host::new();
    let planted = &host.desk.planted;
    host.desk.configure(&family(&host));

    let names_of = |what: &'static str, count: usize| (0..count).map(move |index| format!("{what}-{index}"));
    let all: Vec<String> = names_of("deleted", 20)
        .chain(names_of("replaced", 5))
        .chain(names_of("wedged", 5))
        .chain(names_of("live", 15))
        .collect();
    let words: Vec<(&str, &str)> = all.iter().map(|name| (name.as_str(), "")).collect();
    let brokers = host.brokers(&words);
    let (deleted, rest) = brokers.split_at(20);
    let (replaced, rest) = rest.split_at(5);
    let (wedged, live) = rest.split_at(5);

    // Five of the live ones have taken over the endpoints of those that were replaced.
    let mut live = live.to_vec();
    for (index, broker) in replaced.iter().enumerate() {
        let mut place = host.place(&format!("second-{index}"));
        fs::remove_dir(&place.session).unwrap();
        place.take_over(broker);
        fs::remove_file(&broker.socket).unwrap();
        host.spawn(&place, "");
        live.push(host.ensure(&place));
    }
    let reviews: Vec<Companion> = live[12..].iter().step_by(3).map(Companion::review).collect();
    assert_eq!((live.len(), reviews.len()), (20, 3));
    for broker in deleted {
        fs::remove_dir(&broker.workspace).unwrap();
    }
    wedge(&host, wedged);
    for index in 0..100 {
        let directory = stale(&host);
        if index < 60 {
            let state = planted.path(&format!("data/state/old-{index}-2c682aaafe75151d"));
            fs::create_dir(&state).unwrap();
            fs::write(state.join("state.json"), "{\"version\":1}\n").unwrap();
            let record = json!({ "endpoint": format!("unix:{}/broker.sock", directory.display()), "pid": 1 });
            fs::write(state.join("broker.json"), record.to_string()).unwrap();
        }
    }
    let before = host.sessions();
    let whole = |broker: &Broker| before[&broker.pid].len();
    for broker in deleted.iter().chain(replaced).chain(&live) {
        assert_eq!(whole(broker), 8, "{broker:?}");
    }

    let begun = std::time::Instant::now();
    let swept = host.sweep(&["--yes"]);
    let took = begun.elapsed();

    let after = host.sessions();
    for broker in deleted.iter().chain(replaced).chain(wedged) {
        assert!(
            !after.contains_key(&broker.pid),
            "{broker:?} is left: {:?}\n{}",
            after[&broker.pid],
            swept.said
        );
        assert_eq!(swept.teardown(broker.pid).expect("it was ended")["closure"], "gone");
    }
    for broker in &live {
        assert_eq!(after.get(&broker.pid), before.get(&broker.pid), "{broker:?}\n{}", swept.said);
        assert_eq!(names(&broker.session), ["broker.log", "broker.pid", "broker.sock"], "{broker:?}");
        assert!(broker.record.exists(), "{broker:?}");
        let mut companion = Companion::connect(&broker.socket).expect("a live one can be reached");
        assert_eq!(companion.ask("initialize", json!({}))["result"]["userAgent"], "codex-companion-broker");
    }
    for review in &reviews {
        review.hears();
    }
    // What is left in the two directories is what the live ones have.
    let mut sessions: Vec<String> =
        live.iter().map(|broker| broker.session.file_name().unwrap().to_str().unwrap().to_owned()).collect();
    sessions.sort_unstable();
    assert_eq!(names(&planted.path("tmp")), sessions, "{}", swept.said);
    for index in 0..60 {
        let state = planted.path(&format!("data/state/old-{index}-2c682aaafe75151d"));
        assert_eq!(names(&state), ["state.json"], "{}", swept.said);
    }
    assert!(took.as_secs() < 60, "one sweep took {took:?}");
    // What came free is what the thirty had and what the hundred directories held.
    let freed = |what: &str| swept.json["freed"][what].as_u64().unwrap();
    assert!(freed("memory_bytes") > 30 * 1024 * 1024, "{}", swept.json["freed"]);
    assert!(freed("disk_bytes") > 100 * 9000, "{}", swept.json["freed"]);

    // A second one finds nobody, and takes what names those that the first one ended: a record goes once nothing is left
    // of what it names.
    let again = host.sweep(&["--yes", "--exit-code"]);
    assert_eq!(again.condemned(), [0_i32; 0], "{}", again.said);
    assert_eq!(again.json["teardowns"], json!([]));
    assert_eq!(again.json["residue"]["cleared"].as_array().unwrap().len(), 25, "{}", again.json["residue"]);
    for broker in deleted.iter().chain(wedged) {
        assert!(!broker.record.exists(), "{broker:?}");
    }
    let third = host.sweep(&["--yes", "--exit-code"]);
    assert_eq!((third.condemned(), &third.json["residue"]["planned"]), (Vec::new(), &json!([])));
    for broker in &live {
        assert!(broker.record.exists() && host.desk.planted.is_alive(broker.pid), "{broker:?}");
    }
}
