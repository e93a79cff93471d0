//! The drivers: they move bytes between connections, files and the protocol, and decide nothing.

pub mod chat;
mod outbox;
pub mod proxy;
mod state;

pub use state::{StateFileError, StateFolder};
