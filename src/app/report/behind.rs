//! What trees left behind, as a person and as a program read it: what goes, what stays, what became of it.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde_json::{Value, json};

use super::{Done, Seen, Stage, few};
use crate::app::journal::history::Clearing;
use crate::app::legible;
use crate::app::out::{Colour, Paint, paint};
use crate::app::words::{self, count, number, size};
use crate::model::container::stop::{StopOutcome, StopReport};
use crate::model::escape::escape;
use crate::model::id::ProcessId;
use crate::model::look::Look;
use crate::model::outcome::Outcome;
use crate::model::plan::{Residue, Spare};
use crate::model::residue::{Cleared, Fate, Kind, Removal};

/// Returns what would be removed, and what stays.
pub fn planned(seen: &Seen<'_>, colour: Colour) -> String {
    let residue = &seen.plan.residue;
    let mut text = String::new();
    if !residue.removals.is_empty() {
        let name = if seen.stage == Stage::Confirmed { "REMOVING" } else { "WOULD REMOVE" };
        let all: Vec<&Removal> = residue.removals.iter().collect();
        let painted = paint(colour, Paint::Reap, name);
        let gap = " ".repeat(17 - name.len());
        let _ = writeln!(text, "\n{painted}{gap}{}", totals(&all).join("   "));
        let mut groups: BTreeMap<(&str, bool), Vec<&Removal>> = BTreeMap::new();
        for removal in all {
            groups.entry((&removal.policy, removal.of.is_none())).or_default().push(removal);
        }
        for ((policy, is_old), group) in groups {
            let why = if is_old { "left behind, and nobody uses them" } else { "once their trees are gone" };
            let _ = writeln!(text, "  {policy}   {}   {why}", totals(&group).join("   "));
            list(&mut text, seen, &group, |removal| size(removal.bytes()));
        }
    }
    let report_only = residue.waiting.iter().filter(|(_, why)| *why == Spare::ReportOnly);
    let report_only: Vec<&Removal> = report_only.map(|(removal, _)| removal).collect();
    let paced = residue.waiting.len() - report_only.len();
    if report_only.is_empty() && paced == 0 && residue.kept.is_empty() {
        return text;
    }
    let painted = paint(colour, Paint::Keep, "LEFT BEHIND");
    let _ = writeln!(text, "\n{painted}      {}", number(residue.kept.len() + residue.waiting.len()));
    if !report_only.is_empty() {
        let totals = totals(&report_only).join("   ");
        let _ = writeln!(
            text,
            "  only reported   {totals}   its policy, or the configuration, says mode = \"report\""
        );
        list(&mut text, seen, &report_only, |removal| size(removal.bytes()));
    }
    if paced > 0 {
        let _ =
            writeln!(text, "  later   {}   more than one sweep removes; the next one goes on", number(paced));
    }
    let kept: Vec<&(Removal, String)> = residue.kept.iter().collect();
    let shown = few(seen.detail, kept.len());
    for (removal, why) in &kept[..shown] {
        let why = words::homely(&legible::text(why), seen.home);
        let _ = writeln!(text, "  kept   {}   {why}", path(seen, removal));
    }
    if kept.len() > shown {
        let _ = writeln!(text, "  … {} more (--all)", number(kept.len() - shown));
    }
    text
}

fn list(text: &mut String, seen: &Seen<'_>, all: &[&Removal], what: impl Fn(&Removal) -> String) {
    let shown = few(seen.detail, all.len());
    for removal in &all[..shown] {
        let _ = writeln!(text, "    {}   {}", path(seen, removal), what(removal));
    }
    if all.len() > shown {
        let _ = writeln!(text, "    … {} more (--all)", number(all.len() - shown));
    }
}

fn path(seen: &Seen<'_>, removal: &Removal) -> String {
    words::path(bstr::BStr::new(&removal.place.path()), seen.home)
}

