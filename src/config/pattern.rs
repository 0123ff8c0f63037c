//! Globs within one argument or path.
//!
//! Matching works on bytes, on the whole text, and in bounded time: a set of places is carried through the pattern
//! part by part, so that no text can make it try things twice.

use bstr::{BStr, BString, ByteSlice as _};

use super::policy::{Glob, GlobPart, Sense};

pub use super::arguments::{fits_arguments, program_name};

/// A longer pattern is a mistake; matching takes pattern × text.
const LONGEST: usize = 4096;

/// Braces in braces in braces; enough for people, and a bound for the recursion.
const DEEPEST: usize = 8;

impl Glob {
    /// Compiles a pattern. The error is the byte where it stands, and what is wrong there.
    ///
    /// `**/` at the start of the pattern or of a path element stands for any number of elements, none included:
    /// `**/x` fits `x`, and `a/**/b` fits `a/b`.
    pub fn parse(text: &str) -> Result<Glob, (usize, String)> {
        Glob::compile(text, Vec::new(), 0)
    }

    /// Compiles a path pattern: a leading `~/`, or `~` alone, is the user's home.
    pub fn parse_path(text: &str, home: Option<&BStr>) -> Result<Glob, (usize, String)> {
        if !text.starts_with('~') {
            return Glob::parse(text);
        }
        if text.len() > 1 && !text.starts_with("~/") {
            return Err((0, "only `~/` is known, not another user's home".into()));
        }
        let Some(home) = home else {
            return Err((0, "there is no home directory that `~` could stand for".into()));
        };
        let home = home.trim_end_with(|char| char == '/').to_vec();
        Glob::compile(text, vec![GlobPart::Literal(home)], 1)
    }

    fn compile(text: &str, before: Vec<GlobPart>, from: usize) -> Result<Glob, (usize, String)> {
        if text.len() > LONGEST {
            return Err((0, format!("a pattern is at most {LONGEST} bytes long")));
        }
        let mut compiler = Compiler { text: text.as_bytes(), at: from, depth: 0 };
        let mut parts = before;
        compiler.sequence(&mut parts, from == 0)?;
        if let Some(byte) = compiler.peek() {
            return Err((compiler.at, format!("a `{}` without its `{{`; write `\\}}`", char::from(byte))));
        }
        Ok(Glob { text: text.to_owned(), parts })
    }

    /// Says whether the whole of `text` fits.
    pub fn fits(&self, text: &BStr) -> bool {
        match self.parts.as_slice() {
            [] => return text.is_empty(),
            [GlobPart::Literal(only)] => return only.as_slice() == text.as_bytes(),
            [GlobPart::Literal(first), ..] if !text.starts_with(first) => return false,
            [.., GlobPart::Literal(last)] if !text.ends_with(last) => return false,
            _ => {}
        }
        let mut places = vec![false; text.len() + 1];
        places[0] = true;
        walk(&self.parts, text, places).is_some_and(|places| places[text.len()])
    }

    /// Says whether the pattern fits `path` or a directory above it.
    pub fn fits_at_or_below(&self, path: &BStr) -> bool {
        let ends = path.find_iter(b"/").skip_while(|&at| at == 0).chain([path.len()]);
        ends.into_iter().any(|end| self.fits(path[..end].as_bstr()))
    }

    /// Says whether the pattern names nothing at all: it would fit almost anything.
    pub(super) fn is_open(&self) -> bool {
        open(&self.parts)
    }

    /// Says whether the pattern could fit a text that begins with `start`.
    pub(super) fn could_begin_with(&self, start: &BStr) -> bool {
        let mut places = vec![false; start.len() + 1];
        places[0] = true;
        leads_past(&self.parts, start, places).is_none()
    }
}

