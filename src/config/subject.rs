//! What a policy looks at, and which rules can judge that.

use crate::model::rule::{Place, RuleSpec, Serves};

use super::lines::List;
use super::read::{Key, Reader};
use super::template::ALWAYS;

/// What a policy looks at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Subject {
    /// Process trees.
    Processes,
    /// Containers.
    Containers,
}

impl Subject {
    /// Returns the section that its policies stand in.
    pub(super) fn section(self) -> &'static str {
        match self {
            Subject::Processes => "process",
            Subject::Containers => "container",
        }
    }

    /// Returns the names that templates may use without capturing them.
    pub(super) fn always(self) -> &'static [&'static str] {
        match self {
            Subject::Processes => &ALWAYS,
            Subject::Containers => &[],
        }
    }

    /// Says whether a rule can judge it.
    pub(super) fn is_served_by(self, rule: &RuleSpec) -> bool {
        match (self, rule.serves) {
            (Subject::Processes, Serves::Processes | Serves::Both(_))
            | (Subject::Containers, Serves::Containers | Serves::Both(_)) => true,
            (Subject::Processes, Serves::Containers) | (Subject::Containers, Serves::Processes) => false,
        }
    }

    /// Says whether a setting of a rule that serves it has a meaning for it.
    pub(super) fn takes(self, rule: &RuleSpec, setting: &str) -> bool {
        match (self, rule.serves) {
            (Subject::Containers, Serves::Both(settings)) => settings.contains(&setting),
            (Subject::Processes | Subject::Containers, _) => true,
        }
    }

    /// Faults a rule that cannot judge what this is a policy for, and names those that can.
    pub(super) fn unserved(
        self,
        reader: &mut Reader<'_>,
        key: &Key<'_>,
        (rule, rules): (&RuleSpec, &[&RuleSpec]),
        list: List,
    ) {
        let fits = |rule: &&&RuleSpec| {
            self.is_served_by(rule)
                && match list {
                    List::ReapWhen => rule.place != Place::SpareWhen,
                    List::SpareWhen => rule.place != Place::ReapWhen,
                }
        };
        let names: Vec<&str> = rules.iter().filter(fits).map(|rule| rule.name).collect();
        let (judged, wanted) = match self {
            Subject::Processes => ("containers", "process trees"),
            Subject::Containers => ("process trees", "containers"),
        };
        reader
            .fault(key.span(), format!("`{}` judges {judged}, not {wanted}", rule.name))
            .hint(format!("rules for {wanted} here: {}", names.join(", ")));
    }
}
