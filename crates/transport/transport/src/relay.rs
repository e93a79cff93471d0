//! A relay for two parties that cannot be reached from outside, because both are behind address
//! translation. Both connect to the relay by TCP, which forwards the bytes between them, and their
//! datagrams. It sees their handshake messages and encrypted records.

mod client;
mod datagrams;
mod pairs;
mod server;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use client::{RelayRegistration, RelayedStream, open};
pub use server::{RelayError, RelayServer, RelayStatusSource};
pub use status::{RelayRefusalCounts, RelayStatus};
