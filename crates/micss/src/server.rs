//! The server's end: associates the connections that belong together and connects each stream to
//! the service it asks for, if that is allowed.

use std::collections::HashMap;
use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::Poll;
use std::time::Duration;

use association::{
    Acceptable, ConnectionId, Cookie, OpenError, Protocol, Scheme, Server as Table,
    ServerConfig as TableConfig, ServerEvent, Terms,
};
use sharing::Sharing;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use crate::channel;
use crate::client::{listen, log_end};
use crate::config::{Integrity, ServerConfig};
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::record::Kind;
use crate::relay::{Channels, reset_when_dropped};
use crate::target::{Host, Refusal, Target};
use crate::{MAX_CHANNELS, StreamError};

/// How long a handshake may take, from the first connection to the last confirm. Where one packet in
/// seven is lost TCP alone needs more than 10 s to connect for one connection in fifty.
pub(crate) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(30);

/// How long the other end may take for the first record: the request, or its answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// How long a service may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long streams under way may take to finish after a stop.
const GRACE: Duration = Duration::from_secs(10);

/// The most connections that wait to be associated.
const MAX_PENDING: usize = 8192;

/// The option bit of an association without records: `integrity = "none"`.
pub(crate) const OPTION_NO_RECORDS: u32 = 1;

/// A server that listens, and does not accept yet.
pub struct Server {
    config: Arc<ServerConfig>,
    listeners: Vec<TcpListener>,
}

impl Server {
    /// Listens where the configuration says.
    ///
    /// # Errors
    /// When an address cannot be listened on; the address is in the error's text.
    pub async fn bind(config: ServerConfig) -> io::Result<Self> {
        let mut listeners = Vec::new();
        for &address in &config.listen {
            listeners.push(listen(address).await?);
        }
        Ok(Self { config: Arc::new(config), listeners })
    }

    /// Where it listens, in the order of the configuration.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(TcpListener::local_addr).collect()
    }

    /// Serves until `stop` comes, then accepts no more and waits for the streams under way, but
    /// not for ever.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let lobby = Arc::new(Lobby::new(&self.config));
        let slots = Arc::new(Semaphore::new(self.config.max_streams));
        let mut tasks = JoinSet::new();
        tokio::pin!(stop);
        let mut turn = 0;
        loop {
            tokio::select! {
                () = &mut stop => break,
                (index, stream, peer) = accept(&self.listeners, turn) => {
                    turn = index + 1;
                    let (lobby, slots) = (Arc::clone(&lobby), Arc::clone(&slots));
                    let config = Arc::clone(&self.config);
                    tasks.spawn(async move {
                        let Some((terms, streams)) = welcome(&lobby, stream, peer).await else {
                            return;
                        };
                        let slot = slots.try_acquire_owned();
                        serve(&config, terms, streams, slot.ok()).await;
                    });
                }
                Some(_) = tasks.join_next() => {}
            }
        }
        drop(self.listeners);
        drain(tasks).await;
    }
}

