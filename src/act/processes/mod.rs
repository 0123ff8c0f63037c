//! Processes held by handle: nobody is signalled whose identity was not checked a moment before.
//!
//! There is no call here that signals a number, a group or a session.
//!
//! Each platform file offers the same five things, and nothing else of it is used: `Handle::open`,
//! `Handle::current`, `Handle::send`, `Handle::is_gone`, `Handle::children`, beside the free functions `children_of`,
//! `sight_of`, `wait_any`, `boot` and `raise_descriptor_limit`.

use std::time::Instant;

use bstr::BString;

use crate::model::id::{BootId, FileId, Identity, Pid, ProcessId, Uid};
use crate::model::known::Known;
use crate::model::plan::Signal;
use crate::model::table::State;

#[cfg(target_os = "linux")]
mod linux;
#[cfg(target_os = "macos")]
mod macos;

#[cfg(target_os = "linux")]
use linux as platform;
#[cfg(target_os = "macos")]
use macos as platform;

/// A process under a handle that stays with it: the number may be reused, the handle never names a successor.
#[derive(Debug)]
pub struct Held {
    // Invariant: when the handle was taken, the process was surely this identity, which has an executable.
    identity: Identity,
    handle: platform::Handle,
    sight: Sight,
}

/// The cheap facts of one process, read fresh.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sight {
    /// Its number and start.
    pub id: ProcessId,
    /// Its parent's number.
    pub ppid: i32,
    /// Its process group.
    pub pgid: i32,
    /// Its session.
    pub sid: i32,
    /// Its controlling terminal's device number; 0 for none.
    pub tty: i32,
    /// What it is doing.
    pub state: State,
    /// Number of threads that are left.
    pub threads: u32,
    /// Its command name.
    pub name: BString,
}

impl Sight {
    /// Says whether nothing of the process runs any more; see [`crate::model::table::Row::is_gone`].
    pub fn is_gone(&self) -> bool {
        self.state == State::Dead || (self.state == State::Zombie && self.threads <= 1)
    }
}

/// Everything an identity is compared by, read fresh through a handle.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Current {
    /// The cheap facts.
    pub sight: Sight,
    /// The real user.
    pub uid: Uid,
    /// The executable; `None` where it cannot be read, which forbids a signal.
    pub exe: Option<FileId>,
    /// See [`Identity::unique`].
    pub unique: Option<u64>,
}

/// Why nothing fresh could be read.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// There is no such process any more.
    #[error("it is gone")]
    Gone,
    /// It is there, as far as we know, and could not be read.
    #[error("it could not be read")]
    Unreadable(#[source] std::io::Error),
}

/// Why a process could not be taken under a handle.
#[derive(Debug, thiserror::Error)]
pub enum HoldError {
    /// It is gone: absent, or a zombie without live threads.
    #[error("it is gone")]
    Gone,
    /// What bears the number is not surely the recorded process.
    #[error("it is not surely the recorded process any more")]
    IdentityChanged,
    /// Process 1, or reapd itself.
    #[error("it is never touched")]
    Forbidden,
    /// The kernel refused.
    #[error("the kernel refused")]
    Denied,
    /// No descriptor was left to hold it by.
    #[error("reapd ran out of descriptors")]
    Starved,
    /// Anything else.
    #[error("it could not be held")]
    Failed(#[source] std::io::Error),
}

/// Why a signal was not sent.
#[derive(Debug, thiserror::Error)]
pub enum SignalError {
    /// It is gone.
    #[error("it is gone")]
    Gone,
    /// The kernel refused (EPERM).
    #[error("the kernel refused")]
    Denied,
    /// It is not surely the recorded process any more: it ran another program, or changed its user.
    #[error("it is not surely the recorded process any more")]
    IdentityChanged,
    /// Anything else.
    #[error("the signal could not be sent")]
    Failed(#[source] std::io::Error),
}

/// A process under a handle, whoever it is: to read through, not to signal.
#[derive(Debug)]
pub struct Pinned {
    handle: platform::Handle,
    sight: Sight,
}

impl Pinned {
    /// Takes the process with this number and start under a handle. Process 1 and reapd itself are refused.
    pub fn pin(id: ProcessId) -> Result<Pinned, HoldError> {
        if id.pid == Pid::INIT || u32::try_from(id.pid.number()) == Ok(std::process::id()) {
            return Err(HoldError::Forbidden);
        }
        let (handle, sight) = platform::Handle::open(id)?;
        Ok(Pinned { handle, sight })
    }

