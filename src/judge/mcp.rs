//! Says whether a process *is* a stdio server that the user's own MCP configuration names.
//!
//! Exact, element by element: a name that merely occurs in a command line has killed editors and terminals.

use bstr::{BStr, BString, ByteSlice as _};

use crate::config::pattern::program_name;
use crate::model::look::McpServer;

/// Programs that only carry a container's streams: ending them does not end the container (CASES C35), so a server
/// that is configured through one is not recognised here.
const CONTAINER_CLIENTS: [&[u8]; 3] = [b"docker", b"podman", b"nerdctl"];

/// Programs that run a script named by their first argument, as `#!` lines make the kernel start them.
const INTERPRETERS: [&[u8]; 9] =
    [b"node", b"nodejs", b"bun", b"deno", b"python", b"python3", b"ruby", b"sh", b"bash"];

/// Says whether `argv` is how this server runs: as configured, as its script's interpreter shows it, or as npm and uv
/// rename themselves.
pub(super) fn is_server(server: &McpServer, argv: &[BString]) -> bool {
    let command = program_name(server.command.as_bstr());
    if CONTAINER_CLIENTS.contains(&command.as_bytes()) {
        return false;
    }
    let argv = trimmed(argv);
    let Some(first) = argv.first() else { return false };
    direct(server, first, &argv[1..])
        || by_interpreter(server, first, &argv[1..])
        || retitled_by_npm(server, command, argv)
        || run_by_uv(server, command, first, &argv[1..])
}

/// libuv writes a title over the argument area and leaves NULs behind it, which read as empty arguments.
fn trimmed(argv: &[BString]) -> &[BString] {
    let end = argv.iter().rposition(|argument| !argument.is_empty()).map_or(0, |at| at + 1);
    &argv[..end]
}

fn direct(server: &McpServer, first: &BString, rest: &[BString]) -> bool {
    let same_program = if server.command.contains(&b'/') && first.contains(&b'/') {
        *first == server.command
    } else {
        program_name(first.as_bstr()) == program_name(server.command.as_bstr())
    };
    // A bare interpreter without arguments is everybody's, not a server.
    let bare = server.args.is_empty() && is_interpreter(program_name(first.as_bstr()));
    same_program && !bare && rest == trimmed(&server.args)
}

fn by_interpreter(server: &McpServer, first: &BString, rest: &[BString]) -> bool {
    is_interpreter(program_name(first.as_bstr()))
        && rest.first().is_some_and(|script| {
            script.contains(&b'/') && program_name(script.as_bstr()) == program_name(server.command.as_bstr())
        })
        && rest.get(1..).is_some_and(|rest| rest == trimmed(&server.args))
}

/// `npx -y PACKAGE ARGS` shows as the single argument `npm exec PACKAGE ARGS` (npm sets its title).
fn retitled_by_npm(server: &McpServer, command: &BStr, argv: &[BString]) -> bool {
    let [title] = argv else { return false };
    let args: &[BString] = match command.as_bytes() {
        b"npx" => &server.args,
        b"npm" => match server.args.split_first() {
            Some((verb, rest)) if verb == "exec" || verb == "x" => rest,
            _ => return false,
        },
        _ => return false,
    };
    let positional: Vec<&BString> = args
        .iter()
        .skip_while(|argument| argument.starts_with(b"-"))
        .filter(|argument| *argument != "--")
        .collect();
    if positional.is_empty() {
        return false;
    }
    let mut expected = BString::from("npm exec");
    for argument in positional {
        expected.push(b' ');
        expected.extend_from_slice(argument);
    }
    *title == expected
}

/// `uvx PACKAGE ARGS` replaces itself by `uv tool uvx PACKAGE ARGS`.
fn run_by_uv(server: &McpServer, command: &BStr, first: &BString, rest: &[BString]) -> bool {
    command == "uvx"
        && program_name(first.as_bstr()) == "uv"
        && rest.len() > 2
        && rest[0] == "tool"
        && (rest[1] == "uvx" || rest[1] == "run")
        && rest[2..] == *trimmed(&server.args)
}

fn is_interpreter(name: &BStr) -> bool {
    INTERPRETERS.contains(&name.as_bytes()) || name.starts_with(b"python3.")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn server(command: &str, args: &[&str]) -> McpServer {
        McpServer {
            name: "x".into(),
            file: "~/.claude.json".into(),
            command: command.into(),
            args: args.iter().map(|&argument| argument.into()).collect(),
        }
    }

    fn is(server: &McpServer, argv: &[&str]) -> bool {
        let argv: Vec<BString> = argv.iter().map(|&argument| argument.into()).collect();
        is_server(server, &argv)
    }

    #[test]
    fn as_configured_and_as_the_kernel_and_npm_show_it() {
        let npx = server("npx", &["-y", "@acme/files", "/srv"]);
        assert!(is(&npx, &["npx", "-y", "@acme/files", "/srv"]));
        assert!(is(&npx, &["node", "/usr/bin/npx", "-y", "@acme/files", "/srv"]));
        assert!(is(&npx, &["npm exec @acme/files /srv", "", "", ""]));
        assert!(is(&server("uvx", &["mcp-git"]), &["/usr/bin/uv", "tool", "uvx", "mcp-git"]));
        assert!(is(&server("/opt/x/serve", &["--stdio"]), &["/opt/x/serve", "--stdio"]));
        assert!(is(&server("node", &["/opt/x/dist/index.js"]), &["/usr/bin/node", "/opt/x/dist/index.js"]));
    }

    #[test]
    fn another_argument_another_place_or_a_mention_is_another_process_b10_b56() {
        let npx = server("npx", &["-y", "@acme/files", "/srv"]);
        assert!(!is(&npx, &["npx", "-y", "@acme/files", "/home"]));
        assert!(!is(&npx, &["npx", "-y", "@acme/files", "/srv", "more"]));
        assert!(!is(&npx, &["vim", "npx -y @acme/files /srv"]));
        assert!(!is(&npx, &["npm exec @acme/files /srv2"]));
        assert!(!is(&server("/opt/x/serve", &[]), &["/opt/y/serve"]));
        assert!(!is(&server("node", &[]), &["node"]), "a bare interpreter is everybody's");
        assert!(!is(&server("x", &[]), &[]));
    }

    #[test]
    fn a_container_client_is_not_its_container_c35() {
        let docker = server("docker", &["run", "-i", "--rm", "mcp/x"]);
        assert!(!is(&docker, &["docker", "run", "-i", "--rm", "mcp/x"]));
    }
}
