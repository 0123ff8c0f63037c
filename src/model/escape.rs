//! The one escape function that stands at every output edge.
//!
//! argv, environment, labels and file names are text from outside: a process may carry a terminal escape or a line
//! feed in its name (REDTEAM S4).

use std::fmt::Write as _;

use bstr::ByteSlice as _;

/// Returns text that is safe to print on a terminal, in a log line or in a journal: no control characters, no
/// invalid UTF-8, no bidirectional overrides. What was there is shown as `\n`, `\t`, `\xNN` or `\u{NNNN}`.
pub fn escape(text: &[u8]) -> String {
    let mut safe = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\n' => safe.push_str("\\n"),
                '\r' => safe.push_str("\\r"),
                '\t' => safe.push_str("\\t"),
                '\u{61c}'
                | '\u{200b}'..='\u{200f}'
                | '\u{2028}'..='\u{202e}'
                | '\u{2060}'..='\u{206f}'
                | '\u{feff}' => {
                    safe.extend(letter.escape_unicode());
                }
                _ if letter.is_control() => safe.extend(letter.escape_unicode()),
                _ => safe.push(letter),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(safe, "\\x{byte:02x}");
        }
    }
    safe
}

/// Returns an argument vector as one line, escaped, with quotes around what a shell would split.
pub fn command_line<A: AsRef<[u8]>>(argv: &[A]) -> String {
    let words: Vec<String> = argv
        .iter()
        .map(|argument| {
            let bare = argument.as_ref();
            let text = escape(bare);
            if bare.is_empty() || bare.find_byteset(b" \t\n'\"\\$`;&|<>()*?").is_some() {
                format!("'{}'", text.replace('\'', "'\\''"))
            } else {
                text
            }
        })
        .collect();
    words.join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_moves_a_cursor_or_ends_a_line_gets_out_s4() {
        assert_eq!(escape(b"a\nMAINPID=1"), "a\\nMAINPID=1");
        assert_eq!(escape(b"\x1b[2J"), "\\u{1b}[2J");
        assert_eq!(escape("\u{202e}gnp.exe".as_bytes()), "\\u{202e}gnp.exe");
        assert_eq!(escape(b"\xff\xfe"), "\\xff\\xfe");
        assert_eq!(escape("größe".as_bytes()), "größe");
    }

    #[test]
    fn arguments_keep_their_borders() {
        assert_eq!(command_line(&["node", "a b", "", "it's"]), "node 'a b' '' 'it'\\''s'");
    }
}
