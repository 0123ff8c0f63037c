//! Leases, cookies and registry answers in worlds.

use std::collections::BTreeMap;

use super::*;
use crate::model::lease::*;

fn spans() -> impl Strategy<Value = Duration> {
    any::<u64>().prop_map(Duration::from_nanos)
}

pub(super) fn holder() -> BoxedStrategy<Holder> {
    let numbers =
        (option::of(any::<u64>()), option::of(any::<u64>()), option::of(any::<u64>()), option::of(spans()));
    (pid(), numbers, option::of(text()), option::of(text()))
        .prop_map(|(pid, (start, pidns, timens, age), boot, host)| Holder {
            pid,
            start: start.map(Start),
            boot: boot.map(BootId),
            pidns,
            timens,
            host,
            age,
        })
        .boxed()
}

fn run() -> impl Strategy<Value = Run> {
    let cgroup =
        option::of((text(), file()).prop_map(|(path, file)| crate::model::lease::Cgroup { path, file }));
    (id(), option::of(id()), any::<bool>(), any::<bool>(), cgroup).prop_map(
        |(watcher, command, reap, stdio, cgroup)| Run {
            watcher,
            command,
            leftovers: if reap { Leftovers::Reap } else { Leftovers::Report },
            channel: if stdio { RunChannel::Stdio } else { RunChannel::None },
            cgroup,
        },
    )
}

fn lease() -> BoxedStrategy<Lease> {
    let covers =
        (option::of(bytes()), vec(id(), 0..3)).prop_map(|(env, processes)| Covers { env, processes }).boxed();
    let labels = proptest::collection::btree_map(prop_oneof![text(), "[a-z.-]{1,4}"], text(), 0..3);
    let release = option::of(option::of(text()))
        .prop_map(|release| release.map_or(Release::Open, Release::Released))
        .boxed();
    let ends = (option::of(spans()), holder(), any::<bool>()).prop_map(|(ttl, holder, held)| match ttl {
        Some(ttl) => (Bound::Ttl(ttl), held.then_some(holder)),
        None => (Bound::Holder, Some(holder)),
    });
    ("[a-c]", 0..2_u32, (file(), any::<i64>()), ends, (covers, labels, option::of(text()), release))
        .prop_flat_map(|(name, owner, (file, modified), (bound, holder), (covers, labels, note, release))| {
            let file = LeaseFile { owner: Uid(owner), file, modified };
            let id = LeaseId::new(&name).unwrap();
            option::of(run()).prop_map(move |run| Lease {
                id: id.clone(),
                file,
                bound,
                holder: holder.clone(),
                covers: covers.clone(),
                labels: labels.clone(),
                note: note.clone(),
                release: release.clone(),
                run,
            })
        })
        .boxed()
}

pub(super) fn leases() -> BoxedStrategy<Leases> {
    let faulty =
        (option::of(any::<u32>()), bytes(), reason(), text()).prop_map(|(owner, stem, reason, what)| {
            FaultyLease { owner: owner.map(Uid), stem, why: Unknown::new(reason, what) }
        });
    let cookies = proptest::collection::btree_map(id(), known(bytes()), 0..4);
    let grouped =
        proptest::collection::btree_map(id(), "[a-c]".prop_map(|name| LeaseId::new(&name).unwrap()), 0..3);
    (vec(lease(), 0..4), vec(faulty, 0..2), cookies, grouped)
        .prop_map(|(list, faulty, cookies, grouped)| {
            let list: BTreeMap<_, _> =
                list.into_iter().map(|lease| ((lease.file.owner, lease.id.clone()), lease)).collect();
            Leases { list: list.into_values().collect(), faulty, cookies, grouped }
        })
        .boxed()
}

pub(super) fn registered() -> BoxedStrategy<Registered> {
    prop_oneof![
        option::of(holder()).prop_map(|holder| Registered::Listed { holder: holder.map(Box::new) }),
        text().prop_map(Registered::Over),
        any::<u64>().prop_map(|others| Registered::NotListed { others }),
    ]
    .boxed()
}

