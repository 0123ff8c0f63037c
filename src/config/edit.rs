//! `reapd policies --set NAME=MODE`: one word of the user's file changed, with its comments and order kept.

use std::ops::Range;

use toml::de::{DeTable, DeValue};

use crate::model::verdict::Mode;

use super::builtin;
use super::fault::Fault;
use super::read::{Node, Reader};
use super::settings::mode_word;

/// Returns the user's text with a built-in policy set to a mode; `[builtin]` is made where there is none.
///
/// The text need not be right otherwise, but it must be TOML.
pub fn set_builtin_mode(text: &str, name: &str, mode: Mode) -> Result<String, Vec<Fault>> {
    let mut reader = Reader::new("config.toml", text);
    if !builtin::names().contains(&name) {
        reader.unknown(0..0, "built-in policy", name, builtin::names().iter().copied());
        return Err(reader.into_faults());
    }
    let Some(document) = reader.parse() else { return Err(reader.into_faults()) };
    let top = document.get_ref();
    // What the file replaces is its own to set; what it does not, `[builtin]` is for.
    let sections = builtin::sections(name);
    let replaced: Vec<_> = sections
        .iter()
        .filter_map(|section| Some((section, top.get(*section).and_then(|node| child(node, name))?.span())))
        .collect();
    if let Some((section, span)) = replaced.first().filter(|_| replaced.len() == sections.len()) {
        reader
            .fault(span.clone(), format!("`{name}` is replaced by `[{section}.{name}]` of this file"))
            .hint(format!("set `mode` in [{section}.{name}] instead"));
        return Err(reader.into_faults());
    }
    let here = top.get("builtin").and_then(|node| child(node, name));
    if builtin::wants_roots(name) && mode != Mode::Off && here.and_then(|node| child(node, "roots")).is_none()
    {
        let span = here.map_or(0..0, toml::Spanned::span);
        reader.fault(span, format!("`{name}` needs the directories that you throw away")).hint(format!(
            "write it by hand: {name} = {{ mode = \"reap\", roots = [\"~/src/*/.worktrees\"] }}"
        ));
        return Err(reader.into_faults());
    }
    let found = candidates(text, top, name, mode).into_iter().find(|text| says(text, name, mode));
    found.ok_or_else(|| {
        reader
            .fault(0..0, format!("`{name}` cannot be set in this file"))
            .hint(format!("write it by hand, below [builtin]: {name} = \"{}\"", mode_word(mode)));
        reader.into_faults()
    })
}

fn child<'n, 't>(node: &'n Node<'t>, name: &str) -> Option<&'n Node<'t>> {
    let DeValue::Table(table) = node.get_ref() else { return None };
    table.get(name)
}

/// Says whether a text sets the policy to the mode.
fn says(text: &str, name: &str, mode: Mode) -> bool {
    let Ok(document) = DeTable::parse(text) else { return false };
    let Some(node) = document.get_ref().get("builtin").and_then(|node| child(node, name)) else {
        return false;
    };
    let node = child(node, "mode").unwrap_or(node);
    matches!(node.get_ref(), DeValue::String(word) if word == mode_word(mode))
}

/// Returns the edits that may be meant, the likeliest first: TOML has many ways to write one table.
fn candidates(text: &str, top: &DeTable<'_>, name: &str, mode: Mode) -> Vec<String> {
    let word = format!("\"{}\"", mode_word(mode));
    let ending = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let entry = format!("{name} = {word}");
    let mut edits = Vec::new();
    let section = top.get_key_value("builtin");
    if let Some((key, table)) = section {
        if let Some(node) = child(table, name) {
            match child(node, "mode") {
                Some(node) => edits.push(replace(text, node.span(), &word)),
                None if matches!(node.get_ref(), DeValue::Table(_)) => {
                    edits.extend(inside(text, node.span(), &format!("mode = {word}")));
                }
                None => edits.push(replace(text, node.span(), &word)),
            }
        }
        edits.extend(inside(text, table.span(), &entry));
        if let DeValue::Table(entries) = table.get_ref()
            && let Some(last) = entries.values().map(|node| node.span().end).max()
        {
            edits.push(after_line(text, last, ending, &entry));
        }
        edits.push(after_line(text, key.span().end, ending, &entry));
        let start = text[..key.span().start].rfind('\n').map_or(0, |at| at + 1);
        edits.push(replace(text, start..start, &format!("builtin.{entry}{ending}")));
    }
    let gap = match text {
        "" => "",
        text if text.ends_with('\n') => ending,
        _ => &ending.repeat(2),
    };
    edits.push(format!("{text}{gap}[builtin]{ending}{entry}{ending}"));
    edits
}