/// Returns the places in `start` that `parts` lead to, or `None` when they can lead beyond its end.
fn leads_past(parts: &[GlobPart], start: &BStr, from: Vec<bool>) -> Option<Vec<bool>> {
    let mut places = from;
    for part in parts {
        if places[start.len()] {
            return None;
        }
        match part {
            GlobPart::Literal(literal) => {
                let beyond = |(at, &here): (usize, &bool)| here && literal.starts_with(&start[at..]);
                if places.iter().enumerate().any(beyond) {
                    return None;
                }
                places = step(part, start, &places);
            }
            GlobPart::Either(either) => {
                let mut all = vec![false; places.len()];
                for parts in either {
                    let reached = leads_past(parts, start, places.clone())?;
                    all.iter_mut().zip(reached).for_each(|(all, reached)| *all |= reached);
                }
                places = all;
            }
            GlobPart::AnyByte | GlobPart::AnyInElement | GlobPart::AnyAtAll | GlobPart::Class { .. } => {
                places = step(part, start, &places);
            }
        }
    }
    if places[start.len()] { None } else { Some(places) }
}

fn open(parts: &[GlobPart]) -> bool {
    parts.iter().all(|part| match part {
        GlobPart::Literal(literal) => literal.as_slice() == b"/",
        GlobPart::AnyByte | GlobPart::AnyInElement | GlobPart::AnyAtAll => true,
        GlobPart::Class { sense, .. } => *sense == Sense::NotOf,
        GlobPart::Either(either) => either.iter().any(|parts| open(parts)),
    })
}

/// Returns the places in `text` that can be reached from `from` by all of `parts`; `None` when there are none.
fn walk(parts: &[GlobPart], text: &BStr, from: Vec<bool>) -> Option<Vec<bool>> {
    let mut places = from;
    for part in parts {
        places = step(part, text, &places);
        if !places.contains(&true) {
            return None;
        }
    }
    Some(places)
}

fn step(part: &GlobPart, text: &BStr, from: &[bool]) -> Vec<bool> {
    let mut to = vec![false; from.len()];
    let starts = from.iter().enumerate().filter(|&(_, &here)| here).map(|(at, _)| at);
    match part {
        GlobPart::Literal(literal) => {
            for at in starts.filter(|&at| text[at..].starts_with(literal)) {
                to[at + literal.len()] = true;
            }
        }
        GlobPart::AnyByte => {
            for at in starts.filter(|&at| text.get(at).is_some_and(|&byte| byte != b'/')) {
                to[at + 1] = true;
            }
        }
        GlobPart::Class { ranges, sense } => {
            for at in starts.filter(|&at| text.get(at).is_some_and(|&byte| in_class(byte, ranges, *sense))) {
                to[at + 1] = true;
            }
        }
        GlobPart::AnyInElement => {
            let mut reached = false;
            for at in 0..from.len() {
                reached = from[at] || (reached && text[at - 1] != b'/');
                to[at] = reached;
            }
        }
        GlobPart::AnyAtAll => {
            let mut reached = false;
            for at in 0..from.len() {
                reached |= from[at];
                to[at] = reached;
            }
        }
        GlobPart::Either(either) => {
            for parts in either {
                if let Some(reached) = walk(parts, text, from.to_vec()) {
                    to.iter_mut().zip(reached).for_each(|(to, reached)| *to |= reached);
                }
            }
        }
    }
    to
}

fn in_class(byte: u8, ranges: &[(u8, u8)], sense: Sense) -> bool {
    let named = ranges.iter().any(|&(low, high)| (low..=high).contains(&byte));
    byte != b'/' && named == (sense == Sense::Of)
}

/// Reads a pattern byte by byte. All bytes with a meaning are ASCII, so that no character is ever cut.
struct Compiler<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
}

