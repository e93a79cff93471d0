//! The relay server.

use std::collections::VecDeque;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use service::accept::RoundRobinAcceptor;
use service::connection_limiter::{ConnectionLimiter, source};
use service::listening::{ConfiguredListener, listen};
use service::log::LogRateLimiter;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, interval, sleep, timeout, timeout_at};
use tracing::{debug, info, warn};

use super::datagrams::RelayDatagrams;
use super::pairs::{MAX_PAIRS, RelayPairLimiter};
use super::status::{RelayCounter, RelayCounters, RelayStatus};
use crate::address::may_choose_again;
use crate::protocol::relay::{REQUEST_LEN, RelayRequest, RelayResponse, RelayToken, STILL_PRESENT};
use crate::protocol::relay_binding::BINDING_ID_LEN;

/// The largest number of connections that have not sent a request, or are searching for a waiting
/// party.
const MAX_ARRIVING: usize = 512;

/// The largest number of these from one source.
const MAX_ARRIVING_OF_SOURCE: usize = 32;

/// How long a connection may take to send a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);

/// How long a connecting party waits for another party to wait under its token.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The largest number of waiting connections.
const MAX_WAITING: usize = 1024;

/// The largest number of these from one source.
const MAX_WAITING_OF_SOURCE: usize = 32;

/// The interval at which a waiting party is told that it still waits, which also keeps the state of
/// address translation.
const WAITING_INTERVAL: Duration = Duration::from_secs(3);

/// How long a waiting party may take to answer when another party connects, before it counts as
/// gone.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);

/// The longest time without data in either direction of a pair.
const IDLE_TIMEOUT: Duration = Duration::from_secs(600);

/// The buffer in each direction of a pair, in addition to the kernel's.
const BUFFER_LEN: usize = 256 << 10;

/// Why a relay cannot listen.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub struct RelayError(#[from] io::Error);

/// A relay that is listening. It sees addresses, times and lengths, but no keys.
pub struct RelayServer {
    listening: Vec<ConfiguredListener>,
    state: Arc<RelayState>,
}

impl std::fmt::Debug for RelayServer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("RelayServer").finish_non_exhaustive()
    }
}

struct RelayState {
    waiting: Mutex<RelayWaitingList>,
    pairs: Arc<RelayPairLimiter>,
    /// Signals that a party begins to wait.
    changed: Notify,
    counts: RelayCounters,
    refusals: Mutex<LogRateLimiter>,
    datagrams: RelayDatagrams,
}

/// Reports the status of a relay.
#[derive(Clone)]
pub struct RelayStatusSource {
    state: Arc<RelayState>,
    listen: String,
    started_at: Instant,
}

impl std::fmt::Debug for RelayStatusSource {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("RelayStatusSource").finish_non_exhaustive()
    }
}

impl RelayStatusSource {
    /// The current status.
    pub fn status(&self) -> RelayStatus {
        RelayStatus {
            listen: self.listen.clone(),
            uptime_s: self.started_at.elapsed().as_secs_f64(),
            waiting: self.state.lock().entries.len() as u64,
            max_waiting: MAX_WAITING as u64,
            pairs: self.state.pairs.count() as u64,
            max_pairs: MAX_PAIRS as u64,
            datagram_bytes: self.state.datagrams.forwarded_bytes(),
            dropped_datagrams: self.state.datagrams.dropped(),
            problem: self.state.datagrams.problem(),
            ..self.state.counts.status()
        }
    }
}

#[derive(Default)]
struct RelayWaitingList {
    /// Oldest first.
    entries: VecDeque<WaitingRelayConnection>,
    next: u64,
}

struct WaitingRelayConnection {
    number: u64,
    token: RelayToken,
    source: IpAddr,
    /// Requests the connection from the task that holds it.
    take: oneshot::Sender<oneshot::Sender<TcpStream>>,
}

impl RelayServer {
    /// Listens at an address.
    ///
    /// # Errors
    /// If the system returns an error.
    pub async fn bind(address: SocketAddr) -> Result<Self, RelayError> {
        let (listening, datagrams) = listen_on_both(address).await?;
        let state = RelayState {
            waiting: Mutex::default(),
            pairs: Arc::default(),
            changed: Notify::new(),
            counts: RelayCounters::default(),
            refusals: Mutex::default(),
            datagrams,
        };
        Ok(Self { listening, state: Arc::new(state) })
    }

