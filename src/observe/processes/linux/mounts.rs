//! Parses `/proc/PID/mountinfo` (proc_pid_mountinfo(5)).

use bstr::{BString, ByteSlice as _};

/// One mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Mount {
    /// Its number, as `statx` gives it.
    pub(super) id: u64,
    /// Which directory of the file system is mounted.
    pub(super) root: BString,
    /// Where, as the process sees it.
    pub(super) point: BString,
    /// The file system's type, e.g. `cgroup2`.
    pub(super) kind: BString,
    /// The options of the mount and of the file system, comma-separated.
    pub(super) options: BString,
}

/// Returns the mounts in order; later ones cover earlier ones. A malformed line is left out.
pub(super) fn parse(text: &[u8]) -> impl Iterator<Item = Mount> {
    text.lines().filter_map(line)
}

fn line(line: &[u8]) -> Option<Mount> {
    let (fixed, typed) = line.split_once_str(b" - ")?;
    let mut fixed = fixed.split_str(b" ");
    let id = fixed.next()?.to_str().ok()?.parse().ok()?;
    let root = plain(fixed.nth(2)?);
    let point = plain(fixed.next()?);
    let own = fixed.next()?;
    let mut typed = typed.split_str(b" ");
    let kind = BString::from(typed.next()?);
    let mut options = BString::from(own);
    options.push(b',');
    options.extend_from_slice(typed.nth(1).unwrap_or_default());
    Some(Mount { id, root, point, kind, options })
}

/// Undoes the octal escapes that the kernel writes for blanks, tabs, line feeds and backslashes.
fn plain(text: &[u8]) -> BString {
    let mut plain = Vec::with_capacity(text.len());
    let mut at = 0;
    while at < text.len() {
        let octal = (text[at] == b'\\')
            .then(|| text.get(at + 1..at + 4))
            .flatten()
            .and_then(|digits| u8::from_str_radix(digits.to_str().ok()?, 8).ok());
        if let Some(byte) = octal {
            plain.push(byte);
            at += 4;
        } else {
            plain.push(text[at]);
            at += 1;
        }
    }
    plain.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn escapes_options_and_optional_fields() {
        let text = b"36 35 98:0 /mnt1 /mnt\\0402\\134x rw,noatime master:1 shared:2 - ext3 /dev/root rw,errors=continue\n\
                     22 27 0:21 / /proc rw,relatime - proc proc rw,hidepid=invisible\nrubbish\n";
        let mounts: Vec<Mount> = parse(text).collect();
        assert_eq!(mounts.len(), 2);
        assert_eq!((mounts[0].id, mounts[0].root.as_slice()), (36, &b"/mnt1"[..]));
        assert_eq!(mounts[0].point, "/mnt 2\\x");
        assert_eq!(mounts[0].kind, "ext3");
        assert_eq!(mounts[1].options, "rw,relatime,rw,hidepid=invisible");
    }

    proptest! {
        #[test]
        fn no_bytes_break_it(text in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = parse(&text).count();
        }

        #[test]
        fn no_escape_breaks_it(text in "[\\\\0-9 a/-]{0,60}") {
            let _ = plain(text.as_bytes());
            let _ = parse(text.as_bytes()).count();
        }
    }
}
