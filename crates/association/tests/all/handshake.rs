//! The handshake over streams and datagrams, every reason to abort it, lists that do not come, and
//! every changed byte.

mod client;
mod datagram;
mod pair;
mod quorum;
mod server;
mod tampering;
