//! What became of containers, as a person reads it. "Stopped" is never said as "gone".

use std::fmt::Write as _;
use std::time::Duration;

use crate::app::exit::Exit;
use crate::app::legible;
use crate::app::out::{Colour, Paint, paint};
use crate::app::words::{count, span};
use crate::model::container::stop::{StopOutcome, StopReport, StopStep};

/// Returns the lines that say what became of containers.
pub fn outcomes(reports: &[StopReport], colour: Colour) -> String {
    let mut text = String::new();
    let gone: Vec<&StopReport> =
        reports.iter().filter(|report| report.outcome == StopOutcome::Gone).collect();
    if !gone.is_empty() {
        let longest = |report: &&StopReport| report.span.1.since(report.span.0);
        let took = gone.iter().map(longest).max().unwrap_or(Duration::ZERO);
        let killed = gone.iter().filter(|report| was_killed(report)).count();
        let mut how = vec![span(took)];
        if killed > 0 {
            how.push(format!("{killed} had to be killed besides"));
        }
        let containers = count(gone.len(), "container", "containers");
        row(&mut text, colour, Paint::Keep, "gone", &format!("{containers}   {}", how.join("   ")));
    }
    for report in reports {
        let (kind, name, why) = match &report.outcome {
            StopOutcome::Gone => continue,
            StopOutcome::Left(why) => (Paint::Reap, "ended, not removed", why),
            StopOutcome::Runs(why) => (Paint::Reap, "runs on", why),
            StopOutcome::NotProven(why) => (Paint::Reap, "not proven gone", why),
            StopOutcome::Untouched(why) => (Paint::Unknown, "stood down", why),
        };
        let rest = format!("{} {}: {}", report.at, legible::text(&report.name), legible::text(why));
        row(&mut text, colour, kind, name, &rest);
    }
    for report in reports {
        for (step, words) in &report.steps {
            let (StopStep::RemoveNetwork(network), Some(words)) = (step, words) else { continue };
            let rest = format!("network {}: {}", legible::text(network), legible::text(words));
            row(&mut text, colour, Paint::Unknown, "not removed", &rest);
        }
    }
    text
}

fn was_killed(report: &StopReport) -> bool {
    report.steps.iter().any(|(step, _)| *step == StopStep::Kill)
}

fn row(text: &mut String, colour: Colour, kind: Paint, name: &str, rest: &str) {
    let painted = paint(colour, kind, name);
    let gap = " ".repeat(17_usize.saturating_sub(name.len()).max(1));
    let _ = writeln!(text, "  {painted}{gap}{rest}");
}

/// Returns what became of one, in a few words.
pub fn outcome_words(outcome: &StopOutcome) -> String {
    match outcome {
        StopOutcome::Gone => "gone".to_owned(),
        StopOutcome::Left(why) => format!("ended, not removed: {}", legible::text(why)),
        StopOutcome::Runs(why) => format!("runs on: {}", legible::text(why)),
        StopOutcome::Untouched(why) => format!("left alone: {}", legible::text(why)),
        StopOutcome::NotProven(why) => format!("not proven gone: {}", legible::text(why)),
    }
}

/// Returns how a run with these outcomes ends.
pub fn exit(reports: &[StopReport]) -> Exit {
    let failed = reports.iter().any(|report| match report.outcome {
        StopOutcome::Left(_) | StopOutcome::Runs(_) | StopOutcome::NotProven(_) => true,
        StopOutcome::Gone | StopOutcome::Untouched(_) => false,
    });
    if failed { Exit::Failed } else { Exit::Done }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::act::containers::report;
    use crate::model::container::sample;
    use crate::model::moment::Moment;

    fn ended(number: u32, steps: &[StopStep], outcome: StopOutcome) -> StopReport {
        let steps = steps.iter().map(|step| (step.clone(), None)).collect();
        report(&sample::stop(number, "p"), steps, outcome, (Moment(0), Moment(10_200_000_000)))
    }

    #[test]
    fn stopped_is_not_gone() {
        let mut network = ended(1, &[StopStep::Stop], StopOutcome::Gone);
        let refused = Some("it has active endpoints".to_owned());
        network.steps.push((StopStep::RemoveNetwork("net".into()), refused));
        let reports = [
            network,
            ended(2, &[StopStep::Stop, StopStep::Kill], StopOutcome::Gone),
            ended(3, &[StopStep::Stop], StopOutcome::Left("its engine removes it by itself".into())),
            ended(4, &[StopStep::Stop], StopOutcome::Runs("no exit event".into())),
            ended(5, &[StopStep::Stop], StopOutcome::NotProven("no answer in time".into())),
            ended(6, &[], StopOutcome::Untouched("a client came".into())),
        ];
        insta::assert_snapshot!(outcomes(&reports, Colour::None), @r"
        gone             2 containers   10 s   1 had to be killed besides
        ended, not removed 000000000003 helper-3: its engine removes it by itself
        runs on          000000000004 helper-4: no exit event
        not proven gone  000000000005 helper-5: no answer in time
        stood down       000000000006 helper-6: a client came
        not removed      network net: it has active endpoints
        ");
        for (at, expected) in
            [Exit::Done, Exit::Done, Exit::Failed, Exit::Failed, Exit::Failed, Exit::Done].iter().enumerate()
        {
            assert_eq!(exit(&reports[at..=at]), *expected, "{:?}", reports[at].outcome);
        }
    }
}
