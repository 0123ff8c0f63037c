//! `reapd`: a host-wide orphan reaper.
//!
//! The house has four stages over two grounds, and one edge that wires them:
//! [`observe`] looks, [`judge`] weighs, [`plan`] says who goes and how, [`act`] carries it out and sees it done.
//! Stages never name one another; they meet in [`model`] and read [`config`]. Only [`app`] names all.
//! [`engine`] speaks with container engines for those who look and act.

pub mod act;
pub mod app;
pub mod config;
pub mod engine;
pub mod judge;
pub mod model;
pub mod observe;
pub mod plan;
