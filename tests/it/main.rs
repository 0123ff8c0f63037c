//! Tests against real processes and the real binary, all in one. Each marks what it starts and ends it by its number.
#![allow(clippy::disallowed_methods, reason = "tests start programs and read files")]
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on has failed")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test names what it expects, and all else has failed")]

#[cfg(target_os = "linux")]
mod bound;
#[cfg(target_os = "linux")]
mod broker;
#[cfg(target_os = "linux")]
mod cases;
#[cfg(target_os = "linux")]
mod channels;
mod cli;
mod config;
#[cfg(target_os = "linux")]
mod containers;
#[cfg(target_os = "linux")]
mod crash;
#[cfg(target_os = "linux")]
mod desk;
#[cfg(target_os = "linux")]
mod engines;
mod forgetting;
#[cfg(target_os = "linux")]
mod gateway;
#[cfg(target_os = "linux")]
mod lease_files;
#[cfg(target_os = "linux")]
mod leases;
#[cfg(target_os = "linux")]
mod named;
#[cfg(target_os = "linux")]
mod observe;
#[cfg(target_os = "linux")]
mod other_user;
mod patience;
#[cfg(target_os = "linux")]
mod pings;
#[cfg(target_os = "linux")]
mod planted;
#[cfg(target_os = "linux")]
mod published;
#[cfg(target_os = "linux")]
mod registries;
#[cfg(target_os = "linux")]
mod registry_http;
#[cfg(target_os = "linux")]
mod residue;
#[cfg(target_os = "linux")]
mod run;
mod scenarios;
#[cfg(target_os = "linux")]
mod shown;
mod support;
#[cfg(target_os = "linux")]
mod teardown;
#[cfg(target_os = "linux")]
mod terminal;
mod tidy;
mod turn;
