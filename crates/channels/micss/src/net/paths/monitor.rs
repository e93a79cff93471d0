//! Monitors the channels of a client or a server: it observes and probes them when they are due,
//! logs which are lost, and notifies streams.
//! [`failure_detector`](crate::protocol::failure_detector) makes the decisions.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::task::JoinSet;
use tokio::time::{sleep, sleep_until, timeout};
use tracing::{info, warn};

use crate::StreamError;
use crate::config::{LostChannelPolicy, RemoteServerConfig, StreamChannelConfig};
use crate::net::metrics::ChannelMetrics;
use crate::net::paths::links::{LinkChangeSocket, find_route};
use crate::net::paths::path::{MonitoredPath, PathNotifier};
use crate::net::socket;
use crate::protocol::failure_detector::{FailureDetectorEvent, PathLoss, PathState};
use crate::protocol::on_lost_channel::{LostChannelAction, StreamAdmission, admit};
use crate::status::{self, LostPeer, StreamChannelState};
use service::log::LogRateLimiter;

/// The minimum interval of observations of the paths.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The timeout of a connection attempt that only probes whether the peer answers.
const PROBE_TIMEOUT: Duration = Duration::from_secs(5);

/// The maximum number of concurrent attempts.
const MAX_PROBES: usize = 32;

/// The maximum number of paths of a server. While all are in use, further paths are not monitored.
const MAX_PATHS: usize = 4096;

/// The maximum number of lost clients of a listener in the status.
const MAX_REPORTED_PEERS: usize = 16;

/// How long a lost path without connections is remembered, from the time of its loss.
const LOST_PATH_TIMEOUT: Duration = Duration::from_secs(600);

/// The paths of a client to one server, or those of a server to its clients. They are monitored
/// until this is dropped.
pub(crate) struct PathMonitor {
    shared: Arc<PathMonitorState>,
    _watching: JoinSet<()>,
}

/// Identifies a path: by the channel's index at a client; at a server by the listener's address,
/// since its index may change, and the peer's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum PathKey {
    Channel(usize),
    Peer(SocketAddr, IpAddr),
}

struct PathMonitorState {
    events: Arc<PathNotifier>,
    paths: Mutex<BTreeMap<PathKey, Arc<MonitoredPath>>>,
    side: PathMonitorRole,
}

enum PathMonitorRole {
    Client {
        mark: Option<u32>,
        threshold: usize,
        policy: LostChannelPolicy,
        channel_metrics: Vec<Arc<ChannelMetrics>>,
    },
    /// Limits the log lines about lost and recovered paths of a listener.
    Server { log_limiters: Mutex<BTreeMap<(usize, bool), LogRateLimiter>> },
}

impl PathMonitor {
    /// Monitors the channels to a server. `channel_metrics` count when a channel falls silent.
    pub(crate) fn of_client(
        remote: &RemoteServerConfig,
        mark: Option<u32>,
        policy: LostChannelPolicy,
        channel_metrics: Vec<Arc<ChannelMetrics>>,
    ) -> Self {
        let events = Arc::new(PathNotifier::new());
        let path = |(place, channel): (usize, &StreamChannelConfig)| {
            let named = (place, name(place, channel));
            let path = MonitoredPath::new(named, None, channel.clone(), Arc::clone(&events));
            (PathKey::Channel(place), Arc::new(path))
        };
        let paths = remote.channels.iter().enumerate().map(path).collect();
        let side = PathMonitorRole::Client {
            mark,
            threshold: remote.threshold.into(),
            policy,
            channel_metrics,
        };
        Self::new(PathMonitorState { events, paths: Mutex::new(paths), side })
    }

    /// Monitors the paths of incoming streams.
    pub(crate) fn of_server() -> Self {
        let side = PathMonitorRole::Server { log_limiters: Mutex::default() };
        Self::new(PathMonitorState {
            events: Arc::new(PathNotifier::new()),
            paths: Mutex::default(),
            side,
        })
    }

    fn new(shared: PathMonitorState) -> Self {
        let shared = Arc::new(shared);
        let watching = [watch(Arc::clone(&shared))].into_iter().collect();
        Self { shared, _watching: watching }
    }

    /// The paths, in the order of the channels.
    pub(crate) fn paths(&self) -> Vec<Arc<MonitoredPath>> {
        self.shared.paths().values().map(Arc::clone).collect()
    }

