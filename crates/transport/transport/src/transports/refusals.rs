//! Logs connections over UDP that the transport itself rejects.

use std::fmt::Display;
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use ::quic::QuicError;
use ::udp::streams::{DatagramRouting, ListenerLoad, ReceivedDatagram, UdpStreamEndpoint};
use service::log::LogRateLimiter;
use tracing::warn;

/// An endpoint that logs its refusals: at most one every 10 s, with the number of earlier ones,
/// because anyone can cause them.
pub(super) struct RefusalLoggingEndpoint {
    endpoint: Box<dyn UdpStreamEndpoint>,
    refused: LogRateLimiter,
}

impl RefusalLoggingEndpoint {
    pub(super) fn new(endpoint: Box<dyn UdpStreamEndpoint>) -> Self {
        Self { endpoint, refused: LogRateLimiter::default() }
    }

    fn log(&mut self, from: SocketAddr, why: impl Display) {
        if let Some(occurrences) = self.refused.count_event() {
            warn!(occurrences, "no connection: {from} by {}: {why}", self.endpoint.protocol());
        }
    }
}

impl UdpStreamEndpoint for RefusalLoggingEndpoint {
    fn protocol(&self) -> &'static str {
        self.endpoint.protocol()
    }

    fn handle_datagram(
        &mut self,
        now: Duration,
        datagram: &ReceivedDatagram<'_>,
        load: ListenerLoad,
    ) -> DatagramRouting {
        let routed = self.endpoint.handle_datagram(now, datagram, load);
        if let DatagramRouting::Refuse { why, .. } = &routed {
            self.log(datagram.from, why);
        }
        routed
    }

    fn forget(&mut self, id: u64) {
        self.endpoint.forget(id);
    }

    fn failed(&mut self, peer: SocketAddr, error: &io::Error) {
        let inner = error.get_ref().and_then(|inner| inner.downcast_ref());
        if matches!(inner, Some(QuicError::Untrusted(_))) {
            self.log(peer, "its key is not one that may connect here");
        } else {
            self.log(peer, error);
        }
    }
}
