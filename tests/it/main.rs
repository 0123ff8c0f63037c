//! Integration tests: one binary, a module each.

mod cli;
