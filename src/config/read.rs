//! Walking a TOML tree by hand, with a place for every fault.
//!
//! All faults of a file are collected: a person who mends one should not have to run `check` again to see the next.

use std::borrow::Cow;
use std::ops::Range;
use std::time::Duration;

use bstr::BStr;
use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::duration;
use super::fault::{Fault, Label, Lines, Place};
use super::nearest::nearest;
use super::policy::Glob;

/// One value with its place.
pub(super) type Node<'t> = Spanned<DeValue<'t>>;

/// One key with its place.
pub(super) type Key<'t> = Spanned<Cow<'t, str>>;

/// More faults than this help nobody, and a hostile file could make them dear.
const MOST_FAULTS: usize = 100;

/// A larger file is no configuration.
const LARGEST: usize = 1 << 20;

/// One file while it is read, and what was found wrong with it.
#[derive(Debug)]
pub(super) struct Reader<'a> {
    name: &'a str,
    text: &'a str,
    lines: Lines<'a>,
    faults: Vec<Fault>,
    /// The last fault beyond the most that are kept, so that its hints have a place to go.
    beyond: Option<Fault>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(name: &'a str, text: &'a str) -> Reader<'a> {
        Reader { name, text, lines: Lines::new(text), faults: Vec::new(), beyond: None }
    }

    /// Returns the tree of the text, or nothing when it is no TOML.
    pub(super) fn parse(&mut self) -> Option<Spanned<DeTable<'a>>> {
        if self.text.len() > LARGEST {
            self.fault(0..0, format!("larger than {LARGEST} bytes"));
            return None;
        }
        let (table, errors) = DeTable::parse_recoverable(self.text);
        for error in &errors {
            let span = error.span().unwrap_or(0..0);
            let fault = self.fault(span, format!("not valid TOML: {}", error.message()));
            if error.message().contains("duplicate key") {
                fault.hint("each key may stand once in its table");
            }
        }
        errors.is_empty().then_some(table)
    }

    /// Records a fault and returns it for its hints.
    pub(super) fn fault(&mut self, span: Range<usize>, message: impl Into<String>) -> &mut Fault {
        let full = self.faults.len() >= MOST_FAULTS;
        // Finding a place takes as long as its line, and one line can hold a hundred thousand faults.
        let place = if full { Place { line: 1, column: 1, length: 1 } } else { self.lines.place(&span) };
        let fault = Fault {
            file: self.name.to_owned(),
            line: place.line,
            column: place.column,
            length: place.length,
            message: message.into(),
            labels: Vec::new(),
            hints: Vec::new(),
        };
        if full {
            return self.beyond.insert(fault);
        }
        let at = self.faults.len();
        self.faults.push(fault);
        &mut self.faults[at]
    }

    pub(super) fn label(&self, span: &Range<usize>, text: impl Into<String>) -> Label {
        let place = self.lines.place(span);
        Label { line: place.line, column: place.column, length: place.length, text: text.into() }
    }

    pub(super) fn has_faults(&self) -> bool {
        !self.faults.is_empty()
    }

    pub(super) fn into_faults(self) -> Vec<Fault> {
        let mut faults = self.faults;
        faults.sort_by_key(|fault| (fault.line, fault.column));
        faults
    }

    /// Returns the place of a part of a string, where the string stands in the file as it is; else all of it.
    pub(super) fn within(&self, node: &Node<'_>, part: Range<usize>) -> Range<usize> {
        let span = node.span();
        let (DeValue::String(value), Some(raw)) = (node.get_ref(), self.text.get(span.clone())) else {
            return span;
        };
        match raw.find(value.as_ref()) {
            Some(quote) if raw.len() == value.len() + 2 * quote && quote > 0 && part.end <= value.len() => {
                let start = span.start + quote;
                start + part.start..start + part.end
            }
            _ => span,
        }
    }

    fn wrong(&mut self, node: &Node<'_>, want: &str) -> &mut Fault {
        let got = match node.get_ref() {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a number with a point",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.fault(node.span(), format!("{want} belongs here, not {got}"))
    }

    pub(super) fn text<'n>(&mut self, node: &'n Node<'_>, want: &str) -> Option<&'n str> {
        let DeValue::String(text) = node.get_ref() else {
            self.wrong(node, want);
            return None;
        };
        Some(text)
    }

    pub(super) fn table<'n, 't>(&mut self, node: &'n Node<'t>, want: &str) -> Option<&'n DeTable<'t>> {
        let DeValue::Table(table) = node.get_ref() else {
            self.wrong(node, want);
            return None;
        };
        Some(table)
    }

    /// Returns the elements of a list.
    pub(super) fn list<'n, 't>(&mut self, node: &'n Node<'t>, want: &str) -> Option<Vec<&'n Node<'t>>> {
        let DeValue::Array(list) = node.get_ref() else {
            self.wrong(node, want);
            return None;
        };
        Some(list.iter().collect())
    }

    pub(super) fn number(&mut self, node: &Node<'_>, within: Range<u64>) -> Option<u64> {
        let DeValue::Integer(number) = node.get_ref() else {
            self.wrong(node, "a whole number");
            return None;
        };
        let value = u64::from_str_radix(number.as_str(), number.radix()).ok();
        let value = value.filter(|value| within.contains(value));
        if value.is_none() {
            let most = within.end - 1;
            self.fault(node.span(), format!("a number from {} to {most} belongs here", within.start));
        }
        value
    }

    pub(super) fn truth(&mut self, node: &Node<'_>) -> Option<bool> {
        let DeValue::Boolean(truth) = node.get_ref() else {
            self.wrong(node, "true or false");
            return None;
        };
        Some(*truth)
    }

    pub(super) fn duration(&mut self, node: &Node<'_>) -> Option<Duration> {
        if matches!(node.get_ref(), DeValue::Integer(_) | DeValue::Float(_)) {
            self.wrong(node, "a span with its unit").hint("for example \"30s\"");
            return None;
        }
        let text = self.text(node, "a span such as \"30s\"")?;
        duration::parse(text)
            .map_err(|why| {
                self.fault(node.span(), format!("`{text}` is not a span: {why}"))
                    .hint("for example \"500ms\", \"30s\", \"5m\", \"2h\" or \"7d\"");
            })
            .ok()
    }

    /// Returns one of `words`.
    pub(super) fn word<'w>(&mut self, node: &Node<'_>, words: &[&'w str]) -> Option<&'w str> {
        let all = words.iter().map(|word| format!("\"{word}\"")).collect::<Vec<_>>().join(" or ");
        let text = self.text(node, &all)?;
        let found = words.iter().copied().find(|word| *word == text);
        if found.is_none() {
            self.fault(node.span(), format!("`{text}` is not known here")).hint(format!("write {all}"));
        }
        found
    }

    pub(super) fn glob(&mut self, node: &Node<'_>) -> Option<Glob> {
        let text = self.text(node, "a pattern")?;
        self.compiled(node, Glob::parse(text))
    }

    pub(super) fn path_glob(&mut self, node: &Node<'_>, home: Option<&BStr>) -> Option<Glob> {
        let text = self.text(node, "a path pattern")?;
        // The kernel writes directories without a slash at the end: with one, the pattern would never fit.
        let trimmed = text.trim_end_matches('/');
        self.compiled(node, Glob::parse_path(if trimmed.is_empty() { text } else { trimmed }, home))
    }

    fn compiled(&mut self, node: &Node<'_>, glob: Result<Glob, (usize, String)>) -> Option<Glob> {
        glob.map_err(|(at, why)| {
            let span = self.within(node, at..at + 1);
            self.fault(span, format!("not a pattern: {why}"));
        })
        .ok()
    }

    /// Faults every key that is neither `known` nor known for later.
    pub(super) fn unknown_keys(&mut self, table: &DeTable<'_>, known: &[&str], later: &[&str]) {
        for (key, _) in in_order(table) {
            let name = key.get_ref().as_ref();
            if later.contains(&name) {
                self.not_yet(key.span(), name);
            } else if !known.contains(&name) {
                self.unknown(key.span(), "key", name, known.iter().copied());
            }
        }
    }

    /// Faults a name that nobody knows, with the nearest known one.
    pub(super) fn unknown<'k>(
        &mut self,
        span: Range<usize>,
        kind: &str,
        name: &str,
        known: impl Iterator<Item = &'k str> + Clone,
    ) {
        if self.faults.len() >= MOST_FAULTS {
            return;
        }
        let hint = match nearest(name, known.clone()) {
            Some(near) => format!("did you mean `{near}`?"),
            None if known.clone().next().is_none() => "none is known here".to_owned(),
            None => format!("known here: {}", known.collect::<Vec<_>>().join(", ")),
        };
        let short: String = name.chars().take(80).collect();
        self.fault(span, format!("unknown {kind} `{short}`")).hint(hint);
    }

    /// Faults what a later version will know.
    pub(super) fn not_yet(&mut self, span: Range<usize>, what: &str) {
        self.fault(span, format!("`{what}` is not yet there in this version"))
            .hint("take it out for now; nothing here would act on it");
    }
}

