//! Who waits for whom in the lease directory. The kernel lets go of every lock when its holder ends, however it ends.

use rustix::fs::{AtFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;

use super::{Store, StoreError, io};
use crate::app::flock::Flock;
use crate::model::lease::LeaseId;

/// The lock of one lease.
#[derive(Debug)]
pub struct LeaseLock {
    _held: Flock,
}

impl Store {
    /// Takes the lock of one lease where nobody has it: whoever finishes what it covers has it meanwhile.
    pub fn try_lock(&self, id: &LeaseId) -> Result<Option<LeaseLock>, StoreError> {
        self.lock_by(id, FlockOperation::NonBlockingLockExclusive)
    }

    /// Takes the lock of one lease, waiting for whoever has it.
    pub fn lock(&self, id: &LeaseId) -> Result<LeaseLock, StoreError> {
        loop {
            if let Some(lock) = self.lock_by(id, FlockOperation::LockExclusive)? {
                return Ok(lock);
            }
        }
    }

    fn lock_by(&self, id: &LeaseId, how: FlockOperation) -> Result<Option<LeaseLock>, StoreError> {
        let name = format!(".{id}.lock");
        let wrap = |error| io("cannot lock", &self.path.join(&name), error);
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        loop {
            let file =
                rustix::fs::openat(&self.directory, &name, flags, Mode::RUSR | Mode::WUSR).map_err(wrap)?;
            let ours = rustix::fs::fstat(&file).map_err(wrap)?;
            let held = match Flock::take(file, how) {
                Ok(held) => held,
                Err(Errno::WOULDBLOCK) => return Ok(None),
                Err(error) => return Err(wrap(error)),
            };
            // A sweep tidies up locks that nobody holds: this one may have lost its name while we waited.
            match rustix::fs::statat(&self.directory, &name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(there) if (there.st_dev, there.st_ino) == (ours.st_dev, ours.st_ino) => {
                    return Ok(Some(LeaseLock { _held: held }));
                }
                Ok(_) | Err(Errno::NOENT) => {}
                Err(error) => return Err(wrap(error)),
            }
        }
    }

    /// Keeps others who change leases through here out until it is dropped.
    pub(super) fn exclusive(&self) -> Result<Flock, StoreError> {
        Flock::directory(&self.directory).map_err(|error| io("cannot lock", &self.path, error))
    }
}
