//! JSON as editors let people write it: with comments, trailing commas and a byte order mark.

use serde_json::{Map, Value};

use super::Entry;

/// Parses the text, comments and trailing commas or not.
pub(super) fn parse(text: &str) -> Result<Value, String> {
    let text = text.trim_start_matches('\u{feff}');
    if text.trim().is_empty() {
        return Ok(Value::Null);
    }
    serde_json::from_str(&plain(text)).map_err(|error| error.to_string())
}

/// Returns the stdio servers in an object of servers by name. Those reached by URL have no process to look for.
pub(super) fn servers(object: Option<&Value>, directory: Option<&str>) -> Vec<Entry> {
    let Some(Value::Object(servers)) = object else { return Vec::new() };
    servers.iter().filter_map(|(name, server)| entry(name, server.as_object()?, directory)).collect()
}

fn entry(name: &str, server: &Map<String, Value>, directory: Option<&str>) -> Option<Entry> {
    let command = server.get("command")?.as_str()?.to_owned();
    let args = match server.get("args") {
        None | Some(Value::Null) => Vec::new(),
        // One argument of another type, and it is not known what the client would start.
        Some(list) => list
            .as_array()?
            .iter()
            .map(|argument| argument.as_str().map(str::to_owned))
            .collect::<Option<_>>()?,
    };
    let directory = directory.map(str::to_owned);
    Some(Entry { name: name.to_owned(), command, args, directory })
}

/// Blanks comments and trailing commas out, so that lines and columns in an error stay true.
fn plain(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    let mut at = 0;
    let mut comma = None;
    while at < bytes.len() {
        match bytes[at] {
            b'"' => {
                comma = None;
                at = string_end(&bytes, at);
            }
            b'/' if bytes.get(at + 1) == Some(&b'/') => {
                let end = bytes[at..].iter().position(|&byte| byte == b'\n').map_or(bytes.len(), |n| at + n);
                bytes[at..end].fill(b' ');
                at = end;
            }
            b'/' if bytes.get(at + 1) == Some(&b'*') => {
                let close = bytes[at + 2..].windows(2).position(|pair| pair == b"*/");
                let end = close.map_or(bytes.len(), |n| at + 2 + n + 2);
                for byte in &mut bytes[at..end] {
                    if *byte != b'\n' {
                        *byte = b' ';
                    }
                }
                at = end;
            }
            b',' => {
                comma = Some(at);
                at += 1;
            }
            b'}' | b']' => {
                if let Some(comma) = comma.take() {
                    bytes[comma] = b' ';
                }
                at += 1;
            }
            byte => {
                if !byte.is_ascii_whitespace() {
                    comma = None;
                }
                at += 1;
            }
        }
    }
    // Whole characters were blanked, so this loses nothing.
    String::from_utf8_lossy(&bytes).into_owned()
}

/// Returns where a string that begins at `at` ends, its closing quote included.
fn string_end(bytes: &[u8], at: usize) -> usize {
    let mut at = at + 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    #[test]
    fn comments_and_trailing_commas() {
        let text = "\u{feff}{ // größe\n \"a\": [1, 2, /* , ] */ ], \"u\": \"http://x/*y*/,]\", \"q\": \"\\\"//\", }";
        assert_eq!(parse(text).unwrap(), json!({"a": [1, 2], "u": "http://x/*y*/,]", "q": "\"//"}));
        assert_eq!(parse(" \n").unwrap(), Value::Null);
        assert!(parse("{\"a\": 1 \"b\": 2}").is_err());
        assert!(parse("{ /* never closed").is_err());
    }

    #[test]
    fn only_servers_with_a_command_of_text() {
        let value = json!({
            "a": {"command": "x"}, "b": {"url": "http://h"}, "c": {"command": 5},
            "d": {"command": "y", "args": ["1", 2]}, "e": {"command": "z", "args": ["", "v"]},
        });
        let names: Vec<String> = servers(Some(&value), None).into_iter().map(|entry| entry.name).collect();
        assert_eq!(names, ["a", "e"]);
        assert_eq!(servers(Some(&json!([])), None), []);
        assert_eq!(servers(None, None), []);
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "[\\[\\]{}\",:/*\\\\ a\nü1]{0,60}") {
            let _ = parse(&text);
        }

        #[test]
        fn plain_json_stays_as_it_is(list in proptest::collection::vec(any::<String>(), 0..6)) {
            let value = json!({"a": list, "b": {"c": null}});
            prop_assert_eq!(parse(&value.to_string()).unwrap(), value);
        }
    }
}
