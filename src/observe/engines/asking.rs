//! The calls of one look: all engines at once, a few at a time of each, every one with its deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bstr::BString;
use tokio::task::JoinSet;

use crate::engine::{self, Client, ExecInspected, Fault, Inspected, Which};
use crate::model::container::{ContainerId, EngineId, Listed};

/// Calls to one engine at a time.
const LANES: usize = 8;

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

/// Makes calls, and returns what came back in their order.
pub(super) fn ask(
    asked: Vec<(Client, Asked)>,
    env: &BTreeSet<BString>,
) -> Result<Vec<Result<Said, Fault>>, Fault> {
    let count = asked.len();
    let env = Arc::new(env.clone());
    engine::run(async move {
        let mut engines: BTreeMap<EngineId, Vec<Lane>> = BTreeMap::new();
        for (at, (client, asked)) in asked.into_iter().enumerate() {
            let lanes = engines.entry(client.id().clone()).or_default();
            if lanes.len() < LANES {
                let silent = lanes.first().map_or_else(Arc::default, |lane| Arc::clone(&lane.silent));
                lanes.push(Lane { client, silent, asked: vec![(at, asked)] });
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
        for (at, answer) in running.join_all().await.into_iter().flatten() {
            answers[at] = answer;
        }
        answers
    })
}

/// Calls to one engine, one after the other.
struct Lane {
    client: Client,
    /// Whether that engine let somebody wait in vain: then nobody waits for it again.
    silent: Arc<AtomicBool>,
    asked: Vec<(usize, Asked)>,
}

impl Lane {
    async fn run(self, env: Arc<BTreeSet<BString>>) -> Vec<(usize, Result<Said, Fault>)> {
        let mut answers = Vec::with_capacity(self.asked.len());
        for (at, asked) in self.asked {
            if self.silent.load(Ordering::Relaxed) {
                answers.push((at, Err(Fault::Hung)));
                continue;
            }
            let answer = call(&self.client, asked, &env).await;
            if matches!(answer, Err(Fault::Hung)) {
                self.silent.store(true, Ordering::Relaxed);
            }
            answers.push((at, answer));
        }
        answers
    }
}

async fn call(client: &Client, asked: Asked, env: &BTreeSet<BString>) -> Result<Said, Fault> {
    Ok(match asked {
        Asked::Container(id) => Said::Container(client.inspect(&id, env).await?.map(Box::new)),
        Asked::Image(image) => Said::Image(client.image_labels(&image).await?),
        Asked::Exec(exec) => Said::Exec(client.exec(&exec).await?),
    })
}
