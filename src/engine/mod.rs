//! Speaks with container engines: Docker, and Podman's compatible service, over Unix sockets of this machine.
//!
//! It decides nothing. Every call has a deadline, each answer a bound, and what an answer says is checked before it
//! becomes a noun: an engine, or a proxy before one, that ignores a filter or answers for another container is caught
//! here. One connection serves one call, so that none is left behind when a call is over, and an engine that was
//! started anew is simply found again.
#![allow(clippy::disallowed_methods, reason = "an edge floor: sockets are its work")]

mod client;
mod errand;
#[cfg(test)]
pub(crate) mod fake;
mod fault;
mod networks;
mod read;
mod wire;

use std::future::Future;

pub use self::client::{Client, NetworkOrigin, NetworkUse, Said, Which};
pub use self::errand::Errand;
pub use self::fault::Fault;
pub use self::read::{ExecInspected, ExecState, Inspected};

/// Runs what speaks with engines to its end, on a runtime of its own and on the thread that calls. Nothing of it goes
/// on afterwards: connections that are still open are closed.
pub fn run<F: Future>(future: F) -> Result<F::Output, Fault> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().max_blocking_threads(1).build();
    let runtime = runtime.map_err(Fault::Starved)?;
    Ok(runtime.block_on(future))
}
