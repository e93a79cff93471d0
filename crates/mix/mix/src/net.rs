//! The drivers. They move bytes between connections, files and the protocol's state machines.

pub mod chat;
mod outbox;
pub mod proxy;
mod state;

pub use state::{StateFileError, StateFolder};
