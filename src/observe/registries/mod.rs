//! What others write down of who is alive.

mod ask;
mod files;
mod http;
mod record;
mod secret;

pub(super) use ask::Registries;
pub(super) use files::{Reading, read};
pub use http::Heard;
pub(super) use record::Records;
pub(super) use secret::read as secret;
