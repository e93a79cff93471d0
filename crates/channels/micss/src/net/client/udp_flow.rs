//! One flow of intercepted datagrams: what an application sends to one destination, and the answers
//! from there, carried by a stream.

use std::sync::{Arc, Mutex as SyncMutex, PoisonError};
use std::time::Duration;

use tokio::sync::{Mutex, mpsc};
use tracing::debug;

use super::intercepted_udp::{NewUdpFlow, QueuedDatagram};
use super::opening::open;
use super::peers::PeerPools;
use crate::StreamError;
use crate::config::MicssClientConfig;
use crate::net::client::pool::ConnectionPool;
use crate::net::intercept::udp_socket::{InterceptedUdpSocket, UdpReturnPath};
use crate::net::metrics::StreamMetrics;
use crate::net::stream::datagrams::{DatagramArrival, DatagramSide, IDLE_TIMEOUT, relay_datagrams};
use crate::net::stream::driver::ReusableConnection;
use crate::net::stream::program::MicssStream;
use crate::net::stream::report::log_end;
use crate::protocol::datagram::parse_datagram;
use crate::protocol::open_request::{OpenRequest, StreamDestination};
use crate::protocol::target::ServiceTarget;

/// The port of DNS, and how long a flow to it may be idle: an application uses most such flows for
/// a single look-up, and gives that up within seconds (RFC 4787, section 4.3, permits this).
const DNS_PORT: u16 = 53;
const DNS_IDLE_TIMEOUT: Duration = Duration::from_secs(10);

/// Serves a flow to its end: that of the stream, that of the flow, or when it is idle for too long.
/// Returns the channels and their pool, if the channels can be reused.
pub(super) async fn serve_flow(
    config: &MicssClientConfig,
    peers: &PeerPools,
    stream_metrics: &Arc<StreamMetrics>,
    flow: NewUdpFlow,
) -> Option<(Arc<ConnectionPool>, Vec<ReusableConnection>)> {
    let target = format!("UDP {}", flow.endpoints.destination);
    let under_way = stream_metrics.begin();
    let result = carry_flow(config, peers, stream_metrics, flow).await;
    drop(under_way);
    let (pool, result) = match result {
        Ok((pool, finished)) => (Some(pool), Ok(finished)),
        Err(error) => (None, Err(error)),
    };
    let finished = log_end(stream_metrics, &target, result);
    Some((pool?, finished))
}

/// Carries a flow over a stream.
///
/// # Errors
/// If the stream does not open, or breaks.
async fn carry_flow(
    config: &MicssClientConfig,
    peers: &PeerPools,
    stream_metrics: &Arc<StreamMetrics>,
    flow: NewUdpFlow,
) -> Result<(Arc<ConnectionPool>, Vec<ReusableConnection>), StreamError> {
    let NewUdpFlow { endpoints, datagrams, socket } = flow;
    let target = ServiceTarget::address(endpoints.destination);
    let (pool, set) = peers.take_for(&target).await?;
    let request = OpenRequest { destination: StreamDestination::Datagrams, client_address: None };
    let mut driver = open(&pool, set, config.integrity, config.rng, &request, false)?;
    debug!(%target, application = %endpoints.application, "flow of UDP intercepted");
    let (stream, other_end, _) = MicssStream::new().await?;
    driver.count_spare(stream_metrics.count_spare());
    driver.connect(other_end);
    let idle = if target.port() == DNS_PORT { DNS_IDLE_TIMEOUT } else { IDLE_TIMEOUT };
    let side = FlowDatagrams {
        header: target.encode(),
        target,
        datagrams: Mutex::new(datagrams),
        socket: &socket,
        path: SyncMutex::default(),
    };
    let _open = stream_metrics.datagrams.intercept();
    let relayed =
        relay_datagrams(stream, &side, &stream_metrics.datagrams, idle, std::future::pending());
    let (result, ()) = tokio::join!(driver.run(), relayed);
    Ok((pool, result?))
}

/// The datagrams of a flow.
struct FlowDatagrams<'a> {
    target: ServiceTarget,
    /// The encoding of the target, which precedes each payload in the stream.
    header: Vec<u8>,
    datagrams: Mutex<mpsc::UnboundedReceiver<QueuedDatagram>>,
    socket: &'a InterceptedUdpSocket,
    /// The way back to the application, as its last datagram has come.
    path: SyncMutex<Option<UdpReturnPath>>,
}

impl DatagramSide for FlowDatagrams<'_> {
    async fn receive(&self, _: &mut [u8]) -> DatagramArrival {
        let Some(datagram) = self.datagrams.lock().await.recv().await else {
            return DatagramArrival::End;
        };
        *self.path.lock().unwrap_or_else(PoisonError::into_inner) = Some(datagram.path);
        DatagramArrival::Carried([&self.header[..], &datagram.payload].concat())
    }

    async fn deliver(&self, bytes: &[u8]) -> bool {
        let Ok((from, payload)) = parse_datagram(bytes) else { return false };
        let path = *self.path.lock().unwrap_or_else(PoisonError::into_inner);
        match path.filter(|_| from == self.target) {
            Some(path) => self.socket.send(payload, &path).await.is_ok(),
            None => false,
        }
    }
}
