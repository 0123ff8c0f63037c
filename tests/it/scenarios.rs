//! Every folder of `tests/scenarios`: a world, a configuration, and what the user would see of each look.
//!
//! `expected.txt` is written by hand as far as the verdicts go; `REAPD_BLESS=1` fills in the reasons and their words,
//! and refuses to change a verdict. `REAPD_SCENARIO=b33` runs those whose name begins so.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use reapd::config::policy::Config;
use reapd::config::{self, Source};
use reapd::judge::{self, Ledger};
use reapd::model::known::Known;
use reapd::model::look::Look;
use reapd::model::plan::{Plan, Wait};
use reapd::model::question::{Answer, Question};
use reapd::model::verdict::{Judgement, Verdict, Verdicts};
use reapd::model::world::{self, Manner, World};
use reapd::plan::{self, Asked};

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios")
}

pub(crate) fn scenarios() -> Vec<PathBuf> {
    let only = std::env::var("REAPD_SCENARIO").unwrap_or_default();
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder())
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_dir() && name(path).starts_with(&only))
        .collect();
    found.sort();
    found
}

pub(crate) fn name(path: &Path) -> String {
    path.file_name().unwrap().to_string_lossy().into_owned()
}

#[test]
fn every_scenario_ends_as_expected() {
    let found = scenarios();
    let faults: Vec<String> = found
        .iter()
        .filter_map(|path| check(path).err().map(|fault| format!("== {}\n{fault}", name(path))))
        .collect();
    assert!(!found.is_empty(), "no scenario");
    assert!(faults.is_empty(), "{} of {} scenarios:\n{}", faults.len(), found.len(), faults.join("\n"));
}

/// Every scenario must be able to fail in both directions: somebody is reaped in it, and somebody else that is no
/// part of the scenery (pids below 1000) never is; unless its world says why not.
#[test]
fn every_scenario_can_fail_both_ways() {
    for path in scenarios() {
        let expected = std::fs::read_to_string(path.join("expected.txt")).unwrap();
        let world = std::fs::read_to_string(path.join("world.txt")).unwrap();
        let reaped: BTreeSet<&str> = verdicts(&expected)
            .iter()
            .filter_map(|line| line.split_once(": reap "))
            .flat_map(|(_, pids)| pids.split(' '))
            .collect();
        let looks = world::parse(&world).unwrap();
        let spared = looks
            .iter()
            .flat_map(|look| look.snapshot.table.rows())
            .any(|row| row.id.pid.number() >= 1000 && !reaped.contains(row.id.pid.to_string().as_str()));
        assert!(
            !reaped.is_empty() && spared || world.contains("# One way only:"),
            "{}: reaped {reaped:?}, somebody spared: {spared}; add a twin, or say '# One way only: …'",
            name(&path)
        );
    }
}

#[test]
fn every_scenario_stands_in_the_list() {
    let list = std::fs::read_to_string(folder().join("README.md")).unwrap();
    for path in scenarios() {
        assert!(
            list.contains(&format!("`{}`", name(&path))),
            "{} is not in tests/scenarios/README.md",
            name(&path)
        );
    }
}

/// A row of the table that names a test or a world that is not there proves nothing.
#[test]
fn everything_that_the_list_names_is_there() {
    let list = std::fs::read_to_string(folder().join("README.md")).unwrap();
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut tests = BTreeSet::new();
    let mut folders = vec![root.join("src"), root.join("tests/it")];
    while let Some(next) = folders.pop() {
        for entry in std::fs::read_dir(next).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(path).unwrap();
                let names = text.split("fn ").skip(1).filter_map(|rest| rest.split_once('('));
                tests.extend(names.map(|(name, _)| name.to_owned()));
            }
        }
    }
    // Tests are written with `_`, worlds with `-`; rules and policies are neither named with the one nor by a case.
    let is_world =
        |name: &str| name.contains('-') && name[1..].starts_with(|digit: char| digit.is_ascii_digit());
    let lost: Vec<&str> = list
        .lines()
        .filter(|line| line.starts_with("| "))
        .flat_map(|row| row.split('`').skip(1).step_by(2))
        .filter(|name| {
            name.contains('_') && !tests.contains(*name) || is_world(name) && !folder().join(name).is_dir()
        })
        .collect();
    assert!(lost.is_empty(), "{lost:?}");
}

