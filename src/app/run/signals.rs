//! Signals on their way to the command: which came, and whether the terminal sent them to the whole group.

use std::io;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use rustix::process::Signal;

use super::caller::Hangup;

/// What is passed on.
const PASSED: [Signal; 9] = [
    Signal::TERM,
    Signal::INT,
    Signal::HUP,
    Signal::QUIT,
    Signal::USR1,
    Signal::USR2,
    Signal::WINCH,
    Signal::TSTP,
    Signal::CONT,
];

/// What came since it was last taken, by the places of [`PASSED`].
static CAME: [AtomicU8; PASSED.len()] = [const { AtomicU8::new(0) }; PASSED.len()];
static WAKE: OnceLock<OwnedFd> = OnceLock::new();

const BY_KERNEL: u8 = 1;
const BY_PROCESS: u8 = 2;

/// Who sent a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Sender {
    /// The kernel, for the terminal: to everybody in the group.
    Kernel,
    /// A process, and to us alone as far as we can tell.
    Process,
}

/// Signals are noted, and wake whoever waits.
#[derive(Debug)]
pub(super) struct Signals {
    wake: OwnedFd,
    /// Signals that were ignored from the start and that the command must find ignored too.
    pub(super) ignored: Vec<Signal>,
    /// Signals that were blocked from the start and that the command must find blocked too, where there are any.
    pub(super) blocked: Option<libc::sigset_t>,
}

impl Signals {
    /// Notes signals from now on. What is ignored stays ignored. Nothing stays blocked: without SIGCHLD we would wait
    /// for ever for a command that has ended, and what the command unblocks would never come to it.
    pub(super) fn listen() -> io::Result<Signals> {
        let (wake, end) = wakers()?;
        // Only ever called once; whoever came first wakes us as well.
        let _ = WAKE.set(end);
        let mut ignored = super::inherited::pipe();
        for signal in PASSED {
            if install(signal, Disposition::Note) == Before::Ignored {
                install(signal, Disposition::Ignore);
            }
        }
        if install(Signal::CHILD, Disposition::Note) == Before::Ignored {
            ignored.push(Signal::CHILD);
        }
        Ok(Signals { wake, ignored, blocked: unblock() })
    }

    /// Lends what becomes readable when a signal came or a child changed.
    pub(super) fn ready(&self) -> BorrowedFd<'_> {
        self.wake.as_fd()
    }

    /// Takes what came, oldest kind first.
    pub(super) fn take(&self) -> Vec<(Signal, Sender)> {
        let mut heap = [0; 64];
        while rustix::io::read(&self.wake, &mut heap).is_ok_and(|count| count == heap.len()) {}
        let mut taken = Vec::new();
        for (signal, came) in PASSED.iter().zip(&CAME) {
            let bits = came.swap(0, Ordering::Relaxed);
            if bits & BY_PROCESS != 0 {
                taken.push((*signal, Sender::Process));
            } else if bits & BY_KERNEL != 0 {
                taken.push((*signal, Sender::Kernel));
            }
        }
        taken
    }
}

/// Says whether a hangup is ignored, as nohup(1) has it.
pub(super) fn hangup() -> Hangup {
    match install(Signal::HUP, Disposition::Note) {
        Before::Ignored => {
            install(Signal::HUP, Disposition::Ignore);
            Hangup::Ignored
        }
        Before::Other => Hangup::Ends,
    }
}

/// Has a signal do to us what it does to whoever does not care.
pub(super) fn reset(signal: Signal) {
    install(signal, Disposition::Default);
}

fn wakers() -> io::Result<(OwnedFd, OwnedFd)> {
    #[cfg(target_os = "linux")]
    let ends = {
        use rustix::pipe::{PipeFlags, pipe_with};
        pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK)?
    };
    #[cfg(target_os = "macos")]
    let ends = {
        let ends = rustix::pipe::pipe()?;
        for end in [&ends.0, &ends.1] {
            rustix::io::ioctl_fioclex(end)?;
            rustix::io::ioctl_fionbio(end, true)?;
        }
        ends
    };
    Ok(ends)
}

#[derive(Clone, Copy)]
enum Disposition {
    Note,
    Ignore,
    Default,
}

#[derive(Debug, PartialEq, Eq)]
enum Before {
    Ignored,
    Other,
}

#[expect(unsafe_code, reason = "rustix has no call to install a signal handler")]
fn install(signal: Signal, disposition: Disposition) -> Before {
    // SAFETY: all zeroes is a valid `sigaction`: the default disposition with an empty mask.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the same.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = match disposition {
        Disposition::Note => note as *const () as libc::sighandler_t,
        Disposition::Ignore => libc::SIG_IGN,
        Disposition::Default => libc::SIG_DFL,
    };
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: both structs live until the call is over; `note` has the type that SA_SIGINFO asks for, lives for ever
    // and does only what signal-safety(7) allows.
    let done = unsafe { libc::sigaction(signal.as_raw(), &raw const action, &raw mut before) };
    if done == 0 && before.sa_sigaction == libc::SIG_IGN { Before::Ignored } else { Before::Other }
}

/// Lets every signal through, and returns what was blocked, where anything was.
#[expect(unsafe_code, reason = "rustix has no call for the signal mask")]
fn unblock() -> Option<libc::sigset_t> {
    // SAFETY: all zeroes is a valid `sigset_t`.
    let mut none: libc::sigset_t = unsafe { std::mem::zeroed() };
    let mut before = none;
    // SAFETY: the set lives until the call is over.
    unsafe { libc::sigemptyset(&raw mut none) };
    // SAFETY: both sets live until the call is over, and there is no other thread.
    let done = unsafe { libc::sigprocmask(libc::SIG_SETMASK, &raw const none, &raw mut before) };
    // SAFETY: it only reads the set. Numbers that are no signals are not in it.
    let is_blocked = |signal| unsafe { libc::sigismember(&raw const before, signal) } == 1;
    (done == 0 && (1..=LAST).any(is_blocked)).then_some(before)
}

#[expect(unsafe_code, reason = "the kernel hands a pointer")]
extern "C" fn note(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo_t (sigaction(2)).
    let code = unsafe { (*info).si_code };
    if let Some(place) = PASSED.iter().position(|passed| passed.as_raw() == signal) {
        let by = if code == SENT_BY_KERNEL { BY_KERNEL } else { BY_PROCESS };
        CAME[place].fetch_or(by, Ordering::Relaxed);
    }
    // A full pipe wakes as well. rustix calls the kernel directly on Linux, so errno stays what it was.
    if let Some(wake) = WAKE.get() {
        let _ = rustix::io::write(wake, b"!");
    }
}

/// The last signal.
#[cfg(target_os = "linux")]
const LAST: libc::c_int = 64;
#[cfg(target_os = "macos")]
const LAST: libc::c_int = 31;

/// `SI_KERNEL` of sigaction(2).
#[cfg(target_os = "linux")]
const SENT_BY_KERNEL: libc::c_int = 0x80;
/// On macOS the terminal's signals come without a sender (`si_code` 0), and kill(2)'s with `SI_USER`.
#[cfg(target_os = "macos")]
const SENT_BY_KERNEL: libc::c_int = 0;
