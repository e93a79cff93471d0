//! The own transport, which authenticates and encrypts by itself.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use burst::{Config, Listener, ListenerSecurity};
use sharing::Generator;
use udp::streams::{Endpoint, Stream};

use super::Transport;
use super::datagrams::{DatagramStream, buffer, with_reason};
use crate::options::{Options, Peers, Security};
use crate::stream::ByteStream;

/// See [the module](self).
pub(crate) struct Burst;

impl Transport for Burst {
    fn name(&self) -> &'static str {
        "burst"
    }

    fn about(&self) -> &'static str {
        "Sunder's own over UDP; for large one-way transfers over long paths"
    }

    fn connect(&self, to: SocketAddr, options: &Options) -> io::Result<Arc<dyn ByteStream>> {
        self.open(to, options, config(options))
    }

    fn is_over_udp(&self) -> bool {
        true
    }

    fn endpoint(&self, options: &Options) -> io::Result<Option<Box<dyn Endpoint>>> {
        let security = match &options.security {
            Security::Noise { identity, peers } => {
                let peers = peers.clone();
                ListenerSecurity::Noise(identity.clone(), Arc::new(move |key| peers.admit(key)))
            }
            Security::Insecure => ListenerSecurity::Insecure,
        };
        let generator = Generator::seeded().map_err(io::Error::other)?;
        let listener = Listener::new(config(options), security, generator);
        Ok(Some(Box::new(listener.map_err(io::Error::other)?)))
    }

    fn wrap(&self, stream: Stream) -> Arc<dyn ByteStream> {
        Arc::new(DatagramStream { stream, transport: "burst" })
    }
}

impl Burst {
    /// Connects as [`Transport::connect`], but the other end's program has the connection only once
    /// something is written, which may be nothing. Dropped before that, it leaves nothing behind.
    pub(crate) fn connect_held(
        &self,
        to: SocketAddr,
        options: &Options,
    ) -> io::Result<Arc<dyn ByteStream>> {
        self.open(to, options, Config { is_held: true, ..config(options) })
    }

    fn open(
        &self,
        to: SocketAddr,
        options: &Options,
        config: Config,
    ) -> io::Result<Arc<dyn ByteStream>> {
        let security = match &options.security {
            Security::Noise { identity, peers: Peers::Pinned(keys) } if !keys.is_empty() => {
                burst::Security::Noise(identity, keys[0])
            }
            Security::Noise { .. } => return Err(io::ErrorKind::InvalidInput.into()),
            Security::Insecure => burst::Security::Insecure,
        };
        let is_insecure = matches!(security, burst::Security::Insecure);
        let connected = burst::connect(to, config, &security);
        Ok(self.wrap(connected.map_err(|error| with_reason(error, is_insecure))?))
    }
}

fn config(options: &Options) -> Config {
    let buffer = buffer(options);
    Config {
        send_buffer: buffer,
        receive_buffer: buffer,
        start_rate: options.path.map(|path| path.rate),
        connect_timeout: options.connect_timeout,
        ..Config::default()
    }
}
