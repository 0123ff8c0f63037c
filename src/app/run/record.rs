//! The lease of one `reapd run`: written before the command starts, completed once it has, removed when nothing of it
//! is left. It is what lets a later sweep finish when the watcher was killed.

use std::fs::File;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use bstr::BString;
use rustix::fs::{Mode, OFlags};

use super::words::Order;
use crate::app::lease::store::{self, Store, StoreError};
use crate::app::lease::{identity, place};
use crate::app::place::Surroundings;
use crate::model::container::ContainerId;
use crate::model::id::{Pid, ProcessId};
use crate::model::lease::{Bound, Cgroup, Holder, Lease, LeaseId, Release, Run, RunChannel};

/// The lease of a run, on disk.
#[derive(Debug)]
pub(super) struct Record {
    store: Store,
    draft: Lease,
}

/// Why there is no lease. The command runs all the same.
#[derive(Debug, thiserror::Error)]
pub(super) enum NoRecord {
    /// Who holds it, or who we are, cannot be told.
    #[error(transparent)]
    Nobody(#[from] identity::NobodyError),
    /// It cannot be written.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The kernel gave no random number for its name.
    #[error("no name for the lease")]
    Nameless(#[source] rustix::io::Errno),
}

/// Who is written down as the holder: whose death may mean that nobody needs the command any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum HeldBy {
    /// This process.
    Process(Pid),
    /// Nobody whose death would mean anything: process 1 stands for that.
    Init,
}

impl HeldBy {
    fn pid(self) -> Pid {
        match self {
            HeldBy::Process(pid) => pid,
            HeldBy::Init => Pid::INIT,
        }
    }
}

impl Record {
    /// Makes a lease that is not written so far, with its name. The cookie covers what the command starts from its
    /// first moment on.
    pub(super) fn draft(
        around: &Surroundings,
        order: &Order,
        held: HeldBy,
        channel: RunChannel,
    ) -> Result<Record, NoRecord> {
        let store = Store::open(&place::own(around))?;
        let id = store::fresh_id("run").map_err(NoRecord::Nameless)?;
        let own = identity::own()?;
        let start = own.start.ok_or(NoRecord::Nameless(rustix::io::Errno::SRCH))?;
        let mut draft = store::draft(id.clone(), Bound::Holder);
        draft.holder = Some(holder(held, &own));
        draft.covers.env = Some(BString::from(id.as_str()));
        draft.labels = order.labels.clone();
        draft.run = Some(Run {
            watcher: ProcessId { pid: own.pid, start },
            command: None,
            leftovers: order.leftovers,
            channel,
            cgroup: None,
        });
        Ok(Record { store, draft })
    }

    /// Writes it for the first time.
    pub(super) fn write(&self) -> Result<(), NoRecord> {
        Ok(self.store.add(&self.draft)?)
    }

    /// Returns its name.
    pub(super) fn id(&self) -> &LeaseId {
        &self.draft.id
    }

    /// Returns who holds it.
    pub(super) fn holder(&self) -> Option<&Holder> {
        self.draft.holder.as_ref()
    }

    /// Returns where an engine's client may write a container's id.
    pub(super) fn cidfile(&self) -> PathBuf {
        self.store.path().join(format!("{}.cid", self.id()))
    }

    /// Notes where a container's id is going to stand, before the first writing.
    pub(super) fn note_cidfile(&mut self, path: &std::path::Path) {
        // A path that is no text cannot stand in the file; the container keeps its labels.
        if let Some(path) = path.to_str() {
            self.draft.labels.insert(CIDFILE.to_owned(), path.to_owned());
        }
    }

    /// Returns the container that the command made, once its client has written that down.
    pub(super) fn container(&self) -> Option<ContainerId> {
        contained(Path::new(self.draft.labels.get(CIDFILE)?))
    }

    /// Makes the lease one that covers ourselves, who are about to become the command: nobody watches.
    pub(super) fn become_command(&mut self) {
        if let Some(run) = &self.draft.run {
            self.draft.covers.processes = vec![run.watcher];
        }
        self.draft.run = None;
    }

    /// Notes the cgroup that the command is to be in, before the first writing.
    pub(super) fn note_cgroup(&mut self, cgroup: &Cgroup) {
        if let Some(run) = &mut self.draft.run {
            run.cgroup = Some(cgroup.clone());
        }
    }

    /// Notes the command, once it was started, and the cgroup that it is in.
    pub(super) fn started(&self, command: ProcessId, cgroup: Option<&Cgroup>) -> Result<(), NoRecord> {
        self.store.change(self.id(), |lease| {
            lease.covers.processes = vec![command];
            if let Some(run) = &mut lease.run {
                run.command = Some(command);
                run.cgroup = cgroup.cloned();
            }
        })?;
        Ok(())
    }

    /// Notes that nobody's death means anything any more: the caller was an errand.
    pub(super) fn disown(&self) -> Result<(), NoRecord> {
        let own = identity::own()?;
        self.store.change(self.id(), |lease| lease.holder = Some(holder(HeldBy::Init, &own)))?;
        Ok(())
    }

    /// Says that it is over, before anything is ended.
    pub(super) fn release(&self, reason: &str) -> Result<(), NoRecord> {
        self.store.release(self.id(), Some(reason))?;
        Ok(())
    }

    /// Takes a release of ours back, where it is still that one: what had fallen silent speaks again.
    pub(super) fn reopen(&self, reason: &str) -> Result<(), NoRecord> {
        let ours = Release::Released(Some(reason.to_owned()));
        self.store.change(self.id(), |lease| {
            if lease.release == ours {
                lease.release = Release::Open;
            }
        })?;
        Ok(())
    }

    /// Removes it: nothing that it covered is left, or what is left is nobody's business.
    pub(super) fn remove(&self) {
        // One that cannot be removed is tidied up by a sweep, like that of a watcher that was killed.
        let _ = self.store.remove(self.id());
        if self.draft.labels.get(CIDFILE).is_some_and(|path| self.cidfile().as_os_str() == path.as_str()) {
            let _ = std::fs::remove_file(self.cidfile());
        }
    }
}

/// The label that tells where the id of the command's container stands.
pub(super) const CIDFILE: &str = "cidfile";

/// Returns the container whose id stands in a file; nothing where none does. The path may be anybody's words: nothing
/// but a regular file is read, and no more of it than an id has.
pub(super) fn contained(path: &Path) -> Option<ContainerId> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty()).ok()?);
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(LONGEST).read_to_string(&mut text).ok()?;
    ContainerId::written(&text)
}

/// An id and a line feed.
const LONGEST: u64 = 65;

/// Returns the record of a holder. Of one that cannot be seen, the bare number: whoever sees the file first pins it.
fn holder(held: HeldBy, own: &Holder) -> Holder {
    identity::of(held.pid()).unwrap_or_else(|_| Holder {
        pid: held.pid(),
        start: None,
        age: None,
        ..own.clone()
    })
}
