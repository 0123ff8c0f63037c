//! Finds interactive programs whose terminal is gone for good.
//!
//! # What it finds
//!
//! A program whose standard input is a terminal that was closed at its other side (Linux: `/dev/pts/N (deleted)`), so
//! that nobody can ever type into it again (A25, A26, A37, M6). It has no controlling terminal, does not ignore SIGHUP,
//! has no live children, and its output leads nowhere that anybody looks.
//!
//! # Why it is not enough alone
//!
//! It is enough for a program that exists to talk with a person, which is for the policy to name. Many others start
//! in a terminal, outlive it on purpose, and never look at it again.
//!
//! # When it is wrong
//!
//! Each of these is kept. A job under nohup(1): SIGHUP is ignored (B53). A program that still works: it has live
//! children (B54), or its output goes to a file or is read. A pane of a multiplexer that nobody is attached to: its
//! terminal is there (B01, B11). A moment without a controlling terminal at start-up (B01): the one on standard input
//! is there. A program that went on without its terminal by setsid(1) alone and only listens looks like a lost one:
//! the policy must not name such programs.
//!
//! # Settings
//!
//! None: `{ terminal-gone = true }`.

use crate::judge::case::{Case, known};
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::facts::Hangup;
use crate::model::question::{ChannelKind, FarEnd, TerminalFate};
use crate::model::rule::{Asks, Clients, Place, RuleSpec, Serves, Strength};

/// Finds interactive programs whose terminal is gone for good.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "terminal-gone",
        strength: Strength::Proof,
        summary: "the terminal it talked to was closed for good, and it was not told to outlive it",
        doc: super::own_opening!("terminal_gone.rs"),
        settings: &[],
        bare: None,
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Processes,
    },
    weigh: Some(weigh),
    weigh_container: None,
};

fn weigh(case: &Case<'_>, _: Settings<'_>) -> Found<Finding> {
    if let Some(member) = case.terminal() {
        return Ok(Finding::no(format!("process {member} has a terminal")));
    }
    let mut children = case.look.snapshot.table.children(case.root.id.pid);
    if let Some(child) = children.find(|child| !child.is_gone()) {
        return Ok(Finding::no(format!("its child {} is alive", child.id)));
    }
    match case.channel(0)?.kind {
        ChannelKind::Terminal(TerminalFate::Deleted) => {}
        ChannelKind::Terminal(TerminalFate::Present) => return Ok(Finding::no("its terminal is there")),
        ChannelKind::Pipe { .. }
        | ChannelKind::Stream { .. }
        | ChannelKind::NamedFifo
        | ChannelKind::Null
        | ChannelKind::File
        | ChannelKind::Listener
        | ChannelKind::Unconnected
        | ChannelKind::Closed
        | ChannelKind::Other(_) => return Ok(Finding::no("its stdin is no terminal")),
    }
    let output = case.channel(1)?;
    match &output.kind {
        ChannelKind::Terminal(TerminalFate::Deleted) | ChannelKind::Null | ChannelKind::Closed => {}
        ChannelKind::Terminal(TerminalFate::Present) => {
            return Ok(Finding::no("its output goes to a terminal that is there"));
        }
        ChannelKind::Pipe { .. } | ChannelKind::Stream { .. } => match known(&output.far)? {
            FarEnd::Gone => {}
            FarEnd::Held => return Ok(Finding::no("its output is still read")),
        },
        ChannelKind::File => return Ok(Finding::no("its output goes to a file")),
        ChannelKind::NamedFifo | ChannelKind::Listener | ChannelKind::Unconnected | ChannelKind::Other(_) => {
            return Ok(Finding::no("its output may still be read"));
        }
    }
    Ok(match known(&case.facts(case.root.id)?.hangup)? {
        Hangup::Ignored => Finding::no("it ignores SIGHUP: somebody meant it to outlive its terminal"),
        Hangup::Caught | Hangup::Default => Finding::yes("its terminal was closed for good"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::rules::support::{ROOT, Says, Scene, id, pipe, plain};
    use crate::model::facts::Facts;
    use crate::model::known::{Reason, Unknown};
    use crate::model::question::Question;

    fn terminal(fate: TerminalFate) -> crate::model::question::Channel {
        plain(ChannelKind::Terminal(fate))
    }

    fn lost() -> Scene {
        let gone = terminal(TerminalFate::Deleted);
        Scene::orphan().fd(ROOT, 0, gone.clone()).fd(ROOT, 1, gone)
    }

    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[], expected);
    }

    #[test]
    fn a_closed_terminal_is_proof_a25_a26_a37_m6() {
        check(&lost(), &Says::Yes("its terminal was closed for good"));
        check(&lost().facts(ROOT, |facts| facts.hangup = Ok(Hangup::Caught)), &Says::Yes("closed"));
        check(&lost().fd(ROOT, 1, pipe(FarEnd::Gone)), &Says::Yes("closed"));
        check(&lost().process(51, ROOT).dead(51), &Says::Yes("closed"));
    }

    #[test]
    fn a_nohup_job_is_kept_b53_m6() {
        let ignored = |facts: &mut Facts| facts.hangup = Ok(Hangup::Ignored);
        check(&lost().facts(ROOT, ignored), &Says::No("it ignores SIGHUP"));
        check(&lost().fd(ROOT, 1, plain(ChannelKind::File)), &Says::No("its output goes to a file"));
        check(&lost().fd(ROOT, 1, pipe(FarEnd::Held)), &Says::No("its output is still read"));
        for kind in [
            ChannelKind::NamedFifo,
            ChannelKind::Listener,
            ChannelKind::Unconnected,
            ChannelKind::Other("anon_inode:[eventfd]".into()),
        ] {
            check(&lost().fd(ROOT, 1, plain(kind)), &Says::No("its output may still be read"));
        }
    }

    #[test]
    fn live_children_keep_it_b54_m6() {
        check(&lost().process(51, ROOT), &Says::No("its child 51 is alive"));
    }

    #[test]
    fn a_terminal_that_is_there_keeps_it_b01_b11() {
        let there = terminal(TerminalFate::Present);
        check(&lost().fd(ROOT, 0, there.clone()), &Says::No("its terminal is there"));
        check(&lost().fd(ROOT, 1, there), &Says::No("a terminal that is there"));
        check(&lost().row(ROOT, |row| row.tty = 34816), &Says::No("has a terminal"));
        check(&lost().fd(ROOT, 0, pipe(FarEnd::Gone)), &Says::No("its stdin is no terminal"));
    }

    #[test]
    fn what_could_not_be_read_is_never_proof_b18_b24() {
        for fd in [0, 1] {
            let question = Question::Channel { of: id(ROOT), fd };
            check(&lost().refused(question, Reason::Denied), &Says::Unknown("refused"));
        }
        let unread = |facts: &mut Facts| facts.hangup = Err(Unknown::new(Reason::Denied, "its signals"));
        check(&lost().facts(ROOT, unread), &Says::Unknown("its signals"));
    }
}
