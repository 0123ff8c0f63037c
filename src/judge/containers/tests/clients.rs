//! `client-gone`: who could be a container's own client.

use crate::judge::containers::support::{World, container, engine, pipe, unknown};
use crate::model::container::judgement::ContainerLookalike;
use crate::model::container::{
    Attached, AutoRemoval, ContainerMount, EngineKind, MountAccess, MountKind, Published, Reach, Tty,
};
use crate::model::evidence::Cause;
use crate::model::known::Reason;
use crate::model::question::{Census, Channel, ChannelKind, FarEnd};

use crate::judge::rules::support::id;

/// The command line that makes what [`World::made`] makes.
const RUN: &str = "docker run -i --rm image";

#[test]
fn a_stray_is_found_by_its_input_alone_a17_c35() {
    let judgement = World::stray().is("suspect", "its input ended for good");
    assert_eq!(judgement.causes, []);
    assert_eq!(judgement.resident, 1_000);
    // Clients that came later, or never stay with a container, are no reason to keep it.
    let busy = World::stray()
        .client(50, 2_000, RUN)
        .client(51, 500, "docker ps -a")
        .client(52, 500, "docker events")
        .client(53, 500, "docker logs -f other")
        .client(54, 500, "/usr/bin/docker compose up");
    busy.is("suspect", "none of the 5 clients");
}

#[test]
fn only_what_was_made_as_docker_run_i_does_is_matched() {
    let is_looked_at = |world: World| world.judged(1, "docker-run").is_some();
    assert!(is_looked_at(World::stray()));
    assert!(!is_looked_at(World::stray().facts(1, |facts| facts.stdin.open = Attached::No)));
    assert!(!is_looked_at(World::stray().facts(1, |facts| facts.stdin.once = Attached::No)));
    assert!(!is_looked_at(World::stray().facts(1, |facts| facts.stdin.attached = Attached::No)));
    assert!(!is_looked_at(World::stray().facts(1, |facts| facts.tty = Tty::Yes)));
}

#[test]
fn the_rule_itself_asks_how_it_was_made() {
    let policy = "[container.x]\nmatch = { name = \"calm_ab\" }\nreap-when = [{ client-gone = true }]\n";
    let stray = || World::stray().configured(policy);
    stray().is_by(1, "x", "suspect", "ended");
    let not = "no client was attached";
    stray().facts(1, |facts| facts.stdin.open = Attached::No).is_by(1, "x", "alive", not);
    stray().facts(1, |facts| facts.stdin.once = Attached::No).is_by(1, "x", "alive", not);
    stray().facts(1, |facts| facts.stdin.attached = Attached::No).is_by(1, "x", "alive", not);
    stray().facts(1, |facts| facts.tty = Tty::Yes).is_by(1, "x", "alive", not);
}

#[test]
fn an_open_input_is_a_live_client() {
    World::stray().open(1).is("alive", "its input is open");
}

#[test]
fn input_that_is_still_to_be_read_keeps() {
    let channel = Channel { unread: Ok(3), ..pipe(FarEnd::Gone) };
    World::stray().stdin(1, channel).is("alive", "3 bytes of its input");
    let channel = Channel { unread: Err(unknown(Reason::Denied)), ..pipe(FarEnd::Gone) };
    // Not known to have ended is not known at all: what is left is the census.
    let judgement = World::stray().stdin(1, channel).is("suspect", "none of the 0 clients");
    assert_eq!(judgement.causes, [Cause::Engine(engine())]);
}

#[test]
fn a_client_that_waits_for_the_result_keeps_a_batch_job_f9() {
    let judgement = World::stray().client(50, 900, RUN).is("unknown", "whether process");
    assert_eq!(judgement.lookalike, Some(ContainerLookalike::Client(id(50))));
    assert!(judgement.cure.unwrap().contains("reapd run --"));
    // Even where its line says less than what was made.
    World::stray()
        .facts(1, |facts| facts.command = vec!["job".into()])
        .client(50, 900, "docker run --rm -i docker.io/library/image:latest")
        .is("unknown", "whether process");
}

#[test]
fn a_port_or_a_listener_keeps_a_database_f9() {
    let port = Published { address: "0.0.0.0".into(), port: 5432, inside: "5432/tcp".into() };
    World::stray().facts(1, |facts| facts.published = vec![port]).is("alive", "0.0.0.0:5432 of the host");
    World::stray().socket(1, &["tcp 0.0.0.0:5432"], &[]).is("alive", "reached at tcp 0.0.0.0:5432");
    // Who only calls others is reached by nobody.
    World::stray().socket(1, &[], &["tcp 172.17.0.2:40000 10.0.0.9:443"]).is("suspect", "");
    let mut world = World::stray();
    world.sockets.insert(container(1), Err(unknown(Reason::Foreign)));
    world.is("unknown", "it: ");
}

