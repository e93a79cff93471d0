//! A relay for two parties that cannot be reached from outside, because both are behind address
//! translation. Both connect to the relay, which forwards the bytes between them. It sees their
//! handshake messages and encrypted records.

mod client;
mod pairs;
mod server;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use client::{RelayRegistration, open};
pub use server::{RelayError, RelayServer, RelayStatusSource};
pub use status::{RelayRefusalCounts, RelayStatus};
