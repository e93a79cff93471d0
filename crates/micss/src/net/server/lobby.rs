//! Where the server's connections wait for their association: each is greeted with a cookie, and leaves
//! together with those that its client's list names.
//!
//! A connection keeps its place here until its stream has proved to be one: until the request is verified.
//! When there are more than may be, those evicted are the oldest of the largest source.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use association::{
    ConnectionId, Cookie, HandshakeConfig as TableConfig, HandshakeServer as Table, List, Message,
    MessageError, MessageKind, OpenError, Protocol, ServerAbort, ServerEvent, SharingScheme, Terms,
    TermsPolicy,
};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};
use zeroize::Zeroizing;

use crate::config::{Integrity, ServerConfig};
use crate::net::metrics::Meter;
use crate::net::stream::metered::Metered;
use crate::protocol::admission::Sources;
use crate::protocol::incoming::MOMENT;
use crate::protocol::options::{OPTION_NO_RECORDS, OPTION_ONCE};
use service::log::LogRateLimiter;

/// How long a connection may wait for its association. A client keeps them ready for less, so that it
/// does not take one that is just being closed.
pub(crate) const WAITING_TIMEOUT: Duration = Duration::from_secs(90);

/// The longest piece that is read before the association. What follows the list in it is the stream's.
const MAX_READ: usize = 1024;

/// The connections that have no open stream.
pub(crate) struct Lobby {
    epoch: Instant,
    state: Mutex<State>,
}

struct State {
    table: Table,
    places: HashMap<ConnectionId, Holder>,
    /// Whose they are.
    sources: Sources,
    /// How many there may be.
    max_waiting: usize,
    next_id: u64,
    counts: Counts,
    /// Connections that were not taken in.
    refused: LogRateLimiter,
    /// Connections that had to make room.
    closed: LogRateLimiter,
    /// Those on other terms.
    unfit: LogRateLimiter,
}

/// What became of those that waited, since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Connections that were closed to make room for others.
    pub(crate) evicted: u64,
    /// Streams that were ended for the same reason before their request was verified.
    pub(crate) unopened_evicted: u64,
    /// Connections whose client asked for terms that it does not get.
    pub(crate) turned_away: u64,
}

/// Who has a place.
enum Holder {
    /// A connection that waits for the others of its list. Where its seat goes: without it, it is closed.
    Waiting(oneshot::Sender<Seat>),
    /// One of a stream whose request is not verified yet. What ends that.
    Unopened(Arc<Notify>),
}

/// A connection's place among those that have no open stream. It is free again when this is dropped.
pub(crate) struct Place {
    lobby: Arc<Lobby>,
    id: ConnectionId,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.lobby.with(|state, _| state.leave(self.id));
    }
}

/// A client's connection.
pub(crate) struct Connection {
    /// The connection itself.
    pub(crate) stream: Metered<TcpStream>,
    /// Where it is from.
    pub(crate) peer: SocketAddr,
    /// What was read of it and belongs to the stream.
    pub(crate) rest: Zeroizing<Vec<u8>>,
    /// Its place, until the stream opens.
    pub(crate) place: Place,
}

/// Connections that belong together.
pub(crate) struct Association {
    /// What both ends hold.
    pub(crate) list: List,
    /// The connections, by their channels' indices.
    pub(crate) connections: BTreeMap<usize, Connection>,
    /// Notified when the stream has to make room for others before its request is verified.
    pub(crate) evicted: Arc<Notify>,
}

/// A connection's place among those that belong together: its channel's index.
struct Seat {
    table: Arc<Gathering>,
    index: usize,
}

/// The connections of one association, as they come in from the tasks that welcomed them.
struct Gathering {
    list: List,
    /// How many there are.
    seats: usize,
    evicted: Arc<Notify>,
    connections: Mutex<BTreeMap<usize, Connection>>,
}

impl Seat {
    /// Hands in the connection. Returns all of them to whoever hands in the last.
    fn take(self, connection: Connection) -> Option<Association> {
        let mut all = self.table.connections.lock().unwrap_or_else(PoisonError::into_inner);
        all.insert(self.index, connection);
        let is_complete = all.len() == self.table.seats;
        is_complete.then(|| Association {
            list: self.table.list.clone(),
            connections: std::mem::take(&mut all),
            evicted: Arc::clone(&self.table.evicted),
        })
    }
}

