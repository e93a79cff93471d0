//! Connections that are ready for a stream: sets of one connection for each channel, each of which
//! has received its cookie. A stream on such a set needs no more round trips than its request.
//!
//! Some sets are connected in advance; others return from finished streams. A set that is idle for
//! too long is closed before the server would close it. A set is also closed when the server has
//! closed one of its connections or sent more than the cookie, or when a lost channel that the set
//! lacks works again.
//!
//! These timeouts do not belong to the protocol: they decide how long a new stream waits for its
//! connections, but not which channels it uses or when it fails. `CookieQuorum` decides which
//! channels a set has.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use association::{
    AssociationMessage, COOKIE_LEN, ClientHandshakeAbort, ConnectionCookie, CookieListError,
    HEADER_LEN,
};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, sleep_until, timeout_at};
use tracing::{info, warn};

use crate::config::{
    ConnectionPoolConfig, LostChannelPolicy, RemoteServerConfig, StreamChannelConfig,
};
use crate::net::metrics::ChannelMetrics;
use crate::net::paths::monitor::{self, PathMonitor};
use crate::net::paths::path::{MonitoredPath, PathNotifier};
use crate::net::socket;
use crate::net::stream::connection::ChannelConnection;
use crate::net::stream::driver::ReusableConnection;
use crate::net::stream::rejoins::ChannelConnector;
use crate::protocol::cookie_quorum::CookieQuorum;
use crate::protocol::failure_detector::PathState;
use crate::protocol::incoming::ChannelLossReason;
use crate::protocol::on_lost_channel::LostChannelAction;
use crate::status;
use crate::{StreamError, StreamProtocolError};

/// How long to wait before a set that was taken is replaced: sets of streams that end in the
/// meantime return to the pool.
const REUSE_DELAY: Duration = Duration::from_millis(100);

/// The interval of checks whether the server has closed a connection of an idle set.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The initial and the maximum delay before sets are connected again after a failure.
const RETRY_DELAY: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(60));

/// The sets of connections to one server.
pub(crate) struct ConnectionPool {
    remote: RemoteServerConfig,
    /// The metrics of its channels, in their order.
    channel_metrics: Vec<Arc<ChannelMetrics>>,
    mark: Option<u32>,
    config: ConnectionPoolConfig,
    policy: LostChannelPolicy,
    /// Detects which channels are lost.
    monitor: PathMonitor,
    /// The oldest is first.
    idle_sets: Mutex<Vec<IdleConnectionSet>>,
    /// The number of sets that are returning from streams.
    returning: AtomicUsize,
    /// The time of the last request for a set.
    wanted: Mutex<Instant>,
    taken: Notify,
    /// The channels that could be connected in the last attempt.
    places: Mutex<Vec<usize>>,
    /// The error of the last attempt to connect a set, and its time, if it has failed.
    failure: Mutex<Option<(String, Duration)>>,
}

/// A set of connections for one stream.
pub(crate) struct ConnectionSet {
    /// The connections, in the order of the channels: all channels, or at least as many as are
    /// needed.
    pub(crate) connections: Vec<ChannelConnection>,
    /// Their cookies, which are all different.
    pub(crate) cookies: Vec<ConnectionCookie>,
    /// The value of [`ConnectionPool::silences`] when the set was connected. If it has grown, the
    /// set may be broken.
    silences: u64,
    /// When connecting the set began, by the clock of the paths.
    made_at: Duration,
}

struct IdleConnectionSet {
    ready: ConnectionSet,
    since: Instant,
}

impl ConnectionPool {
    /// An empty pool, for a server whose connections have this mark.
    pub(crate) fn new(
        remote: RemoteServerConfig,
        mark: Option<u32>,
        config: ConnectionPoolConfig,
        policy: LostChannelPolicy,
    ) -> Self {
        let all = remote.channels.len();
        let channel_metrics: Vec<Arc<ChannelMetrics>> = (0..all).map(|_| Arc::default()).collect();
        Self {
            monitor: PathMonitor::of_client(&remote, mark, policy, channel_metrics.clone()),
            remote,
            channel_metrics,
            mark,
            config,
            policy,
            idle_sets: Mutex::default(),
            returning: AtomicUsize::new(0),
            wanted: Mutex::new(Instant::now()),
            taken: Notify::new(),
            places: Mutex::new((0..all).collect()),
            failure: Mutex::default(),
        }
    }

