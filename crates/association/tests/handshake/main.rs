//! The handshake over streams and datagrams, every reason to abort it, and every changed byte.

mod client;
mod datagram;
mod pair;
mod server;
mod tampering;
