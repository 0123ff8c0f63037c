//! Finds trees and containers whose workspace was deleted.
//!
//! # What it finds
//!
//! A tree whose root stands in a directory that was deleted: a held directory without a name cannot get one again.
//! With `path` it is that very directory that is deleted, and nothing is at the path now. A captured path that the
//! root does not stand in counts only when reapd recorded the directory and its parent while both were there, the
//! parent is still that very one, and nothing is at the path. With `roots` the deleted directory lay strictly below
//! one of these throw-away places. Always: no living parent outside the tree, no controlling terminal, no client.
//! A container by a directory of the host that it names (a label, a bind mount): it counts as a captured path that
//! nobody stands in does.
//!
//! # Why it is not enough alone
//!
//! It is enough only where the directory *is* the owner: a worktree that is made for one task and removed with it.
//! Elsewhere people delete directories under programs that they go on using, so the policy must name the directory.
//!
//! # When it is wrong
//!
//! Each of these is kept. A rename or `git worktree move` (B33): the held directory has a name, elsewhere. A build
//! directory that was deleted and made again under a live server (B34): something is at the path, and a parent, a
//! terminal or a client is there. An unmount, lazy or not, and an ejected volume (B35): nothing was deleted, and the
//! parent is another or was on another file system. An over-mount, and a directory of another mount namespace: held
//! and linked. A refused look (EACCES) and file systems that cannot be trusted to say (FUSE, network; F8): unknown.
//! A directory whose name ends in "(deleted)": linked. A sibling that shares a prefix (B31): paths compare whole, and
//! places by whole elements. Another spelling of the path, by a link (B29): not the held one, so only a record counts.
//! A directory that was renamed while nobody of the tree stood in it cannot be told from a deleted one once it was
//! recorded: capture a path that the program stands in, where you can.
//!
//! # Settings
//!
//! `path`: template of the captured workspace, e.g. `{ cwd-gone = "{workspace}" }`; optional, no default.
//! `roots`: path patterns of the directories that throw-away workspaces are made in, e.g.
//! `{ cwd-gone = { roots = ["~/src/*/.worktrees"] } }`; optional, no default.
//! One of the two must be given; with both, both must fit.

use bstr::{BStr, BString, ByteSlice as _};

use crate::config::policy::Glob;
use crate::judge::candidates::is_below;
use crate::judge::case::{Case, gather, known};
use crate::judge::containers::case::ContainerCase;
use crate::judge::rule::{Finding, Found, Holds, Rule, Settings};
use crate::model::container::Tty;
use crate::model::escape::escape;
use crate::model::evidence::Cause;
use crate::model::facts::{Directory, Fate, FileSystem};
use crate::model::id::FileId;
use crate::model::known::{Reason, Unknown};
use crate::model::question::PathAnswer;
use crate::model::rule::{Asks, Clients, Need, Place, RuleSpec, Serves, SettingKind, SettingSpec, Strength};

use super::clients::connected;

/// Finds trees whose workspace was deleted.
pub static RULE: Rule = Rule {
    spec: RuleSpec {
        name: "cwd-gone",
        strength: Strength::Proof,
        summary: "its workspace was deleted, and it has no living parent, terminal or client",
        doc: super::own_opening!("cwd_gone.rs"),
        settings: &[
            SettingSpec {
                name: "path",
                kind: SettingKind::Template,
                need: Need::Optional,
                doc: "the captured workspace, as an absolute path; no default: any deleted directory below `roots`",
            },
            SettingSpec {
                name: "roots",
                kind: SettingKind::Patterns,
                need: Need::Optional,
                doc: "directories that throw-away workspaces are made in; no default: only the one at `path` counts",
            },
        ],
        bare: Some("path"),
        place: Place::ReapWhen,
        asks: Asks::Passively,
        clients: Clients::Served,
        serves: Serves::Both(&["path"]),
    },
    weigh: Some(weigh),
    weigh_container: Some(weigh_container),
};

fn weigh(case: &Case<'_>, settings: Settings<'_>) -> Found<Finding> {
    let roots = settings.patterns("roots");
    let path = settings.template("path").map(|template| case.filled(template)).transpose()?;
    weigh_with(case, path.as_ref(), roots, |path| case.memory.directory(case.root.id, path))
}

/// Says whether `path` lies strictly below one of these places.
fn is_below_any(path: &BStr, roots: &[Glob]) -> bool {
    roots.iter().any(|root| is_below(path, root))
}

