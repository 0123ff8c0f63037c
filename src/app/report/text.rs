//! The report as a person reads it.

use std::fmt::Write as _;

use super::{Groups, KeepGroup, Kept, OfferGroup, ReapGroup, Seen, Stage, containers, few};
use crate::app::legible;
use crate::app::out::{Colour, Paint, paint};
use crate::app::words::{age, count, homely, number, size, span};
use crate::model::evidence::Cause;
use crate::model::look::{Gap, Scope};
use crate::model::plan::{Teardown, Wait};
use crate::model::verdict::{Judgement, Mode};

/// Returns the whole screen.
pub fn report(seen: &Seen<'_>, colour: Colour) -> String {
    let groups = seen.groups();
    let mut screen = Screen { seen, colour, text: String::new() };
    screen.opening(&groups);
    screen.reap(&groups.reap);
    screen.text.push_str(&containers::planned(seen, colour));
    let behind = super::behind::planned(seen, colour);
    screen.text.push_str(&behind);
    screen.waiting(&groups);
    screen.text.push_str(&containers::waiting(seen, colour));
    screen.keep(&groups.keep);
    screen.text.push_str(&containers::kept(seen, colour));
    screen.text.push_str(&containers::unknown(seen, colour));
    screen.text.push_str(&containers::left(seen, colour));
    screen.unknown(&groups);
    screen.offers(&groups.offers);
    screen.closing(&groups);
    screen.text
}

struct Screen<'a> {
    seen: &'a Seen<'a>,
    colour: Colour,
    text: String,
}

