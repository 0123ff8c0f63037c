//! Containers on the screen of a sweep.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::time::Duration;

use super::super::text::{padded, vetoed, wait, when, widths};
use super::super::{Detail, Seen, Stage, few};
use super::{Kept, KeptGroup, LEASE, UnknownGroup, clients, images, name};
use crate::app::legible;
use crate::app::out::{Colour, Paint, paint};
use crate::app::words::{age, count, homely, number, size, span};
use crate::model::container::Listed;
use crate::model::container::judgement::{ContainerJudgement, ContainerLookalike};
use crate::model::container::stop::Stop;
use crate::model::ownership::{Parentage, parentage};
use crate::model::verdict::Mode;

/// Returns how many containers and bytes these are.
pub fn totals(stops: &[&Stop]) -> Vec<String> {
    let resident: u64 = stops.iter().map(|stop| stop.judgement.resident).sum();
    vec![count(stops.len(), "container", "containers"), size(resident)]
}

/// Returns what would be stopped.
pub fn planned(seen: &Seen<'_>, colour: Colour) -> String {
    let groups = seen.stop_groups();
    if groups.is_empty() {
        return String::new();
    }
    let all: Vec<&Stop> = groups.iter().flat_map(|group| group.stops.iter().copied()).collect();
    let name = if seen.stage == Stage::Confirmed { "REAPING" } else { "WOULD REAP" };
    let mut text = String::new();
    heading(&mut text, colour, Paint::Reap, name, &format!("{}   {}", totals(&all).join("   "), when(seen)));
    for group in &groups {
        let totals = totals(&group.stops).join("   ");
        let _ = writeln!(text, "  {}   {totals}   {}", group.policy, homely(&group.reason, seen.home));
        let mut by_image: BTreeMap<&str, Vec<&Stop>> = BTreeMap::new();
        for stop in &group.stops {
            by_image.entry(&stop.judgement.listed.image).or_default().push(stop);
        }
        for (image, _) in images(group.stops.iter().map(|stop| &stop.judgement.listed)) {
            let stops = by_image.remove(image).unwrap_or_default();
            one_image(&mut text, seen, image, &stops);
        }
    }
    text
}

/// Writes the containers of one image: one by one where they are few or all are wanted, else a count with the oldest.
fn one_image(text: &mut String, seen: &Seen<'_>, image: &str, stops: &[&Stop]) {
    let resident: u64 = stops.iter().map(|stop| stop.judgement.resident).sum();
    let image = legible::text(image);
    if stops.len() > 1 {
        let _ = writeln!(text, "    {} × {image}   {}", number(stops.len()), size(resident));
    }
    let indent = if stops.len() > 1 { "      " } else { "    " };
    let shown = few(seen.detail, stops.len());
    let rows: Vec<Vec<String>> = stops[..shown]
        .iter()
        .map(|stop| {
            let judgement = &stop.judgement;
            vec![judgement.at.to_string(), up(seen, judgement), size(judgement.resident)]
        })
        .collect();
    let widths = widths(&rows);
    for (row, stop) in rows.iter().zip(stops) {
        let name = name(&stop.judgement.listed);
        let image = if stops.len() > 1 { String::new() } else { format!("   {image}") };
        let because = homely(&legible::text(&stop.judgement.because), seen.home);
        let _ = writeln!(text, "{indent}{}   {name}{image}   {because}", padded(row, &widths));
    }
    if stops.len() > shown {
        let _ = writeln!(text, "{indent}… {} more (--all)", number(stops.len() - shown));
    }
}

/// Returns how long a container runs, by its first process, else by the wall clock since it was made.
fn up(seen: &Seen<'_>, judgement: &ContainerJudgement) -> String {
    let clocks = seen.look.snapshot.began;
    if let Ok(began) = &judgement.began {
        return age(clocks.boot.since(*began));
    }
    let made = u64::try_from(judgement.listed.created).unwrap_or(0);
    age(Duration::from_secs((clocks.wall / 1_000).saturating_sub(made)))
}

