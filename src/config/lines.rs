//! `reap-when` and `spare-when`: lines of conditions, checked against what each rule says of itself.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use bstr::BStr;
use toml::de::{DeTable, DeValue};

use crate::model::rule::{Asks, Place, RuleSpec, SettingKind, SettingSpec, Strength};

use super::needs;
use super::ping;
use super::policy::{Condition, Glob, Line, Origin, ProofNeed, Registry, Setting, Source, Template};
use super::read::{Key, Node, Reader, in_order, one_or_more};
use super::settings;
pub(super) use super::subject::Subject;
use super::template::{self, Flaw};

/// Rules that a later version will know.
const LATER: [&str; 1] = ["exec"];

/// In a built-in policy the one pattern that stands for what the operator names in `[builtin]`.
pub(super) const OPERATOR_ROOTS: &str = "{roots}";

/// What the lines of one policy are read with.
#[derive(Debug)]
pub(super) struct Ground<'a> {
    /// What it is a policy for.
    pub(super) subject: Subject,
    pub(super) policy: &'a str,
    pub(super) origin: &'a Origin,
    pub(super) rules: &'a [&'a RuleSpec],
    pub(super) home: Option<&'a BStr>,
    /// What the policy captures, by name.
    pub(super) captures: &'a BTreeSet<String>,
    pub(super) operator_roots: &'a [Glob],
    pub(super) registries: &'a [Registry],
    /// Whether the policy says `ping`.
    pub(super) ping: Given,
}

/// Whether something is written down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Given {
    /// It is, rightly or wrongly.
    Yes,
    /// It is not.
    No,
}

/// How dear it is to weigh a condition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Cost {
    /// It looks.
    Look,
    /// It asks somebody else's server.
    Question,
    /// It asks the server that is judged.
    Ping,
}

/// Which list is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum List {
    ReapWhen,
    SpareWhen,
}

