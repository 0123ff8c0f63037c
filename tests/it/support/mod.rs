//! What tests with real processes share: trees that are marked and cleaned up, and a small reader of `/proc`.

pub(crate) mod look;
pub(crate) mod stage;
pub(crate) mod tree;
