//! Finds programs that are driven over descriptors of their own and that nobody can drive any more.
//!
//! # What it finds
//!
//! The same as `stdin-abandoned`, for two other descriptors: the other end of what the program reads is gone with
//! nothing unread, and the other end of what it writes is gone too, no socket of the tree can reach it, and it has no
//! controlling terminal. A browser that was started with `--remote-debugging-pipe` is driven over 3 and 4 (A08, M7).
//!
//! # Why it is not enough alone
//!
//! It is enough for a program that is known to be driven over these descriptors and by nothing else, which is for the
//! policy to know: the numbers mean nothing in another program.
//!
//! # When it is wrong
//!
//! As for `stdin-abandoned`: a reader that still waits, a socket that can be reached (B05: a browser that also
//! listens on a debugging port), a named FIFO, unread requests, a living or unknown holder. A descriptor that is not
//! open, or is something else, is never proof: another version may use other numbers.
//!
//! # Settings
//!
//! `read`: number of the descriptor that it reads its requests from; required.
//! `write`: number of the descriptor that it writes its answers to; required.
//! Example: `{ channel-abandoned = { read = 3, write = 4 } }`. A policy's private listeners do not count as a way to
//! reach the tree.

use crate::judge::case::Case;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::known::{Reason, Unknown};
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

use super::stdin_abandoned::{Ends, abandoned};

/// Finds programs that are driven over descriptors of their own and that nobody can drive any more.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "channel-abandoned",
        strength: Strength::Proof,
        summary: "nobody holds the other ends of two descriptors that it is driven over, and nothing else reaches it",
        doc: super::own_opening!("channel_abandoned.rs"),
        settings: &[
            SettingSpec {
                name: "read",
                kind: SettingKind::Number,
                need: Need::Required,
                doc: "number of the descriptor that it reads its requests from; no default",
            },
            SettingSpec {
                name: "write",
                kind: SettingKind::Number,
                need: Need::Required,
                doc: "number of the descriptor that it writes its answers to; no default",
            },
        ],
        bare: None,
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Processes,
    },
    weigh: Some(weigh),
    weigh_container: None,
};

fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let fd = |name| {
        settings.number(name).and_then(|number| u32::try_from(number).ok()).ok_or_else(|| {
            Unknown::new(Reason::Unsupported, format!("a descriptor by the number that `{name}` gives"))
        })
    };
    abandoned(case, Ends { read: fd("read")?, write: fd("write")? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::policy::Setting;
    use crate::judge::rule::Holds;
    use crate::judge::rules::support::{ROOT, Says, Scene, listener, pipe, plain, stream};
    use crate::model::question::{ChannelKind, Family, FarEnd};

    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[("read", Setting::Number(3)), ("write", Setting::Number(4))], expected);
    }

    fn browser() -> Scene {
        Scene::orphan().fd(ROOT, 3, pipe(FarEnd::Gone)).fd(ROOT, 4, pipe(FarEnd::Gone))
    }

    #[test]
    fn a_debugging_pipe_without_another_end_is_proof_a08_m7() {
        check(&browser(), &Says::Yes("the other ends of its descriptor 3 and its descriptor 4"));
        check(&browser().fd(ROOT, 3, stream(FarEnd::Gone)), &Says::Yes("its descriptor 3"));
    }

    #[test]
    fn who_can_still_drive_it_keeps_it_m7() {
        check(&Scene::owned().fd(ROOT, 3, pipe(FarEnd::Held)), &Says::No("its parent 40 is alive"));
        let read = browser().process(40, 1).row(ROOT, |row| row.ppid = 40).fd(ROOT, 4, pipe(FarEnd::Held));
        check(&read, &Says::No("its descriptor 3 ended, but its descriptor 4 is still read"));
        check(&browser().fd(ROOT, 3, plain(ChannelKind::Closed)), &Says::No("closed"));
        check(&browser().fd(ROOT, 4, plain(ChannelKind::File)), &Says::No("a file"));
    }

    #[test]
    fn a_debugging_port_keeps_it_b05() {
        let scene = browser().sockets(ROOT, vec![listener(Family::Tcp, "127.0.0.1:9222")], vec![]);
        check(&scene, &Says::No("can be reached at 127.0.0.1:9222"));
    }

    #[test]
    fn who_is_driven_over_other_descriptors_is_not_of_the_set_m4() {
        // 60 is a stdio server by its policy; its descriptors 3 and 4 say nothing of its use.
        let scene = browser().fd(ROOT, 3, pipe(FarEnd::Held)).held_by(ROOT, 3, &[60]).process(60, 1);
        let scene = scene.fd(60, 3, pipe(FarEnd::Gone)).fd(60, 4, pipe(FarEnd::Gone));
        check(&scene.other("server", 60, &[60], None), &Says::No("process 60 holds"));
    }

    #[test]
    fn a_set_is_of_those_that_are_driven_over_the_very_same_descriptors_m4() {
        // 60's own policy is about two descriptors; only where they are 3 and 4 do these say that nobody drives it.
        let by = |read: u64, write: u64| {
            let scene = browser().fd(ROOT, 3, pipe(FarEnd::Held)).held_by(ROOT, 3, &[60]).process(60, 1);
            let scene = scene.fd(60, 3, pipe(FarEnd::Gone)).fd(60, 4, pipe(FarEnd::Gone));
            scene.other("worker", 60, &[60], None).case(|case| {
                let mut config = case.config.clone();
                let worker = config.policies.iter_mut().find(|policy| policy.name == "worker").unwrap();
                let only = &mut worker.reap_when[0].conditions[0];
                only.rule = "channel-abandoned";
                only.settings = [("read", Setting::Number(read)), ("write", Setting::Number(write))].into();
                abandoned(&Case { config: &config, ..*case }, Ends { read: 3, write: 4 })
                    .map(|finding| finding.holds)
            })
        };
        assert_eq!(by(3, 4), Ok(Holds::Yes));
        assert_eq!(by(5, 4), Ok(Holds::No));
        assert_eq!(by(3, 5), Ok(Holds::No));
    }

    #[test]
    fn a_terminal_keeps_it() {
        check(&browser().row(ROOT, |row| row.tty = 34816), &Says::No("has a terminal"));
    }

    #[test]
    fn a_number_that_is_none_is_unknown() {
        let settings = [("read", Setting::Number(1 << 40)), ("write", Setting::Number(4))];
        browser().check(&RULE, &settings, &Says::Unknown("`read`"));
    }
}
