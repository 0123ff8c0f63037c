//! Tests of the calls, against an engine that answers right and wrong.

use std::time::Instant;

use super::*;
use crate::engine::fake::{Fake, PODMAN, Reply};
use crate::engine::{ExecState, run};
use crate::model::container::{Attached, AutoRemoval, Health, Published, RestartPolicy, Tty};
use crate::model::id::Pid;
use crate::model::known::{Reason, Unknown};

const PATIENCE: Duration = Duration::from_secs(10);
/// A deadline that is meant to pass.
const SHORT: Duration = Duration::from_millis(200);
const LIST: &str = "GET /v1.41/containers/json";

fn id(digit: char) -> ContainerId {
    ContainerId::new(&digit.to_string().repeat(64)).unwrap()
}

fn row(digit: char, state: &str) -> String {
    format!(
        r#"{{"Id":"{}","Names":["/name{digit}"],"Image":"box:1","ImageID":"sha256:{}","Command":"sh",
        "Created":7,"Ports":[],"Labels":{{"a":"b"}},"State":"{state}","Status":"Up",
        "NetworkSettings":{{"Networks":{{"mine":{{"NetworkID":"{}"}}}}}},"Mounts":[]}}"#,
        id(digit).as_str(),
        "f".repeat(64),
        "d".repeat(64)
    )
}

fn rows(rows: &[(char, &str)]) -> String {
    let rows: Vec<String> = rows.iter().map(|&(digit, state)| row(digit, state)).collect();
    format!("[{}]", rows.join(","))
}

/// What Docker 20.10 writes for `docker run -i --rm`, shortened.
fn inspect(digit: char) -> String {
    format!(
        r#"{{"Id":"{}","Created":"2026-12-01T05:00:00.000000001Z","Path":"sh","Args":["-c","cat"],
        "State":{{"Status":"running","Running":true,"Paused":false,"Restarting":false,"Dead":false,"Pid":4711,
        "ExitCode":0,"Error":"","StartedAt":"2026-12-01T05:00:01.5Z","FinishedAt":"0001-01-01T00:00:00Z",
        "Health":{{"Status":"unhealthy","FailingStreak":3,"Log":[]}}}},
        "Image":"sha256:{}","Name":"/kind_name","RestartCount":0,"ExecIDs":["{}"],
        "HostConfig":{{"Binds":["/data:/in"],"NetworkMode":"none","PortBindings":{{"80/tcp":[{{"HostIp":"",
        "HostPort":""}}]}},"RestartPolicy":{{"Name":"no","MaximumRetryCount":0}},"AutoRemove":true}},
        "Mounts":[{{"Type":"bind","Source":"/data","Destination":"/in","Mode":"","RW":true,"Propagation":""}}],
        "Config":{{"AttachStdin":true,"AttachStdout":true,"AttachStderr":true,"Tty":false,"OpenStdin":true,
        "StdinOnce":true,"Env":["PATH=/bin","SECRET=x","NONCE=1=2"],"Cmd":["-c","cat"],"Image":"box:1",
        "Entrypoint":["sh"],"Labels":{{"a":"b"}}}},
        "NetworkSettings":{{"Ports":{{"443/tcp":[{{"HostIp":"0.0.0.0","HostPort":"8443"}}],"9/udp":null}},
        "Networks":{{"mine":{{"NetworkID":"{}"}}}}}}}}"#,
        id(digit).as_str(),
        "f".repeat(64),
        "e".repeat(64),
        "d".repeat(64)
    )
}

/// Connects, calls, and returns what came back.
fn call<T>(
    fake: &Fake,
    patience: Duration,
    asked: impl AsyncFnOnce(Client) -> Result<T, Fault>,
) -> Result<T, Fault> {
    run(async { asked(Client::connect(&fake.id(), patience).await?).await }).unwrap()
}

fn live(fake: &Fake) -> Result<Vec<Listed>, Fault> {
    call(fake, PATIENCE, async |client| client.list(Which::Live).await)
}

fn is_malformed<T>(answer: &Result<T, Fault>) -> bool {
    matches!(answer, Err(Fault::Malformed(_)))
}

