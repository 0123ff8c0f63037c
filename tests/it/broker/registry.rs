//! Brokers that their own registry does not list, and that nobody names.

use std::fs;
use std::os::unix::fs::MetadataExt as _;

use crate::broker::stand::{Companion, Host, built_in};

fn host() -> Host {
    let host = Host::new();
    host.desk.configure(&format!(
        "\n{}",
        built_in("codex-broker", &[("30m", "1s"), ("settle = \"2m\"", "settle = \"0s\"")])
    ));
    host
}

/// Says whether everybody of this user can be read but for those who come and go: in some sandboxes process 1 cannot,
/// and then nobody can say whom it names.
#[expect(clippy::print_stderr, reason = "who reads the tests' output must know what was not tested")]
fn process_1_can_be_read() -> bool {
    let owner = fs::metadata("/proc/1").unwrap().uid();
    let can = owner != rustix::process::geteuid().as_raw() || fs::read("/proc/1/environ").is_ok();
    if !can {
        eprintln!("skipped: process 1 is this user's and cannot be read, so that it may name whom it likes");
    }
    can
}

#[test]
fn who_is_not_listed_is_not_named_and_has_no_client_goes_f11() {
    if !process_1_can_be_read() {
        return;
    }
    let host = host();
    let names = [("unlisted", ""), ("listed", ""), ("named", ""), ("named-by-word", ""), ("used", "")];
    let [unlisted, listed, named, by_word, used] = &host.brokers(&names)[..] else { panic!() };
    for broker in [unlisted, named, by_word, used] {
        fs::remove_file(&broker.record).unwrap();
    }
    let client = Companion::connect(&used.socket).unwrap();
    let endpoint = format!("CODEX_COMPANION_APP_SERVER_ENDPOINT=unix:{}", named.socket.display());
    let names_it = host.desk.planted.marked(&format!("env {endpoint} sleep 600"), "names-it");
    let word = format!("bash -c 'sleep 600; :' unix:{}", by_word.socket.display());
    let says_it = host.desk.planted.marked(&word, "says-it");
    let said = host.sweep_until_gone(unlisted);
    for broker in [listed, named, by_word, used] {
        assert_eq!(host.in_session(broker).len(), 8, "{broker:?}: {said}");
    }
    // Each was kept by that alone.
    for pid in [names_it, says_it] {
        host.desk.planted.end(pid);
    }
    drop(client);
    for broker in [named, by_word, used] {
        host.sweep_until_gone(broker);
    }
    assert_eq!(host.in_session(listed).len(), 8);
}

#[test]
fn a_registry_that_lists_nobody_or_is_away_proves_nothing_f11() {
    let host = host();
    let broker = host.broker("only", "");
    fs::rename(host.desk.planted.path("data"), host.desk.planted.path("unmounted")).unwrap();
    for _ in 0..3 {
        let swept = host.sweep(&["--yes"]);
        assert!(swept.verdict(broker.pid).0 != "suspect", "{}", swept.said);
        assert_eq!(host.in_session(&broker).len(), 8, "{}", swept.said);
    }
    fs::create_dir_all(host.desk.planted.path("data/state")).unwrap();
    for _ in 0..3 {
        let swept = host.sweep(&["--yes"]);
        assert_eq!(host.in_session(&broker).len(), 8, "{}", swept.said);
    }
}
