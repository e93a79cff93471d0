//! `sunder serve` and `sunder proxy`: real processes, real clients.

mod backup_servers;
mod bypass;
mod churn;
mod clients;
mod configuration;
mod guide;
mod memory;
mod operation;
mod processes;
mod proxy_protocol;
mod service;
mod stalled;
mod transfer;
mod udp;
