//! Starts a command in a cgroup: clone3(2) with `CLONE_INTO_CGROUP`, which no library offers.
//!
//! Whatever goes wrong here, the caller starts the command the usual way, which says what is wrong with it.

use std::ffi::{CString, OsString};
use std::os::fd::{AsRawFd as _, BorrowedFd};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, waitpid};

use super::signals::Signals;
use super::watch::Group;

/// Where programs are looked for without a `PATH` (execvp(3)).
const USUAL_PATH: &str = "/bin:/usr/bin";

/// Everything that the new process needs, made before there is one: between clone3 and execve it may not allocate.
pub(super) struct Prepared {
    /// What is tried, in order.
    programs: Vec<CString>,
    words: Vec<CString>,
    variables: Vec<CString>,
    ignored: Vec<i32>,
    blocked: Option<libc::sigset_t>,
    group: Group,
}

impl Prepared {
    /// Makes ready to start these words with this one more variable.
    pub(super) fn new(
        words: &[OsString],
        variable: (&str, &str),
        signals: &Signals,
        group: Group,
    ) -> Option<Prepared> {
        let text = |word: &OsString| CString::new(word.as_bytes()).ok();
        let program = words.first()?;
        let programs = if program.is_empty() {
            return None;
        } else if program.as_bytes().contains(&b'/') {
            vec![text(program)?]
        } else {
            let path = std::env::var_os("PATH").unwrap_or_else(|| USUAL_PATH.into());
            let places = path.as_bytes().split(|byte| *byte == b':').map(|place| {
                let mut full = place.to_vec();
                if !full.is_empty() {
                    full.push(b'/');
                }
                full.extend_from_slice(program.as_bytes());
                CString::new(full).ok()
            });
            places.collect::<Option<_>>()?
        };
        let mut variables: Vec<CString> = Vec::new();
        for (name, value) in std::env::vars_os().filter(|(name, _)| name != variable.0) {
            let mut entry = name.into_vec();
            entry.push(b'=');
            entry.extend_from_slice(value.as_bytes());
            variables.push(CString::new(entry).ok()?);
        }
        variables.push(CString::new(format!("{}={}", variable.0, variable.1)).ok()?);
        let words = words.iter().map(text).collect::<Option<_>>()?;
        let ignored = signals.ignored.iter().map(|signal| signal.as_raw()).collect();
        Some(Prepared { programs, words, variables, ignored, blocked: signals.blocked, group })
    }

    /// Starts it in this cgroup; nothing where that could not be done, and then nobody was started.
    #[expect(unsafe_code, reason = "neither std nor rustix starts a process in a cgroup")]
    pub(super) fn start(&self, cgroup: BorrowedFd<'_>) -> Option<Pid> {
        let pointers = |texts: &[CString]| -> Vec<*const libc::c_char> {
            texts.iter().map(|text| text.as_ptr()).chain([std::ptr::null()]).collect()
        };
        let (programs, words, variables) =
            (pointers(&self.programs), pointers(&self.words), pointers(&self.variables));
        // Closed by execve(2): what is read from it tells whether that came to pass.
        let (told, tell) = pipe_with(PipeFlags::CLOEXEC).ok()?;
        let teller = tell.as_raw_fd();
        // SAFETY: all zeroes is a valid `clone_args`: no flag, no pointer.
        let mut asked: libc::clone_args = unsafe { std::mem::zeroed() };
        asked.flags = FLAGS;
        asked.exit_signal = u64::try_from(libc::SIGCHLD).ok()?;
        asked.cgroup = u64::try_from(cgroup.as_raw_fd()).ok()?;
        let size = size_of::<libc::clone_args>();
        // SAFETY: without CLONE_VM the child has memory of its own, as after fork(2); the structure lives until the
        // call is over. We have one thread, and the child calls only what signal-safety(7) allows.
        let pid = unsafe { libc::syscall(libc::SYS_clone3, &raw const asked, size) };
        match pid {
            0 => {
                // SAFETY: we are the new process; the arrays end in null, and their texts live as long as `self`.
                unsafe { become_command(self, &programs, &words, &variables, teller) }
            }
            pid => {
                drop(tell);
                let pid = Pid::from_raw(i32::try_from(pid).ok()?).filter(|_| pid > 0)?;
                let mut word = [0];
                let failed = loop {
                    match rustix::io::read(&told, &mut word) {
                        Err(rustix::io::Errno::INTR) => {}
                        read => break read != Ok(0),
                    }
                };
                if failed {
                    while matches!(waitpid(Some(pid), WaitOptions::empty()), Err(rustix::io::Errno::INTR)) {}
                    return None;
                }
                Some(pid)
            }
        }
    }
}

/// `CLONE_INTO_CGROUP` (Linux 5.7) and `CLONE_CLEAR_SIGHAND` (5.5), by which our handlers, and not what is ignored, are
/// gone from the first moment on, as after execve(2).
const FLAGS: u64 = 0x2_0000_0000 | 0x1_0000_0000;

/// What std does in a new process: SIGPIPE as usual, the process group, what is to be ignored, and the program.
///
/// # Safety
///
/// Only in a process that was just made and has memory of its own; the arrays end in null and point to texts.
#[expect(unsafe_code, reason = "between clone3 and execve there is only the kernel")]
#[expect(clippy::multiple_unsafe_ops_per_block, reason = "each is a plain call of the kernel's")]
unsafe fn become_command(
    prepared: &Prepared,
    programs: &[*const libc::c_char],
    words: &[*const libc::c_char],
    variables: &[*const libc::c_char],
    teller: i32,
) -> ! {
    // SAFETY: signal(2), setpgid(2), execve(2), write(2) and _exit(2) are async-signal-safe; the arrays are as the caller
    // promises.
    unsafe {
        libc::signal(libc::SIGPIPE, libc::SIG_DFL);
        for signal in &prepared.ignored {
            libc::signal(*signal, libc::SIG_IGN);
        }
        if let Some(blocked) = &prepared.blocked {
            libc::sigprocmask(libc::SIG_SETMASK, blocked, std::ptr::null_mut());
        }
        let is_placed = match prepared.group {
            Group::Own => libc::setpgid(0, 0) == 0,
            Group::Shared => true,
        };
        if is_placed {
            for program in programs.iter().filter(|program| !program.is_null()) {
                libc::execve(*program, words.as_ptr(), variables.as_ptr());
                let errno = std::io::Error::last_os_error().raw_os_error().unwrap_or(0);
                // As execvp(3): what is not there, or may not be run, is looked for further on.
                let goes_on = matches!(
                    errno,
                    libc::EACCES
                        | libc::ENOENT
                        | libc::ESTALE
                        | libc::ENOTDIR
                        | libc::ENODEV
                        | libc::ETIMEDOUT
                );
                if !goes_on {
                    break;
                }
            }
        }
        libc::write(teller, b"!".as_ptr().cast(), 1);
        libc::_exit(127)
    }
}
