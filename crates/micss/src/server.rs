//! The server's end: associates the connections that belong together and connects each stream to
//! the service it asks for, if that is allowed.

use std::collections::BTreeMap;
use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use association::{List, Message, Terms};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info, warn};
use zeroize::Zeroizing;

use crate::StreamError;
use crate::channel;
use crate::config::ServerConfig;
use crate::directory::exchange::Answerer;
use crate::listening::{Listening, Turn, accept, listen};
use crate::lobby::{Association, Connection, Lobby, Place};
use crate::meter::{Meter, Often, Tally};
use crate::monitor::Monitor;
use crate::open_streams::OpenStreams;
use crate::record::Kind;
use crate::relay::{Channels, Finished, GRACE, drain, log_end, reset_when_dropped};
use crate::reload::{Reload, Reloader, reloads};
use crate::status::{Limits, Status};
use crate::target::{Host, Refusal, Target};

/// How long the other end may take for the first record: the request, or its answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a service may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// The option bit of an association without records: `integrity = "none"`.
pub(crate) const OPTION_NO_RECORDS: u32 = 1;

/// The option bit of an association whose connections end with the stream, and are not used again. Without
/// records they do so anyway.
pub(crate) const OPTION_ONCE: u32 = 2;

/// A server that listens, and does not accept yet.
pub struct Server {
    handle: Handle,
    reloads: mpsc::Receiver<Reload<ServerConfig>>,
    listening: Vec<Listening>,
    /// Tells clients of its addresses, if it is to.
    answerer: Option<Answerer>,
}

/// Tells how a server is, and has it take another configuration. A clone is for the same server.
#[derive(Clone)]
pub struct Handle {
    tally: Arc<Tally>,
    lobby: Arc<Lobby>,
    open: Arc<OpenStreams>,
    monitor: Arc<Monitor>,
    in_force: Arc<Mutex<InForce>>,
    reloader: Reloader<ServerConfig>,
}

/// The configuration in force, and what each address has seen where it listens.
struct InForce {
    config: Arc<ServerConfig>,
    meters: Vec<(SocketAddr, Arc<Meter>)>,
}

impl Server {
    /// Listens where the configuration says.
    ///
    /// # Errors
    /// When an address cannot be listened on; the address is in the error's text. When a key of the
    /// directory cannot be read.
    pub async fn bind(config: ServerConfig) -> io::Result<Self> {
        let listening = listen(config.listen.iter().copied(), &[]).await?;
        let answerer = answerer(&config, &[]).await?;
        let tally = Arc::new(Tally::new());
        let (lobby, open) = (Arc::new(Lobby::new(&config)), Arc::new(OpenStreams::new(&config)));
        let in_force = Arc::new(Mutex::new(InForce::new(config, &listening, &[])?));
        let (reloader, reloads) = reloads();
        let monitor = Arc::new(Monitor::of_server());
        let handle = Handle { tally, lobby, open, monitor, in_force, reloader };
        Ok(Self { handle, reloads, listening, answerer })
    }

