//! What others write down of who is alive.

pub mod http;
pub(super) mod secret;
