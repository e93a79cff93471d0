//! One channel to one peer: its connections, the kernel's information about them, and the resulting
//! state.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::atomic::{AtomicU8, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::time::Instant;

use crate::config::StreamChannelConfig;
use crate::net::tcp_info::{
    TcpInfoSample, extend_keepalive, restore_keepalive, sample, send_keepalive,
};
use crate::protocol::failure_detector::{
    FailureDetector, FailureDetectorEvent, PathLossCause, PathObservation, PathState,
};

/// How long a channel counts as in use after the last byte. This timeout is not part of the failure
/// detector, which is told whether a channel is in use: streams record each byte in an atomic
/// variable without a lock, and such a record counts for this time.
const IN_USE_TIMEOUT: Duration = Duration::from_secs(8);

/// The maximum number of connections that are sampled, the newest first: they share a channel.
const MAX_SAMPLED: usize = 16;

/// The maximum number of connections on which the kernel sends probes.
const MAX_PROBED: usize = 4;

/// A connection that had an answer less than this ago shows that the channel works.
const JUST_NOW: Duration = Duration::from_millis(100);

/// The minimum number of packets for an estimate of the loss.
const MIN_SENT: u64 = 50;

/// How long probes are sent on connections of a lost channel. After that the kernel's own
/// keepalives are enough. It only saves packets to a peer that is already lost: the failure
/// detector continues to decide when the channel is observed, and whether it is lost.
const LOST_PROBE_TIMEOUT: Duration = Duration::from_secs(60);

/// The clock and the notifications that all paths of a client or a server share.
pub(crate) struct PathNotifier {
    epoch: Instant,
    /// A path must be observed.
    pub(crate) wake: Notify,
    /// The state of a path has changed.
    changes: watch::Sender<()>,
}

impl PathNotifier {
    /// A clock that starts now.
    pub(crate) fn new() -> Self {
        Self { epoch: Instant::now(), wake: Notify::new(), changes: watch::Sender::new(()) }
    }

    /// The current time of this clock.
    pub(crate) fn now(&self) -> Duration {
        self.epoch.elapsed()
    }

    /// A time of this clock as an instant.
    pub(crate) fn at(&self, time: Duration) -> Instant {
        self.epoch + time
    }

    /// Subscribes to changes.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.changes.subscribe()
    }
}

/// Whether a path's streams move bytes: not recently, not since the last observation, or since
/// then.
const IDLE: u8 = 0;
const NOT_USED: u8 = 1;
const USED: u8 = 2;

/// One channel to one peer.
pub(crate) struct MonitoredPath {
    /// The channel's index in the configuration.
    pub(crate) channel_index: usize,
    /// Its name, with the channel's configuration.
    pub(crate) name: String,
    /// The address of the peer, at a server.
    pub(crate) peer: Option<IpAddr>,
    /// The addresses and the device of its packets.
    pub(crate) route: StreamChannelConfig,
    pub(crate) events: Arc<PathNotifier>,
    usage: AtomicU8,
    /// Connection attempts since the last success.
    connecting: AtomicU32,
    connections: Mutex<PathConnections>,
    watched: Mutex<PathFailureDetection>,
}

#[derive(Default)]
struct PathConnections {
    next: u64,
    /// Ordered by age.
    open: BTreeMap<u64, RawFd>,
    /// The connections on which the kernel probes more often than usual.
    asked: Vec<u64>,
}

#[derive(Default)]
struct PathFailureDetection {
    detector: FailureDetector,
    used_at: Option<Duration>,
}

impl MonitoredPath {
    /// A path without connections.
    pub(crate) fn new(
        (channel_index, name): (usize, String),
        peer: Option<IpAddr>,
        route: StreamChannelConfig,
        events: Arc<PathNotifier>,
    ) -> Self {
        Self {
            channel_index,
            name,
            peer,
            route,
            events,
            usage: AtomicU8::new(IDLE),
            connecting: AtomicU32::new(0),
            connections: Mutex::default(),
            watched: Mutex::default(),
        }
    }

    /// Registers a connection until the result is dropped, which must be before the connection is
    /// closed.
    pub(crate) fn register(self: &Arc<Self>, connection: &impl AsRawFd) -> PathRegistration {
        let socket = connection.as_raw_fd();
        extend_keepalive(socket);
        let mut connections = self.connections();
        let id = connections.next;
        connections.next += 1;
        connections.open.insert(id, socket);
        drop(connections);
        self.mark_used();
        PathRegistration { path: Arc::clone(self), id }
    }

