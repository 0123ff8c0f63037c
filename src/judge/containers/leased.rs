//! What a lease of ours says of a container: `reapd run -- docker run` writes it into the labels.

use crate::judge::case::misfit;
use crate::judge::leased::{
    ABANDONED, State, foreign, held_ends, hidden, is_below, is_living, is_whole, state,
};
use crate::judge::rule::{Blank, Finding, Found};
use crate::model::container::{Attached, Tty};
use crate::model::evidence::Cause;
use crate::model::id::{BootId, Pid, Start};
use crate::model::known::{Reason, Unknown};
use crate::model::lease::{Holder, Lease, RunChannel};
use crate::model::look::Gap;
use crate::model::question::{Answer, Census, Owner, Question};

use super::LEASE;
use super::case::{ContainerCase, own};
use super::clients::{is_of_lease, shown};

/// The label of a lease's holder: `PID:START:BOOT:PIDNS`.
const HOLDER: &str = "dev.reapd.holder";

/// What the files of a lease say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(in crate::judge) enum Said {
    /// There is none.
    Nothing,
    /// It holds, for this reason.
    Held(String),
    /// It is over, for this reason, which hangs on this.
    Over(String, Option<Cause>),
}

/// Returns what the files of the lease of this name say. Whose it is does not stand in the label: each of that name
/// counts, and one that holds is enough to keep.
pub(in crate::judge) fn said(case: &ContainerCase<'_>, id: &str) -> Found<Said> {
    let leases = &case.look.snapshot.leases;
    if let Some(faulty) = leases.faulty.iter().find(|faulty| faulty.stem.is_empty() || faulty.stem == id) {
        return Err(faulty.why.clone().into());
    }
    let named: Vec<&Lease> = leases.list.iter().filter(|lease| lease.id.as_str() == id).collect();
    if named.is_empty() && case.look.snapshot.gaps.iter().any(|gap| gap.source.contains(Gap::LEASES)) {
        return Err(Unknown::new(Reason::Denied, format!("whether its lease {id} is there")).into());
    }
    let open: Vec<Question> =
        named.iter().flat_map(|lease| hidden(lease, case.look, case.look.snapshot.own.pid)).collect();
    if !open.is_empty() {
        return Err(Blank::Ask(open));
    }
    let mut said = Said::Nothing;
    let mut unknown = None;
    for lease in named {
        match state(lease, case.look, case.memory, &case.config.confirm) {
            State::Held { why } => match abandoned(case, lease)? {
                Some(why) => said = Said::Over(why, None),
                None => return Ok(Said::Held(why)),
            },
            State::Over { why, cause } => said = Said::Over(why, cause),
            State::Unknown(why) => unknown = Some(why),
        }
    }
    match unknown {
        Some(why) => Err(why.into()),
        None => Ok(said),
    }
}

/// Returns why a lease that its watcher did not release is over all the same: what it started to end the tree looks, and
/// nobody can speak to the command any more, nor reach the container in another way. So the container goes first, and
/// not once its client was ended (C35).
fn abandoned(case: &ContainerCase<'_>, lease: &Lease) -> Found<Option<String>> {
    let Some(run) = lease.run.as_ref().filter(|run| run.channel == RunChannel::Stdio) else {
        return Ok(None);
    };
    let lives = |id| is_living(case.look, id);
    if !lives(run.watcher) || !is_below(case.look, run.watcher) || !run.command.is_some_and(lives) {
        return Ok(None);
    }
    let channel_of = |of, fd| {
        let Answer::Channel(channel) = case.answer(Question::Channel { of, fd })? else {
            return Err(misfit());
        };
        Ok(channel)
    };
    let is_reached = || Ok::<_, Blank>(!case.sockets()?.listeners.is_empty());
    if held_ends(run.watcher, channel_of)?.is_some()
        || case.facts.tty == Tty::Yes
        || !case.facts.published.is_empty()
        || is_reached()?
    {
        return Ok(None);
    }
    Ok(Some(ABANDONED.to_owned()))
}

/// Weighs the lease that stands in the labels.
pub(in crate::judge) fn expired(case: &ContainerCase<'_>) -> Found<Finding> {
    let Some(id) = case.own_label(LEASE)? else {
        return Ok(Finding::no("no lease of its own stands in its labels"));
    };
    match said(case, id)? {
        Said::Nothing => Ok(Finding::no(format!("its lease {id} is not there any more"))),
        Said::Held(why) => Ok(Finding::no(why)),
        Said::Over(why, cause) => {
            if !stayed(case, id)? {
                return Ok(Finding::no("it was started to outlive its command"));
            }
            let finding = Finding::yes(why);
            Ok(match cause {
                Some(cause) => finding.hanging_on(cause),
                None => finding,
            })
        }
    }
}

