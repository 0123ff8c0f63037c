//! Whether a registry of somebody else's still lists what a tree stands for.

use bstr::BStr;

use crate::config::policy::Registry;
use crate::model::known::{Reason, Unknown};

use super::case::Case;
use super::rule::{Finding, Found};

/// Weighs what a registry says of a key.
pub(super) fn weigh(_case: &Case<'_>, registry: &Registry, _key: &BStr) -> Found<Finding> {
    Err(Unknown::new(Reason::NotAsked, format!("what registry '{}' says", registry.name)).into())
}
