//! `[container.NAME]`: one policy for containers.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::time::Duration;

use toml::de::{DeTable, DeValue};

use crate::model::container::stop::Fate;
use crate::model::verdict::Mode;

use super::lines::{Given, Ground, List, Subject};
use super::ping;
use super::policy::{
    ContainerCapture, ContainerMatch, ContainerPolicy, Glob, LeaseLabel, ProofNeed, StdinMatch,
};
use super::process::{Frame, about, missing, not_a_capture, not_a_policy, truth};
use super::read::{Key, Node, Reader, in_order, one_or_more};
use super::settings::{is_variable, mode};
use super::template::is_name;

const KEYS: [&str; 11] = [
    "match",
    "capture",
    "reap-when",
    "spare-when",
    "mode",
    "about",
    "without-proof",
    "grace",
    "volumes",
    "networks",
    "ping",
];

/// What `docker stop` gives where nobody says anything else.
const GRACE: Duration = Duration::from_secs(10);

/// An engine is asked to wait for so long at most: a sweep waits with it.
const LONGEST_GRACE: Duration = Duration::from_hours(1);

impl Frame<'_> {
    /// Reads one policy; nothing comes back when it has no name or no match, which is then a fault.
    pub(super) fn container(
        &self,
        reader: &mut Reader<'_>,
        key: &Key<'_>,
        node: &Node<'_>,
    ) -> Option<ContainerPolicy> {
        let name = key.get_ref().as_ref();
        if !is_name(name) {
            not_a_policy(reader, key);
            return None;
        }
        let table = reader.table(node, "a section")?;
        keys(reader, table);
        let captures = table.get("capture").map(|node| captures(reader, node)).unwrap_or_default();
        let names: BTreeSet<String> = captures.keys().cloned().collect();
        let ground = Ground {
            subject: Subject::Containers,
            policy: name,
            origin: self.origin,
            rules: self.rules,
            home: self.home,
            captures: &names,
            operator_roots: self.operator_roots,
            registries: self.registries,
            ping: if table.contains_key("ping") { Given::Yes } else { Given::No },
        };
        let matches = matches(reader, key, table);
        let proof = match truth(reader, table, "without-proof") {
            Some(true) => ProofNeed::Waived,
            Some(false) | None => ProofNeed::Required,
        };
        let reap_when = match table.get("reap-when") {
            Some(node) => ground.lines(reader, node, List::ReapWhen, proof),
            None => missing(reader, key, "reap-when", "for example [{ client-gone = true }]"),
        };
        let spare_when = table
            .get("spare-when")
            .map(|node| ground.lines(reader, node, List::SpareWhen, ProofNeed::Waived))
            .unwrap_or_default();
        let word = table.get("mode").and_then(|node| reader.word(node, &["reap", "report", "off"]));
        Some(ContainerPolicy {
            name: name.to_owned(),
            origin: self.origin.clone(),
            about: about(reader, table).unwrap_or_else(|| format!("{name} containers")),
            mode: word.map_or(Mode::Reap, mode),
            matches: matches?,
            captures,
            reap_when,
            spare_when,
            proof,
            grace: table.get("grace").and_then(|node| grace(reader, node)).unwrap_or(GRACE),
            volumes: fate(reader, table, "volumes"),
            networks: fate(reader, table, "networks"),
            ping: table.get("ping").and_then(|node| ping::read_published(reader, node, &ground)),
        })
    }
}

/// Faults every key that says nothing here; those of a policy for processes with what stands in their place.
fn keys(reader: &mut Reader<'_>, table: &DeTable<'_>) {
    for (key, _) in in_order(table) {
        let name = key.get_ref().as_ref();
        let hint = match name {
            "ladder" => "a container is asked to end, has its `grace`, and is killed",
            "private-listeners" | "detached" => "it means something for [process.*] only",
            "residue" => "`volumes` and `networks` say what goes with a container",
            _ => {
                if !KEYS.contains(&name) {
                    reader.unknown(key.span(), "key", name, KEYS.iter().copied());
                }
                continue;
            }
        };
        reader.fault(key.span(), format!("`{name}` has no meaning for containers")).hint(hint);
    }
}

