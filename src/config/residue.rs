//! Reads `[process.NAME.residue]`: what may be deleted, named so narrowly that a slip of the pen deletes nothing else.

use std::time::Duration;

use bstr::BStr;
use toml::de::{DeTable, DeValue};

use super::lines::Ground;
use super::pattern::expand;
use super::policy::{Glob, Origin, RecordPlace, Records, Residue, Root};
use super::read::{Node, Reader, one_or_more};
use super::registry::pointer;

const KEYS: [&str; 6] = ["directory", "only", "stale", "roots", "records", "after"];

/// Long enough for anybody to come back to what was left a moment ago.
const AFTER: Duration = Duration::from_hours(1);

/// The temporary directories, as roots and as what the place of records begins with.
const TEMPORARY: &str = "{tmp}";

/// Reads the section; nothing comes back when something in it is at fault.
pub(super) fn residue(reader: &mut Reader<'_>, node: &Node<'_>, ground: &Ground<'_>) -> Option<Residue> {
    let table = reader.table(node, "a section")?;
    reader.unknown_keys(table, &KEYS, &[]);
    let Some(only) = table.get("only") else {
        reader
            .fault(node.span(), "`residue` has no `only`")
            .hint("the names of the files that may be deleted, for example only = [\"server.sock\"]");
        return None;
    };
    // Each is read before any is found missing: all faults of a section are told at once.
    let only = names(reader, only, "every file");
    let stale = table.get("stale").map_or(Some(Vec::new()), |node| names(reader, node, "every directory"));
    let directory = table.get("directory").map_or(Some(None), |node| ground.template(reader, node).map(Some));
    let roots =
        table.get("roots").map_or(Some(vec![Root::Temporary]), |node| roots(reader, node, ground.home));
    let records = table.get("records").map_or(Some(None), |node| records(reader, node, ground).map(Some));
    let after = table.get("after").map_or(Some(AFTER), |node| reader.duration(node));
    if !table.contains_key("directory") && !table.contains_key("stale") {
        reader
            .fault(node.span(), "`residue` names no directory")
            .hint("`directory` is that of a tree just ended, `stale` finds those that were left long ago");
        return None;
    }
    if let (Some(records), false) = (table.get("records"), table.contains_key("stale")) {
        reader
            .fault(records.span(), "`records` without `stale`")
            .hint("a record goes with a directory that `stale` fits; no other name in it is believed");
        return None;
    }
    let (only, stale, directory) = (only?, stale?, directory?);
    let (roots, records, after) = (roots?, records?, after?);
    Some(Residue { directory, only, stale, roots, records, after })
}

/// Reads patterns of names of one element.
fn names(reader: &mut Reader<'_>, node: &Node<'_>, all: &str) -> Option<Vec<Glob>> {
    let elements = one_or_more(node);
    if elements.is_empty() {
        reader.fault(node.span(), "an empty list").hint("with no name, nothing would ever be deleted");
        return None;
    }
    let count = elements.len();
    let mut globs = Vec::new();
    for element in elements {
        let Some(glob) = reader.glob(element) else { continue };
        if glob.text.contains('/')
            || glob.text.contains("**")
            || matches!(glob.text.as_str(), "" | "." | "..")
        {
            reader
                .fault(element.span(), "a name of one element belongs here")
                .hint("for example \"server.sock\" or \"run-*\", without a `/` and without `**`");
        } else if glob.is_open() {
            reader
                .fault(element.span(), format!("this would fit {all}"))
                .hint("name what only your program makes, for example \"preview-??????\"");
        } else {
            globs.push(glob);
        }
    }
    (globs.len() == count).then_some(globs)
}

fn roots(reader: &mut Reader<'_>, node: &Node<'_>, home: Option<&BStr>) -> Option<Vec<Root>> {
    let elements = one_or_more(node);
    let count = elements.len();
    let roots: Vec<Root> = elements.into_iter().filter_map(|element| root(reader, element, home)).collect();
    if count == 0 {
        reader.fault(node.span(), "an empty list").hint("leave it out for the temporary directories");
        return None;
    }
    (roots.len() == count).then_some(roots)
}

fn root(reader: &mut Reader<'_>, node: &Node<'_>, home: Option<&BStr>) -> Option<Root> {
    let text = reader.text(node, "a directory")?;
    if text == TEMPORARY {
        return Some(Root::Temporary);
    }
    match directory(text, home) {
        Ok(directory) => Some(Root::Directory(directory)),
        Err((what, hint)) => {
            reader.fault(node.span(), what).hint(hint);
            None
        }
    }
}

