//! Moving the key to a new group (thesis, 3.3).
//!
//! The agreement log orders entries, which every server applies to its [`Board`]. [`OldServer`] and
//! [`NewServer`] decide what a server does: messages, the board and the time come in; messages,
//! entries, and jobs that take long come out.

pub(crate) mod board;
pub(crate) mod complaint;
pub(crate) mod dealing;
pub(crate) mod entry;
pub(crate) mod manifest;
pub(crate) mod message;
pub(crate) mod new_server;
pub(crate) mod old_server;
pub(crate) mod output;
pub(crate) mod parameters;
pub(crate) mod possession;
pub(crate) mod recovery;
pub(crate) mod retries;
pub(crate) mod session;

pub use board::{Board, Change, Refusal, Run};
pub use entry::{Entry, MAX_ENTRY_LEN, Side};
pub use manifest::Round;
pub use message::{MAX_MESSAGE_LEN, Message};
pub use new_server::NewServer;
pub use old_server::OldServer;
pub use output::{Delays, Item, Job, JobResult, Output, Shares};
pub use parameters::Parameters;
pub use possession::Witnesses;
pub use recovery::{Recovery, answer};

#[cfg(test)]
mod simulation;
#[cfg(test)]
mod tests;
