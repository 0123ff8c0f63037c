//! What a lease of ours covers, and whether it still holds.
//!
//! A lease counts only for processes of the user that owns its file. To reap, the narrow sense counts: whom a lease
//! covers, and only where every such lease is over. To keep, the wide one: who carries the cookie of a lease that
//! holds, or whose file cannot be read, is somebody's, whatever its parent is.

mod channel;
mod covering;
mod recorded;
mod state;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use bstr::{BStr, BString, ByteSlice as _};

use crate::config::policy::{Capture, Confirm, Policy};
use crate::model::evidence::Cause;
use crate::model::facts::{Facts, Hangup};
use crate::model::id::{Pid, ProcessId};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::lease::{COOKIE, FaultyLease, Lease, Run, RunChannel};
use crate::model::look::Look;
use crate::model::question::Question;
use crate::model::table::Row;
use crate::model::verdict::{Claim, Leased, TreeLease, Verdict, Verdicts};

use super::Ledger;
use super::case::{Case, known};
use super::rule::{Blank, Finding, Found, Holds, Settings};
use super::rules::stdin_abandoned;

pub(in crate::judge) use channel::{ABANDONED, held_ends};
pub use covering::{Covered, covered};
pub(super) use recorded::recorded;
pub use state::{State, state};
pub(in crate::judge) use state::{began_before, foreign, is_below, is_living, is_whole};

use covering::{Covering, Standing, cgroup_of, cookie, grouped, is_grouped, is_same, standing, uid};
use state::{Life, Named, life};

/// Returns what must be asked before [`covered`] and [`state()`] can tell: whether those that lead a session of their
/// own can be reached, and whether numbers that the table does not show are anybody's, where some could be hidden.
pub fn questions(lease: &Lease, look: &Look) -> Vec<Question> {
    let table = &look.snapshot.table;
    let mut asks: Vec<Question> = table
        .rows()
        .iter()
        .filter(|row| standing(look, lease, row) == Standing::Unasked)
        .map(|row| Question::Sockets(row.id))
        .collect();
    asks.extend(hidden(lease, look, look.snapshot.own.pid));
    asks
}

/// Returns the numbers of a lease that could be those of hidden processes, as questions of whoever bears `of`.
pub(in crate::judge) fn hidden(lease: &Lease, look: &Look, of: Pid) -> Vec<Question> {
    let table = &look.snapshot.table;
    let Some(of) = table.at(of).map(|row| row.id).filter(|_| !is_whole(look)) else { return Vec::new() };
    let holder = lease.holder.iter().filter(|holder| foreign(look, holder).is_ok()).map(|holder| holder.pid);
    let run = lease.run.iter().flat_map(|run| [Some(run.watcher), run.command]).flatten().map(|id| id.pid);
    holder
        .chain(run)
        .filter(|pid| table.at(*pid).is_none())
        .map(|pid| Question::Owner { of, pid })
        .filter(|question| !look.answers.contains_key(question))
        .collect()
}

/// Who may be the root of what a lease covers, for a whole look.
#[derive(Debug)]
pub(super) struct Roots<'a>(Option<Covering<'a>>);

