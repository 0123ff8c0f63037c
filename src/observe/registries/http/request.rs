//! From a registry's templates and a key to a request. The key is text from outside (REDTEAM S3).

use std::fmt::Write as _;
use std::path::Path;

use bstr::{BStr, BString, ByteSlice as _};
use hyper::Request;
use hyper::header::{ACCEPT, CONTENT_TYPE, HOST, HeaderName, HeaderValue, USER_AGENT};

use crate::config::policy::{HttpRegistry, Method, Server};
use crate::model::known::{Known, Reason, Unknown};

/// Longer keys are nobody's.
const KEY_MOST: usize = 1024;
const KEY: &str = "{key}";
const FILE: &str = "{file:";
/// Headers that say how a request is framed; only reapd itself sets those.
const FRAMING: [&str; 8] =
    ["connection", "content-length", "expect", "keep-alive", "te", "trailer", "transfer-encoding", "upgrade"];

/// Reads a secret file.
pub(in crate::observe) type Secrets<'a> = dyn FnMut(&Path) -> Known<BString> + 'a;

/// Says whether a registry is told the key; else it is only looked for in the answer.
pub(super) fn is_told(http: &HttpRegistry) -> bool {
    let body = http.body.as_deref().unwrap_or_default();
    let headers = http.headers.iter().any(|(_, value)| value.contains(KEY));
    headers || http.target.contains(KEY) || body.contains(KEY)
}

