//! The member's end: keeps a connection to the proxy, moves messages between it and the client,
//! which decides alone, and keeps the client's state in a file.

mod config;
mod contacts;
mod event;
mod history;
mod output;
mod session;
mod shared_file;

pub use config::{ChatConfig, KEYS};
pub use contacts::{ALL, ChatContactList, ContactTrust};
pub use event::{ChatEvent, QueuedMessage};
pub use history::{ChatHistoryEntry, ChatHistoryError};
pub use session::{ChatCommand, ChatError, ChatSession, found_group};
pub use shared_file::MAX_SHARED_FILE_LEN;

pub use crate::protocol::client::{CancelledChatMessages, MemberListDifference, MixClientStatus};