/// Returns what is proven and held back.
pub fn waiting(seen: &Seen<'_>, colour: Colour) -> String {
    let waiting = seen.containers_waiting();
    let mut text = String::new();
    if waiting.is_empty() {
        return text;
    }
    let total: usize = waiting.iter().map(|(_, _, count)| count).sum();
    heading(
        &mut text,
        colour,
        Paint::Keep,
        "HELD BACK",
        &count(total, "proven container", "proven containers"),
    );
    for (judgement, why, count) in waiting {
        let _ = writeln!(text, "  {}   {}   {}", judgement.policy, number(count), wait(why));
    }
    text
}

/// Returns what is kept and may look leaked.
pub fn kept(seen: &Seen<'_>, colour: Colour) -> String {
    let groups = seen.kept_groups();
    let mut text = String::new();
    if groups.is_empty() {
        return text;
    }
    let total: usize = groups.iter().map(|group| group.all.len()).sum();
    let what = if total == 1 { "container that may look leaked" } else { "containers that may look leaked" };
    heading(&mut text, colour, Paint::Keep, "WOULD KEEP", &format!("{} {what}", number(total)));
    for group in &groups {
        let _ = writeln!(
            text,
            "  {}   {}   {}",
            group.policy,
            images_line(seen, group.all.iter().map(|judgement| &judgement.listed)),
            kept_why(seen, group)
        );
        clients_lines(&mut text, seen, &group.all);
        if seen.detail == Detail::All {
            each(&mut text, seen, &group.all);
        }
    }
    text
}

fn kept_why(seen: &Seen<'_>, group: &KeptGroup<'_>) -> String {
    let confirm = seen.config.confirm;
    match &group.why {
        Kept::Client => "a client of the engine is, or may be, their own:".to_owned(),
        Kept::CannotTell => "nobody seems to be their client, and that cannot be told for sure".to_owned(),
        Kept::ReportOnly if seen.config.mode == Mode::Report => {
            "proven; the configuration says mode = \"report\", so they are only reported".to_owned()
        }
        Kept::ReportOnly => {
            format!("its policy only reports. Reap these too:   reapd policies --set {}=reap", group.policy)
        }
        Kept::Vetoed(veto) => container_vetoed(veto),
        Kept::NotYet => format!(
            "proven, but not for long enough yet (at least {} old, seen {})",
            span(confirm.min_age),
            count(confirm.looks as usize, "time", "times"),
        ),
    }
}

/// Returns what keeps containers that would go but for a veto.
fn container_vetoed(veto: &str) -> String {
    let words = match veto {
        "paused" => "paused: somebody means to go on with them",
        "restart-policy" | "restart" => {
            "their engine would start them anew: whoever made them means them to run"
        }
        "ryuk" => "the reaper of their test session still runs",
        "kubernetes" => "Kubernetes runs them",
        other => return vetoed(other),
    };
    words.to_owned()
}

/// Returns what could not be told, each with its cure: a silent 0 where we are blind is a defect.
pub fn unknown(seen: &Seen<'_>, colour: Colour) -> String {
    let groups = seen.unknown_groups();
    let mut text = String::new();
    if groups.is_empty() {
        return text;
    }
    let all: Vec<&ContainerJudgement> = groups.iter().flat_map(|group| group.all.iter().copied()).collect();
    let resident: u64 = all.iter().map(|judgement| judgement.resident).sum();
    let total = count(all.len(), "container", "containers");
    heading(&mut text, colour, Paint::Unknown, "KEPT, CANNOT TELL", &format!("{total}   {}", size(resident)));
    for group in &groups {
        let why = homely(&legible::text(group.why), seen.home);
        let line = images_line(seen, group.all.iter().map(|judgement| &judgement.listed));
        let _ = writeln!(text, "  {}   {line}   {why}", group.policy);
        clients_of(&mut text, seen, group);
        if seen.detail == Detail::All {
            each(&mut text, seen, &group.all);
        }
    }
    cures(&mut text, &all);
    text
}

