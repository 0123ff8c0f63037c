//! From a whole answer to what it says of each key. Whatever is in no map, or in both, is unknown.

use std::collections::BTreeSet;

use bstr::BStr;
use serde_json::Value;

use crate::config::policy::{Expect, HttpRegistry, Instance, Want};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::question::Registered;

/// An answer, read to its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Whole {
    pub(super) status: u16,
    pub(super) body: Vec<u8>,
}

/// How an answer stands to one entry of a map.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fit {
    Yes,
    No,
    /// The body had to be looked into, and is not JSON or has `null` there.
    Unclear,
}

/// How an answer stands to a map.
enum Entries<'a> {
    Some(&'a Expect),
    None,
    Unclear,
}

/// Says what an answer says of each of the keys, in their order.
pub(super) fn read(http: &HttpRegistry, whole: &Whole, keys: &[&BStr]) -> Vec<Known<Registered>> {
    let json = serde_json::from_slice(&whole.body).ok();
    let json: Option<&Value> = json.as_ref();
    let said = named(http, json).and_then(|()| match &http.listed {
        Some(pointer) => listing(http, whole, json, pointer).map(Said::All),
        None => one(http, whole, json).map(Said::One),
    });
    let of = |key: &BStr| match &said {
        Ok(Said::One(said)) => Ok(said.clone()),
        Ok(Said::All(listed)) => {
            let others = listed.iter().filter(|listed| *key != listed.as_str()).count();
            Ok(if others < listed.len() {
                Registered::Listed { holder: None }
            } else {
                Registered::NotListed { others: u64::try_from(others).unwrap_or(u64::MAX) }
            })
        }
        Err(unknown) => Err(unknown.clone()),
    };
    keys.iter().map(|key| of(key)).collect()
}

enum Said {
    One(Registered),
    All(BTreeSet<String>),
}

fn unclear(what: String) -> Unknown {
    Unknown::new(Reason::Unsound, what)
}

/// Says whether the answer bears the name of the server that is meant.
fn named(http: &HttpRegistry, json: Option<&Value>) -> Known<()> {
    let Instance::Named { pointer, equals } = &http.instance else { return Ok(()) };
    match json.and_then(|json| json.pointer(pointer)).and_then(text) {
        Some(name) if name == *equals => Ok(()),
        Some(_) => Err(unclear("another server answers there".to_owned())),
        None => Err(unclear(format!("the answer does not say who gives it (nothing at {pointer})"))),
    }
}

fn one(http: &HttpRegistry, whole: &Whole, json: Option<&Value>) -> Known<Registered> {
    let status = whole.status;
    match (search(&http.alive, status, json), search(&http.gone, status, json)) {
        (Entries::Some(_), Entries::None) => Ok(Registered::Listed { holder: None }),
        (Entries::None, Entries::Some(entry)) => Ok(Registered::Over(entry_text(entry))),
        (Entries::Some(_), Entries::Some(_)) => {
            Err(unclear(format!("HTTP {status} with a body that both alive and gone name")))
        }
        (Entries::None, Entries::None) => {
            Err(unclear(format!("HTTP {status}, which neither alive nor gone names")))
        }
        (Entries::Unclear, _) | (_, Entries::Unclear) => {
            Err(unclear(format!("HTTP {status} with a body that does not say what alive and gone ask")))
        }
    }
}

fn search<'a>(entries: &'a [Expect], status: u16, json: Option<&Value>) -> Entries<'a> {
    let mut found = Entries::None;
    for entry in entries {
        match (fit(entry, status, json), &found) {
            (Fit::Unclear, _) => return Entries::Unclear,
            (Fit::Yes, Entries::None) => found = Entries::Some(entry),
            (Fit::Yes | Fit::No, _) => {}
        }
    }
    found
}

