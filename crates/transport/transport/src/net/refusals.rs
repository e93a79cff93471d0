//! The log of connections that were not established.

use std::sync::{Mutex, PoisonError};

use service::log::LogRateLimiter;
use tracing::warn;

use crate::error::Error;
use crate::protocol::handshake::TransportHandshakeError;
use crate::stream::ByteStream;

/// Logs connections that were not established. Anybody can cause any number of them, so the rate of
/// lines is limited.
#[derive(Debug, Default)]
pub(super) struct RefusalLog(Mutex<LogRateLimiter>);

impl RefusalLog {
    /// Logs why a connection was not established.
    pub(super) fn log(&self, error: &Error) {
        let mut limiter = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(occurrences) = limiter.count_event() {
            warn!(occurrences, "no connection: {error}");
        }
    }

    /// Logs that there are too many connections, and this is one of them.
    pub(super) fn log_busy(&self, stream: &dyn ByteStream) {
        let peer = stream.peer_addr().to_string();
        self.log(&Error::Security { peer, source: TransportHandshakeError::Busy });
    }
}