impl Ground<'_> {
    /// Reads a list of lines.
    pub(super) fn lines(
        &self,
        reader: &mut Reader<'_>,
        node: &Node<'_>,
        list: List,
        need: ProofNeed,
    ) -> Vec<Line> {
        let Some(elements) = reader.list(node, "a list of lines such as [{ cwd-gone = true }]") else {
            return Vec::new();
        };
        if elements.is_empty() {
            reader
                .fault(node.span(), "an empty list")
                .hint("any line is enough; with none, this says nothing");
        }
        elements.into_iter().filter_map(|element| self.line(reader, element, list, need)).collect()
    }

    fn line(&self, reader: &mut Reader<'_>, node: &Node<'_>, list: List, need: ProofNeed) -> Option<Line> {
        let table = reader.table(node, "a line such as { cwd-gone = true }")?;
        if table.is_empty() {
            reader.fault(node.span(), "an empty line").hint("all of a line must hold; this one would always");
            return None;
        }
        let mut conditions = Vec::new();
        let mut by_knowledge = None;
        let mut complete = true;
        let mut places = Vec::new();
        for (key, value) in in_order(table) {
            if key.get_ref() == "by-knowledge" {
                by_knowledge = self.knowledge(reader, key, value);
                complete &= by_knowledge.is_some();
            } else if let Some(condition) = self.condition(reader, key, value, list) {
                places.push(key.span().start..value.span().end);
                conditions.push(condition);
            } else {
                complete = false;
            }
        }
        if !complete {
            return None;
        }
        // A line is cut short at the first condition that does not hold, so a server is asked only where the others do:
        // some count a question as use. Last comes what connects to the very server that is judged.
        conditions.sort_by_key(|condition| self.cost(condition));
        if by_knowledge.is_some() {
            for condition in &mut conditions {
                condition.strength = Strength::Proof;
            }
        }
        let proven = conditions.iter().any(|condition| condition.strength == Strength::Proof);
        if list == List::ReapWhen && !proven && need == ProofNeed::Required {
            self.no_proof(reader, node, &conditions, &places);
            return None;
        }
        Some(Line { conditions, by_knowledge })
    }

    fn no_proof(
        &self,
        reader: &mut Reader<'_>,
        node: &Node<'_>,
        conditions: &[Condition],
        places: &[Range<usize>],
    ) {
        let labels: Vec<_> = places.iter().map(|place| reader.label(place, "a sign")).collect();
        let listed: Vec<&str> = self
            .rules
            .iter()
            .filter(|rule| rule.strength == Strength::Proof && rule.place != Place::SpareWhen)
            .filter(|rule| self.subject.is_served_by(rule))
            .map(|rule| rule.name)
            .take(3)
            .collect();
        let sign = conditions.first().and_then(|condition| self.rule(condition.rule));
        let fault = reader.fault(node.span(), "this line has no proof");
        fault.labels = labels;
        if let Some(sign) = sign {
            fault.hint(format!("{}: {}", sign.name, sign.summary));
        }
        fault
            .hint(format!(
                "{}.{} would reap things somebody may still own",
                self.subject.section(),
                self.policy
            ))
            .hint(format!("add a proof to the line ({} …: `reapd rules`)", listed.join(", ")))
            .hint("or say so on purpose: `without-proof = true`; every report will then name it");
    }

    fn knowledge(&self, reader: &mut Reader<'_>, key: &Key<'_>, node: &Node<'_>) -> Option<String> {
        if *self.origin != Origin::Builtin {
            reader
                .fault(key.span(), "`by-knowledge` is for built-in policies only")
                .hint("`without-proof = true` says on purpose that signs are enough");
            return None;
        }
        let text = reader.text(node, "the reason")?;
        if text.trim().is_empty() {
            reader.fault(node.span(), "the reason must be written");
            return None;
        }
        Some(text.to_owned())
    }

    fn rule(&self, name: &str) -> Option<&RuleSpec> {
        self.rules.iter().copied().find(|rule| rule.name == name)
    }

    /// Returns how dear it is to weigh a condition.
    fn cost(&self, condition: &Condition) -> Cost {
        let Some(rule) = self.rule(condition.rule) else { return Cost::Look };
        if rule.asks == Asks::ByPing {
            return Cost::Ping;
        }
        let asks = rule.settings.iter().filter(|spec| spec.kind == SettingKind::Registry).any(|spec| {
            let Some(Setting::Text(name)) = condition.settings.get(spec.name) else { return false };
            let of_that_name = |registry: &&Registry| registry.name == *name;
            self.registries
                .iter()
                .find(of_that_name)
                .is_some_and(|registry| matches!(registry.source, Source::Http(_)))
        });
        if asks { Cost::Question } else { Cost::Look }
    }

    fn condition(
        &self,
        reader: &mut Reader<'_>,
        key: &Key<'_>,
        node: &Node<'_>,
        list: List,
    ) -> Option<Condition> {
        let name = key.get_ref().as_ref();
        let Some(rule) = self.rules.iter().copied().find(|rule| rule.name == name) else {
            if LATER.contains(&name) {
                reader.not_yet(key.span(), name);
            } else {
                reader.unknown(key.span(), "rule", name, self.rules.iter().map(|rule| rule.name));
            }
            return None;
        };
        if !self.subject.is_served_by(rule) {
            self.subject.unserved(reader, key, (rule, self.rules), list);
            return None;
        }
        match (rule.place, list) {
            (Place::SpareWhen, List::ReapWhen) => {
                reader
                    .fault(key.span(), format!("`{name}` spares; it proves nothing in `reap-when`"))
                    .hint("put it in `spare-when`");
                return None;
            }
            (Place::ReapWhen, List::SpareWhen) => {
                reader
                    .fault(key.span(), format!("`{name}` has no meaning in `spare-when`"))
                    .hint("put it in `reap-when`");
                return None;
            }
            (Place::Anywhere, _)
            | (Place::ReapWhen, List::ReapWhen)
            | (Place::SpareWhen, List::SpareWhen) => {}
        }
        if rule.asks == Asks::ByPing && self.ping == Given::No {
            reader
                .fault(key.span(), format!("`{name}` needs the policy's `ping`, which says what to ask"))
                .hint(ping::example(self.subject));
            return None;
        }
        let settings = match node.get_ref() {
            DeValue::Table(table) => self.table(reader, rule, node, table)?,
            DeValue::Boolean(truth) => {
                needs::bare_truth(reader, rule, node, *truth)?;
                BTreeMap::new()
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_) => {
                let Some(spec) = self.settings(rule).find(|spec| rule.bare == Some(spec.name)) else {
                    reader
                        .fault(node.span(), format!("`{name}` takes `true` here, or a table of settings"))
                        .hint(needs::known_settings(rule.name, self.settings(rule)));
                    return None;
                };
                needs::require(reader, rule, node.span(), |setting| setting == spec.name)?;
                BTreeMap::from([(spec.name, self.setting(reader, spec, node)?)])
            }
        };
        if let Some(Setting::Text(capture)) = settings.get("key")
            && !self.captures.contains(capture)
        {
            // A key that nobody captures could never be compared, and the line would never hold.
            reader.unknown(node.span(), "capture", capture, self.captures.iter().map(String::as_str));
            return None;
        }
        Some(Condition { rule: rule.name, strength: rule.strength, settings })
    }

    fn table(
        &self,
        reader: &mut Reader<'_>,
        rule: &RuleSpec,
        node: &Node<'_>,
        table: &DeTable<'_>,
    ) -> Option<BTreeMap<&'static str, Setting>> {
        let mut settings = BTreeMap::new();
        let mut complete = true;
        for (key, value) in in_order(table) {
            let name = key.get_ref().as_ref();
            let Some(spec) = self.settings(rule).find(|spec| spec.name == name) else {
                if rule.settings.iter().any(|spec| spec.name == name) {
                    reader
                        .fault(key.span(), format!("`{name}` has no meaning for containers"))
                        .hint(needs::known_settings(rule.name, self.settings(rule)));
                } else if self.settings(rule).next().is_none() {
                    reader.fault(key.span(), format!("`{}` has no settings", rule.name));
                } else {
                    let known: Vec<&str> = self.settings(rule).map(|spec| spec.name).collect();
                    reader.unknown(key.span(), "setting", name, known.iter().copied());
                }
                complete = false;
                continue;
            };
            match self.setting(reader, spec, value) {
                Some(setting) => {
                    settings.insert(spec.name, setting);
                }
                None => complete = false,
            }
        }
        if !complete {
            return None;
        }
        needs::require(reader, rule, node.span(), |name| settings.contains_key(name))?;
        Some(settings)
    }

    fn setting(&self, reader: &mut Reader<'_>, spec: &SettingSpec, node: &Node<'_>) -> Option<Setting> {
        Some(match spec.kind {
            SettingKind::Template => Setting::Template(self.template(reader, node)?),
            SettingKind::Patterns => Setting::Patterns(self.roots(reader, node)?),
            SettingKind::Duration => Setting::Duration(reader.duration(node)?),
            SettingKind::Number => Setting::Number(reader.number(node, 0..1 << 53)?),
            SettingKind::Times(least) => Setting::Number(reader.number(node, least..needs::MOST_TIMES + 1)?),
            SettingKind::Pause => Setting::Duration(needs::pause(reader, node)?),
            SettingKind::Word(words) => Setting::Word(reader.word(node, words)?),
            SettingKind::Text => Setting::Text(reader.text(node, "text")?.to_owned()),
            SettingKind::Registry => Setting::Text(self.registry(reader, node)?),
        })
    }

    fn registry(&self, reader: &mut Reader<'_>, node: &Node<'_>) -> Option<String> {
        let name = reader.text(node, "a registry's name")?;
        let known = || self.registries.iter().map(|registry| registry.name.as_str());
        if !known().any(|known| known == name) {
            reader.unknown(node.span(), "registry", name, known());
            return None;
        }
        Some(name.to_owned())
    }

    /// Reads directories of throw-away work, those that the operator named included.
    pub(super) fn roots(&self, reader: &mut Reader<'_>, node: &Node<'_>) -> Option<Vec<Glob>> {
        let nodes = one_or_more(node);
        let is_placeholder =
            |node: &&Node<'_>| matches!(node.get_ref(), DeValue::String(text) if text == OPERATOR_ROOTS);
        if *self.origin == Origin::Builtin && nodes.iter().any(is_placeholder) {
            return Some(self.operator_roots.to_vec());
        }
        settings::roots(reader, node, self.home)
    }

    /// Returns the settings of a rule that have a meaning here.
    fn settings<'r>(&self, rule: &'r RuleSpec) -> impl Iterator<Item = &'r SettingSpec> + use<'r> {
        let subject = self.subject;
        rule.settings.iter().filter(move |spec| subject.takes(rule, spec.name))
    }

    /// Says whether a template may use a name.
    pub(super) fn is_known(&self, name: &str) -> bool {
        self.captures.contains(name) || self.subject.always().contains(&name)
    }

    /// Reads text with captures.
    pub(super) fn template(&self, reader: &mut Reader<'_>, node: &Node<'_>) -> Option<Template> {
        let text = reader.text(node, "text such as \"{workspace}\"")?;
        match template::parse(text, |name| self.is_known(name)) {
            Ok(template) => Some(template),
            Err(flaw) => {
                self.flawed(reader, node, text, flaw);
                None
            }
        }
    }

    /// Faults what is wrong with a template.
    pub(super) fn flawed(&self, reader: &mut Reader<'_>, node: &Node<'_>, text: &str, flaw: Flaw) {
        let end = |at: usize| text[at..].find('}').map_or(at + 1, |end| at + end + 1);
        match flaw {
            Flaw::Brace(at) => {
                let span = reader.within(node, at..at + 1);
                reader
                    .fault(span, "a brace without its other half")
                    .hint("`{name}` is a capture; `{{` and `}}` are braces");
            }
            Flaw::NoName(at) => {
                let span = reader.within(node, at..end(at));
                reader
                    .fault(span, "no name stands between these braces")
                    .hint("names are lowercase letters, digits and dashes: `{workspace}`, `{socket.dir}`");
            }
            Flaw::Unknown(at, name) => {
                let span = reader.within(node, at..end(at));
                let known = self.captures.iter().map(String::as_str);
                let known = known.chain(self.subject.always().iter().copied());
                reader.unknown(span, "capture", &name, known);
            }
        }
    }
}
