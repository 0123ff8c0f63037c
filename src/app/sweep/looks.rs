//! The looks of a sweep: each is remembered and its suspects are held, and the further ones come far enough apart.

use std::collections::BTreeSet;
use std::time::Duration;

use super::run::Run;
use crate::app::look::{Eyes, Sight, hold_suspects, take};
use crate::app::out::Reader;
use crate::app::report::{self, behind, text};
use crate::app::signals::{self, Waited};
use crate::app::trouble::Trouble;
use crate::app::words;
use crate::judge::Ledger;
use crate::judge::ledger::{Begun, Rearm};
use crate::model::container::ContainerRef;
use crate::model::id::ProcessId;
use crate::model::keep::KeepMark;
use crate::model::plan::Plan;
use crate::model::verdict::{Judgement, Verdict};

impl Run<'_> {
    /// Takes a look, has it remembered, and holds whom it suspects.
    pub(super) fn look(
        &mut self,
        eyes: &mut dyn Eyes,
        ledger: &mut Ledger,
        marks: &[KeepMark],
    ) -> Result<Sight, Trouble> {
        let sight = take(eyes, self.config, ledger, marks)?;
        hold_suspects(eyes, &sight);
        sight.remember(ledger);
        if let Begun::Rearmed(why) = sight.begun {
            self.session.talk(&format!("{}: everything is seen for the first time", rearmed(why)));
        }
        Ok(sight)
    }

    /// Takes the further looks; nothing when somebody asked us to stop.
    pub(super) fn look_again(
        &mut self,
        eyes: &mut dyn Eyes,
        ledger: &mut Ledger,
        marks: &[KeepMark],
        first: &Sight,
        plan: &Plan,
    ) -> Result<Option<Sight>, Trouble> {
        let confirm = self.config.confirm;
        let (wanted, contained) = (trees(plan), containers(plan));
        let mut left = confirm.looks.saturating_sub(1).max(1);
        let mut last = first.look.snapshot.began.boot;
        // A suspend meanwhile starts the row anew, but not for ever.
        let mut anew = 2;
        loop {
            // A breath more than `apart`, since looks that are closer together count once.
            let due = last.plus(confirm.apart).plus(Duration::from_millis(20));
            let wait = due.since(eyes.clocks().boot);
            if self.session.out.listener == Reader::Terminal {
                self.session.out.murmur(&format!("Looking again in {} … ", words::span(wait)));
            }
            if signals::wait(wait) == Waited::Stopped {
                return Ok(None);
            }
            let sight = self.look(eyes, ledger, marks)?;
            last = sight.look.snapshot.began.boot;
            left -= 1;
            if matches!(sight.begun, Begun::Rearmed(_)) && anew > 0 {
                anew -= 1;
                left = confirm.looks.saturating_sub(1);
            }
            let open = sight.verdicts.judgements.iter().any(|judgement| {
                matches!(judgement.verdict, Verdict::Suspect { .. })
                    && wanted.contains(&(judgement.root, judgement.policy.clone()))
            }) || sight.verdicts.containers.iter().any(|judgement| {
                matches!(judgement.verdict, Verdict::Suspect { .. })
                    && contained.contains(&(judgement.at.clone(), judgement.policy.clone()))
            });
            if left == 0 || !open {
                return Ok(Some(sight));
            }
        }
    }
}

/// Returns the trees of a plan, each by its root and its policy.
pub(super) fn trees(plan: &Plan) -> BTreeSet<(ProcessId, String)> {
    let name = |judgement: &Judgement| (judgement.root, judgement.policy.clone());
    plan.teardowns.iter().map(|teardown| name(&teardown.judgement)).collect()
}

/// Returns the containers of a plan, each with its policy.
pub(super) fn containers(plan: &Plan) -> BTreeSet<(ContainerRef, String)> {
    plan.containers.stops.iter().map(|stop| (stop.run.at.clone(), stop.judgement.policy.clone())).collect()
}

/// Returns the question that a plan is put to a person with.
pub(super) fn question(plan: &Plan) -> String {
    let trees: Vec<_> = plan.teardowns.iter().collect();
    let stops: Vec<_> = plan.containers.stops.iter().collect();
    let left: Vec<_> = plan.residue.removals.iter().collect();
    let mut ended = Vec::new();
    if !trees.is_empty() {
        ended.push(text::totals(&trees).join(", "));
    }
    if !stops.is_empty() {
        ended.push(report::containers::totals(&stops).join(", "));
    }
    let (ended, left) = (ended.join(" and "), (!left.is_empty()).then(|| behind::totals(&left).join(", ")));
    match (ended.as_str(), left) {
        ("", left) => format!("Remove {}?", left.unwrap_or_default()),
        (ended, None) => format!("Reap {ended}?"),
        (ended, Some(left)) => format!("Reap {ended}, and remove {left}?"),
    }
}

fn rearmed(why: Rearm) -> &'static str {
    match why {
        Rearm::Suspend => "the machine slept since the last look",
        Rearm::ClockStep => "the clock was set since the last look",
        Rearm::Overslept => "the last look is longer ago than usual",
    }
}
