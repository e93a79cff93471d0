//! Multipath TCP: one connection over all paths between two hosts that have several.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use socket2::Protocol;

use super::Transport;
use super::tcp;
use crate::options::ConnectionOptions;
use crate::stream::ByteStream;

/// See [the module](self).
pub(super) struct MptcpTransport;

impl Transport for MptcpTransport {
    fn name(&self) -> &'static str {
        "mptcp"
    }

    fn about(&self) -> &'static str {
        "Multipath TCP; for hosts with several uplinks, otherwise as tcp"
    }

    /// Falls back to TCP if this system has no Multipath TCP, or the peer's does not answer it. The
    /// connection then has that name. So it does if segments are to be short.
    fn connect(
        &self,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>> {
        // The length of a segment cannot be set for all paths of a connection.
        if options.has_short_segments {
            return tcp::connect(to, Protocol::TCP, options);
        }
        match tcp::connect(to, Protocol::MPTCP, options) {
            Err(error) if tcp::is_unsupported(&error) => tcp::connect(to, Protocol::TCP, options),
            connected => connected,
        }
    }
}
