//! One stream, from the application's request to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use association::{Protocol, SharingScheme, Terms};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::{debug, warn};

use super::peers::Peers;
use crate::StreamError;
use crate::config::{ClientConfig, Integrity};
use crate::net::client::pool::{ConnectionSet, Pool};
use crate::net::intercept::Intercept;
use crate::net::metrics::{LogEvent, StreamMetrics};
use crate::net::socket::{reset, reset_when_dropped};
use crate::net::stream::channel_io;
use crate::net::stream::client_handshake::ClientHandshake;
use crate::net::stream::relay::{MultichannelStream, ReusableConnection, log_end};
use crate::protocol::on_lost_channel::OnLostChannel;
use crate::protocol::options::{OPTION_NO_RECORDS, OPTION_ONCE};
use crate::protocol::record::Kind;
use crate::protocol::socks::{self, SocksError};
use crate::protocol::target::{Parsed, Refusal, Target};

/// How long an application may take to say where it wants to go.
const SOCKS_TIMEOUT: Duration = Duration::from_secs(30);

/// How applications say where they want to go.
#[derive(Clone)]
pub(super) enum ListenerKind {
    Socks,
    Forward(Target),
    /// They do not, the kernel does.
    Intercepted,
}

/// Carries one application's connection, from its request to its end. Returns the channels and where they
/// belong, if they can be used again.
pub(super) async fn serve(
    config: &ClientConfig,
    peers: &Peers,
    stream_metrics: &Arc<StreamMetrics>,
    kind: ListenerKind,
    mut application: TcpStream,
) -> Option<(Arc<Pool>, Vec<ReusableConnection>)> {
    let target = match &kind {
        ListenerKind::Intercepted => {
            let Some(to) = Intercept::destination(&application) else {
                if let Some(so_often) = stream_metrics.happened(LogEvent::Strange) {
                    warn!(so_often, "connections refused that were made to the proxy itself");
                }
                reset(application);
                return None;
            };
            Target::address(to)
        }
        ListenerKind::Forward(target) => target.clone(),
        ListenerKind::Socks => match timeout(SOCKS_TIMEOUT, negotiate(&mut application)).await {
            Ok(Ok(target)) => target,
            Ok(Err(error)) => {
                debug!(%error, "not a SOCKS5 client");
                return None;
            }
            Err(_) => {
                debug!("a SOCKS5 client stayed silent");
                return None;
            }
        },
    };
    let under_way = stream_metrics.begin();
    let pool = peers.pool_for(&target).await;
    let (pool, result) = match (pool, kind) {
        (Ok(pool), ListenerKind::Socks) => {
            let result = carry_socks(config, &pool, &target, application).await;
            (Some(pool), result)
        }
        (Ok(pool), _) => {
            // It was not told that it is connected yet, but a plain end would look like an answer.
            reset_when_dropped(&application);
            let result = carry(config, &pool, &target, application).await;
            (Some(pool), result)
        }
        (Err(error), ListenerKind::Socks) => {
            let told = application.write_all(&socks::reply(Err(Refusal::Unreachable))).await;
            (None, told.map_err(StreamError::Application).and(Err(error)))
        }
        (Err(error), _) => {
            reset(application);
            (None, Err(error))
        }
    };
    drop(under_way);
    let finished = log_end(stream_metrics, &target, result);
    Some((pool?, finished))
}

/// Carries an application that may speak before the server has answered.
async fn carry(
    config: &ClientConfig,
    pool: &Pool,
    target: &Target,
    application: TcpStream,
) -> Result<Vec<ReusableConnection>, StreamError> {
    let (channels, handshake) = open(config, pool, target).await?;
    debug!(%target, channels = channels.streams.len(), "stream requested");
    channels.relay(application, Some(handshake)).await
}

/// Carries an application that waits for a SOCKS5 reply, and is told the server's answer so.
async fn carry_socks(
    config: &ClientConfig,
    pool: &Pool,
    target: &Target,
    mut application: TcpStream,
) -> Result<Vec<ReusableConnection>, StreamError> {
    let opened = open_and_wait(config, pool, target).await;
    let outcome = opened.as_ref().map(|_| ()).map_err(|error| match error {
        StreamError::Refused(refusal) => *refusal,
        _ => Refusal::Unreachable,
    });
    let told = application.write_all(&socks::reply(outcome)).await;
    let channels = opened?;
    told.map_err(StreamError::Application)?;
    reset_when_dropped(&application);
    debug!(%target, channels = channels.streams.len(), "stream opened");
    channels.relay(application, None).await
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

/// Has the list go out on all channels, and with it the request: with the application's first words, or when
/// what is sealed is sent.
async fn open(
    config: &ClientConfig,
    pool: &Pool,
    target: &Target,
) -> Result<(MultichannelStream, ClientHandshake), StreamError> {
    let ConnectionSet { streams, cookies, .. } = pool.take().await?;
    let n = u8::try_from(streams.len()).expect("checked with the configuration");
    let k = pool.threshold();
    let has_records = config.integrity == Integrity::TamperCode;
    let raw = if has_records { 0 } else { OPTION_NO_RECORDS };
    let once = if pool.reuses_connections() { 0 } else { OPTION_ONCE };
    let scheme = if k < n { SharingScheme::Shamir } else { SharingScheme::Xor };
    let terms = Terms::new(Protocol::MicssStream, scheme, k, n, raw | once)
        .expect("as many channels as are needed");
    let (handshake, list) = ClientHandshake::new(terms, &cookies)?;
    let streams = streams.into_iter().enumerate().collect();
    let policy = pool.policy();
    let opening_patience = match policy.new_streams {
        OnLostChannel::Fail => Duration::ZERO,
        OnLostChannel::Wait => policy.timeout,
    };
    let patience = [policy.timeout, opening_patience];
    let mut channels = MultichannelStream::new(streams, terms, config.rng.generator()?, patience)?;
    channels.outgoing.precede(list);
    channels.outgoing.seal_payload(Kind::Open, &target.encode())?;
    if !has_records {
        let loss = channels.wait_for_loss();
        let sent = tokio::select! {
            sent = channels.send_sealed() => sent,
            error = loss => Err(error),
        };
        if let Err(error) = sent {
            return Err(channels.attribute(error));
        }
        channels.send_no_records();
    }
    Ok((channels, handshake))
}

/// The same, and waits for the server's answer.
async fn open_and_wait(
    config: &ClientConfig,
    pool: &Pool,
    target: &Target,
) -> Result<MultichannelStream, StreamError> {
    let (mut channels, handshake) = open(config, pool, target).await?;
    let loss = channels.wait_for_loss();
    let outcome = async {
        channels.send_sealed().await?;
        handshake.complete(&mut channels.streams, &mut channels.incoming).await
    };
    let outcome = tokio::select! {
        outcome = outcome => outcome,
        error = loss => Err(error),
    };
    channel_io::give_up_lost(&channels.streams, &mut channels.incoming);
    outcome.map_err(|error| channels.attribute(error)).map(|()| channels)
}
