//! The sections that hold for the whole run, and what is kept whatever a policy says.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use bstr::{BStr, BString, ByteSlice as _};
use toml::de::{DeTable, DeValue};

use crate::model::plan::{Ladder, Rung, Signal};
use crate::model::verdict::Mode;

use super::builtin;
use super::docker;
use super::ladder::rung;
use super::pattern::expand;
use super::policy::{AdmitEnv, ArgumentsShown, Confirm, Docker, Glob, JournalSettings, Keep, Limits};
use super::read::{Node, Reader, in_order, one_or_more};

/// What a file says besides its policies; what it does not say stands at its default.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) mode: Mode,
    pub(super) confirm: Confirm,
    pub(super) limits: Limits,
    pub(super) ladder: Ladder,
    pub(super) keep: Keep,
    pub(super) scope: AdmitEnv,
    pub(super) journal: JournalSettings,
    pub(super) docker: Docker,
    pub(super) builtin: BTreeMap<&'static str, Choice>,
}

/// What a file says of a built-in policy.
#[derive(Debug)]
pub(super) struct Choice {
    pub(super) key: Range<usize>,
    pub(super) mode: Option<Mode>,
    pub(super) roots: Option<Vec<Glob>>,
}

impl Default for Settings {
    fn default() -> Settings {
        let seconds = Duration::from_secs;
        let rung = |signal, grace| Rung { signal, grace: seconds(grace) };
        Settings {
            mode: Mode::Reap,
            confirm: Confirm {
                looks: 2,
                apart: seconds(10),
                min_age: seconds(60),
                errand: seconds(60),
                probe_timeout: seconds(2),
            },
            limits: Limits { trees_per_sweep: 20, processes_per_tree: 500, same_cause: 5 },
            ladder: Ladder(vec![rung(Signal::Term, 5), rung(Signal::Kill, 3)]),
            keep: Keep::default(),
            scope: AdmitEnv::Everybody,
            journal: JournalSettings { keep: seconds(90 * 86_400), arguments: ArgumentsShown::Redacted },
            docker: Docker::default(),
            builtin: BTreeMap::new(),
        }
    }
}

/// The sections, `process`, `container` and `registry` included.
const SECTIONS: [&str; 12] = [
    "mode",
    "confirm",
    "limits",
    "escalation",
    "keep",
    "scope",
    "docker",
    "builtin",
    "journal",
    "process",
    "container",
    "registry",
];

/// Sections that a later version will know.
const LATER: [&str; 3] = ["daemon", "metrics", "hook"];

/// Reads everything but `[process.*]`, `[container.*]` and `[registry.*]`.
pub(super) fn read(reader: &mut Reader<'_>, top: &DeTable<'_>, home: Option<&BStr>) -> Settings {
    let mut settings = Settings::default();
    reader.unknown_keys(top, &SECTIONS, &LATER);
    if let Some(node) = top.get("mode") {
        keep_if(&mut settings.mode, reader.word(node, &["reap", "report"]).map(mode));
    }
    if let Some(table) = section(reader, top, "confirm", &["looks", "apart", "min-age", "probe-timeout"]) {
        confirm(reader, table, &mut settings.confirm);
    }
    let keys = ["trees-per-sweep", "processes-per-tree", "same-cause"];
    if let Some(table) = section(reader, top, "limits", &keys) {
        let limits = &mut settings.limits;
        let slots = [&mut limits.trees_per_sweep, &mut limits.processes_per_tree, &mut limits.same_cause];
        for (key, slot) in keys.into_iter().zip(slots) {
            let value = table.get(key).and_then(|node| reader.number(node, 1..1_000_001));
            keep_if(slot, value.and_then(|value| usize::try_from(value).ok()));
        }
    }
    if let Some(table) = section(reader, top, "escalation", &["ladder"])
        && let Some(node) = table.get("ladder")
    {
        keep_if(&mut settings.ladder, ladder(reader, node));
    }
    if let Some(table) = section(reader, top, "keep", &["programs", "directories", "users"]) {
        settings.keep = keep(reader, table, home);
    }
    if let Some(table) = section(reader, top, "scope", &["admit-env"])
        && let Some(node) = table.get("admit-env")
    {
        keep_if(&mut settings.scope, scope(reader, node));
    }
    if let Some(table) = section(reader, top, "journal", &["keep", "arguments"]) {
        let journal = &mut settings.journal;
        keep_if(&mut journal.keep, table.get("keep").and_then(|node| above_zero(reader, node)));
        let words = ["full", "redacted", "none"];
        let word = table.get("arguments").and_then(|node| reader.word(node, &words));
        keep_if(
            &mut journal.arguments,
            word.map(|word| match word {
                "full" => ArgumentsShown::Full,
                "none" => ArgumentsShown::None,
                _ => ArgumentsShown::Redacted,
            }),
        );
    }
    if let Some(table) = section(reader, top, "docker", &docker::KEYS) {
        settings.docker = docker::read(reader, table, home);
    }
    if let Some(table) = top.get("builtin").and_then(|node| reader.table(node, "a section")) {
        settings.builtin = choices(reader, table, home);
    }
    settings
}

