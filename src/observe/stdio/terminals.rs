//! The terminals whose master side a process holds: what it is a multiplexer or a terminal emulator for.

use crate::model::id::ProcessId;
use crate::model::known::{Known, Reason, Unknown};

use super::super::descriptors::Descriptors;

/// Major device number of the slaves of Unix 98 terminals (the kernel's Documentation/admin-guide/devices.txt).
const PTS: i32 = 136;

/// Returns the device numbers of the slaves, as field 7 of `/proc/PID/stat` shows them; sorted, each once.
///
/// The master is a descriptor of `/dev/ptmx` or of a `ptmx` in some devpts; which slave it made stands as
/// `tty-index` in its `fdinfo` (Linux 4.14). Two instances of devpts may bear the same number: one too many is told
/// then, which can only keep.
pub fn terminals(of: ProcessId) -> Known<Vec<i32>> {
    let process = Descriptors::open(of)?;
    let mut found = Vec::new();
    for fd in process.named(b"/ptmx")? {
        let Some(text) = process.details(fd)? else { continue };
        let index = index(&text).ok_or_else(|| {
            Unknown::new(Reason::Unsupported, format!("which terminal descriptor {fd} of {of} serves"))
        })?;
        found.push(device(index));
    }
    process.check()?;
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

fn index(text: &[u8]) -> Option<i32> {
    let line = text.split(|&byte| byte == b'\n').find_map(|line| line.strip_prefix(b"tty-index:"))?;
    std::str::from_utf8(line).ok()?.trim().parse().ok().filter(|index| (0..1 << 20).contains(index))
}

/// `new_encode_dev` of the kernel's include/linux/kdev_t.h.
fn device(index: i32) -> i32 {
    (index & 0xff) | (PTS << 8) | ((index & !0xff) << 12)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_a_master() {
        assert_eq!(index(b"pos:\t0\nflags:\t02\nmnt_id:\t9\ntty-index:\t7\n"), Some(7));
        assert_eq!(index(b"pos:\t0\n"), None);
        assert_eq!(index(b"tty-index:\t-1\n"), None);
        assert_eq!(index(b"tty-index:\tx\n"), None);
    }

    #[test]
    fn devices_as_stat_shows_them() {
        assert_eq!(device(0), 34816);
        assert_eq!(device(255), 35071);
        assert_eq!(device(256), 34816 + (1 << 20));
    }
}
