//! From text to a checked configuration: the defaults, the built-in policies, and the user's own file over them.

use bstr::BStr;
use toml::Spanned;
use toml::de::DeTable;

use crate::model::rule::RuleSpec;
use crate::model::verdict::Mode;

use super::builtin;
use super::fault::Fault;
use super::policy::{Config, ContainerPolicy, ExecReport, Offer, Origin, Policy, Registry, Telling};
use super::process::{Frame, about, clash};
use super::read::{Node, Reader, in_order};
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
    /// The policies for containers that are off, sorted by name, for lists.
    pub off_containers: Vec<ContainerPolicy>,
}

/// The policies of one file.
#[derive(Debug, Clone, Default)]
struct Policies {
    processes: Vec<Policy>,
    containers: Vec<ContainerPolicy>,
    /// What a file of ours says of commands inside containers; a user's file has no place for it.
    execs: Option<ExecReport>,
}

impl Policies {
    /// Says whether a policy of this name stands in a section.
    fn has(&self, section: &str, name: &str) -> bool {
        match section {
            "container" => self.containers.iter().any(|policy| policy.name == name),
            "exec" => false,
            _ => self.processes.iter().any(|policy| policy.name == name),
        }
    }
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
    let own = own(&mut reader, top, &settings, &registries, context, name);
    for (name, choice) in &settings.builtin {
        // A part that the file replaces is not ours any more; the choice may still be meant for the other one.
        let sections = builtin::sections(name);
        if sections.iter().all(|section| own.has(section, name)) {
            let section = sections.first().copied().unwrap_or("process");
            clash(&mut reader, name, choice, section);
        }
    }
    if reader.has_faults() {
        return Err(reader.into_faults());
    }
    let mut all = own.clone();
    for &name in builtin::names() {
        let Policies { processes, containers, execs } = ours(name, &settings, &mut registries, context)?;
        all.execs = all.execs.or(execs);
        all.processes.extend(processes.into_iter().filter(|policy| !own.has("process", &policy.name)));
        all.containers.extend(containers.into_iter().filter(|policy| !own.has("container", &policy.name)));
    }
    let Policies { processes: mut policies, mut containers, execs } = all;
    let execs = execs.unwrap_or(ExecReport { about: String::new(), telling: Telling::Off });
    policies.sort_by(|one, other| one.name.cmp(&other.name));
    containers.sort_by(|one, other| one.name.cmp(&other.name));
    registries.sort_by(|one, other| one.name.cmp(&other.name));
    let (off, mut policies): (Vec<_>, Vec<_>) =
        policies.into_iter().partition(|policy| policy.mode == Mode::Off);
    for policy in &mut policies {
        policy.mode = policy.mode.min(settings.mode);
        policy.offer = Offer::No;
    }
    let (off_containers, mut containers): (Vec<_>, Vec<_>) =
        containers.into_iter().partition(|policy| policy.mode == Mode::Off);
    for policy in &mut containers {
        policy.mode = policy.mode.min(settings.mode);
    }
    let offered = off.iter().filter(|policy| policy.offer == Offer::Told).cloned().collect();
    let Settings { mode, confirm, limits, ladder, keep, scope, journal, docker, builtin: _ } = settings;
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
            docker,
            containers,
            execs,
        },
        off,
        off_containers,
    })
}

fn own(
    reader: &mut Reader<'_>,
    top: &DeTable<'_>,
    settings: &Settings,
    registries: &[Registry],
    context: &Context<'_>,
    name: &str,
) -> Policies {
    let frame = Frame {
        rules: context.rules,
        home: context.home,
        origin: &Origin::File(name.to_owned()),
        ladder: &settings.ladder,
        operator_roots: &[],
        registries,
    };
    frame.policies(reader, top)
}

impl Frame<'_> {
    /// Reads the policies of both kinds that stand in a file.
    fn policies(&self, reader: &mut Reader<'_>, top: &DeTable<'_>) -> Policies {
        let mut policies = Policies::default();
        if let Some(table) = top.get("process").and_then(|node| reader.table(node, "a section")) {
            policies.processes = in_order(table)
                .into_iter()
                .filter_map(|(key, node)| self.policy(reader, key, node))
                .collect();
        }
        if let Some(table) = top.get("container").and_then(|node| reader.table(node, "a section")) {
            policies.containers = in_order(table)
                .into_iter()
                .filter_map(|(key, node)| self.container(reader, key, node))
                .collect();
        }
        if *self.origin == Origin::Builtin
            && let Some(table) = top.get("exec").and_then(|node| reader.table(node, "a section"))
        {
            policies.execs = table.get(ExecReport::NAME).and_then(|node| exec(reader, node));
        }
        policies
    }
}

/// Reads what is told of commands inside containers.
fn exec(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<ExecReport> {
    let table = reader.table(node, "a section")?;
    reader.unknown_keys(table, &["about", "mode"], &[]);
    let about = about(reader, table)?;
    let telling = match reader.word(table.get("mode")?, &["report", "off"])? {
        "report" => Telling::Report,
        _ => Telling::Off,
    };
    Some(ExecReport { about, telling })
}

/// Reads one of ours, with what the user's file says of it. Its registries come to those that are there; one of the
/// user's with the same name is asked instead of it.
fn ours(
    name: &str,
    settings: &Settings,
    registries: &mut Vec<Registry>,
    context: &Context<'_>,
) -> Result<Policies, Vec<Fault>> {
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
    let mut policies =
        document.as_ref().map(|document| frame.policies(&mut reader, document.get_ref())).unwrap_or_default();
    if reader.has_faults() {
        return Err(reader.into_faults());
    }
    if let Some(mode) = choice.and_then(|choice| choice.mode) {
        for policy in &mut policies.processes {
            policy.mode = mode;
        }
        for policy in &mut policies.containers {
            policy.mode = mode;
        }
        if let Some(execs) = &mut policies.execs {
            execs.telling = if mode == Mode::Off { Telling::Off } else { Telling::Report };
        }
    }
    Ok(policies)
}
