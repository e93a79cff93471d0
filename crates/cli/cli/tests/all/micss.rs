//! `sunder serve` and `sunder proxy`: real processes, real clients.

mod churn;
mod clients;
mod configuration;
mod guide;
mod memory;
mod operation;
mod processes;
mod service;
mod stalled;
mod transfer;
