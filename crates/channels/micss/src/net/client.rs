//! The client: accepts applications' connections and carries each over all channels.

mod application;
mod direct;
mod failover;
mod intercepted_udp;
pub(crate) mod opening;
mod peers;
pub(crate) mod pool;
mod udp_associate;
mod udp_flow;

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout_at};
use tracing::warn;

use self::application::ApplicationListenerKind;
use self::intercepted_udp::InterceptedUdp;
use self::peers::PeerPools;
use self::pool::ConnectionPool;
use crate::config::MicssClientConfig;
use crate::net::intercept::{InstalledInterceptRules, InstalledNftTables, InterceptConfig};
use crate::net::metrics::StreamMetrics;
use crate::net::socket::reset;
use crate::net::stop::{BoxedFuture, drain};
use crate::net::stream::driver::ReusableConnection;
use crate::status::{InterceptionStatus, MicssStatus};
use service::accept::RoundRobinAcceptor;
use service::listening::{ConfiguredListener, listen};
use service::log::LogRateLimiter;
use service::reload::{ReloadRequest, Reloader, reloads};

/// The minimum interval between restorations of the rules, which limits the work if another program
/// changes them repeatedly.
const MIN_RESTORE_INTERVAL: Duration = Duration::from_millis(20);

/// The interval after which the client retries to restore rules.
const RESTORE_RETRY_INTERVAL: Duration = Duration::from_secs(1);

/// A client that listens, and does not accept yet.
pub struct MicssClient {
    handle: MicssClientHandle,
    reloads: mpsc::Receiver<ReloadRequest<MicssClientConfig>>,
    listening: Vec<ConfiguredListener>,
    /// The kind of each listener.
    kinds: Vec<ApplicationListenerKind>,
    udp: InterceptedUdp,
    installed: Option<Arc<InstalledInterceptRules>>,
    /// Rules that only serve connections that they have intercepted already.
    retired: Vec<Weak<InstalledInterceptRules>>,
    /// Exists once this client has rules.
    tables: Option<Arc<InstalledNftTables>>,
}

/// Reports the status of a client, and changes its configuration. Clones are for the same client.
#[derive(Clone)]
pub struct MicssClientHandle {
    stream_metrics: Arc<StreamMetrics>,
    in_force: Arc<Mutex<Arc<ActiveClientConfig>>>,
    reloader: Reloader<MicssClientConfig>,
}

/// The configuration in force, and what belongs to it.
struct ActiveClientConfig {
    config: MicssClientConfig,
    peers: PeerPools,
    /// The addresses on which the client listens.
    listen: Vec<SocketAddr>,
}

impl MicssClient {
    /// Listens on the configured addresses, and installs the rules of interception.
    ///
    /// # Errors
    /// If an address is not available; the error names it. If the directory cannot be opened. If
    /// the kernel rejects the rules: then the kernel is made to refuse the connections that match
    /// them, if it accepts rules for that, and the error says whether it does.
    pub async fn bind(config: MicssClientConfig) -> io::Result<Self> {
        let intercept = config.intercept.clone();
        let started = Self::start(config).await;
        started.map_err(|error| match intercept {
            Some(intercept) => intercept.refuse_after(&error),
            None => error,
        })
    }

    async fn start(config: MicssClientConfig) -> io::Result<Self> {
        let (listening, kinds) = listen_all(&config, None, Vec::new()).await?;
        let listen = addresses(&listening)?;
        let peers = peers(&config, None).await?;
        let stream_metrics = Arc::new(StreamMetrics::new());
        let mut udp = InterceptedUdp::new(Arc::clone(&stream_metrics));
        udp.replace(udp.listener(config.intercept.as_ref())?, config.max_streams);
        let tables = config.intercept.as_ref().map(|_| InstalledNftTables::new());
        let tables = tables.transpose()?.map(Arc::new);
        // No further step can fail: the new rules replace existing ones, and stay.
        let installed = config.intercept.clone().zip(tables.as_ref());
        let installed = installed.map(|(intercept, tables)| intercept.install(tables));
        let installed = installed.transpose()?.map(Arc::new);
        let in_force = Arc::new(Mutex::new(Arc::new(ActiveClientConfig { config, peers, listen })));
        let (reloader, reloads) = reloads();
        let handle = MicssClientHandle { stream_metrics, in_force, reloader };
        let retired = Vec::new();
        Ok(Self { handle, reloads, listening, kinds, udp, installed, retired, tables })
    }

