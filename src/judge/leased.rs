//! What a lease of ours covers, and whether it still holds.
//!
//! A lease counts only for processes of the user that owns its file. An inherited cookie alone makes nobody a member:
//! shared daemons, panes of multiplexers and the workers of build daemons inherit it too (REDTEAM F4).

use crate::model::facts::Facts;
use crate::model::known::{Reason, Unknown};
use crate::model::look::Look;
use crate::model::table::Row;

use super::case::Case;
use super::rule::{Finding, Found};

/// Says whether a process may be the root of what a lease covers; without its facts, as far as the snapshot tells.
pub(super) fn may_be_root(_look: &Look, _row: &Row, _facts: Option<&Facts>) -> bool {
    false
}

/// Weighs the leases that cover the root.
pub(super) fn weigh(_case: &Case<'_>) -> Found<Finding> {
    Err(Unknown::new(Reason::NotAsked, "its leases").into())
}