impl<'a> Roots<'a> {
    pub(super) fn new(look: &'a Look) -> Roots<'a> {
        Roots((!look.snapshot.leases.list.is_empty()).then(|| Covering::new(look)))
    }

    /// Says whether a process may be one, as far as the snapshot tells.
    pub(super) fn may_hold(&self, look: &Look, row: &Row) -> bool {
        self.0
            .as_ref()
            .is_some_and(|covering| covering.naming(row.id).into_iter().any(|lease| may_be(look, lease, row)))
    }
}

fn may_be(look: &Look, lease: &Lease, row: &Row) -> bool {
    match standing(look, lease, row) {
        Standing::Root | Standing::Unasked => true,
        Standing::Spared(_) | Standing::None => false,
    }
}

/// Says whether freshly read facts still make a process the root of what a lease covers: its user is the lease's, and
/// it carries the very cookie or is in the very cgroup, unless the lease names it or its parent watches it.
pub(super) fn may_be_root(look: &Look, row: &Row, facts: &Facts) -> bool {
    if look.snapshot.leases.list.is_empty() {
        return false;
    }
    Covering::new(look).naming(row.id).into_iter().any(|lease| {
        let by_cookie = cookie(look, row.id).is_some_and(|cookie| is_cookie_of(lease, cookie));
        let by_group = is_grouped(look, lease, row.id);
        let is_still = !(by_cookie || by_group)
            || by_cookie && carried(facts).is_ok_and(|now| cookie(look, row.id) == now)
            || by_group && is_still_grouped(lease, facts);
        is_still && facts.uid == Ok(lease.file.owner) && may_be(look, lease, row)
    })
}

/// Says whether freshly read facts show a process in the cgroup of a lease.
fn is_still_grouped(lease: &Lease, facts: &Facts) -> bool {
    cgroup_of(lease).is_some_and(|own| facts.cgroup.as_ref().is_ok_and(|now| *now == own.path.as_str()))
}

fn is_cookie_of(lease: &Lease, cookie: &BStr) -> bool {
    lease.covers.env.as_ref().is_some_and(|env| env.as_bstr() == cookie)
}

fn carried(facts: &Facts) -> Known<Option<&BStr>> {
    let env = facts.env.as_ref().map_err(Clone::clone)?;
    Ok(env.get(COOKIE.as_bytes().as_bstr()).map(|cookie| cookie.as_bstr()))
}

/// Returns the labels that a policy captures, where one lease covers the root and says them; two that differ say
/// nothing.
pub(super) fn labels(policy: &Policy, look: &Look, root: ProcessId) -> BTreeMap<String, BString> {
    let mut found = BTreeMap::new();
    let mut wanted = policy.captures.iter().filter_map(|(name, capture)| match capture {
        Capture::Lease { label } => Some((name, label)),
        Capture::Flag { .. } | Capture::Env { .. } => None,
    });
    let Some(first) = wanted.next() else { return found };
    if look.snapshot.leases.list.is_empty() {
        return found;
    }
    let (leases, _) = Covering::new(look).covering(root);
    for (name, label) in std::iter::once(first).chain(wanted) {
        let values: BTreeSet<Option<&String>> = leases.iter().map(|lease| lease.labels.get(label)).collect();
        if let [Some(value)] = values.into_iter().collect::<Vec<_>>()[..]
            && crate::config::capture::is_fit(value.as_bytes())
        {
            found.insert(name.clone(), value.as_str().into());
        }
    }
    found
}

/// Weighs the leases that cover the root.
pub(super) fn weigh(case: &Case<'_>) -> Found<Finding> {
    let mine = leases(case)?;
    if mine.covering.is_empty() {
        return Ok(Finding::no(mine.spared.unwrap_or_else(|| "no lease covers it".into())));
    }
    let mut over: Vec<(String, Option<Cause>)> = Vec::new();
    for (_, state) in settle(case, mine)? {
        match state {
            State::Held { why } => return Ok(Finding::no(why)),
            State::Over { why, cause } => over.push((why, cause)),
            State::Unknown(unknown) => return Err(unknown.into()),
        }
    }
    let cause = over.iter().find_map(|(_, cause)| cause.clone());
    let why: Vec<String> = over.into_iter().map(|(why, _)| why).collect();
    Ok(Finding { cause, ..Finding::yes(why.join(", and ")) })
}

/// Keeps what a lease that holds, or of which it is not known, says is somebody's. A holder that would go with the
/// tree owns nothing outside of it.
pub(super) fn veto(case: &Case<'_>) -> Found<Finding> {
    let mine = leases(case)?;
    let mut unknown = None;
    for (lease, state) in settle(case, mine)? {
        let goes_too = lease.is_some_and(|lease| {
            keepers(lease, case.look, case.memory, &case.config.confirm)
                .is_ok_and(|keepers| keepers.iter().all(|id| case.tree.contains(id)))
        });
        match state {
            State::Held { .. } | State::Unknown(_) if goes_too => {}
            State::Held { why } => return Ok(Finding::yes(why)),
            State::Unknown(why) => unknown = unknown.or(Some(why)),
            State::Over { .. } => {}
        }
    }
    match unknown {
        Some(unknown) => Err(unknown.into()),
        None => Ok(Finding::no("no lease that holds covers it")),
    }
}

/// The leases that a root has to do with.
#[derive(Debug, Default)]
struct Mine<'a> {
    /// Those that cover it.
    covering: Vec<&'a Lease>,
    /// Those whose cookie it carries, and that do not cover it.
    carried: Vec<&'a Lease>,
    /// A file that says nothing that counts, by the name of the cookie that it carries.
    faulty: Option<&'a FaultyLease>,
    /// Why a lease that concerns it does not cover it.
    spared: Option<String>,
}

