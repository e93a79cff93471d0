//! What the ends of a connection send each other, without input or output. Specified in
//! `docs/protocols/transport.md`.

pub(crate) mod file;
pub(crate) mod handshake;
pub(crate) mod relay;