/// Says how many of these have a live client that is or may be theirs, and how many have none.
fn clients_of(text: &mut String, seen: &Seen<'_>, group: &UnknownGroup<'_>) {
    let has_client =
        |judgement: &&&ContainerJudgement| matches!(judgement.lookalike, Some(ContainerLookalike::Client(_)));
    let with = group.all.iter().filter(has_client).count();
    let without = group
        .all
        .iter()
        .filter(|judgement| judgement.lookalike == Some(ContainerLookalike::CannotTell))
        .count();
    let mut words = Vec::new();
    if with > 0 {
        words.push(format!("{} may have a live client{}", number(with), parents(seen, &group.all)));
    }
    if without > 0 {
        words.push(format!("{} {} none that could be theirs", number(without), have(without)));
    }
    if !words.is_empty() {
        let _ = writeln!(text, "    {}.", words.join(", "));
    }
}

fn have(count: usize) -> &'static str {
    if count == 1 { "has" } else { "have" }
}

/// Returns the parents of the clients of these, who are the ones that could end them.
fn parents(seen: &Seen<'_>, all: &[&ContainerJudgement]) -> String {
    let table = &seen.look.snapshot.table;
    let mut parents: BTreeSet<String> = BTreeSet::new();
    for (client, _) in clients(all) {
        let Some(row) = table.get(client) else { continue };
        if let Parentage::Living(parent) = parentage(table, &seen.look.reapers, row) {
            parents.insert(format!("{} {parent}", seen.name(parent)));
        }
    }
    let shown = few(seen.detail, parents.len());
    let more = parents.len() - shown;
    let mut words: Vec<String> = parents.into_iter().take(shown).collect();
    if more > 0 {
        words.push(format!("{} more", number(more)));
    }
    match words.len() {
        0 => String::new(),
        1 => format!(" (parent: {})", words[0]),
        _ => format!(" (parents: {})", words.join(", ")),
    }
}

fn clients_lines(text: &mut String, seen: &Seen<'_>, all: &[&ContainerJudgement]) {
    let clients = clients(all);
    let shown = few(seen.detail, clients.len());
    for (client, held) in &clients[..shown] {
        let _ = writeln!(text, "      {} {client}   {}", seen.name(*client), number(*held));
    }
    if clients.len() > shown {
        let _ = writeln!(text, "      … {} more clients", number(clients.len() - shown));
    }
}

/// Says what a person can do, once for all whom it helps.
fn cures(text: &mut String, all: &[&ContainerJudgement]) {
    let mut cures: BTreeMap<&str, usize> = BTreeMap::new();
    for judgement in all {
        if let Some(cure) = &judgement.cure {
            *cures.entry(cure).or_default() += 1;
        }
    }
    for (cure, helped) in cures {
        let _ = writeln!(text, "To decide the {}:   {}", number(helped), legible::text(cure));
    }
    if all.iter().any(|judgement| !judgement.listed.labels.contains_key(LEASE)) {
        let _ = writeln!(
            text,
            "To decide them always: put `reapd run --` before `docker run` (reapd run --help)"
        );
    }
}

/// Returns how many there are of each image, e.g. "14 × mcp/atlassian   6 × mcp/sonarqube".
fn images_line<'a>(seen: &Seen<'_>, all: impl Iterator<Item = &'a Listed>) -> String {
    let images = images(all);
    let shown = few(seen.detail, images.len());
    let mut words: Vec<String> = images[..shown]
        .iter()
        .map(|(image, count)| format!("{} × {}", number(*count), legible::text(image)))
        .collect();
    if images.len() > shown {
        words.push(format!("… {} more images", number(images.len() - shown)));
    }
    words.join("   ")
}

fn each(text: &mut String, seen: &Seen<'_>, all: &[&ContainerJudgement]) {
    for judgement in all {
        let _ = writeln!(
            text,
            "    {}   {}   {}   {}",
            judgement.at,
            up(seen, judgement),
            name(&judgement.listed),
            homely(&legible::text(&judgement.because), seen.home)
        );
    }
}

fn heading(text: &mut String, colour: Colour, kind: Paint, name: &str, rest: &str) {
    let painted = paint(colour, kind, name);
    let gap = " ".repeat(17_usize.saturating_sub(name.chars().count()).max(3));
    let _ = writeln!(text, "\n{painted}{gap}{}", rest.trim_end());
}
