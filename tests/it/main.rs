//! Tests against real processes, in one binary.

#[cfg(target_os = "linux")]
mod channels;
