//! What a rule says of itself, so that configuration can be checked against it without knowing how it judges.

use serde::{Deserialize, Serialize};

/// How much a rule's finding is worth.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Strength {
    /// Nobody can use it any more.
    Proof,
    /// Fits an orphan, proves nothing alone.
    Sign,
}

/// A rule's description: its name, its strength and its settings. One per rule file.
#[derive(Debug)]
pub struct RuleSpec {
    /// Named for what it finds, in kebab-case.
    pub name: &'static str,
    /// What its finding is worth.
    pub strength: Strength,
    /// One sentence for `reapd rules`.
    pub summary: &'static str,
    /// The four paragraphs of `reapd rules NAME`: what it finds, why it is not enough alone, when it is wrong,
    /// settings.
    pub doc: &'static str,
    /// Its settings, in the order they are shown.
    pub settings: &'static [SettingSpec],
    /// The setting that a bare value sets: `{ cwd-gone = "{workspace}" }`. Where there is none, the bare value must
    /// be `true`: `{ stdin-abandoned = true }`.
    pub bare: Option<&'static str>,
    /// Whether the rule may stand in `reap-when`, in `spare-when`, or in both.
    pub place: Place,
    /// How it comes to know.
    pub asks: Asks,
    /// What its finding means for whoever is connected.
    pub clients: Clients,
    /// What it can judge.
    pub serves: Serves,
}

/// What a rule can judge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Serves {
    /// Process trees.
    Processes,
    /// Containers.
    Containers,
    /// Both. These of its settings have a meaning for containers; all have one for process trees.
    Both(&'static [&'static str]),
}

/// How a rule comes to know.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Asks {
    /// It looks; a registry that is a server is asked as well, where a line names one.
    Passively,
    /// It asks the server itself by the policy's `ping`: last of its line, and only when nothing else keeps the tree.
    ByPing,
}

/// What a rule's finding means for whoever is connected to the tree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Clients {
    /// They use it: the veto of a connected client stands.
    Served,
    /// They wait for an answer that never comes: where a line holds by this rule, that veto does not stand.
    CannotBeServed,
}

/// Where a rule may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Only in `reap-when`.
    ReapWhen,
    /// Only in `spare-when`.
    SpareWhen,
    /// In both.
    Anywhere,
}

/// One setting of a rule.
#[derive(Debug)]
pub struct SettingSpec {
    /// Its key, in kebab-case.
    pub name: &'static str,
    /// What its value must be.
    pub kind: SettingKind,
    /// Whether it may be left out.
    pub need: Need,
    /// What it means, its unit and its default, in one sentence.
    pub doc: &'static str,
}

/// Whether a setting may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Need {
    /// It must be given.
    Required,
    /// It has a default, or its absence means something.
    Optional,
    /// It goes together with the setting of this name: both are given, or neither.
    With(&'static str),
}

/// What a setting's value must be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SettingKind {
    /// Text with `{captures}`.
    Template,
    /// A list of path patterns (globs; `~` is the user's home), or one alone.
    Patterns,
    /// A duration such as "30s".
    Duration,
    /// A whole number.
    Number,
    /// How often something is done: a whole number of at least this.
    Times(u64),
    /// How long to wait between two of them: a duration of at least a second.
    Pause,
    /// One of these words.
    Word(&'static [&'static str]),
    /// Free text, e.g. a policy's name or the written reason for a claim.
    Text,
    /// The name of a registry of the configuration.
    Registry,
}