impl Screen<'_> {
    fn line(&mut self, text: &str) {
        self.text.push_str(text.trim_end());
        self.text.push('\n');
    }

    fn heading(&mut self, kind: Paint, name: &str, rest: &str) {
        let painted = paint(self.colour, kind, name);
        let gap = " ".repeat(17_usize.saturating_sub(name.chars().count()).max(1));
        self.text.push('\n');
        self.line(&format!("{painted}{gap}{rest}"));
    }

    fn opening(&mut self, groups: &Groups<'_>) {
        let seen = self.seen;
        let processes = count(seen.processes(), "process", "processes");
        let own = &seen.look.snapshot.own;
        let whose = match own.scope {
            Scope::User if own.uid == crate::model::id::Uid::ROOT => {
                format!("root's own {processes} (everybody's: --host)")
            }
            Scope::User | Scope::Host => processes,
        };
        let whose = match seen.containers() {
            Some(listed) => format!("{whose} and {}", count(listed, "container", "containers")),
            None => whose,
        };
        let nothing = groups.reap.is_empty()
            && groups.waiting.is_empty()
            && seen.plan.residue.removals.is_empty()
            && !seen.has_container_work();
        let end = match (nothing, seen.stage) {
            (true, _) => ": nothing to reap.",
            (false, Stage::DryRun) => ". Nothing was touched.",
            (false, Stage::FirstLook | Stage::Confirmed) => ".",
        };
        self.line(&format!("Looked at {whose} in {}{end}", span(seen.took)));
        if seen.config.mode == Mode::Report {
            self.line("The configuration says mode = \"report\": nothing is reaped, by hand neither.");
        }
        let waived = seen.without_proof();
        if !waived.is_empty() {
            let names = waived.join(", ");
            self.line(&format!("Without proof, as its configuration says on purpose: {names}."));
        }
    }

    fn reap(&mut self, groups: &[ReapGroup<'_>]) {
        if groups.is_empty() {
            return;
        }
        let all: Vec<&Teardown> = groups.iter().flat_map(|group| group.trees.iter().copied()).collect();
        let name = if self.seen.stage == Stage::Confirmed { "REAPING" } else { "WOULD REAP" };
        let when = when(self.seen);
        let total = totals(&all);
        self.heading(Paint::Reap, name, &format!("{}   {when}", total.join("   ")));
        let rows: Vec<Vec<String>> = groups
            .iter()
            .map(|group| {
                let mut row = vec![group.policy.to_owned()];
                row.extend(totals(&group.trees));
                row
            })
            .collect();
        let widths = widths(&rows);
        let waived = self.seen.without_proof();
        for (group, row) in groups.iter().zip(&rows) {
            let proof = if waived.contains(&group.policy) { " (without proof)" } else { "" };
            let reason = homely(&group.reason, self.seen.home);
            self.line(&format!("  {}   {reason}{proof}", padded(row, &widths)));
            self.trees(&group.trees);
        }
    }

    fn trees(&mut self, trees: &[&Teardown]) {
        let shown = few(self.seen.detail, trees.len());
        let rows: Vec<Vec<String>> = trees[..shown].iter().map(|tree| self.tree(tree)).collect();
        let widths = widths(&rows);
        for (row, tree) in rows.iter().zip(trees) {
            let place = self.seen.place(&tree.judgement);
            self.line(&format!("    {}   {place}", padded(row, &widths)));
        }
        self.more(trees.len() - shown);
    }

    fn tree(&self, tree: &Teardown) -> Vec<String> {
        let judgement = &tree.judgement;
        vec![
            judgement.root.to_string(),
            age(self.seen.look.snapshot.began.boot.since(judgement.began)),
            count(tree.members.len(), "process", "processes"),
            size(judgement.resident),
        ]
    }

    fn more(&mut self, count: usize) {
        if count > 0 {
            self.line(&format!("    … {} more (--all)", number(count)));
        }
    }

    fn waiting(&mut self, groups: &Groups<'_>) {
        if groups.waiting.is_empty() {
            return;
        }
        let total: usize = groups.waiting.iter().map(|(_, count)| count).sum();
        self.heading(Paint::Keep, "HELD BACK", &count(total, "proven tree", "proven trees"));
        for (waiting, number) in &groups.waiting {
            let why = wait(&waiting.why);
            self.line(&format!("  {}   {number}   {why}", waiting.judgement.policy));
        }
    }

    fn keep(&mut self, groups: &[KeepGroup<'_>]) {
        if groups.is_empty() {
            return;
        }
        let total: usize = groups.iter().map(|group| group.trees.len()).sum();
        let what = if total == 1 { "tree that may look leaked" } else { "trees that may look leaked" };
        self.heading(Paint::Keep, "WOULD KEEP", &format!("{} {what}", number(total)));
        let rows: Vec<Vec<String>> =
            groups.iter().map(|group| vec![group.policy.to_owned(), number(group.trees.len())]).collect();
        let widths = widths(&rows);
        for (group, row) in groups.iter().zip(&rows) {
            self.line(&format!("  {}   {}", padded(row, &widths), self.kept(group)));
            let indent = " ".repeat(2 + widths.iter().sum::<usize>() + 3 + 3);
            self.holders(group, &indent);
        }
    }

    fn kept(&self, group: &KeepGroup<'_>) -> String {
        match &group.why {
            Kept::Vetoed(veto) => vetoed(veto),
            Kept::Held => "a live process holds their stdin:".to_owned(),
            Kept::StdinEnded => {
                "their stdin ended, but they can still be reached or are still read: a sign, not a proof"
                    .to_owned()
            }
            Kept::Adopted => "their parent is gone, and nothing proves that nobody uses them".to_owned(),
            Kept::ReportOnly if self.seen.config.mode == Mode::Report => {
                "proven; the configuration says mode = \"report\", so they are only reported".to_owned()
            }
            Kept::ReportOnly => {
                format!(
                    "its policy only reports. Reap these too:   reapd policies --set {}=reap",
                    group.policy
                )
            }
            Kept::NotYet => format!(
                "proven, but not for long enough yet (at least {} old, seen {})",
                span(self.seen.config.confirm.min_age),
                count(self.seen.config.confirm.looks as usize, "time", "times"),
            ),
        }
    }

    fn holders(&mut self, group: &KeepGroup<'_>, indent: &str) {
        let shown = few(self.seen.detail, group.holders.len());
        let rows: Vec<Vec<String>> = group.holders[..shown]
            .iter()
            .map(|(id, count)| vec![format!("{} {id}", self.seen.name(*id)), number(*count)])
            .collect();
        let widths = widths(&rows);
        for row in &rows {
            self.line(&format!("{indent}  {}", padded(row, &widths)));
        }
        let rest = &group.holders[shown..];
        if !rest.is_empty() {
            let trees: usize = rest.iter().map(|(_, count)| count).sum();
            let more = format!("… {} more holders", number(rest.len()));
            self.line(&format!("{indent}  {more}   {}", number(trees)));
        }
        if let Some((first, count)) = group.holders.first() {
            self.line(&format!(
                "{indent}From outside nobody can tell a forgotten one from an idle one. Ending {first} frees {count}."
            ));
        }
    }

    fn unknown(&mut self, groups: &Groups<'_>) {
        let gaps = &self.seen.look.snapshot.gaps;
        let total: usize = groups.unknown.iter().map(|(_, _, trees)| trees.len()).sum();
        if total == 0 && gaps.is_empty() {
            return;
        }
        let kept =
            if total == 0 { String::new() } else { format!("{}   kept", count(total, "tree", "trees")) };
        self.heading(Paint::Unknown, "COULD NOT TELL", &kept);
        for (policy, why, trees) in &groups.unknown {
            let why = homely(&legible::text(why), self.seen.home);
            self.line(&format!("  {policy}   {}   {why}", number(trees.len())));
            let shown = few(self.seen.detail, trees.len());
            for judgement in &trees[..shown] {
                let line = self.kept_tree(judgement);
                self.line(&line);
            }
            self.more(trees.len() - shown);
        }
        for gap in gaps {
            self.gap(gap);
        }
    }

    fn kept_tree(&self, judgement: &Judgement) -> String {
        format!("    {}   {}", judgement.root, self.seen.command(judgement))
    }

    fn gap(&mut self, gap: &Gap) {
        let what = legible::text(&gap.source);
        let why = homely(&legible::text(&gap.why.to_string()), self.seen.home);
        self.line(&format!("  blind   {what}: {why}"));
        if let Some(cure) = &gap.cure {
            self.line(&format!("          → {}", legible::text(cure)));
        }
    }

    /// One line for each policy that is off and would add something.
    fn offers(&mut self, offers: &[OfferGroup<'_>]) {
        if !offers.is_empty() {
            self.text.push('\n');
        }
        for offer in offers {
            let trees = count(offer.trees, "tree", "trees");
            let why = homely(&legible::text(offer.because), self.seen.home);
            self.line(&format!("{} (off) would add {trees}, {}: {why}", offer.policy, size(offer.resident)));
        }
    }

    fn closing(&mut self, groups: &Groups<'_>) {
        let tree = groups.reap.first().and_then(|group| group.trees.first());
        let stop = self.seen.stops().next();
        let first = match (tree, stop) {
            (Some(tree), _) => tree.judgement.root.to_string(),
            (None, Some(stop)) => stop.judgement.at.to_string(),
            (None, None) => return,
        };
        if self.seen.stage != Stage::DryRun {
            return;
        }
        let trees: usize = groups.reap.iter().map(|group| group.trees.len()).sum();
        let total = trees + self.seen.stops().count();
        let only = self.seen.only.map(|only| format!(" --policy {only}")).unwrap_or_default();
        self.text.push('\n');
        self.line(&format!(
            "Reap the {}:  reapd sweep{only}        Why one of them:  reapd why {first}",
            number(total),
        ));
    }
}

/// Returns when what is planned would be done; nothing where that is now.
pub(super) fn when(seen: &Seen<'_>) -> String {
    let confirm = seen.config.confirm;
    let further = confirm.looks.saturating_sub(1);
    match seen.stage {
        Stage::Confirmed => String::new(),
        Stage::DryRun | Stage::FirstLook if further == 1 => {
            format!("after a second look, {} later", span(confirm.apart))
        }
        Stage::DryRun | Stage::FirstLook => {
            format!("after {further} more looks, {} apart", span(confirm.apart))
        }
    }
}

/// Returns what keeps trees that would go but for a veto, or for a rule of a `spare-when` line.
pub(super) fn vetoed(veto: &str) -> String {
    let words = match veto {
        "clients" => "in use: a client is connected",
        "stopped" => "stopped: somebody means to go on with them",
        "traced" => "a debugger holds them",
        "frozen" => "frozen: somebody paused them",
        "kept" => "you marked them to be kept",
        "unit" => "a service manager runs them",
        "terminal-master" => "in use: other programs run in a terminal of theirs",
        "foreign" => "they live in a container or a sandbox",
        rule => return format!("their policy spares them (spare-when: {})", legible::text(rule)),
    };
    words.to_owned()
}

/// Returns why a proven tree waits, and what makes it go on.
pub fn wait(why: &Wait) -> String {
    match why {
        Wait::ReportOnly => {
            "only reported: its policy, or the whole configuration, says mode = \"report\"".to_owned()
        }
        Wait::Pace => "more than trees-per-sweep at once; the next sweep takes them".to_owned(),
        Wait::SameCause(cause) => {
            let cause = self::cause(cause);
            format!(
                "too many verdicts hang on one thing, {cause}. When that is all right:   reapd release {cause}"
            )
        }
        Wait::TooLarge(members) => {
            format!("{} processes, more than processes-per-tree. Have a look:   reapd held", number(*members))
        }
        Wait::Unidentified => "who it is could not be read in full, so nothing is signalled".to_owned(),
        Wait::Successor => {
            "another server has its socket's name by now, which it would remove when asked to end, and \
             its ladder never kills"
                .to_owned()
        }
        Wait::PartOf(root) => format!("it goes with the tree of {root}"),
    }
}

/// Returns a cause as `reapd held` shows it and `reapd release` takes it.
pub fn cause(cause: &Cause) -> String {
    match cause {
        Cause::Mount(path) => crate::model::escape::escape(path),
        Cause::Registry(name) => format!("registry:{}", legible::text(name)),
        Cause::Clock => "clock".to_owned(),
        Cause::Engine(engine) => format!("engine:{}", legible::text(&engine.0)),
    }
}

/// Returns how many trees, processes and bytes these are.
pub fn totals(trees: &[&Teardown]) -> Vec<String> {
    let processes: usize = trees.iter().map(|tree| tree.members.len()).sum();
    let resident: u64 = trees.iter().map(|tree| tree.judgement.resident).sum();
    vec![count(trees.len(), "tree", "trees"), count(processes, "process", "processes"), size(resident)]
}

pub(super) fn widths(rows: &[Vec<String>]) -> Vec<usize> {
    let columns = rows.iter().map(Vec::len).max().unwrap_or(0);
    let width = |at: usize| rows.iter().filter_map(|row| row.get(at)).map(|cell| cell.chars().count()).max();
    (0..columns).map(|at| width(at).unwrap_or(0)).collect()
}

/// Returns cells side by side: names to the left, figures to the right.
pub(super) fn padded(row: &[String], widths: &[usize]) -> String {
    let mut line = String::new();
    for (at, (cell, width)) in row.iter().zip(widths).enumerate() {
        let _ = match at {
            0 => write!(line, "{cell:<width$}"),
            _ => write!(line, "   {cell:>width$}"),
        };
    }
    line
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::app::report::Detail;
    use crate::app::sample;
    use crate::config::policy::{Config, ProofNeed};
    use crate::model::known::{Reason, Unknown};
    use crate::model::look::{Arguments, Look};
    use crate::model::plan::{Plan, Waiting};
    use crate::model::verdict::{Lookalike, Verdict, Verdicts};

    struct World {
        look: Look,
        verdicts: Verdicts,
        plan: Plan,
        config: Config,
    }

    impl World {
        fn new() -> World {
            World {
                look: Look::new(sample::snapshot(&[])),
                verdicts: Verdicts::default(),
                plan: Plan::default(),
                config: sample::config(),
            }
        }

        fn knows(&mut self, pid: i32, argv: &[&str]) {
            let argv: Vec<bstr::BString> = argv.iter().map(|&word| word.into()).collect();
            self.look.snapshot.arguments.push(Arguments {
                id: sample::process(pid),
                uid: crate::model::id::Uid(1000),
                argv: Ok(argv.into()),
            });
            self.look.snapshot.arguments.sort_by_key(|entry| entry.id);
        }

        fn goes(&mut self, pid: i32, policy: &str) {
            let teardown = sample::teardown(pid, policy);
            self.verdicts.judgements.push(teardown.judgement.clone());
            self.plan.teardowns.push(teardown);
        }

        fn stays(&mut self, pid: i32, verdict: Verdict, lookalike: Option<Lookalike>) {
            let judgement = sample::judgement(pid, "mcp-server");
            self.verdicts.judgements.push(Judgement {
                verdict,
                lookalike,
                because: "its stdin: the kernel refused".into(),
                ..judgement
            });
        }

        fn screen(&self, stage: Stage, detail: Detail) -> String {
            let seen = Seen {
                look: &self.look,
                verdicts: &self.verdicts,
                plan: &self.plan,
                config: &self.config,
                home: Some("/home/ana".into()),
                took: Duration::from_millis(41),
                only: None,
                stage,
                detail,
            };
            report(&seen, Colour::None)
        }
    }

    #[test]
    fn a_quiet_sweep_says_so_in_one_line() {
        let mut world = World::new();
        world.knows(10, &["bash"]);
        insta::assert_snapshot!(world.screen(Stage::DryRun, Detail::Some), @"Looked at 1 process in 41 ms: nothing to reap.");
    }

    #[test]
    fn what_goes_what_stays_and_what_could_not_be_told() {
        let mut world = World::new();
        world.knows(883, &["/usr/bin/claude", "--resume"]);
        world.knows(5_120, &["/opt/codex", "app-server"]);
        for pid in [1_000, 1_100, 21_066, 30_000, 40_000] {
            world.goes(pid, "codex-broker");
        }
        world.goes(50, "x");
        for pid in [60, 70, 80] {
            world.stays(pid, Verdict::Alive, Some(Lookalike::HeldBy(sample::process(5_120))));
        }
        world.stays(90, Verdict::Alive, Some(Lookalike::HeldBy(sample::process(883))));
        world.stays(91, Verdict::Alive, Some(Lookalike::Adopted));
        world.stays(94, Verdict::Alive, Some(Lookalike::Vetoed("clients".into())));
        world.stays(96, Verdict::Alive, Some(Lookalike::Vetoed("idle".into())));
        world.stays(92, Verdict::Alive, None);
        world.stays(93, Verdict::Suspect { since: crate::model::moment::Moment(1), looks: 1 }, None);
        world.stays(7_711, Verdict::Unknown, None);
        world.plan.waiting.push(Waiting {
            judgement: sample::judgement(95, "x"),
            why: Wait::SameCause(Cause::Mount("/mnt/nfs/ana".into())),
        });
        world.look.snapshot.gaps.push(Gap {
            source: "sockets".into(),
            why: Unknown::new(Reason::Denied, "sock_diag"),
            cure: Some("run it as root".into()),
        });
        insta::assert_snapshot!(world.screen(Stage::DryRun, Detail::Some), @r"
        Looked at 2 processes in 41 ms. Nothing was touched.

        WOULD REAP       6 trees   12 processes   4.9 GB   after a second look, 10 s later
          codex-broker   5 trees   10 processes   4.1 GB   its workspace was deleted
            1000    4d 0h   2 processes   812 MB   ~/w
            1100    4d 0h   2 processes   812 MB   ~/w
            21066   4d 0h   2 processes   812 MB   ~/w
            … 2 more (--all)
          x               1 tree    2 processes   812 MB   its workspace was deleted
            50   4d 0h   2 processes   812 MB   ~/w

        HELD BACK        1 proven tree
          x   1   too many verdicts hang on one thing, /mnt/nfs/ana. When that is all right:   reapd release /mnt/nfs/ana

        WOULD KEEP       8 trees that may look leaked
          mcp-server   4   a live process holds their stdin:
                             codex app-server 5120   3
                             claude 883              1
                           From outside nobody can tell a forgotten one from an idle one. Ending 5120 frees 3.
          mcp-server   1   their parent is gone, and nothing proves that nobody uses them
          mcp-server   1   in use: a client is connected
          mcp-server   1   their policy spares them (spare-when: idle)
          mcp-server   1   proven, but not for long enough yet (at least 60 s old, seen 2 times)

        COULD NOT TELL   1 tree   kept
          mcp-server   1   its stdin: the kernel refused
            7711   node broker.mjs serve --cwd ~/w
          blind   sockets: sock_diag: the kernel refused
                  → run it as root

        Reap the 6:  reapd sweep        Why one of them:  reapd why 1000
        ");
    }

    #[test]
    fn everything_is_listed_when_asked_for() {
        let mut world = World::new();
        for pid in [1_000, 1_100, 21_066, 30_000, 40_000] {
            world.goes(pid, "codex-broker");
        }
        let screen = world.screen(Stage::Confirmed, Detail::All);
        assert!(screen.contains("40000") && !screen.contains("more"), "{screen}");
        assert!(screen.contains("REAPING"), "{screen}");
    }

    #[test]
    fn with_mode_report_the_screen_says_why_nothing_is_reaped() {
        let mut world = World::new();
        world.config.mode = Mode::Report;
        world.plan.waiting.push(Waiting { judgement: sample::judgement(95, "x"), why: Wait::ReportOnly });
        insta::assert_snapshot!(world.screen(Stage::FirstLook, Detail::Some), @r#"
        Looked at 0 processes in 41 ms: nothing to reap.
        The configuration says mode = "report": nothing is reaped, by hand neither.

        WOULD KEEP       1 tree that may look leaked
          x   1   proven; the configuration says mode = "report", so they are only reported
        "#);
    }

    #[test]
    fn policies_without_proof_are_named_even_when_they_found_nothing() {
        let mut world = World::new();
        world.config.policies.push(crate::config::policy::Policy {
            proof: ProofNeed::Waived,
            ..sample::policy("codex-broker-idle")
        });
        let screen = world.screen(Stage::DryRun, Detail::Some);
        assert!(
            screen.contains("Without proof, as its configuration says on purpose: codex-broker-idle."),
            "{screen}"
        );
    }

    #[test]
    fn what_is_off_says_in_one_line_what_it_would_add() {
        let mut world = World::new();
        world.goes(10, "codex-broker");
        let offered = |pid: i32, verdict: Verdict| Judgement {
            verdict,
            because: "no client is connected, for 30m".into(),
            ..sample::judgement(pid, "codex-broker-idle")
        };
        let since = crate::model::moment::Moment(0);
        let suspect = || Verdict::Suspect { since, looks: 1 };
        // Nothing that another policy ends anyway, and nothing that is kept.
        world.verdicts.offered = vec![offered(10, suspect()), offered(20, Verdict::Alive)];
        assert!(!world.screen(Stage::DryRun, Detail::Some).contains("would add"));
        world.verdicts.offered.extend([offered(30, suspect()), offered(40, Verdict::Orphaned { since })]);
        let screen = world.screen(Stage::DryRun, Detail::Some);
        let resident = size(2 * sample::judgement(30, "x").resident);
        let line = format!(
            "\ncodex-broker-idle (off) would add 2 trees, {resident}: no client is connected, for 30m\n"
        );
        assert!(screen.contains(&line), "{screen}");
    }

    #[test]
    fn a_hostile_name_moves_no_cursor_and_forges_no_line_s4() {
        let mut world = World::new();
        let mut teardown = sample::teardown(10, "p");
        teardown.judgement.captures.clear();
        teardown.judgement.argv = vec!["a\nWOULD REAP\u{1b}[2J".into(), "--token=t0p".into()];
        world.plan.teardowns.push(teardown);
        let screen = world.screen(Stage::DryRun, Detail::Some);
        assert!(screen.contains("a\\nWOULD REAP\\u{1b}[2J --token=***"), "{screen}");
    }
}
