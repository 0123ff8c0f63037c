//! What goes wrong with lease files.

use std::path::PathBuf;

use crate::app::state::StateError;
use crate::model::lease::LeaseId;
use crate::model::lease::format::FormatFault;

/// Why a lease could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The directory cannot be used.
    #[error(transparent)]
    Directory(#[from] StateError),
    /// The system said no.
    #[error("{doing} {}", path.display())]
    Io {
        /// What was being done, e.g. "cannot open".
        doing: &'static str,
        /// To what.
        path: PathBuf,
        /// The system's answer.
        #[source]
        source: std::io::Error,
    },
    /// There is one of this name.
    #[error("there is a lease {0} already")]
    Exists(LeaseId),
    /// There is none of this name.
    #[error("there is no lease {0}")]
    Missing(LeaseId),
    /// The file says nothing that counts.
    #[error("{}: {fault}", path.display())]
    Faulty {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        fault: FormatFault,
    },
    /// It is released, and nobody renews what is over.
    #[error("lease {0} is released: nothing renews it")]
    Released(LeaseId),
    /// Somebody else wrote it meanwhile.
    #[error("lease {0} was written by somebody else meanwhile")]
    Changed(LeaseId),
}
