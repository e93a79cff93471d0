//! Handles the server's connections until they are associated. Each is sent a cookie, and leaves
//! together with those that its client's list names.
//!
//! A connection has a permit until its stream's request is verified. When there are too many
//! connections, the oldest of the largest source is evicted.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use association::{
    AssociationMessage, AssociationOpenError, ConnectionCookie, CookieList, PendingConnectionId,
    Rejoin,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};
use zeroize::Zeroizing;

use crate::config::{Integrity, MicssServerConfig};
use crate::net::metrics::ChannelMetrics;
use crate::net::stream::connection::ChannelConnection;
use crate::protocol::admission::{
    PendingCloseReason, PendingConnectionCounts, PendingConnectionEvent, PendingConnectionLimits,
    PendingConnectionTable,
};
use service::log::LogRateLimiter;

/// The maximum length of a read before the association. Bytes after the list belong to the stream.
const MAX_READ: usize = 1024;

/// The connections that have no open stream.
pub(crate) struct PendingChannelConnections {
    epoch: Instant,
    state: Mutex<PendingConnectionRegistry>,
}

struct PendingConnectionRegistry {
    /// Decides which are kept, and which belong together.
    table: PendingConnectionTable,
    /// How each connection's owner is notified.
    pending: HashMap<PendingConnectionId, PendingConnectionOwner>,
    /// Connections that were rejected.
    refused: LogRateLimiter,
    /// Connections that were evicted.
    closed: LogRateLimiter,
    /// Connections whose terms the server rejects.
    rejected: LogRateLimiter,
}

/// The owner of a connection.
enum PendingConnectionOwner {
    /// The task that waits for its association, and receives its assignment. If the sender is
    /// dropped, the task closes the connection.
    AwaitingList(oneshot::Sender<ConnectionAssignment>),
    /// A stream whose request is not verified yet. Notified to end it.
    AwaitingRequest(Arc<Notify>),
}

/// A connection's place in the table. It is removed when this is dropped.
pub(crate) struct PendingConnectionPermit {
    pending: Arc<PendingChannelConnections>,
    id: PendingConnectionId,
}

impl Drop for PendingConnectionPermit {
    fn drop(&mut self) {
        self.pending.with(|state, _| {
            state.pending.remove(&self.id);
            state.table.remove(self.id);
        });
    }
}

/// A client's connection.
pub(crate) struct AcceptedChannelConnection {
    /// The connection itself.
    pub(crate) stream: ChannelConnection,
    /// Its source.
    pub(crate) peer: SocketAddr,
    /// The bytes that were read and belong to the stream.
    pub(crate) rest: Zeroizing<Vec<u8>>,
    /// Its place, until the stream opens.
    pub(crate) permit: PendingConnectionPermit,
}

/// Connections that belong together.
pub(crate) struct AssociatedConnections {
    /// The list of their cookies, which both ends know.
    pub(crate) list: CookieList,
    /// The connections, by their channels' indices.
    pub(crate) connections: BTreeMap<usize, AcceptedChannelConnection>,
    /// Notified when the stream is evicted before its request is verified.
    pub(crate) evicted: Arc<Notify>,
}

/// The assignment of a connection.
enum ConnectionAssignment {
    /// It belongs to an association.
    Slot(AssociationSlot),
    /// It asks to replace another in an open stream.
    Rejoin(Rejoin, ConnectionCookie),
}

/// What the handshake of a connection completes.
pub(crate) enum HandshakeCompletion {
    /// An association.
    Association(AssociatedConnections),
    /// A connection that asks to replace another in an open stream.
    Rejoin(Rejoin, ConnectionCookie, AcceptedChannelConnection),
}

/// A connection's place in its association: its channel's index.
struct AssociationSlot {
    builder: Arc<AssociationBuilder>,
    index: usize,
}

/// The connections of one association, passed in by the tasks that ran their handshakes.
struct AssociationBuilder {
    list: CookieList,
    /// Their number.
    expected: usize,
    evicted: Arc<Notify>,
    connections: Mutex<BTreeMap<usize, AcceptedChannelConnection>>,
}

impl AssociationSlot {
    /// Passes in a connection. Returns all of them to the last caller.
    fn take(self, connection: AcceptedChannelConnection) -> Option<AssociatedConnections> {
        let mut all = self.builder.connections.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(self.index, connection);
        let is_complete = all.len() == self.builder.expected;
        is_complete.then(|| AssociatedConnections {
            list: self.builder.list.clone(),
            connections: std::mem::take(&mut all),
            evicted: Arc::clone(&self.builder.evicted),
        })
    }
}

