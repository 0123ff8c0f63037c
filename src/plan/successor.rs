//! Servers whose socket has a successor: asked to end, one removes its socket by name, whoever has bound that name since
//! (C33; node and libuv do it, and so does the broker of the codex plugin). Such a tree is not asked but killed.

use std::collections::BTreeSet;

use crate::model::look::Look;
use crate::model::plan::{Ladder, Signal, Teardown};
use crate::model::question::{Answer, Binding, Family, Question};
use crate::model::verdict::Judgement;

/// Returns what must be known of the sockets of a tree before it is asked to end.
pub fn questions(judgement: &Judgement, look: &Look) -> Vec<Question> {
    let sockets = judgement.tree.iter().map(|&id| Question::Sockets(id));
    let bound = names(judgement, look);
    sockets.chain(bound).filter(|question| !look.answers.contains_key(question)).collect()
}

/// Returns the ladder of a tree that has a successor: what is left of it from KILL on. Nothing where it never kills.
///
/// Only what was seen counts: where a name leads could not be told of most servers in a container or sandbox, and
/// those are asked as ever. A name that leads to another socket of the tree has no successor: it goes with the tree.
pub(super) fn ladder(ladder: &Ladder, judgement: &Judgement, look: &Look) -> Option<Ladder> {
    let leads = |question: &Question| match look.answers.get(question) {
        Some(Ok(Answer::Bound(binding))) => Some(binding),
        _ => None,
    };
    let path = |question: &Question| {
        if let Question::Bound { path, .. } = question { Some(path.clone()) } else { None }
    };
    let is_here = |question: &Question| leads(question) == Some(&Binding::Here);
    let own: BTreeSet<_> =
        names(judgement, look).filter(is_here).filter_map(|question| path(&question)).collect();
    let replaced = |question: Question| {
        matches!(leads(&question), Some(Binding::Replaced { .. }))
            && path(&question).is_some_and(|path| !own.contains(&path))
    };
    if !names(judgement, look).any(replaced) {
        return Some(ladder.clone());
    }
    let first = ladder.0.iter().position(|rung| rung.signal == Signal::Kill)?;
    Some(Ladder(ladder.0[first..].to_vec()))
}

/// Says whether a tree must not be ended in the way that was planned: it would be asked to end, and has a successor by
/// now.
pub fn came_meanwhile(planned: &Teardown, look: &Look) -> bool {
    ladder(&planned.ladder, &planned.judgement, look).as_ref() != Some(&planned.ladder)
}

/// Where the names lead that members listen by.
fn names<'a>(judgement: &'a Judgement, look: &'a Look) -> impl Iterator<Item = Question> + 'a {
    judgement.tree.iter().flat_map(move |&of| {
        let sockets = match look.answers.get(&Question::Sockets(of)) {
            Some(Ok(Answer::Sockets(sockets))) => sockets.listeners.as_slice(),
            _ => &[],
        };
        let named = sockets.iter().filter(|listener| {
            matches!(listener.family, Family::Unix | Family::UnixDatagram) && listener.name.starts_with(b"/")
        });
        named.filter_map(move |listener| {
            Some(Question::Bound { of, path: listener.name.clone(), file: listener.file? })
        })
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::model::facts::FileSystem;
    use crate::model::id::FileId;
    use crate::model::known::{Reason, Unknown};
    use crate::model::plan::{Rung, Wait};
    use crate::model::question::{FileKind, Parent};
    use crate::plan::fixture::World;
    use crate::plan::{Asked, plan};

    const FILE: FileId = FileId { dev: 1, ino: 77 };

    fn rung(signal: Signal) -> Rung {
        Rung { signal, grace: Duration::from_secs(1) }
    }

    /// A tree of two, whose child listens by a name that leads where it says.
    fn planned(rungs: &[Signal], bound: Result<Binding, Unknown>) -> Result<Vec<Signal>, Wait> {
        let mut world = World::new();
        world.listens_at(11, FILE);
        let child = world.id(11);
        world.judge(10, |judgement| judgement.tree.push(child));
        world.config.ladder = Ladder(rungs.iter().map(|&signal| rung(signal)).collect());
        let mut look = world.look();
        let question = Question::Bound { of: child, path: "/tmp/mux".into(), file: FILE };
        let asks = crate::plan::questions(&world.verdicts, &look, &world.config, &Asked::default());
        assert!(asks.contains(&question), "{asks:?}");
        look.answers.insert(question, bound.map(Answer::Bound));
        let mut plan = plan(&world.verdicts, &look, &world.config, &Asked::default());
        match plan.teardowns.pop() {
            Some(teardown) => Ok(teardown.ladder.0.iter().map(|rung| rung.signal).collect()),
            None => Err(plan.waiting.pop().unwrap().why),
        }
    }

    fn parent() -> Parent {
        Parent {
            path: "/tmp".into(),
            file: FileId { dev: 1, ino: 2 },
            mount: "/".into(),
            on: FileSystem::Local,
        }
    }

    fn replaced() -> Binding {
        Binding::Replaced { by: FileKind::Socket, parent: parent().into() }
    }

    #[test]
    fn who_has_a_successor_is_not_asked_to_end_c33() {
        let rungs = [Signal::Int, Signal::Term, Signal::Kill];
        assert_eq!(planned(&rungs, Ok(replaced())), Ok(vec![Signal::Kill]));
        assert_eq!(planned(&[Signal::Term], Ok(replaced())), Err(Wait::Successor));
        let unknown = Err(Unknown::new(Reason::Foreign, "its mounts"));
        for bound in [Ok(Binding::Here), Ok(Binding::Absent { parent: parent().into() }), unknown] {
            assert_eq!(planned(&rungs, bound), Ok(rungs.to_vec()));
        }
    }

    /// A tree of two that listen by one name: the child's socket was replaced, and this is the root's.
    fn of_two(root: Binding) -> Vec<Signal> {
        let mut world = World::new();
        let other = FileId { dev: 1, ino: 78 };
        world.listens_at(11, FILE).listens_at(10, other);
        let (root_id, child) = (world.id(10), world.id(11));
        world.judge(10, |judgement| judgement.tree.push(child));
        world.config.ladder = Ladder([Signal::Term, Signal::Kill].map(rung).to_vec());
        let mut look = world.look();
        let named = |of, file| Question::Bound { of, path: "/tmp/mux".into(), file };
        look.answers.insert(named(child, FILE), Ok(Answer::Bound(replaced())));
        look.answers.insert(named(root_id, other), Ok(Answer::Bound(root)));
        let mut plan = plan(&world.verdicts, &look, &world.config, &Asked::default());
        plan.teardowns.pop().unwrap().ladder.0.iter().map(|rung| rung.signal).collect()
    }

    #[test]
    fn a_successor_that_goes_with_the_tree_is_none_b44() {
        assert_eq!(of_two(Binding::Here), [Signal::Term, Signal::Kill]);
        assert_eq!(of_two(replaced()), [Signal::Kill], "the twin whose other socket is lost, too");
    }
}
