//! Integration tests: one binary, one module per subject.

#[cfg(target_os = "linux")]
mod channels;
mod config;