#[test]
fn a_list_is_read_whole_and_sorted() {
    let fake = Fake::docker([(LIST, Reply::good(rows(&[('b', "paused"), ('a', "running")])))]);
    let listed = live(&fake).unwrap();
    assert_eq!(listed.iter().map(|row| row.id.clone()).collect::<Vec<_>>(), [id('a'), id('b')]);
    assert_eq!(listed[0].names, ["namea"]);
    assert_eq!(listed[0].labels, BTreeMap::from([("a".to_owned(), "b".to_owned())]));
    assert_eq!((listed[0].created, &listed[1].state), (7, &ContainerState::Paused));
    let heard = fake.heard();
    assert_eq!(heard.len(), 3, "who it is, its version, and one list: {heard:?}");
    assert!(heard[2].starts_with("GET /v1.41/containers/json?all=false"), "{heard:?}");
}

#[test]
fn a_filter_that_is_ignored_lets_nothing_through() {
    let all =
        rows(&[('a', "running"), ('b', "exited"), ('c', "created"), ('d', "dead"), ('e', "restarting")]);
    let fake = Fake::docker([(LIST, Reply::good(all))]);
    let ids: Vec<_> = live(&fake).unwrap().into_iter().map(|row| row.id).collect();
    assert_eq!(ids, [id('a'), id('e')]);
    let whole = call(&fake, PATIENCE, async |client| client.list(Which::All).await).unwrap();
    assert_eq!(whole.len(), 5);
}

#[test]
fn a_list_that_is_not_sound_is_none() {
    let short = row('a', "running").replace(id('a').as_str(), &"a".repeat(12));
    for body in [
        rows(&[('a', "running"), ('a', "running")]),
        format!("[{short}]"),
        format!("[{}]", row('a', "running").replace("\"State\"", "\"Stale\"")),
        rows(&[('a', "of a kind that is new")]),
        "<html>bad gateway</html>".to_owned(),
        String::new(),
        "{}".to_owned(),
        "null".to_owned(),
    ] {
        let fake = Fake::docker([(LIST, Reply::good(body.clone()))]);
        assert!(is_malformed(&live(&fake)), "{body}");
    }
    let fake = Fake::docker([(LIST, Reply::Cut(rows(&[('a', "running")])))]);
    assert!(is_malformed(&live(&fake)), "a body that ends too soon");
}

#[test]
fn what_has_no_end_is_left() {
    let fake = Fake::docker([(LIST, Reply::Endless)]);
    assert!(matches!(live(&fake), Err(Fault::TooLong)));
    assert_eq!(Unknown::from(Fault::TooLong).reason, Reason::Truncated);
}

#[test]
fn who_never_answers_is_hung_when_the_deadline_passes() {
    let began = Instant::now();
    let fake = Fake::docker([(LIST, Reply::Silence)]);
    let answer = call(&fake, SHORT, async |client| client.list(Which::Live).await);
    assert!(matches!(answer, Err(Fault::Hung)), "{answer:?}");
    let fake = Fake::new([("GET /version", Reply::Silence)]);
    assert!(matches!(call(&fake, SHORT, async |_| Ok(())), Err(Fault::Hung)));
    assert!(began.elapsed() < PATIENCE);
}