impl PendingChannelConnections {
    /// An empty table, with the limits of the configuration.
    pub(crate) fn new(config: &MicssServerConfig) -> Self {
        let state = PendingConnectionRegistry {
            table: PendingConnectionTable::new(limits(config)),
            pending: HashMap::new(),
            refused: LogRateLimiter::default(),
            closed: LogRateLimiter::default(),
            rejected: LogRateLimiter::default(),
        };
        Self { epoch: Instant::now(), state: Mutex::new(state) }
    }

    /// Applies the limits of this configuration.
    pub(crate) fn reconfigure(&self, config: &MicssServerConfig) {
        self.with(|state, _| state.table.reconfigure(limits(config)));
    }

    /// The number of connections without an open stream, and the counts.
    pub(crate) fn counts(&self) -> (u64, PendingConnectionCounts) {
        self.with(|state, _| state.table.counts())
    }

    /// Runs the handshake of one connection. Returns all connections of its association if it was
    /// the last of them, or the connection itself if it is for an open stream.
    pub(crate) async fn associate(
        self: &Arc<Self>,
        mut stream: TcpStream,
        peer: SocketAddr,
        metrics: Arc<ChannelMetrics>,
    ) -> Option<HandshakeCompletion> {
        let random = random::RandomGenerator::system().array();
        let cookie = ConnectionCookie::new(random.map_err(|error| self.refuse(peer, &error)).ok()?);
        let opened = self.open(cookie, peer.ip());
        // A task releases its place before it ends, so that no connection is assigned a slot that
        // its task does not wait for.
        let (mut assignment, permit) = opened.map_err(|error| self.refuse(peer, &error)).ok()?;
        metrics.ready.increment();
        let guard = PendingConnectionGuard { permit: &permit, metrics: &metrics };
        let (assignment, rest) = guard.wait(&mut stream, cookie, &mut assignment).await?;
        drop(guard);
        let channel = match &assignment {
            ConnectionAssignment::Slot(slot) => slot.index,
            ConnectionAssignment::Rejoin(rejoin, _) => rejoin.channel.into(),
        };
        let stream = ChannelConnection::new(stream, metrics, channel);
        let connection = AcceptedChannelConnection { stream, peer, rest, permit };
        match assignment {
            ConnectionAssignment::Slot(slot) => {
                slot.take(connection).map(HandshakeCompletion::Association)
            }
            ConnectionAssignment::Rejoin(rejoin, cookie) => {
                Some(HandshakeCompletion::Rejoin(rejoin, cookie, connection))
            }
        }
    }

    fn refuse(&self, peer: SocketAddr, error: &dyn std::fmt::Display) {
        if let Some(refused) = self.with(|state, _| state.refused.count_event()) {
            warn!(%peer, %error, refused, "connections refused");
        }
    }

    /// Adds a connection of a source. Another may be evicted. The receiver delivers its assignment;
    /// if the sender is dropped, the connection must be closed.
    fn open(
        self: &Arc<Self>,
        cookie: ConnectionCookie,
        source: IpAddr,
    ) -> Result<
        (oneshot::Receiver<ConnectionAssignment>, PendingConnectionPermit),
        AssociationOpenError,
    > {
        let (id, receiver) = self.with(|state, now| {
            let id = state.table.open(cookie, source, now)?;
            let (slot, receiver) = oneshot::channel();
            state.pending.insert(id, PendingConnectionOwner::AwaitingList(slot));
            Ok((id, receiver))
        })?;
        Ok((receiver, PendingConnectionPermit { pending: Arc::clone(self), id }))
    }

    /// Runs an operation of the table, and sends the resulting assignments.
    fn with<T>(&self, handle: impl FnOnce(&mut PendingConnectionRegistry, Duration) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = handle(&mut state, self.epoch.elapsed());
        state.handle_events();
        result
    }
}

impl PendingConnectionRegistry {
    fn handle_events(&mut self) {
        while let Some(event) = self.table.poll_event() {
            match event {
                PendingConnectionEvent::Associated { list, connections } => {
                    self.fill_slots(list, connections);
                }
                PendingConnectionEvent::Rejoin { id, cookie, rejoin } => {
                    if let Some(PendingConnectionOwner::AwaitingList(assignment)) =
                        self.pending.remove(&id)
                    {
                        // The connection's task may have ended.
                        let _ = assignment.send(ConnectionAssignment::Rejoin(rejoin, cookie));
                    }
                }
                PendingConnectionEvent::Closed { id, source, reason } => {
                    // Without its slot, a waiting connection is closed by its task.
                    if let Some(PendingConnectionOwner::AwaitingRequest(evicted)) =
                        self.pending.remove(&id)
                    {
                        evicted.notify_one();
                    }
                    self.log_closed(source, reason);
                }
            }
        }
    }

