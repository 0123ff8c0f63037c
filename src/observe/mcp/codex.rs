//! Codex: a table `[mcp_servers.NAME]` for each server in `config.toml`.

use super::{Entry, Parsed};

/// Returns what such a file says.
pub(super) fn parse(text: &str) -> Result<Parsed, String> {
    let table: toml::Table = text.parse().map_err(|error: toml::de::Error| error.message().to_owned())?;
    let mut parsed = Parsed::default();
    let Some(servers) = table.get("mcp_servers").and_then(toml::Value::as_table) else { return Ok(parsed) };
    parsed.entries.extend(servers.iter().filter_map(|(name, server)| entry(name, server)));
    Ok(parsed)
}

fn entry(name: &str, server: &toml::Value) -> Option<Entry> {
    let command = server.get("command")?.as_str()?.to_owned();
    let args = match server.get("args") {
        None => Vec::new(),
        Some(list) => list
            .as_array()?
            .iter()
            .map(|argument| argument.as_str().map(str::to_owned))
            .collect::<Option<_>>()?,
    };
    Some(Entry { name: name.to_owned(), command, args, directory: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_with_a_command() {
        let text = "model = \"m\"\n[mcp_servers.a]\ncommand = \"npx\"\nargs = [\"-y\", \"s\"]\n\
                    [mcp_servers.a.env]\nK = \"v\"\n[mcp_servers.web]\nurl = \"https://h\"\n";
        let parsed = parse(text).unwrap();
        assert_eq!(parsed.entries.len(), 1);
        assert_eq!(parsed.entries[0].args, ["-y", "s"]);
        assert_eq!(parse(""), Ok(Parsed::default()));
        assert!(parse("a = ").is_err());
    }
}
