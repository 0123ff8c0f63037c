//! Teardown: a tree of 1,000 against a plain kill loop, 20 stubborn trees, and trees that fork while they are killed.
//!
//! `cargo bench --bench teardown`. Both sides of the comparison run in turn on the same machine; the ratio of the
//! medians is what counts. `REAPD_BENCH_PROCESSES` sets how many idle processes stand beside (5,000).
#![allow(
    clippy::disallowed_methods,
    clippy::unwrap_used,
    clippy::print_stdout,
    dead_code,
    reason = "a benchmark starts processes, reads clocks and prints figures"
)]

#[cfg(target_os = "linux")]
#[path = "teardown/linux.rs"]
mod linux;

fn main() {
    #[cfg(target_os = "linux")]
    linux::run();
}
