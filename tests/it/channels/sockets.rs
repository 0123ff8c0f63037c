//! Sockets of real processes.
