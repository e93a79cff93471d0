//! One stream, from the client's request to its end at the service.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use service::listening::set_options;
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::{debug, info, warn};
use zeroize::Zeroizing;

use super::pending_connections::{
    AcceptedChannelConnection, AssociatedConnections, PendingConnectionPermit,
};
use super::{MicssServerHandle, datagrams};
use crate::config::MicssServerConfig;
use crate::net::metrics::{LimitedLogEvent, StreamMetrics};
use crate::net::paths::path::PathNotifier;
use crate::net::socket::reset_when_dropped;
use crate::net::stream::driver::{ReusableConnection, StreamDriver, StreamProgress};
use crate::net::stream::program::MicssStream;
use crate::net::stream::report::log_end;
use crate::net::stream::retained_memory::KEPT;
use crate::protocol::open_request::{OpenRequest, StreamDestination};
use crate::protocol::proxy_header::proxy_header;
use crate::protocol::stream::StreamEndpoint;
use crate::protocol::target::{ServiceRefusal, ServiceTarget, TargetHost};
use crate::{StreamError, StreamProtocolError};

/// The time limit for a service to accept a connection. Without it, the system's attempt could take
/// minutes.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one stream, from the client's request to its end. Returns its connections and their
/// sources, if they can be reused.
pub(super) async fn serve(
    config: &Arc<MicssServerConfig>,
    handle: &MicssServerHandle,
    association: AssociatedConnections,
) -> Vec<(ReusableConnection, SocketAddr)> {
    let stream_metrics = &handle.stream_metrics;
    let channels = association.list.terms().channels().into();
    let evicted = Arc::clone(&association.evicted);
    let peers: Vec<SocketAddr> =
        association.connections.values().map(|connection| connection.peer).collect();
    let Some(&peer) = peers.first() else { return Vec::new() };
    let request = async {
        let (mut driver, permits) = driver(config, association, handle.monitor.clock())?;
        let request = receive_request(&mut driver).await?;
        // From now on it counts as an open stream, and no longer as waiting connections.
        let open = handle.open.open(peer.ip(), channels);
        drop(permits);
        Ok((driver, request, open))
    };
    let requested = tokio::select! {
        requested = request => requested,
        () = evicted.notified() => return Vec::new(),
    };
    let (mut driver, request, open) = match requested {
        Ok((driver, request, Some(open))) => (driver, request, open),
        Ok((.., None)) => {
            stream_metrics.over_limit.increment();
            return Vec::new();
        }
        Err(error) => {
            not_opened(stream_metrics, peer, &error);
            return Vec::new();
        }
    };
    let _under_way = stream_metrics.begin();
    handle.watch(&mut driver, &peers);
    driver.limit_memory(open.lease(), open.lease(), KEPT.lease());
    let carry = async {
        match accept(config, handle, &mut driver, &request, peer).await {
            Ok(target) => {
                driver.count_spare(stream_metrics.count_spare());
                let rejoinable = driver.rejoin_keys().map(|keys| handle.rejoinable.add(keys));
                let (_rejoinable, claims) = rejoinable.unzip();
                if let Some(claims) = claims {
                    driver.receive(claims);
                }
                debug!(%target, channels = peers.len(), "stream opened");
                log_end(stream_metrics, &target, driver.run().await)
            }
            Err(refusal) => {
                driver.refuse(refusal);
                driver.close().await;
                let error = StreamProtocolError::from(refusal).into();
                not_opened(stream_metrics, peer, &error);
                Vec::new()
            }
        }
    };
    let over = tokio::select! {
        over = carry => over,
        () = open.evicted() => return Vec::new(),
    };
    // A client that has sent data after its stream has not waited for the next cookie.
    let waits = over.iter().all(|connection| connection.rest.is_empty());
    if waits { over.into_iter().zip(peers).collect() } else { Vec::new() }
}

/// Counts and logs that a stream has not opened.
fn not_opened(stream_metrics: &StreamMetrics, peer: SocketAddr, error: &StreamError) {
    stream_metrics.record_unopened(error);
    match error {
        StreamError::Protocol(StreamProtocolError::Refused(_)) => {
            if let Some(occurrences) = stream_metrics.log_permit(LimitedLogEvent::Refused) {
                info!(%peer, %error, occurrences, "stream not opened");
            }
        }
        _ => {
            if let Some(occurrences) = stream_metrics.log_permit(LimitedLogEvent::Strange) {
                warn!(%peer, %error, occurrences, "streams not opened: invalid clients, or TAMPERING");
            }
        }
    }
}

/// The stream of an association, and the places of its connections.
fn driver(
    config: &MicssServerConfig,
    AssociatedConnections { list, connections, .. }: AssociatedConnections,
    clock: Arc<PathNotifier>,
) -> Result<(StreamDriver, Vec<PendingConnectionPermit>), StreamError> {
    let mut channels: Vec<_> = (0..list.terms().channels()).map(|_| None).collect();
    let (mut rests, mut permits) = (Vec::new(), Vec::new());
    for (channel, AcceptedChannelConnection { stream, rest, permit, .. }) in connections {
        channels[channel] = Some(stream);
        rests.push((channel, rest));
        permits.push(permit);
    }
    let rests = rests.iter().map(|(channel, rest)| (*channel, &rest[..]));
    let generator = config.rng.generator()?;
    let stream =
        StreamEndpoint::server(list, rests, config.lost_channel_timeout, generator, clock.now())?;
    Ok((StreamDriver::new(stream, channels, clock), permits))
}

