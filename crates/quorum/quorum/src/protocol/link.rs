//! The link between two servers, without I/O: handshake, encrypted records, and messages in two
//! lanes. Specified in `docs/protocols/quorum.md`, *Links*.

pub(crate) mod backoff;
#[cfg(any(test, fuzzing))]
pub mod fuzzing;
pub(crate) mod handshake;
pub(crate) mod lanes;
pub(crate) mod records;

pub use handshake::LinkHandshakeError;
pub use lanes::{
    LinkLane, LinkLaneError, LinkSendError, LinkTopic, MAX_MESSAGE_LEN, MAX_URGENT_LEN,
};
pub use records::QuorumLinkError;
