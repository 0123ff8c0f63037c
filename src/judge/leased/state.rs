//! Whether a lease still holds: who is dead, what has lapsed, and what nobody can know.

use std::time::Duration;

use crate::config::policy::Confirm;
use crate::judge::Ledger;
use crate::judge::ledger::Pin;
use crate::judge::rules::span;
use crate::model::evidence::Cause;
use crate::model::id::{Pid, ProcessId, Start};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::lease::{Bound, Holder, Lease, Leftovers, Release, Run, RunChannel};
use crate::model::look::{Gap, Look};
use crate::model::ownership::ancestors;
use crate::model::question::{Answer, Owner, Question};

/// What time alone ended hangs on this one thing, and may be wrong for many at once.
const CAUSE: &str = "leases";

/// Whether a lease holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum State {
    /// It does.
    Held {
        /// Why, for a person; a lowercase fragment.
        why: String,
    },
    /// It is over.
    Over {
        /// Why, for a person; a lowercase fragment.
        why: String,
        /// What that hangs on that may fail for many leases at once.
        cause: Option<Cause>,
    },
    /// It cannot be told, so it counts as held.
    Unknown(Unknown),
}

impl State {
    pub(super) fn held(why: impl Into<String>) -> State {
        State::Held { why: why.into() }
    }

    pub(super) fn over(why: impl Into<String>) -> State {
        State::Over { why: why.into(), cause: None }
    }

    fn unknown(reason: Reason, what: impl Into<String>) -> State {
        State::Unknown(Unknown::new(reason, what))
    }
}

/// Returns the state of a lease. A number that the table does not show is nobody only where the table is whole, or
/// where the kernel was asked ([`super::questions`]).
pub fn state(lease: &Lease, look: &Look, memory: &Ledger, confirm: &Confirm) -> State {
    let released = match &lease.release {
        Release::Open => None,
        Release::Released(None) => Some(format!("its lease {} was released", lease.id)),
        Release::Released(Some(reason)) => Some(format!("its lease {} was released: {reason}", lease.id)),
    };
    let life = lease.holder.as_ref().map(|holder| life(Named::Lease(lease), holder, look, memory, confirm));
    if let Some(run) = &lease.run {
        return running(lease, run, released, life, look);
    }
    if let Some(why) = released {
        return State::over(why);
    }
    if let Some(Ok(Life::Over(who))) = life {
        return State::over(format!("{who}, which held its lease {}, is gone", lease.id));
    }
    match (lease.bound, life) {
        (Bound::Ttl(ttl), _) => lapse(lease, ttl, look, memory),
        (Bound::Holder, Some(Ok(Life::Alive(holder)))) => {
            State::held(format!("process {holder} holds its lease {}", lease.id))
        }
        (Bound::Holder, Some(Ok(Life::Over(_))) | None) => {
            State::unknown(Reason::NoRecord, format!("who holds its lease {}", lease.id))
        }
        (Bound::Holder, Some(Err(unknown))) => State::Unknown(unknown),
    }
}

/// What is known of a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Life {
    /// It lives.
    Alive(ProcessId),
    /// It is dead, and was more than an errand while it lived; for a person.
    Over(String),
}

/// Where a holder is named.
#[derive(Debug, Clone, Copy)]
pub(super) enum Named<'a> {
    /// In a lease of ours.
    Lease(&'a Lease),
    /// In a record of the registry of this name.
    Registry(&'a str),
}

impl Named<'_> {
    /// Returns who was seen alive as this very holder.
    fn pin(self, holder: &Holder, memory: &Ledger) -> Option<Pin> {
        match self {
            Named::Lease(lease) => memory.pin(lease),
            Named::Registry(name) => memory.pin_recorded(name, holder),
        }
    }

    /// Says whether a process can be whom a bare number means. When somebody else's record was written is not known.
    fn may_mean(self, look: &Look, id: ProcessId) -> bool {
        match self {
            Named::Lease(lease) => began_before(lease, look, id),
            Named::Registry(_) => false,
        }
    }

    /// Says whether the file was touched since anybody looked, and may mean whoever bears its bare number now.
    fn may_mean_another(self, look: &Look, memory: &Ledger) -> bool {
        match self {
            Named::Lease(lease) => memory.may_mean_another(lease, look),
            Named::Registry(_) => false,
        }
    }

    /// Says why nobody can tell that a bare number means whoever bears it now.
    fn unmeant(self) -> String {
        match self {
            Named::Lease(_) => "began after the lease was written".to_owned(),
            Named::Registry(name) => format!("is only a number in registry '{name}'"),
        }
    }

    fn cure(self) -> String {
        match self {
            Named::Lease(lease) => format!(" (if it is over: reapd lease release {})", lease.id),
            Named::Registry(name) => format!(", as registry '{name}' names it"),
        }
    }
}

