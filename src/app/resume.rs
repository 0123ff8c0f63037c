//! Takes up what a crash cut short, without trusting that nothing has changed since (REDTEAM F12).
//!
//! Between the crash and now somebody may have come back to the tree, renewed it or kept it. So a root that lives is
//! judged anew from its first look; only when the root was *recorded* as seen gone are the other members, by their
//! recorded identities, still ours to end, and only while their policy still says so.

use super::journal::history::{History, Story, stories};
use super::journal::pid_namespace;
use crate::config::policy::Config;
use crate::model::id::ProcessId;
use crate::model::look::Snapshot;
use crate::model::plan::{Member, Teardown};
use crate::model::verdict::Mode;

/// What is to be done about one unfinished teardown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Course {
    /// Its root was seen gone: these members are ended by identity.
    Continue(Box<Teardown>),
    /// It is left, and judged anew as if it had never been seen.
    Abandon {
        /// The root.
        root: ProcessId,
        /// Why, for the journal and the person.
        why: &'static str,
    },
}

/// Returns what is to be done about each unfinished teardown.
///
/// Those of another pid namespace are passed over: a container has the boot id of its host, perhaps its state directory
/// too, and there the numbers mean others. They are neither taken up nor given up, since whoever wrote them may come
/// back, or be at work this very moment. So are those whose namespace is not known.
pub fn courses(history: &History, snapshot: &Snapshot, config: &Config) -> Vec<Course> {
    let Some(here) = pid_namespace(snapshot) else { return Vec::new() };
    stories(history)
        .iter()
        .filter(|story| story.intent.pid_namespace == Some(here))
        .filter(|story| !story.is_finished())
        .map(|story| course(story, snapshot, config))
        .collect()
}