/// Accepts from any of the listeners; returns also which. The one whose turn it is comes first, so
/// that a flood on one does not starve the others.
pub(crate) async fn accept(
    listeners: &[TcpListener],
    turn: usize,
) -> (usize, TcpStream, SocketAddr) {
    loop {
        let accepted = poll_fn(|context| {
            for index in (turn..turn + listeners.len()).map(|i| i % listeners.len()) {
                let listener = &listeners[index];
                if let Poll::Ready(result) = listener.poll_accept(context) {
                    return Poll::Ready(result.map(|(stream, peer)| (index, stream, peer)));
                }
            }
            Poll::Pending
        });
        match accepted.await {
            Ok(accepted) => return accepted,
            Err(error) => {
                // Usually there are too many open files; asking at once again would only spin.
                warn!(%error, "cannot accept connections for a moment");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

/// Waits for tasks to end by themselves for a while, then ends them.
pub(crate) async fn drain(mut tasks: JoinSet<()>) {
    let all_end = async { while tasks.join_next().await.is_some() {} };
    if timeout(GRACE, all_end).await.is_err() {
        info!(streams = tasks.len(), "streams broken off by the stop");
        tasks.shutdown().await;
    }
}

/// The connections that wait to be associated, and who waits with each.
struct Lobby {
    epoch: Instant,
    state: Mutex<LobbyState>,
}

struct LobbyState {
    table: Table,
    waiting: HashMap<ConnectionId, UnboundedSender<Verdict>>,
    next_id: u64,
}

/// What the association handshake wants done with a connection.
enum Verdict {
    Send(Vec<u8>),
    Join { terms: Terms, gathering: Arc<Gathering>, index: usize },
    Close,
}

/// The connections of one association, as they come in from the tasks that welcomed them.
struct Gathering(Mutex<Vec<Option<TcpStream>>>);

impl Gathering {
    /// Hands in one connection. Returns all of them to whoever hands in the last.
    fn hand_in(&self, index: usize, stream: TcpStream) -> Option<Vec<TcpStream>> {
        let mut streams = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        streams[index] = Some(stream);
        let complete = streams.iter().all(Option::is_some);
        complete.then(|| streams.drain(..).flatten().collect())
    }
}

impl Lobby {
    fn new(config: &ServerConfig) -> Self {
        let options = if config.integrity == Integrity::None { OPTION_NO_RECORDS } else { 0 };
        let table = Table::new(TableConfig {
            max_pending: MAX_PENDING,
            timeout: HANDSHAKE_TIMEOUT,
            acceptable: Acceptable {
                protocols: vec![Protocol::MicssStream],
                schemes: vec![Scheme::Xor],
                // All shares of an XOR sharing are needed: the threshold is the number of channels.
                min_threshold: config.min_channels,
                max_channels: MAX_CHANNELS,
                options,
            },
        });
        let state = LobbyState { table, waiting: HashMap::new(), next_id: 0 };
        Self { epoch: Instant::now(), state: Mutex::new(state) }
    }

    /// Takes in a connection. Its verdicts come through the receiver.
    fn open(
        &self,
        cookie: Cookie,
    ) -> Result<(ConnectionId, UnboundedReceiver<Verdict>), OpenError> {
        self.with(|state, now| {
            let id = ConnectionId(state.next_id);
            state.table.open(id, cookie, now)?;
            state.next_id += 1;
            let (sender, receiver) = unbounded_channel();
            state.waiting.insert(id, sender);
            Ok((id, receiver))
        })
    }

    /// Has the table handle something, and hands out its verdicts.
    fn with<T>(&self, handle: impl FnOnce(&mut LobbyState, Duration) -> T) -> T {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let result = handle(&mut state, self.epoch.elapsed());
        state.hand_out_verdicts();
        result
    }
}

impl LobbyState {
    fn hand_out_verdicts(&mut self) {
        while let Some(event) = self.table.poll_event() {
            match event {
                ServerEvent::Transmit { id, message } => {
                    self.tell(id, Verdict::Send(message.encode()));
                }
                ServerEvent::Associated { list, connections } => {
                    let empty = connections.iter().map(|_| None).collect();
                    let gathering = Arc::new(Gathering(Mutex::new(empty)));
                    for (index, id) in connections.into_iter().enumerate() {
                        let gathering = Arc::clone(&gathering);
                        self.tell(id, Verdict::Join { terms: list.terms(), gathering, index });
                        self.waiting.remove(&id);
                    }
                }
                ServerEvent::Aborted { id, reason } => {
                    debug!(%reason, "connection not associated");
                    self.tell(id, Verdict::Close);
                    self.waiting.remove(&id);
                }
            }
        }
    }

    fn tell(&self, id: ConnectionId, verdict: Verdict) {
        if let Some(waiting) = self.waiting.get(&id) {
            // Nobody listens when the connection's task has ended, which the table hears of.
            let _ = waiting.send(verdict);
        }
    }
}

/// Sees one connection through the handshake. Returns all connections of its association if it
/// was the last of them to be confirmed.
async fn welcome(
    lobby: &Lobby,
    mut stream: TcpStream,
    peer: SocketAddr,
) -> Option<(Terms, Vec<TcpStream>)> {
    let cookie = sharing::Generator::system().array().map(Cookie::new);
    channel::prepare(&stream);
    let (id, mut verdicts) = match cookie.map(|cookie| lobby.open(cookie)) {
        Ok(Ok(opened)) => opened,
        Ok(Err(error)) => {
            warn!(%peer, %error, "connection refused");
            return None;
        }
        Err(error) => {
            warn!(%peer, %error, "connection refused");
            return None;
        }
    };
    let deadline = Instant::now() + HANDSHAKE_TIMEOUT;
    let mut bytes = [0; 1024];
    let mut extra_bytes = false;
    loop {
        tokio::select! {
            biased;
            verdict = verdicts.recv() => match verdict? {
                Verdict::Send(message) => {
                    if stream.write_all(&message).await.is_err() {
                        lobby.with(|state, _| state.table.handle_closed(id));
                    }
                }
                // Whoever speaks before its last confirm is not following the protocol.
                Verdict::Join { .. } if extra_bytes => return None,
                Verdict::Join { terms, gathering, index } => {
                    return gathering.hand_in(index, stream).map(|streams| (terms, streams));
                }
                Verdict::Close => return None,
            },
            read = stream.read(&mut bytes) => lobby.with(|state, now| match read {
                Ok(len @ 1..) => {
                    extra_bytes = state.table.handle_bytes(id, &bytes[..len], now).is_err();
                }
                Ok(0) | Err(_) => state.table.handle_closed(id),
            }),
            () = sleep_until(deadline) => {
                lobby.with(|state, now| state.table.handle_timeout(now));
            }
        }
    }
}

/// Serves one stream, from the client's request to its end.
async fn serve(
    config: &ServerConfig,
    terms: Terms,
    streams: Vec<TcpStream>,
    slot: Option<OwnedSemaphorePermit>,
) {
    let Some(_slot) = slot else {
        return warn!(max_streams = config.max_streams, "stream refused: limit reached");
    };
    match open(config, terms, streams).await {
        Ok((target, channels, service)) => {
            info!(%target, channels = channels.streams.len(), "stream opened");
            log_end(&target, channels.relay(service).await);
        }
        Err(error) => info!(%error, "stream not opened"),
    }
}

/// Hears which service the client wants, and connects to it.
async fn open(
    config: &ServerConfig,
    terms: Terms,
    streams: Vec<TcpStream>,
) -> Result<(Target, Channels, TcpStream), StreamError> {
    let sharing = Sharing::xor(terms.channels()).expect("an association has channels");
    let outgoing = Outgoing::new(sharing, config.rng.generator()?);
    let mut channels = Channels { streams, outgoing, incoming: Incoming::new(sharing) };
    let (kind, payload) = channels.receive(ANSWER_TIMEOUT).await?;
    if kind != Kind::Open {
        return Err(StreamError::Unexpected(kind));
    }
    match connect(config, &payload).await {
        Ok((target, service)) => {
            channels.send(Kind::Opened, &[]).await?;
            if terms.options() & OPTION_NO_RECORDS != 0 {
                channels.drop_records();
            }
            Ok((target, channels, service))
        }
        Err(refusal) => {
            channels.send(Kind::Refused, &[refusal as u8]).await?;
            Err(refusal.into())
        }
    }
}

/// Connects to the service that a request names.
async fn connect(config: &ServerConfig, request: &[u8]) -> Result<(Target, TcpStream), Refusal> {
    let target = Target::parse(request).map_err(|_| Refusal::Malformed)?;
    if !config.allow.contains(&target) {
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
