//! What brokers and many sockets add to a sweep: 50 broker-shaped servers and 5,000 Unix sockets beside the idle ones.
//!
//! Everything passive that a rule may ask of a broker is asked of all of them at every look. Who carries a socket's
//! path is measured by itself: it is asked only where everything else of a line holds already.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

use bstr::BString;
use reapd::model::id::{Pid, ProcessId};
use reapd::model::question::{Answer, Question};
use reapd::model::table::Table;
use reapd::observe::Observer;

use crate::measure::{Figure, median, own};
use crate::scan::{observer, with_aside};

/// Tells the started benchmark what to be: a broker, or the holder of many sockets.
const ROLE: &str = "REAPD_BENCH_BROKER";
const BROKERS: usize = 50;
/// Pairs of sockets in each of the holders: a process may have 1,024 descriptors by default.
const PAIRS: usize = 250;
const HOLDERS: usize = 10;
/// Looks before the steady state is measured, and looks in one round.
const WARM: u32 = 3;
const LOOKS: u32 = 5;

/// Says whether this process is one of those that the benchmark looks at.
pub(crate) fn is_broker() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// Is a broker or a holder until standard input ends.
pub(crate) fn be_broker() {
    let role = std::env::var(ROLE).unwrap_or_default();
    let listener = role.strip_prefix("broker ").map(UnixListener::bind);
    let pairs: Vec<_> =
        if listener.is_some() { Vec::new() } else { (0..PAIRS).map(|_| UnixStream::pair()).collect() };
    let is_whole = listener.as_ref().is_none_or(Result::is_ok) && pairs.iter().all(Result::is_ok);
    let _ = writeln!(std::io::stdout(), "{}", if is_whole { "ready" } else { "short" });
    let _ = std::io::stdin().read_to_end(&mut Vec::new());
}

/// A process that ends with this.
struct Started(Child);

impl Started {
    fn new(role: &str, arguments: &[&str]) -> Started {
        let mut child = Command::new(std::env::current_exe().expect("we have a path"))
            .arg0("node")
            .args(arguments)
            .env(ROLE, role)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("we can start ourselves");
        let mut line = String::new();
        BufReader::new(child.stdout.as_mut().expect("it has a pipe"))
            .read_line(&mut line)
            .expect("it speaks");
        assert_eq!(line, "ready\n", "one could not be started");
        Started(child)
    }

    fn broker(folder: &Path, number: usize) -> (Started, String) {
        let socket = folder.join(number.to_string());
        let socket = socket.to_str().expect("it is plain").to_owned();
        let endpoint = format!("unix:{socket}");
        let arguments =
            ["/opt/codex/app-server-broker.mjs", "serve", "--endpoint", &endpoint, "--cwd", "/tmp"];
        (Started::new(&format!("broker {socket}"), &arguments), socket)
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        drop(self.0.stdin.take());
        let _ = self.0.wait();
    }
}

/// Measures in turn, round by round.
pub(crate) fn figures(rounds: usize) -> Vec<Figure> {
    // tmpfs, where the kernel tells which file a socket was bound to.
    let folder = tempfile::tempdir_in("/dev/shm").expect("there is room");
    let brokers: Vec<(Started, String)> =
        (0..BROKERS).map(|number| Started::broker(folder.path(), number)).collect();
    let holders: Vec<Started> = (0..HOLDERS).map(|_| Started::new("holder", &[])).collect();
    let mut observer = observer();
    let asked = asked(&mut observer, &brokers);
    let mut table = Table::default();
    for _ in 0..WARM {
        look(&mut observer, &asked.cheap);
        look(&mut observer, &asked.named);
        observer.scan(&mut table).expect("the table can be read");
    }
    let mut samples: Vec<[f64; 3]> = Vec::new();
    for _ in 0..rounds {
        let scan = own(LOOKS, || observer.scan(&mut table).expect("the table can be read"));
        let cheap = with_aside(&mut observer, LOOKS, |observer| look(observer, &asked.cheap));
        let named = with_aside(&mut observer, 1, |observer| look(observer, &asked.named));
        samples.push([scan.as_secs_f64(), cheap.as_secs_f64(), named.as_secs_f64()]);
    }
    drop((brokers, holders));
    let each = |at: usize| median(samples.iter().map(|sample| sample[at] * 1e3).collect());
    for (at, what) in
        ["scan beside brokers", "look, all of brokers asked", "look, names asked"].iter().enumerate()
    {
        println!("{what:<26} {:>9.2} ms", each(at));
    }
    let ratio = |at: usize| median(samples.iter().map(|sample| sample[at] / sample[0]).collect());
    vec![
        Figure {
            what: "look at 50 brokers among 5,000 sockets / table scan".into(),
            measured: ratio(1),
            budget: Some(2.0),
        },
        Figure {
            what: "look for who names 50 sockets / table scan".into(),
            measured: ratio(2),
            budget: None,
        },
    ]
}

struct Asked {
    cheap: Vec<Question>,
    named: Vec<Question>,
}

fn asked(observer: &mut Observer, brokers: &[(Started, String)]) -> Asked {
    let snapshot = observer.table().expect("the table can be read");
    let id = |broker: &Started| -> ProcessId {
        let pid = i32::try_from(broker.0.id()).ok().and_then(Pid::new).expect("a number");
        snapshot.table.at(pid).expect("it is there").id
    };
    let mut asked = Asked { cheap: Vec::new(), named: Vec::new() };
    for (broker, socket) in brokers {
        let of = id(broker);
        let path = || BString::from(socket.as_str());
        asked.cheap.push(Question::Facts(of));
        asked.cheap.push(Question::Path { of, path: "/tmp".into() });
        asked.cheap.push(Question::Sockets(of));
        let Some((_, Ok(Answer::Sockets(sockets)))) = observer.answer(&snapshot, &asked.cheap).pop() else {
            continue;
        };
        let file = sockets.listeners[0].file.expect("tmpfs can be trusted");
        asked.cheap.push(Question::Bound { of, path: path(), file });
        asked.named.push(Question::Named { of, text: path() });
    }
    observer.recycle(snapshot);
    assert_eq!(asked.named.len(), BROKERS);
    asked
}

fn look(observer: &mut Observer, questions: &[Question]) {
    let snapshot = observer.table().expect("the table can be read");
    let answers = observer.answer(&snapshot, questions);
    let is_known = |(_, answer): &(Question, reapd::model::known::Known<Answer>)| answer.is_ok();
    assert!(answers.iter().all(is_known), "everything was answered");
    observer.recycle(snapshot);
}
