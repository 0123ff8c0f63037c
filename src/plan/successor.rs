//! Servers whose socket has a successor: asked to end, one removes its socket by name, whoever has bound that name since
//! (C33; node and libuv do it, and so does the broker of the codex plugin). Such a tree is not asked but killed.

use crate::model::look::Look;
use crate::model::plan::{Ladder, Signal};
use crate::model::question::{Answer, Binding, Family, Question};
use crate::model::verdict::Judgement;

/// Returns what must be known of the sockets of a tree before it is asked to end.
pub(super) fn questions(judgement: &Judgement, look: &Look) -> Vec<Question> {
    let sockets = judgement.tree.iter().map(|&id| Question::Sockets(id));
    let bound = names(judgement, look);
    sockets.chain(bound).filter(|question| !look.answers.contains_key(question)).collect()
}

/// Returns the ladder of a tree that has a successor: what is left of it from KILL on. Nothing where it never kills.
///
/// Only what was seen counts: where a name leads could not be told of most servers in a container or sandbox, and
/// those are asked as ever.
pub(super) fn ladder(ladder: &Ladder, judgement: &Judgement, look: &Look) -> Option<Ladder> {
    let replaced = |question: Question| {
        matches!(look.answers.get(&question), Some(Ok(Answer::Bound(Binding::Replaced { .. }))))
    };
    if !names(judgement, look).any(replaced) {
        return Some(ladder.clone());
    }
    let first = ladder.0.iter().position(|rung| rung.signal == Signal::Kill)?;
    Some(Ladder(ladder.0[first..].to_vec()))
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

    #[test]
    fn who_has_a_successor_is_not_asked_to_end_c33() {
        let rungs = [Signal::Int, Signal::Term, Signal::Kill];
        let replaced = || Ok(Binding::Replaced { by: FileKind::Socket, parent: parent().into() });
        assert_eq!(planned(&rungs, replaced()), Ok(vec![Signal::Kill]));
        assert_eq!(planned(&[Signal::Term], replaced()), Err(Wait::Successor));
        let unknown = Err(Unknown::new(Reason::Foreign, "its mounts"));
        for bound in [Ok(Binding::Here), Ok(Binding::Absent { parent: parent().into() }), unknown] {
            assert_eq!(planned(&rungs, bound), Ok(rungs.to_vec()));
        }
    }
}
