//! UDP ASSOCIATE of SOCKS5 (RFC 1928, section 7): a UDP socket of the client for one application,
//! whose datagrams a stream carries.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};
use tracing::debug;

use super::opening::{open, reject};
use super::peers::PeerPools;
use crate::StreamError;
use crate::config::MicssClientConfig;
use crate::net::client::pool::ConnectionPool;
use crate::net::metrics::StreamMetrics;
use crate::net::stream::datagrams::{
    DatagramArrival, DatagramSide, IDLE_TIMEOUT, receive_from, relay_datagrams,
};
use crate::net::stream::driver::ReusableConnection;
use crate::net::stream::program::MicssStream;
use crate::protocol::datagram::{SOCKS_HEADER, parse_datagram, parse_socks_datagram};
use crate::protocol::open_request::{OpenRequest, StreamDestination};
use crate::protocol::socks;
use crate::protocol::target::{ServiceTarget, TargetHost};

/// Serves an application's request for an association, to its end: that of the application's
/// connection, that of the stream, or when it is idle for too long. Returns the channels and their
/// pool, if they can be reused.
///
/// # Errors
/// If the stream does not open, or breaks.
pub(super) async fn associate(
    config: &MicssClientConfig,
    peers: &PeerPools,
    stream_metrics: &Arc<StreamMetrics>,
    stated: ServiceTarget,
    mut application: TcpStream,
) -> Result<(Arc<ConnectionPool>, Vec<ReusableConnection>), StreamError> {
    let (pool, set) = match peers.take_at_server().await {
        Ok(taken) => taken,
        Err(error) => return Err(reject(application, error).await),
    };
    let request = OpenRequest { destination: StreamDestination::Datagrams, client_address: None };
    let mut driver = match open(&pool, set, config.integrity, config.rng, &request, true) {
        Ok(driver) => driver,
        Err(error) => return Err(reject(application, error).await),
    };
    if let Err(error) = driver.next().await {
        let error = reject(application, error).await;
        driver.close().await;
        return Err(error);
    }
    let (socket, peer) = bind(&application).await.map_err(StreamError::Application)?;
    let bound = socket.local_addr().map_err(StreamError::Application)?;
    let replied = application.write_all(&socks::bound_reply(bound)).await;
    replied.map_err(StreamError::Application)?;
    debug!(%bound, channels = driver.connections(), "association opened");
    let (stream, other_end, _) = MicssStream::new().await?;
    driver.count_spare(stream_metrics.count_spare());
    driver.connect(other_end);
    let source = Mutex::new(stated_source(&stated, peer));
    let side = SocksDatagrams { socket: &socket, peer, source };
    let left = async {
        // The association ends with the connection, on which nothing more is expected.
        let mut bytes = [0; 64];
        while matches!(application.read(&mut bytes).await, Ok(1..)) {}
    };
    let relayed = relay_datagrams(stream, &side, &stream_metrics.datagrams, IDLE_TIMEOUT, left);
    let (result, ()) = tokio::join!(driver.run(), relayed);
    Ok((pool, result?))
}

/// The application's socket, if it has stated it: a port of its own address, or of an unspecified
/// one. Another address is no source: some applications name the target of their datagrams.
fn stated_source(stated: &ServiceTarget, peer: IpAddr) -> Option<SocketAddr> {
    let TargetHost::Address(address) = stated.host() else { return None };
    let is_own = *address == peer || address.is_unspecified();
    (is_own && stated.port() != 0).then(|| SocketAddr::new(peer, stated.port()))
}

/// A UDP socket at the address to which the application has connected, and the application's
/// address.
async fn bind(application: &TcpStream) -> io::Result<(UdpSocket, IpAddr)> {
    let socket = UdpSocket::bind((application.local_addr()?.ip().to_canonical(), 0)).await?;
    Ok((socket, application.peer_addr()?.ip().to_canonical()))
}

/// The datagrams of one application.
struct SocksDatagrams<'a> {
    socket: &'a UdpSocket,
    /// The host of the application. Datagrams of other hosts are dropped.
    peer: IpAddr,
    /// The application's socket: the one that it has stated, or that of the first datagram.
    source: Mutex<Option<SocketAddr>>,
}

impl DatagramSide for SocksDatagrams<'_> {
    async fn receive(&self, buffer: &mut [u8]) -> DatagramArrival {
        let (len, from) = receive_from(self.socket, buffer).await;
        let carried = parse_socks_datagram(&buffer[..len]).ok();
        match carried.filter(|_| self.is_source(from)) {
            Some(carried) => DatagramArrival::Carried(carried.to_vec()),
            None => DatagramArrival::Dropped,
        }
    }

    async fn deliver(&self, bytes: &[u8]) -> bool {
        let source = *self.source.lock().unwrap_or_else(PoisonError::into_inner);
        let (Ok(_), Some(source)) = (parse_datagram(bytes), source) else { return false };
        let datagram = [&SOCKS_HEADER[..], bytes].concat();
        self.socket.send_to(&datagram, source).await.is_ok()
    }
}

impl SocksDatagrams<'_> {
    /// Whether a valid datagram from this address is the application's. The first one from its host
    /// decides, unless the application has stated its port.
    fn is_source(&self, from: SocketAddr) -> bool {
        let mut source = self.source.lock().unwrap_or_else(PoisonError::into_inner);
        from.ip() == self.peer && *source.get_or_insert(from) == from
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_applications_own_address_is_its_source() {
        let peer: IpAddr = "192.0.2.9".parse().unwrap();
        for (stated, expected) in [
            ("0.0.0.0:0", None),
            ("192.0.2.9:0", None),
            ("0.0.0.0:4711", Some("192.0.2.9:4711")),
            ("[::]:4711", Some("192.0.2.9:4711")),
            ("192.0.2.9:4711", Some("192.0.2.9:4711")),
            ("198.51.100.53:53", None),
            ("example.org:53", None),
        ] {
            let source = stated_source(&stated.parse().unwrap(), peer);
            assert_eq!(source, expected.map(|it| it.parse().unwrap()), "{stated}");
        }
    }
}
