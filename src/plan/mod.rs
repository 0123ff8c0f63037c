//! Pure.
