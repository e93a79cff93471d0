//! The member's end: keeps a connection to the proxy, moves messages between it and the client,
//! which decides alone, and keeps the client's state in a file.

mod config;
mod event;
mod history;
mod output;
mod session;

pub use config::{Config, KEYS};
pub use event::Event;
pub use history::{HistoryError, Said};
pub use session::{ChatError, Command, Session};

pub use crate::client::ClientStatus;