    /// Where it listens, in the order of the configuration.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listening.iter().map(Listening::address).collect()
    }

    /// What tells clients of its addresses, if it is to.
    pub fn answerer(&self) -> Option<&Answerer> {
        self.answerer.as_ref()
    }

    /// What tells how it is while it runs, and changes its configuration.
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Serves until `stop` comes, then accepts no more and waits for the streams under way, but
    /// not for ever.
    pub async fn run(mut self, stop: impl Future<Output = ()>) {
        let monitor = Arc::clone(&self.handle.monitor);
        let (mut config, mut meters) = self.handle.in_force();
        let lobby = Arc::clone(&self.handle.lobby);
        let mut told = self.answerer.as_ref().map(Answerer::listening).unwrap_or_default();
        let mut answering = answer(self.answerer.take());
        let mut waiting = JoinSet::new();
        let mut streams = JoinSet::new();
        let welcome = |waiting: &mut JoinSet<_>, stream, peer, meter| {
            let lobby = Arc::clone(&lobby);
            waiting.spawn(async move { lobby.welcome(stream, peer, meter).await });
        };
        let mut turn = Turn::default();
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                (index, stream, peer) = accept(&self.listening, &mut turn) => {
                    meters[index].1.connected.up();
                    monitor.accepted(meters[index].0, peer.ip());
                    welcome(&mut waiting, stream, peer, Arc::clone(&meters[index].1));
                }
                Some(associated) = waiting.join_next() => {
                    let Ok(Some(association)) = associated else { continue };
                    let (config, handle) = (Arc::clone(&config), self.handle.clone());
                    streams.spawn(async move { serve(&config, &handle, association).await });
                }
                Some(finished) = streams.join_next() => {
                    for (Finished { stream, meter, .. }, peer) in finished.unwrap_or_default() {
                        welcome(&mut waiting, stream, peer, meter);
                    }
                }
                Some(Reload { config: new, answer: reply }) = self.reloads.recv() => {
                    let taken = self.reload(new, &told).await;
                    if let Ok(answerer) = &taken {
                        (config, meters) = self.handle.in_force();
                        lobby.reconfigure(&config);
                        self.handle.open.reconfigure(&config);
                        told = answerer.as_ref().map(Answerer::listening).unwrap_or_default();
                    }
                    // Who asked may have gone.
                    let _ = reply.send(match taken {
                        Ok(answerer) => {
                            // Two must not wait for connections at the same place.
                            answering.shutdown().await;
                            answering = answer(answerer);
                            self.local_addresses()
                        }
                        Err(error) => Err(error),
                    });
                }
            }
        }
        drop((self.listening, waiting, told, answering));
        drain(streams).await;
    }

    /// Has another configuration in force for the streams to come. Nothing changes unless all does. Returns
    /// what tells clients of the addresses, which may use what was listened on for that before.
    async fn reload(
        &mut self,
        config: ServerConfig,
        told: &[Listening],
    ) -> io::Result<Option<Answerer>> {
        let answerer = answerer(&config, told).await?;
        let listening = listen(config.listen.iter().copied(), &self.listening).await?;
        let mut in_force = self.handle.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        *in_force = InForce::new(config, &listening, &in_force.meters)?;
        self.listening = listening;
        Ok(answerer)
    }
}

/// What tells clients of the server's addresses, if the configuration says so.
async fn answerer(config: &ServerConfig, before: &[Listening]) -> io::Result<Option<Answerer>> {
    let Some(directory) = &config.directory else { return Ok(None) };
    let bound = Answerer::bind_again(directory, &config.beside, before).await;
    bound.map(Some).map_err(io::Error::other)
}

/// Has clients told until what it returns is dropped.
fn answer(answerer: Option<Answerer>) -> JoinSet<()> {
    answerer.into_iter().map(|answerer| answerer.run(pending())).collect()
}

impl InForce {
    /// Counts go on at addresses that were listened at before.
    fn new(
        config: ServerConfig,
        listening: &[Listening],
        before: &[(SocketAddr, Arc<Meter>)],
    ) -> io::Result<Self> {
        let meter = |place: &Listening| {
            let address = place.address()?;
            let known = before.iter().find(|(known, _)| *known == address);
            Ok((address, known.map(|(_, meter)| Arc::clone(meter)).unwrap_or_default()))
        };
        let meters = listening.iter().map(meter).collect::<io::Result<_>>()?;
        Ok(Self { config: Arc::new(config), meters })
    }
}

impl Handle {
    /// What the server is doing.
    pub fn status(&self) -> Status {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let meters = in_force.meters.iter();
        let (waiting, left) = self.lobby.counts();
        let open = self.open.counts();
        let limits = Limits {
            waiting,
            max_waiting: in_force.config.max_waiting as u64,
            waiting_evicted: left.evicted,
            unopened_evicted: left.unopened_evicted,
            turned_away: left.turned_away,
            max_streams: in_force.config.max_streams as u64,
            streams_evicted: open.evicted,
            memory_bytes: open.bytes,
            max_memory_bytes: in_force.config.max_memory,
            out_of_memory: open.out_of_memory,
        };
        let channel = |(address, meter): &(SocketAddr, Arc<Meter>)| {
            self.monitor.tell(*address, meter.channel(address.to_string()))
        };
        Status {
            uptime_s: self.tally.uptime().as_secs_f64(),
            streams: self.tally.streams(),
            limits: Some(limits),
            interception: None,
            channels: meters.map(channel).collect(),
        }
    }

