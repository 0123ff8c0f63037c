//! Which container a lease covers: the one that bears it in its labels, and whose id its client wrote down, where it did.

use std::path::Path;

use super::POLICY;
use crate::app::containers::LEASE;
use crate::app::look::Sight;
use crate::app::report::text;
use crate::app::run::record::{CIDFILE, contained};
use crate::model::container::{ContainerId, Listed};
use crate::model::id::Uid;
use crate::model::lease::LeaseId;
use crate::model::look::Look;
use crate::model::plan::Plan;

/// The container of one lease.
#[derive(Debug)]
pub(super) struct LeasedContainer<'a> {
    lease: &'a LeaseId,
    /// The id that its client wrote down.
    written: Option<ContainerId>,
}

impl<'a> LeasedContainer<'a> {
    /// Returns that of this user's lease.
    pub(super) fn of(look: &Look, owner: Uid, lease: &'a LeaseId) -> LeasedContainer<'a> {
        let path = look.snapshot.leases.get(owner, lease).and_then(|lease| lease.labels.get(CIDFILE));
        LeasedContainer { lease, written: path.and_then(|path| contained(Path::new(path))) }
    }

    /// Says whether this is it. Labels may be copied, and an id is given once; a client that stayed wrote it down.
    pub(super) fn is(&self, listed: &Listed) -> bool {
        listed.labels.get(LEASE).is_some_and(|label| label == self.lease.as_str())
            && self.written.as_ref().is_none_or(|id| *id == listed.id)
    }

    /// Returns the containers that stay, with the reason.
    pub(super) fn left(&self, sight: &Sight, plan: &Plan) -> Vec<(ContainerId, String)> {
        let engines = &sight.look.snapshot.engines;
        let goes = |id: &ContainerId| plan.containers.stops.iter().any(|stop| stop.run.at.id == *id);
        let listed = engines.iter().filter_map(|engine| engine.containers.as_ref().ok()).flatten();
        let mut left: Vec<(ContainerId, String)> = listed
            .filter(|listed| self.is(listed) && !goes(&listed.id))
            .map(|listed| (listed.id.clone(), why(&listed.id, sight, plan)))
            .collect();
        // One that is on no list has ended, but for a list that did not come.
        let is_listed = |id: &ContainerId| {
            let mut all = engines.iter().filter_map(|engine| engine.containers.as_ref().ok()).flatten();
            all.any(|listed| listed.id == *id)
        };
        if let Some(id) = self.written.as_ref().filter(|id| !is_listed(id)) {
            let silent = engines.iter().find_map(|engine| engine.containers.as_ref().err());
            match silent {
                Some(why) => left.push((id.clone(), format!("its engine did not say what runs: {why}"))),
                None if engines.is_empty() => {
                    left.push((
                        id.clone(),
                        "no engine was found, so whether it runs is not known".to_owned(),
                    ));
                }
                None => {}
            }
        }
        left
    }
}

fn why(id: &ContainerId, sight: &Sight, plan: &Plan) -> String {
    let waits = plan.containers.waiting.iter().find(|(judgement, _)| judgement.at.id == *id);
    let judged = || {
        let mut all = sight.verdicts.containers.iter();
        all.find(|judgement| judgement.at.id == *id && judgement.policy == POLICY)
            .map(|judgement| judgement.because.clone())
    };
    let why = waits.map(|(_, why)| text::wait(why)).or_else(judged);
    why.unwrap_or_else(|| "no policy looks at it".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::container::sample;

    #[test]
    fn a_copied_label_makes_no_container_the_leases() {
        let lease = LeaseId::new("run-1").unwrap();
        let labelled = |number, label: &str| {
            let mut listed = sample::listed(number);
            listed.labels.insert(LEASE.to_owned(), label.to_owned());
            listed
        };
        let noted = LeasedContainer { lease: &lease, written: Some(sample::id(1)) };
        assert!(noted.is(&labelled(1, "run-1")));
        assert!(!noted.is(&labelled(2, "run-1")), "another one under a copied label");
        assert!(!noted.is(&labelled(1, "run-2")), "a lease of somebody else");
        assert!(!noted.is(&sample::listed(1)), "the id alone: its client wrote it, and nobody else vouches");
        let detached = LeasedContainer { lease: &lease, written: None };
        assert!(detached.is(&labelled(2, "run-1")));
    }

    #[test]
    fn only_a_whole_id_in_a_plain_file_is_one() {
        let base = tempfile::tempdir().unwrap();
        let path = base.path().join("cid");
        let whole = sample::id(1);
        for (text, expected) in [
            (whole.as_str().to_owned(), Some(&whole)),
            (format!("{}\n", whole.as_str()), Some(&whole)),
            (format!("{}0", whole.as_str()), None),
            (whole.short().to_owned(), None),
            (String::new(), None),
        ] {
            std::fs::write(&path, &text).unwrap();
            assert_eq!(contained(&path).as_ref(), expected, "{text:?}");
        }
        assert_eq!(contained(base.path()), None, "a directory");
        assert_eq!(contained(&base.path().join("nothing")), None);
    }
}
