//! What a registry of somebody else's says of a container.
//!
//! It is asked for the sake of reapd's own process: a container's paths and variables mean nothing on the host, and no
//! server of the host stands above a container, whose processes are the engine's.

use bstr::{BStr, BString};

use crate::config::policy::{
    Confirm, ContainerCapture, FileRegistry, HttpRegistry, Instance, Source, Template, TemplatePart,
};
use crate::judge::ledger::Ledger;
use crate::judge::registered::{self, Registrant};
use crate::judge::rule::{Finding, Found};
use crate::model::id::ProcessId;
use crate::model::known::{Reason, Unknown};
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::question::{Answer, Question};

use super::case::{ContainerCase, own};

impl<'a> Registrant<'a> for ContainerCase<'a> {
    fn look(&self) -> &'a Look {
        self.look
    }

    fn memory(&self) -> &'a Ledger {
        self.memory
    }

    fn confirm(&self) -> &'a Confirm {
        &self.config.confirm
    }

    fn asker(&self) -> Found<ProcessId> {
        own(self.look)
    }

    fn began(&self) -> Found<Moment> {
        ContainerCase::began(self)
    }

    /// The first place counts, and no other: whether whoever keeps the registry has the variables of one is not known.
    fn place(&self, name: &str, files: &FileRegistry) -> Found<BString> {
        let unknown =
            |what: &str| Unknown::new(Reason::Foreign, format!("where registry '{name}' is: {what}"));
        let variable = |variable: &str| {
            Err(unknown(&format!("whose {variable} counts on the host for a container")).into())
        };
        let place = match files.files.first() {
            Some(pattern) => registered::filled(name, pattern, variable)?,
            None => None,
        };
        place.ok_or_else(|| unknown("it has no place").into())
    }

    /// A server that was started anew, a proxy and a sibling all say "not found" in good faith (REDTEAM F11), so that it
    /// must say by name who it is.
    fn may_ask(&self, name: &str, http: &HttpRegistry) -> Found<()> {
        match &http.instance {
            Instance::Named { .. } => Ok(()),
            Instance::Ancestor => {
                let what = format!(
                    "which server answers for registry '{name}', since none stands above a container"
                );
                Err(Unknown::new(Reason::Unsound, what).into())
            }
        }
    }

    fn ask(&self, question: Question) -> Found<&'a Answer> {
        self.answer(question)
    }
}

/// Weighs what the registry of this name says of the container whose key this is.
pub(in crate::judge) fn weigh(case: &ContainerCase<'_>, name: &str, key: &Template) -> Found<Finding> {
    let registry = registered::named(case.config, name)?;
    registered::weigh(case, registry, BStr::new(&filled(case, key)?))
}

/// Returns a key filled in. What an image gives to every container is nobody's key (REDTEAM S5): all of them would be
/// over at once, or none.
fn filled(case: &ContainerCase<'_>, key: &Template) -> Found<BString> {
    let Some(filled) = case.fill(key) else {
        return Err(Unknown::new(Reason::NotAsked, format!("what '{}' is for it", key.text)).into());
    };
    for part in &key.parts {
        let name = match part {
            TemplatePart::Literal(_) => continue,
            TemplatePart::Capture(name) | TemplatePart::DirectoryOf(name) => name,
        };
        let shared = match case.policy.captures.get(name) {
            Some(ContainerCapture::Label { label, .. }) if case.own_label(label)?.is_some() => continue,
            Some(ContainerCapture::Label { label, .. }) => format!("label {label} to everybody"),
            // Which variables an image sets is not asked.
            Some(ContainerCapture::Env { name, .. }) => format!("variable {name} to everybody, or does not"),
            // No image names a directory of the host.
            Some(ContainerCapture::Bind { .. }) | None => continue,
        };
        let what = format!("whether '{}' is its own: its image gives the {shared}", key.text);
        return Err(Unknown::new(Reason::Unsound, what).into());
    }
    Ok(filled)
}

/// Returns what would let a registry tell, where a person can do something.
pub(super) fn cure(case: &ContainerCase<'_>, name: &str) -> Option<String> {
    let registry = registered::named(case.config, name).ok()?;
    match &registry.source {
        Source::Http(http) if http.instance == Instance::Ancestor => {
            Some(format!("give [registry.{name}] an `instance` that its answers name"))
        }
        Source::Http(_) | Source::Files(_) => None,
    }
}