impl Lobby {
    /// An empty one, that agrees to what the configuration allows.
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let state = State {
            table: Table::new(table(config)),
            places: HashMap::new(),
            sources: Sources::default(),
            max_waiting: config.max_waiting,
            next_id: 0,
            counts: Counts::default(),
            refused: LogRateLimiter::default(),
            closed: LogRateLimiter::default(),
            unfit: LogRateLimiter::default(),
        };
        Self { epoch: Instant::now(), state: Mutex::new(state) }
    }

    /// From here on, agrees to what this configuration allows.
    pub(crate) fn reconfigure(&self, config: &ServerConfig) {
        self.with(|state, _| {
            state.table.reconfigure(table(config));
            state.max_waiting = config.max_waiting;
        });
    }

    /// How many have no open stream, and what became of others.
    pub(crate) fn counts(&self) -> (u64, Counts) {
        self.with(|state, _| (state.sources.total(), state.counts))
    }

    /// Sees one connection through the handshake. Returns all connections of its association if it was the
    /// last of them.
    pub(crate) async fn welcome(
        self: &Arc<Self>,
        mut stream: TcpStream,
        peer: SocketAddr,
        meter: Arc<Meter>,
    ) -> Option<Association> {
        let random = sharing::Generator::system().array();
        let cookie = Cookie::new(random.map_err(|error| self.refuse(peer, &error)).ok()?);
        let opened = self.open(cookie, peer.ip());
        // Who leaves gives up the place first, so that nobody is given a seat who does not wait for it.
        let (mut seat, place) = opened.map_err(|error| self.refuse(peer, &error)).ok()?;
        meter.ready.up();
        let guest = Guest { place: &place, meter: &meter };
        let greeting = Message::Cookie(cookie).encode();
        timeout(WAITING_TIMEOUT, stream.write_all(&greeting)).await.ok()?.ok()?;
        let (seat, rest) = guest.wait(&mut stream, &mut seat).await?;
        drop(guest);
        let stream = Metered::new(stream, meter, seat.index);
        seat.take(Connection { stream, peer, rest, place })
    }

    fn refuse(&self, peer: SocketAddr, error: &dyn std::fmt::Display) {
        if let Some(refused) = self.with(|state, _| state.refused.happened()) {
            warn!(%peer, %error, refused, "connections refused");
        }
    }

    /// Takes in a connection of a source; another has to go if there are too many. Its seat comes through the
    /// receiver, whose end means that it has none.
    fn open(
        self: &Arc<Self>,
        cookie: Cookie,
        source: IpAddr,
    ) -> Result<(oneshot::Receiver<Seat>, Place), OpenError> {
        let (id, receiver) = self.with(|state, now| {
            let id = ConnectionId(state.next_id);
            state.sources.take(id.0, source, 1);
            state.make_room();
            if let Err(error) = state.table.open(id, cookie, now) {
                state.sources.remove(id.0);
                return Err(error);
            }
            state.next_id += 1;
            let (seat, receiver) = oneshot::channel();
            state.places.insert(id, Holder::Waiting(seat));
            Ok((id, receiver))
        })?;
        Ok((receiver, Place { lobby: Arc::clone(self), id }))
    }

    /// Has the table handle something, and hands out the seats that come of it.
    fn with<T>(&self, handle: impl FnOnce(&mut State, Duration) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = handle(&mut state, self.epoch.elapsed());
        state.hand_out_seats();
        result
    }
}

impl State {
    fn hand_out_seats(&mut self) {
        while let Some(event) = self.table.poll_event() {
            match event {
                // The cookie is known without it, and whoever serves the stream sends the confirm.
                ServerEvent::Transmit { .. } => {}
                ServerEvent::Associated { list, connections } if is_unfit(list.terms()) => {
                    let ids: Vec<ConnectionId> = connections.into_iter().flatten().collect();
                    let source = ids.first().and_then(|id| self.sources.source(id.0));
                    self.turn_away(source);
                    for id in ids {
                        self.leave(id);
                    }
                }
                ServerEvent::Associated { list, connections } => self.seat(list, connections),
                ServerEvent::Aborted { id, reason } => {
                    debug!(%reason, "connection not associated");
                    if is_about_terms(reason) {
                        self.turn_away(self.sources.source(id.0));
                    }
                    self.leave(id);
                }
            }
        }
    }

    /// Gives connections that belong together their seats.
    fn seat(&mut self, list: List, connections: Vec<Option<ConnectionId>>) {
        let seats = connections.iter().flatten().count();
        let evicted = Arc::new(Notify::new());
        let table = Arc::new(Gathering {
            list,
            seats,
            evicted: Arc::clone(&evicted),
            connections: Mutex::default(),
        });
        for (index, id) in connections.into_iter().enumerate() {
            let holder = id.and_then(|id| self.places.get_mut(&id));
            let Some(holder) = holder else { continue };
            let unopened = Holder::Unopened(Arc::clone(&evicted));
            if let Holder::Waiting(seat) = std::mem::replace(holder, unopened) {
                // Nobody listens when the connection's task has ended.
                let _ = seat.send(Seat { table: Arc::clone(&table), index });
            }
        }
    }

    /// A client asks for terms that it does not get.
    fn turn_away(&mut self, source: Option<IpAddr>) {
        self.counts.turned_away += 1;
        if let Some(so_often) = self.unfit.happened() {
            warn!(
                ?source,
                so_often,
                "connections turned away: their client has a lower threshold than min_channels, more \
                 channels than max_channels, or another integrity"
            );
        }
    }