    /// Has the server use another configuration for the streams to come. Those under way are left alone.
    /// Returns where it listens now, as [`Server::local_addresses`].
    ///
    /// # Errors
    /// As [`Server::bind`], and the configuration before stays in force; or when the server has stopped.
    pub async fn reload(&self, config: ServerConfig) -> io::Result<Vec<SocketAddr>> {
        self.reloader.reload(config).await
    }

    fn in_force(&self) -> (Arc<ServerConfig>, Vec<(SocketAddr, Arc<Meter>)>) {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        (Arc::clone(&in_force.config), in_force.meters.clone())
    }

    /// Has the channels of an open stream watched. One that came to where nobody listens any more is not.
    fn watch(&self, channels: &mut Channels, peers: &[SocketAddr]) {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        for (stream, peer) in channels.streams.values_mut().zip(peers) {
            let is_own = |(_, meter): &(_, Arc<Meter>)| Arc::ptr_eq(meter, &stream.meter);
            if let Some(place) = in_force.meters.iter().position(is_own) {
                let listener = in_force.meters[place].0;
                let path = self.monitor.path_of(place, listener, peer.ip(), (*stream).as_ref());
                if let Some(path) = path {
                    stream.watch(&path);
                }
            }
        }
    }
}

/// Serves one stream, from the client's request to its end. Returns its connections, and where they are from,
/// if they can be used again.
async fn serve(
    config: &ServerConfig,
    handle: &Handle,
    Association { list, connections, evicted }: Association,
) -> Vec<(Finished, SocketAddr)> {
    let Some(peer) = connections.values().next().map(|connection| connection.peer) else {
        return Vec::new();
    };
    let peers: Vec<SocketAddr> = connections.values().map(|connection| connection.peer).collect();
    let tally = &handle.tally;
    let request = async {
        let (mut channels, places) = channels(config, list.terms(), connections)?;
        let request = receive_request(&mut channels).await?;
        // Only now does it count among the streams that are open, and no more among connections that wait.
        let open = handle.open.open(peer.ip(), list.terms().channels().into());
        drop(places);
        Ok((channels, request, open))
    };
    let requested = tokio::select! {
        requested = request => requested,
        () = evicted.notified() => return Vec::new(),
    };
    let (mut channels, request, open) = match requested {
        Ok((channels, request, Some(open))) => (channels, request, open),
        Ok((.., None)) => {
            tally.over_limit.up();
            return Vec::new();
        }
        Err(error) => {
            not_opened(tally, peer, &error);
            return Vec::new();
        }
    };
    let _under_way = tally.begin();
    handle.watch(&mut channels, &peers);
    channels.incoming.limit_memory(open.lease());
    channels.outgoing.limit_memory(open.lease());
    let carry = async {
        let (target, service) =
            match answer_request((config, tally), list, &request, &mut channels).await {
                Ok(opened) => opened,
                Err(error) => {
                    not_opened(tally, peer, &error);
                    return Vec::new();
                }
            };
        channel::give_up_lost(&channels.streams, &mut channels.incoming);
        debug!(%target, channels = peers.len(), "stream opened");
        log_end(tally, &target, channels.relay(service, None).await)
    };
    let over = tokio::select! {
        over = carry => over,
        () = open.evicted() => return Vec::new(),
    };
    // A client that has sent more than its stream has not waited for the next cookie.
    let waits = over.iter().all(|connection| connection.rest.is_empty());
    if waits { over.into_iter().zip(peers).collect() } else { Vec::new() }
}

