//! One stream, from the client's request to its end at the service.

use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use association::{List, Message, Terms};
use service::listening::set_options;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tracing::{debug, info, warn};
use zeroize::Zeroizing;

use super::open_streams::OpenStreams;
use super::pending_connections::{Association, Connection, PendingPermit};
use crate::StreamError;
use crate::config::ServerConfig;
use crate::net::metrics::{LogEvent, StreamMetrics};
use crate::net::socket::reset_when_dropped;
use crate::net::stream::channel_io;
use crate::net::stream::relay::{DRAIN_TIMEOUT, MultichannelStream, ReusableConnection, log_end};
use crate::protocol::incoming::ANSWER_TIMEOUT;
use crate::protocol::options::OPTION_NO_RECORDS;
use crate::protocol::record::Kind;
use crate::protocol::target::{Host, Refusal, Target};

/// How long a service may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves one stream, from the client's request to its end. Returns its connections, and where they are from,
/// if they can be used again. `watch` has the channels of the open stream watched.
pub(super) async fn serve(
    config: &ServerConfig,
    stream_metrics: &Arc<StreamMetrics>,
    open_streams: &Arc<OpenStreams>,
    watch: impl FnOnce(&mut MultichannelStream, &[SocketAddr]),
    Association { list, connections, evicted }: Association,
) -> Vec<(ReusableConnection, SocketAddr)> {
    let Some(peer) = connections.values().next().map(|connection| connection.peer) else {
        return Vec::new();
    };
    let peers: Vec<SocketAddr> = connections.values().map(|connection| connection.peer).collect();
    let request = async {
        let (mut channels, permits) = channels(config, list.terms(), connections)?;
        let request = receive_request(&mut channels).await?;
        // Only now does it count among the streams that are open, and no more among connections that wait.
        let open = open_streams.open(peer.ip(), list.terms().channels().into());
        drop(permits);
        Ok((channels, request, open))
    };
    let requested = tokio::select! {
        requested = request => requested,
        () = evicted.notified() => return Vec::new(),
    };
    let (mut channels, request, open) = match requested {
        Ok((channels, request, Some(open))) => (channels, request, open),
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
    watch(&mut channels, &peers);
    channels.incoming.limit_memory(open.lease());
    channels.outgoing.limit_memory(open.lease());
    let carry = async {
        let (target, service) =
            match answer_request((config, stream_metrics), list, &request, &mut channels).await {
                Ok(opened) => opened,
                Err(error) => {
                    not_opened(stream_metrics, peer, &error);
                    return Vec::new();
                }
            };
        channel_io::give_up_lost(&channels.streams, &mut channels.incoming);
        debug!(%target, channels = peers.len(), "stream opened");
        log_end(stream_metrics, &target, channels.relay(service, None).await)
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
fn not_opened(stream_metrics: &StreamMetrics, peer: SocketAddr, error: &StreamError) {
    stream_metrics.record_unopened(error);
    match error {
        StreamError::Refused(_) => {
            if let Some(so_often) = stream_metrics.happened(LogEvent::Refused) {
                info!(%peer, %error, so_often, "stream not opened");
            }
        }
        _ => {
            if let Some(so_often) = stream_metrics.happened(LogEvent::Strange) {
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
) -> Result<(MultichannelStream, Vec<PendingPermit>), StreamError> {
    let (mut streams, mut rests, mut permits) = (BTreeMap::new(), Vec::new(), Vec::new());
    for (channel, Connection { stream, rest, permit, .. }) in connections {
        streams.insert(channel, stream);
        rests.push((channel, rest));
        permits.push(permit);
    }
    let patience = [config.lost_channel_timeout; 2];
    let mut channels = MultichannelStream::new(streams, terms, config.rng.generator()?, patience)?;
    for (channel, rest) in &rests {
        channels.incoming.put(*channel, rest);
    }
    Ok((channels, permits))
}

/// Waits until it is verified which service the client wants.
async fn receive_request(
    channels: &mut MultichannelStream,
) -> Result<Zeroizing<Vec<u8>>, StreamError> {
    match channels.receive(ANSWER_TIMEOUT).await? {
        (Kind::Open, request) => Ok(request),
        (kind, _) => Err(StreamError::Unexpected(kind)),
    }
}

/// Connects to the service that a client wants, and tells it.
async fn answer_request(
    (config, stream_metrics): (&ServerConfig, &StreamMetrics),
    list: List,
    request: &[u8],
    channels: &mut MultichannelStream,
) -> Result<(Target, TcpStream), StreamError> {
    let records = list.terms().options() & OPTION_NO_RECORDS == 0;
    if !records {
        channels.incoming.drop_records();
    }
    channels.outgoing.precede(Message::Confirm(list).encode());
    match connect(config, stream_metrics, request).await {
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
            let _ = timeout(DRAIN_TIMEOUT, channels.drain_until_end()).await;
            Err(refusal.into())
        }
    }
}

/// Connects to the service that a request names.
async fn connect(
    config: &ServerConfig,
    stream_metrics: &StreamMetrics,
    request: &[u8],
) -> Result<(Target, TcpStream), Refusal> {
    let target = Target::parse(request).map_err(|_| Refusal::Malformed)?;
    if !config.allow.iter().any(|allowed| allowed.includes(&target)) {
        if let Some(so_often) = stream_metrics.happened(LogEvent::NotAllowed) {
            warn!(%target, so_often, "service not on the allow-list");
        }
        return Err(Refusal::NotAllowed);
    }
    let service =
        timeout(CONNECT_TIMEOUT, reach(&target)).await.map_err(|_| Refusal::Unreachable)??;
    set_options(&service);
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
