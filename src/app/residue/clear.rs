//! Removes what the plan says of what trees left behind, as far as it is still so, with each in the journal.

use std::collections::BTreeSet;

use bstr::BString;

use super::{Named, Seek, at, look, used};
use crate::act;
use crate::app::journal::entry::{By, Event};
use crate::app::journal::history::{History, clearings};
use crate::app::journal::{Durability, Journal};
use crate::app::look::Eyes;
use crate::app::memory::valid_marks;
use crate::app::session::Session;
use crate::app::signals;
use crate::app::trouble::{Trouble, chain};
use crate::config::policy::{Policy, Residue};
use crate::judge::Ledger;
use crate::judge::residue::{Ground, Verdict, is_left};
use crate::model::keep::KeepMark;
use crate::model::known::Known;
use crate::model::look::Look;
use crate::model::outcome::{Closure, Report};
use crate::model::plan as planned;
use crate::model::residue::{Cleared, Fate, Kind, Left, Removal, Served};

/// What removing stands on.
pub struct Clearance<'a, 'j> {
    /// What looks.
    pub eyes: &'a mut dyn Eyes,
    /// Where it is looked.
    pub seek: Seek<'a>,
    /// When what was left long ago was seen first.
    pub ledger: &'a Ledger,
    /// Where it is written down.
    pub journal: &'a mut Journal<'j>,
    /// At whose word.
    pub by: By,
    /// Reads the keep list anew.
    pub fresh_marks: &'a dyn Fn() -> Option<Vec<KeepMark>>,
}

/// Removes what the plan says, as far as it is still so: what a tree left once that tree was seen gone, then what was
/// left long ago, and the records last.
pub fn carry_out(
    plan: &planned::Residue,
    reports: &[Report],
    mut clearance: Clearance<'_, '_>,
    cleared: &mut Vec<Cleared>,
) -> Result<(), String> {
    let (trees, old): (Vec<&Removal>, Vec<&Removal>) =
        plan.removals.iter().partition(|removal| removal.of.is_some());
    if !trees.is_empty() {
        let (ready, kept) = clearance.ready_of_trees(&trees, reports);
        cleared.extend(kept);
        clearance.remove(&ready, cleared)?;
    }
    // A record may name what has gone only now, and what it names may have been kept after all.
    let is_directory = |removal: &&&Removal| removal.own.kind == Kind::Directory;
    let directories: Vec<&Removal> = old.iter().filter(is_directory).copied().collect();
    let records: Vec<&Removal> = old.iter().filter(|removal| !is_directory(removal)).copied().collect();
    for some in [directories, records] {
        if !some.is_empty() {
            let (ready, kept) = clearance.ready_of_old(&some);
            cleared.extend(kept);
            clearance.remove(&ready, cleared)?;
        }
    }
    Ok(())
}

impl Clearance<'_, '_> {
    /// Takes a fresh look: who is there, the leases, the keep list.
    fn fresh(&mut self) -> Result<Look, String> {
        let marks = (self.fresh_marks)().ok_or("the keep list could not be read right before it")?;
        let mut look = Look::new(self.eyes.table().map_err(|trouble| trouble.to_string())?);
        look.marks = valid_marks(&marks, &look.snapshot.boot, look.snapshot.began.wall);
        Ok(look)
    }

    fn ready_of_trees(&mut self, removals: &[&Removal], reports: &[Report]) -> (Vec<Removal>, Vec<Cleared>) {
        let look = self.fresh();
        let names = removals.iter().map(|removal| removal.place.name.clone()).collect();
        let (served, named) = used(self.eyes, &names);
        let (mut ready, mut kept) = (Vec::new(), Vec::new());
        for removal in removals {
            match self.of_tree(removal, reports, &look, (&served, &names, &named)) {
                Ok(now) => ready.push(now),
                Err(fate) => kept.push(removal.ended(fate)),
            }
        }
        (ready, kept)
    }

    fn of_tree(
        &mut self,
        removal: &Removal,
        reports: &[Report],
        look: &Result<Look, String>,
        (served, asked, named): (&Known<Served>, &BTreeSet<BString>, &Named),
    ) -> Result<Removal, Fate> {
        let kept = |why: &str| Fate::Kept(why.to_owned());
        let report =
            reports.iter().find(|report| Some(report.root) == removal.of && report.policy == removal.policy);
        if report.is_none_or(|report| report.closure != Closure::Gone) {
            return Err(kept("its tree was not seen gone"));
        }
        let look = look.as_ref().map_err(|why| kept(why))?;
        let of = |(policy, _): &(&Policy, &Residue)| policy.name == removal.policy;
        let (_, residue) =
            self.seek.policies().find(of).ok_or_else(|| kept("its policy is not there any more"))?;
        let now = at(self.eyes, removal.place.path(), vec![removal.place.directory.clone()])
            .map_err(|why| kept(&why.to_string()))?
            .ok_or(Fate::Gone)?;
        let (config, ledger) = (self.seek.config, self.ledger);
        let ground = Ground { residue, config, look, ledger, served, asked, named };
        is_left(removal, &now, &ground).map_err(Fate::Kept)?;
        Ok(Removal::new(&removal.policy, &Left::Directory(now), removal.of))
    }