/// Waits until the request is verified.
async fn receive_request(driver: &mut StreamDriver) -> Result<Zeroizing<Vec<u8>>, StreamError> {
    loop {
        match driver.next().await {
            Ok(StreamProgress::Requested(request)) => return Ok(request),
            Ok(_) => {}
            Err(error) => {
                driver.close().await;
                return Err(error);
            }
        }
    }
}

/// Connects a stream to the program that accepts streams, or to the service of its request.
async fn accept(
    config: &Arc<MicssServerConfig>,
    handle: &MicssServerHandle,
    driver: &mut StreamDriver,
    request: &[u8],
    peer: SocketAddr,
) -> Result<StreamDestination, ServiceRefusal> {
    let OpenRequest { destination, client_address } =
        OpenRequest::parse(request).map_err(|_| ServiceRefusal::Malformed)?;
    let StreamDestination::Service(target) = &destination else {
        carry_datagrams(config, handle, driver).await?;
        return Ok(destination);
    };
    match &handle.acceptor {
        Some(program) if program.accept(driver, peer).await => {}
        Some(_) => return Err(ServiceRefusal::ConnectionRefused),
        None => {
            let service = connect(config, &handle.stream_metrics, target, client_address).await?;
            driver.accept(service);
        }
    }
    Ok(destination)
}

/// Connects a stream to a UDP socket of its own.
async fn carry_datagrams(
    config: &Arc<MicssServerConfig>,
    handle: &MicssServerHandle,
    driver: &mut StreamDriver,
) -> Result<(), ServiceRefusal> {
    if config.allow_udp.is_empty() || handle.acceptor.is_some() {
        if let Some(occurrences) = handle.stream_metrics.log_permit(LimitedLogEvent::NotAllowed) {
            warn!(occurrences, "a client requests UDP, and no service is on the list allow_udp");
        }
        return Err(ServiceRefusal::NotAllowed);
    }
    let unreachable = |_| ServiceRefusal::Unreachable;
    let socket = datagrams::bind().map_err(unreachable)?;
    let (stream, other_end, _) =
        MicssStream::new().await.map_err(|_| ServiceRefusal::Unreachable)?;
    driver.accept(other_end);
    // It ends with the stream.
    let stream_metrics = Arc::clone(&handle.stream_metrics);
    tokio::spawn(datagrams::carry(Arc::clone(config), stream_metrics, stream, socket));
    Ok(())
}

/// Connects to a service, and tells it the client's address if it is configured to learn it.
async fn connect(
    config: &MicssServerConfig,
    stream_metrics: &StreamMetrics,
    target: &ServiceTarget,
    client_address: Option<SocketAddr>,
) -> Result<TcpStream, ServiceRefusal> {
    if !config.allow.iter().any(|allowed| allowed.includes(target)) {
        if let Some(occurrences) = stream_metrics.log_permit(LimitedLogEvent::NotAllowed) {
            warn!(%target, occurrences, "service not on the allow-list");
        }
        return Err(ServiceRefusal::NotAllowed);
    }
    let needs_address = config.proxy_protocol.iter().any(|service| service.includes(target));
    let client_address = client_address.filter(|_| needs_address);
    if needs_address && client_address.is_none() {
        // Without the header, the service would take the client for this host.
        if let Some(occurrences) = stream_metrics.log_permit(LimitedLogEvent::NotAllowed) {
            warn!(
                %target, occurrences,
                "service is in proxy_protocol, and the proxy does not state its client's address"
            );
        }
        return Err(ServiceRefusal::ClientAddressMissing);
    }
    let service = timeout(CONNECT_TIMEOUT, reach(target)).await;
    let mut service = service.map_err(|_| ServiceRefusal::Unreachable)??;
    set_options(&service);
    // If the client has disconnected by now, the service must not receive an empty stream.
    reset_when_dropped(&service);
    if let Some(client) = client_address {
        let unreachable = |_| ServiceRefusal::Unreachable;
        let header = proxy_header(client, service.peer_addr().map_err(unreachable)?);
        // The connection is new, so the header fits into its send buffer.
        service.write_all(&header).await.map_err(unreachable)?;
    }
    Ok(service)
}

/// Resolves the target, if it is a name, and connects to it.
async fn reach(target: &ServiceTarget) -> Result<TcpStream, ServiceRefusal> {
    let addresses: Vec<SocketAddr> = match target.host() {
        TargetHost::Address(address) => vec![SocketAddr::new(*address, target.port())],
        TargetHost::Name(name) => tokio::net::lookup_host((name.as_str(), target.port()))
            .await
            .map_err(|_| ServiceRefusal::NameNotFound)?
            .collect(),
    };
    TcpStream::connect(&addresses[..]).await.map_err(|error| match error.kind() {
        io::ErrorKind::ConnectionRefused => ServiceRefusal::ConnectionRefused,
        _ => ServiceRefusal::Unreachable,
    })
}
