//! Finds programs whose standard input has ended.
//!
//! # What it finds
//!
//! A program whose standard input is a pipe or a connected socket pair, where the kernel says that nobody holds the
//! other end: nobody can ever send it anything more this way (A10, A16).
//!
//! # Why it is not enough alone
//!
//! An input that ended is how every batch begins: `printf req | server | jq` waits for its answer (F3). Together with
//! the output's end, and with no way to reach it, it becomes the proof `stdin-abandoned`.
//!
//! # When it is wrong
//!
//! A batch whose answer is still awaited (F3); a server that was started with `echo y |` and is reached by its socket
//! (B05); a job whose output goes to a file that somebody wants (B53). /dev/null, files, terminals, named FIFOs and
//! sockets that never had another end have not *ended*. A far end that the kernel does not show is unknown.
//!
//! # Settings
//!
//! `for`: how long it must have been so at every look, e.g. "10m"; optional, and left out one look is enough.
//! Example: `{ stdin-ended = true }` or `{ stdin-ended = { for = "10m" } }`, beside a proof.

use crate::judge::case::{Case, known};
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::question::FarEnd;
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

/// Finds programs whose standard input has ended.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "stdin-ended",
        strength: Strength::Sign,
        summary: "nobody holds the other end of its stdin",
        doc: super::own_opening!("stdin_ended.rs"),
        settings: &[SettingSpec {
            name: "for",
            kind: SettingKind::Duration,
            need: Need::Optional,
            doc: "how long it must have been so at every look, e.g. \"10m\"; by default one look is enough",
        }],
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
    let channel = case.channel(0)?;
    if !channel.kind.has_far_end() {
        return Ok(Finding::no("its stdin has no other end that could go"));
    }
    let far = *known(&channel.far)?;
    Ok(match far {
        FarEnd::Held => Finding::no("somebody holds the other end of its stdin"),
        FarEnd::Gone => {
            super::lasting(Finding::yes("nobody holds the other end of its stdin"), settings.duration("for"))
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::rules::support::{ROOT, Says, Scene, id, lasts, pipe, plain, stream};
    use crate::model::known::{Reason, Unknown};
    use crate::model::question::{ChannelKind, Question};

    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[], expected);
    }

    #[test]
    fn an_input_without_another_end_has_ended_a10_a16() {
        check(&Scene::orphan().fd(ROOT, 0, pipe(FarEnd::Gone)), &Says::Yes("nobody holds"));
        check(&Scene::owned().fd(ROOT, 0, stream(FarEnd::Gone)), &Says::Yes("nobody holds"));
        lasts(&Scene::orphan().fd(ROOT, 0, pipe(FarEnd::Gone)), &RULE);
    }

    #[test]
    fn what_may_still_come_or_never_had_an_end_has_not_ended_f3() {
        check(&Scene::orphan().fd(ROOT, 0, pipe(FarEnd::Held)), &Says::No("somebody holds"));
        for kind in [
            ChannelKind::NamedFifo,
            ChannelKind::Null,
            ChannelKind::File,
            ChannelKind::Listener,
            ChannelKind::Unconnected,
            ChannelKind::Closed,
        ] {
            check(&Scene::orphan().fd(ROOT, 0, plain(kind)), &Says::No("no other end"));
        }
    }

    #[test]
    fn what_could_not_be_read_is_unknown_b18() {
        let question = Question::Channel { of: id(ROOT), fd: 0 };
        check(&Scene::orphan().refused(question, Reason::Denied), &Says::Unknown("refused"));
        let mut silent = stream(FarEnd::Gone);
        silent.far = Err(Unknown::new(Reason::Unsupported, "the peer"));
        check(&Scene::orphan().fd(ROOT, 0, silent), &Says::Unknown("the peer"));
    }
}
