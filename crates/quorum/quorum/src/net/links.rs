//! The links of a server: one connection with each other server of its groups. The server with the
//! smaller key connects, and connects again when a link has ended.
//!
//! A message to a server without a link is not kept: protocols send again what matters when they
//! hear [`LinkEvent::Up`].

mod accept;
mod connection;
mod peer_address;
mod probe;

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use keys::{IdentityPublicKey, IdentitySecretKey};
use random::{RandomError, RandomGenerator};
use serde::{Deserialize, Serialize};
use service::listening::ConfiguredListener;
use service::log::LogRateLimiter;
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
use probe::probe;
pub use probe::{LinkProbeResult, probe_all};

/// How long a connection may take until both ends are proven.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// The least time between two attempts to connect to a server, when it has asked for one or moved.
/// Anybody may repeat what it has asked.
const MIN_INTERVAL: Duration = Duration::from_secs(1);

/// How many lines about the link with one server are logged in 10 s: a faulty server may connect
/// and disconnect as often as it likes. A line says how many there were since the one before it.
const MAX_LINES: u32 = 6;

/// Another server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuorumPeer {
    /// Its identity.
    pub key: IdentityPublicKey,
    /// Where it listens.
    pub address: ServerAddress,
}

/// What comes from the links, in the order in which it happens at each of them.
#[derive(Debug)]
pub enum LinkEvent {
    /// There is a link with this server.
    Up(IdentityPublicKey),
    /// There is none any more. Messages may be lost.
    Down(IdentityPublicKey),
    /// A message.
    Message(LinkMessage),
}

/// A message. Its sender may send as much again when it is dropped.
#[derive(Debug)]
pub struct LinkMessage {
    /// The message.
    pub bytes: Bytes,
    credit: connection::MessageCredit,
}

impl LinkMessage {
    /// Who has sent it.
    pub fn from(&self) -> &IdentityPublicKey {
        self.credit.sender()
    }
}

/// The messages of one topic.
#[derive(Debug)]
pub struct TopicInbox {
    /// What is said again, before what comes.
    replayed: VecDeque<LinkEvent>,
    received: UnboundedReceiver<LinkEvent>,
}

impl TopicInbox {
    /// The next one; `None` after the links were stopped. Nothing is lost if the future is dropped.
    pub async fn next(&mut self) -> Option<LinkEvent> {
        match self.replayed.pop_front() {
            Some(inbound) => Some(inbound),
            None => self.received.recv().await,
        }
    }

    /// The next one if it is there.
    pub(super) fn try_next(&mut self) -> Option<LinkEvent> {
        self.replayed.pop_front().or_else(|| self.received.try_recv().ok())
    }

    /// Says first that there are links with these servers, to who reads next.
    pub(super) fn replay_link_up(&mut self, servers: impl Iterator<Item = IdentityPublicKey>) {
        self.replayed.extend(servers.map(LinkEvent::Up));
    }
}

/// The state of the link with one server, for people and scripts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LinkStatus {
    /// The server's identity key.
    pub server: String,
    /// Where it is connected to, or tried.
    pub address: String,
    /// Whether there is a link.
    pub up: bool,
    /// The time in this state, in seconds.
    pub state_s: f64,
    /// Why it is down.
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
}

/// The bytes of messages that a server has handed to its links since its start, without what
/// encryption, pings and TCP add; also of those that were lost with a link.
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
    /// The times of the protocol count from here.
    start: Instant,
    inboxes: [UnboundedSender<LinkEvent>; 3],
    /// The bytes of messages of each topic that were handed to links.
    sent: [AtomicU64; 3],
    peers: Mutex<HashMap<[u8; 32], PeerLinkState>>,
    /// How many connections did not become links.
    refused_connections: AtomicU64,
    /// It is known who may connect.
    peers_known: Notify,
}

impl std::fmt::Debug for SharedLinks {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("SharedLinks").field("own", &self.own.public()).finish_non_exhaustive()
    }
}

/// One other server.
struct PeerLinkState {
    key: IdentityPublicKey,
    /// Where it may listen, the most likely address first; at least one.
    addresses: Vec<ServerAddress>,
    /// Which of them is tried, or has answered.
    tried: usize,
    /// Told when the addresses have changed.
    addresses_changed: Arc<Notify>,
    since: Instant,
    why: Option<String>,
    connection: Option<(Arc<LinkConnection>, AbortHandle)>,
    refused_messages: u64,
    dialing: Option<AbortHandle>,
    lines: LogRateLimiter,
}

impl PeerLinkState {
    fn address(&self) -> &ServerAddress {
        &self.addresses[self.tried]
    }