fn check(path: &Path) -> Result<(), String> {
    let read = |file: &str| std::fs::read_to_string(path.join(file)).ok();
    let world = read("world.txt").ok_or("no world.txt")?;
    let (seen, _) = play(&world, read("config.toml").as_deref())?;
    let expected = read("expected.txt").unwrap_or_default();
    if seen == expected {
        return Ok(());
    }
    let bless = std::env::var("REAPD_BLESS").unwrap_or_default();
    if bless == "verdicts" || bless == "1" && verdicts(&seen) == verdicts(&expected) {
        std::fs::write(path.join("expected.txt"), seen).unwrap();
        return Ok(());
    }
    Err(format!("-- expected\n{expected}-- seen\n{seen}"))
}

/// What was saved of a host is judged as the host was: every answer that was given is in a strict world.
#[test]
fn a_saved_world_is_judged_the_same() {
    for path in scenarios() {
        let read = |file: &str| std::fs::read_to_string(path.join(file)).ok();
        let config = read("config.toml");
        let (seen, looks) = play(&read("world.txt").unwrap(), config.as_deref()).unwrap();
        let saved = world::print_all(&looks);
        let (again, _) = play(&saved, config.as_deref()).unwrap();
        assert_eq!(seen, again, "{}", name(&path));
    }
}

/// Without its personal details a world is judged as before, as far as it is judged by built-in policies alone.
#[test]
fn an_anonymised_world_is_judged_the_same() {
    for path in scenarios().into_iter().filter(|path| !path.join("config.toml").exists()) {
        let world = std::fs::read_to_string(path.join("world.txt")).unwrap();
        let (seen, looks) = play(&world, None).unwrap();
        let mut anonymiser = world::Anonymiser::default();
        let clean: Vec<Look> = looks.iter().map(|look| anonymiser.look(look)).collect();
        let (again, _) = play(&world::print_all(&clean), None).unwrap();
        assert_eq!(verdicts(&seen), verdicts(&again), "{}", name(&path));
    }
}

/// Returns a text without its reasons.
fn verdicts(text: &str) -> Vec<&str> {
    text.lines().map(|line| line.split_once(", because ").map_or(line, |(verdict, _)| verdict)).collect()
}

/// Returns what the user would see of each look of a world, of later looks only what is new; and the looks with
/// everything that was asked.
pub(crate) fn play(world: &str, config: Option<&str>) -> Result<(String, Vec<Look>), String> {
    let World { manner, looks } = world::parse_world(world).map_err(|error| format!("world.txt: {error}"))?;
    let home = looks[0].snapshot.own.home.clone();
    let config = configuration(config, home.as_ref())?;
    let mut ledger = Ledger::default();
    let mut text = String::new();
    let mut before = Vec::new();
    let mut played = looks;
    for (at, look) in played.iter_mut().enumerate() {
        let (verdicts, plan) = sweep(look, &config, &mut ledger, manner)?;
        let lines = lines(&verdicts, &plan);
        let _ = writeln!(text, "look {}", at + 1);
        for line in lines.iter().filter(|line| !before.contains(*line)) {
            let _ = writeln!(text, "  {line}");
        }
        before = lines;
    }
    Ok((text, played))
}

pub(crate) fn configuration(text: Option<&str>, home: Option<&bstr::BString>) -> Result<Config, String> {
    let rules: Vec<_> = judge::rules::ALL.iter().map(|rule| &rule.spec).collect();
    let home = home.map(|home| bstr::BStr::new(home.as_slice()));
    let context = config::Context { rules: &rules, home };
    let source = text.map(|text| Source { name: "config.toml", text });
    config::load(source, &context).map_err(|faults| {
        let text = text.unwrap_or_default();
        faults.iter().map(|fault| config::render(fault, text)).collect::<Vec<_>>().join("\n")
    })
}

