//! The policies that come with the program, written in the language itself.

/// Each file defines exactly the policy that it is named for: its part for process trees, its part for containers, or
/// both; or what is only ever told of commands inside containers, for which there are no policies.
const ALL: [(&str, &str); 18] = [
    ("agent-shell", include_str!("builtin/agent-shell.toml")),
    ("codex-broker", include_str!("builtin/codex-broker.toml")),
    ("codex-broker-idle", include_str!("builtin/codex-broker-idle.toml")),
    ("compose", include_str!("builtin/compose.toml")),
    ("deleted-worktree", include_str!("builtin/deleted-worktree.toml")),
    ("devcontainer", include_str!("builtin/devcontainer.toml")),
    ("docker-agent-tool", include_str!("builtin/docker-agent-tool.toml")),
    ("docker-exec", include_str!("builtin/docker-exec.toml")),
    ("docker-run", include_str!("builtin/docker-run.toml")),
    ("executor-tool", include_str!("builtin/executor-tool.toml")),
    ("headless-browser", include_str!("builtin/headless-browser.toml")),
    ("language-server", include_str!("builtin/language-server.toml")),
    ("lease", include_str!("builtin/lease.toml")),
    ("mcp-debugger", include_str!("builtin/mcp-debugger.toml")),
    ("mcp-debugger-adapter", include_str!("builtin/mcp-debugger-adapter.toml")),
    ("mcp-debugger-jvm", include_str!("builtin/mcp-debugger-jvm.toml")),
    ("mcp-server", include_str!("builtin/mcp-server.toml")),
    ("testcontainers", include_str!("builtin/testcontainers.toml")),
];

const NAMES: [&str; ALL.len()] = {
    let mut names = [""; ALL.len()];
    let mut at = 0;
    while at < ALL.len() {
        names[at] = ALL[at].0;
        at += 1;
    }
    names
};

/// Returns the names of all built-in policies, sorted.
pub fn names() -> &'static [&'static str] {
    &NAMES
}

/// Returns a built-in policy as it is written.
pub fn text(name: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == name).map(|(_, text)| *text)
}

/// Returns the sections that a built-in policy has its parts in, `process`, `container` and `exec`.
pub fn sections(name: &str) -> Vec<&'static str> {
    let text = text(name).unwrap_or_default();
    let is_there = |section: &&str| text.contains(&format!("\n[{section}.{name}]\n"));
    ["process", "container", "exec"].into_iter().filter(is_there).collect()
}

/// Says whether a built-in policy can only tell, whatever is wanted of it.
pub(super) fn only_tells(name: &str) -> bool {
    sections(name) == ["exec"]
}

/// Says whether a built-in policy can only be on with directories that the operator names.
pub(super) fn wants_roots(name: &str) -> bool {
    name == "deleted-worktree"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_defines_the_policy_that_it_is_named_for() {
        assert!(names().is_sorted());
        for name in names() {
            let text = text(name).unwrap();
            let below = text.matches(".capture]").count() + text.matches(".residue]").count();
            let all =
                ["process", "container", "exec"].map(|part| text.matches(&format!("\n[{part}.")).count());
            let all: usize = all.iter().sum();
            let parts = sections(name).len();
            assert!((1..=2).contains(&parts), "{name}");
            assert_eq!(all - below, parts, "{name}");
        }
    }

    #[test]
    fn each_says_why_and_when_it_is_wrong() {
        for name in names() {
            let text = text(name).unwrap();
            assert!(text.contains("\n# Why: "), "{name}");
            assert!(
                text.contains("\n# When wrong: ") || text.contains("\n# What is missing, honestly: "),
                "{name}"
            );
        }
    }
}
