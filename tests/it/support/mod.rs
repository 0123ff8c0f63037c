//! What tests with real processes share: trees that are marked and cleaned up, and a small reader of `/proc`.

pub mod look;
pub mod stage;
pub mod tree;
