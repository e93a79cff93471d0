//! The links of a server: one connection with each other server of its groups. The server with the
//! smaller key connects, and reconnects after a link has ended.
//!
//! A message to a server without a link is dropped. Protocols resend what matters after
//! [`LinkEvent::Up`].

mod accept;
mod connection;
mod peer_address;
mod peer_state;
mod probe;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use keys::{IdentityPublicKey, IdentitySecretKey};
use random::{RandomError, RandomGenerator};
use serde::{Deserialize, Serialize};
use service::listening::ConfiguredListener;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::AbortHandle;
use tokio::time::{Instant, sleep, sleep_until, timeout};
use tracing::{debug, info, warn};

use crate::protocol::link::backoff::{ConnectAttemptEnd, ReconnectBackoff, dials};
use crate::protocol::link::handshake::LinkSession;
pub use crate::protocol::link::{
    LinkHandshakeError, LinkLane, LinkLaneError, LinkSendError, LinkTopic, MAX_MESSAGE_LEN,
    MAX_URGENT_LEN, QuorumLinkError,
};
use connection::{LinkConnection, LinkEnd};
pub use peer_address::{ServerAddress, ServerAddressError};
use peer_state::PeerLinkState;
use probe::probe;
pub use probe::{LinkProbeResult, probe_all};

/// The time limit of the handshake.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The shortest interval between two connection attempts to a server that has asked for a
/// connection or has moved. Anyone may replay such a request.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// The largest number of lines about the link with one server that are logged in 10 s, because a
/// faulty server may connect and disconnect as often as it likes. A line states how many events it
/// stands for.
const MAX_LINES: u32 = 6;

/// Another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumPeer {
    /// Its identity.
    pub key: IdentityPublicKey,
    /// The address on which it listens.
    pub address: ServerAddress,
}

/// An event of the links. Events of one link are in order.
#[derive(Debug)]
pub enum LinkEvent {
    /// There is a link with this server.
    Up(IdentityPublicKey),
    /// The link with this server has ended. Messages may be lost.
    Down(IdentityPublicKey),
    /// A message.
    Message(LinkMessage),
}

/// A received message. When it is dropped, its sender may send as much again.
#[derive(Debug)]
pub struct LinkMessage {
    /// The message.
    pub bytes: Bytes,
    credit: connection::MessageCredit,
}

impl LinkMessage {
    /// The sender.
    pub fn from(&self) -> &IdentityPublicKey {
        self.credit.sender()
    }
}

/// The messages of one topic.
#[derive(Debug)]
pub struct TopicInbox {
    /// Events that are replayed before new ones.
    replayed: VecDeque<LinkEvent>,
    received: UnboundedReceiver<LinkEvent>,
}

impl TopicInbox {
    /// The next event, or `None` after the links were stopped. Dropping the future loses nothing.
    pub async fn next(&mut self) -> Option<LinkEvent> {
        match self.replayed.pop_front() {
            Some(inbound) => Some(inbound),
            None => self.received.recv().await,
        }
    }

    /// The next event, if there is one.
    pub(super) fn try_next(&mut self) -> Option<LinkEvent> {
        self.replayed.pop_front().or_else(|| self.received.try_recv().ok())
    }

    /// Queues [`LinkEvent::Up`] for servers that have links, before new events.
    pub(super) fn replay_link_up(&mut self, servers: impl Iterator<Item = IdentityPublicKey>) {
        self.replayed.extend(servers.map(LinkEvent::Up));
    }
}

/// The state of the link with one server, for people and scripts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The server's identity key.
    pub server: String,
    /// The server's number in the group, from 1; `None` if it is not a member, or no group is
    /// known.
    #[serde(default)]
    pub index: Option<u64>,
    /// The address to which it is connected, or which was tried last.
    pub address: String,
    /// Whether there is a link.
    pub up: bool,
    /// The time in this state, in seconds.
    pub state_s: f64,
    /// Why the link is down.
    #[serde(default)]
    pub why: Option<String>,
    /// The time from a ping to its answer, in milliseconds.
    #[serde(default)]
    pub round_trip_ms: Option<f64>,
    /// The bytes of messages that wait to be sent.
    #[serde(default)]
    pub queued_bytes: u64,
    /// How many of its messages were refused: malformed, forged, or not allowed.
    #[serde(default)]
    pub refused_messages: u64,
    /// For how many entries of its proposals by digests it was asked, because they were late.
    #[serde(default)]
    pub asked_entries: u64,
}

