//! One stream over its channels, the same at the client and at the server.

pub(crate) mod channel_io;
pub(crate) mod channel_stream;
pub(crate) mod client_handshake;
pub(crate) mod relay;
