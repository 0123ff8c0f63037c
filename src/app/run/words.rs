//! The command line of `reapd run`, read without clap: building clap's tables would cost more than all else here.
//!
//! It takes what it fully understands and leaves everything else, help and faults included, to clap.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::time::Duration;

use crate::app::cli::{Place, Run};
use crate::config::duration;
use crate::model::id::Pid;
use crate::model::lease::Leftovers;

/// What is to be run, checked.
#[derive(Debug, Clone)]
pub(super) struct Order {
    /// Configuration and state directory, for whoever ends the tree.
    pub(super) place: Place,
    /// After how long without a byte moved the tree ends.
    pub(super) idle: Option<Duration>,
    /// What becomes of what the command leaves behind.
    pub(super) leftovers: Leftovers,
    /// Whose death ends the tree, where somebody is named.
    pub(super) holder: Option<Pid>,
    /// How the command is started.
    pub(super) way: Way,
    /// Words for policies to capture.
    pub(super) labels: BTreeMap<String, String>,
    /// How much is said.
    pub(super) talk: Talk,
    /// The command and its arguments; at least one word.
    pub(super) command: Vec<OsString>,
}

/// How the command is started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// As a child that is watched.
    Watch,
    /// In our own place.
    Exec,
}

/// How much is said on stderr.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Talk {
    /// Only what was ended.
    Quiet,
    /// What is done and what could not be.
    Verbose,
}

/// Reads the words behind `run`; nothing where clap has to.
pub(super) fn read(words: impl IntoIterator<Item = OsString>) -> Option<(Place, Run)> {
    let (mut place, mut run) = (Place::default(), Run { leftovers: "reap".to_owned(), ..Run::default() });
    let mut leftovers = None;
    let mut words = words.into_iter();
    loop {
        let word = words.next()?;
        let bytes = word.as_encoded_bytes();
        if bytes == b"--" {
            break;
        }
        if !bytes.starts_with(b"-") || bytes == b"-" {
            run.command.push(word);
            break;
        }
        let text = word.to_str()?;
        let (name, value) = match text.split_once('=') {
            Some((name, value)) => (name, Some(OsString::from(value))),
            None => (text, None),
        };
        match (name, &value) {
            ("--exec", None) => once(&mut run.exec)?,
            ("-v" | "--verbose", None) => once(&mut run.verbose)?,
            ("--host", None) => once(&mut place.host)?,
            ("--json", None) => once(&mut place.json)?,
            ("--idle", _) => fill(&mut run.idle, text_of(value, &mut words)?)?,
            ("--leftovers", _) => fill(&mut leftovers, text_of(value, &mut words)?)?,
            ("--label", _) => run.labels.push(text_of(value, &mut words)?),
            ("--holder", _) => fill(&mut run.holder, text_of(value, &mut words)?.parse().ok()?)?,
            ("--config", _) => fill(&mut place.config, value_of(value, &mut words)?.into())?,
            ("--state-dir", _) => fill(&mut place.state_dir, value_of(value, &mut words)?.into())?,
            _ => return None,
        }
    }
    run.command.extend(words);
    if let Some(leftovers) = leftovers {
        run.leftovers = leftovers;
    }
    (!run.command.is_empty()).then_some((place, run))
}

/// Sets what may be set once.
fn once(flag: &mut bool) -> Option<()> {
    (!std::mem::replace(flag, true)).then_some(())
}

fn fill<T>(place: &mut Option<T>, value: T) -> Option<()> {
    place.replace(value).is_none().then_some(())
}

/// Returns the value behind the `=`, or the next word where it cannot be a flag.
fn value_of(value: Option<OsString>, words: &mut impl Iterator<Item = OsString>) -> Option<OsString> {
    match value {
        Some(value) => Some(value).filter(|value| !value.is_empty()),
        None => words.next().filter(|word| !word.is_empty() && !is_flag(word)),
    }
}

fn text_of(value: Option<OsString>, words: &mut impl Iterator<Item = OsString>) -> Option<String> {
    value_of(value, words)?.into_string().ok()
}

fn is_flag(word: &OsStr) -> bool {
    word.as_encoded_bytes().starts_with(b"-")
}