    fn ready_of_old(&mut self, removals: &[&Removal]) -> (Vec<Removal>, Vec<Cleared>) {
        let seen = match self.fresh() {
            Ok(seen) => seen,
            Err(why) => {
                let kept = |removal: &&Removal| removal.ended(Fate::Kept(why.clone()));
                return (Vec::new(), removals.iter().map(kept).collect());
            }
        };
        // As with trees: no further look for the ledger, but a suspend since the last one must show.
        let mut ledger = self.ledger.clone();
        ledger.begin(&seen, &self.seek.config.confirm);
        let found = look(self.eyes, self.seek, &seen, &ledger);
        let (mut ready, mut kept) = (Vec::new(), Vec::new());
        for removal in removals {
            let of = found.judged.iter().filter(|(policy, _)| policy.name == removal.policy);
            let mut now = of
                .flat_map(|(_, judged)| judged)
                .filter(|one| *one.left.place() == removal.place && one.left.own().file == removal.own.file);
            match now.next().map(|one| (&one.verdict, &one.left)) {
                Some((Verdict::Stale, now)) => ready.push(Removal::new(&removal.policy, now, None)),
                Some((Verdict::Suspect, _)) => {
                    kept.push(removal.ended(Fate::Changed("it changed meanwhile".to_owned())));
                }
                Some((Verdict::Kept(why) | Verdict::Unknown(why), _)) => {
                    kept.push(removal.ended(Fate::Kept(why.clone())));
                }
                None => kept.push(removal.ended(found.without(removal))),
            }
        }
        (ready, kept)
    }

    /// Writes down what is about to be removed, removes it, and writes down what became of it.
    fn remove(&mut self, removals: &[Removal], cleared: &mut Vec<Cleared>) -> Result<(), String> {
        for (at, removal) in removals.iter().enumerate() {
            // All of them at once on the disk: a disk is waited for once.
            let durability = if at + 1 == removals.len() { Durability::Synced } else { Durability::Handed };
            let event = Event::ResidueIntent { removal: Box::new(removal.clone()), by: self.by };
            self.note(event, durability)?;
        }
        for (at, removal) in removals.iter().enumerate() {
            let outcome = if signals::asked() {
                removal.ended(Fate::Kept("reapd was asked to end".to_owned()))
            } else {
                act::residue::remove(removal)
            };
            cleared.push(outcome.clone());
            let durability = if at + 1 == removals.len() { Durability::Synced } else { Durability::Handed };
            self.note(Event::ResidueOutcome { cleared: Box::new(outcome) }, durability)?;
        }
        Ok(())
    }

    fn note(&mut self, event: Event, durability: Durability) -> Result<(), String> {
        let now = self.eyes.clocks();
        self.journal.note(event, now, durability).map_err(|error| chain(&error))
    }
}

/// Gives back what a crash left under a name of ours, and says so. What is to become of it is judged anew.
pub fn take_up(
    session: &mut Session,
    eyes: &mut dyn Eyes,
    history: &History,
    journal: &mut Journal<'_>,
) -> Result<(), Trouble> {
    for clearing in clearings(history).into_iter().filter(|clearing| clearing.cleared.is_none()) {
        let cleared = act::residue::give_back(clearing.removal);
        let why = match &cleared.fate {
            Fate::CutShort(why) | Fate::Changed(why) | Fate::Refused(why) | Fate::Kept(why) => why.as_str(),
            Fate::Removed | Fate::Gone => "it is gone",
        };
        session.talk(&format!("the removal of {} was cut short: {why}", cleared.place.path()));
        // Whether anything is still to be put back is not known: the next sweep tries again.
        if matches!(cleared.fate, Fate::Refused(_)) {
            continue;
        }
        journal
            .note(Event::ResidueOutcome { cleared: Box::new(cleared) }, eyes.clocks(), Durability::Synced)
            .map_err(|error| Trouble::because("nothing is done without a journal", &error))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::cli::Place;
    use crate::app::journal::{USUAL, history};
    use crate::app::machine::Machine;
    use crate::app::out::Out;
    use crate::app::place::Surroundings;
    use crate::app::sample;
    use crate::app::state::State;

    #[test]
    fn what_was_refused_is_taken_up_again_by_the_next_sweep_f12() {
        let base = tempfile::tempdir().unwrap();
        let state = State::open(&base.path().join("state")).unwrap();
        // Where a file stands nothing can be opened, and where nothing stands nothing is left.
        std::fs::write(base.path().join("file"), "").unwrap();
        let mut eyes = Machine::new("");
        let seen = sample::snapshot(&[]);
        let mut journal = Journal::open(&state, USUAL, &seen, eyes.clocks()).unwrap();
        for above in ["file", "nothing"] {
            let mut removal = sample::removal("pv-1");
            removal.place.directory = base.path().join(above).to_str().unwrap().into();
            let event = Event::ResidueIntent { removal: Box::new(removal), by: By::Once };
            journal.note(event, eyes.clocks(), Durability::Handed).unwrap();
        }
        let mut session = Session {
            around: Surroundings::of(&[], u32::MAX - 7),
            place: Place::default(),
            out: Out::to(Box::new(std::io::sink()), Box::new(std::io::sink())),
        };
        for _ in 0..2 {
            let history = history::read(&state, 0).unwrap();
            take_up(&mut session, &mut eyes, &history, &mut journal).unwrap();
            let history = history::read(&state, 0).unwrap();
            let fates: Vec<Option<&Fate>> =
                clearings(&history).iter().map(|one| one.cleared.map(|cleared| &cleared.fate)).collect();
            assert_eq!(fates, [None, Some(&Fate::Gone)]);
        }
    }
}
