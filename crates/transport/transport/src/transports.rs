//! The transports of this crate: each is one file and one line here. `registry` also has those that
//! a program adds.

mod buffers;
pub(crate) mod burst;
mod datagrams;
pub(crate) mod micss;
mod mptcp;
mod quic;
mod refusals;
mod registry;
mod sabul;
pub(crate) mod tcp;
mod tcp_info;
pub(crate) mod udp;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use ::udp::streams::{AcceptedUdpStream, UdpStream, UdpStreamAcceptor, UdpStreamEndpoint};
use ::udp::{SocketBinding, UdpBatchSocket};

use crate::options::ConnectionOptions;
use crate::probe::ProbeEndpoint;
use crate::stream::{ByteStream, Transport};
use datagrams::DatagramStream;
use refusals::RefusalLoggingEndpoint;

pub use registry::{TransportRegistrationError, names, register};
pub(crate) use registry::{named, predicted, registered};

/// The transports of this crate, in the order of `--help`.
static TRANSPORTS: &[&dyn Transport] = &[
    &tcp::TcpTransport,
    &mptcp::MptcpTransport,
    &burst::BurstTransport,
    &sabul::SabulTransport,
    &udp::UdpTransport,
    &quic::QuicTransport,
    &micss::MicssTransport,
];

/// Those over UDP, which share the listener's UDP port.
static DATAGRAM_TRANSPORTS: &[&dyn DatagramTransport] =
    &[&burst::BurstTransport, &sabul::SabulTransport, &udp::UdpTransport, &quic::QuicTransport];

/// The largest number of open connections over UDP that wait to be accepted.
const BACKLOG: usize = 128;

/// The transport that is used if nothing is known of the path.
pub(crate) static DEFAULT: &dyn Transport = &tcp::TcpTransport;

/// The transport that is tried beside it while nothing is known of the path.
pub(crate) static SECOND: burst::BurstTransport = burst::BurstTransport;

/// A transport that shares the listener's UDP port.
trait DatagramTransport: Transport {
    /// The endpoint with which it listens.
    ///
    /// # Errors
    /// If the system returns an error, or the options do not allow it.
    fn endpoint(&self, options: &ConnectionOptions) -> io::Result<Box<dyn UdpStreamEndpoint>>;

    /// Wraps a connection that its endpoint has accepted.
    fn wrap(&self, stream: UdpStream) -> Arc<dyn ByteStream> {
        Arc::new(DatagramStream { stream, transport: self.name() })
    }
}

/// Accepts connections of all transports over UDP on one socket.
pub(crate) struct DatagramListener(UdpStreamAcceptor);

impl DatagramListener {
    /// Starts to listen. A datagram belongs to the first transport whose endpoint accepts it.
    pub(crate) fn bind(address: SocketAddr, options: &ConnectionOptions) -> io::Result<Self> {
        let probe = ProbeEndpoint::new(options.congestion.as_deref())?;
        let mut endpoints: Vec<Box<dyn UdpStreamEndpoint>> = vec![Box::new(probe)];
        for transport in DATAGRAM_TRANSPORTS {
            endpoints.push(Box::new(RefusalLoggingEndpoint::new(transport.endpoint(options)?)));
        }
        let socket = UdpBatchSocket::bind(&SocketBinding { local: address, device: None })?;
        Ok(Self(UdpStreamAcceptor::new(socket, endpoints, BACKLOG)?))
    }

    pub(crate) fn accept(&self) -> io::Result<Arc<dyn ByteStream>> {
        let AcceptedUdpStream { stream, protocol } = self.0.accept()?;
        let transport = DATAGRAM_TRANSPORTS.iter().find(|transport| transport.name() == protocol);
        transport.map(|transport| transport.wrap(stream)).ok_or(io::ErrorKind::Unsupported.into())
    }

    /// Stops accepting: [`Self::accept`] fails.
    pub(crate) fn close(&self) {
        self.0.close();
    }
}
