//! The machine and we ourselves: the boot, the clocks, our namespaces, and what is hidden from us.

use bstr::{BString, ByteSlice as _};
use rustix::process::Signal;
use rustix::time::{ClockId, clock_gettime};

use crate::model::facts::Namespaces;
use crate::model::id::{BootId, Pid, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::{Gap, Own, Scope};
use crate::model::moment::{Clocks, Moment};
use crate::model::table::Table;
use crate::observe::ObserveError;

use super::facts::namespace;
use super::mounts;
use super::pinned::unknown;
use super::stat::{self, Units};

/// `PROC_PID_INIT_INO` of the kernel: the pid namespace that the machine booted in.
const FIRST_PID_NAMESPACE: u64 = 0xEFFF_FFFC;

/// Returns this run of the kernel.
pub(in crate::observe) fn boot_id() -> Result<BootId, ObserveError> {
    let text = std::fs::read_to_string("/proc/sys/kernel/random/boot_id")
        .map_err(|source| ObserveError::Boot { source })?;
    Ok(BootId(text.trim().to_owned()))
}

/// Returns who we are.
pub(in crate::observe) fn own(scope: Scope, home: Option<BString>) -> Own {
    Own {
        pid: Pid::new(rustix::process::getpid().as_raw_nonzero().get()).unwrap_or(Pid::INIT),
        uid: Uid(rustix::process::geteuid().as_raw()),
        sid: session(),
        namespaces: namespaces_at("/proc/self"),
        home,
        scope,
    }
}

/// Returns our session, as the kernel writes it in the table: 0 where its leader is outside of our pid namespace, as
/// below `docker exec` and unshare(1). getsid(2) of rustix takes that for a fault.
fn session() -> i32 {
    let text = std::fs::read("/proc/self/stat").unwrap_or_default();
    stat::parse(&text, Units::of_this_kernel()).map_or(0, |row| row.sid)
}

fn namespaces_at(base: &str) -> Known<Namespaces> {
    let inode = |name: &str| {
        let text = rustix::fs::readlink(format!("{base}/ns/{name}"), Vec::new())
            .map_err(|errno| unknown(errno, format!("reading the {name} namespace")))?;
        namespace(text.as_bytes())
    };
    Ok(Namespaces {
        pid: inode("pid")?,
        mount: inode("mnt")?,
        net: inode("net")?,
        time: match inode("time") {
            Err(Unknown { reason: Reason::Vanished, .. }) => 0,
            known => known?,
        },
        user: inode("user")?,
    })
}

/// Reads the three clocks together.
pub(in crate::observe) fn clocks() -> Clocks {
    let nanos = |id| {
        let now = clock_gettime(id);
        let seconds = u64::try_from(now.tv_sec).unwrap_or(0);
        seconds.saturating_mul(1_000_000_000).saturating_add(u64::try_from(now.tv_nsec).unwrap_or(0))
    };
    Clocks {
        boot: Moment(nanos(ClockId::Boottime)),
        monotonic: nanos(ClockId::Monotonic),
        wall: nanos(ClockId::Realtime) / 1_000_000,
    }
}

/// Returns what this machine hides from us.
pub(in crate::observe) fn gaps() -> Vec<Gap> {
    let mut gaps = Vec::new();
    if !rustix::process::geteuid().is_root()
        && let Ok(text) = std::fs::read("/proc/self/mountinfo")
        && hides_processes(&text)
    {
        gaps.push(Gap {
            source: Gap::HIDDEN.into(),
            why: Unknown::new(Reason::Denied, "/proc is mounted with hidepid"),
            cure: Some("nothing to do for your own processes; run as root to see all".into()),
        });
    }
    let Ok(ours) = namespaces_at("/proc/self") else { return gaps };
    if ours.pid != FIRST_PID_NAMESPACE {
        gaps.push(Gap {
            source: "processes outside this container".into(),
            why: Unknown::new(Reason::Foreign, "reapd runs in a pid namespace of its own"),
            cure: Some("run reapd on the host to see them".into()),
        });
    }
    // Readable by root only; where it is not, nothing is known and nothing is said.
    if let Ok(first) = namespaces_at("/proc/1")
        && first.mount != ours.mount
    {
        gaps.push(Gap {
            source: "paths of other processes".into(),
            why: Unknown::new(Reason::Foreign, "reapd runs in a mount namespace of its own"),
            cure: Some("start it without PrivateTmp, ProtectHome and the like".into()),
        });
    }
    gaps
}

/// Says whether every process of the host has a number here.
pub(in crate::observe) fn is_outermost() -> Known<bool> {
    Ok(pid_namespace()? == FIRST_PID_NAMESPACE)
}

/// Returns the inode of our own pid namespace.
pub(super) fn pid_namespace() -> Known<u64> {
    let ours = rustix::fs::readlink("/proc/self/ns/pid", Vec::new())
        .map_err(|errno| unknown(errno, "reading our own pid namespace"))?;
    namespace(ours.as_bytes())
}

/// Says whether there may be processes that the table cannot show: outside our pid namespace, or hidden from us by
/// a procfs mounted with `hidepid` (proc(5)), where not even process 1 is to be seen.
pub(in crate::observe) fn is_blind(table: &Table) -> Known<bool> {
    Ok(!is_outermost()? || table.at(Pid::INIT).is_none())
}

fn hides_processes(mountinfo: &[u8]) -> bool {
    mounts::parse(mountinfo).any(|mount| {
        mount.kind == "proc"
            && mount.point == "/proc"
            && mount.options.split_str(b",").any(|option| {
                option.strip_prefix(b"hidepid=").is_some_and(|value| !matches!(value, b"0" | b"off"))
            })
    })
}

/// Makes the aside process end with the one that started it, even while it hangs in a read that can be killed.
pub(in crate::observe) fn prepare_aside() {
    // Where the kernel refuses, the end of standard input ends it too.
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hidepid_by_number_and_by_word() {
        let line = |options| format!("22 27 0:21 / /proc rw,relatime - proc proc rw,{options}\n");
        assert!(hides_processes(line("hidepid=2").as_bytes()));
        assert!(hides_processes(line("gid=5,hidepid=invisible").as_bytes()));
        assert!(!hides_processes(line("hidepid=off").as_bytes()));
        assert!(!hides_processes(line("gid=5").as_bytes()));
    }

    #[test]
    fn clocks_run() {
        let first = clocks();
        let second = clocks();
        assert!(second.boot >= first.boot && second.monotonic >= first.monotonic);
        assert!(first.wall > 1_600_000_000_000, "the wall clock is in milliseconds");
    }
}
