//! Where a client looks for its proxy. An announced move may happen late or never, and a member
//! that was away may miss one.

use super::MixClient;
use crate::protocol::membership::{EpochAnnouncement, ProxyAddress};

/// The attempts of a client to find its proxy.
#[derive(Default)]
pub(super) struct ProxySearch {
    /// How many attempts have failed since the start or the last announced move.
    failed: usize,
    /// Where the last attempt, which may have succeeded, leads to.
    at: Option<ProxyAddress>,
}

impl MixClient {
    /// Where to connect to now. [`MixClient::handle_connected`] follows and, at the end of the
    /// connection or if there is none, [`MixClient::handle_disconnected`].
    ///
    /// The client tries these addresses in turn, until a proxy greets it: where the proxy moves,
    /// where its configuration says, where it has found the proxy last, and where the newest
    /// announcement says, because a first announcement does not show whether it is one of a move.
    pub fn begin_connection(&mut self) -> ProxyAddress {
        let configured = self.settings.group.proxy_address();
        let announced = self.epochs.newest().and_then(EpochAnnouncement::proxy);
        let all = [self.epochs.moved(), Some(&configured), self.epochs.found(), announced];
        let mut addresses: Vec<&ProxyAddress> = Vec::with_capacity(all.len());
        for address in all.into_iter().flatten() {
            if !addresses.contains(&address) {
                addresses.push(address);
            }
        }
        let next = addresses[self.search.failed % addresses.len()].clone();
        self.search.at = Some(next.clone());
        next
    }

    /// The proxy has not greeted this client.
    pub(super) fn handle_not_found(&mut self) {
        self.search.failed = self.search.failed.wrapping_add(1);
    }

    /// The proxy has the newest announcement.
    pub(super) fn handle_found(&mut self) {
        let configured = self.settings.group.proxy_address();
        if let Some(at) = &self.search.at {
            self.epochs.set_found(Some(at.clone()).filter(|at| *at != configured));
        }
    }

    /// The proxy moves, so it is looked for at its new address first.
    pub(super) fn handle_moved(&mut self) {
        self.search.failed = 0;
    }
}
