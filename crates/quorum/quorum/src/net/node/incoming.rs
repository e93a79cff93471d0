//! Received messages for signing and refreshes, with a rate limit per link. Messages of links that
//! have ended are dropped.

use std::future::pending;
use std::time::Duration;

use keys::IdentityPublicKey;

use crate::net::links::{LinkEvent, LinkMessage, LinkTopic, TopicInbox};
use crate::protocol::consensus::context::ValidatorAddress;
use crate::protocol::consensus::fair_queue::FairLinkQueue;

/// The inboxes of both topics.
pub(super) struct NodeInboxes {
    signing: (TopicInbox, FairLinkQueue<LinkMessage>),
    refresh: (TopicInbox, FairLinkQueue<LinkMessage>),
}

impl NodeInboxes {
    pub(super) fn new(signing: TopicInbox, refresh: TopicInbox) -> Self {
        let [signing, refresh] = [signing, refresh].map(|inbox| (inbox, FairLinkQueue::default()));
        Self { signing, refresh }
    }

    /// Waits until an event has arrived. Dropping the future loses nothing.
    pub(super) async fn next(&mut self) -> (LinkTopic, LinkEvent) {
        tokio::select! {
            Some(inbound) = self.signing.0.next() => (LinkTopic::Signing, inbound),
            Some(inbound) = self.refresh.0.next() => (LinkTopic::Refresh, inbound),
            else => pending().await,
        }
    }

    /// Stores an event, and all others that have arrived. Returns the servers with a new link.
    pub(super) fn take(&mut self, first: (LinkTopic, LinkEvent)) -> Vec<IdentityPublicKey> {
        let mut up = Vec::new();
        let mut next = Some(first);
        while let Some((topic, inbound)) = next {
            match inbound {
                LinkEvent::Message(message) => {
                    let (from, len) = (ValidatorAddress::of(message.from()), message.bytes.len());
                    self.inflow(topic).push(from, len, message);
                }
                LinkEvent::Down(server) => self.inflow(topic).clear(ValidatorAddress::of(&server)),
                // Both inboxes report it.
                LinkEvent::Up(server) if topic == LinkTopic::Refresh => up.push(server),
                LinkEvent::Up(_) => {}
            }
            let signing = self.signing.0.try_next().map(|it| (LinkTopic::Signing, it));
            next = signing.or_else(|| Some((LinkTopic::Refresh, self.refresh.0.try_next()?)));
        }
        up
    }

    /// The next message that may be handled. Messages for signing go first.
    pub(super) fn pop(&mut self, now: Duration) -> Option<(LinkTopic, LinkMessage)> {
        let signing = self.signing.1.pop(now).map(|(_, message)| (LinkTopic::Signing, message));
        signing.or_else(|| Some((LinkTopic::Refresh, self.refresh.1.pop(now)?.1)))
    }

    /// When the next message may be handled, if one is waiting.
    pub(super) fn ready(&self) -> Option<Duration> {
        [&self.signing.1, &self.refresh.1].into_iter().filter_map(FairLinkQueue::ready).min()
    }

    /// Charges a server for bytes that were sent to it for a refresh, as if it had sent them: they
    /// may be the answer to a short question.
    pub(super) fn charge(&mut self, server: &IdentityPublicKey, len: usize, now: Duration) {
        self.refresh.1.charge(ValidatorAddress::of(server), len, now);
    }

    fn inflow(&mut self, topic: LinkTopic) -> &mut FairLinkQueue<LinkMessage> {
        if topic == LinkTopic::Signing { &mut self.signing.1 } else { &mut self.refresh.1 }
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use bytes::Bytes;
    use service::listening::listen;
    use tokio::time::timeout;

    use super::*;
    use crate::log::tests::secret;
    use crate::net::links::{LinkLane, QuorumLinks, QuorumPeer};

    const LIMIT: Duration = Duration::from_secs(90);
    const FLOOD: usize = 20_000;

    /// Receives events until this many messages wait. Returns how often a link came up.
    async fn take_until(
        incoming: &mut NodeInboxes,
        is_done: impl Fn(&NodeInboxes) -> bool,
    ) -> usize {
        let mut up = 0;
        while !is_done(incoming) {
            let first = timeout(LIMIT, incoming.next()).await.unwrap();
            up += incoming.take(first).len();
        }
        up
    }

    #[tokio::test]
    async fn a_flood_is_handled_at_the_rate_and_lost_with_its_link() {
        let mut ends = Vec::new();
        for number in [1, 2] {
            let listening = listen([(Ipv4Addr::LOCALHOST, 0).into()], &[]).await.unwrap();
            let address = listening[0].address().unwrap();
            let (links, [_, signing, refresh]) = QuorumLinks::start(secret(number), listening);
            let peer = QuorumPeer { key: secret(number).public(), address: address.into() };
            ends.push((links, NodeInboxes::new(signing, refresh), peer));
        }
        let (flooding, _, flooder) = ends.pop().unwrap();
        let (links, mut incoming, own) = ends.pop().unwrap();
        flooding.set_peers(std::slice::from_ref(&own));
        links.set_peers(std::slice::from_ref(&flooder));
        let first = timeout(LIMIT, incoming.next()).await.unwrap();
        incoming.take(first);
        let message = Bytes::from(vec![7; 1000]);
        for _ in 0..FLOOD {
            let sent = flooding.send(&own.key, LinkTopic::Refresh, LinkLane::Bulk, message.clone());
            sent.unwrap();
        }
        flooding.send(&own.key, LinkTopic::Signing, LinkLane::Urgent, message).unwrap();
        let waiting = |it: &NodeInboxes| (it.signing.1.waiting(), it.refresh.1.waiting());
        take_until(&mut incoming, |it| waiting(it) == (1, FLOOD)).await;
        // Signing does not wait for refreshes, and at most 32 MiB of a refresh are handled at once.
        let now = Duration::from_secs(60);
        assert_eq!(incoming.pop(now).unwrap().0, LinkTopic::Signing);
        let handled = std::iter::from_fn(|| incoming.pop(now)).count();
        assert!((6000..7000).contains(&handled), "{handled}");
        // One second's worth of messages. A charge then delays the next one.
        let later = now + Duration::from_secs(1);
        let handled = std::iter::from_fn(|| incoming.pop(later)).count();
        assert!((700..900).contains(&handled), "{handled}");
        incoming.charge(&flooder.key, 4 << 20, later);
        assert!(incoming.ready().unwrap() > later + Duration::from_millis(900));
        links.set_peers(&[]);
        take_until(&mut incoming, |it| waiting(it) == (0, 0)).await;
        assert!(incoming.ready().is_none());
    }
}
