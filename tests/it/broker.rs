//! The brokers of the codex plugin, with real processes in each of their states and the real binary, kills on.

mod protocol;
pub(crate) mod stand;
mod twins;