const LEASED: &str = r#"
reapd world 1
look at 10d uid=1000 home=/home/ana
  pid  ppid began command
  1    0    10d   init
  900  1    9d    -
  4410 900  2d    gateway
  4242 1    3d    node serve
  4243 4242 2d    codex
  lease gw-1 holder=4410 start=here age=61s env=gw-1 covers=4242,77@5 label.session=s1 modified=7
  lease gw-2 ttl=30s note="two words" released="it said so"
  lease run-1 holder=4410 env=run-1 watcher=55@9 command=4243 channel=stdio
  faulty-lease n-81 ?unsupported:"line 1, column 9: expected value"
  cookie 4243 gw-1
  cookie 4242 ?denied
  registered 4242 nodes /run/nodes/*.json 77 listed holder=4410 start=here boot=boot-1
  registered 4243 nodes /run/nodes/*.json 78 others=3
  registered 4243 gate - 78 over="status is closed"
look after 10s as before
  gone 4243
  lease gw-1 holder=4410 env=gw-1 released
  no-lease gw-2
  no-lease n-81
"#;

fn named<'a>(look: &'a Look, id: &str) -> Option<&'a Lease> {
    look.snapshot.leases.get(Uid(1000), &LeaseId::new(id).unwrap())
}

#[test]
fn a_lease_says_only_what_it_must() {
    let look = &parse(LEASED).unwrap()[0];
    let lease = named(look, "gw-1").unwrap();
    let holder = lease.holder.as_ref().unwrap();
    assert_eq!(holder.start, Some(of(look, 4410).id.start), "start=here");
    assert_eq!((&holder.boot, holder.pidns, holder.timens), (&None, None, None), "nothing is made up");
    assert_eq!(
        lease.covers.processes,
        [of(look, 4242).id, ProcessId { pid: Pid::new(77).unwrap(), start: Start(5) }]
    );
    assert_eq!((lease.file.owner, lease.file.modified), (Uid(1000), 7));
    assert_ne!(lease.file.file, named(look, "gw-2").unwrap().file.file, "two files are two");
    assert_eq!(named(look, "gw-2").unwrap().bound, Bound::Ttl(Duration::from_secs(30)));
    let run = named(look, "run-1").unwrap().run.as_ref().unwrap();
    assert_eq!((run.leftovers, run.channel), (Leftovers::Reap, RunChannel::Stdio));
    let cookies = &look.snapshot.leases.cookies;
    assert_eq!(cookies[&of(look, 4243).id], Ok("gw-1".into()));
    assert!(cookies[&of(look, 4242).id].is_err());
    let env = look.facts(of(look, 4243).id).unwrap().unwrap().env.as_ref().unwrap();
    assert_eq!(env[BString::from(COOKIE).as_bstr()], "gw-1", "a cookie is a variable");
    let question = Question::Registered {
        of: of(look, 4243).id,
        registry: "gate".into(),
        place: "".into(),
        key: "78".into(),
    };
    let over = Registered::Over("status is closed".into());
    assert_eq!(look.answers[&question], Ok(Answer::Registered(over)));
}

#[test]
fn leases_go_on_until_they_are_said_anew_or_taken_away() {
    let looks = parse(LEASED).unwrap();
    let look = &looks[1];
    assert_eq!(named(look, "gw-1").unwrap().release, Release::Released(None));
    assert_eq!(named(look, "gw-1").unwrap().file.modified, 0, "said again, it is replaced whole");
    assert_eq!(named(look, "gw-2"), None);
    assert_eq!(named(look, "run-1"), named(&looks[0], "run-1"));
    assert_eq!(look.snapshot.leases.faulty, []);
    let with: Vec<i32> = look.snapshot.leases.cookies.keys().map(|id| id.pid.number()).collect();
    assert_eq!(with, [4242], "a cookie goes with its process");
}

#[test]
fn what_a_lease_cannot_say_is_refused() {
    for (line, says) in [
        ("lease gw-1", "holder= or a ttl="),
        ("lease gw/1 ttl=3s", "no lease's name"),
        ("lease gw-1 ttl=3", "no span"),
        ("lease gw-1 holder=0", "no process number"),
        ("lease gw-1 start=3 holder=4", "before holder="),
        ("lease gw-1 ttl=3s channel=stdio", "watcher="),
        ("lease gw-1 bound=ttl holder=3", "needs ttl="),
        ("no-lease gw-1", "to take away"),
        ("faulty-lease gw-1", "says why"),
        ("registered 7 n - k maybe", "others=NUMBER"),
    ] {
        let error =
            parse(&format!("reapd world 1\nlook at 1d\n pid began command\n 7 1h x\n {line}\n")).unwrap_err();
        assert!(error.message.contains(says), "{line}: {error}");
    }
    let strict = "reapd world 1 strict\nlook at 1d\n lease a ttl=3s owner=1 modified=0\n";
    assert!(parse(strict).unwrap_err().message.contains("file="));
}

#[test]
fn a_saved_lease_tells_nothing_and_still_fits_its_cookie() {
    let world = "reapd world 1\nlook at 10d home=/home/ana\n pid began command\n 7 1h x\n \
        lease secret-1 holder=7 host=anas-box env=secret-1 label.secret=hunter2 note=mine released=\"for ana\" \
        modified=1767225600000000000\n cookie 7 secret-1\n \
        faulty-lease secret-2 ?unsupported:\"invalid type: string \\\"my hunter two\\\", expected a map\"\n \
        registered 7 nodes /home/ana/n/*.json secret-1 over=\"ana left\"\n";
    let look = anonymise(&parse(world).unwrap()[0]);
    let text = print(&look);
    for secret in ["secret", "hunter", "mine", "ana", "box"] {
        assert!(!text.contains(secret), "{secret} in:\n{text}");
    }
    let lease = &look.snapshot.leases.list[0];
    let cookie = look.snapshot.leases.cookies.values().next().unwrap().as_ref().unwrap();
    assert_eq!(lease.covers.env.as_ref(), Some(cookie));
    assert_eq!(lease.id.as_str(), cookie.to_string());
    assert_eq!(lease.file.modified, 0, "wall clocks begin at the boot");
    assert!(
        look.answers
            .keys()
            .any(|question| matches!(question, Question::Registered { key, .. } if key == cookie))
    );
    assert_eq!(print(&anonymise(&look)), text, "twice is once");
}