fn course(story: &Story<'_>, snapshot: &Snapshot, config: &Config) -> Course {
    let root = story.teardown.judgement.root;
    let abandon = |why| Course::Abandon { root, why };
    if story.intent.boot != snapshot.boot {
        return abandon("the machine was restarted since");
    }
    let policy = &story.teardown.judgement.policy;
    if !config.policies.iter().any(|known| known.name == *policy && known.mode == Mode::Reap) {
        return abandon("its policy does not reap any more");
    }
    let lives = |id| snapshot.table.get(id).is_some_and(|row| !row.is_gone());
    if lives(root) {
        return abandon("its root is alive, so it is judged anew");
    }
    let gone = story.seen_gone();
    if !gone.contains(&root) {
        return abandon("its root went, but was not seen to go by our hand");
    }
    let members: Vec<Member> = story
        .teardown
        .members
        .iter()
        .filter(|member| !gone.contains(&member.identity.id) && lives(member.identity.id))
        .cloned()
        .collect();
    if members.is_empty() {
        return abandon("nothing of it is left");
    }
    Course::Continue(Box::new(Teardown { members, ..story.teardown.clone() }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::journal::entry::{By, Entry, Event, VERSION};
    use crate::app::sample;
    use crate::model::facts::Namespaces;
    use crate::model::id::BootId;
    use crate::model::known::{Reason, Unknown};
    use crate::model::look::Own;
    use crate::model::moment::Moment;

    fn courses(history: &History, snapshot: &Snapshot) -> Vec<Course> {
        let config = Config { policies: vec![sample::policy("p")], ..sample::config() };
        super::courses(history, snapshot, &config)
    }

    #[test]
    fn a_policy_that_only_reports_by_now_ends_nobody() {
        let now = snapshot("b", &[sample::process(11)]);
        let reports = crate::config::policy::Policy { mode: Mode::Report, ..sample::policy("p") };
        for policies in [Vec::new(), vec![reports]] {
            let config = Config { policies, ..sample::config() };
            let courses = super::courses(&crashed(&[10]), &now, &config);
            assert!(matches!(courses[..], [Course::Abandon { .. }]), "{courses:?}");
        }
    }

    fn snapshot(boot: &str, alive: &[ProcessId]) -> Snapshot {
        let seen = sample::snapshot(alive);
        let namespaces = Ok(Namespaces { pid: 7, mount: 1, net: 1, time: 1, user: 1 });
        Snapshot { boot: BootId(boot.into()), own: Own { namespaces, ..seen.own }, ..seen }
    }

    fn entry(event: Event) -> Entry {
        let boot = BootId("b".into());
        Entry { v: VERSION, at: 1, boot, pid_namespace: Some(7), sweep: 1, clock: Moment(1), event }
    }

    fn crashed(gone: &[i32]) -> History {
        let root = sample::process(10);
        let teardown = Box::new(sample::teardown(10, "p"));
        let mut entries = vec![entry(Event::Intent { teardown, by: By::Hand })];
        if !gone.is_empty() {
            let ids = gone.iter().map(|&pid| sample::process(pid)).collect();
            entries.push(entry(Event::SeenGone { root, ids }));
        }
        History { entries, skipped: 0 }
    }

    #[test]
    fn a_living_root_is_judged_anew_f12() {
        let now = snapshot("b", &[sample::process(10), sample::process(11)]);
        // Whatever was written down of it: what is seen now goes before it.
        for gone in [&[][..], &[10]] {
            assert!(matches!(courses(&crashed(gone), &now)[..], [Course::Abandon { .. }]), "{gone:?}");
        }
    }

    #[test]
    fn a_root_seen_gone_leaves_its_recorded_members_to_us_f12() {
        let now = snapshot("b", &[sample::process(11)]);
        let courses = courses(&crashed(&[10]), &now);
        let [Course::Continue(teardown)] = &courses[..] else { panic!("{courses:?}") };
        assert_eq!(teardown.members.len(), 1);
        assert_eq!(teardown.members[0].identity.id, sample::process(11));
    }

    #[test]
    fn members_that_are_gone_or_were_seen_gone_are_left_out_f12() {
        let now = snapshot("b", &[sample::process(11)]);
        assert!(matches!(courses(&crashed(&[10, 11]), &now)[..], [Course::Abandon { .. }]));
        assert!(matches!(courses(&crashed(&[10]), &snapshot("b", &[]))[..], [Course::Abandon { .. }]));
    }

    #[test]
    fn a_root_that_went_unseen_proves_nothing_f12() {
        let now = snapshot("b", &[sample::process(11)]);
        assert!(matches!(courses(&crashed(&[]), &now)[..], [Course::Abandon { .. }]));
    }

    #[test]
    fn another_boot_has_other_processes() {
        let now = snapshot("c", &[sample::process(11)]);
        assert!(matches!(courses(&crashed(&[10]), &now)[..], [Course::Abandon { .. }]));
    }

    #[test]
    fn a_successor_with_a_members_number_is_no_member() {
        let mut successor = sample::process(11);
        successor.start.0 += 1;
        let now = snapshot("b", &[successor]);
        assert!(matches!(courses(&crashed(&[10]), &now)[..], [Course::Abandon { .. }]));
    }

    #[test]
    fn what_has_its_end_on_record_is_not_taken_up() {
        let mut history = crashed(&[10]);
        history.entries.push(entry(Event::Abandoned { root: sample::process(10), why: String::new() }));
        assert!(courses(&history, &snapshot("b", &[sample::process(11)])).is_empty());
    }

    #[test]
    fn what_another_pid_namespace_began_is_neither_taken_up_nor_given_up() {
        let of = |pid_namespace| {
            let mut history = crashed(&[10]);
            history.entries.iter_mut().for_each(|entry| entry.pid_namespace = pid_namespace);
            history
        };
        for now in [snapshot("b", &[sample::process(11)]), snapshot("b", &[sample::process(10)])] {
            assert_eq!(courses(&of(Some(7)), &now).len(), 1);
            assert_eq!(courses(&of(Some(8)), &now), []);
            assert_eq!(courses(&of(None), &now), [], "a line from before it was written down");
            let namespaces = Err(Unknown::new(Reason::Denied, "namespaces"));
            let blind = Snapshot { own: Own { namespaces, ..now.own.clone() }, ..now };
            assert_eq!(courses(&of(Some(7)), &blind), []);
            assert_eq!(courses(&of(None), &blind), []);
        }
    }

    #[test]
    fn what_another_pid_namespace_wrote_of_the_same_number_is_not_of_this_teardown() {
        let mut history = crashed(&[]);
        let ids = vec![sample::process(10)];
        let gone = entry(Event::SeenGone { root: sample::process(10), ids });
        history.entries.push(Entry { pid_namespace: Some(8), ..gone.clone() });
        let now = snapshot("b", &[sample::process(11)]);
        assert!(matches!(courses(&history, &now)[..], [Course::Abandon { .. }]), "not seen gone by our hand");
        history.entries.push(gone);
        assert!(matches!(courses(&history, &now)[..], [Course::Continue(_)]));
    }

    #[test]
    fn what_another_boot_cut_short_is_given_up_once() {
        let mut history = crashed(&[10]);
        let now = snapshot("c", &[sample::process(11)]);
        assert!(matches!(courses(&history, &now)[..], [Course::Abandon { .. }]));
        let given_up = entry(Event::Abandoned { root: sample::process(10), why: String::new() });
        history.entries.push(Entry { boot: now.boot.clone(), ..given_up });
        assert_eq!(courses(&history, &now), []);
    }
}