    /// The address where it listens.
    ///
    /// # Errors
    /// If the system does not return it.
    pub fn local_addr(&self) -> Result<SocketAddr, RelayError> {
        let first = self.listening.first().ok_or(io::ErrorKind::NotConnected);
        Ok(first.map_err(io::Error::from)?.address()?)
    }

    /// A handle that reports its status.
    ///
    /// # Errors
    /// As for [`Self::local_addr`].
    pub fn status_source(&self) -> Result<RelayStatusSource, RelayError> {
        let (state, listen) = (self.state.clone(), self.local_addr()?.to_string());
        Ok(RelayStatusSource { state, listen, started_at: Instant::now() })
    }

    /// Runs the relay until `stop` completes.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut arriving = ConnectionLimiter::new(MAX_ARRIVING, MAX_ARRIVING_OF_SOURCE);
        let mut round_robin = RoundRobinAcceptor::default();
        let accepting = async {
            loop {
                let (_, stream, from) = round_robin.accept(&self.listening).await;
                let state = self.state.clone();
                if let Some(source) = arriving.spawn(from.ip(), serve(stream, from, state)) {
                    let counter = &self.state.counts.evicted_arriving;
                    self.state.refuse(counter, source, "others need its room");
                }
            }
        };
        tokio::select! {
            () = accepting => {}
            () = stop => {}
        }
    }
}

/// Listens with TCP and UDP sockets of the same port number.
async fn listen_on_both(
    address: SocketAddr,
) -> Result<(Vec<ConfiguredListener>, RelayDatagrams), RelayError> {
    let mut attempts = 0;
    loop {
        let listening = listen([address], &[]).await?;
        let first = listening.first().ok_or(io::ErrorKind::NotConnected);
        match RelayDatagrams::start(first.map_err(io::Error::from)?.address()?) {
            Ok(datagrams) => return Ok((listening, datagrams)),
            Err(error) if may_choose_again(&error, address, attempts) => attempts += 1,
            Err(error) => return Err(error.into()),
        }
    }
}

/// Handles one connection's request.
async fn serve(mut stream: TcpStream, from: SocketAddr, state: Arc<RelayState>) {
    let mut request = zeroize::Zeroizing::new([0; REQUEST_LEN]);
    let read = timeout(REQUEST_TIMEOUT, stream.read_exact(&mut *request)).await;
    let counts = &state.counts;
    if !matches!(read, Ok(Ok(_))) {
        state.refuse(&counts.silent, from.ip(), "it asks for nothing");
        return;
    }
    match RelayRequest::parse(&request) {
        Some(RelayRequest::Wait(_)) if !state.pairs.has_room(source(from.ip())) => {
            state.refuse(&counts.too_many_pairs, from.ip(), "it has too many pairs");
            let _ = stream.write_all(&[RelayResponse::Refused as u8]).await;
        }
        // In its own task, which is not evicted for arriving connections.
        Some(RelayRequest::Wait(secret)) => state.wait(stream, from, secret.token()),
        Some(RelayRequest::Connect(token)) => state.connect(stream, from, token).await,
        None => {
            state.refuse(&counts.malformed, from.ip(), "it sent an invalid request");
            let _ = stream.write_all(&[RelayResponse::Refused as u8]).await;
        }
    }
}

impl RelayState {
    fn lock(&self) -> MutexGuard<'_, RelayWaitingList> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Counts and logs a connection that is rejected or evicted.
    fn refuse(&self, counter: &RelayCounter, from: IpAddr, why: &str) {
        counter.add(1);
        let refused = self.refusals.lock().unwrap_or_else(PoisonError::into_inner).count_event();
        if let Some(occurrences) = refused {
            warn!(%from, why, occurrences, "connection refused");
        }
    }

