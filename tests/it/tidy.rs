//! The house laws that no lint can hold, each with a planted violation that it must find.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

/// One text file of the project.
struct File {
    path: String,
    text: String,
}

const FLOORS: [&str; 8] = ["model", "config", "engine", "observe", "judge", "plan", "act", "app"];
const PURE: [&str; 4] = ["model", "config", "judge", "plan"];
/// A file that is longer above its tests does more than one thing.
const LENGTH: usize = 400;
/// Extensions of files that hold text.
const KINDS: [&str; 6] = ["rs", "toml", "md", "txt", "yml", "sh"];

fn project() -> Vec<File> {
    let mut files = Vec::new();
    gather(Path::new(env!("CARGO_MANIFEST_DIR")), "", &mut files);
    assert!(files.iter().any(|file| file.path == "src/lib.rs"), "the project was not found");
    files
}

fn gather(root: &Path, below: &str, files: &mut Vec<File>) {
    for entry in fs::read_dir(root.join(below)).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        let path = if below.is_empty() { name.clone() } else { format!("{below}/{name}") };
        let kind = entry.file_type().unwrap();
        if kind.is_dir() && !["target", ".git"].contains(&name.as_str()) {
            gather(root, &path, files);
        } else if kind.is_file() {
            let extension = Path::new(&name).extension().and_then(|extension| extension.to_str());
            let known = extension.is_some_and(|extension| KINDS.contains(&extension));
            if known || below == ".ci" || name.starts_with("LICENSE") {
                files.push(File { text: fs::read_to_string(entry.path()).unwrap(), path });
            }
        }
    }
}

fn holds(law: fn(&File) -> Vec<String>) {
    let faults: Vec<String> = project().iter().flat_map(law).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

/// Asserts that `law` finds nothing in the first text and something in the second.
fn catches(law: fn(&File) -> Vec<String>, path: &str, right: &str, wrong: &str) {
    let file = |text: &str| File { path: path.to_owned(), text: text.to_owned() };
    assert_eq!(law(&file(right)), [] as [String; 0], "{path}: {right}");
    assert!(!law(&file(wrong)).is_empty(), "{path}: nothing found in {wrong}");
}

fn is_code(file: &File) -> bool {
    Path::new(&file.path).extension().is_some_and(|extension| extension == "rs")
}

/// Returns the floor that a file belongs to.
fn floor(path: &str) -> Option<&str> {
    let floor = path.strip_prefix("src/")?.split(['/', '.']).next()?;
    FLOORS.contains(&floor).then_some(floor)
}

/// Returns each line of code without its comment, numbered from 1.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines().enumerate().map(|(at, line)| (at + 1, line.split("//").next().unwrap_or("")))
}

/// Returns the text above the tests at its foot.
fn above_tests(text: &str) -> &str {
    text.split("\n#[cfg(test)]\nmod tests {").next().unwrap_or(text)
}

// -- the law of what is only told

/// What is said of commands inside containers is never read by what plans or acts; which there are, as their engine lists
/// them, may be.
fn acts_on_what_is_told(file: &File) -> Vec<String> {
    if !matches!(floor(&file.path), Some("plan" | "act")) {
        return Vec::new();
    }
    code(&file.text)
        .filter(|(_, line)| {
            ["ExecJudgement", "ExecFate", "verdicts.execs"].iter().any(|word| line.contains(word))
        })
        .map(|(at, _)| format!("{}:{at}: commands inside containers are only told", file.path))
        .collect()
}

#[test]
fn nothing_that_plans_or_acts_reads_what_is_only_told() {
    holds(acts_on_what_is_told);
    for path in ["src/plan/containers.rs", "src/act/containers/one.rs"] {
        catches(acts_on_what_is_told, path, "verdicts.containers", "for exec in &verdicts.execs {");
        catches(acts_on_what_is_told, path, "", "use crate::model::container::leftover::ExecJudgement;");
    }
}

// -- the import law