impl Compiler<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.get(self.at).copied()
    }

    fn next(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Reads up to the end, or within braces up to a `,` or `}`, which it leaves there.
    fn sequence(&mut self, parts: &mut Vec<GlobPart>, begins_element: bool) -> Result<(), (usize, String)> {
        let mut begins_element = begins_element;
        while let Some(byte) = self.peek() {
            if byte == b'}' || (byte == b',' && self.depth > 0) {
                return Ok(());
            }
            self.at += 1;
            let began = std::mem::replace(&mut begins_element, byte == b'/');
            match byte {
                b'*' => {
                    let start = self.at - 1;
                    while self.peek() == Some(b'*') {
                        self.at += 1;
                    }
                    if self.at - start == 1 {
                        parts.push(GlobPart::AnyInElement);
                    } else if began && self.peek() == Some(b'/') {
                        self.at += 1;
                        begins_element = true;
                        let some = vec![GlobPart::AnyAtAll, GlobPart::Literal(b"/".to_vec())];
                        parts.push(GlobPart::Either(vec![Vec::new(), some]));
                    } else {
                        parts.push(GlobPart::AnyAtAll);
                    }
                }
                b'?' => parts.push(GlobPart::AnyByte),
                b'[' => parts.push(self.class()?),
                b'{' => parts.push(self.either(began)?),
                b'\\' => {
                    let start = self.at - 1;
                    let Some(byte) = self.next() else {
                        return Err((start, "a `\\` with nothing after it; write `\\\\`".into()));
                    };
                    literal(parts, byte);
                }
                _ => literal(parts, byte),
            }
        }
        Ok(())
    }

    fn either(&mut self, begins_element: bool) -> Result<GlobPart, (usize, String)> {
        let start = self.at - 1;
        if self.depth == DEEPEST {
            return Err((start, format!("braces in braces go {DEEPEST} deep at most")));
        }
        self.depth += 1;
        let mut either = Vec::new();
        loop {
            let mut parts = Vec::new();
            self.sequence(&mut parts, begins_element)?;
            either.push(parts);
            match self.next() {
                Some(b',') => {}
                Some(_) => break,
                None => return Err((start, "a `{` without its `}`; write `\\{`".into())),
            }
        }
        self.depth -= 1;
        Ok(GlobPart::Either(either))
    }

    fn class(&mut self) -> Result<GlobPart, (usize, String)> {
        let start = self.at - 1;
        let unclosed = || (start, "a `[` without its `]`; write `\\[`".to_owned());
        let mut sense = Sense::Of;
        if self.peek() == Some(b'!') {
            self.at += 1;
            sense = Sense::NotOf;
        }
        let mut ranges = Vec::new();
        loop {
            let low = match self.next().ok_or_else(unclosed)? {
                b']' if !ranges.is_empty() => break,
                b'\\' => self.next().ok_or_else(unclosed)?,
                byte => byte,
            };
            let high = match (self.peek(), self.text.get(self.at + 1)) {
                (Some(b'-'), Some(&high)) if high != b']' => {
                    self.at += 2;
                    if high == b'\\' { self.next().ok_or_else(unclosed)? } else { high }
                }
                _ => low,
            };
            if !low.is_ascii() || !high.is_ascii() {
                return Err((start, "classes hold ASCII characters only; use `{ä,ö}`".into()));
            }
            if low > high {
                return Err((start, format!("`{}-{}` is empty", char::from(low), char::from(high))));
            }
            ranges.push((low, high));
        }
        Ok(GlobPart::Class { ranges, sense })
    }
}

fn literal(parts: &mut Vec<GlobPart>, byte: u8) {
    if let Some(GlobPart::Literal(literal)) = parts.last_mut() {
        literal.push(byte);
    } else {
        parts.push(GlobPart::Literal(vec![byte]));
    }
}

