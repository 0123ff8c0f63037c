//! `[process.NAME]`: one policy for process trees.

use std::collections::{BTreeMap, BTreeSet};

use bstr::BStr;
use toml::de::DeTable;

use crate::model::plan::Ladder;
use crate::model::rule::RuleSpec;
use crate::model::verdict::Mode;

use super::capture::can_fill;
use super::lines::{Given, Ground, List, Subject};
use super::ping;
use super::policy::{
    Argument, Capture, Detached, Glob, Line, Match, Offer, Origin, Policy, ProofNeed, Registry,
};
use super::read::{Key, Node, Reader, in_order, one_or_more};
use super::residue::residue;
use super::settings::{self, is_variable, ladder, mode, program};
use super::template::{ALWAYS, is_name};

const KEYS: [&str; 13] = [
    "match",
    "capture",
    "reap-when",
    "spare-when",
    "ladder",
    "mode",
    "about",
    "without-proof",
    "private-listeners",
    "detached",
    "ping",
    "offer",
    "residue",
];

/// What a policy is read with.
#[derive(Debug, Clone, Copy)]
pub(super) struct Frame<'a> {
    pub(super) rules: &'a [&'a RuleSpec],
    pub(super) home: Option<&'a BStr>,
    pub(super) origin: &'a Origin,
    /// The ladder of a policy that has none of its own.
    pub(super) ladder: &'a Ladder,
    /// What the operator named for a built-in policy that asks for it.
    pub(super) operator_roots: &'a [Glob],
    /// The registries that its lines may ask.
    pub(super) registries: &'a [Registry],
}

