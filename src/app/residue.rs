//! What trees left behind: looked for at every look, planned beside the trees, and removed last.

mod clear;

pub use clear::{Clearance, carry_out, take_up};

use std::collections::BTreeSet;

use bstr::BString;

use super::look::Eyes;
use crate::config::policy::{AdmitEnv, Config, Policy, Residue, Root};
use crate::judge::Ledger;
use crate::judge::residue::{Ground, Judged, Verdict, judge, may_be_left, open};
use crate::model::known::{Known, Reason, Unknown};
use crate::model::look::{Gap, Look, Scope};
use crate::model::plan::{self as planned, Plan, Teardown};
use crate::model::residue::{Ask, Fate, Left, Remains, Removal, Served, Told};
use crate::plan::residue as plan;

/// Most names that everybody alive is asked for at one look: each argument of everybody is searched for each.
const NAMES_MOST: usize = 1_200;

/// What one look found, each with its policy.
#[derive(Debug, Default)]
pub struct Found<'a> {
    judged: Vec<(&'a Policy, Vec<Judged>)>,
    /// Where the looking stopped short.
    pub gaps: Vec<Gap>,
}

/// Where residue is looked for, and for which policies.
#[derive(Debug, Clone, Copy)]
pub struct Seek<'a> {
    /// The configuration.
    pub config: &'a Config,
    /// The temporary directories.
    pub temporary: &'a [BString],
    /// The only policy that was asked for.
    pub only: Option<&'a str>,
}

impl<'a> Seek<'a> {
    fn policies(&self) -> impl Iterator<Item = (&'a Policy, &'a Residue)> + use<'a> {
        let only = self.only;
        let wanted = move |policy: &&Policy| only.is_none_or(|only| only == policy.name);
        let policies = self.config.policies.iter().filter(wanted);
        policies.filter_map(|policy| policy.residue.as_ref().map(|residue| (policy, residue)))
    }

    /// Returns the directories in which a tree's own may be removed.
    fn roots(&self, residue: &Residue) -> Vec<BString> {
        residue.roots.iter().flat_map(|root| self.paths(root)).collect()
    }

    /// Returns the directories in which what was left long ago is looked for. It bears no mark, so under `admit-env`
    /// only directories by name are looked into: whoever wrote one meant it.
    fn searched(&self, residue: &Residue) -> Vec<BString> {
        let mut roots = Vec::new();
        for root in &residue.roots {
            match (root, &self.config.scope) {
                (Root::Temporary, AdmitEnv::Marked { .. }) => {}
                (root, AdmitEnv::Marked { .. } | AdmitEnv::Everybody) => roots.extend(self.paths(root)),
            }
        }
        roots
    }

    fn paths(&self, root: &Root) -> Vec<BString> {
        match root {
            Root::Temporary => self.temporary.to_vec(),
            Root::Directory(path) => vec![path.as_str().into()],
        }
    }

    fn asks(&self, residue: &Residue, look: &Look) -> Vec<Ask> {
        let own = &look.snapshot.own;
        let user = match own.scope {
            Scope::User => Some(own.uid),
            Scope::Host => None,
        };
        let roots = self.searched(residue);
        if residue.stale.is_empty() || roots.is_empty() {
            return Vec::new();
        }
        let names = residue.stale.iter().map(|glob| glob.text.clone()).collect();
        let mut asks = vec![Ask::Stale { roots: roots.clone(), names, user }];
        if let Some(records) = &residue.records {
            let mut places = Vec::new();
            for place in &records.files {
                places.extend(self.paths(&place.base).into_iter().map(|base| (base, place.below.clone())));
            }
            let (key, strip) = (records.key.clone(), records.strip.clone());
            asks.push(Ask::Records { places, key, strip, roots, user });
        }
        asks
    }
}

/// Looks for what was left long ago, and judges it.
pub fn look<'a>(eyes: &mut dyn Eyes, seek: Seek<'a>, look: &Look, ledger: &Ledger) -> Found<'a> {
    let mut found = Found::default();
    let mut all: Vec<(&Policy, &Residue, Vec<Left>)> = Vec::new();
    for (policy, residue) in seek.policies() {
        let asks = seek.asks(residue, look);
        if asks.is_empty() {
            continue;
        }
        let mut left = Vec::new();
        for told in eyes.residue(asks) {
            match told.and_then(seen) {
                Ok((some, gaps)) => {
                    left.extend(some);
                    found.gaps.extend(gaps);
                }
                Err(why) if why.reason == Reason::NotAsked => {}
                Err(why) => {
                    let source = format!("what trees of {} left behind", policy.name);
                    found.gaps.push(Gap { source, why, cure: None });
                }
            }
        }
        all.push((policy, residue, left));
    }
    let mut names: Vec<(i64, BString)> = Vec::new();
    for (_, residue, left) in &all {
        names.extend(open(left, residue, seek.config, look));
    }
    names.sort();
    let asked: BTreeSet<BString> = names.into_iter().map(|(_, name)| name).take(NAMES_MOST).collect();
    let (served, named) = used(eyes, &asked);
    for (policy, residue, left) in all {
        let config = seek.config;
        let ground = Ground { residue, config, look, ledger, served: &served, asked: &asked, named: &named };
        found.judged.push((policy, judge(&left, &ground)));
    }
    found
}

