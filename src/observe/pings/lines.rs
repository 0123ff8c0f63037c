//! One line out, and any line in that fits: newline-delimited JSON-RPC and plain text.

use bstr::{BStr, ByteSlice as _};

use crate::model::known::{Known, Reason, Unknown};

use super::{Heard, Line};

/// Returns the line with its end.
pub(super) fn request(send: &BStr) -> Known<Vec<u8>> {
    if send.contains(&b'\n') {
        return Err(Unknown::new(Reason::Unsupported, "a request of several lines"));
    }
    Ok([send.as_bytes(), b"\n"].concat())
}

/// Other lines may come before the reply, such as notifications: they decide nothing.
pub(super) fn heard(bytes: &[u8], line: Line, mut is_reply: impl FnMut(&[u8]) -> bool) -> Heard {
    let (whole, part) = match bytes.rfind_byte(b'\n') {
        Some(end) => (&bytes[..end], &bytes[end + 1..]),
        None => (&b""[..], bytes),
    };
    let has_line = bytes.contains(&b'\n');
    if has_line && whole.split(|&byte| byte == b'\n').any(&mut is_reply) {
        return Heard::Reply;
    }
    match line {
        Line::Open => Heard::More,
        Line::Closed if !part.is_empty() && is_reply(part) => Heard::Reply,
        Line::Closed => Heard::Other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ok(bytes: &str, line: Line) -> Heard {
        heard(bytes.as_bytes(), line, |text| text.contains_str("ok"))
    }

    #[test]
    fn a_whole_line_that_fits_wherever_it_comes() {
        assert_eq!(ok("hello\nis ok\n", Line::Open), Heard::Reply);
        assert_eq!(ok("hello\nis ok", Line::Open), Heard::More, "the rest of the line is not there yet");
        assert_eq!(ok("hello\nis ok", Line::Closed), Heard::Reply);
        assert_eq!(ok("hello\nno\n", Line::Open), Heard::More);
        assert_eq!(ok("hello\nno\n", Line::Closed), Heard::Other);
        assert_eq!(heard(b"\n", Line::Open, |_| true), Heard::Reply, "any line will do, an empty one too");
    }

    #[test]
    fn one_line_stays_one_line() {
        assert_eq!(request("a b".into()).unwrap(), b"a b\n");
        assert!(request("a\nshutdown".into()).is_err());
    }
}