/// Says whether a holder is dead: leniently, since another program or another user under the number never proves a
/// death, and only where number and stamp mean what they mean here.
pub(super) fn life(
    named: Named<'_>,
    holder: &Holder,
    look: &Look,
    memory: &Ledger,
    confirm: &Confirm,
) -> Known<Life> {
    foreign(look, holder)?;
    let pin = named.pin(holder, memory);
    let who = format!("process {}", holder.pid);
    let bearer = bearer(look, holder.pid)?;
    // The start that the file records, or that of the process that was seen alive behind a bare number.
    let start = holder.start.or(pin.map(|pin| pin.start));
    if let Some(bearer) = bearer {
        match start {
            Some(start) if start == bearer.start => return Ok(Life::Alive(bearer)),
            Some(_) if named.may_mean_another(look, memory) => {
                let what = format!("whether {who} is who held it, or wrote it since{}", named.cure());
                return Err(Unknown::new(Reason::NoRecord, what));
            }
            Some(_) => {}
            None if named.may_mean(look, bearer) => return Ok(Life::Alive(bearer)),
            None => {
                return Err(Unknown::new(
                    Reason::NoRecord,
                    format!("who holds it: {who} {}", named.unmeant()),
                ));
            }
        }
    }
    // A stamp without its boot and namespaces may be of a process elsewhere; one that was seen here is not.
    let is_whole =
        holder.start.is_some() && holder.boot.is_some() && holder.pidns.is_some() && holder.timens.is_some();
    let seen = pin.filter(|pin| start == Some(pin.start));
    if !is_whole && seen.is_none() {
        let what = format!("who {who} was while it lived{}", named.cure());
        return Err(Unknown::new(Reason::NoRecord, what));
    }
    let oldest = holder.age.max(seen.map(|pin: Pin| pin.age)).unwrap_or_default();
    if oldest < confirm.errand {
        let what =
            format!("whether {who}, last seen {} old, was more than an errand{}", span(oldest), named.cure());
        return Err(Unknown::new(Reason::NoRecord, what));
    }
    Ok(Life::Over(who))
}

/// Says why a record of a holder means somebody elsewhere: of another boot, pid namespace or time namespace. What it
/// does not record is not looked at here. A host is told by its boot: two hosts never share one.
pub(in crate::judge) fn foreign(look: &Look, holder: &Holder) -> Known<()> {
    let elsewhere = |what: &str| {
        Err(Unknown::new(
            Reason::Foreign,
            format!("whether its holder, process {} {what}, lives", holder.pid),
        ))
    };
    match &holder.boot {
        Some(boot) if *boot != look.snapshot.boot => return elsewhere("of another boot or host"),
        None if holder.host.is_some() => return elsewhere("of a host by name, without its boot"),
        Some(_) | None => {}
    }
    if holder.pidns.is_none() && holder.timens.is_none() {
        return Ok(());
    }
    let own = look.snapshot.own.namespaces.as_ref().map_err(Clone::clone)?;
    if holder.pidns.is_some_and(|pidns| pidns != own.pid) {
        return elsewhere("of another pid namespace");
    }
    if holder.timens.is_some_and(|timens| timens != own.time) {
        return elsewhere("of another time namespace");
    }
    Ok(())
}

/// Returns who bears a number and lives, or nobody; unknown where a process could be hidden.
fn bearer(look: &Look, pid: Pid) -> Known<Option<ProcessId>> {
    if let Some(row) = look.snapshot.table.at(pid)
        && !row.is_gone()
    {
        return Ok(Some(row.id));
    }
    let first = Question::Owner { of: ProcessId { pid: Pid::INIT, start: Start(0) }, pid: Pid::INIT };
    let asked = look
        .answers
        .range(first..)
        .take_while(|(question, _)| matches!(question, Question::Owner { .. }))
        .filter(|(question, _)| matches!(question, Question::Owner { pid: asked, .. } if *asked == pid))
        .map(|(_, answer)| answer);
    let mut absent = false;
    let mut refused = None;
    for answer in asked {
        match answer {
            Ok(Answer::Owner(Owner::Alive(id))) => return Ok(Some(*id)),
            Ok(Answer::Owner(Owner::Absent | Owner::Zombie)) => absent = true,
            Ok(_) => {}
            Err(unknown) => refused = Some(unknown.clone()),
        }
    }
    match refused {
        Some(unknown) => Err(unknown),
        None if absent || is_whole(look) => Ok(None),
        None => Err(Unknown::new(Reason::Denied, format!("whether process {pid} is there"))),
    }
}

/// Says whether nobody can be missing in the table: a number that it does not show is nobody's.
pub(in crate::judge) fn is_whole(look: &Look) -> bool {
    !look.snapshot.gaps.iter().any(|gap| [Gap::HIDDEN, Gap::UNREAD].contains(&gap.source.as_str()))
}

