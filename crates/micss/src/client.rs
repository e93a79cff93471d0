//! The client's end: takes applications' connections and carries each over all channels.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use association::{Protocol, Scheme, Terms};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tracing::{debug, info, warn};

use crate::StreamError;
use crate::channel;
use crate::config::{ClientConfig, Integrity};
use crate::intercept::Installed;
use crate::opening::Opening;
use crate::pool::{Pool, Ready};
use crate::record::Kind;
use crate::relay::{Channels, Finished, reset, reset_when_dropped};
use crate::server::{OPTION_NO_RECORDS, OPTION_ONCE, accept, drain};
use crate::socks::{self, SocksError};
use crate::target::{Parsed, Refusal, Target};

/// How long an application may take to say where it wants to go.
const SOCKS_TIMEOUT: Duration = Duration::from_secs(30);

/// How long an attempt to open a stream may take where there may be another.
const ATTEMPT: Duration = Duration::from_secs(5);

/// A client that listens, and does not accept yet.
pub struct Client {
    config: Arc<ClientConfig>,
    listeners: Vec<(TcpListener, Entrance)>,
    installed: Option<Installed>,
}

/// How applications say where they want to go.
#[derive(Clone)]
enum Entrance {
    Socks,
    Forward(Target),
    /// They do not, the kernel does.
    Intercepted,
}

impl Client {
    /// Listens where the configuration says, and has the kernel hand over what is to be intercepted.
    ///
    /// # Errors
    /// When an address cannot be listened on; the address is in the error's text. When the kernel does not
    /// take the rules.
    pub async fn bind(config: ClientConfig) -> io::Result<Self> {
        let socks = config.socks.map(|address| (address, Entrance::Socks));
        let forwards = config.forwards.iter();
        let forwards = forwards.map(|f| (f.listen, Entrance::Forward(f.target.clone())));
        let mut listeners = Vec::new();
        for (address, entrance) in socks.into_iter().chain(forwards) {
            listeners.push((listen(address).await?, entrance));
        }
        let mut installed = None;
        if let Some(intercept) = config.intercept.clone() {
            let own = intercept.listen()?.into_iter();
            listeners.extend(own.map(|listener| (listener, Entrance::Intercepted)));
            installed = Some(intercept.install()?);
        }
        Ok(Self { config: Arc::new(config), listeners, installed })
    }

    /// Where it listens: SOCKS5 first if configured, then the forwards in their order, then the port for
    /// what is intercepted, by IPv4 and, if this host has it, by IPv6.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn local_addresses(&self) -> io::Result<Vec<SocketAddr>> {
        self.listeners.iter().map(|(listener, _)| listener.local_addr()).collect()
    }

    /// Carries streams until `stop` comes, then accepts no more and waits for those under way, but
    /// not for ever.
    pub async fn run(self, stop: impl Future<Output = ()>) {
        let pool = Arc::new(Pool::new(&self.config));
        let mut filling = JoinSet::new();
        let kept = Arc::clone(&pool);
        filling.spawn(async move { kept.keep_full().await });
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
                    let pool = Arc::clone(&pool);
                    tasks.spawn(async move {
                        let finished = serve(&config, &pool, entrance, application).await;
                        drop(slot);
                        finished
                    });
                }
                Some(finished) = tasks.join_next() => {
                    let pool = Arc::clone(&pool);
                    let finished = finished.unwrap_or_default();
                    filling.spawn(async move { pool.put_back(finished).await });
                }
                Some(_) = filling.join_next() => {}
            }
        }
        drop((self.installed, listeners, filling));
        drain(tasks).await;
    }
}

/// Listens at an address, which an error names.
pub(crate) async fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot listen on {address}: {error}"))
    })
}

/// Carries one application's connection, from its request to its end. Returns the channels, where they
/// can be used again.
async fn serve(
    config: &ClientConfig,
    pool: &Pool,
    entrance: Entrance,
    mut application: TcpStream,
) -> Vec<Finished> {
    channel::prepare(&application);
    let (target, result) = match entrance {
        Entrance::Intercepted => {
            let intercept = config.intercept.as_ref();
            let Some(to) = intercept.and_then(|intercept| intercept.destination(&application))
            else {
                warn!("a connection refused that was made to the proxy itself");
                reset(application);
                return Vec::new();
            };
            let target = Target::address(to);
            reset_when_dropped(&application);
            let result = carry(config, pool, &target, application).await;
            (target, result)
        }
        Entrance::Forward(target) => {
            // It was not told that it is connected yet, but a plain end would look like an answer.
            reset_when_dropped(&application);
            let result = carry(config, pool, &target, application).await;
            (target, result)
        }
        Entrance::Socks => {
            let target = match timeout(SOCKS_TIMEOUT, negotiate(&mut application)).await {
                Ok(Ok(target)) => target,
                Ok(Err(error)) => {
                    debug!(%error, "not a SOCKS5 client");
                    return Vec::new();
                }
                Err(_) => {
                    debug!("a SOCKS5 client stayed silent");
                    return Vec::new();
                }
            };
            let result = carry_socks(config, pool, &target, application).await;
            (target, result)
        }
    };
    log_end(&target, result)
}

