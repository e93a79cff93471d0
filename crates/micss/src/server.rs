//! The server's end: associates the connections that belong together and connects each stream to
//! the service it asks for, if that is allowed.

use std::future::pending;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use association::{List, Message};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::StreamError;
use crate::channel;
use crate::config::ServerConfig;
use crate::directory::exchange::Answerer;
use crate::listening::{Listening, Turn, accept, listen};
use crate::lobby::{Association, Connection, Lobby};
use crate::meter::{Meter, Tally};
use crate::rarely::Rarely;
use crate::record::Kind;
use crate::relay::{Channels, Finished, GRACE, drain, log_end, reset_when_dropped};
use crate::reload::{Reload, Reloader, reloads};
use crate::status::Status;
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
        let in_force = Arc::new(Mutex::new(InForce::new(config, &listening, &[])?));
        let (reloader, reloads) = reloads();
        let handle = Handle { tally: Arc::new(Tally::new()), in_force, reloader };
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
        let tally = Arc::clone(&self.handle.tally);
        let (mut config, mut meters) = self.handle.in_force();
        let lobby = Arc::new(Lobby::new(&config));
        let mut told = self.answerer.as_ref().map(Answerer::listening).unwrap_or_default();
        let mut answering = answer(self.answerer.take());
        let mut waiting = JoinSet::new();
        let mut streams = JoinSet::new();
        let welcome = |waiting: &mut JoinSet<_>, stream, peer, meter| {
            let lobby = Arc::clone(&lobby);
            waiting.spawn(async move { lobby.welcome(stream, peer, meter).await });
        };
        let (mut turn, mut too_many) = (Turn::default(), Rarely::default());
        tokio::pin!(stop);
        loop {
            tokio::select! {
                () = &mut stop => break,
                (index, stream, peer) = accept(&self.listening, &mut turn) => {
                    meters[index].connected.up();
                    welcome(&mut waiting, stream, peer, Arc::clone(&meters[index]));
                }
                Some(associated) = waiting.join_next() => {
                    let Ok(Some(association)) = associated else { continue };
                    let max_streams = config.max_streams;
                    if streams.len() >= max_streams {
                        tally.over_limit.up();
                        if let Some(refused) = too_many.happened() {
                            warn!(refused, max_streams, "streams refused: limit reached");
                        }
                        continue;
                    }
                    let (config, tally) = (Arc::clone(&config), Arc::clone(&tally));
                    streams.spawn(async move { serve(&config, &tally, association).await });
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
        Status {
            uptime_s: self.tally.uptime().as_secs_f64(),
            streams: self.tally.streams(),
            channels: meters.map(|(address, meter)| meter.channel(address.to_string())).collect(),
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

    fn in_force(&self) -> (Arc<ServerConfig>, Vec<Arc<Meter>>) {
        let in_force = self.in_force.lock().unwrap_or_else(PoisonError::into_inner);
        let meters = in_force.meters.iter().map(|(_, meter)| Arc::clone(meter));
        (Arc::clone(&in_force.config), meters.collect())
    }
}

/// Serves one stream, from the client's request to its end. Returns its connections, and where they are from,
/// if they can be used again.
async fn serve(
    config: &ServerConfig,
    tally: &Arc<Tally>,
    association: Association,
) -> Vec<(Finished, SocketAddr)> {
    let _under_way = tally.begin();
    let peers: Vec<_> =
        association.connections.values().map(|connection| connection.peer).collect();
    let (target, channels, service) = match open(config, association).await {
        Ok(opened) => opened,
        Err(error) => {
            tally.unopened(&error);
            match &error {
                StreamError::Refused(_) => info!(%error, "stream not opened"),
                _ => {
                    if let Some(so_often) = tally.strange() {
                        let peer = peers.first();
                        warn!(?peer, %error, so_often, "streams not opened: strangers, or TAMPERING");
                    }
                }
            }
            return Vec::new();
        }
    };
    debug!(%target, channels = peers.len(), "stream opened");
    let over = log_end(tally, &target, channels.relay(service, None).await);
    // A client that has sent more than its stream has not waited for the next cookie.
    let waits = over.iter().all(|connection| connection.rest.is_empty());
    if waits { over.into_iter().zip(peers).collect() } else { Vec::new() }
}

/// Hears which service the client wants, and connects to it.
async fn open(
    config: &ServerConfig,
    Association { list, connections }: Association,
) -> Result<(Target, Channels, TcpStream), StreamError> {
    let apart = |(channel, Connection { stream, rest, .. })| ((channel, stream), (channel, rest));
    let (streams, rests): (_, Vec<_>) = connections.into_iter().map(apart).unzip();
    let mut channels = Channels::new(streams, list.terms(), config.rng.generator()?);
    for (channel, rest) in &rests {
        channels.incoming.put(*channel, rest);
    }
    let (target, service) = answer_request(config, list, &mut channels).await?;
    channel::give_up_lost(&channels.streams, &mut channels.incoming);
    Ok((target, channels, service))
}

async fn answer_request(
    config: &ServerConfig,
    list: List,
    channels: &mut Channels,
) -> Result<(Target, TcpStream), StreamError> {
    let records = list.terms().options() & OPTION_NO_RECORDS == 0;
    let (kind, payload) = channels.receive(ANSWER_TIMEOUT).await?;
    if kind != Kind::Open {
        return Err(StreamError::Unexpected(kind));
    }
    if !records {
        channels.incoming.drop_records();
    }
    channels.outgoing.precede(Message::Confirm(list).encode());
    match connect(config, &payload).await {
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
async fn connect(config: &ServerConfig, request: &[u8]) -> Result<(Target, TcpStream), Refusal> {
    let target = Target::parse(request).map_err(|_| Refusal::Malformed)?;
    if !config.allow.iter().any(|allowed| allowed.includes(&target)) {
        warn!(%target, "service not on the allow-list");
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
