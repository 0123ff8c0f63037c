//! Parses the few lines of `/proc/PID/status` that nothing cheaper says.

use bstr::ByteSlice as _;

use crate::model::facts::Hangup;
use crate::model::id::{Pid, Uid};

/// What is taken from proc_pid_status(5). A line that is missing or malformed is `None`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Status {
    /// Number of the thread group: the process, where a thread's number was asked.
    pub(super) tgid: Option<Pid>,
    /// The real user.
    pub(super) uid: Option<Uid>,
    /// The real group.
    pub(super) gid: Option<u32>,
    /// The tracer's number; 0 is nobody.
    pub(super) tracer: Option<i32>,
    /// What is done with SIGHUP.
    pub(super) hangup: Option<Hangup>,
}

/// Returns what the text says. The kernel escapes line feeds in the `Name:` line, so a line is a line.
pub(super) fn parse(text: &[u8]) -> Status {
    let mut status = Status::default();
    let mut ignored = None;
    let mut caught = None;
    for line in text.lines() {
        let Some((name, value)) = line.split_once_str(b":") else { continue };
        let value = value.trim_ascii();
        match name {
            b"Tgid" => status.tgid = decimal(value).and_then(Pid::new),
            b"Uid" => {
                let real = value.to_str().ok().and_then(|ids| ids.split_whitespace().next()?.parse().ok());
                status.uid = real.map(Uid);
            }
            b"Gid" => {
                status.gid = value.to_str().ok().and_then(|ids| ids.split_whitespace().next()?.parse().ok());
            }
            b"TracerPid" => {
                status.tracer = decimal(value).filter(|&number| number >= 0);
            }
            b"SigIgn" => ignored = mask(value),
            b"SigCgt" => caught = mask(value),
            _ => {}
        }
    }
    // SIGHUP is signal 1, so it is the lowest bit.
    status.hangup = match (ignored, caught) {
        (Some(ignored), _) if ignored & 1 == 1 => Some(Hangup::Ignored),
        (Some(_), Some(caught)) if caught & 1 == 1 => Some(Hangup::Caught),
        (Some(_), Some(_)) => Some(Hangup::Default),
        (None, _) | (_, None) => None,
    };
    status
}

fn decimal(value: &[u8]) -> Option<i32> {
    value.to_str().ok()?.parse().ok()
}

fn mask(value: &[u8]) -> Option<u64> {
    u64::from_str_radix(value.to_str().ok()?, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &[u8] =
        b"Name:\tno\\nhup\nState:\tS (sleeping)\nTgid:\t77\nPid:\t78\nPPid:\t1\nTracerPid:\t0\n\
        Uid:\t1000\t0\t0\t0\nGid:\t1001\t0\t0\t0\nSigIgn:\t0000000000001001\nSigCgt:\t0000000000000002\n";

    #[test]
    fn the_lines_that_count() {
        let status = parse(TEXT);
        assert_eq!(status.tgid, Pid::new(77));
        assert_eq!(status.uid, Some(Uid(1000)), "the real user, not the effective one");
        assert_eq!(status.gid, Some(1001));
        assert_eq!(status.tracer, Some(0));
        assert_eq!(status.hangup, Some(Hangup::Ignored));
    }

    #[test]
    fn traced_and_caught() {
        let status = parse(b"TracerPid:\t9\nSigIgn:\t0\nSigCgt:\t1\n");
        assert_eq!(status.tracer, Some(9));
        assert_eq!(status.hangup, Some(Hangup::Caught));
        assert_eq!(parse(b"SigIgn:\t2\nSigCgt:\t2\n").hangup, Some(Hangup::Default));
    }

    #[test]
    fn a_missing_line_is_not_a_default() {
        assert_eq!(parse(b"Name:\tx\n"), Status::default());
        assert_eq!(parse(b"SigIgn:\t0\n").hangup, None, "without the caught mask nothing is known");
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&text);
        }
    }
}