/// Says whether a process is there and lives.
pub(in crate::judge) fn is_living(look: &Look, id: ProcessId) -> bool {
    look.snapshot.table.get(id).is_some_and(|row| !row.is_gone())
}

/// Says whether a process began before the lease was written; one that is younger is not whom the file means.
pub(in crate::judge) fn began_before(lease: &Lease, look: &Look, id: ProcessId) -> bool {
    const SLACK: i128 = 2_000_000_000;
    let began = look.snapshot.began;
    let Some(row) = look.snapshot.table.get(id) else { return false };
    let age = i128::from(began.boot.0) - i128::from(row.began.0);
    let written = i128::from(began.wall) * 1_000_000 - i128::from(lease.file.modified);
    age + SLACK >= written
}

fn lapse(lease: &Lease, ttl: Duration, look: &Look, memory: &Ledger) -> State {
    let watched = memory.unrenewed_since(lease).map(|since| look.snapshot.began.boot.since(since));
    match watched {
        Some(watched) if watched >= ttl => State::Over {
            why: format!("its lease {} ran out: nobody renewed it for {}", lease.id, span(watched)),
            cause: Some(Cause::Registry(CAUSE.into())),
        },
        Some(watched) => State::held(format!(
            "its lease {} was not renewed for {} of its {}",
            lease.id,
            span(watched),
            span(ttl)
        )),
        None => State::held(format!("its lease {} may be renewed within {}", lease.id, span(ttl))),
    }
}

/// Returns the state of a lease of `reapd run`. Until it is released, only what its living watcher starts may end the
/// tree: the watcher knows more than any look. Once it is, one reaper at a time has the lease's turn.
fn running(
    lease: &Lease,
    run: &Run,
    released: Option<String>,
    life: Option<Known<Life>>,
    look: &Look,
) -> State {
    if is_living(look, run.watcher)
        && let Some(why) = released
    {
        return State::over(why);
    }
    if is_living(look, run.watcher) && !is_below(look, run.watcher) {
        return State::held(format!("its reapd run {} watches over it", run.watcher));
    }
    if !is_living(look, run.watcher)
        && let Err(unknown) = is_absent(look, run.watcher)
    {
        return State::Unknown(unknown);
    }
    if let Some(why) = released {
        return State::over(why);
    }
    // Numbers and stamps of another boot or namespace are nobody's here, which is no death.
    let is_whole = lease
        .holder
        .as_ref()
        .is_some_and(|holder| holder.boot.is_some() && holder.pidns.is_some() && holder.timens.is_some());
    match lease.holder.as_ref().map(|holder| foreign(look, holder)) {
        Some(Err(unknown)) => return State::Unknown(unknown),
        Some(Ok(())) if is_whole => {}
        Some(Ok(())) | None => {
            return State::unknown(
                Reason::NoRecord,
                format!("where the reapd run of lease {} ran", lease.id),
            );
        }
    }
    if let Some(command) = run.command
        && !is_living(look, command)
    {
        return match (run.leftovers, is_absent(look, command)) {
            (_, Err(unknown)) => State::Unknown(unknown),
            (Leftovers::Reap, Ok(())) => {
                State::over(format!("the command of its reapd run, process {command}, has ended"))
            }
            (Leftovers::Report, Ok(())) => State::held(format!(
                "process {command}, which its reapd run started, left it behind, and leftovers are only reported"
            )),
        };
    }
    match (run.channel, life) {
        (RunChannel::Stdio, _) => State::held("its command runs on, and its reapd run is gone"),
        (RunChannel::None, Some(Ok(Life::Over(who)))) => {
            State::over(format!("{who}, for which its reapd run was started, is gone"))
        }
        (RunChannel::None, Some(Ok(Life::Alive(holder)))) => {
            State::held(format!("process {holder}, for which its reapd run was started, is alive"))
        }
        (RunChannel::None, Some(Err(unknown))) => State::Unknown(unknown),
        (RunChannel::None, None) => State::unknown(Reason::NoRecord, "for whom its reapd run was started"),
    }
}

/// Says whether the looking process is below this one: then it is what the watcher itself started to end the tree.
pub(in crate::judge) fn is_below(look: &Look, watcher: ProcessId) -> bool {
    ancestors(&look.snapshot.table, look.snapshot.own.pid).contains(&watcher)
}

/// Says why a process that the table does not show alive need not be gone.
fn is_absent(look: &Look, id: ProcessId) -> Known<()> {
    if look.snapshot.table.at(id.pid).is_some() || is_whole(look) {
        return Ok(());
    }
    match bearer(look, id.pid)? {
        Some(bearer) if bearer == id => {
            Err(Unknown::new(Reason::Denied, format!("what became of process {id}")))
        }
        Some(_) | None => Ok(()),
    }
}
