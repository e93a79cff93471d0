//! The registry of transports. Each transport is one file and one line here.

mod buffers;
mod burst;
mod datagrams;
pub(crate) mod micss;
mod mptcp;
mod quic;
mod refusals;
mod sabul;
pub(crate) mod tcp;
mod tcp_info;
pub(crate) mod udp;

use std::io;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

use ::udp::streams::{AcceptedUdpStream, UdpStream, UdpStreamAcceptor, UdpStreamEndpoint};
use ::udp::{SocketBinding, UdpBatchSocket};

use crate::error::Error;
use crate::options::{ConnectionOptions, TransportChoice};
use crate::probe::ProbeEndpoint;
use crate::stream::ByteStream;
use datagrams::DatagramStream;
use refusals::RefusalLoggingEndpoint;

/// All transports, in the order of `--help`.
static TRANSPORTS: &[&dyn Transport] = &[
    &tcp::TcpTransport,
    &mptcp::MptcpTransport,
    &burst::BurstTransport,
    &sabul::SabulTransport,
    &udp::UdpTransport,
    &quic::QuicTransport,
    &micss::MicssTransport,
];

/// The largest number of open connections over UDP that wait to be accepted.
const BACKLOG: usize = 128;

/// The transport that is used if nothing is known of the path.
pub(crate) static DEFAULT: &dyn Transport = &tcp::TcpTransport;

/// The transport that is tried beside it while nothing is known of the path.
pub(crate) static SECOND: burst::BurstTransport = burst::BurstTransport;

/// A transport.
pub(crate) trait Transport: Sync {
    /// Its name, as in `--transport NAME`.
    fn name(&self) -> &'static str;

    /// Its purpose, in one line.
    fn about(&self) -> &'static str;

    /// Connects within [`ConnectionOptions::connect_timeout`].
    fn connect(
        &self,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>>;

    /// Whether it must be told the path's rate and loss, as it does not measure them itself.
    fn needs_path(&self) -> bool {
        false
    }

    /// Whether it uses UDP: what blocks one such transport blocks them all.
    fn is_over_udp(&self) -> bool {
        false
    }

    /// The endpoint with which it listens, if it uses UDP.
    ///
    /// # Errors
    /// If the system returns an error, or the options do not allow it.
    fn endpoint(
        &self,
        _options: &ConnectionOptions,
    ) -> io::Result<Option<Box<dyn UdpStreamEndpoint>>> {
        Ok(None)
    }

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
        for transport in TRANSPORTS {
            let endpoint = transport.endpoint(options)?.map(RefusalLoggingEndpoint::new);
            endpoints.extend(endpoint.map(|endpoint| Box::new(endpoint) as _));
        }
        let socket = UdpBatchSocket::bind(&SocketBinding { local: address, device: None })?;
        Ok(Self(UdpStreamAcceptor::new(socket, endpoints, BACKLOG)?))
    }

    pub(crate) fn accept(&self) -> io::Result<Arc<dyn ByteStream>> {
        let AcceptedUdpStream { stream, protocol } = self.0.accept()?;
        let transport = TRANSPORTS.iter().find(|transport| transport.name() == protocol);
        transport.map(|transport| transport.wrap(stream)).ok_or(io::ErrorKind::Unsupported.into())
    }

    /// Stops accepting: [`Self::accept`] fails.
    pub(crate) fn close(&self) {
        self.0.close();
    }
}

/// The names of all transports, each with its purpose.
pub fn names() -> impl Iterator<Item = (&'static str, &'static str)> {
    TRANSPORTS.iter().map(|transport| (transport.name(), transport.about()))
}

/// The transport with this name.
pub(crate) fn named(name: &str) -> Result<&'static dyn Transport, Error> {
    let found = TRANSPORTS.iter().find(|transport| transport.name() == name);
    found.copied().ok_or_else(|| {
        let known: Vec<&str> = names().map(|(name, _)| name).collect();
        Error::UnknownTransport { name: name.to_owned(), known: known.join(", ") }
    })
}

impl FromStr for TransportChoice {
    type Err = Error;

    fn from_str(name: &str) -> Result<Self, Error> {
        if name == "auto" { Ok(Self::Auto) } else { Ok(Self::Named(named(name)?.name())) }
    }
}
