//! Each veto and each condition alone: what goes red when it is removed.

mod clients;
mod leases;
mod ledger;
mod leftovers;
mod ping;
mod property;
mod registered;
mod rules;
mod vetoes;
