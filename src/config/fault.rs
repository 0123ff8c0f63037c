//! What is wrong with a file, where, and what to do about it.

use std::fmt::Write as _;
use std::ops::Range;

use crate::model::escape::escape;

/// One fault of a configuration file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The file as the user knows it.
    pub file: String,
    /// Line of the fault, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// How many characters are at fault, at least 1; never beyond the end of the line.
    pub length: usize,
    /// What is wrong; a lowercase fragment.
    pub message: String,
    /// What is underlined; empty when the fault's own place is all there is to see.
    pub labels: Vec<Label>,
    /// What to do about it, a fragment each.
    pub hints: Vec<String>,
}

/// A stretch of one line with a word on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// Line, from 1.
    pub line: usize,
    /// Column in characters, from 1.
    pub column: usize,
    /// How many characters, at least 1.
    pub length: usize,
    /// The word on it; may be empty.
    pub text: String,
}

impl Fault {
    /// Adds a hint.
    pub fn hint(&mut self, text: impl Into<String>) -> &mut Fault {
        self.hints.push(text.into());
        self
    }
}

/// Where each line of a text begins, so that a span becomes a line and a column without walking the whole text.
#[derive(Debug)]
pub(super) struct Lines<'a> {
    text: &'a str,
    starts: Vec<usize>,
}

/// A span as people count: a line, a column and a length.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) line: usize,
    pub(super) column: usize,
    pub(super) length: usize,
}

