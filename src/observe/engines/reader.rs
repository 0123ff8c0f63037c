//! Reads standard inputs that the kernel does not let us see, through a container of our own (`[docker] stdin =
//! "helper"`): it runs this very program, which is mounted into it with its loader and libraries.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::engine::{self, Client, Errand, Fault};
use crate::model::id::{Pid, ProcessId, Start};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::Channel;
use crate::observe::channels::Channels;

/// Processes that are asked about in one container.
const ASKED_MOST: usize = 256;
/// Where our files are inside.
const INSIDE: &str = "/reapd";
/// The command that runs inside; not for people.
const COMMAND: &str = "stdin";
/// Starting a container takes some tenths of a second, and more on a busy machine.
const PATIENCE: Duration = Duration::from_secs(5);

/// What is printed for one process, on a line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Line {
    of: ProcessId,
    channel: Known<Channel>,
}

/// Prints what the standard input of each of these processes is: `PID:START`. This is what runs in the container.
pub fn stdin_main(asked: &[String]) -> ExitCode {
    let mut channels = Channels::new();
    let mut out = std::io::stdout().lock();
    for word in asked {
        let Some(of) = id(word) else { return ExitCode::FAILURE };
        let line = Line { of, channel: channels.channel(of, 0) };
        let printed = serde_json::to_string(&line).is_ok_and(|line| writeln!(out, "{line}").is_ok());
        if !printed {
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

fn id(word: &str) -> Option<ProcessId> {
    let (pid, start) = word.split_once(':')?;
    Some(ProcessId { pid: Pid::new(pid.parse().ok()?)?, start: Start(start.parse().ok()?) })
}

/// Asks for the standard inputs of these first processes of containers of one engine, in a container of this image.
pub(super) fn read(
    client: &Client,
    image: &str,
    program: &Path,
    asked: &BTreeSet<ProcessId>,
) -> BTreeMap<ProcessId, Known<Channel>> {
    let said = errand(image, program, asked).and_then(|errand| {
        let said = engine::run(async {
            let client = Client::connect(client.id(), PATIENCE).await?;
            client.errand(&errand).await
        });
        said.and_then(|said| said).map_err(|fault: Fault| {
            let why = Unknown::from(&fault);
            Unknown::new(why.reason, format!("asking a helper container ({fault})"))
        })
    });
    let mut found = match &said {
        Ok(text) => lines(text, asked),
        Err(_) => BTreeMap::new(),
    };
    for &of in asked {
        found.entry(of).or_insert_with(|| {
            Err(said.clone().err().unwrap_or_else(|| {
                Unknown::new(
                    Reason::NoRecord,
                    "its standard input, of which the helper container said nothing",
                )
            }))
        });
    }
    found
}

/// Reads what was printed. What nobody asked for, and what is no line of ours, counts for nothing.
fn lines(text: &[u8], asked: &BTreeSet<ProcessId>) -> BTreeMap<ProcessId, Known<Channel>> {
    let lines = text.split(|&byte| byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
    lines.map(|Line { of, channel }| (of, channel)).filter(|(of, _)| asked.contains(of)).collect()
}

fn errand(image: &str, program: &Path, asked: &BTreeSet<ProcessId>) -> Known<Errand> {
    let what = || Unknown::new(Reason::Unsupported, "running in a helper container");
    let program = program.canonicalize().map_err(|_| what())?;
    let maps = std::fs::read_to_string("/proc/self/maps").map_err(|_| what())?;
    let mut files = vec![(text(&program)?, format!("{INSIDE}/reapd"))];
    let mut loader = None;
    for path in libraries(&maps) {
        let name = path.rsplit('/').next().unwrap_or_default();
        let inside = format!("{INSIDE}/{name}");
        if name.starts_with("ld-") || name.starts_with("ld64") {
            loader = Some(inside.clone());
        }
        files.push((path, inside));
    }
    let mut argv: Vec<String> = match loader {
        Some(loader) => vec![loader, "--library-path".into(), INSIDE.into()],
        None => Vec::new(),
    };
    argv.extend([format!("{INSIDE}/reapd"), COMMAND.to_owned()]);
    argv.extend(asked.iter().take(ASKED_MOST).map(|of| format!("{}:{}", of.pid, of.start.0)));
    let mut random = [0_u8; 8];
    rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(|_| what())?;
    let name = format!("reapd-helper-{:016x}", u64::from_ne_bytes(random));
    Ok(Errand { image: image.to_owned(), name, argv, files })
}

/// Returns the shared objects in our own address space (proc_pid_maps(5)): whoever loads this program needs no others.
fn libraries(maps: &str) -> BTreeSet<String> {
    let path = |line: &str| line.find('/').map(|at| line[at..].to_owned());
    let is_library = |path: &String| {
        let name = path.rsplit('/').next().unwrap_or_default();
        name.split('.').skip(1).any(|part| part == "so")
    };
    maps.lines().filter_map(path).filter(is_library).collect()
}

fn text(path: &Path) -> Known<String> {
    path.to_str()
        .map(str::to_owned)
        .ok_or_else(|| Unknown::new(Reason::Unsupported, "running in a helper container"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::question::ChannelKind;

    fn process(pid: i32) -> ProcessId {
        ProcessId { pid: Pid::new(pid).unwrap(), start: Start(9) }
    }

    #[test]
    fn lines_of_those_who_were_asked_about() {
        let unknown = || Err(Unknown::new(Reason::Denied, "x"));
        let channel = Channel { kind: ChannelKind::Null, far: unknown(), unread: unknown() };
        let line =
            |pid| serde_json::to_string(&Line { of: process(pid), channel: Ok(channel.clone()) }).unwrap();
        let text = format!("{}\nrubbish\n{}\n", line(7), line(8));
        let found = lines(text.as_bytes(), &BTreeSet::from([process(7), process(5)]));
        assert_eq!(found, BTreeMap::from([(process(7), Ok(channel))]));
    }

    #[test]
    fn the_loader_runs_this_program_with_its_own_libraries() {
        let maps = "55-56 r-xp 00000000 fe:00 7 /usr/bin/reapd\n\
            7f-80 r--p 00000000 fe:00 8    /usr/lib/libc.so.6\n7f-80 r-xp 00000000 fe:00 8    /usr/lib/libc.so.6\n\
            7f-80 r-xp 0 fe:00 9 /usr/lib/ld-linux-x86-64.so.2\n7ff-800 rw-p 0 00:00 0 [stack]\n";
        let found: Vec<String> = libraries(maps).into_iter().collect();
        assert_eq!(found, ["/usr/lib/ld-linux-x86-64.so.2", "/usr/lib/libc.so.6"]);
        let own = std::env::current_exe().unwrap();
        let errand = errand("sha256:0", &own, &BTreeSet::from([process(7)])).unwrap();
        assert_eq!(errand.files[0].1, "/reapd/reapd");
        assert_eq!(errand.argv[errand.argv.len() - 3..], ["/reapd/reapd", "stdin", "7:9"]);
    }

    #[test]
    fn ids_as_they_are_written() {
        assert_eq!(id("7:9"), Some(process(7)));
        for word in ["", "7", "0:9", "7:x", "-1:9", "x:9"] {
            assert_eq!(id(word), None, "{word}");
        }
    }
}
