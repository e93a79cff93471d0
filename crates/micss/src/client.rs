//! The client's end: takes applications' connections and carries each over all channels.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use association::{
    COOKIE_LEN, Client as Handshake, ClientEvent, HEADER_LEN, Protocol, Scheme, Terms,
};
use sharing::Sharing;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tracing::{debug, info, warn};

use crate::StreamError;
use crate::channel;
use crate::config::{Channel, ClientConfig, Integrity};
use crate::incoming::Incoming;
use crate::outgoing::Outgoing;
use crate::record::Kind;
use crate::relay::{Channels, reset, reset_when_dropped};
use crate::server::{ANSWER_TIMEOUT, HANDSHAKE_TIMEOUT, OPTION_NO_RECORDS, accept, drain};
use crate::socks::{self, SocksError};
use crate::target::{Parsed, Refusal, Target};

/// How long an application may take to say where it wants to go.
const SOCKS_TIMEOUT: Duration = Duration::from_secs(30);

/// A client that listens, and does not accept yet.
pub struct Client {
    config: Arc<ClientConfig>,
    listeners: Vec<(TcpListener, Entrance)>,
}

/// How applications say where they want to go.
#[derive(Clone)]
enum Entrance {
    Socks,
    Forward(Target),
}

impl Client {
    /// Listens where the configuration says.
    ///
    /// # Errors
    /// When an address cannot be listened on; the address is in the error's text.
    pub async fn bind(config: ClientConfig) -> io::Result<Self> {
        let socks = config.socks.map(|address| (address, Entrance::Socks));
        let forwards = config.forwards.iter();
        let forwards = forwards.map(|f| (f.listen, Entrance::Forward(f.target.clone())));
        let mut listeners = Vec::new();
        for (address, entrance) in socks.into_iter().chain(forwards) {
            listeners.push((listen(address).await?, entrance));
        }
        Ok(Self { config: Arc::new(config), listeners })
    }

    /// Where it listens: SOCKS5 first if configured, then the forwards in their order.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(|(listener, _)| listener.local_addr()).collect()
    }

    /// Carries streams until `stop` comes, then accepts no more and waits for those under way, but
    /// not for ever.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let mut tasks = JoinSet::new();
        let slots = Arc::new(Semaphore::new(self.config.max_streams));
        let (listeners, entrances): (Vec<_>, Vec<_>) = self.listeners.into_iter().unzip();
        tokio::pin!(stop);
        let mut turn = 0;
        loop {
            tokio::select! {
                () = &mut stop => break,
                (index, application, _) = accept(&listeners, turn) => {
                    turn = index + 1;
                    let Ok(slot) = Arc::clone(&slots).try_acquire_owned() else {
                        warn!(max_streams = self.config.max_streams, "stream refused: limit reached");
                        reset(application);
                        continue;
                    };
                    let (config, entrance) = (Arc::clone(&self.config), entrances[index].clone());
                    tasks.spawn(async move {
                        serve(&config, entrance, application).await;
                        drop(slot);
                    });
                }
                Some(_) = tasks.join_next() => {}
            }
        }
        drop(listeners);
        drain(tasks).await;
    }
}

/// Listens at an address, which an error names.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    })
}

/// Carries one application's connection, from its request to its end.
async fn serve(config: &ClientConfig, entrance: Entrance, mut application: TcpStream) {
    channel::prepare(&application);
    let (target, speaks_socks) = match entrance {
        Entrance::Forward(target) => {
            // It was not told that it is connected yet, but a plain end would look like an answer.
            reset_when_dropped(&application);
            (target, false)
        }
        Entrance::Socks => match timeout(SOCKS_TIMEOUT, negotiate(&mut application)).await {
            Ok(Ok(target)) => (target, true),
            Ok(Err(error)) => return debug!(%error, "not a SOCKS5 client"),
            Err(_) => return debug!("a SOCKS5 client stayed silent"),
        },
    };
    let opened = open(config, &target).await;
    if speaks_socks {
        let outcome = opened.as_ref().map(|_| ()).map_err(|error| match error {
            StreamError::Refused(refusal) => *refusal,
            _ => Refusal::Unreachable,
        });
        if application.write_all(&socks::reply(outcome)).await.is_err() {
            return debug!(%target, "the application left before it was connected");
        }
    }
    let result = match opened {
        Ok(channels) => {
            info!(%target, channels = channels.streams.len(), "stream opened");
            channels.relay(application).await
        }
        Err(error) => {
            drop(application);
            Err(error)
        }
    };
    log_end(&target, result);
}

/// Logs how a stream ended.
pub(crate) fn log_end(target: &Target, result: Result<(), StreamError>) {
    match result {
        Ok(()) => info!(%target, "stream finished"),
        Err(error) if error.is_tampering() => warn!(%target, %error, "TAMPERING: stream aborted"),
        Err(error) => info!(%target, %error, "stream aborted"),
    }
}