impl Frame<'_> {
    /// Reads one policy; nothing comes back when it has no name or no match, which is then a fault.
    pub(super) fn policy(&self, reader: &mut Reader<'_>, key: &Key<'_>, node: &Node<'_>) -> Option<Policy> {
        let name = key.get_ref().as_ref();
        if !is_name(name) {
            not_a_policy(reader, key);
            return None;
        }
        let table = reader.table(node, "a section")?;
        reader.unknown_keys(table, &KEYS, &[]);
        let captures = table.get("capture").map(|node| captures(reader, node)).unwrap_or_default();
        let names: BTreeSet<String> = captures.keys().cloned().collect();
        let ground = Ground {
            subject: Subject::Processes,
            policy: name,
            origin: self.origin,
            rules: self.rules,
            home: self.home,
            captures: &names,
            operator_roots: self.operator_roots,
            registries: self.registries,
            ping: if table.contains_key("ping") { Given::Yes } else { Given::No },
        };
        let matches = self.matches(reader, key, table, &ground);
        if let Some(matches) = &matches {
            for (name, (capture, span)) in &captures {
                if !matches.iter().any(|form| can_fill(form, capture)) {
                    let Capture::Flag { flag, .. } = capture else { continue };
                    reader
                        .fault(span.clone(), format!("no match can fill `{name}`"))
                        .hint(format!("put \"{flag}\" and its value, or \"...\", into `args`"));
                }
            }
        }
        let proof = match truth(reader, table, "without-proof") {
            Some(true) => ProofNeed::Waived,
            Some(false) | None => ProofNeed::Required,
        };
        let reap_when = match table.get("reap-when") {
            Some(node) => ground.lines(reader, node, List::ReapWhen, proof),
            None => missing(reader, key, "reap-when", "for example [{ stdin-abandoned = true }]"),
        };
        let spare_when = table
            .get("spare-when")
            .map(|node| ground.lines(reader, node, List::SpareWhen, ProofNeed::Waived))
            .unwrap_or_default();
        let own_ladder = table.get("ladder").and_then(|node| ladder(reader, node));
        let word = table.get("mode").and_then(|node| reader.word(node, &["reap", "report", "off"]));
        Some(Policy {
            name: name.to_owned(),
            origin: self.origin.clone(),
            about: about(reader, table).unwrap_or_else(|| format!("{name} trees")),
            mode: word.map_or(Mode::Reap, mode),
            matches: matches?,
            captures: captures.into_iter().map(|(name, (capture, _))| (name, capture)).collect(),
            reap_when,
            spare_when,
            proof,
            ladder: own_ladder.unwrap_or_else(|| self.ladder.clone()),
            private_listeners: globs(reader, table, "private-listeners"),
            detached: match truth(reader, table, "detached") {
                Some(true) => Detached::Join,
                Some(false) | None => Detached::Spare,
            },
            ping: table.get("ping").and_then(|node| ping::read(reader, node, &ground)),
            residue: table.get("residue").and_then(|node| residue(reader, node, &ground)),
            offer: self.offer(reader, table),
        })
    }

    /// Reads whether a policy that is off is still told of.
    fn offer(&self, reader: &mut Reader<'_>, table: &DeTable<'_>) -> Offer {
        let Some((key, node)) = table.get_key_value("offer") else { return Offer::No };
        if *self.origin != Origin::Builtin {
            reader
                .fault(key.span(), "`offer` is for built-in policies only")
                .hint("mode = \"report\" tells what a policy of yours would reap");
            return Offer::No;
        }
        match reader.truth(node) {
            Some(true) => Offer::Told,
            Some(false) | None => Offer::No,
        }
    }

    fn matches(
        &self,
        reader: &mut Reader<'_>,
        key: &Key<'_>,
        table: &DeTable<'_>,
        ground: &Ground<'_>,
    ) -> Option<Vec<Match>> {
        let Some(node) = table.get("match") else {
            reader
                .fault(key.span(), format!("`{}` has no `match`", key.get_ref()))
                .hint("for example match = { program = \"node\", args = [\"**/preview.mjs\", \"...\"] }");
            return None;
        };
        let forms = one_or_more(node);
        if forms.is_empty() {
            reader.fault(node.span(), "an empty list").hint("with no form, this policy matches nothing");
            return None;
        }
        let count = forms.len();
        let matches: Vec<_> = forms.into_iter().filter_map(|form| self.form(reader, form, ground)).collect();
        (matches.len() == count).then_some(matches)
    }

    fn form(&self, reader: &mut Reader<'_>, node: &Node<'_>, ground: &Ground<'_>) -> Option<Match> {
        let table = reader.table(node, "a form such as { program = \"node\" }")?;
        reader.unknown_keys(table, &["program", "args", "mcp", "roots", "lease"], &[]);
        if let Some(lease) = table.get("lease") {
            if table.len() > 1 {
                reader
                    .fault(node.span(), "`lease` stands alone in its form")
                    .hint("match = [{ … }, { … }] fits whoever fits one of them");
                return None;
            }
            return reader.word(lease, &["any"]).map(|_| Match::Leased);
        }
        let (program, args) = (table.get("program"), table.get("args"));
        match (program, args, table.get("mcp"), table.get("roots")) {
            (Some(program), args, None, None) => self.shape(reader, node, program, args),
            (None, None, Some(mcp), None) => reader.word(mcp, &["configured"]).map(|_| Match::McpConfigured),
            (None, None, None, Some(roots)) => ground.roots(reader, roots).map(Match::Roots),
            (None, Some(args), _, _) => {
                reader
                    .fault(args.span(), "`args` alone could fit anybody's arguments")
                    .hint("name the program too: program = \"node\"");
                None
            }
            (None, None, None, None) => {
                reader
                    .fault(node.span(), "this form names nobody")
                    .hint("give `program` with `args`, or `mcp`, or `roots`, or `lease`");
                None
            }
            (Some(_), ..) | (None, None, Some(_), Some(_)) => {
                reader
                    .fault(node.span(), "`program`, `mcp` and `roots` do not go together in one form")
                    .hint("match = [{ … }, { … }] fits whoever fits one of them");
                None
            }
        }
    }

    fn shape(
        &self,
        reader: &mut Reader<'_>,
        node: &Node<'_>,
        program_node: &Node<'_>,
        args: Option<&Node<'_>>,
    ) -> Option<Match> {
        let mut programs = Vec::new();
        for element in one_or_more(program_node) {
            programs.push(program(reader, element)?);
        }
        if programs.is_empty() {
            reader.fault(program_node.span(), "no program is named");
            return None;
        }
        let args = match args {
            Some(args) => Some(self.arguments(reader, args)?),
            None => None,
        };
        let anything = |argument: &Argument| match argument {
            Argument::Any => true,
            Argument::One(glob) => glob.is_open(),
        };
        let any_args = args.as_ref().is_none_or(|args| args.iter().all(anything));
        if any_args && programs.iter().any(Glob::is_open) {
            reader
                .fault(node.span(), "this could match every process there is")
                .hint("name a program, or arguments that only it has");
            return None;
        }
        Some(Match::Shape { programs, args })
    }

    fn arguments(&self, reader: &mut Reader<'_>, node: &Node<'_>) -> Option<Vec<Argument>> {
        let mut arguments = Vec::new();
        for element in reader.list(node, "a list of arguments such as [\"serve\", \"...\"]")? {
            let text = reader.text(element, "an argument")?;
            arguments.push(if text == "..." {
                Argument::Any
            } else if text.starts_with("~/") {
                Argument::One(reader.path_glob(element, self.home)?)
            } else {
                Argument::One(reader.glob(element)?)
            });
        }
        Some(arguments)
    }
}

pub(super) fn missing(reader: &mut Reader<'_>, key: &Key<'_>, what: &str, hint: &str) -> Vec<Line> {
    reader.fault(key.span(), format!("`{}` has no `{what}`", key.get_ref())).hint(hint);
    Vec::new()
}