fn weigh_with(
    case: &Case<'_>,
    path: Option<&BString>,
    roots: &[Glob],
    recorded: impl Fn(&BStr) -> Option<(FileId, FileId)>,
) -> Found<Finding> {
    if path.is_none() && roots.is_empty() {
        return Ok(Finding::no("no directory was named whose end would be its end"));
    }
    if let Some(parent) = case.outside_parent() {
        return Ok(Finding::no(format!("its parent {parent} is alive")));
    }
    case.parent_seen()?;
    if let Some(member) = case.terminal() {
        return Ok(Finding::no(format!("process {member} has a terminal")));
    }
    let cwd = known(&case.facts(case.root.id)?.cwd)?;
    let found = match path {
        Some(path) => {
            let path = trimmed(path.as_bstr());
            if !roots.is_empty() && !is_below_any(path, roots) {
                return Ok(Finding::no(format!(
                    "{} is not below a root of throw-away workspaces",
                    escape(path)
                )));
            }
            if path == trimmed(cwd.path.as_bstr()) {
                held_at(case, cwd, path)?
            } else {
                remembered(case, path, recorded(path))?
            }
        }
        None if !is_below_any(cwd.path.as_bstr(), roots) => {
            Finding::no(format!("{} is not below a root of throw-away workspaces", escape(&cwd.path)))
        }
        None => match known(&cwd.fate)? {
            Fate::Linked => Finding::no(format!("{} is there", escape(&cwd.path))),
            Fate::Deleted => Finding::yes("its workspace was deleted"),
        },
    };
    // Last, since it is the dearest: the sockets of every member.
    if found.holds == Holds::Yes
        && let Some(client) = case.clients()?.first()
    {
        return Ok(Finding::no(connected(client)));
    }
    Ok(found)
}

/// The root stands in the captured directory: the kernel's word on the held directory, and a look at the path.
fn held_at(case: &Case<'_>, cwd: &Directory, path: &BStr) -> Found<Finding> {
    match known(&cwd.fate)? {
        Fate::Linked => return Ok(Finding::no(format!("{} is there", escape(path)))),
        Fate::Deleted => {}
    }
    Ok(match case.path(path)? {
        PathAnswer::Absent { .. } | PathAnswer::ParentAbsent { .. } => {
            Finding::yes("its workspace was deleted")
        }
        PathAnswer::Present { .. } => {
            Finding::no(format!("{} was deleted, and is there again", escape(path)))
        }
    })
}

/// The root does not stand in the captured directory: only what was recorded while it was there can tell.
fn remembered(case: &Case<'_>, path: &BStr, recorded: Option<(FileId, FileId)>) -> Found<Finding> {
    // Asked even without a record: that something is there is what gets recorded.
    let (directory, mount) = match deleted(path, case.path(path)?, recorded)? {
        Gone::Present => return Ok(Finding::no(format!("{} is there", escape(path)))),
        Gone::Deleted { directory, mount } => (directory, mount),
    };
    // A member that stands in the very directory knows whether it was only renamed.
    for facts in gather(case.tree.iter().map(|&id| case.facts(id)))? {
        let cwd = known(&facts.cwd)?;
        if cwd.file == directory && *known(&cwd.fate)? == Fate::Linked {
            return Ok(Finding::no(format!("{} was moved to {}", escape(path), escape(&cwd.path))));
        }
    }
    Ok(Finding::yes("its workspace was deleted").hanging_on(Cause::Mount(mount)))
}

fn weigh_container(case: &ContainerCase<'_>, settings: Settings<'_>) -> Found<Finding> {
    let Some(template) = settings.template("path") else {
        return Ok(Finding::no("no directory was named whose end would be its end"));
    };
    let Some(path) = case.fill(template) else {
        let what = format!("what '{}' is for it", template.text);
        return Err(Unknown::new(Reason::NotAsked, what).into());
    };
    if case.facts.tty == Tty::Yes {
        return Ok(Finding::no("it has a terminal"));
    }
    let path = trimmed(path.as_bstr());
    let recorded = case.memory.container_directory(&case.facts.run, &case.policy.name, path);
    let found = match deleted(path, case.path(path)?, recorded)? {
        Gone::Present => return Ok(Finding::no(format!("{} is there", escape(path)))),
        Gone::Deleted { mount, .. } => {
            Finding::yes("the directory that it was made for was deleted").hanging_on(Cause::Mount(mount))
        }
    };
    if let Some(connection) = case.sockets()?.connections.first() {
        let connection = escape(connection.as_bytes());
        return Ok(Finding::no(format!("something is connected to it: {connection}")));
    }
    Ok(found)
}

/// What became of a directory that nobody stands in.
enum Gone {
    /// It is there, or something else is.
    Present,
    /// It was deleted: this one, below this mount.
    Deleted { directory: FileId, mount: BString },
}