    /// The addresses on which it listens: SOCKS5 first if configured, then the forwards in their
    /// order, then the port of interception, for IPv4 and, if the kernel has it, for IPv6.
    ///
    /// # Errors
    /// If the system does not report them.
    pub fn local_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        addresses(&self.listening)
    }

    /// Reports the client's status while it runs, and changes its configuration.
    pub fn handle(&self) -> MicssClientHandle {
        self.handle.clone()
    }

    /// Carries streams until `stop` completes, then accepts no more and waits for open streams, for
    /// a limited time.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        self.run_until(Box::pin(stop)).await;
    }

    /// Not generic, so that it is compiled once, and not again in each crate that calls it.
    fn run_until(mut self, mut stop: BoxedFuture<'_>) -> BoxedFuture<'_> {
        Box::pin(async move {
            let stream_metrics = Arc::clone(&self.handle.stream_metrics);
            let mut in_force = self.handle.in_force();
            let mut filling = in_force.peers.keep_filled();
            let (mut streams, mut flows) = (JoinSet::new(), JoinSet::new());
            let mut finished = JoinSet::new();
            let (mut round_robin, mut too_many) =
                (RoundRobinAcceptor::default(), LogRateLimiter::default());
            let over_limit = Arc::clone(&stream_metrics);
            let mut is_full = |open: usize, max_streams: usize| {
                if open < max_streams {
                    return false;
                }
                over_limit.over_limit.increment();
                if let Some(refused) = too_many.count_event() {
                    warn!(refused, max_streams, "streams refused: limit reached");
                }
                true
            };
            let mut pause = Instant::now();
            loop {
                tokio::select! {
                    () = &mut stop => break,
                    (index, application, _) = round_robin.accept(&self.listening) => {
                        if is_full(streams.len() + flows.len(), in_force.config.max_streams) {
                            reset(application);
                            continue;
                        }
                        let (in_force, stream_metrics) = (Arc::clone(&in_force), Arc::clone(&stream_metrics));
                        let kind = self.kinds[index].clone();
                        let rules = self.installed.clone();
                        streams.spawn(async move {
                            // Without the rules, an application's packets would leave the host
                            // unchanged.
                            let _rules = rules.filter(|_| matches!(kind, ApplicationListenerKind::Intercepted));
                            let ActiveClientConfig { config, peers, .. } = &*in_force;
                            application::serve(config, peers, &stream_metrics, kind, application).await
                        });
                    }
                    (flow, listener) = self.udp.next_flow() => {
                        // A flow that is dropped gets no answers.
                        let max_streams = in_force.config.max_streams;
                        if is_full(streams.len() + flows.len(), max_streams)
                            || is_full(flows.len(), InterceptedUdp::max_open(max_streams))
                        {
                            continue;
                        }
                        let (in_force, stream_metrics) = (Arc::clone(&in_force), Arc::clone(&stream_metrics));
                        let rules = self.installed.clone();
                        flows.spawn(async move {
                            let _needed = (rules, listener);
                            let ActiveClientConfig { config, peers, .. } = &*in_force;
                            udp_flow::serve_flow(config, peers, &stream_metrics, flow).await
                        });
                    }
                    Some(stream) = streams.join_next() => put_back(&mut finished, stream.ok().flatten()),
                    Some(flow) = flows.join_next() => put_back(&mut finished, flow.ok().flatten()),
                    Some(_) = finished.join_next() => {}
                    () = changed(self.tables.as_deref(), pause, &stream_metrics) => {
                        restore(self.installed.as_ref(), &self.retired, &stream_metrics);
                        pause = Instant::now() + MIN_RESTORE_INTERVAL;
                    }
                    Some(ReloadRequest { config, answer }) = self.reloads.recv() => {
                        let taken = self.reload(config).await;
                        if taken.is_ok() {
                            in_force = self.handle.in_force();
                            filling = in_force.peers.keep_filled();
                        }
                        // The caller may have stopped waiting.
                        let _ = answer.send(taken.and_then(|()| self.local_addresses()));
                    }
                }
            }
            // Flows of datagrams have no end of their own, and end with this.
            self.udp.close();
            drop((self.listening, filling, finished));
            tokio::join!(drain(flows), drain(streams));
            // Only now: open streams were intercepted by these rules.
            drop(self.installed);
        })
    }

    /// Applies another configuration to new streams. On an error nothing changes.
    async fn reload(&mut self, config: MicssClientConfig) -> io::Result<()> {
        let before = self.handle.in_force();
        let peers = peers(&config, Some(&before.peers)).await?;
        let places = self.listening.iter().cloned().zip(self.kinds.iter().cloned()).collect();
        let (listening, kinds) = listen_all(&config, Some(&before.config), places).await?;
        let listen = addresses(&listening)?;
        let by_udp = self.udp.listener(config.intercept.as_ref())?;
        self.intercept(config.intercept.clone())?;
        self.udp.replace(by_udp, config.max_streams);
        (self.listening, self.kinds) = (listening, kinds);
        let mut in_force = self.handle.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        *in_force = Arc::new(ActiveClientConfig { config, peers, listen });
        Ok(())
    }
}