fn fit(entry: &Expect, status: u16, json: Option<&Value>) -> Fit {
    if entry.status != status {
        return Fit::No;
    }
    let Some(wanted) = &entry.body else { return Fit::Yes };
    let Some(json) = json else { return Fit::Unclear };
    let fits = match (json.pointer(&wanted.pointer), &wanted.want) {
        // Some programs write null for what is not there, and some for what is.
        (Some(Value::Null), Want::Present | Want::Missing) => return Fit::Unclear,
        (found, Want::Equals(wanted)) => found.and_then(text).as_ref() == Some(wanted),
        (found, Want::Present) => found.is_some(),
        (found, Want::Missing) => found.is_none(),
    };
    if fits { Fit::Yes } else { Fit::No }
}

/// Returns a value as text: numbers and truths as JSON writes them.
fn text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(_) | Value::Bool(_) => Some(value.to_string()),
        Value::Null | Value::Array(_) | Value::Object(_) => None,
    }
}

fn entry_text(entry: &Expect) -> String {
    let status = entry.status;
    let Some(body) = &entry.body else { return format!("HTTP {status}") };
    match &body.want {
        Want::Equals(equals) => format!("HTTP {status} with {} = {equals}", body.pointer),
        Want::Present => format!("HTTP {status} with {}", body.pointer),
        Want::Missing => format!("HTTP {status} without {}", body.pointer),
    }
}

/// Returns all keys that an answer lists. A list with a hole may miss the very key that is asked about.
fn listing(
    http: &HttpRegistry,
    whole: &Whole,
    json: Option<&Value>,
    pointer: &str,
) -> Known<BTreeSet<String>> {
    let status = whole.status;
    let fits = match (search(&http.alive, status, json), search(&http.gone, status, json)) {
        (Entries::Some(_), Entries::None) => true,
        (Entries::None, Entries::None) => http.alive.is_empty() && status == 200,
        (_, Entries::Some(_) | Entries::Unclear) | (Entries::Unclear, Entries::None) => false,
    };
    if !fits {
        return Err(unclear(format!("HTTP {status} where a list was asked for")));
    }
    let json = json.ok_or_else(|| unclear("a list that is not JSON".to_owned()))?;
    let mut keys = BTreeSet::new();
    let steps: Vec<&str> = pointer.split('/').skip(1).collect();
    collect(json, &steps, &mut keys).ok_or_else(|| unclear(format!("a list with nothing at {pointer}")))?;
    Ok(keys)
}

