//! One stream, from the application's request to its end.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::field::display;
use tracing::{debug, warn};

use super::direct::connect_directly;
use super::opening::{open, reject};
use super::peers::PeerPools;
use super::udp_associate::associate;
use crate::StreamError;
use crate::config::MicssClientConfig;
use crate::net::client::pool::ConnectionPool;
use crate::net::intercept::{InterceptConfig, OWN_MARK};
use crate::net::metrics::{LimitedLogEvent, RedundancyGauge, StreamMetrics};
use crate::net::socket::{reset, reset_when_dropped};
use crate::net::stream::driver::{ReusableConnection, StreamDriver};
use crate::net::stream::report::log_end;
use crate::protocol::open_request::{OpenRequest, StreamDestination};
use crate::protocol::socks::{self, SocksError, SocksRequest, UDP_ASSOCIATE};
use crate::protocol::target::{ParsedPrefix, ServiceTarget};

/// The time limit for an application's SOCKS request. It limits the connections of applications
/// that have no stream yet.
const SOCKS_TIMEOUT: Duration = Duration::from_secs(30);

/// How the target of a connection is determined.
#[derive(Clone)]
pub(super) enum ApplicationListenerKind {
    Socks,
    Forward(ServiceTarget),
    /// By the destination that the kernel reports.
    Intercepted,
}

