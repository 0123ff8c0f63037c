//! Finds trees that nobody else has the address of.
//!
//! # What it finds
//!
//! That no live process outside the tree carries a text, such as the path of its socket, in its arguments or in its
//! environment.
//!
//! # Why it is not enough alone
//!
//! Addresses are also written down in files and told over pipes. Beside the word of a registry that does not list the
//! tree either, and with nobody connected for long, it says that no way to it is left that is known.
//!
//! # When it is wrong
//!
//! Who learned the address long ago need not carry it. Whoever carries it keeps the tree, though it may be a shell that
//! inherited it and never calls. A process of another user does not count; one whose arguments or environment could not
//! be read may carry it: unknown (B24). A member that would stay behind is somebody else. A longer path that begins in
//! the same way is another one (B31).
//!
//! # Settings
//!
//! `text`: template of what they would carry, e.g. `{ unnamed = "{socket}" }`; must be given.

use bstr::ByteSlice as _;

use crate::judge::case::Case;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::escape::escape;
use crate::model::known::{Reason, Unknown};
use crate::model::question::Census;
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, SettingKind, SettingSpec, Strength};

/// Finds trees that nobody else has the address of.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "unnamed",
        strength: Strength::Sign,
        summary: "nobody else carries its address in arguments or environment",
        doc: super::own_opening!("unnamed.rs"),
        settings: &[SettingSpec {
            name: "text",
            kind: SettingKind::Template,
            need: Need::Required,
            doc: "what they would carry, e.g. the path of its socket",
        }],
        bare: Some("text"),
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
    },
    weigh,
};

fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let Some(template) = settings.template("text") else {
        return Ok(Finding::no("no text was named that somebody would carry"));
    };
    let text = case.filled(template)?;
    if text.is_empty() {
        return Err(Unknown::new(Reason::Unsupported, "who carries an empty text").into());
    }
    let holders = case.named(text.as_bstr())?;
    let inside = case.inside();
    if let Some(other) = holders.seen.iter().find(|id| !inside.contains(id)) {
        return Ok(Finding::no(format!("process {other} names {}", escape(&text))));
    }
    match holders.census {
        Census::Whole => Ok(Finding::yes(format!("nobody else names {}", escape(&text)))),
        Census::Partial(unread) => {
            let what = format!("who names {}: {unread} processes could not be read", escape(&text));
            Err(Unknown::new(Reason::Denied, what).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::rules::support::{ROOT, Says, Scene, captured, id};
    use crate::model::question::{Answer, Holders, Question};

    const SOCKET: &str = "/tmp/b.sock";

    fn asked() -> Question {
        Question::Named { of: id(ROOT), text: SOCKET.into() }
    }

    fn named_by(seen: &[i32], census: Census) -> Scene {
        let seen = seen.iter().copied().map(id).collect();
        Scene::orphan()
            .process(51, ROOT)
            .process(60, 1)
            .capture("socket", SOCKET)
            .answer(asked(), Answer::Named(Holders { seen, census }))
    }

    #[track_caller]
    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[("text", captured("socket"))], expected);
    }

    #[test]
    fn what_only_members_name_is_unnamed() {
        check(&named_by(&[ROOT, 51], Census::Whole), &Says::Yes("nobody else names /tmp/b.sock"));
        check(&named_by(&[], Census::Whole), &Says::Yes("nobody else names"));
    }

    #[test]
    fn whoever_else_carries_it_keeps_it() {
        check(&named_by(&[ROOT, 60], Census::Whole), &Says::No("process 60 names /tmp/b.sock"));
        check(&named_by(&[60], Census::Partial(3)), &Says::No("process 60 names"));
    }

    #[test]
    fn a_member_that_stays_behind_is_somebody_else() {
        let kept = |scene: Scene| {
            scene.facts(51, |facts| {
                facts.env.as_mut().unwrap().insert("REAPD_KEEP".into(), "1".into());
            })
        };
        check(&kept(named_by(&[51], Census::Whole)), &Says::No("process 51 names"));
    }

    #[test]
    fn whoever_could_not_be_read_may_carry_it_b24() {
        check(&named_by(&[ROOT], Census::Partial(1)), &Says::Unknown("1 processes could not be read"));
        check(&named_by(&[], Census::Whole).refused(asked(), Reason::Denied), &Says::Unknown("refused"));
        check(&Scene::orphan(), &Says::Unknown("'{socket}'"));
        check(&Scene::orphan().capture("socket", ""), &Says::Unknown("an empty text"));
        check(&named_by(&[], Census::Whole).unasked(&asked()), &Says::Asks(vec![asked()]));
    }
}
