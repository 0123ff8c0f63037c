//! From text to a checked configuration: the defaults, the built-in policies, and the user's own file over them.

use bstr::BStr;
use toml::Spanned;
use toml::de::DeTable;

use crate::model::rule::RuleSpec;
use crate::model::verdict::Mode;

use super::builtin;
use super::fault::Fault;
use super::policy::{Config, Docker, Offer, Origin, Policy, Registry};
use super::process::{Frame, clash};
use super::read::{Reader, in_order};
use super::registry;
use super::settings::{self, Settings};

/// A file to read.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Its name as the user knows it, for faults: `~/.config/reapd/config.toml`.
    pub name: &'a str,
    /// What stands in it.
    pub text: &'a str,
}

/// What a file is checked against.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    /// Every rule there is.
    pub rules: &'a [&'a RuleSpec],
    /// What `~` stands for.
    pub home: Option<&'a BStr>,
}

/// The configuration, and the policies that are off.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Whole {
    /// What is to be done.
    pub config: Config,
    /// The policies that are off, sorted by name, for lists.
    pub off: Vec<Policy>,
}

/// Returns the whole configuration: the defaults, the built-in policies, and over them the user's file if there is
/// one.
pub fn load(source: Option<Source<'_>>, context: &Context<'_>) -> Result<Config, Vec<Fault>> {
    load_whole(source, context).map(|whole| whole.config)
}

/// Returns the same, with the policies that are off.
pub fn load_whole(source: Option<Source<'_>>, context: &Context<'_>) -> Result<Whole, Vec<Fault>> {
    let Source { name, text } = source.unwrap_or(Source { name: "(no file)", text: "" });
    let mut reader = Reader::new(name, text);
    let Some(document) = reader.parse() else { return Err(reader.into_faults()) };
    let top = document.get_ref();
    let settings = settings::read(&mut reader, top, context.home);
    let mut registries = registry::read(&mut reader, top, context.home, &Origin::File(name.to_owned()));
    let mut policies = own(&mut reader, top, &settings, &registries, context, name);
    for policy in &policies {
        if let Some((name, choice)) = settings.builtin.get_key_value(policy.name.as_str()) {
            clash(&mut reader, name, choice);
        }
    }
    if reader.has_faults() {
        return Err(reader.into_faults());
    }
    for &name in builtin::names() {
        if !policies.iter().any(|policy| policy.name == name) {
            policies.extend(ours(name, &settings, &mut registries, context)?);
        }
    }
    policies.sort_by(|one, other| one.name.cmp(&other.name));
    registries.sort_by(|one, other| one.name.cmp(&other.name));
    let (off, mut policies): (Vec<_>, Vec<_>) =
        policies.into_iter().partition(|policy| policy.mode == Mode::Off);
    for policy in &mut policies {
        policy.mode = policy.mode.min(settings.mode);
        policy.offer = Offer::No;
    }
    let offered = off.iter().filter(|policy| policy.offer == Offer::Told).cloned().collect();
    let Settings { mode, confirm, limits, ladder, keep, scope, journal, builtin: _ } = settings;
    Ok(Whole {
        config: Config {
            mode,
            confirm,
            limits,
            ladder,
            keep,
            scope,
            journal,
            registries,
            policies,
            offered,
            docker: Docker::default(),
            containers: Vec::new(),
        },
        off,
    })
}

fn own(
    reader: &mut Reader<'_>,
    top: &DeTable<'_>,
    settings: &Settings,
    registries: &[Registry],
    context: &Context<'_>,
    name: &str,
) -> Vec<Policy> {
    let Some(table) = top.get("process").and_then(|node| reader.table(node, "a section")) else {
        return Vec::new();
    };
    let frame = Frame {
        rules: context.rules,
        home: context.home,
        origin: &Origin::File(name.to_owned()),
        ladder: &settings.ladder,
        operator_roots: &[],
        registries,
    };
    in_order(table).into_iter().filter_map(|(key, node)| frame.policy(reader, key, node)).collect()
}

/// Reads one of ours, with what the user's file says of it. Its registries come to those that are there; one of the
/// user's with the same name is asked instead of it.
fn ours(
    name: &str,
    settings: &Settings,
    registries: &mut Vec<Registry>,
    context: &Context<'_>,
) -> Result<Vec<Policy>, Vec<Fault>> {
    let file = format!("built-in policy {name}");
    let mut reader = Reader::new(&file, builtin::text(name).unwrap_or_default());
    let choice = settings.builtin.get(name);
    let document: Option<Spanned<DeTable<'_>>> = reader.parse();
    if let Some(document) = &document {
        for registry in registry::read(&mut reader, document.get_ref(), context.home, &Origin::Builtin) {
            if !registries.iter().any(|known| known.name == registry.name) {
                registries.push(registry);
            }
        }
    }
    let frame = Frame {
        rules: context.rules,
        home: context.home,
        origin: &Origin::Builtin,
        ladder: &settings.ladder,
        operator_roots: choice.and_then(|choice| choice.roots.as_deref()).unwrap_or_default(),
        registries,
    };
    let process = document.as_ref().and_then(|document| document.get_ref().get("process"));
    let table = process.and_then(|node| reader.table(node, "a section"));
    let mut policies: Vec<Policy> = table.map_or_else(Vec::new, |table| {
        in_order(table).into_iter().filter_map(|(key, node)| frame.policy(&mut reader, key, node)).collect()
    });
    if reader.has_faults() {
        return Err(reader.into_faults());
    }
    if let Some(mode) = choice.and_then(|choice| choice.mode) {
        for policy in &mut policies {
            policy.mode = mode;
        }
    }
    Ok(policies)
}