    /// The number of connections.
    pub(crate) fn connection_count(&self) -> usize {
        self.connections().open.len()
    }

    /// Records that a stream moves bytes, or is about to.
    pub(crate) fn mark_used(&self) {
        if self.usage.load(Ordering::Relaxed) != USED
            && self.usage.swap(USED, Ordering::Relaxed) == IDLE
        {
            self.events.wake.notify_one();
        }
    }

    /// Records that a stream's connection has ended before the stream.
    pub(crate) fn suspect(&self) {
        let now = self.events.now();
        self.watched().detector.handle_suspicion(now);
        self.events.wake.notify_one();
    }

    /// Records that a stream is waiting for the path.
    pub(crate) fn request_probe(&self) {
        self.watched().detector.handle_demand();
        self.mark_used();
        self.events.wake.notify_one();
    }

    /// Its state.
    pub(crate) fn state(&self) -> PathState {
        self.watched().detector.state().clone()
    }

    /// Records that a connection was established.
    pub(crate) fn connected(&self) {
        self.connecting.store(0, Ordering::Relaxed);
        self.with(FailureDetector::handle_connected);
    }

    /// Records that a connection attempt has failed.
    pub(crate) fn connect_failed(&self, error: &std::io::Error) {
        if let Some(cause) = PathLossCause::of(error) {
            if !cause.breaks_open_connections() {
                // The host has answered.
                self.connecting.store(0, Ordering::Relaxed);
            }
            self.with(|detector, now| detector.handle_failure(now, cause));
        }
    }

    /// Records that a connection attempt starts.
    pub(crate) fn connecting(&self) {
        self.connecting.fetch_add(1, Ordering::Relaxed);
    }

    fn with(&self, handle: impl FnOnce(&mut FailureDetector, Duration)) {
        let now = self.events.now();
        let mut watched = self.watched();
        let before = usability(watched.detector.state());
        handle(&mut watched.detector, now);
        if before != usability(watched.detector.state()) {
            drop(watched);
            // The monitor has an event to handle.
            self.events.wake.notify_one();
            self.events.changes.send_replace(());
        }
    }

    /// Whether it must be observed now.
    pub(crate) fn is_due(&self, now: Duration) -> bool {
        let watched = self.watched();
        let comes_into_use = || {
            let used = watched.used_at.is_some_and(|used| now < used + IN_USE_TIMEOUT);
            !used && self.usage.load(Ordering::Relaxed) == USED
        };
        watched.detector.poll_timeout().is_some_and(|at| at <= now) || comes_into_use()
    }

    /// Whether it was probed, and may still answer.
    pub(crate) fn awaits_answer(&self) -> bool {
        self.watched().detector.awaits_answer()
    }

