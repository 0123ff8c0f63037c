//! The calls of one look: all engines at once, a few at a time of each, every one with its deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bstr::BString;
use tokio::task::JoinSet;

use crate::engine::{self, Client, ExecInspected, Fault, Inspected, Which};
use crate::model::container::{ContainerId, EngineId, Listed};

/// Calls to one engine at a time.
const LANES: usize = 8;

/// So many deadlines of a call one engine may take for all questions of a look.
const DEADLINES: u32 = 20;

/// What each engine may still take of our time at one look. A slow one would otherwise hold up everything else, call
/// by call, and never be late.
#[derive(Debug)]
pub(super) struct Budgets {
    whole: Duration,
    left: BTreeMap<EngineId, Duration>,
}

impl Budgets {
    /// Returns those of a look, by the deadline of one call.
    pub(super) fn new(limit: Duration) -> Budgets {
        Budgets { whole: limit.saturating_mul(DEADLINES), left: BTreeMap::new() }
    }

    fn left(&self, engine: &EngineId) -> Duration {
        self.left.get(engine).copied().unwrap_or(self.whole)
    }
}

/// What came of one engine: who answers, and what it lists.
pub(super) type Heard = (EngineId, Result<(Client, Result<Vec<Listed>, Fault>), Fault>);

/// Asks every engine who it is and what it runs. None waits for another, and none takes longer than the deadline.
pub(super) fn list(engines: Vec<EngineId>, limit: Duration) -> Result<Vec<Heard>, Fault> {
    engine::run(async move {
        let mut asked = JoinSet::new();
        for id in engines {
            asked.spawn(async move {
                let heard = tokio::time::timeout(limit, hear(&id, limit)).await;
                (id, heard.unwrap_or(Err(Fault::Hung)))
            });
        }
        let mut heard = asked.join_all().await;
        heard.sort_by(|(one, _), (other, _)| one.cmp(other));
        heard
    })
}

async fn hear(id: &EngineId, limit: Duration) -> Result<(Client, Result<Vec<Listed>, Fault>), Fault> {
    let client = Client::connect(id, limit).await?;
    let listed = client.list(Which::Live).await;
    Ok((client, listed))
}

/// One call.
#[derive(Debug, Clone)]
pub(super) enum Asked {
    /// What an engine says of a container.
    Container(ContainerId),
    /// The labels of an image.
    Image(String),
    /// What an engine says of a command in a container.
    Exec(String),
}

/// What came back.
#[derive(Debug)]
pub(super) enum Said {
    Container(Option<Box<Inspected>>),
    Image(BTreeMap<String, String>),
    Exec(Option<ExecInspected>),
}

/// Makes calls, and returns what came back in their order. What an engine has no time left for is unknown, as if it had
/// not answered.
pub(super) fn ask(
    asked: Vec<(Client, Asked)>,
    env: &BTreeSet<BString>,
    budgets: &mut Budgets,
) -> Result<Vec<Result<Said, Fault>>, Fault> {
    let count = asked.len();
    let env = Arc::new(env.clone());
    engine::run(async move {
        let mut engines: BTreeMap<EngineId, Vec<Lane>> = BTreeMap::new();
        for (at, (client, asked)) in asked.into_iter().enumerate() {
            let lanes = engines.entry(client.id().clone()).or_default();
            if lanes.len() < LANES {
                let silent = lanes.first().map_or_else(Arc::default, |lane| Arc::clone(&lane.silent));
                let left = budgets.left(client.id());
                lanes.push(Lane { client, silent, left, asked: vec![(at, asked)] });
            } else if let Some(lane) = lanes.get_mut(at % LANES) {
                lane.asked.push((at, asked));
            }
        }
        let mut running = JoinSet::new();
        for lane in engines.into_values().flatten() {
            running.spawn(lane.run(Arc::clone(&env)));
        }
        let mut answers: Vec<Result<Said, Fault>> = Vec::new();
        answers.resize_with(count, || Err(Fault::Hung));
        for Ran { engine, left, answers: came } in running.join_all().await {
            // Its lanes run side by side: what the longest took is what it cost.
            let least = budgets.left(&engine).min(left);
            budgets.left.insert(engine, least);
            for (at, answer) in came {
                answers[at] = answer;
            }
        }
        answers
    })
}

/// Calls to one engine, one after the other.
struct Lane {
    client: Client,
    /// Whether that engine let somebody wait in vain: then nobody waits for it again.
    silent: Arc<AtomicBool>,
    /// What is left of its time.
    left: Duration,
    asked: Vec<(usize, Asked)>,
}

/// What came of one lane.
struct Ran {
    engine: EngineId,
    left: Duration,
    answers: Vec<(usize, Result<Said, Fault>)>,
}

impl Lane {
    async fn run(self, env: Arc<BTreeSet<BString>>) -> Ran {
        let began = Instant::now();
        let mut answers = Vec::with_capacity(self.asked.len());
        for (at, asked) in self.asked {
            let left = self.left.saturating_sub(began.elapsed());
            if left.is_zero() || self.silent.load(Ordering::Relaxed) {
                answers.push((at, Err(Fault::Hung)));
                continue;
            }
            let answer = tokio::time::timeout(left, call(&self.client, asked, &env)).await;
            let answer = answer.unwrap_or(Err(Fault::Hung));
            if matches!(answer, Err(Fault::Hung)) {
                self.silent.store(true, Ordering::Relaxed);
            }
            answers.push((at, answer));
        }
        let left = self.left.saturating_sub(began.elapsed());
        Ran { engine: self.client.id().clone(), left, answers }
    }
}

async fn call(client: &Client, asked: Asked, env: &BTreeSet<BString>) -> Result<Said, Fault> {
    Ok(match asked {
        Asked::Container(id) => Said::Container(client.inspect(&id, env).await?.map(Box::new)),
        Asked::Image(image) => Said::Image(client.image_labels(&image).await?),
        Asked::Exec(exec) => Said::Exec(client.exec(&exec).await?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::fake::{Fake, Reply};

    #[test]
    fn an_engine_has_one_budget_for_all_questions_of_a_look() {
        let fake = Fake::docker([("GET /v1.41/containers/", Reply::Silence)]);
        // The deadline of a call is not what ends this.
        let client = engine::run(Client::connect(&fake.id(), Duration::from_mins(5))).unwrap().unwrap();
        let mut budgets = Budgets::new(Duration::from_millis(10));
        let asked = |budgets: &mut Budgets| {
            let id = ContainerId::new(&"a".repeat(64)).unwrap();
            let before = fake.heard().len();
            let mut said =
                ask(vec![(client.clone(), Asked::Container(id))], &BTreeSet::new(), budgets).unwrap();
            assert!(matches!(said.remove(0), Err(Fault::Hung)));
            fake.heard().len() - before
        };
        let began = Instant::now();
        assert_eq!(asked(&mut budgets), 1);
        assert!(began.elapsed() >= Duration::from_millis(200), "{:?}", began.elapsed());
        assert!(budgets.left(client.id()).is_zero(), "{budgets:?}");
        assert_eq!(asked(&mut budgets), 0, "nothing is left");
        assert_eq!(asked(&mut Budgets::new(Duration::from_millis(10))), 1, "the next look has its own");
    }
}
