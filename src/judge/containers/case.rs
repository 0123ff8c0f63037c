//! One container before one policy: everything a rule may look at.

use std::collections::BTreeMap;

use bstr::BString;

use crate::config::policy::{Config, ContainerPolicy};
use crate::judge::ledger::Ledger;
use crate::model::container::{ContainerFacts, Engine, Listed};
use crate::model::look::Look;

/// One container before one policy.
#[derive(Debug, Clone, Copy)]
pub struct ContainerCase<'a> {
    /// What was seen at this look.
    pub look: &'a Look,
    /// What was seen at earlier looks.
    pub memory: &'a Ledger,
    /// The configuration.
    pub config: &'a Config,
    /// The policy.
    pub policy: &'a ContainerPolicy,
    /// Its engine.
    pub engine: &'a Engine,
    /// What the list says of it.
    pub listed: &'a Listed,
    /// What the engine says of it alone: at this look, or remembered from an earlier one of the same run.
    pub facts: &'a ContainerFacts,
    /// The policy's captures, as far as they could be filled.
    pub captures: &'a BTreeMap<String, BString>,
}