/// Returns how many directories, records and bytes these are.
pub fn totals(all: &[&Removal]) -> Vec<String> {
    let directories = all.iter().filter(|removal| removal.own.kind == Kind::Directory).count();
    let mut totals = counts(directories, all.len() - directories);
    totals.push(size(all.iter().map(|removal| removal.bytes()).sum()));
    totals
}

fn counts(directories: usize, records: usize) -> Vec<String> {
    let mut counts = Vec::new();
    if directories > 0 {
        counts.push(count(directories, "directory", "directories"));
    }
    if records > 0 {
        counts.push(count(records, "record", "records"));
    }
    counts
}

/// Returns the lines that say what became of it.
pub fn outcomes(cleared: &[Cleared], colour: Colour) -> String {
    let mut text = String::new();
    let mut row = |kind, name: &str, rest: &str| {
        let painted = paint(colour, kind, name);
        let gap = " ".repeat(17_usize.saturating_sub(name.len()).max(1));
        let _ = writeln!(text, "  {painted}{gap}{rest}");
    };
    let removed: Vec<&Cleared> = cleared.iter().filter(|one| one.fate == Fate::Removed).collect();
    if !removed.is_empty() {
        let directories = removed.iter().filter(|one| one.kind == Kind::Directory).count();
        let mut words = counts(directories, removed.len() - directories);
        words.push(size(removed.iter().map(|one| one.freed).sum()));
        row(Paint::Keep, "removed", &words.join("   "));
    }
    for one in cleared {
        let path = escape(&one.place.path());
        match &one.fate {
            Fate::Removed | Fate::Gone => {}
            Fate::Changed(why) | Fate::Kept(why) | Fate::CutShort(why) => {
                row(Paint::Unknown, "not removed", &format!("{path}: {}{}", legible::text(why), partly(one)));
            }
            Fate::Refused(why) => {
                row(Paint::Reap, "not removed", &format!("{path}: {}{}", legible::text(why), partly(one)));
            }
        }
    }
    text
}

/// Returns the words for what went of something that stayed.
fn partly(cleared: &Cleared) -> String {
    match cleared.removed.len() {
        0 => String::new(),
        1 => "; 1 file in it is gone".to_owned(),
        files => format!("; {} files in it are gone", number(files)),
    }
}

/// Returns what came free: the memory of whoever was seen gone after a signal, as it was in the look that was judged,
/// and the disk. Whoever was spared or went by itself is not counted, nor who was not there yet.
fn sums(done: &Done<'_>, look: &Look) -> (u64, u64) {
    let members = done.reports.iter().flat_map(|report| &report.members);
    let ended: BTreeSet<ProcessId> = members
        .filter(|member| matches!(member.outcome, Outcome::Exited(_)))
        .map(|member| member.id)
        .collect();
    let table = &look.snapshot.table;
    let memory: u64 = ended.into_iter().filter_map(|id| table.get(id)).map(|row| row.resident).sum();
    // A container that went before any step of ours was not ended by us.
    let is_ended = |report: &&StopReport| report.outcome == StopOutcome::Gone && !report.steps.is_empty();
    let contained: u64 = done.stopped.iter().filter(is_ended).map(|report| report.resident).sum();
    (memory.saturating_add(contained), done.cleared.iter().map(|one| one.freed).sum())
}

/// Returns the line that says how much came free; nothing where nothing did.
pub fn freed(done: &Done<'_>, look: &Look, colour: Colour) -> String {
    let (memory, disk) = sums(done, look);
    let mut words = Vec::new();
    if memory > 0 {
        words.push(format!("{} of memory", size(memory)));
    }
    if disk > 0 {
        words.push(format!("{} on the disk", size(disk)));
    }
    if words.is_empty() {
        return String::new();
    }
    format!("  {}            {}\n", paint(colour, Paint::Keep, "freed"), words.join("   "))
}

/// Returns the same for a program.
pub fn freed_json(done: &Done<'_>, look: &Look) -> Value {
    let (memory, disk) = sums(done, look);
    json!({ "memory_bytes": memory, "disk_bytes": disk })
}

