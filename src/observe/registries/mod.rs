//! What others write down of who is alive.

mod ask;
mod files;
mod record;

pub(super) use ask::Registries;
pub(super) use files::{Reading, read};
pub(super) use record::Records;
