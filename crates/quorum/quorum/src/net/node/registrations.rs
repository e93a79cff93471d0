//! The registrations of a server, and what others say of theirs.

use std::time::{Duration, Instant};

use keys::IdentityPublicKey;

use super::NodeError;
use crate::net::links::LinkTopic;
use crate::net::store::QuorumStore;
use crate::protocol::review::{ANSWER, QUESTION, RegistrationList, ReviewExchange};
use crate::protocol::unix_seconds::UnixSeconds;

/// The registrations of a server.
pub(super) struct NodeRegistrations {
    /// How long a registration lasts.
    pub(super) lifetime: Duration,
    pub(super) exchange: ReviewExchange,
    /// The time of the system's clock when it was read last.
    pub(super) clock: UnixSeconds,
    /// When the next registration expires.
    pub(super) next_expiry: Option<UnixSeconds>,
    /// Those that were not used yet: the newest, and how many there are. `None` if that must be
    /// read again.
    pub(super) waiting: Option<RegistrationList>,
}

impl NodeRegistrations {
    /// # Errors
    /// If the store cannot be read.
    pub(super) fn new(
        store: &QuorumStore,
        lifetime: Duration,
        clock: UnixSeconds,
    ) -> Result<Self, NodeError> {
        let (next_expiry, exchange) = (store.next_expiry()?, ReviewExchange::default());
        Ok(Self { lifetime, exchange, clock, next_expiry, waiting: None })
    }

    pub(super) fn set_peers(&mut self, servers: impl IntoIterator<Item = IdentityPublicKey>) {
        self.exchange.set_peers(servers);
    }

    pub(super) fn handle_link_up(&mut self, server: &IdentityPublicKey, now: Duration) {
        self.exchange.handle_link_up(server, now);
    }
}

/// Whether a message is about registrations that wait.
pub(super) fn is_review(topic: LinkTopic, bytes: &[u8]) -> bool {
    topic == LinkTopic::Signing && matches!(bytes.first(), Some(&(QUESTION | ANSWER)))
}

/// The registrations that wait at a server.
#[derive(Clone, Debug)]
pub(super) struct ServerRegistrations {
    pub(super) server: IdentityPublicKey,
    /// What the server has said, and when. `None` if it has not answered.
    pub(super) said: Option<(Instant, RegistrationList)>,
}