fn leases<'a>(case: &Case<'a>) -> Found<Mine<'a>> {
    let look = case.look;
    let leases = &look.snapshot.leases;
    if leases.list.is_empty() && leases.faulty.is_empty() {
        return Ok(Mine::default());
    }
    let index = Covering::new(look);
    let (covering, unasked) = index.covering(case.root.id);
    if !unasked.is_empty() {
        return Err(Blank::Ask(unasked.into_iter().map(Question::Sockets).collect()));
    }
    let naming = index.naming(case.root.id);
    let spared = naming.iter().find_map(|lease| match standing(look, lease, case.root) {
        Standing::Spared(why) => Some(why),
        Standing::Root | Standing::Unasked | Standing::None => None,
    });
    let carried =
        naming.into_iter().filter(|lease| !covering.iter().any(|known| is_same(known, lease))).collect();
    Ok(Mine { covering, carried, faulty: faulty_of(look, case.root.id), spared })
}

/// Returns the file that may say what becomes of whoever carries this cookie, and says nothing that counts: the one of
/// its name, or any where no good lease has that cookie.
fn faulty_of(look: &Look, id: ProcessId) -> Option<&FaultyLease> {
    look.snapshot.leases.unread(cookie(look, id)?, uid(look, id))
}

/// Returns the states of a root's leases; what is missing for all of them is asked at once.
fn settle<'a>(case: &Case<'a>, mine: Mine<'a>) -> Found<Vec<(Option<&'a Lease>, State)>> {
    let mut asks = Vec::new();
    let mut found = Vec::new();
    for lease in mine.covering.into_iter().chain(mine.carried) {
        let hidden = hidden(lease, case.look, case.root.id.pid);
        if !hidden.is_empty() {
            asks.extend(hidden);
            continue;
        }
        match of_root(case, lease) {
            Ok(state) => found.push((Some(lease), state)),
            Err(Blank::Ask(questions)) => asks.extend(questions),
            Err(Blank::Unknown(unknown)) => found.push((Some(lease), State::Unknown(unknown))),
        }
    }
    if !asks.is_empty() && !found.iter().any(|(_, state)| matches!(state, State::Held { .. })) {
        return Err(Blank::Ask(asks));
    }
    found.extend(mine.faulty.map(|faulty| (None, State::Unknown(faulty.why.clone()))));
    Ok(found)
}

/// Returns the state of a lease for one root: one of `reapd run` on channels goes with them.
fn of_root(case: &Case<'_>, lease: &Lease) -> Found<State> {
    if let Some(run) = &lease.run
        && is_to_live_on(case, run)?
    {
        return Ok(State::held("it ignores SIGHUP though its reapd run did not: it is to live on (nohup)"));
    }
    let state = state(lease, case.look, case.memory, &case.config.confirm);
    let (State::Held { .. }, Some(run)) = (&state, &lease.run) else { return Ok(state) };
    let ended = run.command.is_some_and(|command| !is_living(case.look, command));
    let watched = is_living(case.look, run.watcher) && !is_below(case.look, run.watcher);
    if run.channel != RunChannel::Stdio || watched || ended {
        return Ok(state);
    }
    if is_living(case.look, run.watcher) {
        return channel::of_watcher(case, run.watcher);
    }
    let channel = stdin_abandoned::weigh(case, Settings(&BTreeMap::new()))?;
    Ok(match channel.holds {
        Holds::Yes => State::over(format!("its reapd run is gone, and {}", channel.why)),
        Holds::No => State::held(format!("its reapd run is gone, but {}", channel.why)),
    })
}

/// Says whether a process was left behind on purpose: nohup(1) has it ignore SIGHUP. Where the whole `reapd run` was
/// started so, that says nothing of its children; of a watcher that is gone nobody knows.
fn is_to_live_on(case: &Case<'_>, run: &Run) -> Found<bool> {
    if run.command == Some(case.root.id) || *known(&case.facts(case.root.id)?.hangup)? != Hangup::Ignored {
        return Ok(false);
    }
    Ok(!is_living(case.look, run.watcher) || *known(&case.facts(run.watcher)?.hangup)? != Hangup::Ignored)
}