type Named = Known<std::collections::BTreeMap<BString, crate::model::id::Pid>>;

/// Asks who uses any of these names; nobody is asked for none.
fn used(eyes: &mut dyn Eyes, names: &BTreeSet<BString>) -> (Known<Served>, Named) {
    if names.is_empty() {
        return (Err(misfit()), Err(misfit()));
    }
    // Sockets last: who begins to serve meanwhile has a socket before anybody is told of it.
    let mut told = eyes.residue(vec![Ask::Named(names.iter().cloned().collect()), Ask::Served]).into_iter();
    let named = told.next().unwrap_or_else(|| Err(misfit()));
    let served = told.next().unwrap_or_else(|| Err(misfit()));
    let named = named.and_then(|told| if let Told::Named(named) = told { Ok(named) } else { Err(misfit()) });
    let served =
        served.and_then(|told| if let Told::Served(served) = told { Ok(served) } else { Err(misfit()) });
    (served, named)
}

fn seen(told: Told) -> Known<(Vec<Left>, Vec<Gap>)> {
    match told {
        Told::Left { left, gaps } => Ok((left, gaps)),
        Told::Named(_) | Told::Served(_) => Err(misfit()),
    }
}

fn misfit() -> Unknown {
    Unknown::new(Reason::NotAsked, "who still uses what was left behind")
}

impl Found<'_> {
    /// Has the ledger remember what was there.
    pub fn remember(&self, ledger: &mut Ledger, look: &Look) {
        let all = self.judged.iter().flat_map(|(_, judged)| judged).map(|one| &one.left);
        ledger.remember_left(all, look.snapshot.began.boot);
    }

    /// Returns it as it would be after a further look that agrees.
    #[must_use]
    pub fn foreseen(mut self) -> Self {
        for one in self.judged.iter_mut().flat_map(|(_, judged)| judged) {
            if one.verdict == Verdict::Suspect {
                one.verdict = Verdict::Stale;
            }
        }
        self
    }

    /// Returns what became of a removal that was not found again as it was. It is gone only where everything was
    /// looked at, and nothing else is in its place.
    fn without(&self, removal: &Removal) -> Fate {
        let mut all = self.judged.iter().flat_map(|(_, judged)| judged);
        if all.any(|one| *one.left.place() == removal.place) {
            return Fate::Changed("another is there by now".to_owned());
        }
        match self.gaps.first() {
            Some(gap) => Fate::Kept(gap.why.to_string()),
            None => Fate::Gone,
        }
    }

    fn stale(&self) -> Vec<(&Policy, &Left)> {
        let mut stale = Vec::new();
        for (policy, judged) in &self.judged {
            for one in judged.iter().filter(|one| one.verdict == Verdict::Stale) {
                stale.push((*policy, &one.left));
            }
        }
        stale
    }
}

/// Plans what goes of what was found, and what the trees of the plan will leave.
pub fn plan(
    eyes: &mut dyn Eyes,
    seek: Seek<'_>,
    look: &Look,
    plan: &Plan,
    found: &Found<'_>,
) -> planned::Residue {
    let trees = plan.teardowns.iter().filter_map(|teardown| left_by(eyes, seek, look, teardown)).collect();
    let mut residue = plan::residue(&found.stale(), trees, seek.config);
    for (policy, judged) in &found.judged {
        for one in judged {
            let why = match &one.verdict {
                Verdict::Kept(why) | Verdict::Unknown(why) => why.clone(),
                Verdict::Suspect => "it was not yet seen so for long enough".to_owned(),
                Verdict::Stale => continue,
            };
            residue.kept.push((Removal::new(&policy.name, &one.left, None), why));
        }
    }
    residue
}