/// Returns a directory in which something may be deleted.
fn directory(text: &str, home: Option<&BStr>) -> Result<String, (String, &'static str)> {
    const WHOLE: &str = "begin it with `/` or `~/`, or write \"{tmp}\" for the temporary directories";
    if text.chars().any(char::is_control) || text.contains(['*', '?', '{', '[']) {
        return Err((format!("`{text}` is no directory by name"), WHOLE));
    }
    let path = expand(text, home).map_err(|why| (why, WHOLE))?;
    let Ok(path) = String::from_utf8(path.into()) else {
        return Err(("the home directory has a name that cannot stand here".into(), WHOLE));
    };
    if !path.starts_with('/') {
        return Err((format!("`{text}` is not a whole path"), WHOLE));
    }
    if path.split('/').skip(1).any(|element| matches!(element, "" | "." | "..")) {
        return Err((format!("`{text}` is no place to delete in"), "name one directory of your program"));
    }
    let above = |whole: &str| whole == path || whole.starts_with(&format!("{path}/"));
    let is_home = home.and_then(|home| std::str::from_utf8(home).ok()).is_some_and(above);
    let homes = ["/home", "/root", "/Users", "/var/root"];
    let is_a_home = homes.contains(&path.as_str())
        || ["/home/", "/Users/"]
            .iter()
            .any(|homes| path.strip_prefix(homes).is_some_and(|rest| !rest.contains('/')));
    if is_home || is_a_home {
        return Err((
            format!("`{text}` is a home directory, or above one"),
            "name the one directory in it that your program uses",
        ));
    }
    Ok(path)
}

fn records(reader: &mut Reader<'_>, node: &Node<'_>, ground: &Ground<'_>) -> Option<Records> {
    let table = reader.table(node, "a table such as { files = [\"~/x/*.json\"], key = \"/socket\" }")?;
    reader.unknown_keys(table, &["files", "key", "strip"], &[]);
    let files = needed(reader, node, table, "files")?;
    let key = needed(reader, node, table, "key")?;
    let mut elements = one_or_more(files);
    if elements.is_empty() {
        reader.fault(files.span(), "an empty list").hint("leave `records` out");
    }
    // What comes with us stands in nobody's way who has no home.
    if *ground.origin == Origin::Builtin && ground.home.is_none() {
        elements.retain(|node| !matches!(node.get_ref(), DeValue::String(text) if text.starts_with('~')));
    }
    let count = elements.len();
    let files: Vec<RecordPlace> =
        elements.into_iter().filter_map(|element| place(reader, element, ground.home)).collect();
    let key = pointer(reader, key);
    let strip = match table.get("strip") {
        Some(node) => Some(reader.text(node, "text")?.to_owned()),
        None => None,
    };
    (files.len() == count && count > 0).then_some(())?;
    Some(Records { files, key: key?, strip })
}

fn needed<'n, 't>(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    table: &'n DeTable<'t>,
    key: &str,
) -> Option<&'n Node<'t>> {
    let found = table.get(key);
    if found.is_none() {
        reader
            .fault(node.span(), format!("`records` has no `{key}`"))
            .hint("records = { files = \"~/.local/state/previews/*.json\", key = \"/socket\" }");
    }
    found
}

fn place(reader: &mut Reader<'_>, node: &Node<'_>, home: Option<&BStr>) -> Option<RecordPlace> {
    const HINT: &str = "for example \"~/.local/state/previews/*/state.json\" or \"{tmp}/previews/*.json\"";
    let text = reader.text(node, "a path pattern")?;
    let is_pattern = |element: &str| element.contains(['*', '?']);
    let (base, below): (Root, Vec<&str>) = if let Some(below) = text.strip_prefix("{tmp}/") {
        (Root::Temporary, below.split('/').collect())
    } else {
        let elements: Vec<&str> = text.split('/').collect();
        let fixed = elements.iter().take_while(|element| !is_pattern(element)).count();
        let (base, below) = elements.split_at(fixed.min(elements.len().saturating_sub(1)));
        let base = base.join("/");
        match directory(&base, home) {
            Ok(base) => (Root::Directory(base), below.to_vec()),
            Err((what, _)) => {
                let what = match (base.is_empty(), text.starts_with('/')) {
                    (true, true) => "not a pattern of files".to_owned(),
                    (true, false) => format!("`{text}` is not a whole path"),
                    (false, _) => what,
                };
                reader.fault(node.span(), what).hint(HINT);
                return None;
            }
        }
    };
    let is_bad = |element: &&str| {
        matches!(*element, "" | "." | "..")
            || element.contains(['{', '}', '[', ']', '\\'])
            || element.contains("**")
            || element.chars().any(char::is_control)
    };
    if below.is_empty() || below.iter().any(is_bad) || below.last().is_some_and(|last| *last == "*") {
        reader.fault(node.span(), "not a pattern of files").hint(HINT);
        return None;
    }
    Some(RecordPlace { base, below: below.into_iter().map(str::to_owned).collect() })
}