    /// Sends the slots to connections that belong together.
    fn fill_slots(&mut self, list: CookieList, connections: Vec<Option<PendingConnectionId>>) {
        let expected = connections.iter().flatten().count();
        let evicted = Arc::new(Notify::new());
        let builder = Arc::new(AssociationBuilder {
            list,
            expected,
            evicted: Arc::clone(&evicted),
            connections: Mutex::default(),
        });
        for (index, id) in connections.into_iter().enumerate() {
            let owner = id.and_then(|id| self.pending.get_mut(&id));
            let Some(owner) = owner else { continue };
            let stream = PendingConnectionOwner::AwaitingRequest(Arc::clone(&evicted));
            if let PendingConnectionOwner::AwaitingList(slot) = std::mem::replace(owner, stream) {
                // The connection's task may have ended.
                let slot_of = AssociationSlot { builder: Arc::clone(&builder), index };
                let _ = slot.send(ConnectionAssignment::Slot(slot_of));
            }
        }
    }

    fn log_closed(&mut self, source: Option<IpAddr>, reason: PendingCloseReason) {
        match reason {
            PendingCloseReason::NotAssociated(reason) => {
                debug!(%reason, "connection not associated");
            }
            PendingCloseReason::Terms => {
                if let Some(occurrences) = self.rejected.count_event() {
                    warn!(
                        ?source,
                        occurrences,
                        "connections rejected: their client has a lower threshold than min_channels, more \
                         channels than max_channels, or another integrity"
                    );
                }
            }
            PendingCloseReason::Evicted => {
                if let Some(closed) = self.closed.count_event() {
                    let max_waiting = self.table.max_waiting();
                    warn!(
                        ?source,
                        closed,
                        max_waiting,
                        "connections closed that have no open stream: limit reached, and this source \
                         has most of them; if it is not a client, let a firewall drop it"
                    );
                }
            }
        }
    }
}

/// The limits of the configuration.
fn limits(config: &MicssServerConfig) -> PendingConnectionLimits {
    PendingConnectionLimits {
        max_waiting: config.max_waiting,
        min_channels: config.min_channels,
        max_channels: config.max_channels,
        allows_raw: config.integrity == Integrity::None,
    }
}

/// A connection that waits for its association.
struct PendingConnectionGuard<'a> {
    permit: &'a PendingConnectionPermit,
    metrics: &'a ChannelMetrics,
}

impl PendingConnectionGuard<'_> {
    /// Sends the connection its cookie, reads its list, and waits for its slot, until the table's
    /// deadline. Returns the slot, and the bytes after the list.
    async fn wait(
        &self,
        stream: &mut TcpStream,
        cookie: ConnectionCookie,
        slot: &mut oneshot::Receiver<ConnectionAssignment>,
    ) -> Option<(ConnectionAssignment, Zeroizing<Vec<u8>>)> {
        let greeting = AssociationMessage::Cookie(cookie).encode();
        let mut unsent = &greeting[..];
        let (mut reader, mut writer) = stream.split();
        let mut bytes = Zeroizing::new([0; MAX_READ]);
        let mut rest = Zeroizing::new(Vec::new());
        loop {
            let timeout =
                self.permit.pending.with(|state, _| state.table.connection_timeout(self.permit.id));
            let timeout = timeout.map(|timeout| self.permit.pending.epoch + timeout);
            tokio::select! {
                biased;
                slot = &mut *slot => return Some((slot.ok()?, rest)),
                sent = writer.write(unsent), if !unsent.is_empty() => match sent {
                    Ok(len) => unsent = &unsent[len..],
                    Err(_) => break,
                },
                // Bytes after the list stay unread.
                read = reader.read(&mut *bytes), if rest.is_empty() => match read {
                    Ok(len @ 1..) => rest = self.read(&bytes[..len]),
                    Ok(0) | Err(_) => break,
                },
                () = sleep_until(timeout.unwrap_or_else(Instant::now)), if timeout.is_some() => {
                    self.permit.pending.with(|state, now| state.table.handle_timeout(now));
                }
            }
        }
        // Its slot may have arrived just now, and the others wait for the connection there.
        self.permit.pending.with(|state, _| state.table.handle_closed(self.permit.id));
        Some((slot.try_recv().ok()?, rest))
    }

    /// Handles received bytes. Returns those that belong to the stream: all of them, if the
    /// connection has just been associated.
    fn read(&self, bytes: &[u8]) -> Zeroizing<Vec<u8>> {
        let rest = self
            .permit
            .pending
            .with(|state, now| state.table.handle_bytes(self.permit.id, bytes, now));
        Zeroizing::new(rest.to_vec())
    }
}

impl Drop for PendingConnectionGuard<'_> {
    fn drop(&mut self) {
        self.metrics.ready.decrement();
    }
}
