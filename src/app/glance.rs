//! A look without any consequence, for dry runs, `why`, `held` and `observe`: it opens what state there is, takes no
//! lock, and remembers nothing.

use super::look::{Sight, foreseen, plan, take};
use super::memory::{self, Release, Remembered};
use super::place::state_trouble;
use super::residue::{self, Seek};
use super::session::Session;
use super::trouble::Trouble;
use crate::config::policy::Config;
use crate::judge::Ledger;
use crate::model::plan::Plan;
use crate::plan::{Asked, Released};

/// Looks once and plans as if further looks agreed.
pub fn glance(session: &Session, config: &Config, asked: &Asked) -> Result<(Sight, Plan), Trouble> {
    look(session, config, asked, Residue::PassedOver)
}

/// The same, with what trees left behind.
pub fn whole_glance(session: &Session, config: &Config, asked: &Asked) -> Result<(Sight, Plan), Trouble> {
    look(session, config, asked, Residue::LookedFor)
}

/// Whether what trees left behind is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Residue {
    LookedFor,
    PassedOver,
}

fn look(
    session: &Session,
    config: &Config,
    asked: &Asked,
    residue: Residue,
) -> Result<(Sight, Plan), Trouble> {
    let state = session.around.existing_state(&session.place)?;
    let (mut ledger, marks, released) = match &state {
        None => (Ledger::default(), Vec::new(), memory::Releases::default()),
        Some(state) => {
            let ledger = match memory::ledger(state).map_err(|error| state_trouble(&error))? {
                Remembered::Ledger(ledger) => *ledger,
                Remembered::Nothing | Remembered::Bad(_) => Ledger::default(),
            };
            let marks = memory::marks(state).map_err(|error| state_trouble(&error))?;
            (ledger, marks, memory::releases(state).map_err(|error| state_trouble(&error))?)
        }
    };
    let mut eyes = session.observer(config)?;
    if let Some(heard) = state.as_ref().and_then(memory::heard) {
        eyes.remember(heard);
    }
    let mut sight = take(&mut eyes, config, &mut ledger, &marks)?;
    let asked = Asked { released: released_for(&released.of(&sight.look.snapshot.boot)), ..asked.clone() };
    let mut plan = plan(&mut eyes, &mut sight.look, &foreseen(&sight.verdicts), config, &asked);
    if residue == Residue::LookedFor {
        let temporary = session.around.temporary();
        let seek = Seek { config, temporary: &temporary, only: asked.only.as_deref() };
        let mut found = residue::look(&mut eyes, seek, &sight.look, &ledger).foreseen();
        sight.look.snapshot.gaps.append(&mut found.gaps);
        plan.residue = residue::plan(&mut eyes, seek, &sight.look, &plan, &found);
    }
    Ok((sight, plan))
}

/// Returns releases as plan takes them.
pub fn released_for(releases: &[Release]) -> Released {
    let mut released = Released::default();
    for release in releases {
        match release {
            Release::Cause(cause) => {
                released.causes.insert(cause.clone());
            }
            Release::Tree(root) => {
                released.roots.insert(*root);
            }
            Release::Container(at) => {
                released.containers.insert(at.clone());
            }
        }
    }
    released
}