    /// Whether a new pool with these arguments would have the same connections.
    pub(crate) fn matches(
        &self,
        remote: &RemoteServerConfig,
        mark: Option<u32>,
        config: ConnectionPoolConfig,
        policy: LostChannelPolicy,
    ) -> bool {
        let own = (&self.remote, self.mark, self.config, self.policy);
        own == (remote, mark, config, policy)
    }

    /// The number of channels.
    pub(crate) fn channels(&self) -> usize {
        self.remote.channels.len()
    }

    /// The policy for streams when a channel is lost.
    pub(crate) fn policy(&self) -> LostChannelPolicy {
        self.policy
    }

    /// The clock of its paths.
    pub(crate) fn clock(&self) -> Arc<PathNotifier> {
        self.monitor.clock()
    }

    /// The number of channels that a stream needs: k.
    pub(crate) fn threshold(&self) -> u8 {
        self.remote.threshold
    }

    /// The server's addresses, as they are configured.
    pub(crate) fn servers(&self) -> Vec<String> {
        self.remote.channels.iter().map(|channel| channel.server.to_string()).collect()
    }

    /// Why new streams cannot use the server, if they cannot: fewer channels than they need work,
    /// or connecting them has failed and none of them has recovered since.
    pub(crate) fn why_gone(&self) -> Option<String> {
        let paths = self.monitor.paths();
        let mut lost = paths.iter().filter(|path| path.state().lost().is_some());
        if let Some(path) = lost.nth(paths.len() - usize::from(self.threshold())) {
            return Some(monitor::lost_error(path).to_string());
        }
        let failure = self.failure.lock().unwrap_or_else(PoisonError::into_inner);
        let (error, failed_at) = failure.as_ref()?;
        let has_recovered = |path: &Arc<MonitoredPath>| matches!(path.state(), PathState::Up { since } if since > *failed_at);
        (!paths.iter().any(has_recovered)).then(|| error.clone())
    }

    /// Has the channels watched as closely as if streams used them.
    pub(crate) fn mark_used(&self) {
        self.monitor.paths().iter().for_each(|path| path.mark_used());
    }

    /// Remembers whether a set could be connected.
    fn record_outcome(&self, made: &Result<ConnectionSet, StreamError>) {
        let failure = made.as_ref().err().map(|error| (error.to_string(), self.monitor.now()));
        *self.failure.lock().unwrap_or_else(PoisonError::into_inner) = failure;
    }

    /// Whether a connection is used for several streams.
    pub(crate) fn reuses_connections(&self) -> bool {
        self.config.keep > 0
    }

    /// The status of its channels.
    pub(crate) fn status(&self) -> Vec<status::StreamChannelStatus> {
        let idle_sets = self.idle_sets();
        let paths = self.monitor.paths();
        let of_place =
            |(place, (channel, metrics)): (usize, (&StreamChannelConfig, &Arc<ChannelMetrics>))| {
                let ready = idle_sets
                    .iter()
                    .filter(|set| set.ready.places().any(|other| other == place))
                    .count();
                let (state, state_s, why) = monitor::path_status(&paths[place]);
                let counts = metrics.channel(channel.server.to_string());
                status::StreamChannelStatus { ready: ready as u64, state, state_s, why, ..counts }
            };
        self.remote.channels.iter().zip(&self.channel_metrics).enumerate().map(of_place).collect()
    }

    /// A set for a stream: the newest idle set, or a new one.
    ///
    /// # Errors
    /// If there is no idle set, and the channels cannot be connected; or if a channel that is
    /// needed is lost, and the policy is not to wait, or the wait has timed out.
    pub(crate) async fn take(&self) -> Result<ConnectionSet, StreamError> {
        *self.wanted.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
        let since = self.monitor.now();
        loop {
            self.monitor.admit(since).await?;
            let taken = tokio::select! {
                biased;
                taken = self.take_newest() => taken,
                // A channel was lost in the meantime.
                () = self.monitor.wait_until_closed() => continue,
            };
            let waits = self.policy.new_streams == LostChannelAction::Wait;
            if taken.is_ok() || !waits || self.monitor.is_open() {
                return taken;
            }
        }
    }