/// Fills the templates in.
pub(super) fn prepare(http: &HttpRegistry, key: &BStr, secrets: &mut Secrets<'_>) -> Known<Request<String>> {
    let key = if is_told(http) { sendable(key)? } else { comparable(key)? };
    let method = match http.method {
        Method::Get => hyper::Method::GET,
        Method::Post => hyper::Method::POST,
    };
    let target = http.target.replace(KEY, &percent(key));
    let mut request =
        Request::new(http.body.as_deref().map(|body| body.replace(KEY, &quoted(key))).unwrap_or_default());
    *request.method_mut() = method;
    *request.uri_mut() = target.parse().map_err(|_| refused("target that is none"))?;
    let headers = request.headers_mut();
    headers.insert(HOST, host(&http.server)?);
    headers.insert(USER_AGENT, HeaderValue::from_static(concat!("reapd/", env!("CARGO_PKG_VERSION"))));
    headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
    if http.body.is_some() {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    for (name, template) in &http.headers {
        let what = || format!("header {name}");
        let header: HeaderName = name.parse().map_err(|_| refused(&what()))?;
        if FRAMING.contains(&header.as_str()) {
            return Err(refused(&what()));
        }
        let value = filled(template, key, &mut *secrets)?;
        let mut value = HeaderValue::from_bytes(&value).map_err(|_| refused(&what()))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(request)
}

fn refused(what: &str) -> Unknown {
    Unknown::new(Reason::Unsound, format!("{what}, which cannot be sent"))
}

/// Returns a key that is only compared: text of bounded length.
fn comparable(key: &BStr) -> Known<&str> {
    match key.to_str() {
        Ok(text) if !text.is_empty() && text.len() <= KEY_MOST => Ok(text),
        Ok(_) | Err(_) => Err(refused("key that is empty, too long or no text")),
    }
}

/// Returns a key that may be sent: one path element at most, nothing that climbs, no option, no control character.
fn sendable(key: &BStr) -> Known<&str> {
    let text = comparable(key)?;
    let is_climbing = text == "." || text.contains("..");
    let is_path = text.contains(['/', '\\']);
    if is_climbing || is_path || text.starts_with('-') || text.chars().any(char::is_control) {
        return Err(refused("key that is more than one plain word"));
    }
    Ok(text)
}

/// Returns the key as one element of a path (RFC 3986): all but the unreserved characters are encoded.
fn percent(key: &str) -> String {
    let mut encoded = String::with_capacity(key.len());
    for byte in key.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing to text does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}

/// Returns the key as it stands between the quotes of a JSON string.
fn quoted(key: &str) -> String {
    let quoted = serde_json::Value::from(key).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

/// Fills a header's value in, from left to right: what was filled in is not looked into again.
fn filled(template: &str, key: &str, secrets: &mut Secrets<'_>) -> Known<Vec<u8>> {
    let mut value = Vec::new();
    let mut rest = template;
    while let Some(at) = rest.find('{') {
        value.extend_from_slice(&rest.as_bytes()[..at]);
        rest = &rest[at..];
        if let Some(behind) = rest.strip_prefix(KEY) {
            if !key.bytes().all(|byte| byte.is_ascii_graphic()) {
                return Err(refused("key that is no visible ASCII in a header"));
            }
            value.extend_from_slice(key.as_bytes());
            rest = behind;
        } else if let Some((path, behind)) = rest.strip_prefix(FILE).and_then(|rest| rest.split_once('}')) {
            value.extend_from_slice(&secrets(Path::new(path))?);
            rest = behind;
        } else {
            value.push(b'{');
            rest = &rest[1..];
        }
    }
    value.extend_from_slice(rest.as_bytes());
    Ok(value)
}

fn host(server: &Server) -> Known<HeaderValue> {
    let text = match server {
        Server::Tcp { host, port } if host.contains(':') && !host.starts_with('[') => {
            format!("[{host}]:{port}")
        }
        Server::Tcp { host, port } => format!("{host}:{port}"),
        Server::Unix { .. } => "localhost".to_owned(),
    };
    HeaderValue::from_str(&text).map_err(|_| refused(&format!("host {text}")))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::policy::Instance;

    fn registry() -> HttpRegistry {
        HttpRegistry {
            server: Server::Tcp { host: "::1".into(), port: 80 },
            target: "/s/{key}".into(),
            method: Method::Post,
            headers: vec![
                ("Authorization".into(), "Bearer {file:/t}".into()),
                ("X-Id".into(), "{key}".into()),
            ],
            body: Some(r#"{"id":"{key}"}"#.into()),
            every: Duration::ZERO,
            alive: Vec::new(),
            gone: Vec::new(),
            listed: None,
            instance: Instance::Ancestor,
        }
    }

    fn made(http: &HttpRegistry, key: &[u8]) -> Known<Request<String>> {
        prepare(http, key.as_bstr(), &mut |path| {
            assert_eq!(path, Path::new("/t"));
            Ok("{key}".into())
        })
    }

    #[test]
    fn a_key_fills_target_header_and_body_each_in_its_own_way() {
        let made = made(&registry(), br#"a"%?&b"#).unwrap();
        assert_eq!(made.uri().path_and_query().unwrap().as_str(), "/s/a%22%25%3F%26b");
        assert_eq!(made.uri().query(), None, "a key makes no query");
        assert_eq!(made.body(), r#"{"id":"a\"%?&b"}"#);
        assert_eq!(made.headers()["x-id"], r#"a"%?&b"#);
        assert_eq!(made.headers()["authorization"], "Bearer {key}", "a secret is no template");
        assert_eq!(made.headers()["host"], "[::1]:80");
        assert_eq!(made.headers()["content-type"], "application/json");
    }

    #[test]
    fn a_key_that_is_more_than_one_plain_word_is_not_sent_s3() {
        let long = vec![b'k'; KEY_MOST + 1];
        let keys: [&[u8]; 15] = [
            b"",
            b"/",
            b"a/b",
            b"..",
            b"a..b",
            b".",
            b"-x",
            b"a\\b",
            b"a\nb",
            b"a\0b",
            b"a\x7fb",
            b"\xff",
            &long,
            "a\u{85}b".as_bytes(),
            b"/etc",
        ];
        for key in keys {
            assert!(made(&registry(), key).is_err(), "{}", key.as_bstr());
        }
        assert!(made(&registry(), b"a.b-c_d~1").is_ok(), "the twin that is a plain word");
    }

    #[test]
    fn a_header_takes_visible_ascii_only_and_never_names_a_file_by_a_key_s3() {
        for key in ["ä", "a b"] {
            assert!(made(&registry(), key.as_bytes()).is_err(), "{key}");
        }
        let http = HttpRegistry { headers: Vec::new(), ..registry() };
        assert_eq!(made(&http, "ä b".as_bytes()).unwrap().uri().path(), "/s/%C3%A4%20b");
        let http = HttpRegistry { headers: vec![("X-Id".into(), "{key}".into())], ..registry() };
        assert_eq!(made(&http, b"{file:x}").unwrap().headers()["x-id"], "{file:x}");
        for name in FRAMING {
            let http = HttpRegistry { headers: vec![(name.into(), "1".into())], ..registry() };
            assert!(made(&http, b"k").is_err(), "{name}");
        }
    }

    #[test]
    fn a_key_that_is_only_compared_may_be_a_path() {
        let http = HttpRegistry { headers: Vec::new(), body: None, target: "/all".into(), ..registry() };
        assert!(made(&http, b"/home/ana/work").is_ok());
        assert!(made(&http, b"\xff").is_err());
        let untold = Err(Unknown::new(Reason::Denied, "x"));
        let http = registry();
        assert_eq!(
            prepare(&http, b"k".as_bstr(), &mut |_| untold.clone()).unwrap_err().reason,
            Reason::Denied
        );
    }
}