/// The bytes of messages that a server has passed to its links since its start, without the
/// overhead of encryption, pings and TCP. Messages that were lost with a link are included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SentBytes {
    /// For the agreement log.
    pub log: u64,
    /// Requests for signatures, and answers.
    pub signing: u64,
    /// For refreshes, recovery and invites.
    pub refresh: u64,
}

/// All links of a server. They end when it is dropped.
#[derive(Debug)]
pub struct QuorumLinks {
    shared: Arc<SharedLinks>,
    accepting: AbortHandle,
}

struct SharedLinks {
    own: Arc<IdentitySecretKey>,
    /// The zero of the protocol's time.
    start: Instant,
    /// The addresses on which this server listens.
    listen: Vec<SocketAddr>,
    inboxes: [UnboundedSender<LinkEvent>; 3],
    /// The bytes of messages of each topic that were passed to links.
    sent: [AtomicU64; 3],
    peers: Mutex<HashMap<[u8; 32], PeerLinkState>>,
    /// The number of connections that did not become links.
    refused_connections: AtomicU64,
    /// The set of servers that may connect is known.
    peers_known: Notify,
}

impl std::fmt::Debug for SharedLinks {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SharedLinks").field("own", &self.own.public()).finish_non_exhaustive()
    }
}

/// Why a connection did not become a link.
#[derive(Debug, thiserror::Error)]
enum LinkConnectError {
    #[error(transparent)]
    Io(#[from] std::io::Error),
    #[error("not proven within {} s", HANDSHAKE_TIMEOUT.as_secs())]
    TimedOut,
    #[error(transparent)]
    Handshake(#[from] LinkHandshakeError),
    #[error(transparent)]
    Random(#[from] RandomError),
}

impl QuorumLinks {
    /// Accepts connections from the servers that [`Self::set_peers`] names. Also returns an inbox
    /// for each of [`LinkTopic::ALL`]. Must be called in a runtime.
    pub fn start(
        own: IdentitySecretKey,
        listening: Vec<ConfiguredListener>,
    ) -> (Self, [TopicInbox; 3]) {
        let channels = LinkTopic::ALL.map(|_| unbounded_channel());
        let inboxes = channels.each_ref().map(|(sender, _)| sender.clone());
        let peers = Mutex::default();
        let (own, start, sent) = (Arc::new(own), Instant::now(), Default::default());
        let (named, refused_connections) = (Notify::new(), AtomicU64::new(0));
        let listen = listening.iter().filter_map(|listener| listener.address().ok()).collect();
        let shared = SharedLinks {
            own,
            start,
            listen,
            inboxes,
            sent,
            peers,
            refused_connections,
            peers_known: named,
        };
        let shared = Arc::new(shared);
        let accepting = tokio::spawn(accept::run(Arc::clone(&shared), listening)).abort_handle();
        (
            Self { shared, accepting },
            channels.map(|(_, received)| TopicInbox { replayed: VecDeque::new(), received }),
        )
    }

    /// Keeps links with exactly these servers. A server may be listed with several addresses, the
    /// most likely first. They are tried in turn. Existing links continue.
    pub fn set_peers(&self, peers: &[QuorumPeer]) {
        let own = self.shared.own.public();
        let mut states = self.shared.peers();
        let wanted = |state: &PeerLinkState| peers.iter().any(|peer| peer.key == state.key);
        for (_, mut removed) in states.extract_if(|_, state| !wanted(state)) {
            if removed.close() {
                self.shared.broadcast(|| LinkEvent::Down(removed.key));
            }
        }
        for key in peers.iter().map(|peer| peer.key).filter(|key| *key != own) {
            let of_key = peers.iter().filter(|peer| peer.key == key);
            let mut addresses: Vec<ServerAddress> = Vec::new();
            for address in of_key.map(|peer| &peer.address) {
                if !addresses.contains(address) {
                    addresses.push(address.clone());
                }
            }
            match states.entry(key.to_bytes()) {
                Entry::Occupied(mut known) => known.get_mut().set_addresses(addresses),
                Entry::Vacant(place) => {
                    let moved = Arc::default();
                    let dialing = dials(&own, &key).then(|| {
                        let dialing = dial(Arc::clone(&self.shared), key, Arc::clone(&moved));
                        tokio::spawn(dialing).abort_handle()
                    });
                    if dialing.is_none() {
                        self.ask_for_connection(key, &addresses[0]);
                    }
                    place.insert(PeerLinkState::new(key, addresses, moved, dialing));
                }
            }
        }
        self.shared.peers_known.notify_one();
    }

    /// Asks a server that connects to this one to do so soon, if it has stopped trying.
    fn ask_for_connection(&self, key: IdentityPublicKey, address: &ServerAddress) {
        let (shared, peer) =
            (Arc::clone(&self.shared), QuorumPeer { key, address: address.clone() });
        // The connection is refused, but the other server notices it.
        tokio::spawn(async move { _ = probe(&shared.own, &peer).await });
    }

    /// Probes the addresses of these servers. The results are in the same order.
    pub(super) async fn probe(&self, peers: Vec<QuorumPeer>) -> Vec<(QuorumPeer, LinkProbeResult)> {
        probe_all(&self.shared.own, peers).await
    }

    /// The identity of this server.
    pub fn own(&self) -> IdentityPublicKey {
        self.shared.own.public()
    }

    /// Sends a message to a server.
    ///
    /// # Errors
    /// If there is no link with it, the message is too long, or too many bytes are waiting.
    pub fn send(
        &self,
        to: &IdentityPublicKey,
        topic: LinkTopic,
        lane: LinkLane,
        bytes: Bytes,
    ) -> Result<(), LinkSendError> {
        let connection = {
            let peers = self.shared.peers();
            let open = peers.get(&to.to_bytes()).and_then(|state| state.connection.as_ref());
            Arc::clone(&open.ok_or(LinkSendError::Down)?.0)
        };
        let len = bytes.len() as u64;
        connection.send(topic, lane, bytes)?;
        // Topics count from 1.
        self.shared.sent[topic as usize - 1].fetch_add(len, Ordering::Relaxed);
        Ok(())
    }

    /// The number of bytes on a lane that wait to be sent to a server. 0 without a link.
    pub(super) fn queued(&self, to: &IdentityPublicKey, lane: LinkLane) -> usize {
        let peers = self.shared.peers();
        let state = peers.get(&to.to_bytes());
        let open = state.and_then(|state| state.connection.as_ref());
        open.map_or(0, |(connection, _)| connection.queued(lane))
    }

    /// The bytes sent so far.
    pub fn sent(&self) -> SentBytes {
        let [log, signing, refresh] =
            self.shared.sent.each_ref().map(|sent| sent.load(Ordering::Relaxed));
        SentBytes { log, signing, refresh }
    }

    /// Counts a rejected message of a server.
    pub(super) fn count_refused(&self, from: &IdentityPublicKey) {
        if let Some(state) = self.shared.peers().get_mut(&from.to_bytes()) {
            state.refused_messages += 1;
        }
    }

    /// The addresses on which this server listens.
    pub fn listen(&self) -> Vec<SocketAddr> {
        self.shared.listen.clone()
    }

    /// Counts entries of its proposal for which a server is asked.
    pub(super) fn count_asked_entries(&self, proposer: &IdentityPublicKey, entries: usize) {
        if let Some(state) = self.shared.peers().get_mut(&proposer.to_bytes()) {
            state.asked_entries += entries as u64;
        }
    }

    /// The number of refused connections: their other end did not prove a key that may connect
    /// here.
    pub fn refused_connections(&self) -> u64 {
        self.shared.refused_connections.load(Ordering::Relaxed)
    }

    /// The state of the link with each server, in the order of their addresses.
    pub fn status(&self) -> Vec<LinkStatus> {
        let peers = self.shared.peers();
        let mut status: Vec<_> = peers.values().map(PeerLinkState::status).collect();
        status.sort_by(|a, b| (&a.address, &a.server).cmp(&(&b.address, &b.server)));
        status
    }
}

impl Drop for QuorumLinks {
    fn drop(&mut self) {
        self.accepting.abort();
        self.shared.peers().clear();
    }
}

impl SharedLinks {
    fn peers(&self) -> MutexGuard<'_, HashMap<[u8; 32], PeerLinkState>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether the server with this key may connect here. If this server is the one that connects,
    /// the attempt is taken as a request to connect, which happens at once.
    fn expects(&self, key: &IdentityPublicKey) -> bool {
        let peers = self.peers();
        let Some(state) = peers.get(&key.to_bytes()) else { return false };
        if state.dialing.is_some() && state.connection.is_none() {
            state.addresses_changed.notify_one();
        }
        dials(key, &self.own.public())
    }

    /// Whether this server has, or is to have, a link with the server with this key.
    fn knows(&self, key: &IdentityPublicKey) -> bool {
        self.peers().contains_key(&key.to_bytes())
    }

    /// Sends an event to all inboxes.
    fn broadcast(&self, event: impl Fn() -> LinkEvent) {
        for inbox in &self.inboxes {
            // An inbox is closed if nothing reads it.
            let _ = inbox.send(event());
        }
    }

    /// Begins a link, replacing an existing one. Returns a receiver that completes when the link
    /// ends, or `None` if the server was removed in the meantime.
    fn open(
        self: &Arc<Self>,
        stream: TcpStream,
        session: LinkSession,
    ) -> Option<tokio::sync::oneshot::Receiver<()>> {
        let key = session.peer;
        let mut peers = self.peers();
        let state = peers.get_mut(&key.to_bytes())?;
        if state.close() {
            debug!(server = %key, "the server has connected again");
            self.broadcast(|| LinkEvent::Down(key));
        }
        if let Some(occurrences) = state.lines.count_event_of(MAX_LINES) {
            info!(server = %key, address = %state.address(), occurrences, "link up");
        }
        (state.since, state.why) = (Instant::now(), None);
        self.broadcast(|| LinkEvent::Up(key));
        let connection = Arc::new(LinkConnection::new(session, self.now()));
        let (ended, end) = tokio::sync::oneshot::channel();
        let running = Arc::clone(&connection);
        let shared = Arc::clone(self);
        let task = tokio::spawn(async move {
            let why = running.run(stream, shared.start, &shared.inboxes).await;
            shared.closed(&running, &key, &why);
            drop(ended);
        });
        state.connection = Some((connection, task.abort_handle()));
        Some(end)
    }

    /// A link has ended.
    fn closed(&self, connection: &Arc<LinkConnection>, key: &IdentityPublicKey, why: &LinkEnd) {
        let mut peers = self.peers();
        let Some(state) = peers.get_mut(&key.to_bytes()) else { return };
        let current = state.connection.as_ref();
        if !current.is_some_and(|(current, _)| Arc::ptr_eq(current, connection)) {
            return;
        }
        state.connection = None;
        (state.since, state.why) = (Instant::now(), Some(why.to_string()));
        if let Some(occurrences) = state.lines.count_event_of(MAX_LINES) {
            warn!(server = %key, address = %state.address(), %why, occurrences, "link down");
        }
        self.broadcast(|| LinkEvent::Down(*key));
    }

    /// The address at which to connect to a server.
    fn peer(&self, key: IdentityPublicKey) -> Option<QuorumPeer> {
        let address = self.peers().get(&key.to_bytes())?.address().clone();
        Some(QuorumPeer { key, address })
    }

    /// A connection attempt has failed. It is logged if the reason differs from the previous one.
    /// The next attempt uses the next address.
    fn failed(&self, peer: &QuorumPeer, error: &LinkConnectError) {
        let mut peers = self.peers();
        let Some(state) = peers.get_mut(&peer.key.to_bytes()) else { return };
        let why = Some(error.to_string());
        if state.connection.is_none() && state.why != why {
            if let Some(occurrences) = state.lines.count_event_of(MAX_LINES) {
                warn!(server = %peer.key, address = %peer.address, %error, occurrences, "no link");
            }
            state.why = why;
        }
        if *state.address() == peer.address {
            state.tried = (state.tried + 1) % state.addresses.len();
        }
    }
}

/// Maintains a link with a server to which this one connects.
async fn dial(shared: Arc<SharedLinks>, key: IdentityPublicKey, moved: Arc<Notify>) {
    let mut backoff = ReconnectBackoff::default();
    let mut generator = RandomGenerator::system();
    while let Some(peer) = shared.peer(key) {
        let begun = Instant::now();
        let connecting = connection::dial(&shared.own, &peer, &mut generator);
        let mut ended = ConnectAttemptEnd::Failed;
        match timeout(HANDSHAKE_TIMEOUT, connecting)
            .await
            .unwrap_or(Err(LinkConnectError::TimedOut))
        {
            Ok((stream, session)) => {
                let opened = Instant::now();
                if let Some(end) = shared.open(stream, session) {
                    // Dropping it ends it.
                    let _ = end.await;
                }
                ended = ConnectAttemptEnd::Lasted(opened.elapsed());
            }
            Err(error) => {
                if matches!(error, LinkConnectError::Handshake(LinkHandshakeError::NotExpected)) {
                    ended = ConnectAttemptEnd::Refused;
                }
                shared.failed(&peer, &error);
            }
        }
        let random = generator.array().map_or(0, |[random]| random);
        tokio::select! {
            () = sleep(backoff.pause(ended, random)) => {}
            () = moved.notified() => {
                backoff = ReconnectBackoff::default();
                sleep_until(begun + MIN_INTERVAL).await;
            }
        }
    }
}

#[cfg(test)]
mod tests;