    /// Keeps a connection until another party connects under its token.
    fn wait(self: &Arc<Self>, stream: TcpStream, from: SocketAddr, token: RelayToken) {
        let (take, taken) = oneshot::channel();
        let (number, evicted) = self.lock().add(token, source(from.ip()), take);
        self.counts.waited.add(1);
        debug!(%from, "waits");
        if let Some(evicted) = evicted {
            self.refuse(
                &self.counts.evicted_waiting,
                evicted,
                "it waited, and others need its room",
            );
        }
        self.changed.notify_waiters();
        let state = self.clone();
        tokio::spawn(async move {
            hold_waiting_connection(stream, taken).await;
            state.lock().entries.retain(|entry| entry.number != number);
        });
    }

    /// Connects this party to the one that waits under a token.
    async fn connect(self: Arc<Self>, mut stream: TcpStream, from: SocketAddr, token: RelayToken) {
        let (deadline, own) = (Instant::now() + CONNECT_TIMEOUT, source(from.ip()));
        loop {
            let changed = self.changed.notified();
            let is_waiting = self.lock().has(token);
            // A party that finds nobody uses up no pair, and evicts none.
            let place = if is_waiting { self.pairs.take(own) } else { None };
            if place.is_none() && (is_waiting || !self.pairs.has_room(own)) {
                self.refuse(&self.counts.too_many_pairs, from.ip(), "there are too many pairs");
                let _ = stream.write_all(&[RelayResponse::Refused as u8]).await;
                return;
            }
            if let Some(mut place) = place
                && let Ok(Some((mut other, other_source))) =
                    timeout_at(deadline, self.take(token)).await
            {
                place.add(other_source);
                if let Ok(ids) = self.grant_datagrams([&mut stream, &mut other]).await {
                    self.counts.joined.add(1);
                    info!(%from, "is connected");
                    // In its own task, which is not evicted for arriving connections.
                    let state = self.clone();
                    tokio::spawn(async move {
                        let (counts, heard_at) = (&state.counts, || state.datagrams.heard_at(ids));
                        tokio::select! {
                            () = splice(stream, other, counts, heard_at) => {}
                            () = place.evicted() => {
                                let why = "it had a pair, and others need its room";
                                state.refuse(&counts.too_many_pairs, from.ip(), why);
                            }
                        }
                        state.datagrams.remove(ids);
                        info!(%from, "has ended");
                        drop(place);
                    });
                }
                return;
            }
            if timeout_at(deadline, changed).await.is_err() {
                self.refuse(&self.counts.unknown_token, from.ip(), "nobody waits for it");
                let _ = stream.write_all(&[RelayResponse::Nobody as u8]).await;
                return;
            }
        }
    }

    /// Tells the connecting party that it is connected, and both parties how to bind UDP addresses.
    async fn grant_datagrams(
        &self,
        [connecting, waiting]: [&mut TcpStream; 2],
    ) -> io::Result<[[u8; BINDING_ID_LEN]; 2]> {
        for stream in [&*connecting, &*waiting] {
            self.datagrams.listen_at(stream.local_addr()?);
        }
        let grants = self.datagrams.add_pair()?;
        let ids = [grants[0].id, grants[1].id];
        let sent = async {
            waiting.write_all(&*grants[1].encode()).await?;
            connecting.write_all(&[RelayResponse::Connected as u8]).await?;
            connecting.write_all(&*grants[0].encode()).await
        };
        sent.await.inspect_err(|_| self.datagrams.remove(ids))?;
        Ok(ids)
    }

    /// The connection of a party that waits under a token and has answered, with its source.
    async fn take(&self, token: RelayToken) -> Option<(TcpStream, IpAddr)> {
        loop {
            let entry = self.lock().remove(token)?;
            let (give, given) = oneshot::channel();
            if entry.take.send(give).is_ok()
                && let Ok(stream) = given.await
            {
                return Some((stream, entry.source));
            }
            // That party has ended, or does not answer.
        }
    }
}

