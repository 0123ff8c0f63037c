//! `lease-expired` and `owner-gone` by the labels that `reapd run` gives.

use crate::judge::containers::support::{World, container, unknown};
use crate::judge::rules::support::{id, lease, pid};
use crate::model::container::{Attached, EngineKind};
use crate::model::id::{ProcessId, Start};
use crate::model::known::Reason;
use crate::model::lease::{FaultyLease, Release};
use crate::model::look::Gap;
use crate::model::moment::Moment;
use crate::model::question::{Answer, Census, Owner, Question};
use crate::model::table::plain_row;

/// A container of lease `lease-1`, whose file says that it was released.
fn leased() -> World {
    let mut world = unfiled();
    let mut lease = lease("lease-1");
    lease.release = Release::Released(None);
    world.leases.list = vec![lease];
    world
}

/// The same without the lease's file: its holder, process 40, is gone.
fn unfiled() -> World {
    let start = id(40).start.0;
    World::stray().label(1, "dev.reapd.lease", "lease-1").label(
        1,
        "dev.reapd.holder",
        &format!("40:{start}:boot:1"),
    )
}

#[track_caller]
fn check(world: &World, word: &str, why: &str) {
    world.is_by(1, "lease", word, why);
}

/// A process that bears a number.
fn bearer(mut world: World, number: i32, start: Start, began: u64) -> World {
    let mut row = plain_row(pid(number), 1, start);
    row.began = Moment(began * 1_000_000_000);
    world.rows.push(row);
    world
}

#[test]
fn a_released_lease_ends_its_container() {
    check(&leased(), "suspect", "was released");
    // The client that `reapd run` started goes with it.
    let client = "docker run --label dev.reapd.lease=lease-1 --name calm_ab -i image";
    check(&leased().client(50, 900, client), "suspect", "was released");
    check(&leased().client(50, 900, "docker attach calm_ab"), "alive", "names it");
    // Whom nobody can see on this system is no reason against its owner's word.
    let mut blind = leased().facts(1, |facts| {
        facts.init = Err(unknown(Reason::Foreign));
        facts.began = Err(unknown(Reason::Foreign));
    });
    blind.clients = Err(unknown(Reason::Unsupported));
    blind.sockets.insert(container(1), Err(unknown(Reason::Foreign)));
    check(&blind, "suspect", "was released");
    blind.clients = Err(unknown(Reason::Denied));
    check(&blind, "unknown", "refused");
    check(&leased().clients(|clients| clients.census = Census::Partial(3)), "suspect", "was released");
}

#[test]
fn a_lease_that_is_not_over_ends_nothing() {
    let mut held = leased();
    held.leases.list = vec![lease("lease-1")];
    check(&bearer(held.clone(), 40, id(40).start, 10), "alive", "is there, and says");
    // Of two of one name, one that holds is enough.
    let mut two = bearer(leased(), 40, id(40).start, 10);
    let mut other = lease("lease-1");
    other.file.owner = crate::model::id::Uid(7);
    two.leases.list.push(other);
    check(&two, "alive", "");
    let mut elsewhere = held;
    elsewhere.leases.list[0].holder.as_mut().unwrap().pidns = Some(77);
    check(&elsewhere, "unknown", "another pid namespace");
    let mut faulty = unfiled();
    let why = unknown(Reason::Unsound);
    faulty.leases.faulty = vec![FaultyLease { owner: None, stem: "lease-1".into(), why }];
    check(&faulty, "unknown", "relied on");
    let mut dark = unfiled();
    let why = unknown(Reason::Denied);
    dark.gaps = vec![Gap { source: "the lease directory".into(), why, cure: None }];
    check(&dark, "unknown", "whether its lease");
}

#[test]
fn labels_of_an_image_are_no_lease_s5() {
    let mut world = leased();
    world.image_labels = Ok([("dev.reapd.lease".to_owned(), "lease-1".to_owned())].into());
    check(&world, "alive", "");
    world.image_labels = Err(unknown(Reason::Hung));
    check(&world, "unknown", "no answer");
    let mut holder = unfiled();
    let label =
        holder.look().snapshot.engines[0].containers.as_ref().unwrap()[0].labels["dev.reapd.holder"].clone();
    holder.image_labels = Ok([("dev.reapd.holder".to_owned(), label)].into());
    check(&holder, "alive", "no holder of its own");
}

#[test]
fn what_was_told_to_outlive_its_command_does() {
    check(&leased().facts(1, |facts| facts.foreground = Ok(Attached::No)), "alive", "");
    check(&unfiled().facts(1, |facts| facts.foreground = Ok(Attached::No)), "alive", "outlive its command");
    let mut untold = leased().facts(1, |facts| facts.foreground = Err(unknown(Reason::Unsupported)));
    untold.kind = Ok(EngineKind::Podman("4.3.1".into()));
    check(&untold, "unknown", "not to be had");
    // The file of its id beside the lease is given to those alone that stay.
    untold.leases.list[0].labels.insert("cidfile".into(), "/run/user/1/reapd/lease-1.cid".into());
    check(&untold, "suspect", "was released");
    untold.leases.list[0].labels.insert("cidfile".into(), "/own/file".into());
    check(&untold, "unknown", "not to be had");
    check(&unfiled().facts(1, |facts| facts.foreground = Err(unknown(Reason::Unsupported))), "unknown", "");
}

#[test]
fn a_holder_that_is_plainly_gone_with_its_client_ends_its_container() {
    check(&unfiled(), "suspect", "process 40, which held it, and its client are gone");
    check(&bearer(unfiled(), 40, id(40).start, 10), "alive", "is alive");
    // Another process under the number: it took over only if it began after the container.
    check(&bearer(unfiled(), 40, Start(999_999), 2_000), "suspect", "are gone");
    check(&bearer(unfiled(), 40, Start(3), 500), "unknown", "the one that held it");
    let client = "docker run --label dev.reapd.lease=lease-1 -i image";
    check(&unfiled().client(50, 900, client), "alive", "its client");
    check(&unfiled().clients(|clients| clients.census = Census::Partial(1)), "unknown", "who 1 of");
}

#[test]
fn a_holder_of_elsewhere_is_unknown() {
    let start = id(40).start.0;
    let named = |holder: &str| unfiled().label(1, "dev.reapd.holder", holder);
    check(&named(&format!("40:{start}:other:1")), "unknown", "another boot");
    check(&named(&format!("40:{start}:boot:2")), "unknown", "another pid namespace");
    for malformed in ["", "40", "40:1:boot", "x:1:boot:1", "40:1:boot:1:1", "-1:1:boot:1", "40:1::1"] {
        check(&named(malformed), "unknown", "the holder in its labels");
    }
}

#[test]
fn a_hidden_holder_is_asked_for() {
    let mut world = unfiled();
    let why = unknown(Reason::Denied);
    world.gaps = vec![Gap { source: Gap::HIDDEN.into(), why, cure: None }];
    check(&world, "unknown", "");
    let of = ProcessId { pid: pid(9), start: Start(1) };
    let question = Question::Owner { of, pid: pid(40) };
    let told = |owner| world.clone().answer(question.clone(), Ok(Answer::Owner(owner)));
    check(&told(Owner::Absent), "suspect", "are gone");
    check(&told(Owner::Alive(id(40))), "unknown", "who process 40 is");
    check(&world.answer(question, Err(unknown(Reason::Denied))), "unknown", "refused");
}
