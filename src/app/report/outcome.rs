//! What became of the teardowns, as a person reads it.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::Duration;

use super::{Done, behind, containers};
use crate::app::exit::Exit;
use crate::app::legible;
use crate::app::out::{Colour, Paint, paint};
use crate::app::words::{count, span};
use crate::model::look::Look;
use crate::model::outcome::{Closure, MemberOutcome, Outcome, Report};
use crate::model::plan::Signal;
use crate::model::residue::{Cleared, Fate};

/// Returns the lines that say what became of everything, what trees left behind included, and what came free by it.
pub fn all(done: &Done<'_>, look: &Look, colour: Colour) -> String {
    let mut text = containers::outcomes(done.stopped, colour);
    text.push_str(&outcomes(done.reports, colour));
    text.push_str(&behind::outcomes(done.cleared, colour));
    text.push_str(&behind::freed(done, look, colour));
    text
}

/// Returns how a run ends that removed, or could not remove, what trees left behind.
pub fn residue_exit(cleared: &[Cleared]) -> Exit {
    let failed = cleared.iter().any(|cleared| matches!(cleared.fate, Fate::Refused(_)));
    if failed { Exit::Failed } else { Exit::Done }
}

/// Returns the lines that say what became of trees. "Signalled" is never said as "gone".
pub fn outcomes(reports: &[Report], colour: Colour) -> String {
    let mut text = String::new();
    let of = |closure| reports.iter().filter(move |report| report.closure == closure).collect::<Vec<_>>();
    let gone = of(Closure::Gone);
    if !gone.is_empty() {
        let processes: usize = gone.iter().map(|report| report.members.len()).sum();
        let took =
            gone.iter().map(|report| report.span.1.since(report.span.0)).max().unwrap_or(Duration::ZERO);
        let how = how(&gone);
        row(&mut text, colour, Paint::Keep, "gone", &gone, processes, &format!("{}   {how}", span(took)));
    }
    for (closure, name) in [(Closure::Survivors, "survived"), (Closure::NotProven, "not proven gone")] {
        for report in of(closure) {
            let left: Vec<&MemberOutcome> = report.members.iter().filter(|member| is_left(member)).collect();
            let whom = left.iter().map(|member| survivor(member)).collect::<Vec<_>>().join(", ");
            let whom = if whom.is_empty() { format!("{}: {}", report.root, unproven(closure)) } else { whom };
            row(&mut text, colour, Paint::Reap, name, &[report], left.len(), &whom);
        }
    }
    for report in of(Closure::Untouched) {
        let why = report.stood_down.as_deref().unwrap_or("nothing was signalled");
        let why = format!("{}: {}", report.root, legible::text(why));
        row(&mut text, colour, Paint::Unknown, "stood down", &[report], report.members.len(), &why);
    }
    for report in reports {
        for spared in &report.spared {
            let _ = writeln!(text, "  left alone       {}: {}", spared.id, legible::text(&spared.why));
        }
    }
    text
}

/// Returns how a run with these outcomes ends.
pub fn exit(reports: &[Report]) -> Exit {
    let failed = reports.iter().any(|report| match report.closure {
        Closure::Survivors | Closure::NotProven => true,
        Closure::Gone | Closure::Untouched => false,
    });
    if failed { Exit::Failed } else { Exit::Done }
}

fn row(
    text: &mut String,
    colour: Colour,
    kind: Paint,
    name: &str,
    reports: &[&Report],
    processes: usize,
    rest: &str,
) {
    let painted = paint(colour, kind, name);
    let gap = " ".repeat(17_usize.saturating_sub(name.len()).max(1));
    let trees = count(reports.len(), "tree", "trees");
    let processes = count(processes, "process", "processes");
    let _ = writeln!(text, "  {painted}{gap}{trees}   {processes}   {rest}");
}

