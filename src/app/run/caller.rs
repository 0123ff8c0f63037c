//! Whose death ends a command that has no channel: the caller, held from the start, or a process that was named.
//!
//! Nothing is concluded from a caller that only started the command and went its way (REDTEAM F6): one that adopts for
//! others, one that is gone before it could be held, one that dies within the first minute, and one that started the
//! command with SIGHUP ignored (nohup) or in a session of its own (setsid) for it to live on.

use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use crate::model::id::Pid;
use crate::model::ownership;
use crate::model::table::Row;
use crate::observe;

/// A caller that dies younger than this, counted from our start, was an errand.
const ERRAND: Duration = Duration::from_mins(1);

/// Whether somebody named the holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Named {
    /// By `--holder`.
    Yes,
    /// It is the caller.
    No,
}

/// A process whose death is waited for.
#[derive(Debug)]
pub(super) struct Caller {
    handle: platform::Handle,
    named: Named,
    since: Instant,
}

/// What the death of a caller means.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Death {
    /// Nobody needs the command any more.
    Counts,
    /// It was an errand.
    Errand,
}

/// How we were started, as far as it matters for who holds us.
#[derive(Debug, Clone, Copy)]
pub(super) struct Started<'a> {
    /// Our own row.
    pub(super) own: Option<&'a Row>,
    /// Whether SIGHUP was ignored.
    pub(super) hangup: Hangup,
}

/// Whether a hangup was ignored from the start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Hangup {
    /// nohup(1) or the like.
    Ignored,
    /// As usual.
    Ends,
}

impl Caller {
    /// Holds a process that was named.
    pub(super) fn named(pid: Pid) -> Option<Caller> {
        Some(Caller { handle: platform::hold(pid)?, named: Named::Yes, since: Instant::now() })
    }

    /// Holds our parent, where its death would mean something.
    pub(super) fn parent(started: Started<'_>) -> Option<(Pid, Caller)> {
        let own = started.own?;
        if started.hangup == Hangup::Ignored || own.sid == own.id.pid.number() {
            return None;
        }
        let pid = parent()?;
        let handle = platform::hold(pid)?;
        let row = observe::bearer(pid).ok()??;
        // Whoever adopted us while we looked is not who called.
        if parent()? != pid || is_only_above(&row, own) {
            return None;
        }
        Some((pid, Caller { handle, named: Named::No, since: Instant::now() }))
    }

    /// Lends what becomes readable at its death.
    pub(super) fn ready(&self) -> Option<BorrowedFd<'_>> {
        self.handle.ready()
    }

    /// Says what its death means, where it is dead.
    pub(super) fn death(&self) -> Option<Death> {
        self.handle.is_dead().then(|| match self.named {
            Named::No if self.since.elapsed() < ERRAND => Death::Errand,
            Named::No | Named::Yes => Death::Counts,
        })
    }
}

/// Says whether a parent is none that called us: it adopts for others, another `reapd run` among them, or began after
/// us.
fn is_only_above(parent: &Row, own: &Row) -> bool {
    ownership::is_reaper(parent)
        || parent.id.start > own.id.start
        || parent.name() == own.name()
        || parent.is_gone()
}

fn parent() -> Option<Pid> {
    Pid::new(rustix::process::getppid()?.as_raw_nonzero().get())
}

#[cfg(target_os = "linux")]
mod platform {
    use std::os::fd::AsFd as _;

    use super::{BorrowedFd, Pid};
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::fd::OwnedFd;
    use rustix::process::{PidfdFlags, pidfd_open};

    /// A pidfd.
    #[derive(Debug)]
    pub(super) struct Handle(OwnedFd);

    pub(super) fn hold(pid: Pid) -> Option<Handle> {
        let pid = rustix::process::Pid::from_raw(pid.number())?;
        pidfd_open(pid, PidfdFlags::empty()).ok().map(Handle)
    }

    impl Handle {
        #[expect(clippy::unnecessary_wraps, reason = "macOS has no descriptor here")]
        pub(super) fn ready(&self) -> Option<BorrowedFd<'_>> {
            Some(self.0.as_fd())
        }

        pub(super) fn is_dead(&self) -> bool {
            let now = Timespec { tv_sec: 0, tv_nsec: 0 };
            poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&now)).is_ok_and(|count| count > 0)
        }
    }
}

#[cfg(target_os = "macos")]
mod platform {
    use super::{BorrowedFd, Pid};
    use crate::model::id::Start;
    use crate::observe;

    /// Number and start; asked from time to time.
    #[derive(Debug)]
    pub(super) struct Handle(Pid, Start);

    pub(super) fn hold(pid: Pid) -> Option<Handle> {
        let row = observe::bearer(pid).ok()??;
        Some(Handle(pid, row.id.start))
    }

    impl Handle {
        #[expect(clippy::unused_self, reason = "Linux has a descriptor here")]
        pub(super) fn ready(&self) -> Option<BorrowedFd<'_>> {
            None
        }

        pub(super) fn is_dead(&self) -> bool {
            match observe::bearer(self.0) {
                Ok(None) => true,
                Ok(Some(row)) => row.is_gone() || row.id.start != self.1,
                Err(_) => false,
            }
        }
    }
}