    /// The path of a server's connection, which arrived at the listener with this index. `None` if
    /// there are too many.
    pub(crate) fn path_for(
        &self,
        place: usize,
        listener: SocketAddr,
        peer: IpAddr,
        connection: &TcpStream,
    ) -> Option<Arc<MonitoredPath>> {
        let peer = peer.to_canonical();
        let key = PathKey::Peer(listener, peer);
        let mut paths = self.shared.paths();
        if let Some(known) = paths.get(&key) {
            return Some(Arc::clone(known));
        }
        if paths.len() >= MAX_PATHS {
            let forgotten = longest_lost(&paths)?;
            paths.remove(&forgotten);
        }
        let own = connection.local_addr().ok()?.ip().to_canonical();
        let server = SocketAddr::new(peer, 9);
        let route = StreamChannelConfig { source: Some(own), ..StreamChannelConfig::to(server) };
        let name = format!("channel {} ({listener}, from {peer})", place + 1);
        let path =
            MonitoredPath::new((place, name), Some(peer), route, Arc::clone(&self.shared.events));
        let path = Arc::new(path);
        paths.insert(key, Arc::clone(&path));
        Some(path)
    }

    /// Records that a client has connected to a server's listener.
    pub(crate) fn accepted(&self, listener: SocketAddr, peer: IpAddr) {
        let key = PathKey::Peer(listener, peer.to_canonical());
        let known = self.shared.paths().get(&key).map(Arc::clone);
        if let Some(path) = known {
            path.connected();
        }
    }

    /// The status of a server's listener.
    pub(crate) fn listener_status(
        &self,
        listener: SocketAddr,
        counts: status::StreamChannelStatus,
    ) -> status::StreamChannelStatus {
        let first = PathKey::Peer(listener, Ipv4Addr::UNSPECIFIED.into());
        let last = PathKey::Peer(listener, Ipv6Addr::from(u128::MAX).into());
        let own: Vec<_> =
            self.shared.paths().range(first..=last).map(|(_, path)| Arc::clone(path)).collect();
        let (mut peers, mut lost, mut up_s) = (0, Vec::new(), None::<f64>);
        for path in &own {
            peers += 1;
            match (path_status(path), path.peer) {
                ((StreamChannelState::Down, Some(for_s), Some(why)), Some(peer)) => {
                    let (peer, streams) = (peer.to_string(), path.connection_count() as u64);
                    lost.push(LostPeer { peer, for_s, why, streams });
                }
                ((_, age, _), _) => up_s = age.map(|age| age.max(up_s.unwrap_or(0.0))).or(up_s),
            }
        }
        lost.sort_by(|one, other| one.for_s.total_cmp(&other.for_s));
        let peers_down = lost.len() as u64;
        let (state, state_s, why) = match lost.last() {
            _ if peers == 0 => (StreamChannelState::Unknown, None, None),
            Some(first) if peers_down == peers => {
                (StreamChannelState::Down, Some(first.for_s), Some(first.why.clone()))
            }
            _ => (StreamChannelState::Up, up_s, None),
        };
        lost.truncate(MAX_REPORTED_PEERS);
        status::StreamChannelStatus { state, state_s, why, peers, peers_down, lost, ..counts }
    }

    /// Waits until a new stream of a client may open.
    ///
    /// # Errors
    /// If a channel that it needs is lost, and the policy is not to wait, or the wait has timed
    /// out.
    pub(crate) async fn admit(&self, since: Duration) -> Result<(), StreamError> {
        let mut changes = self.shared.events.changes();
        loop {
            let until = match self.admission(since) {
                StreamAdmission::Open => return Ok(()),
                StreamAdmission::Fail(place) => {
                    let path = self.paths().swap_remove(place);
                    path.request_probe();
                    return Err(lost_error(&path));
                }
                StreamAdmission::WaitUntil(until) => until,
            };
            self.paths().iter().for_each(|path| path.request_probe());
            // The sender of the changes exists as long as `self`.
            tokio::select! {
                _ = changes.changed() => {}
                () = sleep_until(self.shared.events.at(until)) => {}
            }
        }
    }

    /// Waits until a new stream of a client may not open.
    pub(crate) async fn wait_until_closed(&self) {
        let mut changes = self.shared.events.changes();
        while self.is_open() {
            let _ = changes.changed().await;
        }
    }

    /// Waits until a new stream of a client may open, without a timeout.
    pub(crate) async fn wait_until_open(&self) {
        let mut changes = self.shared.events.changes();
        while !self.is_open() {
            let _ = changes.changed().await;
        }
    }

    /// Whether a new stream of a client may open now.
    pub(crate) fn is_open(&self) -> bool {
        self.admission(self.now()) == StreamAdmission::Open
    }

