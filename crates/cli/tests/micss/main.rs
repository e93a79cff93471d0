//! `sunder serve` and `sunder proxy`: real processes, real clients.

mod configuration;
mod guide;
mod memory;
mod processes;
mod transfer;
