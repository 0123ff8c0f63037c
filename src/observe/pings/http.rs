//! One GET, and its status and body.

use bstr::{BStr, ByteSlice as _};

use crate::model::known::{Known, Reason, Unknown};

use super::{Heard, Line, has};

/// A longer head is no answer.
const HEAD_MOST: usize = 32 * 1024;
/// A line that tells a chunk's length, with whatever stands behind it.
const CHUNK_LINE_MOST: usize = 1024;

/// Returns the request.
pub(super) fn request(path: &BStr) -> Known<Vec<u8>> {
    let is_plain = path.iter().all(|byte| byte.is_ascii_graphic() || !byte.is_ascii());
    if !path.starts_with(b"/") || !is_plain {
        return Err(Unknown::new(Reason::Unsupported, "asking for what is no path of a server"));
    }
    let mut bytes = b"GET ".to_vec();
    bytes.extend_from_slice(path);
    bytes.extend_from_slice(
        b" HTTP/1.1\r\nHost: localhost\r\nUser-Agent: reapd\r\nAccept: */*\r\nConnection: close\r\n\r\n",
    );
    Ok(bytes)
}

/// How long a body is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Length {
    Known(usize),
    Chunked,
    /// To the end of the connection.
    Open,
}

/// A body counts as soon as it holds what is expected, though its end may be far.
pub(super) fn heard(bytes: &[u8], line: Line, status: Option<u16>, expect: Option<&BStr>) -> Heard {
    let unfinished = match line {
        Line::Open => Heard::More,
        Line::Closed => Heard::Other,
    };
    if !b"HTTP/1.".starts_with(&bytes[..bytes.len().min(7)]) {
        return Heard::Other;
    }
    let Some(end) = bytes.find(b"\r\n\r\n") else {
        return if bytes.len() > HEAD_MOST { Heard::Other } else { unfinished };
    };
    let (head, body) = (&bytes[..end], &bytes[end + 4..]);
    let Some(code) = code(head) else { return Heard::Other };
    // Interim answers (RFC 9110, 15.2) come before the one that counts.
    if (100..200).contains(&code) && code != 101 {
        return if body.is_empty() { unfinished } else { heard(body, line, status, expect) };
    }
    if status.is_some_and(|status| status != code) {
        return Heard::Other;
    }
    let Some(expect) = expect else { return Heard::Reply };
    let (text, is_whole) = match length(head, code) {
        Some(Length::Known(length)) => (body.get(..length).unwrap_or(body).to_vec(), body.len() >= length),
        Some(Length::Open) => (body.to_vec(), false),
        Some(Length::Chunked) => match unchunked(body) {
            Some(read) => read,
            None => return Heard::Other,
        },
        None => return Heard::Other,
    };
    if has(&text, expect) {
        Heard::Reply
    } else if is_whole {
        Heard::Other
    } else {
        unfinished
    }
}

fn code(head: &[u8]) -> Option<u16> {
    let first = head.split_str(b"\r\n").next()?;
    let (version, rest) = first.split_once_str(b" ")?;
    let digits = rest.get(..3)?;
    let is_code = version.len() == 8 && rest.get(3).is_none_or(|&byte| byte == b' ');
    let code = digits.to_str().ok().filter(|_| digits.iter().all(u8::is_ascii_digit))?.parse().ok()?;
    (is_code && code >= 100).then_some(code)
}

fn length(head: &[u8], code: u16) -> Option<Length> {
    if code == 204 || code == 304 {
        return Some(Length::Known(0));
    }
    let mut length = Length::Open;
    for field in head.split_str(b"\r\n").skip(1) {
        let Some((name, value)) = field.split_once_str(b":") else { continue };
        let (name, value) = (name.to_ascii_lowercase(), value.trim_ascii());
        if name == b"transfer-encoding" {
            return value.to_ascii_lowercase().ends_with(b"chunked").then_some(Length::Chunked);
        }
        if name == b"content-length" {
            length = Length::Known(value.to_str().ok()?.parse().ok()?);
        }
    }
    Some(length)
}

