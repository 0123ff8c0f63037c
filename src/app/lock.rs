//! One reaper per user: two TERMs from two sweeps are "force quit" to many programs (REDTEAM F15).

use std::fs::{DirBuilder, File};
use std::io::{Read as _, Seek as _, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::flock::Flock;
use super::place::Surroundings;
use super::signals::{Waited, wait};
use super::state::{State, StateError};

/// Most sweeps are over within this, so that a timer's and a person's need not know of one another.
const PATIENCE: Duration = Duration::from_secs(5);
const AGAIN: Duration = Duration::from_millis(100);

const NAME: &str = "reapd.lock";

/// The held lock; the kernel lets go of it when we end, however we end.
#[derive(Debug)]
pub struct Lock {
    _held: Flock,
}

/// Why there is no lock.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Somebody else sweeps.
    #[error("another reapd of this user is at work{}", .holder.as_ref().map(Holder::text).unwrap_or_default())]
    Held {
        /// Who, where it could be read.
        holder: Option<Holder>,
    },
    /// Somebody asked us to stop while we waited.
    #[error("interrupted while waiting for another reapd")]
    Interrupted,
    /// The directory is not there or not ours alone.
    #[error("cannot use {} for the lock", path.display())]
    Directory {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: StateError,
    },
    /// The lock file cannot be opened or locked.
    #[error("cannot lock {}", path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
}

/// Who holds the lock, as it says itself; for people only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// Its number.
    pub pid: u32,
    /// Since when, milliseconds of the wall clock since the epoch.
    pub since: u64,
}

impl Holder {
    fn text(&self) -> String {
        format!(": pid {}, since {}", self.pid, super::words::date(self.since))
    }
}

/// Takes the lock, waiting a few seconds for whoever has it.
pub fn take(around: &Surroundings, wall: u64) -> Result<Lock, LockError> {
    let directory = directory(around)?;
    take_in(&directory, wall, PATIENCE)
}

fn take_in(directory: &Path, wall: u64, patience: Duration) -> Result<Lock, LockError> {
    let path = directory.join(NAME);
    let wrap = |error: Errno| LockError::Io { path: path.clone(), source: error.into() };
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
    let open = || rustix::fs::open(&path, flags, Mode::RUSR | Mode::WUSR).map(File::from).map_err(wrap);
    let begun = Instant::now();
    let mut held = loop {
        match Flock::take(open()?, FlockOperation::NonBlockingLockExclusive) {
            Ok(held) => break held,
            Err(Errno::WOULDBLOCK) if begun.elapsed() < patience => {
                if wait(AGAIN) == Waited::Stopped {
                    return Err(LockError::Interrupted);
                }
            }
            Err(Errno::WOULDBLOCK) => return Err(LockError::Held { holder: holder(&mut open()?) }),
            Err(error) => return Err(wrap(error)),
        }
    };
    // Who we are is a courtesy to the one who waits; without it the lock holds as well.
    if let Ok(text) = serde_json::to_vec(&Holder { pid: std::process::id(), since: wall }) {
        let file = held.file();
        let _ = file.set_len(0).and_then(|()| file.rewind()).and_then(|()| file.write_all(&text));
    }
    Ok(Lock { _held: held })
}

fn holder(file: &mut File) -> Option<Holder> {
    let mut text = Vec::new();
    file.rewind().ok()?;
    file.take(1_024).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

/// Returns a directory that is the same for every reapd of this user, whatever its state directory is.
///
/// Not by `XDG_RUNTIME_DIR` alone: a timer has it and a cron job has not. Where logind made the usual one, it is
/// taken first, so that both meet.
fn directory(around: &Surroundings) -> Result<PathBuf, LockError> {
    let mut tried = Vec::new();
    if around.is_root() {
        tried.push(PathBuf::from(if cfg!(target_os = "macos") { "/var/run" } else { "/run" }));
    } else {
        tried.push(PathBuf::from(format!("/run/user/{}", around.uid)));
        tried.extend(around.absolute("XDG_RUNTIME_DIR"));
    }
    for path in tried {
        if let Ok(Some(_)) = State::existing(&path) {
            return Ok(path);
        }
    }
    // Not TMPDIR: it differs between sessions. On macOS /tmp is the link to /private/tmp, which is followed.
    let path = PathBuf::from(format!("/tmp/reapd-{}", around.uid));
    // Whether it was there already does not matter, whose it is does: asked right below.
    let _ = DirBuilder::new().mode(0o700).create(&path);
    match State::existing(&path) {
        Ok(Some(_)) => Ok(path),
        Ok(None) => Err(LockError::Io { path, source: Errno::NOENT.into() }),
        Err(source) => Err(LockError::Directory { path, source }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_is_told_who_has_it_f15() {
        let directory = tempfile::tempdir().unwrap();
        let first = take_in(directory.path(), 1_773_500_966_000, Duration::ZERO).unwrap();
        let refused = take_in(directory.path(), 0, Duration::ZERO).unwrap_err();
        let text = refused.to_string();
        assert!(text.contains(&format!("pid {}, since 2026-03-14 15:09:26Z", std::process::id())), "{text}");
        drop(first);
        take_in(directory.path(), 0, Duration::ZERO).unwrap();
    }

    #[test]
    fn what_the_holder_wrote_need_not_be_readable() {
        let directory = tempfile::tempdir().unwrap();
        let _first = take_in(directory.path(), 0, Duration::ZERO).unwrap();
        std::fs::write(directory.path().join(NAME), b"\xff garbage").unwrap();
        let refused = take_in(directory.path(), 0, Duration::ZERO).unwrap_err();
        assert!(matches!(refused, LockError::Held { holder: None }));
    }
}