fn keep_if<T>(slot: &mut T, value: Option<T>) {
    if let Some(value) = value {
        *slot = value;
    }
}

fn section<'n, 't>(
    reader: &mut Reader<'_>,
    top: &'n DeTable<'t>,
    name: &str,
    known: &[&str],
) -> Option<&'n DeTable<'t>> {
    let table = reader.table(top.get(name)?, "a section")?;
    reader.unknown_keys(table, known, &[]);
    Some(table)
}

/// Returns the mode that a word names; anything else only tells.
pub(super) fn mode(word: &str) -> Mode {
    match word {
        "reap" => Mode::Reap,
        "off" => Mode::Off,
        _ => Mode::Report,
    }
}

/// Returns the word that names a mode.
pub fn mode_word(mode: Mode) -> &'static str {
    match mode {
        Mode::Reap => "reap",
        Mode::Report => "report",
        Mode::Off => "off",
    }
}

fn above_zero(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<Duration> {
    let span = reader.duration(node)?;
    if span.is_zero() {
        reader.fault(node.span(), "a span of nothing does not work here");
        return None;
    }
    Some(span)
}

fn confirm(reader: &mut Reader<'_>, table: &DeTable<'_>, confirm: &mut Confirm) {
    if let Some(node) = table.get("looks")
        && let Some(looks) = reader.number(node, 0..101)
    {
        if looks < 2 {
            reader
                .fault(node.span(), "`looks` must be at least 2")
                .hint("one look can fall into a moment between two states; nothing dies of one look");
        } else {
            confirm.looks = u32::try_from(looks).unwrap_or(2);
        }
    }
    keep_if(&mut confirm.apart, table.get("apart").and_then(|node| above_zero(reader, node)));
    keep_if(&mut confirm.min_age, table.get("min-age").and_then(|node| reader.duration(node)));
    confirm.errand = confirm.min_age;
    keep_if(&mut confirm.probe_timeout, table.get("probe-timeout").and_then(|node| above_zero(reader, node)));
}

/// Reads a ladder: one rung or more, KILL only as the last.
pub(super) fn ladder(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<Ladder> {
    let list = reader.list(node, "a list of rungs such as [\"TERM 5s\", \"KILL 3s\"]")?;
    let mut rungs = Vec::new();
    for element in &list {
        let text = reader.text(element, "a rung such as \"TERM 5s\"")?;
        match rung(text) {
            Ok(rung) => rungs.push(rung),
            Err((message, hint)) => {
                reader.fault(element.span(), message).hints.extend(hint);
                return None;
            }
        }
    }
    if rungs.is_empty() || rungs.len() > 8 {
        reader.fault(node.span(), "a ladder has one rung to eight");
        return None;
    }
    if let Some(early) = rungs[..rungs.len() - 1].iter().position(|rung| rung.signal == Signal::Kill) {
        reader.fault(list[early].span(), "nothing can follow KILL").hint("put KILL last, or leave it out");
        return None;
    }
    Some(Ladder(rungs))
}

fn keep(reader: &mut Reader<'_>, table: &DeTable<'_>, home: Option<&BStr>) -> Keep {
    let mut keep = Keep::default();
    if let Some(node) = table.get("programs") {
        for element in reader.list(node, "a list of program names").unwrap_or_default() {
            keep.programs.extend(program(reader, element));
        }
    }
    if let Some(node) = table.get("directories") {
        for element in reader.list(node, "a list of directories").unwrap_or_default() {
            let Some(text) = reader.text(element, "a directory") else { continue };
            match expand(text, home) {
                Ok(path) if path.starts_with(b"/") => keep.directories.push(path),
                Ok(_) => {
                    reader
                        .fault(element.span(), format!("`{text}` is not a whole path"))
                        .hint("begin it with `/` or `~/`");
                }
                Err(why) => {
                    reader.fault(element.span(), why);
                }
            }
        }
    }
    if let Some(key) = table.get_key_value("users").map(|(key, _)| key) {
        reader
            .fault(key.span(), "`users` works only with --host, which is not yet there in this version")
            .hint("take it out for now; other users' processes are never touched");
    }
    keep
}

/// Reads a glob for the file name of a program.
pub(super) fn program(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<Glob> {
    let glob = reader.glob(node)?;
    if glob.text.contains('/') {
        reader
            .fault(node.span(), "a program is named by its file name, without a path")
            .hint("for example \"node\"");
        return None;
    }
    if glob.text.is_empty() {
        reader.fault(node.span(), "no program has an empty name");
        return None;
    }
    Some(glob)
}

fn scope(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<AdmitEnv> {
    let text = reader.text(node, "\"NAME=VALUE\"")?;
    match text.split_once('=') {
        Some((name, value)) if is_variable(name) && !value.is_empty() => {
            Some(AdmitEnv::Marked { name: name.into(), value: value.into() })
        }
        _ => {
            reader
                .fault(node.span(), "a variable with its value belongs here")
                .hint("for example \"MY_PILOT=1\"");
            None
        }
    }
}

/// Says whether a text can name a variable of the environment.
pub(super) fn is_variable(name: &str) -> bool {
    !name.is_empty()
        && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
        && !name.starts_with(|letter: char| letter.is_ascii_digit())
}

/// Reads `[builtin]`.
fn choices(
    reader: &mut Reader<'_>,
    table: &DeTable<'_>,
    home: Option<&BStr>,
) -> BTreeMap<&'static str, Choice> {
    let mut choices = BTreeMap::new();
    for (key, node) in in_order(table) {
        let name = key.get_ref().as_ref();
        let Some(&known) = builtin::names().iter().find(|known| **known == name) else {
            reader.unknown(key.span(), "built-in policy", name, builtin::names().iter().copied());
            continue;
        };
        let mut choice = Choice { key: key.span(), mode: None, roots: None };
        let wants_roots = builtin::wants_roots(known);
        let mut rooted = false;
        if let DeValue::Table(table) = node.get_ref() {
            reader.unknown_keys(table, if wants_roots { &["mode", "roots"] } else { &["mode"] }, &[]);
            choice.mode = table.get("mode").and_then(|node| choice_mode(reader, known, node));
            let named = table.get("roots").filter(|_| wants_roots);
            choice.roots = named.and_then(|node| roots(reader, node, home));
            rooted = named.is_some();
        } else {
            choice.mode = choice_mode(reader, known, node);
        }
        if wants_roots && !rooted && choice.mode.is_some_and(|mode| mode != Mode::Off) {
            reader
                .fault(node.span(), format!("`{known}` needs the directories that you throw away"))
                .hint(format!("{known} = {{ mode = \"reap\", roots = [\"~/src/*/.worktrees\"] }}"));
        }
        choices.insert(known, choice);
    }
    choices
}

fn choice_mode(reader: &mut Reader<'_>, name: &str, node: &Node<'_>) -> Option<Mode> {
    if builtin::only_tells(name) {
        if reader.text(node, "\"report\" or \"off\"")? == "reap" {
            reader
                .fault(node.span(), format!("`{name}` ends nothing: it only tells"))
                .hint("only \"report\" and \"off\" exist for it");
            return None;
        }
        return reader.word(node, &["report", "off"]).map(mode);
    }
    reader.word(node, &["reap", "report", "off"]).map(mode)
}

/// Reads directories of throw-away work. One that holds the user's home, or everything, is refused: it would make
/// every deleted directory a proof.
pub(super) fn roots(reader: &mut Reader<'_>, node: &Node<'_>, home: Option<&BStr>) -> Option<Vec<Glob>> {
    let mut roots = Vec::new();
    for element in one_or_more(node) {
        let glob = reader.path_glob(element, home)?;
        if !glob.text.starts_with(['/', '~']) {
            reader
                .fault(element.span(), format!("`{}` is not a whole path", glob.text))
                .hint("begin it with `/` or `~/`");
            return None;
        }
        if glob.is_open() || holds_a_home(&glob, home) {
            reader
                .fault(element.span(), format!("`{}` holds a whole home directory or more", glob.text))
                .hint("name the directories that are thrown away, for example \"~/src/*/.worktrees\"");
            return None;
        }
        roots.push(glob);
    }
    if roots.is_empty() {
        reader.fault(node.span(), "no directory is named").hint("for example [\"~/src/*/.worktrees\"]");
        return None;
    }
    Some(roots)
}

/// Says whether a pattern fits a home directory, whatever stands in one, or what is above it.
fn holds_a_home(glob: &Glob, home: Option<&BStr>) -> bool {
    // No directory is named by a control character, unless a pattern names every directory.
    let any = "\u{1}";
    let usual = ["/root", "/home", "/Users"].map(BString::from);
    let mut homes: Vec<BString> = usual.iter().chain(home.map(BString::from).as_ref()).cloned().collect();
    homes.extend(["/home/", "/Users/"].map(|parent| BString::from(format!("{parent}{any}"))));
    homes.iter().any(|home| {
        let inside = BString::from([home.as_slice(), b"/", any.as_bytes()].concat());
        glob.fits_at_or_below(home.as_bstr()) || glob.fits_at_or_below(inside.as_bstr())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(text: &str) -> Vec<String> {
        let mut reader = Reader::new("f", text);
        let document = reader.parse().unwrap();
        read(&mut reader, document.get_ref(), Some(BStr::new("/srv/people/ana")));
        reader.into_faults().into_iter().map(|fault| fault.message).collect()
    }

    #[test]
    fn no_roots_that_hold_a_home() {
        let roots = |root: &str| {
            faults(&format!("[builtin]\ndeleted-worktree = {{ mode = \"reap\", roots = [\"{root}\"] }}"))
        };
        for root in ["/", "/*", "/**", "~", "~/", "~/*", "~/**", "/home", "/home/*/*", "/root", "/srv/people"]
        {
            assert_eq!(roots(root).len(), 1, "{root}");
        }
        for root in ["~/src/*/.worktrees", "~/worktrees/*", "/tmp/job-*", "/home/*/w/*", "/**/.worktrees"] {
            assert_eq!(roots(root), [""; 0], "{root}");
        }
    }

    #[test]
    fn one_look_is_never_enough() {
        assert_eq!(faults("confirm.looks = 1"), ["`looks` must be at least 2"]);
        assert_eq!(faults("confirm.looks = 2"), [""; 0]);
    }

    #[test]
    fn a_scope_is_a_variable_with_its_value() {
        for wrong in ["PILOT", "PILOT=", "=1", "1PILOT=1", "A B=1"] {
            assert_eq!(faults(&format!("scope.admit-env = \"{wrong}\"")).len(), 1, "{wrong}");
        }
        assert_eq!(faults("scope.admit-env = \"PILOT=1\""), [""; 0]);
    }

    #[test]
    fn modes_are_written_as_they_are_read() {
        for word in ["reap", "report", "off"] {
            assert_eq!(mode_word(mode(word)), word);
        }
    }
}
