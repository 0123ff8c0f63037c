//! A registry that is asked over HTTP.
//!
//! What comes from a process never names a host, a port, a socket or a file (REDTEAM S3): `{key}` stands in the path,
//! the query, the body and the values of headers, and nowhere else.

use std::time::Duration;

use bstr::{BStr, ByteSlice as _};
use toml::de::{DeTable, DeValue};

use crate::config::pattern::expand;
use crate::config::policy::{HttpRegistry, Instance, Method, Server};
use crate::config::read::{Key, Node, Reader, in_order};

use super::address::{is_near, url};
use super::expect::{Meaning, expects, value};
use super::pointer;

const KEYS: [&str; 9] = ["url", "method", "headers", "body", "every", "alive", "gone", "listed", "instance"];

/// What stands for the key.
pub(super) const KEY: &str = "{key}";

/// A longer text is no template for one question.
pub(super) const LONGEST: usize = 16 * 1024;

/// Headers that the request itself is made of.
const OURS: [&str; 8] =
    ["host", "content-length", "transfer-encoding", "connection", "te", "trailer", "upgrade", "expect"];

/// Reads what follows `url`.
pub(super) fn read(
    reader: &mut Reader<'_>,
    section: &Key<'_>,
    table: &DeTable<'_>,
    url: &Node<'_>,
    home: Option<&BStr>,
) -> Option<HttpRegistry> {
    reader.unknown_keys(table, &KEYS, &[]);
    let address = self::url(reader, url);
    let body = table.get("body").map(|node| body(reader, node));
    let headers = table.get("headers").map_or_else(|| Some(Vec::new()), |node| headers(reader, node, home));
    let every = table.get("every").map_or(Some(Duration::ZERO), |node| reader.duration(node));
    let alive =
        table.get("alive").map_or_else(|| Some(Vec::new()), |node| expects(reader, node, Meaning::Alive));
    let gone =
        table.get("gone").map_or_else(|| Some(Vec::new()), |node| expects(reader, node, Meaning::Gone));
    let listed = table.get("listed").map(|node| listed(reader, node));
    let method = match table.get("method") {
        Some(node) => reader.word(node, &["GET", "POST"]).map(|word| match word {
            "POST" => Method::Post,
            _ => Method::Get,
        }),
        None if body.is_some() => Some(Method::Post),
        None => Some(Method::Get),
    };
    if let (Some(node), Some(Method::Get)) = (table.get("body"), method) {
        reader.fault(node.span(), "a GET has no body").hint("method = \"POST\", or leave the body out");
        return None;
    }
    let (server, target) = address?;
    let instance = instance(reader, url, table.get("instance"), &server);
    let (body, listed) = (
        body.map_or(Some(None), |body| body.map(Some))?,
        listed.map_or(Some(None), |listed| listed.map(Some))?,
    );
    let registry = HttpRegistry {
        server,
        target,
        method: method?,
        headers: headers?,
        body,
        every: every?,
        alive: alive?,
        gone: gone?,
        listed,
        instance: instance?,
    };
    whole(reader, section, table, url, &registry).then_some(registry)
}

/// Says whether the parts fit together, and faults what does not.
fn whole(
    reader: &mut Reader<'_>,
    section: &Key<'_>,
    table: &DeTable<'_>,
    url: &Node<'_>,
    registry: &HttpRegistry,
) -> bool {
    let name = section.get_ref();
    let keyed = registry.target.contains(KEY)
        || registry.body.as_ref().is_some_and(|body| body.contains(KEY))
        || registry.headers.iter().any(|(_, value)| value.contains(KEY));
    let listed = table.get("listed");
    match (keyed, listed) {
        (true, Some(node)) => {
            reader
                .fault(node.span(), "an answer that lists all keys is not asked for one of them")
                .hint("leave out either `listed` or every `{key}`");
            return false;
        }
        (false, None) => {
            reader
                .fault(url.span(), "this asks the same for every key")
                .hint("put `{key}` into the path, the query, the body or a header")
                .hint("or say where the answer lists all keys: listed = \"/sessions/*/id\"");
            return false;
        }
        (true, None) | (false, Some(_)) => {}
    }
    if let (Some(_), Some(node)) = (listed, table.get("gone")) {
        reader
            .fault(node.span(), "`gone` has no meaning beside `listed`")
            .hint("what is not listed is over; `alive` says which answers are whole lists");
        return false;
    }
    for (key, given) in [("alive", &registry.alive), ("gone", &registry.gone)] {
        if listed.is_none() && given.is_empty() {
            reader
                .fault(section.span(), format!("`{name}` has no `{key}`"))
                .hint("what fits neither map is unknown, and unknown is kept")
                .hint(format!(
                    "for example {key} = [{{ status = {} }}]",
                    if key == "alive" { 200 } else { 404 }
                ));
            return false;
        }
    }
    true
}

