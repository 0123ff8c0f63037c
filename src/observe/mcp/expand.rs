//! Expands `${...}` in configuration text, as far as the values are known to us.
//!
//! What is not known stays as text: such a server matches no running process by accident.

/// Values that do not come from our environment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Values {
    /// The user's home.
    pub(super) home: Option<String>,
    /// The project's directory.
    pub(super) workspace: Option<String>,
}

impl Values {
    /// Returns the text with everything expanded that can be.
    pub(super) fn expand(&self, text: &str) -> String {
        self.expand_with(text, |name| std::env::var(name).ok())
    }

    fn expand_with(&self, text: &str, variable: impl Fn(&str) -> Option<String>) -> String {
        let mut expanded = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            expanded.push_str(before);
            let Some((inside, behind)) = after.split_once('}') else {
                expanded.push_str("${");
                rest = after;
                continue;
            };
            if let Some(value) = self.value(inside, &variable) {
                expanded.push_str(&value);
            } else {
                expanded.push_str("${");
                expanded.push_str(inside);
                expanded.push('}');
            }
            rest = behind;
        }
        expanded.push_str(rest);
        expanded
    }

    fn value(&self, inside: &str, variable: impl Fn(&str) -> Option<String>) -> Option<String> {
        match inside {
            "workspaceFolder" | "CLAUDE_PROJECT_DIR" => return self.workspace.clone(),
            "userHome" | "HOME" | "env:HOME" => return self.home.clone(),
            _ => {}
        }
        let inside = inside.strip_prefix("env:").unwrap_or(inside);
        let (name, default) = match inside.split_once(":-") {
            Some((name, default)) => (name, Some(default)),
            None => (inside, None),
        };
        // Editors have many other words with a colon, such as `input:`; those are not variables.
        if name.is_empty() || !name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
            return None;
        }
        variable(name).or_else(|| default.map(str::to_owned))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn expanded(text: &str) -> String {
        let values = Values { home: Some("/h".into()), workspace: Some("/w".into()) };
        values.expand_with(text, |name| (name == "SET").then(|| "s".to_owned()))
    }

    #[test]
    fn what_is_known_is_expanded_and_the_rest_stays() {
        assert_eq!(expanded("${SET}/${env:SET}/${HOME}${userHome}"), "s/s//h/h");
        assert_eq!(expanded("${workspaceFolder}/x"), "/w/x");
        assert_eq!(expanded("${UNSET:-d}${SET:-d}${UNSET:-}"), "ds");
        assert_eq!(expanded("${UNSET} ${input:key} $SET ${SET"), "${UNSET} ${input:key} $SET ${SET");
        assert_eq!(Values::default().expand_with("${workspaceFolder}", |_| None), "${workspaceFolder}");
    }

    proptest! {
        #[test]
        fn no_text_breaks_it(text in "[${}:\\-aSET]{0,40}") {
            let _ = expanded(&text);
        }
    }
}
