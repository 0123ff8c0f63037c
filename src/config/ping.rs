//! `ping` of a policy: what to ask a server, and by what reply it is known to live.

use bstr::ByteSlice as _;
use toml::de::DeTable;

use super::lines::{Ground, Subject};
use super::policy::{Ping, PublishedPing, Talk, Template, TemplatePart};
use super::read::{Node, Reader, in_order};
use super::template;

/// What may stand beside where it is asked, and `as`.
const WORDS: [&str; 4] = ["send", "expect", "path", "status"];

/// A longer text is no question.
const LONGEST: usize = 16 * 1024;

const EXAMPLE: &str = "for example ping = { socket = \"{socket}\", send = '{\"id\":1,\"method\":\"ping\"}', expect = '\"id\":1' }";

const HTTP: &str =
    "for example ping = { socket = \"127.0.0.1:8080\", as = \"http\", path = \"/health\", status = 200 }";

const PUBLISHED: &str = "for example ping = { port = \"8080/tcp\", as = \"http\", path = \"/health\" }";

/// Returns what a fault about a missing `ping` shows.
pub(super) fn example(subject: Subject) -> &'static str {
    match subject {
        Subject::Processes => EXAMPLE,
        Subject::Containers => PUBLISHED,
    }
}

/// Reads `ping` of a policy for processes.
pub(super) fn read(reader: &mut Reader<'_>, node: &Node<'_>, ground: &Ground<'_>) -> Option<Ping> {
    let table = reader.table(node, "a ping such as { socket = \"{socket}\", as = \"mcp\" }")?;
    let socket = place(reader, node, table, "socket", ground).and_then(|node| address(reader, node, ground));
    let talk = talk(reader, node, table, "socket", ground);
    Some(Ping { socket: socket?, talk: talk? })
}

/// Reads `ping` of a policy for containers.
pub(super) fn read_published(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    ground: &Ground<'_>,
) -> Option<PublishedPing> {
    let table = reader.table(node, "a ping such as { port = \"8080/tcp\", as = \"mcp\" }")?;
    let port = place(reader, node, table, "port", ground).and_then(|node| port(reader, node));
    let talk = talk(reader, node, table, "port", ground);
    Some(PublishedPing { port: port?, talk: talk? })
}

/// Returns what says where it is asked.
fn place<'n, 't>(
    reader: &mut Reader<'_>,
    ping: &Node<'_>,
    table: &'n DeTable<'t>,
    key: &str,
    ground: &Ground<'_>,
) -> Option<&'n Node<'t>> {
    let node = table.get(key);
    if node.is_none() {
        reader.fault(ping.span(), format!("a ping needs `{key}`")).hint(example(ground.subject));
    }
    node
}

/// Reads a port inside of a container, as engines write it.
fn port(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<u16> {
    let text = reader.text(node, "a port such as \"8080/tcp\"")?;
    let is_number = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.strip_suffix("/tcp").filter(is_number).and_then(|digits| digits.parse().ok());
    let port = number.filter(|&number: &u16| number != 0 && format!("{number}/tcp") == text);
    if port.is_none() {
        reader.fault(node.span(), "not a TCP port of a container").hint(
            "the port inside of the container, as it is published: \"5432/tcp\"; nobody connects over UDP",
        );
    }
    port
}

/// Reads what is spoken.
fn talk(
    reader: &mut Reader<'_>,
    node: &Node<'_>,
    table: &DeTable<'_>,
    place: &str,
    ground: &Ground<'_>,
) -> Option<Talk> {
    let known: Vec<&str> = [place, "as"].into_iter().chain(WORDS).collect();
    reader.unknown_keys(table, &known, &[]);
    let word = match table.get("as") {
        Some(node) => reader.word(node, &["lines", "content-length", "mcp", "http", "connect"])?,
        None => "lines",
    };
    let fitting: &[&str] = match word {
        "http" => &["path", "status", "expect"],
        "mcp" | "connect" => &[],
        _ => &["send", "expect"],
    };
    let is_fitting = fits(reader, table, word, (place, fitting));
    let talk = match word {
        "http" => http(reader, node, table, ground),
        "mcp" => Some(Talk::Mcp),
        "connect" => Some(Talk::Greeting),
        word => said(reader, node, table, word, ground),
    };
    talk.filter(|_| is_fitting)
}

/// Says whether every key has a meaning for what is spoken, and faults those that have none.
fn fits(reader: &mut Reader<'_>, table: &DeTable<'_>, word: &str, (place, fitting): (&str, &[&str])) -> bool {
    let mut fits = true;
    for (key, _) in in_order(table) {
        let name = key.get_ref().as_ref();
        if WORDS.contains(&name) && !fitting.contains(&name) {
            let hint = match fitting {
                [] => format!("as = \"{word}\" takes `{place}` alone"),
                _ => format!("as = \"{word}\" takes `{place}`, `{}`", fitting.join("`, `")),
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
    let send = needed(reader, ping, table, "send", (word, ground));
    let expect = needed(reader, ping, table, "expect", (word, ground));
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
    let path = needed(reader, ping, table, "path", ("http", ground)).and_then(|node| {
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
    (word, ground): (&str, &Ground<'_>),
) -> Option<&'n Node<'t>> {
    let node = table.get(key);
    if node.is_none() {
        let example = match (word, ground.subject) {
            ("http", Subject::Processes) => HTTP,
            (_, subject) => example(subject),
        };
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
