//! Mix-in-place (paper 002): members of a group exchange messages through a mailbox that one proxy
//! keeps. The proxy learns who took part in a round, not who wrote to whom, or whether anybody did.
//!
//! `docs/protocols/mix.md` specifies the protocol and says what is promised, and against whom.

pub mod engine;
mod mailbox;
mod shape;

pub use mailbox::Mailbox;
pub use shape::{MAX_MAILBOX_LEN, Shape, ShapeError};