/// Returns who keeps what a lease covers alive: its living holder and its living watcher. Where it is not known who
/// they are, nobody can say that they are gone.
fn keepers(lease: &Lease, look: &Look, memory: &Ledger, confirm: &Confirm) -> Known<Vec<ProcessId>> {
    let mut keepers = Vec::new();
    match lease.holder.as_ref().map(|holder| life(Named::Lease(lease), holder, look, memory, confirm)) {
        Some(Ok(Life::Alive(id))) => keepers.push(id),
        Some(Ok(Life::Over(_))) | None => {}
        Some(Err(unknown)) => return Err(unknown),
    }
    keepers.extend(lease.run.iter().map(|run| run.watcher).filter(|id| is_living(look, *id)));
    if keepers.is_empty() {
        return Err(Unknown::new(Reason::NoRecord, format!("who keeps what lease {} covers", lease.id)));
    }
    Ok(keepers)
}

/// Returns what plan must know of leases: those that do not count as over, and those of each condemned tree.
pub(super) fn leased(verdicts: &Verdicts, look: &Look, memory: &Ledger, confirm: &Confirm) -> Leased {
    let mut leased = Leased::default();
    let condemned = verdicts.judgements.iter().filter(|judgement| match judgement.verdict {
        Verdict::Suspect { .. } | Verdict::Orphaned { .. } => true,
        Verdict::Protected | Verdict::Alive | Verdict::Unknown => false,
    });
    let roots: BTreeSet<ProcessId> = condemned.map(|judgement| judgement.root).collect();
    let leases = &look.snapshot.leases;
    if roots.is_empty() || (leases.list.is_empty() && leases.faulty.is_empty()) {
        return leased;
    }
    let covering = Covering::new(look);
    for root in roots {
        for lease in covering.covering(root).0 {
            leased.trees.push(TreeLease {
                root,
                owner: lease.file.owner,
                lease: lease.id.clone(),
                cookie: lease.covers.env.clone(),
                cgroup: cgroup_of(lease).cloned(),
            });
        }
    }
    for lease in &leases.list {
        let why = match state(lease, look, memory, confirm) {
            State::Over { .. } => continue,
            State::Held { why } => why,
            State::Unknown(unknown) => unknown.to_string(),
        };
        let run = lease.run.iter().flat_map(|run| [Some(run.watcher), run.command]).flatten();
        leased.claims.push(Claim {
            lease: Some(lease.id.clone()),
            owner: Some(lease.file.owner),
            cookie: lease.covers.env.clone(),
            processes: lease
                .covers
                .processes
                .iter()
                .copied()
                .chain(run)
                .chain(grouped(look, lease))
                .collect(),
            keepers: keepers(lease, look, memory, confirm).unwrap_or_default(),
            why,
        });
    }
    leased.claims.extend(leases.faulty.iter().map(|faulty| Claim {
        lease: None,
        owner: None,
        cookie: Some(faulty.stem.clone()),
        processes: Vec::new(),
        keepers: Vec::new(),
        why: faulty.why.to_string(),
    }));
    leased
}

/// Returns those of a tree that stay behind since another lease than the root's own claims them: whoever stays is
/// somebody else, so that what it is connected to is in use.
pub(super) fn claimed(case: &Case<'_>) -> BTreeSet<ProcessId> {
    let leases = &case.look.snapshot.leases;
    if leases.list.is_empty() && leases.faulty.is_empty() {
        return BTreeSet::new();
    }
    let covering = Covering::new(case.look);
    let own = covering.covering(case.root.id).0;
    let stays = |id: &ProcessId| {
        faulty_of(case.look, *id).is_some()
            || covering.naming(*id).iter().any(|lease| {
                let confirm = &case.config.confirm;
                !own.iter().any(|known| is_same(known, lease))
                    && !matches!(state(lease, case.look, case.memory, confirm), State::Over { .. })
                    && !keepers(lease, case.look, case.memory, confirm)
                        .is_ok_and(|keepers| keepers.iter().all(|id| case.tree.contains(id)))
            })
    };
    case.tree.iter().copied().filter(|id| *id != case.root.id && stays(id)).collect()
}