/// Returns what the chunks hold so far, and whether the last one came; nothing where they are none.
fn unchunked(mut body: &[u8]) -> Option<(Vec<u8>, bool)> {
    let mut text = Vec::new();
    loop {
        let Some((first, rest)) = body.split_once_str(b"\r\n") else {
            return (body.len() <= CHUNK_LINE_MOST).then_some((text, false));
        };
        let digits = first.split(|&byte| byte == b';').next().unwrap_or_default().trim_ascii();
        let is_hex = !digits.is_empty() && digits.len() <= 8 && digits.iter().all(u8::is_ascii_hexdigit);
        let length = usize::from_str_radix(digits.to_str().ok().filter(|_| is_hex)?, 16).ok()?;
        if length == 0 {
            return Some((text, true));
        }
        text.extend_from_slice(rest.get(..length).unwrap_or(rest));
        match rest.get(length..) {
            Some(behind) if behind.len() >= 2 => body = behind.strip_prefix(b"\r\n")?,
            Some(_) | None => return Some((text, false)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(bytes: &str, line: Line) -> Heard {
        heard(bytes.as_bytes(), line, Some(200), Some("ok".into()))
    }

    #[test]
    fn a_status_alone() {
        let alone = |bytes: &str, status| heard(bytes.as_bytes(), Line::Open, status, None);
        assert_eq!(alone("HTTP/1.1 503 No\r\n\r\n", None), Heard::Reply, "any status lives");
        assert_eq!(alone("HTTP/1.0 200\r\nX: y\r\n\r\n", Some(200)), Heard::Reply);
        assert_eq!(alone("HTTP/1.1 503 No\r\n\r\n", Some(200)), Heard::Other);
        assert_eq!(alone("HTTP/1.1 200 OK\r\nX: y\r\n", Some(200)), Heard::More);
        assert_eq!(alone("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n\r\n", Some(200)), Heard::Reply);
        for broken in
            ["SSH-2.0\r\n", "HTTP/2 200\r\n\r\n", "HTTP/1.1 2000 x\r\n\r\n", "HTTP/1.1 +20 x\r\n\r\n"]
        {
            assert_eq!(alone(broken, None), Heard::Other, "{broken}");
        }
        assert_eq!(alone(&format!("HTTP/1.1 200 {}", "x".repeat(HEAD_MOST)), None), Heard::Other);
    }

    #[test]
    fn bodies_of_all_three_kinds() {
        let head = "HTTP/1.1 200 OK\r\n";
        assert_eq!(ok(&format!("{head}Content-Length: 5\r\n\r\nis ok"), Line::Open), Heard::Reply);
        assert_eq!(ok(&format!("{head}Content-Length: 2\r\n\r\nno"), Line::Open), Heard::Other);
        assert_eq!(ok(&format!("{head}Content-Length: 2\r\n\r\nnook"), Line::Open), Heard::Other);
        assert_eq!(ok(&format!("{head}Content-Length: 9\r\n\r\nno"), Line::Open), Heard::More);
        assert_eq!(ok(&format!("{head}\r\nno"), Line::Open), Heard::More);
        assert_eq!(ok(&format!("{head}\r\nno"), Line::Closed), Heard::Other);
        assert_eq!(ok(&format!("{head}\r\nok"), Line::Open), Heard::Reply);
        let chunked = format!("{head}Transfer-Encoding: chunked\r\n\r\n");
        assert_eq!(ok(&format!("{chunked}1;x=y\r\no\r\n1\r\nk\r\n"), Line::Open), Heard::Reply);
        assert_eq!(ok(&format!("{chunked}2\r\nno\r\n0\r\n\r\n"), Line::Open), Heard::Other);
        assert_eq!(ok(&format!("{chunked}2\r\nno\r\n"), Line::Open), Heard::More);
        assert_eq!(ok(&format!("{chunked}x\r\nok\r\n"), Line::Open), Heard::Other);
        assert_eq!(ok(&format!("{chunked}2\r\nnook"), Line::Open), Heard::Other, "no chunk ends so");
        assert_eq!(ok(&format!("{head}Transfer-Encoding: gzip\r\n\r\nok"), Line::Open), Heard::Other);
    }

    #[test]
    fn a_path_smuggles_nothing_in() {
        for bad in ["x", "/a b", "/a\r\nX: y", "", "/\u{7f}"] {
            assert!(request(bad.into()).is_err(), "{bad:?}");
        }
        assert!(request("/health?x=1".into()).unwrap().starts_with(b"GET /health?x=1 HTTP/1.1\r\n"));
    }
}
