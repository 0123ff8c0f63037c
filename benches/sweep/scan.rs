//! The table scan beside the raw floor of `/proc`, sysinfo and ps.

use std::collections::BTreeSet;
use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::process::{Command, Stdio};
use std::time::Duration;

use reapd::model::look::Scope;
use reapd::model::table::Table;
use reapd::observe::{Observer, Setup};
use rustix::fs::{Mode, OFlags, RawDir, SeekFrom};

use crate::measure::{Figure, allocations, children, median, own};

/// Tells the started benchmark that it only scans, and how often.
const ROLE: &str = "REAPD_BENCH_SCANS";

/// Scans in one round; the dear ones run once.
const SCANS: u32 = 5;

/// Looks before the steady state is measured: each argument vector was read, each buffer has its size.
const WARM: u32 = 3;

/// Measures in turn, round by round.
pub(crate) fn figures(rounds: usize) -> Vec<Figure> {
    let mut observer = observer();
    let mut table = Table::default();
    let mut floor = Floor::open();
    let mut system = sysinfo::System::new().expect("sysinfo works here");
    for _ in 0..WARM {
        observer.scan(&mut table).expect("the table can be read");
        look(&mut observer);
        floor.run();
        refresh(&mut system);
    }
    let count = table.rows().len();
    let mut samples: Vec<[Duration; 5]> = Vec::new();
    for _ in 0..rounds {
        samples.push([
            own(SCANS, || observer.scan(&mut table).expect("the table can be read")),
            own(SCANS, || floor.run()),
            own(1, || refresh(&mut system)),
            children(ps),
            with_aside(&mut observer, SCANS, look),
        ]);
    }
    let each = |at: usize| {
        let all = samples.iter().map(|sample| sample[at].as_secs_f64() * 1e6).collect();
        median(all)
    };
    for (at, what) in
        ["table scan", "raw floor", "sysinfo", "ps", "table scan and arguments"].iter().enumerate()
    {
        let whole = each(at);
        let one = whole / precise(count);
        println!("{what:<26} {:>9.2} ms {one:>8.2} us for each of {count}", whole / 1e3);
    }
    let ratio = |above: usize, below: usize| {
        median(samples.iter().map(|s| s[above].as_secs_f64() / s[below].as_secs_f64()).collect())
    };
    let scan_allocations = allocations(|| {
        for _ in 0..SCANS {
            observer.scan(&mut table).expect("the table can be read");
        }
    });
    let per_process = |total: u64| precise(usize::try_from(total).unwrap_or(usize::MAX)) / precise(count);
    let figure = |what: &str, measured, budget| Figure { what: what.into(), measured, budget };
    let mut figures = vec![
        figure("table scan with tree / raw floor", ratio(0, 1), Some(1.25)),
        figure("table scan with tree / sysinfo (user, memory, cpu, cmd, cwd, exe)", ratio(0, 2), Some(0.33)),
        figure("table scan with tree / ps -eo pid,ppid,lstart,args", ratio(0, 3), Some(0.20)),
        figure("table scan and arguments / table scan", ratio(4, 0), Some(1.5)),
        figure(
            "heap allocations for each process and scan",
            per_process(scan_allocations) / f64::from(SCANS),
            Some(0.01),
        ),
    ];
    match system_calls(count) {
        Some(calls) => figures.push(figure("system calls for each process and scan", calls, Some(3.1))),
        None => println!("system calls: not counted, for there is no strace here"),
    }
    figures
}

