//! Words of a world file: how text from outside is quoted so that it can never end a word or a line (REDTEAM S4).

use std::fmt::Write as _;

use bstr::{BString, ByteSlice as _};

use crate::model::known::{Known, Reason, Unknown};

/// One word of a line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Word {
    /// What it says, quotes and escapes taken away.
    pub(super) text: BString,
    // Where the first quoted byte stands; before it the word is in our own vocabulary, from it on it is data.
    quoted: Option<usize>,
}

impl Word {
    /// Returns the word as one of our own, or nothing where any of it was quoted.
    pub(super) fn keyword(&self) -> Option<&str> {
        if self.quoted.is_some() { None } else { self.text.to_str().ok() }
    }

    /// Returns `key=value` as its two sides; the key is never quoted.
    pub(super) fn split(&self) -> Option<(&str, Word)> {
        let at = self.text.find_byte(b'=')?;
        if self.quoted.is_some_and(|from| from <= at) {
            return None;
        }
        let key = self.text[..at].to_str().ok()?;
        let value = Word {
            text: self.text[at + 1..].into(),
            quoted: self.quoted.map(|from| from.saturating_sub(at + 1)),
        };
        Some((key, value))
    }

    /// Says whether the word begins with this mark of ours.
    pub(super) fn is_marked(&self, mark: u8) -> bool {
        self.text.first() == Some(&mark) && self.quoted != Some(0)
    }

    /// Returns what the word says is unknown, where it is of the form `?reason` or `?reason:what`.
    pub(super) fn unknown(&self, what: &str) -> Result<Option<Unknown>, String> {
        if !self.is_marked(b'?') {
            return Ok(None);
        }
        let text = self.text[1..].to_str().map_err(|_| "an unknown must be text".to_owned())?;
        let (word, what) = text.split_once(':').unwrap_or((text, what));
        let reason =
            reason(word).ok_or_else(|| format!("'{word}' is no reason; e.g. ?denied, ?hung, ?failed/5"))?;
        Ok(Some(Unknown::new(reason, what)))
    }

    /// Returns the word as text.
    pub(super) fn string(&self) -> Result<String, String> {
        self.text.to_str().map(str::to_owned).map_err(|_| format!("'{}' is not UTF-8", self.text))
    }

    /// Returns the word as a number.
    pub(super) fn number<N: std::str::FromStr>(&self) -> Result<N, String> {
        let text = self.string()?;
        text.parse().map_err(|_| format!("'{text}' is no fitting number"))
    }
}

/// Splits a line into words; a `#` where a word would begin opens a remark.
pub(super) fn words(line: &str) -> Result<Vec<Word>, String> {
    let mut words = Vec::new();
    let mut letters = line.chars().peekable();
    loop {
        while letters.next_if(char::is_ascii_whitespace).is_some() {}
        if matches!(letters.peek(), None | Some('#')) {
            return Ok(words);
        }
        let mut word = Word { text: BString::default(), quoted: None };
        while let Some(letter) = letters.next_if(|letter| !letter.is_ascii_whitespace()) {
            if letter == '"' {
                word.quoted = word.quoted.or(Some(word.text.len()));
                quoted(&mut letters, &mut word.text)?;
            } else {
                push(&mut word.text, letter);
            }
        }
        words.push(word);
    }
}

fn push(text: &mut BString, letter: char) {
    text.extend_from_slice(letter.encode_utf8(&mut [0; 4]).as_bytes());
}

fn quoted(letters: &mut impl Iterator<Item = char>, text: &mut BString) -> Result<(), String> {
    loop {
        match letters.next().ok_or("a quote is not closed")? {
            '"' => return Ok(()),
            '\\' => match letters.next().ok_or("a quote is not closed")? {
                'n' => text.push(b'\n'),
                'r' => text.push(b'\r'),
                't' => text.push(b'\t'),
                'x' => {
                    let digits: String = letters.by_ref().take(2).collect();
                    text.push(
                        u8::from_str_radix(&digits, 16).map_err(|_| format!("'\\x{digits}' is no byte"))?,
                    );
                }
                same @ ('"' | '\\') => push(text, same),
                other => {
                    return Err(format!("'\\{other}' means nothing; use \\n \\r \\t \\\" \\\\ or \\xNN"));
                }
            },
            letter => push(text, letter),
        }
    }
}

/// Returns a word that reads back as exactly these bytes, and never as one of our own words.
pub(super) fn quote(text: &[u8]) -> String {
    let plain = |byte: &u8| byte.is_ascii_graphic() && !matches!(byte, b'"' | b'\\');
    let ours = matches!(text, [] | b"-" | [b'?' | b'#' | b'@', ..]);
    if !ours && text.iter().all(plain) {
        return text.iter().map(|&byte| char::from(byte)).collect();
    }
    let mut word = String::from("\"");
    for chunk in text.utf8_chunks() {
        for letter in chunk.valid().chars() {
            match letter {
                '\n' => word.push_str("\\n"),
                '\r' => word.push_str("\\r"),
                '\t' => word.push_str("\\t"),
                '"' | '\\' => word.extend(['\\', letter]),
                ' '..='~' => word.push(letter),
                _ if letter.is_alphanumeric() => word.push(letter),
                _ => letter.encode_utf8(&mut [0; 4]).bytes().for_each(|byte| hex(&mut word, byte)),
            }
        }
        chunk.invalid().iter().for_each(|&byte| hex(&mut word, byte));
    }
    word.push('"');
    word
}

