//! Holders that somebody else's registry names: dead by the same rule as those of our own leases.

use crate::judge::case::misfit;
use crate::judge::registered::Registrant;
use crate::judge::rule::{Finding, Found};
use crate::model::lease::Holder;
use crate::model::question::{Answer, Question};

use super::state::{Life, Named, foreign, is_whole, life};

/// Weighs whether the holder that a record of a registry names is dead.
pub(in crate::judge) fn recorded<'a>(
    of: &impl Registrant<'a>,
    name: &str,
    holder: &Holder,
) -> Found<Finding> {
    let look = of.look();
    if look.snapshot.table.at(holder.pid).is_none() && !is_whole(look) && foreign(look, holder).is_ok() {
        // It may only be hidden from the table.
        let question = Question::Owner { of: of.asker()?, pid: holder.pid };
        let Answer::Owner(_) = of.ask(question)? else { return Err(misfit()) };
    }
    Ok(match life(Named::Registry(name), holder, look, of.memory(), of.confirm())? {
        Life::Alive(id) => Finding::no(format!("registry '{name}' lists it, and its holder {id} lives")),
        Life::Over(who) => Finding::yes(format!("{who}, which held it in registry '{name}', is gone")),
    })
}
