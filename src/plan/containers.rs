//! Which containers are stopped, in what order and how; and what holds the others back.

use std::collections::BTreeSet;

use crate::config::policy::{Config, ContainerPolicy};
use crate::model::container::judgement::ContainerJudgement;
use crate::model::container::stop::{Containers, Stop};
use crate::model::container::{ContainerFacts, ContainerRef};
use crate::model::look::Look;
use crate::model::moment::Moment;
use crate::model::plan::Wait;
use crate::model::question::{Answer, EngineAnswer, EngineQuestion, Question};
use crate::model::verdict::{Mode, Verdict, Verdicts};

use super::Asked;
use super::limits::{Pacer, Tripped, Whose};

/// Returns the part of a plan that is about containers: proven ones that go now, oldest suspicion first, and those that
/// wait. One that several policies condemn is planned once, by the first of them that may.
pub(super) fn containers(
    verdicts: &Verdicts,
    look: &Look,
    config: &Config,
    asked: &Asked,
    tripped: &Tripped<'_>,
) -> Containers {
    let mut pacer = Pacer::new(config.limits, asked);
    let mut plan = Containers::default();
    let mut planned: BTreeSet<&ContainerRef> = BTreeSet::new();
    for (_, judgement) in proven(verdicts, asked) {
        if planned.contains(&judgement.at) {
            continue;
        }
        match prepare(judgement, look, config, asked, tripped, &mut pacer) {
            Ok(stop) => {
                planned.insert(&judgement.at);
                plan.stops.push(stop);
            }
            Err(why) => plan.waiting.push((judgement.clone(), why)),
        }
    }
    // What one policy would have waited with goes by another one all the same.
    plan.waiting.retain(|(judgement, _)| !planned.contains(&judgement.at));
    plan
}

/// Returns what must still be asked: who removes a container is known only freshly.
pub(super) fn questions(verdicts: &Verdicts, config: &Config, asked: &Asked) -> Vec<Question> {
    proven(verdicts, asked)
        .into_iter()
        .filter(|(_, judgement)| may_go(judgement, config))
        .map(|(_, judgement)| question(&judgement.at))
        .collect()
}

fn question(at: &ContainerRef) -> Question {
    Question::Engine(EngineQuestion::Container(at.clone()))
}

/// Returns the proven ones, oldest suspicion first.
fn proven<'a>(verdicts: &'a Verdicts, asked: &Asked) -> Vec<(Moment, &'a ContainerJudgement)> {
    let wanted =
        |judgement: &&ContainerJudgement| asked.only.as_ref().is_none_or(|only| *only == judgement.policy);
    let mut found: Vec<(Moment, &ContainerJudgement)> = verdicts
        .containers
        .iter()
        .filter(wanted)
        .filter_map(|judgement| match judgement.verdict {
            Verdict::Orphaned { since } => Some((since, judgement)),
            Verdict::Protected | Verdict::Alive | Verdict::Unknown | Verdict::Suspect { .. } => None,
        })
        .collect();
    found.sort_by(|(a_since, a), (b_since, b)| {
        (a_since, a.listed.created, &a.at, &a.policy).cmp(&(b_since, b.listed.created, &b.at, &b.policy))
    });
    found
}

fn may_go(judgement: &ContainerJudgement, config: &Config) -> bool {
    config.mode == Mode::Reap && judgement.mode == Mode::Reap
}

/// Returns the stop of one proven container, or why it is left alone for now.
fn prepare(
    judgement: &ContainerJudgement,
    look: &Look,
    config: &Config,
    asked: &Asked,
    tripped: &Tripped<'_>,
    pacer: &mut Pacer,
) -> Result<Stop, Wait> {
    if !may_go(judgement, config) {
        return Err(Wait::ReportOnly);
    }
    let policy = policy(config, &judgement.policy).ok_or(Wait::Unidentified)?;
    let run = judgement.run.as_ref().map_err(|_| Wait::Unidentified)?;
    let facts = facts(look, &judgement.at).ok_or(Wait::Unidentified)?;
    // Judged was one run of it, and the engine must say right now that it is still that one.
    if facts.run != *run || run.at != judgement.at {
        return Err(Wait::Unidentified);
    }
    if !asked.released.containers.contains(&judgement.at)
        && let Some(cause) = tripped.container(&judgement.causes)
    {
        return Err(Wait::SameCause(cause));
    }
    pacer.admit(Whose::Engine(judgement.at.engine.clone()), &judgement.policy)?;
    Ok(Stop {
        judgement: judgement.clone(),
        run: run.clone(),
        grace: policy.grace,
        removal: facts.removal,
        volumes: policy.volumes,
        networks: policy.networks,
        execs: facts.execs.clone(),
    })
}

fn policy<'a>(config: &'a Config, name: &str) -> Option<&'a ContainerPolicy> {
    config.containers.iter().find(|policy| policy.name == name)
}