fn hex(word: &mut String, byte: u8) {
    let _ = write!(word, "\\x{byte:02x}");
}

/// Returns a known value as `show` has it, or `?reason:what`.
pub(super) fn known<T>(value: &Known<T>, show: impl FnOnce(&T) -> String) -> String {
    match value {
        Ok(value) => show(value),
        Err(why) => unknown(why),
    }
}

/// Returns `?reason:what`.
pub(super) fn unknown(why: &Unknown) -> String {
    format!("?{}:{}", reason_word(why.reason), quote(why.what.as_bytes()))
}

const REASONS: [(&str, Reason); 11] = [
    ("denied", Reason::Denied),
    ("vanished", Reason::Vanished),
    ("hung", Reason::Hung),
    ("foreign", Reason::Foreign),
    ("untrusted", Reason::Untrusted),
    ("truncated", Reason::Truncated),
    ("unsupported", Reason::Unsupported),
    ("starved", Reason::Starved),
    ("not-asked", Reason::NotAsked),
    ("no-record", Reason::NoRecord),
    ("unsound", Reason::Unsound),
];

fn reason(word: &str) -> Option<Reason> {
    if let Some(number) = word.strip_prefix("failed/") {
        return number.parse().ok().map(Reason::Failed);
    }
    REASONS.iter().find(|(name, _)| *name == word).map(|(_, reason)| *reason)
}

fn reason_word(reason: Reason) -> String {
    if let Reason::Failed(errno) = reason {
        return format!("failed/{errno}");
    }
    REASONS.iter().find(|(_, known)| *known == reason).map_or("not-asked", |(name, _)| name).to_owned()
}

const UNITS: [(&str, u64); 7] = [
    ("d", 86_400_000_000_000),
    ("h", 3_600_000_000_000),
    ("m", 60_000_000_000),
    ("s", 1_000_000_000),
    ("ms", 1_000_000),
    ("us", 1_000),
    ("ns", 1),
];

/// Returns nanoseconds as a span such as `3d4h` or `10s5ns`; exact.
pub(super) fn span(mut nanoseconds: u64) -> String {
    let mut text = String::new();
    for (unit, size) in UNITS {
        let count = nanoseconds / size;
        nanoseconds %= size;
        if count > 0 {
            let _ = write!(text, "{count}{unit}");
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Reads a span such as `3d`, `2h30m` or `500ms` as nanoseconds.
pub(super) fn read_span(text: &str) -> Option<u64> {
    let mut total = 0_u64;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|letter: char| !letter.is_ascii_digit())?;
        let count: u64 = rest[..digits].parse().ok()?;
        rest = &rest[digits..];
        let letters = rest.find(|letter: char| letter.is_ascii_digit()).unwrap_or(rest.len());
        let (_, size) = UNITS.iter().find(|(unit, _)| *unit == &rest[..letters])?;
        total = total.checked_add(count.checked_mul(*size)?)?;
        rest = &rest[letters..];
    }
    (!text.is_empty()).then_some(total)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn every_text_is_one_word_and_reads_back_s4(bytes in proptest::collection::vec(any::<u8>(), 0..40)) {
            let line = quote(&bytes);
            let forged = line.contains(['\n', '\r', '\u{1b}']);
            prop_assert!(!forged);
            let back = words(&line).unwrap();
            prop_assert_eq!(back.len(), 1);
            prop_assert_eq!(&back[0].text, &bytes);
            prop_assert!(back[0].keyword().is_none_or(|word| word != "-" && !word.starts_with('?')));
        }

        #[test]
        fn spans_are_exact(nanoseconds in any::<u64>()) {
            prop_assert_eq!(read_span(&span(nanoseconds)), Some(nanoseconds));
        }
    }

    #[test]
    fn quotes_may_begin_within_a_word() {
        let line = words("cwd=\"/a b\" ?denied:\"the link\" plain # a remark \"").unwrap();
        assert_eq!(line.len(), 3);
        let (key, value) = line[0].split().unwrap();
        assert_eq!((key, value.text.as_bytes()), ("cwd", &b"/a b"[..]));
        assert_eq!(line[1].unknown("").unwrap(), Some(Unknown::new(Reason::Denied, "the link")));
        assert_eq!(words("\"?denied\"").unwrap()[0].unknown("").unwrap(), None, "quoted text is data");
    }

    #[test]
    fn a_bad_span_is_refused() {
        for bad in ["", "3", "d", "3x", "-3d", "3d 2h", "99999999999999999d"] {
            assert_eq!(read_span(bad), None, "{bad}");
        }
        assert_eq!(read_span("1h30m"), Some(5_400_000_000_000));
    }
}