impl<'a> Lines<'a> {
    pub(super) fn new(text: &'a str) -> Lines<'a> {
        let after = text.bytes().enumerate().filter(|&(_, byte)| byte == b'\n').map(|(at, _)| at + 1);
        Lines { text, starts: std::iter::once(0).chain(after).collect() }
    }

    /// Returns the line that holds `offset`, and where it begins and ends.
    fn line(&self, offset: usize) -> (usize, Range<usize>) {
        let line = self.starts.partition_point(|&start| start <= offset);
        let start = line.checked_sub(1).and_then(|at| self.starts.get(at)).copied().unwrap_or(0);
        let end = self.starts.get(line).map_or(self.text.len(), |next| next - 1);
        (line, start..end)
    }

    /// Returns where a span of bytes stands. What goes beyond its first line is cut off.
    pub(super) fn place(&self, span: &Range<usize>) -> Place {
        let start = floor(self.text, span.start);
        let (line, range) = self.line(start);
        let end = floor(self.text, span.end).min(range.end).max(start);
        Place {
            line,
            column: self.text[range.start..start].chars().count() + 1,
            length: self.text[start..end].trim_end().chars().count().max(1),
        }
    }
}

fn floor(text: &str, offset: usize) -> usize {
    let mut offset = offset.min(text.len());
    while !text.is_char_boundary(offset) {
        offset -= 1;
    }
    offset
}

/// Returns the fault drawn over the lines it stands in, without colour and with a final line feed.
pub fn render(fault: &Fault, text: &str) -> String {
    let own = [Label { line: fault.line, column: fault.column, length: fault.length, text: String::new() }];
    let mut labels: Vec<&Label> =
        if fault.labels.is_empty() { own.iter().collect() } else { fault.labels.iter().collect() };
    labels.sort_by_key(|label| (label.line, label.column));
    let lines: Vec<&str> = text.lines().collect();
    let last = labels.last().map_or(fault.line, |label| label.line);
    let width = last.to_string().len().max(2);
    let margin = " ".repeat(width);
    let mut out = String::new();
    // Writing into a String cannot fail.
    let _ = writeln!(out, "error: {}", escape(fault.message.as_bytes()));
    let _ = writeln!(out, "{margin}┌─ {}:{}:{}", escape(fault.file.as_bytes()), fault.line, fault.column);
    let _ = writeln!(out, "{margin}│");
    let mut rest = labels.as_slice();
    while let Some(first) = rest.first() {
        let count = rest.iter().take_while(|label| label.line == first.line).count();
        let (here, later) = rest.split_at(count);
        rest = later;
        let window = Window::around(here, lines.get(first.line - 1).copied().unwrap_or_default());
        let _ = writeln!(out, "{:>width$}│ {}", first.line, window.shown);
        for row in underlines(here, &window) {
            let _ = writeln!(out, "{margin}│ {}", row.trim_end());
        }
    }
    if !fault.hints.is_empty() {
        let _ = writeln!(out, "{margin}│");
    }
    for hint in &fault.hints {
        let _ = writeln!(out, "{margin}= {}", escape(hint.as_bytes()));
    }
    out
}

/// What is shown of a line: all of it, or, of a very long one, the part around its first label.
struct Window {
    shown: String,
    skipped: usize,
    width: usize,
}

/// Longer lines are cut; wider than most terminals, so that real files never are.
const WIDEST: usize = 160;

impl Window {
    fn around(labels: &[&Label], line: &str) -> Window {
        let column = labels.first().map_or(1, |label| label.column);
        let skipped = if column > WIDEST / 2 { column - WIDEST / 4 } else { 0 };
        let shown: String = line
            .chars()
            .skip(skipped)
            .take(WIDEST)
            // One character for one, or the underlines would stand elsewhere.
            .map(|letter| {
                if escape(letter.encode_utf8(&mut [0; 4]).as_bytes()).chars().eq([letter]) {
                    letter
                } else {
                    ' '
                }
            })
            .collect();
        let width = shown.chars().count();
        Window { shown: shown.trim_end().to_owned(), skipped, width }
    }
}

/// Returns the rows below a line: all underlines with the last label's word, then the other words, last one first.
fn underlines(labels: &[&Label], window: &Window) -> Vec<String> {
    let spread = |label: &Label| {
        let start = (label.column - 1).saturating_sub(window.skipped).min(window.width);
        (start, label.length.min((window.width + 1).saturating_sub(start)).max(1))
    };
    let mut first = String::new();
    for label in labels {
        let (start, length) = spread(label);
        pad(&mut first, start);
        first.extend(std::iter::repeat_n('─', length));
    }
    let mut rows = Vec::new();
    if let Some((last, others)) = labels.split_last() {
        if !last.text.is_empty() {
            let _ = write!(first, " {}", escape(last.text.as_bytes()));
        }
        rows.push(first);
        for label in others.iter().rev().filter(|label| !label.text.is_empty()) {
            let mut row = String::new();
            pad(&mut row, spread(label).0);
            row.push_str(&escape(label.text.as_bytes()));
            rows.push(row);
        }
    }
    rows
}

fn pad(row: &mut String, to: usize) {
    let now = row.chars().count();
    row.extend(std::iter::repeat_n(' ', to.saturating_sub(now)));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(labels: Vec<Label>) -> Fault {
        Fault {
            file: "config.toml".into(),
            line: 2,
            column: 3,
            length: 4,
            message: "this is wrong".into(),
            labels,
            hints: vec!["write it otherwise".into()],
        }
    }

    #[test]
    fn places_count_characters() {
        let lines = Lines::new("a\nbä = 1\n");
        assert_eq!(lines.place(&(5..6)), Place { line: 2, column: 3, length: 1 });
        assert_eq!(lines.place(&(3..4)), Place { line: 2, column: 2, length: 1 });
        assert_eq!(lines.place(&(2..400)), Place { line: 2, column: 1, length: 6 });
        assert_eq!(lines.place(&(99..99)), Place { line: 3, column: 1, length: 1 });
    }

    #[test]
    fn one_place_is_underlined() {
        assert_eq!(
            render(&fault(vec![]), "x\n{ here }\n"),
            "error: this is wrong\n  ┌─ config.toml:2:3\n  │\n 2│ { here }\n  │   ────\n  │\n  \
             = write it otherwise\n"
        );
    }

    #[test]
    fn words_stand_below_their_underlines() {
        let label = |column, text: &str| Label { line: 2, column, length: 2, text: text.to_owned() };
        assert_eq!(
            render(&fault(vec![label(3, "one"), label(6, "two")]), "x\n{ aa bb }"),
            "error: this is wrong\n  ┌─ config.toml:2:3\n  │\n 2│ { aa bb }\n  │   ── ── two\n  │   one\n  │\n  \
             = write it otherwise\n"
        );
    }

    #[test]
    fn a_terminal_escape_in_the_file_is_not_passed_on_s4() {
        let shown = render(&fault(vec![]), "x\n{ \u{1b}]2;owned\u{7} }\n");
        assert!(!shown.contains('\u{1b}') && !shown.contains('\u{7}'), "{shown:?}");
    }

    #[test]
    fn a_very_long_line_is_cut_around_the_fault() {
        let text = format!("x\n{}WRONG{}", "a".repeat(5000), "b".repeat(5000));
        let shown = render(&Fault { column: 5001, length: 5, ..fault(vec![]) }, &text);
        assert!(shown.contains("WRONG"), "{shown}");
        assert!(shown.lines().all(|line| line.chars().count() < 200), "{shown}");
    }
}