/// Returns what the engine said of a container at this very look.
fn facts<'a>(look: &'a Look, at: &ContainerRef) -> Option<&'a ContainerFacts> {
    match look.answers.get(&question(at))? {
        Ok(Answer::Engine(EngineAnswer::Container(facts))) => Some(facts),
        Ok(_) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::time::Duration;

    use super::*;
    use crate::config::policy::{Origin, ProofNeed};
    use crate::model::container::stop::Fate;
    use crate::model::container::{AutoRemoval, sample};
    use crate::model::evidence::Cause;
    use crate::model::known::{Reason, Unknown};
    use crate::plan::fixture::World;
    use crate::plan::{Pace, plan};

    /// A world with proven containers beside its processes, and what their engine says of each.
    struct Yard {
        world: World,
        answers: Vec<(Question, Result<Answer, Unknown>)>,
    }

    fn of_containers(name: &str) -> ContainerPolicy {
        ContainerPolicy {
            name: name.to_owned(),
            origin: Origin::Builtin,
            about: String::new(),
            mode: Mode::Reap,
            matches: Vec::new(),
            captures: BTreeMap::new(),
            reap_when: Vec::new(),
            spare_when: Vec::new(),
            proof: ProofNeed::Required,
            grace: Duration::from_secs(7),
            volumes: Fate::Remove,
            networks: Fate::Keep,
            ping: None,
        }
    }

    impl Yard {
        fn new(count: u32) -> Yard {
            let mut world = World::new();
            world.config.containers = vec![of_containers("docker-run"), of_containers("lease")];
            let mut answers = Vec::new();
            for number in 0..count {
                let mut judgement = sample::judgement(number, "docker-run");
                judgement.verdict = Verdict::Orphaned { since: Moment(u64::from(1_000 - number)) };
                world.verdicts.containers.push(judgement);
                answers.push(said(number, sample::facts(number)));
            }
            Yard { world, answers }
        }

        fn judged(&mut self, number: usize) -> &mut ContainerJudgement {
            &mut self.world.verdicts.containers[number]
        }

        /// Returns who goes and who waits, each by its number.
        fn plan(&self, asked: &Asked) -> (Vec<u64>, BTreeMap<u64, Wait>) {
            let mut look = self.world.look();
            look.answers.extend(self.answers.iter().cloned());
            let containers = plan(&self.world.verdicts, &look, &self.world.config, asked).containers;
            let number = |at: &ContainerRef| u64::from_str_radix(at.id.short(), 16).unwrap();
            (
                containers.stops.iter().map(|stop| number(&stop.judgement.at)).collect(),
                containers.waiting.into_iter().map(|(judgement, why)| (number(&judgement.at), why)).collect(),
            )
        }
    }

    fn said(number: u32, facts: ContainerFacts) -> (Question, Result<Answer, Unknown>) {
        (question(&sample::at(number)), Ok(Answer::Engine(EngineAnswer::Container(Box::new(facts)))))
    }

    fn engine() -> Cause {
        Cause::Engine(sample::at(0).engine)
    }

    #[test]
    fn only_proven_containers_go_and_only_where_reaping_is_wanted() {
        let mut yard = Yard::new(5);
        yard.judged(0).verdict = Verdict::Suspect { since: Moment(0), looks: 1 };
        yard.judged(1).verdict = Verdict::Alive;
        yard.judged(2).verdict = Verdict::Unknown;
        yard.judged(3).mode = Mode::Report;
        let unpaced = Asked { pace: Pace::Unpaced, ..Asked::default() };
        assert_eq!(yard.plan(&unpaced), (vec![4], [(3, Wait::ReportOnly)].into()));
        yard.world.config.mode = Mode::Report;
        assert_eq!(yard.plan(&unpaced), (vec![], [(3, Wait::ReportOnly), (4, Wait::ReportOnly)].into()));
    }

    #[test]
    fn the_oldest_suspicion_goes_first_and_pace_counts_containers_by_themselves() {
        let mut yard = Yard::new(4);
        // Trees of the same policy take nothing of it.
        for pid in [100, 101] {
            yard.world.add(pid, 1, pid, 500);
            yard.world.judge(pid, |judgement| judgement.policy = "docker-run".to_owned());
        }
        let (go, wait) = yard.plan(&Asked::default());
        assert_eq!((go, wait), (vec![3, 2], [(0, Wait::Pace), (1, Wait::Pace)].into()));
        let decided = Asked { pace: Pace::Unpaced, ..Asked::default() };
        assert_eq!(yard.plan(&decided).0, [3, 2, 1, 0]);
    }

    #[test]
    fn many_verdicts_on_one_engine_wait_until_released() {
        let mut yard = Yard::new(4);
        for number in 0..3 {
            yard.judged(number).causes = vec![engine()];
        }
        // One that is only suspected counts too.
        yard.judged(0).verdict = Verdict::Suspect { since: Moment(0), looks: 1 };
        let held = |numbers: &[u64]| numbers.iter().map(|n| (*n, Wait::SameCause(engine()))).collect();
        let mut asked = Asked { pace: Pace::Unpaced, ..Asked::default() };
        assert_eq!(yard.plan(&asked), (vec![3], held(&[1, 2])), "a person at the terminal releases nothing");
        asked.released.containers.insert(sample::at(1));
        assert_eq!(yard.plan(&asked), (vec![3, 1], held(&[2])));
        asked.released.causes.insert(engine());
        assert_eq!(yard.plan(&asked), (vec![3, 2, 1], [].into()));
        yard.judged(0).causes.clear();
        assert_eq!(yard.plan(&Asked { pace: Pace::Unpaced, ..Asked::default() }).0, [3, 2, 1], "two are few");
    }

    #[test]
    fn a_cause_is_counted_over_trees_and_containers_together() {
        let mount = || Cause::Mount("/mnt".into());
        let mut yard = Yard::new(1);
        yard.judged(0).causes = vec![mount()];
        for pid in [100, 101] {
            yard.world.add(pid, 1, pid, 500);
            yard.world.judge(pid, |judgement| judgement.causes = vec![mount()]);
        }
        let asked = Asked { pace: Pace::Unpaced, ..Asked::default() };
        assert_eq!(yard.plan(&asked), (vec![], [(0, Wait::SameCause(mount()))].into()));
        let trees = |yard: &Yard| {
            let look = yard.world.look();
            plan(&yard.world.verdicts, &look, &yard.world.config, &asked).teardowns.len()
        };
        assert_eq!(trees(&yard), 0);
        yard.judged(0).causes.clear();
        assert_eq!((yard.plan(&asked).0, trees(&yard)), (vec![0], 2), "the twin that hangs on nothing");
    }

    #[test]
    fn what_is_not_surely_known_waits() {
        let unpaced = Asked { pace: Pace::Unpaced, ..Asked::default() };
        let waits = (vec![], [(0, Wait::Unidentified)].into());
        let mut yard = Yard::new(1);
        assert_eq!(yard.plan(&unpaced).0, [0]);
        yard.judged(0).run = Err(Unknown::new(Reason::Hung, "which run"));
        assert_eq!(yard.plan(&unpaced), waits, "its run is unknown");

        let mut yard = Yard::new(1);
        yard.answers[0].1 = Err(Unknown::new(Reason::Hung, "the engine"));
        assert_eq!(yard.plan(&unpaced), waits, "the engine did not say");
        yard.answers.clear();
        assert_eq!(yard.plan(&unpaced), waits, "nobody asked");
        let mut again = sample::facts(0);
        again.run.started = "2026-03-11T00:00:00Z".into();
        yard.answers = vec![said(0, again)];
        assert_eq!(yard.plan(&unpaced), waits, "it was started anew");

        let mut yard = Yard::new(1);
        yard.world.config.containers.clear();
        assert_eq!(yard.plan(&unpaced), waits, "its policy is not there");
    }

    #[test]
    fn one_container_is_stopped_once_whatever_policies_condemn_it() {
        let mut yard = Yard::new(1);
        let mut again = sample::judgement(0, "lease");
        again.verdict = Verdict::Orphaned { since: Moment(0) };
        yard.world.verdicts.containers.push(again);
        let unpaced = Asked { pace: Pace::Unpaced, ..Asked::default() };
        assert_eq!(yard.plan(&unpaced), (vec![0], [].into()));
        // What waits by the one goes by the other.
        yard.judged(0).mode = Mode::Report;
        assert_eq!(yard.plan(&unpaced), (vec![0], [].into()));
        let only = Asked { only: Some("docker-run".to_owned()), ..unpaced };
        assert_eq!(yard.plan(&only), (vec![], [(0, Wait::ReportOnly)].into()));
    }

    #[test]
    fn the_policy_says_how_and_the_engine_who_removes() {
        let mut yard = Yard::new(1);
        let mut facts = sample::facts(0);
        facts.removal = AutoRemoval::No;
        facts.execs = vec!["e1".into()];
        yard.answers = vec![said(0, facts)];
        let mut look = yard.world.look();
        look.answers.extend(yard.answers.iter().cloned());
        let plan = plan(&yard.world.verdicts, &look, &yard.world.config, &Asked::default());
        let [stop] = &plan.containers.stops[..] else { panic!("{plan:?}") };
        assert_eq!((stop.removal, stop.grace), (AutoRemoval::No, Duration::from_secs(7)));
        assert_eq!((stop.volumes, stop.networks), (Fate::Remove, Fate::Keep));
        assert_eq!(stop.execs, ["e1"], "as the engine said");
        let asks = super::super::questions(
            &yard.world.verdicts,
            &yard.world.look(),
            &yard.world.config,
            &Asked::default(),
        );
        assert!(asks.contains(&question(&sample::at(0))), "{asks:?}");
    }
}
