//! The state that the connections of a socket share: `quinn-proto` keeps all their identifiers in
//! one endpoint.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BytesMut;
use quinn_proto::{ConnectionEvent, ConnectionHandle, DatagramEvent, EndpointConfig, ServerConfig};
use udp::streams::instant;

use crate::initial_keys::VERSION;

/// The state that the connections of a socket share.
#[derive(Clone)]
pub(crate) struct SharedQuicEndpoint(Arc<Mutex<QuicEndpointState>>);

pub(crate) struct QuicEndpointState {
    pub(crate) endpoint: quinn_proto::Endpoint,
    /// Events that connections have not handled yet.
    inboxes: HashMap<ConnectionHandle, Vec<ConnectionEvent>>,
}

impl SharedQuicEndpoint {
    /// Creates an endpoint that accepts connections, or opens one. `seed` is for tests.
    pub(crate) fn new(server: Option<Arc<ServerConfig>>, seed: Option<[u8; 32]>) -> Self {
        let mut config = EndpointConfig::default();
        // The fixed bit is always set, because it tells QUIC from other protocols on the socket.
        config.grease_quic_bit(false).supported_versions(vec![VERSION]);
        let endpoint = quinn_proto::Endpoint::new(Arc::new(config), server, true, seed);
        Self(Arc::new(Mutex::new(QuicEndpointState { endpoint, inboxes: HashMap::new() })))
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, QuicEndpointState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl QuicEndpointState {
    /// Handles a datagram. A datagram to be sent back is written to `answer`.
    pub(crate) fn handle(
        &mut self,
        now: Duration,
        from: SocketAddr,
        datagram: &[u8],
        answer: &mut Vec<u8>,
    ) -> Option<DatagramEvent> {
        let datagram = BytesMut::from(datagram);
        self.endpoint.handle(instant(now), from, None, None, datagram, answer)
    }

    /// Queues an event for its connection.
    pub(crate) fn queue_event(&mut self, handle: ConnectionHandle, event: ConnectionEvent) {
        self.inboxes.entry(handle).or_default().push(event);
    }

    /// Takes the queued events of a connection.
    pub(crate) fn take_queued_events(&mut self, handle: ConnectionHandle) -> Vec<ConnectionEvent> {
        self.inboxes.get_mut(&handle).map(std::mem::take).unwrap_or_default()
    }

    /// Removes a connection that is over.
    pub(crate) fn forget(&mut self, handle: ConnectionHandle) {
        self.inboxes.remove(&handle);
    }
}
