//! Where the server's connections wait for their association: each is greeted with a cookie, and leaves
//! together with those that its client's list names.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use association::{
    Acceptable, ConnectionId, Cookie, List, Message, OpenError, Protocol, Scheme, Server as Table,
    ServerAbort, ServerConfig as TableConfig, ServerEvent, Terms,
};
use ipnet::Ipv6Net;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, warn};
use zeroize::Zeroizing;

use crate::MAX_CHANNELS;
use crate::config::{Integrity, ServerConfig};
use crate::incoming::MOMENT;
use crate::meter::{Meter, Metered};
use crate::rarely::Rarely;
use crate::server::{OPTION_NO_RECORDS, OPTION_ONCE};

/// How long a connection may wait for its association. A client keeps them ready for less, so that it
/// does not take one that is just being closed.
pub(crate) const WAITING_TIMEOUT: Duration = Duration::from_secs(90);

/// How many sources it takes to fill all places. Whoever opens connections and leaves them closes his own
/// oldest when he has his part, and a client that loses some of those it keeps ready makes others.
const SOURCES: usize = 4;

/// The longest piece that is read before the association. What follows the list in it is the stream's.
const MAX_READ: usize = 1024;

/// The connections that wait, and who waits with each.
pub(crate) struct Lobby {
    epoch: Instant,
    state: Mutex<State>,
}

struct State {
    table: Table,
    waiting: HashMap<ConnectionId, Waiting>,
    /// Those of each source, the oldest first.
    sources: HashMap<IpAddr, BTreeSet<ConnectionId>>,
    /// How many of one source may wait.
    most_of_source: usize,
    next_id: u64,
    /// Connections that were not taken in.
    refused: Rarely,
    /// Connections that had to make room.
    closed: Rarely,
    /// Those on other terms.
    unfit: Rarely,
}

/// A connection that waits.
struct Waiting {
    source: IpAddr,
    /// Where its seat goes. Without it, the connection is closed.
    seat: oneshot::Sender<Seat>,
}

/// A client's connection.
pub(crate) struct Connection {
    /// The connection itself.
    pub(crate) stream: Metered<TcpStream>,
    /// Where it is from.
    pub(crate) peer: SocketAddr,
    /// What was read of it and belongs to the stream.
    pub(crate) rest: Zeroizing<Vec<u8>>,
}

/// Connections that belong together.
pub(crate) struct Association {
    /// What both ends hold.
    pub(crate) list: List,
    /// The connections, by their channels' indices.
    pub(crate) connections: BTreeMap<usize, Connection>,
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
        })
    }
}

impl Lobby {
    /// An empty one, that agrees to what the configuration allows.
    pub(crate) fn new(config: &ServerConfig) -> Self {
        let state = State {
            table: Table::new(table(config)),
            waiting: HashMap::new(),
            sources: HashMap::new(),
            most_of_source: most_of_source(config),
            next_id: 0,
            refused: Rarely::default(),
            closed: Rarely::default(),
            unfit: Rarely::default(),
        };
        Self { epoch: Instant::now(), state: Mutex::new(state) }
    }

    /// From here on, agrees to what this configuration allows.
    pub(crate) fn reconfigure(&self, config: &ServerConfig) {
        self.with(|state, _| {
            state.table.reconfigure(table(config));
            state.most_of_source = most_of_source(config);
        });
    }

    /// Sees one connection through the handshake. Returns all connections of its association if it was the
    /// last of them.
    pub(crate) async fn welcome(
        &self,
        mut stream: TcpStream,
        peer: SocketAddr,
        meter: Arc<Meter>,
    ) -> Option<Association> {
        let random = sharing::Generator::system().array();
        let cookie = Cookie::new(random.map_err(|error| self.refuse(peer, &error)).ok()?);
        let opened = self.open(cookie, source(peer.ip()));
        let (id, seat) = opened.map_err(|error| self.refuse(peer, &error)).ok()?;
        meter.ready.up();
        let guest = Guest { lobby: self, id, meter: &meter };
        let greeting = Message::Cookie(cookie).encode();
        timeout(WAITING_TIMEOUT, stream.write_all(&greeting)).await.ok()?.ok()?;
        let (seat, rest) = guest.wait(&mut stream, seat).await?;
        drop(guest);
        let stream = Metered::new(stream, meter, seat.index);
        seat.take(Connection { stream, peer, rest })
    }

    fn refuse(&self, peer: SocketAddr, error: &dyn std::fmt::Display) {
        if let Some(refused) = self.with(|state, _| state.refused.happened()) {
            warn!(%peer, %error, refused, "connections refused");
        }
    }

