//! Matches within a tree: whom the same policy would judge if it stood alone, and somebody outside the tree still holds.
//!
//! Of nested matches of one policy only the outermost is judged, and the others go with it. That is right as long as
//! what they hang on goes too. One whose own stdin or stdout leads out of the tree has an owner that lives on. That one
//! has an owner by another rule (a companion, a process that an argument names) is not looked into.

use std::collections::BTreeSet;

use crate::model::id::ProcessId;
use crate::model::known::{Reason, Unknown};
use crate::model::look::Look;
use crate::model::question::{Answer, ChannelKind, FarEnd, Question};
use crate::model::verdict::{Judgement, Verdict};

use super::candidates::Candidates;
use super::case::{Other, Standing, known};
use super::rule::{Blank, Found};

/// Inner matches of one tree.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Inner {
    /// Those that stay behind, each with the reason. What was not asked is unknown, and unknown stays.
    pub(super) held: Vec<(ProcessId, String)>,
    /// What must be asked before this is the last word.
    pub(super) asks: Vec<Question>,
}

/// Returns the inner matches of a condemned tree that stay behind.
///
/// An end that they have from the root itself is passed over: the rule that condemned the root has weighed it. So is one
/// that a member holds, since pipes are made by parents; that somebody who cannot be read holds it as well is not
/// looked into here.
pub(super) fn inner(look: &Look, candidates: &Candidates, judgement: &Judgement) -> Inner {
    let mut found = Inner::default();
    match judgement.verdict {
        Verdict::Suspect { .. } | Verdict::Orphaned { .. } => {}
        Verdict::Protected | Verdict::Alive | Verdict::Unknown => return found,
    }
    let tree: BTreeSet<ProcessId> = judgement.tree.iter().copied().collect();
    let is_inner = |other: &&Other| {
        other.root != judgement.root
            && other.policy == judgement.policy
            && other.standing == Standing::Judged
            && tree.contains(&other.root)
    };
    for other in candidates.others.iter().filter(is_inner) {
        for (fd, name) in [(0, "stdin"), (1, "stdout")] {
            let why = match outside(look, judgement.root, other.root, fd, &tree) {
                Ok(None) => continue,
                Ok(Some(holder)) => format!("process {holder} outside the tree holds its {name}"),
                Err(Blank::Unknown(unknown)) => format!("could not tell who holds its {name}: {unknown}"),
                Err(Blank::Ask(questions)) => {
                    found.asks.extend(questions);
                    format!("could not tell who holds its {name}: not asked")
                }
            };
            found.held.push((other.root, why));
        }
    }
    found.held.dedup_by_key(|(id, _)| *id);
    found
}

