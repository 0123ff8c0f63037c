//! What is read of one process beyond the table, all of it through one pinned descriptor.

use std::collections::BTreeMap;

use bstr::BString;
use serde::{Deserialize, Serialize};

use super::id::{FileId, Identity, Pid, ProcessId, Uid};
use super::known::Known;

/// The dear facts of one process. Each is known or says why not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Facts {
    /// Whose facts these are; re-read through the pinned descriptor, so that they cannot be a successor's.
    pub id: ProcessId,
    /// Its real user.
    pub uid: Known<Uid>,
    /// The argument vector, element by element, empty ones kept. A process may rewrite it at any time.
    pub argv: Known<Vec<BString>>,
    /// The executable.
    pub exe: Known<Executable>,
    /// The working directory it holds.
    pub cwd: Known<Directory>,
    /// Of the environment, the variables that were asked for and are there. A process may rewrite these too.
    pub env: Known<BTreeMap<BString, BString>>,
    /// Path of its cgroup in the unified hierarchy (or systemd's named one), e.g.
    /// `/user.slice/…/app.slice/x.service`.
    pub cgroup: Known<BString>,
    /// The namespaces it lives in.
    pub namespaces: Known<Namespaces>,
    /// Who traces it (`TracerPid`), if anybody.
    pub tracer: Known<Option<Pid>>,
    /// Whether it ignores SIGHUP: the mark of nohup(1).
    pub hangup: Known<Hangup>,
    /// Whether its cgroup is frozen.
    pub freezer: Known<Freezer>,
    /// Linux 6.9+: inode of its pidfd, never reused within a boot. macOS: `p_uniqueid`.
    pub unique: Option<u64>,
}

impl Facts {
    /// Returns what must be as recorded before a signal, where enough is known of it.
    pub fn identity(&self, boot: &super::id::BootId) -> Known<Identity> {
        Ok(Identity {
            boot: boot.clone(),
            id: self.id,
            uid: self.uid.clone()?,
            exe: self.exe.as_ref().ok().map(|exe| exe.file),
            unique: self.unique,
        })
    }
}

/// An executable, by identity; its text is for matching and for people.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Executable {
    /// What `/proc/PID/exe` reads, without any " (deleted)" mark.
    pub path: BString,
    /// The file that runs, though its name be gone.
    pub file: FileId,
}

/// The directory a process stands in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Directory {
    /// What `/proc/PID/cwd` reads, without the kernel's mark. It lies after `umount -l`, and in other mount
    /// namespaces.
    pub path: BString,
    /// The directory itself.
    pub file: FileId,
    /// Whether it was deleted. Unknown on file systems that cannot be trusted to say.
    pub fate: Known<Fate>,
    /// The kind of file system it is on.
    pub on: FileSystem,
}

/// Whether a held directory still has a name.
///
/// *Deleted* is `st_nlink == 0` **and** the link text ends in " (deleted)"; on overlayfs, where the count stays 2,
/// the text alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// It has a name somewhere.
    Linked,
    /// It is gone for good: a held inode without a name cannot get one again.
    Deleted,
}

/// Kinds of file system, by how far an absence on them can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FileSystem {
    /// A local one: link counts tell the truth.
    Local,
    /// overlayfs: link counts of lower directories stay 2 after removal.
    Overlay,
    /// FUSE: link counts and absences are whatever a program says.
    Fuse,
    /// NFS, CIFS, 9p and the like.
    Network,
}

/// The namespaces of a process, by inode (namespaces(7)).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Namespaces {
    /// Process numbers.
    pub pid: u64,
    /// Mounts: the same path may mean another file.
    pub mount: u64,
    /// Network, abstract and TCP sockets.
    pub net: u64,
    /// Clock offsets; 0 where the kernel has none.
    pub time: u64,
    /// Users.
    pub user: u64,
}

/// What a process does with SIGHUP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Hangup {
    /// Ignored: somebody meant it to outlive its terminal (nohup(1)).
    Ignored,
    /// Caught by a handler of its own.
    Caught,
    /// Left at its default, which ends the process.
    Default,
}

/// Whether a cgroup is frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Freezer {
    /// Frozen: it neither runs nor answers, and somebody wants that.
    Frozen,
    /// Running freely.
    Thawed,
}