/// Serves one application's connection, from its request to its end. Returns the channels and their
/// pool, if the channels can be reused.
pub(super) async fn serve(
    config: &MicssClientConfig,
    peers: &PeerPools,
    stream_metrics: &Arc<StreamMetrics>,
    kind: ApplicationListenerKind,
    mut application: TcpStream,
) -> Option<(Arc<ConnectionPool>, Vec<ReusableConnection>)> {
    let stream_request = match &kind {
        ApplicationListenerKind::Intercepted => {
            let Some(to) = InterceptConfig::destination(&application) else {
                if let Some(occurrences) = stream_metrics.log_permit(LimitedLogEvent::Strange) {
                    warn!(occurrences, "refused connections to the proxy's own port");
                }
                reset(application);
                return None;
            };
            SocksRequest::Connect(ServiceTarget::address(to))
        }
        ApplicationListenerKind::Forward(target) => SocksRequest::Connect(target.clone()),
        ApplicationListenerKind::Socks => {
            match timeout(SOCKS_TIMEOUT, negotiate(config, &mut application)).await {
                Ok(Ok(request)) => request,
                Ok(Err(error)) => {
                    // Only invalid data is a protocol error. Others are errors of the connection,
                    // as when a program only checks whether the port is open.
                    if error.kind() != io::ErrorKind::InvalidData {
                        debug!(%error, "a SOCKS5 client is gone");
                    } else if let Some(occurrences) =
                        stream_metrics.log_permit(LimitedLogEvent::NotSocks)
                    {
                        let peer = application.peer_addr().ok().map(display);
                        warn!(peer, %error, occurrences, "connections refused at the SOCKS5 port");
                    }
                    return None;
                }
                Err(_) => {
                    debug!("a SOCKS5 client stayed silent");
                    return None;
                }
            }
        }
    };
    let target = match stream_request {
        SocksRequest::Connect(target) => target,
        SocksRequest::Associate(stated) => {
            let under_way = stream_metrics.begin();
            let result = associate(config, peers, stream_metrics, stated, application).await;
            drop(under_way);
            let (pool, result) = match result {
                Ok((pool, finished)) => (Some(pool), Ok(finished)),
                Err(error) => (None, Err(error)),
            };
            let finished = log_end(stream_metrics, &StreamDestination::Datagrams, result);
            return Some((pool?, finished));
        }
    };
    if config.bypass.iter().any(|rule| rule.includes(&target)) {
        let is_socks = matches!(kind, ApplicationListenerKind::Socks);
        let mark = config.intercept.as_ref().map(|_| OWN_MARK);
        connect_directly(stream_metrics, &target, mark, is_socks, application).await;
        return None;
    }
    let request = OpenRequest {
        client_address: config.send_client_address.then(|| application.peer_addr().ok()).flatten(),
        ..OpenRequest::service(target.clone())
    };
    let under_way = stream_metrics.begin();
    let taken = peers.take_for(&target).await;
    let (pool, result) = match (taken, kind) {
        (Ok((pool, set)), ApplicationListenerKind::Socks) => {
            let spare = stream_metrics.count_spare();
            let opened = open(&pool, set, config.integrity, config.rng, &request, true);
            (Some(pool), carry_socks(opened, spare, &request, application).await)
        }
        (Ok((pool, set)), _) => {
            // An intercepted connection has no reply that could report an error, and an orderly
            // close would look like an answer.
            reset_when_dropped(&application);
            let spare = stream_metrics.count_spare();
            let opened = open(&pool, set, config.integrity, config.rng, &request, false);
            (Some(pool), carry(opened, spare, &request, application).await)
        }
        (Err(error), ApplicationListenerKind::Socks) => {
            (None, Err(reject(application, error).await))
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

/// Serves an application that may send before the server has answered.
async fn carry(
    opened: Result<StreamDriver, StreamError>,
    spare: RedundancyGauge,
    request: &OpenRequest,
    application: TcpStream,
) -> Result<Vec<ReusableConnection>, StreamError> {
    let mut driver = opened?;
    debug!(target = %request.destination, channels = driver.connections(), "stream requested");
    driver.count_spare(spare);
    driver.connect(application);
    driver.run().await
}

/// Serves an application that waits for a SOCKS5 reply, which reports the server's answer.
async fn carry_socks(
    opened: Result<StreamDriver, StreamError>,
    spare: RedundancyGauge,
    request: &OpenRequest,
    mut application: TcpStream,
) -> Result<Vec<ReusableConnection>, StreamError> {
    let mut driver = match opened {
        Ok(driver) => driver,
        Err(error) => return Err(reject(application, error).await),
    };
    // The first event of a client's stream is that it is open.
    if let Err(error) = driver.next().await {
        let error = reject(application, error).await;
        driver.close().await;
        return Err(error);
    }
    let replied = application.write_all(&socks::reply(Ok(()))).await;
    replied.map_err(StreamError::Application)?;
    reset_when_dropped(&application);
    debug!(target = %request.destination, channels = driver.connections(), "stream opened");
    driver.count_spare(spare);
    driver.connect(application);
    driver.run().await
}

/// Reads the request of a SOCKS5 client.
async fn negotiate(
    config: &MicssClientConfig,
    application: &mut TcpStream,
) -> io::Result<SocksRequest> {
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
    let request = match read_parsed(application, socks::parse_request).await? {
        Ok(SocksRequest::Associate(_)) if !config.socks_udp => {
            Err(SocksError::Command(UDP_ASSOCIATE))
        }
        parsed => parsed,
    };
    match request {
        Ok(request) => Ok(request),
        Err(reason) => {
            application.write_all(&socks::error_reply(reason)).await?;
            Err(error(reason))
        }
    }
}

/// Reads exactly as many bytes as `parse` needs.
async fn read_parsed<T, E>(
    stream: &mut TcpStream,
    parse: impl Fn(&[u8]) -> Result<ParsedPrefix<T>, E>,
) -> io::Result<Result<T, E>> {
    let mut bytes = Vec::new();
    loop {
        match parse(&bytes) {
            Ok(ParsedPrefix::Done(value, _)) => return Ok(Ok(value)),
            Ok(ParsedPrefix::Missing(missing)) => {
                let start = bytes.len();
                bytes.resize(start + missing, 0);
                stream.read_exact(&mut bytes[start..]).await?;
            }
            Err(error) => return Ok(Err(error)),
        }
    }
}
