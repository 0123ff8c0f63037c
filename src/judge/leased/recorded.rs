//! Holders that somebody else's registry names: dead by the same rule as those of our own leases.

use crate::judge::case::Case;
use crate::judge::rule::{Finding, Found};
use crate::model::lease::Holder;

use super::state::{Life, Named, foreign, is_whole, life};

/// Weighs whether the holder that a record of a registry names is dead.
pub(in crate::judge) fn recorded(case: &Case<'_>, name: &str, holder: &Holder) -> Found<Finding> {
    let look = case.look;
    if look.snapshot.table.at(holder.pid).is_none() && !is_whole(look) && foreign(look, holder).is_ok() {
        // It may only be hidden from the table.
        case.owner(holder.pid)?;
    }
    Ok(match life(Named::Registry(name), holder, look, case.memory, &case.config.confirm)? {
        Life::Alive(id) => Finding::no(format!("registry '{name}' lists it, and its holder {id} lives")),
        Life::Over(who) => Finding::yes(format!("{who}, which held it in registry '{name}', is gone")),
    })
}
