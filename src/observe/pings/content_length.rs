//! One message behind a `Content-Length` header, as language servers and debug adapters speak.

use bstr::{BStr, ByteSlice as _};

use super::{HEARD_MOST, Heard, Line, has};

/// Headers that are longer are none.
const HEAD_MOST: usize = 8 * 1024;

/// Returns the message with its header.
pub(super) fn request(send: &BStr) -> Vec<u8> {
    let mut bytes = format!("Content-Length: {}\r\n\r\n", send.len()).into_bytes();
    bytes.extend_from_slice(send);
    bytes
}

/// Messages that do not fit decide nothing; what is no message does.
pub(super) fn heard(mut bytes: &[u8], line: Line, expect: &BStr) -> Heard {
    loop {
        let unfinished = match line {
            Line::Open => Heard::More,
            Line::Closed => Heard::Other,
        };
        let Some(end) = bytes.find(b"\r\n\r\n") else {
            return if bytes.len() > HEAD_MOST { Heard::Other } else { unfinished };
        };
        let Some(length) = length(&bytes[..end]).filter(|&length| length <= HEARD_MOST) else {
            return Heard::Other;
        };
        let body = &bytes[end + 4..];
        let Some(message) = body.get(..length) else { return unfinished };
        if has(message, expect) {
            return Heard::Reply;
        }
        bytes = &body[length..];
    }
}

fn length(head: &[u8]) -> Option<usize> {
    let field = head.split_str(b"\r\n").find_map(|field| {
        let (name, value) = field.split_once_str(b":")?;
        name.trim_ascii().eq_ignore_ascii_case(b"content-length").then_some(value)
    })?;
    field.trim_ascii().to_str().ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(bytes: &str, line: Line) -> Heard {
        heard(bytes.as_bytes(), line, "ok".into())
    }

    #[test]
    fn messages_one_after_another() {
        let first = "Content-Length: 2\r\n\r\n{}";
        assert_eq!(ok(first, Line::Open), Heard::More);
        assert_eq!(ok(first, Line::Closed), Heard::Other);
        assert_eq!(ok(&format!("{first}content-length:4\r\nX: y\r\n\r\n\"ok\""), Line::Open), Heard::Reply);
        assert_eq!(ok("Content-Length: 9\r\n\r\n\"ok\"", Line::Open), Heard::More, "its rest is missing");
        assert_eq!(ok("Content-Length: 99999999\r\n\r\n", Line::Open), Heard::Other);
        assert_eq!(ok("Content-Length: -1\r\n\r\n", Line::Open), Heard::Other);
        assert_eq!(ok("ok\r\n\r\n", Line::Open), Heard::Other, "no header");
        assert_eq!(ok(&"x".repeat(HEAD_MOST + 1), Line::Open), Heard::Other);
        assert_eq!(request("{}".into()), first.as_bytes());
    }
}