impl RelayWaitingList {
    /// Adds a connection. If there are too many, the oldest one from its source is evicted, or the
    /// oldest one from the source with the most. Returns the new one's number, and the source of
    /// the evicted one.
    fn add(
        &mut self,
        token: RelayToken,
        source: IpAddr,
        take: oneshot::Sender<oneshot::Sender<TcpStream>>,
    ) -> (u64, Option<IpAddr>) {
        let count = |source| self.entries.iter().filter(|entry| entry.source == source).count();
        let crowded = if count(source) >= MAX_WAITING_OF_SOURCE {
            Some(source)
        } else if self.entries.len() >= MAX_WAITING {
            self.entries.iter().map(|entry| entry.source).max_by_key(|source| count(*source))
        } else {
            None
        };
        let oldest = self.entries.iter().position(|entry| Some(entry.source) == crowded);
        // Its task sees that nothing can request the connection any more.
        let evicted = oldest.and_then(|oldest| self.entries.remove(oldest));
        self.next += 1;
        self.entries.push_back(WaitingRelayConnection { number: self.next, token, source, take });
        (self.next, evicted.map(|evicted| evicted.source))
    }

    /// Whether a connection waits under a token.
    fn has(&self, token: RelayToken) -> bool {
        self.entries.iter().any(|entry| entry.token == token)
    }

    /// Removes the newest connection under a token, as it is the most likely to be alive.
    fn remove(&mut self, token: RelayToken) -> Option<WaitingRelayConnection> {
        let newest = self.entries.iter().rposition(|entry| entry.token == token)?;
        self.entries.remove(newest)
    }
}

/// Keeps a waiting connection until it is requested or has ended.
async fn hold_waiting_connection(
    mut stream: TcpStream,
    mut taken: oneshot::Receiver<oneshot::Sender<TcpStream>>,
) {
    let mut ticks = interval(WAITING_INTERVAL);
    loop {
        tokio::select! {
            asked = &mut taken => {
                if let Ok(give) = asked
                    && timeout(ANSWER_TIMEOUT, connect_waiting(&mut stream)).await.is_ok_and(|it| it)
                {
                    let _ = give.send(stream);
                }
                return;
            }
            _ = ticks.tick() => {
                if stream.write_all(&[RelayResponse::Waiting as u8]).await.is_err() {
                    return;
                }
            }
            // A waiting party sends nothing before it is connected.
            _ = stream.readable() => {
                match stream.try_read(&mut [0]) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    _ => return,
                }
            }
        }
    }
}

/// Tells a waiting party that it is connected. Returns whether it answers.
async fn connect_waiting(stream: &mut TcpStream) -> bool {
    let mut answer = [0];
    stream.write_all(&[RelayResponse::Connected as u8]).await.is_ok()
        && stream.read_exact(&mut answer).await.is_ok()
        && answer == [STILL_PRESENT]
}

/// Forwards bytes between two parties until both have ended, one has failed, or both have been
/// silent for too long. The second party is the one that waited. `datagrams_heard_at`: when one of
/// them last sent a datagram.
async fn splice(
    one: TcpStream,
    two: TcpStream,
    counts: &RelayCounters,
    datagrams_heard_at: impl Fn() -> Option<Duration>,
) {
    let start = Instant::now();
    let active = AtomicU64::new(0);
    let (one_from, one_to) = one.into_split();
    let (two_from, two_to) = two.into_split();
    let both = async {
        tokio::try_join!(
            copy(one_from, two_to, start, &active, &counts.to_waiting_bytes),
            copy(two_from, one_to, start, &active, &counts.from_waiting_bytes)
        )
    };
    let idle = async {
        loop {
            sleep(IDLE_TIMEOUT / 10).await;
            let last = Duration::from_secs(active.load(Ordering::Relaxed));
            let of_datagrams = datagrams_heard_at()
                .map_or(IDLE_TIMEOUT, |at| udp::streams::now().saturating_sub(at));
            let silence = start.elapsed().saturating_sub(last).min(of_datagrams);
            if silence >= IDLE_TIMEOUT {
                return;
            }
        }
    };
    tokio::select! {
        _ = both => {}
        () = idle => {}
    }
}

async fn copy(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    start: Instant,
    active: &AtomicU64,
    passed_on: &RelayCounter,
) -> io::Result<()> {
    let mut buffer = vec![0; BUFFER_LEN];
    loop {
        let count = from.read(&mut buffer).await?;
        active.store(start.elapsed().as_secs(), Ordering::Relaxed);
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&buffer[..count]).await?;
        passed_on.add(count as u64);
        active.store(start.elapsed().as_secs(), Ordering::Relaxed);
    }
}
