//! QUIC, which has its own authentication and encryption.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use quic::{QuicConfig, QuicCongestionControl};
use udp::streams::UdpStreamEndpoint;

use super::DatagramTransport;
use super::datagrams::{buffer, with_reason};
use crate::options::{ConnectionOptions, ConnectionSecurity, PeerKeyPolicy, random_identity};
use crate::stream::{ByteStream, Transport};

/// See [the module](self).
pub(super) struct QuicTransport;

impl Transport for QuicTransport {
    fn name(&self) -> &'static str {
        "quic"
    }

    fn about(&self) -> &'static str {
        "QUIC over UDP, encrypted by TLS 1.3"
    }

    fn connect(
        &self,
        to: SocketAddr,
        options: &ConnectionOptions,
    ) -> io::Result<Arc<dyn ByteStream>> {
        let mut config = config(options)?;
        config.listener = match &config.peers {
            quic::QuicPeerPolicy::Only(keys) => keys.first().copied(),
            quic::QuicPeerPolicy::DangerAny => None,
        };
        let is_insecure = config.listener.is_none();
        let connected = quic::connect(to, &config);
        Ok(self.wrap(connected.map_err(|error| with_reason(error, is_insecure))?))
    }

    fn is_over_udp(&self) -> bool {
        true
    }
}

impl DatagramTransport for QuicTransport {
    fn endpoint(&self, options: &ConnectionOptions) -> io::Result<Box<dyn UdpStreamEndpoint>> {
        let config = QuicConfig { listener: options.security.public_key(), ..config(options)? };
        Ok(Box::new(quic::QuicEndpoint::new(&config, None)?))
    }
}

fn config(options: &ConnectionOptions) -> io::Result<QuicConfig> {
    let (identity, peers) = match &options.security {
        ConnectionSecurity::Noise { identity, peers: PeerKeyPolicy::Pinned(keys) } => {
            (identity.clone(), quic::QuicPeerPolicy::Only(keys.clone()))
        }
        ConnectionSecurity::Noise { identity, peers: PeerKeyPolicy::Any } => {
            (identity.clone(), quic::QuicPeerPolicy::DangerAny)
        }
        ConnectionSecurity::Insecure => {
            (Arc::new(random_identity()?), quic::QuicPeerPolicy::DangerAny)
        }
    };
    let window = u32::try_from(buffer(options)).unwrap_or(u32::MAX);
    let initial_window = options.path.map(|path| path.rate * path.round_trip.as_secs_f64());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    let initial_window = initial_window.map(|path| (path as u64).min(window.into()));
    Ok(QuicConfig {
        congestion: congestion(options)?,
        initial_window,
        window,
        connect_timeout: options.connect_timeout,
        ..QuicConfig::new(identity, peers)
    })
}

/// The congestion control that the options name. A name that only the kernel has applies to TCP
/// only.
fn congestion(options: &ConnectionOptions) -> io::Result<QuicCongestionControl> {
    let Some(name) = &options.congestion else { return Ok(QuicCongestionControl::default()) };
    QuicCongestionControl::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
        let known = QuicCongestionControl::ALL.map(QuicCongestionControl::name).join(", ");
        let what = format!("QUIC has no congestion control {name}; it has {known}");
        io::Error::new(io::ErrorKind::InvalidInput, what)
    })
}
