//! A relay: two parties that nobody reaches from outside, because they are behind address
//! translation, both connect to it, and it passes on the bytes between them. It sees those of their
//! handshake and of encrypted records.

mod client;
mod pairs;
mod server;
mod status;
#[cfg(test)]
mod tests;

pub(crate) use client::{Registration, open};
pub use server::{Relay, RelayError, StatusSource};
pub use status::{Refused, Status};
