//! One stream over its channels, the same at the client and at the server.

pub(crate) mod channel_io;
pub(crate) mod metered;
pub(crate) mod opening;
pub(crate) mod relay;