/// Checks the values, and says what is wrong with one.
pub(super) fn check(place: Place, run: Run) -> Result<Order, String> {
    let idle = match &run.idle {
        None => None,
        Some(text) => {
            let span = duration::parse(text).map_err(|why| format!("--idle '{text}': {why}"))?;
            if span < SHORTEST_IDLE {
                return Err(format!("--idle '{text}': a second at least"));
            }
            Some(span)
        }
    };
    let leftovers = match run.leftovers.as_str() {
        "reap" => Leftovers::Reap,
        "report" => Leftovers::Report,
        other => return Err(format!("--leftovers '{other}': reap or report")),
    };
    let holder = match run.holder {
        None => None,
        Some(number) => {
            Some(Pid::new(number).ok_or(format!("--holder {number}: no process has this number"))?)
        }
    };
    let mut labels = BTreeMap::new();
    for label in run.labels {
        let Some((key, value)) = label.split_once('=').filter(|(key, _)| !key.is_empty()) else {
            return Err(format!("--label '{label}': KEY=VALUE is wanted"));
        };
        labels.insert(key.to_owned(), value.to_owned());
    }
    Ok(Order {
        place,
        idle,
        leftovers,
        holder,
        way: if run.exec { Way::Exec } else { Way::Watch },
        labels,
        talk: if run.verbose { Talk::Verbose } else { Talk::Quiet },
        command: run.command,
    })
}

/// Less says nothing: a command that starts or waits for the disk moves nothing for as long.
const SHORTEST_IDLE: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::*;
    use crate::app::cli::{Cli, Command};

    fn words(line: &str) -> Vec<OsString> {
        line.split_whitespace().map(OsString::from).collect()
    }

    /// What clap makes of the same words.
    fn by_clap(line: &str) -> Option<(Place, Run)> {
        let all = ["reapd", "run"].into_iter().map(OsString::from).chain(words(line));
        match Cli::try_parse_from(all) {
            Ok(Cli { place, command: Command::Run(run) }) => Some((place, run)),
            Ok(_) | Err(_) => None,
        }
    }

    const UNDERSTOOD: &[&str] = &[
        "-- true",
        "true",
        "sh -c x",
        "-- -v",
        "true -- --idle",
        "true --exec -v --bogus",
        "--exec -- true -x",
        "-v true",
        "--verbose --leftovers report -- a b c",
        "--leftovers=report a",
        "--idle 30m -- a",
        "--idle=30m a",
        "--holder 12 --label a=b --label=c=d --label e= -- a",
        "--holder=12 a",
        "--config /x --state-dir=/y --host --json -- a -- b",
        "- a",
        "-- -- a",
    ];

    /// Each is for clap, which mostly says what is wrong with it.
    const NOT_UNDERSTOOD: &[&str] = &[
        "",
        "--",
        "-v",
        "--idle",
        "--idle 3s",
        "--idle 3s --idle 4s -- a",
        "--exec --exec -- a",
        "--exec=yes -- a",
        "-vv a",
        "-vx a",
        "--bogus -- a",
        "--idl 3s -- a",
        "--holder x -- a",
        "--holder -5 -- a",
        "--leftovers -- a",
        "--label -x -- a",
        "--config= -- a",
        "--help",
        "-h",
        "true2 --",
    ];

    #[test]
    fn what_is_read_here_is_what_clap_reads() {
        for line in UNDERSTOOD {
            let ours = read(words(line));
            assert!(ours.is_some(), "not understood: {line}");
            assert_eq!(format!("{ours:?}"), format!("{:?}", by_clap(line)), "{line}");
        }
        for line in NOT_UNDERSTOOD {
            if let Some(ours) = read(words(line)) {
                assert_eq!(format!("{:?}", Some(ours)), format!("{:?}", by_clap(line)), "{line}");
            }
        }
    }

    #[test]
    fn every_flag_that_clap_knows_is_read_here() {
        use clap::CommandFactory as _;
        let mut cli = Cli::command();
        cli.build();
        let run = cli.find_subcommand("run").unwrap();
        for argument in run.get_arguments().filter(|argument| !argument.is_positional()) {
            let name = argument.get_long().unwrap();
            if name == "help" {
                continue;
            }
            let takes = argument.get_action().takes_values();
            let line = if takes { format!("--{name} 5 -- a") } else { format!("--{name} -- a") };
            assert!(read(words(&line)).is_some(), "--{name} is not read");
        }
    }

    #[test]
    fn values_are_checked() {
        let checked = |line: &str| {
            let (place, run) = read(words(line)).unwrap();
            check(place, run)
        };
        let order = checked("--idle 5s --leftovers report --holder 7 --label a=b=c -v -- x y").unwrap();
        assert_eq!(order.idle, Some(Duration::from_secs(5)));
        assert_eq!((order.leftovers, order.way, order.talk), (Leftovers::Report, Way::Watch, Talk::Verbose));
        assert_eq!(order.holder, Pid::new(7));
        assert_eq!(order.labels, BTreeMap::from([("a".to_owned(), "b=c".to_owned())]));
        assert_eq!(order.command, ["x", "y"]);
        for wrong in [
            "--idle 5 a",
            "--idle 10ms a",
            "--leftovers kill a",
            "--holder 0 a",
            "--label a b",
            "--label =b c",
        ] {
            assert!(checked(wrong).is_err(), "{wrong}");
        }
    }
}