#[test]
fn each_part_of_a_command_line_clears_a_client_of_a_container_a18() {
    let keeps = |line: &str| World::stray().unread().client(50, 900, line).is("unknown", "whether process");
    let clears = |line: &str| World::stray().unread().client(50, 900, line).is("suspect", "none of the 1");
    keeps(RUN);
    keeps("docker run -i --rm --label maker=someone image");
    keeps("docker run -i --rm --network none -e A=b image");
    keeps("docker run -i --rm abababababab");
    // What is not understood may be anything.
    keeps("docker run -i --rm --brand-new other other");
    keeps("docker run -z image");
    clears("docker run -i --rm other");
    clears("docker run -i --rm ghcr.io/x/image");
    clears("docker run -i --rm --label maker=another image");
    clears("docker run -i --rm --label more image");
    clears("docker run -i --rm image other-arguments");
    clears("docker run -i image");
    clears("docker run --rm image");
    clears("docker run -it --rm image");
    clears("docker run -id --rm image");
    clears("docker create -i --rm image");
}

#[test]
fn a_client_that_began_after_the_container_did_not_make_it() {
    let at = |began| World::stray().unread().client(50, began, RUN);
    at(1_001).is("suspect", "none of the 1");
    at(1_000).is("unknown", "whether process");
    at(999).is("unknown", "whether process");
}

#[test]
fn a_file_with_the_id_says_whose_it_is() {
    let with = |id| {
        World::stray().unread().client(50, 900, "docker run -i --rm --cidfile /c image").clients(|clients| {
            clients.clients[0].cidfile = Some(id);
        })
    };
    with(Ok(container(1))).is("alive", "wrote the container's id");
    with(Ok(container(2))).is("suspect", "none of the 1");
    with(Err(unknown(Reason::Denied))).is("unknown", "whether process");
}

#[test]
fn a_name_is_another_ones_only_where_another_bears_it() {
    let line = "docker run -i --rm --name mine image";
    // It may have been renamed.
    World::stray().unread().client(50, 900, line).is("unknown", "whether process");
    let other = World::stray().made(2, 950).list(2, |listed| listed.names = vec!["mine".into()]);
    other.unread().client(50, 900, line).is_by(1, "docker-run", "suspect", "none of the 1");
    World::stray().client(50, 900, "docker run -i --rm --name=calm_ab image").is("alive", "names");
}

#[test]
fn whoever_names_it_is_alive() {
    for line in [
        "docker attach calm_ab",
        "docker logs -f calm_ab",
        "docker wait 0101",
        "docker exec -i calm_ab sh",
        "docker cp calm_ab:/x /y",
        "docker start -ai calm_ab",
        "python3 watch.py 010101010101",
        "some-program --container=calm_ab",
    ] {
        World::stray().client(50, 2_000, line).is("alive", "names");
    }
}

#[test]
fn who_attaches_to_another_one_is_not_its_client() {
    let world = |line| World::stray().made(2, 500).open(2).client(50, 900, line);
    world("docker start -ai calm_ac").is("suspect", "ended");
    world("docker attach 020202020202").is("suspect", "ended");
    // The name may have been its own when that was said.
    world("docker attach renamed").is("unknown", "not there under that name");
    let later = World::stray().made(2, 1_500).open(2).client(50, 900, "docker attach calm_ac");
    later.is("unknown", "not there under that name");
}

#[test]
fn a_client_of_which_nobody_can_tell_keeps_f9() {
    for line in
        ["python3 runner.py", "docker system dial-stdio", "docker mcp gateway run", "podman run image"]
    {
        let world = World::stray().client(50, 900, line);
        let judgement = world.is("unknown", "cannot be told");
        assert!(judgement.cure.unwrap().contains("watchers"));
        assert_eq!(judgement.lookalike, Some(ContainerLookalike::CannotTell));
        // Who came later can give no input any more; where that is not known it may do so.
        World::stray().client(50, 1_100, line).is("suspect", "ended");
        World::stray().unread().client(50, 1_100, line).is("unknown", "cannot be told");
    }
    let watched = "[docker]\nwatchers = [\"portainer\"]\n";
    let world = |text| World::stray().configured(text).client(50, 900, "/opt/portainer --x");
    world("").is("unknown", "cannot be told");
    world(watched).is("suspect", "ended");
    let mut unreadable = World::stray().client(50, 900, "x");
    unreadable.census(|clients| clients.clients[0].argv = Err(unknown(Reason::Denied)));
    unreadable.is("unknown", "the kernel refused");
    // reapd asks the engine itself.
    World::stray().client(9, 900, "anything").is("suspect", "ended");
    World::stray().client(50, 900, "/usr/bin/reapd sweep").is("suspect", "ended");
}