/// Returns who outside the tree holds the far end of a descriptor that is not the root's own.
fn outside(
    look: &Look,
    root: ProcessId,
    of: ProcessId,
    fd: u32,
    tree: &BTreeSet<ProcessId>,
) -> Found<Option<ProcessId>> {
    let ask = |of| Question::Channel { of, fd };
    let (Some(own), Some(roots)) = (look.answers.get(&ask(of)), look.answers.get(&ask(root))) else {
        return Err(Blank::Ask(vec![ask(root), ask(of)]));
    };
    let Answer::Channel(channel) = known(own)? else { return Ok(None) };
    let is_the_roots = matches!(roots, Ok(Answer::Channel(roots)) if roots.kind == channel.kind);
    if is_the_roots || !matches!(channel.kind, ChannelKind::Pipe { .. } | ChannelKind::Stream { .. }) {
        return Ok(None);
    }
    if *known(&channel.far)? == FarEnd::Gone {
        return Ok(None);
    }
    let ask = Question::Holders { of, fd };
    let Some(answer) = look.answers.get(&ask) else { return Err(Blank::Ask(vec![ask])) };
    let Answer::Holders(holders) = known(answer)? else { return Ok(None) };
    if holders.seen.is_empty() {
        return Err(Unknown::new(Reason::Foreign, "nobody who can be seen").into());
    }
    Ok(holders.seen.iter().copied().find(|id| !tree.contains(id)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::judge::rules::support::{ROOT, Scene, id, pipe};
    use crate::model::question::Channel;

    /// The root, and below it one that the same policy matches; 70 is somebody outside.
    fn scene() -> Scene {
        Scene::orphan()
            .process(51, ROOT)
            .process(70, 1)
            .fd(ROOT, 0, numbered(1, FarEnd::Gone))
            .fd(ROOT, 1, numbered(2, FarEnd::Gone))
            .fd(51, 0, numbered(1, FarEnd::Gone))
            .fd(51, 1, numbered(2, FarEnd::Gone))
    }

    fn numbered(inode: u64, far: FarEnd) -> Channel {
        Channel { kind: ChannelKind::Pipe { inode }, ..pipe(far) }
    }

    /// Judges it by a policy that matches both and takes the root for an orphan.
    fn found(scene: &Scene) -> (Vec<i32>, Vec<Question>) {
        let look = scene.look();
        let config = crate::judge::tests::greedy();
        let candidates = crate::judge::candidates(&look, &config);
        let (verdicts, _) =
            crate::judge::judge(&look, &config, &candidates, &crate::judge::Ledger::default());
        let judgement = verdicts.judgements.iter().find(|judgement| judgement.root == id(ROOT)).unwrap();
        assert_eq!(judgement.tree, [id(ROOT), id(51)]);
        let asks = crate::judge::questions(&look, &config, &candidates, &crate::judge::Ledger::default());
        let protected = verdicts.protected.iter().map(|(id, _)| id.pid.number()).collect();
        (protected, asks)
    }

    #[test]
    fn an_inner_match_whose_ends_lead_out_of_the_tree_stays_behind() {
        assert_eq!(found(&scene()), (vec![], vec![]), "it has what the root has");
        for fd in [0, 1] {
            let held = scene().fd(51, fd, numbered(7, FarEnd::Held));
            let unasked = found(&held);
            assert_eq!(unasked, (vec![51], vec![Question::Holders { of: id(51), fd }]), "unknown stays");
            assert_eq!(found(&held.clone().held_by(51, fd, &[70])), (vec![51], vec![]));
            assert_eq!(found(&held.clone().held_by(51, fd, &[ROOT, 70])), (vec![51], vec![]));
            assert_eq!(
                found(&held.clone().held_by(51, fd, &[ROOT])),
                (vec![], vec![]),
                "what it hangs on goes"
            );
            assert_eq!(
                found(&held.clone().held_by(51, fd, &[])),
                (vec![51], vec![]),
                "held, and by nobody seen"
            );
            let refused = held.refused(Question::Holders { of: id(51), fd }, Reason::Denied);
            assert_eq!(found(&refused), (vec![51], vec![]));
            let the_roots = scene().fd(ROOT, fd, numbered(7, FarEnd::Held));
            let the_roots = the_roots.fd(51, fd, numbered(7, FarEnd::Held)).held_by(51, fd, &[70]);
            assert_eq!(found(&the_roots), (vec![], vec![]), "the root's own was weighed by a rule");
            let ended = scene().fd(51, fd, numbered(7, FarEnd::Gone));
            assert_eq!(found(&ended), (vec![], vec![]));
            let unread = scene().refused(Question::Channel { of: id(51), fd }, Reason::Denied);
            assert_eq!(found(&unread), (vec![51], vec![]));
        }
    }

    #[test]
    fn a_tree_that_is_kept_anyway_asks_nothing_of_it() {
        let kept = scene().unasked(&Question::Channel { of: id(51), fd: 0 }).row(ROOT, |row| {
            row.state = crate::model::table::State::Stopped;
        });
        assert_eq!(found(&kept).1, []);
    }
}
