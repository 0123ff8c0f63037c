//! The brokers of the codex plugin, with real processes in each of their states and the real binary, kills on.

mod idle;
mod protocol;
mod registry;
mod shown;
pub(crate) mod stand;
mod states;
mod twins;