#[test]
fn compose_owns_what_is_of_a_project_only() {
    let world = || World::stray().client(50, 900, "docker compose run --rm tool");
    world().is("suspect", "ended");
    world().label(1, "com.docker.compose.project", "p").is("unknown", "compose project");
}

#[test]
fn what_cannot_be_seen_of_the_engine_keeps_f9() {
    let partial = |clients: &mut crate::model::container::EngineClients| clients.census = Census::Partial(2);
    World::stray().clients(partial).is("unknown", "who 2 of the connections");
    let user = World::stray().clients(partial).unread().is("unknown", "who 2 of the connections");
    let cure = user.cure.unwrap();
    for part in ["as root", "stdin = \"helper\"", "reapd run --"] {
        assert!(cure.contains(part), "{cure}");
    }
    // Who cannot be told as root is no matter of rights.
    let root = World::stray().clients(partial).is("unknown", "who 2 of the connections");
    assert!(!root.cure.unwrap().contains("as root"));
    World::stray()
        .clients(|clients| clients.reach = Ok(Reach::Network("0.0.0.0:2375".into())))
        .is("unknown", "0.0.0.0:2375");
    World::stray()
        .clients(|clients| clients.reach = Err(unknown(Reason::Denied)))
        .is("unknown", "the kernel refused");
    let mut world = World::stray();
    world.clients = Err(unknown(Reason::Denied));
    world.is("unknown", "the kernel refused");
    World::stray().facts(1, |facts| facts.began = Err(unknown(Reason::Foreign))).is("unknown", "namespace");
}

#[test]
fn without_its_input_the_census_alone_hangs_on_the_engine_m2() {
    let judgement = World::stray().unread().is("suspect", "none of the 0 clients");
    assert_eq!(judgement.causes, [Cause::Engine(engine())]);
    // A server that closed its own input tells nothing by it.
    let closed = Channel {
        kind: ChannelKind::Closed,
        far: Err(unknown(Reason::Unsupported)),
        unread: Err(unknown(Reason::Unsupported)),
    };
    let judgement = World::stray().stdin(1, closed).is("suspect", "none of the 0 clients");
    assert_eq!(judgement.causes, [Cause::Engine(engine())]);
}

#[test]
fn what_create_made_may_never_have_had_a_client() {
    // Its input ended: it had one.
    World::stray().facts(1, |facts| facts.removal = AutoRemoval::No).is("suspect", "ended");
    let ever = "whether a client was ever attached";
    World::stray().facts(1, |facts| facts.removal = AutoRemoval::No).unread().is("unknown", ever);
    World::stray().list(1, |listed| listed.created -= 120).unread().is("unknown", ever);
}

/// A stray and another of the same image whose client lives: the client's line fits both.
fn twins() -> World {
    World::stray().made(2, 1_100).open(2).client(50, 900, RUN)
}

#[test]
fn of_two_of_one_image_the_one_with_the_open_input_has_the_client_a18() {
    twins().is("suspect", "ended");
    twins().is_by(2, "docker-run", "alive", "its input is open");
    // A slow pull: the client was started right before the other one, and owns it all the same.
    World::stray().made(2, 9_000).open(2).client(50, 999, RUN).is("suspect", "ended");
    // Where nobody can read, nobody can tell.
    twins().unread().is("unknown", "whether process");
    twins().unread().is_by(2, "docker-run", "unknown", "whether process");
}

#[test]
fn a_client_is_needed_elsewhere_only_for_sure_a18() {
    // One client more than is needed: one of them may wait for this one.
    twins().client(51, 900, RUN).is("unknown", "whether process");
    // An engine that cannot write any more does not notice that the client is gone.
    let stuck = Channel { unread: Ok(65_536), ..pipe(FarEnd::Held) };
    twins().stdin(2, stuck).is("unknown", "whether process");
    // Made by `create`, and started without anybody.
    twins().facts(2, |facts| facts.removal = AutoRemoval::No).is("unknown", "whether process");
    twins().list(2, |listed| listed.created -= 300).is("unknown", "whether process");
    // Somebody else may be attached to it.
    let mut world = twins().client(51, 950, "python3 sdk.py");
    world.config = crate::judge::containers::support::config("");
    world.stdins.insert(container(1), Ok(pipe(FarEnd::Gone)));
    world.is("unknown", "cannot be told");
    let attached = twins().client(51, 1_200, "docker attach calm_ac");
    attached.is("unknown", "whether process");
    // It began before every client: an engine that was killed and came back keeps it open.
    World::stray().made(2, 800).open(2).client(50, 900, RUN).is("unknown", "whether process");
    let mut unseen = twins();
    unseen.facts.insert(container(2), Err(unknown(Reason::Denied)));
    unseen.is("unknown", "whether process");
}

