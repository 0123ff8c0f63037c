//! What ends a command early: one sentence, a hint, and the exit code that goes with it.

use std::error::Error;
use std::fmt::Write as _;

use super::exit::Exit;

/// What ends a command early. Printed once, by [`super::main`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what}")]
pub struct Trouble {
    /// How the run ends.
    pub exit: Exit,
    /// What is wrong; may be several lines when it is a rendered configuration fault.
    pub what: String,
    /// What a person can do about it.
    pub hint: Option<String>,
}

impl Trouble {
    /// Returns a fault of the command line or the configuration.
    pub fn usage(what: impl Into<String>) -> Trouble {
        Trouble { exit: Exit::Usage, what: what.into(), hint: None }
    }

    /// Returns a step that could not be done.
    pub fn failed(what: impl Into<String>) -> Trouble {
        Trouble { exit: Exit::Failed, what: what.into(), hint: None }
    }

    /// Returns a step that could not be done, with the whole chain of its error.
    pub fn because(what: &str, error: &dyn Error) -> Trouble {
        Trouble::failed(format!("{what}: {}", chain(error)))
    }

    /// Returns the same trouble with a hint.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Trouble {
        Trouble { hint: Some(hint.into()), ..self }
    }
}

/// Returns an error with its sources, outermost first.
pub fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(source) = next {
        let _ = write!(text, ": {source}");
        next = source.source();
    }
    text
}