fn body(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<String> {
    let text = reader.text(node, "text such as '{ \"ID\": \"{key}\" }'")?;
    if text.len() > LONGEST {
        reader.fault(node.span(), format!("longer than {LONGEST} bytes"));
        return None;
    }
    Some(text.to_owned())
}

fn headers(reader: &mut Reader<'_>, node: &Node<'_>, home: Option<&BStr>) -> Option<Vec<(String, String)>> {
    let table = reader.table(node, "a table such as { Accept = \"application/json\" }")?;
    let mut headers = Vec::new();
    let mut complete = true;
    for (key, node) in in_order(table) {
        let name = key.get_ref().as_ref();
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
        if name.is_empty() || !name.bytes().all(plain) {
            reader.fault(key.span(), "not the name of a header").hint("letters, digits and dashes");
            complete = false;
        } else if OURS.contains(&name.to_ascii_lowercase().as_str()) {
            reader.fault(key.span(), format!("`{name}` is for reapd itself to send")).hint("leave it out");
            complete = false;
        } else if let Some(value) = header_value(reader, node, home) {
            headers.push((name.to_owned(), value));
        } else {
            complete = false;
        }
    }
    complete.then_some(headers)
}

/// Reads the value of a header, and returns it with `~` expanded in every `{file:PATH}`.
fn header_value(reader: &mut Reader<'_>, node: &Node<'_>, home: Option<&BStr>) -> Option<String> {
    const HINT: &str = "`{key}` is the key, `{file:PATH}` what stands in a file of yours";
    let text = reader.text(node, "text such as \"Bearer {file:~/.config/acme/token}\"")?;
    if text.len() > LONGEST || text.chars().any(|letter| letter.is_control() || !letter.is_ascii()) {
        reader.fault(node.span(), "a header's value is plain text on one line");
        return None;
    }
    let mut value = String::new();
    let mut rest = text;
    while let Some(found) = rest.find(['{', '}']) {
        let at = text.len() - rest.len() + found;
        value.push_str(&rest[..found]);
        rest = &rest[found..];
        if let Some(after) = rest.strip_prefix(KEY) {
            value.push_str(KEY);
            rest = after;
            continue;
        }
        let Some((path, after)) = rest.strip_prefix("{file:").and_then(|rest| rest.split_once('}')) else {
            let span = reader.within(node, at..at + 1);
            reader.fault(span, "only `{key}` and `{file:PATH}` stand in braces here").hint(HINT);
            return None;
        };
        let whole = expand(path, home).and_then(|path| {
            let text = path.to_str().map_err(|_| "the home directory has a name that is no text")?;
            if text.starts_with('/') {
                Ok(text.to_owned())
            } else {
                Err(format!("`{text}` is not a whole path"))
            }
        });
        match whole {
            Ok(path) => {
                value.push_str("{file:");
                value.push_str(&path);
                value.push('}');
            }
            Err(why) => {
                let span = reader.within(node, at..at + "{file:".len() + path.len() + 1);
                reader.fault(span, why).hint("begin it with `/` or `~/`");
                return None;
            }
        }
        rest = after;
    }
    value.push_str(rest);
    Some(value)
}

fn listed(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<String> {
    let text = pointer(reader, node)?;
    if text.split('/').filter(|step| *step == "*").count() == 0 {
        reader
            .fault(node.span(), "no step of this pointer is `*`")
            .hint("`*` stands for every element: \"/sessions/*/id\"");
        return None;
    }
    Some(text)
}

fn instance(
    reader: &mut Reader<'_>,
    url: &Node<'_>,
    node: Option<&Node<'_>>,
    server: &Server,
) -> Option<Instance> {
    const NAMED: &str = "instance = { pointer = \"/header/cluster_id\", equals = \"14841639068965178418\" }";
    let near = is_near(server);
    let Some(node) = node else {
        if near {
            return Some(Instance::Ancestor);
        }
        reader
            .fault(url.span(), "nothing tells this server from another one at the same address")
            .hint("another one there would know none of the keys, and everything would look over")
            .hint(NAMED);
        return None;
    };
    if let DeValue::Table(table) = node.get_ref() {
        reader.unknown_keys(table, &["pointer", "equals"], &[]);
        let (Some(at), Some(equals)) = (table.get("pointer"), table.get("equals")) else {
            reader.fault(node.span(), "an instance is named by `pointer` and `equals`").hint(NAMED);
            return None;
        };
        return Some(Instance::Named { pointer: pointer(reader, at)?, equals: value(reader, equals)? });
    }
    reader.word(node, &["ancestor"])?;
    if !near {
        reader.fault(node.span(), "a server on another machine is nobody's ancestor here").hint(NAMED);
        return None;
    }
    Some(Instance::Ancestor)
}

#[cfg(test)]
mod tests {
    use super::super::tests::{read_one, refuses};
    use super::*;
    use crate::config::policy::{ExpectBody, Source, Want};

    const MAPS: &str = "alive = [{ status = 200 }]\ngone = [{ status = 404 }]";

    fn http(text: &str) -> HttpRegistry {
        match read_one(text) {
            Ok(Source::Http(http)) => http,
            other => panic!("{text}: {other:?}"),
        }
    }

    fn tcp(host: &str, port: u16) -> Server {
        Server::Tcp { host: host.into(), port }
    }

    #[test]
    fn where_a_server_may_listen() {
        for (url, server, target) in [
            ("http://127.0.0.1:8811/s/{key}?x={key}", tcp("127.0.0.1", 8811), "/s/{key}?x={key}"),
            ("http://localhost/{key}", tcp("localhost", 80), "/{key}"),
            ("http://[::1]:9/{key}", tcp("::1", 9), "/{key}"),
            ("http+unix:///run/x.sock:/s/{key}", Server::Unix { path: "/run/x.sock".into() }, "/s/{key}"),
        ] {
            let http = http(&format!("url = \"{url}\"\n{MAPS}"));
            assert_eq!((http.server, http.target.as_str()), (server, target), "{url}");
            assert_eq!(
                (http.instance, http.method, http.every),
                (Instance::Ancestor, Method::Get, Duration::ZERO)
            );
        }
    }

    #[test]
    fn the_key_of_a_process_never_names_a_server_s3() {
        for (url, why) in [
            ("http://{key}:80/x", "never names a host"),
            ("http://127.0.0.1:{key}/x", "never names a host"),
            ("http://{key}/x", "never names a host"),
            ("http+unix:///run/{key}.sock:/x", "path of a socket"),
            ("http+unix://run/x.sock:/x", "path of a socket"),
            ("http+unix:///run/x.sock", "not a URL"),
            ("https://127.0.0.1/{key}", "https"),
            ("ftp://127.0.0.1/{key}", "known here"),
            ("http://a:b@127.0.0.1/{key}", "password"),
            ("http://127.0.0.1:99999/{key}", "host and a port"),
            ("http://127.0.0.1:0/{key}", "host and a port"),
            ("http://127.0.0.1:+1/{key}", "host and a port"),
            ("http:///{key}", "host and a port"),
            ("http://[::1/{key}", "host and a port"),
            ("http://127.0.0.1:1", "no path"),
            ("http://127.0.0.1:1?{key}", "no path"),
            ("http://127.0.0.1:1/{key}#x", "never sent"),
            ("http://127.0.0.1:1/{kay}", "braces"),
            ("http://127.0.0.1:1/a b{key}", "cannot stand"),
            ("http://127.0.0.1:1/", "same for every key"),
        ] {
            refuses(&format!("url = \"{url}\"\n{MAPS}"), why);
        }
    }

    #[test]
    fn who_answers_is_told_wherever_it_is_not_an_ancestor() {
        let url = |host: &str| format!("url = \"http://{host}/{{key}}\"\n{MAPS}");
        refuses(&url("etcd.example:2379"), "another one at the same address");
        refuses(&format!("{}\ninstance = \"ancestor\"", url("10.0.0.1")), "nobody's ancestor");
        refuses(&format!("{}\ninstance = \"parent\"", url("127.0.0.1")), "not known here");
        refuses(&format!("{}\ninstance = {{ pointer = \"/c\" }}", url("127.0.0.1")), "named by");
        let named = http(&format!("{}\ninstance = {{ pointer = \"/c\", equals = 7 }}", url("etcd:2379")));
        assert_eq!(named.instance, Instance::Named { pointer: "/c".into(), equals: "7".into() });
        assert_eq!(http(&url("127.9.9.9")).instance, Instance::Ancestor);
    }

    #[test]
    fn what_is_alive_and_what_is_gone() {
        let base = "url = \"http://127.0.0.1:1/{key}\"\nalive = { status = 200 }\n";
        let gone = |text: &str| format!("{base}gone = [{text}]");
        let read = http(&gone(
            "{ status = 404, pointer = \"/e\", equals = true }, { status = 200, pointer = \"/e\", missing = true }",
        ));
        assert_eq!(
            read.gone[0].body,
            Some(ExpectBody { pointer: "/e".into(), want: Want::Equals("true".into()) })
        );
        assert_eq!(read.gone[1].body, Some(ExpectBody { pointer: "/e".into(), want: Want::Missing }));
        for (text, why) in [
            ("{ pointer = \"/e\", present = true }", "status"),
            ("{ status = 100 }", "from 200"),
            ("{ status = 404, pointer = \"/e\" }", "what must be there"),
            ("{ status = 404, equals = \"x\" }", "needs a `pointer`"),
            ("{ status = 404, pointer = \"/e\", present = false }", "says nothing"),
            ("{ status = 404, pointer = \"/e\", present = true, equals = \"x\" }", "same place"),
            ("{ status = 404, pointer = \"/e\", equals = [] }", "belongs here"),
            ("", "empty list"),
        ] {
            refuses(&gone(text), why);
        }
        refuses(base, "no `gone`");
        refuses("url = \"http://127.0.0.1:1/{key}\"\ngone = { status = 404 }", "no `alive`");
    }

    #[test]
    fn no_refusal_and_no_fault_of_a_server_is_an_end() {
        for status in [301, 307, 401, 403, 429, 500, 502, 503] {
            let text = format!(
                "url = \"http://127.0.0.1:1/{{key}}\"\nalive = {{ status = 200 }}\ngone = {{ status = {status}, pointer = \"/e\", present = true }}"
            );
            refuses(&text, "nothing of a key");
        }
    }

    #[test]
    fn a_list_of_all_keys_instead_of_one_key() {
        let url = "url = \"http://127.0.0.1:1/all\"\n";
        assert_eq!(http(&format!("{url}listed = \"/s/*/id\"")).listed.as_deref(), Some("/s/*/id"));
        refuses(&format!("{url}listed = \"/s/id\""), "no step");
        refuses(&format!("{url}listed = \"/s/*\"\ngone = {{ status = 404 }}"), "no meaning");
        refuses("url = \"http://127.0.0.1:1/{key}\"\nlisted = \"/s/*\"", "not asked for one");
    }

    #[test]
    fn headers_and_bodies() {
        let url = format!("url = \"http://127.0.0.1:1/x\"\n{MAPS}\n");
        let read = http(&format!("{url}headers = {{ A = \"Bearer {{file:~/t}}\", B = \"{{key}}\" }}"));
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        assert_eq!(read.headers, [pair("A", "Bearer {file:/home/ana/t}"), pair("B", "{key}")]);
        let read = http(&format!("{url}body = '{{\"ID\":\"{{key}}\"}}'"));
        assert_eq!((read.method, read.body.as_deref()), (Method::Post, Some("{\"ID\":\"{key}\"}")));
        refuses(&format!("{url}method = \"GET\"\nbody = '{{key}}'"), "no body");
        refuses(&format!("{url}method = \"PUT\""), "not known here");
        for (headers, why) in [
            ("{ Host = \"{key}\" }", "reapd itself"),
            ("{ \"a b\" = \"{key}\" }", "name of a header"),
            ("{ A = \"{key}\\n\" }", "plain text"),
            ("{ A = \"{key}{x}\" }", "braces"),
            ("{ A = \"{key}{file:t}\" }", "whole path"),
            ("{ A = \"{key}{file:/{key}}\" }", "braces"),
        ] {
            refuses(&format!("{url}headers = {headers}"), why);
        }
    }
}