/// Returns the directory that a tree will leave, as it is now; nothing where none of it could go anyhow.
fn left_by(eyes: &mut dyn Eyes, seek: Seek<'_>, look: &Look, teardown: &Teardown) -> Option<Removal> {
    let judgement = &teardown.judgement;
    let (policy, residue) = seek.policies().find(|(policy, _)| policy.name == judgement.policy)?;
    let path = plan::directory(judgement, policy)?;
    // A path means what the tree means by it only where its mounts are ours.
    let own = look.snapshot.own.namespaces.as_ref().ok()?;
    let theirs = look.facts(judgement.root)?.ok()?.namespaces.as_ref().ok()?;
    if own.mount != theirs.mount {
        return None;
    }
    let remains = at(eyes, path, seek.roots(residue)).ok()??;
    may_be_left(&remains, residue, judgement.uid).ok()?;
    Some(Removal::new(&policy.name, &Left::Directory(remains), Some(judgement.root)))
}

/// Returns what stands at a path; nothing only where the looking came to its end.
fn at(eyes: &mut dyn Eyes, path: BString, roots: Vec<BString>) -> Known<Option<Remains>> {
    let told = eyes.residue(vec![Ask::Directory { path, roots }]).into_iter().next();
    let (left, gaps) = told.unwrap_or_else(|| Err(misfit())).and_then(seen)?;
    let found = left.into_iter().find_map(|left| match left {
        Left::Directory(remains) => Some(remains),
        Left::Record(_) => None,
    });
    match (found, gaps.into_iter().next()) {
        (None, Some(gap)) => Err(gap.why),
        (found, _) => Ok(found),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::app::machine::Machine;
    use crate::app::sample;
    use crate::model::moment::Clocks;
    use crate::model::question::{Answer, Question};

    /// Eyes that tell one thing of every place.
    struct Telling<'a>(Machine<'a>, Told);

    impl Eyes for Telling<'_> {
        fn table(&mut self) -> Result<crate::model::look::Snapshot, crate::app::trouble::Trouble> {
            self.0.table()
        }

        fn answer(
            &mut self,
            snapshot: &crate::model::look::Snapshot,
            questions: &[Question],
        ) -> Vec<(Question, Known<Answer>)> {
            self.0.answer(snapshot, questions)
        }

        fn clocks(&mut self) -> Clocks {
            self.0.clocks()
        }

        fn pin(&mut self, _: &[crate::model::id::ProcessId]) {}

        fn lost(&mut self) -> Vec<crate::model::id::ProcessId> {
            Vec::new()
        }

        fn residue(&mut self, asked: Vec<Ask>) -> Vec<Known<Told>> {
            asked.iter().map(|_| Ok(self.1.clone())).collect()
        }
    }

    fn gap() -> Gap {
        let why = Unknown::new(Reason::Hung, "'/tmp'");
        Gap { source: "what was left in /tmp".into(), why, cure: None }
    }

    fn remains() -> Remains {
        let removal = sample::removal("pv-1");
        Remains {
            place: removal.place,
            own: removal.own,
            entries: Ok(removal.entries),
            numbers: crate::model::residue::Numbers::Alike,
        }
    }

    #[test]
    fn nothing_is_there_only_where_the_looking_came_to_its_end() {
        let told = |left: Vec<Left>, gaps: Vec<Gap>| {
            let mut eyes = Telling(Machine::new(""), Told::Left { left, gaps });
            at(&mut eyes, "/tmp/pv-1".into(), vec!["/tmp".into()])
        };
        assert_eq!(told(Vec::new(), Vec::new()), Ok(None));
        assert_eq!(told(Vec::new(), vec![gap()]), Err(gap().why));
        let there = vec![Left::Directory(remains())];
        assert_eq!(told(there, vec![gap()]), Ok(Some(remains())));
    }

    #[test]
    fn what_is_not_found_again_is_gone_only_where_everything_was_looked_at() {
        let removal = sample::removal("pv-1");
        let fate = |left: Option<Remains>, gaps: Vec<Gap>| {
            let judged = left.map(|left| Judged { left: Left::Directory(left), verdict: Verdict::Stale });
            let policy = sample::policy("p");
            let judged = vec![(&policy, judged.into_iter().collect())];
            Found { judged, gaps }.without(&removal)
        };
        assert_eq!(fate(None, Vec::new()), Fate::Gone);
        assert!(matches!(fate(None, vec![gap()]), Fate::Kept(why) if why == gap().why.to_string()));
        let mut other = remains();
        other.own.file.ino += 1;
        assert!(matches!(fate(Some(other), Vec::new()), Fate::Changed(_)));
    }
}
