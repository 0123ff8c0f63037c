//! Who is connected to an engine from another network namespace: told by the kernel to whoever looks from within.

use std::collections::BTreeSet;

use bstr::BString;
use serde::{Deserialize, Serialize};

use crate::model::id::ProcessId;
use crate::model::known::Known;

/// A look from within the network namespace of a process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::observe) struct Within {
    /// Whose namespace.
    pub(in crate::observe) of: ProcessId,
    /// The names that the engine listens at.
    pub(super) names: BTreeSet<BString>,
}

/// The accepted connections of a listener, as far as a network namespace shows them: one that was accepted belongs to
/// the namespace of its client (`unix_stream_connect` of the kernel's af_unix.c).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub(in crate::observe) struct Accepted {
    /// The listeners' sockets.
    pub(in crate::observe) listeners: Vec<u64>,
    /// The names that these were bound to.
    pub(in crate::observe) names: BTreeSet<BString>,
    /// The clients' ends that are open.
    pub(in crate::observe) clients: BTreeSet<u64>,
    /// Connections whose client's end the kernel does not tell, those that wait to be accepted among them.
    pub(in crate::observe) untold: u32,
}

impl Within {
    /// Looks.
    #[cfg(target_os = "linux")]
    pub(in crate::observe) fn look(&self) -> Known<Accepted> {
        use crate::observe::{processes, sockets::Dump};

        processes::within_network(self.of, || Dump::new().accepted(&self.names, None))?
    }

    /// Looks.
    #[cfg(not(target_os = "linux"))]
    pub(in crate::observe) fn look(&self) -> Known<Accepted> {
        use crate::model::known::{Reason, Unknown};

        let Within { of: _, names: _ } = self;
        Err(Unknown::new(Reason::Unsupported, "network namespaces"))
    }
}