/// Returns what would be removed, what stays, and what became of it.
pub fn as_json(residue: &Residue, cleared: &[Cleared]) -> Value {
    let waits = |why: &Spare| match why {
        Spare::ReportOnly => "report-only",
        Spare::Pace => "pace",
    };
    json!({
        "planned": residue.removals.iter().map(removal).collect::<Vec<_>>(),
        "waiting": residue.waiting.iter().map(|(one, why)| with(removal(one), "why", waits(why))).collect::<Vec<_>>(),
        "kept": residue.kept.iter().map(|(one, why)| with(removal(one), "why", &legible::text(why))).collect::<Vec<_>>(),
        "cleared": cleared.iter().map(cleared_json).collect::<Vec<_>>(),
    })
}

fn with(mut value: Value, key: &str, text: &str) -> Value {
    value[key] = text.into();
    value
}

fn removal(removal: &Removal) -> Value {
    json!({
        "policy": removal.policy,
        "path": escape(&removal.place.path()),
        "kind": if removal.own.kind == Kind::Directory { "directory" } else { "record" },
        "files": removal.entries.iter().map(|piece| escape(&piece.name)).collect::<Vec<_>>(),
        "bytes": removal.bytes(),
        "tree": removal.of.map(|root| root.pid.number()),
    })
}

/// Returns what became of one thing.
pub fn cleared_json(cleared: &Cleared) -> Value {
    let (outcome, detail) = fate(&cleared.fate);
    json!({
        "policy": cleared.policy,
        "path": escape(&cleared.place.path()),
        "outcome": outcome,
        "detail": detail.map(legible::text),
        "removed": cleared.removed.iter().map(|name| escape(name)).collect::<Vec<_>>(),
        "freed_bytes": cleared.freed,
    })
}

/// Returns the word for what became of something, and its detail.
fn fate(fate: &Fate) -> (&'static str, Option<&str>) {
    match fate {
        Fate::Removed => ("removed", None),
        Fate::Gone => ("gone", None),
        Fate::Changed(why) => ("changed", Some(why)),
        Fate::Refused(why) => ("refused", Some(why)),
        Fate::Kept(why) => ("kept", Some(why)),
        Fate::CutShort(why) => ("cut-short", Some(why)),
    }
}

/// Returns one removal as a line of the log.
pub fn line(clearing: &Clearing<'_>) -> String {
    let removal = clearing.removal;
    let end = match clearing.cleared {
        None => "begun, and its end is not written down".to_owned(),
        Some(cleared) => match fate(&cleared.fate) {
            ("removed", _) => format!("removed, {}", size(cleared.freed)),
            (word, None) => word.to_owned(),
            (_, Some(why)) => format!("not removed: {}", legible::text(why)),
        },
    };
    let path = escape(&removal.place.path());
    let whose = removal.of.map(|root| format!("   left by {root}")).unwrap_or_default();
    format!("{}   {}   {path}   {end}{whose}", words::date(clearing.intent.at), removal.policy)
}