fn replace(text: &str, span: Range<usize>, with: &str) -> String {
    let mut text = text.to_owned();
    text.replace_range(span, with);
    text
}

/// Puts an entry into an inline table.
fn inside(text: &str, span: Range<usize>, entry: &str) -> Option<String> {
    let rest = text.get(span.clone())?.strip_prefix('{')?;
    let comma = if rest.trim_start().starts_with('}') { " " } else { "," };
    let at = span.start + 1;
    Some(replace(text, at..at, &format!(" {entry}{comma}")))
}

/// Puts an entry on a line of its own below the line that holds `offset`.
fn after_line(text: &str, offset: usize, ending: &str, entry: &str) -> String {
    match text[offset..].find('\n') {
        Some(at) => replace(text, offset + at + 1..offset + at + 1, &format!("{entry}{ending}")),
        None => format!("{text}{ending}{entry}{ending}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(before: &str, after: &str) {
        assert_eq!(set_builtin_mode(before, "mcp-server", Mode::Off).as_deref(), Ok(after));
    }

    #[test]
    fn every_way_to_write_the_section() {
        check("", "[builtin]\nmcp-server = \"off\"\n");
        check("mode = \"reap\"", "mode = \"reap\"\n\n[builtin]\nmcp-server = \"off\"\n");
        check(
            "[builtin]\n# why\nmcp-server = \"reap\" # so\n",
            "[builtin]\n# why\nmcp-server = \"off\" # so\n",
        );
        check("[builtin]", "[builtin]\nmcp-server = \"off\"\n");
        check("[builtin] # all\n\n[keep]\n", "[builtin] # all\nmcp-server = \"off\"\n\n[keep]\n");
        check(
            "[builtin]\na = \"off\" # x\n\n[keep]\n",
            "[builtin]\na = \"off\" # x\nmcp-server = \"off\"\n\n[keep]\n",
        );
        check("builtin = {}\n", "builtin = { mcp-server = \"off\" }\n");
        check("builtin = { a = \"off\" }\n", "builtin = { mcp-server = \"off\", a = \"off\" }\n");
        check("builtin.a = \"off\"\n", "builtin.mcp-server = \"off\"\nbuiltin.a = \"off\"\n");
        check(
            "[builtin]\nmcp-server = { mode = \"reap\" }\n",
            "[builtin]\nmcp-server = { mode = \"off\" }\n",
        );
        check("[builtin]\nmcp-server = {}\n", "[builtin]\nmcp-server = { mode = \"off\" }\n");
        check("[builtin]\r\na = \"off\"\r\n", "[builtin]\r\na = \"off\"\r\nmcp-server = \"off\"\r\n");
    }

    #[test]
    fn what_cannot_be_set() {
        let message = |text, name, mode| set_builtin_mode(text, name, mode).unwrap_err()[0].message.clone();
        assert!(message("", "mcp-serve", Mode::Off).contains("unknown built-in policy"));
        assert!(message("a = [", "mcp-server", Mode::Off).contains("not valid TOML"));
        assert!(message("[process.mcp-server]\n", "mcp-server", Mode::Off).contains("replaced"));
        assert!(message("", "deleted-worktree", Mode::Reap).contains("needs the directories"));
        let text = "[builtin]\ndeleted-worktree = { mode = \"off\", roots = [\"~/w/*\"] }\n";
        assert_eq!(
            set_builtin_mode(text, "deleted-worktree", Mode::Reap).unwrap(),
            "[builtin]\ndeleted-worktree = { mode = \"reap\", roots = [\"~/w/*\"] }\n"
        );
    }
}
