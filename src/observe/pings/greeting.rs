//! Nothing out: whoever greets or hangs up lives.

use super::{Heard, Line};

/// Any byte is a greeting, and so is the end.
pub(super) fn heard(bytes: &[u8], line: Line) -> Heard {
    match (bytes, line) {
        ([], Line::Open) => Heard::More,
        ([_, ..], Line::Open) | (_, Line::Closed) => Heard::Reply,
    }
}