fn imports(file: &File) -> Vec<String> {
    let Some(own) = floor(&file.path) else { return Vec::new() };
    let allowed: &[&str] = match own {
        "app" => &FLOORS,
        "model" | "engine" => &["model"],
        "observe" | "act" => &["model", "config", "engine"],
        _ => &["model", "config"],
    };
    code(&file.text)
        .flat_map(|(at, line)| named(line, depth(&file.path)).into_iter().map(move |name| (at, name)))
        .filter(|(_, name)| FLOORS.contains(name) && *name != own && !allowed.contains(name))
        .map(|(at, name)| format!("{}:{at}: {own} names {name}: stages meet only in the model", file.path))
        .collect()
}

/// Returns how many times `super::` leads from a file's module to the root of the crate.
fn depth(path: &str) -> usize {
    let parts = path.trim_start_matches("src/").split('/').count();
    if path.ends_with("/mod.rs") { parts - 1 } else { parts }
}

/// Returns the first path segments that a line takes from the root of the crate, by `crate::` or enough `super::`.
fn named(line: &str, depth: usize) -> Vec<&str> {
    let up = "super::".repeat(depth);
    let from_crate = line.match_indices("crate::").map(|(at, _)| &line[at + "crate::".len()..]);
    let from_super =
        line.match_indices(&up).map(|(at, _)| line[at + up.len()..].trim_start_matches("super::"));
    let mut names = Vec::new();
    for rest in from_crate.chain(from_super) {
        match rest.strip_prefix('{') {
            // Every word of the group: one deeper in bears a floor's name only by accident.
            Some(group) => names.extend(group.split(['{', '}', ',', ' ']).map(head)),
            None => names.push(head(rest)),
        }
    }
    names
}

fn head(path: &str) -> &str {
    path.split(|letter: char| !letter.is_alphanumeric() && letter != '_').next().unwrap_or("")
}

#[test]
fn stages_never_name_one_another() {
    holds(imports);
    let rule = "src/judge/rules/cwd_gone.rs";
    catches(imports, rule, "use crate::model::id::Pid; // not crate::plan", "use crate::plan::pace;");
    catches(imports, rule, "use super::super::case;", "use super::super::super::act::carry_out;");
    catches(
        imports,
        rule,
        "use crate::{model::id, config::policy};",
        "use crate::{model::id, observe::look};",
    );
    catches(imports, "src/judge/mod.rs", "use super::model;", "use super::app;");
    catches(imports, "src/model/verdict.rs", "use super::plan::Plan;", "use crate::config::policy;");
    catches(imports, "src/config/policy.rs", "use crate::model::id;", "use crate::judge::rules;");
    catches(imports, "src/observe/mod.rs", "use crate::config::policy;", "crate::judge::judge(look)");
    catches(imports, "src/act/mod.rs", "", "use crate::judge;");
    catches(imports, "src/engine/read.rs", "use crate::model::id;", "use crate::config::policy;");
    catches(imports, "src/engine/mod.rs", "use crate::model::id;", "use crate::observe::clocks;");
    for stage in ["observe", "act"] {
        let path = format!("src/{stage}/mod.rs");
        catches(imports, &path, "use crate::engine::Client;", "use crate::app::cli;");
    }
    for stage in ["judge", "plan", "config", "model"] {
        catches(imports, &format!("src/{stage}/mod.rs"), "", "use crate::engine::Client;");
    }
    let app = File { path: "src/app/sweep.rs".into(), text: "use crate::judge;".into() };
    assert_eq!(imports(&app), [] as [String; 0], "app names all");
}

// -- pure floors

fn purity(file: &File) -> Vec<String> {
    const WORDS: [&str; 12] = [
        "std::fs",
        "std::env",
        "std::net",
        "std::process",
        "std::thread",
        "std::os::unix::net",
        "Instant::now",
        "SystemTime::now",
        "rustix",
        "libc",
        "println!",
        "sysinfo",
    ];
    let Some(own) = floor(&file.path).filter(|floor| PURE.contains(floor)) else { return Vec::new() };
    code(above_tests(&file.text))
        .flat_map(|(at, line)| WORDS.iter().filter(|word| line.contains(**word)).map(move |word| (at, word)))
        .map(|(at, word)| format!("{}:{at}: {own} is pure, and {word} is not", file.path))
        .collect()
}

