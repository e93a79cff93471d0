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
    /// Whether a proxy with the newest announcement was there. A proxy that only greets may be
    /// another one than the group's.
    is_found: bool,
    /// How many attempts in a row have ended by a refusal, and whether this one has.
    refused: usize,
    is_refused: bool,
}

impl MixClient {
    /// Where to connect to now. [`MixClient::handle_connected`] follows and, at the end of the
    /// connection or if there is none, [`MixClient::handle_disconnected`].
    ///
    /// The client tries these addresses in turn, until a proxy there has the newest announcement:
    /// where the proxy moves, where its configuration says, where it has found the proxy last, and
    /// where the newest announcement says, because a first announcement does not show whether it is
    /// one of a move.
    pub fn begin_connection(&mut self) -> ProxyAddress {
        let next = self.next_address();
        self.search.at = Some(next.clone());
        self.search.is_found = false;
        next
    }

    /// The addresses, each once, in the order in which they are tried.
    fn addresses(&self) -> Vec<ProxyAddress> {
        let configured = self.settings.group.proxy_address();
        let announced = self.epochs.newest().and_then(EpochAnnouncement::proxy);
        let all = [self.epochs.moved(), Some(&configured), self.epochs.found(), announced];
        let mut addresses: Vec<ProxyAddress> = Vec::with_capacity(all.len());
        for address in all.into_iter().flatten() {
            if !addresses.contains(address) {
                addresses.push(address.clone());
            }
        }
        addresses
    }

    fn next_address(&self) -> ProxyAddress {
        let mut addresses = self.addresses();
        addresses.swap_remove(self.search.failed % addresses.len())
    }

    /// The proxy refuses this client. Returns whether the group's proxy may be at another address:
    /// not all of them have refused it, one after the other.
    pub(super) fn handle_refused(&mut self) -> bool {
        self.search.refused += 1;
        self.search.is_refused = true;
        !self.search.is_found && self.search.refused < self.addresses().len()
    }

    /// An attempt has ended.
    pub(super) fn handle_search_end(&mut self) {
        if !std::mem::take(&mut self.search.is_refused) {
            self.search.refused = 0;
        }
        // An announced move meanwhile begins at the new address.
        let is_next = self.search.at.take().is_some_and(|at| at == self.next_address());
        if is_next && !self.search.is_found {
            self.search.failed = self.search.failed.wrapping_add(1);
        }
    }

    /// The proxy has the newest announcement.
    pub(super) fn handle_found(&mut self) {
        let configured = self.settings.group.proxy_address();
        self.search.is_found = true;
        if let Some(at) = &self.search.at {
            self.epochs.set_found(Some(at.clone()).filter(|at| *at != configured));
        }
    }

    /// The proxy moves, so it is looked for at its new address first.
    pub(super) fn handle_moved(&mut self) {
        self.search.failed = 0;
    }
}
