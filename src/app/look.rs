//! One look: the table, then questions and answers in turns until nobody has any left, then the judgement.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use bstr::BString;

use super::trouble::Trouble;
use crate::config::policy::{AdmitEnv, Capture, Config};
use crate::judge::ledger::Ledger;
use crate::judge::{self, Candidates};
use crate::model::id::ProcessId;
use crate::model::keep::KeepMark;
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::{Look, Snapshot};
use crate::model::question::{Answer, Question};
use crate::model::verdict::{Verdict, Verdicts};
use crate::observe::Observer;

/// Rules ask in turns, each resting on the answers before: facts, then channels, then holders, then their facts.
/// Some turns more than the longest such chain; what is then still open counts as unknown.
const TURNS: usize = 12;

/// What looks at the machine. The observer does; tests look at a machine of their own.
pub trait Eyes {
    /// Scans the table.
    fn table(&mut self) -> Result<Snapshot, Trouble>;
    /// Answers questions.
    fn answer(&mut self, snapshot: &Snapshot, questions: &[Question]) -> Vec<(Question, Known<Answer>)>;
    /// Holds these processes, so that later reads and signals are theirs and nobody else's.
    fn pin(&mut self, ids: &[ProcessId]);
}

impl Eyes for Observer {
    fn table(&mut self) -> Result<Snapshot, Trouble> {
        Observer::table(self).map_err(|error| Trouble::because("cannot read the process table", &error))
    }

    fn answer(&mut self, snapshot: &Snapshot, questions: &[Question]) -> Vec<(Question, Known<Answer>)> {
        Observer::answer(self, snapshot, questions)
    }

    fn pin(&mut self, ids: &[ProcessId]) {
        Observer::pin(self, ids);
    }
}

/// A look with its judgement.
#[derive(Debug)]
pub struct Sight {
    /// What was seen.
    pub look: Look,
    /// Which policies apply to whom.
    pub candidates: Candidates,
    /// What was judged.
    pub verdicts: Verdicts,
    /// How long it took.
    pub took: Duration,
}

/// Takes one look and judges it. Remembers nothing: that is for the caller, since a dry run must not.
pub fn take(
    eyes: &mut dyn Eyes,
    config: &Config,
    ledger: &Ledger,
    marks: &[KeepMark],
) -> Result<Sight, Trouble> {
    let begun = Instant::now();
    let mut look = Look::new(eyes.table()?);
    look.marks = marks.to_vec();
    let candidates = judge::candidates(&look, config);
    gather(eyes, &mut look, |look| judge::questions(look, config, &candidates, ledger));
    let verdicts = judge::judge(&look, config, &candidates, ledger);
    // Held from the first look that suspects them, so that the signal goes to whom the verdict was about.
    let suspects: Vec<ProcessId> = verdicts
        .judgements
        .iter()
        .filter(|judgement| matches!(judgement.verdict, Verdict::Suspect { .. } | Verdict::Orphaned { .. }))
        .flat_map(|judgement| judgement.tree.iter().copied())
        .collect();
    if !suspects.is_empty() {
        eyes.pin(&suspects);
    }
    Ok(Sight { look, candidates, verdicts, took: begun.elapsed() })
}

/// Asks what `next` wants to know until it wants nothing more, or for as many turns as there may be.
pub fn gather(eyes: &mut dyn Eyes, look: &mut Look, mut next: impl FnMut(&Look) -> Vec<Question>) {
    for _ in 0..TURNS {
        let wanted: BTreeSet<Question> =
            next(look).into_iter().filter(|question| !look.answers.contains_key(question)).collect();
        if wanted.is_empty() {
            return;
        }
        let wanted: Vec<Question> = wanted.into_iter().collect();
        look.answers.extend(eyes.answer(&look.snapshot, &wanted));
        for question in wanted {
            // Asked and passed over is unknown; without this it would be asked for ever.
            look.answers
                .entry(question)
                .or_insert_with(|| Err(Unknown::new(Reason::NotAsked, "an answer that did not come")));
        }
    }
}

/// Returns the variables that policies name: no other is ever read of anybody's environment.
pub fn variables(config: &Config) -> Vec<BString> {
    let mut names = BTreeSet::from([BString::from("REAPD_KEEP")]);
    if let AdmitEnv::Marked { name, .. } = &config.scope {
        names.insert(name.clone());
    }
    for capture in config.policies.iter().flat_map(|policy| policy.captures.values()) {
        if let Capture::Env { name, .. } = capture {
            names.insert(name.as_str().into());
        }
    }
    names.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::sample;

    struct Scripted {
        asked: Vec<Vec<Question>>,
        silent: bool,
    }

    impl Eyes for Scripted {
        fn table(&mut self) -> Result<Snapshot, Trouble> {
            Ok(sample::snapshot(&[]))
        }

        fn answer(&mut self, _: &Snapshot, questions: &[Question]) -> Vec<(Question, Known<Answer>)> {
            self.asked.push(questions.to_vec());
            if self.silent {
                return Vec::new();
            }
            let denied = || Err(Unknown::new(Reason::Denied, "x"));
            questions.iter().map(|question| (question.clone(), denied())).collect()
        }

        fn pin(&mut self, _: &[ProcessId]) {}
    }

    fn facts(pid: i32) -> Question {
        Question::Facts(sample::process(pid))
    }

    #[test]
    fn asks_in_turns_and_nothing_twice() {
        let mut eyes = Scripted { asked: Vec::new(), silent: false };
        let mut look = Look::new(sample::snapshot(&[]));
        gather(&mut eyes, &mut look, |look| match look.answers.len() {
            0 => vec![facts(1), facts(1)],
            1 => vec![facts(1), facts(2)],
            _ => Vec::new(),
        });
        assert_eq!(eyes.asked, [vec![facts(1)], vec![facts(2)]]);
    }

    #[test]
    fn a_silent_observer_leaves_unknowns_and_no_endless_loop() {
        let mut eyes = Scripted { asked: Vec::new(), silent: true };
        let mut look = Look::new(sample::snapshot(&[]));
        gather(&mut eyes, &mut look, |_| vec![facts(1)]);
        assert_eq!(eyes.asked.len(), 1);
        assert!(look.answers[&facts(1)].is_err());
        let mut count = 0;
        gather(&mut eyes, &mut look, |_| {
            count += 1;
            vec![facts(100 + count)]
        });
        assert_eq!(eyes.asked.len(), 1 + TURNS);
    }
}
