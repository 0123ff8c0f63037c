//! What the teardown driver stands on: fresh looks, the re-check right before the first signal, and the journal.

use std::collections::BTreeSet;

use super::journal::entry::{By, Event as Entry};
use super::journal::{Durability, Journal};
use super::look::{Eyes, gather, take};
use super::memory::valid_marks;
use super::signals;
use super::teardown::{Admission, Came, Event, Interrupt, Scene};
use super::trouble::chain;
use crate::act::processes::Sight as Newcomer;
use crate::config::policy::Config;
use crate::judge::Ledger;
use crate::judge::protect::protected;
use crate::model::id::ProcessId;
use crate::model::keep::KeepMark;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::plan::{Joined, Member, Teardown};
use crate::model::question::{Answer, Question};
use crate::model::verdict::{Judgement, Verdict, Verdicts};
use crate::plan::teardown::{Ground, Membership, Newborn, admit, adopters, membership, questions};

/// The surroundings of one sweep's teardowns.
pub struct Stand<'a, 'j> {
    /// What looks.
    pub eyes: &'a mut dyn Eyes,
    /// The configuration.
    pub config: &'a Config,
    /// What was seen at the looks that confirmed.
    pub ledger: &'a Ledger,
    /// Where it is written down.
    pub journal: &'a mut Journal<'j>,
    /// At whose word.
    pub by: By,
    /// The latest look.
    pub look: Look,
    /// The latest verdicts: who is protected, and who has an owner.
    pub verdicts: Verdicts,
    /// Reads the keep list anew, before each tree: a person may have said "keep" a moment ago.
    pub fresh_marks: &'a dyn Fn() -> Option<Vec<KeepMark>>,
    /// Why something could not be written down, to be said in the end; nothing so far.
    pub unwritten: Option<String>,
}

impl Stand<'_, '_> {
    fn ground<'b>(&'b self, teardown: &'b Teardown, look: &'b Look, known: &'b [Member]) -> Ground<'b> {
        Ground { judgement: &teardown.judgement, verdicts: &self.verdicts, look, config: self.config, known }
    }

    /// Re-checks a teardown that was cut short. Its root was seen gone by our hand, so there is none left to judge;
    /// its members are ended by recorded identities, unless somebody protects one of them by now (REDTEAM F12).
    fn nobody_protected(&mut self, teardown: &Teardown, marks: &[KeepMark]) -> Result<(), String> {
        let snapshot = self.eyes.table().map_err(|trouble| trouble.to_string())?;
        let mut look = Look::new(snapshot);
        look.marks = valid_marks(marks, &look.snapshot.boot, look.snapshot.began.wall);
        let ids: Vec<ProcessId> = teardown.members.iter().map(|member| member.identity.id).collect();
        gather(self.eyes, &mut look, |_| ids.iter().map(|&id| Question::Facts(id)).collect());
        let protected = protected(&look, self.config, &ids);
        self.look = look;
        match protected.first() {
            Some((id, why)) => Err(format!("{id} is protected by now: {why}")),
            None => Ok(()),
        }
    }

    fn ask(&mut self, question: &Question) -> Known<Answer> {
        let answers = self.eyes.answer(&self.look.snapshot, std::slice::from_ref(question));
        let answer = answers.into_iter().find(|(asked, _)| asked == question).map(|(_, answer)| answer);
        answer.unwrap_or_else(|| Err(Unknown::new(Reason::NotAsked, "an answer that did not come")))
    }
}

fn misfit() -> Unknown {
    Unknown::new(Reason::NotAsked, "an answer of another kind came back")
}

/// Says why a tree must not be signalled now, if its verdict or its identity is not what it was.
fn still_condemned(teardown: &Teardown, now: &[Judgement]) -> Result<(), String> {
    let before = &teardown.judgement;
    let same = |judgement: &&Judgement| judgement.root == before.root && judgement.policy == before.policy;
    let Some(judgement) = now.iter().find(same) else {
        return Err("right before the signal no policy looked at it any more".to_owned());
    };
    match judgement.verdict {
        Verdict::Orphaned { .. } => {}
        Verdict::Protected | Verdict::Alive | Verdict::Unknown | Verdict::Suspect { .. } => {
            return Err(format!("right before the signal: {}", judgement.because));
        }
    }
    match (&before.identity, &judgement.identity) {
        (Ok(before), Ok(now)) if before.is_surely(now) => Ok(()),
        (Ok(_), Ok(_)) => Err("its root is not surely the same process any more".to_owned()),
        (Err(unknown), _) | (_, Err(unknown)) => Err(format!("who it is could not be read: {unknown}")),
    }
}

impl Scene for Stand<'_, '_> {
    fn now(&mut self) -> Moment {
        self.eyes.clocks().boot
    }

