//! The server's end: associates the connections that belong together and connects each stream to
//! the service it asks for, if that is allowed.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use association::Message;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{info, warn};

use crate::StreamError;
use crate::channel;
use crate::client::{listen, log_end};
use crate::config::ServerConfig;
use crate::lobby::{Association, Connection, Lobby};
use crate::record::Kind;
use crate::relay::{Channels, reset_when_dropped};
use crate::target::{Host, Refusal, Target};

/// How long the other end may take for the first record: the request, or its answer.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(30);

/// How long a service may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// How long streams under way may take to finish after a stop, and a client to hear that its request was
/// refused.
const GRACE: Duration = Duration::from_secs(10);

/// The option bit of an association without records: `integrity = "none"`.
pub(crate) const OPTION_NO_RECORDS: u32 = 1;

/// The option bit of an association whose connections end with the stream, and are not used again. Without
/// records they do so anyway.
pub(crate) const OPTION_ONCE: u32 = 2;

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
        let mut waiting = JoinSet::new();
        let mut streams = JoinSet::new();
        let welcome = |waiting: &mut JoinSet<_>, stream, peer| {
            let lobby = Arc::clone(&lobby);
            waiting.spawn(async move { lobby.welcome(stream, peer).await });
        };
        tokio::pin!(stop);
        let mut turn = 0;
        loop {
            tokio::select! {
                () = &mut stop => break,
                (index, stream, peer) = accept(&self.listeners, turn) => {
                    turn = index + 1;
                    channel::prepare(&stream);
                    welcome(&mut waiting, stream, peer);
                }
                Some(associated) = waiting.join_next() => {
                    let Ok(Some(association)) = associated else { continue };
                    let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                        warn!(max_streams = self.config.max_streams, "stream refused: limit reached");
                        continue;
                    };
                    let config = Arc::clone(&self.config);
                    streams.spawn(async move {
                        let finished = serve(&config, association).await;
                        drop(slot);
                        finished
                    });
                }
                Some(finished) = streams.join_next() => {
                    for (stream, peer) in finished.unwrap_or_default() {
                        welcome(&mut waiting, stream, peer);
                    }
                }
            }
        }
        drop((self.listeners, waiting));
        drain(streams).await;
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
pub(crate) async fn drain<T: 'static>(mut tasks: JoinSet<T>) {
    let all_end = async { while tasks.join_next().await.is_some() {} };
    if timeout(GRACE, all_end).await.is_err() {
        info!(streams = tasks.len(), "streams broken off by the stop");
        tasks.shutdown().await;
    }
}

/// Serves one stream, from the client's request to its end. Returns its connections, where they can be
/// used again.
async fn serve(config: &ServerConfig, association: Association) -> Vec<(TcpStream, SocketAddr)> {
    let peers: Vec<_> = association.connections.iter().map(|connection| connection.peer).collect();
    let (target, channels, service) = match open(config, association).await {
        Ok(opened) => opened,
        Err(error) => {
            info!(%error, "stream not opened");
            return Vec::new();
        }
    };
    info!(%target, channels = peers.len(), "stream opened");
    let over = log_end(&target, channels.relay(service, None).await);
    // A client that has sent more than its stream has not waited for the next cookie.
    let waits = over.iter().all(|connection| connection.rest.is_empty());
    let streams = over.into_iter().map(|connection| connection.stream);
    if waits { streams.zip(peers).collect() } else { Vec::new() }
}

/// Hears which service the client wants, and connects to it.
async fn open(
    config: &ServerConfig,
    Association { list, connections }: Association,
) -> Result<(Target, Channels, TcpStream), StreamError> {
    let terms = list.terms();
    let (streams, rests): (Vec<_>, Vec<_>) =
        connections.into_iter().map(|Connection { stream, rest, .. }| (stream, rest)).unzip();
    let mut channels = Channels::new(streams, terms, config.rng.generator()?);
    for (channel, rest) in rests.iter().enumerate() {
        channels.incoming.put(channel, rest);
    }
    let (kind, payload) = channels.receive(ANSWER_TIMEOUT).await?;
    if kind != Kind::Open {
        return Err(StreamError::Unexpected(kind));
    }
    let records = terms.options() & OPTION_NO_RECORDS == 0;
    if !records {
        channels.incoming.drop_records();
    }
    channels.outgoing.precede(Message::Confirm(list).encode());
    match connect(config, &payload).await {
        Ok((target, service)) => {
            channels.send(Kind::Opened, &[]).await?;
            if !records {
                channels.send_no_records();
            }
            Ok((target, channels, service))
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
