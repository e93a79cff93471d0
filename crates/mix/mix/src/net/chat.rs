//! The member's end: keeps a connection to the proxy, moves messages between it and the client,
//! which decides alone, and keeps the client's state in a file.

mod config;
mod event;
mod history;
mod output;
mod session;

pub use config::{ChatConfig, KEYS};
pub use event::ChatEvent;
pub use history::{ChatHistoryEntry, ChatHistoryError};
pub use session::{ChatCommand, ChatError, ChatSession};

pub use crate::protocol::client::MixClientStatus;
