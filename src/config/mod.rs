//! What the operator asked for: the file as written, checked and typed. Pure: text comes in, a value goes out.

pub mod capture;
pub mod pattern;
pub mod policy;
