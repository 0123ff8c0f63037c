//! Turns for tests that sweep.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Waits for a turn. Sweeps of one user wait for each other, but not for ever (as root all share one lock), so no two
/// tests sweep at once.
pub(crate) fn turn() -> MutexGuard<'static, ()> {
    static SWEEPS: Mutex<()> = Mutex::new(());
    // A test that failed while it had its turn leaves nothing behind that concerns the next.
    SWEEPS.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Waits until no other test keeps the machine this busy: a thousand forks beside a tree that outruns scanners would
/// measure the machine and not the teardown.
pub(crate) fn heavy() -> MutexGuard<'static, ()> {
    static HEAVY: Mutex<()> = Mutex::new(());
    HEAVY.lock().unwrap_or_else(PoisonError::into_inner)
}
