//! The bytes on the channels: datagrams, their tokens and keys, and the messages in them.

pub(crate) mod channel_index;
pub mod control;
pub mod datagram;
pub mod handshake;
pub mod keys;
pub(crate) mod options;
pub mod part;
pub mod path;
pub mod symbol;
pub mod terms;
pub mod tokens;
