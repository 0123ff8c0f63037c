//! Containers in this floor: stopping what the plan says, taking up what a crash cut short, finding one by what a person
//! calls it, and telling what became of it.

pub mod carry;
pub mod ended;
pub mod named;
pub mod takeup;
pub mod why;

pub use crate::judge::containers::LEASE;
