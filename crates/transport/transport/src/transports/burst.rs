//! Sunder's own transport, which has its own authentication and encryption.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use burst::{BurstConfig, BurstListener, BurstListenerSecurity};
use random::RandomGenerator;
use udp::UdpBatchSocket;
use udp::streams::{UdpStream, UdpStreamAcceptor, UdpStreamEndpoint};

use super::DatagramTransport;
use super::datagrams::{buffer, with_reason};
use crate::options::{ConnectionOptions, ConnectionSecurity, PeerKeyPolicy};
use crate::stream::{ByteStream, Transport};

/// See [the module](self).
pub(crate) struct BurstTransport;

impl Transport for BurstTransport {
    fn name(&self) -> &'static str {
        "burst"
    }

    fn about(&self) -> &'static str {
        "Sunder's own over UDP; for large one-way transfers over long paths"
    }

    fn connect(
        &self,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>> {
        self.open(options, |security| burst::connect(to, config(options), security))
    }

    fn is_over_udp(&self) -> bool {
        true
    }
}

impl DatagramTransport for BurstTransport {
    fn endpoint(&self, options: &ConnectionOptions) -> io::Result<Box<dyn UdpStreamEndpoint>> {
        let security = match &options.security {
            ConnectionSecurity::Noise { identity, peers } => {
                let peers = peers.clone();
                BurstListenerSecurity::Noise(
                    identity.clone(),
                    Arc::new(move |key| peers.admit(key)),
                )
            }
            ConnectionSecurity::Insecure => BurstListenerSecurity::Insecure,
        };
        let generator = RandomGenerator::seeded().map_err(io::Error::other)?;
        let listener = BurstListener::new(config(options), security, generator);
        Ok(Box::new(listener.map_err(io::Error::other)?))
    }
}

impl BurstTransport {
    /// Like [`Transport::connect`], but the other end's program gets the connection only once
    /// something is written, which may be zero bytes. If it is dropped before that, nothing remains
    /// at the other end.
    pub(crate) fn connect_deferred(
        &self,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>> {
        let config = BurstConfig { is_deferred: true, ..config(options) };
        self.open(options, |security| burst::connect(to, config, security))
    }

    /// Like [`Transport::connect`], with a socket on which datagrams of the other end have arrived.
    pub(crate) fn connect_over(
        &self,
        socket: UdpBatchSocket,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>> {
        self.open(options, |security| burst::connect_over(socket, to, config(options), security))
    }

    /// Accepts connections on a socket. `first` gets all datagrams before.
    pub(crate) fn listen_over(
        &self,
        socket: UdpBatchSocket,
        first: Box<dyn UdpStreamEndpoint>,
        options: &ConnectionOptions,
    ) -> io::Result<BurstAcceptor> {
        let endpoints = vec![first, self.endpoint(options)?];
        Ok(BurstAcceptor(UdpStreamAcceptor::new(socket, endpoints, 1)?))
    }

    fn open(
        &self,
        options: &ConnectionOptions,
        connect: impl FnOnce(&burst::BurstSecurity<'_>) -> io::Result<UdpStream>,
    ) -> io::Result<Arc<dyn ByteStream>> {
        let security = match &options.security {
            ConnectionSecurity::Noise { identity, peers: PeerKeyPolicy::Pinned(keys) }
                if !keys.is_empty() =>
            {
                burst::BurstSecurity::Noise(identity, keys[0])
            }
            ConnectionSecurity::Noise { .. } => return Err(io::ErrorKind::InvalidInput.into()),
            ConnectionSecurity::Insecure => burst::BurstSecurity::Insecure,
        };
        let is_insecure = matches!(security, burst::BurstSecurity::Insecure);
        let connected = connect(&security);
        Ok(self.wrap(connected.map_err(|error| with_reason(error, is_insecure))?))
    }
}

/// Accepts one connection on a socket that it does not share with other transports.
pub(crate) struct BurstAcceptor(UdpStreamAcceptor);

impl BurstAcceptor {
    /// Waits for the connection.
    ///
    /// # Errors
    /// After [`Self::close`], or if the socket has failed.
    pub(crate) fn accept(&self) -> io::Result<Arc<dyn ByteStream>> {
        Ok(BurstTransport.wrap(self.0.accept()?.stream))
    }

    /// Ends [`Self::accept`] in another thread.
    pub(crate) fn close(&self) {
        self.0.close();
    }
}

fn config(options: &ConnectionOptions) -> BurstConfig {
    let buffer = buffer(options);
    BurstConfig {
        send_buffer: buffer,
        receive_buffer: buffer,
        start_rate: options.path.map(|path| path.rate),
        connect_timeout: options.connect_timeout,
        ..BurstConfig::default()
    }
}
