//! What goes of what trees left behind: within the mode, the oldest first, and not more at once than a person reads.

use bstr::{BString, ByteSlice as _};

use crate::config::policy::{Config, Policy};
use crate::model::plan::{Residue, Spare};
use crate::model::residue::{Left, Removal};
use crate::model::verdict::{Judgement, Mode};

/// Most directories, and most records, that one sweep removes: were all of this a mistake, it would show first.
const MOST: usize = 500;

/// Returns the directory that a tree leaves; nothing where its policy names none, or a capture of it is empty.
pub fn directory(judgement: &Judgement, policy: &Policy) -> Option<BString> {
    let template = policy.residue.as_ref()?.directory.as_ref()?;
    template.fill(|name| {
        judgement.captures.iter().find(|(known, _)| known == name).map(|(_, value)| value.as_bytes())
    })
}

/// Returns what is removed of what is stale, each with its policy, and what trees of the plan will leave.
pub fn residue(stale: &[(&Policy, &Left)], trees: Vec<Removal>, config: &Config) -> Residue {
    let mut all: Vec<(&Policy, &Left)> = stale.to_vec();
    // Directories first: a record goes once the directory that it names is gone.
    all.sort_by_key(|(_, left)| (matches!(left, Left::Record(_)), left.changed(), left.place().path()));
    let mut residue = Residue::default();
    let mut taken: Vec<BString> = Vec::new();
    // Two trees of the plan may name one directory.
    for removal in trees {
        let path = removal.place.path();
        if !taken.contains(&path) {
            taken.push(path);
            residue.removals.push(removal);
        }
    }
    let (mut directories, mut records) = (0, 0);
    for (policy, left) in all {
        let path = left.place().path();
        // Two policies may name one thing, and a tree of the plan may be about to leave it.
        if taken.contains(&path) {
            continue;
        }
        let removal = Removal::new(&policy.name, left, None);
        if config.mode != Mode::Reap || policy.mode != Mode::Reap {
            residue.waiting.push((removal, Spare::ReportOnly));
            continue;
        }
        let count = match left {
            Left::Directory(_) => &mut directories,
            Left::Record(_) => &mut records,
        };
        if *count == MOST || !directory_goes(left, &taken) {
            residue.waiting.push((removal, Spare::Pace));
            continue;
        }
        *count += 1;
        taken.push(path);
        residue.removals.push(removal);
    }
    residue
}

/// Says whether the directory that a record names is gone, or goes at this very sweep.
fn directory_goes(left: &Left, taken: &[BString]) -> bool {
    let Left::Record(record) = left else { return true };
    let Ok(Some(target)) = &record.target else { return false };
    target.there.is_none() || taken.contains(&target.directory.path())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::id::FileId;
    use crate::model::residue::{Kind, Numbers, Piece, Place, Record, Remains, Target};
    use crate::plan::fixture;

    fn place(name: &str) -> Place {
        Place { directory: "/tmp".into(), holder: FileId { dev: 1, ino: 2 }, name: name.into() }
    }

    fn left(name: &str, changed: i64) -> Left {
        let own = Piece::sample(name, Kind::Directory, 10, changed);
        Left::Directory(Remains { place: place(name), own, entries: Ok(Vec::new()), numbers: Numbers::Alike })
    }

    fn record(name: &str, of: &str) -> Left {
        let there = Some(FileId { dev: 1, ino: 10 });
        let target = Target { directory: place(of), file: "s".into(), there };
        Left::Record(Record {
            place: place(name),
            own: Piece::sample(name, Kind::File, 10, 0),
            target: Ok(Some(target)),
        })
    }

    fn paths(residue: &Residue) -> Vec<String> {
        residue.removals.iter().map(|removal| removal.place.path().to_string()).collect()
    }

    #[test]
    fn the_oldest_go_first_and_no_more_than_one_sweep_removes() {
        let policy = fixture::joining_policy();
        let config = fixture::World::new().config;
        let all: Vec<Left> =
            (0..=MOST).rev().map(|at| left(&format!("d{at}"), i64::try_from(at).unwrap())).collect();
        let (kept, gone) = (record("r-kept", &format!("d{MOST}")), record("r-gone", "d0"));
        let mut stale: Vec<(&Policy, &Left)> = vec![(&policy, &kept), (&policy, &gone)];
        stale.extend(all.iter().map(|left| (&policy, left)));
        let residue = residue(&stale, Vec::new(), &config);
        let planned = paths(&residue);
        assert_eq!((planned[0].as_str(), planned.len()), ("/tmp/d0", MOST + 1));
        assert_eq!(planned[MOST], "/tmp/r-gone");
        let waiting: Vec<_> = residue.waiting.iter().map(|(one, why)| (one.place.path(), *why)).collect();
        let newest = BString::from(format!("/tmp/d{MOST}"));
        assert_eq!(waiting, [(newest, Spare::Pace), ("/tmp/r-kept".into(), Spare::Pace)]);
    }

    #[test]
    fn what_a_tree_is_about_to_leave_is_not_stale_as_well() {
        let (policy, config) = (fixture::joining_policy(), fixture::World::new().config);
        let one = left("d", 0);
        let trees = vec![Removal::new("p", &one, None)];
        assert_eq!(paths(&residue(&[(&policy, &one)], trees, &config)).len(), 1);
    }

    #[test]
    fn what_two_trees_leave_together_goes_once() {
        let config = fixture::World::new().config;
        let trees = ["d", "e", "d"].map(|name| Removal::new("p", &left(name, 0), None)).to_vec();
        assert_eq!(paths(&residue(&[], trees, &config)), ["/tmp/d", "/tmp/e"]);
    }
}