impl MicssClient {
    /// Changes which connections are intercepted, if any.
    fn intercept(&mut self, new: Option<InterceptConfig>) -> io::Result<()> {
        self.retired.retain(|retired| retired.strong_count() > 0);
        let installed = match new {
            Some(new) => {
                let tables = match &self.tables {
                    Some(tables) => Arc::clone(tables),
                    None => Arc::new(InstalledNftTables::new()?),
                };
                self.tables = Some(Arc::clone(&tables));
                let retired = self.retired.iter().filter_map(Weak::upgrade);
                let mut known = self.installed.clone().into_iter().chain(retired);
                // A table is named after its port, so there is one table for each port.
                Some(match known.find(|known| known.port() == new.port()) {
                    Some(known) => {
                        known.replace(new)?;
                        known
                    }
                    None => Arc::new(new.install(&tables)?),
                })
            }
            None => None,
        };
        let before = std::mem::replace(&mut self.installed, installed);
        let is_same =
            |one: &Arc<_>| self.installed.as_ref().is_some_and(|new| Arc::ptr_eq(one, new));
        if let Some(before) = before.filter(|before| !is_same(before)) {
            before.retire();
            self.retired.push(Arc::downgrade(&before));
        }
        Ok(())
    }
}

impl MicssClientHandle {
    /// The client's status.
    pub fn status(&self) -> MicssStatus {
        let in_force = self.in_force();
        MicssStatus {
            uptime_s: self.stream_metrics.uptime().as_secs_f64(),
            listen: in_force.listen.clone(),
            streams: self.stream_metrics.streams(),
            redundancy: self.stream_metrics.redundancy(),
            limits: None,
            interception: in_force.config.intercept.as_ref().map(|intercept| InterceptionStatus {
                port: intercept.port(),
                in_force: !self.stream_metrics.unrestored.load(Ordering::Relaxed),
                restored: self.stream_metrics.restored.value(),
                udp: intercept.intercepts_udp(),
            }),
            bypass: (!in_force.config.bypass.is_empty())
                .then(|| self.stream_metrics.bypass.status()),
            udp: in_force.config.carries_udp().then(|| self.stream_metrics.datagrams.status()),
            servers: in_force.peers.server_status(),
            server_switches: in_force.peers.server_switches(),
            channels: in_force.peers.status(),
        }
    }

    /// Applies another configuration to new streams. Open streams are not affected. Returns the
    /// addresses on which it listens now, as [`MicssClient::local_addresses`].
    ///
    /// # Errors
    /// As [`MicssClient::bind`], and the previous configuration stays in force; or if the client
    /// has stopped.
    pub async fn reload(&self, config: MicssClientConfig) -> io::Result<Vec<SocketAddr>> {
        self.reloader.reload(config).await
    }

