//! The state of the link with one other server.

use std::sync::Arc;

use keys::IdentityPublicKey;
use service::log::LogRateLimiter;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use tokio::time::Instant;

use super::connection::LinkConnection;
use super::{LinkStatus, ServerAddress};

/// Why there is no link yet with a server that connects to this one. If this server has moved, the
/// other one may be running.
const NOT_CONNECTED: &str =
    "it must connect to this server, at its address in the list or in a [[peer]] there";

/// One other server.
pub(super) struct PeerLinkState {
    pub(super) key: IdentityPublicKey,
    /// The addresses on which it may listen, the most likely first. At least one.
    pub(super) addresses: Vec<ServerAddress>,
    /// The address that is being tried, or has answered.
    pub(super) tried: usize,
    /// Notified when the addresses have changed.
    pub(super) addresses_changed: Arc<Notify>,
    pub(super) since: Instant,
    pub(super) why: Option<String>,
    pub(super) connection: Option<(Arc<LinkConnection>, AbortHandle)>,
    pub(super) refused_messages: u64,
    pub(super) asked_entries: u64,
    /// The task that connects to it, if this server is the one that connects.
    pub(super) dialing: Option<AbortHandle>,
    pub(super) lines: LogRateLimiter,
}

impl PeerLinkState {
    /// Without a link, at the first of these addresses.
    pub(super) fn new(
        key: IdentityPublicKey,
        addresses: Vec<ServerAddress>,
        addresses_changed: Arc<Notify>,
        dialing: Option<AbortHandle>,
    ) -> Self {
        Self {
            key,
            addresses,
            tried: 0,
            addresses_changed,
            since: Instant::now(),
            why: dialing.is_none().then(|| NOT_CONNECTED.to_owned()),
            connection: None,
            refused_messages: 0,
            asked_entries: 0,
            dialing,
            lines: LogRateLimiter::default(),
        }
    }

    pub(super) fn address(&self) -> &ServerAddress {
        &self.addresses[self.tried]
    }

    /// Sets the addresses on which the server may listen.
    pub(super) fn set_addresses(&mut self, addresses: Vec<ServerAddress>) {
        if addresses == self.addresses {
            return;
        }
        let before = std::mem::replace(&mut self.addresses, addresses).swap_remove(self.tried);
        let still = self.addresses.iter().position(|address| *address == before);
        // An outgoing link continues at its address.
        let is_dialled = self.dialing.is_some() && self.connection.is_some();
        self.tried = still.filter(|_| is_dialled).unwrap_or(0);
        self.addresses_changed.notify_one();
    }

    /// Ends the link, if there is one. Returns whether there was one.
    pub(super) fn close(&mut self) -> bool {
        let open = self.connection.take();
        if let Some((_, task)) = &open {
            task.abort();
        }
        open.is_some()
    }

    pub(super) fn status(&self) -> LinkStatus {
        let connection = self.connection.as_ref().map(|(connection, _)| connection);
        let (round_trip, queued) =
            connection.map_or((None, 0), |connection| connection.round_trip_and_queued());
        LinkStatus {
            server: self.key.to_string(),
            index: None,
            address: self.address().to_string(),
            up: connection.is_some(),
            state_s: self.since.elapsed().as_secs_f64(),
            why: self.why.clone(),
            round_trip_ms: round_trip.map(|it| it.as_secs_f64() * 1e3),
            queued_bytes: queued as u64,
            refused_messages: self.refused_messages,
            asked_entries: self.asked_entries,
        }
    }
}

impl Drop for PeerLinkState {
    fn drop(&mut self) {
        self.close();
        if let Some(dialing) = &self.dialing {
            dialing.abort();
        }
    }
}
