//! `reapd run -- docker run …`: the container bears the lease, and goes with it.

use std::fs;

use rustix::process::Signal;

use super::field::Fate::{Ended, Kept};
use super::field::{Field, Started};
use crate::planted::wait_for;

/// Holds both far ends, as an agent does, and writes down whom it started.
const AGENT: &str = "import subprocess, sys, time\n\
    p = subprocess.Popen(sys.argv[2:], stdin=subprocess.PIPE, stdout=subprocess.PIPE)\n\
    open(sys.argv[1], 'w').write(str(p.pid))\ntime.sleep(600)";

/// `reapd run -- docker run FLAGS … IMAGE ARGS`.
fn words(field: &Field, flags: &[&str], image: &str, args: &[&str]) -> Vec<String> {
    let own = |text: &str| text.to_owned();
    let mut words = vec![own(env!("CARGO_BIN_EXE_reapd")), own("run"), own("--config")];
    words.extend([field.config().display().to_string(), own("--state-dir")]);
    words.extend([field.planted.path("state").display().to_string(), own("--")]);
    words.extend([field.stand.client.display().to_string(), own("run")]);
    words.extend(field.stand.run_flags.iter().chain(flags).map(|flag| own(flag)));
    words.extend(["--network", "none", "--label"].map(own));
    words.extend([field.label(), format!("reapd-stand/{image}:1")]);
    words.extend(args.iter().map(|arg| own(arg)));
    words
}

pub(super) fn start(field: &Field, flags: &[&str], image: &str, args: &[&str]) -> Started {
    let words = words(field, flags, image, args);
    let mut command = field.command(words[0].as_ref());
    command.args(&words[1..]);
    field.start_by(command)
}

fn label(field: &Field, id: &str, key: &str) -> String {
    field.docker(&["inspect", "--format", &format!("{{{{index .Config.Labels \"{key}\"}}}}"), id])
}

fn leases(field: &Field, ending: &str) -> Vec<std::path::PathBuf> {
    fs::read_dir(field.planted.path("leases"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.extension().is_some_and(|extension| extension == ending))
        .collect()
}

#[test]
fn a_leased_container_goes_before_its_client_c35() {
    let Some(field) = Field::new() else { return };
    let mut agent = field.command(field.planted.python());
    let file = field.planted.path("watcher");
    agent.args(["-c", AGENT]).arg(&file).args(words(&field, &["-i", "--rm"], "notes", &["stone"]));
    let mut started = field.start_by(agent);
    let watcher = field.planted.pid_in(&file);
    let id = started.id.clone();
    // What stands on it: the lease, who holds it, and the file that tells which container it is.
    let lease = label(&field, &id, "dev.reapd.lease");
    assert!(!lease.is_empty());
    assert!(label(&field, &id, "dev.reapd.holder").split(':').count() == 4);
    let cidfiles = leases(&field, "cid");
    assert_eq!(cidfiles.len(), 1, "{cidfiles:?}");
    wait_for("the container's id", || fs::read_to_string(&cidfiles[0]).is_ok_and(|text| text.trim() == id));
    // While the agent lives, a sweep keeps it.
    let swept = field.sweep();
    field.check(&swept, &[("held", &id, Kept(""))]);

    started.client.kill();
    wait_for("the container to be gone", || field.state(&id) == "gone");
    wait_for("reapd run to have ended", || !field.planted.is_alive(watcher));
    wait_for("the lease to be gone", || leases(&field, "json").is_empty());
    let journal = fs::read_to_string(field.planted.path("state/journal.jsonl")).unwrap();
    let stopped = journal.find("stop-outcome").unwrap_or_else(|| panic!("the stop is on record: {journal}"));
    let signalled = journal.find("\"signalled\"").unwrap_or(journal.len());
    assert!(stopped < signalled, "the container first: {journal}");
}

#[test]
fn what_a_user_gave_to_docker_run_stays_theirs() {
    let Some(field) = Field::new() else { return };
    let name = format!("named-{}", field.planted.nonce());
    let cidfile = field.planted.path("own.cid");
    let mut named = start(
        &field,
        &["-i", "--rm", "--name", &name, "--cidfile", cidfile.to_str().unwrap()],
        "notes",
        &["deaf"],
    );
    assert_eq!(named.client.ask("one"), "answer to one");
    assert_eq!(field.docker(&["inspect", "--format", "{{.Name}}", &named.id]), format!("/{name}"));
    assert_eq!(fs::read_to_string(&cidfile).unwrap().trim(), named.id);
    assert!(!label(&field, &named.id, "dev.reapd.lease").is_empty());
    // Whoever detaches has left nobody to go with, and `reapd run` ends as the client does.
    let mut detached = start(&field, &["-d"], "search", &["deaf"]);
    assert!(detached.client.ends().success());
    assert!(!label(&field, &detached.id, "dev.reapd.lease").is_empty());
    assert_eq!(field.state(&detached.id), "running");
    assert_eq!(named.client.ask("two"), "answer to two");
}

#[test]
fn a_signal_goes_through_to_a_leased_container() {
    let Some(field) = Field::new() else { return };
    // The server ends when it is asked to, and with it the client, and with that reapd: nobody was killed.
    let mut asked = start(&field, &["-i", "--rm"], "notes", &["deaf"]);
    assert_eq!(asked.client.ask("one"), "answer to one");
    asked.client.send(Signal::TERM);
    let status = asked.client.ends();
    assert_eq!(status.code(), Some(0), "{status:?}");
    wait_for("the container to be gone", || field.state(&asked.id) == "gone");
}

#[test]
fn a_killed_wrapper_leaves_its_lease_behind_and_a_sweep_ends_it() {
    let Some(field) = Field::new() else { return };
    let id = stray(&field, &["--rm"], "notes", &["stone"]);
    let swept = field.sweep();
    field.check(&swept, &[("leased by the dead", &id, Ended)]);
}

/// Starts a container with a lease, and kills its client and the wrapper before it.
pub(super) fn stray(field: &Field, flags: &[&str], image: &str, args: &[&str]) -> String {
    let mut run = start(field, &[&["-i"], flags].concat(), image, args);
    assert_eq!(run.client.ask("one"), "answer to one");
    let below = field.planted.below(run.client.pid());
    run.client.kill();
    for pid in below {
        field.planted.end(pid);
    }
    run.id
}
