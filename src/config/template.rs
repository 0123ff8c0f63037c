//! Text with captures: `"{workspace}"`, `"{socket.dir}"`; a brace that stands for itself is doubled.

use bstr::{BString, ByteSlice as _};

use super::policy::{Template, TemplatePart};

/// What is there for every process, without being captured.
pub const ALWAYS: [&str; 3] = ["cwd", "pid", "user"];

/// What is wrong with a template, and at which byte.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Flaw {
    /// A brace without its other half.
    Brace(usize),
    /// What stands between braces is no name.
    NoName(usize),
    /// A name that is captured nowhere.
    Unknown(usize, String),
}

/// Compiles a template; `known` says which captures there are, those that are [always](ALWAYS) there included.
pub(super) fn parse(text: &str, known: impl Fn(&str) -> bool) -> Result<Template, Flaw> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find(['{', '}']) {
        let offset = text.len() - rest.len() + at;
        literal.push_str(&rest[..at]);
        let brace = &rest[at..=at];
        let after = &rest[at + 1..];
        if let Some(after) = after.strip_prefix(brace) {
            literal.push_str(brace);
            rest = after;
            continue;
        }
        let (Some(end), "{") = (after.find('}'), brace) else { return Err(Flaw::Brace(offset)) };
        let inside = &after[..end];
        let (name, directory) = match inside.strip_suffix(".dir") {
            Some(name) => (name, true),
            None => (inside, false),
        };
        if !is_name(name) {
            return Err(Flaw::NoName(offset));
        }
        if !known(name) {
            return Err(Flaw::Unknown(offset, name.to_owned()));
        }
        if !literal.is_empty() {
            parts.push(TemplatePart::Literal(std::mem::take(&mut literal)));
        }
        let name = name.to_owned();
        parts.push(if directory { TemplatePart::DirectoryOf(name) } else { TemplatePart::Capture(name) });
        rest = &after[end + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(TemplatePart::Literal(literal));
    }
    Ok(Template { text: text.to_owned(), parts })
}

/// Compiles a text that is full of braces of its own, such as JSON: `{name}` and `{name.dir}` are captures, and every
/// other brace stands for itself.
pub(super) fn parse_among_braces(text: &str, known: impl Fn(&str) -> bool) -> Result<Template, Flaw> {
    let mut parts = Vec::new();
    let mut literal = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        let offset = text.len() - rest.len() + at;
        let after = &rest[at + 1..];
        let inside = after.find('}').map(|end| &after[..end]);
        let name =
            inside.map(|inside| inside.strip_suffix(".dir").unwrap_or(inside)).filter(|name| is_name(name));
        let (Some(inside), Some(name)) = (inside, name) else {
            literal.push_str(&rest[..=at]);
            rest = after;
            continue;
        };
        if !known(name) {
            return Err(Flaw::Unknown(offset, name.to_owned()));
        }
        literal.push_str(&rest[..at]);
        if !literal.is_empty() {
            parts.push(TemplatePart::Literal(std::mem::take(&mut literal)));
        }
        let directory = inside.len() > name.len();
        let name = name.to_owned();
        parts.push(if directory { TemplatePart::DirectoryOf(name) } else { TemplatePart::Capture(name) });
        rest = &after[inside.len() + 1..];
    }
    literal.push_str(rest);
    if !literal.is_empty() {
        parts.push(TemplatePart::Literal(literal));
    }
    Ok(Template { text: text.to_owned(), parts })
}

impl Template {
    /// Returns it filled in; nothing where one of its captures has no value. The directory of what stands in `/` is `/`.
    pub fn fill<'a>(&self, value: impl Fn(&str) -> Option<&'a [u8]>) -> Option<BString> {
        let mut text = BString::default();
        for part in &self.parts {
            match part {
                TemplatePart::Literal(literal) => text.extend_from_slice(literal.as_bytes()),
                TemplatePart::Capture(name) => text.extend_from_slice(value(name)?),
                TemplatePart::DirectoryOf(name) => {
                    let path = value(name)?;
                    let end = path.rfind_byte(b'/')?;
                    text.extend_from_slice(&path[..end.max(1)]);
                }
            }
        }
        Some(text)
    }
}

/// Says whether a text may name a policy or a capture: it goes to screens, logs and file names.
pub(super) fn is_name(text: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    (1..=64).contains(&text.len()) && text.bytes().all(plain) && !text.starts_with('-')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn compile(text: &str) -> Result<Vec<TemplatePart>, Flaw> {
        parse(text, is_known).map(|template| template.parts)
    }

    fn is_known(name: &str) -> bool {
        name == "socket" || ALWAYS.contains(&name)
    }

    #[test]
    fn captures_directories_and_doubled_braces() {
        let literal = |text: &str| TemplatePart::Literal(text.into());
        assert_eq!(compile("plain"), Ok(vec![literal("plain")]));
        assert_eq!(
            compile("a{socket}b{socket.dir}{{x}}"),
            Ok(vec![
                literal("a"),
                TemplatePart::Capture("socket".into()),
                literal("b"),
                TemplatePart::DirectoryOf("socket".into()),
                literal("{x}"),
            ])
        );
        assert_eq!(compile("{pid}"), Ok(vec![TemplatePart::Capture("pid".into())]));
        assert_eq!(compile(""), Ok(vec![]));
    }

    #[test]
    fn braces_of_json_stand_for_themselves() {
        let compile = |text: &str| parse_among_braces(text, is_known).map(|template| template.parts);
        let literal = |text: &str| TemplatePart::Literal(text.into());
        let json = r#"{"id":1,"params":{"a":{}}}"#;
        assert_eq!(compile(json), Ok(vec![literal(json)]));
        assert_eq!(
            compile(r#"{"at":"{socket}","in":"{socket.dir}/{pid}"}"#),
            Ok(vec![
                literal(r#"{"at":""#),
                TemplatePart::Capture("socket".into()),
                literal(r#"","in":""#),
                TemplatePart::DirectoryOf("socket".into()),
                literal("/"),
                TemplatePart::Capture("pid".into()),
                literal(r#""}"#),
            ])
        );
        assert_eq!(compile("a}{{b"), Ok(vec![literal("a}{{b")]));
        assert_eq!(compile("ab{sokcet}"), Err(Flaw::Unknown(2, "sokcet".into())));
    }

    #[test]
    fn the_directory_of_what_stands_in_the_root_is_the_root() {
        let template = parse("{socket.dir}", |_| true).unwrap();
        let filled = |value: &'static str| template.fill(|_| Some(value.as_bytes()));
        assert_eq!(filled("/tmp/x/server.sock"), Some("/tmp/x".into()));
        assert_eq!(filled("/server.sock"), Some("/".into()));
        assert_eq!(filled("server.sock"), None);
        assert_eq!(template.fill(|_| None), None);
    }

    #[test]
    fn flaws_say_where() {
        assert_eq!(compile("ab{socket"), Err(Flaw::Brace(2)));
        assert_eq!(compile("ab}"), Err(Flaw::Brace(2)));
        assert_eq!(compile("ä{}"), Err(Flaw::NoName(2)));
        assert_eq!(compile("{so cket}"), Err(Flaw::NoName(0)));
        assert_eq!(compile("{socke}"), Err(Flaw::Unknown(0, "socke".into())));
    }
}