    /// While there are more connections than may be, closes the oldest of the source that has most.
    fn make_room(&mut self) {
        while self.sources.total() > self.max_waiting as u64 {
            let Some(oldest) = self.sources.oldest_of_largest() else { return };
            let source = self.sources.source(oldest);
            self.counts.evicted += 1;
            if let Some(Holder::Unopened(evicted)) = self.leave(ConnectionId(oldest)) {
                self.counts.unopened_evicted += 1;
                evicted.notify_one();
            }
            if let Some(closed) = self.closed.happened() {
                let max_waiting = self.max_waiting;
                warn!(
                    ?source,
                    closed,
                    max_waiting,
                    "connections closed that have no open stream: limit reached, and this source has \
                     most of them; if it is no client, let a firewall drop it"
                );
            }
        }
    }

    /// A connection has no place any more.
    fn leave(&mut self, id: ConnectionId) -> Option<Holder> {
        self.sources.remove(id.0);
        let holder = self.places.remove(&id);
        // It may have left the table before, and then this changes nothing there.
        self.table.handle_closed(id);
        holder
    }
}

/// Whether a stream could lose channels, and nobody could tell which carry other bytes than were sent.
fn is_unfit(terms: Terms) -> bool {
    terms.threshold() < terms.channels() && terms.options() & OPTION_NO_RECORDS != 0
}

/// Whether a connection was given up for what its client asks for. A list of more channels than are allowed is
/// not even read.
fn is_about_terms(reason: ServerAbort) -> bool {
    let too_long =
        |error| matches!(error, MessageError::BodyLength { kind: MessageKind::List, .. });
    match reason {
        ServerAbort::Terms => true,
        ServerAbort::Message(error) => too_long(error),
        _ => false,
    }
}

/// What the configuration means for the handshake.
fn table(config: &ServerConfig) -> TableConfig {
    let raw = if config.integrity == Integrity::None { OPTION_NO_RECORDS } else { 0 };
    let policy = TermsPolicy {
        protocols: vec![Protocol::MicssStream],
        schemes: vec![SharingScheme::Xor, SharingScheme::Shamir],
        min_threshold: config.min_channels,
        max_channels: config.max_channels,
        options: raw | OPTION_ONCE,
    };
    TableConfig {
        max_pending: config.max_waiting,
        timeout: WAITING_TIMEOUT,
        quorum_timeout: Some(MOMENT),
        policy,
    }
}

/// A connection that waits for its association.
struct Guest<'a> {
    place: &'a Place,
    meter: &'a Meter,
}

impl Guest<'_> {
    /// Reads the connection's list, and waits until it has a seat. Returns that, and what follows the list.
    async fn wait(
        &self,
        stream: &mut TcpStream,
        seat: &mut oneshot::Receiver<Seat>,
    ) -> Option<(Seat, Zeroizing<Vec<u8>>)> {
        let deadline = Instant::now() + WAITING_TIMEOUT;
        let mut look = deadline;
        let mut bytes = Zeroizing::new([0; MAX_READ]);
        let mut rest = Zeroizing::new(Vec::new());
        loop {
            tokio::select! {
                biased;
                seat = &mut *seat => return Some((seat.ok()?, rest)),
                // What follows the list has to wait.
                read = stream.read(&mut *bytes), if rest.is_empty() => match read {
                    Ok(len @ 1..) => {
                        let patience;
                        (rest, patience) = self.read(&bytes[..len]);
                        look = patience.unwrap_or(deadline).min(deadline);
                    }
                    Ok(0) | Err(_) => break,
                },
                () = sleep_until(look) => {
                    if look == deadline {
                        break;
                    }
                    // It has waited long enough for the others, if they can be done without.
                    self.place.lobby.with(|state, now| state.table.handle_timeout(now));
                    look = deadline;
                }
            }
        }
        // It may have been given a seat just now, and the others wait for it there.
        self.place.lobby.with(|state, _| state.table.handle_closed(self.place.id));
        Some((seat.try_recv().ok()?, rest))
    }

    /// Bytes came. Returns those that are the stream's: all, if the connection has just been associated; and
    /// until when it waits for others that it can do without.
    fn read(&self, bytes: &[u8]) -> (Zeroizing<Vec<u8>>, Option<Instant>) {
        let (rest, patience) = self.place.lobby.with(|state, now| {
            let rest = state.table.handle_bytes(self.place.id, bytes, now);
            (rest, state.table.quorum_deadline(self.place.id))
        });
        let rest = Zeroizing::new(rest.unwrap_or(bytes).to_vec());
        (rest, patience.map(|patience| self.place.lobby.epoch + patience))
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.meter.ready.down();
    }
}
