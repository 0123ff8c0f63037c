//! The nouns: what the four stages say to one another.
//!
//! Nothing here reads a clock, a file, a socket or the environment, and nothing here decides.
//! Stages never name one another; they meet in these types.

pub mod container;
pub mod docker_command;
pub mod escape;
pub mod evidence;
pub mod facts;
pub mod id;
pub mod keep;
pub mod known;
pub mod lease;
pub mod look;
pub mod moment;
pub mod outcome;
pub mod ownership;
pub mod plan;
pub mod question;
pub mod residue;
pub mod rule;
pub mod table;
pub mod verdict;
pub mod world;
