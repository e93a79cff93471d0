//! Signing (thesis, 3.2; `docs/protocols/quorum.md`, Signing): what servers answer, and how a
//! requester makes a signature of it and finds those who answered wrongly.

mod answer;
mod evidence;
mod health;
mod partial;
mod request;

pub use answer::{Answer, MAX_MESSAGE_LEN, Query, Signers, SigningGroup};
pub use evidence::Evidence;
pub use health::Health;
pub use partial::{Shares, SignError};
pub use request::{Event, Output, Request};

#[cfg(test)]
mod tests;