fn collect(value: &Value, steps: &[&str], keys: &mut BTreeSet<String>) -> Option<()> {
    let Some((step, rest)) = steps.split_first() else {
        keys.insert(text(value)?);
        return Some(());
    };
    if *step == "*" {
        for element in value.as_array()? {
            collect(element, rest, keys)?;
        }
        return Some(());
    }
    collect(value.pointer(&format!("/{step}"))?, rest, keys)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::policy::{ExpectBody, Method, Server};

    fn expect(status: u16, body: Option<(&str, Want)>) -> Expect {
        let body = body.map(|(pointer, want)| ExpectBody { pointer: pointer.into(), want });
        Expect { status, body }
    }

    fn registry() -> HttpRegistry {
        HttpRegistry {
            server: Server::Unix { path: "/s".into() },
            target: "/{key}".into(),
            method: Method::Get,
            headers: Vec::new(),
            body: None,
            every: Duration::ZERO,
            alive: vec![expect(200, None)],
            gone: vec![expect(404, Some(("/error", Want::Equals("no such session".into()))))],
            listed: None,
            instance: Instance::Ancestor,
        }
    }

    fn says(http: &HttpRegistry, status: u16, body: &str) -> Known<Registered> {
        let whole = Whole { status, body: body.into() };
        read(http, &whole, &["a".into()]).remove(0)
    }

    #[test]
    fn only_what_a_map_names_is_known_f11() {
        let http = registry();
        assert_eq!(says(&http, 200, "hello"), Ok(Registered::Listed { holder: None }));
        let over = says(&http, 404, r#"{"error":"no such session"}"#);
        assert_eq!(over, Ok(Registered::Over("HTTP 404 with /error = no such session".into())));
        for (status, body) in [
            (404, r#"{"error":"no such route"}"#),
            (404, r#"{"error":null}"#),
            (404, "{}"),
            (404, "<html>"),
            (404, r#"{"error":"no such session""#),
            (404, ""),
            (503, r#"{"error":"no such session"}"#),
            (401, "{}"),
            (403, "{}"),
            (500, ""),
            (302, ""),
            (204, ""),
        ] {
            let said = says(&http, status, body);
            assert_eq!(said.clone().unwrap_err().reason, Reason::Unsound, "{status} {body}: {said:?}");
        }
    }

    #[test]
    fn what_both_maps_name_is_unknown() {
        let http = HttpRegistry {
            alive: vec![expect(200, None)],
            gone: vec![expect(200, Some(("/ttl", Want::Equals("-1".into()))))],
            ..registry()
        };
        assert!(says(&http, 200, r#"{"ttl":"-1"}"#).unwrap_err().what.contains("both"));
        assert!(says(&http, 200, "{}").is_ok());
        assert!(says(&http, 200, "half").is_err(), "the gone map had to look into it");
    }

    #[test]
    fn present_and_missing_need_a_whole_body_and_null_is_neither() {
        let http = HttpRegistry {
            alive: vec![expect(200, Some(("/result", Want::Present)))],
            gone: vec![expect(200, Some(("/result", Want::Missing)))],
            ..registry()
        };
        assert_eq!(says(&http, 200, r#"{"result":{}}"#), Ok(Registered::Listed { holder: None }));
        assert_eq!(says(&http, 200, "{}"), Ok(Registered::Over("HTTP 200 without /result".into())));
        assert!(says(&http, 200, r#"{"result":null}"#).is_err());
        assert!(says(&http, 200, "{").is_err());
        let loose = HttpRegistry { gone: vec![expect(200, None)], ..http.clone() };
        assert!(says(&loose, 200, r#"{"result":null}"#).is_err(), "it may be alive");
        let number =
            HttpRegistry { gone: vec![expect(200, Some(("/ttl", Want::Equals("-1".into()))))], ..http };
        assert!(matches!(says(&number, 200, r#"{"ttl":-1}"#), Ok(Registered::Over(_))));
    }

    #[test]
    fn an_answer_without_the_name_of_its_server_is_nobodys() {
        let named = Instance::Named { pointer: "/header/cluster_id".into(), equals: "17".into() };
        let http = HttpRegistry { instance: named, gone: vec![expect(404, None)], ..registry() };
        assert!(says(&http, 200, r#"{"header":{"cluster_id":"17"}}"#).is_ok());
        assert!(says(&http, 404, r#"{"header":{"cluster_id":17}}"#).is_ok());
        for body in [r#"{"header":{"cluster_id":"18"}}"#, "{}", "", r#"{"header":{"cluster_id":null}}"#] {
            assert!(says(&http, 404, body).is_err(), "{body}");
            assert!(says(&http, 200, body).is_err(), "{body}");
        }
    }

    #[test]
    fn a_list_with_a_hole_says_nothing_of_who_is_not_on_it() {
        let listed = Some("/details/*/sessions/*/id".to_owned());
        let http =
            HttpRegistry { target: "/".into(), alive: Vec::new(), gone: Vec::new(), listed, ..registry() };
        let on = r#"{"details":[{"sessions":[{"id":"b"}]},{"sessions":[{"id":"a"},{"id":7}]}]}"#;
        assert_eq!(says(&http, 200, on), Ok(Registered::Listed { holder: None }));
        let off = r#"{"details":[{"sessions":[{"id":"b"}]},{"sessions":[]}]}"#;
        assert_eq!(says(&http, 200, off), Ok(Registered::NotListed { others: 1 }));
        assert_eq!(says(&http, 200, r#"{"details":[]}"#), Ok(Registered::NotListed { others: 0 }));
        for (status, body) in [
            (200, "{}"),
            (200, r#"{"details":[{}]}"#),
            (200, r#"{"details":[{"sessions":[{"id":"b"},{}]}]}"#),
            (200, r#"{"details":[{"sessions":[{"id":null}]}]}"#),
            (200, r#"{"details":{"sessions":[]}}"#),
            (200, "<html>"),
            (206, off),
            (404, off),
            (503, off),
        ] {
            assert!(says(&http, status, body).is_err(), "{status} {body}");
        }
    }
}
