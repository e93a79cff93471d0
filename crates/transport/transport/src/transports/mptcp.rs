//! Multipath TCP: one connection over all paths between two hosts that have several.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::Protocol;

use super::tcp;
use crate::options::ConnectionOptions;
use crate::stream::{ByteStream, Transport};

/// See [the module](self).
pub(super) struct MptcpTransport;

impl Transport for MptcpTransport {
    fn name(&self) -> &'static str {
        "mptcp"
    }

    fn about(&self) -> &'static str {
        "Multipath TCP; for hosts with several uplinks, otherwise as tcp"
    }

    /// Falls back to TCP if this system or the peer's does not support Multipath TCP, or if
    /// segments must be short. The connection then reports `tcp` as its transport.
    fn connect(
        &self,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>> {
        // The segment length cannot be set for all paths of a connection.
        if options.has_short_segments {
            return tcp::connect(to, Protocol::TCP, options);
        }
        match tcp::connect(to, Protocol::MPTCP, options) {
            Err(error) if tcp::is_unsupported(&error) => tcp::connect(to, Protocol::TCP, options),
            connected => connected,
        }
    }
}