/// Says what became of a directory, by what was recorded while it was there.
fn deleted(path: &BStr, now: &PathAnswer, recorded: Option<(FileId, FileId)>) -> Found<Gone> {
    let parent = match now {
        PathAnswer::Present { .. } => return Ok(Gone::Present),
        PathAnswer::ParentAbsent { nearest } => {
            let what = format!(
                "what became of {}, which is gone with all above it up to {}",
                escape(path),
                escape(&nearest.path)
            );
            return Err(Unknown::new(Reason::Untrusted, what).into());
        }
        PathAnswer::Absent { parent } => parent,
    };
    let Some((directory, above)) = recorded else {
        let what = format!("what was at {} while it was there", escape(path));
        return Err(Unknown::new(Reason::NoRecord, what).into());
    };
    let untold =
        |why: &str| Unknown::new(Reason::Untrusted, format!("what became of {}: {why}", escape(path)));
    if parent.on == FileSystem::Fuse || parent.on == FileSystem::Network {
        return Err(untold("it is remote").into());
    }
    if parent.file != above {
        return Err(untold("the directory above it is another one now").into());
    }
    if directory.dev != above.dev {
        // The place itself was a mount point, and some mounters remove it with the mount.
        return Err(untold("another file system was mounted there").into());
    }
    Ok(Gone::Deleted { directory, mount: parent.mount.clone() })
}

