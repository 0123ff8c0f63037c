//! Containers: which policies look at which, what their rules still need to know, and the verdicts.
//!
//! The same order as for process trees, by the same rules where they apply; an engine that did not answer makes nobody an
//! orphan, and whatever is not known keeps.

pub mod case;