fn grace(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<Duration> {
    let span = reader.duration(node)?;
    if span.subsec_nanos() != 0 || span.is_zero() || span > LONGEST_GRACE {
        reader
            .fault(node.span(), "whole seconds belong here, from \"1s\" to \"1h\"")
            .hint("for example \"10s\"");
        return None;
    }
    Some(span)
}

/// Reads what happens to something that hangs on a container. What is not said stays.
fn fate(reader: &mut Reader<'_>, table: &DeTable<'_>, key: &str) -> Fate {
    match table.get(key).and_then(|node| reader.word(node, &["keep", "remove"])) {
        Some("remove") => Fate::Remove,
        Some(_) | None => Fate::Keep,
    }
}

fn matches(reader: &mut Reader<'_>, key: &Key<'_>, table: &DeTable<'_>) -> Option<Vec<ContainerMatch>> {
    let Some(node) = table.get("match") else {
        reader
            .fault(key.span(), format!("`{}` has no `match`", key.get_ref()))
            .hint("for example match = { image = \"ghcr.io/acme/tool-*\" }");
        return None;
    };
    let forms = one_or_more(node);
    if forms.is_empty() {
        reader.fault(node.span(), "an empty list").hint("with no form, this policy matches nothing");
        return None;
    }
    let count = forms.len();
    let matches: Vec<_> = forms.into_iter().filter_map(|node| form(reader, node)).collect();
    (matches.len() == count).then_some(matches)
}

fn form(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<ContainerMatch> {
    let table = reader.table(node, "a form such as { image = \"mcp/*\" }")?;
    reader.unknown_keys(table, &["image", "name", "labels", "stdin", "lease"], &[]);
    if table.is_empty() {
        reader
            .fault(node.span(), "this form names nothing")
            .hint("give `image`, `name`, `labels`, `stdin` or `lease`");
        return None;
    }
    let images = globs(reader, table, "image")?;
    let names = globs(reader, table, "name")?;
    let labels = match table.get("labels") {
        Some(node) => labels(reader, node)?,
        None => BTreeMap::new(),
    };
    let stdin = match table.get("stdin") {
        Some(node) => reader.word(node, &["attached"]).map(|_| StdinMatch::Attached)?,
        None => StdinMatch::Any,
    };
    let lease = match table.get("lease") {
        Some(node) => reader.word(node, &["any"]).map(|_| LeaseLabel::Given)?,
        None => LeaseLabel::Any,
    };
    let open = |globs: &[Glob]| globs.is_empty() || globs.iter().any(Glob::is_open);
    if open(&images)
        && open(&names)
        && labels.is_empty()
        && stdin == StdinMatch::Any
        && lease == LeaseLabel::Any
    {
        reader
            .fault(node.span(), "this could match every container there is")
            .hint("name an image, a name, or a label that only these have");
        return None;
    }
    Some(ContainerMatch { images, names, labels, stdin, lease })
}

/// Reads the globs of one key; nothing where one is at fault.
fn globs(reader: &mut Reader<'_>, table: &DeTable<'_>, key: &str) -> Option<Vec<Glob>> {
    let Some(node) = table.get(key) else { return Some(Vec::new()) };
    let mut globs = Vec::new();
    for element in one_or_more(node) {
        let glob = reader.glob(element)?;
        if glob.text.is_empty() || glob.text.starts_with('/') {
            reader
                .fault(element.span(), format!("no container has such {}", article(key)))
                .hint("written as `docker ps` shows it");
            return None;
        }
        globs.push(glob);
    }
    if globs.is_empty() {
        reader.fault(node.span(), format!("no {key} is named"));
        return None;
    }
    Some(globs)
}

fn article(key: &str) -> &'static str {
    if key == "image" { "an image" } else { "a name" }
}

fn labels(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<BTreeMap<String, Option<Glob>>> {
    let table = reader.table(node, "labels such as { \"acme.role\" = \"tool\" }")?;
    if table.is_empty() {
        reader.fault(node.span(), "no label is named").hint("{ \"acme.role\" = true } takes any value");
        return None;
    }
    let mut labels = BTreeMap::new();
    for (key, value) in in_order(table) {
        let glob = match value.get_ref() {
            DeValue::Boolean(true) => None,
            DeValue::Boolean(false) => {
                reader
                    .fault(value.span(), format!("`{} = false` says nothing", key.get_ref()))
                    .hint("leave it out; the absence of a label cannot be matched");
                return None;
            }
            DeValue::String(_)
            | DeValue::Integer(_)
            | DeValue::Float(_)
            | DeValue::Datetime(_)
            | DeValue::Array(_)
            | DeValue::Table(_) => Some(reader.glob(value)?),
        };
        labels.insert(key.get_ref().as_ref().to_owned(), glob);
    }
    Some(labels)
}

fn captures(reader: &mut Reader<'_>, node: &Node<'_>) -> BTreeMap<String, ContainerCapture> {
    let mut captures = BTreeMap::new();
    let Some(table) = reader.table(node, "a table of captures") else { return captures };
    for (key, node) in in_order(table) {
        let name = key.get_ref().as_ref();
        if !is_name(name) {
            not_a_capture(reader, key);
        } else if let Some(capture) = capture(reader, node) {
            captures.insert(name.to_owned(), capture);
        }
    }
    captures
}

fn capture(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<ContainerCapture> {
    let table = reader.table(node, "a capture such as { label = \"acme.session\" }")?;
    reader.unknown_keys(table, &["label", "bind", "env", "strip"], &[]);
    let strip = match table.get("strip") {
        Some(node) => Some(reader.text(node, "text")?.to_owned()),
        None => None,
    };
    match (table.get("label"), table.get("bind"), table.get("env")) {
        (Some(node), None, None) => {
            let label = reader.text(node, "a label")?;
            if label.trim().is_empty() {
                reader.fault(node.span(), "no label has an empty name");
                return None;
            }
            Some(ContainerCapture::Label { label: label.to_owned(), strip })
        }
        (None, Some(node), None) => {
            if let Some((key, _)) = table.get_key_value("strip") {
                no_strip(reader, key.span());
                return None;
            }
            let bind = reader.text(node, "a path inside the container")?;
            if !bind.starts_with('/') {
                reader
                    .fault(node.span(), format!("`{bind}` is not a whole path"))
                    .hint("where it is mounted inside the container, for example \"/workspace\"");
                return None;
            }
            Some(ContainerCapture::Bind { bind: bind.to_owned() })
        }
        (None, None, Some(node)) => {
            let name = reader.text(node, "a variable")?;
            if !is_variable(name) {
                reader.fault(node.span(), "not a variable's name");
                return None;
            }
            Some(ContainerCapture::Env { name: name.to_owned(), strip })
        }
        (Some(_), Some(_), _) | (Some(_), _, Some(_)) | (None, Some(_), Some(_)) | (None, None, None) => {
            reader
                .fault(node.span(), "a capture is a label, a bind mount or a variable")
                .hint("{ label = \"acme.session\" }, { bind = \"/workspace\" } or { env = \"NAME\" }");
            None
        }
    }
}

fn no_strip(reader: &mut Reader<'_>, span: Range<usize>) {
    reader
        .fault(span, "`strip` has no meaning with `bind`")
        .hint("what is captured is the directory of the host as it is");
}