    /// The time of the next observation.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        self.watched().detector.poll_timeout()
    }

    /// Observes the connections, and passes the result to the failure detector.
    pub(crate) fn observe(&self) {
        let now = self.events.now();
        let is_used = self.usage.load(Ordering::Relaxed) == USED;
        let mut watched = self.watched();
        if is_used {
            self.usage.store(NOT_USED, Ordering::Relaxed);
            watched.used_at = Some(now);
        }
        let in_use = watched.used_at.is_some_and(|used| now < used + IN_USE_TIMEOUT);
        if !in_use {
            // A byte that was moved in the meantime wakes the monitor.
            let _ =
                self.usage.compare_exchange(NOT_USED, IDLE, Ordering::Relaxed, Ordering::Relaxed);
        }
        let is_probing = watched.detector.is_probing();
        let samples = self.samples(is_probing);
        if !is_probing {
            self.connecting.store(0, Ordering::Relaxed);
            self.restore_keepalive();
        }
        let tries = samples.iter().map(|(_, seen)| seen.unanswered_probes).max().unwrap_or(0);
        let seen = PathObservation {
            is_wanted: in_use || !samples.is_empty(),
            in_use,
            since_received: samples.iter().filter_map(|(_, seen)| seen.since_answer()).min(),
            unanswered_probes: tries.max(self.connecting.load(Ordering::Relaxed)),
            round_trip: samples.iter().filter_map(|(_, seen)| seen.round_trip).max(),
            loss: loss(&samples),
        };
        let before = usability(watched.detector.state());
        watched.detector.handle_observation(now, &seen);
        if before != usability(watched.detector.state()) {
            self.events.changes.send_replace(());
        }
    }

    /// The next event to handle.
    pub(crate) fn poll_event(&self) -> Option<FailureDetectorEvent> {
        self.watched().detector.poll_event()
    }

    /// Makes the kernel probe the peer on some connections.
    pub(crate) fn probe(&self) {
        let lost = self.state().unusable_since();
        if lost.is_some_and(|since| self.events.now().saturating_sub(since) > LOST_PROBE_TIMEOUT) {
            self.restore_keepalive();
            return;
        }
        let samples = self.samples(true);
        let mut connections = self.connections();
        let idle = samples.into_iter().filter(|(_, seen)| !seen.is_unanswered);
        for (id, _) in idle.take(MAX_PROBED) {
            if let Some(&socket) = connections.open.get(&id) {
                send_keepalive(socket);
                connections.asked.retain(|asked| *asked != id);
                connections.asked.push(id);
            }
        }
    }

    /// Restores the kernel's usual keepalives.
    fn restore_keepalive(&self) {
        let mut connections = self.connections();
        for id in std::mem::take(&mut connections.asked) {
            if let Some(&socket) = connections.open.get(&id) {
                restore_keepalive(socket);
            }
        }
    }

    /// Samples of the newest connections: of all, up to the maximum, or up to the first on which
    /// the peer was heard just now.
    fn samples(&self, all: bool) -> Vec<(u64, TcpInfoSample)> {
        let connections = self.connections();
        let mut samples = Vec::new();
        for (&id, &socket) in connections.open.iter().rev().take(MAX_SAMPLED) {
            let Some(seen) = sample(socket) else { continue };
            samples.push((id, seen));
            if !all && seen.since_answer().is_some_and(|since| since < JUST_NOW) {
                break;
            }
        }
        samples
    }

    fn connections(&self) -> MutexGuard<'_, PathConnections> {
        self.connections.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn watched(&self) -> MutexGuard<'_, PathFailureDetection> {
        self.watched.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The fraction of packets that were retransmitted on these connections. Zero if too few were sent
/// to tell.
#[expect(clippy::cast_precision_loss, reason = "a fraction need not be exact")]
fn loss(samples: &[(u64, TcpInfoSample)]) -> f64 {
    let sum =
        |count: fn(&TcpInfoSample) -> u64| samples.iter().map(|(_, seen)| count(seen)).sum::<u64>();
    let (sent, resent) =
        (sum(|seen| seen.sent), sum(|seen| seen.resent).min(sum(|seen| seen.sent)));
    if sent < MIN_SENT { 0.0 } else { resent as f64 / sent as f64 }
}

/// The state that streams depend on: whether the channel is lost, and since when open streams
/// cannot use it.
fn usability(state: &PathState) -> (bool, Option<Duration>) {
    (state.lost().is_some(), state.unusable_since())
}

/// A registered connection.
pub(crate) struct PathRegistration {
    path: Arc<MonitoredPath>,
    id: u64,
}

impl Drop for PathRegistration {
    fn drop(&mut self) {
        let mut connections = self.path.connections();
        let socket = connections.open.remove(&self.id);
        if let Some(place) = connections.asked.iter().position(|asked| *asked == self.id) {
            connections.asked.swap_remove(place);
            // The connection stays open, perhaps in a stream.
            if let Some(socket) = socket {
                restore_keepalive(socket);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Error, ErrorKind};

    use super::*;

    #[test]
    fn a_change_of_usability_is_announced() {
        let events = Arc::new(PathNotifier::new());
        let server = ([127, 0, 0, 1], 9).into();
        let route = StreamChannelConfig::to(server);
        let path =
            MonitoredPath::new((0, String::from("channel 1")), None, route, Arc::clone(&events));
        let mut changes = events.changes();
        let errors = [
            ErrorKind::ConnectionRefused,
            ErrorKind::HostUnreachable,
            ErrorKind::ConnectionRefused,
        ];
        for error in errors {
            path.connect_failed(&Error::from(error));
            assert!(changes.has_changed().unwrap(), "{error}");
            changes.mark_unchanged();
            let is_cut = error != ErrorKind::ConnectionRefused;
            assert_eq!(path.state().unusable_since().is_some(), is_cut, "{error}");
        }
    }
}
