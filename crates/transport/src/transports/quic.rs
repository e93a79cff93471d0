//! QUIC, which encrypts and authenticates by itself.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use quic::{Config, Congestion};
use udp::streams::Endpoint;

use super::Transport;
use super::datagrams::{buffer, with_reason};
use crate::options::{Options, Peers, Security, random_identity};
use crate::stream::ByteStream;

/// See [the module](self).
pub(super) struct Quic;

impl Transport for Quic {
    fn name(&self) -> &'static str {
        "quic"
    }

    fn about(&self) -> &'static str {
        "QUIC over UDP, encrypted by TLS 1.3"
    }

    fn connect(&self, to: SocketAddr, options: &Options) -> io::Result<Arc<dyn ByteStream>> {
        let mut config = config(options)?;
        config.listener = match &config.peers {
            quic::Peers::Only(keys) => keys.first().copied(),
            quic::Peers::DangerAny => None,
        };
        let is_insecure = config.listener.is_none();
        let connected = quic::connect(to, &config);
        Ok(self.wrap(connected.map_err(|error| with_reason(error, is_insecure))?))
    }

    fn is_over_udp(&self) -> bool {
        true
    }

    fn endpoint(&self, options: &Options) -> io::Result<Option<Box<dyn Endpoint>>> {
        let config = Config { listener: options.security.public_key(), ..config(options)? };
        Ok(Some(Box::new(quic::Endpoint::new(&config, None)?)))
    }
}

fn config(options: &Options) -> io::Result<Config> {
    let (identity, peers) = match &options.security {
        Security::Noise { identity, peers: Peers::Pinned(keys) } => {
            (identity.clone(), quic::Peers::Only(keys.clone()))
        }
        Security::Noise { identity, peers: Peers::Any } => {
            (identity.clone(), quic::Peers::DangerAny)
        }
        Security::Insecure => (Arc::new(random_identity()?), quic::Peers::DangerAny),
    };
    let window = u32::try_from(buffer(options)).unwrap_or(u32::MAX);
    let initial_window = options.path.map(|path| path.rate * path.round_trip.as_secs_f64());
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it saturates")]
    let initial_window = initial_window.map(|path| (path as u64).min(window.into()));
    Ok(Config {
        congestion: congestion(options)?,
        initial_window,
        window,
        connect_timeout: options.connect_timeout,
        ..Config::new(identity, peers)
    })
}

/// The congestion control that the options name. One that only the kernel has is TCP's.
fn congestion(options: &Options) -> io::Result<Congestion> {
    let Some(name) = &options.congestion else { return Ok(Congestion::default()) };
    Congestion::ALL.into_iter().find(|known| known.name() == name).ok_or_else(|| {
        let known = Congestion::ALL.map(Congestion::name).join(", ");
        let what = format!("QUIC has no congestion control {name}; it has {known}");
        io::Error::new(io::ErrorKind::InvalidInput, what)
    })
}