    fn in_force(&self) -> Arc<ActiveClientConfig> {
        Arc::clone(&self.in_force.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// The addresses of listeners.
fn addresses(listening: &[ConfiguredListener]) -> io::Result<Vec<SocketAddr>> {
    listening.iter().map(ConfiguredListener::address).collect()
}

/// Returns the connections of a finished stream to their pool, if they can be reused.
fn put_back(
    finished: &mut JoinSet<()>,
    ended: Option<(Arc<ConnectionPool>, Vec<ReusableConnection>)>,
) {
    if let Some((pool, connections)) = ended {
        finished.spawn(async move { pool.put_back(connections).await });
    }
}

/// Waits until rules have changed, but at least until the pause is over. If the rules could not be
/// restored, it waits for a short time only.
async fn changed(
    tables: Option<&InstalledNftTables>,
    pause: Instant,
    stream_metrics: &StreamMetrics,
) {
    let Some(tables) = tables else { return pending().await };
    let is_unrestored = stream_metrics.unrestored.load(Ordering::Relaxed);
    next_attempt(tables.changed(), pause, is_unrestored).await;
}

async fn next_attempt(change: impl Future<Output = ()>, pause: Instant, is_unrestored: bool) {
    sleep_until(pause).await;
    if is_unrestored {
        // The next attempt is soon, even if nothing changes, and no matter how often this is called
        // meanwhile.
        let _ = timeout_at(pause + RESTORE_RETRY_INTERVAL, change).await;
    } else {
        change.await;
    }
}

/// Restores rules that another program has removed or changed, and counts that.
fn restore(
    installed: Option<&Arc<InstalledInterceptRules>>,
    retired: &[Weak<InstalledInterceptRules>],
    stream_metrics: &StreamMetrics,
) {
    let retired: Vec<_> = retired.iter().filter_map(Weak::upgrade).collect();
    let mut unrestored = false;
    for rules in installed.into_iter().chain(&retired) {
        match rules.restore() {
            Ok(true) => stream_metrics.restored.increment(),
            Ok(false) => {}
            Err(_) => unrestored = true,
        }
    }
    stream_metrics.unrestored.store(unrestored, Ordering::Relaxed);
}

/// The servers of a configuration.
async fn peers(config: &MicssClientConfig, before: Option<&PeerPools>) -> io::Result<PeerPools> {
    PeerPools::new(config, before).await.map_err(io::Error::other)
}

/// Listens on the addresses of a configuration. Reuses the listeners of the previous one. Also
/// returns the kind of each.
async fn listen_all(
    config: &MicssClientConfig,
    before: Option<&MicssClientConfig>,
    places: Vec<(ConfiguredListener, ApplicationListenerKind)>,
) -> io::Result<(Vec<ConfiguredListener>, Vec<ApplicationListenerKind>)> {
    let (intercepted, others): (Vec<_>, Vec<_>) = places
        .into_iter()
        .partition(|(_, kind)| matches!(kind, ApplicationListenerKind::Intercepted));
    let others: Vec<_> = others.into_iter().map(|(listening, _)| listening).collect();
    let socks = config.socks.map(|address| (address, ApplicationListenerKind::Socks));
    let forwards = config.forwards.iter();
    let forwards = forwards.map(|f| (f.listen, ApplicationListenerKind::Forward(f.target.clone())));
    let (addresses, mut kinds): (Vec<_>, Vec<_>) = socks.into_iter().chain(forwards).unzip();
    let mut listening = listen(addresses, &others).await?;
    if let Some(intercept) = &config.intercept {
        let port = before.and_then(|before| before.intercept.as_ref()).map(InterceptConfig::port);
        if port == Some(intercept.port()) {
            listening.extend(intercepted.into_iter().map(|(listening, _)| listening));
        } else {
            listening.extend(intercept.listen()?);
        }
    }
    kinds.resize(listening.len(), ApplicationListenerKind::Intercepted);
    Ok((listening, kinds))
}

#[cfg(test)]
mod tests {
    use tokio::time::sleep;

    use super::*;

    /// A proxy that always has something else to do, and so cancels the wait again and again.
    #[tokio::test(start_paused = true)]
    async fn rules_are_restored_on_time_by_a_busy_proxy() {
        let begin = Instant::now();
        let pause = begin + MIN_RESTORE_INTERVAL;
        let due = MIN_RESTORE_INTERVAL + RESTORE_RETRY_INTERVAL;
        loop {
            tokio::select! {
                biased;
                () = next_attempt(pending(), pause, true) => break,
                () = sleep(RESTORE_RETRY_INTERVAL / 4) => {}
            }
            assert!(begin.elapsed() <= 2 * due, "no attempt");
        }
        assert_eq!(begin.elapsed(), due);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_of_rules_is_handled_after_the_pause() {
        let begin = Instant::now();
        for is_unrestored in [false, true] {
            next_attempt(async {}, begin + MIN_RESTORE_INTERVAL, is_unrestored).await;
            assert_eq!(begin.elapsed(), MIN_RESTORE_INTERVAL);
        }
        let without_change = next_attempt(pending(), begin, false);
        assert!(tokio::time::timeout(10 * RESTORE_RETRY_INTERVAL, without_change).await.is_err());
    }
}
