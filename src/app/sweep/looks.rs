//! The looks of a sweep: each is remembered and its suspects are held, and the further ones come far enough apart.

use std::collections::BTreeSet;
use std::time::Duration;

use super::run::Run;
use crate::app::look::{Eyes, Sight, hold_suspects, take};
use crate::app::out::Reader;
use crate::app::signals::{self, Waited};
use crate::app::trouble::Trouble;
use crate::app::words;
use crate::judge::Ledger;
use crate::judge::ledger::{Begun, Rearm};
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
        let wanted = trees(plan);
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

fn rearmed(why: Rearm) -> &'static str {
    match why {
        Rearm::Suspend => "the machine slept since the last look",
        Rearm::ClockStep => "the clock was set since the last look",
        Rearm::Overslept => "the last look is longer ago than usual",
    }
}
