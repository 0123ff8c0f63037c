//! One list for all who wait for one: whether many containers are gone is one question.

use std::rc::Rc;
use std::time::Instant;

use tokio::sync::Mutex;

use super::calls::Calls;
use crate::engine::Fault;
use crate::model::container::Listed;

/// What a list said, and when it was asked for.
type Latest = Option<(Instant, Result<Rc<[Listed]>, Silence>)>;

/// Lists the containers of one engine.
#[derive(Debug)]
pub(super) struct Lister<'a, C> {
    pub(super) calls: &'a C,
    latest: Mutex<Latest>,
}

/// Why there is no list.
#[derive(Debug, Clone)]
pub(super) struct Silence {
    /// In words.
    pub(super) why: String,
    /// Whether it is worth asking again.
    pub(super) again: Again,
}

/// Whether it is worth asking again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Again {
    /// The engine answered, or is being started anew.
    Soon,
    /// A whole deadline has passed: it hangs, and a sweep must not hang with it.
    Never,
}

impl<'a, C: Calls> Lister<'a, C> {
    pub(super) fn new(calls: &'a C) -> Lister<'a, C> {
        Lister { calls, latest: Mutex::new(None) }
    }

    /// Returns every container, by a list that was asked for after this call began. Whoever comes while one is on its
    /// way shares the next.
    pub(super) async fn list(&self) -> Result<Rc<[Listed]>, Silence> {
        let asked = Instant::now();
        let mut latest = self.latest.lock().await;
        if let Some((began, said)) = &*latest
            && *began >= asked
        {
            return said.clone();
        }
        let began = Instant::now();
        let said = self.calls.list().await.map(Rc::from).map_err(|fault| Silence {
            why: fault.to_string(),
            again: if matches!(fault, Fault::Hung) { Again::Never } else { Again::Soon },
        });
        *latest = Some((began, said.clone()));
        said
    }
}
