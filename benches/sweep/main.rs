//! Measures what a sweep costs, as ratios between things that ran in turn on one machine: `cargo bench`.
//!
//! `REAPD_BENCH_PROCESSES` sets how many idle processes are started (default 5,000), `REAPD_BENCH_ROUNDS` the rounds
//! (default 7, at least 5). A further figure is a function in a module of its own that returns [`measure::Figure`]s,
//! with its line in `main`.
#![cfg(target_os = "linux")]
#![expect(clippy::disallowed_methods, reason = "a benchmark reads clocks and starts programs")]
#![expect(clippy::print_stdout, reason = "its output is its purpose")]

mod brokers;
mod measure;
mod population;
mod quiet;
mod scan;

use measure::Figure;
use population::Population;

#[global_allocator]
static COUNTED: measure::Counted = measure::Counted;

fn main() {
    // The benchmark starts itself again for two roles.
    if population::is_forker() {
        population::fork_and_wait();
        return;
    }
    if brokers::is_broker() {
        brokers::be_broker();
        return;
    }
    if scan::is_scanner() {
        scan::scan_and_end();
        return;
    }
    let processes = number("REAPD_BENCH_PROCESSES", 5_000);
    let rounds = number("REAPD_BENCH_ROUNDS", 7).max(5);
    println!(
        "{processes} idle processes of ours, {rounds} rounds, medians of processor time (user and system)\n"
    );
    let population = Population::start(processes);
    let mut figures: Vec<Figure> = Vec::new();
    figures.extend(scan::figures(rounds));
    figures.extend(quiet::figures(rounds));
    figures.extend(brokers::figures(rounds));
    drop(population);
    println!();
    for figure in &figures {
        println!("{figure}");
    }
}

fn number(name: &str, default: usize) -> usize {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}