    fn recheck(&mut self, teardown: &Teardown) -> Result<(), String> {
        let Some(marks) = (self.fresh_marks)() else {
            return Err("the keep list could not be read right before the signal".to_owned());
        };
        if self.by == By::Resumed {
            return self.nobody_protected(teardown, &marks);
        }
        // A copy: this look is no further look for the ledger, but a suspend since the last one must show.
        let mut ledger = self.ledger.clone();
        let sight =
            take(self.eyes, self.config, &mut ledger, &marks).map_err(|trouble| trouble.to_string())?;
        let verdict = still_condemned(teardown, &sight.verdicts.judgements);
        self.look = sight.look;
        self.verdicts = sight.verdicts;
        verdict
    }

    fn adopters(&mut self, teardown: &Teardown) -> Vec<ProcessId> {
        adopters(&self.look, teardown.judgement.root)
    }

    fn fresh(&mut self, teardown: &Teardown, known: &[Member]) -> Known<Membership> {
        let snapshot =
            self.eyes.table().map_err(|trouble| Unknown::new(Reason::Starved, trouble.to_string()))?;
        let mut look = Look::new(snapshot);
        look.marks.clone_from(&self.look.marks);
        let wanted = |look: &Look| {
            questions(&Ground {
                judgement: &teardown.judgement,
                verdicts: &self.verdicts,
                look,
                config: self.config,
                known,
            })
        };
        gather(self.eyes, &mut look, wanted);
        let mut found = membership(&self.ground(teardown, &look, known));
        self.look = look;
        if self.by == By::Resumed {
            let recorded: BTreeSet<ProcessId> =
                teardown.members.iter().map(|member| member.identity.id).collect();
            found.members.retain(|member| recorded.contains(&member.identity.id));
        }
        Ok(found)
    }

    fn admit(&mut self, teardown: &Teardown, newborn: &Newcomer, came: Came) -> Admission {
        if self.by == By::Resumed {
            return Admission::Spare("taken up after a crash: recorded members only".to_owned());
        }
        let facts = self.ask(&Question::Facts(newborn.id)).and_then(|answer| {
            let Answer::Facts(facts) = answer else { return Err(misfit()) };
            Ok(*facts)
        });
        let leads = newborn.sid == newborn.id.pid.number();
        let sockets = leads.then(|| {
            self.ask(&Question::Sockets(newborn.id)).and_then(|answer| {
                let Answer::Sockets(sockets) = answer else { return Err(misfit()) };
                Ok(sockets)
            })
        });
        let joined = match came {
            Came::Below(_) => Joined::Descendant,
            Came::Session(_) => Joined::Session,
        };
        let candidate = Newborn {
            id: newborn.id,
            sid: newborn.sid,
            tty: newborn.tty,
            name: &newborn.name,
            facts: &facts,
            sockets: sockets.as_ref(),
        };
        match admit(&self.ground(teardown, &self.look, &[]), &candidate, joined) {
            Ok(member) => Admission::Join(member),
            Err(why) => Admission::Spare(why),
        }
    }

    fn record(&mut self, event: &Event<'_>) -> Result<(), String> {
        // Only what must outlive the machine is waited for: what was signalled and seen gone means nothing after a
        // reboot, and a crash of reapd alone does not lose it.
        let (entry, durability) = match *event {
            Event::Intent(teardown) => {
                (Entry::Intent { teardown: Box::new(teardown.clone()), by: self.by }, Durability::Synced)
            }
            Event::Signalled { root, signal, to } => {
                (Entry::Signalled { root, signal, to: to.to_vec() }, Durability::Handed)
            }
            Event::SeenGone { root, ids } => {
                (Entry::SeenGone { root, ids: ids.to_vec() }, Durability::Handed)
            }
            Event::Outcome(report) => {
                (Entry::Outcome { report: Box::new(report.clone()) }, Durability::Synced)
            }
        };
        let now = self.eyes.clocks();
        let written = self.journal.note(entry, now, durability).map_err(|error| chain(&error));
        if let Err(why) = &written {
            self.unwritten.get_or_insert_with(|| why.clone());
        }
        written
    }

    fn interrupt(&mut self) -> Interrupt {
        if signals::asked() { Interrupt::Finish } else { Interrupt::GoOn }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::sample;
    use crate::model::id::Uid;

    fn now(change: impl FnOnce(&mut Judgement)) -> Result<(), String> {
        let teardown = sample::teardown(10, "p");
        let mut judgement = teardown.judgement.clone();
        change(&mut judgement);
        still_condemned(&teardown, &[judgement])
    }

    #[test]
    fn only_the_same_verdict_on_the_same_process_lets_a_signal_go() {
        assert_eq!(now(|_| ()), Ok(()));
        for verdict in [
            Verdict::Alive,
            Verdict::Unknown,
            Verdict::Protected,
            Verdict::Suspect { since: Moment(1), looks: 1 },
        ] {
            assert!(now(|judgement| judgement.verdict = verdict.clone()).is_err(), "{verdict:?}");
        }
        assert!(now(|judgement| judgement.policy = "other".into()).is_err());
        assert!(now(|judgement| judgement.root.start.0 += 1).is_err());
        assert!(now(|judgement| judgement.identity.as_mut().unwrap().uid = Uid(0)).is_err());
        assert!(now(|judgement| judgement.identity = Err(Unknown::new(Reason::Denied, "exe"))).is_err());
    }
}
