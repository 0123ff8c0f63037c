//! Which answers of a server mean alive, and which mean over.

use toml::de::DeValue;

use crate::config::policy::{Expect, ExpectBody, Want};
use crate::config::read::{Node, Reader, one_or_more};

use super::pointer;

/// What an entry of a map stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Meaning {
    Alive,
    Gone,
}

pub(super) fn expects(reader: &mut Reader<'_>, node: &Node<'_>, meaning: Meaning) -> Option<Vec<Expect>> {
    let elements = one_or_more(node);
    if elements.is_empty() {
        reader.fault(node.span(), "an empty list").hint("for example [{ status = 200 }]");
        return None;
    }
    let count = elements.len();
    let read: Vec<Expect> =
        elements.into_iter().filter_map(|element| expect(reader, element, meaning)).collect();
    (read.len() == count).then_some(read)
}

fn expect(reader: &mut Reader<'_>, node: &Node<'_>, meaning: Meaning) -> Option<Expect> {
    let table = reader.table(node, "an answer such as { status = 200 }")?;
    reader.unknown_keys(table, &["status", "pointer", "equals", "present", "missing"], &[]);
    let Some(status) = table.get("status") else {
        reader
            .fault(node.span(), "an answer is told by its `status` first")
            .hint("for example { status = 404 }");
        return None;
    };
    let number = u16::try_from(reader.number(status, 200..600)?).ok()?;
    if meaning == Meaning::Gone && says_nothing_of_a_key(number) {
        reader
            .fault(
                status.span(),
                format!("{number} says something of the server or of us, and nothing of a key"),
            )
            .hint(
                "whoever is asked amid a restart, an overload or without a password answers so for everybody",
            );
        return None;
    }
    let wants = [
        ("equals", table.get("equals")),
        ("present", table.get("present")),
        ("missing", table.get("missing")),
    ];
    let given: Vec<_> = wants.into_iter().filter_map(|(key, node)| Some((key, node?))).collect();
    let body = match (table.get("pointer"), given.as_slice()) {
        (None, []) => None,
        (Some(at), [(key, node)]) => {
            Some(ExpectBody { pointer: pointer(reader, at)?, want: want(reader, key, node)? })
        }
        (None, [(key, at), ..]) => {
            reader
                .fault(at.span(), format!("`{key}` needs a `pointer`"))
                .hint("it says where in the body to look");
            return None;
        }
        (Some(at), []) => {
            reader
                .fault(at.span(), "a `pointer` needs what must be there")
                .hint("equals = \"text\", present = true or missing = true");
            return None;
        }
        (Some(_), [_, (key, at), ..]) => {
            reader
                .fault(at.span(), format!("`{key}` beside another word for the same place"))
                .hint("one of `equals`, `present` and `missing`; more answers are more entries");
            return None;
        }
    };
    Some(Expect { status: number, body })
}

/// Says whether a server answers so whatever it is asked: redirects, refusals, overload, faults of its own.
fn says_nothing_of_a_key(status: u16) -> bool {
    matches!(status, 300..=399 | 401 | 403 | 405 | 407 | 408 | 425 | 426 | 429 | 431 | 451 | 500..=599)
}

fn want(reader: &mut Reader<'_>, key: &str, node: &Node<'_>) -> Option<Want> {
    if key == "equals" {
        return value(reader, node).map(Want::Equals);
    }
    if !reader.truth(node)? {
        let other = if key == "present" { "missing" } else { "present" };
        reader
            .fault(node.span(), format!("`{key} = false` says nothing"))
            .hint(format!("write {other} = true"));
        return None;
    }
    Some(if key == "present" { Want::Present } else { Want::Missing })
}

/// Reads text, a whole number or a truth, as its JSON text.
pub(super) fn value(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<String> {
    match node.get_ref() {
        DeValue::Integer(number) if number.radix() == 10 => {
            Some(number.as_str().trim_start_matches('+').to_owned())
        }
        DeValue::Boolean(truth) => Some(truth.to_string()),
        DeValue::Integer(_)
        | DeValue::String(_)
        | DeValue::Float(_)
        | DeValue::Datetime(_)
        | DeValue::Array(_)
        | DeValue::Table(_) => Some(reader.text(node, "text, a whole number, or true or false")?.to_owned()),
    }
}