    async fn take_newest(&self) -> Result<ConnectionSet, StreamError> {
        loop {
            let newest = self.idle_sets().pop();
            self.taken.notify_one();
            match newest {
                Some(set) if self.is_usable(&set) => return Ok(set.ready),
                Some(_) => {}
                None => {
                    let made = self.make_set().await;
                    self.record_outcome(&made);
                    let ready = made?;
                    self.log_missing_channels(&ready);
                    return Ok(ready);
                }
            }
        }
    }

    /// Keeps the connections of a finished stream, as soon as they have received new cookies.
    pub(crate) async fn put_back(&self, finished: Vec<ReusableConnection>) {
        // A set that lacks a channel is not reused: the channel may work again by now.
        let is_whole = finished.len() == self.channels();
        let returning = self.returning.fetch_add(1, Ordering::Relaxed);
        if is_whole && self.idle_sets().len() + returning < self.config.keep {
            self.renew(finished).await;
            // A pool that is no longer used closes it.
            self.taken.notify_one();
        }
        self.returning.fetch_sub(1, Ordering::Relaxed);
    }

    async fn renew(&self, finished: Vec<ReusableConnection>) {
        let (silences, paths, clock) = (self.silences(), self.monitor.paths(), self.clock());
        let (channels, made_at) = (0..finished.len(), clock.now());
        let mut quorum = CookieQuorum::new(channels.clone(), channels.len(), made_at);
        let deadline = clock.at(quorum.poll_timeout());
        let read_cookies = async {
            let mut connections = Vec::new();
            for (place, ReusableConnection { mut stream, metrics, rest }) in
                finished.into_iter().enumerate()
            {
                let cookie = read_cookie(&mut stream, &rest).await?;
                if !quorum.handle_cookie(place, cookie, clock.now()) {
                    return None;
                }
                let mut connection = ChannelConnection::new(stream, metrics, place);
                connection.watch(&paths[place]);
                connections.push(connection);
            }
            Some(connections)
        };
        if let Ok(Some(connections)) = timeout_at(deadline, read_cookies).await
            && let Some(cookies) = quorum.finish()
        {
            let cookies = cookies.into_values().collect();
            self.keep(ConnectionSet { connections, cookies, silences, made_at });
        }
    }