#[test]
fn pure_floors_have_no_clock_file_socket_or_environment() {
    holds(purity);
    for word in ["std::fs::read(x)", "std::time::Instant::now()", "rustix::fs::open(x)", "use std::env;"] {
        catches(purity, "src/plan/pace.rs", "// no std::fs here", word);
        let edge = File { path: "src/act/mod.rs".into(), text: word.into() };
        assert_eq!(purity(&edge), [] as [String; 0]);
    }
}

// -- the shape of files

fn opening(file: &File) -> Vec<String> {
    let opened = !is_code(file) || file.text.starts_with("//! ");
    if opened { Vec::new() } else { vec![format!("{}: does not open with //!", file.path)] }
}

#[test]
fn every_file_says_what_it_is_for() {
    holds(opening);
    catches(opening, "src/act/mod.rs", "//! Carries out.", "use std::fs;");
}

fn length(file: &File) -> Vec<String> {
    let lines = above_tests(&file.text).lines().count();
    if !file.path.starts_with("src/") || !is_code(file) || lines <= LENGTH {
        return Vec::new();
    }
    vec![format!("{}: {lines} lines above its tests", file.path)]
}

#[test]
fn no_file_does_too_much() {
    let files = project();
    // What is compiled for tests alone counts as tests.
    let for_tests: BTreeSet<String> = files.iter().flat_map(test_modules).collect();
    let faults: Vec<String> =
        files.iter().filter(|file| !for_tests.contains(&file.path)).flat_map(length).collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));

    let long = "//! x\n".repeat(LENGTH + 1);
    let tested = format!("//! x\n#[cfg(test)]\nmod tests {{\n{long}}}\n");
    catches(length, "src/act/mod.rs", &tested, &long);
    let parent = File { path: "src/a/mod.rs".into(), text: "#[cfg(test)]\nmod support;\nmod b;".into() };
    assert_eq!(test_modules(&parent), ["src/a/support.rs"]);
}

/// Returns the files of the modules that a file declares for tests alone.
fn test_modules(file: &File) -> Vec<String> {
    let Some((place, name)) = file.path.strip_suffix(".rs").and_then(|path| path.rsplit_once('/')) else {
        return Vec::new();
    };
    let place = if name == "mod" || name == "lib" { place.to_owned() } else { format!("{place}/{name}") };
    let lines: Vec<&str> = file.text.lines().collect();
    lines
        .windows(2)
        .filter(|pair| pair[0].trim() == "#[cfg(test)]")
        .filter_map(|pair| pair[1].trim().split_once("mod ")?.1.strip_suffix(';'))
        .map(|module| format!("{place}/{module}.rs"))
        .collect()
}

// -- rules

/// Looks at one rule file beside the list of all rules.
fn rule(file: &File, list: &str) -> Vec<String> {
    const HEADINGS: [&str; 4] = [
        "//! # What it finds",
        "//! # Why it is not enough alone",
        "//! # When it is wrong",
        "//! # Settings",
    ];
    let Some(name) = file.path.strip_prefix("src/judge/rules/").and_then(|name| name.strip_suffix(".rs"))
    else {
        return Vec::new();
    };
    if name == "mod" || name.contains('/') {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for line in [format!("mod {name};"), format!("&{name}::RULE,")] {
        if !list.contains(&line) {
            faults.push(format!("{}: rules/mod.rs has no `{line}`", file.path));
        }
    }
    let mut from = 0;
    for heading in HEADINGS {
        match file.text[from..].find(&format!("{heading}\n")) {
            Some(at) => from += at + heading.len(),
            None => faults.push(format!("{}: no `{heading}`, or not in its place", file.path)),
        }
    }
    faults
}

#[test]
fn every_rule_is_registered_and_says_when_it_is_wrong() {
    let files = project();
    let for_tests: BTreeSet<String> = files.iter().flat_map(test_modules).collect();
    let list = files.iter().find(|file| file.path == "src/judge/rules/mod.rs").unwrap();
    let faults: Vec<String> = files
        .iter()
        .filter(|file| !for_tests.contains(&file.path))
        .flat_map(|file| rule(file, &list.text))
        .collect();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));

    let text =
        "//! # What it finds\n//! # Why it is not enough alone\n//! # When it is wrong\n//! # Settings\n";
    let list = "pub mod no_clients;\n&no_clients::RULE,\n";
    let file =
        |name: &str, text: &str| File { path: format!("src/judge/rules/{name}.rs"), text: text.to_owned() };
    assert_eq!(rule(&file("no_clients", text), list), [] as [String; 0]);
    assert_eq!(rule(&file("idle", text), list).len(), 2, "neither declared nor listed");
    let unsure = text.replace("//! # When it is wrong\n", "");
    assert_eq!(rule(&file("no_clients", &unsure), list).len(), 1);
}