/// Hears from a SOCKS5 client where it wants to go.
async fn negotiate(application: &mut TcpStream) -> io::Result<Target> {
    let error = |error: SocksError| io::Error::new(io::ErrorKind::InvalidData, error);
    match read_parsed(application, socks::parse_greeting).await? {
        Ok(()) => application.write_all(&socks::NO_AUTHENTICATION).await?,
        Err(reason) => {
            if reason == SocksError::NoMethod {
                application.write_all(&socks::NO_METHOD).await?;
            }
            return Err(error(reason));
        }
    }
    match read_parsed(application, socks::parse_request).await? {
        Ok(target) => Ok(target),
        Err(reason) => {
            application.write_all(&socks::error_reply(reason)).await?;
            Err(error(reason))
        }
    }
}

/// Reads exactly as many bytes as `parse` asks for.
async fn read_parsed<T, E>(
    stream: &mut TcpStream,
    parse: impl Fn(&[u8]) -> Result<Parsed<T>, E>,
) -> io::Result<Result<T, E>> {
    let mut bytes = Vec::new();
    loop {
        match parse(&bytes) {
            Ok(Parsed::Done(value, _)) => return Ok(Ok(value)),
            Ok(Parsed::Missing(missing)) => {
                let start = bytes.len();
                bytes.resize(start + missing, 0);
                stream.read_exact(&mut bytes[start..]).await?;
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}

/// Associates all channels and has the server connect to the target.
async fn open(config: &ClientConfig, target: &Target) -> Result<Channels, StreamError> {
    let n = u8::try_from(config.channels.len()).expect("checked with the configuration");
    let options = if config.integrity == Integrity::None { OPTION_NO_RECORDS } else { 0 };
    let terms = Terms::new(Protocol::MicssStream, Scheme::Xor, n, n, options)
        .expect("at least one channel, and all are needed");
    let streams = timeout(HANDSHAKE_TIMEOUT, async {
        associate(connect_all(&config.channels).await?, terms).await
    })
    .await
    .map_err(|_| StreamError::NotOpened)??;

    let sharing = Sharing::xor(n).expect("at least one channel");
    let generator = config.rng.generator()?;
    let mut channels = Channels {
        streams,
        outgoing: Outgoing::new(sharing, generator),
        incoming: Incoming::new(sharing),
    };
    channels.send(Kind::Open, &target.encode()).await?;
    match channels.receive(ANSWER_TIMEOUT).await? {
        (Kind::Opened, _) => {}
        (Kind::Refused, payload) => {
            let refusal = payload.first().copied().and_then(Refusal::from_byte);
            return Err(refusal.unwrap_or(Refusal::Unreachable).into());
        }
        (kind, _) => return Err(StreamError::Unexpected(kind)),
    }
    if config.integrity == Integrity::None {
        channels.drop_records();
    }
    Ok(channels)
}

/// Connects all channels at the same time.
async fn connect_all(channels: &[Channel]) -> Result<Vec<TcpStream>, StreamError> {
    let mut connecting = JoinSet::new();
    for (index, Channel { server, source, device }) in channels.iter().cloned().enumerate() {
        connecting.spawn(async move {
            let stream = channel::connect(server, source, device.as_deref()).await;
            let error = |source| StreamError::Connect { channel: index, server, source };
            stream.map(|stream| (index, stream)).map_err(error)
        });
    }
    let mut streams: Vec<Option<TcpStream>> = channels.iter().map(|_| None).collect();
    while let Some(connected) = connecting.join_next().await {
        let (index, stream) = connected.expect("connecting does not panic")?;
        streams[index] = Some(stream);
    }
    Ok(streams.into_iter().flatten().collect())
}

/// Runs the client's handshake (paper 001, III-D) over connected channels.
async fn associate(
    mut streams: Vec<TcpStream>,
    terms: Terms,
) -> Result<Vec<TcpStream>, StreamError> {
    let epoch = Instant::now();
    let mut handshake = Handshake::new(terms, HANDSHAKE_TIMEOUT);
    let mut expected = HEADER_LEN + COOKIE_LEN;
    loop {
        // Each channel in turn, since all are needed: first the cookies, then the confirms.
        for index in 0..streams.len() {
            // Reading no further than the message ends leaves the transport its bytes.
            let mut bytes = vec![0; expected];
            match streams[index].read_exact(&mut bytes).await {
                Ok(_) => _ = handshake.handle_bytes(index, &bytes, epoch.elapsed()),
                Err(_) => handshake.handle_closed(index),
            }
            while let Some(event) = handshake.poll_event() {
                match event {
                    ClientEvent::Transmit { channel, message } => {
                        let list = message.encode();
                        // The confirm says the same.
                        expected = list.len();
                        if streams[channel].write_all(&list).await.is_err() {
                            handshake.handle_closed(channel);
                        }
                    }
                    ClientEvent::Associated { .. } => return Ok(streams),
                    ClientEvent::Aborted { reason } => return Err(reason.into()),
                }
            }
        }
    }
}
