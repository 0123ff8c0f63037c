//! Clocks, counters and the table of results.

use std::alloc::{GlobalAlloc, Layout, System};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, with every allocation counted.
pub(crate) struct Counted;

// SAFETY: every call is handed to the system's allocator as it came.
#[expect(unsafe_code, reason = "an allocator is unsafe to write")]
unsafe impl GlobalAlloc for Counted {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.dealloc(place, layout) }
    }

    unsafe fn realloc(&self, place: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller's promise is the system allocator's.
        unsafe { System.realloc(place, layout, size) }
    }
}

/// Returns how many allocations `work` makes.
pub(crate) fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    work();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// Returns the processor time that this process spends in `work`, each of `times` times.
pub(crate) fn own(times: u32, mut work: impl FnMut()) -> Duration {
    let before = processor();
    for _ in 0..times {
        work();
    }
    processor().saturating_sub(before) / times
}

fn processor() -> Duration {
    let now = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0))
}

/// Returns the processor time that programs started and waited for in `work` spend.
pub(crate) fn children(work: impl FnOnce()) -> Duration {
    let before = children_so_far();
    work();
    children_so_far().saturating_sub(before)
}

#[expect(unsafe_code, reason = "rustix has no getrusage")]
fn children_so_far() -> Duration {
    let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to a whole rusage, which the kernel fills.
    let result = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    assert_eq!(result, 0);
    // SAFETY: all zeros is a rusage, and the kernel has filled it.
    let usage = unsafe { usage.assume_init() };
    let span = |time: libc::timeval| {
        Duration::from_secs(u64::try_from(time.tv_sec).unwrap_or(0))
            + Duration::from_micros(u64::try_from(time.tv_usec).unwrap_or(0))
    };
    span(usage.ru_utime) + span(usage.ru_stime)
}

/// Returns the median.
pub(crate) fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// One measured figure beside its budget.
pub(crate) struct Figure {
    /// What was measured.
    pub(crate) what: String,
    /// The figure.
    pub(crate) measured: f64,
    /// The most it may be; `None` where there is no budget.
    pub(crate) budget: Option<f64>,
}

impl fmt::Display for Figure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:<64} {:>8.3}", self.what, self.measured)?;
        match self.budget {
            Some(budget) if self.measured <= budget => write!(f, "   budget {budget:.2}  met"),
            Some(budget) => write!(f, "   budget {budget:.2}  MISSED"),
            None => Ok(()),
        }
    }
}