pub(super) fn truth(reader: &mut Reader<'_>, table: &DeTable<'_>, key: &str) -> Option<bool> {
    table.get(key).and_then(|node| reader.truth(node))
}

pub(super) fn about(reader: &mut Reader<'_>, table: &DeTable<'_>) -> Option<String> {
    let node = table.get("about")?;
    let text = reader.text(node, "a few words")?;
    if text.trim().is_empty() || text.len() > 200 || text.chars().any(char::is_control) {
        reader.fault(node.span(), "a few words on one line belong here");
        return None;
    }
    Some(text.to_owned())
}

fn globs(reader: &mut Reader<'_>, table: &DeTable<'_>, key: &str) -> Vec<Glob> {
    let Some(node) = table.get(key) else { return Vec::new() };
    let elements = reader.list(node, "a list of patterns").unwrap_or_default();
    let mut globs = Vec::new();
    for element in elements {
        let Some(glob) = reader.glob(element) else { continue };
        if glob.is_open() {
            reader
                .fault(element.span(), "this would call every socket private")
                .hint("name the socket, for example \"**/broker.sock\"");
            continue;
        }
        globs.push(glob);
    }
    globs
}

type Captures = BTreeMap<String, (Capture, std::ops::Range<usize>)>;

fn captures(reader: &mut Reader<'_>, node: &Node<'_>) -> Captures {
    let mut captures = BTreeMap::new();
    let Some(table) = reader.table(node, "a table of captures") else { return captures };
    for (key, node) in in_order(table) {
        let name = key.get_ref().as_ref();
        if ALWAYS.contains(&name) {
            reader
                .fault(key.span(), format!("`{{{name}}}` is always there"))
                .hint("choose another name for this capture");
        } else if !is_name(name) {
            not_a_capture(reader, key);
        } else if let Some(capture) = capture(reader, node) {
            captures.insert(name.to_owned(), (capture, key.span()));
        }
    }
    captures
}

pub(super) fn not_a_capture(reader: &mut Reader<'_>, key: &Key<'_>) {
    reader
        .fault(key.span(), "not a name for a capture")
        .hint("up to 64 lowercase letters, digits and dashes, for example `workspace`");
}

/// Faults a policy's name that is none.
pub(super) fn not_a_policy(reader: &mut Reader<'_>, key: &Key<'_>) {
    reader
        .fault(key.span(), "not a name for a policy")
        .hint("up to 64 lowercase letters, digits and dashes, for example `preview-server`");
}

fn capture(reader: &mut Reader<'_>, node: &Node<'_>) -> Option<Capture> {
    let table = reader.table(node, "a capture such as { flag = \"--cwd\" }")?;
    reader.unknown_keys(table, &["flag", "env", "lease", "strip"], &[]);
    if let Some(node) = table.get("lease") {
        if table.len() > 1 {
            reader.fault(node.span(), "`lease` stands alone in its capture");
            return None;
        }
        let label = reader.text(node, "a label of the lease")?;
        if !is_name(label) {
            reader
                .fault(node.span(), "not a label")
                .hint("up to 64 lowercase letters, digits and dashes, for example `session`");
            return None;
        }
        return Some(Capture::Lease { label: label.to_owned() });
    }
    let strip = match table.get("strip") {
        Some(node) => Some(reader.text(node, "text")?.to_owned()),
        None => None,
    };
    match (table.get("flag"), table.get("env")) {
        (Some(node), None) => {
            let flag = reader.text(node, "a flag")?;
            if !flag.starts_with('-') || flag.contains('=') || flag.trim_start_matches('-').is_empty() {
                reader
                    .fault(node.span(), "not a flag")
                    .hint("write it with its dashes and without its value, for example \"--cwd\"");
                return None;
            }
            Some(Capture::Flag { flag: flag.to_owned(), strip })
        }
        (None, Some(node)) => {
            let name = reader.text(node, "a variable")?;
            if !is_variable(name) {
                reader.fault(node.span(), "not a variable's name");
                return None;
            }
            Some(Capture::Env { name: name.to_owned(), strip })
        }
        (Some(_), Some(_)) | (None, None) => {
            reader
                .fault(node.span(), "a capture is a flag, a variable or a label of a lease")
                .hint("{ flag = \"--cwd\" }, { env = \"NAME\" } or { lease = \"LABEL\" }");
            None
        }
    }
}

/// Faults what `[builtin]` says of a policy that this section of the file replaces whole.
pub(super) fn clash(reader: &mut Reader<'_>, name: &str, choice: &settings::Choice, section: &str) {
    reader
        .fault(choice.key.clone(), format!("`{name}` is replaced by `[{section}.{name}]` of this file"))
        .hint(format!("set `mode` in [{section}.{name}] instead"));
}
