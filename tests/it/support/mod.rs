//! What tests with real processes share: trees that are marked and cleaned up, and a small reader of `/proc`.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test that cannot go on ends, and says where"
)]

#[cfg(target_os = "linux")]
pub(crate) mod engine;
pub(crate) mod look;
#[cfg(target_os = "linux")]
pub(crate) mod observing;
pub(crate) mod program;
pub(crate) mod stage;
pub(crate) mod tree;
