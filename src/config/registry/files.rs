//! A registry of files, one record each.

use std::time::Duration;

use bstr::{BStr, ByteSlice as _};
use toml::de::DeTable;

use crate::config::policy::{FileRegistry, HolderPointers, PlacePart, PlacePattern};
use crate::config::read::{Key, Node, Reader, one_or_more};
use crate::config::settings::is_variable;

use super::{needed_pointer, pointer};

/// How much older than its record a process may be, where nothing is said: long enough for what first gets ready and
/// then writes its record.
const SETTLE: Duration = Duration::from_secs(30);

/// PATH_MAX on Linux.
const LONGEST: usize = 4096;

/// Reads what follows `files`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    section: &Key<'_>,
    table: &DeTable<'_>,
    places: &Node<'_>,
    home: Option<&BStr>,
) -> Option<FileRegistry> {
    reader.unknown_keys(table, &["files", "key", "holder", "settle"], &[]);
    let key = needed_pointer(reader, section, table, "key", "a pointer to it, for example key = \"/socket\"");
    let holder = table.get("holder").map_or(Some(None), |node| holder(reader, node).map(Some));
    let settle = table.get("settle").map_or(Some(SETTLE), |node| reader.duration(node));
    let elements = one_or_more(places);
    if elements.is_empty() {
        reader.fault(places.span(), "an empty list").hint("with no file, this registry lists nobody");
        return None;
    }
    let count = elements.len();
    let files: Vec<PlacePattern> =
        elements.into_iter().filter_map(|element| place(reader, element, home)).collect();
    (files.len() == count).then_some(())?;
    Some(FileRegistry { files, key: key?, holder: holder?, settle: settle? })
}

