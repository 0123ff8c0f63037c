//! VS Code: `servers` in an `mcp.json`, `mcp.servers` in `settings.json`.

use super::{Parsed, json};

/// Returns what such a file says.
pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    let value = json::parse(text)?;
    let mut entries = json::servers(value.get("servers"), None);
    entries.extend(json::servers(value.pointer("/mcp/servers"), None));
    entries.extend(json::servers(value.get("mcp.servers"), None));
    Ok(Parsed { entries, directories: Vec::new() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_files() {
        let own = parse("{\"servers\": {\"a\": {\"command\": \"x\"},}, // c\n \"inputs\": []}").unwrap();
        assert_eq!(own.entries[0].command, "x");
        let settings =
            parse(r#"{"editor.tabSize": 4, "mcp": {"servers": {"b": {"command": "y"}}}}"#).unwrap();
        assert_eq!(settings.entries[0].name, "b");
        assert_eq!(parse("{\"mcp\": true}"), Ok(Parsed::default()));
    }
}