/// Returns one removal of the log for a program.
pub fn clearing_json(clearing: &Clearing<'_>) -> Value {
    json!({
        "at": clearing.intent.at,
        "sweep": clearing.intent.sweep,
        "removal": removal(clearing.removal),
        "outcome": clearing.cleared.map(cleared_json),
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::app::report::Detail;
    use crate::app::sample;
    use crate::model::moment::Moment;
    use crate::model::outcome::{Closure, MemberOutcome, Report};
    use crate::model::plan::{Plan, Signal};
    use crate::model::residue::Piece;
    use crate::model::table::{Table, plain_row};
    use crate::model::verdict::Verdicts;

    fn record(name: &str) -> Removal {
        let removal = sample::removal(name);
        let own = Piece { kind: Kind::File, ..removal.own };
        Removal { own, entries: Vec::new(), ..removal }
    }

    #[test]
    fn what_goes_and_what_stays_as_a_person_reads_it() {
        let look = Look::new(sample::snapshot(&[]));
        let of_a_tree = Removal { of: Some(sample::process(10)), ..sample::removal("pv-3") };
        let residue = Residue {
            removals: vec![of_a_tree, sample::removal("pv-1"), record("r.json")],
            waiting: vec![
                (sample::removal("pv-5"), Spare::ReportOnly),
                (sample::removal("pv-6"), Spare::Pace),
            ],
            kept: vec![(sample::removal("pv-4"), "process 12 names it".into())],
        };
        let seen = Seen {
            look: &look,
            verdicts: &Verdicts::default(),
            plan: &Plan { residue, ..Plan::default() },
            config: &sample::config(),
            home: None,
            took: Duration::ZERO,
            only: None,
            stage: Stage::DryRun,
            detail: Detail::Some,
        };
        insta::assert_snapshot!(planned(&seen, Colour::None), @r#"

        WOULD REMOVE     2 directories   1 record   21 kB
          p   1 directory   9 kB   once their trees are gone
            /tmp/pv-3   9 kB
          p   1 directory   1 record   13 kB   left behind, and nobody uses them
            /tmp/pv-1   9 kB
            /tmp/r.json   5 kB

        LEFT BEHIND      3
          only reported   1 directory   9 kB   its policy, or the configuration, says mode = "report"
            /tmp/pv-5   9 kB
          later   1   more than one sweep removes; the next one goes on
          kept   /tmp/pv-4   process 12 names it
        "#);
    }

    #[test]
    fn what_became_of_it_and_what_came_free() {
        let mut removed = sample::removal("pv-1").ended(Fate::Removed);
        removed.freed = 8_192;
        let mut one = record("r.json").ended(Fate::Removed);
        one.freed = 4_096;
        let mut half =
            sample::removal("pv-5").ended(Fate::Changed("'server.pid' was written to meanwhile".into()));
        half.removed = vec!["server.log".into()];
        let cleared = [
            removed,
            one,
            sample::removal("pv-2").ended(Fate::Gone),
            sample::removal("pv-3").ended(Fate::Changed("'server.sock' is another by now".into())),
            sample::removal("pv-4").ended(Fate::Refused("deleting 'server.sock': read-only".into())),
            half,
        ];
        let done = Done { cleared: &cleared, ..Done::default() };
        let look = Look::new(sample::snapshot(&[]));
        let text = outcomes(&cleared, Colour::None) + &freed(&done, &look, Colour::None);
        insta::assert_snapshot!(text, @r"
        removed          1 directory   1 record   13 kB
        not removed      /tmp/pv-3: 'server.sock' is another by now
        not removed      /tmp/pv-4: deleting 'server.sock': read-only
        not removed      /tmp/pv-5: 'server.pid' was written to meanwhile; 1 file in it is gone
        freed            13 kB on the disk
        ");
    }

    #[test]
    fn memory_comes_free_only_where_somebody_was_ended() {
        let member = |pid, outcome| MemberOutcome {
            id: sample::process(pid),
            name: "node".into(),
            signals: Vec::new(),
            outcome,
            gone: None,
        };
        let report = Report {
            root: sample::process(10),
            policy: "p".into(),
            stood_down: None,
            members: vec![
                member(10, Outcome::Exited(Signal::Term)),
                member(11, Outcome::AlreadyGone),
                member(12, Outcome::Survived("running".into())),
                // Newborn: it was not there yet.
                member(13, Outcome::Exited(Signal::Kill)),
            ],
            spared: Vec::new(),
            closure: Closure::Gone,
            span: (Moment(0), Moment(1)),
        };
        let mut snapshot = sample::snapshot(&[]);
        // The last one was spared: it is in no report.
        let rows = [(10, 1_000), (11, 20_000), (12, 300_000), (14, 4_000_000)].map(|(pid, resident)| {
            let id = sample::process(pid);
            let mut row = plain_row(id.pid, 1, id.start);
            row.resident = resident;
            row
        });
        snapshot.table = Table::new(rows.to_vec());
        let reports = [report];
        let done = Done { reports: &reports, ..Done::default() };
        assert_eq!(sums(&done, &Look::new(snapshot)), (1_000, 0));
    }
}
