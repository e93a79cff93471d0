//! The server: associates the connections of each stream and connects the stream to the service
//! that it requests, if that is allowed.

mod datagrams;
mod open_streams;
mod pending_connections;
mod rejoins;
mod request;

use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::open_streams::OpenStreams;
use self::pending_connections::{
    AcceptedChannelConnection, HandshakeCompletion, PendingChannelConnections,
};
use self::rejoins::RejoinableStreams;
use crate::config::MicssServerConfig;
use association::{ConnectionCookie, Rejoin};

use crate::net::metrics::{ChannelMetrics, StreamMetrics};
use crate::net::paths::monitor::PathMonitor;
use crate::net::paths::path::MonitoredPath;
use crate::net::stop::{BoxedFuture, drain};
use crate::net::stream::connection::ChannelConnection;
use crate::net::stream::driver::{ReusableConnection, StreamDriver};
use crate::net::stream::program::StreamAcceptor;
use crate::net::stream::rejoins::RejoinClaim;
use crate::status::{MicssStatus, ServerLimitStatus};
use directory::exchange::DirectoryServer;
use service::accept::RoundRobinAcceptor;
use service::listening::{ConfiguredListener, listen};
use service::reload::{ReloadRequest, Reloader, reloads};

/// The largest number of connections that were accepted elsewhere and that the server has not taken
/// yet.
const MAX_HANDED_OVER: usize = 64;

/// Stands for the listeners of the program whose connections are handed over. Their paths are
/// monitored, too.
const HANDED_OVER: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), 0);

/// A server that listens, and does not accept yet.
pub struct MicssServer {
    handle: MicssServerHandle,
    reloads: mpsc::Receiver<ReloadRequest<MicssServerConfig>>,
    listening: Vec<ConfiguredListener>,
    /// Sends clients this server's addresses, if configured.
    directory: Option<DirectoryServer>,
    /// Connections that were accepted elsewhere.
    handed_over: mpsc::Receiver<(TcpStream, SocketAddr)>,
}

/// Reports the status of a server, and changes its configuration. Clones are for the same server.
#[derive(Clone)]
pub struct MicssServerHandle {
    stream_metrics: Arc<StreamMetrics>,
    pending: Arc<PendingChannelConnections>,
    open: Arc<OpenStreams>,
    rejoinable: Arc<RejoinableStreams>,
    monitor: Arc<PathMonitor>,
    in_force: Arc<Mutex<ActiveServerConfig>>,
    reloader: Reloader<MicssServerConfig>,
    hand_over: mpsc::Sender<(TcpStream, SocketAddr)>,
    /// The program that accepts all streams, if there is one. Otherwise they lead to services.
    acceptor: Option<StreamAcceptor>,
}

/// The configuration in force, and the metrics of each address on which the server listens.
struct ActiveServerConfig {
    config: Arc<MicssServerConfig>,
    /// The addresses on which the server and its directory listen.
    listen: Vec<SocketAddr>,
    channel_metrics: Vec<(SocketAddr, Arc<ChannelMetrics>)>,
}

impl MicssServer {
    /// Listens on the configured addresses.
    ///
    /// # Errors
    /// If an address is not available; the error names it. If a key of the directory cannot be
    /// read.
    pub async fn bind(config: MicssServerConfig) -> io::Result<Self> {
        Self::bind_for(config, None).await
    }

    /// The same, whose streams a program accepts, if there is one.
    pub(crate) async fn bind_for(
        config: MicssServerConfig,
        acceptor: Option<StreamAcceptor>,
    ) -> io::Result<Self> {
        let listening = listen(config.listen.iter().copied(), &[]).await?;
        let directory = directory_server(&config, &[]).await?;
        let stream_metrics = Arc::new(StreamMetrics::new());
        let (pending, open) = (
            Arc::new(PendingChannelConnections::new(&config)),
            Arc::new(OpenStreams::new(&config)),
        );
        let mut in_force = ActiveServerConfig::new(config, &listening, directory.as_ref(), &[])?;
        if acceptor.is_some() {
            in_force.channel_metrics.push((HANDED_OVER, Arc::default()));
        }
        let in_force = Arc::new(Mutex::new(in_force));
        let (reloader, reloads) = reloads();
        let monitor = Arc::new(PathMonitor::of_server());
        let (hand_over, handed_over) = mpsc::channel(MAX_HANDED_OVER);
        let rejoinable = Arc::default();
        let handle = MicssServerHandle {
            stream_metrics,
            pending,
            open,
            rejoinable,
            monitor,
            in_force,
            reloader,
            hand_over,
            acceptor,
        };
        Ok(Self { handle, reloads, listening, directory, handed_over })
    }

