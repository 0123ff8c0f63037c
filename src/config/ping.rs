//! `ping` of a policy: what to ask a server, and by what reply it is known to live.

use bstr::ByteSlice as _;
use toml::de::DeTable;

use super::lines::Ground;
use super::policy::{Ping, Talk, Template, TemplatePart};
use super::read::{Node, Reader, in_order};
use super::template;

const KEYS: [&str; 6] = ["socket", "as", "send", "expect", "path", "status"];

/// A longer text is no question.
const LONGEST: usize = 16 * 1024;

/// What a fault about a missing `ping` shows.
pub(super) const EXAMPLE: &str = "for example ping = { socket = \"{socket}\", send = '{\"id\":1,\"method\":\"ping\"}', expect = '\"id\":1' }";

const HTTP: &str =
    "for example ping = { socket = \"127.0.0.1:8080\", as = \"http\", path = \"/health\", status = 200 }";

/// Reads `ping`.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node<'_>, ground: &Ground<'_>) -> Option<Ping> {
    let table = reader.table(node, "a ping such as { socket = \"{socket}\", as = \"mcp\" }")?;
    reader.unknown_keys(table, &KEYS, &[]);
    let word = match table.get("as") {
        Some(node) => reader.word(node, &["lines", "content-length", "mcp", "http", "connect"])?,
        None => "lines",
    };
    let fitting: &[&str] = match word {
        "http" => &["path", "status", "expect"],
        "mcp" | "connect" => &[],
        _ => &["send", "expect"],
    };
    let is_fitting = fits(reader, table, word, fitting);
    let socket = if let Some(node) = table.get("socket") {
        address(reader, node, ground)
    } else {
        reader.fault(node.span(), "a ping needs `socket`").hint(EXAMPLE);
        None
    };
    let talk = match word {
        "http" => http(reader, node, table, ground),
        "mcp" => Some(Talk::Mcp),
        "connect" => Some(Talk::Greeting),
        word => said(reader, node, table, word, ground),
    };
    let (socket, talk) = (socket?, talk?);
    is_fitting.then_some(Ping { socket, talk })
}

/// Says whether every key has a meaning for what is spoken, and faults those that have none.
fn fits(reader: &mut Reader<'_>, table: &DeTable<'_>, word: &str, fitting: &[&str]) -> bool {
    let mut fits = true;
    for (key, _) in in_order(table) {
        let name = key.get_ref().as_ref();
        if KEYS.contains(&name) && !["socket", "as"].contains(&name) && !fitting.contains(&name) {
            let hint = match fitting {
                [] => format!("as = \"{word}\" takes `socket` alone"),
                _ => format!("as = \"{word}\" takes `socket`, `{}`", fitting.join("`, `")),
            };
            reader.fault(key.span(), format!("`{name}` has no meaning with as = \"{word}\"")).hint(hint);
            fits = false;
        }
    }
    fits
}

fn address(reader: &mut Reader<'_>, node: &Node<'_>, ground: &Ground<'_>) -> Option<Template> {
    let template = ground.template(reader, node)?;
    // What begins with a capture is known only when there is a process.
    let is_address = match template.parts.first() {
        Some(TemplatePart::Literal(text)) => text.starts_with(['/', '@']) || text.contains(':'),
        Some(TemplatePart::Capture(_) | TemplatePart::DirectoryOf(_)) => true,
        None => false,
    };
    if !is_address {
        reader
            .fault(node.span(), "not the name of a socket")
            .hint("a whole path, `@name` of an abstract socket, or `address:port`; or a capture that is one");
        return None;
    }
    Some(template)
}

/// Reads what is sent and expected where anything may be said.
fn said(
    reader: &mut Reader<'_>,
    ping: &Node<'_>,
    table: &DeTable<'_>,
    word: &str,
    ground: &Ground<'_>,
) -> Option<Talk> {
    let send = needed(reader, ping, table, "send", word);
    let expect = needed(reader, ping, table, "expect", word);
    let send = send.and_then(|node| {
        let template = message(reader, node, ground)?;
        let fault = if template.parts.is_empty() {
            "nothing is asked by an empty text"
        } else if word == "lines" && template.text.contains(['\n', '\r']) {
            "one line belongs here, without its end"
        } else {
            return Some(template);
        };
        reader.fault(node.span(), fault);
        None
    });
    let expect = expect.and_then(|node| message(reader, node, ground));
    let (send, expect) = (send?, expect?);
    Some(match word {
        "content-length" => Talk::ContentLength { send, expect },
        _ => Talk::Lines { send, expect },
    })
}

fn http(reader: &mut Reader<'_>, ping: &Node<'_>, table: &DeTable<'_>, ground: &Ground<'_>) -> Option<Talk> {
    let path = needed(reader, ping, table, "path", "http").and_then(|node| {
        let template = message(reader, node, ground)?;
        let is_plain = |letter: char| letter.is_ascii_graphic() && letter != '#';
        if !template.text.starts_with('/') || !template.text.chars().all(is_plain) {
            reader
                .fault(node.span(), "not a path of a server")
                .hint("for example \"/health\" or \"/api/status?short=1\"");
            return None;
        }
        Some(template)
    });
    let status = match table.get("status") {
        Some(node) => Some(reader.number(node, 100..600).and_then(|number| u16::try_from(number).ok())?),
        None => None,
    };
    let expect = match table.get("expect") {
        Some(node) => Some(message(reader, node, ground)?),
        None => None,
    };
    Some(Talk::Http { path: path?, status, expect })
}

fn needed<'n, 't>(
    reader: &mut Reader<'_>,
    ping: &Node<'_>,
    table: &'n DeTable<'t>,
    key: &str,
    word: &str,
) -> Option<&'n Node<'t>> {
    let node = table.get(key);
    if node.is_none() {
        let example = if word == "http" { HTTP } else { EXAMPLE };
        reader.fault(ping.span(), format!("a ping with as = \"{word}\" needs `{key}`")).hint(example);
    }
    node
}

/// Reads text that is full of braces of its own: `{name}` is a capture, and every other brace stands for itself.
fn message(reader: &mut Reader<'_>, node: &Node<'_>, ground: &Ground<'_>) -> Option<Template> {
    let text = reader.text(node, "text")?;
    if text.len() > LONGEST || text.as_bytes().find_byte(0).is_some() {
        reader.fault(node.span(), "not a text that is sent anywhere");
        return None;
    }
    match template::parse_among_braces(text, |name| ground.is_known(name)) {
        Ok(template) => Some(template),
        Err(flaw) => {
            ground.flawed(reader, node, text, flaw);
            None
        }
    }
}