/// Returns the elements of a list, or the one value that stands in its place.
pub(super) fn one_or_more<'n, 't>(node: &'n Node<'t>) -> Vec<&'n Node<'t>> {
    match node.get_ref() {
        DeValue::Array(list) => list.iter().collect(),
        DeValue::String(_)
        | DeValue::Integer(_)
        | DeValue::Float(_)
        | DeValue::Boolean(_)
        | DeValue::Datetime(_)
        | DeValue::Table(_) => vec![node],
    }
}

/// Returns the entries of a table in the order of the file; the tree itself sorts them by name.
pub(super) fn in_order<'n, 't>(table: &'n DeTable<'t>) -> Vec<(&'n Key<'t>, &'n Node<'t>)> {
    let mut entries: Vec<_> = table.iter().collect();
    entries.sort_by_key(|(key, _)| key.span().start);
    entries
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_faults_are_found_and_in_order() {
        let mut reader = Reader::new("f", "b = 1\na = 2\nok = 3\n");
        let table = reader.parse().unwrap();
        reader.unknown_keys(table.get_ref(), &["ok"], &["b"]);
        let faults = reader.into_faults();
        let seen: Vec<_> = faults.iter().map(|fault| (fault.line, fault.message.as_str())).collect();
        assert_eq!(seen, [(1, "`b` is not yet there in this version"), (2, "unknown key `a`")]);
    }

    #[test]
    fn a_place_within_a_string_only_where_it_is_plain() {
        let text = "a = \"xy{\"\nb = \"x\\u0079{\"\n";
        let mut reader = Reader::new("f", text);
        let table = reader.parse().unwrap();
        let nodes: Vec<_> = in_order(table.get_ref()).into_iter().map(|(_, node)| node).collect();
        assert_eq!(reader.within(nodes[0], 2..3), 7..8);
        assert_eq!(reader.within(nodes[1], 2..3), nodes[1].span());
    }

    #[test]
    fn a_file_can_be_too_large_or_have_too_many_faults() {
        let text = "#".repeat(LARGEST + 1);
        let mut reader = Reader::new("f", &text);
        assert!(reader.parse().is_none());
        assert_eq!(reader.into_faults().len(), 1);
        let mut reader = Reader::new("f", "");
        for _ in 0..1000 {
            reader.fault(0..0, "x");
        }
        assert_eq!(reader.into_faults().len(), MOST_FAULTS);
    }
}
