//! Where a server listens, as a URL.

// Only reads addresses: nothing here opens a socket.
use core::net::{IpAddr, Ipv6Addr};
use std::ops::Range;

use crate::config::policy::Server;
use crate::config::read::{Node, Reader};

use super::http::{KEY, LONGEST};

/// `sun_path` of unix(7), without its last NUL.
const LONGEST_SOCKET: usize = 107;

/// Says whether a server can only be on this machine.
pub(super) fn is_near(server: &Server) -> bool {
    match server {
        Server::Unix { .. } => true,
        Server::Tcp { host, .. } => {
            host == "localhost"
                || host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
        }
    }
}

/// Reads where the server listens, and the path and query.
pub(super) fn url(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<(Server, String)> {
    let text = reader.text(node, "a URL such as \"http://127.0.0.1:8811/sessions/{key}\"")?;
    match address(text) {
        Ok(address) => Some(address),
        Err((at, message, hint)) => {
            let span = reader.within(node, at);
            reader.fault(span, message).hint(hint);
            None
        }
    }
}

type Flaw = (Range<usize>, String, &'static str);

fn address(text: &str) -> Result<(Server, String), Flaw> {
    const SHAPES: &str = "\"http://host:port/path\", or \"http+unix:///path/of.sock:/path\"";
    let all = || 0..text.len();
    if text.len() > LONGEST {
        return Err((0..0, format!("longer than {LONGEST} bytes"), SHAPES));
    }
    if let Some(at) = text.find(|letter: char| !letter.is_ascii_graphic()) {
        return Err((at..at + 1, "this cannot stand in a URL".into(), "percent-encode it"));
    }
    if text.starts_with("https:") {
        return Err((
            0..5,
            "https is not spoken here".into(),
            "ask a proxy on this machine that speaks it, for example `kubectl proxy`, by http",
        ));
    }
    let (server, target, from) = if let Some(rest) = text.strip_prefix("http+unix://") {
        let Some((path, target)) = rest.split_once(':') else {
            return Err((all(), "not a URL".into(), SHAPES));
        };
        if !path.starts_with('/')
            || path.len() < 2
            || path.len() > LONGEST_SOCKET
            || path.contains(['{', '}'])
        {
            let hint = "the socket is a whole path of at most 107 bytes, and `{key}` is never part of it";
            return Err((12..12 + path.len().max(1), "not the path of a socket".into(), hint));
        }
        (Server::Unix { path: path.to_owned() }, target, 12 + path.len() + 1)
    } else if let Some(rest) = text.strip_prefix("http://") {
        let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
        (host(&rest[..end])?, &rest[end..], 7 + end)
    } else {
        return Err((all(), "not a URL that is known here".into(), SHAPES));
    };
    if !target.starts_with('/') {
        return Err((all(), "this URL has no path".into(), SHAPES));
    }
    if let Some(at) = target.find('#') {
        return Err((from + at..from + at + 1, "a `#` is never sent".into(), "percent-encode it: `%23`"));
    }
    if let Some(at) = stray_brace(target) {
        return Err((
            from + at..from + at + 1,
            "only `{key}` stands in braces here".into(),
            "percent-encode braces",
        ));
    }
    Ok((server, target.to_owned()))
}

fn host(authority: &str) -> Result<Server, Flaw> {
    let at = 7..7 + authority.len().max(1);
    if authority.contains(['{', '}']) {
        let hint =
            "the server is the operator's word: `{key}` stands in the path, the query, the body or a header";
        return Err((at, "`{key}` never names a host or a port".into(), hint));
    }
    if authority.contains('@') {
        let hint = "headers = { Authorization = \"Bearer {file:~/.config/acme/token}\" }";
        return Err((at, "no name and password stand in a URL here".into(), hint));
    }
    let flaw = || (at.clone(), "not a host and a port".into(), "for example \"127.0.0.1:8811\"");
    let (host, port) = match authority.strip_prefix('[') {
        Some(rest) => {
            let (host, rest) = rest.split_once(']').ok_or_else(flaw)?;
            host.parse::<Ipv6Addr>().map_err(|_| flaw())?;
            (host, if rest.is_empty() { None } else { Some(rest.strip_prefix(':').ok_or_else(flaw)?) })
        }
        None => match authority.split_once(':') {
            Some((host, port)) => (host, Some(port)),
            None => (authority, None),
        },
    };
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b".-_:".contains(&byte);
    if host.is_empty() || host.len() > 253 || !host.bytes().all(plain) {
        return Err(flaw());
    }
    let number =
        |text: &str| text.bytes().all(|byte| byte.is_ascii_digit()).then(|| text.parse::<u16>().ok())?;
    let port = match port {
        Some(text) => number(text).filter(|port| *port > 0).ok_or_else(flaw)?,
        None => 80,
    };
    Ok(Server::Tcp { host: host.to_owned(), port })
}

/// Returns where a brace stands that is not one of `{key}`.
fn stray_brace(text: &str) -> Option<usize> {
    let mut at = 0;
    while let Some(found) = text[at..].find(['{', '}']) {
        at += found;
        if !text[at..].starts_with(KEY) {
            return Some(at);
        }
        at += KEY.len();
    }
    None
}