#[test]
fn who_is_not_there_is_absent_and_who_refuses_says_why() {
    let none = EngineId("/nonexistent/docker.sock".into());
    let answer = run(Client::connect(&none, PATIENCE)).unwrap();
    assert!(matches!(answer, Err(Fault::Absent)), "{answer:?}");

    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("docker.sock");
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let left = EngineId(path.to_str().unwrap().into());
    let mut answer = run(Client::connect(&left, PATIENCE)).unwrap();
    // A test that forks has a copy of the listener until it execs.
    let began = Instant::now();
    while !matches!(answer, Err(Fault::Absent)) && began.elapsed() < PATIENCE {
        answer = run(Client::connect(&left, SHORT)).unwrap();
    }
    assert!(matches!(answer, Err(Fault::Absent)), "{answer:?}");

    let fake = Fake::docker([(LIST, Reply::Whole(500, r#"{"message":"no way"}"#.into()))]);
    let Err(Fault::Refused { status: 500, message }) = live(&fake) else { panic!("not refused") };
    assert_eq!(message, "no way");
    let fake = Fake::docker([(LIST, Reply::Whole(403, "not JSON".into()))]);
    assert!(matches!(live(&fake), Err(Fault::Refused { status: 403, .. })));
}

#[test]
fn kinds_are_told_by_what_they_say_of_themselves() {
    let kind = |version: &str| {
        let fake = Fake::new([("GET /version", Reply::good(version))]);
        call(&fake, PATIENCE, async |client| Ok(client.kind().clone()))
    };
    assert_eq!(kind(crate::engine::fake::DOCKER).unwrap(), EngineKind::Docker("20.10.24".into()));
    assert_eq!(kind(PODMAN).unwrap(), EngineKind::Podman("4.3.1".into()));
    let mut headers = hyper::HeaderMap::new();
    for (name, value) in [("server", "Libpod/4.3.1 (linux)"), ("api-version", "1.41")] {
        assert_eq!(read::podman(&headers), None);
        headers.insert(name, value.parse().unwrap());
    }
    assert_eq!(read::podman(&headers), Some(("4.3.1".into(), Version { major: 1, minor: 41 })));
    headers.insert("server", "Docker/20.10.24 (linux)".parse().unwrap());
    assert_eq!(read::podman(&headers), None);
    assert!(is_malformed(&kind(r#"{"Version":"1","ApiVersion":"1.41"}"#)), "who is neither is not guessed");
    assert!(is_malformed(&kind(r#"{"Components":[{"Name":"Engine","Version":"1"}],"Version":"1"}"#)));
}

#[test]
fn an_engine_that_is_newer_than_we_know_is_asked_as_we_know_it() {
    let version = crate::engine::fake::DOCKER.replace("1.41", "1.99");
    let fake = Fake::new([
        ("GET /version", Reply::good(version)),
        ("GET /v1.53/containers/json", Reply::good("[]")),
    ]);
    assert_eq!(live(&fake).unwrap(), []);
}

fn inspected(digit: char, body: String) -> Result<Option<Inspected>, Fault> {
    let path = format!("GET /v1.41/containers/{}/json", id(digit).as_str());
    let fake = Fake::docker([(path.as_str(), Reply::good(body))]);
    let env = BTreeSet::from([BString::from("NONCE")]);
    call(&fake, PATIENCE, async |client| client.inspect(&id(digit), &env).await)
}

#[test]
fn facts_of_a_container() {
    let Inspected { facts, pid } = inspected('a', inspect('a')).unwrap().unwrap();
    assert_eq!(pid, Pid::new(4711));
    assert_eq!(facts.run.started, "2026-12-01T05:00:01.5Z");
    assert_eq!(facts.name, "kind_name");
    assert_eq!((facts.argv.len(), facts.command.len()), (3, 2));
    assert_eq!(facts.init.unwrap_err().reason, Reason::NotAsked);
    assert_eq!((facts.stdin.open, facts.stdin.once, facts.stdin.attached), {
        (Attached::Yes, Attached::Yes, Attached::Yes)
    });
    assert_eq!((facts.foreground, facts.tty), (Ok(Attached::Yes), Tty::No));
    assert_eq!((facts.removal, facts.restart), (AutoRemoval::Yes, RestartPolicy::No));
    assert_eq!(facts.health, Some(Health::Unhealthy { failing: 3 }));
    let port = |address: &str, port, inside: &str| Published {
        address: address.into(),
        port,
        inside: inside.into(),
    };
    assert_eq!(facts.published, [port("0.0.0.0", 8443, "443/tcp"), port("", 0, "80/tcp")]);
    assert_eq!(facts.mounts.len(), 1);
    assert_eq!(facts.env, BTreeMap::from([("NONCE".into(), "1=2".into())]), "secrets stay out");
    assert_eq!(facts.execs, ["e".repeat(64)]);
}

#[test]
fn facts_of_another_container_and_facts_with_holes_are_none() {
    assert!(is_malformed(&inspected('a', inspect('b'))), "an answer for another id");
    for field in ["StartedAt", "AutoRemove", "RestartPolicy", "OpenStdin", "StdinOnce", "AttachStdout", "Pid"]
    {
        let body = inspect('a').replace(&format!("\"{field}\""), "\"Other\"");
        assert!(is_malformed(&inspected('a', body)), "without {field}");
    }
    let body = inspect('a').replace("\"Pid\":4711", "\"Pid\":99999999999");
    assert!(is_malformed(&inspected('a', body)));
    let kept = inspect('a').replace("\"Name\":\"no\"", "\"Name\":\"always\"");
    let facts = inspected('a', kept).unwrap().unwrap().facts;
    assert_eq!(facts.restart, RestartPolicy::Kept("always".into()));
}

#[test]
fn what_podman_does_not_tell_is_unknown() {
    let path = format!("GET /v1.41/containers/{}/json", id('a').as_str());
    let body = inspect('a').replace("\"AttachStdout\":true,", "");
    let fake = Fake::new([("GET /version", Reply::good(PODMAN)), (path.as_str(), Reply::good(body))]);
    let env = BTreeSet::new();
    let facts =
        call(&fake, PATIENCE, async |client| client.inspect(&id('a'), &env).await).unwrap().unwrap().facts;
    assert_eq!(facts.foreground.unwrap_err().reason, Reason::Unsupported);
    assert_eq!((facts.stdin.open, facts.stdin.once, facts.stdin.attached), {
        (Attached::Yes, Attached::No, Attached::No)
    });
}

#[test]
fn an_unknown_container_is_nothing_and_not_a_fault() {
    let fake = Fake::docker([]);
    let answer = call(&fake, PATIENCE, async |client| client.inspect(&id('a'), &BTreeSet::new()).await);
    assert_eq!(answer.unwrap(), None);
    assert_eq!(call(&fake, PATIENCE, async |client| client.exec(&"e".repeat(64)).await).unwrap(), None);
}

#[test]
fn what_the_engine_says_to_a_step_is_told_apart() {
    let path = format!("/v1.41/containers/{}", id('a').as_str());
    let step = |status, body: &str| {
        let reply = || Reply::Whole(status, body.to_owned());
        let (stop, kill, remove) =
            (format!("POST {path}/stop"), format!("POST {path}/kill"), format!("DELETE {path}"));
        let fake =
            Fake::docker([(stop.as_str(), reply()), (kill.as_str(), reply()), (remove.as_str(), reply())]);
        let answers = call(&fake, PATIENCE, async |client| {
            Ok([
                client.stop(&id('a'), Duration::from_millis(3900)).await,
                client.kill(&id('a')).await,
                client.remove(&id('a'), Fate::Remove).await,
            ])
        });
        (answers.unwrap(), fake.heard())
    };
    let (answers, heard) = step(204, "");
    assert!(answers.iter().all(|answer| matches!(answer, Ok(Said::Done))), "{answers:?}");
    assert_eq!(heard[2], format!("POST {path}/stop?t=4"), "no less than was promised");
    assert_eq!(heard[4], format!("DELETE {path}?v=true&force=false&link=false"));
    for (status, body) in [(304, ""), (404, r#"{"message":"none"}"#), (409, r#"{"message":"in progress"}"#)] {
        let (answers, _) = step(status, body);
        assert!(answers.iter().all(|answer| matches!(answer, Ok(Said::Already(_)))), "{status}: {answers:?}");
    }
    let (answers, _) = step(500, r#"{"message":"no"}"#);
    assert!(answers.iter().all(|answer| matches!(answer, Err(Fault::Refused { status: 500, .. }))));
}

#[test]
fn a_stop_waits_for_its_grace_and_no_longer() {
    let path = format!("POST /v1.41/containers/{}/stop", id('a').as_str());
    let fake = Fake::docker([(path.as_str(), Reply::Silence)]);
    let began = Instant::now();
    let answer = call(&fake, SHORT, async |client| client.stop(&id('a'), Duration::from_secs(1)).await);
    assert!(matches!(answer, Err(Fault::Hung)));
    assert!(began.elapsed() >= Duration::from_secs(1), "{:?}", began.elapsed());
}

#[test]
fn labels_of_an_image() {
    let digits = "f".repeat(64);
    let body = |id: &str| format!(r#"{{"Id":"sha256:{id}","Config":{{"Labels":{{"a":"b"}}}}}}"#);
    let ask = |body: String, image: &str| {
        let path = format!("GET /v1.41/images/sha256:{digits}/json");
        let fake = Fake::docker([(path.as_str(), Reply::good(body))]);
        call(&fake, PATIENCE, async |client| client.image_labels(image).await)
    };
    let image = format!("sha256:{digits}");
    assert_eq!(ask(body(&digits), &image).unwrap(), BTreeMap::from([("a".into(), "b".into())]));
    assert!(is_malformed(&ask(body(&"0".repeat(64)), &image)), "another image");
    assert!(is_malformed(&ask(body(&digits), "../containers/x")), "a path that leads elsewhere");
}

#[test]
fn a_command_in_a_container() {
    let exec = "e".repeat(64);
    let body = |running: bool, id: &str| {
        format!(
            r#"{{"ID":"{id}","Running":{running},"ExitCode":null,"ProcessConfig":{{"tty":false,"entrypoint":"sh",
            "arguments":["-c","x"]}},"OpenStdin":true,"ContainerID":"{}","Pid":12}}"#,
            "a".repeat(64)
        )
    };
    let ask = |body: String| {
        let path = format!("GET /v1.41/exec/{exec}/json");
        let fake = Fake::docker([(path.as_str(), Reply::good(body))]);
        call(&fake, PATIENCE, async |client| client.exec(&exec).await)
    };
    let runs = ask(body(true, &exec)).unwrap().unwrap();
    assert_eq!((runs.state, runs.pid, runs.stdin), (ExecState::Runs, Pid::new(12), Attached::Yes));
    assert_eq!(runs.container, id('a'));
    let rests = ask(body(false, &exec)).unwrap().unwrap();
    assert_eq!((rests.state, rests.pid), (ExecState::Rests, None), "a number that it had");
    assert!(is_malformed(&ask(body(true, &"0".repeat(64)))));
}

#[test]
fn networks_and_who_else_is_in_them() {
    let network = "d".repeat(64);
    let uses = |name: &str, scope: &str| {
        let container = format!("GET /v1.41/containers/{}/json", id('a').as_str());
        let path = format!("GET /v1.41/networks/{network}");
        let body = format!(
            r#"{{"Name":"{name}","Id":"{network}","Scope":"{scope}","Driver":"bridge","Ingress":false,
            "Containers":{{"{}":{{"Name":"x"}}}}}}"#,
            id('c').as_str()
        );
        let fake = Fake::docker([
            (container.as_str(), Reply::good(inspect('a').replace("\"mine\"", &format!("\"{name}\"")))),
            (LIST, Reply::good(rows(&[('a', "running"), ('b', "exited")]))),
            (path.as_str(), Reply::good(body)),
        ]);
        call(&fake, PATIENCE, async |client| client.networks(&id('a')).await).unwrap()
    };
    let mine = uses("mine", "local");
    assert_eq!(mine.len(), 1);
    assert_eq!(mine[0].others, [id('b'), id('c')], "a stopped one counts");
    assert_eq!(mine[0].origin, NetworkOrigin::Made);
    assert_eq!(uses("bridge", "local")[0].origin, NetworkOrigin::Predefined);
    assert_eq!(uses("mine", "swarm")[0].origin, NetworkOrigin::Predefined);
}

#[test]
fn a_network_is_looked_at_once_its_container_is_gone() {
    let network = "d".repeat(64);
    let path = format!("GET /v1.41/networks/{network}");
    let body =
        format!(r#"{{"Name":"mine","Id":"{network}","Scope":"local","Driver":"bridge","Containers":{{}}}}"#);
    let look = |all: &[(char, &str)], network: &str| {
        let fake = Fake::docker([(LIST, Reply::good(rows(all))), (path.as_str(), Reply::good(body.clone()))]);
        call(&fake, PATIENCE, async |client| client.network("mine", network, &id('a')).await)
    };
    assert_eq!(look(&[], &network).unwrap().unwrap().others, []);
    assert_eq!(look(&[('a', "exited")], &network).unwrap().unwrap().others, [], "it does not count itself");
    let joined = look(&[('b', "created")], &network).unwrap().unwrap();
    assert_eq!((joined.others, joined.origin), (vec![id('b')], NetworkOrigin::Made));
    assert_eq!(look(&[], &"e".repeat(64)).unwrap(), None);
    assert!(is_malformed(&look(&[], "../containers")));
}

#[test]
fn no_connection_is_left_behind() {
    let fake = Fake::docker([(LIST, Reply::good("[]"))]);
    run(async {
        let client = Client::connect(&fake.id(), PATIENCE).await.unwrap();
        for _ in 0..20 {
            client.list(Which::Live).await.unwrap();
        }
        let name = fake.path();
        let began = Instant::now();
        while connected(&name) > 0 && began.elapsed() < PATIENCE {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        assert_eq!(connected(&name), 0);
    })
    .unwrap();
}

/// Returns how many accepted connections of a listener the kernel still has; elsewhere than on Linux it does not say.
fn connected(path: &Path) -> usize {
    let list = std::fs::read_to_string("/proc/net/unix").unwrap_or_default();
    list.lines().filter(|line| line.contains(" 03 ") && line.ends_with(path.to_str().unwrap())).count()
}
