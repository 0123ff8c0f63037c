//! Every rule: one file each, and one line here.

use super::rule::Rule;

/// All rules, in the order `reapd rules` shows them: proofs first, then signs.
pub static ALL: &[&Rule] = &[];