// -- gates

/// Returns the names in the last column of the list of gates that are neither a test nor a scenario.
fn untested(gates: &str, tests: &BTreeSet<&str>) -> Vec<String> {
    gates
        .lines()
        .filter(|line| line.starts_with("| ") && !line.starts_with("| gate") && !line.starts_with("| ---"))
        .flat_map(|line| {
            let last = line.trim_end_matches(" |").rsplit("| ").next().unwrap_or("");
            let names: Vec<&str> = last.split('`').skip(1).step_by(2).collect();
            let bare = names.is_empty().then(|| format!("no test: {line}"));
            bare.into_iter().chain(
                names.into_iter().filter(|name| !tests.contains(name)).map(|name| format!("no test {name}")),
            )
        })
        .collect()
}

#[test]
fn every_gate_has_a_test_that_is_there() {
    let files = project();
    let mut tests: BTreeSet<&str> = BTreeSet::new();
    for file in &files {
        if let Some(scenario) = file.path.strip_prefix("tests/scenarios/") {
            tests.extend(scenario.split('/').next());
        } else if is_code(file) {
            tests.extend(code(&file.text).filter_map(|(_, line)| line.trim().strip_prefix("fn ")).map(head));
        }
    }
    let gates = files.iter().find(|file| file.path == "tests/gates.md").unwrap();
    assert_eq!(untested(&gates.text, &tests), [] as [String; 0]);

    let tests = BTreeSet::from(["kept_b01"]);
    assert_eq!(untested("| gate | test |\n| --- | --- |\n| x | `kept_b01` |", &tests), [] as [String; 0]);
    assert_eq!(untested("| x | `kept_b01`, `kept_b02` |", &tests), ["no test kept_b02"]);
    assert_eq!(untested("| x | |", &tests).len(), 1);
}

// -- words

fn empty_names(file: &File) -> Vec<String> {
    const WORDS: [&str; 3] = ["manager", "helper", "util"];
    if !is_code(file) {
        return Vec::new();
    }
    let types = code(&file.text).filter_map(|(_, line)| {
        ["struct ", "enum ", "trait ", "mod "].iter().find_map(|kind| Some(head(line.split_once(kind)?.1)))
    });
    std::iter::once(file.path.as_str())
        .chain(types)
        .filter(|name| WORDS.iter().any(|word| name.to_lowercase().contains(word)))
        .map(|name| format!("{}: {name} does not say what it does", file.path))
        .collect()
}

#[test]
fn names_say_what_a_thing_does() {
    holds(empty_names);
    catches(empty_names, "src/act/mod.rs", "struct Handle;", "pub struct ProcessManager;");
    catches(empty_names, "src/act/mod.rs", "enum Lost {}", "enum Utility {}");
    let file = File { path: "src/act/helpers.rs".into(), text: String::new() };
    assert_eq!(empty_names(&file).len(), 1);
}

fn promises(file: &File) -> Vec<String> {
    let words = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X:")];
    file.text
        .lines()
        .enumerate()
        .flat_map(|(at, line)| words.iter().filter_map(move |word| Some((at, line.split_once(word)?.1))))
        .filter(|(_, rest)| {
            let number = rest.strip_prefix("(#").and_then(|rest| rest.split_once(')'));
            number.is_none_or(|(number, _)| number.parse::<u32>().is_err())
        })
        .map(|(at, _)| format!("{}:{}: something to do, and no issue says so", file.path, at + 1))
        .collect()
}

#[test]
fn whatever_is_left_to_do_has_an_issue() {
    holds(promises);
    let word = concat!("TO", "DO");
    catches(promises, "src/lib.rs", &format!("// {word}(#12): more"), &format!("// {word}: more"));
}