/// Counts and logs that a stream has not opened.
fn not_opened(tally: &Tally, peer: SocketAddr, error: &StreamError) {
    tally.unopened(error);
    match error {
        StreamError::Refused(_) => {
            if let Some(so_often) = tally.happened(Often::Refused) {
                info!(%peer, %error, so_often, "stream not opened");
            }
        }
        _ => {
            if let Some(so_often) = tally.happened(Often::Strange) {
                warn!(%peer, %error, so_often, "streams not opened: strangers, or TAMPERING");
            }
        }
    }
}

/// The channels of an association, and the places in which its connections have waited.
fn channels(
    config: &ServerConfig,
    terms: Terms,
    connections: BTreeMap<usize, Connection>,
) -> Result<(Channels, Vec<Place>), StreamError> {
    let (mut streams, mut rests, mut places) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (channel, Connection { stream, rest, place, .. }) in connections {
        streams.insert(channel, stream);
        rests.push((channel, rest));
        places.push(place);
    }
    let patience = [config.lost_channel_timeout; 2];
    let mut channels = Channels::new(streams, terms, config.rng.generator()?, patience);
    for (channel, rest) in &rests {
        channels.incoming.put(*channel, rest);
    }
    Ok((channels, places))
}

/// Waits until it is verified which service the client wants.
async fn receive_request(channels: &mut Channels) -> Result<Zeroizing<Vec<u8>>, StreamError> {
    match channels.receive(ANSWER_TIMEOUT).await? {
        (Kind::Open, request) => Ok(request),
        (kind, _) => Err(StreamError::Unexpected(kind)),
    }
}

/// Connects to the service that a client wants, and tells it.
async fn answer_request(
    (config, tally): (&ServerConfig, &Tally),
    list: List,
    request: &[u8],
    channels: &mut Channels,
) -> Result<(Target, TcpStream), StreamError> {
    let records = list.terms().options() & OPTION_NO_RECORDS == 0;
    if !records {
        channels.incoming.drop_records();
    }
    channels.outgoing.precede(Message::Confirm(list).encode());
    match connect(config, tally, request).await {
        Ok(opened) => {
            // A client that has said something already waits for what the service says to that.
            let waits_for_this = channels.incoming.patience().is_none();
            channels.outgoing.seal_payload(Kind::Opened, &[])?;
            if waits_for_this || !records {
                channels.send_sealed().await?;
            }
            if !records {
                channels.send_no_records();
            }
            Ok(opened)
        }
        Err(refusal) => {
            channels.send(Kind::Refused, &[refusal as u8]).await?;
            // What the client has sent without waiting for the answer must be read, or closing would be
            // a reset, which may overtake the answer.
            let _ = timeout(GRACE, channels.hear_out()).await;
            Err(refusal.into())
        }
    }
}

/// Connects to the service that a request names.
async fn connect(
    config: &ServerConfig,
    tally: &Tally,
    request: &[u8],
) -> Result<(Target, TcpStream), Refusal> {
    let target = Target::parse(request).map_err(|_| Refusal::Malformed)?;
    if !config.allow.iter().any(|allowed| allowed.includes(&target)) {
        if let Some(so_often) = tally.happened(Often::NotAllowed) {
            warn!(%target, so_often, "service not on the allow-list");
        }
        return Err(Refusal::NotAllowed);
    }
    let service =
        timeout(CONNECT_TIMEOUT, reach(&target)).await.map_err(|_| Refusal::Unreachable)??;
    channel::prepare(&service);
    // Should the client be gone by now, it has not sent an empty stream.
    reset_when_dropped(&service);
    Ok((target, service))
}

/// Looks the target up, if it has a name, and connects to it.
async fn reach(target: &Target) -> Result<TcpStream, Refusal> {
    let addresses: Vec<SocketAddr> = match target.host() {
        Host::Address(address) => vec![SocketAddr::new(*address, target.port())],
        Host::Name(name) => tokio::net::lookup_host((name.as_str(), target.port()))
            .await
            .map_err(|_| Refusal::NameNotFound)?
            .collect(),
    };
    TcpStream::connect(&addresses[..]).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => Refusal::ConnectionRefused,
        _ => Refusal::Unreachable,
    })
}
