//! Being asked to stop: SIGINT, SIGTERM and SIGHUP are noted, and the work stops where it may.
//!
//! Before the first signal of a teardown that is at once; after it the ladder is finished first, since a tree that
//! was told to go and is then forgotten is the leak we are here to end.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, Timespec, poll};

static ASKED: AtomicBool = AtomicBool::new(false);

/// A request is noticed within this time; the kernel may deliver the signal just before we begin to wait.
const SLICE: Duration = Duration::from_millis(100);

/// How a wait ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// The time is over.
    Over,
    /// There is something to read.
    Ready,
    /// Somebody asked us to stop.
    Stopped,
}

extern "C" fn note(_signal: libc::c_int) {
    // A store to an atomic is all that signal-safety(7) lets us do with ease.
    ASKED.store(true, Ordering::Relaxed);
}

/// Notes requests to stop from now on. A SIGHUP that nohup(1) ignores stays ignored.
pub fn listen() {
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP] {
        if install(signal, note as *const () as libc::sighandler_t) == libc::SIG_IGN {
            install(signal, libc::SIG_IGN);
        }
    }
}

#[expect(unsafe_code, reason = "rustix has no call to install a signal handler")]
fn install(signal: libc::c_int, disposition: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: `disposition` is SIG_IGN or `note`, which has the right type, lives for ever and only stores to an
    // atomic, which is async-signal-safe.
    unsafe { libc::signal(signal, disposition) }
}

/// Says whether somebody asked us to stop.
pub fn asked() -> bool {
    ASKED.load(Ordering::Relaxed)
}

/// Waits for this time, or until somebody asks us to stop.
pub fn wait(span: Duration) -> Waited {
    wait_for(&mut [], Some(span))
}

/// Waits until one of these can be read, the time is over, or somebody asks us to stop.
pub fn wait_for(ready: &mut [PollFd<'_>], span: Option<Duration>) -> Waited {
    let begun = Instant::now();
    loop {
        if asked() {
            return Waited::Stopped;
        }
        let left = match span {
            Some(span) => span.saturating_sub(begun.elapsed()),
            None => SLICE,
        };
        if left.is_zero() {
            return Waited::Over;
        }
        let slice = left.min(SLICE);
        let time = Timespec { tv_sec: 0, tv_nsec: slice.subsec_nanos().into() };
        // An interrupted poll (EINTR) only brings the next turn forward.
        if poll(ready, Some(&time)).is_ok_and(|count| count > 0) {
            return Waited::Ready;
        }
    }
}

/// Keeps sweeps of tests apart, since being asked to stop is for the whole process; whoever was asked is not any more
/// when this is dropped.
#[cfg(test)]
pub(super) struct Alone {
    _turn: std::sync::MutexGuard<'static, ()>,
}

#[cfg(test)]
impl Alone {
    pub(super) fn new() -> Alone {
        static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());
        // A test that failed in its turn has said so itself.
        Alone { _turn: TURN.lock().unwrap_or_else(std::sync::PoisonError::into_inner) }
    }

    /// Asks to stop, as a signal would.
    pub(super) fn ask_to_stop() {
        note(libc::SIGINT);
    }
}

#[cfg(test)]
impl Drop for Alone {
    fn drop(&mut self) {
        ASKED.store(false, Ordering::Relaxed);
    }
}
