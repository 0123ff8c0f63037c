//! What a rule is: a description, and a pure function from a case to a finding.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::config::policy::{Glob, Setting, Template};
use crate::model::evidence::Cause;
use crate::model::known::Unknown;
use crate::model::question::Question;
use crate::model::rule::RuleSpec;

use super::case::Case;
use super::containers::case::ContainerCase;

/// One rule.
#[derive(Debug)]
pub struct Rule {
    /// What it says of itself.
    pub spec: RuleSpec,
    /// Weighs one process tree, where it can. Never guesses: what is missing comes back as [`Blank`].
    pub weigh: Option<fn(&Case<'_>, Settings<'_>) -> Found<Finding>>,
    /// Weighs one container, where it can; as `weigh`.
    pub weigh_container: Option<fn(&ContainerCase<'_>, Settings<'_>) -> Found<Finding>>,
}

/// A finding, or what stands between the rule and one.
pub type Found<T> = Result<T, Blank>;

/// What stands between a rule and its finding.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Blank {
    /// These have not been asked yet; ask them and weigh again.
    Ask(Vec<Question>),
    /// It was asked, and could not be told.
    Unknown(Unknown),
}

impl From<Unknown> for Blank {
    fn from(unknown: Unknown) -> Blank {
        Blank::Unknown(unknown)
    }
}

/// What a rule found at this look.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// Whether what the rule is named for is so, now.
    pub holds: Holds,
    /// Why, for a person; a lowercase fragment.
    pub why: String,
    /// What it hangs on that may fail for many trees at once.
    pub cause: Option<Cause>,
    /// It only counts when it has held at every look for this long; the ledger knows.
    pub lasting: Option<Duration>,
}

/// Whether a finding holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Holds {
    /// It is so.
    Yes,
    /// It is not.
    No,
}

impl Finding {
    /// Returns the finding that it is so.
    pub fn yes(why: impl Into<String>) -> Finding {
        Finding { holds: Holds::Yes, why: why.into(), cause: None, lasting: None }
    }

    /// Returns the finding that it is not so.
    pub fn no(why: impl Into<String>) -> Finding {
        Finding { holds: Holds::No, why: why.into(), cause: None, lasting: None }
    }

    /// Returns the same finding, hanging on `cause`.
    #[must_use]
    pub fn hanging_on(self, cause: Cause) -> Finding {
        Finding { cause: Some(cause), ..self }
    }

    /// Returns the same finding, counting only when it has held for `span`.
    #[must_use]
    pub fn lasting(self, span: Duration) -> Finding {
        Finding { lasting: Some(span), ..self }
    }
}

/// The checked settings of one condition.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a>(pub &'a BTreeMap<&'static str, Setting>);

impl<'a> Settings<'a> {
    /// Returns a template setting.
    pub fn template(self, name: &str) -> Option<&'a Template> {
        let Setting::Template(template) = self.0.get(name)? else { return None };
        Some(template)
    }

    /// Returns a list of patterns; empty where it is not given.
    pub fn patterns(self, name: &str) -> &'a [Glob] {
        let Some(Setting::Patterns(globs)) = self.0.get(name) else { return &[] };
        globs
    }

    /// Returns a span.
    pub fn duration(self, name: &str) -> Option<Duration> {
        let Setting::Duration(span) = self.0.get(name)? else { return None };
        Some(*span)
    }

    /// Returns a number.
    pub fn number(self, name: &str) -> Option<u64> {
        let Setting::Number(number) = self.0.get(name)? else { return None };
        Some(*number)
    }

    /// Returns one of the allowed words.
    pub fn word(self, name: &str) -> Option<&'static str> {
        let Setting::Word(word) = self.0.get(name)? else { return None };
        Some(word)
    }

    /// Returns free text.
    pub fn text(self, name: &str) -> Option<&'a str> {
        let Setting::Text(text) = self.0.get(name)? else { return None };
        Some(text)
    }
}
