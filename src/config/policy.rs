//! A policy, checked: whom to look at, and when to call it ownerless.

mod container;
mod ping;
mod registry;
mod residue;

use std::collections::BTreeMap;
use std::time::Duration;

use bstr::BString;

use crate::model::plan::Ladder;
use crate::model::rule::Strength;
use crate::model::verdict::Mode;

pub use container::{
    ContainerCapture, ContainerMatch, ContainerPolicy, Docker, ExecReport, LeaseLabel, Sockets, StdinMatch,
    StdinReader, Telling,
};
pub use ping::{Ping, PublishedPing, Talk};
pub use registry::{
    Expect, ExpectBody, FileRegistry, HolderPointers, HttpRegistry, Instance, Method, PlacePart,
    PlacePattern, Registry, Server, Source, Want,
};
pub use residue::{RecordPlace, Records, Residue, Root};

/// The whole configuration, checked and typed, built-in policies included.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// What the whole run may do; a policy's own mode cannot go beyond it.
    pub mode: Mode,
    /// `[confirm]`.
    pub confirm: Confirm,
    /// `[limits]`.
    pub limits: Limits,
    /// `[escalation] ladder`.
    pub ladder: Ladder,
    /// `[keep]`.
    pub keep: Keep,
    /// `[scope] admit-env`.
    pub scope: AdmitEnv,
    /// `[journal]`.
    pub journal: JournalSettings,
    /// `[registry.*]`, sorted by name.
    pub registries: Vec<Registry>,
    /// Every policy that is not off, sorted by name.
    pub policies: Vec<Policy>,
    /// The policies that are off and told of all the same, sorted by name: [`Offer::Told`]. They stand apart, so that
    /// whatever acts by a policy never meets one of them.
    pub offered: Vec<Policy>,
    /// `[docker]`.
    pub docker: Docker,
    /// Every policy for containers that is not off, sorted by name.
    pub containers: Vec<ContainerPolicy>,
    /// Whether commands that were left behind inside containers are told of.
    pub execs: ExecReport,
}

impl Config {
    /// Returns every policy that is judged, those that act first.
    pub fn judged(&self) -> impl Iterator<Item = &Policy> {
        self.policies.iter().chain(&self.offered)
    }
}

/// How sure we must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Confirm {
    /// The same proof, this many times; at least 2.
    pub looks: u32,
    /// At least this far apart.
    pub apart: Duration,
    /// Younger trees are left alone.
    pub min_age: Duration,
    /// A lease's holder that nobody saw alive at this age was perhaps an errand. As `min-age` in the file.
    pub errand: Duration,
    /// No answer in time is unknown.
    pub probe_timeout: Duration,
}

/// How much at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Pace: the oldest first, the rest next time.
    pub trees_per_sweep: usize,
    /// A larger tree is held for a person.
    pub processes_per_tree: usize,
    /// Breaker: more verdicts than this on one cause are held.
    pub same_cause: usize,
}

/// What is never touched, whatever a policy says.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Keep {
    /// File names of programs, as globs.
    pub programs: Vec<Glob>,
    /// Whatever stands at or below these directories; `~` already expanded.
    pub directories: Vec<BString>,
}

/// Which trees are looked at at all.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AdmitEnv {
    /// All.
    Everybody,
    /// Only trees whose root carries this very variable with this very value.
    Marked {
        /// The variable.
        name: BString,
        /// Its value.
        value: BString,
    },
}

/// `[journal]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JournalSettings {
    /// How long `log` and `why` remember.
    pub keep: Duration,
    /// What is written of argument vectors.
    pub arguments: ArgumentsShown,
}

/// What is written of argument vectors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ArgumentsShown {
    /// As they are.
    Full,
    /// Secrets starred out.
    Redacted,
    /// Only the program.
    None,
}

/// A policy, checked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Policy {
    /// Its name.
    pub name: String,
    /// Where it was written.
    pub origin: Origin,
    /// One sentence for lists, e.g. "codex broker trees".
    pub about: String,
    /// What it may do.
    pub mode: Mode,
    /// Whom it looks at: any of these.
    pub matches: Vec<Match>,
    /// Names for templates.
    pub captures: BTreeMap<String, Capture>,
    /// Any line is enough; all of a line must hold.
    pub reap_when: Vec<Line>,
    /// Any line is enough, and so is "cannot tell".
    pub spare_when: Vec<Line>,
    /// `without-proof = true`: lines of signs alone are wanted on purpose, and every output says so.
    pub proof: ProofNeed,
    /// The signals and how long each is given.
    pub ladder: Ladder,
    /// Socket names (globs) that only the owner itself ever connects to; their being open is no sign of use.
    pub private_listeners: Vec<Glob>,
    /// Whether members that lead their own session and listen, or have a terminal, may join the teardown.
    pub detached: Detached,
    /// What `socket-unresponsive` asks.
    pub ping: Option<Ping>,
    /// What its trees leave behind.
    pub residue: Option<Residue>,
    /// Whether a policy that is off is judged all the same, so that reports can say what it would add.
    pub offer: Offer,
}

