//! A relay: two parties that nobody reaches from outside, because they are behind address
//! translation, both connect to it, and it passes on the bytes between them. It sees those of their
//! handshake and of encrypted records.

mod client;
mod pairs;
mod server;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use client::{RelayRegistration, open};
pub use server::{RelayError, RelayServer, RelayStatusSource};
pub use status::{RelayRefusalCounts, RelayStatus};
