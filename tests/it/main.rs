//! Tests on real processes, all in one binary. Each marks what it starts and ends it by its number.

#[cfg(target_os = "linux")]
mod observe;