    /// The time since the last request for a set.
    pub(crate) fn since_last_use(&self) -> Duration {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner).elapsed()
    }

    /// Connects sets in advance and closes those that are too old, until it is cancelled. It
    /// connects none if the last request for a set is longer ago than `since_last_use`.
    pub(crate) async fn keep_full(&self, since_last_use: Duration) {
        let mut pause = RETRY_DELAY.0;
        loop {
            while self.since_last_use() >= since_last_use {
                self.idle_sets().clear();
                self.taken.notified().await;
            }
            let missing = self.close_unused();
            self.monitor.wait_until_open().await;
            let made = tokio::select! {
                made = self.make_sets(missing) => made,
                () = self.monitor.wait_until_closed() => continue,
            };
            match made {
                Ok(()) => {
                    pause = RETRY_DELAY.0;
                    let oldest = self.idle_sets().first().map(|set| set.since + self.config.idle);
                    tokio::select! {
                        () = self.taken.notified() => sleep(REUSE_DELAY).await,
                        () = self.monitor.wait_until_closed() => {}
                        () = sleep(POLL_INTERVAL) => {}
                        () = sleep_until(oldest.unwrap_or_else(Instant::now)), if oldest.is_some() => {}
                    }
                }
                Err(error) => {
                    warn!(%error, "cannot keep connections ready; next attempt in {} s", pause.as_secs());
                    sleep(pause).await;
                    pause = RETRY_DELAY.1.min(2 * pause);
                }
            }
        }
    }

    /// Closes sets that are too old or may be broken. Returns how many sets are then missing.
    fn close_unused(&self) -> usize {
        let mut idle_sets = self.idle_sets();
        idle_sets.retain(|set| self.is_usable(set));
        self.config.size.saturating_sub(idle_sets.len())
    }

    fn is_usable(&self, IdleConnectionSet { ready, since }: &IdleConnectionSet) -> bool {
        since.elapsed() < self.config.idle
            && ready.silences == self.silences()
            && !self.has_returned_since(ready)
            && ready.waits()
    }

    /// Whether a channel that a set lacks works again: streams must not continue without it.
    fn has_returned_since(&self, ready: &ConnectionSet) -> bool {
        if ready.connections.len() == self.channels() {
            return false;
        }
        let has_returned = |path: &Arc<MonitoredPath>| {
            let is_up = matches!(path.state(), PathState::Up { since } if since > ready.made_at);
            is_up && ready.places().all(|place| place != path.channel_index)
        };
        self.monitor.paths().iter().any(has_returned)
    }

    /// How often channels have fallen silent under streams.
    fn silences(&self) -> u64 {
        silences(&self.channel_metrics)
    }

    /// Connects this number of sets concurrently.
    async fn make_sets(&self, missing: usize) -> Result<(), StreamError> {
        let mut making = JoinSet::new();
        for _ in 0..missing {
            making.spawn(self.make_set());
        }
        while let Some(made) = making.join_next().await {
            let made = made.expect("connecting does not panic");
            self.record_outcome(&made);
            let ready = made?;
            self.log_missing_channels(&ready);
            self.keep(ready);
        }
        Ok(())
    }

    /// Connects a new set.
    ///
    /// # Errors
    /// If fewer channels than needed can be connected.
    fn make_set(&self) -> impl Future<Output = Result<ConnectionSet, StreamError>> + use<> {
        let channels = self.remote.channels.iter().cloned();
        let paths = self.monitor.paths();
        for path in &paths {
            path.mark_used();
        }
        let all = channels.zip(self.channel_metrics.iter().cloned()).zip(paths).enumerate();
        let all = all.map(|(place, ((channel, metrics), path))| (place, (channel, metrics, path)));
        make_set(all.collect(), self.mark, self.threshold().into(), self.clock())
    }

    /// Connects single channels, for streams that are open.
    pub(crate) fn connect(&self) -> ChannelConnector {
        let channels = self.remote.channels.clone();
        let (paths, metrics, mark) =
            (self.monitor.paths(), self.channel_metrics.clone(), self.mark);
        Box::new(move |place| {
            let (channel, path) = (channels[place].clone(), Arc::clone(&paths[place]));
            let metrics = Arc::clone(&metrics[place]);
            Box::pin(async move {
                let connected = connect_and_read_cookie(place, &channel, mark, &path).await;
                let counter =
                    if connected.is_ok() { &metrics.connected } else { &metrics.unconnected };
                counter.increment();
                connected.ok()
            })
        })
    }

    /// Logs which channels could not be connected, when these change.
    fn log_missing_channels(&self, ready: &ConnectionSet) {
        let mut before = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        let places: Vec<usize> = ready.places().collect();
        if *before == places {
            return;
        }
        let missing = (0..self.channels()).filter(|place| !places.contains(place));
        let name = |place: usize| {
            format!("channel {} ({})", place + 1, self.remote.channels[place].server)
        };
        let missing: Vec<String> = missing.map(name).collect();
        if missing.is_empty() {
            info!("all channels can be connected again");
        } else {
            let missing = missing.join(", ");
            warn!("{missing} cannot be connected; streams continue without");
        }
        *before = places;
    }

    fn keep(&self, ready: ConnectionSet) {
        let mut idle_sets = self.idle_sets();
        if idle_sets.len() < self.config.keep {
            idle_sets.push(IdleConnectionSet { ready, since: Instant::now() });
        }
    }

    fn idle_sets(&self) -> MutexGuard<'_, Vec<IdleConnectionSet>> {
        self.idle_sets.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConnectionSet {
    /// The indices of its channels.
    fn places(&self) -> impl Iterator<Item = usize> {
        self.connections.iter().map(|connection| connection.channel_index)
    }

    /// Whether the server has sent nothing since the cookies, and closed no connection.
    fn waits(&self) -> bool {
        let silent = |connection: &ChannelConnection| {
            let read = connection.socket().try_read(&mut [0]);
            matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
        };
        self.connections.iter().all(silent)
    }
}

/// How often channels have fallen silent under streams.
fn silences<'a>(channel_metrics: impl IntoIterator<Item = &'a Arc<ChannelMetrics>>) -> u64 {
    channel_metrics.into_iter().map(|metrics| metrics.silences()).sum()
}

