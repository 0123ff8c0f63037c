//! Time, as a value that is handed in: no floor but the edge reads a clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// A point on the boot clock (`CLOCK_BOOTTIME`; macOS `mach_continuous_time`): it counts suspends, never steps.
///
/// Nanoseconds since boot. Only moments of one boot compare.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Moment(pub u64);

impl Moment {
    /// Returns how long after `earlier` this is; zero where it is not after.
    pub fn since(self, earlier: Moment) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// Returns the moment `span` later.
    #[must_use]
    pub fn plus(self, span: Duration) -> Moment {
        Moment(self.0.saturating_add(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }

    /// Returns the moment `span` earlier, at the earliest the boot itself.
    #[must_use]
    pub fn minus(self, span: Duration) -> Moment {
        Moment(self.0.saturating_sub(u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)))
    }
}

/// The clocks as read together at one moment.
///
/// Their drift against one another is how a suspend (boot against monotonic) and a clock step (wall against boot)
/// are noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Clocks {
    /// The boot clock: every age and period runs on it.
    pub boot: Moment,
    /// The monotonic clock, nanoseconds; stands still in a suspend.
    pub monotonic: u64,
    /// The wall clock, milliseconds since the epoch; for people and journals only.
    pub wall: u64,
}