    /// The addresses on which it listens, in the order of the configuration.
    ///
    /// # Errors
    /// If the system does not report them.
    pub fn local_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listening.iter().map(ConfiguredListener::address).collect()
    }

    /// The directory's server, which sends clients the addresses, if configured.
    pub fn directory_server(&self) -> Option<&DirectoryServer> {
        self.directory.as_ref()
    }

    /// Reports the server's status while it runs, and changes its configuration.
    pub fn handle(&self) -> MicssServerHandle {
        self.handle.clone()
    }

    /// Serves until `stop` completes, then accepts no more and waits for open streams, for a
    /// limited time.
    pub async fn run(self, stop: impl Future<Output = ()> + Send) {
        self.run_until(Box::pin(stop)).await;
    }

    /// Not generic, so that it is compiled once, and not again in each crate that calls it.
    fn run_until(mut self, mut stop: BoxedFuture<'_>) -> BoxedFuture<'_> {
        Box::pin(async move {
            let monitor = Arc::clone(&self.handle.monitor);
            let (mut config, mut channel_metrics) = self.handle.in_force();
            let pending = Arc::clone(&self.handle.pending);
            let mut path_status =
                self.directory.as_ref().map(DirectoryServer::listening).unwrap_or_default();
            let mut answering = answer(self.directory.take());
            let mut waiting = JoinSet::new();
            let mut streams = JoinSet::new();
            let associate = |waiting: &mut JoinSet<_>, stream, peer, metrics| {
                let pending = Arc::clone(&pending);
                waiting.spawn(async move { pending.associate(stream, peer, metrics).await });
            };
            let mut round_robin = RoundRobinAcceptor::default();
            loop {
                tokio::select! {
                    () = &mut stop => break,
                    (index, stream, peer) = round_robin.accept(&self.listening) => {
                        channel_metrics[index].1.connected.increment();
                        monitor.accepted(channel_metrics[index].0, peer.ip());
                        associate(&mut waiting, stream, peer, Arc::clone(&channel_metrics[index].1));
                    }
                    Some((stream, peer)) = self.handed_over.recv() => {
                        if let Some((_, metrics)) = channel_metrics.last() {
                            metrics.connected.increment();
                            associate(&mut waiting, stream, peer, Arc::clone(metrics));
                        }
                    }
                    Some(arrived) = waiting.join_next() => {
                        let (config, handle) = (Arc::clone(&config), self.handle.clone());
                        match arrived {
                            Ok(Some(HandshakeCompletion::Association(association))) => {
                                streams.spawn(async move {
                                    request::serve(&config, &handle, association).await
                                });
                            }
                            Ok(Some(HandshakeCompletion::Rejoin(rejoin, cookie, connection))) => {
                                handle.claim(rejoin, cookie, connection);
                            }
                            _ => {}
                        }
                    }
                    Some(finished) = streams.join_next() => {
                        for (ReusableConnection { stream, metrics, .. }, peer) in finished.unwrap_or_default() {
                            associate(&mut waiting, stream, peer, metrics);
                        }
                    }
                    Some(ReloadRequest { config: new, answer: reply }) = self.reloads.recv() => {
                        let taken = self.reload(new, &path_status).await;
                        if let Ok(directory_server) = &taken {
                            (config, channel_metrics) = self.handle.in_force();
                            pending.reconfigure(&config);
                            self.handle.open.reconfigure(&config);
                            path_status = directory_server.as_ref().map(DirectoryServer::listening).unwrap_or_default();
                        }
                        // The caller may have stopped waiting.
                        let _ = reply.send(match taken {
                            Ok(directory_server) => {
                                // Two tasks must not accept from one listener.
                                answering.shutdown().await;
                                answering = answer(directory_server);
                                self.local_addresses()
                            }
                            Err(error) => Err(error),
                        });
                    }
                }
            }
            drop((self.listening, waiting, path_status, answering));
            drain(streams).await;
        })
    }

    /// Applies another configuration to new streams. On an error nothing changes. Returns the
    /// directory's server, which may reuse listeners of the previous one.
    async fn reload(
        &mut self,
        config: MicssServerConfig,
        path_status: &[ConfiguredListener],
    ) -> io::Result<Option<DirectoryServer>> {
        let directory_server = directory_server(&config, path_status).await?;
        let listening = listen(config.listen.iter().copied(), &self.listening).await?;
        let mut in_force = self.handle.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let (directory, before) = (directory_server.as_ref(), &in_force.channel_metrics);
        *in_force = ActiveServerConfig::new(config, &listening, directory, before)?;
        self.listening = listening;
        Ok(directory_server)
    }
}

/// The directory's server, if configured.
async fn directory_server(
    config: &MicssServerConfig,
    before: &[ConfiguredListener],
) -> io::Result<Option<DirectoryServer>> {
    let Some(directory) = &config.directory else { return Ok(None) };
    let bound = DirectoryServer::rebind(directory, &config.config_dir, before).await;
    bound.map(Some).map_err(io::Error::other)
}

/// Runs the directory's server until the returned tasks are dropped.
fn answer(directory_server: Option<DirectoryServer>) -> JoinSet<()> {
    directory_server.into_iter().map(|directory_server| directory_server.run(pending())).collect()
}