/// Returns a directory with a leading `~` taken for the user's home and no slash at its end, or why it cannot be.
pub(super) fn expand(text: &str, home: Option<&BStr>) -> Result<BString, String> {
    let trimmed = text.trim_end_matches('/');
    let text = if trimmed.is_empty() { text } else { trimmed };
    let Some(rest) = text.strip_prefix('~') else { return Ok(text.into()) };
    if !rest.is_empty() && !rest.starts_with('/') {
        return Err("only `~/` is known, not another user's home".into());
    }
    let Some(home) = home else {
        return Err("there is no home directory that `~` could stand for".into());
    };
    let mut path = BString::from(home.trim_end_with(|char| char == '/'));
    path.extend_from_slice(rest.as_bytes());
    Ok(path)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[track_caller]
    fn check(pattern: &str, fits: &[&str], not: &[&str]) {
        let glob = Glob::parse(pattern).unwrap();
        for text in fits {
            assert!(glob.fits(BStr::new(text)), "{pattern} should fit {text:?}");
        }
        for text in not {
            assert!(!glob.fits(BStr::new(text)), "{pattern} should not fit {text:?}");
        }
    }

    #[test]
    fn stars_within_and_across_elements() {
        check("a*c", &["ac", "abc"], &["a/c", "abcd", "xac", ""]);
        check("**/x.mjs", &["x.mjs", "/a/b/x.mjs", "a/x.mjs"], &["ax.mjs", "/a/x.mjs/y", "x.mjsx"]);
        check("a/**/b", &["a/b", "a/x/b", "a/x/y/b"], &["ab", "a/xb"]);
        check("a/**", &["a/", "a/b/c"], &["a", "b/a/"]);
        check("--x=**/tmp", &["--x=/tmp", "--x=/a/tmp"], &["--x=tmp"]);
        check("**", &["", "/", "a/b"], &[]);
    }

    #[test]
    fn the_other_parts() {
        check("a?c", &["abc"], &["ac", "a/c", "abbc"]);
        check("[a-c]x", &["ax", "cx"], &["dx", "/x", "x"]);
        check("[!a-c]x", &["dx"], &["ax", "/x"]);
        check("[]]", &["]"], &["["]);
        check("[a-]", &["a", "-"], &["b"]);
        check(r"[\]a]", &["]", "a"], &["\\"]);
        check("python{,3,3.*}", &["python", "python3", "python3.12"], &["python2", "python33"]);
        check("{a,b{c,d}}e", &["ae", "bce", "bde"], &["be", "ce"]);
        check(r"\*\{", &["*{"], &["a{"]);
        check("a,b", &["a,b"], &[]);
        check("ü", &["ü"], &["u"]);
        check("", &[""], &["a"]);
    }

    #[test]
    fn faults_say_where() {
        let at = |text| Glob::parse(text).map_err(|(at, _)| at).unwrap_err();
        assert_eq!(at("ab{c"), 2);
        assert_eq!(at("ab[c"), 2);
        assert_eq!(at("ab[]"), 2);
        assert_eq!(at("ab}"), 2);
        assert_eq!(at("ab\\"), 2);
        assert_eq!(at("[z-a]"), 0);
        assert_eq!(at("[ä]"), 0);
        let (deep, long) = ("{".repeat(20), "a".repeat(5000));
        assert_eq!(at(&deep), 8);
        assert_eq!(at(&long), 0);
    }

    #[test]
    fn invalid_utf_8_is_only_bytes() {
        let glob = Glob::parse("a*b").unwrap();
        assert!(glob.fits(b"a\xff\xfeb".as_bstr()));
    }

    #[test]
    fn home_is_taken_as_it_is_written() {
        let glob = Glob::parse_path("~/src/*", Some(BStr::new("/home/we[i]rd*"))).unwrap();
        assert!(glob.fits(BStr::new("/home/we[i]rd*/src/x")));
        assert!(!glob.fits(BStr::new("/home/wei/src/x")));
        assert!(Glob::parse_path("~ana/x", Some(BStr::new("/home/u"))).is_err());
        assert!(Glob::parse_path("~/x", None).is_err());
        let whole = Glob::parse_path("~", Some(BStr::new("/home/u/"))).unwrap();
        assert!(whole.fits(BStr::new("/home/u")));
    }

    #[test]
    fn a_directory_has_no_slash_at_its_end() {
        let home = Some(BStr::new("/home/u"));
        assert_eq!(expand("~/src/", home), Ok("/home/u/src".into()));
        assert_eq!(expand("~", home), Ok("/home/u".into()));
        assert_eq!(expand("/srv//", home), Ok("/srv".into()));
        assert_eq!(expand("/", home), Ok("/".into()));
        assert!(expand("~/x", None).is_err() && expand("~ana", home).is_err());
    }

    #[test]
    fn at_or_below_holds_at_component_boundaries() {
        let glob = Glob::parse("/src/*/.worktrees").unwrap();
        assert!(glob.fits_at_or_below(BStr::new("/src/a/.worktrees")));
        assert!(glob.fits_at_or_below(BStr::new("/src/a/.worktrees/b/c")));
        assert!(!glob.fits_at_or_below(BStr::new("/src/a/.worktrees2/b")));
        assert!(!glob.fits_at_or_below(BStr::new("/src/a")));
    }

    #[test]
    fn what_a_pattern_could_begin_with() {
        let could = |pattern: &str| Glob::parse(pattern).unwrap().could_begin_with(BStr::new("--cwd="));
        for pattern in ["--cwd=*", "--cwd=/a", "*", "**", "--{cwd,x}=?", "-*", "--c{wd=a,x}", "--cwd[=]"] {
            assert!(could(pattern), "{pattern}");
        }
        for pattern in ["", "--cwd", "--cwdx=*", "[0-9]*", "--{cwdx,x}=*", "?", "serve"] {
            assert!(!could(pattern), "{pattern}");
        }
    }

    #[test]
    fn hostile_patterns_and_texts_stay_cheap() {
        // Backtracking would need about 100^50 steps here.
        let glob = Glob::parse(&"*a".repeat(50)).unwrap();
        let text = "a".repeat(100) + "b";
        assert!(!glob.fits(BStr::new(&text)));
        let glob = Glob::parse(&"{a,aa,**}".repeat(50)).unwrap();
        assert!(glob.fits(BStr::new(&text)));
    }

    /// Tries everything: plain, and slow.
    fn naive(parts: &[GlobPart], text: &[u8]) -> bool {
        let Some((part, rest)) = parts.split_first() else { return text.is_empty() };
        match part {
            GlobPart::Literal(literal) => {
                text.strip_prefix(literal.as_slice()).is_some_and(|text| naive(rest, text))
            }
            GlobPart::AnyByte => text.split_first().is_some_and(|(b, text)| *b != b'/' && naive(rest, text)),
            GlobPart::Class { ranges, sense } => {
                text.split_first().is_some_and(|(b, text)| in_class(*b, ranges, *sense) && naive(rest, text))
            }
            GlobPart::AnyInElement => (0..=text.len())
                .take_while(|&end| !text[..end].contains(&b'/'))
                .any(|end| naive(rest, &text[end..])),
            GlobPart::AnyAtAll => (0..=text.len()).any(|end| naive(rest, &text[end..])),
            GlobPart::Either(either) => {
                either.iter().any(|parts| naive(&[parts.as_slice(), rest].concat(), text))
            }
        }
    }

    proptest! {
        #[test]
        fn the_same_as_trying_everything(pattern in r"([ab/?]|\*\*?|\[!?ab?\]|\{a?,[ab/*]{0,3}\}){0,7}", text in "[abc/]{0,9}") {
            let glob = Glob::parse(&pattern).unwrap();
            prop_assert_eq!(glob.fits(BStr::new(&text)), naive(&glob.parts, text.as_bytes()));
        }

        #[test]
        fn any_pattern_and_text_without_panic(pattern in r"[\PC{}\[\]*,\\!-]{0,30}", text in any::<Vec<u8>>()) {
            match Glob::parse(&pattern) {
                Ok(glob) => { let _ = glob.fits(text.as_bstr()); }
                Err((at, _)) => prop_assert!(at <= pattern.len()),
            }
        }
    }
}