#[test]
fn clients_are_given_out_along_chains_a18() {
    // 50 fits the stray and 2; who fits 3 as well is needed there, so that 50 is needed for 2.
    let three = |last: &str| {
        World::stray()
            .made(2, 1_100)
            .open(2)
            .made(3, 1_200)
            .open(3)
            .facts(2, |facts| facts.command = vec!["a".into()])
            .facts(3, |facts| facts.command = vec!["b".into()])
            .facts(1, |facts| facts.command = vec!["a".into()])
            .client(50, 900, "docker run -i --rm image a")
            .client(51, 900, last)
    };
    three("docker run -i --rm image b").is("suspect", "ended");
    three("docker run -i --rm image").is("suspect", "ended");
    // With one more for 3, either may wait for the stray.
    three("docker run -i --rm image").client(52, 900, "docker run -i --rm image b").is("unknown", "whether");
}

#[test]
fn podman_never_tells_and_so_is_never_told() {
    let mut world = World::stray().facts(1, |facts| {
        facts.stdin.once = Attached::No;
        facts.stdin.attached = Attached::No;
    });
    world.kind = Ok(EngineKind::Podman("4.3.1".into()));
    let judgement = world.is("unknown", "Podman never says");
    assert!(judgement.cure.unwrap().contains("podman run"));
    let mut unknown_kind = World::stray();
    unknown_kind.kind = Err(unknown(Reason::Hung));
    unknown_kind.is("unknown", "no answer in time");
}

#[test]
fn who_bears_a_name_of_its_own_may_be_there_for_commands_in_it() {
    let named = |name: &str| World::stray().list(1, |listed| listed.names = vec![name.into()]);
    let ever = "whether a client was ever attached";
    for name in ["tool-1", "Tool_one", "tool", "a_b_c", "tool_1x"] {
        named(name).unread().is("unknown", ever);
        // Its input ended: it had one.
        named(name).is("suspect", "ended");
    }
    named("quirky_noether3").unread().is("suspect", "none of the 0");
}

#[test]
fn who_writes_where_it_stays_is_told_and_kept() {
    let mount = |kind, access| ContainerMount { kind, source: "/srv/x".into(), inside: "/w".into(), access };
    let with = |kind, access| World::stray().facts(1, |facts| facts.mounts = vec![mount(kind, access)]);
    let judgement = with(MountKind::Bind, MountAccess::Writable).is("alive", "may write to /srv/x");
    assert_eq!(judgement.lookalike, Some(ContainerLookalike::Vetoed("shares-files".into())));
    with(MountKind::Volume, MountAccess::Writable).is("alive", "may write");
    with(MountKind::Other("x".into()), MountAccess::Writable).is("alive", "may write");
    with(MountKind::Bind, MountAccess::ReadOnly).is("suspect", "ended");
    with(MountKind::AnonymousVolume, MountAccess::Writable).is("suspect", "ended");
    with(MountKind::Memory, MountAccess::Writable).is("suspect", "ended");
}

#[test]
fn what_is_no_text_reaches_the_engine_as_another_one() {
    let mut world = World::stray().unread().client(50, 900, "docker run -i --rm image x");
    world.census(|clients| {
        if let Ok(argv) = &mut clients.clients[0].argv {
            argv[5] = b"\xff".into();
        }
    });
    world.facts(1, |facts| facts.command = vec!["\u{fffd}".into()]).is("unknown", "whether process");
}

#[test]
fn a_hundred_clients_are_given_out_to_two_hundred_of_one_image() {
    let mut world = World::new();
    for number in 1..=200_u8 {
        world = world.made(number, 1_000 + u64::from(number));
        if number % 2 == 0 {
            world = world.open(number).client(i32::from(number), 900, RUN);
        }
    }
    world.is_by(1, "docker-run", "suspect", "ended");
    world.is_by(2, "docker-run", "alive", "its input is open");
    world.client(900, 900, RUN).is_by(1, "docker-run", "unknown", "whether process");
}
