//! What an observer needs to know, and why it may not be able to look.

use std::collections::BTreeSet;
use std::io;
use std::path::PathBuf;
use std::time::Duration;

use bstr::BString;

use super::{EngineSetup, LeaseDirectory};
use crate::config::policy::Registry;
use crate::model::look::Scope;

/// What an observer needs to know.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Whose processes to look at.
    pub scope: Scope,
    /// How long one read may take before it counts as hung.
    pub probe_timeout: Duration,
    /// Variables to read besides our own fixed ones.
    pub env_names: BTreeSet<BString>,
    /// The program to start as `PROGRAM aside`, for reads that can hang.
    pub aside: PathBuf,
    /// The user's home directory, where it is known.
    pub home: Option<PathBuf>,
    /// Where leases are read.
    pub leases: Vec<LeaseDirectory>,
    /// The registries that may be asked.
    pub registries: Vec<Registry>,
    /// Where container engines are; nothing where no policy looks at containers, and then nothing is asked of any.
    pub engines: Option<EngineSetup>,
}

/// Why nothing can be looked at.
#[derive(Debug, thiserror::Error)]
pub enum ObserveError {
    /// The process file system is not there.
    #[error("cannot open /proc")]
    Proc {
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// The process file system shows numbers that are not ours.
    #[error("/proc belongs to another pid namespace: mount it anew (unshare --mount-proc)")]
    ForeignProc,
    /// The table could not be read to its end, and a table with holes would look like deaths.
    #[error("cannot read the process table")]
    Table {
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
    /// This run of the kernel has no name.
    #[error("cannot tell which boot this is")]
    Boot {
        /// What the kernel said.
        #[source]
        source: io::Error,
    },
}
