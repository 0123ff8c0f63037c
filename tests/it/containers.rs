//! Containers on a real engine, with real clients: what a sweep ends, and what it leaves alone. Every container of a test
//! bears the test's nonce, and the test's configuration admits nothing else.

mod calls;
mod clients;
mod engines;
mod execs;
mod field;
mod leased;
mod podman;
mod ports;
mod setups;
mod shown;
mod users;