/// Says whether the command that made it stayed with it. With `-d` it was meant to outlive that command, and has the
/// labels all the same. Where the engine never tells, only a file of its id beside the lease does, which `reapd run`
/// gives to those alone that stay.
fn stayed(case: &ContainerCase<'_>, id: &str) -> Found<bool> {
    match &case.facts.foreground {
        Ok(Attached::Yes) => Ok(true),
        Ok(Attached::No) => Ok(false),
        Err(unknown) => {
            let own = format!("{id}.cid");
            let leases = case.look.snapshot.leases.list.iter().filter(|lease| lease.id.as_str() == id);
            let is_noted = |lease: &Lease| {
                lease.labels.get("cidfile").is_some_and(|path| path.rsplit('/').next() == Some(own.as_str()))
            };
            if leases.into_iter().any(is_noted) { Ok(true) } else { Err(unknown.clone().into()) }
        }
    }
}

/// Weighs the holder that stands in the labels, where the lease's file is not there any more. The label may name one
/// that was an errand, so the client that bears the lease must be gone as well.
pub(in crate::judge) fn holder_gone(case: &ContainerCase<'_>) -> Found<Finding> {
    let Some(text) = case.own_label(HOLDER)? else {
        return Ok(Finding::no("no holder of its own stands in its labels"));
    };
    let Some(holder) = parsed(text) else {
        return Err(Unknown::new(Reason::Unsound, "the holder in its labels").into());
    };
    let Some(id) = case.own_label(LEASE)? else {
        return Ok(Finding::no("no lease of its own stands in its labels"));
    };
    if said(case, id)? != Said::Nothing {
        return Ok(Finding::no(format!("its lease {id} is there, and says whether it holds")));
    }
    let who = format!("process {}", holder.pid);
    if !is_gone(case, &holder)? {
        return Ok(Finding::no(format!("{who}, which held it, is alive")));
    }
    match &case.facts.foreground {
        Ok(Attached::Yes) => {}
        Ok(Attached::No) => return Ok(Finding::no("it was started to outlive its command")),
        Err(unknown) => return Err(unknown.clone().into()),
    }
    let clients = case.clients()?;
    if let Some(client) = clients.clients.iter().find(|client| is_of_lease(client, case.listed)) {
        return Ok(Finding::no(format!("its client, process {}, is alive", shown(client))));
    }
    if let Census::Partial(untold) = clients.census {
        let what = format!("who {untold} of the connections to its engine belong to");
        return Err(Unknown::new(Reason::Denied, what).into());
    }
    Ok(Finding::yes(format!("{who}, which held it, and its client are gone")))
}

fn parsed(text: &str) -> Option<Holder> {
    let mut parts = text.split(':');
    let pid = Pid::new(parts.next()?.parse().ok()?)?;
    let start = Start(parts.next()?.parse().ok()?);
    let boot = parts.next().filter(|boot| !boot.is_empty())?;
    let pidns = parts.next()?.parse().ok()?;
    parts.next().is_none().then(|| Holder {
        pid,
        start: Some(start),
        boot: Some(BootId(boot.into())),
        pidns: Some(pidns),
        timens: None,
        host: None,
        age: None,
    })
}

/// Says whether a holder is plainly gone: of this boot and pid namespace, and absent. Another process under its number
/// proves its death only where it began after the container did: the holder was there before.
fn is_gone(case: &ContainerCase<'_>, holder: &Holder) -> Found<bool> {
    let look = case.look;
    foreign(look, holder)?;
    let bearer = look.snapshot.table.at(holder.pid).filter(|row| !row.is_gone());
    let Some(bearer) = bearer else {
        if look.snapshot.table.at(holder.pid).is_some() || is_whole(look) {
            return Ok(true);
        }
        return absent(case, holder.pid);
    };
    if Some(bearer.id.start) == holder.start {
        return Ok(false);
    }
    if bearer.began > case.began()? {
        return Ok(true);
    }
    let what = format!("whether process {} is the one that held it", holder.pid);
    Err(Unknown::new(Reason::NoRecord, what).into())
}

/// Asks the kernel for a number that the table would hide.
fn absent(case: &ContainerCase<'_>, pid: Pid) -> Found<bool> {
    if let Answer::Owner(Owner::Absent | Owner::Zombie) =
        case.answer(Question::Owner { of: own(case.look)?, pid })?
    {
        return Ok(true);
    }
    Err(Unknown::new(Reason::Denied, format!("who process {pid} is")).into())
}
