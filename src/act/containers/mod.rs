//! Stops containers: several at once, so that many take one grace and not many, each step written down before it is
//! made, and each end as seen by listing again.
//!
//! "Stopped" is what an engine says; whether a container is gone, only its list says (CASES C11, C12, C16). A container
//! that its engine starts anew is never fought over (C15): found changed, it is left alone.

mod calls;
mod lister;
mod one;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::task::Poll;
use std::time::Duration;

use calls::Calls;
use lister::Lister;
use one::Ending;

use crate::engine::{self, Client};
use crate::model::container::stop::{Stop, StopOutcome, StopReport, StopStep};
use crate::model::container::{ContainerRef, EngineId};
use crate::model::moment::Moment;

/// So many are stopped at a time. Each holds a connection to its engine for as long as its grace.
pub const AT_ONCE: usize = 64;

/// Who is told what is done, and knows the time.
pub trait Witness {
    /// Returns the boot clock.
    fn now(&mut self) -> Moment;
    /// Writes down a step that is about to be made. Where it cannot be written down, it is not made.
    fn step(&mut self, at: &ContainerRef, step: &StopStep) -> Result<(), String>;
    /// Writes down what became of a container.
    fn ended(&mut self, report: &StopReport);
}

/// Several tell one at a time.
type Told<'w> = RefCell<&'w mut (dyn Witness + 'w)>;

/// What is found where a container is to be ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Begin {
    /// It runs: it is stopped, and what is left of it removed.
    Running,
    /// It has ended by our hand, as the journal says: what is left of it is removed.
    Ended,
}

/// The pauses before a list is asked for once more: a container that was just stopped, or removed, may be listed a
/// moment longer. They bound every retry.
#[derive(Debug, Clone, Copy)]
struct Pauses([Duration; 3]);

const PAUSES: Pauses =
    Pauses([Duration::from_millis(100), Duration::from_millis(400), Duration::from_millis(1_500)]);

/// Carries out these stops side by side and returns what became of each, in their order. `patience` is the deadline of
/// each call, beyond the grace where one is given; nothing here waits longer than the longest grace and some such
/// deadlines.
pub fn carry_out(
    stops: &[Stop],
    begin: Begin,
    patience: Duration,
    witness: &mut dyn Witness,
) -> Vec<StopReport> {
    let witness: Told<'_> = RefCell::new(witness);
    let all = engine::run(async {
        let mut clients: BTreeMap<&EngineId, Result<Client, String>> = BTreeMap::new();
        for stop in stops {
            let engine = &stop.run.at.engine;
            if !clients.contains_key(engine) {
                let client = Client::connect(engine, patience).await.map_err(|fault| fault.to_string());
                clients.insert(engine, client);
            }
        }
        side_by_side(stops, &clients, begin, PAUSES, &witness).await
    });
    all.unwrap_or_else(|fault| {
        stops.iter().map(|stop| untouched(stop, &fault.to_string(), &witness)).collect()
    })
}

/// Carries them out by these engines.
async fn side_by_side<C: Calls>(
    stops: &[Stop],
    engines: &BTreeMap<&EngineId, Result<C, String>>,
    begin: Begin,
    pauses: Pauses,
    witness: &Told<'_>,
) -> Vec<StopReport> {
    let listers: BTreeMap<&EngineId, Result<Lister<'_, C>, &str>> = engines
        .iter()
        .map(|(id, calls)| (*id, calls.as_ref().map(Lister::new).map_err(String::as_str)))
        .collect();
    let endings = stops.iter().map(|stop| {
        let lister = listers.get(&stop.run.at.engine);
        async move {
            match lister {
                Some(Ok(lister)) => Ending::new(stop, lister, pauses, witness).run(begin).await,
                Some(Err(why)) => untouched(stop, why, witness),
                None => untouched(stop, "its engine is not known", witness),
            }
        }
    });
    driven(endings).await
}

/// Returns the report of a container that nothing was done to, and has it written down.
fn untouched(stop: &Stop, why: &str, witness: &Told<'_>) -> StopReport {
    let mut witness = witness.borrow_mut();
    let now = witness.now();
    let report = report(stop, Vec::new(), StopOutcome::Untouched(why.to_owned()), (now, now));
    witness.ended(&report);
    report
}

/// Returns the report of one stop.
pub fn report(
    stop: &Stop,
    steps: Vec<(StopStep, Option<String>)>,
    outcome: StopOutcome,
    span: (Moment, Moment),
) -> StopReport {
    StopReport {
        at: stop.run.at.clone(),
        name: stop.judgement.listed.names.first().cloned().unwrap_or_default(),
        policy: stop.judgement.policy.clone(),
        steps,
        outcome,
        resident: stop.judgement.resident,
        span,
    }
}

/// Drives futures side by side, at most [`AT_ONCE`] at a time, and returns what came of each, in their order.
async fn driven<F: Future>(futures: impl IntoIterator<Item = F>) -> Vec<F::Output> {
    let mut waiting = futures.into_iter().enumerate().fuse();
    let mut running: Vec<(usize, Pin<Box<F>>)> = Vec::new();
    let mut ended: BTreeMap<usize, F::Output> = BTreeMap::new();
    poll_fn(|context| {
        loop {
            while running.len() < AT_ONCE {
                let Some((at, future)) = waiting.next() else { break };
                running.push((at, Box::pin(future)));
            }
            if running.is_empty() {
                return Poll::Ready(());
            }
            let before = running.len();
            running.retain_mut(|(at, future)| match future.as_mut().poll(context) {
                Poll::Ready(output) => {
                    ended.insert(*at, output);
                    false
                }
                Poll::Pending => true,
            });
            if running.len() == before {
                return Poll::Pending;
            }
        }
    })
    .await;
    ended.into_values().collect()
}

#[cfg(test)]
mod tests;
