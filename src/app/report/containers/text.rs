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
        "state" => "paused, or being started anew: somebody means to go on with them",
        "restart-policy" => "their engine would start them anew: whoever made them means them to run",
        "new" => "they began a moment ago",
        "labelled" => "a label of theirs keeps them",
        "leased" => "a lease covers them",
        "ryuk" => "the reaper of their test session still runs",
        "kubernetes" => "Kubernetes runs them",
        "named" => "a client of the engine names them",
        "exec" => "a command that was started in them later runs on",
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
        words.push(format!("{} {} none that is known", number(without), have(without)));
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
    let says = |words: &str| {
        all.iter().any(|judgement| judgement.cure.as_ref().is_some_and(|cure| cure.contains(words)))
    };
    if says("helper") {
        let _ = writeln!(
            text,
            "This once:   reapd sweep --docker-stdin helper   starts one privileged container, reads, removes it"
        );
    }
    if !says("reapd run") && all.iter().any(|judgement| !judgement.listed.labels.contains_key(LEASE)) {
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

pub(super) fn heading(text: &mut String, colour: Colour, kind: Paint, name: &str, rest: &str) {
    let painted = paint(colour, kind, name);
    let gap = " ".repeat(17_usize.saturating_sub(name.chars().count()).max(3));
    let _ = writeln!(text, "\n{painted}{gap}{}", rest.trim_end());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::report::Done;
    use crate::app::report::containers::as_json;
    use crate::app::sample;
    use crate::config::policy::Config;
    use crate::model::container::leftover::{ExecFate, ExecJudgement};
    use crate::model::container::{Engine, EngineKind, sample as container};
    use crate::model::evidence::Cause;
    use crate::model::id::ProcessId;
    use crate::model::look::Look;
    use crate::model::moment::Moment;
    use crate::model::plan::{Plan, Wait};
    use crate::model::table::{Table, plain_row};
    use crate::model::verdict::{Verdict, Verdicts};

    struct World {
        look: Look,
        verdicts: Verdicts,
        plan: Plan,
        config: Config,
    }

    impl World {
        fn new() -> World {
            let mut look = Look::new(sample::snapshot(&[]));
            let [client, parent] = [4_500, 4_410].map(sample::process);
            let rows = vec![
                plain_row(parent.pid, 1, parent.start),
                plain_row(client.pid, parent.pid.number(), client.start),
            ];
            look.snapshot.table = Table::new(rows);
            World { look, verdicts: Verdicts::default(), plan: Plan::default(), config: sample::config() }
        }

        fn judged(&mut self, number: u32, image: &str, change: impl FnOnce(&mut ContainerJudgement)) {
            let mut judgement = container::judgement(number, "docker-run");
            judgement.listed.image = image.into();
            change(&mut judgement);
            self.verdicts.containers.push(judgement);
        }

        fn goes(&mut self, number: u32, image: &str) {
            self.judged(number, image, |_| {});
            let judgement = self.verdicts.containers.last().unwrap().clone();
            self.plan.containers.stops.push(Stop { judgement, ..container::stop(number, "docker-run") });
        }

        fn untold(&mut self, number: u32, image: &str, lookalike: ContainerLookalike) {
            self.judged(number, image, |judgement| {
                judgement.verdict = Verdict::Unknown;
                judgement.because = "their stdin lives inside a virtual machine".into();
                judgement.lookalike = Some(lookalike);
                judgement.cure = Some("run reapd as root".into());
            });
        }

        fn listed(&mut self) {
            self.look.snapshot.engines = vec![Engine {
                id: container::at(0).engine,
                from: "a usual place".into(),
                kind: Ok(EngineKind::Docker("28.2.2".into())),
                containers: Ok(self.verdicts.containers.iter().map(|one| one.listed.clone()).collect()),
            }];
        }

        fn seen(&self, stage: Stage, detail: Detail) -> Seen<'_> {
            Seen {
                look: &self.look,
                verdicts: &self.verdicts,
                plan: &self.plan,
                config: &self.config,
                home: None,
                took: Duration::from_millis(41),
                only: None,
                stage,
                detail,
            }
        }

        fn screen(&self, detail: Detail) -> String {
            crate::app::report::text::report(&self.seen(Stage::DryRun, detail), Colour::None)
        }
    }

    fn client() -> ContainerLookalike {
        let id: ProcessId = sample::process(4_500);
        ContainerLookalike::Client(id)
    }

    #[test]
    fn what_would_go_by_image_and_each_of_them_on_request() {
        let mut world = World::new();
        for number in 1..=6 {
            world.goes(number, "mcp/sonarqube");
        }
        world.goes(7, "mcp/atlassian");
        world.listed();
        insta::assert_snapshot!(world.screen(Detail::Some), @r"
Looked at 0 processes and 7 containers in 41 ms. Nothing was touched.

WOULD REAP       7 containers   574 MB   after a second look, 10 s later
  docker-run   7 containers   574 MB   its client is gone, and nobody can ever speak to it again
    6 × mcp/sonarqube   492 MB
      000000000001   4d 0h   82 MB   helper-1   no process holds the write end of its stdin
      000000000002   4d 0h   82 MB   helper-2   no process holds the write end of its stdin
      000000000003   4d 0h   82 MB   helper-3   no process holds the write end of its stdin
      … 3 more (--all)
    000000000007   4d 0h   82 MB   helper-7   mcp/atlassian   no process holds the write end of its stdin

Reap the 7:  reapd sweep        Why one of them:  reapd why 000000000001
");
        let all = world.screen(Detail::All);
        assert!((1..=7).all(|number| all.contains(&format!("helper-{number}"))), "{all}");
    }

    #[test]
    fn commands_left_behind_are_told_beside_and_nothing_goes_a20() {
        let mut world = World::new();
        world.judged(7, "acme/agent", |judgement| judgement.verdict = Verdict::Alive);
        world.listed();
        for (number, fate) in [(1, ExecFate::LeftBehind), (2, ExecFate::LeftBehind), (3, ExecFate::Used)] {
            let exec = container::exec(7, sample::process(4_800 + number));
            world.verdicts.execs.push(ExecJudgement { fate, ..exec });
        }
        insta::assert_snapshot!(world.screen(Detail::Some), @r"
        Looked at 0 processes and 1 container in 41 ms: nothing to reap.

        ONLY TOLD        2 commands left behind in 1 container   36 MB   nothing ends these
          docker-exec   the client of `docker exec` is gone, and its input ended
            000000000007   helper-7   4801   4d 0h   1 process   18 MB   tool --token=***
            000000000007   helper-7   4802   4d 0h   1 process   18 MB   tool --token=***
        ");
        let mut json = serde_json::json!({});
        as_json(&mut json, &world.seen(Stage::DryRun, Detail::Some), &Done::default());
        assert_eq!(json["commands_left"].as_array().unwrap().len(), 2);
        assert_eq!(json["commands_left"][0]["argv"][1], "--token=***");
        // Another policy alone was asked for.
        let seen = world.seen(Stage::DryRun, Detail::Some);
        let seen = Seen { only: Some("docker-run"), ..seen };
        assert!(!crate::app::report::text::report(&seen, Colour::None).contains("ONLY TOLD"));
    }

    #[test]
    fn where_nobody_can_tell_it_is_said_with_counts_clients_and_cures() {
        let mut world = World::new();
        for number in 1..=3 {
            world.untold(number, "mcp/atlassian", client());
        }
        for number in 4..=5 {
            world.untold(number, "mcp/sonarqube", ContainerLookalike::CannotTell);
        }
        world.listed();
        insta::assert_snapshot!(world.screen(Detail::Some), @r"
    Looked at 0 processes and 5 containers in 41 ms: nothing to reap.

    KEPT, CANNOT TELL   5 containers   410 MB
      docker-run   3 × mcp/atlassian   2 × mcp/sonarqube   their stdin lives inside a virtual machine
        3 may have a live client (parent:  4410), 2 have none that is known.
    To decide the 5:   run reapd as root
    To decide them always: put `reapd run --` before `docker run` (reapd run --help)
    ");
    }

    #[test]
    fn what_is_kept_or_held_back_says_why() {
        let mut world = World::new();
        let keep = |lookalike: Option<ContainerLookalike>| {
            move |judgement: &mut ContainerJudgement| {
                judgement.verdict = Verdict::Alive;
                judgement.lookalike = lookalike;
            }
        };
        world.judged(1, "a", keep(Some(client())));
        world.judged(2, "a", keep(Some(ContainerLookalike::Vetoed("restart-policy".into()))));
        world.judged(3, "a", keep(Some(ContainerLookalike::Vetoed("clients".into()))));
        world.judged(4, "a", keep(None));
        world.judged(5, "a", |judgement| judgement.verdict = Verdict::Suspect { since: Moment(0), looks: 1 });
        for (number, why) in [
            (6, Wait::ReportOnly),
            (7, Wait::Pace),
            (8, Wait::SameCause(Cause::Engine(container::at(0).engine))),
        ] {
            world.judged(number, "a", |_| {});
            let judgement = world.verdicts.containers.last().unwrap().clone();
            world.plan.containers.waiting.push((judgement, why));
        }
        world.listed();
        insta::assert_snapshot!(world.screen(Detail::Some), @r"
            Looked at 0 processes and 8 containers in 41 ms. Nothing was touched.

            HELD BACK        2 proven containers
              docker-run   1   more than trees-per-sweep at once; the next sweep takes them
              docker-run   1   too many verdicts hang on one thing, engine:/run/docker.sock. When that is all right:   reapd release engine:/run/docker.sock

            WOULD KEEP       5 containers that may look leaked
              docker-run   1 × a   a client of the engine is, or may be, their own:
                   4500   1
              docker-run   1 × a   its policy only reports. Reap these too:   reapd policies --set docker-run=reap
              docker-run   1 × a   in use: a client is connected
              docker-run   1 × a   their engine would start them anew: whoever made them means them to run
              docker-run   1 × a   proven, but not for long enough yet (at least 60 s old, seen 2 times)
            ");
    }

    #[test]
    fn without_an_engine_nothing_is_said_of_containers() {
        let screen = World::new().screen(Detail::Some);
        assert!(!screen.contains("container"), "{screen}");
    }

    #[test]
    #[expect(clippy::too_many_lines, reason = "the document is written out whole")]
    fn containers_as_a_program_reads_them() {
        let mut world = World::new();
        world.goes(1, "mcp/sonarqube");
        world.listed();
        let judgement = world.verdicts.containers[0].clone();
        world.plan.containers.waiting.push((judgement, Wait::Pace));
        let report = crate::act::containers::report(
            &container::stop(1, "docker-run"),
            vec![(crate::model::container::stop::StopStep::Stop, None)],
            crate::model::container::stop::StopOutcome::Runs("no exit event".into()),
            (Moment(0), Moment(2_000_000)),
        );
        let mut json = serde_json::json!({});
        let seen = world.seen(Stage::Confirmed, Detail::Some);
        as_json(&mut json, &seen, &Done { stopped: &[report], ..Done::default() });
        insta::assert_snapshot!(serde_json::to_string_pretty(&json).unwrap(), @r#"
        {
          "commands_left": [],
          "container_reports": [
            {
              "detail": "no exit event",
              "engine": "/run/docker.sock",
              "id": "000000000001abababababababababababababababababababababababababab",
              "name": "helper-1",
              "outcome": "runs",
              "policy": "docker-run",
              "resident_bytes": 82000000,
              "steps": [
                {
                  "network": null,
                  "said": null,
                  "step": "stop"
                }
              ],
              "took_ms": 2
            }
          ],
          "container_stops": [
            {
              "engine": "/run/docker.sock",
              "grace_ms": 10000,
              "id": "000000000001abababababababababababababababababababababababababab",
              "networks": "keep",
              "policy": "docker-run",
              "removal": "yes",
              "started": "2026-03-10T10:00:00.000000001Z",
              "volumes": "keep"
            }
          ],
          "containers": [
            {
              "age_seconds": 345600,
              "argv": [
                "server",
                "--stdio"
              ],
              "because": "no process holds the write end of its stdin",
              "captures": {},
              "cure": null,
              "engine": "/run/docker.sock",
              "evidence": [
                {
                  "line": 0,
                  "list": "reap-when",
                  "rule": "client-gone",
                  "says": "yes",
                  "strength": "proof",
                  "why": "no process holds the write end of its stdin"
                }
              ],
              "id": "000000000001abababababababababababababababababababababababababab",
              "image": "mcp/sonarqube",
              "lookalike": null,
              "mode": "reap",
              "name": "helper-1",
              "policy": "docker-run",
              "processes": [],
              "resident_bytes": 82000000,
              "started": "2026-03-10T10:00:00.000000001Z",
              "unknown": null,
              "verdict": "orphaned"
            }
          ],
          "containers_waiting": [
            {
              "cause": null,
              "engine": "/run/docker.sock",
              "id": "000000000001abababababababababababababababababababababababababab",
              "name": "helper-1",
              "policy": "docker-run",
              "why": "pace"
            }
          ],
          "engines": [
            {
              "containers": 1,
              "from": "a usual place",
              "kind": "docker",
              "socket": "/run/docker.sock",
              "unknown": null,
              "version": "28.2.2"
            }
          ]
        }
        "#);
    }
}
