//! macOS.