fn how(reports: &[&Report]) -> String {
    // By the sharpest signal that anybody in the tree needed.
    let mut needed: BTreeMap<Option<Signal>, usize> = BTreeMap::new();
    for report in reports {
        let sharpest = report.members.iter().filter_map(|member| match member.outcome {
            Outcome::Exited(signal) => Some(signal),
            Outcome::AlreadyGone | Outcome::IdentityChanged | Outcome::Denied | Outcome::Survived(_) => None,
        });
        *needed.entry(sharpest.max()).or_default() += 1;
    }
    let words: Vec<String> = needed
        .iter()
        .map(|(signal, count)| match signal {
            Some(Signal::Kill) => format!("{count} needed KILL"),
            Some(signal) => format!("{count} ended on {}", signal.name()),
            None if *count == 1 => "1 went by itself".to_owned(),
            None => format!("{count} went by themselves"),
        })
        .collect();
    words.join(", ")
}

/// Says why a tree is not called gone though nobody of it is known to be left.
fn unproven(closure: Closure) -> &'static str {
    match closure {
        Closure::NotProven => "new members kept coming, or nobody could look for them",
        Closure::Gone | Closure::Survivors | Closure::Untouched => "what became of it is not known",
    }
}

fn is_left(member: &MemberOutcome) -> bool {
    match member.outcome {
        // Whoever bears that number now was left alone, and whether the recorded one went nobody saw.
        Outcome::Denied | Outcome::Survived(_) | Outcome::IdentityChanged => true,
        Outcome::Exited(_) | Outcome::AlreadyGone => false,
    }
}

fn survivor(member: &MemberOutcome) -> String {
    let why = match &member.outcome {
        Outcome::Survived(state) => legible::text(state),
        Outcome::Denied => "the kernel refused the signal".to_owned(),
        Outcome::IdentityChanged => "not surely the same process any more, left alone".to_owned(),
        Outcome::Exited(_) | Outcome::AlreadyGone => "gone".to_owned(),
    };
    format!("{} {}: {why}", member.id, legible::text(&member.name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::sample;
    use crate::model::moment::Moment;
    use crate::model::plan::Spared;

    fn report(pid: i32, closure: Closure, outcomes: &[Outcome]) -> Report {
        let members = outcomes.iter().zip(pid..).map(|(outcome, pid)| MemberOutcome {
            id: sample::process(pid),
            name: "chrome".into(),
            signals: vec![Signal::Term],
            outcome: outcome.clone(),
            gone: None,
        });
        Report {
            root: sample::process(pid),
            policy: "p".into(),
            stood_down: None,
            members: members.collect(),
            spared: Vec::new(),
            closure,
            span: (Moment(0), Moment(4_100_000_000)),
        }
    }

    #[test]
    fn who_runs_another_program_by_now_is_named_and_not_gone_c08() {
        let changed =
            report(10, Closure::Survivors, &[Outcome::Exited(Signal::Term), Outcome::IdentityChanged]);
        insta::assert_snapshot!(outcomes(&[changed], Colour::None), @"survived         1 tree   1 process   11 chrome: not surely the same process any more, left alone");
    }

    #[test]
    fn signalled_is_not_gone() {
        let term = Outcome::Exited(Signal::Term);
        let mut down = report(50, Closure::Untouched, &[]);
        down.stood_down = Some("a client is connected now".into());
        let mut spared = report(60, Closure::Gone, &[Outcome::AlreadyGone]);
        spared.spared.push(Spared { id: sample::process(61), why: "it listens".into() });
        let reports = [
            report(10, Closure::Gone, &[term.clone(), Outcome::Exited(Signal::Kill)]),
            report(20, Closure::Gone, std::slice::from_ref(&term)),
            report(30, Closure::Survivors, &[term, Outcome::Survived("uninterruptible (disk)".into())]),
            report(40, Closure::NotProven, &[Outcome::AlreadyGone]),
            down,
            spared,
        ];
        insta::assert_snapshot!(outcomes(&reports, Colour::None), @r"
        gone             3 trees   4 processes   4.1 s   1 went by itself, 1 ended on TERM, 1 needed KILL
        survived         1 tree   1 process   31 chrome: uninterruptible (disk)
        not proven gone  1 tree   0 processes   40: new members kept coming, or nobody could look for them
        stood down       1 tree   0 processes   50: a client is connected now
        left alone       61: it listens
        ");
        assert_eq!(exit(&reports), Exit::Failed);
        assert_eq!(exit(&reports[..2]), Exit::Done);
        assert_eq!(exit(&reports[4..5]), Exit::Done, "standing down is what the re-check is for");
    }
}
