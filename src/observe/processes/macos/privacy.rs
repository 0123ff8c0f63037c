//! Places that macOS asks its user about before a program may look into them.
//!
//! A look from a background job would make a consent dialog appear in the middle of the night, so nothing below them
//! is ever probed: what is there counts as refused.

use bstr::{BStr, ByteSlice};

use crate::model::known::{Reason, Unknown};

/// Below a home directory.
const GUARDED: [&str; 9] = [
    "Desktop",
    "Documents",
    "Downloads",
    "Movies",
    "Music",
    "Pictures",
    "Library/Mobile Documents",
    "Library/CloudStorage",
    "Library/Containers",
];

/// Returns why `path` may not be looked at, or nothing where it may. Any user's home counts.
pub(super) fn refusal(path: &BStr, home: Option<&BStr>) -> Option<Unknown> {
    // Network and removable volumes are asked about as well.
    if below(path, b"/Volumes".into()) {
        return Some(refused("a volume that macOS guards"));
    }
    // A home may be spelt through the data volume's own mount.
    let path = path.strip_prefix(b"/System/Volumes/Data").map_or(path, ByteSlice::as_bstr);
    let within = home
        .and_then(|home| path.strip_prefix(home.trim_end_with(|letter| letter == '/')))
        .and_then(|rest| rest.strip_prefix(b"/"))
        .or_else(|| path.strip_prefix(b"/Users/")?.split_once_str("/").map(|(_, rest)| rest))?;
    GUARDED
        .iter()
        .find(|guarded| below_folded(within, guarded.as_bytes()))
        .map(|guarded| refused(&format!("~/{guarded}, which macOS guards")))
}

fn refused(what: &str) -> Unknown {
    Unknown::new(Reason::Denied, what)
}

fn below(path: &BStr, place: &BStr) -> bool {
    path.strip_prefix(place.as_bytes()).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

/// The usual file system of a Mac does not tell upper from lower case.
fn below_folded(path: &[u8], place: &[u8]) -> bool {
    path.get(..place.len()).is_some_and(|start| start.eq_ignore_ascii_case(place))
        && matches!(path.get(place.len()), None | Some(b'/'))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_refused(path: &str) -> bool {
        let refusal = refusal(path.into(), Some(b"/opt/home/ana/".into()));
        assert!(refusal.iter().all(|unknown| unknown.reason == Reason::Denied));
        refusal.is_some()
    }

    #[test]
    fn guarded_places_are_never_probed() {
        for path in [
            "/Users/ana/Documents/app/.worktrees/x",
            "/Users/bob/Desktop",
            "/Users/ana/downloads/y",
            "/System/Volumes/Data/Users/ana/Documents/app",
            "/opt/home/ana/Documents/app",
            "/Users/ana/Library/Mobile Documents/a",
            "/Volumes/stick/app",
        ] {
            assert!(is_refused(path), "{path}");
        }
    }

    #[test]
    fn other_places_are() {
        for path in
            ["/Users/ana/src/Documents", "/Users/ana/Documents2/x", "/Users/ana", "/private/tmp/x", "/", ""]
        {
            assert!(!is_refused(path), "{path}");
        }
    }
}
