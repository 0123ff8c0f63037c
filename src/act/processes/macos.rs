//! Local stand-in for formatting.
