//! The protocol between the ends of a connection, without I/O. `docs/protocols/transport.md`
//! specifies it.

pub(crate) mod balancer;
pub(crate) mod code;
pub(crate) mod datagram_relay;
pub(crate) mod direct;
pub(crate) mod file;
pub(crate) mod forward;
pub(crate) mod handshake;
pub(crate) mod punching;
pub(crate) mod relay;
pub(crate) mod relay_binding;
pub(crate) mod tree;