    /// Ends the link if there is one; returns whether there was.
    fn close(&mut self) -> bool {
        let open = self.connection.take();
        if let Some((_, task)) = &open {
            task.abort();
        }
        open.is_some()
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
    /// Accepts connections of the servers that [`Self::set_peers`] names. Also returns an inbox for
    /// each of [`LinkTopic::ALL`]. It must be called in a runtime.
    pub fn start(
        own: IdentitySecretKey,
        listening: Vec<ConfiguredListener>,
    ) -> (Self, [TopicInbox; 3]) {
        let channels = LinkTopic::ALL.map(|_| unbounded_channel());
        let inboxes = channels.each_ref().map(|(sender, _)| sender.clone());
        let peers = Mutex::default();
        let (own, start, sent) = (Arc::new(own), Instant::now(), Default::default());
        let (named, refused_connections) = (Notify::new(), AtomicU64::new(0));
        let shared = SharedLinks {
            own,
            start,
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

    /// Keeps links with these servers and no others. A server can be named with several addresses,
    /// the most likely first: they are tried in turn. Existing links go on.
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
                    place.insert(PeerLinkState {
                        key,
                        addresses,
                        tried: 0,
                        addresses_changed: moved,
                        since: Instant::now(),
                        why: None,
                        connection: None,
                        refused_messages: 0,
                        dialing,
                        lines: LogRateLimiter::default(),
                    });
                }
            }
        }
        self.shared.peers_known.notify_one();
    }

    /// Asks a server that connects here to do it soon, if it has given that up.
    fn ask_for_connection(&self, key: IdentityPublicKey, address: &ServerAddress) {
        let (shared, peer) =
            (Arc::clone(&self.shared), QuorumPeer { key, address: address.clone() });
        // It is refused, and heard.
        tokio::spawn(async move { _ = probe(&shared.own, &peer).await });
    }

    /// What is at the addresses of these servers, in their order.
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
    /// When there is no link with it, the message is too long, or too much waits.
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

    /// How many bytes wait on a lane to be sent to a server; 0 without a link.
    pub(super) fn queued(&self, to: &IdentityPublicKey, lane: LinkLane) -> usize {
        let peers = self.shared.peers();
        let state = peers.get(&to.to_bytes());
        let open = state.and_then(|state| state.connection.as_ref());
        open.map_or(0, |(connection, _)| connection.queued(lane))
    }

    /// How much was sent.
    pub fn sent(&self) -> SentBytes {
        let [log, signing, refresh] =
            self.shared.sent.each_ref().map(|sent| sent.load(Ordering::Relaxed));
        SentBytes { log, signing, refresh }
    }

    /// Counts a message of a server that was refused.
    pub(super) fn count_refused(&self, from: &IdentityPublicKey) {
        if let Some(state) = self.shared.peers().get_mut(&from.to_bytes()) {
            state.refused_messages += 1;
        }
    }

    /// How many connections were refused: their other ends have not proven the key of a server that
    /// connects here.
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

impl PeerLinkState {
    /// The server may listen at these addresses from now on.
    fn set_addresses(&mut self, addresses: Vec<ServerAddress>) {
        if addresses == self.addresses {
            return;
        }
        let before = std::mem::replace(&mut self.addresses, addresses).swap_remove(self.tried);
        let still = self.addresses.iter().position(|address| *address == before);
        // A link that was dialled goes on where it is.
        let is_dialled = self.dialing.is_some() && self.connection.is_some();
        self.tried = still.filter(|_| is_dialled).unwrap_or(0);
        self.addresses_changed.notify_one();
    }

    fn status(&self) -> LinkStatus {
        let connection = self.connection.as_ref().map(|(connection, _)| connection);
        let (round_trip, queued) =
            connection.map_or((None, 0), |connection| connection.round_trip_and_queued());
        LinkStatus {
            server: self.key.to_string(),
            address: self.address().to_string(),
            up: connection.is_some(),
            state_s: self.since.elapsed().as_secs_f64(),
            why: self.why.clone(),
            round_trip_ms: round_trip.map(|it| it.as_secs_f64() * 1e3),
            queued_bytes: queued as u64,
            refused_messages: self.refused_messages,
        }
    }
}

impl SharedLinks {
    fn peers(&self) -> MutexGuard<'_, HashMap<[u8; 32], PeerLinkState>> {
        self.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.start.elapsed()
    }

    /// Whether the server with this key may connect here. If it is to be connected to from here,
    /// and wants that, this happens at once.
    fn expects(&self, key: &IdentityPublicKey) -> bool {
        let peers = self.peers();
        let Some(state) = peers.get(&key.to_bytes()) else { return false };
        if state.dialing.is_some() && state.connection.is_none() {
            state.addresses_changed.notify_one();
        }
        dials(key, &self.own.public())
    }

    /// Whether this server has a link with the one with this key, or is to have one.
    fn knows(&self, key: &IdentityPublicKey) -> bool {
        self.peers().contains_key(&key.to_bytes())
    }

    /// Tells all inboxes.
    fn broadcast(&self, event: impl Fn() -> LinkEvent) {
        for inbox in &self.inboxes {
            // It is closed if nothing reads it.
            let _ = inbox.send(event());
        }
    }

    /// Begins a link, in place of the one there was; returns its end, unless the server was removed
    /// in the meantime.
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
        if let Some(so_often) = state.lines.count_event_of(MAX_LINES) {
            info!(server = %key, address = %state.address(), so_often, "link up");
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
        if let Some(so_often) = state.lines.count_event_of(MAX_LINES) {
            warn!(server = %key, address = %state.address(), %why, so_often, "link down");
        }
        self.broadcast(|| LinkEvent::Down(*key));
    }

    /// Where a server is to be connected to.
    fn peer(&self, key: IdentityPublicKey) -> Option<QuorumPeer> {
        let address = self.peers().get(&key.to_bytes())?.address().clone();
        Some(QuorumPeer { key, address })
    }

    /// An attempt to connect has failed: it is logged when the reason is another than before. The
    /// next one is at the next address.
    fn failed(&self, peer: &QuorumPeer, error: &LinkConnectError) {
        let mut peers = self.peers();
        let Some(state) = peers.get_mut(&peer.key.to_bytes()) else { return };
        let why = Some(error.to_string());
        if state.connection.is_none() && state.why != why {
            if let Some(so_often) = state.lines.count_event_of(MAX_LINES) {
                warn!(server = %peer.key, address = %peer.address, %error, so_often, "no link");
            }
            state.why = why;
        }
        if *state.address() == peer.address {
            state.tried = (state.tried + 1) % state.addresses.len();
        }
    }
}

/// Keeps a link with a server to which this one connects.
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
                    // It ends by being dropped.
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