/// Connects all channels concurrently, and waits for the server's cookie on each until the quorum
/// times out. It does not wait for channels whose paths are lost if enough others have received
/// their cookies.
async fn make_set(
    channels: BTreeMap<usize, (StreamChannelConfig, Arc<ChannelMetrics>, Arc<MonitoredPath>)>,
    mark: Option<u32>,
    needed: usize,
    clock: Arc<PathNotifier>,
) -> Result<ConnectionSet, StreamError> {
    let silences = silences(channels.values().map(|(_, metrics, _)| metrics));
    let (made_at, mut changes) = (clock.now(), clock.changes());
    let mut quorum = CookieQuorum::new(channels.keys().copied(), needed, made_at);
    let mut connecting = JoinSet::new();
    for (&place, (channel, _, path)) in &channels {
        let (channel, path) = (channel.clone(), Arc::clone(path));
        connecting.spawn(async move {
            (place, connect_and_read_cookie(place, &channel, mark, &path).await)
        });
    }
    let mut made = BTreeMap::new();
    let mut failed = StreamError::Protocol(StreamProtocolError::NotOpened);
    loop {
        for (&place, (_, _, path)) in &channels {
            quorum.handle_path(place, path.state().unusable_since().is_some());
        }
        if quorum.is_over(clock.now()) {
            break;
        }
        let connected = tokio::select! {
            Some(connected) = connecting.join_next() => connected,
            // The sender of the changes exists as long as the paths.
            _ = changes.changed() => continue,
            () = sleep_until(clock.at(quorum.poll_timeout())) => continue,
        };
        let (place, connected) = connected.expect("connecting does not panic");
        let (_, metrics, path) = &channels[&place];
        match connected {
            Ok((stream, cookie)) => {
                if quorum.handle_cookie(place, cookie, clock.now()) {
                    metrics.connected.increment();
                    let mut connection = ChannelConnection::new(stream, Arc::clone(metrics), place);
                    connection.watch(path);
                    made.insert(place, connection);
                } else {
                    warn!(
                        channel = place + 1,
                        "TAMPERING: two channels received the same cookie; this one is left out"
                    );
                    metrics.record_loss(ChannelLossReason::Tampered);
                    let copied = ClientHandshakeAbort::from(CookieListError::RepeatedCookie);
                    failed = StreamProtocolError::Association(copied).into();
                }
            }
            Err(error) => {
                quorum.handle_failed(place);
                metrics.unconnected.increment();
                failed = error;
            }
        }
    }
    for channel in quorum.late(clock.now()).rev() {
        let (StreamChannelConfig { server, .. }, metrics, _) = &channels[&channel];
        metrics.unconnected.increment();
        let reason = "timed out, or nobody greets there";
        let source = io::Error::new(io::ErrorKind::TimedOut, reason);
        failed = StreamError::Connect { channel, server: server.clone(), source };
    }
    let cookies = quorum.finish().ok_or(failed)?.into_values().collect();
    Ok(ConnectionSet { connections: made.into_values().collect(), cookies, silences, made_at })
}

/// Connects a channel and reads its cookie.
async fn connect_and_read_cookie(
    place: usize,
    channel: &StreamChannelConfig,
    mark: Option<u32>,
    path: &MonitoredPath,
) -> Result<(TcpStream, ConnectionCookie), StreamError> {
    let mut stream = socket::connect_channel(channel, mark).await.map_err(|source| {
        path.connect_failed(&source);
        StreamError::Connect { channel: place, server: channel.server.clone(), source }
    })?;
    path.connected();
    let cookie = read_cookie(&mut stream, &[]).await;
    Ok((stream, cookie.ok_or(StreamError::NotGreeted { channel: place })?))
}

/// Reads a connection's cookie, whose beginning may have been read already. `None` if it does not
/// arrive or is invalid.
async fn read_cookie(stream: &mut TcpStream, read: &[u8]) -> Option<ConnectionCookie> {
    let mut bytes = [0; HEADER_LEN + COOKIE_LEN];
    // A server sends nothing after a cookie until it has received the list.
    let (start, missing) = bytes.split_at_mut_checked(read.len())?;
    start.copy_from_slice(read);
    stream.read_exact(missing).await.ok()?;
    match AssociationMessage::parse(&bytes) {
        Ok(AssociationMessage::Cookie(cookie)) => Some(cookie),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