fn machine_paths(file: &File) -> Vec<String> {
    // Put together here, so that this file does not hold what it looks for.
    let places = [concat!("/wo", "rk/"), concat!("/fa", "rm/"), concat!("/tmp/ba", "sh_jobs")];
    let starts = |line: &str, at: usize| {
        !line[..at].ends_with(|letter: char| letter.is_alphanumeric() || "~_-}".contains(letter))
    };
    file.text
        .lines()
        .enumerate()
        .filter(|(_, line)| {
            places.iter().any(|place| line.match_indices(place).any(|(found, _)| starts(line, found)))
        })
        .map(|(at, _)| format!("{}:{}: a path of one machine", file.path, at + 1))
        .collect()
}

#[test]
fn nothing_names_the_machine_it_was_written_on() {
    holds(machine_paths);
    let path = concat!("/wo", "rk/");
    catches(machine_paths, "README.md", &format!("~{path}prod"), &format!("see {path}notes"));
}

/// A copy that this process writes itself may be refused to whoever starts it; see `support/program.rs`.
fn own_copies(file: &File) -> Vec<String> {
    let call = concat!("fs::co", "py(");
    let is_test = file.path.starts_with("tests/");
    code(&file.text)
        .filter(|(_, line)| is_test && line.contains(call))
        .map(|(at, _)| format!("{}:{at}: copied by the tests themselves", file.path))
        .collect()
}

#[test]
fn what_tests_start_was_written_by_another_process() {
    holds(own_copies);
    let call = concat!("fs::co", "py(a, b);");
    catches(own_copies, "tests/it/run.rs", "program::copy(a, b);", call);
}

// -- the top of the project

#[test]
fn the_files_that_everybody_looks_for_are_there() {
    const WANTED: [&str; 12] = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
        "LICENSE-MIT",
        "LICENSE-APACHE",
        "config.example.toml",
        "Cargo.toml",
        "clippy.toml",
        "rustfmt.toml",
        ".ci/run",
        ".ci/check-darwin",
    ];
    let files = project();
    let missing = |files: &[File]| -> Vec<&str> {
        WANTED.into_iter().filter(|wanted| !files.iter().any(|file| file.path == *wanted)).collect()
    };
    assert_eq!(missing(&files), [] as [&str; 0]);
    assert_eq!(missing(&[]).len(), WANTED.len());
}

/// Returns the commands of the README's first block, without their comments.
fn commands(readme: &str) -> Vec<&str> {
    let Some(block) = readme.split("\n```").nth(1) else { return Vec::new() };
    block.lines().skip(1).map(|line| line.split(" #").next().unwrap_or(line).trim_end()).collect()
}

/// Says what is wrong between the README and what is run before a change goes in.
fn readme(readme: &str, run: &str) -> Vec<String> {
    let mut faults = Vec::new();
    match commands(readme)[..] {
        ["cargo run --release -- sweep --dry-run", tests] if tests.starts_with("cargo test") => {
            if run.lines().any(|line| !line.trim_start().starts_with('#') && line.contains("cargo test")) {
                faults.push(".ci/run writes the test command again instead of reading it".to_owned());
            }
        }
        ref other => faults.push(format!("the first block of README.md holds {other:?}")),
    }
    if !run.contains(r#"bash -c "$test_command""#) || !run.contains("README.md") {
        faults.push(".ci/run does not run the README's test command".to_owned());
    }
    faults
}

#[test]
fn the_commands_of_the_readme_are_the_ones_that_are_run() {
    let files = project();
    let text = |path: &str| files.iter().find(|file| file.path == path).map_or("", |file| &file.text);
    assert_eq!(readme(text("README.md"), text(".ci/run")), [] as [String; 0]);

    let good =
        "# reapd\n\n```sh\ncargo run --release -- sweep --dry-run   # shows\ncargo test   # tests\n```\n";
    let run = "awk … README.md\nstep tests bash -c \"$test_command\"\n";
    assert_eq!(readme(good, run), [] as [String; 0]);
    assert_eq!(readme(&good.replace("--dry-run", "--yes"), run).len(), 1);
    assert_eq!(readme(good, "README.md").len(), 1);
    assert_eq!(readme(good, &format!("{run}cargo test --lib\n")).len(), 1);
}
