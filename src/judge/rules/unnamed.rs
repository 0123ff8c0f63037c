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
//! `made`: "with-tree" where the text is made anew for each tree, such as a path with random letters, so that whoever
//! began a minute before the tree was not started with it; such a process need not be readable. Optional, "ever".

use std::time::Duration;

use bstr::ByteSlice as _;

use crate::judge::case::Case;
use crate::judge::rule::{Finding, Found, Rule, Settings};
use crate::model::escape::escape;
use crate::model::id::ProcessId;
use crate::model::known::{Reason, Unknown};
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

/// The word for a text that is made anew for each tree.
const WITH_TREE: &str = "with-tree";

/// Whoever began so long before a tree was not started with what was made for it.
const EARLIER: Duration = Duration::from_mins(1);

/// Finds trees that nobody else has the address of.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "unnamed",
        strength: Strength::Sign,
        summary: "nobody else carries its address in arguments or environment",
        doc: super::own_opening!("unnamed.rs"),
        settings: &[
            SettingSpec {
                name: "text",
                kind: SettingKind::Template,
                need: Need::Required,
                doc: "what they would carry, e.g. the path of its socket",
            },
            SettingSpec {
                name: "made",
                kind: SettingKind::Word(&["ever", WITH_TREE]),
                need: Need::Optional,
                doc: "\"with-tree\": it is new with each tree, so older processes that cannot be read do not count; \"ever\" by default",
            },
        ],
        bare: Some("text"),
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Processes,
    },
    weigh: Some(weigh),
    weigh_container: None,
};

fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let Some(template) = settings.template("text") else {
        return Ok(Finding::no("no text was named that somebody would carry"));
    };
    let text = case.filled(template)?;
    if text.is_empty() {
        return Err(Unknown::new(Reason::Unsupported, "who carries an empty text").into());
    }
    let carriers = case.named(text.as_bstr())?;
    let inside = case.inside();
    if let Some(other) = carriers.seen.iter().find(|id| !inside.contains(id)) {
        return Ok(Finding::no(format!("process {other} names {}", escape(&text))));
    }
    let is_new = settings.word("made") == Some(WITH_TREE);
    let may_carry = |id: &&ProcessId| {
        let began = case.look.snapshot.table.get(**id).map(|row| row.began);
        !is_new || began.is_none_or(|began| case.root.began.since(began) < EARLIER)
    };
    let unread = carriers.unread.iter().filter(may_carry).count();
    let unread = u32::try_from(unread).unwrap_or(u32::MAX).saturating_add(carriers.unseen);
    if unread > 0 {
        let what = format!("who names {}: {unread} processes could not be read", escape(&text));
        return Err(Unknown::new(Reason::Denied, what).into());
    }
    Ok(Finding::yes(format!("nobody else names {}", escape(&text))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::policy::Setting;
    use crate::judge::rules::support::{ROOT, Says, Scene, captured, id};
    use crate::model::moment::Moment;
    use crate::model::question::{Answer, Carriers, Question};

    const SOCKET: &str = "/tmp/b.sock";

    fn asked() -> Question {
        Question::Named { of: id(ROOT), text: SOCKET.into() }
    }

    fn named_by(seen: &[i32], unread: &[i32]) -> Scene {
        let all = |numbers: &[i32]| numbers.iter().copied().map(id).collect();
        let carriers = Carriers { seen: all(seen), unread: all(unread), unseen: 0 };
        Scene::orphan()
            .process(51, ROOT)
            .process(60, 1)
            .capture("socket", SOCKET)
            .answer(asked(), Answer::Named(carriers))
    }

    #[track_caller]
    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[("text", captured("socket"))], expected);
    }

    #[test]
    fn what_only_members_name_is_unnamed() {
        check(&named_by(&[ROOT, 51], &[]), &Says::Yes("nobody else names /tmp/b.sock"));
        check(&named_by(&[], &[]), &Says::Yes("nobody else names"));
    }

    #[test]
    fn whoever_else_carries_it_keeps_it() {
        check(&named_by(&[ROOT, 60], &[]), &Says::No("process 60 names /tmp/b.sock"));
        check(&named_by(&[60], &[51]), &Says::No("process 60 names"));
    }

    #[test]
    fn a_member_that_stays_behind_is_somebody_else() {
        let kept = |scene: Scene| {
            scene.facts(51, |facts| {
                facts.env.as_mut().unwrap().insert("REAPD_KEEP".into(), "1".into());
            })
        };
        check(&kept(named_by(&[51], &[])), &Says::No("process 51 names"));
    }

    #[test]
    fn whoever_began_long_before_was_not_started_with_what_was_made_for_the_tree() {
        let made = [("text", captured("socket")), ("made", Setting::Word(WITH_TREE))];
        let at = |seconds| Moment(0).plus(Duration::from_secs(seconds));
        let began = |unread: &[i32], seconds| {
            named_by(&[], unread).row(ROOT, |row| row.began = at(600)).row(60, |row| row.began = at(seconds))
        };
        began(&[60], 540).check(&RULE, &made, &Says::Yes("nobody else names"));
        began(&[60], 541).check(&RULE, &made, &Says::Unknown("1 processes could not be read"));
        check(&began(&[60], 540), &Says::Unknown("1 processes could not be read"));
        began(&[60], 540).without(60).check(&RULE, &made, &Says::Unknown("1 processes could not be read"));
        let carried = Carriers { seen: vec![id(60)], unread: Vec::new(), unseen: 0 };
        let carried = began(&[], 0).answer(asked(), Answer::Named(carried));
        carried.check(&RULE, &made, &Says::No("process 60 names"));
    }

    #[test]
    fn whoever_could_not_be_read_may_carry_it_b24() {
        check(&named_by(&[ROOT], &[60]), &Says::Unknown("1 processes could not be read"));
        let unseen = Carriers { seen: Vec::new(), unread: Vec::new(), unseen: 2 };
        let unseen = named_by(&[], &[]).answer(asked(), Answer::Named(unseen));
        check(&unseen, &Says::Unknown("2 processes could not be read"));
        check(&named_by(&[], &[]).refused(asked(), Reason::Denied), &Says::Unknown("refused"));
        check(&Scene::orphan(), &Says::Unknown("'{socket}'"));
        check(&Scene::orphan().capture("socket", ""), &Says::Unknown("an empty text"));
        check(&named_by(&[], &[]).unasked(&asked()), &Says::Asks(vec![asked()]));
    }
}