    /// Takes in a connection of a source. Its seat comes through the receiver, whose end means that it has
    /// none.
    fn open(
        &self,
        cookie: Cookie,
        source: IpAddr,
    ) -> Result<(ConnectionId, oneshot::Receiver<Seat>), OpenError> {
        self.with(|state, now| {
            state.make_room(source);
            let id = ConnectionId(state.next_id);
            state.table.open(id, cookie, now)?;
            state.next_id += 1;
            let (seat, receiver) = oneshot::channel();
            state.waiting.insert(id, Waiting { source, seat });
            state.sources.entry(source).or_default().insert(id);
            Ok((id, receiver))
        })
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
                    let removed =
                        connections.into_iter().flatten().filter_map(|id| self.remove(id));
                    let sources: Vec<IpAddr> = removed.map(|waiting| waiting.source).collect();
                    self.turn_away(sources.first().copied());
                }
                ServerEvent::Associated { list, connections } => {
                    let seats = connections.iter().flatten().count();
                    let table = Arc::new(Gathering { list, seats, connections: Mutex::default() });
                    for (index, id) in connections.into_iter().enumerate() {
                        if let Some(waiting) = id.and_then(|id| self.remove(id)) {
                            // Nobody listens when the connection's task has ended.
                            let _ = waiting.seat.send(Seat { table: Arc::clone(&table), index });
                        }
                    }
                }
                ServerEvent::Aborted { id, reason } => {
                    debug!(%reason, "connection not associated");
                    let source = self.remove(id).map(|waiting| waiting.source);
                    if reason == ServerAbort::Terms {
                        self.turn_away(source);
                    }
                }
            }
        }
    }

    /// A client asks for terms that it does not get.
    fn turn_away(&mut self, source: Option<IpAddr>) {
        if let Some(so_often) = self.unfit.happened() {
            warn!(
                ?source,
                so_often,
                "connections turned away: their client has fewer channels or a lower threshold than \
                 min_channels, or another integrity"
            );
        }
    }

    /// Closes the oldest connection of a source that has as many as it may.
    fn make_room(&mut self, source: IpAddr) {
        let own = self.sources.get(&source).filter(|own| own.len() >= self.most_of_source);
        let Some(&oldest) = own.and_then(BTreeSet::first) else { return };
        self.table.handle_closed(oldest);
        self.remove(oldest);
        if let Some(closed) = self.closed.happened() {
            warn!(%source, closed, "connections closed that waited: their source has too many");
        }
    }

    /// A connection waits no more.
    fn remove(&mut self, id: ConnectionId) -> Option<Waiting> {
        let waiting = self.waiting.remove(&id)?;
        if let Some(own) = self.sources.get_mut(&waiting.source) {
            own.remove(&id);
            if own.is_empty() {
                self.sources.remove(&waiting.source);
            }
        }
        Some(waiting)
    }
}

/// Whether a stream could lose channels, and nobody could tell which carry other bytes than were sent.
fn is_unfit(terms: Terms) -> bool {
    terms.threshold() < terms.channels() && terms.options() & OPTION_NO_RECORDS != 0
}

/// What the configuration means for the handshake.
fn table(config: &ServerConfig) -> TableConfig {
    let raw = if config.integrity == Integrity::None { OPTION_NO_RECORDS } else { 0 };
    let acceptable = Acceptable {
        protocols: vec![Protocol::MicssStream],
        schemes: vec![Scheme::Xor, Scheme::Shamir],
        min_threshold: config.min_channels,
        max_channels: MAX_CHANNELS,
        options: raw | OPTION_ONCE,
    };
    TableConfig {
        max_pending: config.max_waiting,
        timeout: WAITING_TIMEOUT,
        patience: Some(MOMENT),
        acceptable,
    }
}

fn most_of_source(config: &ServerConfig) -> usize {
    (config.max_waiting / SOURCES).max(MAX_CHANNELS.into())
}

/// Whose a connection is, as far as its address tells. A host has many of IPv6, which begin alike.
fn source(peer: IpAddr) -> IpAddr {
    match peer.to_canonical() {
        IpAddr::V6(address) => Ipv6Net::new_assert(address, 64).network().into(),
        v4 @ IpAddr::V4(_) => v4,
    }
}

/// A connection in the table. Whatever becomes of its task, it does not stay there.
struct Guest<'a> {
    lobby: &'a Lobby,
    id: ConnectionId,
    meter: &'a Meter,
}

impl Guest<'_> {
    /// Reads the connection's list, and waits until it has a seat. Returns that, and what follows the list.
    async fn wait(
        &self,
        stream: &mut TcpStream,
        mut seat: oneshot::Receiver<Seat>,
    ) -> Option<(Seat, Zeroizing<Vec<u8>>)> {
        let deadline = Instant::now() + WAITING_TIMEOUT;
        let mut look = deadline;
        let mut bytes = Zeroizing::new([0; MAX_READ]);
        let mut rest = Zeroizing::new(Vec::new());
        loop {
            tokio::select! {
                biased;
                seat = &mut seat => return Some((seat.ok()?, rest)),
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
                    self.lobby.with(|state, now| state.table.handle_timeout(now));
                    look = deadline;
                }
            }
        }
        // It may have been given a seat just now, and the others wait for it there.
        self.lobby.with(|state, _| state.table.handle_closed(self.id));
        Some((seat.try_recv().ok()?, rest))
    }

    /// Bytes came. Returns those that are the stream's: all, if the connection has just been associated; and
    /// until when it waits for others that it can do without.
    fn read(&self, bytes: &[u8]) -> (Zeroizing<Vec<u8>>, Option<Instant>) {
        let (rest, patience) = self.lobby.with(|state, now| {
            let rest = state.table.handle_bytes(self.id, bytes, now);
            (rest, state.table.patience(self.id))
        });
        let rest = Zeroizing::new(rest.unwrap_or(bytes).to_vec());
        (rest, patience.map(|patience| self.lobby.epoch + patience))
    }
}

impl Drop for Guest<'_> {
    fn drop(&mut self) {
        self.meter.ready.down();
        self.lobby.with(|state, _| state.table.handle_closed(self.id));
    }
}
