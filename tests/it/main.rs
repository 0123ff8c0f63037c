//! Integration tests: one binary, one module per subject.
#![expect(clippy::disallowed_methods, reason = "tests read files and look at the world")]

mod config;