fn holder(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<HolderPointers> {
    let table = reader.table(node, "a table of pointers such as { pid = \"/pid\" }")?;
    reader.unknown_keys(table, &["pid", "start", "boot"], &[]);
    let Some(pid) = table.get("pid") else {
        reader.fault(node.span(), "a holder is named by its process number").hint(
            "holder = { pid = \"/pid\", start = \"/start\", boot = \"/boot\" }; leave out what it lacks",
        );
        return None;
    };
    let mut optional = |key: &str| match table.get(key) {
        Some(node) => pointer(reader, node).map(Some),
        None => Some(None),
    };
    let (start, boot) = (optional("start"), optional("boot"));
    Some(HolderPointers { pid: pointer(reader, pid)?, start: start?, boot: boot? })
}

/// Reads one pattern of paths.
fn place(reader: &mut Reader<'_>, node: &Node<'_>, home: Option<&BStr>) -> Option<PlacePattern> {
    let text = reader.text(node, "a path pattern such as \"~/.local/state/previews/*.json\"")?;
    match parts(text, home) {
        Ok((text, parts)) => Some(PlacePattern { text, parts }),
        Err((at, message, hint)) => {
            let at = at.min(text.len().saturating_sub(1));
            let end = text[at..].chars().next().map_or(at, |letter| at + letter.len_utf8());
            let span = reader.within(node, at..end);
            reader.fault(span, message).hint(hint);
            None
        }
    }
}

type Flaw = (usize, String, &'static str);

/// Takes a pattern apart, and returns it with `~` expanded.
fn parts(text: &str, home: Option<&BStr>) -> Result<(String, Vec<PlacePart>), Flaw> {
    const WHOLE: &str =
        "begin it with `/`, `~/`, or a variable that holds a whole directory: `{env.TMPDIR}/`";
    let mut parts = Vec::new();
    let (expanded, from) = if let Some(rest) = text.strip_prefix("{env.") {
        let Some((name, rest)) = rest.split_once('}').filter(|(name, _)| is_variable(name)) else {
            return Err((
                0,
                "no variable's name stands in these braces".into(),
                "for example `{env.TMPDIR}`",
            ));
        };
        parts.push(PlacePart::Variable(name.to_owned()));
        (rest.to_owned(), text.len() - rest.len())
    } else if let Some(rest) = text.strip_prefix('~') {
        if !rest.is_empty() && !rest.starts_with('/') {
            return Err((0, "only `~/` is known, not another user's home".into(), WHOLE));
        }
        let home = home.map(|home| home.trim_end_with(|letter| letter == '/'));
        let Some(home) = home.filter(|home| home.starts_with(b"/")) else {
            return Err((0, "there is no home directory that `~` could stand for".into(), WHOLE));
        };
        let Some(home) = home.to_str().ok().filter(|home| !home.contains(['*', '?'])) else {
            return Err((0, "the home directory has a name that cannot stand in a pattern".into(), WHOLE));
        };
        (format!("{home}{rest}"), 1)
    } else {
        (text.to_owned(), 0)
    };
    if expanded.len() > LONGEST || text.chars().any(char::is_control) {
        return Err((
            0,
            format!("no path is longer than {LONGEST} bytes or holds control characters"),
            WHOLE,
        ));
    }
    check(text, from)?;
    if !expanded.starts_with('/') || expanded.len() < 2 {
        return Err((0, format!("`{text}` is not a whole path"), WHOLE));
    }
    let whole = match parts.first() {
        Some(_) => text.to_owned(),
        None => expanded.clone(),
    };
    parts.push(PlacePart::Pattern(expanded));
    Ok((whole, parts))
}

/// Faults what a pattern may not hold, from this byte on.
fn check(text: &str, from: usize) -> Result<(), Flaw> {
    const PLAIN: &str = "only `*` and `?` are patterns here, each within one element";
    if let Some(at) = text[from..].find(['{', '}', '[', ']', '\\']) {
        let at = from + at;
        if text[at..].starts_with("{env.") {
            let hint = "a variable is a whole directory, and the path begins with it: `{env.TMPDIR}/previews/*.json`";
            return Err((at, "a variable stands only at the beginning".into(), hint));
        }
        return Err((at, format!("`{}` cannot stand in this pattern", &text[at..=at]), PLAIN));
    }
    if let Some(at) = text[from..].find("**") {
        return Err((from + at, "`**` cannot stand in this pattern".into(), PLAIN));
    }
    let elements = "name each directory on the way; no element is empty, `.` or `..`";
    let mut at = from;
    for (index, element) in text[from..].split('/').enumerate() {
        if index > 0 && matches!(element, "" | "." | "..") {
            return Err((at, "an element of this path is no name".into(), elements));
        }
        at += element.len() + 1;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_one, refuses};
    use super::*;
    use crate::config::policy::Source;

    fn files(text: &str) -> FileRegistry {
        match read_one(text) {
            Ok(Source::Files(files)) => files,
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn the_home_is_expanded_and_variables_are_not() {
        let files = files(
            "files = [\"{env.CLAUDE_PLUGIN_DATA}/state/*/broker.json\", \"~/x/?.json\", \"/tmp/*/b\"]\nkey = \"/k\"",
        );
        let parts: Vec<_> = files.files.iter().map(|place| place.parts.clone()).collect();
        let pattern = |text: &str| PlacePart::Pattern(text.into());
        assert_eq!(
            parts,
            [
                vec![PlacePart::Variable("CLAUDE_PLUGIN_DATA".into()), pattern("/state/*/broker.json")],
                vec![pattern("/home/ana/x/?.json")],
                vec![pattern("/tmp/*/b")],
            ]
        );
        assert_eq!(files.files[1].text, "/home/ana/x/?.json");
        assert_eq!((files.settle, files.holder), (Duration::from_secs(30), None));
    }

    #[test]
    fn a_holder_is_named_by_its_number_and_more() {
        let holder =
            |text: &str| files(&format!("files = \"/a/*\"\nkey = \"/k\"\nholder = {text}")).holder.unwrap();
        let bare = holder("{ pid = \"/pid\" }");
        assert_eq!(bare, HolderPointers { pid: "/pid".into(), start: None, boot: None });
        let whole = holder("{ pid = \"/p\", start = \"/s\", boot = \"/b\" }");
        assert_eq!((whole.start.as_deref(), whole.boot.as_deref()), (Some("/s"), Some("/b")));
        refuses("files = \"/a/*\"\nkey = \"/k\"\nholder = { start = \"/s\" }", "process number");
        refuses("files = \"/a/*\"\nkey = \"/k\"\nholder = { pid = 4 }", "pointer");
        refuses("files = \"/a/*\"\nkey = \"/k\"\nholder = { pid = \"/p\", exe = \"/e\" }", "unknown key");
    }

    #[test]
    fn a_place_is_a_whole_path_whose_variable_comes_first() {
        for (bad, why) in [
            ("x/*.json", "whole path"),
            ("", "whole path"),
            ("/", "no name"),
            ("~ben/x", "another user"),
            ("{env.A}", "whole path"),
            ("{env.A}x/*.json", "whole path"),
            ("{env.}/x", "variable's name"),
            ("{env.A-B}/x", "variable's name"),
            ("/a/{env.A}/x", "only at the beginning"),
            ("{env.A}/{env.B}/x", "only at the beginning"),
            ("/a/{key}/x", "cannot stand"),
            ("/a/[ab]/x", "cannot stand"),
            ("/a/**/x", "cannot stand"),
            ("/a/../x", "no name"),
            ("{env.A}/../x", "no name"),
            ("/a//x", "no name"),
            ("/a/", "no name"),
        ] {
            refuses(&format!("files = \"{bad}\"\nkey = \"/k\""), why);
        }
        refuses("files = []\nkey = \"/k\"", "empty list");
        refuses("files = \"/a/\\u0007\"\nkey = \"/k\"", "control characters");
    }
}
