//! MCP's own `ping`, which a server answers at any time, before `initialize` too.

use serde_json::Value;

/// The request, one line of JSON-RPC.
pub(super) const REQUEST: &[u8] = b"{\"jsonrpc\":\"2.0\",\"id\":\"reapd-ping\",\"method\":\"ping\"}\n";
const ID: &str = "reapd-ping";

/// Says whether a line is the reply: a result or an error, either of a server that lives.
pub(super) fn is_reply(line: &[u8]) -> bool {
    let Ok(Value::Object(message)) = serde_json::from_slice(line) else { return false };
    let is_ours = message.get("id").and_then(Value::as_str) == Some(ID);
    is_ours && (message.contains_key("result") || message.contains_key("error"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_result_or_an_error_with_our_id() {
        assert!(is_reply(br#"{"jsonrpc":"2.0","id":"reapd-ping","result":{}}"#));
        assert!(is_reply(br#"{"id":"reapd-ping","error":{"code":-32601}}"#));
        for other in [
            r#"{"id":7,"result":{}}"#,
            r#"{"id":"reapd-ping","method":"ping"}"#,
            r#"{"method":"notifications/message"}"#,
            r#"["reapd-ping"]"#,
            "reapd-ping result",
        ] {
            assert!(!is_reply(other.as_bytes()), "{other}");
        }
        assert!(!is_reply("[".repeat(60_000).as_bytes()));
        assert!(!is_reply(REQUEST), "an echo is no reply");
    }
}