/// Whether a policy only stands in a report's one line of what it would add.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// It stands there while it is off: its file says `offer = true`. Nothing active is asked for its sake then, and
    /// nothing is ever planned.
    Told,
    /// It is an ordinary policy, or one of the former that the operator turned on.
    No,
}

/// Whether each line must hold a proof.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProofNeed {
    /// Each line holds a proof.
    Required,
    /// The operator said `without-proof = true`.
    Waived,
}

/// Whether self-standing members may join a teardown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detached {
    /// They join: the policy says `detached = true`.
    Join,
    /// They are left alone and reported.
    Spare,
}

/// Where a policy was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// One of ours.
    Builtin,
    /// The user's own, in this file.
    File(String),
}

/// One form a process may have. All that is given must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Match {
    /// By program and arguments.
    Shape {
        /// The executable's file name, or that of `argv[0]`: any of these globs.
        programs: Vec<Glob>,
        /// The arguments after `argv[0]`, one by one; `None` for any.
        args: Option<Vec<Argument>>,
    },
    /// It *is* a stdio server of the user's own MCP configuration files.
    McpConfigured,
    /// It stands at or below one of these directories: globs, `~` already expanded.
    Roots(Vec<Glob>),
    /// A lease covers it.
    Leased,
}

/// One element of an argument pattern.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Argument {
    /// Exactly one argument that fits this glob.
    One(Glob),
    /// `"..."`: any number of arguments, none included.
    Any,
}

/// A glob within one argument: `*` stays within one path element, `**` crosses `/`, `?` is one byte but `/`,
/// `[abc]`, `[a-z]` and `[!a]` are classes, `{a,b}` alternatives, `\` takes the next byte as it is. `**/` where an
/// element begins is any number of elements, none included: `**/x` fits `x`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glob {
    /// As written.
    pub text: String,
    /// Compiled.
    pub parts: Vec<GlobPart>,
}

/// One part of a compiled glob.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum GlobPart {
    /// These very bytes.
    Literal(Vec<u8>),
    /// `?`.
    AnyByte,
    /// `*`.
    AnyInElement,
    /// `**`.
    AnyAtAll,
    /// A class of bytes.
    Class {
        /// Inclusive ranges.
        ranges: Vec<(u8, u8)>,
        /// Whether the class is the complement.
        sense: Sense,
    },
    /// Any of these.
    Either(Vec<Vec<GlobPart>>),
}

/// Whether a class names what fits or what does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sense {
    /// What is named fits.
    Of,
    /// What is not named fits.
    NotOf,
}

/// Where a captured value comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Capture {
    /// The value of a flag: `--cwd VALUE` or `--cwd=VALUE`.
    Flag {
        /// The flag as written, with its dashes.
        flag: String,
        /// Taken from the front of the value; a value without it is not captured.
        strip: Option<String>,
    },
    /// A variable of the root's environment.
    Env {
        /// The variable.
        name: String,
        /// Taken from the front of the value.
        strip: Option<String>,
    },
    /// A label of the lease that covers the root.
    Lease {
        /// The label's key.
        label: String,
    },
}

/// One line: all of its conditions must hold.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// In the order they are weighed: cheap ones first, as written.
    pub conditions: Vec<Condition>,
    /// Why this policy may count a sign as a proof here, by knowledge of the program. Built-in policies only.
    pub by_knowledge: Option<String>,
}

/// One condition: a rule with its settings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    /// The rule's name, as its spec has it.
    pub rule: &'static str,
    /// What its finding is worth.
    pub strength: Strength,
    /// Its settings by name.
    pub settings: BTreeMap<&'static str, Setting>,
}

/// A checked setting.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Setting {
    /// Text with captures.
    Template(Template),
    /// Path patterns, `~` already expanded.
    Patterns(Vec<Glob>),
    /// A span.
    Duration(Duration),
    /// A whole number.
    Number(u64),
    /// One of the allowed words.
    Word(&'static str),
    /// Free text.
    Text(String),
}

/// Text with captures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template {
    /// As written.
    pub text: String,
    /// In order.
    pub parts: Vec<TemplatePart>,
}

/// One part of a template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TemplatePart {
    /// As it stands.
    Literal(String),
    /// The value of a capture.
    Capture(String),
    /// `{name.dir}`: the directory part of a captured path.
    DirectoryOf(String),
}
