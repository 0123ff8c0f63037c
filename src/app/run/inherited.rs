//! What we inherited: descriptors that are the command's and not ours, and signals that the caller had ignored.

use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::process::Signal;

static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Returns SIGPIPE, where it was ignored when we were started. The Rust runtime ignores it before `main`, and the
/// command must find it as the caller left it.
pub(super) fn pipe() -> Vec<Signal> {
    if PIPE_WAS_IGNORED.load(Ordering::Relaxed) { vec![Signal::PIPE] } else { Vec::new() }
}

#[expect(unsafe_code, reason = "the runtime has changed it by the time `main` begins")]
#[used]
#[cfg_attr(target_os = "linux", unsafe(link_section = ".init_array"))]
#[cfg_attr(target_os = "macos", unsafe(link_section = "__DATA,__mod_init_func"))]
static REMEMBER: extern "C" fn() = remember;

#[expect(unsafe_code, reason = "rustix has no call to ask for a disposition")]
extern "C" fn remember() {
    // SAFETY: all zeroes is a valid `sigaction`.
    let mut before: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: with no new action the call only fills in the old one, which lives until it is over.
    let done = unsafe { libc::sigaction(libc::SIGPIPE, std::ptr::null(), &raw mut before) };
    PIPE_WAS_IGNORED.store(done == 0 && before.sa_sigaction == libc::SIG_IGN, Ordering::Relaxed);
}

/// Has a command find these signals ignored, and these blocked. Without any, the fast way of starting a process stays
/// open to it.
#[expect(unsafe_code, reason = "there is no safe way to run something between fork and exec")]
pub(super) fn restore(command: &mut Command, ignored: Vec<Signal>, blocked: Option<libc::sigset_t>) {
    if ignored.is_empty() && blocked.is_none() {
        return;
    }
    let ignore = move || {
        for signal in &ignored {
            // SAFETY: signal(2) is async-signal-safe, and SIG_IGN is no handler.
            unsafe { libc::signal(signal.as_raw(), libc::SIG_IGN) };
        }
        if let Some(blocked) = &blocked {
            // SAFETY: sigprocmask(2) is async-signal-safe, and the set lives until it is over.
            unsafe { libc::sigprocmask(libc::SIG_SETMASK, blocked, std::ptr::null_mut()) };
        }
        Ok(())
    };
    // SAFETY: the closure only calls signal(2) and sigprocmask(2), and allocates nothing.
    unsafe { command.pre_exec(ignore) };
}

/// Descriptors above the three streams that were open when we were started: the command's business. Asked before we
/// open any of our own.
pub(super) fn descriptors() -> Vec<RawFd> {
    let Ok(listed) = std::fs::read_dir("/dev/fd") else { return Vec::new() };
    let numbers: Vec<RawFd> = listed
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok())
        .filter(|number| *number > 2)
        .collect();
    numbers.into_iter().filter(|number| is_open(*number)).collect()
}

/// Says whether the number is still somebody's: the list held its own.
#[expect(unsafe_code, reason = "a descriptor that somebody else opened has no owner here")]
fn is_open(number: RawFd) -> bool {
    // SAFETY: F_GETFD takes any number and changes nothing.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    flags >= 0
}

/// Closes them, once the command has them: whoever waits for their far ends waits for the command alone.
#[expect(unsafe_code, reason = "a descriptor that somebody else opened has no owner here")]
pub(super) fn close(descriptors: Vec<RawFd>) {
    for number in descriptors {
        // SAFETY: it was open before we opened anything, so that nothing of ours bears the number, and it is closed
        // once.
        drop(unsafe { OwnedFd::from_raw_fd(number) });
    }
}
