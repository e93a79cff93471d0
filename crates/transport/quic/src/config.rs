//! What an end of connections is configured with.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use keys::{IdentityPublicKey, IdentitySecretKey};
use quinn_proto::congestion::{BbrConfig, ControllerFactory, CubicConfig, NewRenoConfig};
use quinn_proto::{AckFrequencyConfig, IdleTimeout, TransportConfig, VarInt};

/// How many keep-alives may be lost in a row before a connection fails.
const KEEP_ALIVES_PER_SILENCE: u32 = 3;

/// What one end of connections has, and how long it waits.
#[derive(Clone, Debug)]
pub struct QuicConfig {
    /// What this end proves to be.
    pub identity: Arc<IdentitySecretKey>,
    /// Whom it talks to.
    pub peers: QuicPeerPolicy,
    /// The listener's key, if only those who know it may connect; both ends give it. `None` is
    /// standard QUIC, in which a listener shows its key to whoever asks; then peers' keys are taken
    /// for nothing, and not reported.
    pub listener: Option<IdentityPublicKey>,
    /// How fast it sends.
    pub congestion: QuicCongestionControl,
    /// How many bytes may be unacknowledged at first, if something is known of the path: its rate
    /// times its round-trip time.
    pub initial_window: Option<u64>,
    /// How many bytes of a stream wait until they are acknowledged, and until they are read. Also
    /// the most that is under way: a path needs its rate times its round-trip time.
    pub window: u32,
    /// How long a client waits for the listener.
    pub connect_timeout: Duration,
    /// After how long without a word of the peer a connection fails.
    pub idle_timeout: Duration,
}

/// Whose connections are accepted, and to whom one connects.
#[derive(Clone, Debug)]
pub enum QuicPeerPolicy {
    /// Those with one of these keys.
    Only(Vec<IdentityPublicKey>),
    /// Everybody: of a client, also an attacker on the path.
    DangerAny,
}

/// The congestion controls of `quinn-proto`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum QuicCongestionControl {
    /// CUBIC (RFC 9438): every loss is taken for congestion.
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

    /// Its name, as the kernel's TCP has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::NewReno => "reno",
            Self::Bbr => "bbr",
        }
    }
}

impl QuicConfig {
    /// BBR, windows of 64 MiB (300 ms at 1.7 Gbit/s), 5 s to connect and 15 s of silence.
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
