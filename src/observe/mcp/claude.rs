//! Claude Code, Claude Desktop, Cursor and `.mcp.json`: an object `mcpServers`, and in `~/.claude.json` one more for
//! each project.

use super::{Parsed, json};

/// Returns what such a file says.
pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    let value = json::parse(text)?;
    let mut parsed =
        Parsed { entries: json::servers(value.get("mcpServers"), None), directories: Vec::new() };
    if let Some(projects) = value.get("projects").and_then(|projects| projects.as_object()) {
        for (directory, project) in projects {
            parsed.entries.extend(json::servers(project.get("mcpServers"), Some(directory)));
            parsed.directories.push(directory.clone());
        }
    }
    Ok(parsed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_of_the_user_and_of_projects() {
        let parsed = parse(
            r#"{"numStartups": 4, "mcpServers": {"a": {"type": "stdio", "command": "c", "args": [], "env": {}}},
                "projects": {"/w/p": {"allowedTools": [], "mcpServers": {"b": {"command": "d"}}}, "/w/q": {}}}"#,
        )
        .unwrap();
        assert_eq!(parsed.entries.len(), 2);
        assert_eq!(parsed.entries[1].directory.as_deref(), Some("/w/p"));
        assert_eq!(parsed.directories, ["/w/p", "/w/q"]);
    }

    #[test]
    fn other_shapes_name_nothing() {
        for text in ["", "[]", "{}", "{\"mcpServers\": []}", "{\"projects\": 5}", "null"] {
            assert_eq!(parse(text), Ok(Parsed::default()), "{text}");
        }
    }
}
