//! The handshake over streams and datagrams, every reason to abort it, missing lists, and every
//! changed byte.

mod client;
mod datagram;
pub(crate) mod pair;
mod quorum;
mod server;
mod tampering;