    /// Returns its cheap facts as they were when it was pinned.
    pub fn sight(&self) -> &Sight {
        &self.sight
    }

    /// Holds the process, if it is surely the recorded one. Every part of the identity is read through the handle
    /// itself, so that a number that passes on between two reads cannot lend its new bearer the old one's name.
    pub fn hold(self, identity: &Identity) -> Result<Held, HoldError> {
        let boot = platform::boot().map_err(|_| HoldError::IdentityChanged)?;
        let current = self.handle.current().map_err(|lost| match lost {
            Lost::Gone => HoldError::Gone,
            Lost::Unreadable(error) => HoldError::Failed(error),
        })?;
        if current.sight.is_gone() {
            return Err(HoldError::Gone);
        }
        if !identity.is_surely(&as_identity(&boot, &current)) {
            return Err(HoldError::IdentityChanged);
        }
        Ok(Held { identity: identity.clone(), handle: self.handle, sight: current.sight })
    }
}

impl Held {
    /// Takes a process under a handle, if it is surely the recorded one.
    pub fn hold(identity: &Identity) -> Result<Held, HoldError> {
        Pinned::pin(identity.id)?.hold(identity)
    }

    /// Returns who is held.
    pub fn identity(&self) -> &Identity {
        &self.identity
    }

    /// Returns its cheap facts as they were when it was held.
    pub fn first_sight(&self) -> &Sight {
        &self.sight
    }

    /// Sends one signal to this one process, right after checking once more that it is surely the recorded one.
    pub fn signal(&self, signal: Signal) -> Result<(), SignalError> {
        self.check()?;
        self.handle.send(signal)
    }

    /// Checks that it is there, and surely the recorded one.
    pub fn check(&self) -> Result<(), SignalError> {
        let current = self.handle.current().map_err(|lost| match lost {
            Lost::Gone => SignalError::Gone,
            Lost::Unreadable(error) => SignalError::Failed(error),
        })?;
        if current.sight.is_gone() {
            return Err(SignalError::Gone);
        }
        if !self.identity.is_surely(&as_identity(&self.identity.boot, &current)) {
            return Err(SignalError::IdentityChanged);
        }
        Ok(())
    }

    /// Says whether the process was seen gone: absent, or a zombie without live threads.
    pub fn is_gone(&self) -> bool {
        self.handle.is_gone()
    }

    /// Returns its cheap facts, fresh.
    pub fn sight(&self) -> Result<Sight, Lost> {
        self.handle.current().map(|current| current.sight)
    }

    /// Returns the numbers of its children now; of all its threads. Empty when it is gone.
    pub fn children(&self) -> Known<Vec<Pid>> {
        self.handle.children()
    }
}

fn as_identity(boot: &BootId, current: &Current) -> Identity {
    Identity {
        boot: boot.clone(),
        id: current.sight.id,
        uid: current.uid,
        exe: current.exe,
        unique: current.unique,
    }
}

/// Returns the numbers of the children of a process that is not held: of a reaper.
pub fn children_of(parent: ProcessId) -> Known<Vec<Pid>> {
    platform::children_of(parent)
}

/// Returns the cheap facts of whoever bears this number now.
pub fn sight_of(pid: Pid) -> Result<Sight, Lost> {
    platform::sight_of(pid)
}

/// Waits until some of these are gone, or until then, or until a signal to reapd itself comes in.
///
/// Returns the places in `held` of all that are gone by now; none after a wait in vain.
pub fn wait_any(held: &[&Held], until: Instant) -> std::io::Result<Vec<usize>> {
    let handles: Vec<&platform::Handle> = held.iter().map(|held| &held.handle).collect();
    platform::wait_any(&handles, until)
}

/// Raises the soft limit on descriptors to the hard one: a large tree takes two for each process. Call it once at
/// the start; a refusal is no error, since holding says when descriptors run out.
pub fn raise_descriptor_limit() {
    platform::raise_descriptor_limit();
}

/// Returns a signal of a ladder as the system call wants it.
fn raw_signal(signal: Signal) -> rustix::process::Signal {
    match signal {
        Signal::Hup => rustix::process::Signal::HUP,
        Signal::Int => rustix::process::Signal::INT,
        Signal::Quit => rustix::process::Signal::QUIT,
        Signal::Usr1 => rustix::process::Signal::USR1,
        Signal::Usr2 => rustix::process::Signal::USR2,
        Signal::Term => rustix::process::Signal::TERM,
        Signal::Kill => rustix::process::Signal::KILL,
    }
}
