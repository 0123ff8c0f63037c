//! Each veto and each condition alone: what goes red when it is removed.

mod clients;
mod leases;
mod ledger;
mod leftovers;
mod property;
mod rules;
mod vetoes;
