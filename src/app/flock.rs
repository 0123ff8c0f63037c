//! A lock of flock(2) that ends when it is dropped.
//!
//! The kernel lets go of such a lock when the last descriptor of its open file is closed, and a process that another
//! thread is just starting has a copy of every descriptor until it runs its program. So we say that it ends, rather
//! than only close it; if we are killed, the kernel does the rest.

use std::fs::File;
use std::os::fd::OwnedFd;

use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;

/// A held lock and its open file.
#[derive(Debug)]
pub struct Flock(File);

impl Flock {
    /// Takes the lock by `how`, again where a signal interrupted the wait. `Err(Errno::WOULDBLOCK)` where somebody else
    /// has it and `how` does not wait.
    pub fn take(file: impl Into<OwnedFd>, how: FlockOperation) -> Result<Flock, Errno> {
        let file = File::from(file.into());
        loop {
            match rustix::fs::flock(&file, how) {
                Ok(()) => return Ok(Flock(file)),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the lock of a directory alone, waiting for whoever has it. By a descriptor of its own: flock(2) belongs to
    /// the open file, so that a clone would share it.
    pub fn directory(directory: &OwnedFd) -> Result<Flock, Errno> {
        let flags = OFlags::DIRECTORY | OFlags::RDONLY | OFlags::CLOEXEC;
        let own = rustix::fs::openat(directory, ".", flags, Mode::empty())?;
        Flock::take(own, FlockOperation::LockExclusive)
    }

    /// Returns the open file, to write into it.
    pub fn file(&mut self) -> &mut File {
        &mut self.0
    }
}

impl Drop for Flock {
    fn drop(&mut self) {
        // What cannot be unlocked is closed right after.
        let _ = rustix::fs::flock(&self.0, FlockOperation::Unlock);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_of_the_descriptor_does_not_outlive_the_lock() {
        let directory = tempfile::tempdir().unwrap();
        let open = || File::create(directory.path().join("lock")).unwrap();
        let taken = || Flock::take(open(), FlockOperation::NonBlockingLockExclusive);
        let held = taken().unwrap();
        let copy = held.0.try_clone().unwrap();
        assert_eq!(taken().unwrap_err(), Errno::WOULDBLOCK);
        drop(held);
        assert!(taken().is_ok(), "as whoever is just being started has it");
        drop(copy);
    }
}
