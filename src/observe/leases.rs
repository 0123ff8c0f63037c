//! Which leases there are, and who carries the cookie of one: asked of the aside process, remembered between looks.
//!
//! A directory that is not there says nothing and costs one call. One that cannot be read, or that somebody else
//! could write to, leaves unknown what its leases may cover; so does every file that says nothing sound.

mod cookies;
mod directory;
mod group;

use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;

use bstr::BString;

use crate::model::id::{ProcessId, Uid};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::lease::{LeaseId, Leases};
use crate::model::look::{Arguments, Gap};
use crate::model::table::Table;

use super::aside::{Aside, Reply, Request};
use cookies::Cookies;

pub(super) use directory::{Directories, Found, Place};
pub(super) use group::Grouping;

/// A directory that hung is asked again after so many looks only: each would cost every look a deadline.
const TURNS: u32 = 10;

/// Where leases are read, and the one user whose files there count, and for whose processes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LeaseDirectory {
    /// The directory; it need not be there.
    pub path: PathBuf,
    /// Whose it must be.
    pub owner: Uid,
}

/// The lease directories, and what is remembered of who carries cookies.
#[derive(Debug)]
pub(super) struct Leasing {
    places: Vec<Asked>,
    cookies: Cookies,
}

#[derive(Debug)]
struct Asked {
    place: Place,
    // Looks that still pass before one that hung is asked again.
    rest: u32,
}

impl Leasing {
    /// Returns one that has read nothing yet.
    pub(super) fn new(directories: &[LeaseDirectory]) -> Leasing {
        let places = directories.iter().map(|directory| Asked {
            place: Place { path: directory.path.as_os_str().as_bytes().into(), owner: directory.owner },
            rest: 0,
        });
        Leasing { places: places.collect(), cookies: Cookies::default() }
    }

    /// Returns what to ask at this look; [`Leasing::take`] wants the replies in the same order.
    pub(super) fn requests(&self) -> Vec<Request> {
        let asked = self.places.iter().filter(|asked| asked.rest == 0);
        asked.map(|asked| Request::Leases(asked.place.clone())).collect()
    }

    /// Returns the leases of this look, and where we are blind.
    pub(super) fn take(&mut self, replies: Vec<Known<Reply>>) -> (Leases, Vec<Gap>) {
        let mut replies = replies.into_iter();
        let mut leases = Leases::default();
        let mut gaps = Vec::new();
        for asked in &mut self.places {
            let is_asked = asked.rest == 0;
            let reply = if is_asked {
                replies.next().unwrap_or_else(|| Err(Unknown::new(Reason::NotAsked, "reading it")))
            } else {
                asked.rest -= 1;
                Err(Unknown::new(Reason::Hung, "reading it"))
            };
            let found = match reply.and_then(Reply::leases) {
                Ok(found) => found,
                Err(why) if why.reason == Reason::Hung => {
                    if is_asked {
                        asked.rest = TURNS;
                    }
                    asked.place.unknown(why, "mend or unmount its file system, or name another directory")
                }
                Err(why) => asked.place.unknown(why, "it will be tried again at the next look"),
            };
            leases.list.extend(found.list);
            leases.faulty.extend(found.faulty);
            gaps.extend(found.gaps);
        }
        leases.list.sort_by(|one, other| (one.file.owner, &one.id).cmp(&(other.file.owner, &other.id)));
        leases.faulty.sort_by(|one, other| (one.owner, &one.stem).cmp(&(other.owner, &other.stem)));
        (leases, gaps)
    }

    /// Returns who is in the cgroup of which run, and where that could not be read.
    pub(super) fn grouped(
        leases: &Leases,
        table: &Table,
        aside: &mut Aside,
    ) -> (BTreeMap<ProcessId, LeaseId>, Vec<Gap>) {
        let (mut found, mut gaps) = (BTreeMap::new(), Vec::new());
        let asked: Vec<(&LeaseId, Grouping)> =
            leases.list.iter().filter_map(|lease| Some((&lease.id, Grouping::of(lease)?))).collect();
        if asked.is_empty() {
            return (found, gaps);
        }
        let requests: Vec<Request> = asked.iter().map(|(_, one)| Request::Group(one.clone())).collect();
        let replies = aside.ask(&requests);
        for ((lease, _), reply) in asked.into_iter().zip(replies) {
            match reply.and_then(Reply::group) {
                Ok(numbers) => {
                    let rows = numbers.into_iter().filter_map(|pid| table.at(pid));
                    found.extend(rows.map(|row| (row.id, lease.clone())));
                }
                Err(why) => {
                    gaps.push(Gap { source: format!("the cgroup of lease {lease}"), why, cure: None });
                }
            }
        }
        (found, gaps)
    }

    /// Returns the cookies of everybody in scope whose user has a lease. Without any lease nobody is read.
    pub(super) fn carriers(
        &mut self,
        leases: &Leases,
        table: &Table,
        arguments: &[Arguments],
        aside: &mut Aside,
    ) -> BTreeMap<ProcessId, Known<BString>> {
        if leases.list.is_empty() && leases.faulty.is_empty() {
            self.cookies = Cookies::default();
            return BTreeMap::new();
        }
        // A file whose user is not known may be about anybody.
        let anybody = leases.faulty.iter().any(|faulty| faulty.owner.is_none());
        let owners: BTreeSet<Uid> = leases
            .list
            .iter()
            .map(|lease| lease.file.owner)
            .chain(leases.faulty.iter().filter_map(|faulty| faulty.owner))
            .collect();
        let concerned = arguments.iter().filter(|entry| anybody || owners.contains(&entry.uid));
        self.cookies.refresh(table, concerned, |ids| {
            let requests: Vec<Request> = ids.iter().map(|&id| Request::Cookie(id)).collect();
            let replies = aside.ask(&requests).into_iter();
            replies.map(|reply| reply.and_then(Reply::cookie)).collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hung() -> Known<Reply> {
        Err(Unknown::new(Reason::Hung, "reading it"))
    }

    fn empty() -> Reply {
        Reply::Leases(Box::default())
    }

    #[test]
    fn a_directory_that_hung_is_unknown_and_not_asked_at_every_look_c17() {
        let directory = |path: &str| LeaseDirectory { path: path.into(), owner: Uid(7) };
        let mut leasing = Leasing::new(&[directory("/a"), directory("/b")]);
        assert_eq!(leasing.requests().len(), 2);
        let (leases, gaps) = leasing.take(vec![hung(), Ok(empty())]);
        assert_eq!((leases.faulty.len(), gaps.len()), (1, 1));
        assert_eq!((leases.faulty[0].owner, &leases.faulty[0].stem[..]), (Some(Uid(7)), &b""[..]));
        for _ in 0..TURNS {
            assert_eq!(leasing.requests().len(), 1);
            let (leases, gaps) = leasing.take(vec![Ok(empty())]);
            assert_eq!(
                (leases.faulty.len(), gaps.len()),
                (1, 1),
                "it is no less unknown for not being asked"
            );
        }
        assert_eq!(leasing.requests().len(), 2);
        assert_eq!(leasing.take(vec![Ok(empty()), Ok(empty())]), (Leases::default(), Vec::new()));
    }

    #[test]
    fn a_reply_that_did_not_come_is_no_empty_directory() {
        let mut leasing = Leasing::new(&[LeaseDirectory { path: "/a".into(), owner: Uid(7) }]);
        for replies in [vec![], vec![Ok(Reply::Cookie(Ok(None)))]] {
            let (leases, gaps) = leasing.take(replies);
            assert_eq!((leases.faulty.len(), gaps.len()), (1, 1));
        }
    }
}
