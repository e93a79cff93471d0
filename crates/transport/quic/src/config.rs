//! The configuration of an end of connections.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use keys::{IdentityPublicKey, IdentitySecretKey};
use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::{AckFrequencyConfig, IdleTimeout, TransportConfig, VarInt};

/// The number of keepalives in the time after which a silent connection fails.
const KEEP_ALIVES_PER_SILENCE: u32 = 3;

/// The settings of an end of connections.
#[derive(Clone, Debug)]
pub struct QuicConfig {
    /// The key that this end proves.
    pub identity: Arc<IdentitySecretKey>,
    /// Which peers this end accepts.
    pub peers: QuicPeerPolicy,
    /// The listener's key, if only clients that know it may connect. Both ends must set it. `None`
    /// is standard QUIC, in which a listener presents its key to any client; in that case, the
    /// connection does not report the peer's key.
    pub listener: Option<IdentityPublicKey>,
    /// The congestion control of this end.
    pub congestion: QuicCongestionControl,
    /// The initial congestion window in bytes, if the path is known: its rate times its round-trip
    /// time.
    pub initial_window: Option<u64>,
    /// The size in bytes of the send buffer and of the receive buffer of a stream. It also limits
    /// the bytes in flight: a path needs its rate times its round-trip time.
    pub window: u32,
    /// How long a client waits for the handshake.
    pub connect_timeout: Duration,
    /// How long the peer may be silent before a connection fails.
    pub idle_timeout: Duration,
}

/// Which peers an end accepts.
#[derive(Clone, Debug)]
pub enum QuicPeerPolicy {
    /// Peers with one of these keys.
    Only(Vec<IdentityPublicKey>),
    /// Any peer. A client with this policy accepts an attacker on the path, too.
    DangerAny,
}

/// The congestion controls of `quinn-proto`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuicCongestionControl {
    /// CUBIC (RFC 9438): every loss counts as congestion.
    Cubic,
    /// New Reno (RFC 9002, 7).
    NewReno,
    /// BBR version 1: a model of the path's rate and delay. Experimental in `quinn-proto`.
    #[default]
    Bbr,
}

impl QuicCongestionControl {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Bbr, Self::Cubic, Self::NewReno];

    /// Its name, as in the Linux kernel.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "reno",
            Self::Bbr => "bbr",
        }
    }
}

impl QuicConfig {
    /// BBR, windows of 64 MiB (enough for 300 ms at 1.7 Gbit/s), a handshake timeout of 5 s, and an
    /// idle timeout of 15 s.
    pub fn new(identity: Arc<IdentitySecretKey>, peers: QuicPeerPolicy) -> Self {
        Self {
            identity,
            peers,
            listener: None,
            congestion: QuicCongestionControl::default(),
            initial_window: None,
            window: 64 << 20,
            connect_timeout: Duration::from_secs(5),
            idle_timeout: Duration::from_secs(15),
        }
    }

    pub(crate) fn transport(&self) -> io::Result<TransportConfig> {
        let mut transport = TransportConfig::default();
        let window = VarInt::from_u32(self.window);
        let silence = IdleTimeout::try_from(self.idle_timeout).map_err(io::Error::other)?;
        transport
            .max_concurrent_bidi_streams(VarInt::from_u32(0))
            .max_concurrent_uni_streams(VarInt::from_u32(1))
            .stream_receive_window(window)
            .receive_window(window)
            .send_window(u64::from(self.window))
            .max_idle_timeout(Some(silence))
            .keep_alive_interval(Some(self.idle_timeout / KEEP_ALIVES_PER_SILENCE))
            .datagram_receive_buffer_size(None)
            .ack_frequency_config(Some(AckFrequencyConfig::default()))
            .congestion_controller_factory(self.controllers());
        Ok(transport)
    }

    fn controllers(&self) -> Arc<dyn ControllerFactory + Send + Sync> {
        let window = self.initial_window.map(|window| window.min(u64::from(self.window)));
        match self.congestion {
            QuicCongestionControl::Cubic => {
                let mut config = CubicConfig::default();
                window.map(|window| config.initial_window(window));
                Arc::new(config)
            }
            QuicCongestionControl::NewReno => {
                let mut config = NewRenoConfig::default();
                window.map(|window| config.initial_window(window));
                Arc::new(config)
            }
            QuicCongestionControl::Bbr => {
                let mut config = BbrConfig::default();
                window.map(|window| config.initial_window(window));
                Arc::new(config)
            }
        }
    }
}