fn precise(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// Returns an observer of everybody.
pub(crate) fn observer() -> Observer {
    let scope = if rustix::process::geteuid().is_root() { Scope::Host } else { Scope::User };
    Observer::open(Setup {
        scope,
        probe_timeout: Duration::from_secs(5),
        env_names: BTreeSet::new(),
        aside: env!("CARGO_BIN_EXE_reapd").into(),
        home: None,
        leases: Vec::new(),
        registries: Vec::new(),
        engines: None,
    })
    .expect("we can observe here")
}

fn look(observer: &mut Observer) {
    let snapshot = observer.table().expect("the table can be read");
    observer.recycle(snapshot);
}

/// Returns the processor time of some work, that of the aside process included.
pub(crate) fn with_aside(
    observer: &mut Observer,
    times: u32,
    mut work: impl FnMut(&mut Observer),
) -> Duration {
    let aside = aside_process(observer);
    let before = aside.map_or(Duration::ZERO, on_processor);
    let ours = own(times, || work(observer));
    let after = aside.map_or(Duration::ZERO, on_processor);
    ours + after.saturating_sub(before) / times
}

fn aside_process(observer: &mut Observer) -> Option<i32> {
    let snapshot = observer.table().ok()?;
    let own = snapshot.own.pid;
    let found =
        snapshot.table.children(own).find(|row| row.name() == b"reapd").map(|row| row.id.pid.number());
    observer.recycle(snapshot);
    found
}

/// Reads a process's time on the processor, in nanoseconds, off `schedstat`.
fn on_processor(pid: i32) -> Duration {
    let text = std::fs::read_to_string(format!("/proc/{pid}/schedstat")).unwrap_or_default();
    Duration::from_nanos(text.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0))
}

fn refresh(system: &mut sysinfo::System) {
    use sysinfo::{ProcessRefreshKind, ProcessesToUpdate, UpdateKind};
    let kind = ProcessRefreshKind::nothing()
        .with_user(UpdateKind::Always)
        .with_memory()
        .with_cpu()
        .with_cmd(UpdateKind::Always)
        .with_cwd(UpdateKind::Always)
        .with_exe(UpdateKind::Always)
        .without_tasks();
    system.refresh_processes_specifics(ProcessesToUpdate::All, true, kind);
}

fn ps() {
    let ended = Command::new("ps").args(["-eo", "pid,ppid,lstart,args"]).stdout(Stdio::null()).status();
    assert!(ended.is_ok_and(|status| status.success()), "ps is needed (procps)");
}

/// The calls that nobody who asks `/proc` for every process can do without, and nothing else.
struct Floor {
    proc: rustix::fd::OwnedFd,
    entries: Vec<MaybeUninit<u8>>,
}

impl Floor {
    fn open() -> Floor {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let proc = rustix::fs::open("/proc", flags, Mode::empty()).expect("/proc is there");
        Floor { proc, entries: vec![MaybeUninit::uninit(); 64 * 1024] }
    }

    fn run(&mut self) {
        rustix::fs::seek(&self.proc, SeekFrom::Start(0)).expect("it can be read again");
        let mut line = [0; 2048];
        let mut listing = RawDir::new(&self.proc, &mut self.entries);
        while let Some(Ok(entry)) = listing.next() {
            let name = entry.file_name().to_bytes();
            if !name[0].is_ascii_digit() {
                continue;
            }
            let mut path = [0; 24];
            path[..name.len()].copy_from_slice(name);
            path[name.len()..name.len() + 5].copy_from_slice(b"/stat");
            let path = CStr::from_bytes_until_nul(&path).expect("there is room for a NUL");
            let flags = OFlags::RDONLY | OFlags::CLOEXEC;
            let Ok(file) = rustix::fs::openat(&self.proc, path, flags, Mode::empty()) else { continue };
            let _ = std::hint::black_box(rustix::io::read(&file, &mut line));
        }
    }
}

/// Says whether this process only scans, under strace.
pub(crate) fn is_scanner() -> bool {
    std::env::var_os(ROLE).is_some()
}

/// Scans as often as it was told.
pub(crate) fn scan_and_end() {
    let scans: u32 = std::env::var(ROLE).ok().and_then(|text| text.parse().ok()).unwrap_or(0);
    let mut observer = observer();
    let mut table = Table::default();
    for _ in 0..scans {
        observer.scan(&mut table).expect("the table can be read");
    }
}

/// Counts system calls with strace: what two more scans cost beyond one.
fn system_calls(count: usize) -> Option<f64> {
    let calls = |scans: u32| {
        let output = Command::new("strace")
            .args(["-c", "-f", "-o", "/dev/stderr"])
            .arg(std::env::current_exe().ok()?)
            .env(ROLE, scans.to_string())
            .output()
            .ok()?;
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        let total = text.lines().rfind(|line| line.trim_end().ends_with("total"))?;
        // Percent, seconds, microseconds for each call, calls, perhaps errors, and the word "total".
        total.split_whitespace().nth(3)?.parse::<u32>().ok()
    };
    let (one, three) = (calls(1)?, calls(3)?);
    Some(f64::from(three.saturating_sub(one)) / 2.0 / precise(count))
}