    /// The clock of its paths.
    pub(crate) fn clock(&self) -> Arc<PathNotifier> {
        Arc::clone(&self.shared.events)
    }

    /// The current time, which streams pass when they ask for admission.
    pub(crate) fn now(&self) -> Duration {
        self.shared.events.now()
    }

    fn admission(&self, since: Duration) -> StreamAdmission {
        let PathMonitorRole::Client { threshold, policy, .. } = &self.shared.side else {
            return StreamAdmission::Open;
        };
        let states: Vec<PathState> = self.paths().iter().map(|path| path.state()).collect();
        let times = (self.now(), since, policy.timeout);
        admit(states.iter(), states.len() - threshold, policy.new_streams, times)
    }
}

/// The status of a path: its state, for how many seconds, and why.
pub(crate) fn path_status(
    path: &MonitoredPath,
) -> (StreamChannelState, Option<f64>, Option<String>) {
    let age = |since: Duration| Some(path.events.now().saturating_sub(since).as_secs_f64());
    match path.state() {
        PathState::Unknown => (StreamChannelState::Unknown, None, None),
        PathState::Up { since } => (StreamChannelState::Up, age(since), None),
        PathState::Lost(PathLoss { since, cause }) => {
            (StreamChannelState::Down, age(since), Some(cause.to_string()))
        }
    }
}

/// The error of a stream that needs this path.
pub(crate) fn lost_error(path: &MonitoredPath) -> StreamError {
    let state = path.state();
    let (since, why) = state.lost().map_or_else(
        || (path.events.now(), String::from("no answer")),
        |lost| (lost.since, lost.cause.to_string()),
    );
    let for_s = path.events.now().saturating_sub(since).as_secs_f64();
    StreamError::Lost { channel: path.channel_index, name: path.name.clone(), why, for_s }
}

/// The name of a client's channel, with its configuration.
fn name(
    place: usize,
    StreamChannelConfig { server, source, device, .. }: &StreamChannelConfig,
) -> String {
    let source = source.map(|source| format!(" from {source}")).unwrap_or_default();
    let device = device.as_ref().map(|device| format!(" by {device}")).unwrap_or_default();
    format!("channel {} ({server}{source}{device})", place + 1)
}

/// Observes paths when they are due, without end.
async fn watch(shared: Arc<PathMonitorState>) {
    // Without notifications, a link that goes down is detected by its silence.
    let mut links = LinkChangeSocket::listen().ok();
    let mut probes = JoinSet::new();
    loop {
        let next = shared.paths().values().filter_map(|path| path.deadline()).min();
        tokio::select! {
            () = shared.events.wake.notified() => {}
            () = sleep_until(shared.events.at(next.unwrap_or_default())), if next.is_some() => {}
            changed = link_change(links.as_ref()) => match changed {
                Ok(()) => shared.check_routes(),
                Err(_) => links = None,
            },
        }
        while probes.try_join_next().is_some() {}
        shared.poll_paths(&mut probes);
        sleep(MIN_POLL_INTERVAL).await;
    }
}

async fn link_change(links: Option<&LinkChangeSocket>) -> io::Result<()> {
    match links {
        Some(links) => links.next().await,
        None => pending().await,
    }
}

impl PathMonitorState {
    fn paths(&self) -> MutexGuard<'_, BTreeMap<PathKey, Arc<MonitoredPath>>> {
        self.paths.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Observes the paths that are due, and handles the resulting events.
    fn poll_paths(&self, probes: &mut JoinSet<()>) {
        let now = self.events.now();
        let paths: Vec<_> = self.paths().values().map(Arc::clone).collect();
        for path in &paths {
            if path.is_due(now) {
                path.observe();
            }
            while let Some(event) = path.poll_event() {
                self.handle(path, event, probes);
            }
        }
        drop(paths);
        if matches!(self.side, PathMonitorRole::Server { .. }) {
            self.paths().retain(|_, path| {
                let is_new = Arc::strong_count(path) > 1;
                let is_used = path.connection_count() > 0 || path.awaits_answer();
                is_new || is_used || is_remembered(&path.state(), now)
            });
        }
    }

    fn handle(
        &self,
        path: &Arc<MonitoredPath>,
        event: FailureDetectorEvent,
        probes: &mut JoinSet<()>,
    ) {
        match event {
            FailureDetectorEvent::Probe { connect } => self.probe(path, connect, probes),
            FailureDetectorEvent::Cut => self.count_silence(path),
            FailureDetectorEvent::Lost(lost) => self.log_loss(path, &lost),
            FailureDetectorEvent::Recovered { .. }
                if self.is_log_limited(path.channel_index, false) => {}
            FailureDetectorEvent::Recovered { after } => {
                info!("{} answers again after {:.1} s", path.name, after.as_secs_f64());
            }
        }
    }