impl ActiveServerConfig {
    /// Counts continue for addresses that are kept.
    fn new(
        config: MicssServerConfig,
        listening: &[ConfiguredListener],
        directory: Option<&DirectoryServer>,
        before: &[(SocketAddr, Arc<ChannelMetrics>)],
    ) -> io::Result<Self> {
        let metrics = |place: &ConfiguredListener| {
            let address = place.address()?;
            let known = before.iter().find(|(known, _)| *known == address);
            Ok((address, known.map(|(_, metrics)| Arc::clone(metrics)).unwrap_or_default()))
        };
        let channel_metrics = listening.iter().map(metrics).collect::<io::Result<_>>()?;
        let directory = directory.map(DirectoryServer::listening).unwrap_or_default();
        let listen = listening.iter().chain(&directory).map(ConfiguredListener::address);
        let listen = listen.collect::<io::Result<_>>()?;
        Ok(Self { config: Arc::new(config), listen, channel_metrics })
    }
}

impl MicssServerHandle {
    /// The server's status.
    pub fn status(&self) -> MicssStatus {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let channel_metrics = in_force.channel_metrics.iter();
        let (waiting, left) = self.pending.counts();
        let open = self.open.counts();
        let limits = ServerLimitStatus {
            waiting,
            max_waiting: in_force.config.max_waiting as u64,
            waiting_evicted: left.evicted,
            unopened_evicted: left.unopened_evicted,
            turned_away: left.terms_rejected,
            max_streams: in_force.config.max_streams as u64,
            streams_evicted: open.evicted,
            memory_bytes: open.bytes,
            max_memory_bytes: in_force.config.max_memory,
            out_of_memory: open.out_of_memory,
        };
        let channel = |(address, metrics): &(SocketAddr, Arc<ChannelMetrics>)| {
            self.monitor.listener_status(*address, metrics.channel(address.to_string()))
        };
        MicssStatus {
            uptime_s: self.stream_metrics.uptime().as_secs_f64(),
            listen: in_force.listen.clone(),
            streams: self.stream_metrics.streams(),
            redundancy: self.stream_metrics.redundancy(),
            limits: Some(limits),
            interception: None,
            bypass: None,
            udp: (!in_force.config.allow_udp.is_empty())
                .then(|| self.stream_metrics.datagrams.status()),
            servers: Vec::new(),
            server_switches: 0,
            channels: channel_metrics.map(channel).collect(),
        }
    }

    /// Passes the server a connection that its program has accepted, after its client has sent its
    /// [preamble](crate::config::StreamChannelConfig::preamble).
    ///
    /// # Errors
    /// If the server has stopped.
    pub(crate) async fn hand_over(&self, stream: TcpStream, peer: SocketAddr) -> io::Result<()> {
        let stopped = |_| io::Error::other("the server has stopped");
        self.hand_over.send((stream, peer)).await.map_err(stopped)
    }

    /// Applies another configuration to new streams. Open streams are not affected. Returns the
    /// addresses on which it listens now, as [`MicssServer::local_addresses`].
    ///
    /// # Errors
    /// As [`MicssServer::bind`], and the previous configuration stays in force; or if the server
    /// has stopped.
    pub async fn reload(&self, config: MicssServerConfig) -> io::Result<Vec<SocketAddr>> {
        self.reloader.reload(config).await
    }

    fn in_force(&self) -> (Arc<MicssServerConfig>, Vec<(SocketAddr, Arc<ChannelMetrics>)>) {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&in_force.config), in_force.channel_metrics.clone())
    }

    /// Monitors the paths of an open stream's channels, whose connections come from `peers`, except
    /// for channels whose listener is closed.
    fn watch(&self, driver: &mut StreamDriver, peers: &[SocketAddr]) {
        let mut peers = peers.iter();
        driver.watch(|connection| self.path_of(connection, *peers.next()?));
    }

    /// The path of a connection that comes from this address, if its listener is open.
    fn path_of(
        &self,
        connection: &ChannelConnection,
        peer: SocketAddr,
    ) -> Option<Arc<MonitoredPath>> {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let is_own =
            |(_, metrics): &(_, Arc<ChannelMetrics>)| Arc::ptr_eq(metrics, &connection.metrics);
        let place = in_force.channel_metrics.iter().position(is_own)?;
        let listener = in_force.channel_metrics[place].0;
        self.monitor.path_for(place, listener, peer.ip(), connection.socket())
    }

    /// Handles a connection that asks to replace a channel's in an open stream. It must have sent
    /// nothing else. Unless its client proves the right to do so, it is closed.
    fn claim(
        &self,
        rejoin: Rejoin,
        cookie: ConnectionCookie,
        connection: AcceptedChannelConnection,
    ) {
        let AcceptedChannelConnection { stream: mut connection, peer, rest, permit: _permit } =
            connection;
        if let Some(claims) = self.rejoinable.verify(&rejoin, cookie)
            && rest.is_empty()
        {
            if let Some(path) = self.path_of(&connection, peer) {
                connection.watch(&path);
            }
            // A client makes no other claim before this one is answered.
            let _ = claims.try_send(RejoinClaim { rejoin, cookie, connection });
        }
    }
}
