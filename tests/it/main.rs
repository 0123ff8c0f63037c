//! Tests against real processes and the real binary, all in one. Each marks what it starts and ends it by its number.

#[cfg(target_os = "linux")]
mod channels;
#[cfg(target_os = "linux")]
mod observe;
