//! What `reapd run` costs in front of a command: the time until the command speaks, against the bare command and
//! against `env`, all interleaved; and the memory of the watcher.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads clocks and starts programs")]
#![expect(clippy::print_stdout, reason = "its output is its purpose")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on has failed")]

use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const ROUNDS: usize = 200;
const REAPD: &str = env!("CARGO_BIN_EXE_reapd");

fn main() {
    let leases = tempfile::tempdir().unwrap();
    let ways: [(&str, &[&str]); 3] = [
        ("bare", &["echo", "x"]),
        ("env", &["env", "echo", "x"]),
        ("reapd run", &[REAPD, "run", "--", "echo", "x"]),
    ];
    let mut spans: [Vec<Duration>; 3] = Default::default();
    for _ in 0..ROUNDS {
        for ((_, words), spans) in ways.iter().zip(&mut spans) {
            spans.push(until_it_speaks(words, leases.path()));
        }
    }
    let medians = spans.map(|mut spans| {
        spans.sort_unstable();
        spans[ROUNDS / 2]
    });
    println!("{ROUNDS} rounds, medians of the time from the start to the command's first byte\n");
    for ((name, _), median) in ways.iter().zip(medians) {
        println!("{name:<12}{:>8.2} ms", ms(median));
    }
    let more = ms(medians[2]) - ms(medians[0]);
    println!(
        "\n{:<66} {more:>6.2}  budget 3.00  {}",
        "start-up of reapd run over the bare command, ms",
        met(more, 3.0)
    );
    if cfg!(target_os = "linux") {
        let memory = memory(leases.path());
        println!(
            "{:<66} {memory:>6.2}  budget 0.50  {}",
            "private memory of a watcher, MB",
            met(memory, 0.5)
        );
    }
}

fn start(words: &[&str], leases: &Path) -> Child {
    Command::new(words[0])
        .args(&words[1..])
        .env("REAPD_LEASES", leases)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap()
}

fn until_it_speaks(words: &[&str], leases: &Path) -> Duration {
    let begun = Instant::now();
    let mut child = start(words, leases);
    let mut byte = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    let span = begun.elapsed();
    assert!(child.wait().unwrap().success());
    span
}

/// Returns what is only the watcher's own, megabytes: pages of no file. Pages of the program itself are shared by all
/// who run it.
fn memory(leases: &Path) -> f64 {
    let mut child = start(&[REAPD, "run", "--", "sh", "-c", "echo x; exec sleep 60"], leases);
    let mut byte = [0];
    child.stdout.as_mut().unwrap().read_exact(&mut byte).unwrap();
    let text = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", child.id())).unwrap();
    let line = text.lines().find(|line| line.starts_with("Anonymous:")).unwrap();
    let kilobytes: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    // TERM is passed on, so that the command goes as well.
    rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::TERM)
        .unwrap();
    child.wait().unwrap();
    kilobytes / 1024.0
}

fn ms(span: Duration) -> f64 {
    span.as_secs_f64() * 1e3
}

fn met(figure: f64, budget: f64) -> &'static str {
    if figure <= budget { "met" } else { "MISSED" }
}
