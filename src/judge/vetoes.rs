//! What keeps a tree though a line holds. Always in force, and an unanswered veto is a veto.

use bstr::{BStr, ByteSlice as _};

use crate::model::evidence::Evidence;
use crate::model::facts::{Facts, Freezer};
use crate::model::known::{Reason, Unknown};
use crate::model::ownership::Parentage;
use crate::model::question::Question;
use crate::model::rule::Clients;
use crate::model::table::{Row, State};

use super::case::{Case, gather, known};
use super::rule::{Finding, Found};
use super::{leased, protect, weigh};

/// One veto: its name, and a pure function that says *yes* where the tree must be kept.
struct Veto {
    name: &'static str,
    weigh: fn(&Case<'_>) -> Found<Finding>,
}

/// Every veto, cheapest first. Each has a test below that goes red when its line is removed.
const ALL: [Veto; 9] = [
    Veto { name: "foreign", weigh: foreign },
    Veto { name: "kept", weigh: kept },
    Veto { name: "leased", weigh: leased::veto },
    Veto { name: "stopped", weigh: stopped },
    Veto { name: "traced", weigh: traced },
    Veto { name: "frozen", weigh: frozen },
    Veto { name: "unit", weigh: unit },
    Veto { name: "terminal-master", weigh: terminal_master },
    Veto { name: "clients", weigh: clients },
];

/// Returns what every veto says of a tree, up to the first that stands; or the questions that must be asked first.
/// `clients` is what the line that holds means for whoever is connected.
pub(super) fn vetoes(case: &Case<'_>, clients: Clients) -> Result<Vec<Evidence>, Vec<Question>> {
    weigh::vetoed(ALL.iter().map(|veto| {
        let weigh = match (veto.name, clients) {
            ("clients", Clients::CannotBeServed) => cannot_be_served,
            (_, Clients::CannotBeServed | Clients::Served) => veto.weigh,
        };
        (veto.name, weigh(case))
    }))
}

/// A process in another pid namespace is judged only through its container, from inside; numbers and parents mean
/// other things there (CASES B25, B27, B50).
pub(super) fn foreign(case: &Case<'_>) -> Found<Finding> {
    let own = known(&case.look.snapshot.own.namespaces)?;
    let theirs = known(&case.facts(case.root.id)?.namespaces)?;
    Ok(if own.pid == theirs.pid {
        Finding::no("it lives in the pid namespace of reapd")
    } else {
        Finding::yes("it lives in another pid namespace: a container or a sandbox")
    })
}

/// `[keep]`, `reapd keep` and `REAPD_KEEP=1`.
fn kept(case: &Case<'_>) -> Found<Finding> {
    Ok(match protect::by_facts(case.look, case.config, case.facts(case.root.id)?)? {
        Some(reason) => Finding::yes(reason),
        None => Finding::no("nobody marked it to be kept"),
    })
}

/// Somebody stopped it and means to go on (CASES 9, B39).
#[expect(clippy::unnecessary_wraps, reason = "all vetoes have one signature")]
fn stopped(case: &Case<'_>) -> Found<Finding> {
    let table = &case.look.snapshot.table;
    let stopped = case.tree.iter().find(|&&id| table.get(id).is_some_and(|row| row.state == State::Stopped));
    Ok(match stopped {
        Some(id) => Finding::yes(format!("{id} is stopped: somebody means to go on with it")),
        None => Finding::no("no member is stopped"),
    })
}

/// A debugger holds it.
fn traced(case: &Case<'_>) -> Found<Finding> {
    for facts in case.members()? {
        if let Some(tracer) = known(&facts.tracer)? {
            return Ok(Finding::yes(format!("{} is traced by {tracer}", facts.id)));
        }
    }
    Ok(Finding::no("no member is traced"))
}

/// Its cgroup is frozen: a pause that an operator asked for (CASES B39).
fn frozen(case: &Case<'_>) -> Found<Finding> {
    for facts in case.members()? {
        if *known(&facts.freezer)? == Freezer::Frozen {
            return Ok(Finding::yes(format!("{} is frozen", facts.id)));
        }
    }
    Ok(Finding::no("no member is frozen"))
}

/// A service manager keeps it, so its parent is the manager by design (CASES B02, B44).
///
/// Without asking the manager: systemd sets `SYSTEMD_EXEC_PID` (v248, systemd.exec(5)) for what it starts, and
/// children inherit it. Adopted into a unit's cgroup means the unit's own process, unless the process that systemd
/// started is another one and lives in that very cgroup. launchd sets `XPC_SERVICE_NAME` (`0` for no job).
fn unit(case: &Case<'_>) -> Found<Finding> {
    let Parentage::Adopted(manager) = case.parentage() else {
        return Ok(Finding::no("no service manager is its parent"));
    };
    let facts = case.facts(case.root.id)?;
    let env = known(&facts.env)?;
    if let Some(job) = env.get(b"XPC_SERVICE_NAME".as_bstr())
        && job != "0"
        && !job.starts_with(b"application.")
    {
        return Ok(Finding::yes(format!("launchd keeps it as {job}")));
    }
    let cgroup = match &facts.cgroup {
        Ok(cgroup) => cgroup,
        // No cgroups at all: not Linux.
        Err(Unknown { reason: Reason::Unsupported, .. }) => {
            return Ok(Finding::no("no service unit holds it"));
        }
        Err(unknown) => return Err(unknown.clone().into()),
    };
    let Some(service) = service(cgroup.as_bstr()) else {
        return Ok(Finding::no("no service unit holds it"));
    };
    let started = env
        .get(b"SYSTEMD_EXEC_PID".as_bstr())
        .and_then(|value| value.to_str().ok()?.parse().ok())
        .and_then(crate::model::id::Pid::new);
    match started {
        Some(pid) if pid != case.root.id.pid => {
            let Some(row) = case.look.snapshot.table.at(pid).filter(|row| !row.is_gone()) else {
                return Ok(Finding::yes(format!("it may be the main process of {service}")));
            };
            let lives_there = home(known(&case.facts(row.id)?.cgroup)?.as_bstr()) == home(cgroup.as_bstr());
            Ok(if lives_there && row.id.start <= case.root.id.start {
                Finding::no(format!("{service} has another main process, {pid}"))
            } else {
                Finding::yes(format!("it may be the main process of {service}"))
            })
        }
        Some(_) => Ok(Finding::yes(format!("it is the main process of {service}; {manager} keeps it"))),
        None => Ok(Finding::yes(format!("it may be the main process of {service}"))),
    }
}

/// Returns a cgroup without those that `reapd run` makes inside of it, in which only helpers are.
fn home(cgroup: &BStr) -> &BStr {
    match cgroup.rsplitn_str(2, "/").collect::<Vec<_>>()[..] {
        [last, above] if last.starts_with(b"reapd-run-") => home(above.as_bstr()),
        _ => cgroup,
    }
}

/// Returns the service unit whose cgroup this is, if it is one: its last element, or the one above a delegated
/// subtree. A user's manager is itself a service (`user@1000.service`), and what is below it need not be one.
fn service(cgroup: &BStr) -> Option<&BStr> {
    cgroup
        .rsplit_str("/")
        .map(BStr::new)
        .take_while(|part| !part.ends_with(b".scope") && !part.ends_with(b".slice"))
        .find(|part| part.ends_with(b".service"))
        .filter(|part| !part.starts_with(b"user@"))
}

/// Whoever is connected waits for ever, and nobody is asked who that is: what the line proves says so.
#[expect(clippy::unnecessary_wraps, reason = "all vetoes have one signature")]
fn cannot_be_served(_: &Case<'_>) -> Found<Finding> {
    Ok(Finding::no("whoever is connected cannot be served any more"))
}

/// Somebody outside is connected, or waits to be.
fn clients(case: &Case<'_>) -> Found<Finding> {
    let clients = case.clients()?;
    Ok(match clients.first() {
        Some(client) => Finding::yes(format!(
            "a client is connected to {} of {}: {}",
            crate::model::escape::escape(&client.name),
            client.member,
            client.peer
        )),
        None => Finding::no("no outside client is connected"),
    })
}

/// A member holds the master side of a terminal that live processes use who would not go with it: a multiplexer with
/// panes (CASES B01, B11, B43). What those who stay behind serve each other is not this tree's matter.
fn terminal_master(case: &Case<'_>) -> Found<Finding> {
    let held = gather(case.tree.iter().map(|&id| case.terminals_of(id).map(|terminals| (id, terminals))))?;
    let inside = case.inside();
    let is_outside = |row: &Row, holder| {
        !case.tree.contains(&row.id) || (inside.contains(holder) && !inside.contains(&row.id))
    };
    let user =
        case.look.snapshot.table.rows().iter().filter(|row| row.tty != 0 && !row.is_gone()).find(|row| {
            held.iter().any(|(holder, terminals)| terminals.contains(&row.tty) && is_outside(row, holder))
        });
    Ok(match user {
        Some(row) => Finding::yes(format!("{} works in a terminal that the tree serves", row.id)),
        None => Finding::no("nobody outside works in a terminal of the tree"),
    })
}

/// Says whether facts could be read at all, for the root's own sake.
pub(super) fn unreadable(facts: &Facts) -> Option<&Unknown> {
    facts.argv.as_ref().err()
}