    fn probe(&self, path: &Arc<MonitoredPath>, connect: bool, probes: &mut JoinSet<()>) {
        let PathMonitorRole::Client { mark, .. } = self.side else { return path.probe() };
        if path.state().unusable_since().is_none() {
            path.probe();
        }
        if connect && probes.len() < MAX_PROBES {
            path.connecting();
            let path = Arc::clone(path);
            probes.spawn(async move {
                match timeout(PROBE_TIMEOUT, socket::connect_channel(&path.route, mark)).await {
                    Ok(Ok(_)) => path.connected(),
                    Ok(Err(error)) => path.connect_failed(&error),
                    Err(_) => {}
                }
            });
        }
    }

    /// Whether a server has just logged that a path of a listener was lost, or has recovered.
    fn is_log_limited(&self, place: usize, is_lost: bool) -> bool {
        let PathMonitorRole::Server { log_limiters: rarely } = &self.side else { return false };
        let mut rarely = rarely.lock().unwrap_or_else(PoisonError::into_inner);
        rarely.entry((place, is_lost)).or_default().count_event().is_none()
    }

    /// Records that open connections of a channel no longer work, so idle sets are not used.
    fn count_silence(&self, path: &MonitoredPath) {
        if let PathMonitorRole::Client { channel_metrics, .. } = &self.side
            && let Some(metrics) = channel_metrics.get(path.channel_index)
        {
            metrics.record_silence();
        }
    }

    /// Logs that a channel is lost, and the consequences.
    fn log_loss(&self, path: &MonitoredPath, PathLoss { since, cause }: &PathLoss) {
        let for_s = self.events.now().saturating_sub(*since).as_secs_f64();
        let name = &path.name;
        let PathMonitorRole::Client { threshold, policy, channel_metrics, .. } = &self.side else {
            if !self.is_log_limited(path.channel_index, true) {
                let streams = path.connection_count();
                warn!(
                    "{name} is lost: {cause} for {for_s:.1} s; {streams} streams use it, and wait for it if they \
                     need it"
                );
            }
            return;
        };
        let (all, wait) = (channel_metrics.len(), policy.timeout.as_secs());
        let left = self.paths().values().filter(|path| path.state().lost().is_none()).count();
        if left >= *threshold {
            let spare = left - threshold;
            warn!(
                "{name} is lost: {cause} for {for_s:.1} s; streams continue without it, and {spare} more may be lost"
            );
        } else {
            let new = match policy.new_streams {
                LostChannelAction::Fail => "new streams fail at once",
                LostChannelAction::Wait => "new streams wait as well",
            };
            warn!(
                "{name} is lost: {cause} for {for_s:.1} s; {threshold} of {all} channels are needed: open \
                 streams wait for up to {wait} s, {new}"
            );
        }
    }

    /// Called when links, addresses or routes of this host have changed: checks which channels have
    /// no route now.
    fn check_routes(&self) {
        let mark = match self.side {
            PathMonitorRole::Client { mark, .. } => mark,
            PathMonitorRole::Server { .. } => None,
        };
        let paths: Vec<_> = self.paths().values().map(Arc::clone).collect();
        for path in paths {
            match find_route(&path.route, mark) {
                Ok(()) if path.state().lost().is_some() => path.request_probe(),
                Ok(()) => {}
                Err(error) => path.connect_failed(&error),
            }
        }
    }
}

/// Of the paths that are unused and remembered only because they were lost, the one that was lost
/// first. So a client that uses many addresses cannot prevent the paths of others from being
/// monitored.
fn longest_lost(paths: &BTreeMap<PathKey, Arc<MonitoredPath>>) -> Option<PathKey> {
    let unused = paths
        .iter()
        .filter(|(_, path)| Arc::strong_count(path) == 1 && path.connection_count() == 0);
    let lost = unused.filter_map(|(key, path)| path.state().lost().map(|lost| (lost.since, *key)));
    lost.min().map(|(_, key)| key)
}

/// Whether a path without connections was lost recently.
fn is_remembered(state: &PathState, now: Duration) -> bool {
    state.lost().is_some_and(|lost| now.saturating_sub(lost.since) < LOST_PATH_TIMEOUT)
}
