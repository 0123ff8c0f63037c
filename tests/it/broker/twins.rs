//! Brokers whose workspace was deleted, kept or ended by where they came from and how old they are.

use std::fs;

use serde_json::json;

use crate::broker::stand::{Companion, Host, line};
use crate::desk::runs;

#[test]
fn a_young_broker_is_kept_until_it_is_old_enough() {
    let host = Host::new();
    host.desk.reconfigure(|text| text.replace("min-age = \"0s\"", "min-age = \"1h\""));
    let broker = host.broker("young", "");
    fs::remove_dir(&broker.workspace).unwrap();
    let swept = host.sweep(&["--yes"]);
    assert_eq!(host.in_session(&broker).len(), 8, "{}", swept.said);
    assert!(swept.condemned().is_empty(), "{}", swept.said);
    host.desk.reconfigure(|text| text.replace("min-age = \"1h\"", "min-age = \"0s\""));
    let swept = host.sweep(&["--yes"]);
    assert!(host.in_session(&broker).is_empty(), "{}", swept.said);
}

#[test]
fn a_broker_from_a_pane_goes_and_one_in_the_pane_stays_with_its_multiplexer_b01_b11() {
    let host = Host::new();
    let planted = &host.desk.planted;
    let (detached, inside) = (host.place("detached"), host.place("inside"));
    let socket = planted.path("tmux.sock");
    // The pane starts one as a companion does, and becomes the other itself.
    let quoted = |words: Vec<String>| {
        words.iter().map(|word| format!("'{}'", word.replace('\'', "'\\''"))).collect::<Vec<_>>().join(" ")
    };
    let pane = planted.path("pane.sh");
    let first = quoted(line(&host, &detached));
    let second = quoted(line(&host, &inside)[1..].to_vec());
    fs::write(
        &pane,
        format!(
            "set -- {first}\ncd '{}'\nsetsid --fork bash -c \"$@\" </dev/null >/dev/null 2>&1\ncd '{}'\nexec -a node {second}\n",
            detached.workspace.display(),
            inside.workspace.display()
        ),
    )
    .unwrap();
    let started = host
        .command(&inside, "", "tmux")
        .args(["-S", socket.to_str().unwrap(), "-f", "/dev/null", "new-session", "-d"])
        .arg(format!("bash {}", pane.display()))
        .status()
        .unwrap();
    assert!(started.success());
    let (gone, kept) = (host.ensure(&detached), host.ensure(&inside));
    let master = planted.all().into_iter().find(|&pid| runs(pid, "tmux: server")).expect("a multiplexer");
    for broker in [&gone, &kept] {
        fs::remove_dir(&broker.workspace).unwrap();
    }
    let whole = host.tree(&kept);
    let swept = host.sweep(&["--yes"]);
    assert!(host.in_session(&gone).is_empty(), "{}", swept.said);
    assert_eq!(host.tree(&kept), whole, "{}", swept.said);
    assert!(planted.is_alive(master), "{}", swept.said);
    let (verdict, said) = swept.verdict(kept.pid);
    assert!(verdict != "suspect" && said.contains("its parent"), "{said}");
}

#[test]
fn the_end_of_one_that_was_replaced_takes_nothing_from_its_successor_c33() {
    let host = Host::new();
    let old = host.broker("old", "");
    let mut place = host.place("new");
    place.take_over(&old);
    fs::remove_file(&old.socket).unwrap();
    host.spawn(&place, "");
    let new = host.ensure(&place);
    fs::remove_dir(&old.workspace).unwrap();
    let swept = host.sweep(&["--yes"]);
    assert!(host.in_session(&old).is_empty(), "{}", swept.said);
    assert_eq!(host.in_session(&new).len(), 8, "{}", swept.said);
    let mut companion = Companion::connect(&new.socket).expect("the new one can be reached");
    assert!(companion.ask("initialize", json!({}))["result"].is_object());
    assert_eq!(fs::read_to_string(new.session.join("broker.pid")).unwrap(), format!("{}\n", new.pid));
    assert!(new.record.exists());
}