fn trimmed(path: &BStr) -> &BStr {
    let end = path.trim_end_with(|letter| letter == '/');
    if end.is_empty() { path } else { end.as_bstr() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::policy::Setting;
    use crate::judge::rules::support::{
        ROOT, Says, Scene, captured, connection, file, id, listener, literal, parent,
    };
    use crate::model::facts::Facts;
    use crate::model::known::Known;
    use crate::model::question::{Family, Parent, Peer, Question};

    fn absent() -> PathAnswer {
        PathAnswer::Absent { parent: parent("/wt").into() }
    }

    fn present() -> PathAnswer {
        PathAnswer::Present { file: file(8, 701), parent: parent("/wt").into() }
    }

    /// The root stood in `/wt/a`, which was deleted.
    fn deleted() -> Scene {
        Scene::orphan()
            .capture("workspace", "/wt/a")
            .stands_in("/wt/a", Ok(Fate::Deleted))
            .path("/wt/a", absent())
    }

    /// The root stands elsewhere; the captured path is absent, and its parent is there.
    fn elsewhere() -> Scene {
        Scene::orphan().capture("workspace", "/wt/a").path("/wt/a", absent())
    }

    fn check(scene: &Scene, expected: &Says) {
        scene.check(&RULE, &[("path", captured("workspace"))], expected);
    }

    fn check_below(scene: &Scene, root: &str, expected: &Says) {
        let globs = [literal(root)];
        let roots = &globs;
        scene.check_by(|case| weigh_with(case, None, roots, |_| None), expected);
    }

    /// Weighs with a record of the directory and of its parent.
    fn check_recorded(scene: &Scene, directory: FileId, above: FileId, expected: &Says) {
        let roots = &[] as &[Glob];
        let path = BString::from("/wt/a");
        scene.check_by(|case| weigh_with(case, Some(&path), roots, |_| Some((directory, above))), expected);
    }

    #[test]
    fn a_deleted_workspace_is_proof_a21_a31() {
        check(&deleted(), &Says::Yes("its workspace was deleted"));
        check(&deleted().capture("workspace", "/wt/a/").path("/wt/a", absent()), &Says::Yes("deleted"));
        let above = PathAnswer::ParentAbsent { nearest: parent("/").into() };
        check(&deleted().path("/wt/a", above), &Says::Yes("its workspace was deleted"));
        check_below(&deleted(), "/wt", &Says::Yes("its workspace was deleted"));
    }

    #[test]
    fn held_evidence_hangs_on_nothing_and_remembered_on_its_mount() {
        let settings = [("path", captured("workspace"))].into();
        deleted().case(|case| {
            let found = weigh(case, Settings(&settings)).unwrap();
            assert_eq!((found.holds, found.cause), (Holds::Yes, None));
        });
        elsewhere().case(|case| {
            let path = BString::from("/wt/a");
            let roots = &[] as &[Glob];
            let record = Some((file(8, 9), file(8, 600)));
            let found = weigh_with(case, Some(&path), roots, |_| record).unwrap();
            assert_eq!((found.holds, found.cause), (Holds::Yes, Some(Cause::Mount("/".into()))));
        });
    }

    #[test]
    fn a_parent_that_is_hidden_from_us_is_no_dead_one() {
        check(&deleted().row(ROOT, |row| row.ppid = 41), &Says::Unknown("who its parent 41 is"));
    }

    #[test]
    fn a_live_tree_costs_no_question_or_one() {
        check(&Scene::owned().capture("workspace", "/wt/a"), &Says::No("its parent 40 is alive"));
        let here = Scene::orphan().capture("workspace", "/wt/a").stands_in("/wt/a", Ok(Fate::Linked));
        check(&here, &Says::No("/wt/a is there"));
        let facts = Question::Facts(id(ROOT));
        check(&deleted().unasked(&facts), &Says::Asks(vec![facts]));
    }

    #[test]
    fn a_directory_that_was_moved_is_kept_b33_f8() {
        let moved = elsewhere().stands_in("/wt/b", Ok(Fate::Linked));
        check(&moved, &Says::Unknown("while it was there"));
        check_recorded(&moved, file(8, 700), file(8, 600), &Says::No("/wt/a was moved to /wt/b"));
        // Another agent made the old path anew.
        check(&moved.clone().path("/wt/a", present()), &Says::No("/wt/a is there"));
        check_below(&moved, "/wt", &Says::No("/wt/b is there"));
        // A member below the root stands in it.
        let child = elsewhere().process(51, ROOT);
        let child = child.facts(51, |facts| moved_to(facts, "/wt/b"));
        check_recorded(&child, file(8, 77), file(8, 600), &Says::No("/wt/a was moved to /wt/b"));
    }

    fn moved_to(facts: &mut Facts, path: &str) {
        let cwd = facts.cwd.as_mut().unwrap();
        cwd.path = path.into();
        cwd.file = file(8, 77);
    }

    #[test]
    fn a_directory_that_was_made_again_is_kept_b34() {
        check(&deleted().path("/wt/a", present()), &Says::No("is there again"));
    }

    #[test]
    fn a_parent_a_terminal_or_a_client_keeps_it_b34_b25_a20() {
        let parent = deleted().process(40, 1).row(ROOT, |row| row.ppid = 40);
        let terminal = deleted().process(51, ROOT).row(51, |row| row.tty = 34816);
        let client = deleted().sockets(
            ROOT,
            vec![listener(Family::Tcp, "0.0.0.0:8000")],
            vec![connection(Family::Tcp, "10.0.0.1:8000", Peer::Remote("10.0.0.2:999".into()))],
        );
        let foreign = deleted().row(ROOT, |row| row.ppid = 0);
        let blind = deleted().refused(Question::Sockets(id(ROOT)), Reason::Denied);
        for (scene, expected) in [
            (parent, Says::No("its parent 40 is alive")),
            (terminal, Says::No("process 51 has a terminal")),
            (client, Says::No("a client is connected to 10.0.0.1:8000")),
            (foreign, Says::Unknown("its parent: it belongs to another namespace")),
            (blind, Says::Unknown("refused")),
        ] {
            check(&scene, &expected);
            check_below(&scene, "/wt", &expected);
        }
    }

    #[test]
    fn an_unmounted_volume_is_kept_b35() {
        // After `umount -l` the link loses the mount's prefix, and nothing is marked as deleted.
        let lazy = Scene::orphan().capture("workspace", "/mnt/proj").stands_in("/proj", Ok(Fate::Linked));
        let away = PathAnswer::ParentAbsent { nearest: parent("/").into() };
        check(&lazy.clone().path("/mnt/proj", away), &Says::Unknown("gone with all above it"));
        let beneath = PathAnswer::Absent { parent: parent("/mnt").into() };
        check(&lazy.path("/mnt/proj", beneath), &Says::Unknown("while it was there"));
        check_recorded(&elsewhere(), file(9, 5), file(9, 2), &Says::Unknown("is another one now"));
        // The mount point was removed with the mount: the directory above it is as recorded.
        check_recorded(
            &elsewhere(),
            file(9, 2),
            file(8, 600),
            &Says::Unknown("another file system was mounted"),
        );
    }

    #[test]
    fn a_file_system_that_cannot_be_trusted_is_unknown_f8() {
        let fate: Known<Fate> = Err(Unknown::new(Reason::Untrusted, "whether it was deleted"));
        check(&deleted().stands_in("/wt/a", fate.clone()), &Says::Unknown("whether it was deleted"));
        check_below(&deleted().stands_in("/wt/a", fate), "/wt", &Says::Unknown("whether it was deleted"));
        for on in [FileSystem::Fuse, FileSystem::Network] {
            let parent = Box::new(Parent { on, ..parent("/wt") });
            let scene = elsewhere().path("/wt/a", PathAnswer::Absent { parent });
            check_recorded(&scene, file(8, 9), file(8, 600), &Says::Unknown("it is remote"));
        }
    }

    #[test]
    fn a_refused_look_is_unknown_b24_b15() {
        let question = Question::Path { of: id(ROOT), path: "/wt/a".into() };
        check(&deleted().refused(question, Reason::Denied), &Says::Unknown("refused"));
        check(&deleted().refused(Question::Facts(id(ROOT)), Reason::Denied), &Says::Unknown("refused"));
        let unread = |facts: &mut Facts| facts.cwd = Err(Unknown::new(Reason::Denied, "where it stands"));
        check(&deleted().facts(ROOT, unread), &Says::Unknown("where it stands"));
    }

    #[test]
    fn an_over_mount_or_another_mount_namespace_is_kept() {
        // Facts 5 and 7: the path is missing for us, and the held directory has a name.
        let scene = elsewhere().stands_in("/wt/a", Ok(Fate::Linked));
        check(&scene, &Says::No("/wt/a is there"));
    }

    #[test]
    fn a_name_that_ends_like_the_mark_is_a_name() {
        // Fact 3: "a (deleted)" is linked, and is not "a".
        let scene = elsewhere().stands_in("/wt/a (deleted)", Ok(Fate::Linked));
        check(&scene, &Says::Unknown("while it was there"));
        check_below(&scene, "/wt", &Says::No("is there"));
    }

    #[test]
    fn a_sibling_with_the_same_prefix_is_another_b31() {
        check(&deleted().stands_in("/wt/a-b", Ok(Fate::Deleted)), &Says::Unknown("while it was there"));
        check_below(
            &deleted().stands_in("/wt-2/a", Ok(Fate::Deleted)),
            "/wt",
            &Says::No("is not below a root"),
        );
        // The root of all workspaces itself is no workspace.
        check_below(&deleted().stands_in("/wt", Ok(Fate::Deleted)), "/wt", &Says::No("is not below a root"));
    }

    #[test]
    fn another_spelling_is_not_the_held_one_b29() {
        let link = deleted().capture("workspace", "/link/a").path("/link/a", absent());
        check(&link, &Says::Unknown("while it was there"));
    }

    #[test]
    fn a_record_counts_only_with_the_very_parent_f8() {
        check_recorded(&elsewhere(), file(8, 9), file(8, 600), &Says::Yes("its workspace was deleted"));
        check_recorded(&elsewhere(), file(8, 9), file(8, 601), &Says::Unknown("is another one now"));
        check(&elsewhere(), &Says::Unknown("while it was there"));
        let above = PathAnswer::ParentAbsent { nearest: parent("/").into() };
        let scene = elsewhere().path("/wt/a", above);
        check_recorded(&scene, file(8, 9), file(8, 600), &Says::Unknown("gone with all above it"));
    }

    #[test]
    fn a_profile_that_a_cleaner_removed_is_no_death_a11() {
        // The browser stands elsewhere and is driven over its port.
        let driven = elsewhere().sockets(
            ROOT,
            vec![listener(Family::Tcp, "127.0.0.1:9222")],
            vec![connection(Family::Tcp, "127.0.0.1:9222", Peer::Remote("127.0.0.1:999".into()))],
        );
        check(&driven, &Says::Unknown("while it was there"));
        check_recorded(&driven, file(8, 9), file(8, 600), &Says::No("a client is connected"));
    }

    #[test]
    fn what_was_not_captured_or_is_relative_is_unknown() {
        check(&Scene::orphan(), &Says::Unknown("'{workspace}'"));
        check(&Scene::orphan().capture("workspace", "wt/a"), &Says::Unknown("not an absolute path"));
    }

    #[test]
    fn without_settings_it_is_no() {
        deleted().check(&RULE, &[], &Says::No("no directory was named"));
    }

    #[test]
    fn roots_are_patterns_b31() {
        let root = |text: &str| [("roots", Setting::Patterns(vec![literal(text)]))];
        deleted().check(&RULE, &root("/wt"), &Says::Yes("its workspace was deleted"));
        deleted().check(&RULE, &root("/w"), &Says::No("is not below a root"));
        deleted().check(&RULE, &root("/wt/a"), &Says::No("is not below a root"));
    }

    #[test]
    fn with_both_settings_both_must_fit() {
        let globs = [literal("/other")];
        let roots = &globs;
        let path = BString::from("/wt/a");
        deleted().check_by(
            |case| weigh_with(case, Some(&path), roots, |_| None),
            &Says::No("is not below a root"),
        );
    }
}