/// Carries an application that may speak before the server has answered.
async fn carry(
    config: &ClientConfig,
    pool: &Pool,
    target: &Target,
    application: TcpStream,
) -> Result<Vec<Finished>, StreamError> {
    if usize::from(config.threshold) < config.channels.len() {
        // What is said before the answer cannot be said again.
        let channels = open_and_wait(config, pool, target).await?;
        info!(%target, channels = channels.streams.len(), "stream opened");
        return channels.relay(application, None).await;
    }
    let (channels, opening) = open(config, pool.take().await?, target).await?;
    info!(%target, channels = channels.streams.len(), "stream requested");
    channels.relay(application, Some(opening)).await
}

/// Carries an application that waits for a SOCKS5 reply, and is told the server's answer so.
async fn carry_socks(
    config: &ClientConfig,
    pool: &Pool,
    target: &Target,
    mut application: TcpStream,
) -> Result<Vec<Finished>, StreamError> {
    let opened = open_and_wait(config, pool, target).await;
    let outcome = opened.as_ref().map(|_| ()).map_err(|error| match error {
        StreamError::Refused(refusal) => *refusal,
        _ => Refusal::Unreachable,
    });
    let told = application.write_all(&socks::reply(outcome)).await;
    let channels = opened?;
    told.map_err(StreamError::Application)?;
    info!(%target, channels = channels.streams.len(), "stream opened");
    channels.relay(application, None).await
}

/// Logs how a stream ended. Returns what is left of it.
pub(crate) fn log_end(
    target: &Target,
    result: Result<Vec<Finished>, StreamError>,
) -> Vec<Finished> {
    match result {
        Ok(finished) => {
            info!(%target, "stream finished");
            return finished;
        }
        Err(error) if error.is_tampering() => warn!(%target, %error, "TAMPERING: stream aborted"),
        Err(error) => info!(%target, %error, "stream aborted"),
    }
    Vec::new()
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

/// Sends the list on all channels, and with it the request.
async fn open(
    config: &ClientConfig,
    ready: Ready,
    target: &Target,
) -> Result<(Channels, Opening), StreamError> {
    let Ready { streams, cookies, .. } = ready;
    let n = u8::try_from(streams.len()).expect("checked with the configuration");
    let k = config.threshold;
    let has_records = config.integrity == Integrity::TamperCode;
    let raw = if has_records { 0 } else { OPTION_NO_RECORDS };
    let once = if config.pool.keep > 0 { 0 } else { OPTION_ONCE };
    let scheme = if k == n { Scheme::Xor } else { Scheme::Shamir };
    let terms = Terms::new(Protocol::MicssStream, scheme, k, n, raw | once)
        .expect("as many channels as are needed");
    let (opening, list) = Opening::new(terms, &cookies)?;
    let mut channels = Channels::new(streams, terms, config.rng.generator()?);
    channels.outgoing.precede(list);
    channels.send(Kind::Open, &target.encode()).await?;
    if !has_records {
        channels.send_no_records();
    }
    Ok((channels, opening))
}

/// The same, and waits for the server's answer. Where a stream can do without some of its channels, one of
/// them may be dead, or somebody break the handshake off there: then it tries again, over connections that
/// it makes then, and without each of the channels in turn.
async fn open_and_wait(
    config: &ClientConfig,
    pool: &Pool,
    target: &Target,
) -> Result<Channels, StreamError> {
    let answered = async |ready| {
        let (mut channels, opening) = open(config, ready, target).await?;
        opening.answered(&mut channels.streams, &mut channels.incoming).await?;
        Ok(channels)
    };
    let all = config.channels.len();
    if usize::from(config.threshold) == all {
        return answered(pool.take().await?).await;
    }
    let kept = async { answered(pool.take().await?).await };
    let mut attempt = timeout(ATTEMPT, kept).await.unwrap_or(Err(StreamError::NotOpened));
    for without in [None].into_iter().chain((0..all).map(Some)) {
        match attempt {
            Ok(_) | Err(StreamError::Refused(_)) => break,
            Err(error) => debug!(%target, %error, "stream not opened, another attempt"),
        }
        let made = async { answered(pool.make(without).await?).await };
        attempt = timeout(ATTEMPT, made).await.unwrap_or(Err(StreamError::NotOpened));
    }
    attempt
}
