//! The protocol between the ends of a connection, without I/O. `docs/protocols/transport.md`
//! specifies it.

pub(crate) mod code;
pub(crate) mod file;
pub(crate) mod forward;
pub(crate) mod handshake;
pub(crate) mod relay;
pub(crate) mod tree;
