//! This Mac: its boot, its clocks, who is looking, and where macOS makes us blind.

use bstr::BString;

use crate::model::facts::Namespaces;
use crate::model::id::{BootId, Pid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::{Gap, Own, Scope};
use crate::model::moment::{Clocks, Moment};
use crate::model::table::Table;
use crate::observe::ObserveError;

use super::kernel;

/// A Mac has one of each namespace, and everybody lives in it.
pub(super) const THE_ONLY: Namespaces = Namespaces { pid: 0, mount: 0, net: 0, time: 0, user: 0 };

/// Returns this run of the kernel (`kern.bootsessionuuid`).
pub(in crate::observe) fn boot_id() -> Result<BootId, ObserveError> {
    let text = kernel::named(c"kern.bootsessionuuid").map_err(|source| ObserveError::Boot { source })?;
    match String::from_utf8(text) {
        Ok(text) if !text.is_empty() => Ok(BootId(text)),
        Ok(_) | Err(_) => {
            Err(ObserveError::Boot { source: std::io::Error::from(std::io::ErrorKind::InvalidData) })
        }
    }
}

/// Returns the clocks.
///
/// Their names mislead one who comes from Linux: `CLOCK_MONOTONIC_RAW` is `mach_continuous_time`, which counts
/// sleep, and `CLOCK_UPTIME_RAW` is `mach_absolute_time`, which stands still in it (clock_gettime(3)).
/// `CLOCK_MONOTONIC` counts sleep as well, but is slewed with the wall clock.
pub(in crate::observe) fn clocks() -> Clocks {
    Clocks {
        boot: Moment(kernel::clock(libc::CLOCK_MONOTONIC_RAW)),
        monotonic: kernel::clock(libc::CLOCK_UPTIME_RAW),
        wall: kernel::clock(libc::CLOCK_REALTIME) / 1_000_000,
    }
}

/// Returns who is looking.
pub(in crate::observe) fn own(scope: Scope, home: Option<BString>) -> Own {
    let pid = rustix::process::getpid();
    Own {
        pid: Pid::new(pid.as_raw_nonzero().get()).unwrap_or(Pid::INIT),
        uid: kernel::effective_user(),
        sid: rustix::process::getsid(None).map_or(0, |session| session.as_raw_nonzero().get()),
        namespaces: Ok(THE_ONLY),
        home,
        scope,
    }
}

/// Returns what macOS hides from us.
pub(in crate::observe) fn gaps() -> Vec<Gap> {
    vec![
        Gap {
            source: "guarded directories".to_owned(),
            why: Unknown::new(
                Reason::Denied,
                "~/Desktop, ~/Documents, ~/Downloads and other volumes are never probed, since macOS would ask about it",
            ),
            cure: Some("keep throw-away workspaces elsewhere".to_owned()),
        },
        Gap {
            source: "environment of the system's own programs".to_owned(),
            why: Unknown::new(Reason::Denied, "macOS leaves it out"),
            cure: None,
        },
    ]
}

/// A Mac has one pid space, and its table shows everybody.
#[expect(clippy::unnecessary_wraps, reason = "the same signature as on Linux, where it can be unknown")]
pub(in crate::observe) fn is_blind(_table: &Table) -> Known<bool> {
    Ok(false)
}

/// There is no way to be told of a parent's death before it happens; the aside process ends when its pipe does.
pub(in crate::observe) fn prepare_aside() {}