/// Judges and plans one look, as a sweep does it that nobody watches.
fn sweep(
    look: &mut Look,
    config: &Config,
    ledger: &mut Ledger,
    manner: Manner,
) -> Result<(Verdicts, Plan), String> {
    sweep_as(look, config, ledger, manner, &Asked::default())
}

/// The same, as it was asked for.
pub(crate) fn sweep_as(
    look: &mut Look,
    config: &Config,
    ledger: &mut Ledger,
    manner: Manner,
    asked: &Asked,
) -> Result<(Verdicts, Plan), String> {
    ledger.begin(look, &config.confirm);
    let candidates = judge::candidates(look, config);
    loop {
        let open = judge::questions(look, config, &candidates, ledger);
        if open.is_empty() {
            break;
        }
        answer(look, open, manner)?;
    }
    let (verdicts, notes) = judge::judge(look, config, &candidates, ledger);
    ledger.remember(look, &candidates, &verdicts, &notes);
    loop {
        let open: Vec<Question> = plan::questions(&verdicts, look, config, asked)
            .into_iter()
            .filter(|question| !look.answers.contains_key(question))
            .collect();
        if open.is_empty() {
            break;
        }
        answer(look, open, manner)?;
    }
    let plan = plan::plan(&verdicts, look, config, asked);
    Ok((verdicts, plan))
}

/// Answers from what follows from the world; what it does not say is a fault of the scenario.
fn answer(look: &mut Look, open: Vec<Question>, manner: Manner) -> Result<(), String> {
    for question in open {
        let answer: Option<Known<Answer>> = match manner {
            Manner::Boring => world::answer(look, &question),
            Manner::Strict => None,
        };
        let answer = answer.ok_or_else(|| format!("the world does not say: {question:?}"))?;
        look.answers.insert(question, answer);
    }
    Ok(())
}

fn lines(verdicts: &Verdicts, plan: &Plan) -> Vec<String> {
    let mut lines = Vec::new();
    for judgement in &verdicts.judgements {
        let word = word(judgement, plan);
        lines.push(format!("{} {}: {word}, because {}", judgement.root, judgement.policy, judgement.because));
        for teardown in plan.teardowns.iter().filter(|teardown| teardown.judgement == *judgement) {
            for spared in &teardown.spared {
                lines.push(format!("  spared {}, because {}", spared.id, spared.why));
            }
        }
    }
    let would = |judgement: &&Judgement| {
        matches!(judgement.verdict, Verdict::Suspect { .. } | Verdict::Orphaned { .. })
    };
    for judgement in verdicts.offered.iter().filter(would) {
        let Judgement { root, policy, because, .. } = judgement;
        lines.push(format!("{root} {policy} (off): would reap, because {because}"));
    }
    for (id, why) in &verdicts.protected {
        lines.push(format!("protected {id}, because {why}"));
    }
    lines
}

fn word(judgement: &Judgement, plan: &Plan) -> String {
    match judgement.verdict {
        Verdict::Protected | Verdict::Alive => "keep".to_owned(),
        Verdict::Unknown => "could not tell".to_owned(),
        Verdict::Suspect { .. } => "suspect".to_owned(),
        Verdict::Orphaned { .. } => {
            if let Some(teardown) = plan.teardowns.iter().find(|teardown| teardown.judgement == *judgement) {
                let pids: Vec<String> =
                    teardown.members.iter().map(|member| member.identity.id.to_string()).collect();
                return format!("reap {}", pids.join(" "));
            }
            match plan
                .waiting
                .iter()
                .find(|waiting| waiting.judgement == *judgement)
                .map(|waiting| &waiting.why)
            {
                Some(Wait::ReportOnly) => "report".to_owned(),
                Some(Wait::Pace) => "next time".to_owned(),
                Some(Wait::SameCause(_)) => "hold (same cause)".to_owned(),
                Some(Wait::TooLarge(size)) => format!("hold ({size} processes)"),
                Some(Wait::Unidentified) => "keep (not identified)".to_owned(),
                Some(Wait::Successor) => "hold (its socket's name is another's)".to_owned(),
                Some(Wait::PartOf(outer)) => format!("with {outer}"),
                None => "neither planned nor waiting".to_owned(),
            }
        }
    }
}
